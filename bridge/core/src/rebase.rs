//! After a table was restored: every log goes on far above whatever it held before, and under an epoch above every epoch that was ever seen.
//!
//! A restored log is an earlier state of itself. Its slots above the restored tail were used before, by writers whose late requests may still come;
//! its leases may carry versions that were given out already. So each log gets an anchor far above its tail, beyond every slot that may have been
//! used since the restore point, and each lease a version from which only higher epochs follow. What stood between head and tail stays to be sent.

use crate::identity::{Epoch, Id128, LogName, Slot};
use crate::lease::row::LeaseRow;
use crate::lease::{Condition, LeaseWrite};
use crate::rows::{Anchor, Head, Row, RowMeta};
use crate::units::UnixMillis;
use thiserror::Error;

/// By how much a log's next slot is moved unless somebody says otherwise: more slots than any log uses between two backups.
pub const DEFAULT_STEP: u64 = 1_000_000;

/// What was found of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLog {
    /// The log.
    pub log: LogName,
    /// The epoch in the registry.
    pub registered: Epoch,
    /// Its tail, if it has rows.
    pub tail: Option<RowMeta>,
    /// Its head row, if it has one.
    pub head: Option<Head>,
}

impl FoundLog {
    /// Every slot up to this one is settled: what the head row tells or the tail does, whichever is further.
    #[must_use]
    pub fn drained(&self) -> Slot {
        let told = self.head.as_ref().map_or(Slot::HEAD, |head| head.drained);
        told.max(self.tail.map_or(Slot::HEAD, |tail| tail.drained))
    }

    fn highest_epoch(&self) -> Epoch {
        let rows = self.tail.map_or(Epoch(0), |tail| tail.epoch).max(self.head.as_ref().map_or(Epoch(0), |head| head.epoch));
        rows.max(self.registered)
    }
}

/// What was found of a lease: its key and its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLease {
    /// The key.
    pub key: String,
    /// The row.
    pub row: LeaseRow,
}

/// An anchor to put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The log.
    pub log: LogName,
    /// Its tail before; slot 0 where it had none.
    pub tail: Slot,
    /// Where the anchor goes.
    pub slot: Slot,
    /// The anchor.
    pub anchor: Anchor,
}

impl Moved {
    /// The anchor as a row.
    #[must_use]
    pub fn row(&self) -> Row {
        Row::Anchor(self.anchor.clone())
    }
}

/// A lease to raise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The key.
    pub key: String,
    /// The version before.
    pub from: u64,
    /// What to write.
    pub write: LeaseWrite,
}

/// What to do, in this order: the anchors, then the leases. Cut off anywhere, it is simply done again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The epoch of the anchors: above every epoch found.
    pub epoch: Epoch,
    /// The anchors.
    pub logs: Vec<Moved>,
    /// The leases.
    pub leases: Vec<Raised>,
}

/// Why there is no plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RebaseError {
    /// The step is 0: nothing would be moved.
    #[error("a step of 0 moves nothing: give at least 1, better what the logs may have used since the restore point")]
    NoStep,
    /// A log or an epoch is at the end of its numbers.
    #[error("`{name}` is too close to the largest number to be moved on: start with an empty table")]
    Exhausted {
        /// Which log or lease.
        name: String,
    },
}

/// Decides what to do. `ids` gives a random id for each anchor.
///
/// # Errors
/// [`RebaseError`] where the numbers do not allow it.
pub fn plan(
    logs: &[FoundLog],
    leases: &[FoundLease],
    step: u64,
    owner: &str,
    now: UnixMillis,
    mut ids: impl FnMut() -> Id128,
) -> Result<Plan, RebaseError> {
    if step == 0 {
        return Err(RebaseError::NoStep);
    }
    let of_logs = logs.iter().map(FoundLog::highest_epoch);
    let highest = of_logs.chain(leases.iter().map(|lease| Epoch(lease.row.tuple.version))).max().unwrap_or(Epoch(0));
    // The next owner's epoch must exist too.
    let name = || leases.first().map(|lease| lease.key.clone()).or_else(|| logs.first().map(|log| log.log.to_string())).unwrap_or_default();
    let epoch = highest.0.checked_add(1).filter(|epoch| *epoch < u64::MAX).ok_or_else(|| RebaseError::Exhausted { name: name() })?;
    let mut moved = Vec::with_capacity(logs.len());
    for found in logs {
        let drained = found.drained();
        let tail = found.tail.map_or(Slot::HEAD, |tail| tail.slot);
        // A head beyond the tail belongs to a log that lost its rows: nothing may ever be appended at or below it.
        let exhausted = || RebaseError::Exhausted { name: found.log.to_string() };
        let slot = tail.max(drained).0.checked_add(step).filter(|slot| *slot < u64::MAX).ok_or_else(exhausted)?;
        let anchor = Anchor { epoch: Epoch(epoch), anchor_id: ids(), owner: owner.to_owned(), opened_at: now, drained, retired: false };
        moved.push(Moved { log: found.log.clone(), tail, slot: Slot(slot), anchor });
    }
    let leases = leases.iter().map(|found| raised(found, epoch)).collect();
    Ok(Plan { epoch: Epoch(epoch), logs: moved, leases })
}

/// The row as it is, with another version: whoever held it holds it, whoever released it released it. What observers confirmed was of the former
/// version and means nothing for this one.
fn raised(found: &FoundLease, version: u64) -> Raised {
    let before = &found.row;
    let mut row = LeaseRow { evidence: None, ..before.clone() };
    row.tuple.version = version;
    let condition = Condition::Exactly { tuple: before.tuple.clone(), evidence: before.evidence.clone() };
    Raised { key: found.key.clone(), from: before.tuple.version, write: LeaseWrite { condition, row } }
}

#[cfg(test)]
mod tests;
