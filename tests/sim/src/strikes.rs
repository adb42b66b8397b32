//! Faults of the schedule, and their end.

use crate::checks::Stopwatch;
use crate::event::{Event, Packet};
use crate::faults::{Fault, Link, MS, S, Way, Whom};
use crate::seen::Sight;
use crate::worker::{DRAIN_TIMEOUT, Phase};
use crate::world::World;
use causeway_core::member;

impl World {
    pub(crate) fn whom(&self, whom: Whom) -> Option<usize> {
        match whom {
            Whom::Nth(nth) => Some(nth),
            Whom::Standby => {
                let waits = |nth: &usize| self.workers[*nth].member.is_some() && !self.workers[*nth].may_act(self.now);
                (0..self.workers.len()).find(waits)
            }
            Whom::Owner => (0..self.workers.len()).find(|nth| self.workers[*nth].may_act(self.now)),
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        self.note(&[4, self.now]);
        if self.knobs.schedule.len() == 1 {
            let version = self.stores.lease().map_or(0, |row| row.tuple.version);
            let waits_for_loss = matches!(fault, Fault::Cut { link: Link::Broker, .. });
            let owner = self.whom(Whom::Owner).and_then(|worker| self.workers[worker].member.as_ref()).and_then(member::Member::owner);
            let announced = owner.map_or(0, |(_, owner)| owner.exposed()) + self.broker.unacknowledged();
            self.watch =
                Stopwatch { version, from: (!waits_for_loss).then_some(self.now), waits_for_loss, took: None, announced: announced as u64 };
        }
        match fault {
            Fault::Crash { whom, down, silently } => {
                if let Some(worker) = self.whom(whom) {
                    self.crash(worker, down, silently);
                }
            }
            Fault::Pause { whom, span } => {
                if let Some(worker) = self.whom(whom) {
                    self.pause(worker, span);
                }
            }
            Fault::Stop { whom, down } => {
                if let Some(worker) = self.whom(whom).filter(|worker| self.workers[*worker].member.is_some()) {
                    self.workers[worker].down = down;
                    self.workers[worker].told_to_stop = self.workers[worker].life;
                    let drain_until = self.workers[worker].local(self.now).plus(DRAIN_TIMEOUT);
                    if self.workers[worker].may_act(self.now) {
                        self.seen.note(Sight::HandedOver);
                    }
                    self.feed(worker, member::Event::Shutdown { drain_until });
                    self.go_on(worker);
                }
            }
            Fault::Cut { whom, link, way, span } => {
                if let Some(worker) = self.whom(whom) {
                    self.cut(worker, link, way, span);
                }
            }
            Fault::BrokerRestart { keeps_session } => {
                if let Some(connection) = self.broker.restart(keeps_session) {
                    self.send_back(connection, Packet::End);
                }
            }
            Fault::Throttle { span } => self.throttled_until = self.now + span,
            Fault::WallStep { whom, by } => {
                if let Some(worker) = self.whom(whom) {
                    self.workers[worker].step_wall(by);
                }
            }
            Fault::Restore { stops } => {
                for worker in 0..if stops { self.workers.len() } else { 0 } {
                    let down = self.rng.between(MS, self.knobs.ttl());
                    self.crash(worker, Some(down), false);
                }
                let back = self.rng.index(40);
                if self.stores.restore_lease(back) {
                    self.seen.note(Sight::LeaseTableRestored);
                }
            }
        }
    }

    pub(crate) fn cut(&mut self, worker: usize, link: Link, way: Way, span: u64) {
        self.workers[worker].cuts.push((link, way, self.now + span));
        if link == Link::Broker && span > self.knobs.keep_alive {
            self.break_wires_of(worker, way);
        }
    }

    pub(crate) fn crash(&mut self, worker: usize, down: Option<u64>, silently: bool) {
        if self.workers[worker].member.is_none() {
            return;
        }
        self.drop_connection(worker, silently);
        self.workers[worker].forget();
        self.workers[worker].life += 1;
        if let Some(down) = down {
            self.at(self.now + down, Event::Start { worker });
        }
    }

    /// The worker's process is gone: its connection ends at once, or when the broker misses it.
    pub(crate) fn drop_connection(&mut self, worker: usize, silently: bool) {
        let Some(source) = &self.workers[worker].source else { return };
        let (Phase::Connecting(connection) | Phase::Connected(connection)) = source.phase else { return };
        if silently {
            self.break_wire(connection, Way::Both);
        } else {
            self.send_out(connection, Packet::End);
        }
    }

    pub(crate) fn pause(&mut self, worker: usize, span: u64) {
        let until = self.now + span;
        let life = self.workers[worker].life;
        if self.workers[worker].member.is_none() || self.workers[worker].asleep_until >= until {
            return;
        }
        self.workers[worker].asleep_until = until;
        self.at(until, Event::Resume { worker, life });
        let patience = self.knobs.keep_alive * 3 / 2;
        if span > patience
            && let Some(source) = &self.workers[worker].source
            && let Phase::Connected(connection) = source.phase
        {
            // The broker misses it and ends the connection; the worker reads that when it wakes up.
            self.at(self.now + patience, Event::AtBroker { connection, packet: Packet::End });
            self.at(until, Event::FromBroker { worker, life, connection, packet: Packet::End });
        }
    }

    pub(crate) fn heal(&mut self) {
        self.healed_at = Some(self.now);
        self.throttled_until = 0;
        for worker in 0..self.workers.len() {
            self.workers[worker].cuts.clear();
            if self.workers[worker].asleep_until > self.now {
                self.workers[worker].asleep_until = self.now;
                let life = self.workers[worker].life;
                self.at(self.now, Event::Resume { worker, life });
            }
            let ends_for_good = self.workers[worker].member.is_none();
            if ends_for_good {
                let down = self.rng.between(MS, S);
                self.at(self.now + down, Event::Start { worker });
            }
            self.workers[worker].down = Some(S);
        }
        self.at(self.now + S, Event::Check);
    }
}
