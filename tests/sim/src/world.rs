//! The loop: a heap of events, one true time, and what each event does.

use crate::broker::{Broker, ConnectionId};
use crate::faults::{CONNECT_TIMEOUT, Fault, Knobs, Link, MS, S, SOURCE_BACKOFF, Way, Whom};
use crate::queue::Queue;
use crate::rng::Rng;
use crate::seen::{Seen, Sight};
use crate::store::Stores;
use crate::worker::{Awaited, DRAIN_TIMEOUT, Inbound, Phase, SEND_BACKOFF, Worker, broker_hold_off, hold_off};
use crate::{Mutant, Report};
use causeway_core::dead_letter::DeadLetter;
use causeway_core::lease::row::RawLease;
use causeway_core::lease::{LeaseAnswer, LeaseWrite};
use causeway_core::log::{Answer, Call};
use causeway_core::member;
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault as CallFault, FaultCode, Outcome};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

/// Something that happens at a true moment.
#[allow(missing_docs, reason = "`worker`, `life`, `call` and `connection` name whom it concerns")]
#[derive(Debug)]
pub enum Event {
    /// A worker starts.
    Start { worker: usize },
    /// A worker wanted to be woken.
    Tick { worker: usize, life: u64, nth: u64 },
    /// A pause is over.
    Resume { worker: usize, life: u64 },
    /// A request arrives where it goes.
    Arrive { worker: usize, life: u64, call: u64, request: Request },
    /// An answer arrives.
    Answered { worker: usize, life: u64, call: u64, reply: Reply },
    /// A call is given up.
    GivenUp { worker: usize, life: u64, call: u64 },
    /// A packet arrives at the broker.
    AtBroker { connection: ConnectionId, packet: Packet },
    /// A packet arrives at the worker of the connection.
    FromBroker { worker: usize, life: u64, connection: ConnectionId, packet: Packet },
    /// A source's timer.
    SourceTimer { worker: usize, life: u64, source: u64, timer: u64 },
    /// A message is published.
    Publish,
    /// A fault of the schedule strikes.
    Strike(usize),
    /// Somebody told the worker that the lease is free.
    Hint { worker: usize, life: u64 },
    /// From now on nothing goes wrong any more.
    Heal,
    /// Whether the world has converged.
    Check,
}

/// A request to a store or to the destination.
#[allow(clippy::large_enum_variant, reason = "a test tool; most requests are the large ones")]
#[derive(Debug)]
pub enum Request {
    /// The lease row.
    LeaseRead,
    /// A conditional write of it.
    LeaseWrite(LeaseWrite),
    /// A call to the log; whether an earlier attempt of the same put has an unknown outcome.
    #[allow(missing_docs, reason = "said above")]
    Log { call: Call, doubted: bool },
    /// A batch.
    Send(Vec<Arc<Entry>>),
    /// A dead letter.
    Park(Box<DeadLetter>),
}

/// An answer.
#[derive(Debug)]
pub enum Reply {
    /// To a read of the lease row.
    LeaseRead(Result<Option<RawLease>, CallFault>),
    /// To a write of it.
    LeaseWritten(Outcome<LeaseAnswer>),
    /// To a call to the log.
    Log(Answer),
    /// To a batch.
    Sent(Vec<Outcome<()>>),
    /// To a dead letter.
    Parked(Outcome<()>),
}

/// What travels on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// CONNECT, CONNACK.
    Connect,
    /// SUBSCRIBE, SUBACK.
    Subscribe,
    /// PUBLISH to the worker, PUBACK from it.
    Message(u64),
    /// DISCONNECT, or the connection's end.
    End,
}

#[derive(Debug)]
struct Scheduled {
    at: u64,
    nth: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.nth == other.nth
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.nth).cmp(&(self.at, self.nth))
    }
}

/// A TCP connection: what was sent arrives in order or not at all.
#[derive(Clone, Copy, Debug)]
struct Wire {
    worker: usize,
    life: u64,
    last_out: u64,
    last_back: u64,
    broken: bool,
}

/// What a schedule of one fault is measured by.
#[derive(Clone, Copy, Debug, Default)]
struct Stopwatch {
    /// The version that the owner held when the fault struck.
    version: u64,
    /// The connection's end was noticed at the owner, or the fault struck.
    from: Option<u64>,
    /// Only the loss of the broker starts it.
    waits_for_loss: bool,
    took: Option<u64>,
    /// Messages that might arrive again if the owner crashed at that moment.
    announced: u64,
}

/// The world.
#[derive(Debug)]
pub struct World {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) knobs: Knobs,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) stores: Stores,
    pub(crate) broker: Broker,
    pub(crate) queue: Queue,
    pub(crate) seen: Seen,
    seed: u64,
    heap: BinaryHeap<Scheduled>,
    scheduled: u64,
    wires: BTreeMap<ConnectionId, Wire>,
    pub(crate) calls: u64,
    published: u64,
    throttled_until: u64,
    healed_at: Option<u64>,
    watch: Stopwatch,
    violation: Option<String>,
    trace: u64,
    events: u64,
}

impl World {
    /// A world at its beginning.
    #[must_use]
    pub fn new(seed: u64, mut rng: Rng, knobs: Knobs, mutant: Option<Mutant>) -> Self {
        let workers = (0..knobs.workers).map(|_| Worker::new(&mut rng, &knobs)).collect();
        let mut world = Self {
            now: 0,
            mutant,
            workers,
            stores: Stores::new((!knobs.lawless).then_some(knobs.rate_ppm), mutant),
            broker: Broker::new(knobs.window),
            queue: Queue::default(),
            seen: Seen::default(),
            seed,
            heap: BinaryHeap::new(),
            scheduled: 0,
            wires: BTreeMap::new(),
            calls: 0,
            published: 0,
            throttled_until: 0,
            healed_at: None,
            watch: Stopwatch::default(),
            violation: None,
            trace: 0xcbf2_9ce4_8422_2325,
            events: 0,
            rng,
            knobs,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for worker in 0..self.workers.len() {
            let at = self.rng.between(0, 500 * MS);
            self.at(at, Event::Start { worker });
        }
        for nth in 0..self.knobs.schedule.len() {
            self.at(self.knobs.schedule[nth].0, Event::Strike(nth));
        }
        let mut at = 0;
        for _ in 0..self.knobs.messages {
            // Bursts, and pauses between them.
            at += if self.rng.chance(0.7) {
                self.rng.between(0, 5 * MS)
            } else {
                self.rng.between(0, self.knobs.chaos_ends * 6 / self.knobs.messages)
            };
            self.at(at.min(self.knobs.chaos_ends), Event::Publish);
        }
        for late in 1..=5 {
            self.at(self.knobs.chaos_ends + late * 300 * MS, Event::Publish);
        }
        self.at(self.knobs.chaos_ends, Event::Heal);
    }

    /// Runs to the end: convergence, or the first violation.
    #[must_use]
    pub fn run(mut self) -> Report {
        while self.violation.is_none() {
            let Some(Scheduled { at, event, .. }) = self.heap.pop() else {
                self.fail("nothing will ever happen any more".to_owned());
                break;
            };
            self.now = at;
            self.events += 1;
            if matches!(event, Event::Check) && self.has_converged() {
                break;
            }
            self.happen(event);
            self.check_belief();
        }
        Report {
            seed: self.seed,
            violation: self.violation,
            seen: self.seen,
            trace: self.trace,
            events: self.events,
            simulated: self.now,
            duplicates: self.queue.duplicates(),
            failover: self.watch.took,
            announced: self.watch.announced,
        }
    }

    pub(crate) const fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// Whether the faults have not ended yet.
    pub(crate) const fn is_faulty(&self) -> bool {
        self.healed_at.is_none()
    }

    pub(crate) fn fail(&mut self, what: String) {
        let at = core::time::Duration::from_nanos(self.now);
        self.violation.get_or_insert_with(|| format!("at {at:?}: {what}"));
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.heap.push(Scheduled { at: at.max(self.now), nth: self.scheduled, event });
    }

    /// Adds to the hash of everything that happened.
    pub(crate) fn note(&mut self, what: &[u64]) {
        for word in what {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start { worker } => self.start(worker),
            Event::Arrive { worker, life, call, request } => self.arrive(worker, life, call, request),
            Event::AtBroker { connection, packet } => self.at_broker(connection, packet),
            Event::Publish => {
                self.published += 1;
                self.broker.publish(self.published);
                self.pump_broker();
            }
            Event::Strike(nth) => self.strike(self.knobs.schedule[nth].1),
            Event::Heal => self.heal(),
            Event::Check => self.at(self.now + S, Event::Check),
            Event::Tick { worker, life, .. }
            | Event::Resume { worker, life }
            | Event::Answered { worker, life, .. }
            | Event::GivenUp { worker, life, .. }
            | Event::FromBroker { worker, life, .. }
            | Event::SourceTimer { worker, life, .. }
            | Event::Hint { worker, life } => {
                if self.workers[worker].life == life && self.workers[worker].member.is_some() {
                    self.at_worker(worker, event);
                }
            }
        }
    }

    fn start(&mut self, worker: usize) {
        if self.workers[worker].member.is_some() {
            return;
        }
        self.note(&[1, self.now, worker as u64]);
        let now = self.now;
        self.workers[worker].start(worker, now, &self.knobs, &mut self.rng);
        self.feed(worker, member::Event::Tick);
        self.go_on(worker);
    }

    // Requests and answers.

    fn latency(&mut self) -> u64 {
        if self.healed_at.is_none() && self.rng.chance(self.knobs.tails) {
            return self.rng.between(MS, self.knobs.tail);
        }
        self.rng.between(MS, self.knobs.latency)
    }

    /// Sends a request; its answer comes back as an event, or it is given up after `timeout`.
    pub(crate) fn call(&mut self, worker: usize, link: Link, awaited: Awaited, request: Request, timeout: u64) {
        self.calls += 1;
        let (call, life) = (self.calls, self.workers[worker].life);
        self.workers[worker].calls.insert(call, awaited);
        self.at(self.now + timeout, Event::GivenUp { worker, life, call });
        let lost = self.healed_at.is_none() && self.rng.chance(self.knobs.lost_requests);
        if lost || self.workers[worker].cut(self.now, link, Way::Out).is_some() {
            return;
        }
        let at = self.now + self.latency();
        self.at(at, Event::Arrive { worker, life, call, request });
    }

    fn arrive(&mut self, worker: usize, life: u64, call: u64, request: Request) {
        let waits = self.workers[worker].life == life && self.workers[worker].calls.contains_key(&call);
        if !waits {
            self.seen.note(Sight::AppliedAfterGivenUp);
        }
        let link = if matches!(request, Request::Send(_)) { Link::Queue } else { Link::Store };
        let throttled =
            link == Link::Store && (self.now < self.throttled_until || self.healed_at.is_none() && self.rng.chance(self.knobs.throttled));
        let reply = if throttled { refusal(&request) } else { self.carry_out(&request) };
        let Some(reply) = reply else { return };
        self.note(&[2, self.now, worker as u64, call]);
        let lost = self.healed_at.is_none() && self.rng.chance(self.knobs.lost_answers);
        if lost || self.workers[worker].cut(self.now, link, Way::Back).is_some() {
            return;
        }
        let at = self.now + self.latency();
        self.at(at, Event::Answered { worker, life, call, reply });
    }

    fn carry_out(&mut self, request: &Request) -> Option<Reply> {
        let done = match request {
            Request::LeaseRead => Ok(Reply::LeaseRead(Ok(self.stores.read_lease()))),
            Request::LeaseWrite(write) => {
                self.stores.write_lease(self.now, write, &mut self.seen).map(|answer| Reply::LeaseWritten(Outcome::Done(answer)))
            }
            Request::Log { call, doubted } => self.stores.call(call, *doubted, &mut self.seen).map(Reply::Log),
            Request::Send(entries) => Ok(Reply::Sent(self.take_batch(entries))),
            Request::Park(letter) => {
                self.stores.park(letter);
                self.seen.note(Sight::Parked);
                Ok(Reply::Parked(Outcome::Done(())))
            }
        };
        done.map_err(|violation| self.fail(violation)).ok()
    }

    fn take_batch(&mut self, entries: &[Arc<Entry>]) -> Vec<Outcome<()>> {
        let mut outcomes = Vec::with_capacity(entries.len());
        for entry in entries {
            let number = crate::store::number_of(entry);
            let poison = self.knobs.poison_every > 0 && number.is_multiple_of(self.knobs.poison_every);
            outcomes.push(if poison {
                Outcome::NotDone(CallFault::new(FaultCode::InvalidPayload, "poison"))
            } else if self.healed_at.is_none() && self.rng.chance(self.knobs.refused) {
                Outcome::NotDone(CallFault::new(FaultCode::Throttled, "not now"))
            } else {
                if self.queue.take(entry) {
                    self.seen.note(Sight::EntrySentAgain);
                }
                Outcome::Done(())
            });
        }
        let taken = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(()))).count();
        if taken > 0 && taken < entries.len() {
            self.seen.note(Sight::PartialBatch);
        }
        outcomes
    }

    // Connections.

    /// Opens a connection from a worker.
    pub(crate) fn connect(&mut self, worker: usize) -> ConnectionId {
        self.calls += 1;
        let connection = ConnectionId(self.calls);
        let life = self.workers[worker].life;
        self.wires.insert(connection, Wire { worker, life, last_out: 0, last_back: 0, broken: false });
        self.send_out(connection, Packet::Connect);
        connection
    }

    /// Sends a packet to the broker.
    pub(crate) fn send_out(&mut self, connection: ConnectionId, packet: Packet) {
        if let Some(at) = self.on_wire(connection, true) {
            self.at(at, Event::AtBroker { connection, packet });
        }
    }

    fn send_back(&mut self, connection: ConnectionId, packet: Packet) {
        if let Some(at) = self.on_wire(connection, false) {
            let Wire { worker, life, .. } = self.wires[&connection];
            self.at(at, Event::FromBroker { worker, life, connection, packet });
        }
    }

    /// When a packet that is sent now arrives, if it does.
    fn on_wire(&mut self, connection: ConnectionId, out: bool) -> Option<u64> {
        let latency = self.latency().min(self.knobs.keep_alive / 2);
        let wire = *self.wires.get(&connection)?;
        if wire.broken {
            return None;
        }
        let held = self.workers[wire.worker].cut(self.now, Link::Broker, Way::Both);
        if held.is_some_and(|until| until - self.now > self.knobs.keep_alive) {
            self.break_wire(connection);
            return None;
        }
        let last = if out { wire.last_out } else { wire.last_back };
        let at = (held.unwrap_or(self.now) + latency).max(last);
        let wire = self.wires.get_mut(&connection)?;
        if out {
            wire.last_out = at
        } else {
            wire.last_back = at
        }
        Some(at)
    }

    /// Nothing passes any more; both ends notice by their keep-alive.
    fn break_wire(&mut self, connection: ConnectionId) {
        let keep_alive = self.knobs.keep_alive;
        let Some(wire) = self.wires.get_mut(&connection).filter(|wire| !wire.broken) else { return };
        wire.broken = true;
        let (worker, life) = (wire.worker, wire.life);
        let noticed = self.now + self.rng.between(keep_alive / 2, keep_alive * 3 / 2);
        self.at(noticed, Event::FromBroker { worker, life, connection, packet: Packet::End });
        self.at(self.now + keep_alive * 3 / 2, Event::AtBroker { connection, packet: Packet::End });
    }

    fn at_broker(&mut self, connection: ConnectionId, packet: Packet) {
        self.note(&[3, self.now, connection.0]);
        match packet {
            Packet::Connect => {
                if let Some(older) = self.broker.connect(connection) {
                    self.seen.note(Sight::SessionTakenOver);
                    self.send_back(older, Packet::End);
                }
                self.send_back(connection, Packet::Connect);
            }
            Packet::Subscribe => {
                if self.broker.connection() == Some(connection) {
                    self.send_back(connection, Packet::Subscribe);
                }
            }
            Packet::Message(message) => {
                if self.broker.acknowledge(connection, message) && !self.stores.was_stored(message) {
                    self.fail(format!("S1: message {message} is acknowledged and not durable"));
                }
            }
            Packet::End => self.broker.disconnect(connection),
        }
        self.pump_broker();
    }

    fn pump_broker(&mut self) {
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

    // Faults.

    fn whom(&self, whom: Whom) -> Option<usize> {
        match whom {
            Whom::Nth(nth) => Some(nth),
            Whom::Owner => (0..self.workers.len()).find(|nth| self.workers[*nth].may_act(self.now)),
        }
    }

    fn strike(&mut self, fault: Fault) {
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
            Fault::Restore => {
                for worker in 0..self.workers.len() {
                    let down = self.rng.between(MS, self.knobs.ttl());
                    self.crash(worker, Some(down), false);
                }
                let back = self.rng.between(0, 4);
                self.stores.restore_lease(self.now, back);
            }
        }
    }

    fn cut(&mut self, worker: usize, link: Link, way: Way, span: u64) {
        let way = if link == Link::Broker { Way::Both } else { way };
        self.workers[worker].cuts.push((link, way, self.now + span));
        if link == Link::Broker && span > self.knobs.keep_alive {
            let wires: Vec<ConnectionId> =
                self.wires.iter().filter(|(_, wire)| wire.worker == worker && !wire.broken).map(|(id, _)| *id).collect();
            for connection in wires {
                self.break_wire(connection);
            }
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
            self.break_wire(connection);
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

    fn heal(&mut self) {
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

    // What must hold.

    fn check_belief(&mut self) {
        let acting: Vec<usize> = (0..self.workers.len()).filter(|nth| self.workers[*nth].may_act(self.now)).collect();
        if acting.len() > 1 && !self.knobs.lawless {
            self.fail(format!("S4: {acting:?} may act at once"));
        }
    }

    /// Within which time after the faults ended everything has to be in order.
    #[must_use]
    pub fn convergence_bound(&self) -> u64 {
        let budget = self.knobs.terms().sum().expect("a budget that adds up");
        let nanos = |span: core::time::Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        // A paused owner wakes up, or a step-down under way ends; then somebody takes over; then the slowest retry of each kind; then the backlog, a
        // segment or a batch at a time.
        let step_down = nanos(DRAIN_TIMEOUT).max(self.knobs.cadence.step_down_grace.unsigned_abs())
            + 5 * S
            + 2 * self.knobs.cadence.renew_call_timeout.unsigned_abs();
        let out = nanos(hold_off(&self.knobs)).max(nanos(broker_hold_off(&self.knobs)));
        let retries = 5 * S + 32 * S + nanos(SEND_BACKOFF) + 2 * (SOURCE_BACKOFF + CONNECT_TIMEOUT);
        let backlog = (self.knobs.messages + 5) * 6 * self.knobs.latency;
        let all = step_down + out + budget.owner_death.unsigned_abs() + budget.broker_path.unwrap_or(0).unsigned_abs() + retries + backlog;
        // By the slowest clock.
        all + all / 1_000_000 * (2 * self.knobs.rate_ppm)
    }

    fn has_converged(&mut self) -> bool {
        let Some(healed_at) = self.healed_at else { return false };
        self.check_that_the_stopped_are_gone(healed_at);
        let all_published = self.published == self.knobs.messages + 5;
        let missing: Vec<u64> = (1..=self.published)
            .filter(|message| !self.queue.has(*message) && !self.stores.has_letter(*message) && !self.broker.forgotten().contains(message))
            .collect();
        let unsettled = self.stores.unsettled();
        let owners = (0..self.workers.len()).filter(|nth| self.workers[*nth].may_act(self.now)).count();
        if all_published && missing.is_empty() && unsettled.is_empty() && self.broker.waiting() == 0 && owners == 1 && !self.anybody_stops()
        {
            return true;
        }
        if self.now > healed_at + self.convergence_bound() {
            let lost = missing.iter().filter(|message| self.stores.was_stored(**message) && !unsettled.contains(message)).count();
            let parts: Vec<String> = self.workers.iter().map(|worker| format!("{:?}", worker.part)).collect();
            self.fail(format!(
                "L2: not converged: {} messages missing, {lost} of them lost; {} at the broker, {} unsettled, {owners} owners, parts {parts:?}",
                missing.len(),
                self.broker.waiting(),
                unsettled.len()
            ));
        }
        false
    }

    fn anybody_stops(&self) -> bool {
        self.workers.iter().any(|worker| worker.member.is_some() && worker.told_to_stop == worker.life)
    }

    /// A worker that was told to stop ends, whatever happened to it meanwhile.
    fn check_that_the_stopped_are_gone(&mut self, healed_at: u64) {
        let call = self.knobs.cadence.renew_call_timeout.unsigned_abs();
        // The drain, the close of the source, the call under way, the release, and the same again by the slowest clock.
        let bound = 2 * (u64::try_from(DRAIN_TIMEOUT.as_nanos()).unwrap_or(u64::MAX) + 5 * S + 4 * call.max(2 * S));
        if self.now < healed_at + bound {
            return;
        }
        let stays = self
            .workers
            .iter()
            .find(|worker| worker.member.is_some() && worker.told_to_stop == worker.life)
            .map(|worker| worker.part.clone());
        if let Some(part) = stays {
            self.fail(format!("L3: a worker that was told to stop is still there, as {part:?}"));
        }
    }

    /// The connection's end reached an owner.
    pub(crate) fn broker_loss_noticed(&mut self) {
        if self.watch.waits_for_loss && self.watch.from.is_none() {
            self.watch.from = Some(self.now);
        }
    }

    /// An owner is connected and subscribed.
    pub(crate) fn full_service(&mut self, worker: usize) {
        if let (Some(from), Some(version)) = (self.watch.from, self.workers[worker].held)
            && version > self.watch.version
        {
            self.watch.took.get_or_insert(self.now - from);
        }
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

/// The answer of a store that refuses.
fn refusal(request: &Request) -> Option<Reply> {
    let fault = CallFault::new(FaultCode::Throttled, "too many requests");
    Some(match request {
        Request::LeaseRead => Reply::LeaseRead(Err(fault)),
        Request::LeaseWrite(_) => Reply::LeaseWritten(Outcome::NotDone(fault)),
        Request::Log { call, .. } => Reply::Log(failed(call, fault, false)),
        Request::Send(entries) => Reply::Sent(vec![Outcome::NotDone(fault); entries.len()]),
        Request::Park(_) => Reply::Parked(Outcome::NotDone(fault)),
    })
}

/// The answer to a call to the log that failed, or whose outcome nobody knows.
pub(crate) fn failed(call: &Call, fault: CallFault, unknown: bool) -> Answer {
    fn outcome<T>(fault: CallFault, unknown: bool) -> Outcome<T> {
        if unknown { Outcome::Unknown(fault) } else { Outcome::NotDone(fault) }
    }
    match call {
        Call::ReadTail => Answer::Tail(Err(fault)),
        Call::ReadHead => Answer::Head(Err(fault)),
        Call::ReadRecord => Answer::Record(Err(fault)),
        Call::Register { .. } => Answer::Registered(outcome(fault, unknown)),
        Call::MoveMail { .. } => Answer::Moved(outcome(fault, unknown)),
        Call::Put { .. } => Answer::Put(outcome(fault, unknown)),
        Call::ReadPage { purpose, .. } => Answer::Page { purpose: *purpose, page: Err(fault) },
        Call::PutHead { .. } => Answer::HeadPut(outcome(fault, unknown)),
        Call::Delete { .. } => Answer::Deleted(outcome(fault, unknown)),
    }
}
