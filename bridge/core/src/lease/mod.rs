//! Who may act: the lease on a session, seen by one that waits for it and by one that holds it.
//!
//! No decision compares the clocks of two hosts. One that waits counts, on its own boot clock, for how long it saw the row unchanged, from *after*
//! its first read; one that holds counts from *before* its last renewal was sent. The row's conditions do the rest: whoever acts on an old
//! picture is refused.

pub mod holder;
pub mod row;
pub mod standby;
pub mod testimony;

use crate::units::Instant;
use row::{Evidence, LeaseRow, RawLease, Tuple};

/// What must be true of the row for a write to take effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// There is no row.
    Absent,
    /// Exactly this tuple and exactly this evidence (or none).
    Exactly {
        /// The tuple.
        tuple: Tuple,
        /// The evidence.
        evidence: Option<Evidence>,
    },
    /// This owner and this version, whatever else the row holds.
    Held {
        /// The owner.
        owner: String,
        /// The version.
        version: u64,
    },
}

/// A conditional write of the whole row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseWrite {
    /// What must be true.
    pub condition: Condition,
    /// The row to write.
    pub row: LeaseRow,
}

/// How a conditional write ended that the store decided.
#[allow(clippy::large_enum_variant, reason = "a few a second at most, each handed on once: a box would cost more than the copy")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// It was written.
    Written,
    /// The condition did not hold; this is the row that stood there, if any.
    Refused(Option<RawLease>),
}

/// The lease, held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The row as this owner wrote it.
    pub row: LeaseRow,
    /// Until when this owner may act: from before the write was sent.
    pub deadline: Instant,
}
