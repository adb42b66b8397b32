//! How long to wait before the next attempt.

use crate::session::Cause;
use core::time::Duration;

/// A broker that hangs up so soon after the login may do it for another client's sake. Paths that merely cut often do it at any time.
const SUSPICIOUSLY_SOON: Duration = Duration::from_secs(5);

/// A connection that lasted this long ends the streak of failures, whatever ended it.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Doubling pauses with jitter: a pause of `d` is drawn from the upper half `[d/2, d)`, so that clients that lost one broker do not come back as one.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    base: Duration,
    max: Duration,
    streak: u32,
    random: SplitMix,
}

impl Backoff {
    pub(crate) const fn new(base: Duration, max: Duration, seed: u64) -> Self {
        Self { base, max, streak: 0, random: SplitMix(seed) }
    }

    /// The next pause; the one after it is twice as long.
    pub(crate) fn next(&mut self) -> Duration {
        let full = self.base.saturating_mul(1_u32.checked_shl(self.streak).unwrap_or(u32::MAX)).min(self.max);
        self.streak = self.streak.saturating_add(1).min(31);
        let half = full / 2;
        let span = u64::try_from((full - half).as_nanos()).unwrap_or(u64::MAX).max(1);
        half + Duration::from_nanos(self.random.next() % span)
    }

    /// Things went well: begin with the shortest pause again.
    pub(crate) const fn reset(&mut self) {
        self.streak = 0;
    }
}

/// Damps the fight of two clients with one client id, each of which ends the other's connection by making its own. Without it both would come back after
/// their shortest pause for ever, because each connection does useful work.
#[derive(Clone, Debug)]
pub(crate) struct Rivalry {
    pauses: Backoff,
    suspicions: u32,
}

impl Rivalry {
    pub(crate) const fn new(base: Duration, max: Duration, seed: u64) -> Self {
        Self { pauses: Backoff::new(base, max, seed), suspicions: 0 }
    }

    /// A connection ended after it stood for `lasted`. Where another client may be behind that, the pause to keep at least: none the first time, then
    /// doubling ones. Many brokers hang up without a word at a takeover, so a hang-up right after the login counts too.
    pub(crate) fn ended(&mut self, cause: Cause, lasted: Duration) -> Option<Duration> {
        let stable = lasted >= STABLE_AFTER;
        if stable {
            // There is no rival, or it gave up, or both wait long enough.
            self.suspicions = 0;
            self.pauses.reset();
        }
        if cause != Cause::TakenOver && (cause != Cause::HungUp || lasted >= SUSPICIOUSLY_SOON) {
            return None;
        }
        self.suspicions = self.suspicions.saturating_add(1);
        Some(if self.suspicions == 1 { Duration::ZERO } else { self.pauses.next() })
    }

    /// How often in a row there was reason for suspicion.
    pub(crate) const fn suspicions(&self) -> u32 {
        self.suspicions
    }
}

/// The SplitMix64 generator: small, and good enough to spread pauses.
#[derive(Clone, Debug)]
struct SplitMix(u64);

impl SplitMix {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stays_in_the_upper_half_and_below_the_cap(base_ms in 1_u64..20_000, factor in 1_u64..100, seed: u64, steps in 1_usize..60) {
            let (base, max) = (Duration::from_millis(base_ms), Duration::from_millis(base_ms * factor));
            let mut backoff = Backoff::new(base, max, seed);
            let mut full = base;
            for _ in 0..steps {
                let pause = backoff.next();
                prop_assert!(pause >= full / 2 && pause < full, "{pause:?} of {full:?}");
                full = (full * 2).min(max);
            }
            backoff.reset();
            prop_assert!(backoff.next() < base);
        }
    }

    const SOON: Duration = Duration::from_secs(4);

    fn rivalry() -> Rivalry {
        Rivalry::new(Duration::from_secs(1), Duration::from_secs(64), 7)
    }

    #[test]
    fn a_rivalry_costs_nothing_at_first_and_then_ever_more_up_to_the_cap() {
        for cause in [Cause::TakenOver, Cause::HungUp] {
            let mut rivalry = rivalry();
            assert_eq!(rivalry.ended(cause, SOON), Some(Duration::ZERO));
            for full in [1, 2, 4, 8, 16, 32, 64, 64, 64].map(Duration::from_secs) {
                assert_eq!(rivalry.ended(Cause::Lost, SOON), None, "another loss between changes nothing");
                let pause = rivalry.ended(cause, SOON);
                assert!(pause.is_some_and(|pause| pause >= full / 2 && pause < full), "{pause:?} of {full:?}");
            }
            assert_eq!(rivalry.suspicions(), 10);
        }
    }

    #[test]
    fn a_stable_connection_ends_the_suspicion() {
        for (cause, expected) in [(Cause::TakenOver, Some(Duration::ZERO)), (Cause::HungUp, None), (Cause::Lost, None)] {
            let mut rivalry = rivalry();
            for _ in 0..5 {
                rivalry.ended(Cause::HungUp, SOON);
            }
            assert_eq!(rivalry.ended(cause, STABLE_AFTER), expected);
            assert_eq!(rivalry.suspicions(), u32::from(expected.is_some()));
            rivalry.ended(Cause::TakenOver, STABLE_AFTER);
            assert!(rivalry.ended(Cause::TakenOver, SOON).is_some_and(|pause| pause < Duration::from_secs(1)), "it begins anew");
        }
    }

    #[test]
    fn a_path_that_cuts_often_is_no_rival_and_one_that_takes_over_late_is() {
        let mut rivalry = rivalry();
        for _ in 0..20 {
            assert_eq!(rivalry.ended(Cause::HungUp, SUSPICIOUSLY_SOON), None);
        }
        rivalry.ended(Cause::TakenOver, Duration::from_secs(29));
        assert!(rivalry.ended(Cause::TakenOver, Duration::from_secs(29)).is_some_and(|pause| pause > Duration::ZERO));
    }

    #[test]
    fn what_is_no_takeover_is_no_suspicion() {
        let mut rivalry = rivalry();
        for cause in [Cause::Lost, Cause::Poison, Cause::Full, Cause::Closing] {
            assert_eq!((rivalry.ended(cause, Duration::ZERO), rivalry.suspicions()), (None, 0));
        }
    }

    #[test]
    fn two_seeds_give_different_pauses() {
        let pauses = |seed| {
            let mut backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(120), seed);
            [backoff.next(), backoff.next(), backoff.next()]
        };
        assert_ne!(pauses(1), pauses(2));
        assert_eq!(pauses(1), pauses(1));
    }
}
