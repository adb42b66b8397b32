//! Whether a message that came is taken in now: the limits are asked first, before anything of it is written or sent.
//!
//! What a limit holds waits here, and everything that came later behind it: acknowledgements leave in the order of arrival, so nothing could be gained by
//! letting others pass. The source is asked for no more meanwhile; what it had handed over before still queues, so that its own window of unacknowledged
//! messages bounds the queue.
//!
//! A message costs one for itself and one for each of its entries ([`Arrived::entries`]). It is asked about as a whole, and charged only once everything that
//! has a say admits it: never is a part of it taken in, and never is a budget spent on what has to wait.

use super::Owner;
use super::bounds::LOOK_AGAIN;
use super::events::{Effect, Observation};
use super::options::{AckHold, AckHoldAction};
use crate::drops::Dropped;
use crate::flow::quota::{Node, NodeOptions, OnExhausted, QuotaReply, Ticket};
use crate::flow::{Exceeded, Gate, Limit, OnExceed, Reason};
use crate::identity::{ConnectionEpoch, DeliveryId};
use crate::message::Entry;
use crate::units::{Instant, UnixMillis};
use std::collections::VecDeque;
use std::sync::Arc;

/// A charge that waits is asked for again with every answer of the budget's store, when the node says so, and after so long besides.
const QUOTA_LOOK: core::time::Duration = core::time::Duration::from_secs(1);

/// A message that came, as the entries that it leads to.
#[derive(Debug)]
pub(super) struct Arrived {
    pub delivery: DeliveryId,
    /// One or more; each has the message.
    pub entries: Vec<Arc<Entry>>,
    pub since: Instant,
}

impl Arrived {
    /// What it costs of the budget of the whole bridge: one, and one for each of its entries.
    pub fn cost(&self) -> u64 {
        1 + self.entries.len() as u64
    }

    /// Its routes, each once.
    fn routes(&self) -> Vec<&str> {
        let mut routes: Vec<&str> = Vec::new();
        for entry in &self.entries {
            if !routes.contains(&&*entry.route) {
                routes.push(&entry.route);
            }
        }
        routes
    }
}

/// What is to become of the first message that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It is taken in; everything that has a say was charged.
    TakeIn,
    /// The budget of the whole bridge is spent: where the log may have it, it goes there and is charged later under this ticket. Else it waits, and is asked about
    /// again then.
    Park { until: Instant, ticket: Ticket },
    /// It waits, and is asked about again then.
    Hold { until: Instant, reason: Reason },
    /// It is dropped.
    Drop { reason: Reason },
}

/// The limits, and what waits for them.
#[derive(Debug, Default)]
pub(super) struct Admission {
    gate: Gate,
    /// Its part in the budget of the whole bridge, if there is one.
    pub quota: Option<Node>,
    /// What the first one's charge is known by.
    ticket: u64,
    queue: VecDeque<Arrived>,
    /// When the first one is asked about again.
    ask_at: Option<Instant>,
    /// Whether it was told that the first one is held.
    told: bool,
    /// Whether a new connection was asked for because the first one was held for too long.
    gave_up: bool,
}

impl Admission {
    pub fn new(limits: Vec<Limit>, quota: Option<NodeOptions>) -> Self {
        Self { gate: Gate::new(limits), quota: quota.map(Node::new), ..Self::default() }
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// When the first of them is asked about again.
    pub fn wake_at(&self) -> Option<Instant> {
        self.ask_at.filter(|_| !self.queue.is_empty())
    }

    /// Since when the first of them waits.
    pub fn oldest(&self) -> Option<Instant> {
        self.queue.front().map(|arrived| arrived.since)
    }

    /// The entries of those that wait.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.queue.iter().flat_map(|arrived| &arrived.entries)
    }

    fn push(&mut self, arrived: Arrived) {
        self.queue.push_back(arrived);
    }

    fn pop(&mut self) -> Option<Arrived> {
        let arrived = self.queue.pop_front()?;
        (self.ask_at, self.told, self.gave_up) = (None, false, false);
        self.ticket += 1;
        Some(arrived)
    }

    /// Gives up what came by a connection; the entries.
    fn forget(&mut self, connection: ConnectionEpoch) -> Vec<Arc<Entry>> {
        let (gone, kept): (VecDeque<Arrived>, VecDeque<Arrived>) =
            core::mem::take(&mut self.queue).into_iter().partition(|arrived| arrived.delivery.connection == connection);
        self.queue = kept;
        (self.ask_at, self.told, self.gave_up) = (None, false, false);
        if !gone.is_empty() {
            // What is first now is another one, perhaps.
            if let Some(node) = &mut self.quota {
                node.give_up(Ticket(self.ticket));
            }
            self.ticket += 1;
        }
        gone.into_iter().flat_map(|arrived| arrived.entries).collect()
    }

    /// The first message that waits.
    pub fn first(&self) -> Option<&Arrived> {
        self.queue.front()
    }

    /// Whether it is to be asked about at once.
    pub fn is_due(&self) -> bool {
        self.ask_at.is_none() && !self.queue.is_empty()
    }

    /// Whether a limit is against the first message that waits.
    fn is_limited(&self, now: Instant) -> bool {
        let Some((arrived, message)) = self.queue.front().and_then(|arrived| Some((arrived, &arrived.entries.first()?.message))) else {
            return false;
        };
        self.gate.refusal(message, &arrived.routes(), now).is_some()
    }

    /// Asks about the first one at the next occasion.
    pub fn ask_again(&mut self) {
        self.ask_at = None;
    }

    /// Asks about the first message that waits. Whatever else has a say is asked between the limits' answer and their charge, so that nobody is charged for
    /// what another refuses.
    fn ask(&mut self, now: Instant, wall: UnixMillis) -> Option<Answer> {
        let arrived = self.queue.front()?;
        let message = &arrived.entries.first()?.message;
        let routes = arrived.routes();
        if let Some(Exceeded { limit, on_exceed, ready_at }) = self.gate.refusal(message, &routes, now) {
            let reason = self.gate.key_of(limit).map_or(Reason::RouteLimit, Reason::of);
            return Some(match on_exceed {
                OnExceed::Hold => Answer::Hold { until: ready_at, reason },
                OnExceed::Drop => Answer::Drop { reason },
            });
        }
        if let Some(node) = &mut self.quota {
            let ticket = Ticket(self.ticket);
            if !node.ask(now, wall, ticket, arrived.cost()) {
                let blind = node.status(now).degraded_since.is_some();
                let reason = if blind { Reason::QuotaUnavailable } else { Reason::QuotaExhausted };
                if node.is_spent(now, ticket) {
                    match node.on_exhausted() {
                        OnExhausted::Drop => {
                            node.give_up(ticket);
                            return Some(Answer::Drop { reason });
                        }
                        OnExhausted::Park => {
                            return Some(Answer::Park { until: node.wake_at(now).unwrap_or_else(|| now.plus(QUOTA_LOOK)), ticket });
                        }
                        OnExhausted::Hold => {}
                    }
                }
                return Some(Answer::Hold { until: node.wake_at(now).unwrap_or_else(|| now.plus(QUOTA_LOOK)), reason });
            }
        }
        self.gate.charge(message, &routes, now);
        Some(Answer::TakeIn)
    }
}

impl Owner {
    /// Messages that came and wait until they are admitted.
    #[must_use]
    pub fn waiting_for_admission(&self) -> usize {
        self.admission.len()
    }

    /// A message came: it is asked about in its turn.
    pub(super) fn arrived(&mut self, now: Instant, wall: UnixMillis, arrived: Arrived) {
        let Some(first) = arrived.entries.first() else { return };
        let limits = self.admission.gate.missing_keys(&first.message);
        if limits > 0 {
            self.effects.push(Effect::Observe(Observation::KeyMissing { limits }));
        }
        self.admission.push(arrived);
        self.admit_arrived(now, wall);
    }

    /// Takes in what waits as far as it is admitted. Once it was told to stop nothing that waits is taken in any more: the source keeps it. While the number of
    /// lanes changes nothing is: it would go to a lane that is being closed, or apart from others of its key.
    pub(super) fn admit_arrived(&mut self, now: Instant, wall: UnixMillis) {
        if self.is_stopping() || self.change.holds_up() {
            return;
        }
        while self.admission.ask_at.is_none_or(|at| now >= at) {
            let answer = match self.waits_for_room(now) {
                true => Answer::Hold { until: now.plus(LOOK_AGAIN), reason: Reason::StoreFull },
                false => match self.admission.ask(now, wall) {
                    Some(answer) => answer,
                    None => return,
                },
            };
            match answer {
                Answer::TakeIn => {
                    let Some(arrived) = self.admission.pop() else { return };
                    self.take_in(now, wall, arrived);
                }
                Answer::Drop { reason } => {
                    let Some(arrived) = self.admission.pop() else { return };
                    self.drop_arrived(arrived, reason);
                }
                Answer::Hold { until, reason } if self.is_held_too_long(now, until, reason) && self.is_paid(now, wall) => {
                    let Some(arrived) = self.admission.pop() else { return };
                    self.park_arrived(now, wall, arrived, until, reason);
                }
                Answer::Park { ticket, .. } if self.may_park_unpaid() => {
                    let Some(arrived) = self.admission.pop() else { return };
                    self.park_unpaid(now, wall, ticket, arrived);
                }
                Answer::Park { until, .. } => self.hold_arrived(now, until, Reason::QuotaExhausted),
                Answer::Hold { until, reason } => self.hold_arrived(now, until, reason),
            }
        }
    }

    /// The first that waits goes on waiting.
    fn hold_arrived(&mut self, now: Instant, until: Instant, reason: Reason) {
        self.admission.ask_at = Some(self.hold_ends(now, until));
        if self.is_to_reconnect(now, reason) && !core::mem::replace(&mut self.admission.gave_up, true) {
            self.effects.push(Effect::Reconnect);
        }
        if !core::mem::replace(&mut self.admission.told, true) {
            self.effects.push(Effect::Observe(Observation::HeldUp { reason }));
        }
    }

    /// When the first that waits is looked at again: at the latest when it has been held for too long.
    fn hold_ends(&self, now: Instant, until: Instant) -> Instant {
        let since = self.admission.oldest();
        let ends = self.options.ack_hold.and_then(|hold| Some(since?.plus(hold.most))).filter(|ends| *ends > now);
        ends.map_or(until, |ends| ends.min(until))
    }

    fn is_overdue(&self, now: Instant, then: AckHoldAction) -> bool {
        let hold = self.options.ack_hold.filter(|hold| hold.then == then);
        hold.is_some_and(|AckHold { most, .. }| self.admission.oldest().is_some_and(|since| now.since(since) >= most))
    }

    /// A destination or a store that stands still is waited for as long as it takes.
    fn is_to_reconnect(&self, now: Instant, reason: Reason) -> bool {
        reason != Reason::StoreFull && self.is_overdue(now, AckHoldAction::Reconnect)
    }

    /// Whether the first that waits is to go into the log now, although a limit admits it only later, and the log may have it. What waits for the budget of the
    /// whole bridge, or for room, goes on waiting: neither may be exceeded.
    fn is_held_too_long(&self, now: Instant, until: Instant, reason: Reason) -> bool {
        until > now
            && matches!(reason, Reason::KeyLimit | Reason::RouteLimit)
            && self.is_overdue(now, AckHoldAction::Park)
            && self.options.has_log()
            && self.has_room_to_defer()
            && self
                .admission
                .queue
                .front()
                .is_some_and(|arrived| arrived.entries.iter().all(|entry| self.is_logged(entry) && self.has_room_for(entry)))
    }

    /// Whether the budget of the whole bridge, where there is one, has been charged for the first that waits.
    fn is_paid(&mut self, now: Instant, wall: UnixMillis) -> bool {
        let Some(arrived) = self.admission.queue.front() else { return false };
        let ticket = Ticket(self.admission.ticket);
        self.admission.quota.as_mut().is_none_or(|node| node.ask(now, wall, ticket, arrived.cost()))
    }

    /// Takes a message into the log that will be sent `until` then. Each limit is charged for the moment at which it admits it.
    pub(super) fn park_arrived(&mut self, now: Instant, wall: UnixMillis, arrived: Arrived, until: Instant, reason: Reason) {
        if let Some(first) = arrived.entries.first() {
            self.admission.gate.charge_ahead(&first.message, &arrived.routes(), now);
        }
        for entry in &arrived.entries {
            if self.rejects(entry) {
                continue;
            }
            self.reserved.insert(entry.id, until);
            let leg = self.leg_of(entry);
            self.effects.push(Effect::Observe(Observation::Deferred { leg, reason, entries: 1 }));
        }
        self.take_in(now, wall, arrived);
    }

    /// Whether the first message waits for room in the log; nothing of that kind is asked about what a limit holds or drops.
    fn waits_for_room(&mut self, now: Instant) -> bool {
        self.stop_waiting_for_room();
        if self.options.store.is_none() {
            return false;
        }
        let Some(arrived) = self.admission.first() else { return false };
        if arrived.entries.iter().all(|entry| self.has_room_for(entry)) {
            return false;
        }
        let entries = arrived.entries.clone();
        if self.admission.is_limited(now) {
            return false;
        }
        !self.makes_room(now, &entries)
    }

    fn drop_arrived(&mut self, arrived: Arrived, reason: Reason) {
        for entry in &arrived.entries {
            self.count_limited(entry, reason);
            self.deliveries.entry_done(arrived.delivery);
        }
    }

    /// Counts an entry that a limit drops.
    pub(super) fn count_limited(&mut self, entry: &Arc<Entry>, reason: Reason) {
        self.count(core::slice::from_ref(entry), |counters| match reason {
            Reason::KeyLimit => counters.key_limit += 1,
            Reason::RouteLimit => counters.route_limit += 1,
            Reason::QuotaExhausted => counters.quota_exhausted += 1,
            // What it does not admit waits, always.
            Reason::QuotaUnavailable | Reason::StoreFull => {}
        });
        let leg = self.leg_of(entry);
        let detail = match reason {
            Reason::QuotaExhausted => "the budget of the bridge is spent, with `on_exhausted: drop`",
            Reason::KeyLimit | Reason::RouteLimit | Reason::QuotaUnavailable | Reason::StoreFull => {
                "a limit with `on_exceed: drop` did not admit it"
            }
        };
        let dropped = Box::new(Dropped::at_the_door(entry, reason.drop_reason(), detail));
        self.effects.push(Effect::Observe(Observation::Limited { leg, reason, dropped }));
    }

    /// The store of the budget answered.
    pub(super) fn quota_replied(&mut self, now: Instant, wall: UnixMillis, reply: QuotaReply) {
        if let Some(node) = &mut self.admission.quota {
            node.reply(now, wall, reply);
            self.admission.ask_at = None;
        }
    }

    /// How many nodes draw from the budget, as the members tell.
    pub(super) fn know_quota_nodes(&mut self, nodes: u32) {
        if let Some(node) = &mut self.admission.quota {
            node.know_nodes(nodes);
        }
    }

    /// Somebody has seen the notice that the budget is spent.
    pub(super) fn quota_seen(&mut self, now: Instant) {
        if let Some(node) = &mut self.admission.quota {
            node.acknowledge(now);
        }
    }

    /// Its part in the budget of the whole bridge, if there is one.
    #[must_use]
    pub const fn quota(&self) -> Option<&Node> {
        self.admission.quota.as_ref()
    }

    /// Once it was told to stop, it gives back what it has.
    pub(super) fn stop_quota(&mut self) {
        if let Some(node) = &mut self.admission.quota {
            node.stop();
        }
    }

    /// Lets the budget go on, and makes its calls.
    pub(super) fn settle_quota(&mut self, now: Instant, wall: UnixMillis) {
        let Some(node) = &mut self.admission.quota else { return };
        node.settle(now, wall);
        self.effects.extend(node.take_calls().into_iter().map(Effect::Quota));
        if node.take_raised().is_some() {
            let on_exhausted = node.on_exhausted();
            self.effects.push(Effect::Observe(Observation::QuotaReached { on_exhausted }));
        }
    }

    /// A connection ended: what came by it and waits comes again. It was charged nothing.
    pub(super) fn forget_arrived(&mut self, now: Instant, wall: UnixMillis, connection: ConnectionEpoch) {
        let gone = self.admission.forget(connection);
        self.given_back(&gone);
        self.admit_arrived(now, wall);
    }
}
