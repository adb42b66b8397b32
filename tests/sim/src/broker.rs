//! An MQTT broker with one durable session: quality of service 1, a window, redelivery, and one connection at a time.

use std::collections::{BTreeSet, VecDeque};

/// The filter that every message is published to.
pub const FILTER: &str = "t";

/// Names a connection attempt; unique in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// What the broker sends on the session's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message.
    pub message: u64,
    /// It was sent before.
    pub again: bool,
}

/// The broker.
#[derive(Debug)]
pub struct Broker {
    connection: Option<ConnectionId>,
    /// Sent and not acknowledged, oldest first.
    in_flight: VecDeque<u64>,
    /// How many of `in_flight` went out on the present connection.
    sent: usize,
    /// Not sent yet.
    queue: VecDeque<u64>,
    window: usize,
    session: bool,
    /// What the session has subscribed to.
    filters: BTreeSet<String>,
    /// Messages that it forgot before anybody acknowledged them.
    forgotten: Vec<u64>,
    redelivered: u64,
}

impl Broker {
    /// A broker that allows `window` unacknowledged messages. Its session exists already and is subscribed, or not.
    #[must_use]
    pub fn new(window: usize, session: bool) -> Self {
        Self {
            connection: None,
            in_flight: VecDeque::new(),
            sent: 0,
            queue: VecDeque::new(),
            window,
            session,
            filters: session.then(|| FILTER.to_owned()).into_iter().collect(),
            forgotten: Vec::new(),
            redelivered: 0,
        }
    }

    /// What the session has subscribed to.
    #[must_use]
    pub const fn filters(&self) -> &BTreeSet<String> {
        &self.filters
    }

    /// SUBSCRIBE.
    pub fn subscribe(&mut self, filters: &BTreeSet<String>) {
        self.filters.extend(filters.iter().cloned());
    }

    /// UNSUBSCRIBE.
    pub fn unsubscribe(&mut self, filter: &str) {
        self.filters.remove(filter);
    }

    /// The session's connection.
    #[must_use]
    pub const fn connection(&self) -> Option<ConnectionId> {
        self.connection
    }

    /// Sent and not acknowledged, or not sent yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.in_flight.len() + self.queue.len()
    }

    /// Sent and not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.in_flight.len()
    }

    /// What it forgot when it lost its session.
    #[must_use]
    pub fn forgotten(&self) -> &[u64] {
        &self.forgotten
    }

    /// A message was published.
    pub fn publish(&mut self, message: u64) {
        if self.session && self.filters.contains(FILTER) { self.queue.push_back(message) } else { self.forgotten.push(message) }
    }

    /// A client connects; answers the connection that had to go, if any, and whether there was a session.
    pub fn connect(&mut self, connection: ConnectionId) -> (Option<ConnectionId>, bool) {
        let present = core::mem::replace(&mut self.session, true);
        self.sent = 0;
        (self.connection.replace(connection), present)
    }

    /// A connection ended.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        if self.connection == Some(connection) {
            self.connection = None;
            self.sent = 0;
        }
    }

    /// It was restarted; answers the connection that ended. Without persistence the session is gone.
    pub fn restart(&mut self, keeps_session: bool) -> Option<ConnectionId> {
        if !keeps_session {
            self.forgotten.extend(self.in_flight.drain(..).chain(self.queue.drain(..)));
            self.session = false;
            self.filters.clear();
        }
        self.sent = 0;
        self.connection.take()
    }

    /// A message was acknowledged on a connection; answers whether it was outstanding.
    pub fn acknowledge(&mut self, connection: ConnectionId, message: u64) -> bool {
        if self.connection != Some(connection) {
            return false;
        }
        let Some(place) = self.in_flight.iter().take(self.sent).position(|standing| *standing == message) else { return false };
        self.in_flight.remove(place);
        self.sent -= 1;
        true
    }

    /// What to send now: first what is in flight since an earlier connection, then new messages up to the window.
    pub fn pump(&mut self) -> Vec<Delivery> {
        let mut out = Vec::new();
        if self.connection.is_none() {
            return out;
        }
        for message in self.in_flight.iter().skip(self.sent) {
            out.push(Delivery { message: *message, again: true });
            self.redelivered += 1;
        }
        while self.in_flight.len() < self.window {
            let Some(message) = self.queue.pop_front() else { break };
            self.in_flight.push_back(message);
            out.push(Delivery { message, again: false });
        }
        self.sent = self.in_flight.len();
        out
    }

    /// Redeliveries so far.
    #[must_use]
    pub const fn redelivered(&self) -> u64 {
        self.redelivered
    }
}
