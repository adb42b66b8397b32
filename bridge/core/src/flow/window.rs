//! A true sliding window: in every span of a pair's time, never more than its count.

use super::pairs::Pairs;
use crate::units::Instant;
use std::collections::VecDeque;

/// The newest admissions of one key, as many as the largest count of its pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window(VecDeque<Instant>);

impl Window {
    /// When one more is admitted, if none is before: for each pair the admission so many back has to be as old as the pair's time.
    pub(super) fn ready_at(&self, pairs: &Pairs, now: Instant) -> Instant {
        let free = pairs.as_slice().iter().filter_map(|pair| {
            let back = self.0.len().checked_sub(pair.count as usize)?;
            Some(self.0.get(back)?.plus(pair.period()))
        });
        free.max().map_or(now, |at| at.max(now))
    }

    pub(super) fn take(&mut self, pairs: &Pairs, now: Instant) {
        // What is old is kept as long as there is room: what is parked is charged for later, and what is asked about now still has to see it.
        while self.0.len() >= pairs.largest_count() as usize {
            self.0.pop_front();
        }
        // What was parked is charged for when it will be sent, which may be after what is admitted now.
        let at = self.0.partition_point(|earlier| *earlier <= now);
        self.0.insert(at, now);
    }

    /// From when on it is as if nothing had ever been admitted.
    pub(super) fn full_at(&self, pairs: &Pairs) -> Instant {
        self.0.back().map_or(Instant::default(), |newest| newest.plus(pairs.longest()))
    }
}
