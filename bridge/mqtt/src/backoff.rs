//! How long to wait before the next attempt.

use core::time::Duration;

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
