//! Routes whose outbox is full: nothing is taken in until there is room.

use super::Owner;
use super::events::{Effect, Observation};
use super::options::Delivery;
use crate::config::model as config;
use crate::units::Instant;
use core::time::Duration;

/// How many entries of a leg may wait in the log, or on their way into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthLimit {
    /// With so many nothing is taken in any more.
    pub most: u64,
    /// After how long it is looked at again.
    pub look_again_after: Duration,
}

impl DepthLimit {
    /// As a route's configuration says; none where it bounds nothing, and where its messages stay with their source.
    #[must_use]
    pub const fn of(delivery: Delivery, policy: &config::Policy) -> Option<Self> {
        match (delivery, policy.max_outbox_depth) {
            (Delivery::Held { .. }, _) | (_, None) => None,
            (Delivery::Logged | Delivery::Spilled { .. }, Some(most)) => {
                Some(Self { most, look_again_after: policy.depth_cache_ttl.get() })
            }
        }
    }
}

impl Owner {
    /// Whether every leg has room, and whether it is known that it has.
    pub(super) fn has_depth(&self) -> bool {
        self.full_until.iter().all(Option::is_none) && !self.depth_is_unknown()
    }

    /// Whether nothing is taken in because the outbox of a route is full, or because something waits until a limit admits it. How its connections are the source may
    /// tell all the same.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.has_depth() || !self.admission.is_empty() || !self.has_room_to_defer()
    }

    /// Whether nothing was read yet of what former owners left.
    fn depth_is_unknown(&self) -> bool {
        !self.recovered
            && self.options.legs.iter().any(|leg| leg.depth.is_some())
            && self.lanes.iter().any(|lane| lane.slots_to_recover() > 0)
            && self.lanes.iter().all(|lane| lane.settled.loaded() == lane.start)
    }

    /// When a leg that is full is looked at again.
    pub(super) fn depth_wake_at(&self) -> Option<Instant> {
        self.full_until.iter().flatten().min().copied()
    }

    /// Notes which legs are full. A leg becomes so at once, and stops being so when it is looked at again.
    pub(super) fn watch_depth(&mut self, now: Instant) {
        // Nobody knows whose they are before they are read.
        let unread = if self.recovered { 0 } else { self.unread() };
        for (leg, options) in self.options.legs.iter().enumerate() {
            let (Some(limit), Some(full_until)) = (options.depth, self.full_until.get_mut(leg)) else { continue };
            let is_full = || self.counters.get(leg).map_or(0, |counters| counters.present()).saturating_add(unread) >= limit.most;
            match *full_until {
                None if is_full() => {
                    *full_until = Some(now.plus(limit.look_again_after));
                    self.effects.push(Effect::Observe(Observation::OutboxFull { leg }));
                }
                Some(at) if now >= at => *full_until = is_full().then(|| now.plus(limit.look_again_after)),
                None | Some(_) => {}
            }
        }
    }
}
