//! Bringing segments from the log into memory, in slot order, within a bound.
//!
//! While the reader keeps up, a segment goes from the writer's memory straight to the drain and the log is never read. Once memory is full, or
//! after a takeover, segments are read back page by page; what is appended meanwhile waits its turn in the log.

use super::{Page, PagePurpose};
use crate::identity::{Position, Slot};
use crate::log::Call;
use crate::message::Entry;
use crate::outcome::{Fault, FaultCode};
use crate::rows::{Head, Row, Segment, SettledRange, unpack};
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
    Entries(Vec<Arc<Entry>>),
}

/// A slot that was just loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The slot.
    pub slot: Slot,
    /// Its entries; none where it holds an anchor.
    pub entries: Vec<Arc<Entry>>,
    /// Whether they came back from the store.
    pub read_back: bool,
}

/// Brings segments into memory in slot order.
#[derive(Debug)]
pub struct Loader {
    queue: VecDeque<(Slot, Waiting, bool)>,
    queued_bytes: usize,
    /// Every slot up to this one is loaded or in `queue`.
    covered: Slot,
    /// What was appended behind a page that is being read: it continues the page where the page reaches its end.
    staged: Vec<(Slot, Vec<Arc<Entry>>)>,
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

    /// Offers a segment that was just stored. `false`: it stays in the log and is read back later.
    pub fn offer(&mut self, slot: Slot, entries: Vec<Arc<Entry>>, room: bool) -> bool {
        let bytes: usize = entries.iter().map(|entry| entry.message.weight()).sum();
        if self.reading_up_to.is_some() {
            let continues =
                self.staged.last().map_or_else(|| self.reading_up_to.map(Slot::next), |(last, _)| Some(last.next())) == Some(slot);
            if continues && self.staged_bytes + bytes <= self.max_staged_bytes {
                self.staged_bytes += bytes;
                self.staged.push((slot, entries));
                return true;
            }
            return false;
        }
        if self.covered.next() == slot && room && self.queued_bytes + bytes <= self.max_staged_bytes {
            self.covered = slot;
            self.queued_bytes += bytes;
            self.queue.push_back((slot, Waiting::Entries(entries), false));
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
                return staged.into_iter().flat_map(|(_, entries)| entries).collect();
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
            return staged.into_iter().flat_map(|(_, entries)| entries).collect();
        }
        for (slot, entries) in staged {
            self.covered = slot;
            self.queued_bytes += entries.iter().map(|entry| entry.message.weight()).sum::<usize>();
            self.queue.push_back((slot, Waiting::Entries(entries), false));
        }
        Vec::new()
    }

    /// The next slot, in order.
    ///
    /// # Errors
    /// Where a segment cannot be read by this release; it stays first in the queue and the head stays below it.
    pub fn take_next(&mut self) -> Result<Option<Loaded>, Fault> {
        let Some((slot, waiting, read_back)) = self.queue.pop_front() else { return Ok(None) };
        let entries = match waiting {
            Waiting::Nothing => Vec::new(),
            Waiting::Entries(entries) => {
                self.queued_bytes -= entries.iter().map(|entry| entry.message.weight()).sum::<usize>();
                entries
            }
            Waiting::Packed(segment) => match unpack(&segment) {
                Ok(entries) => {
                    self.queued_bytes -= segment.body.len();
                    entries.into_iter().map(Arc::new).collect()
                }
                Err(error) => {
                    let fault = Fault::new(FaultCode::InvalidConfig, format!("slot {slot}: {error}"));
                    self.queue.push_front((slot, Waiting::Packed(segment), read_back));
                    return Err(fault);
                }
            },
        };
        Ok(Some(Loaded { slot, entries, read_back }))
    }

    /// The entries in memory that wait to be loaded and were never read back, for counting.
    pub fn waiting_entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.queue
            .iter()
            .filter_map(|(_, waiting, _)| match waiting {
                Waiting::Entries(entries) => Some(entries),
                Waiting::Nothing | Waiting::Packed(_) => None,
            })
            .flatten()
            .chain(self.staged.iter().flat_map(|(_, entries)| entries))
    }
}
