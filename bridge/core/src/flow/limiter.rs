//! The budgets of one limit, by key.

use super::bucket::Buckets;
use super::pairs::Pairs;
use super::window::Window;
use crate::units::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The key whose budget is shared by those for which there is no room, where nothing else is said.
pub const OVERFLOW_KEY: &str = "*overflow*";

/// How a limit's pairs are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In every span of a pair's time, never more than its count.
    #[default]
    StrictWindow,
    /// A bucket of that size, refilled all the time: up to twice the count in one span, as brokers of this class have it.
    TokenBucket,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Budget {
    Window(Window),
    Buckets(Buckets),
}

impl Budget {
    fn new(mode: Mode) -> Self {
        match mode {
            Mode::StrictWindow => Self::Window(Window::default()),
            Mode::TokenBucket => Self::Buckets(Buckets::default()),
        }
    }

    fn ready_at(&self, pairs: &Pairs, now: Instant) -> Instant {
        match self {
            Self::Window(window) => window.ready_at(pairs, now),
            Self::Buckets(buckets) => buckets.ready_at(pairs, now),
        }
    }

    fn take(&mut self, pairs: &Pairs, now: Instant) {
        match self {
            Self::Window(window) => window.take(pairs, now),
            Self::Buckets(buckets) => buckets.take(pairs, now),
        }
    }

    fn full_at(&self, pairs: &Pairs) -> Instant {
        match self {
            Self::Window(window) => window.full_at(pairs),
            Self::Buckets(buckets) => buckets.full_at(pairs),
        }
    }
}

/// The budgets of one limit. A key has one as long as it matters; at most so many have one at a time, and the others share one.
///
/// A key is forgotten only once its budget is whole again, and one that gets a budget of its own begins with what is left of the shared one, which it may
/// have used. So neither ever adds to a budget; nor does a reconnect.
#[derive(Clone, Debug)]
pub struct Limiter {
    pairs: Pairs,
    max_keys: usize,
    budgets: BTreeMap<Arc<str>, Budget>,
    /// The same keys by when their budgets are whole again.
    whole_at: BTreeSet<(Instant, Arc<str>)>,
    overflow: Budget,
    overflow_key: Arc<str>,
}

impl Limiter {
    /// Whole budgets for everybody.
    #[must_use]
    pub fn new(pairs: Pairs, mode: Mode, max_keys: usize) -> Self {
        Self {
            pairs,
            max_keys,
            budgets: BTreeMap::new(),
            whole_at: BTreeSet::new(),
            overflow: Budget::new(mode),
            overflow_key: OVERFLOW_KEY.into(),
        }
    }

    /// With another name for the key whose budget is shared by those for which there is no room: whatever has that very key is charged to it, too.
    #[must_use]
    pub fn sharing(mut self, overflow_key: Arc<str>) -> Self {
        self.overflow_key = overflow_key;
        self
    }

    /// When one more of `key` is admitted, if none is before; `now` where it is now.
    #[must_use]
    pub fn ready_at(&self, key: &str, now: Instant) -> Instant {
        match self.budgets.get(key) {
            Some(budget) => budget.ready_at(&self.pairs, now),
            None => self.overflow.ready_at(&self.pairs, now),
        }
    }

    /// Takes one of `key`, which [`Self::ready_at`] has admitted at `now`.
    pub fn take(&mut self, key: &str, now: Instant) {
        self.take_ahead(key, now, now);
    }

    /// Takes one of `key` for the moment `at`, which is [`Self::ready_at`] as of `now`.
    pub fn take_ahead(&mut self, key: &str, now: Instant, at: Instant) {
        if *key == *self.overflow_key {
            return self.overflow.take(&self.pairs, at);
        }
        if let Some((name, budget)) = self.budgets.get_key_value(key) {
            self.whole_at.remove(&(budget.full_at(&self.pairs), Arc::clone(name)));
        } else if !self.make_room(now) {
            return self.overflow.take(&self.pairs, at);
        }
        let name: Arc<str> = self.budgets.get_key_value(key).map_or_else(|| key.into(), |(name, _)| Arc::clone(name));
        let budget = self.budgets.entry(Arc::clone(&name)).or_insert_with(|| self.overflow.clone());
        budget.take(&self.pairs, at);
        self.whole_at.insert((budget.full_at(&self.pairs), name));
    }

    /// Keys that have a budget of their own.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.budgets.len()
    }

    fn make_room(&mut self, now: Instant) -> bool {
        while let Some((at, name)) = self.whole_at.first()
            && *at <= now
            && self.budgets.len() >= self.max_keys
        {
            self.budgets.remove(name);
            self.whole_at.pop_first();
        }
        self.budgets.len() < self.max_keys
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos((1_000_000 + millis) * 1_000_000)
    }

    struct Trial(Limiter);

    impl Trial {
        fn new(pairs: &str, mode: Mode) -> Self {
            Self(Limiter::new(Pairs::parse(pairs).unwrap(), mode, 8))
        }

        fn offer(&mut self, key: &str, millis: u64) -> bool {
            let admitted = self.0.ready_at(key, at(millis)) == at(millis);
            if admitted {
                self.0.take(key, at(millis));
            }
            admitted
        }

        /// How many of `each` offered every `step` ms in `0..until` are admitted, and when.
        fn offered(&mut self, step: u64, each: usize, until: u64) -> Vec<u64> {
            let mut admitted = Vec::new();
            for millis in (0..until).step_by(usize::try_from(step).unwrap()) {
                for _ in 0..each {
                    if self.offer("k", millis) {
                        admitted.push(millis);
                    }
                }
            }
            admitted
        }
    }

    #[test]
    fn b_5_a_bucket_of_ten_a_second() {
        let mut bucket = Trial::new("10:1", Mode::TokenBucket);
        assert_eq!((0..11).filter(|_| bucket.offer("k", 0)).count(), 10);
        assert!(!bucket.offer("k", 99));
        assert!(bucket.offer("k", 100));
        assert!(!bucket.offer("k", 101));
        assert_eq!(Trial::new("10:1", Mode::TokenBucket).offered(1, 1, 1_000).len(), 19);
        assert_eq!(Trial::new("10:1", Mode::TokenBucket).offered(1, 1, 1_001).len(), 20);
    }

    #[test]
    fn b_5_two_buckets_let_599_through_in_the_first_minute() {
        let mut bucket = Trial::new("10:1,300:60", Mode::TokenBucket);
        let refused: Vec<u64> = (0..600_u64).map(|tenth| tenth * 100).filter(|millis| !bucket.offer("k", *millis)).collect();
        assert_eq!(refused.first(), Some(&59_900));
        let second = (600..1_200_u64).filter(|tenth| bucket.offer("k", tenth * 100)).count();
        assert_eq!(second, 300);
    }

    #[test]
    fn b_5_a_strict_window_holds_in_every_second_and_every_minute() {
        let admitted = Trial::new("10:1,300:60", Mode::StrictWindow).offered(100, 3, 61_000);
        assert_eq!(admitted[299], 29_300);
        assert_eq!(admitted[300..303], [60_000, 60_000, 60_000], "the three of the begin are free again");
        for (span, most) in [(1_000, 10), (60_000, 300)] {
            for end in &admitted {
                let within = admitted.iter().filter(|one| **one <= *end && *one + span > *end).count();
                assert!(within <= most, "{within} within {span} ms up to {end}");
            }
        }
    }

    #[test]
    fn a_key_that_is_refused_is_told_when_it_is_not() {
        let mut window = Trial::new("2:1", Mode::StrictWindow);
        assert!(window.offer("k", 0) && window.offer("k", 300));
        assert_eq!(window.0.ready_at("k", at(400)), at(1_000));
        assert!(!window.offer("k", 999) && window.offer("k", 1_000));
        assert!(window.offer("other", 400), "others have budgets of their own");
    }

    #[test]
    fn keys_beyond_the_table_share_one_budget_and_nobody_is_forgotten_too_early() {
        let mut window = Trial::new("1:10", Mode::StrictWindow);
        for key in 0..8 {
            assert!(window.offer(&key.to_string(), 0));
        }
        assert!(window.offer("ninth", 1));
        assert!(!window.offer("tenth", 2), "shares what the ninth has used");
        assert!(!window.offer("0", 9_999));
        assert!(!window.offer("ninth", 10_000), "there is room for it now, and what it has used counts");
        assert!(window.offer("0", 10_000) && window.offer("ninth", 10_001));
        assert_eq!(window.0.keys(), 8);
    }

    /// Pairs of count and seconds, and offers of a key after a pause.
    type Schedule = (Vec<(u32, u32)>, Vec<(u8, u64)>);

    fn schedules() -> impl Strategy<Value = Schedule> {
        let pairs = proptest::collection::btree_map(1_u32..6, 1_u32..8, 1..3)
            .prop_map(|pairs| pairs.into_iter().map(|(seconds, count)| (count, seconds)).collect());
        (pairs, proptest::collection::vec((0_u8..12, 0_u64..700), 1..200))
    }

    proptest! {
        /// Against every admission remembered for ever: the same answers as long as each key has a budget of its own, and never more than the pairs allow.
        #[test]
        fn p_7_no_window_of_any_pair_ever_holds_more_than_its_count((pairs, offers) in schedules(), few_keys: bool) {
            let text = pairs.iter().map(|(count, seconds)| format!("{count}:{seconds}")).collect::<Vec<_>>().join(",");
            let max_keys = if few_keys { 3 } else { 12 };
            let mut limiter = Limiter::new(Pairs::parse(&text).unwrap(), Mode::StrictWindow, max_keys);
            let mut admitted: Vec<(u8, u64)> = Vec::new();
            let mut now = 0;
            for (key, pause) in offers {
                now += pause;
                let ready = limiter.ready_at(&key.to_string(), at(now));
                let fits = pairs.iter().all(|(count, seconds)| {
                    let within = admitted.iter().filter(|(other, then)| *other == key && then + u64::from(*seconds) * 1_000 > now).count();
                    within < *count as usize
                });
                if ready == at(now) {
                    prop_assert!(fits);
                    limiter.take(&key.to_string(), at(now));
                    admitted.push((key, now));
                } else {
                    prop_assert!(few_keys || !fits);
                }
                prop_assert!(limiter.keys() <= max_keys);
            }
        }

        /// What a bucket says of the moment is the first moment at which it is so.
        #[test]
        fn a_bucket_admits_at_the_moment_that_it_names_and_not_before(count in 1_u32..50, seconds in 1_u32..50, taken in 1_usize..120) {
            let pairs = Pairs::parse(&format!("{count}:{seconds}")).unwrap();
            let mut limiter = Limiter::new(pairs, Mode::TokenBucket, 1);
            let mut now = at(0);
            for _ in 0..taken {
                now = limiter.ready_at("k", now);
                if now > at(0) {
                    let before = Instant::from_nanos(now.as_nanos() - 1);
                    prop_assert!(limiter.ready_at("k", before) > before);
                }
                limiter.take("k", now);
            }
            let least = u64::from(seconds) * 1_000_000_000 * u64::try_from(taken).unwrap().saturating_sub(u64::from(count)) / u64::from(count);
            prop_assert!(now.since(at(0)) >= Duration::from_nanos(least));
        }
    }
}
