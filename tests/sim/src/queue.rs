//! The destination: a queue that answers for each entry of a batch.

use crate::source::topic_of;
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
    /// The latest message of each topic.
    latest: BTreeMap<u64, u64>,
    entries: BTreeSet<EntryId>,
    repeated: u64,
}

impl Queue {
    /// A message of the same topic that is here already and came later to the broker, where this one was never here.
    #[must_use]
    pub fn later_of_its_topic(&self, message: u64) -> Option<u64> {
        let latest = self.latest.get(&topic_of(message)).copied();
        latest.filter(|latest| *latest > message && !self.has(message))
    }

    /// Takes an entry in; answers whether that very entry was here before.
    pub fn take(&mut self, entry: &Arc<Entry>) -> bool {
        let number = number_of(entry);
        *self.arrived.entry(number).or_default() += 1;
        if entry.redrives() == 0 {
            let latest = self.latest.entry(topic_of(number)).or_default();
            *latest = number.max(*latest);
        }
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
