//! Who owns the session of a route, as its lease row says: looked up at most every two seconds, and not while the store fails.
//!
//! The row's expiry is compared with this host's wall clock. That is good enough here and nowhere else: a wrong answer sends a post to somebody who
//! does not own the session, who says so, or leaves it in the mailbox, where the owner finds it.

use crate::lease::row::{LeaseRow, RawLease};
use crate::outcome::Fault;
use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// An answer is used for so long, and never past the row's expiry.
pub const CACHED_FOR: Duration = Duration::from_secs(2);
/// That nobody is known to own it is believed for so long: a successor may be there any moment.
const UNKNOWN_FOR: Duration = Duration::from_millis(250);
/// After so many failures in a row nothing is tried for a while.
pub const BREAKER_FAILURES: u32 = 3;
/// For so long.
pub const BREAKER_PAUSE: Duration = Duration::from_secs(5);

/// Leaves alone for a while what failed several times in a row; then one failure is enough.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    failures: u32,
    open_until: Option<Instant>,
}

impl Breaker {
    /// How long it is to be left alone still; `None`: it may be tried.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.open_until.map(|until| until.since(now)).filter(|left| !left.is_zero())
    }

    /// It worked.
    pub const fn worked(&mut self) {
        *self = Self { failures: 0, open_until: None };
    }

    /// It failed.
    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1).min(BREAKER_FAILURES);
        if self.failures == BREAKER_FAILURES {
            self.open_until = Some(now.plus(BREAKER_PAUSE));
        }
    }
}

/// Where the owner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// This process is it.
    Here,
    /// Another process is, and is reached there.
    There {
        /// The owner.
        owner: String,
        /// The address of its transport port, without a path.
        url: String,
    },
    /// Another process is, and does not say where it is reached.
    WithoutAddress {
        /// The owner.
        owner: String,
    },
    /// Nobody is known to be.
    Nowhere(Unknown),
}

/// Why nobody is known to own a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unknown {
    /// The owner did not renew its lease.
    LeaseExpired,
    /// Nobody has the lease, or its row cannot be believed.
    LeaseUnowned,
    /// The lease store did not answer.
    StoreUnavailable,
    /// It did not answer lately, and is left alone for a while.
    StoreBreakerOpen,
}

impl Unknown {
    /// Every reason.
    pub const ALL: &'static [Self] = &[Self::LeaseExpired, Self::LeaseUnowned, Self::StoreUnavailable, Self::StoreBreakerOpen];

    /// The name in answers and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeaseExpired => "lease_expired",
            Self::LeaseUnowned => "lease_unowned",
            Self::StoreUnavailable => "store_unavailable",
            Self::StoreBreakerOpen => "store_breaker_open",
        }
    }
}

/// What to do to know where the owner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing.
    Known(Place),
    /// Read the lease row, and tell what it was: [`Locator::found`].
    Read,
}

/// Knows where the owner of one session is.
#[derive(Clone, Debug)]
pub struct Locator {
    me: String,
    cached: Option<(Place, Instant)>,
    breaker: Breaker,
}

impl Locator {
    /// For the process that calls itself `me` in leases.
    #[must_use]
    pub fn new(me: &str) -> Self {
        Self { me: me.to_owned(), cached: None, breaker: Breaker::default() }
    }

    /// Where the owner is, if that is known or cannot be asked for.
    #[must_use]
    pub fn look(&self, now: Instant) -> Look {
        match &self.cached {
            Some((place, until)) if now < *until => Look::Known(place.clone()),
            _ if self.breaker.wait(now).is_some() => Look::Known(Place::Nowhere(Unknown::StoreBreakerOpen)),
            _ => Look::Read,
        }
    }

    /// The row was read.
    pub fn found(&mut self, now: Instant, wall: UnixMillis, row: Result<Option<RawLease>, Fault>) -> Place {
        let row = match row {
            Ok(row) => row,
            Err(_) => {
                self.breaker.failed(now);
                self.cached = None;
                return Place::Nowhere(Unknown::StoreUnavailable);
            }
        };
        self.breaker.worked();
        let (place, kept) = self.place(wall, row);
        self.cached = Some((place.clone(), now.plus(kept)));
        place
    }

    /// What was found turned out to be wrong: the next look reads the row.
    pub fn forget(&mut self) {
        self.cached = None;
    }

    fn place(&self, wall: UnixMillis, row: Option<RawLease>) -> (Place, Duration) {
        let nowhere = |why| (Place::Nowhere(why), UNKNOWN_FOR);
        let Some(row) = row.and_then(|row| LeaseRow::try_from(row).ok()) else { return nowhere(Unknown::LeaseUnowned) };
        if row.tuple.is_released() || row.tuple.is_housekeeping() {
            return nowhere(Unknown::LeaseUnowned);
        }
        let left = row.tuple.expires_at.since(wall);
        if left.is_zero() {
            return nowhere(Unknown::LeaseExpired);
        }
        let owner = row.tuple.owner;
        let place = match row.facts.endpoints.get("http").map(|url| url.trim_end_matches('/')).filter(|url| !url.is_empty()) {
            _ if owner == self.me => Place::Here,
            Some(url) => Place::There { owner, url: url.to_owned() },
            None => Place::WithoutAddress { owner },
        };
        (place, left.min(CACHED_FOR))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::lease::row::{OwnerFacts, Tuple};
    use crate::outcome::FaultCode;
    use proptest::prelude::*;

    const ME: &str = "one#1";

    fn at(millis: u64) -> Instant {
        Instant::default().plus(Duration::from_millis(millis))
    }

    fn row(owner: &str, url: Option<&str>, expires_at: u64) -> RawLease {
        let endpoints = url.map(|url| ("http".to_owned(), url.to_owned())).into_iter().collect();
        let tuple = Tuple { owner: owner.to_owned(), version: 3, renewed_at: UnixMillis(1_000), expires_at: UnixMillis(expires_at) };
        let facts = OwnerFacts { endpoints, ..OwnerFacts::default() };
        RawLease::from(&LeaseRow { tuple, acquired_at: UnixMillis(1_000), evidence: None, facts })
    }

    fn there(owner: &str, url: &str) -> Place {
        Place::There { owner: owner.to_owned(), url: url.to_owned() }
    }

    fn fault() -> Fault {
        Fault::new(FaultCode::Timeout, "late")
    }

    #[test]
    fn the_row_says_who_and_where() {
        let find = |row: Option<RawLease>, wall| Locator::new(ME).found(at(0), UnixMillis(wall), Ok(row));
        assert_eq!(find(Some(row(ME, None, 9_000)), 2_000), Place::Here);
        assert_eq!(find(Some(row("two#2", Some("http://h:8082/"), 9_000)), 2_000), there("two#2", "http://h:8082"));
        assert_eq!(find(Some(row("two#2", None, 9_000)), 2_000), Place::WithoutAddress { owner: "two#2".to_owned() });
        assert_eq!(find(Some(row("two#2", Some("http://h"), 9_000)), 9_000), Place::Nowhere(Unknown::LeaseExpired));
        assert_eq!(find(Some(row("#housekeeping#x", None, 9_000)), 2_000), Place::Nowhere(Unknown::LeaseUnowned));
        for nobody in [None, Some(row("", None, 0)), Some(RawLease::default())] {
            assert_eq!(find(nobody, 2_000), Place::Nowhere(Unknown::LeaseUnowned));
        }
    }

    #[test]
    fn an_answer_is_used_for_two_seconds_and_not_past_the_expiry() {
        let mut locator = Locator::new(ME);
        assert_eq!(locator.look(at(0)), Look::Read);
        let place = locator.found(at(0), UnixMillis(2_000), Ok(Some(row("two#2", Some("http://h"), 60_000))));
        assert_eq!(locator.look(at(1_999)), Look::Known(place.clone()));
        assert_eq!(locator.look(at(2_000)), Look::Read);
        let _ = locator.found(at(2_000), UnixMillis(59_500), Ok(Some(row("two#2", Some("http://h"), 60_000))));
        assert_eq!(locator.look(at(2_499)), Look::Known(place));
        assert_eq!(locator.look(at(2_500)), Look::Read);
        locator.forget();
        assert_eq!(locator.look(at(2_001)), Look::Read);
    }

    #[test]
    fn a_store_that_fails_is_left_alone_then_tried_once() {
        let mut locator = Locator::new(ME);
        for millis in [0, 10, 20] {
            assert_eq!(locator.look(at(millis)), Look::Read);
            assert_eq!(locator.found(at(millis), UnixMillis(1), Err(fault())), Place::Nowhere(Unknown::StoreUnavailable));
        }
        assert_eq!(locator.look(at(5_019)), Look::Known(Place::Nowhere(Unknown::StoreBreakerOpen)));
        assert_eq!(locator.look(at(5_020)), Look::Read);
        let _ = locator.found(at(5_020), UnixMillis(1), Err(fault()));
        assert_eq!(locator.look(at(10_019)), Look::Known(Place::Nowhere(Unknown::StoreBreakerOpen)), "one more failure is enough");
        let _ = locator.found(at(10_020), UnixMillis(1), Ok(None));
        let _ = locator.found(at(20_000), UnixMillis(1), Err(fault()));
        assert_eq!(locator.look(at(20_001)), Look::Read, "it counts anew once it worked");
    }

    proptest! {
        /// Whatever was read: nothing older than two seconds is told, nothing past its expiry, and never one that nobody read.
        #[test]
        fn what_is_told_was_read_lately(steps in proptest::collection::vec((0_u64..4_000, 0_u8..4, 1_001_u64..9_000), 1..40)) {
            let mut locator = Locator::new(ME);
            let (mut now, mut last): (u64, Option<(u64, Place, u64)>) = (2_000, None);
            for (pause, kind, expires) in steps {
                now += pause;
                match locator.look(at(now)) {
                    Look::Known(Place::Nowhere(Unknown::StoreBreakerOpen)) => {}
                    Look::Known(place) => {
                        let (read_at, found, expires_at) = last.clone().unwrap();
                        prop_assert_eq!(&place, &found);
                        prop_assert!(now < read_at + 2_000);
                        prop_assert!(matches!(place, Place::Nowhere(_)) || now < expires_at);
                    }
                    Look::Read => {
                        let (row, expires_at) = match kind {
                            0 => (Err(fault()), 0),
                            1 => (Ok(None), 0),
                            2 => (Ok(Some(row(ME, None, now.max(1_000) + expires))), now.max(1_000) + expires),
                            _ => (Ok(Some(row("two#2", Some("http://h"), expires))), expires),
                        };
                        let place = locator.found(at(now), UnixMillis(now), row);
                        last = Some((now, place, expires_at));
                    }
                }
            }
        }
    }
}
