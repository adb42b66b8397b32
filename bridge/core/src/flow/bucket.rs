//! Token buckets: for each pair one that holds its count, starts full, and is refilled all the time.
//!
//! A bucket is kept as the moment at which it would be full again ("theoretical arrival time" of the generic cell rate algorithm), multiplied by the
//! count, so that everything stays in integers.

use super::pairs::{Pair, Pairs};
use crate::units::Instant;

/// The buckets of one key, one for each of its pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Buckets(Vec<u128>);

/// One token, in the scaled time of a bucket.
fn token(pair: &Pair) -> u128 {
    pair.period().as_nanos()
}

fn scaled(pair: &Pair, now: Instant) -> u128 {
    u128::from(now.as_nanos()) * u128::from(pair.count)
}

impl Buckets {
    fn full_again(&self, index: usize) -> u128 {
        self.0.get(index).copied().unwrap_or_default()
    }

    /// When one more is admitted, if none is before.
    pub(super) fn ready_at(&self, pairs: &Pairs, now: Instant) -> Instant {
        let free = pairs.as_slice().iter().enumerate().map(|(index, pair)| {
            // A token more may be missing than the bucket holds, and no more.
            let room = token(pair) * u128::from(pair.count - 1);
            let at = self.full_again(index).saturating_sub(room).div_ceil(u128::from(pair.count));
            Instant::from_nanos(u64::try_from(at).unwrap_or(u64::MAX))
        });
        free.max().map_or(now, |at| at.max(now))
    }

    pub(super) fn take(&mut self, pairs: &Pairs, now: Instant) {
        self.0.resize(pairs.as_slice().len(), 0);
        for (full_again, pair) in self.0.iter_mut().zip(pairs.as_slice()) {
            *full_again = (*full_again).max(scaled(pair, now)) + token(pair);
        }
    }

    /// From when on every bucket is full.
    pub(super) fn full_at(&self, pairs: &Pairs) -> Instant {
        let full = self.0.iter().zip(pairs.as_slice()).map(|(at, pair)| at.div_ceil(u128::from(pair.count)));
        Instant::from_nanos(full.max().map_or(0, |at| u64::try_from(at).unwrap_or(u64::MAX)))
    }
}
