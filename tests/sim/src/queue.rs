//! The destination: a queue that answers for each entry of a batch.

use crate::store::number_of;
use causeway_core::identity::EntryId;
use causeway_core::message::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    /// How often each message arrived.
    arrived: BTreeMap<u64, u64>,
    entries: BTreeSet<EntryId>,
    repeated: u64,
}

impl Queue {
    /// Takes an entry in; answers whether that very entry was here before.
    pub fn take(&mut self, entry: &Arc<Entry>) -> bool {
        *self.arrived.entry(number_of(entry)).or_default() += 1;
        let again = !self.entries.insert(entry.id);
        self.repeated += u64::from(again);
        again
    }

    /// Whether the message arrived.
    #[must_use]
    pub fn has(&self, message: u64) -> bool {
        self.arrived.contains_key(&message)
    }

    /// Arrivals beyond the first of each message.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.arrived.values().map(|count| count - 1).sum()
    }
}
