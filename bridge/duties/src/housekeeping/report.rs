//! What is told of a run.

use crate::redrive::reason_of;
use causeway_core::outcome::Fault;
use causeway_core::redrive::ItemError;
use serde::Serialize;

/// Lines of `errors` in one answer at most.
const MAX_ERRORS: usize = 1_000;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Expired entries of logs without an owner that became dead letters.
    pub expired_to_dlq: u64,
    /// Entries that no configuration names that became dead letters.
    pub orphans_to_dlq: u64,
    /// Segments at or below a head that were deleted.
    pub segments_deleted: u64,
    /// Old anchors that were deleted.
    pub anchors_pruned: u64,
    /// Retired logs that were removed.
    pub logs_removed: u64,
    /// Commands that were told to have timed out.
    pub commands_timed_out: u64,
    /// Commands whose retention was over.
    pub commands_deleted: u64,
    /// Answers to nobody whose time was over.
    pub command_orphans_deleted: u64,
    /// Answers to nobody whose command has a row by now, which tells what became of it; their notes went too.
    pub command_orphans_adopted: u64,
    /// Rows of the ledger whose retention was over.
    pub ledger_pruned: u64,
    /// Writes that gave way to a live owner.
    pub conflicts: u64,
}

/// What there is, by reading. `None`: not all of it could be read in this run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gauges {
    /// Entries in all logs that are not settled.
    pub outbox_pending: Option<u64>,
    /// Age of the oldest of them in seconds; 0 where there is none.
    pub outbox_oldest_age_s: Option<u64>,
    /// Dead letters.
    pub dlq_depth: Option<u64>,
    /// Age of the oldest of them in seconds; 0 where there is none.
    pub dlq_oldest_age_s: Option<u64>,
    /// Logs with unsettled entries that nobody owns.
    pub logs_without_owner: Option<u64>,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was done, or would be.
    pub swept: Swept,
    /// What there is.
    pub gauges: Gauges,
    /// What could not be treated.
    pub errors: Vec<ItemError>,
    /// Where to go on; `None`: everything was looked at.
    pub continuation: Option<String>,
}

impl Report {
    /// Tells what could not be treated.
    pub fn error(&mut self, id: impl Into<String>, fault: &Fault) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(ItemError { id: id.into(), code: reason_of(fault).as_str(), message: fault.to_string() });
        }
    }
}
