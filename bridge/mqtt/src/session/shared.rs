//! What the task of a source and its handle both see.

use causeway_core::message::Message;
use causeway_core::source_id::{self, Meeting, RecentIds};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counters and marks that the task and the handle share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) received: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
    pub(crate) unacknowledged: AtomicU64,
    pub(crate) unacknowledged_peak: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) connect_failures: AtomicU64,
    pub(crate) sessions_lost: AtomicU64,
    pub(crate) poison_packets: AtomicU64,
    pub(crate) poison_lost: AtomicU64,
    pub(crate) window_overruns: AtomicU64,
    pub(crate) reused_ids: AtomicU64,
    pub(crate) dropped_qos0: AtomicU64,
    pub(crate) refusals: AtomicU64,
    pub(crate) quarantined: AtomicU64,
    pub(crate) unmatched_held: AtomicU64,
    /// Buffered deliveries of connections below this one come again by a later connection and need not be handed over.
    pub(crate) resumed_at: AtomicU64,
    pub(crate) connected: AtomicBool,
    pub(crate) subscribed: AtomicBool,
    /// Nothing is read because the consumer has as many bytes as may be.
    pub(crate) reading_paused: AtomicBool,
    pub(crate) connection: AtomicU64,
    /// The ids of publishers that came last, on whatever connection. Only the task looks at it.
    recent_ids: Mutex<RecentIds>,
}

impl Shared {
    /// Counts an id that stands for another message than it did lately.
    pub(super) fn note_id(&self, message: &Message) {
        let Some(id) = source_id::given(message) else { return };
        let meeting = self.recent_ids.lock().unwrap_or_else(PoisonError::into_inner).note(&id, source_id::content_digest(message));
        if meeting == Meeting::Other {
            count(&self.reused_ids);
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
