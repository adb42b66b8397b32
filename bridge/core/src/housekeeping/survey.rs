//! Looking at a log without owning it: what waits above the head, and what is garbage below it.

use super::{Doom, Judge};
use crate::identity::{Position, Slot};
use crate::log::kept::Slots;
use crate::log::loader::Loader;
use crate::log::{Call, Page};
use crate::outcome::Fault;
use crate::rows::{Head, Row, RowMeta};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// Anchors below the head are kept for this long: the one timing assumption of the log. No write that a deposed owner has under way is so old.
pub const ANCHOR_RETENTION: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Nothing is appended, so nothing is staged behind the page that is being read.
const STAGED_BYTES: usize = 0;

/// Rows that may be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Segments at or below the head.
    pub segments: Vec<Slot>,
    /// Anchors below the head that are old enough.
    pub anchors: Vec<Slot>,
}

/// What of a log may be deleted, page after page from its first slot: at or below the durable head, and never the tail row, which marks the log's position.
///
/// Where settled segments are kept for a time, only those go that were settled that long ago. When that was a row tells that was written later: every
/// slot up to its `drained` was settled then.
#[derive(Clone, Debug)]
pub struct Collector {
    drained: Slot,
    tail: Slot,
    keep: Duration,
    /// Every slot up to this one was settled at least `keep` ago.
    line: Slot,
    /// Segments above `line`, of earlier pages.
    undecided: Slots,
    /// The last row was written too lately: of what follows nothing goes yet.
    through: bool,
}

impl Collector {
    /// For the log whose head and tail these are.
    #[must_use]
    pub fn new(drained: Slot, tail: Slot, keep: Duration) -> Self {
        let line = if keep.is_zero() { drained } else { Slot::HEAD };
        Self { drained, tail, keep, line, undecided: Slots::default(), through: false }
    }

    /// Whether reading on would find nothing more that may be deleted.
    #[must_use]
    pub const fn is_through(&self) -> bool {
        self.through
    }

    /// What may be deleted of this page and of those before that could not be decided.
    pub fn collect(&mut self, page: &Page, now: UnixMillis) -> Garbage {
        let mut garbage = Garbage::default();
        for (slot, row) in page.rows.iter().filter(|(slot, _)| *slot > Slot::HEAD) {
            self.through = now.since(row.written_at()) < self.keep;
            if !self.through {
                self.line = self.line.max(row.drained().min(self.drained));
            }
            if *slot > self.drained || *slot >= self.tail {
                continue;
            }
            match row {
                Row::Anchor(anchor) if now.since(anchor.opened_at) < ANCHOR_RETENTION => {}
                Row::Anchor(_) => garbage.anchors.push(*slot),
                Row::Segment(_) => self.undecided.insert(*slot),
            }
        }
        garbage.segments = self.undecided.up_to(self.line).collect();
        for slot in &garbage.segments {
            self.undecided.remove(*slot);
        }
        garbage
    }
}

/// Whether a retired log may be removed as a whole: nothing waits in it, and its tail is an anchor that is old enough.
#[must_use]
pub fn may_remove(tail: &Row, pending: u64, now: UnixMillis) -> bool {
    matches!(tail, Row::Anchor(anchor) if now.since(anchor.opened_at) >= ANCHOR_RETENTION) && pending == 0
}

/// A look at one log. Ask [`Self::poll`] for pages to read until there is none.
#[derive(Debug)]
pub struct Survey {
    drained: Slot,
    tail: Slot,
    loader: Loader,
    judge: Judge,
    /// Entries that are not settled.
    pub pending: u64,
    /// When the oldest of them was received.
    pub oldest: Option<UnixMillis>,
    /// Those of them that expired.
    pub expired: u64,
    /// Those of them that no configuration names.
    pub orphaned: u64,
    unreadable: Option<Fault>,
}

impl Survey {
    /// Begins, with the tail and the head row as they were read.
    #[must_use]
    pub fn new(tail: RowMeta, head: Option<Head>, judge: Judge) -> Self {
        let drained = head.as_ref().map_or(tail.drained, |head| tail.drained.max(head.drained));
        Self {
            drained,
            tail: tail.slot,
            loader: Loader::new(drained, head, STAGED_BYTES),
            judge,
            pending: 0,
            oldest: None,
            expired: 0,
            orphaned: 0,
            unreadable: None,
        }
    }

    /// The head: everything at or below it is garbage.
    #[must_use]
    pub const fn drained(&self) -> Slot {
        self.drained
    }

    /// The log's last row.
    #[must_use]
    pub const fn tail(&self) -> Slot {
        self.tail
    }

    /// Why the rest of the log could not be read, if so: a newer release wrote it, or it is damaged. Nothing of it is touched then.
    #[must_use]
    pub const fn unreadable(&self) -> Option<&Fault> {
        self.unreadable.as_ref()
    }

    /// Whether there is work for one that owns the log.
    #[must_use]
    pub const fn has_work(&self) -> bool {
        self.unreadable.is_none() && self.expired + self.orphaned > 0
    }

    /// The page to read next: after the first slot, up to and including the second.
    pub fn poll(&mut self, now: Instant, wall: UnixMillis) -> Option<(Slot, Slot)> {
        loop {
            match self.loader.take_next() {
                Ok(Some(loaded)) => {
                    for (index, entry) in (0_u32..).zip(&loaded.entries) {
                        if self.loader.was_settled(Position { slot: loaded.slot, index }) {
                            continue;
                        }
                        self.pending += 1;
                        self.oldest = Some(self.oldest.map_or(entry.received_at, |oldest| oldest.min(entry.received_at)));
                        match self.judge.doom_of(entry, wall) {
                            Some(Doom::Expired(_)) => self.expired += 1,
                            Some(Doom::Orphaned(_)) => self.orphaned += 1,
                            None => {}
                        }
                    }
                }
                Ok(None) => break,
                Err(fault) => {
                    self.unreadable = Some(fault);
                    return None;
                }
            }
        }
        match self.loader.poll(now, self.tail, true) {
            Some(Call::ReadPage { after, up_to, .. }) => Some((after, up_to)),
            _ => None,
        }
    }

    /// Takes the page.
    pub fn answer(&mut self, now: Instant, page: Page) {
        drop(self.loader.answer(now, Ok(page)));
    }
}
