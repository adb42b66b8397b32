//! Messages that go to their destination while the source still holds them: they are in no log.

use super::events::{Effect, Observation};
use super::options::Delivery;
use super::{Doomed, Owner};
use crate::drain::retry::Backoff;
use crate::drain::{Item, Origin};
use crate::drops::{DropReason, Dropped};
use crate::hold::Order;
use crate::identity::{ConnectionEpoch, DeliveryId};
use crate::message::Entry;
use crate::outcome::Fault;
use crate::units::{Instant, UnixMillis};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

/// A message that waits until what former owners left of its route is on its way.
#[derive(Debug)]
pub(super) struct Early {
    delivery: DeliveryId,
    entry: Arc<Entry>,
}

/// What the source holds and has not been taken up to be sent.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Early>,
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, early: Early) {
        self.bytes += early.entry.message.weight();
        self.queue.push_back(early);
    }

    fn pop(&mut self) -> Option<Early> {
        let early = self.queue.pop_front()?;
        self.bytes -= early.entry.message.weight();
        Some(early)
    }

    fn forget(&mut self, connection: ConnectionEpoch) -> Vec<Arc<Entry>> {
        let (gone, kept): (VecDeque<Early>, VecDeque<Early>) =
            core::mem::take(&mut self.queue).into_iter().partition(|early| early.delivery.connection == connection);
        self.queue = kept;
        self.bytes = self.queue.iter().map(|early| early.entry.message.weight()).sum();
        gone.into_iter().map(|early| early.entry).collect()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.queue.iter().map(|early| &early.entry)
    }
}

impl Owner {
    /// Messages that the source holds because they are in no log.
    #[must_use]
    pub fn held(&self) -> usize {
        self.drain.held() + self.waiting.len()
    }

    /// Whether there is room to hold another one. The source's own window bounds what it hands over unacknowledged; this bounds what has none.
    pub(super) fn has_room_to_hold(&self) -> bool {
        self.held() < self.options.memory_entries && self.drain.held_weight() + self.waiting.bytes < self.options.memory_bytes / 2
    }

    /// Holds a message. Nothing of a former owner's may be overtaken: until its log has been read it waits.
    pub(super) fn hold(&mut self, now: Instant, wall: UnixMillis, delivery: DeliveryId, entry: Arc<Entry>) {
        if self.recovered {
            self.admit(now, wall, Origin::Held(delivery), entry, 0, false);
        } else {
            self.waiting.push(Early { delivery, entry });
        }
    }

    /// Takes up what waited for the end of the recovery.
    pub(super) fn take_up_held(&mut self, now: Instant, wall: UnixMillis) {
        while let Some(Early { delivery, entry }) = self.waiting.pop() {
            self.admit(now, wall, Origin::Held(delivery), entry, 0, false);
        }
    }

    /// A connection ended. What it held and is not being sent or dead-lettered is given up: it comes again. What is being sent is listened to, so that
    /// what comes again does not overtake it; if that fails, it is given up then.
    pub(super) fn forget_held(&mut self, now: Instant, connection: ConnectionEpoch) {
        self.deliveries.forget(connection);
        self.spill.forget(connection);
        let mut entries = self.waiting.forget(connection);
        let mut gone = self.drain.forget(connection, |_| false);
        gone.extend(self.forget_doomed(|item| item.origin.delivery().is_some_and(|delivery| delivery.connection == connection)));
        for item in gone {
            self.drain.settled(now, &item);
            entries.push(item.entry);
        }
        self.given_back(&entries);
    }

    /// Counts entries that were given up with their connection before they were durable or delivered: the source brings them again, but for what a broker delivered with quality
    /// of service 0, which is lost.
    pub(super) fn given_back(&mut self, entries: &[Arc<Entry>]) {
        // A broker takes acknowledgements in the order of arrival; what other sources bring says nothing by its quality of service.
        let of_broker = self.options.acknowledge == Order::OfArrival;
        let (lost, returned): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|entry| of_broker && entry.message.qos == 0);
        self.count(&returned, |counters| counters.returned += 1);
        self.count(&lost, |counters| counters.session_lost += 1);
        for entry in lost {
            let leg = self.leg_of(&entry);
            let detail = "its connection ended before it was safe, and no broker repeats quality of service 0";
            let dropped = Box::new(Dropped::at_the_door(&entry, DropReason::SessionLost, detail));
            self.effects.push(Effect::Observe(Observation::Lost { leg, dropped }));
        }
    }

    /// Takes out those whose dead letters wait to be written and that `goes` means.
    fn forget_doomed(&mut self, goes: impl Fn(&Item) -> bool) -> Vec<Item> {
        let (gone, kept): (VecDeque<Doomed>, VecDeque<Doomed>) =
            core::mem::take(&mut self.doomed).into_iter().partition(|doomed| goes(&doomed.item));
        self.doomed = kept;
        let later = self.doomed_later.extract_if(.., |_, doomed| goes(&doomed.item)).map(|(_, doomed)| doomed);
        gone.into_iter().chain(later).map(|doomed| doomed.item).collect()
    }

    /// Whether the source has given up the delivery that holds the item: nobody waits for its end any more.
    pub(super) fn is_given_up(&self, item: &Item) -> bool {
        item.origin.delivery().is_some_and(|delivery| !self.deliveries.is_open(delivery))
    }

    /// Gives up an item whose connection ended while it was being sent, or dead-lettered.
    pub(super) fn give_up(&mut self, now: Instant, item: &Item) {
        self.drain.settled(now, item);
        self.given_back(core::slice::from_ref(&item.entry));
    }

    /// The pause before the next attempt of an item, and whether its attempts are used up.
    ///
    /// A held item has the route's pauses within `send_retry_budget`. After that a source could be handed the message back, to bring it again as often
    /// as `max_replay_attempts` says; a broker takes nothing back, so it stays where it is and is tried after the longest pause, for as long as all those
    /// rounds would have taken.
    pub(super) fn retry_of(&mut self, now: Instant, item: &Item, fault: &Fault) -> (Duration, bool) {
        let Some(leg) = self.options.legs.get(item.leg) else { return (Duration::ZERO, false) };
        let (policy, tried) = (&leg.policy, now.since(item.first_attempt.unwrap_or(now)));
        let mut pause = policy.backoff.pause(item.attempts, &mut self.jitter);
        let mut budget = policy.replay_budget;
        if let (Origin::Held(_), Delivery::Held { retry_budget }) = (item.origin, leg.delivery) {
            budget = retry_budget.saturating_mul(policy.max_replay_attempts.saturating_add(1));
            if tried.saturating_add(pause) > retry_budget {
                let longest = Backoff { initial: policy.backoff.max, ..policy.backoff };
                pause = longest.pause(1, &mut self.jitter);
            }
        }
        let exhausted = policy.max_replay_attempts > 0 && item.attempts > policy.max_replay_attempts && tried >= budget;
        (pause.max(fault.retry_after.unwrap_or_default()), exhausted)
    }
}
