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
        let longest = pairs.longest();
        // What every pair has forgotten need not be remembered.
        while self.0.front().is_some_and(|first| first.plus(longest) <= now) || self.0.len() >= pairs.largest_count() as usize {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// From when on it is as if nothing had ever been admitted.
    pub(super) fn full_at(&self, pairs: &Pairs) -> Instant {
        self.0.back().map_or(Instant::default(), |newest| newest.plus(pairs.longest()))
    }
}
