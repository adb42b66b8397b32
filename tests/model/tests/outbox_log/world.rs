//! The world: owners, requests on their way, answers on their way back, a source, a destination, and a scheduler that plays against them.

use crate::check::{Known, Ledger, Seen};
use crate::dice::Dice;
use crate::knobs::{Knobs, ROUTES, options};
use crate::mutant::{Memory, Mutant};
use crate::store::Store;
use bytes::Bytes;
use causeway_core::drain::{BatchId, ParkId};
use causeway_core::identity::{ConnectionEpoch, DeliveryId, EntryId, Epoch, Id128, Position, Slot};
use causeway_core::log::{Answer, Call, PagePurpose, Put};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Row, unpack};
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::{Effect, End, Event, Observation, Owner};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const MOST_OWNERS: usize = 8;
/// Steps within which one owner alone has to bring everything to an end.
const HEALING_STEPS: usize = 20_000;

/// How a seed ended.
#[derive(Debug)]
pub struct Ended {
    pub violation: Option<String>,
    pub seen: Seen,
}

/// Plays one seed.
pub fn run(seed: u64, leased: bool, mutant: Mutant, trace: Option<&mut u64>) -> Ended {
    let mut world = World::new(seed, leased, mutant);
    world.tracing = trace.is_some();
    let ended = world.play();
    if let Some(trace) = trace {
        *trace = world.trace;
    }
    ended
}

struct Node {
    owner: Owner,
    epoch: Epoch,
    alive: bool,
    finished: bool,
    stopping: bool,
    source_open: bool,
    connection: ConnectionEpoch,
    ordinal: u64,
    outstanding: VecDeque<(u64, u64, &'static str)>,
    last_ack: Option<DeliveryId>,
    memory_bound: usize,
    anchor: Slot,
    recovered: bool,
    batches: BTreeMap<BatchId, Vec<EntryId>>,
    parks: BTreeMap<ParkId, EntryId>,
    settled: BTreeSet<EntryId>,
    told: Memory,
}

enum Kind {
    Call(Call),
    Send(BatchId, Vec<Arc<Entry>>),
    Park(ParkId, EntryId),
}

struct Request {
    node: usize,
    kind: Kind,
    not_before: usize,
    given_up: bool,
}

pub struct World {
    dice: Dice,
    knobs: Knobs,
    leased: bool,
    mutant: Mutant,
    step: usize,
    now: Instant,
    store: Store,
    nodes: Vec<Node>,
    requests: Vec<Request>,
    answers: Vec<(usize, Event, usize)>,
    undelivered: VecDeque<(u64, &'static str)>,
    published: u64,
    /// Segments whose put was answered with nothing.
    doubted: BTreeSet<Id128>,
    ledger: Ledger,
    seen: Seen,
    tracing: bool,
    trace: u64,
}

fn fault() -> Fault {
    Fault::new(FaultCode::Timeout, "")
}

fn message_number(message: &Message) -> u64 {
    u64::from_be_bytes(message.payload[..].try_into().unwrap())
}

fn route_number(entry: &Entry) -> usize {
    entry.route.trim_start_matches('r').parse().unwrap()
}

fn key_of(entry: &Entry) -> (u64, usize) {
    (message_number(&entry.message), route_number(entry))
}

impl World {
    pub fn new(seed: u64, leased: bool, mutant: Mutant) -> Self {
        let mut dice = Dice::new(seed);
        let knobs = Knobs::draw(&mut dice);
        Self {
            dice,
            knobs,
            leased,
            mutant,
            step: 0,
            now: Instant::from_nanos(1_000_000_000),
            store: Store::default(),
            nodes: Vec::new(),
            requests: Vec::new(),
            answers: Vec::new(),
            undelivered: VecDeque::new(),
            published: 0,
            doubted: BTreeSet::new(),
            ledger: Ledger::default(),
            seen: Seen::default(),
            tracing: false,
            trace: 0xCBF2_9CE4_8422_2325,
        }
    }

    /// Plays without faults: the first owner comes to rest before the last one takes over.
    pub fn play_calmly(&mut self) -> Ended {
        self.knobs.calm();
        self.play()
    }

    fn play(&mut self) -> Ended {
        self.start();
        for step in 0..self.knobs.steps {
            self.step = step;
            self.take_step();
            if self.ledger.violation.is_some() {
                break;
            }
        }
        if self.knobs.is_calm() {
            self.settle_down(0);
        }
        if self.ledger.violation.is_none() {
            self.heal();
        }
        self.seen.acknowledged = self.ledger.acknowledged.len() as u64;
        Ended { violation: self.ledger.violation.take(), seen: self.seen.clone() }
    }

    fn wall(&self) -> UnixMillis {
        UnixMillis(self.now.as_nanos() / 1_000_000)
    }

    fn take_step(&mut self) {
        self.now = self.now.plus(Duration::from_micros(self.dice.below(200)));
        let mut die = self.dice.fraction();
        let knobs = self.knobs.clone();
        let mut falls = |share: f64| {
            die -= share;
            die < 0.0
        };
        if falls(knobs.starts) {
            if self.nodes.len() < MOST_OWNERS {
                self.start();
            }
        } else if falls(knobs.crashes) {
            self.crash();
        } else if falls(knobs.stops) {
            self.stop();
        } else if falls(knobs.disconnects) {
            self.disconnect();
        } else if falls(knobs.publishes) {
            self.publish();
        } else if falls(knobs.times) {
            self.pass_time();
        } else if falls(knobs.give_ups) {
            self.give_up();
        } else if falls(knobs.refusals) {
            self.refuse();
        } else if falls(knobs.lost_requests) {
            self.lose_request();
        } else if self.dice.chance(0.5) {
            self.apply_one();
        } else {
            self.answer_one();
        }
    }

    fn start(&mut self) {
        let nth = self.nodes.len();
        let epoch = Epoch(nth as u64 + 1);
        let options = options(nth, self.leased.then_some(epoch), &mut self.dice);
        self.nodes.push(Node {
            memory_bound: options.memory_entries,
            owner: Owner::new(options),
            epoch,
            alive: true,
            finished: false,
            stopping: false,
            source_open: false,
            connection: ConnectionEpoch(1),
            ordinal: 0,
            outstanding: VecDeque::new(),
            last_ack: None,
            anchor: Slot(0),
            recovered: false,
            batches: BTreeMap::new(),
            parks: BTreeMap::new(),
            settled: BTreeSet::new(),
            told: Memory::default(),
        });
        self.event(nth, Event::Tick);
    }

    fn pick(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<usize> {
        let found: Vec<usize> =
            self.nodes.iter().enumerate().filter(|(_, node)| node.alive && wanted(node)).map(|(index, _)| index).collect();
        (!found.is_empty()).then(|| self.dice.pick(&found))
    }

    fn crash(&mut self) {
        if let Some(node) = self.pick(|_| true) {
            self.nodes[node].alive = false;
            self.answers.retain(|(of, _, _)| *of != node);
            self.give_back(node);
            self.seen.crashes += 1;
            if !self.nodes.iter().any(|node| node.alive && !node.finished) {
                self.start();
            }
        }
    }

    /// What the node's connection brought and was not seen acknowledged comes again, to whoever is connected then.
    fn give_back(&mut self, node: usize) {
        let again: Vec<_> = self.nodes[node].outstanding.drain(..).map(|(_, message, receiver)| (message, receiver)).collect();
        self.undelivered.extend(again);
    }

    fn stop(&mut self) {
        if let Some(node) = self.pick(|node| !node.stopping && !node.finished) {
            self.nodes[node].stopping = true;
            let drain_until = self.now.plus(Duration::from_millis(self.dice.below(2_000)));
            self.event(node, Event::Shutdown { drain_until });
            self.start_if_none();
        }
    }

    fn start_if_none(&mut self) {
        if !self.nodes.iter().any(|node| node.alive && !node.finished && !node.stopping) {
            self.start();
        }
    }

    fn disconnect(&mut self) {
        if let Some(node) = self.pick(|node| node.source_open) {
            let connection = self.nodes[node].connection;
            self.give_back(node);
            self.event(node, Event::Disconnected { connection });
            self.nodes[node].connection = ConnectionEpoch(connection.0 + 1);
            self.nodes[node].ordinal = 0;
        }
    }

    fn publish(&mut self) {
        if self.undelivered.is_empty() || self.dice.chance(0.5) {
            self.published += 1;
            let receiver = self.dice.pick(&["a", "b"]);
            self.undelivered.push_back((self.published, receiver));
        }
        for _ in 0..1 + self.dice.below(4) {
            let Some(node) = self.pick(|node| node.source_open && node.owner.wants_input()) else { return };
            let Some((message, receiver)) = self.undelivered.pop_front() else { return };
            self.deliver(node, message, receiver);
        }
    }

    fn deliver(&mut self, node: usize, number: u64, receiver: &'static str) {
        let to = &mut self.nodes[node];
        to.ordinal += 1;
        let delivery = DeliveryId { connection: to.connection, ordinal: to.ordinal };
        to.outstanding.push_back((to.ordinal, number, receiver));
        let payload = Bytes::copy_from_slice(&number.to_be_bytes());
        let message = Message { topic: "t".to_owned(), payload, qos: 1, ..Message::default() };
        self.event(node, Event::Delivered { delivery, receiver: receiver.into(), message });
    }

    fn pass_time(&mut self) {
        let next = self.nodes.iter().filter(|node| node.alive && !node.finished).filter_map(|node| node.owner.wake_at(self.now)).min();
        self.now = match (next, self.dice.chance(0.7)) {
            (Some(next), true) => next.max(self.now),
            _ => self.now.plus(Duration::from_millis(self.dice.below(300))),
        };
        for node in 0..self.nodes.len() {
            if self.nodes[node].alive && self.dice.chance(0.7) {
                self.event(node, Event::Tick);
            }
        }
    }

    fn request_index(&mut self, mut wanted: impl FnMut(&Request) -> bool) -> Option<usize> {
        let found: Vec<usize> = self.requests.iter().enumerate().filter(|(_, request)| wanted(request)).map(|(index, _)| index).collect();
        (!found.is_empty()).then(|| self.dice.pick(&found))
    }

    /// A caller has waited long enough; its request is still on its way.
    fn give_up(&mut self) {
        if let Some(index) = self.request_index(|request| !request.given_up) {
            self.requests[index].given_up = true;
            if self.dice.chance(0.4) {
                self.requests[index].not_before += self.dice.index(400);
            }
            let (node, event) = (self.requests[index].node, self.unanswered(index));
            self.answer(node, event);
        }
    }

    fn lose_request(&mut self) {
        if let Some(index) = self.request_index(|request| !request.given_up) {
            let event = self.unanswered(index);
            let request = self.requests.remove(index);
            self.answer(request.node, event);
        }
    }

    fn refuse(&mut self) {
        let Some(index) = self.request_index(|request| !request.given_up) else { return };
        let request = self.requests.remove(index);
        let event = match request.kind {
            Kind::Call(call) => Event::Log(match call {
                Call::ReadTail => Answer::Tail(Err(fault())),
                Call::ReadHead => Answer::Head(Err(fault())),
                Call::Register { .. } => Answer::Registered(Outcome::NotDone(fault())),
                Call::Put { .. } => Answer::Put(Outcome::NotDone(fault())),
                Call::ReadPage { purpose, .. } => Answer::Page { purpose, page: Err(fault()) },
                Call::PutHead { .. } => Answer::HeadPut(Outcome::NotDone(fault())),
                Call::Delete { .. } => Answer::Deleted(Outcome::NotDone(fault())),
            }),
            Kind::Send(batch, entries) => Event::Sent { batch, outcomes: vec![Outcome::NotDone(fault()); entries.len()] },
            Kind::Park(park, _) => Event::Parked { park, outcome: Outcome::NotDone(fault()) },
        };
        self.answer(request.node, event);
    }

    /// The event of a request that nobody will answer.
    fn unanswered(&mut self, index: usize) -> Event {
        match &self.requests[index].kind {
            Kind::Call(call) => Event::Log(match call {
                Call::ReadTail => Answer::Tail(Err(fault())),
                Call::ReadHead => Answer::Head(Err(fault())),
                Call::Register { .. } => Answer::Registered(Outcome::Unknown(fault())),
                Call::Put { row, .. } => {
                    if matches!(row.as_ref(), Row::Segment(_)) {
                        self.doubted.insert(row.id());
                    }
                    Answer::Put(Outcome::Unknown(fault()))
                }
                Call::ReadPage { purpose, .. } => Answer::Page { purpose: *purpose, page: Err(fault()) },
                Call::PutHead { .. } => Answer::HeadPut(Outcome::Unknown(fault())),
                Call::Delete { .. } => Answer::Deleted(Outcome::Unknown(fault())),
            }),
            Kind::Send(batch, entries) => Event::Sent { batch: *batch, outcomes: vec![Outcome::Unknown(fault()); entries.len()] },
            Kind::Park(park, _) => Event::Parked { park: *park, outcome: Outcome::Unknown(fault()) },
        }
    }

    fn apply_one(&mut self) {
        let step = self.step;
        if let Some(index) = self.request_index(|request| request.not_before <= step) {
            self.apply(index);
        }
    }

    fn apply(&mut self, index: usize) {
        let lost = !self.requests[index].given_up && self.dice.chance(self.knobs.lost_answers);
        let unanswered = lost.then(|| self.unanswered(index));
        let request = self.requests.remove(index);
        let (node, given_up) = (request.node, request.given_up);
        let event = match request.kind {
            Kind::Call(call) => Event::Log(self.call(node, call, given_up)),
            Kind::Send(batch, entries) => Event::Sent { batch, outcomes: entries.iter().map(|entry| self.destination(entry)).collect() },
            Kind::Park(park, entry) => Event::Parked { park, outcome: self.bury(entry) },
        };
        if !given_up {
            self.answer(node, unanswered.unwrap_or(event));
        }
    }

    fn answer(&mut self, node: usize, event: Event) {
        if self.nodes[node].alive {
            let delay = if self.dice.chance(self.knobs.laggards) { self.dice.index(150) } else { self.dice.index(6) };
            self.answers.push((node, event, self.step + delay));
        }
    }

    fn answer_one(&mut self) {
        let due: Vec<usize> = self.answers.iter().enumerate().filter(|(_, (_, _, at))| *at <= self.step).map(|(index, _)| index).collect();
        if !due.is_empty() {
            let index = self.dice.pick(&due);
            let (node, event, _) = self.answers.remove(index);
            self.event(node, event);
        }
    }

    fn destination(&mut self, entry: &Entry) -> Outcome<()> {
        let die = self.dice.fraction();
        let knobs = &self.knobs;
        if die < knobs.send_rejections {
            return Outcome::NotDone(Fault::new(FaultCode::InvalidPayload, ""));
        }
        if die < knobs.send_rejections + knobs.send_refusals {
            return Outcome::NotDone(fault());
        }
        let unknown = die < knobs.send_rejections + knobs.send_refusals + knobs.send_unknowns;
        if !(unknown && self.dice.chance(0.5)) {
            self.ledger.went(key_of(entry));
        }
        if unknown { Outcome::Unknown(fault()) } else { Outcome::Done(()) }
    }

    fn bury(&mut self, entry: EntryId) -> Outcome<()> {
        if let Some(known) = self.ledger.contents.values().flatten().find(|known| known.id == entry).copied() {
            self.ledger.went(known.key);
        }
        self.seen.dead_letters += 1;
        Outcome::Done(())
    }

    fn call(&mut self, node: usize, call: Call, given_up: bool) -> Answer {
        match call {
            Call::ReadTail => {
                let tail = self.store.tail_meta();
                if let Some((slot, Row::Anchor(anchor))) = self.store.rows.last_key_value()
                    && anchor.owner == format!("n{node}")
                    && !given_up
                {
                    self.ledger.confirmed.insert(anchor.epoch, *slot);
                }
                Answer::Tail(Ok(self.mutant.told(tail)))
            }
            Call::ReadHead => Answer::Head(Ok(self.store.head.clone())),
            Call::Register { .. } => Answer::Registered(Outcome::Done(true)),
            Call::Put { slot, row } => Answer::Put(Outcome::Done(self.put(slot, &row, given_up))),
            Call::ReadPage { purpose, after, up_to } => {
                Answer::Page { purpose, page: Ok(self.store.page(after, up_to, self.knobs.page_rows)) }
            }
            Call::PutHead { head } => {
                self.seen.heads_with_ranges += u64::from(!head.settled_ahead.is_empty());
                let written = self.store.put_head(&head);
                self.seen.refused_heads += u64::from(!written);
                self.mutant.tidied(&mut self.store, self.nodes[node].epoch);
                self.ledger.store_changed(&self.store);
                Answer::HeadPut(Outcome::Done(written))
            }
            Call::Delete { slots } => {
                for slot in slots {
                    self.store.rows.remove(&slot);
                }
                self.mutant.tidied(&mut self.store, self.nodes[node].epoch);
                self.ledger.store_changed(&self.store);
                Answer::Deleted(Outcome::Done(()))
            }
        }
    }

    fn put(&mut self, slot: Slot, row: &Row, given_up: bool) -> Put {
        let head = self.store.effective_head();
        let had_landed = self.store.rows.get(&slot).is_some_and(|standing| standing.id() == row.id());
        let put = self.store.put(slot, row, self.mutant == Mutant::NoSlotCondition);
        let segment = matches!(row, Row::Segment(_));
        match &put {
            Put::Stored if !had_landed => {
                self.seen.puts_landed_late += u64::from(given_up);
                self.seen.rows_raised_from_the_dead += u64::from(slot <= head);
                if segment {
                    self.ledger.accepted(row.epoch(), slot, head);
                }
            }
            Put::Stored => {}
            Put::Occupied(meta) if segment => self.seen.refused_stale_writes += u64::from(meta.id != row.id()),
            Put::Occupied(_) => self.seen.anchor_conflicts += 1,
        }
        if segment && !given_up && self.doubted.remove(&row.id()) && put == Put::Stored {
            if had_landed {
                self.seen.unknown_puts_that_had_landed += 1;
            } else {
                self.seen.unknown_puts_that_had_not_landed += 1;
            }
        }
        self.ledger.store_changed(&self.store);
        put
    }

    fn event(&mut self, node: usize, event: Event) {
        self.remember(node, &event);
        let wall = self.wall();
        if self.tracing {
            self.mix(&format!("{node} {event:?}"));
        }
        let to = &mut self.nodes[node];
        let was_finished = to.finished;
        let effects = to.owner.apply(self.now, wall, event);
        let status = to.owner.status(wall);
        let bound = to.memory_bound;
        if self.tracing {
            self.mix(&format!("{effects:?}"));
        }
        self.ledger.ensure(!was_finished || effects.is_empty(), || format!("n{node} did something after its end: {effects:?}"));
        for (route, status) in status.routes.iter().enumerate() {
            self.ledger.ensure(status.imbalance() == 0, || format!("n{node}, route {route}: unbalanced: {status:?}"));
        }
        self.ledger.memory(status.in_memory, bound);
        self.nodes[node].epoch = status.epoch;
        for effect in effects {
            let after = self.nodes[node].finished;
            self.ledger.ensure(!after, || format!("n{node}: an effect follows the end: {effect:?}"));
            self.carry_out(node, effect);
        }
    }

    fn mix(&mut self, text: &str) {
        for byte in text.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    /// What the node learns now: for lies, and for rules that need to know what it settled.
    fn remember(&mut self, node: usize, event: &Event) {
        let told = &mut self.nodes[node].told;
        match event {
            Event::Log(Answer::Tail(Ok(tail))) => told.drained = tail.map_or(Slot(0), |meta| meta.drained),
            Event::Log(Answer::Put(Outcome::Done(Put::Occupied(meta)))) => {
                told.conflict = Some(*meta);
                told.own_anchor = None;
            }
            _ => {}
        }
        let of = &mut self.nodes[node];
        match event {
            Event::Sent { batch, outcomes } => {
                let entries = of.batches.remove(batch).unwrap_or_default();
                let done = entries.into_iter().zip(outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Done(())));
                of.settled.extend(done.map(|(entry, _)| entry));
            }
            Event::Parked { park, outcome: Outcome::Done(()) } => of.settled.extend(of.parks.remove(park)),
            _ => return,
        }
        let contents = &self.ledger.contents;
        let entries_of = |row: Id128| contents.get(&row).map(|known| known.iter().map(|known| known.id).collect()).unwrap_or_default();
        if self.mutant.settled(&mut self.store, &of.settled, entries_of) {
            self.ledger.store_changed(&self.store);
        }
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Log(call) => self.issue(node, call),
            Effect::Acknowledge(delivery) => self.acknowledged(node, delivery),
            Effect::Send { batch, entries, .. } => {
                for entry in &entries {
                    let again = self.ledger.sends(entry.id, route_number(entry));
                    self.seen.repeated_sends += u64::from(again);
                }
                self.nodes[node].batches.insert(batch, entries.iter().map(|entry| entry.id).collect());
                self.request(node, Kind::Send(batch, entries));
            }
            Effect::Park { park, letter } => {
                self.nodes[node].parks.insert(park, letter.id);
                self.request(node, Kind::Park(park, letter.id));
            }
            Effect::CloseSource => {
                self.nodes[node].source_open = false;
                self.give_back(node);
            }
            Effect::Observe(Observation::Opened { .. }) => {
                self.nodes[node].source_open = true;
                self.nodes[node].anchor = self.nodes[node].owner.status(UnixMillis(0)).tail;
            }
            Effect::Observe(Observation::Recovered { entries }) => {
                self.nodes[node].recovered = true;
                self.seen.takeovers += u64::from(entries > 0);
            }
            Effect::Observe(_) => {}
            Effect::Finished(end) => {
                self.nodes[node].finished = true;
                match end {
                    End::Stopped { .. } => self.seen.stops += 1,
                    End::Ended(_) => self.seen.fenced_owners += 1,
                    End::Unreadable(fault) => self.ledger.violated(|| format!("n{node} cannot read the log: {fault}")),
                }
                self.start_if_none();
            }
        }
    }

    fn issue(&mut self, node: usize, call: Call) {
        match &call {
            Call::Put { slot, row } => self.put_leaves(node, *slot, row),
            // Where the world itself deletes what it must not, only the consequences count.
            Call::Delete { slots } if self.mutant == Mutant::None => slots.iter().for_each(|slot| self.ledger.deletes(&self.store, *slot)),
            Call::ReadPage { purpose: PagePurpose::Load, after, .. } => {
                self.seen.read_backs += u64::from(*after >= self.nodes[node].anchor && self.nodes[node].anchor > Slot(0));
            }
            Call::ReadTail => {
                let lie = self.mutant.tail_lie(&mut self.nodes[node].told);
                if let Some(meta) = lie {
                    return self.answer(node, Event::Log(Answer::Tail(Ok(Some(meta)))));
                }
            }
            Call::ReadPage { .. } | Call::ReadHead | Call::Register { .. } | Call::PutHead { .. } | Call::Delete { .. } => {}
        }
        self.request(node, Kind::Call(call));
    }

    fn put_leaves(&mut self, node: usize, slot: Slot, row: &Row) {
        let Row::Segment(segment) = row else {
            self.nodes[node].told.own_anchor = Some(row.meta(slot));
            return;
        };
        if self.ledger.contents.contains_key(&row.id()) {
            return;
        }
        let entries = unpack(segment).unwrap();
        for (index, entry) in (0_u32..).zip(&entries) {
            self.ledger.position.insert(entry.id, Position { slot, index });
        }
        self.ledger.contents.insert(row.id(), entries.iter().map(|entry| Known { id: entry.id, key: key_of(entry) }).collect());
        if self.mutant == Mutant::AckBeforeStored {
            let numbers: BTreeSet<u64> = entries.iter().map(|entry| message_number(&entry.message)).collect();
            let outstanding = &mut self.nodes[node].outstanding;
            for (_, number, receiver) in outstanding.iter().filter(|(_, number, _)| numbers.contains(number)) {
                self.ledger.acknowledge(*number, receiver);
            }
            outstanding.retain(|(_, number, _)| !numbers.contains(number));
        }
    }

    fn request(&mut self, node: usize, kind: Kind) {
        let anchor = matches!(&kind, Kind::Call(Call::Put { row, .. }) if matches!(row.as_ref(), Row::Anchor(_)));
        let laggards = if anchor { self.knobs.lagging_anchors } else { self.knobs.laggards };
        let delay = if self.dice.chance(laggards) { self.dice.index(150) } else { self.dice.index(6) };
        self.requests.push(Request { node, kind, not_before: self.step + delay, given_up: false });
    }

    fn acknowledged(&mut self, node: usize, delivery: DeliveryId) {
        let from = &mut self.nodes[node];
        let ascends = from.last_ack.is_none_or(|last| last < delivery);
        from.last_ack = Some(delivery);
        // An acknowledgement never crosses to another connection, and a source that was closed at the deadline of a stop takes none.
        if from.source_open && delivery.connection == from.connection {
            while let Some((_, message, receiver)) = from.outstanding.pop_front_if(|(ordinal, _, _)| *ordinal <= delivery.ordinal) {
                self.ledger.acknowledge(message, receiver);
            }
        }
        self.ledger.ensure(ascends, || format!("n{node}: acknowledgements descend to {delivery:?}"));
        self.ledger.nothing_lost(&self.store);
    }

    /// Everything that is still on its way lands; then one new owner, alone and without faults, has to bring everything to an end.
    fn heal(&mut self) {
        self.knobs.calm();
        for node in 0..self.nodes.len() {
            self.seen.returned +=
                self.nodes[node].owner.status(UnixMillis(0)).routes.iter().map(|route| route.counters.returned).sum::<u64>();
            self.nodes[node].alive = false;
            self.give_back(node);
        }
        self.answers.clear();
        while !self.requests.is_empty() && self.ledger.violation.is_none() {
            let index = self.dice.index(self.requests.len());
            self.apply(index);
        }
        self.ledger.nothing_lost(&self.store);
        self.start();
        let last = self.nodes.len() - 1;
        self.settle_down(last);
        while let Some((message, receiver)) = self.undelivered.pop_front() {
            self.settle_while(last, |world| !world.nodes[last].owner.wants_input());
            self.deliver(last, message, receiver);
        }
        self.settle_down(last);
        self.check_healed(last);
        let drain_until = self.now.plus(Duration::from_secs(60));
        self.event(last, Event::Shutdown { drain_until });
        self.settle_down(last);
        let node = &self.nodes[last];
        let (finished, clean) = (node.finished, node.owner.exposed() == 0 && node.owner.status(UnixMillis(0)).in_memory == 0);
        self.ledger.ensure(finished && clean, || "the last owner does not end cleanly".to_owned());
    }

    fn check_healed(&mut self, last: usize) {
        let recovered = self.nodes[last].recovered;
        self.ledger.ensure(recovered, || "the last owner never recovered the log".to_owned());
        let left = self.ledger.recoverable(&self.store);
        self.ledger.ensure(left.is_empty(), || format!("still in the log: {left:?}"));
        let (tail, head) = (self.store.tail(), self.store.effective_head());
        self.ledger.ensure(tail == head, || format!("the head stands at {head}, the tail at {tail}"));
        let garbage = self.store.rows.iter().filter(|(slot, row)| matches!(row, Row::Segment(_)) && **slot < tail).count();
        self.ledger.ensure(garbage == 0, || format!("{garbage} settled segments were not deleted"));
        let missing: BTreeMap<u64, &'static str> = (1..=self.published)
            .filter_map(|number| Some((number, *self.ledger.acknowledged.get(&number)?)))
            .filter(|(number, receiver)| {
                (0..ROUTES.len()).any(|route| ROUTES[route] == *receiver && !self.ledger.gone.contains(&(*number, route)))
            })
            .collect();
        self.ledger.ensure(missing.is_empty(), || format!("never arrived: {missing:?}"));
        let (promised, published) = (self.ledger.acknowledged.len() as u64, self.published);
        self.ledger.ensure(promised == published, || format!("{published} published, {promised} acknowledged"));
    }

    fn settle_down(&mut self, last: usize) {
        self.settle_while(last, |_| true);
    }

    /// Steps without faults while `wanted` holds and something can still happen.
    fn settle_while(&mut self, last: usize, wanted: impl Fn(&Self) -> bool) {
        for _ in 0..HEALING_STEPS {
            if !wanted(self) || self.ledger.violation.is_some() {
                return;
            }
            self.step += 200;
            if !self.requests.is_empty() {
                let index = self.dice.index(self.requests.len());
                self.apply(index);
            } else if !self.answers.is_empty() {
                self.answer_one();
            } else if let (false, Some(at)) = (self.nodes[last].finished, self.nodes[last].owner.wake_at(self.now)) {
                self.now = at;
                self.event(last, Event::Tick);
            } else {
                return;
            }
        }
        self.ledger.violated(|| format!("no end within {HEALING_STEPS} steps without faults"));
    }
}
