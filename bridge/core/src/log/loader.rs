//! Bringing segments from the log into memory, in slot order, within a bound.
//!
//! While the reader keeps up, a segment goes from the writer's memory straight to the drain and the log is never read. Once memory is full, or
//! after a takeover, segments are read back page by page; what is appended meanwhile waits its turn in the log.

use super::parts::Assembly;
use super::{Page, PagePurpose};
use crate::identity::{Position, Slot};
use crate::log::Call;
use crate::message::Entry;
use crate::outcome::{Fault, FaultCode};
use crate::rows::{Head, PackError, Row, Segment, SettledRange, part, unpack};
use crate::units::Instant;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// What a slot holds, before it is loaded.
#[derive(Clone, Debug)]
enum Waiting {
    Nothing,
    Packed(Segment),
    Entries(Appended),
}

/// A segment that was just stored.
#[derive(Clone, Debug)]
pub struct Appended {
    /// Its slot; where it stands in parts, that of the first.
    pub first: Slot,
    /// The slot of its last part: `first` where it has one row.
    pub last: Slot,
    /// Its entries.
    pub entries: Vec<Arc<Entry>>,
}

impl Appended {
    fn weight(&self) -> usize {
        self.entries.iter().map(|entry| entry.message.weight()).sum()
    }
}

/// A slot that was just loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The slot.
    pub slot: Slot,
    /// Whether it holds a segment, or a part of one; else an anchor, or nothing.
    pub is_segment: bool,
    /// Its entries; none where it holds no segment, or a later part of one.
    pub entries: Vec<Arc<Entry>>,
    /// Whether they came back from the store.
    pub read_back: bool,
}

impl Loaded {
    fn without_entries(slot: Slot, is_segment: bool, read_back: bool) -> Self {
        Self { slot, is_segment, entries: Vec::new(), read_back }
    }
}

/// Brings segments into memory in slot order.
#[derive(Debug)]
pub struct Loader {
    queue: VecDeque<(Slot, Waiting, bool)>,
    queued_bytes: usize,
    /// Every slot up to this one is loaded or in `queue`.
    covered: Slot,
    /// The parts of a segment whose last one was not met yet.
    assembly: Assembly,
    /// First and last slots of parts that are known to belong to no whole, and may have to be read back: nothing may ever follow that tells so. Ascending.
    known_strays: VecDeque<(Slot, Slot)>,
    /// Slots that were taken out of `queue` together with the one before them.
    ready: VecDeque<Loaded>,
    /// A segment that this release cannot read: nothing behind it is taken up.
    unreadable: Option<Fault>,
    /// What was appended behind a page that is being read: it continues the page where the page reaches its end.
    staged: Vec<Appended>,
    staged_bytes: usize,
    reading_up_to: Option<Slot>,
    retry_at: Option<Instant>,
    settled_ahead: Vec<SettledRange>,
    attempts: BTreeMap<Position, u32>,
    max_staged_bytes: usize,
}

impl Loader {
    /// Starts after `head`, with what the head row told of entries above it.
    #[must_use]
    pub fn new(head: Slot, row: Option<Head>, max_staged_bytes: usize) -> Self {
        let row = row.unwrap_or_default();
        Self {
            queue: VecDeque::new(),
            queued_bytes: 0,
            covered: head,
            assembly: Assembly::default(),
            known_strays: VecDeque::new(),
            ready: VecDeque::new(),
            unreadable: None,
            staged: Vec::new(),
            staged_bytes: 0,
            reading_up_to: None,
            retry_at: None,
            settled_ahead: row.settled_ahead,
            attempts: row.attempts.into_iter().collect(),
            max_staged_bytes,
        }
    }

    /// Whether a former owner settled this entry already.
    #[must_use]
    pub fn was_settled(&self, position: Position) -> bool {
        let after = self.settled_ahead.partition_point(|range| range.from <= position);
        after.checked_sub(1).and_then(|index| self.settled_ahead.get(index)).is_some_and(|range| position <= range.to)
    }

    /// What former owners settled above `loaded`. A head row written before all is loaded must repeat it, or a later owner would send it again.
    pub fn settled_behind(&self, loaded: Slot) -> impl Iterator<Item = SettledRange> + '_ {
        let first = Position { slot: loaded.next(), index: 0 };
        self.settled_ahead
            .iter()
            .filter(move |range| range.to >= first)
            .map(move |range| SettledRange { from: range.from.max(first), to: range.to })
    }

    /// How often former owners tried the entries that are not loaded yet, ascending by position.
    pub fn attempts(&self) -> impl Iterator<Item = (Position, u32)> + '_ {
        self.attempts.iter().map(|(position, attempts)| (*position, *attempts))
    }

    /// How often former owners tried this entry. Forgotten once asked.
    pub fn take_attempts(&mut self, position: Position) -> u32 {
        self.attempts.remove(&position).unwrap_or(0)
    }

    /// Every slot up to this one is in memory or behind us.
    #[must_use]
    pub const fn covered(&self) -> Slot {
        self.covered
    }

    /// The parts in these slots are no segment: their writer gave up what they were to be.
    pub fn note_strays(&mut self, first: Slot, last: Slot) {
        match self.known_strays.back_mut() {
            Some(before) if before.1.next() == first => before.1 = last,
            _ => self.known_strays.push_back((first, last)),
        }
    }

    /// Whether what stands at `slot` is known to belong to no whole. Slots are asked for in their order.
    fn is_stray(&mut self, slot: Slot) -> bool {
        while self.known_strays.front().is_some_and(|(_, last)| *last < slot) {
            self.known_strays.pop_front();
        }
        self.known_strays.front().is_some_and(|(first, _)| *first <= slot)
    }

    /// Offers a segment that was just stored. `false`: it stays in the log and is read back later.
    pub fn offer(&mut self, appended: Appended, room: bool) -> bool {
        let bytes = appended.weight();
        if self.reading_up_to.is_some() {
            let continues = self.staged.last().map(|before| before.last).or(self.reading_up_to).map(Slot::next) == Some(appended.first);
            if continues && self.staged_bytes + bytes <= self.max_staged_bytes {
                self.staged_bytes += bytes;
                self.staged.push(appended);
                return true;
            }
            return false;
        }
        if self.covered.next() == appended.first && room && self.queued_bytes + bytes <= self.max_staged_bytes {
            self.covered = appended.last;
            self.queued_bytes += bytes;
            self.queue.push_back((appended.first, Waiting::Entries(appended), false));
            return true;
        }
        false
    }

    /// The page to read now, if any: nothing is in flight, memory has room, and the log goes on.
    pub fn poll(&mut self, now: Instant, tail: Slot, room: bool) -> Option<Call> {
        let due = self.retry_at.is_none_or(|at| now >= at);
        if self.reading_up_to.is_some() || !self.queue.is_empty() || !room || self.covered >= tail || !due {
            return None;
        }
        self.retry_at = None;
        self.reading_up_to = Some(tail);
        Some(Call::ReadPage { purpose: PagePurpose::Load, after: self.covered, up_to: tail })
    }

    /// When to ask again although nothing happened.
    #[must_use]
    pub const fn wake_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Takes the answer to a page read.
    ///
    /// Returns how many entries it put aside that had been staged, so that they count as left in the log again.
    pub fn answer(&mut self, now: Instant, page: Result<Page, Fault>) -> Vec<Arc<Entry>> {
        let Some(up_to) = self.reading_up_to.take() else { return Vec::new() };
        let staged = core::mem::take(&mut self.staged);
        self.staged_bytes = 0;
        let page = match page {
            Ok(page) => page,
            Err(_) => {
                self.retry_at = Some(now.plus(RETRY_PAUSE));
                return staged.into_iter().flat_map(|appended| appended.entries).collect();
            }
        };
        for (slot, row) in page.rows {
            if slot <= self.covered {
                continue;
            }
            self.covered = slot;
            let waiting = match row {
                Row::Anchor(_) => Waiting::Nothing,
                Row::Segment(segment) => {
                    self.queued_bytes += segment.body.len();
                    Waiting::Packed(segment)
                }
            };
            self.queue.push_back((slot, waiting, true));
        }
        let end = page.next_after.unwrap_or(up_to);
        if end > self.covered {
            // The rows that are missing up to the end of the page were settled by a former owner.
            self.covered = end;
            self.queue.push_back((end, Waiting::Nothing, true));
        }
        if page.next_after.is_some() {
            return staged.into_iter().flat_map(|appended| appended.entries).collect();
        }
        for appended in staged {
            self.covered = appended.last;
            self.queued_bytes += appended.weight();
            self.queue.push_back((appended.first, Waiting::Entries(appended), false));
        }
        Vec::new()
    }

    /// The next slot, in order. A segment in parts comes with its first slot, once its last part is there.
    ///
    /// # Errors
    /// Where a segment cannot be read by this release; nothing follows, and the head stays below it.
    pub fn take_next(&mut self) -> Result<Option<Loaded>, Fault> {
        loop {
            if let Some(loaded) = self.ready.pop_front() {
                return Ok(Some(loaded));
            }
            if let Some(fault) = &self.unreadable {
                return Err(fault.clone());
            }
            let Some((slot, waiting, read_back)) = self.queue.pop_front() else { return Ok(None) };
            if let Err(error) = self.unqueue(slot, waiting, read_back) {
                self.unreadable = Some(Fault::new(FaultCode::InvalidConfig, format!("slot {slot}: {error}")));
            }
        }
    }

    /// Makes ready what stands at a slot.
    fn unqueue(&mut self, slot: Slot, waiting: Waiting, read_back: bool) -> Result<(), PackError> {
        match waiting {
            Waiting::Nothing => {
                self.strays(read_back);
                self.ready.push_back(Loaded::without_entries(slot, false, read_back));
            }
            Waiting::Entries(appended) => {
                self.strays(read_back);
                self.queued_bytes -= appended.weight();
                self.whole(slot, appended.last, appended.entries, read_back);
            }
            Waiting::Packed(segment) => {
                self.queued_bytes -= segment.body.len();
                if self.is_stray(slot) {
                    self.strays(read_back);
                    self.ready.push_back(Loaded::without_entries(slot, true, read_back));
                    return Ok(());
                }
                match part(&segment)? {
                    None => {
                        self.strays(read_back);
                        self.whole(slot, slot, unpack(&segment)?.into_iter().map(Arc::new).collect(), read_back);
                    }
                    Some((part, piece)) => {
                        let added = self.assembly.add(slot, &segment, part, piece);
                        self.ready.extend(added.strays.into_iter().map(|slot| Loaded::without_entries(slot, true, read_back)));
                        if let Some(whole) = added.whole {
                            let entries = unpack(&whole.segment)?.into_iter().map(Arc::new).collect();
                            self.whole(whole.first, whole.last, entries, read_back);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn whole(&mut self, first: Slot, last: Slot, entries: Vec<Arc<Entry>>, read_back: bool) {
        self.ready.push_back(Loaded { slot: first, is_segment: true, entries, read_back });
        self.ready.extend((first.0 + 1..=last.0).map(|slot| Loaded::without_entries(Slot(slot), true, read_back)));
    }

    /// What follows is no further part: those that were met belong to no whole.
    fn strays(&mut self, read_back: bool) {
        let strays = self.assembly.give_up().into_iter();
        self.ready.extend(strays.map(|slot| Loaded::without_entries(slot, true, read_back)));
    }

    /// The entries in memory that wait to be loaded and were never read back, for counting.
    pub fn waiting_entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.queue
            .iter()
            .filter_map(|(_, waiting, _)| match waiting {
                Waiting::Entries(appended) => Some(appended),
                Waiting::Nothing | Waiting::Packed(_) => None,
            })
            .chain(&self.staged)
            .flat_map(|appended| &appended.entries)
    }
}
