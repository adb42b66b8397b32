//! A world of one owner: a store that answers after a latency, a destination and a dead-letter store that answer as a test wants, and time that
//! jumps from one event to the next.

use causeway_core::dead_letter::{DeadLetter, Destination};
use causeway_core::drain::BatchLimits;
use causeway_core::drain::retry::Backoff;
use causeway_core::drops::DropOutcome;
use causeway_core::flow::quota::QuotaCall;
use causeway_core::hold::Order;
use causeway_core::identity::{ConnectionEpoch, DeliveryId, EntryId, Epoch, LaneId, Position, Slot};
use causeway_core::log::parts::Assembly;
use causeway_core::log::writer::SegmentOptions;
use causeway_core::log::{Answer, Call, Moved, Page, Put, Registration};
use causeway_core::mailbox::Mail;
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Head, Row, part, unpack};
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::options::{Delivery, Fate, LegOptions, OwnerOptions, Policy, to_first_legs};
use causeway_core::worker::{Effect, End, Event, Observation, Owner};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn at_ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

pub fn fault(code: FaultCode) -> Fault {
    Fault::new(code, "as the test wants")
}

pub fn message(text: &str) -> Message {
    Message { topic: "t".to_owned(), payload: bytes::Bytes::copy_from_slice(text.as_bytes()), qos: 1, ..Message::default() }
}

/// What a message of `message("…")` adds to a segment's bytes, as the core counts them.
pub fn entry_of(text: &str, id: u128) -> Arc<Entry> {
    Arc::new(Entry {
        id: causeway_core::identity::Id128(id),
        route: "r".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "in".into(),
        received_at: UnixMillis(0),
        expires_at: None,
        redrive: None,
        message: message(text),
    })
}

pub fn policy() -> Policy {
    Policy {
        max_in_flight: 100,
        max_replay_attempts: 0,
        replay_budget: Duration::ZERO,
        on_expired: Fate::DeadLetter,
        on_permanent_failure: Fate::DeadLetter,
        backoff: Backoff { initial: ms(100), max: ms(2_000), multiplier: 2.0, jitter: 0.2 },
        send_timeout: Duration::from_secs(10),
    }
}

pub fn route(id: &str, receiver: &str) -> LegOptions {
    LegOptions {
        route: id.into(),
        receiver: receiver.into(),
        destination: Destination {
            binding: "b".to_owned(),
            address: format!("sqs://{id}"),
            session: "s".to_owned(),
            ..Destination::default()
        },
        delivery: Delivery::Logged,
        depth: None,
        breaker: None,
        send_limits: Vec::new(),
        sender: Default::default(),
        pacing: None,
        policy: policy(),
        limits: BatchLimits { entries: 10, bytes: 262_144, entry_bytes: 200_000 },
        size_of: Arc::new(|entry| entry.message.payload.len() + 100),
        key_of: Arc::new(|_| None),
    }
}

/// Options of an owner named `nth`; each has ids of its own.
pub fn options(nth: u64) -> OwnerOptions {
    OwnerOptions {
        owner: format!("owner-{nth}"),
        dispatch: to_first_legs(&[route("r", "in")]),
        legs: vec![route("r", "in")],
        epoch: None,
        acknowledge: Order::OfArrival,
        limits: Vec::new(),
        ack_hold: None,
        quota: None,
        store: None,
        lanes: 1,
        mailbox_poll: None,
        retire_when_drained: false,
        segment: SegmentOptions::default(),
        send_linger: ms(10),
        max_settled_ahead: 5_000,
        keep_settled: ms(0),
        memory_entries: 2_000,
        memory_bytes: 16 * 1024 * 1024,
        entry_id_base: u128::from(nth) << 64,
        row_id_base: u128::from(nth) << 96,
        jitter_seed: nth,
    }
}

/// A log's rows: those of lane 0, with the other lanes, the registry's record, and the mailbox beside them.
#[derive(Clone, Debug, Default)]
pub struct Store {
    pub rows: BTreeMap<Slot, Row>,
    pub head: Option<Head>,
    pub page_rows: Option<usize>,
    pub others: BTreeMap<u32, Store>,
    pub record: Option<Registration>,
    pub mail: BTreeMap<String, Mail>,
}

impl Store {
    pub fn tail(&self) -> Slot {
        self.rows.last_key_value().map_or(Slot(0), |(slot, _)| *slot)
    }

    /// Every slot up to this one is settled, as the next owner will see it.
    pub fn effective_head(&self) -> Slot {
        let of_tail = self.rows.last_key_value().map_or(Slot(0), |(_, row)| row.drained());
        self.head.as_ref().map_or(of_tail, |head| of_tail.max(head.drained))
    }

    /// The entries that the next owner would take up.
    pub fn unsettled(&self) -> Vec<(Position, Entry)> {
        let head = self.effective_head();
        let ranges = self.head.as_ref().map(|head| head.settled_ahead.clone()).unwrap_or_default();
        let mut found = Vec::new();
        let mut assembly = Assembly::default();
        for (slot, row) in self.rows.range(head.next()..) {
            let Row::Segment(segment) = row else { continue };
            let (first, segment) = match part(segment).unwrap() {
                None => (*slot, segment.clone()),
                Some((part, piece)) => match assembly.add(*slot, segment, part, piece).whole {
                    Some(whole) => (whole.first, whole.segment),
                    None => continue,
                },
            };
            for (index, entry) in (0_u32..).zip(unpack(&segment).unwrap()) {
                let position = Position { slot: first, index };
                if !ranges.iter().any(|range| range.from <= position && position <= range.to) {
                    found.push((position, entry));
                }
            }
        }
        found
    }

    /// The log of a lane.
    pub fn lane(&self, lane: u32) -> &Self {
        if lane == 0 { self } else { &self.others[&lane] }
    }

    /// Whether the last row of a lane closes it for good.
    pub fn is_retired(&self, lane: u32) -> bool {
        matches!(self.lane(lane).rows.last_key_value(), Some((_, Row::Anchor(anchor))) if anchor.retired)
    }

    /// The entries that the next owner would take up from the registered lanes.
    pub fn unsettled_in_lanes(&self) -> Vec<(LaneId, Position, Entry)> {
        let lanes = self.record.map_or(1, |record| record.lanes);
        (0..lanes)
            .filter(|lane| *lane == 0 || self.others.contains_key(lane))
            .flat_map(|lane| self.lane(lane).unsettled().into_iter().map(move |(position, entry)| (LaneId(lane), position, entry)))
            .collect()
    }

    pub fn apply_in(&mut self, lane: LaneId, call: &Call) -> Answer {
        match call {
            Call::ReadRecord => Answer::Record(Ok(self.record)),
            Call::Register { record, replaces } => {
                let holds = self.record == *replaces;
                if holds {
                    self.record = Some(*record);
                }
                Answer::Registered(Outcome::Done(holds))
            }
            Call::MoveMail { slot, row, ids } => Answer::Moved(Outcome::Done(self.move_mail(lane, *slot, row, ids))),
            _ if lane.0 == 0 => self.apply(call),
            _ => {
                let page_rows = self.page_rows;
                self.others.entry(lane.0).or_insert_with(|| Self { page_rows, ..Self::default() }).apply(call)
            }
        }
    }

    fn move_mail(&mut self, lane: LaneId, slot: Slot, row: &Row, ids: &[String]) -> Moved {
        let gone = !ids.iter().all(|id| self.mail.contains_key(id));
        let log = if lane.0 == 0 { &mut self.rows } else { &mut self.others.entry(lane.0).or_default().rows };
        match log.get(&slot) {
            Some(standing) if standing.id() == row.id() => return Moved::Stored,
            Some(standing) => return Moved::Occupied(standing.meta(slot)),
            None if gone => return Moved::MailGone,
            None => log.insert(slot, row.clone()),
        };
        self.mail.retain(|id, _| !ids.contains(id));
        Moved::Stored
    }

    pub fn apply(&mut self, call: &Call) -> Answer {
        match call {
            Call::ReadRecord | Call::Register { .. } | Call::MoveMail { .. } => panic!("{call:?} concerns more than one lane"),
            Call::ReadTail => Answer::Tail(Ok(self.rows.last_key_value().map(|(slot, row)| row.meta(*slot)))),
            Call::ReadHead => Answer::Head(Ok(self.head.clone())),
            Call::Put { slot, row } => {
                let standing = self.rows.entry(*slot).or_insert_with(|| row.as_ref().clone());
                Answer::Put(Outcome::Done(if standing.id() == row.id() { Put::Stored } else { Put::Occupied(standing.meta(*slot)) }))
            }
            Call::ReadPage { purpose, after, up_to } => Answer::Page { purpose: *purpose, page: Ok(self.page(*after, *up_to)) },
            Call::PutHead { head } => {
                let forward = self.head.as_ref().is_none_or(|old| head.may_replace(old));
                if forward {
                    self.head = Some(head.clone());
                }
                Answer::HeadPut(Outcome::Done(forward))
            }
            Call::Delete { slots } => {
                for slot in slots {
                    assert!(*slot < self.tail(), "the tail row is never deleted");
                    assert!(*slot <= self.effective_head(), "nothing above the head is deleted");
                    assert!(!matches!(self.rows.get(slot), Some(Row::Anchor(_))), "anchors are kept");
                    self.rows.remove(slot);
                }
                Answer::Deleted(Outcome::Done(()))
            }
        }
    }

    fn page(&self, after: Slot, up_to: Slot) -> Page {
        let mut page = Page::default();
        if after >= up_to {
            return page;
        }
        for (slot, row) in self.rows.range(after.next()..=up_to) {
            if self.page_rows.is_some_and(|most| page.rows.len() >= most) {
                page.next_after = page.rows.last().map(|(slot, _)| *slot);
                break;
            }
            page.rows.push((*slot, row.clone()));
        }
        page
    }
}

/// What a call ends with instead of the store's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The store refuses: nothing happens.
    Refused,
    /// It has no room: nothing happens.
    Full,
    /// It takes effect and the answer is lost.
    AnswerLost,
    /// It never takes effect and no answer comes.
    RequestLost,
}

/// The answer of a call that had trouble.
pub fn troubled(call: &Call, trouble: Trouble) -> Answer {
    let fault = fault(if trouble == Trouble::Full { FaultCode::StorageFull } else { FaultCode::Timeout });
    fn outcome<T>(trouble: Trouble, fault: Fault) -> Outcome<T> {
        if matches!(trouble, Trouble::Refused | Trouble::Full) { Outcome::NotDone(fault) } else { Outcome::Unknown(fault) }
    }
    match call {
        Call::ReadTail => Answer::Tail(Err(fault)),
        Call::ReadHead => Answer::Head(Err(fault)),
        Call::ReadRecord => Answer::Record(Err(fault)),
        Call::Register { .. } => Answer::Registered(outcome(trouble, fault)),
        Call::MoveMail { .. } => Answer::Moved(outcome(trouble, fault)),
        Call::Put { .. } => Answer::Put(outcome(trouble, fault)),
        Call::ReadPage { purpose, .. } => Answer::Page { purpose: *purpose, page: Err(fault) },
        Call::PutHead { .. } => Answer::HeadPut(outcome(trouble, fault)),
        Call::Delete { .. } => Answer::Deleted(outcome(trouble, fault)),
    }
}

/// A batch that left.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Instant,
    pub leg: usize,
    pub entries: Vec<Arc<Entry>>,
}

/// How often each call was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub puts: u64,
    pub head_writes: u64,
    pub deletes: u64,
    pub reads: u64,
    pub registry: u64,
    pub mail_reads: u64,
    pub sends: u64,
}

type OnCall = Box<dyn FnMut(Instant, &Call) -> Option<Trouble>>;
type OnSend = Box<dyn FnMut(Instant, &Entry) -> Outcome<()>>;
type OnPark = Box<dyn FnMut(Instant, &DeadLetter) -> Outcome<()>>;

/// One owner and everything around it.
pub struct Rig {
    pub now: Instant,
    pub owner: Owner,
    pub store: Store,
    pub store_latency: Duration,
    pub send_latency: Duration,
    pub on_call: OnCall,
    pub on_send: OnSend,
    pub on_park: OnPark,
    pub acks: Vec<DeliveryId>,
    pub sends: Vec<Sent>,
    pub delivered: BTreeMap<EntryId, u32>,
    pub letters: BTreeMap<EntryId, DeadLetter>,
    pub observations: Vec<Observation>,
    pub quota_calls: Vec<QuotaCall>,
    /// Of each leg: lost, and dead-lettered, as it was told one by one.
    pub drops: BTreeMap<usize, (u64, u64)>,
    pub heads: Vec<Head>,
    pub calls: Calls,
    pub source_closed_at: Option<Instant>,
    pub end: Option<End>,
    pub ended_at: Option<Instant>,
    pub memory_peak: usize,
    pub reconnects_wanted: usize,
    queue: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    ordinal: u64,
    pub connection: ConnectionEpoch,
}

impl Rig {
    /// An owner that did nothing yet, over `store`.
    pub fn new(options: OwnerOptions, store: Store) -> Self {
        Self {
            now: at_ms(1_000),
            owner: Owner::new(options),
            store,
            store_latency: ms(3),
            send_latency: ms(8),
            on_call: Box::new(|_, _| None),
            on_send: Box::new(|_, _| Outcome::Done(())),
            on_park: Box::new(|_, _| Outcome::Done(())),
            acks: Vec::new(),
            sends: Vec::new(),
            delivered: BTreeMap::new(),
            letters: BTreeMap::new(),
            observations: Vec::new(),
            quota_calls: Vec::new(),
            drops: BTreeMap::new(),
            heads: Vec::new(),
            calls: Calls::default(),
            source_closed_at: None,
            end: None,
            ended_at: None,
            memory_peak: 0,
            reconnects_wanted: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            ordinal: 0,
            connection: ConnectionEpoch(1),
        }
    }

    /// An owner whose log is open and recovered.
    pub fn opened(options: OwnerOptions, store: Store) -> Self {
        let mut rig = Self::new(options, store);
        rig.event(Event::Tick);
        rig.run_while(|rig| !rig.observations.iter().any(|seen| matches!(seen, Observation::Recovered { .. })));
        rig
    }

    pub fn wall(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_000 + self.now.as_nanos() / 1_000_000)
    }

    /// A message that just arrived by `receiver`.
    pub fn deliver(&mut self, receiver: &str, message: Message) -> DeliveryId {
        self.ordinal += 1;
        let delivery = DeliveryId { connection: self.connection, ordinal: self.ordinal };
        self.event(Event::Delivered { delivery, receiver: receiver.into(), message });
        delivery
    }

    /// A new connection: deliveries count from 1 again.
    pub fn reconnect(&mut self) {
        let connection = self.connection;
        self.event(Event::Disconnected { connection });
        self.connection = ConnectionEpoch(connection.0 + 1);
        self.ordinal = 0;
    }

    pub fn event(&mut self, event: Event) {
        let ended = self.end.is_some();
        let effects = self.owner.apply(self.now, self.wall(), event);
        assert!(!ended || effects.is_empty(), "nothing follows the end: {effects:?}");
        for effect in effects {
            self.carry_out(effect);
        }
        let status = self.owner.status(self.wall());
        for (route, status) in status.legs.iter().enumerate() {
            assert_eq!(status.imbalance(), 0, "route {route}: {status:?}");
            // What is told of drops, one by one and with its reason, is what the account says.
            let told = self.drops.get(&route).copied().unwrap_or_default();
            let counters = &status.counters;
            let limited = counters.key_limit + counters.route_limit + counters.quota_exhausted;
            let lost = counters.dropped + counters.expired + limited + counters.session_lost;
            assert_eq!(told, (lost, counters.dead_lettered), "route {route}");
        }
        self.memory_peak = self.memory_peak.max(status.in_memory);
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now.plus(after), self.sequence), event);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Log { lane, call } => self.call(lane, &call),
            Effect::ReadMail { limit } => {
                self.calls.mail_reads += 1;
                let mail = self.store.mail.values().take(limit).cloned().collect();
                self.later(self.store_latency, Event::MailRead(Ok(mail)));
            }
            Effect::Acknowledge(delivery) => {
                assert!(
                    self.acks.last().is_none_or(|last| *last < delivery),
                    "acknowledgements ascend: {delivery:?} after {:?}",
                    self.acks.last()
                );
                self.acks.push(delivery);
            }
            Effect::Send { batch, leg, entries, .. } => {
                self.calls.sends += 1;
                let outcomes = entries.iter().map(|entry| (self.on_send)(self.now, entry)).collect::<Vec<_>>();
                for (entry, outcome) in entries.iter().zip(&outcomes) {
                    if matches!(outcome, Outcome::Done(())) {
                        *self.delivered.entry(entry.id).or_insert(0) += 1;
                    }
                }
                self.sends.push(Sent { at: self.now, leg, entries });
                self.later(self.send_latency, Event::Sent { batch, outcomes });
            }
            Effect::Park { park, letter } => {
                let outcome = (self.on_park)(self.now, &letter);
                if matches!(outcome, Outcome::Done(())) {
                    self.letters.entry(letter.id).or_insert(*letter);
                }
                self.later(self.store_latency, Event::Parked { park, outcome });
            }
            Effect::Reconnect => self.reconnects_wanted += 1,
            // A test answers the calls itself.
            Effect::Quota(call) => self.quota_calls.push(call),
            Effect::CloseSource => {
                assert!(self.source_closed_at.is_none(), "closed once");
                self.source_closed_at = Some(self.now);
            }
            Effect::Observe(observation) => {
                if let Observation::Dropped { leg, dropped, .. }
                | Observation::DeadLettered { leg, dropped, .. }
                | Observation::Limited { leg, dropped, .. }
                | Observation::Lost { leg, dropped } = &observation
                {
                    assert!(dropped.reason.directions().contains(&dropped.direction), "{dropped:?}");
                    let (lost, dead_lettered) = self.drops.entry(*leg).or_default();
                    *match dropped.outcome {
                        DropOutcome::Lost => lost,
                        DropOutcome::DeadLettered => dead_lettered,
                    } += 1;
                }
                self.observations.push(observation);
            }
            Effect::Finished(end) => {
                assert!(self.end.is_none(), "it ends once");
                self.end = Some(end);
                self.ended_at = Some(self.now);
            }
        }
    }

    fn call(&mut self, lane: LaneId, call: &Call) {
        match call {
            Call::Put { .. } | Call::MoveMail { .. } => self.calls.puts += 1,
            Call::PutHead { head } => {
                self.calls.head_writes += 1;
                if lane == LaneId(0) {
                    let last = self.heads.last().map_or(0, |last| last.revision);
                    assert!(head.revision > last, "a head row that is applied late must not undo the one after it");
                    self.heads.push(head.clone());
                }
            }
            Call::Delete { .. } => self.calls.deletes += 1,
            Call::ReadTail | Call::ReadHead | Call::ReadPage { .. } => self.calls.reads += 1,
            Call::ReadRecord | Call::Register { .. } => self.calls.registry += 1,
        }
        let trouble = (self.on_call)(self.now, call);
        let answer = match trouble {
            None => self.store.apply_in(lane, call),
            Some(trouble) => {
                if trouble == Trouble::AnswerLost {
                    self.store.apply_in(lane, call);
                }
                troubled(call, trouble)
            }
        };
        self.later(self.store_latency, Event::Log { lane, answer });
    }

    /// When the next thing happens by itself.
    pub fn next_at(&self) -> Option<Instant> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let woken = if self.end.is_some() { None } else { self.owner.wake_at(self.now) };
        queued.into_iter().chain(woken).min()
    }

    /// Takes the next step; `false` where nothing will happen by itself.
    pub fn step(&mut self) -> bool {
        let Some(at) = self.next_at() else { return false };
        self.now = self.now.max(at);
        let due = self.queue.first_key_value().is_some_and(|((queued, _), _)| *queued <= self.now);
        let event = if due { self.queue.pop_first().map_or(Event::Tick, |(_, event)| event) } else { Event::Tick };
        self.event(event);
        true
    }

    /// Runs until time is `until`.
    pub fn run_until(&mut self, until: Instant) {
        while self.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now.plus(time));
    }

    /// Runs until `wanted` no longer holds.
    pub fn run_while(&mut self, wanted: impl Fn(&Self) -> bool) {
        for _ in 0..1_000_000 {
            if !wanted(self) {
                return;
            }
            assert!(self.step(), "nothing happens any more at {:?}: {:?}", self.now, self.owner.status(self.wall()));
        }
        panic!("no end in a million steps: {:?}", self.owner.status(self.wall()));
    }

    /// Runs until nothing happens by itself any more.
    pub fn run_to_rest(&mut self) {
        for _ in 0..1_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("no rest in a million steps");
    }

    pub fn stop_within(&mut self, time: Duration) {
        let drain_until = self.now.plus(time);
        self.event(Event::Shutdown { drain_until });
    }

    /// The next owner over what this one left, as if this one had crashed now.
    pub fn successor(&self, options: OwnerOptions) -> Self {
        let mut rig = Self::new(options, self.store.clone());
        rig.now = self.now;
        rig
    }

    pub fn counters(&self, route: usize) -> causeway_core::worker::counters::LegCounters {
        self.owner.status(self.wall()).legs[route].counters.clone()
    }
}

/// An epoch that a lease gave.
pub fn epoch(value: u64) -> Option<Epoch> {
    Some(Epoch(value))
}
