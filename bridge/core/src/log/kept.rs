//! Settled rows that still stand in the store: which they are, and from when on they may be deleted.

use crate::identity::Slot;
use crate::units::Instant;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// A set of slots that takes room for each gap in it, not for each slot: an owner's segments follow one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// The last slot of each run, by its first.
    runs: BTreeMap<Slot, Slot>,
}

impl Slots {
    /// Adds a slot.
    pub fn insert(&mut self, slot: Slot) {
        let (mut first, mut last) = (slot, slot);
        if let Some((&before, &end)) = self.runs.range(..=slot).next_back() {
            if end >= slot {
                return;
            }
            if end.0 + 1 == slot.0 {
                first = before;
            }
        }
        if let Some(end) = slot.0.checked_add(1).and_then(|next| self.runs.remove(&Slot(next))) {
            last = end;
        }
        self.runs.insert(first, last);
    }

    /// Takes a slot out.
    pub fn remove(&mut self, slot: Slot) {
        let Some((&first, &last)) = self.runs.range(..=slot).next_back().filter(|(_, last)| **last >= slot) else { return };
        self.runs.remove(&first);
        if first < slot {
            self.runs.insert(first, Slot(slot.0 - 1));
        }
        if slot < last {
            self.runs.insert(Slot(slot.0 + 1), last);
        }
    }

    /// The slots up to and including `line`, ascending.
    pub fn up_to(&self, line: Slot) -> impl Iterator<Item = Slot> + '_ {
        self.runs.range(..=line).flat_map(move |(first, last)| (first.0..=last.0.min(line.0)).map(Slot))
    }

    /// How many slots there are up to and including `line`.
    #[must_use]
    pub fn count_up_to(&self, line: Slot) -> usize {
        let count: u64 = self.runs.range(..=line).map(|(first, last)| last.0.min(line.0) - first.0 + 1).sum();
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// How many runs it is in: what it takes in memory.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }
}

/// Moments that are told apart within the time for which settled rows are kept: it is that much longer at most.
const MARKS: u32 = 64;

/// From when on settled rows may be deleted, where they are kept for a time.
#[derive(Clone, Debug, Default)]
pub struct Keeping {
    /// For how long; zero: not at all.
    time: Duration,
    /// Everything up to this slot was kept long enough.
    due: Slot,
    /// Up to which slot everything was settled, and when that was known at the latest: both ascending.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    began: Instant,
    at: Instant,
    slot: Slot,
}

impl Keeping {
    /// Keeps what is settled for `time`.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        Self { time, ..Self::default() }
    }

    /// Whether anything is kept at all.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        !self.time.is_zero()
    }

    /// For how long anything is kept.
    #[must_use]
    pub const fn time(&self) -> Duration {
        self.time
    }

    /// Every slot up to this one was settled long enough ago, as a row tells that was written since.
    pub fn kept(&mut self, slot: Slot) {
        self.due = self.due.max(slot);
    }

    /// The store knows that every slot up to this one is settled.
    pub fn settled(&mut self, now: Instant, slot: Slot) {
        if !self.is_on() {
            return;
        }
        while let Some(mark) = self.marks.front().filter(|mark| now >= mark.at.plus(self.time)) {
            self.due = self.due.max(mark.slot);
            self.marks.pop_front();
        }
        match self.marks.back_mut() {
            Some(last) if last.slot >= slot => {}
            // Told with the last one, and so a little later than by itself.
            Some(last) if now.since(last.began) < self.time / MARKS => {
                last.slot = slot;
                last.at = now;
            }
            _ if slot > self.due => self.marks.push_back(Mark { began: now, at: now, slot }),
            _ => {}
        }
    }

    /// The last slot that may be deleted, of those that are settled.
    #[must_use]
    pub fn line(&self, now: Instant) -> Slot {
        if !self.is_on() {
            return Slot(u64::MAX);
        }
        let over = self.marks.iter().take_while(|mark| now >= mark.at.plus(self.time));
        over.last().map_or(self.due, |mark| mark.slot.max(self.due))
    }

    /// When the line moves next.
    #[must_use]
    pub fn moves_at(&self, now: Instant) -> Option<Instant> {
        self.marks.iter().map(|mark| mark.at.plus(self.time)).find(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_hold_what_a_set_holds(steps in proptest::collection::vec((0_u64..40, any::<bool>()), 0..120), line in 0_u64..45) {
            let (mut slots, mut oracle) = (Slots::default(), BTreeSet::new());
            for (slot, adds) in steps {
                if adds {
                    slots.insert(Slot(slot));
                    oracle.insert(Slot(slot));
                } else {
                    slots.remove(Slot(slot));
                    oracle.remove(&Slot(slot));
                }
                prop_assert_eq!(slots.up_to(Slot(u64::MAX)).collect::<BTreeSet<_>>(), oracle.clone());
                prop_assert_eq!(slots.count_up_to(Slot(line)), oracle.range(..=Slot(line)).count());
                let gaps = oracle.iter().zip(oracle.iter().skip(1)).filter(|(one, next)| one.0 + 1 != next.0).count();
                prop_assert_eq!(slots.runs(), if oracle.is_empty() { 0 } else { gaps + 1 });
            }
        }

        /// Never earlier than the time after a slot was settled, and a 64th of it later at most.
        #[test]
        fn what_is_settled_is_kept_for_its_time(
            keep in 1_u64..2_000,
            steps in proptest::collection::vec((0_u64..200, 0_u64..4), 1..300),
        ) {
            let keep = Duration::from_millis(keep);
            let (mut keeping, mut now, mut slot) = (Keeping::new(keep), Instant::default(), 0);
            let mut settled: Vec<(Instant, Slot)> = Vec::new();
            for (pause, more) in steps {
                now = now.plus(Duration::from_millis(pause));
                let least = settled.iter().filter(|(at, _)| now >= at.plus(keep + keep / MARKS)).map(|(_, slot)| *slot).max();
                let most = settled.iter().filter(|(at, _)| now >= at.plus(keep)).map(|(_, slot)| *slot).max();
                let line = keeping.line(now);
                prop_assert!(line >= least.unwrap_or_default() && line <= most.unwrap_or_default(), "{:?} {:?} {:?}", least, line, most);
                slot += more;
                keeping.settled(now, Slot(slot));
                settled.push((now, Slot(slot)));
                prop_assert_eq!(keeping.line(now), line);
                prop_assert!(keeping.marks.len() <= MARKS as usize + 2);
                // Whoever waits for the next move finds one.
                if let Some(at) = keeping.moves_at(now) {
                    prop_assert!(at > now && keeping.line(at) > line);
                }
            }
            let end = now.plus(keep + keep / MARKS);
            prop_assert_eq!(keeping.line(end), Slot(slot));
        }
    }

    #[test]
    fn without_a_time_everything_may_go_at_once() {
        let mut keeping = Keeping::new(Duration::ZERO);
        keeping.settled(Instant::default(), Slot(3));
        assert_eq!((keeping.line(Instant::default()), keeping.moves_at(Instant::default())), (Slot(u64::MAX), None));
    }
}
