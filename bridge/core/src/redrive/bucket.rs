//! How fast a run may go.

use crate::units::Instant;
use core::time::Duration;

/// A token bucket with room for one second's tokens, that begins with a tenth of them: a run starts at once and never bursts far.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// From one token to the next.
    every: Duration,
    burst: u32,
    /// The bucket is full from here on.
    full_at: Instant,
}

impl Bucket {
    /// `rate` tokens a second, from `now` on.
    #[must_use]
    pub fn new(rate: u32, now: Instant) -> Self {
        let rate = rate.max(1);
        let burst = (rate / 10).max(1);
        Self { every: Duration::from_secs(1) / rate, burst, full_at: now }
    }

    /// Takes one token; answers for how long to wait before it may be used.
    pub fn take(&mut self, now: Instant) -> Duration {
        let room = self.every * (self.burst - 1);
        self.full_at = self.full_at.max(now).plus(self.every);
        self.full_at.since(now).saturating_sub(self.every + room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In no window of a second are more than the rate and one burst let through.
        #[test]
        fn never_faster_than_its_rate(rate in 1_u32..600, pauses in proptest::collection::vec(0_u64..40, 1..400)) {
            let mut now = Instant::from_nanos(5_000_000_000);
            let mut bucket = Bucket::new(rate, now);
            let mut let_through = Vec::new();
            for pause in pauses {
                now = now.plus(Duration::from_millis(pause));
                now = now.plus(bucket.take(now));
                let_through.push(now);
            }
            for (index, first) in let_through.iter().enumerate() {
                let within = let_through.iter().skip(index).take_while(|at| at.since(*first) < Duration::from_secs(1)).count();
                prop_assert!(within <= (rate + (rate / 10).max(1) + 1) as usize, "{within} within a second at {rate}");
            }
        }
    }
}
