//! One lane of a log: its writer, what is settled, what is read back, the head row, and what is deleted.

use super::options::OwnerOptions;
use crate::drain::Drain;
use crate::identity::{Epoch, IdSequence, LaneId, Slot};
use crate::log::kept::Keeping;
use crate::log::loader::Loader;
use crate::log::settled::{HeadSnapshot, Settled};
use crate::log::writer::{LOAD_LINGERS, Writer};
use crate::log::{Call, Page, PagePurpose};
use crate::outcome::{Fault, FaultCode, Outcome};
use crate::rows::{Head, Row, RowMeta};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// Attempts that a head row remembers at most.
const MAX_REMEMBERED_ATTEMPTS: usize = 1_000;
/// Segments deleted by one call.
const DELETE_AT_ONCE: usize = 100;
/// A delete is worth a request from here on; fewer wait for idleness.
const DELETE_FROM: usize = 25;
/// How often within the time for which settled rows are kept a look is taken at most at what former owners left.
const LOOKS: u32 = 64;
/// The ids of a lane's rows start so far behind those of the lane before.
const ROW_IDS_OF_A_LANE: u32 = 48;

/// What the owner's stage means for a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// It was told to stop.
    pub stopping: bool,
    /// The deadline of the stop has passed.
    pub over: bool,
}

/// One lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub id: LaneId,
    pub writer: Writer,
    pub settled: Settled,
    /// For how long rows of settled entries are kept.
    keeping: Keeping,
    pub loader: Loader,
    /// What the last look at the tail told, while the lane waits to go on.
    pub found: Option<Option<RowMeta>>,
    /// The last look was after an anchor of this owner.
    pub anchored: bool,
    /// This owner's anchor.
    pub anchor: Slot,
    /// The head that it started from.
    pub start: Slot,
    /// Entries were tried since the last head row was written.
    pub attempts_untold: bool,
    head_in_flight: Option<HeadSnapshot>,
    head_retry_at: Option<Instant>,
    pub head_failed: bool,
    revision: u64,
    deleting: Option<Vec<Slot>>,
    delete_retry_at: Option<Instant>,
    sweep_after: Option<Slot>,
    /// When to look on for what former owners left, where a look met a row that is too young.
    sweep_at: Instant,
    sweeping: bool,
    linger: Duration,
    pile: usize,
}

impl Lane {
    /// A lane whose log will be opened. `share`: its part of the memory for entries, in bytes.
    pub fn new(id: LaneId, options: &OwnerOptions, share: usize) -> Self {
        let ids = IdSequence::new(options.row_id_base.wrapping_add(u128::from(id.0) << ROW_IDS_OF_A_LANE));
        Self {
            id,
            writer: Writer::new(options.segment, options.owner.clone(), ids),
            settled: Settled::default(),
            keeping: Keeping::new(options.keep_settled),
            loader: Loader::new(Slot(0), None, share),
            found: None,
            anchored: false,
            anchor: Slot(0),
            start: Slot(0),
            attempts_untold: false,
            head_in_flight: None,
            head_retry_at: None,
            head_failed: false,
            revision: 0,
            deleting: None,
            delete_retry_at: None,
            sweep_after: None,
            sweep_at: Instant::default(),
            sweeping: false,
            linger: options.segment.linger,
            pile: 2 * options.segment.max_messages,
        }
    }

    /// Looks at the log anew, to open it.
    pub fn reopen(&mut self) {
        self.found = None;
        self.writer.reopen();
    }

    /// Its log is open. What former owners settled is kept as if it had been settled now, unless rows tell that it was long ago: else nothing would ever go
    /// where owners change more often than that.
    pub fn opened(&mut self, now: Instant, head: Option<Head>, drained: Slot, anchor: Slot, share: usize) {
        self.settled = Settled::at(drained);
        self.keeping.settled(now, drained);
        self.loader = Loader::new(drained, head, share);
        self.anchor = anchor;
        self.start = drained;
        self.sweep_after = (drained > Slot(0)).then_some(Slot(0));
        self.sweep_at = now;
    }

    /// Slots of former owners that were not read yet.
    pub const fn slots_to_recover(&self) -> u64 {
        self.anchor.0.saturating_sub(self.settled.loaded().0).saturating_sub(1)
    }

    /// Whether everything that former owners left was taken up.
    pub fn is_recovered(&self) -> bool {
        self.writer.is_retired() || self.writer.is_running() && self.settled.loaded() >= self.anchor
    }

    /// Whether nothing is left in its log to be taken up, and nothing waits to be written to it.
    pub fn is_exhausted(&self) -> bool {
        self.writer.is_retired() || self.loader.covered() >= self.writer.tail() && self.writer.is_idle()
    }

    /// Whether everything in its log is settled.
    pub fn is_drained(&self) -> bool {
        self.writer.is_retired() || self.is_exhausted() && self.settled.drained() >= self.writer.tail()
    }

    /// When to come back although nothing happened.
    pub fn wake_at(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let idle_at = (self.settled.is_behind() || self.deletable_count(now) > 0)
            .then(|| self.writer.last_append_began().map_or(now, |began| began.plus(self.linger * LOAD_LINGERS)));
        // One that is due already waits for nothing but the lanes to be open, which is told.
        let looks = self.keeping.is_on() && self.sweep_after.is_some() && !self.sweeping;
        let sweep_at = looks.then_some(self.sweep_at).filter(|at| *at > now);
        let rest = [self.keeping.moves_at(now), idle_at, sweep_at];
        [self.writer.wake_at(), self.loader.wake_at(), self.head_retry_at, self.delete_retry_at].into_iter().chain(rest).flatten()
    }

    /// The last slot whose row may be deleted once its entries are settled. Nothing is kept for people where the store has no room for what arrives.
    fn line(&self, now: Instant) -> Slot {
        let full = self.writer.fault().is_some_and(|fault| fault.code == FaultCode::StorageFull);
        if full { Slot(u64::MAX) } else { self.keeping.line(now) }
    }

    fn deletable_count(&self, now: Instant) -> usize {
        self.settled.deletable_count(self.writer.tail(), self.line(now))
    }

    /// A row that was stored tells that every slot up to this one is settled.
    pub fn made_durable(&mut self, now: Instant, drained: Slot) {
        self.settled.made_durable(drained);
        self.keeping.settled(now, self.settled.durable());
    }

    /// The answer to the head row.
    pub fn head_put(&mut self, now: Instant, outcome: Outcome<bool>) -> Option<Fault> {
        let snapshot = self.head_in_flight.take()?;
        self.head_failed = !matches!(outcome, Outcome::Done(true));
        self.attempts_untold |= self.head_failed;
        match outcome {
            Outcome::Done(true) => {
                self.settled.snapshot_durable(&snapshot);
                self.keeping.settled(now, self.settled.durable());
            }
            // A head that is further, or of a higher epoch: another owner's. The next append will be refused; nothing is taken as durable here.
            Outcome::Done(false) => self.head_retry_at = Some(now.plus(Duration::from_secs(5))),
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => {
                self.head_retry_at = Some(now.plus(Duration::from_secs(1)));
                return Some(fault);
            }
        }
        None
    }

    /// The answer to a delete.
    pub fn deleted(&mut self, now: Instant, outcome: Outcome<()>) -> Option<Fault> {
        let slots = self.deleting.take().unwrap_or_default();
        match outcome {
            Outcome::Done(()) => {
                self.settled.deleted(&slots);
                None
            }
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => {
                self.delete_retry_at = Some(now.plus(Duration::from_secs(1)));
                Some(fault)
            }
        }
    }

    /// The answer to a look for garbage.
    pub fn swept(&mut self, now: Instant, wall: UnixMillis, page: Result<Page, Fault>) {
        self.sweeping = false;
        // Where all that former owners left may go, nothing is asked of its age.
        let keep = if self.line(now) < self.start { self.keeping.time() } else { Duration::ZERO };
        match page {
            Ok(page) => {
                for (slot, row) in page.rows.into_iter().filter(|(slot, _)| *slot > Slot::HEAD) {
                    let age = wall.since(row.written_at());
                    if age < keep {
                        // What follows is younger still. Rows are looked at some at a time, not one by one as they grow old.
                        self.sweep_after = Some(Slot(slot.0 - 1));
                        self.sweep_at = now.plus(keep.saturating_sub(age) + keep / LOOKS);
                        return;
                    }
                    // When it was written, every slot up to this one was settled.
                    self.keeping.kept(row.drained().min(self.start));
                    if matches!(row, Row::Segment(_)) {
                        self.settled.found_garbage(slot);
                    }
                }
                self.sweep_after = page.next_after;
            }
            // Garbage costs storage, nothing else: the next owner looks again.
            Err(_) => self.sweep_after = None,
        }
    }

    /// Writes the head where it is due, and deletes what is garbage.
    pub fn tidy(&mut self, now: Instant, drain: &Drain, epoch: Epoch, pressure: Pressure, mut call: impl FnMut(Call)) {
        let quiet = self.is_quiet(now, drain, pressure);
        if self.head_in_flight.is_none() && self.head_retry_at.is_none_or(|at| now >= at) {
            let piled_up = self.settled.exposed() >= self.pile;
            // Attempts alone are worth a write at the end only: the next owner would count anew, and never come to call an entry poison.
            let last_words = self.attempts_untold && pressure.over;
            if quiet && last_words || self.settled.is_behind() && (quiet || piled_up) {
                self.head_retry_at = None;
                let snapshot = self.settled.snapshot();
                let head = self.head_row(drain, epoch, &snapshot);
                self.head_in_flight = Some(snapshot);
                self.attempts_untold = false;
                call(Call::PutHead { head });
            }
        }
        if self.deleting.is_none() && self.delete_retry_at.is_none_or(|at| now >= at) {
            self.delete_retry_at = None;
            let count = self.deletable_count(now);
            if count >= DELETE_FROM || (count > 0 && quiet) {
                let slots = self.settled.deletable(self.writer.tail(), self.line(now), DELETE_AT_ONCE);
                self.deleting = Some(slots.clone());
                call(Call::Delete { slots });
            }
        }
        // Reading it costs: only where all of it may be deleted, or where a row may have grown old enough.
        let is_due = self.line(now) >= self.start || now >= self.sweep_at;
        if let Some(after) = self.sweep_after.filter(|_| !self.sweeping && is_due) {
            self.sweeping = true;
            call(Call::ReadPage { purpose: PagePurpose::Sweep, after, up_to: self.start });
        }
    }

    /// The row that replaces the head row: what this owner knows, and what former ones told of slots that are not loaded yet.
    ///
    /// Each has a revision above the one before. A request that the store applies late, after it was given up and another was made in its place,
    /// meets the higher revision: it cannot take back what the later row told.
    fn head_row(&mut self, drain: &Drain, epoch: Epoch, snapshot: &HeadSnapshot) -> Head {
        let mut settled_ahead = snapshot.ranges.clone();
        settled_ahead.extend(self.loader.settled_behind(self.settled.loaded()));
        let mut attempts = drain.attempts(self.id, MAX_REMEMBERED_ATTEMPTS);
        attempts.extend(self.loader.attempts());
        attempts.truncate(MAX_REMEMBERED_ATTEMPTS);
        self.revision += 1;
        Head { epoch, revision: self.revision, drained: snapshot.drained, settled_ahead, attempts }
    }

    /// Whether the lane is idle: nothing is pending or in flight, and no append began lately. While stopping, the last part does not count; past
    /// the deadline, what is pending does not either, since a store that does not take it must not keep the head from being tried. Nor does it while
    /// an append waits to be tried again: a full disk takes it only once settled rows are deleted.
    fn is_quiet(&self, now: Instant, drain: &Drain, pressure: Pressure) -> bool {
        let lately = self.writer.last_append_began().is_some_and(|began| now.since(began) < self.linger * LOAD_LINGERS);
        drain.in_flight_from(self.id) == 0
            && (pressure.over || (self.writer.pending() == 0 || self.writer.backs_off()) && (pressure.stopping || !lately))
    }

    /// Whether the head row tells everything, or was tried in vain past the deadline: then the log tells the next owner, at the price of repeats.
    pub fn head_is_done(&self, over: bool) -> bool {
        let known = !(self.settled.is_behind() || over && self.attempts_untold);
        self.head_in_flight.is_none() && (known || over && self.head_failed)
    }
}
