//! The world: owners, requests on their way, answers on their way back, a source, posters, a destination, and a scheduler that plays against them.

mod effects;
mod healing;
mod requests;

use crate::check::{Ledger, Seen};
use crate::dice::Dice;
use crate::knobs::{Knobs, ROUTES, TOPICS, options};
use crate::mutant::{Memory, Mutant};
use crate::store::Store;
use bytes::Bytes;
use causeway_core::drain::{BatchId, ParkId};
use causeway_core::identity::{ConnectionEpoch, DeliveryId, EntryId, Epoch, Id128, LaneId, Slot};
use causeway_core::log::Call;
use causeway_core::log::parts::Assembly;
use causeway_core::mailbox::Mail;
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::{Event, Owner};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const MOST_OWNERS: usize = 8;
/// Reads of an empty mailbox after which nothing else will happen: more time than any pause.
const IDLE_READS: u32 = 5;
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
    epoch_given: Epoch,
    alive: bool,
    finished: bool,
    stopping: bool,
    source_open: bool,
    connection: ConnectionEpoch,
    ordinal: u64,
    outstanding: VecDeque<(u64, u64, &'static str)>,
    last_ack: Option<DeliveryId>,
    memory_bound: usize,
    anchors: BTreeMap<LaneId, Slot>,
    opened: bool,
    recovered: bool,
    batches: BTreeMap<BatchId, Vec<EntryId>>,
    parks: BTreeMap<ParkId, EntryId>,
    settled: BTreeSet<EntryId>,
    told: BTreeMap<LaneId, Memory>,
    /// The parts that left so far of the segment that is being put.
    leaving: BTreeMap<LaneId, Assembly>,
}

enum Kind {
    Call(LaneId, Call),
    ReadMail(usize),
    /// Only where moving mail does not delete it.
    DeleteMail(Vec<String>),
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
    posted: BTreeMap<u64, usize>,
    lanes: u32,
    /// How often the mailbox was read in vain since anything else was asked for.
    idle_reads: u32,
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

pub fn message_number(message: &Message) -> u64 {
    u64::from_be_bytes(message.payload[..].try_into().unwrap())
}

fn route_number(entry: &Entry) -> usize {
    entry.route.trim_start_matches('r').parse().unwrap()
}

pub fn key_of(entry: &Entry) -> (u64, usize) {
    (message_number(&entry.message), route_number(entry))
}

fn topic_of(number: u64) -> String {
    (number % TOPICS).to_string()
}

fn topic_number(entry: &Entry) -> u64 {
    entry.message.topic.parse().unwrap()
}

impl World {
    pub fn new(seed: u64, leased: bool, mutant: Mutant) -> Self {
        let mut dice = Dice::new(seed);
        let mut knobs = Knobs::draw(&mut dice);
        knobs.narrow(mutant);
        let lanes = if matches!(mutant, Mutant::None | Mutant::FewerLanes) { dice.pick(&[1, 1, 2, 3]) } else { 1 };
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
            posted: BTreeMap::new(),
            idle_reads: 0,
            lanes,
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
        } else if falls(knobs.posts) {
            self.post();
        } else if falls(knobs.withdrawals) {
            self.withdraw();
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
        let adopts = self.nodes.iter().any(|node| node.opened) && self.dice.chance(self.knobs.adopters);
        if self.dice.chance(self.knobs.resizes) {
            self.lanes = 1 + u32::try_from(self.dice.below(3)).unwrap();
        }
        let given = self.nodes.iter().map(|node| node.epoch_given).max().unwrap_or_default();
        let repeated = !self.nodes.is_empty() && self.dice.chance(self.knobs.repeats);
        self.seen.repeated_epochs += u64::from(repeated);
        self.start_with(if repeated { given } else { given.next() }, adopts);
    }

    fn start_with(&mut self, epoch_given: Epoch, adopts: bool) {
        let nth = self.nodes.len();
        let options = options(nth, self.leased.then_some(epoch_given), self.lanes, adopts, self.knobs.row_bytes, &mut self.dice);
        self.nodes.push(Node {
            memory_bound: options.memory_entries,
            owner: Owner::new(options),
            epoch: epoch_given,
            epoch_given,
            alive: true,
            finished: false,
            stopping: false,
            source_open: false,
            connection: ConnectionEpoch(1),
            ordinal: 0,
            outstanding: VecDeque::new(),
            last_ack: None,
            anchors: BTreeMap::new(),
            opened: false,
            recovered: false,
            batches: BTreeMap::new(),
            parks: BTreeMap::new(),
            settled: BTreeSet::new(),
            told: BTreeMap::new(),
            leaving: BTreeMap::new(),
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
        let message = Message { topic: topic_of(number), payload, qos: 1, ..Message::default() };
        self.event(node, Event::Delivered { delivery, receiver: receiver.into(), message });
    }

    /// Somebody who owns nothing leaves an entry in the mailbox.
    fn post(&mut self) {
        self.published += 1;
        let (number, route) = (self.published, self.dice.index(ROUTES.len()));
        let id = Id128((1 << 127) + u128::from(number));
        let payload = Bytes::copy_from_slice(&number.to_be_bytes());
        let entry = Arc::new(Entry {
            id,
            route: format!("r{route}").into(),
            binding: "b".into(),
            address: None,
            refusal: None,
            source: "mail".into(),
            received_at: self.wall(),
            expires_at: None,
            redrive: None,
            message: Message { topic: topic_of(number), payload, qos: 1, ..Message::default() },
        });
        let name = format!("{:04}", self.dice.below(10_000) * 1_000 + number % 1_000);
        if self.store.mail.contains_key(&name) {
            return;
        }
        self.ledger.posted(id, (number, route));
        self.posted.insert(number, route);
        self.store.mail.insert(name.clone(), Mail { id: name, posted_at: self.wall(), entry });
        if let (true, Some(node)) = (self.dice.chance(0.5), self.pick(|node| node.opened)) {
            self.event(node, Event::MailHint);
        }
    }

    /// Whoever posted takes it back, if it is still there.
    fn withdraw(&mut self) {
        let names: Vec<String> = self.store.mail.keys().cloned().collect();
        if names.is_empty() || self.mutant != Mutant::None {
            return;
        }
        let name = &names[self.dice.index(names.len())];
        if let Some(mail) = self.store.mail.remove(name) {
            self.ledger.withdrawn(key_of(&mail.entry));
        }
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
}
