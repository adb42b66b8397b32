//! A broker with one persistent session, and the source that is connected to it.

use super::Shared;
use crate::{ConnectionEpoch, Delivery, DeliveryId, Source, SourceCounters, SourceEvent};
use async_trait::async_trait;
use causeway_core::message::Message;
use causeway_core::outcome::{Fault, FaultCode};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

/// The broker's side: a test publishes, breaks and restores the connection, and looks at what was acknowledged.
///
/// It keeps what is not acknowledged and hands it over again, in order and before anything newer, on the next connection. Messages of quality of
/// service 0 are handed over once.
#[derive(Clone, Debug)]
pub struct FakeBroker {
    shared: Arc<Shared<Session>>,
}

/// The worker's side, made by [`FakeBroker::source`]. Dropping it is a crash: the session stays, and the next source gets what was unacknowledged.
#[derive(Debug)]
pub struct FakeSource {
    shared: Arc<Shared<Session>>,
    /// Which source this is, so that one that was replaced gets nothing more.
    generation: u64,
}

#[derive(Debug, Default)]
struct Session {
    generation: u64,
    waiting: VecDeque<(Arc<str>, Message)>,
    unacknowledged: VecDeque<(u64, Arc<str>, Message)>,
    events: VecDeque<SourceEvent>,
    connection: ConnectionEpoch,
    connected: bool,
    paused: bool,
    closed: bool,
    next_ordinal: u64,
    receive_maximum: Option<usize>,
    granted: usize,
    refused: Vec<(String, Fault)>,
    watermarks: Vec<DeliveryId>,
    ignored: Vec<DeliveryId>,
    counters: SourceCounters,
}

impl Session {
    fn connect(&mut self, session_present: bool) {
        if self.connected {
            return;
        }
        if !session_present {
            self.waiting.clear();
        }
        if self.connection.0 > 0 {
            self.counters.reconnects += 1;
            self.counters.sessions_lost += u64::from(!session_present);
        }
        self.connection.0 += 1;
        self.connected = true;
        self.next_ordinal = 1;
        let connection = self.connection;
        self.events.push_back(SourceEvent::Connected { connection, session_present });
        self.events.push_back(SourceEvent::Subscribed { connection, granted: self.granted, refused: self.refused.clone() });
    }

    /// The connection ends; what it had not acknowledged goes back to the front of the queue, in order.
    fn disconnect(&mut self) -> bool {
        let was_connected = std::mem::replace(&mut self.connected, false);
        while let Some((_, receiver, message)) = self.unacknowledged.pop_back() {
            if message.qos > 0 {
                self.waiting.push_front((receiver, message));
            }
        }
        self.counters.unacknowledged = 0;
        was_connected
    }

    fn next_event(&mut self) -> Option<SourceEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.closed {
            return Some(SourceEvent::Closed);
        }
        let full = self.receive_maximum.is_some_and(|maximum| self.unacknowledged.len() >= maximum);
        if !self.connected || self.paused || full {
            return None;
        }
        let (receiver, message) = self.waiting.pop_front()?;
        let id = DeliveryId { connection: self.connection, ordinal: self.next_ordinal };
        self.next_ordinal += 1;
        self.unacknowledged.push_back((id.ordinal, Arc::clone(&receiver), message.clone()));
        self.counters.received += 1;
        self.counters.unacknowledged = self.unacknowledged.len() as u64;
        self.counters.unacknowledged_peak = self.counters.unacknowledged_peak.max(self.counters.unacknowledged);
        Some(SourceEvent::Delivery(Delivery { id, receiver, message }))
    }

    fn acknowledge(&mut self, up_to: DeliveryId) {
        if !self.connected || up_to.connection != self.connection {
            self.ignored.push(up_to);
            return;
        }
        self.watermarks.push(up_to);
        while self.unacknowledged.front().is_some_and(|(ordinal, ..)| *ordinal <= up_to.ordinal) {
            self.unacknowledged.pop_front();
            self.counters.acknowledged += 1;
        }
        self.counters.unacknowledged = self.unacknowledged.len() as u64;
    }
}

impl Default for FakeBroker {
    fn default() -> Self {
        Self { shared: Arc::new(Shared::new(Session { granted: 1, ..Session::default() })) }
    }
}

impl FakeBroker {
    /// A broker without a session yet, which grants one filter.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new source, connected at once. One that there was before is taken over and sees its connection end.
    #[must_use]
    pub fn source(&self) -> FakeSource {
        let generation = self.shared.change(|session| {
            let session_present = session.generation > 0;
            session.disconnect();
            session.generation += 1;
            session.events.clear();
            // A new process counts from the start.
            (session.connection, session.counters) = (ConnectionEpoch(0), SourceCounters::default());
            (session.closed, session.paused) = (false, false);
            // The first connection of a session that was never there loses nothing.
            let waiting = std::mem::take(&mut session.waiting);
            session.connect(session_present);
            session.waiting = waiting;
            session.generation
        });
        FakeSource { shared: Arc::clone(&self.shared), generation }
    }

    /// Publishes a message that `receiver` subscribed to. Kept while nobody is connected.
    pub fn publish(&self, receiver: &str, message: Message) {
        self.shared.change(|session| session.waiting.push_back((receiver.into(), message)));
    }

    /// Publishes a message of quality of service 1 with nothing but a topic and a payload.
    pub fn publish_text(&self, receiver: &str, topic: &str, payload: &str) {
        let payload = bytes::Bytes::copy_from_slice(payload.as_bytes());
        self.publish(receiver, Message { topic: topic.to_owned(), payload, qos: 1, ..Message::default() });
    }

    /// Breaks the connection. The source stays without one until [`Self::reconnect`].
    pub fn disconnect(&self) {
        self.shared.change(|session| {
            if session.disconnect() {
                let fault = Fault::new(FaultCode::ConnectionLost, "the broker closed the connection");
                session.events.push_back(SourceEvent::Disconnected {
                    connection: session.connection,
                    fault,
                    retry_in: Duration::from_secs(1),
                });
            }
        });
    }

    /// Refuses an attempt to connect while there is no connection.
    pub fn refuse(&self, fault: Fault) {
        self.shared.change(|session| {
            if !session.connected {
                session.counters.connect_failures += 1;
                session.events.push_back(SourceEvent::Disconnected {
                    connection: session.connection,
                    fault,
                    retry_in: Duration::from_secs(1),
                });
            }
        });
    }

    /// Lets the source connect again. Without `session_present` the broker lost the session, and everything that waited in it.
    pub fn reconnect(&self, session_present: bool) {
        self.shared.change(|session| session.connect(session_present));
    }

    /// How many deliveries may be unacknowledged at a time; no bound before the first call.
    pub fn set_receive_maximum(&self, maximum: usize) {
        self.shared.change(|session| session.receive_maximum = Some(maximum));
    }

    /// What the next subscriptions answer.
    pub fn answer_subscriptions(&self, granted: usize, refused: Vec<(String, Fault)>) {
        self.shared.change(|session| (session.granted, session.refused) = (granted, refused));
    }

    /// Every acknowledgement that counted, in the order given.
    #[must_use]
    pub fn watermarks(&self) -> Vec<DeliveryId> {
        self.shared.look().watermarks.clone()
    }

    /// Acknowledgements of connections that were gone.
    #[must_use]
    pub fn ignored_acknowledgements(&self) -> Vec<DeliveryId> {
        self.shared.look().ignored.clone()
    }

    /// Messages that the broker still holds: waiting, or handed over and not acknowledged.
    #[must_use]
    pub fn held(&self) -> usize {
        let session = self.shared.look();
        session.waiting.len() + session.unacknowledged.len()
    }

    /// Whether the source asked to be left alone.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.look().paused
    }

    /// Whether the source closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.look().closed
    }

    /// Waits until every message was handed over and acknowledged.
    pub async fn all_acknowledged(&self) {
        self.shared.wait_for(|session| (session.waiting.is_empty() && session.unacknowledged.is_empty()).then_some(())).await;
    }

    /// Waits until at least `count` deliveries are handed over and not acknowledged.
    pub async fn unacknowledged(&self, count: usize) {
        self.shared.wait_for(|session| (session.unacknowledged.len() >= count).then_some(())).await;
    }
}

impl FakeSource {
    /// Changes the session, unless another source took it over.
    fn change(&self, change: impl FnOnce(&mut Session)) {
        let generation = self.generation;
        self.shared.change(|session| {
            if session.generation == generation {
                change(session);
            }
        });
    }
}

#[async_trait]
impl Source for FakeSource {
    async fn next(&mut self) -> SourceEvent {
        let generation = self.generation;
        let event = self
            .shared
            .wait_for(|session| if session.generation == generation { session.next_event() } else { Some(SourceEvent::Closed) })
            .await;
        // What was handed over counts as unacknowledged now, which a test may wait for.
        self.shared.changed.notify_waiters();
        event
    }

    fn acknowledge(&mut self, up_to: DeliveryId) {
        self.change(|session| session.acknowledge(up_to));
    }

    fn pause(&mut self, paused: bool) {
        self.change(|session| session.paused = paused);
    }

    async fn close(&mut self, _deadline: Duration) {
        self.change(|session| {
            session.disconnect();
            session.closed = true;
        });
    }

    fn counters(&self) -> SourceCounters {
        self.shared.look().counters
    }
}

impl Drop for FakeSource {
    fn drop(&mut self) {
        self.change(|session| {
            session.disconnect();
        });
    }
}
