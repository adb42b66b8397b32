//! When a log counts as left behind, and the lease that housekeeping takes on it.
//!
//! Wall clocks of several hosts are compared here, which decides nothing about safety: the lease's version fences the log whoever is wrong. It
//! only decides when housekeeping may bother at all, and ten minutes are more than clocks differ by.

use crate::lease::holder::Upkeep;
use crate::lease::row::{HOUSEKEEPING, LeaseRow, OwnerFacts, Tuple};
use crate::lease::{Condition, LeaseWrite};
use crate::units::UnixMillis;
use core::time::Duration;

/// For how long housekeeping takes a lease.
pub const LEASE_TTL: Duration = Duration::from_secs(15);

/// A log is left alone for at least this long after its owner's end.
const LEAST_PATIENCE: Duration = Duration::from_secs(600);

/// How long a log's lease must have been free: ten minutes, or three times what it holds for.
#[must_use]
pub fn patience(ttl: Duration) -> Duration {
    LEAST_PATIENCE.max(ttl * 3)
}

/// Why a log is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its partition never had a lease: nobody can tell whether its owner lives.
    NoLease,
    /// It has an owner, or had one until lately.
    Owned,
    /// A member of the bridge is alive and will take it.
    MemberAlive,
}

/// Since when nobody owns the log, by the wall clock of whoever owned it last; `None` where the lease still holds by that clock.
#[must_use]
pub fn orphaned_since(row: &LeaseRow, now: UnixMillis) -> Option<UnixMillis> {
    if row.tuple.is_released() {
        // Housekeeping gives a lease back as it found it, or its own visits would keep a log from ever being old enough.
        return Some(row.facts.left_since.unwrap_or(row.tuple.renewed_at));
    }
    let expired = row.tuple.expires_at;
    (now >= expired).then(|| if row.tuple.is_housekeeping() { row.facts.left_since.unwrap_or(expired) } else { expired })
}

/// For how long settled rows are kept in a log whose lease row this is: `keep`, and no time where nobody has owned the log for that long: everything was settled
/// by an owner or by housekeeping, while it held the lease. No request of a deposed owner is under way for [`LATEST_WRITE`].
#[must_use]
pub fn kept_for(keep: Duration, row: &LeaseRow, now: UnixMillis) -> Duration {
    let left = orphaned_since(row, now).map(|since| since.max(row.tuple.renewed_at));
    let long_ago = left.is_some_and(|left| now.since(left) >= keep.saturating_add(LATEST_WRITE));
    if long_ago { Duration::ZERO } else { keep }
}

/// Longer than any request of an owner is under way, and than wall clocks that are kept in time differ.
pub const LATEST_WRITE: Duration = Duration::from_secs(60);

/// Whether somebody owns the log, as far as the row tells; housekeeping is nobody.
#[must_use]
pub fn is_owned(row: Option<&LeaseRow>, now: UnixMillis) -> bool {
    row.is_some_and(|row| orphaned_since(row, now).is_none() && !row.tuple.is_housekeeping())
}

/// Why the log of `row` is not taken now; `None`: it may be. `members` are the times at which the bridge's members last wrote.
#[must_use]
pub fn why_kept(row: Option<&LeaseRow>, ttl: Duration, members: &[UnixMillis], now: UnixMillis) -> Option<Kept> {
    let Some(row) = row else { return Some(Kept::NoLease) };
    let patience = patience(ttl.max(if row.tuple.is_housekeeping() { Duration::ZERO } else { row.tuple.ttl() }));
    let long_ago = |at: UnixMillis| now.since(at) >= patience;
    if !orphaned_since(row, now).is_some_and(long_ago) {
        return Some(Kept::Owned);
    }
    if members.iter().all(|at| long_ago(*at)) { None } else { Some(Kept::MemberAlive) }
}

/// The write that takes the lease of `row` as `nonce`: on exactly the row that was judged.
#[must_use]
pub fn claim(row: &LeaseRow, nonce: u64, now: UnixMillis) -> LeaseWrite {
    let renewed_at = UnixMillis(now.0.max(row.tuple.renewed_at.0 + 1));
    let facts = OwnerFacts {
        left_because: row.facts.left_because.clone(),
        left_since: orphaned_since(row, now),
        service_level: Some("housekeeping".to_owned()),
        ..OwnerFacts::default()
    };
    let owner = format!("{HOUSEKEEPING}{nonce:016x}");
    let tuple = Tuple { owner, version: row.tuple.version + 1, renewed_at, expires_at: renewed_at.plus(LEASE_TTL) };
    LeaseWrite {
        condition: Condition::Exactly { tuple: row.tuple.clone(), evidence: row.evidence.clone() },
        row: LeaseRow { tuple, acquired_at: renewed_at, evidence: None, facts },
    }
}

/// The write that gives the lease back, telling of the owner before.
#[must_use]
pub fn release(held: &LeaseRow) -> LeaseWrite {
    let facts = OwnerFacts { left_because: held.facts.left_because.clone(), left_since: held.facts.left_since, ..OwnerFacts::default() };
    let tuple = Tuple {
        owner: String::new(),
        version: held.tuple.version,
        renewed_at: UnixMillis(held.tuple.renewed_at.0 + 1),
        expires_at: UnixMillis(0),
    };
    LeaseWrite {
        condition: Condition::Held { owner: held.tuple.owner.clone(), version: held.tuple.version },
        row: LeaseRow { tuple, evidence: None, facts, acquired_at: held.acquired_at },
    }
}

/// How the lease is kept while a log is swept.
#[must_use]
pub const fn upkeep() -> Upkeep {
    Upkeep { ttl: LEASE_TTL, renew_interval: Duration::from_secs(4), jitter: Duration::ZERO, max_fails: 2, guard: Duration::from_secs(1) }
}
