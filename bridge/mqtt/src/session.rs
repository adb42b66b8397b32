//! The state of one connection: what arrived, what is owed, what is asked for, and when patience ends. It reacts; `connection` drives it.

mod patience;
mod pause;
mod shared;

pub(crate) use shared::{Shared, count};

use crate::acks::AckWindow;
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::convert;
use crate::gate::{self, Answer, Inquiry};
use crate::identity::ContentHash;
use crate::loose::{self, Loose};
use crate::options::SourceOptions;
use crate::subscriptions::{Move, Subscriptions, Terms};
use crate::unsubscriptions::Unsubscriptions;
use causeway_core::dispatch::NO_RECEIVER;
use causeway_core::message::Message;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::{ConnectionEpoch, Delivery, DeliveryId, SourceEvent};
use core::time::Duration;
use rumqttc::{
    AsyncClient, ClientError, DisconnectProperties, DisconnectReasonCode, Event, Incoming, ManualAck, Outgoing, PubAck, PubRec, Publish,
    QoS,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Room beyond the announced window, for brokers that overrun it a little and for the reports between the deliveries.
pub(crate) const SLACK: usize = 128;
/// A refused filter is asked for again at least this often.
const LONGEST_QUARANTINE: Duration = Duration::from_secs(600);
/// How long a full hand-over is tolerated where no keep-alive limits it.
const STALL_WITHOUT_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Something on its way to the consumer.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are events: a box would be an allocation for each message")]
pub(crate) enum Item {
    /// An event.
    Event(SourceEvent),
    /// The oldest of the messages of quality of service 0 that wait, as this delivery.
    Loose(DeliveryId),
}

impl From<SourceEvent> for Item {
    fn from(event: SourceEvent) -> Self {
        Self::Event(event)
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It broke, or the broker ended it, or it fell silent, or the gate did not agree to it.
    Lost,
    /// The broker said that another client took the session over.
    TakenOver,
    /// The broker closed it without a word, as many do when another client takes the session over.
    HungUp,
    /// The broker's bytes made no sense.
    Poison,
    /// The consumer did not take what arrived.
    Full,
    /// The source is closing.
    Closing,
}

/// The end of a connection, or of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) cause: Cause,
    pub(crate) fault: Fault,
}

impl End {
    pub(crate) fn new(cause: Cause, code: FaultCode, detail: impl Into<String>) -> Self {
        Self { cause, fault: Fault::new(code, detail) }
    }

    pub(crate) fn closing() -> Self {
        Self::new(Cause::Closing, FaultCode::ConnectionLost, "the source is closed")
    }
}

/// The times after which patience ends.
#[derive(Debug)]
struct Timers {
    /// `None` where the configuration turned keep-alive off.
    keep_alive: Option<Duration>,
    incoming: Instant,
    outgoing: Instant,
    probed: bool,
    answers_due: Option<Instant>,
    ask_again: Option<Instant>,
    /// When to ask again for what was granted with less than was asked for.
    recheck: Option<Instant>,
    stalled: Option<Instant>,
    /// Until when what no receiver asked for is held back.
    grace_until: Instant,
}

/// A message that no receiver asked for.
struct Held {
    message: Message,
    packet_id: u16,
}

/// What a connection found about its session when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Welcome {
    /// The broker had the session already.
    pub(crate) session_present: bool,
    /// For how long what no receiver asked for is held back.
    pub(crate) grace: Duration,
    /// By what keep-alive the broker is watched, if by any.
    pub(crate) keep_alive: Option<Duration>,
    /// The broker keeps the session when the connection ends.
    pub(crate) kept: bool,
    /// How filters are asked for.
    pub(crate) terms: Terms,
}

/// One connection.
pub(crate) struct Session {
    client: AsyncClient,
    epoch: ConnectionEpoch,
    /// Computes ids where messages bring none.
    content_hash: Option<ContentHash>,
    window: usize,
    reconcile_timeout: Duration,
    acks: AckWindow,
    inquiry: Inquiry,
    /// Whether the gate has said what to unsubscribe. Until then nothing is subscribed.
    admitted: bool,
    /// The broker made the session with this connection.
    is_new: bool,
    /// The broker keeps the session when the connection ends.
    kept: bool,
    /// It was said that it does not, and that the connection goes on for that.
    warned_kept: bool,
    /// Why the session is given up with the connection.
    discarded: Option<Fault>,
    /// The goodbye that gives the session up is written.
    left: bool,
    held: VecDeque<Held>,
    strict: bool,
    quarantine: Backoff,
    unsubscriptions: Unsubscriptions,
    subscriptions: Subscriptions,
    reported: bool,
    spill: VecDeque<Item>,
    events: mpsc::Sender<Item>,
    loose: Arc<Loose>,
    /// What waits for room among those while the socket is not read, and until when.
    paused: VecDeque<Box<loose::Copy>>,
    paused_until: Option<Instant>,
    /// The pause was used up and there has been no room since.
    pause_spent: bool,
    pause_max: Duration,
    /// What the consumer has and is not done with.
    budget: Budget,
    /// Nothing is read because that is as much as may be.
    full: bool,
    /// Since when the client has a liveness question to write that a pause waits for.
    pinging: Option<Instant>,
    shared: Arc<Shared>,
    timers: Timers,
    closing: bool,
    goodbye: bool,
    warned_unmatched: bool,
    wrote_acks: bool,
}

/// What a session needs from its surroundings.
pub(crate) struct Surroundings {
    pub(crate) events: mpsc::Sender<Item>,
    pub(crate) loose: Arc<Loose>,
    pub(crate) shared: Arc<Shared>,
}

impl Session {
    pub(crate) fn new(
        client: AsyncClient,
        epoch: ConnectionEpoch,
        options: &SourceOptions,
        inquiry: Inquiry,
        welcome: Welcome,
        outside: &Surroundings,
    ) -> Self {
        let now = Instant::now();
        Self {
            client,
            epoch,
            content_hash: options.content_hash.as_deref().map(|broker| ContentHash::new(&options.client_id, broker)),
            window: usize::from(options.receive_maximum),
            reconcile_timeout: options.reconcile_timeout,
            acks: AckWindow::default(),
            admitted: !inquiry.is_open(),
            is_new: !welcome.session_present,
            kept: welcome.kept,
            warned_kept: false,
            discarded: None,
            left: false,
            held: VecDeque::new(),
            strict: options.strict_subscriptions,
            quarantine: Backoff::new(options.reconnect_delay, LONGEST_QUARANTINE.max(options.reconnect_delay), epoch.0),
            inquiry,
            unsubscriptions: Unsubscriptions::default(),
            subscriptions: Subscriptions::new(options.subscriptions.clone().into(), welcome.terms),
            reported: false,
            spill: VecDeque::new(),
            events: outside.events.clone(),
            loose: Arc::clone(&outside.loose),
            paused: VecDeque::new(),
            paused_until: None,
            pause_spent: false,
            pause_max: options
                .loose
                .pause_max
                .unwrap_or_else(|| welcome.keep_alive.map_or(STALL_WITHOUT_KEEP_ALIVE, |keep_alive| keep_alive / 2)),
            budget: Budget::new(options.max_buffered_bytes),
            full: false,
            pinging: None,
            shared: Arc::clone(&outside.shared),
            timers: Timers {
                keep_alive: welcome.keep_alive,
                incoming: now,
                outgoing: now,
                probed: false,
                answers_due: Some(now + options.reconcile_timeout),
                ask_again: None,
                recheck: None,
                stalled: None,
                grace_until: now + welcome.grace,
            },
            closing: false,
            goodbye: false,
            warned_unmatched: false,
            wrote_acks: false,
        }
    }

    /// Puts `event` behind everything that waits for the consumer.
    pub(crate) fn report(&mut self, event: SourceEvent) {
        if !self.closing {
            self.spill.push_back(event.into());
        }
    }

    /// Which connection it is.
    pub(crate) const fn epoch(&self) -> ConnectionEpoch {
        self.epoch
    }

    /// The messages of quality of service 0 that wait for the consumer.
    pub(crate) fn loose(&self) -> Arc<Loose> {
        Arc::clone(&self.loose)
    }

    /// Whether something waits for room.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.spill.is_empty()
    }

    /// The item that waits longest.
    pub(crate) fn next_waiting(&mut self) -> Option<Item> {
        self.spill.pop_front()
    }

    /// Whether the socket is not read because a message of quality of service 0 waits for room.
    pub(crate) const fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Whether the client may run. While the consumer's buffer is full, or it has as many bytes as may be, it may only write acknowledgements, what is
    /// given up, and a liveness question: it takes requests before it reads.
    pub(crate) fn may_poll(&self) -> bool {
        self.spill.is_empty() && self.paused_until.is_none() && !self.full
            || self.acks.writing()
            || self.unsubscriptions.is_writing()
            || self.pinging.is_some()
            || self.closing
    }

    /// Whether acknowledgements were written, which means that the connection did useful work.
    pub(crate) const fn made_progress(&self) -> bool {
        self.wrote_acks
    }

    /// The consumer is done with everything up to `up_to`; deliveries of other connections are not meant.
    pub(crate) fn acknowledge(&mut self, up_to: DeliveryId) {
        if up_to.connection == self.epoch {
            self.acks.acknowledge(up_to.ordinal);
            self.budget.done(up_to.ordinal);
        }
    }

    /// Enters or leaves the groups of shared subscriptions, where it is not as wanted yet.
    pub(crate) fn share(&mut self, wanted: bool) {
        match self.subscriptions.share(wanted) {
            Some(Move::Leave(filters)) => {
                tracing::info!(filters = filters.len(), "leaving the groups of shared subscriptions");
                self.unsubscriptions.begin(filters);
            }
            Some(Move::Enter) => {
                tracing::info!("entering the groups of shared subscriptions again");
                self.expect_answers(true, Instant::now());
            }
            None => {}
        }
    }

    /// Nothing new is handed over any more; what may be acknowledged is, and then the broker is told goodbye.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        self.spill.clear();
        self.drop_paused();
        self.held.clear();
    }

    /// Hands on what can be handed on without waiting: events to the consumer, requests to the client.
    pub(crate) fn pump(&mut self) {
        self.end_pause(Instant::now());
        while let Some(item) = self.spill.pop_front() {
            if let Err(mpsc::error::TrySendError::Full(item)) = self.events.try_send(item) {
                self.spill.push_front(item);
                break;
            }
        }
        self.note_stall();
        self.note_full(Instant::now());
        if self.admitted {
            self.request_subscriptions();
        }
        while let Some(owed) = self.acks.due() {
            let ack = if owed.exactly_once {
                ManualAck::PubRec(PubRec::new(owed.packet_id, None))
            } else {
                ManualAck::PubAck(PubAck::new(owed.packet_id, None))
            };
            if self.client.try_manual_ack(ack).is_err() {
                break;
            }
            self.acks.queued();
        }
        if self.closing && !self.goodbye && self.acks.is_flushed() {
            self.goodbye = self.say_goodbye(self.is_new && !self.admitted);
        }
        self.report_subscriptions();
    }

    /// Tells the broker that the connection ends, and whether the session ends with it. A session that was made by this connection, and of which nobody
    /// could note that it has no filter yet, has to go: the next connection would find it without knowing what it holds.
    fn say_goodbye(&self, discard: bool) -> bool {
        if !discard {
            return self.client.try_disconnect_now().is_ok();
        }
        let properties = DisconnectProperties {
            session_expiry_interval: Some(0),
            reason_string: None,
            user_properties: Vec::new(),
            server_reference: None,
        };
        self.client.try_disconnect_now_with_properties(DisconnectReasonCode::NormalDisconnection, properties).is_ok()
    }

    /// What is given up comes first. The broker takes requests in their order, so nothing has to wait for an answer.
    fn request_subscriptions(&mut self) {
        while let Some(filter) = self.unsubscriptions.next_request() {
            match self.client.try_unsubscribe(filter) {
                Ok(()) => self.unsubscriptions.request_queued(),
                Err(ClientError::InvalidRequest(_)) => self.unsubscriptions.request_invalid(),
                Err(_) => return,
            }
        }
        while let Some((input, properties)) = self.subscriptions.next_request() {
            match self.client.try_subscribe_many_with_properties([input], properties) {
                Ok(()) => self.subscriptions.request_queued(),
                Err(ClientError::InvalidRequest(_)) => self.subscriptions.request_invalid(),
                Err(_) => return,
            }
        }
    }

    /// Whether an answer of the gate is awaited. A connection that is closing asks for nothing any more.
    pub(crate) const fn awaits_gate(&self) -> bool {
        self.inquiry.is_open() && !self.closing
    }

    /// The gate's next answer. Cancel-safe.
    pub(crate) async fn gate_answer(&mut self) -> Answer {
        self.inquiry.answer().await
    }

    /// Takes in what the gate said.
    pub(crate) fn on_gate(&mut self, answer: Answer) -> Result<(), End> {
        match answer {
            Answer::Stale(Ok(filters)) => {
                // Whatever the gate says, what is wanted is never given up, not even for a moment.
                let stale = filters.into_iter().filter(|filter| !self.subscriptions.wants(filter));
                self.unsubscriptions.begin(stale);
                self.admitted = true;
                Ok(())
            }
            Answer::Stale(Err(fault)) => {
                if !self.is_new || !self.say_goodbye(true) {
                    return Err(End { cause: Cause::Lost, fault });
                }
                self.timers.answers_due = Some(Instant::now() + gate::farewell(self.reconcile_timeout));
                self.discarded = Some(fault);
                Ok(())
            }
            Answer::Noted => Ok(()),
        }
    }

    fn note_stall(&mut self) {
        if self.spill.is_empty() {
            if self.timers.stalled.take().is_some() {
                self.timers.incoming = Instant::now();
            }
        } else if self.timers.stalled.is_none() {
            self.timers.stalled = Some(Instant::now());
        }
    }

    /// Stops reading while the consumer has as much as may be, and goes on afterwards. Not while the broker owes an answer to a subscription, which stands behind
    /// messages; the receive window bounds those.
    fn note_full(&mut self, now: Instant) {
        let full = self.budget.is_spent() && self.timers.answers_due.is_none();
        if self.full && !full {
            // Whether the broker lives is judged by what is read from now on.
            (self.timers.incoming, self.timers.probed) = (now, false);
        }
        self.full = full;
        self.shared.reading_paused.store(full, Ordering::Relaxed);
        if full && self.pinging.is_none() {
            self.ping_before_pause(now);
        }
    }

    /// When the client, which does not read, has to write something for the broker to take it for alive.
    fn ping_at(&self) -> Option<Instant> {
        let due = self.full && self.pinging.is_none() && !self.acks.writing();
        self.timers.keep_alive.filter(|_| due).map(|keep_alive| self.timers.outgoing + keep_alive / 2)
    }

    fn report_subscriptions(&mut self) {
        if self.reported || !self.admitted || !self.unsubscriptions.is_complete() || !self.subscriptions.is_complete() {
            return;
        }
        self.reported = true;
        self.timers.answers_due = None;
        let (granted, mut refused) = self.subscriptions.report();
        self.timers.ask_again = self.subscriptions.has_refused().then(|| Instant::now() + self.quarantine.next());
        self.timers.recheck = self.subscriptions.recheck_after().map(|interval| Instant::now() + interval);
        self.shared.quarantined.store(refused.len() as u64, Ordering::Relaxed);
        self.shared.subscribed.store(refused.is_empty(), Ordering::Relaxed);
        refused.extend(self.unsubscriptions.refused().iter().filter(|(filter, _)| !self.subscriptions.wants(filter)).cloned());
        self.report(SourceEvent::Subscribed { connection: self.epoch, granted, refused });
    }

    /// Takes in what the client reports.
    pub(crate) fn on_event(&mut self, event: Event) -> Result<(), End> {
        match event {
            Event::Incoming(packet) => {
                self.timers.incoming = Instant::now();
                self.timers.probed = false;
                match packet {
                    Incoming::Publish(publish) => self.on_publish(publish),
                    Incoming::SubAck(answer) => {
                        let refused = self.subscriptions.answered(answer.pkid, &answer.return_codes);
                        let Some((filter, fault)) = refused else { return Ok(()) };
                        count(&self.shared.refusals);
                        if self.strict {
                            let detail = format!("`{filter}` is refused, and strict_subscriptions wants every filter: {}", fault.detail);
                            return Err(End { cause: Cause::Lost, fault: Fault { detail, ..fault } });
                        }
                        Ok(())
                    }
                    Incoming::UnsubAck(answer) => {
                        // What is only left for a while is remembered: the broker is to have it again.
                        if let Some(filter) = self.unsubscriptions.answered(answer.pkid, &answer.reasons)
                            && !self.subscriptions.wants(&filter)
                        {
                            self.inquiry.unsubscribed(filter);
                        }
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
            Event::Outgoing(packet) => {
                self.timers.outgoing = Instant::now();
                self.pinging = self.pinging.filter(|_| !matches!(packet, Outgoing::Unsubscribe(_)));
                self.on_written(&packet)
            }
            Event::Auth(_) => Ok(()),
        }
    }

    fn on_written(&mut self, packet: &Outgoing) -> Result<(), End> {
        match packet {
            Outgoing::Subscribe(packet_id) => self.subscriptions.request_written(*packet_id),
            Outgoing::Unsubscribe(packet_id) => self.unsubscriptions.request_written(*packet_id),
            Outgoing::PubAck(packet_id) | Outgoing::PubRec(packet_id) => {
                if !self.acks.written(*packet_id) {
                    return Err(End::new(Cause::Lost, FaultCode::ProtocolError, "an acknowledgement was written out of its turn"));
                }
                count(&self.shared.acknowledged);
                self.wrote_acks = true;
                self.note_unacknowledged();
            }
            Outgoing::Disconnect if self.goodbye => return Err(End::closing()),
            Outgoing::Disconnect => {
                if let Some(fault) = self.discarded.take() {
                    self.left = true;
                    return Err(End { cause: Cause::Lost, fault });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn on_publish(&mut self, publish: Publish) -> Result<(), End> {
        if self.closing {
            return Ok(());
        }
        let (packet_id, qos) = (publish.pkid, publish.qos);
        if qos != QoS::AtMostOnce {
            if self.acks.unacknowledged() >= self.window {
                count(&self.shared.window_overruns);
            }
            if self.acks.arrived(packet_id).is_err() {
                return Err(End::new(
                    Cause::Lost,
                    FaultCode::ProtocolError,
                    "the broker used a packet identifier again before it was acknowledged",
                ));
            }
        }
        let mut message = convert::message(publish).map_err(|poison| {
            // By a session that is not kept, nothing of this connection comes again: that is counted at its end.
            if qos == QoS::AtMostOnce && self.kept {
                count(&self.shared.poison_lost);
            }
            End::new(Cause::Poison, FaultCode::ProtocolError, poison.to_string())
        })?;
        match &self.content_hash {
            // An id of the content stands for nothing else.
            Some(content_hash) => content_hash.identify(&mut message),
            None => self.shared.note_id(&message),
        }
        let mut receivers = self.subscriptions.receivers(&message.topic, &message.properties.subscription_ids);
        if receivers.is_empty() {
            let hold = qos != QoS::AtMostOnce && self.held.len() < self.window && Instant::now() < self.timers.grace_until;
            self.warn_unmatched(hold);
            if hold {
                self.acks.hold(packet_id, qos == QoS::ExactlyOnce);
                self.held.push_back(Held { message, packet_id });
                self.note_unacknowledged();
                return Ok(());
            }
            receivers.push(NO_RECEIVER.into());
        }
        self.hand_on(message, receivers);
        if qos != QoS::AtMostOnce {
            self.acks.owe(packet_id, qos == QoS::ExactlyOnce);
            self.note_unacknowledged();
        }
        Ok(())
    }

    /// One delivery for each receiver. What becomes of a message that the broker does not repeat where there is no room for it, the configuration says.
    fn hand_on(&mut self, message: Message, mut receivers: Vec<Arc<str>>) {
        let Some(last) = receivers.pop() else { return };
        let copies: Vec<_> = receivers.into_iter().map(|receiver| (receiver, message.clone())).collect();
        for (receiver, message) in copies.into_iter().chain([(last, message)]) {
            if message.qos == 0 {
                if self.hand_on_loose(Box::new((receiver, message))) {
                    count(&self.shared.dropped_qos0);
                }
            } else {
                let id = self.next_id();
                self.budget.handed_over(id.ordinal, message.weight());
                self.spill.push_back(SourceEvent::Delivery(Delivery { id, receiver, message }).into());
            }
        }
    }

    fn next_id(&mut self) -> DeliveryId {
        DeliveryId { connection: self.epoch, ordinal: self.acks.next_ordinal() }
    }

    /// Whether what was handed over and not acknowledged comes again by a new connection. Where it does not, that is said, once.
    pub(crate) fn comes_again(&mut self) -> bool {
        if !self.kept && !core::mem::replace(&mut self.warned_kept, true) {
            tracing::warn!(
                connection = self.epoch.0,
                "the broker does not keep this session: no new connection is made for what is held for too long, which would be lost by it"
            );
        }
        self.kept
    }

    fn note_unacknowledged(&self) {
        let now = self.acks.unacknowledged() as u64;
        self.shared.unacknowledged.store(now, Ordering::Relaxed);
        self.shared.unacknowledged_peak.fetch_max(now, Ordering::Relaxed);
        self.shared.unmatched_held.store(self.held.len() as u64, Ordering::Relaxed);
    }

    /// Whether the broker was told that the session ends with the connection, which then has to end in order.
    pub(crate) const fn has_left(&self) -> bool {
        self.left
    }

    /// Whether messages are held back that no receiver asked for.
    pub(crate) fn holds_back(&self) -> bool {
        !self.held.is_empty()
    }

    /// What was held back is handed on: no receiver asks for it.
    fn end_grace(&mut self) {
        while let Some(Held { message, packet_id }) = self.held.pop_front() {
            self.hand_on(message, vec![NO_RECEIVER.into()]);
            self.acks.release(packet_id);
        }
        self.note_unacknowledged();
    }

    fn warn_unmatched(&mut self, hold: bool) {
        if !self.warned_unmatched {
            self.warned_unmatched = true;
            tracing::warn!(
                connection = self.epoch.0,
                held_back = hold,
                "the broker delivers messages that match no configured filter, probably for a subscription of an earlier configuration; after unmatched_grace they are dead-lettered as SUBSCRIPTION_REMOVED, or without stores.dlq go the way of the first receiver's"
            );
        }
    }
}
