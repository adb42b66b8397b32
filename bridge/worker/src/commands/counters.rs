//! What the gateway of commands counts.

use causeway_core::commands::gateway::{Observation, Path};
use causeway_core::commands::{IgnoredReply, State, Why};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts since the start, and how much is under way.
#[derive(Debug, Default)]
pub struct CommandCounters(Mutex<CommandCounts>);

/// A copy of the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandCounts {
    /// Commands that were recorded.
    pub accepted: u64,
    /// Commands that ended, by their state.
    pub ended: BTreeMap<State, u64>,
    /// Commands that were given here and are not over.
    pub pending: usize,
    /// Callers who wait for an end.
    pub waiting: usize,
    /// Replies by their path, and by why they changed nothing, where they did not.
    pub replies: BTreeMap<(Path, Option<Why>), u64>,
    /// Replies that counted although they were late.
    pub late: u64,
    /// Messages that are no reply, by why.
    pub ignored: BTreeMap<IgnoredReply, u64>,
    /// Replies to nobody.
    pub orphans: u64,
    /// What other instances told, for somebody who waits here.
    pub notified_awaited: u64,
    /// What other instances told, for nobody here.
    pub notified_other: u64,
    /// Writes that another instance was faster with.
    pub conflicts: u64,
    /// Calls to the store that failed.
    pub store_faults: u64,
    /// Publishings that failed.
    pub publish_faults: u64,
}

impl CommandCounters {
    /// The counts as they stand.
    #[must_use]
    pub fn snapshot(&self) -> CommandCounts {
        self.look().clone()
    }

    fn look(&self) -> MutexGuard<'_, CommandCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_gauges(&self, pending: usize, waiting: usize) {
        let mut counts = self.look();
        (counts.pending, counts.waiting) = (pending, waiting);
    }

    pub(super) fn ignored(&self, why: IgnoredReply) {
        *self.look().ignored.entry(why).or_default() += 1;
    }

    pub(super) fn publish_fault(&self) {
        self.look().publish_faults += 1;
    }

    pub(super) fn observe(&self, observation: &Observation) {
        let mut counts = self.look();
        match observation {
            Observation::Accepted => counts.accepted += 1,
            Observation::Ended { state } => *counts.ended.entry(*state).or_default() += 1,
            Observation::Replied { path, why, late } => {
                *counts.replies.entry((*path, *why)).or_default() += 1;
                counts.late += u64::from(*late && why.is_none());
            }
            Observation::Orphan => counts.orphans += 1,
            Observation::Notified { awaited: true } => counts.notified_awaited += 1,
            Observation::Notified { awaited: false } => counts.notified_other += 1,
            Observation::Conflict => counts.conflicts += 1,
            Observation::StoreFault(_) => counts.store_faults += 1,
        }
    }
}
