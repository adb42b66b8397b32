//! A picture of an owner, for people and metrics.

use super::counters::{LegCounters, LegStatus, SenderStatus};
use super::{Doomed, Owner, Stage};
use crate::identity::{Epoch, Slot};
use crate::message::Entry;
use crate::outcome::Fault;
use crate::units::{Instant, UnixMillis};
use core::time::Duration;
use std::sync::Arc;

/// What stage an owner is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It opens its log.
    Opening,
    /// It takes up what former owners left.
    Recovering,
    /// It runs.
    Running,
    /// It stops.
    Stopping,
    /// It stopped.
    Stopped,
}

/// A picture of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneStatus {
    /// The last row's slot.
    pub tail: Slot,
    /// The head.
    pub drained: Slot,
}

/// A picture of an owner.
#[derive(Clone, Debug)]
pub struct OwnerStatus {
    /// Its stage.
    pub phase: Phase,
    /// Its epoch.
    pub epoch: Epoch,
    /// Of each lane, once the number of lanes is known.
    pub lanes: Vec<LaneStatus>,
    /// Entries not durable yet.
    pub pending: usize,
    /// Entries that the source holds because they are in no log.
    pub held: usize,
    /// Messages that came and wait until a limit admits them; the source holds them.
    pub held_up: usize,
    /// Since when the first of them has waited.
    pub held_up_since: Option<Instant>,
    /// Entries that wait because a limit of what is sent does not admit them yet.
    pub deferred: usize,
    /// Entries in memory that are durable and not settled.
    pub in_memory: usize,
    /// What they weigh.
    pub in_memory_bytes: usize,
    /// Entries of former owners that were not read yet: an estimate, see [`Owner::unread`].
    pub unread: u64,
    /// Entries being sent or parked.
    pub in_flight: usize,
    /// Entries that a crash now would send again.
    pub exposed: usize,
    /// Entries settled ahead of an older one that is not.
    pub settled_ahead: usize,
    /// The age of the oldest entry in memory.
    pub oldest_age: Option<Duration>,
    /// For each leg, and last for entries whose leg is gone.
    pub legs: Vec<LegStatus>,
    /// The last fault of the store, until a call succeeds.
    pub fault: Option<Fault>,
}

impl Owner {
    /// A picture of the state for people and metrics.
    #[must_use]
    pub fn status(&self, wall: UnixMillis) -> OwnerStatus {
        let legs = (0..self.counters.len()).map(|leg| self.leg_status(leg)).collect();
        OwnerStatus {
            phase: self.phase(),
            epoch: self.epoch,
            lanes: self.lanes.iter().map(|lane| LaneStatus { tail: lane.writer.tail(), drained: lane.settled.drained() }).collect(),
            pending: self.pending(),
            held: self.held(),
            held_up: self.admission.len(),
            deferred: self.drain.deferred().0,
            held_up_since: self.admission.oldest(),
            in_memory: self.drain.len() - self.drain.held() - self.drain.spilled(),
            in_memory_bytes: self.drain.weight() - self.drain.held_weight() - self.drain.spilled_weight(),
            unread: self.unread(),
            in_flight: self.drain.in_flight(),
            exposed: self.exposed(),
            settled_ahead: self.lanes.iter().map(|lane| lane.settled.settled_ahead()).sum(),
            oldest_age: self.drain.oldest().map(|item| wall.since(item.entry.received_at)),
            legs,
            fault: self.fault.clone(),
        }
    }

    /// The counters of each leg as if the owner ended now.
    #[must_use]
    pub fn closing_counters(&self) -> Vec<LegCounters> {
        (0..self.counters.len()).map(|leg| self.leg_status(leg).closed()).collect()
    }

    fn phase(&self) -> Phase {
        if self.stage == Stage::Finished {
            return Phase::Stopped;
        }
        match self.stage {
            Stage::Draining { .. } => Phase::Stopping,
            _ if !self.is_open() => Phase::Opening,
            _ if !self.recovered => Phase::Recovering,
            _ => Phase::Running,
        }
    }

    fn leg_status(&self, leg: usize) -> LegStatus {
        let counters = self.counters.get(leg).cloned().unwrap_or_default();
        let of_leg = |entry: &&Arc<Entry>| self.leg_of(entry) == leg;
        let lanes = self.lanes.iter();
        let pending = lanes.clone().flat_map(|lane| lane.writer.pending_entries()).filter(of_leg).count() as u64;
        let staged = lanes.flat_map(|lane| lane.loader.waiting_entries()).filter(of_leg).count() as u64;
        let doomed = self.doomed.iter().chain(self.doomed_later.values()).filter(|doomed| doomed.item.leg == leg);
        let (doomed_held, doomed): (Vec<&Doomed>, Vec<&Doomed>) = doomed.partition(|doomed| doomed.item.origin.delivery().is_some());
        let in_flight = self.drain.in_flight_of(leg) as u64;
        let idle_held = self.drain.idle_held_of(leg) as u64;
        let held_up = self.admission.entries().filter(of_leg).count() as u64;
        let held = self.waiting.entries().filter(of_leg).count() as u64 + held_up + idle_held + doomed_held.len() as u64;
        let idle = (self.drain.count_of(leg) as u64).saturating_sub(in_flight + idle_held);
        let in_outbox = staged + counters.unloaded + doomed.len() as u64 + idle;
        // What spilled and was not met in the log yet stands on both sides, and what came to its end meanwhile on the log's alone.
        let unmet = self.spill.unmet_of(leg) as u64;
        let (of_log, of_pending) = (unmet.min(in_outbox), unmet.saturating_sub(in_outbox));
        LegStatus {
            counters,
            pending: (pending + held).saturating_sub(of_pending),
            in_outbox: in_outbox - of_log,
            in_flight,
            circuit: self.drain.circuit(leg),
            sender: self.sender_status(leg),
        }
    }

    fn sender_status(&self, leg: usize) -> SenderStatus {
        let Some(flow) = self.drain.flow(leg) else { return SenderStatus::default() };
        SenderStatus {
            phase: flow.phase(),
            since: flow.since(),
            window: flow.window(),
            in_flight: self.drain.in_flight_of(leg),
            unacked_bytes: self.drain.unacked_of(leg),
            resumed: flow.resumed(),
            throttles: flow.throttles(),
        }
    }
}
