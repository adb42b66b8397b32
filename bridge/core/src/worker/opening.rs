//! Opening the log: the registry's record, then an anchor in every registered lane, each confirmed. Only then anything begins.

use super::Owner;
use super::events::{Effect, Observation};
use super::lane::Lane;
use super::registry::Told;
use crate::identity::{Epoch, Id128, LaneId, Slot};
use crate::log::writer::WriterEnd;
use crate::log::{Answer, LogState, Registration};
use crate::rows::RowMeta;
use crate::units::Instant;

/// How far the log is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The registry's record is being read.
    Record,
    /// The tails of all registered lanes are being read.
    Tails,
    /// The record is being written with this owner's epoch.
    Claim,
    /// The anchors are being raised and confirmed.
    Anchors,
    /// Every lane is open.
    Open,
}

/// What follows from an epoch that was found.
enum Verdict {
    /// It is below this owner's.
    Go,
    /// Another owner chose the same one; this one chose a higher one now.
    Again,
    End(WriterEnd),
}

impl Owner {
    /// Whether every registered lane is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.step == Step::Open
    }

    /// An answer of the registry.
    pub(super) fn registry_answered(&mut self, now: Instant, answer: Answer) {
        let told = self.registry.answer(now, answer);
        self.note_fault(self.registry.fault().cloned());
        match (self.step, told) {
            (_, None) => {}
            (Step::Record, Some(_)) => self.look_at_tails(),
            // Another owner wrote the record meanwhile. The number of lanes may have changed with it.
            (Step::Claim, Some(Told::Conflict)) => self.look_at_tails(),
            (Step::Claim, Some(Told::Written)) => {
                self.step = Step::Anchors;
                let epoch = self.epoch;
                self.lanes.iter_mut().for_each(|lane| lane.writer.go(epoch));
            }
            (Step::Open, Some(told)) => self.change_registered(told),
            (Step::Tails | Step::Anchors | Step::Claim, Some(_)) => {}
        }
    }

    /// Reads the tail of every lane that the record names.
    fn look_at_tails(&mut self) {
        self.step = Step::Tails;
        let count = self.registry.standing().map_or(self.options.lanes, |record| record.lanes).max(1);
        self.lanes.truncate(count as usize);
        self.lanes.iter_mut().for_each(Lane::reopen);
        self.add_lanes(count);
    }

    /// Adds lanes until there are `count`; their logs are not open yet.
    pub(super) fn add_lanes(&mut self, count: u32) {
        let share = self.options.memory_bytes / (count.max(1) as usize);
        for id in u32::try_from(self.lanes.len()).unwrap_or(u32::MAX)..count {
            self.lanes.push(Lane::new(LaneId(id), &self.options, share));
        }
    }

    /// Goes on with the opening where every lane is ready for it.
    pub(super) fn open(&mut self) {
        match self.step {
            Step::Tails if self.lanes.iter().all(|lane| lane.found.is_some()) => self.claim(),
            Step::Anchors => {
                self.judge_lanes();
                if self.lanes.iter().all(|lane| lane.writer.is_running()) {
                    self.step = Step::Open;
                    let slots_to_recover = self.lanes.iter().map(Lane::slots_to_recover).sum();
                    self.effects.push(Effect::Observe(Observation::Opened { epoch: self.epoch, slots_to_recover }));
                }
            }
            Step::Record if !self.options.has_log() => {
                self.step = Step::Open;
                self.effects.push(Effect::Observe(Observation::Opened { epoch: self.epoch, slots_to_recover: 0 }));
            }
            // Lanes that are added while the others run.
            Step::Open => self.judge_lanes(),
            Step::Record | Step::Tails | Step::Claim => {}
        }
    }

    fn claim(&mut self) {
        let of_record = self.registry.standing().map(|record| of_registry(record.epoch));
        let tails = self.lanes.iter_mut().filter_map(|lane| lane.found.take().flatten());
        let highest = tails.chain(of_record).max_by_key(|meta| meta.epoch);
        let lanes = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        match self.judge(highest, false) {
            // A choice of an epoch for the second time is a choice like the first.
            Verdict::Go | Verdict::Again => {
                self.step = Step::Claim;
                self.registry.write(Registration { epoch: self.epoch, lanes, state: LogState::Open });
            }
            Verdict::End(end) => self.stop_for_good(end),
        }
    }

    /// Lets the lanes go on that looked at their tail anew, because another row was in the way of their anchor.
    fn judge_lanes(&mut self) {
        for index in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get_mut(index) else { return };
            let Some(found) = lane.found.take() else { continue };
            let anchored = lane.anchored;
            match self.judge(found, anchored) {
                Verdict::Go => {
                    let epoch = self.epoch;
                    self.lanes.iter_mut().skip(index).take(1).for_each(|lane| lane.writer.go(epoch));
                }
                // The new epoch has to stand in the record and in every lane.
                Verdict::Again => return self.look_at_tails(),
                Verdict::End(end) => return self.stop_for_good(end),
            }
        }
    }

    /// Compares an epoch that was found with this owner's. Without a lease the epoch is the owner's own choice: one above what it finds. Meeting an
    /// equal one afterwards means that another owner chose the same at the same time; one of the two steps up, and the anchors decide.
    fn judge(&mut self, found: Option<RowMeta>, anchored: bool) -> Verdict {
        let epoch = found.map_or(Epoch(0), |meta| meta.epoch);
        if self.options.epoch.is_none() {
            if self.epoch == Epoch(0) {
                self.epoch = epoch.next();
                return Verdict::Go;
            }
            if epoch == self.epoch {
                self.epoch = epoch.next();
                return Verdict::Again;
            }
        } else if epoch > self.epoch || epoch == self.epoch && !anchored {
            // Overtaken by a newer owner, or a lease that is older than the log; the lease row tells which.
            return Verdict::End(WriterEnd::EpochTooLow { found: epoch });
        }
        match found {
            Some(found) if epoch > self.epoch => Verdict::End(WriterEnd::Fenced { found, same_or_older_epoch: false }),
            Some(_) | None => Verdict::Go,
        }
    }

    /// Another owner wrote the record that was this one's.
    pub(super) fn fenced_by_record(&mut self, epoch: Epoch) {
        let same_or_older_epoch = epoch <= self.epoch;
        self.stop_for_good(WriterEnd::Fenced { found: of_registry(epoch), same_or_older_epoch });
    }

    pub(super) fn stop_for_good(&mut self, end: WriterEnd) {
        self.ended.get_or_insert(end);
    }

    /// A lane's log is open: nothing of it is taken up before all are.
    pub(super) fn lane_opened(&mut self, now: Instant, id: LaneId, head: Option<crate::rows::Head>, drained: Slot, anchor: Slot) {
        let share = self.options.memory_bytes / self.lanes.len().max(1);
        if let Some(lane) = self.lanes.get_mut(id.index()) {
            lane.opened(now, head, drained, anchor, share);
        }
    }
}

/// An epoch that stands in the registry, as if a row told it.
const fn of_registry(epoch: Epoch) -> RowMeta {
    RowMeta { slot: Slot::HEAD, epoch, id: Id128(0), drained: Slot(0) }
}
