//! Sweeping a log that nobody owns: opened like an owner does, and settled as far as entries went to the dead letters.

use super::{Doom, Judge};
use crate::dead_letter::DeadLetter;
use crate::identity::{Epoch, IdSequence, Position, Slot};
use crate::log::loader::Loader;
use crate::log::settled::{HeadSnapshot, Settled};
use crate::log::writer::{SegmentOptions, Writer, WriterEnd, WriterEvent};
use crate::log::{Answer, Call};
use crate::outcome::{Fault, Outcome};
use crate::rows::Head;
use crate::units::{Instant, UnixMillis};
use std::collections::VecDeque;

/// Letters written side by side.
const PARKS_AT_ONCE: usize = 32;
/// The head is written after so many settlements: that many letters may be written twice after a crash, which changes nothing.
const HEAD_EVERY: usize = 1_000;
/// Segments deleted by one call.
const DELETE_AT_ONCE: usize = 500;
/// Ranges that a head row may tell of; a log with more gaps is left as it is from there on.
const MAX_RANGES: usize = 2_000;
/// Nothing is appended, so nothing is staged behind the page that is being read.
const STAGED_BYTES: usize = 0;

/// What a sweep needs to know.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    /// The name in its anchor.
    pub owner: String,
    /// The lease's version.
    pub epoch: Epoch,
    /// 128 random bits: the base of its row ids.
    pub row_id_base: u128,
    /// What entries are judged by.
    pub judge: Judge,
    /// Entries that it moves at most.
    pub max_entries: u64,
    /// Whether it leaves what it settled to a later run, because settled rows are kept for a time.
    pub keeps_settled: bool,
}

/// What to do next. One at a time: ask again once it was answered.
#[derive(Debug)]
pub enum Step {
    /// Call the log's store; bring the answer to [`Sweep::answer`].
    Call(Call),
    /// Write these letters, in any order; bring the outcomes to [`Sweep::parked`].
    Park(Vec<(Position, DeadLetter)>),
    /// Nothing before this moment.
    Wait(Instant),
    /// It is over.
    Finished(SweepEnd),
}

/// How a sweep ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SweepEnd {
    /// Everything was looked at.
    Complete,
    /// It was told to stop, or had enough; the rest stands in the log.
    Stopped,
    /// Another owner took the log: the way it should be.
    Fenced,
    /// The log, or the store, cannot be used; the next run tries again.
    Failed(Fault),
}

/// A sweep of one log.
#[derive(Debug)]
pub struct Sweep {
    options: SweepOptions,
    writer: Writer,
    loader: Loader,
    settled: Settled,
    anchor: Option<Slot>,
    doomed: VecDeque<(Position, DeadLetter, bool)>,
    parking: Vec<(Position, bool)>,
    head: Option<HeadSnapshot>,
    revision: u64,
    deleting: Vec<Slot>,
    finishing: Option<SweepEnd>,
    taken: u64,
    /// An entry was left because enough were taken.
    cut: bool,
    /// Expired entries that became dead letters.
    pub expired: u64,
    /// Entries without a configuration that became dead letters.
    pub orphaned: u64,
    /// Segments that were deleted.
    pub deleted: u64,
}

impl Sweep {
    /// A sweep that will open its log.
    #[must_use]
    pub fn new(options: SweepOptions) -> Self {
        let ids = IdSequence::new(options.row_id_base);
        Self {
            writer: Writer::new(SegmentOptions::default(), options.owner.clone(), ids),
            options,
            loader: Loader::new(Slot(0), None, STAGED_BYTES),
            settled: Settled::default(),
            anchor: None,
            doomed: VecDeque::new(),
            parking: Vec::new(),
            head: None,
            revision: 0,
            deleting: Vec::new(),
            finishing: None,
            taken: 0,
            cut: false,
            expired: 0,
            orphaned: 0,
            deleted: 0,
        }
    }

    /// Begins nothing more; what was settled is still made durable.
    pub fn stop(&mut self) {
        self.finish(SweepEnd::Stopped);
    }

    fn finish(&mut self, end: SweepEnd) {
        self.doomed.clear();
        self.finishing.get_or_insert(end);
    }

    /// What to do now.
    pub fn poll(&mut self, now: Instant, wall: UnixMillis) -> Step {
        if let Some(end) = self.writer.end() {
            return Step::Finished(match end {
                // The log's epoch is above the lease's version: another owner's, or a lease table that was restored. Both are for an owner to solve.
                WriterEnd::Fenced { .. } | WriterEnd::EpochTooLow { .. } => SweepEnd::Fenced,
                WriterEnd::Unusable(fault) => SweepEnd::Failed(fault.clone()),
            });
        }
        let Some(anchor) = self.anchor else {
            if let Some(end) = self.finishing.clone() {
                return Step::Finished(end);
            }
            return match self.writer.poll(now, wall, Slot(0)) {
                Some(call) => Step::Call(call),
                None => Step::Wait(self.writer.wake_at().unwrap_or(now)),
            };
        };
        if self.finishing.is_none() {
            self.load(wall, anchor);
        }
        if let Some(step) = self.park().or_else(|| self.make_durable()) {
            return step;
        }
        if self.finishing.is_none() {
            if let Some(call) = self.loader.poll(now, anchor, true) {
                return Step::Call(call);
            }
            if let Some(at) = self.loader.wake_at() {
                return Step::Wait(at);
            }
            self.finish(if self.cut { SweepEnd::Stopped } else { SweepEnd::Complete });
            return self.poll(now, wall);
        }
        Step::Finished(self.finishing.clone().unwrap_or(SweepEnd::Complete))
    }

    /// Judges what was read, one batch of letters ahead.
    fn load(&mut self, wall: UnixMillis, anchor: Slot) {
        while self.doomed.len() < PARKS_AT_ONCE {
            let loaded = match self.loader.take_next() {
                Ok(Some(loaded)) => loaded,
                Ok(None) => return,
                Err(fault) => return self.finish(SweepEnd::Failed(fault)),
            };
            if loaded.slot <= self.settled.loaded() || loaded.slot > anchor {
                continue;
            }
            if loaded.is_segment {
                self.settled.load(loaded.slot, u32::try_from(loaded.entries.len()).unwrap_or(u32::MAX));
            } else {
                self.settled.pass(loaded.slot);
            }
            for (index, entry) in (0_u32..).zip(&loaded.entries) {
                let position = Position { slot: loaded.slot, index };
                if self.loader.was_settled(position) {
                    self.settled.restore(position);
                    continue;
                }
                let (fault, expired) = match self.options.judge.doom_of(entry, wall) {
                    Some(Doom::Expired(fault)) => (fault, true),
                    Some(Doom::Orphaned(fault)) => (fault, false),
                    None => continue,
                };
                if self.taken >= self.options.max_entries {
                    self.cut = true;
                    continue;
                }
                self.taken += 1;
                let attempts = self.loader.take_attempts(position);
                let destination = self.options.judge.destination_of(entry);
                self.doomed.push_back((position, DeadLetter::new(entry, &destination, &fault, attempts, wall), expired));
            }
            if self.cut && self.doomed.is_empty() {
                return self.finish(SweepEnd::Stopped);
            }
        }
    }

    fn park(&mut self) -> Option<Step> {
        if self.doomed.is_empty() {
            return None;
        }
        let count = self.doomed.len().min(PARKS_AT_ONCE);
        let mut letters = Vec::with_capacity(count);
        for (position, letter, expired) in self.doomed.drain(..count) {
            self.parking.push((position, expired));
            letters.push((position, letter));
        }
        Some(Step::Park(letters))
    }

    /// Writes the head and deletes what is settled, where it is due.
    fn make_durable(&mut self) -> Option<Step> {
        let finishing = self.finishing.is_some();
        let exposed = self.settled.exposed();
        if exposed >= HEAD_EVERY || finishing && self.settled.is_behind() {
            let snapshot = self.settled.snapshot();
            if snapshot.ranges.len() > MAX_RANGES && !finishing {
                self.finish(SweepEnd::Stopped);
            }
            self.revision += 1;
            let mut settled_ahead = snapshot.ranges.clone();
            settled_ahead.extend(self.loader.settled_behind(self.settled.loaded()));
            let head = Head {
                epoch: self.options.epoch,
                revision: self.revision,
                drained: snapshot.drained,
                settled_ahead,
                attempts: self.loader.attempts().collect(),
            };
            self.head = Some(snapshot);
            return Some(Step::Call(Call::PutHead { head }));
        }
        let line = if self.options.keeps_settled { Slot::HEAD } else { Slot(u64::MAX) };
        let deletable = self.settled.deletable_count(self.writer.tail(), line);
        if deletable >= DELETE_AT_ONCE || finishing && deletable > 0 {
            self.deleting = self.settled.deletable(self.writer.tail(), line, DELETE_AT_ONCE);
            return Some(Step::Call(Call::Delete { slots: self.deleting.clone() }));
        }
        None
    }

    /// Takes the answer to [`Step::Call`].
    pub fn answer(&mut self, now: Instant, answer: Answer) {
        match answer {
            Answer::Page { page, .. } => {
                if let Err(fault) = &page {
                    self.finish(SweepEnd::Failed(fault.clone()));
                }
                drop(self.loader.answer(now, page));
            }
            Answer::HeadPut(outcome) => {
                let Some(snapshot) = self.head.take() else { return };
                match outcome {
                    Outcome::Done(true) => self.settled.snapshot_durable(&snapshot),
                    // A head of a higher epoch stands there.
                    Outcome::Done(false) => self.abandon(SweepEnd::Fenced),
                    Outcome::NotDone(fault) | Outcome::Unknown(fault) => self.abandon(SweepEnd::Failed(fault)),
                }
            }
            Answer::Deleted(outcome) => {
                let slots = core::mem::take(&mut self.deleting);
                match outcome {
                    Outcome::Done(()) => {
                        self.deleted += slots.len() as u64;
                        self.settled.deleted(&slots);
                    }
                    Outcome::NotDone(fault) | Outcome::Unknown(fault) => self.abandon(SweepEnd::Failed(fault)),
                }
            }
            Answer::Tail(_) | Answer::Head(_) | Answer::Put(_) => self.opening_answered(now, answer),
            // Not asked for.
            Answer::Record(_) | Answer::Registered(_) | Answer::Moved(_) => {}
        }
    }

    fn opening_answered(&mut self, now: Instant, answer: Answer) {
        match self.writer.answer(now, answer) {
            Some(WriterEvent::TailFound { tail, anchored }) => {
                let (found, own) = (tail.map_or(Epoch(0), |meta| meta.epoch), self.options.epoch);
                if found > own || found == own && !anchored {
                    self.writer.stop(WriterEnd::EpochTooLow { found });
                } else {
                    self.writer.go(own);
                }
            }
            Some(WriterEvent::Opened { head, drained, anchor }) => {
                self.settled = Settled::at(drained);
                self.loader = Loader::new(drained, head, STAGED_BYTES);
                self.anchor = Some(anchor);
            }
            Some(WriterEvent::Stored(_) | WriterEvent::MailGone { .. } | WriterEvent::Retired) | None => {}
        }
    }

    /// Takes the outcomes of [`Step::Park`], in its order. A letter that may not stand leaves its entry in the log.
    pub fn parked(&mut self, outcomes: Vec<Outcome<()>>) {
        let mut outcomes = outcomes.into_iter();
        for (position, expired) in core::mem::take(&mut self.parking) {
            match outcomes.next() {
                Some(Outcome::Done(())) => {
                    self.settled.settle(position);
                    if expired { self.expired += 1 } else { self.orphaned += 1 }
                }
                Some(Outcome::NotDone(fault) | Outcome::Unknown(fault)) => self.finish(SweepEnd::Failed(fault)),
                None => self.finish(SweepEnd::Stopped),
            }
        }
    }

    /// Ends without writing anything more: what is not durable stands in the log and is found again.
    fn abandon(&mut self, end: SweepEnd) {
        self.finishing = Some(end);
        self.doomed.clear();
        self.settled = Settled::at(self.settled.durable());
    }
}
