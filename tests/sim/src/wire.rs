//! Connections to the broker: what is sent on one arrives in order or not at all.
//!
//! A cut that is shorter than the keep-alive only delays, as TCP does. A longer one breaks the connection, for one direction or for both; each end notices
//! when it misses the other.

use crate::broker::ConnectionId;
use crate::event::{Event, Packet};
use crate::faults::{Link, Way};
use crate::seen::Sight;
use crate::world::World;

/// A TCP connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    worker: usize,
    life: u64,
    last_out: u64,
    last_back: u64,
    broken_out: bool,
    broken_back: bool,
}

impl World {
    /// Opens a connection from a worker.
    pub(crate) fn connect(&mut self, worker: usize) -> ConnectionId {
        self.calls += 1;
        let connection = ConnectionId(self.calls);
        let life = self.workers[worker].life;
        self.wires.insert(connection, Wire { worker, life, last_out: 0, last_back: 0, broken_out: false, broken_back: false });
        self.send_out(connection, Packet::Connect);
        connection
    }

    /// Sends a packet to the broker.
    pub(crate) fn send_out(&mut self, connection: ConnectionId, packet: Packet) {
        if let Some(at) = self.on_wire(connection, Way::Out) {
            self.at(at, Event::AtBroker { connection, packet });
        }
    }

    /// Sends a packet to the worker.
    pub(crate) fn send_back(&mut self, connection: ConnectionId, packet: Packet) {
        if let Some(at) = self.on_wire(connection, Way::Back) {
            let Wire { worker, life, .. } = self.wires[&connection];
            self.at(at, Event::FromBroker { worker, life, connection, packet });
        }
    }

    /// When a packet that is sent now arrives, if it does.
    fn on_wire(&mut self, connection: ConnectionId, way: Way) -> Option<u64> {
        let latency = self.latency().min(self.knobs.keep_alive / 2);
        let wire = *self.wires.get(&connection)?;
        if if way == Way::Out { wire.broken_out } else { wire.broken_back } {
            return None;
        }
        let held = self.workers[wire.worker].cut(self.now, Link::Broker, way);
        if held.is_some_and(|until| until - self.now > self.knobs.keep_alive) {
            self.break_wire(connection, way);
            return None;
        }
        let last = if way == Way::Out { wire.last_out } else { wire.last_back };
        let at = (held.unwrap_or(self.now) + latency).max(last);
        let wire = self.wires.get_mut(&connection)?;
        if way == Way::Out {
            wire.last_out = at;
        } else {
            wire.last_back = at;
        }
        Some(at)
    }

    /// Nothing passes that way any more; both ends notice by their keep-alive, or because the other one ended the connection.
    pub(crate) fn break_wire(&mut self, connection: ConnectionId, way: Way) {
        let keep_alive = self.knobs.keep_alive;
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        let before = (wire.broken_out, wire.broken_back);
        wire.broken_out |= way != Way::Back;
        wire.broken_back |= way != Way::Out;
        if before == (wire.broken_out, wire.broken_back) {
            return;
        }
        let (worker, life) = (wire.worker, wire.life);
        let noticed = self.now + self.rng.between(keep_alive / 2, keep_alive * 3 / 2);
        self.at(noticed, Event::FromBroker { worker, life, connection, packet: Packet::End });
        self.at(self.now + keep_alive * 3 / 2, Event::AtBroker { connection, packet: Packet::End });
        if way != Way::Both {
            self.seen.note(Sight::HalfOpenConnection);
        }
    }

    /// Breaks every connection of a worker, that way.
    pub(crate) fn break_wires_of(&mut self, worker: usize, way: Way) {
        let wires: Vec<ConnectionId> = self.wires.iter().filter(|(_, wire)| wire.worker == worker).map(|(id, _)| *id).collect();
        for connection in wires {
            self.break_wire(connection, way);
        }
    }

    pub(crate) fn at_broker(&mut self, connection: ConnectionId, packet: Packet) {
        self.note(&[3, self.now, connection.0]);
        match packet {
            Packet::Connect => {
                let (older, session_present) = self.broker.connect(connection);
                if let Some(older) = older {
                    self.seen.note(Sight::SessionTakenOver);
                    self.send_back(older, Packet::End);
                }
                self.send_back(connection, Packet::Accepted { session_present });
            }
            Packet::Subscribe(filters) => {
                if self.broker.connection() == Some(connection) {
                    self.broker.subscribe(&filters);
                    self.check_account();
                    self.send_back(connection, Packet::Subscribed);
                }
            }
            Packet::Unsubscribe(filter) => {
                if self.broker.connection() == Some(connection) {
                    self.broker.unsubscribe(&filter);
                    self.send_back(connection, Packet::Unsubscribe(filter));
                }
            }
            Packet::Accepted { .. } | Packet::Subscribed => {}
            Packet::Message(message) => {
                if self.broker.acknowledge(connection, message) && !self.may_be_forgotten(message) {
                    self.fail(format!("S1: message {message} is acknowledged and not durable"));
                }
            }
            Packet::End => self.broker.disconnect(connection),
        }
        self.pump_broker();
    }

    pub(crate) fn pump_broker(&mut self) {
        let Some(connection) = self.broker.connection() else { return };
        for delivery in self.broker.pump() {
            if delivery.again {
                self.seen.note(Sight::Redelivered);
            }
            self.send_back(connection, Packet::Message(delivery.message));
        }
        if self.broker.unacknowledged() > self.knobs.window {
            self.fail("S7: the broker's window is overrun".to_owned());
        }
    }
}
