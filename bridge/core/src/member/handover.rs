//! How a member came by its lease: from whom, why, and for how long the session had been without full service until now.

use crate::lease::row::{LeaseRow, OwnerFacts, Tuple};
use crate::metrics::{FailoverCause, FailoverStart};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// The lease of another, as a member that waits sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    tuple: Tuple,
    facts: OwnerFacts,
    /// When this member first saw exactly this tuple.
    since: Instant,
    /// Whether it had seen another one before: then it saw the last change itself.
    changed: bool,
}

impl Sighting {
    /// What was known, brought up to date with what was read at `now`.
    pub(super) fn update(before: Option<Self>, row: LeaseRow, now: Instant) -> Self {
        match before {
            Some(before) if before.tuple == row.tuple => before,
            before => Self { tuple: row.tuple, facts: row.facts, since: now, changed: before.is_some() },
        }
    }

    /// The version of a lease that was given back.
    pub(super) fn released_version(&self) -> Option<u64> {
        self.tuple.is_released().then_some(self.tuple.version)
    }
}

/// A session that changed hands, as the successor tells it. A measurement: nothing is decided by it.
///
/// The failure began, as well as the successor can know:
///
/// - `crash`: with the last sign of life, the last renewal. Where this process saw the row change to it, that counts by its own boot clock, from its
///   first look at it (up to one poll after the renewal; the owner died later than the renewal, by up to one renewal interval). Where it did not,
///   by the wall clocks of both hosts: this one's now, less `renewed_at`.
/// - `release`, `broker_path`: when the owner was told to stop, or lost its broker, as it wrote into the released row (`left_since`). That compares the
///   wall clocks of two hosts; it is never told as less than what passed on this host's boot clock since it first saw the released row.
///
/// The start is `warm` where this process ran when the failure began, by the same clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Why the former owner had to be replaced.
    pub cause: FailoverCause,
    /// Whether this process ran already.
    pub start: FailoverStart,
    /// Who owned the lease before; `None` where it had been given back.
    pub from: Option<String>,
    /// By this host's boot clock.
    seen: Instant,
    /// By the former owner's wall clock, where that says more.
    told: Option<UnixMillis>,
}

impl Handover {
    /// What a member that was `born` then makes of the last thing it saw before it won.
    pub(super) fn of(sighting: &Sighting, born: UnixMillis) -> Self {
        let Sighting { tuple, facts, since, changed } = sighting;
        let (cause, told) = if tuple.is_released() {
            let cause = facts.left_because.as_deref().and_then(FailoverCause::parse).unwrap_or(FailoverCause::Release);
            (cause, facts.left_since.or_else(|| (!changed).then_some(tuple.renewed_at)))
        } else {
            (FailoverCause::Crash, (!changed).then_some(tuple.renewed_at))
        };
        let warm = *changed || told.is_some_and(|told| told >= born);
        let start = if warm { FailoverStart::Warm } else { FailoverStart::Cold };
        let from = (!tuple.is_released()).then(|| tuple.owner.clone());
        Self { cause, start, from, seen: *since, told }
    }

    /// How long it took if full service is reached now.
    #[must_use]
    pub fn until(&self, now: Instant, wall: UnixMillis) -> Duration {
        let seen = now.since(self.seen);
        self.told.map_or(seen, |told| seen.max(wall.since(told)))
    }
}

/// What a member counted about its leases since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounters {
    /// Leases that it took over from another owner, released ones too.
    pub transfers: u64,
    /// Leases that it lost, or had to let go because they could not be renewed in time.
    pub expiries: u64,
    /// Renewals that failed or had no answer.
    pub renew_failures: u64,
    /// Leases that it gave back because it had lost its broker.
    pub broker_step_downs: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn wall(seconds: u64) -> UnixMillis {
        UnixMillis(seconds * 1_000)
    }

    fn owned(renewed: u64) -> LeaseRow {
        let tuple = Tuple { owner: "a#1".into(), version: 3, renewed_at: wall(renewed), expires_at: wall(renewed + 5) };
        LeaseRow { tuple, acquired_at: wall(1), evidence: None, facts: OwnerFacts::default() }
    }

    fn released(because: Option<&str>, since: Option<u64>) -> LeaseRow {
        let tuple = Tuple { owner: String::new(), expires_at: UnixMillis(0), ..owned(1_000).tuple };
        let facts = OwnerFacts { left_because: because.map(str::to_owned), left_since: since.map(wall), ..OwnerFacts::default() };
        LeaseRow { tuple, facts, ..owned(1_000) }
    }

    #[test]
    fn a_crash_that_was_watched_counts_on_the_own_clock_however_wrong_the_other_ones_are() {
        let first = Sighting::update(None, owned(1_000), at(10));
        let seen = Sighting::update(Some(first), owned(1_001), at(11));
        let seen = Sighting::update(Some(seen), owned(1_001), at(14));
        let handover = Handover::of(&seen, wall(9_999_999));
        assert_eq!((handover.cause, handover.start, handover.from.as_deref()), (FailoverCause::Crash, FailoverStart::Warm, Some("a#1")));
        assert_eq!(handover.until(at(18), wall(5)), Duration::from_secs(7));
    }

    #[test]
    fn a_crash_before_the_start_counts_from_the_last_renewal() {
        let seen = Sighting::update(None, owned(1_000), at(10));
        for (born, start) in [(1_002, FailoverStart::Cold), (900, FailoverStart::Warm)] {
            let handover = Handover::of(&seen, wall(born));
            assert_eq!((handover.start, handover.until(at(16), wall(1_009))), (start, Duration::from_secs(9)));
            assert_eq!(handover.until(at(16), wall(3)), Duration::from_secs(6), "a clock that is behind cannot make it less than was seen");
        }
    }

    #[test]
    fn a_release_tells_why_and_since_when() {
        let watched =
            Sighting::update(Some(Sighting::update(None, owned(1_000), at(10))), released(Some("broker_path"), Some(995)), at(11));
        let handover = Handover::of(&watched, wall(900));
        assert_eq!((handover.cause, handover.start, handover.from.as_deref()), (FailoverCause::BrokerPath, FailoverStart::Warm, None));
        assert_eq!(handover.until(at(12), wall(1_003)), Duration::from_secs(8));
        let found = Handover::of(&Sighting::update(None, released(None, None), at(10)), wall(2_000));
        assert_eq!((found.cause, found.start), (FailoverCause::Release, FailoverStart::Cold));
        assert_eq!(found.until(at(11), wall(1_500)), Duration::from_secs(500));
        let unknown = Handover::of(&Sighting::update(None, released(Some("boredom"), Some(999)), at(10)), wall(900));
        assert_eq!((unknown.cause, unknown.start), (FailoverCause::Release, FailoverStart::Warm));
    }
}
