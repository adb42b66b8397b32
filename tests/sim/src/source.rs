//! The source of a worker: it connects, subscribes, hands deliveries over, and asks the gate before it reconnects.

use crate::broker::ConnectionId;
use crate::event::{AccountCall, Event, Packet, Request};
use crate::faults::{CONNECT_TIMEOUT, Link, MS, RECONCILE_TIMEOUT, S, SOURCE_BACKOFF, Way};
use crate::seen::Sight;
use crate::worker::{Awaited, Inbound, Phase, Source};
use crate::world::World;
use bytes::Bytes;
use causeway_core::identity::{ConnectionEpoch, DeliveryId};
use causeway_core::lease::row::LeaseRow;
use causeway_core::member;
use causeway_core::message::Message;
use causeway_core::subscriptions::{Generation, Plan};
use causeway_core::worker as owner;
use std::collections::VecDeque;

/// Messages take turns in so many topics, each of which keeps its lane.
const TOPICS: u64 = 7;
/// How long the program waits for a source to close.
const CLOSE_TIMEOUT: u64 = 5 * S;

/// The number of a message's topic.
pub(crate) const fn topic_of(number: u64) -> u64 {
    number % TOPICS
}

/// A message of a number, as the broker has it.
pub(crate) fn message(number: u64) -> Message {
    Message { topic: format!("t{}", topic_of(number)), payload: Bytes::from(number.to_string()), qos: 1, ..Message::default() }
}

impl World {
    pub(crate) fn start_source(&mut self, worker: usize) {
        if self.workers[worker].source.is_some() {
            self.fail("S8: a second source is started".to_owned());
        }
        self.calls += 1;
        let id = self.calls;
        let connection = self.connect(worker);
        let source = Source {
            id,
            phase: Phase::Connecting(connection),
            epoch: 0,
            delivered: Vec::new(),
            acknowledged: 0,
            session_present: false,
            plan: Plan::default(),
            generation: Generation::default(),
            inbox: VecDeque::new(),
            timer: 0,
        };
        self.workers[worker].source = Some(source);
        self.arm(worker, CONNECT_TIMEOUT);
    }

    /// Sets the source's timer; one that was set before does not count any more.
    pub(crate) fn arm(&mut self, worker: usize, span: u64) {
        let life = self.workers[worker].life;
        let Some(source) = &mut self.workers[worker].source else { return };
        source.timer += 1;
        let (timer, source) = (source.timer, source.id);
        self.at(self.now + span, Event::SourceTimer { worker, life, source, timer });
    }

    pub(crate) fn source_timer(&mut self, worker: usize, id: u64, timer: u64) {
        let Some(source) = &self.workers[worker].source else { return };
        if source.id != id || source.timer != timer {
            return;
        }
        match source.phase {
            Phase::Connecting(_) => self.come_apart(worker),
            // Subscribing took too long.
            Phase::Connected(connection) => {
                self.send_out(connection, Packet::End);
                self.connection_ended(worker, connection);
            }
            Phase::Apart => self.ask_the_gate(worker, id),
        }
    }

    pub(crate) fn come_apart(&mut self, worker: usize) {
        if let Some(source) = &mut self.workers[worker].source {
            source.phase = Phase::Apart;
        }
        let pause = self.rng.between(SOURCE_BACKOFF / 20, SOURCE_BACKOFF);
        self.arm(worker, pause);
    }

    /// Every reconnection is preceded by a look at the lease: a broker does not reliably tell that somebody else took the session over.
    pub(crate) fn ask_the_gate(&mut self, worker: usize, source: u64) {
        if self.workers[worker].held.is_none() {
            return self.come_apart(worker);
        }
        let timeout = self.knobs.cadence.renew_call_timeout.unsigned_abs();
        self.call(worker, Link::Lease, Awaited::Gate { source }, Request::LeaseRead, timeout);
    }

    pub(crate) fn gate_answered(&mut self, worker: usize, id: u64, raw: Option<causeway_core::lease::row::RawLease>) {
        let subject = &self.workers[worker];
        if subject.source.as_ref().is_none_or(|source| source.id != id || source.phase != Phase::Apart) {
            return;
        }
        let row = raw.and_then(|raw| LeaseRow::try_from(raw).ok());
        let ours = row.as_ref().is_some_and(|row| row.tuple.owner == subject.name && Some(row.tuple.version) == subject.held);
        if !ours {
            if row.is_some() {
                self.seen.note(Sight::GateHeldBack);
            }
            return self.come_apart(worker);
        }
        let connection = self.connect(worker);
        if let Some(source) = &mut self.workers[worker].source {
            source.phase = Phase::Connecting(connection);
        }
        self.arm(worker, CONNECT_TIMEOUT);
    }

    pub(crate) fn packet_came(&mut self, worker: usize, connection: crate::broker::ConnectionId, packet: Packet) {
        let Some(phase) = self.workers[worker].source.as_ref().map(|source| source.phase) else { return };
        match packet {
            Packet::Accepted { session_present } if phase == Phase::Connecting(connection) => {
                let subject = &mut self.workers[worker];
                subject.connections += 1;
                if let Some(source) = &mut subject.source {
                    source.phase = Phase::Connected(connection);
                    source.epoch = subject.connections;
                    source.delivered.clear();
                    source.acknowledged = 0;
                    source.session_present = session_present;
                }
                self.arm(worker, RECONCILE_TIMEOUT);
                self.call_account(worker, connection, AccountCall::Load);
            }
            Packet::Subscribed if phase == Phase::Connected(connection) => {
                if let Some(source) = &mut self.workers[worker].source {
                    source.timer += 1;
                    source.inbox.push_back(Inbound::Subscribed);
                }
            }
            // Who may not act any more may not forget either: a successor may have subscribed it since.
            Packet::Unsubscribe(filter) if phase == Phase::Connected(connection) && self.workers[worker].may_act(self.now) => {
                let generation = self.workers[worker].source.as_ref().map(|source| source.generation).unwrap_or_default();
                self.call_account(worker, connection, AccountCall::Forget(filter, generation));
            }
            Packet::Message(message) => self.delivered(worker, connection, message),
            Packet::End if phase == Phase::Connected(connection) => self.connection_ended(worker, connection),
            Packet::End if phase == Phase::Connecting(connection) => self.come_apart(worker),
            Packet::Connect
            | Packet::Accepted { .. }
            | Packet::Subscribe(_)
            | Packet::Subscribed
            | Packet::Unsubscribe(_)
            | Packet::End => {}
        }
    }

    pub(crate) fn connection_ended(&mut self, worker: usize, _connection: crate::broker::ConnectionId) {
        if let Some(source) = &mut self.workers[worker].source {
            let epoch = source.epoch;
            source.inbox.push_back(Inbound::Disconnected { epoch });
        }
        self.come_apart(worker);
    }

    /// Hands one thing over that the source has, if the member wants it; answers whether it did.
    pub(crate) fn hand_over(&mut self, worker: usize) -> bool {
        let local = self.workers[worker].local(self.now);
        let subject = &mut self.workers[worker];
        if !subject.member.as_ref().is_some_and(|member| member.wants_input(local)) {
            return false;
        }
        let term = subject.term;
        let Some(inbound) = subject.source.as_mut().and_then(|source| source.inbox.pop_front()) else { return false };
        match inbound {
            Inbound::Delivery { epoch, ordinal, message } => {
                let delivery = DeliveryId { connection: ConnectionEpoch(epoch), ordinal };
                self.feed_owner(worker, term, owner::Event::Delivered { delivery, receiver: "in".into(), message: self::message(message) });
            }
            Inbound::Subscribed => {
                self.feed(worker, member::Event::Converged);
                self.full_service(worker);
            }
            Inbound::Disconnected { epoch } => {
                self.broker_loss_noticed();
                self.feed_owner(worker, term, owner::Event::Disconnected { connection: ConnectionEpoch(epoch) });
                self.carry_out_effects(worker);
                self.feed(worker, member::Event::BrokerLost);
            }
        }
        true
    }

    pub(crate) fn acknowledge(&mut self, worker: usize, delivery: DeliveryId) {
        let Some(source) = &mut self.workers[worker].source else { return };
        let Phase::Connected(connection) = source.phase else { return };
        if source.epoch != delivery.connection.0 {
            return;
        }
        let up_to = usize::try_from(delivery.ordinal).unwrap_or(usize::MAX);
        if up_to > source.delivered.len() {
            return self.fail(format!("S8: {delivery:?} is acknowledged and was never delivered"));
        }
        let messages: Vec<u64> = source.delivered.get(source.acknowledged..up_to).unwrap_or_default().to_vec();
        source.acknowledged = source.acknowledged.max(up_to);
        for message in messages {
            if !self.may_be_forgotten(message) {
                self.fail(format!("S8: message {message} is acknowledged before it is durable"));
            }
            if !self.stores.was_stored(message) {
                self.seen.note(Sight::AcknowledgedWithoutLog);
            }
            self.send_out(connection, Packet::Message(message));
        }
    }

    /// Closes the source and waits for it; nothing else happens in this worker meanwhile.
    pub(crate) fn close_source(&mut self, worker: usize) {
        let Some(source) = self.workers[worker].source.take() else { return };
        let span = match source.phase {
            Phase::Connected(connection) => {
                self.send_out(connection, Packet::End);
                let cut = self.workers[worker].cut(self.now, Link::Broker, Way::Both).is_some();
                if cut {
                    CLOSE_TIMEOUT.min(self.knobs.cadence.step_down_grace.unsigned_abs())
                } else {
                    self.rng.between(MS, self.knobs.latency)
                }
            }
            Phase::Connecting(connection) => {
                self.send_out(connection, Packet::End);
                MS
            }
            Phase::Apart => return,
        };
        self.pause(worker, span);
    }

    /// The delivery of a message to a source.
    pub(crate) fn delivered(&mut self, worker: usize, connection: ConnectionId, message: u64) {
        let Some(source) = &mut self.workers[worker].source else { return };
        if source.phase != Phase::Connected(connection) {
            return;
        }
        source.delivered.push(message);
        source.inbox.push_back(Inbound::Delivery { epoch: source.epoch, ordinal: source.delivered.len() as u64, message });
    }
}
