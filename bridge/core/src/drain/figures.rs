//! What is in memory, counted and weighed. It only reads.

use super::breaker::Circuit;
use super::leg::Sending;
use super::shares::Share;
use super::{Drain, Item, OrderKey};
use crate::flow::sender::SenderFlow;
use crate::identity::{Id128, LaneId, Position};
use std::collections::HashSet;

impl Drain {
    /// Entries that wait because a limit says so, and what they weigh in bytes.
    #[must_use]
    pub fn deferred(&self) -> (usize, usize) {
        let each = self.legs.iter().map(Sending::deferred);
        each.fold(self.reserved, |(count, weight), (more, heavier)| (count + more, weight + heavier))
    }

    fn share(&self, lane: LaneId) -> Share {
        self.shares.lanes.get(lane.index()).copied().unwrap_or_default()
    }

    /// Entries that the source holds.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.shares.held.count
    }

    /// What those weigh, in bytes.
    #[must_use]
    pub const fn held_weight(&self) -> usize {
        self.shares.held.weight
    }

    /// Entries that limits keep from leaving, and those that stand in line behind them.
    #[must_use]
    pub fn kept_by_limits(&self) -> usize {
        let behind = self.legs.iter().enumerate().map(|(leg, sending)| {
            let reserved = self.waiting.values().filter(|item| item.leg == leg && item.not_before.is_some());
            let keys: HashSet<OrderKey> = reserved.chain(sending.limited()).filter_map(|item| item.key).collect();
            sending.lines.iter().filter(|(key, _)| keys.contains(key)).map(|(_, line)| line.len()).sum::<usize>()
        });
        self.deferred().0 + behind.sum::<usize>()
    }

    /// Entries of `lane` in memory that are not settled.
    #[must_use]
    pub fn len_of(&self, lane: LaneId) -> usize {
        self.share(lane).count
    }

    /// What those of `lane` weigh, in bytes.
    #[must_use]
    pub fn weight_of(&self, lane: LaneId) -> usize {
        self.share(lane).weight
    }

    /// Entries of `lane` being sent or parked.
    #[must_use]
    pub fn in_flight_from(&self, lane: LaneId) -> usize {
        self.share(lane).in_flight
    }

    /// Entries in memory that are not settled.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What they weigh, in bytes.
    #[must_use]
    pub const fn weight(&self) -> usize {
        self.weight
    }

    /// Entries being sent or parked.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.legs.iter().map(|sending| sending.in_flight).sum::<usize>() + self.parks.len()
    }

    /// Entries of `leg` being sent or parked.
    #[must_use]
    pub fn in_flight_of(&self, leg: usize) -> usize {
        self.legs.get(leg).map_or(0, |sending| sending.in_flight) + self.parks.values().filter(|item| item.leg == leg).count()
    }

    /// Entries of `leg` in memory.
    #[must_use]
    pub fn count_of(&self, leg: usize) -> usize {
        self.legs.get(leg).map_or(0, |sending| sending.unsent().count() + sending.in_flight)
            + self.waiting.values().chain(self.parks.values()).filter(|item| item.leg == leg).count()
    }

    /// Entries that spilled and were not met in the log yet.
    #[must_use]
    pub const fn spilled(&self) -> usize {
        self.shares.spilled.count
    }

    /// What those weigh, in bytes.
    #[must_use]
    pub const fn spilled_weight(&self) -> usize {
        self.shares.spilled.weight
    }

    /// Entries of `leg` that the source holds, but for those being sent or parked.
    #[must_use]
    pub fn idle_held_of(&self, leg: usize) -> usize {
        let waiting = self.waiting.values().filter(|item| item.leg == leg);
        let unsent = self.legs.get(leg).into_iter().flat_map(Sending::unsent);
        waiting.chain(unsent).filter(|item| item.origin.delivery().is_some()).count()
    }

    /// The attempts of entries of `lane` that were tried and are not settled, oldest first, at most `limit`.
    #[must_use]
    pub fn attempts(&self, lane: LaneId, limit: usize) -> Vec<(Position, u32)> {
        let mut attempts: Vec<(Position, u32)> = self
            .waiting
            .values()
            .chain(self.parks.values())
            .chain(self.flights.values().flatten())
            .chain(self.legs.iter().flat_map(Sending::unsent))
            .filter(|item| item.attempts > 0)
            .filter_map(|item| Some((item.origin.place()?, item.attempts)))
            .filter(|(place, _)| place.lane == lane)
            .map(|(place, attempts)| (place.position, attempts))
            .collect();
        attempts.sort_unstable();
        attempts.truncate(limit);
        attempts
    }

    /// The oldest entry in memory.
    #[must_use]
    pub fn oldest(&self) -> Option<&Item> {
        self.waiting
            .values()
            .chain(self.parks.values())
            .chain(self.flights.values().flatten())
            .chain(self.legs.iter().filter_map(|sending| sending.ready.first_key_value().map(|(_, item)| item)))
            .chain(self.legs.iter().flat_map(Sending::due))
            .chain(self.legs.iter().flat_map(Sending::limited))
            .min_by_key(|item| item.turn)
    }

    /// Whether any entry is ready to be sent, and nothing keeps it from leaving.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        let may_send = |sending: &Sending| sending.circuit() == Circuit::Closed && sending.flow.window() > 0;
        self.legs.iter().any(|sending| !sending.ready.is_empty() && may_send(sending))
    }

    /// What the sender of `leg` does.
    #[must_use]
    pub fn flow(&self, leg: usize) -> Option<&SenderFlow> {
        self.legs.get(leg).map(|sending| &sending.flow)
    }

    /// Bytes of `leg` under way.
    #[must_use]
    pub fn unacked_of(&self, leg: usize) -> usize {
        self.legs.get(leg).map_or(0, |sending| sending.unacked)
    }

    /// What the circuit breaker of `leg` lets through.
    #[must_use]
    pub fn circuit(&self, leg: usize) -> Circuit {
        self.legs.get(leg).map(Sending::circuit).unwrap_or_default()
    }

    /// How many dead letters are being written.
    #[must_use]
    pub fn parks(&self) -> usize {
        self.parks.len()
    }

    /// The ids of entries in memory, for tests and counting.
    pub fn ids(&self) -> impl Iterator<Item = Id128> + '_ {
        self.waiting
            .values()
            .chain(self.parks.values())
            .chain(self.flights.values().flatten())
            .chain(self.legs.iter().flat_map(Sending::unsent))
            .map(|item| item.entry.id)
    }
}
