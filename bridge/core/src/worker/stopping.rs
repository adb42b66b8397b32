//! Stopping: what has to be done before the end, and what is left.

use super::events::{Effect, End};
use super::lane::{Lane, Pressure};
use super::{Owner, Stage};
use crate::units::Instant;

impl Owner {
    pub(super) fn pressure(&self, now: Instant) -> Pressure {
        Pressure { stopping: matches!(self.stage, Stage::Draining { .. }), over: self.is_over(now) }
    }

    pub(super) fn finish_stage(&mut self, now: Instant) {
        if !matches!(self.stage, Stage::Draining { .. }) {
            return;
        }
        let over = self.is_over(now);
        // What a limit makes wait is not waited for: the log has it, or its source.
        let sent = self.drain.len() == self.drain.kept_by_limits();
        let held = self.waiting.len() > 0 || self.drain.held() > 0 && !sent;
        if !self.source_closed && (self.pending() == 0 && !held || over) {
            self.source_closed = true;
            self.effects.push(Effect::CloseSource);
        }
        let drained = sent && !held && self.lanes.iter().all(Lane::is_exhausted);
        // Past the deadline one failed write of a head is enough: the log tells the next owner, at the price of some repeats.
        let heads_are_done = self.lanes.iter().all(|lane| lane.head_is_done(over));
        if !self.is_open() || self.drain.in_flight() == 0 && (drained || over) && heads_are_done {
            self.stage = Stage::Finished;
            self.effects.push(Effect::Finished(End::Stopped { unsettled: self.unsettled() }));
        }
    }

    /// Another owner took over, or the log cannot be used: nothing more is sent, appended or acknowledged.
    pub(super) fn abandon(&mut self, end: End) {
        self.deliveries.close();
        if !self.source_closed {
            self.source_closed = true;
            self.effects.push(Effect::CloseSource);
        }
        self.stage = Stage::Finished;
        self.effects.push(Effect::Finished(end));
    }

    /// Whether it was told to stop.
    pub(super) const fn is_stopping(&self) -> bool {
        !matches!(self.stage, Stage::Running)
    }

    /// Whether it was told to stop and the deadline has passed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Draining { until } if now >= until)
    }

    /// Entries that a crash now would send again, besides those that the source has not seen acknowledged.
    #[must_use]
    pub fn exposed(&self) -> usize {
        self.lanes.iter().map(|lane| lane.settled.exposed()).sum::<usize>() + self.drain.in_flight() + self.spill.ended()
    }

    /// Entries that are not settled, in memory and in the log. What former owners left and was not read yet is estimated, see [`Self::unread`].
    #[must_use]
    pub fn unsettled(&self) -> u64 {
        let unloaded: u64 = self.counters.iter().map(|counters| counters.unloaded).sum();
        // What spilled and was not met in the log yet is on both sides.
        let in_memory = (self.pending() + self.drain.len() + self.waiting.len() + self.admission.entries().count()) as u64;
        (unloaded + self.unread() + in_memory).saturating_sub(self.spill.unmet() as u64)
    }

    /// How many entries of former owners stand in the part of the log that was not read yet: its slots, at as many entries each as the slots read so
    /// far had. Exact once the log was read back.
    #[must_use]
    pub fn unread(&self) -> u64 {
        let slots: u64 = self.lanes.iter().map(Lane::slots_to_recover).sum();
        let recovered: u64 = self.counters.iter().map(|counters| counters.recovered).sum();
        let read: u64 = self.lanes.iter().map(|lane| lane.settled.loaded().0.saturating_sub(lane.start.0)).sum();
        if read == 0 { slots } else { slots.saturating_mul(recovered.div_ceil(read)) }
    }

    /// Whether entries are ready and none is on its way.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.drain.in_flight() == 0 && self.drain.has_ready() && self.stage == Stage::Running
    }
}
