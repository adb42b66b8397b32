//! When something that failed is tried again.

use core::time::Duration;

/// A source of jitter that the caller seeds: the same seed, the same pauses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Jitter(u64);

impl Jitter {
    /// Starts from `seed`, which the caller draws at random.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in [0, 1), by splitmix64.
    pub fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Pauses that grow from one attempt to the next, with jitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The first pause.
    pub initial: Duration,
    /// The longest pause.
    pub max: Duration,
    /// The factor from one pause to the next, at least 1.
    pub multiplier: f64,
    /// The share of each pause that is drawn at random, 0 to 1.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(30), multiplier: 2.0, jitter: 0.2 }
    }
}

impl Backoff {
    /// The pause after the `failures`-th failure in a row (from 1): between `(1 - jitter)` of the full pause and all of it.
    #[must_use]
    pub fn pause(&self, failures: u32, jitter: &mut Jitter) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1).min(64)).unwrap_or(64);
        let full = (self.initial.as_secs_f64() * self.multiplier.powi(exponent)).min(self.max.as_secs_f64());
        Duration::from_secs_f64(full * (1.0 - self.jitter) + full * self.jitter * jitter.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pause_stays_within_its_jitter_and_never_exceeds_the_longest(failures in 1u32..200, seed: u64, share in 0.0f64..=1.0) {
            let backoff = Backoff { jitter: share, ..Backoff::default() };
            let pause = backoff.pause(failures, &mut Jitter::new(seed)).as_secs_f64();
            let full = (2f64.powi((failures.min(65) - 1) as i32)).min(30.0);
            prop_assert!(pause <= full + 1e-6 && pause >= full * (1.0 - share) - 1e-6, "{pause} of {full}");
        }
    }
}
