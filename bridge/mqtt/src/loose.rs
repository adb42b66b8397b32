//! Messages of quality of service 0 that wait for the consumer. No window bounds them, and the broker does not repeat them: this is their bound.

use crate::options::{LooseBuffer, OnFull};
use causeway_core::message::Message;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// A message, and the receiver that asked for it.
pub(crate) type Copy = (Arc<str>, Message);

/// What became of a message.
#[derive(Debug)]
pub(crate) enum Pushed {
    /// It waits; the consumer is to be told that there is one more.
    Waits,
    /// It waits in the place of the oldest one, which is dropped.
    InPlaceOfTheOldest {
        /// What that one weighed, in bytes.
        dropped: usize,
    },
    /// There is no room for it.
    Full(Box<Copy>),
}

/// The buffer. The consumer takes from it when one of its marks comes by: there are as many marks on their way as messages here. The number of a delivery is
/// that of its mark, so that numbers stay in order whatever is dropped.
#[derive(Debug)]
pub(crate) struct Loose {
    options: LooseBuffer,
    queue: Mutex<VecDeque<Copy>>,
    taken: Notify,
}

impl Loose {
    pub(crate) fn new(options: LooseBuffer) -> Self {
        Self { options, queue: Mutex::default(), taken: Notify::new() }
    }

    /// Whether to stop reading where there is no room.
    pub(crate) fn pauses(&self) -> bool {
        self.options.on_full == OnFull::PauseSocket
    }

    pub(crate) fn push(&self, copy: Box<Copy>) -> Pushed {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() < self.options.messages {
            queue.push_back(*copy);
            return Pushed::Waits;
        }
        let oldest = if self.options.on_full == OnFull::DropOldest { queue.pop_front() } else { None };
        let Some((_, oldest)) = oldest else { return Pushed::Full(copy) };
        queue.push_back(*copy);
        Pushed::InPlaceOfTheOldest { dropped: oldest.weight() }
    }

    pub(crate) fn take(&self) -> Option<Copy> {
        let taken = self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        self.taken.notify_one();
        taken
    }

    /// Something was taken since this was last asked. Cancel-safe.
    pub(crate) async fn taken(&self) {
        self.taken.notified().await;
    }
}
