//! The owner of one session's log: what happens when, from a delivery to its settlement.
//!
//! [`Owner::apply`] takes one event, changes the state, restores the invariants and returns the effects to carry out. It never waits. The shell
//! around it carries effects out one by one and brings their outcomes back as events.

pub mod counters;
mod events;
pub mod options;
mod status;

pub use events::{Effect, End, Event, Observation};
pub use status::{OwnerStatus, Phase};

use crate::dead_letter::DeadLetter;
use crate::drain::retry::Jitter;
use crate::drain::{BatchId, Drain, Item, Pace, ParkId};
use crate::identity::{DeliveryId, IdSequence, Position, Slot};
use crate::log::loader::Loader;
use crate::log::settled::{HeadSnapshot, Settled};
use crate::log::writer::{LOAD_LINGERS, Pending, Stored, Writer, WriterEvent};
use crate::log::{Answer, Call, PagePurpose};
use crate::message::{Entry, Message};
use crate::outcome::{Fault, FaultClass, FaultCode, Outcome};
use crate::rows::{Head, Row};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;
use counters::RouteCounters;
use options::{Fate, OwnerOptions};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Dead letters being written at once.
const MAX_PARKS: usize = 16;
/// Attempts that a head row remembers at most.
const MAX_REMEMBERED_ATTEMPTS: usize = 1_000;
/// Segments deleted by one call.
const DELETE_AT_ONCE: usize = 100;
/// A delete is worth a request from here on; fewer wait for idleness.
const DELETE_FROM: usize = 25;
/// Entries not durable yet beyond which no more are taken in, in multiples of the largest segment.
const PENDING_SEGMENTS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Draining { until: Instant },
    Finished,
}

/// A letter that waits to be written.
#[derive(Debug)]
struct Doomed {
    item: Item,
    fault: Fault,
    failures: u32,
}

/// The owner of one log.
#[derive(Debug)]
pub struct Owner {
    options: OwnerOptions,
    entry_ids: IdSequence,
    jitter: Jitter,
    writer: Writer,
    settled: Settled,
    loader: Loader,
    drain: Drain,
    doomed: VecDeque<Doomed>,
    doomed_later: BTreeMap<(Instant, Position), Doomed>,
    parking: BTreeMap<ParkId, (Fault, u32)>,
    anchor: Slot,
    recovered: bool,
    head_in_flight: Option<HeadSnapshot>,
    head_revision: u64,
    head_retry_at: Option<Instant>,
    head_failed: bool,
    /// Entries were tried since the last head row was written.
    attempts_untold: bool,
    deleting: Option<Vec<Slot>>,
    delete_retry_at: Option<Instant>,
    sweep_after: Option<Slot>,
    sweep_up_to: Slot,
    sweeping: bool,
    counters: Vec<RouteCounters>,
    last_success: Vec<Option<Instant>>,
    stage: Stage,
    source_closed: bool,
    unreadable: Option<Fault>,
    fault: Option<Fault>,
    acknowledge: Option<DeliveryId>,
    act_until: Option<Instant>,
    effects: Vec<Effect>,
}

impl Owner {
    /// An owner that will open its log.
    #[must_use]
    pub fn new(options: OwnerOptions) -> Self {
        let paces = options
            .routes
            .iter()
            .map(|route| Pace { max_in_flight: route.policy.max_in_flight, linger: options.send_linger, limits: route.limits })
            .collect();
        let routes = options.routes.len();
        Self {
            entry_ids: IdSequence::new(options.entry_id_base),
            jitter: Jitter::new(options.jitter_seed),
            writer: Writer::new(options.segment, options.owner.clone(), IdSequence::new(options.row_id_base), options.epoch),
            settled: Settled::default(),
            loader: Loader::new(Slot(0), None, options.memory_bytes),
            drain: Drain::new(paces),
            doomed: VecDeque::new(),
            doomed_later: BTreeMap::new(),
            parking: BTreeMap::new(),
            anchor: Slot(0),
            recovered: false,
            head_in_flight: None,
            head_retry_at: None,
            head_revision: 0,
            head_failed: false,
            attempts_untold: false,
            deleting: None,
            delete_retry_at: None,
            sweep_after: None,
            sweep_up_to: Slot(0),
            sweeping: false,
            // One more than there are routes: for entries whose route is gone from the configuration.
            counters: vec![RouteCounters::default(); routes + 1],
            last_success: vec![None; routes + 1],
            stage: Stage::Running,
            source_closed: false,
            unreadable: None,
            fault: None,
            acknowledge: None,
            act_until: None,
            effects: Vec::new(),
            options,
        }
    }

    /// Under a lease: no effect begins at or after `deadline`. Told anew with every renewal; what had to wait goes on with the next event.
    pub const fn act_until(&mut self, deadline: Instant) {
        self.act_until = Some(deadline);
    }

    /// Whether it can take in another message now. The shell asks before it takes one from the source.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.writer.is_running()
            && self.stage == Stage::Running
            && self.writer.pending() < self.options.segment.max_messages * PENDING_SEGMENTS
            && self.writer.pending_bytes() < self.options.memory_bytes / 2
    }

    /// Takes one event; returns what to do.
    pub fn apply(&mut self, now: Instant, wall: UnixMillis, event: Event) -> Vec<Effect> {
        if self.stage == Stage::Finished {
            return Vec::new();
        }
        match event {
            Event::Delivered { delivery, receiver, message } => self.delivered(now, wall, delivery, &receiver, message),
            Event::Disconnected { connection } => {
                for entry in self.writer.forget(connection) {
                    let route = self.route_of(&entry);
                    if let Some(counters) = self.counters.get_mut(route) {
                        counters.returned += 1;
                    }
                }
            }
            Event::Log(answer) => self.answered(now, wall, answer),
            Event::Sent { batch, outcomes } => self.sent(now, wall, batch, outcomes),
            Event::Parked { park, outcome } => self.parked(now, park, outcome),
            Event::Tick => {}
            Event::Shutdown { drain_until } => {
                self.stage = Stage::Draining { until: drain_until };
                self.writer.flush();
            }
        }
        self.settle(now, wall);
        core::mem::take(&mut self.effects)
    }

    /// When to come back with [`Event::Tick`] although nothing happened.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let idle_at = (self.settled.is_behind() || self.settled.deletable_count(self.writer.tail()) > 0)
            .then(|| self.writer.last_append_began().map_or(now, |began| began.plus(self.options.segment.linger * LOAD_LINGERS)));
        let until = match self.stage {
            Stage::Draining { until } => Some(until),
            Stage::Running | Stage::Finished => None,
        };
        [
            self.writer.wake_at(),
            self.loader.wake_at(),
            self.drain.wake_at(now),
            self.doomed_later.first_key_value().map(|((at, _), _)| *at),
            self.head_retry_at,
            self.delete_retry_at,
            idle_at,
            until,
        ]
        .into_iter()
        .flatten()
        // What is due and still did not happen waits for an event, not for time.
        .filter(|at| *at > now)
        .min()
    }

    fn delivered(&mut self, now: Instant, wall: UnixMillis, delivery: DeliveryId, receiver: &Arc<str>, message: Message) {
        let expires_at = message.properties.expiry_seconds.map(|seconds| wall.plus(Duration::from_secs(u64::from(seconds))));
        let routes: Vec<usize> =
            self.options.routes.iter().enumerate().filter(|(_, route)| route.receiver == *receiver).map(|(index, _)| index).collect();
        let last = routes.len().saturating_sub(1);
        for (nth, route) in routes.into_iter().enumerate() {
            let (Some(options), Some(counters)) = (self.options.routes.get(route), self.counters.get_mut(route)) else { continue };
            counters.received += 1;
            let entry = Arc::new(Entry {
                id: self.entry_ids.take(),
                route: Arc::clone(&options.id),
                source: Arc::clone(receiver),
                received_at: wall,
                expires_at,
                redrive: None,
                message: message.clone(),
            });
            self.writer.push(Pending { entry, delivery, completes_delivery: nth == last, since: now });
        }
    }

    fn answered(&mut self, now: Instant, wall: UnixMillis, answer: Answer) {
        match answer {
            Answer::Page { purpose: PagePurpose::Load, page } => {
                if let Err(fault) = &page {
                    self.store_fault(fault.clone());
                }
                for entry in self.loader.answer(now, page) {
                    let route = self.route_of(&entry);
                    if let Some(counters) = self.counters.get_mut(route) {
                        counters.unloaded += 1;
                    }
                }
            }
            Answer::Page { purpose: PagePurpose::Sweep, page } => self.swept(page),
            Answer::HeadPut(outcome) => self.head_put(now, outcome),
            Answer::Deleted(outcome) => {
                let slots = self.deleting.take().unwrap_or_default();
                match outcome {
                    Outcome::Done(()) => self.settled.deleted(&slots),
                    Outcome::NotDone(fault) | Outcome::Unknown(fault) => {
                        self.delete_retry_at = Some(now.plus(Duration::from_secs(1)));
                        self.store_fault(fault);
                    }
                }
            }
            Answer::Tail(_) | Answer::Head(_) | Answer::Registered(_) | Answer::Put(_) => {
                match self.writer.answer(now, wall, answer) {
                    Some(WriterEvent::Opened { head, drained, anchor }) => self.opened(head, drained, anchor),
                    Some(WriterEvent::Stored(stored)) => self.stored(stored),
                    None => {}
                }
                if let Some(fault) = self.writer.fault().cloned() {
                    self.store_fault(fault);
                } else {
                    self.fault = None;
                }
            }
        }
    }

    fn store_fault(&mut self, fault: Fault) {
        self.fault = Some(fault.clone());
        self.effects.push(Effect::Observe(Observation::StoreFault(fault)));
    }

    fn opened(&mut self, head: Option<Head>, drained: Slot, anchor: Slot) {
        self.settled = Settled::at(drained);
        self.loader = Loader::new(drained, head, self.options.memory_bytes);
        self.anchor = anchor;
        self.sweep_after = (drained > Slot(0)).then_some(Slot(0));
        self.sweep_up_to = drained;
        let slots_to_recover = anchor.0.saturating_sub(drained.0).saturating_sub(1);
        self.effects.push(Effect::Observe(Observation::Opened { epoch: self.writer.epoch(), slots_to_recover }));
    }

    fn stored(&mut self, stored: Stored) {
        self.settled.made_durable(stored.drained());
        self.effects.push(Effect::Observe(Observation::Stored {
            entries: stored.entries().len(),
            bytes: stored.bytes(),
            took: stored.took(),
        }));
        self.acknowledge = stored.delivery().or(self.acknowledge);
        let room = self.has_room();
        let slot = stored.slot();
        let routes: Vec<usize> = stored.entries().iter().map(|entry| self.route_of(entry)).collect();
        if !self.loader.offer(slot, stored.into_entries(), room) {
            for route in routes {
                if let Some(counters) = self.counters.get_mut(route) {
                    counters.unloaded += 1;
                }
            }
        }
    }

    fn route_of(&self, entry: &Entry) -> usize {
        self.options.routes.iter().position(|route| route.id == entry.route).unwrap_or(self.options.routes.len())
    }

    fn has_room(&self) -> bool {
        self.drain.len() < self.options.memory_entries && self.drain.weight() < self.options.memory_bytes
    }

    fn swept(&mut self, page: Result<crate::log::Page, Fault>) {
        self.sweeping = false;
        match page {
            Ok(page) => {
                for (slot, row) in page.rows {
                    if matches!(row, Row::Segment(_)) {
                        self.settled.found_garbage(slot);
                    }
                }
                self.sweep_after = page.next_after;
            }
            // Garbage costs storage, nothing else: the next owner looks again.
            Err(_) => self.sweep_after = None,
        }
    }

    fn head_put(&mut self, now: Instant, outcome: Outcome<bool>) {
        let Some(snapshot) = self.head_in_flight.take() else { return };
        self.head_failed = !matches!(outcome, Outcome::Done(true));
        self.attempts_untold |= self.head_failed;
        match outcome {
            Outcome::Done(true) => self.settled.snapshot_durable(&snapshot),
            // A head that is further, or of a higher epoch: another owner's. The next append will be refused; nothing is taken as durable here.
            Outcome::Done(false) => self.head_retry_at = Some(now.plus(Duration::from_secs(5))),
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => {
                self.head_retry_at = Some(now.plus(Duration::from_secs(1)));
                self.store_fault(fault);
            }
        }
    }

    fn sent(&mut self, now: Instant, wall: UnixMillis, batch: BatchId, outcomes: Vec<Outcome<()>>) {
        let items = self.drain.landed(batch);
        let mut outcomes = outcomes.into_iter();
        for item in items {
            let outcome =
                outcomes.next().unwrap_or_else(|| Outcome::Unknown(Fault::new(FaultCode::ProtocolError, "no outcome for this entry")));
            match outcome {
                Outcome::Done(()) => {
                    if let Some(last) = self.last_success.get_mut(item.route) {
                        *last = Some(now);
                    }
                    if let Some(counters) = self.counters.get_mut(item.route) {
                        counters.delivered += 1;
                    }
                    let latency = wall.since(item.entry.received_at);
                    self.effects.push(Effect::Observe(Observation::Delivered { route: item.route, latency }));
                    self.finish(&item);
                }
                // What is not certain is repeated: a duplicate is better than a loss.
                Outcome::Unknown(fault) => self.attempt_failed(now, item, fault),
                Outcome::NotDone(fault) => match fault.code.class() {
                    FaultClass::Transient | FaultClass::Permanent => self.attempt_failed(now, item, fault),
                    // This message is refused, whatever is done about the destination.
                    FaultClass::Rejected | FaultClass::Expired | FaultClass::Poison => self.doom(item, fault),
                },
            }
        }
    }

    fn attempt_failed(&mut self, now: Instant, item: Item, fault: Fault) {
        let Some(route) = self.options.routes.get(item.route) else { return };
        let policy = &route.policy;
        let first = item.first_attempt.unwrap_or(now);
        let exhausted =
            policy.max_replay_attempts > 0 && item.attempts > policy.max_replay_attempts && now.since(first) >= policy.replay_budget;
        // A queue that is gone or a permission that is missing concerns every message: somebody gets `replay_budget` to mend it.
        if exhausted && fault.code.class() == FaultClass::Permanent {
            self.doom(item, fault);
            return;
        }
        // While nothing at all is accepted the destination is at fault, not this entry: an outage of any length makes no poison.
        let others_pass = self.last_success.get(item.route).copied().flatten().is_some_and(|last| last > first);
        if exhausted && others_pass {
            let detail = format!("{} attempts failed while others were delivered; last: {fault}", item.attempts);
            self.doom(item, Fault::new(FaultCode::PoisonMessage, detail));
            return;
        }
        self.attempts_untold = true;
        let pause = policy.backoff.pause(item.attempts, &mut self.jitter).max(fault.retry_after.unwrap_or_default());
        self.effects.push(Effect::Observe(Observation::Retried { route: item.route, fault }));
        self.drain.retry(item, now.plus(pause));
    }

    /// The entry will not be delivered: it is dead-lettered, or dropped where its route's policy says so.
    fn doom(&mut self, item: Item, fault: Fault) {
        let fate = self.options.routes.get(item.route).map_or(Fate::DeadLetter, |route| match fault.code {
            FaultCode::MessageExpired => route.policy.on_expired,
            _ => route.policy.on_permanent_failure,
        });
        match fate {
            Fate::DeadLetter => self.doomed.push_back(Doomed { item, fault, failures: 0 }),
            Fate::Drop => {
                if let Some(counters) = self.counters.get_mut(item.route) {
                    if fault.code == FaultCode::MessageExpired { counters.expired += 1 } else { counters.dropped += 1 }
                }
                self.effects.push(Effect::Observe(Observation::Dropped { route: item.route, code: fault.code }));
                self.finish(&item);
            }
        }
    }

    fn parked(&mut self, now: Instant, park: ParkId, outcome: Outcome<()>) {
        let (Some(item), Some((fault, failures))) = (self.drain.parked(park), self.parking.remove(&park)) else { return };
        match outcome {
            Outcome::Done(()) => {
                if let Some(counters) = self.counters.get_mut(item.route) {
                    counters.dead_lettered += 1;
                }
                self.effects.push(Effect::Observe(Observation::DeadLettered { route: item.route, code: fault.code }));
                self.finish(&item);
            }
            // The letter is written again until it stands: an entry is never given up without one.
            Outcome::NotDone(refusal) | Outcome::Unknown(refusal) => {
                let pause = Duration::from_millis(500).saturating_mul(1 << failures.min(6));
                self.effects.push(Effect::Observe(Observation::DeadLetterFault(refusal)));
                self.doomed_later.insert((now.plus(pause), item.position), Doomed { item, fault, failures: failures + 1 });
            }
        }
    }

    fn finish(&mut self, item: &Item) {
        self.settled.settle(item.position);
        self.drain.settled(item);
    }

    /// Restores the invariants: whatever can go on goes on.
    fn settle(&mut self, now: Instant, wall: UnixMillis) {
        if let Some(end) = self.fatal() {
            self.abandon(end);
            return;
        }
        if self.act_until.is_some_and(|deadline| now >= deadline) {
            // Without the lease nothing can be brought to an end any more; the stop's own deadline still ends it.
            if self.is_over(now) {
                self.head_failed = true;
                self.finish_stage(now);
            }
            return;
        }
        if let Some(delivery) = self.acknowledge.take() {
            self.effects.push(Effect::Acknowledge(delivery));
        }
        self.drain.wake(now);
        if let Some(call) = self.writer.poll(now, wall, self.settled.drained()) {
            self.effects.push(Effect::Log(call));
        }
        if self.writer.is_running() {
            // Dropping what expired makes room to load more, which may have expired too.
            while self.load(now, wall) {
                self.send(now, wall);
            }
            self.send(now, wall);
            if let Some(call) = self.loader.poll(now, self.writer.tail(), self.has_room()) {
                self.effects.push(Effect::Log(call));
            }
            self.park(now, wall);
            self.tidy(now);
        }
        self.finish_stage(now);
    }

    fn fatal(&self) -> Option<End> {
        if let Some(end) = self.writer.end() {
            return Some(End::Ended(end.clone()));
        }
        self.unreadable.clone().map(End::Unreadable)
    }

    /// Another owner took over, or the log cannot be used: nothing more is sent, appended or acknowledged.
    fn abandon(&mut self, end: End) {
        self.acknowledge = None;
        if !self.source_closed {
            self.source_closed = true;
            self.effects.push(Effect::CloseSource);
        }
        self.stage = Stage::Finished;
        self.effects.push(Effect::Finished(end));
    }

    /// Loads what memory has room for; returns whether anything was loaded.
    fn load(&mut self, now: Instant, wall: UnixMillis) -> bool {
        let mut progress = false;
        while self.has_room() {
            let loaded = match self.loader.take_next() {
                Ok(Some(loaded)) => loaded,
                Ok(None) => break,
                Err(fault) => {
                    self.unreadable = Some(fault);
                    break;
                }
            };
            progress = true;
            if loaded.slot <= self.settled.loaded() {
                continue;
            }
            self.settled.load(loaded.slot, u32::try_from(loaded.entries.len()).unwrap_or(u32::MAX));
            for (index, entry) in (0_u32..).zip(loaded.entries) {
                self.take_up(now, wall, Position { slot: loaded.slot, index }, entry, loaded.read_back);
            }
        }
        if !self.recovered && self.writer.is_running() && self.settled.loaded() >= self.anchor {
            self.recovered = true;
            let entries = self.counters.iter().map(|counters| counters.recovered).sum();
            self.effects.push(Effect::Observe(Observation::Recovered { entries }));
        }
        progress
    }

    fn take_up(&mut self, now: Instant, wall: UnixMillis, position: Position, entry: Arc<Entry>, read_back: bool) {
        let route = self.route_of(&entry);
        if position.slot < self.anchor && self.loader.was_settled(position) {
            self.settled.restore(position);
            return;
        }
        if let Some(counters) = self.counters.get_mut(route) {
            if position.slot < self.anchor {
                counters.recovered += 1;
            } else if read_back {
                counters.unloaded = counters.unloaded.saturating_sub(1);
            }
        }
        let attempts = self.loader.take_attempts(position);
        let options = self.options.routes.get(route);
        let size = options.map_or(0, |options| (options.size_of)(&entry));
        let refusal = match options {
            None => Some(Fault::new(FaultCode::NotFound, format!("no route of this configuration is named `{}`", entry.route))),
            Some(options) if size > options.limits.entry_bytes => {
                let detail = format!("{size} bytes with attributes; the destination takes {}", options.limits.entry_bytes);
                Some(Fault::new(FaultCode::PayloadTooLarge, detail))
            }
            Some(_) => expired(&entry, wall),
        };
        let item = Item { position, entry, route, size, attempts, first_attempt: None, ready_at: now };
        match refusal {
            None => self.drain.push(item),
            Some(fault) => {
                self.drain.admit(&item);
                self.doom(item, fault);
            }
        }
    }

    fn send(&mut self, now: Instant, wall: UnixMillis) {
        let eager = match self.stage {
            Stage::Running => false,
            Stage::Draining { until } if now < until => true,
            Stage::Draining { .. } | Stage::Finished => return,
        };
        loop {
            // Too much is settled behind a stuck entry: only its own segment goes on. Were the stuck entry held back too, nothing would ever move again.
            let up_to = if self.settled.settled_ahead() < self.options.max_settled_ahead { None } else { self.settled.stuck_at() };
            let Some(launch) = self.drain.launch(now, eager, up_to, |item| expired(&item.entry, wall).is_some()) else { break };
            for item in launch.expired {
                if let Some(fault) = expired(&item.entry, wall) {
                    self.doom(item, fault);
                }
            }
            if !launch.entries.is_empty() {
                self.effects.push(Effect::Send {
                    batch: launch.batch,
                    route: launch.route,
                    entries: launch.entries,
                    delays: launch.delays,
                });
            }
        }
    }

    fn park(&mut self, now: Instant, wall: UnixMillis) {
        while let Some(first) = self.doomed_later.first_entry() {
            if first.key().0 > now {
                break;
            }
            self.doomed.push_back(first.remove());
        }
        while self.drain.parks() < MAX_PARKS {
            let Some(Doomed { item, fault, failures }) = self.doomed.pop_front() else { break };
            let destination = self.options.routes.get(item.route).map(|route| route.destination.clone()).unwrap_or_default();
            let letter = Box::new(DeadLetter::new(&item.entry, &destination, &fault, item.attempts, wall));
            let park = self.drain.parking(item);
            self.parking.insert(park, (fault, failures));
            self.effects.push(Effect::Park { park, letter });
        }
    }

    /// Writes the head where it is due, and deletes what is garbage.
    fn tidy(&mut self, now: Instant) {
        let quiet = self.is_quiet(now);
        if self.head_in_flight.is_none() && self.head_retry_at.is_none_or(|at| now >= at) {
            let piled_up = self.settled.exposed() >= 2 * self.options.segment.max_messages;
            // Attempts alone are worth a write at the end only: the next owner would count anew, and never come to call an entry poison.
            let last_words = self.attempts_untold && self.is_over(now);
            if quiet && last_words || self.settled.is_behind() && (quiet || piled_up) {
                self.head_retry_at = None;
                let snapshot = self.settled.snapshot();
                let head = self.head_row(&snapshot);
                self.head_in_flight = Some(snapshot);
                self.attempts_untold = false;
                self.effects.push(Effect::Log(Call::PutHead { head }));
            }
        }
        if self.deleting.is_none() && self.delete_retry_at.is_none_or(|at| now >= at) {
            self.delete_retry_at = None;
            let count = self.settled.deletable_count(self.writer.tail());
            if count >= DELETE_FROM || (count > 0 && quiet) {
                let slots = self.settled.deletable(self.writer.tail(), DELETE_AT_ONCE);
                self.deleting = Some(slots.clone());
                self.effects.push(Effect::Log(Call::Delete { slots }));
            }
        }
        if let (false, Some(after)) = (self.sweeping, self.sweep_after) {
            self.sweeping = true;
            self.effects.push(Effect::Log(Call::ReadPage { purpose: PagePurpose::Sweep, after, up_to: self.sweep_up_to }));
        }
    }

    /// The row that replaces the head row: what this owner knows, and what former ones told of slots that are not loaded yet.
    fn head_row(&mut self, snapshot: &HeadSnapshot) -> Head {
        let mut settled_ahead = snapshot.ranges.clone();
        settled_ahead.extend(self.loader.settled_behind(self.settled.loaded()));
        let mut attempts = self.drain.attempts(MAX_REMEMBERED_ATTEMPTS);
        attempts.extend(self.loader.attempts());
        attempts.truncate(MAX_REMEMBERED_ATTEMPTS);
        self.head_revision += 1;
        Head { epoch: self.writer.epoch(), revision: self.head_revision, drained: snapshot.drained, settled_ahead, attempts }
    }

    /// Whether the lane is idle: nothing is pending or in flight, and no append began lately. While stopping, the last part does not count; past
    /// the deadline, what is pending does not either, since a store that does not take it must not keep the head from being tried.
    fn is_quiet(&self, now: Instant) -> bool {
        let lately = self.writer.last_append_began().is_some_and(|began| now.since(began) < self.options.segment.linger * LOAD_LINGERS);
        let stopping = matches!(self.stage, Stage::Draining { .. });
        self.drain.in_flight() == 0 && (self.is_over(now) || self.writer.pending() == 0 && (stopping || !lately))
    }

    /// Whether it was told to stop and the deadline has passed.
    fn is_over(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Draining { until } if now >= until)
    }

    fn finish_stage(&mut self, now: Instant) {
        if !matches!(self.stage, Stage::Draining { .. }) {
            return;
        }
        let over = self.is_over(now);
        if !self.source_closed && (self.writer.pending() == 0 || over) {
            self.source_closed = true;
            self.effects.push(Effect::CloseSource);
        }
        let drained = self.drain.is_empty() && self.loader.covered() >= self.writer.tail() && self.writer.pending() == 0;
        let head_is_known = !(self.settled.is_behind() || over && self.attempts_untold);
        // Past the deadline one failed write is enough: the log tells the next owner, at the price of some repeats.
        let head_is_done = self.head_in_flight.is_none() && (head_is_known || over && self.head_failed);
        if self.drain.in_flight() == 0 && (drained || over) && (head_is_done || !self.writer.is_running()) {
            self.stage = Stage::Finished;
            self.effects.push(Effect::Finished(End::Stopped { unsettled: self.unsettled() }));
        }
    }

    /// Entries that a crash now would send again, besides those that the source has not seen acknowledged.
    #[must_use]
    pub fn exposed(&self) -> usize {
        self.settled.exposed() + self.drain.in_flight()
    }

    /// Entries that are not settled, in memory and in the log. What former owners left and was not read yet is estimated, see [`Self::unread`].
    #[must_use]
    pub fn unsettled(&self) -> u64 {
        let unloaded: u64 = self.counters.iter().map(|counters| counters.unloaded).sum();
        unloaded + self.unread() + (self.writer.pending() + self.drain.len()) as u64
    }

    /// How many entries of former owners stand in the part of the log that was not read yet: its slots, at as many entries each as the slots read so
    /// far had. Exact once the log was read back.
    #[must_use]
    pub fn unread(&self) -> u64 {
        let slots = self.anchor.0.saturating_sub(self.settled.loaded().0).saturating_sub(1);
        let recovered: u64 = self.counters.iter().map(|counters| counters.recovered).sum();
        let read = self.settled.loaded().0.saturating_sub(self.sweep_up_to.0);
        if read == 0 { slots } else { slots.saturating_mul(recovered.div_ceil(read)) }
    }

    /// Whether entries are ready and none is on its way.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.drain.in_flight() == 0 && self.drain.has_ready() && self.stage == Stage::Running
    }
}

fn expired(entry: &Entry, wall: UnixMillis) -> Option<Fault> {
    let at = entry.expires_at.filter(|at| wall >= *at)?;
    Some(Fault::new(FaultCode::MessageExpired, format!("expired {} ms ago", wall.since(at).as_millis())))
}
