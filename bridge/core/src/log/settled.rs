//! Which entries of the log are settled, how much of that is durable, and which rows are garbage.

use super::kept::Slots;
use crate::identity::{Position, Slot};
use crate::rows::SettledRange;
use std::collections::{BTreeMap, BTreeSet};

/// Progress within one loaded segment above the head.
#[derive(Clone, Debug)]
struct SlotProgress {
    count: u32,
    settled: BTreeSet<u32>,
    /// How many of `settled` the store knows of already.
    durable: usize,
}

/// A settled segment above the durable head.
#[derive(Clone, Copy, Debug, Default)]
struct Complete {
    total: usize,
    /// How many of its settlements the store does not know of.
    exposed: usize,
}

impl SlotProgress {
    fn is_complete(&self) -> bool {
        self.settled.len() == self.count as usize
    }
}

/// Follows entries from loaded to settled, and rows from settled to deleted.
///
/// Three lines move up, never down: `loaded` (every slot up to it was loaded or known to hold nothing), `drained` (every slot up to it is
/// settled) and `durable` (the store knows that much of `drained`). A row may be deleted only at or below `durable`.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    loaded: Slot,
    drained: Slot,
    durable: Slot,
    above: BTreeMap<Slot, SlotProgress>,
    /// Settled segments above the durable head.
    complete: BTreeMap<Slot, Complete>,
    /// Settled segments at or below the durable head, which still stand in the store.
    garbage: Slots,
    settled_ahead: usize,
    exposed: usize,
}

/// What a head row tells: taken when its write begins, made durable when it was answered.
#[derive(Clone, Debug)]
pub struct HeadSnapshot {
    /// The `drained` of the row.
    pub drained: Slot,
    /// The ranges of the row.
    pub ranges: Vec<SettledRange>,
    counts: Vec<(Slot, usize)>,
}

impl Settled {
    /// Starts with a head that the store already knows.
    #[must_use]
    pub fn at(head: Slot) -> Self {
        Self { loaded: head, drained: head, durable: head, ..Self::default() }
    }

    /// Every slot up to this one is settled.
    #[must_use]
    pub const fn drained(&self) -> Slot {
        self.drained
    }

    /// The store knows that every slot up to this one is settled.
    #[must_use]
    pub const fn durable(&self) -> Slot {
        self.durable
    }

    /// Every slot up to this one was loaded.
    #[must_use]
    pub const fn loaded(&self) -> Slot {
        self.loaded
    }

    /// Entries settled above `drained`: held up by an older one that is not.
    #[must_use]
    pub const fn settled_ahead(&self) -> usize {
        self.settled_ahead
    }

    /// The end of the first segment that is not settled: what the head waits for.
    #[must_use]
    pub fn stuck_at(&self) -> Option<Position> {
        self.above.first_key_value().map(|(slot, _)| Position { slot: *slot, index: u32::MAX })
    }

    /// Settled entries that the store does not know of: a crash now would send them again.
    #[must_use]
    pub const fn exposed(&self) -> usize {
        self.exposed
    }

    /// Whether the store knows less than is settled.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.durable < self.drained || self.exposed > 0
    }

    /// Notes that the segment at `slot` was loaded and holds `count` entries: 0 where it is a part of another one. Slots come in ascending order.
    pub fn load(&mut self, slot: Slot, count: u32) {
        debug_assert!(slot > self.loaded, "slots are loaded once, in order");
        self.loaded = slot;
        self.above.insert(slot, SlotProgress { count, settled: BTreeSet::new(), durable: 0 });
        self.advance();
    }

    /// Notes that `slot` holds no segment: an anchor, or nothing. Slots come in ascending order.
    pub fn pass(&mut self, slot: Slot) {
        debug_assert!(slot > self.loaded, "slots are loaded once, in order");
        self.loaded = slot;
        self.advance();
    }

    /// Marks what a former owner settled already, as its head row told: neither exposed nor to be sent.
    pub fn restore(&mut self, position: Position) {
        if let Some(progress) = self.above.get_mut(&position.slot)
            && progress.settled.insert(position.index)
        {
            progress.durable += 1;
            self.settled_ahead += 1;
        }
        self.advance();
    }

    /// Settles the entry at `position`. Settling it twice changes nothing.
    pub fn settle(&mut self, position: Position) {
        if let Some(progress) = self.above.get_mut(&position.slot)
            && position.index < progress.count
            && progress.settled.insert(position.index)
        {
            self.settled_ahead += 1;
            self.exposed += 1;
            self.advance();
        }
    }

    fn advance(&mut self) {
        while let Some(first) = self.above.first_entry() {
            if !first.get().is_complete() {
                break;
            }
            let (slot, progress) = first.remove_entry();
            self.settled_ahead -= progress.settled.len();
            let total = progress.settled.len();
            self.complete.insert(slot, Complete { total, exposed: total - progress.durable });
        }
        let line = self.above.first_key_value().map_or(self.loaded, |(slot, _)| Slot(slot.0 - 1));
        self.drained = self.drained.max(line);
    }

    /// The store now knows that every slot up to `slot` is settled.
    pub fn made_durable(&mut self, slot: Slot) {
        self.durable = self.durable.max(slot);
        while let Some(first) = self.complete.first_entry().filter(|first| *first.key() <= slot) {
            let (slot, complete) = first.remove_entry();
            self.exposed -= complete.exposed;
            self.garbage.insert(slot);
        }
    }

    /// What a head row written now would tell.
    #[must_use]
    pub fn snapshot(&self) -> HeadSnapshot {
        let counts = self.above.iter().filter(|(_, p)| !p.settled.is_empty()).map(|(slot, p)| (*slot, p.settled.len())).collect();
        HeadSnapshot { drained: self.drained, ranges: self.ranges(), counts }
    }

    /// The head row of `snapshot` was written.
    pub fn snapshot_durable(&mut self, snapshot: &HeadSnapshot) {
        for (slot, count) in &snapshot.counts {
            if let Some(progress) = self.above.get_mut(slot) {
                let news = count.saturating_sub(progress.durable);
                progress.durable += news;
                self.exposed -= news;
            } else if let Some(complete) = self.complete.get_mut(slot) {
                // Completed while the row was being written: what came after the snapshot is still exposed.
                let rest = complete.exposed.min(complete.total.saturating_sub(*count));
                self.exposed -= complete.exposed - rest;
                complete.exposed = rest;
            }
        }
        self.made_durable(snapshot.drained);
    }

    fn ranges(&self) -> Vec<SettledRange> {
        let mut ranges: Vec<SettledRange> = Vec::new();
        // Whether everything since the last range's start is settled, up to the end of the slot before: then the next slot continues it.
        let mut open = false;
        for (slot, progress) in &self.above {
            for index in 0..progress.count {
                if !progress.settled.contains(&index) {
                    open = false;
                    continue;
                }
                let to = Position { slot: *slot, index: if index + 1 == progress.count { u32::MAX } else { index } };
                match ranges.last_mut() {
                    Some(last) if open => last.to = to,
                    _ => ranges.push(SettledRange { from: Position { slot: *slot, index }, to }),
                }
                open = true;
            }
        }
        ranges
    }

    /// At most `limit` segments that may be deleted: at or below the durable head and `line`, and below `tail`, which marks the log's position.
    #[must_use]
    pub fn deletable(&self, tail: Slot, line: Slot, limit: usize) -> Vec<Slot> {
        self.garbage.up_to(Self::last(tail, line)).take(limit).collect()
    }

    /// How many segments may be deleted.
    #[must_use]
    pub fn deletable_count(&self, tail: Slot, line: Slot) -> usize {
        self.garbage.count_up_to(Self::last(tail, line))
    }

    fn last(tail: Slot, line: Slot) -> Slot {
        line.min(Slot(tail.0.saturating_sub(1)))
    }

    /// Notes a segment at or below the durable head that an earlier owner left behind.
    pub fn found_garbage(&mut self, slot: Slot) {
        if slot <= self.durable && slot > Slot::HEAD {
            self.garbage.insert(slot);
        }
    }

    /// The segments are gone.
    pub fn deleted(&mut self, slots: &[Slot]) {
        for slot in slots {
            self.garbage.remove(*slot);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const ANY: Slot = Slot(u64::MAX);

    fn at(slot: u64, index: u32) -> Position {
        Position { slot: Slot(slot), index }
    }

    #[test]
    fn one_stuck_entry_costs_one_range_however_much_is_settled_behind_it() {
        let mut settled = Settled::at(Slot(0));
        for slot in 1..=50 {
            settled.load(Slot(slot), 10);
        }
        for slot in 1..=50 {
            for index in 0..10 {
                if (slot, index) != (3, 4) {
                    settled.settle(at(slot, index));
                }
            }
        }
        assert_eq!(settled.drained(), Slot(2));
        let snapshot = settled.snapshot();
        assert_eq!(
            snapshot.ranges,
            vec![SettledRange { from: at(3, 0), to: at(3, 3) }, SettledRange { from: at(3, 5), to: at(50, u32::MAX) },]
        );
        assert_eq!(settled.exposed(), 499);
        settled.snapshot_durable(&snapshot);
        assert_eq!(settled.exposed(), 0);
        assert_eq!(settled.durable(), Slot(2));
        settled.settle(at(3, 4));
        assert_eq!(settled.drained(), Slot(50));
        assert_eq!(settled.exposed(), 1);
    }

    #[test]
    fn the_tail_row_and_rows_above_the_durable_head_are_not_deletable() {
        let mut settled = Settled::at(Slot(0));
        for slot in 1..=3 {
            settled.load(Slot(slot), 1);
            settled.settle(at(slot, 0));
        }
        assert!(settled.deletable(Slot(3), ANY, 10).is_empty());
        settled.made_durable(Slot(3));
        assert_eq!(settled.deletable(Slot(3), ANY, 10), vec![Slot(1), Slot(2)]);
        assert_eq!((settled.deletable(Slot(3), Slot(1), 10), settled.deletable_count(Slot(3), Slot(1))), (vec![Slot(1)], 1));
    }

    proptest! {
        /// Against a naive oracle: a set of settled positions over slots of known sizes.
        #[test]
        fn agrees_with_the_oracle(sizes in proptest::collection::vec(0u32..5, 1..12), order in proptest::collection::vec((0usize..12, 0u32..5, 0u8..8), 0..80)) {
            let mut settled = Settled::at(Slot(0));
            for (index, size) in sizes.iter().enumerate() {
                settled.load(Slot(index as u64 + 1), *size);
            }
            let mut oracle = BTreeSet::new();
            let mut durable = BTreeSet::new();
            for (slot, index, action) in order {
                if slot >= sizes.len() { continue; }
                if index < sizes[slot] {
                    settled.settle(at(slot as u64 + 1, index));
                    oracle.insert((slot as u64 + 1, index));
                }
                if action == 0 {
                    let snapshot = settled.snapshot();
                    settled.snapshot_durable(&snapshot);
                    durable.clone_from(&oracle);
                } else if action == 1 {
                    let line = settled.drained();
                    settled.made_durable(line);
                    durable.extend(oracle.iter().filter(|(slot, _)| *slot <= line.0).copied());
                }
                let mut line = 0;
                while (line as usize) < sizes.len() && (0..sizes[line as usize]).all(|i| oracle.contains(&(line + 1, i))) { line += 1; }
                prop_assert_eq!(settled.drained(), Slot(line));
                prop_assert_eq!(settled.exposed(), oracle.difference(&durable).count());
                let ranges = settled.snapshot().ranges;
                for (slot, size) in sizes.iter().enumerate() {
                    for index in 0..*size {
                        let position = at(slot as u64 + 1, index);
                        let covered = position.slot <= settled.drained() || ranges.iter().any(|r| r.from <= position && position <= r.to);
                        prop_assert_eq!(covered, oracle.contains(&(slot as u64 + 1, index)), "{:?} in {:?}", position, ranges);
                    }
                }
                prop_assert!(ranges.windows(2).all(|w| w[0].to < w[1].from));
            }
        }
    }
}
