//! Messages of quality of service 0 for which there is no room: the socket is not read for a while, and then they are dropped.

use super::shared::count;
use super::{Item, Session};
use crate::loose::{self, Pushed};
use crate::unsubscriptions::Unsubscriptions;
use tokio::time::Instant;

/// Copies of one message of quality of service 0 that are kept while the socket is not read, at most.
const MOST_PAUSED: usize = 64;

impl Session {
    /// Whether it, or another one in its place, was dropped.
    pub(super) fn hand_on_loose(&mut self, copy: Box<loose::Copy>) -> bool {
        if self.paused_until.is_some() {
            let room = self.paused.len() < MOST_PAUSED;
            if room {
                self.paused.push_back(copy);
            }
            return !room;
        }
        let weight = copy.1.weight();
        match self.loose.push(copy) {
            Pushed::Waits => {
                self.pause_spent = false;
                self.mark_loose(weight);
                false
            }
            Pushed::Full(copy) if self.loose.pauses() && !self.pause_spent => {
                let now = Instant::now();
                self.paused_until = Some(now + self.pause_max);
                self.ping_before_pause(now);
                self.paused.push_back(copy);
                false
            }
            Pushed::InPlaceOfTheOldest { dropped } => {
                self.budget.replaced(dropped, weight);
                true
            }
            Pushed::Full(_) => true,
        }
    }

    fn mark_loose(&mut self, weight: usize) {
        let id = self.next_id();
        self.budget.handed_over(id.ordinal, weight);
        self.spill.push_back(Item::Loose(id));
    }

    /// Reads on once there is room for what waited, or when it waited for too long: it is dropped then, and so is whatever follows until there is room.
    pub(super) fn end_pause(&mut self, now: Instant) {
        let Some(until) = self.pause_end() else { return };
        self.take_up_paused();
        if !self.paused.is_empty() {
            if now < until {
                return;
            }
            self.pause_spent = true;
        }
        self.drop_paused();
    }

    fn take_up_paused(&mut self) {
        while let Some(copy) = self.paused.pop_front() {
            let weight = copy.1.weight();
            if let Pushed::Full(copy) = self.loose.push(copy) {
                self.paused.push_front(copy);
                break;
            }
            self.mark_loose(weight);
        }
    }

    /// What still waits for room has none.
    pub(super) fn drop_paused(&mut self) {
        self.paused.drain(..).for_each(|_| count(&self.shared.dropped_qos0));
        self.paused_until = None;
    }

    /// The connection has ended: what waited for room is handed on where there is some by now, and dropped where there is none.
    pub(crate) fn end(&mut self) {
        self.take_up_paused();
        self.drop_paused();
    }

    /// When a pause ends at the latest: also before the broker, which hears nothing meanwhile, takes the client for dead.
    pub(super) fn pause_end(&self) -> Option<Instant> {
        let until = self.paused_until?;
        let Some(keep_alive) = self.timers.keep_alive else { return Some(until) };
        // A question that is being written is as good as written, for a little while.
        let asked = self.pinging.map(|since| since + keep_alive / 4);
        let written = self.timers.outgoing + keep_alive * 5 / 4;
        Some(until.min(asked.map_or(written, |asked| asked.max(written))))
    }

    /// Has the client write something before a pause, unless it has done so lately: during one it does not.
    pub(super) fn ping_before_pause(&mut self, now: Instant) {
        let Some(keep_alive) = self.timers.keep_alive else { return };
        if now >= self.timers.outgoing + keep_alive / 2 && self.client.try_unsubscribe(Unsubscriptions::probe_filter()).is_ok() {
            self.unsubscriptions.probe_queued();
            (self.timers.probed, self.pinging) = (true, Some(now));
        }
    }
}
