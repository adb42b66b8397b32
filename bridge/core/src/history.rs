//! The last hour in samples, for charts: a ring of bounded size in the process's memory.

use crate::units::UnixMillis;
use core::time::Duration;
use serde::Serialize;
use std::collections::VecDeque;

/// From one sample to the next.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Samples that are kept: an hour of them.
pub const KEPT: usize = 720;
/// Sessions and routes of a sample at most, each: the first ones of the configuration. Bounds the ring to 4 MiB.
pub const MOST_SERIES: usize = 64;

/// A session at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionSample {
    /// How much of its service this process gave: 0 none, 1 less than it should, 2 all of it.
    pub level: u8,
    /// Whether this process owned it.
    pub owner: bool,
    /// Messages in its outbox.
    pub entries: u64,
    /// How old the oldest of them was, in milliseconds.
    pub oldest_ms: u64,
    /// How much longer the lease would have held, in milliseconds; `None` where there is none.
    pub margin_ms: Option<u64>,
}

/// A route at one moment: totals since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouteSample {
    /// Received.
    pub received: u64,
    /// Delivered.
    pub delivered: u64,
    /// Kept as dead letters.
    pub dead: u64,
    /// Dropped.
    pub dropped: u64,
}

/// The process at one moment. Sessions and routes stand in the order of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// When, by this host's wall clock.
    pub at: UnixMillis,
    /// Its sessions.
    pub sessions: Vec<SessionSample>,
    /// Its routes.
    pub routes: Vec<RouteSample>,
}

/// The ring.
#[derive(Clone, Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

impl History {
    /// Adds a sample; the oldest one goes where there is no room. Where the wall clock went back, what lies ahead of it goes too: a chart has one time.
    pub fn push(&mut self, mut sample: Sample) {
        sample.sessions.truncate(MOST_SERIES);
        sample.routes.truncate(MOST_SERIES);
        while self.samples.back().is_some_and(|last| last.at >= sample.at) {
            self.samples.pop_back();
        }
        while self.samples.len() >= KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The samples after `since`, oldest first.
    pub fn after(&self, since: UnixMillis) -> impl Iterator<Item = &Sample> {
        let first = self.samples.partition_point(|sample| sample.at <= since);
        self.samples.range(first..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(at: u64) -> Sample {
        Sample { at: UnixMillis(at), ..Sample::default() }
    }

    fn times(history: &History, since: u64) -> Vec<u64> {
        history.after(UnixMillis(since)).map(|sample| sample.at.0).collect()
    }

    #[test]
    fn whoever_has_some_gets_the_rest() {
        let mut history = History::default();
        for at in [10, 20, 30] {
            history.push(sample(at));
        }
        assert_eq!(times(&history, 0), [10, 20, 30]);
        assert_eq!(times(&history, 10), [20, 30]);
        assert_eq!(times(&history, 15), [20, 30]);
        assert_eq!(times(&history, 30), [0; 0]);
    }

    #[test]
    fn a_clock_that_went_back_leaves_no_two_times() {
        let mut history = History::default();
        for at in [10, 20, 30, 20] {
            history.push(sample(at));
        }
        assert_eq!(times(&history, 0), [10, 20]);
    }

    #[test]
    fn a_sample_is_bounded() {
        let mut history = History::default();
        history.push(Sample { sessions: vec![SessionSample::default(); 500], routes: vec![RouteSample::default(); 500], ..sample(1) });
        assert!(history.after(UnixMillis(0)).all(|kept| kept.sessions.len() == MOST_SERIES && kept.routes.len() == MOST_SERIES));
    }

    proptest! {
        /// Whatever the clock does: bounded, in order, and the last one is there.
        #[test]
        fn bounded_and_in_order(steps in proptest::collection::vec(1_u64..100_000, 1..2_000)) {
            let mut history = History::default();
            for at in steps {
                history.push(sample(at));
                let kept = times(&history, 0);
                prop_assert_eq!(kept.last(), Some(&at));
            }
            let kept = times(&history, 0);
            prop_assert!(kept.len() <= KEPT && kept.is_sorted_by(|a, b| a < b));
        }

        /// A clock that only goes forward loses nothing within the hour.
        #[test]
        fn an_hour_is_kept(count in 1_u64..2_000) {
            let mut history = History::default();
            for at in 1..=count {
                history.push(sample(at));
            }
            prop_assert_eq!(times(&history, 0).len() as u64, count.min(KEPT as u64));
        }
    }
}
