//! What to send next.
//!
//! Entries of a lane leave in slot order, those of several lanes in the order in which they were taken up. One that has to wait for its next attempt
//! lets others pass; how far they may get ahead of it is bounded, because everything settled behind it has to be remembered.
//!
//! What a leg sends while its source holds it unacknowledged goes the same way; it has no place in a log ([`Origin::Held`]).
//!
//! Where a leg keeps order, each of its entries has a key, and of one key only the oldest entry that is not settled is ever ready, waiting,
//! in flight or being parked; the others stand in line behind it. So a batch never holds two of a key, and no retry is overtaken by its own key.
//!
//! Where a leg has a [`Pacing`], what is to be tried again and what former owners left is taken up in rounds ([`rounds`]).

pub mod breaker;
mod leg;
mod pacer;
pub mod retry;
pub mod rounds;
mod shares;

pub use pacer::SendLimit;
pub use rounds::Pacing;

use crate::flow::Reason;
use crate::flow::sender::{SenderFlow, SenderLink, SenderOptions};
use crate::identity::{ConnectionEpoch, DeliveryId, Id128, LaneId, Place, Position};
use crate::message::Entry;
use crate::units::Instant;
use breaker::{BreakerOptions, Circuit, SendEnd};
use core::time::Duration;
use leg::Sending;
use retry::Jitter;
use rounds::{Answer, RoundId};
use shares::{Share, Shares};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A moment that never comes: what waits for it waits until it is let go ([`Drain::let_go`]).
pub const UNTIL_LET_GO: Instant = Instant::from_nanos(u64::MAX);

/// An entry on its way to a destination.
#[derive(Clone, Debug)]
pub struct Item {
    /// What keeps it until it is settled.
    pub origin: Origin,
    /// Its turn: given by [`Drain::admit`].
    pub turn: u64,
    /// The entry.
    pub entry: Arc<Entry>,
    /// The index of its leg.
    pub leg: usize,
    /// What it takes of a batch's bytes.
    pub size: usize,
    /// Attempts so far, those of former owners included.
    pub attempts: u32,
    /// When this owner first sent it.
    pub first_attempt: Option<Instant>,
    /// When it became ready.
    pub ready_at: Instant,
    /// A limit admits it then and not before, or once it is let go ([`UNTIL_LET_GO`]); nothing once that moment has come.
    pub not_before: Option<Instant>,
    /// What it must not overtake: the older entries of its leg with the same key. `None`: it keeps no order.
    pub key: Option<OrderKey>,
    /// A former owner left it, or such ones stand before it, and it waits for its first round.
    pub inherited: bool,
    /// The round that it was taken up with, until it is known what became of it.
    pub round: Option<RoundId>,
}

/// What keeps an entry until it is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The log, at this place.
    Log(Place),
    /// The source, which has not been told that this delivery is done with.
    Held(DeliveryId),
    /// The same, and the log has it or is about to; it was not met there yet.
    Spilled(DeliveryId),
}

impl Origin {
    /// The place in the log, where the log keeps it.
    #[must_use]
    pub const fn place(self) -> Option<Place> {
        match self {
            Self::Log(place) => Some(place),
            Self::Held(_) | Self::Spilled(_) => None,
        }
    }

    /// The delivery, where the source alone keeps it.
    #[must_use]
    pub const fn delivery(self) -> Option<DeliveryId> {
        match self {
            Self::Held(delivery) => Some(delivery),
            Self::Log(_) | Self::Spilled(_) => None,
        }
    }
}

/// A hash of what decides the order of entries. Two keys that share one only wait for each other more than they had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderKey(pub u64);

/// Names a batch in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// Names a dead letter in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkId(pub u64);

/// A destination's limits on one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Entries.
    pub entries: usize,
    /// Bytes.
    pub bytes: usize,
    /// Bytes of one entry.
    pub entry_bytes: usize,
}

/// How one leg sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Entries in flight at most.
    pub max_in_flight: usize,
    /// How long a ready entry may wait for company under load.
    pub linger: Duration,
    /// The destination's limits.
    pub limits: BatchLimits,
    /// How it takes up what is to be tried again and what former owners left; `None`: as it comes.
    pub pacing: Option<Pacing>,
    /// When it leaves its destination alone; `None`: never.
    pub breaker: Option<BreakerOptions>,
    /// What bounds it besides, and when it pauses.
    pub sender: SenderOptions,
}

impl Pace {
    /// Batches in flight at most.
    #[must_use]
    pub fn max_sends(&self) -> usize {
        self.pacing.map_or(usize::MAX, |pacing| pacing.max_sends)
    }
}

/// What leaves at once.
#[derive(Debug)]
pub struct Launch {
    /// The batch.
    pub batch: BatchId,
    /// The index of its leg.
    pub leg: usize,
    /// Its entries; empty where all had expired.
    pub entries: Vec<Arc<Entry>>,
    /// How long each entry that is sent for the first time by this owner had been ready.
    pub delays: Vec<Duration>,
    /// What is not sent because it expired; the caller's to settle or park.
    pub expired: Vec<Item>,
}

/// The entries in memory: ready, waiting for another attempt, in flight.
#[derive(Debug)]
pub struct Drain {
    paces: Vec<Pace>,
    legs: Vec<Sending>,
    shares: Shares,
    waiting: BTreeMap<(Instant, u64), Item>,
    flights: HashMap<BatchId, Vec<Item>>,
    parks: HashMap<ParkId, Item>,
    next_id: u64,
    next_turn: u64,
    weight: usize,
    count: usize,
    /// Those that wait for the moment for which a limit admitted them, and what they weigh.
    reserved: (usize, usize),
}

impl Drain {
    /// One queue for each leg.
    #[must_use]
    pub fn new(paces: Vec<Pace>) -> Self {
        Self {
            legs: paces.iter().map(Sending::new).collect(),
            paces,
            shares: Shares::default(),
            waiting: BTreeMap::new(),
            flights: HashMap::new(),
            parks: HashMap::new(),
            next_id: 0,
            next_turn: 0,
            weight: 0,
            count: 0,
            reserved: (0, 0),
        }
    }

    /// With limits on what each leg sends, in the order of the legs.
    #[must_use]
    pub fn limited_by(mut self, limits: impl IntoIterator<Item = Vec<SendLimit>>) -> Self {
        for (sending, limits) in self.legs.iter_mut().zip(limits) {
            sending.limit(limits);
        }
        self
    }

    /// Entries that wait because a limit says so, and what they weigh in bytes.
    #[must_use]
    pub fn deferred(&self) -> (usize, usize) {
        let each = self.legs.iter().map(Sending::deferred);
        each.fold(self.reserved, |(count, weight), (more, heavier)| (count + more, weight + heavier))
    }

    /// What limits dropped since it was last asked; the caller's to settle.
    pub fn take_limited(&mut self) -> Vec<(Item, Reason)> {
        self.legs.iter_mut().flat_map(Sending::take_limited).collect()
    }

    /// How many entries of a leg have to wait that did not when it was last asked.
    pub fn take_told(&mut self) -> Vec<(usize, Reason, u64)> {
        let each = self.legs.iter_mut().enumerate();
        each.flat_map(|(leg, sending)| sending.take_told().into_iter().map(move |(reason, count)| (leg, reason, count))).collect()
    }

    fn share(&self, lane: LaneId) -> Share {
        self.shares.lanes.get(lane.index()).copied().unwrap_or_default()
    }

    fn share_mut(&mut self, origin: Origin) -> &mut Share {
        self.shares.of(origin)
    }

    /// Entries that the source holds.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.shares.held.count
    }

    /// What those weigh, in bytes.
    #[must_use]
    pub const fn held_weight(&self) -> usize {
        self.shares.held.weight
    }

    /// Entries that limits keep from leaving, and those that stand in line behind them.
    #[must_use]
    pub fn kept_by_limits(&self) -> usize {
        let behind = self.legs.iter().enumerate().map(|(leg, sending)| {
            let reserved = self.waiting.values().filter(|item| item.leg == leg && item.not_before.is_some());
            let keys: HashSet<OrderKey> = reserved.chain(sending.limited()).filter_map(|item| item.key).collect();
            sending.lines.iter().filter(|(key, _)| keys.contains(key)).map(|(_, line)| line.len()).sum::<usize>()
        });
        self.deferred().0 + behind.sum::<usize>()
    }

    /// Entries of `lane` in memory that are not settled.
    #[must_use]
    pub fn len_of(&self, lane: LaneId) -> usize {
        self.share(lane).count
    }

    /// What those of `lane` weigh, in bytes.
    #[must_use]
    pub fn weight_of(&self, lane: LaneId) -> usize {
        self.share(lane).weight
    }

    /// Entries of `lane` being sent or parked.
    #[must_use]
    pub fn in_flight_from(&self, lane: LaneId) -> usize {
        self.share(lane).in_flight
    }

    /// Entries in memory that are not settled.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What they weigh, in bytes.
    #[must_use]
    pub const fn weight(&self) -> usize {
        self.weight
    }

    /// Entries being sent or parked.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.legs.iter().map(|sending| sending.in_flight).sum::<usize>() + self.parks.len()
    }

    /// Entries of `leg` being sent or parked.
    #[must_use]
    pub fn in_flight_of(&self, leg: usize) -> usize {
        self.legs.get(leg).map_or(0, |sending| sending.in_flight) + self.parks.values().filter(|item| item.leg == leg).count()
    }

    /// Entries of `leg` in memory.
    #[must_use]
    pub fn count_of(&self, leg: usize) -> usize {
        self.legs.get(leg).map_or(0, |sending| sending.unsent().count() + sending.in_flight)
            + self.waiting.values().chain(self.parks.values()).filter(|item| item.leg == leg).count()
    }

    /// Entries that spilled and were not met in the log yet.
    #[must_use]
    pub const fn spilled(&self) -> usize {
        self.shares.spilled.count
    }

    /// What those weigh, in bytes.
    #[must_use]
    pub const fn spilled_weight(&self) -> usize {
        self.shares.spilled.weight
    }

    /// Says anew what keeps an entry; it stays where it is, with its turn. `false` where it is not here.
    pub fn rebind(&mut self, id: Id128, origin: Origin) -> bool {
        let under_way = self.flights.values_mut().flatten().chain(self.parks.values_mut());
        if let Some(item) = under_way.into_iter().find(|item| item.entry.id == id) {
            self.shares.rebind(item, origin, true);
            return true;
        }
        let unsent = self.legs.iter_mut().flat_map(Sending::unsent_mut);
        match self.waiting.values_mut().chain(unsent).find(|item| item.entry.id == id) {
            Some(item) => self.shares.rebind(item, origin, false),
            None => return false,
        }
        true
    }

    /// The same for an item that the caller took out.
    pub fn rebind_taken(&mut self, item: &mut Item, origin: Origin) {
        self.shares.rebind(item, origin, false);
    }

    /// Entries of `leg` that the source holds, but for those being sent or parked.
    #[must_use]
    pub fn idle_held_of(&self, leg: usize) -> usize {
        let waiting = self.waiting.values().filter(|item| item.leg == leg);
        let unsent = self.legs.get(leg).into_iter().flat_map(Sending::unsent);
        waiting.chain(unsent).filter(|item| item.origin.delivery().is_some()).count()
    }

    /// The attempts of entries of `lane` that were tried and are not settled, oldest first, at most `limit`.
    #[must_use]
    pub fn attempts(&self, lane: LaneId, limit: usize) -> Vec<(Position, u32)> {
        let mut attempts: Vec<(Position, u32)> = self
            .waiting
            .values()
            .chain(self.parks.values())
            .chain(self.flights.values().flatten())
            .chain(self.legs.iter().flat_map(Sending::unsent))
            .filter(|item| item.attempts > 0)
            .filter_map(|item| Some((item.origin.place()?, item.attempts)))
            .filter(|(place, _)| place.lane == lane)
            .map(|(place, attempts)| (place.position, attempts))
            .collect();
        attempts.sort_unstable();
        attempts.truncate(limit);
        attempts
    }

    /// The oldest entry in memory.
    #[must_use]
    pub fn oldest(&self) -> Option<&Item> {
        self.waiting
            .values()
            .chain(self.parks.values())
            .chain(self.flights.values().flatten())
            .chain(self.legs.iter().filter_map(|sending| sending.ready.first_key_value().map(|(_, item)| item)))
            .chain(self.legs.iter().flat_map(Sending::due))
            .chain(self.legs.iter().flat_map(Sending::limited))
            .min_by_key(|item| item.turn)
    }

    /// Takes a loaded entry to be sent.
    pub fn push(&mut self, mut item: Item) {
        self.admit(&mut item);
        if let Some(sending) = self.legs.get(item.leg) {
            sending.stand_behind(&mut item);
        }
        if let (Some(sending), Some(key)) = (self.legs.get_mut(item.leg), item.key) {
            if let Some(line) = sending.lines.get_mut(&key) {
                return line.push_back(item);
            }
            sending.lines.insert(key, VecDeque::new());
        }
        self.make_ready(item);
    }

    /// The next entry of a key whose oldest one is settled.
    fn advance(&mut self, now: Instant, leg: usize, key: OrderKey) {
        let Some(sending) = self.legs.get_mut(leg) else { return };
        let Some(line) = sending.lines.get_mut(&key) else { return };
        match line.pop_front() {
            Some(mut item) => {
                item.ready_at = now;
                self.make_ready(item);
            }
            None => {
                sending.lines.remove(&key);
            }
        }
    }

    /// Counts an entry that the caller keeps: it will be parked or settled, never sent, and nothing waits for it. Its key must be `None`.
    pub fn admit(&mut self, item: &mut Item) {
        item.turn = self.next_turn;
        self.next_turn += 1;
        let weight = item.entry.message.weight();
        self.count += 1;
        self.weight += weight;
        let share = self.share_mut(item.origin);
        share.count += 1;
        share.weight += weight;
    }

    fn make_ready(&mut self, item: Item) {
        if let Some(at) = item.not_before.filter(|at| *at > item.ready_at) {
            self.reserved.0 += 1;
            self.reserved.1 += item.entry.message.weight();
            self.waiting.insert((at, item.turn), item);
            return;
        }
        let item = Item { not_before: None, ..item };
        if let Some(sending) = self.legs.get_mut(item.leg) {
            sending.line_up(item);
        }
    }

    /// Ends the senders' pauses that are over, and begins the rounds that are due. `all`: what waits for one is ready at once, since there is no time
    /// left. Answers which legs' senders go on, and whether they do so although something is under way.
    pub fn release(&mut self, now: Instant, all: bool, jitter: &mut Jitter) -> Vec<(usize, bool)> {
        let mut resumed = Vec::new();
        for (leg, sending) in self.legs.iter_mut().enumerate() {
            let before = sending.flow.resumed();
            sending.flow.tick(now, sending.in_flight, jitter);
            let after = sending.flow.resumed();
            if after != before {
                resumed.push((leg, after.forced > before.forced));
            }
            sending.release(now, all, &mut || jitter.fraction());
        }
        resumed
    }

    /// The destination accepted an item that came back.
    pub fn accepted(&mut self, item: &mut Item) {
        self.answer(item, Answer::Accepted);
    }

    /// An item came to another end than to be accepted: nothing of its round waits for it.
    pub fn ended(&mut self, item: &mut Item) {
        self.answer(item, Answer::Ended);
    }

    fn answer(&mut self, item: &mut Item, answer: Answer) {
        if let Some(sending) = self.legs.get_mut(item.leg) {
            sending.answer(item, answer);
        }
    }

    /// Moves entries whose pause is over to the ready ones, or to those that wait for a round.
    pub fn wake(&mut self, now: Instant) {
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > now {
                break;
            }
            let mut item = first.remove();
            item.ready_at = now;
            self.unreserve(&mut item);
            self.make_ready(item);
        }
    }

    /// An entry that waits until it is let go does so no longer, wherever it stands.
    pub fn let_go(&mut self, now: Instant, id: Id128) {
        let of_waiting = self.waiting.range((UNTIL_LET_GO, 0)..).find(|(_, item)| item.entry.id == id).map(|(place, _)| *place);
        if let Some(mut item) = of_waiting.and_then(|place| self.waiting.remove(&place)) {
            item.ready_at = now;
            self.unreserve(&mut item);
            return self.make_ready(item);
        }
        let in_line = self.legs.iter_mut().flat_map(|sending| sending.lines.values_mut().flatten());
        if let Some(item) = in_line.into_iter().find(|item| item.entry.id == id) {
            item.not_before = None;
        }
    }

    /// An item waits for its moment no longer.
    fn unreserve(&mut self, item: &mut Item) {
        if item.not_before.take().is_some() {
            self.reserved.0 -= 1;
            self.reserved.1 -= item.entry.message.weight();
        }
    }

    /// When `wake` or `launch` should be asked again although nothing happened.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let waiting = self.waiting.first_key_value().map(|((at, _), _)| *at).filter(|at| *at < UNTIL_LET_GO);
        let has_room = |sending: &Sending, pace: &Pace| sending.room(pace, now) > 0;
        let lingering =
            self.legs.iter().zip(&self.paces).filter(|(sending, pace)| has_room(sending, pace)).filter_map(|(sending, pace)| {
                let (_, first) = sending.ready.first_key_value()?;
                Some(first.ready_at.plus(pace.linger))
            });
        let rounds = self.legs.iter().filter_map(Sending::release_at);
        let probes = self.legs.iter().filter_map(Sending::probe_at);
        let flows = self.legs.iter().filter_map(|sending| sending.flow.wake_at());
        let admitted = self
            .legs
            .iter()
            .zip(&self.paces)
            .filter(|(sending, pace)| has_room(sending, pace))
            .filter_map(|(sending, _)| sending.admits_at(now));
        // What is due and still did not happen waits for an event; it must not hide what is due next.
        let all = lingering.chain(waiting).chain(rounds).chain(probes).chain(admitted).chain(flows);
        all.filter(|at| *at > now).min()
    }

    /// What is to leave now, if anything: a full batch, or a smaller one where nothing is under way or its oldest entry has waited long enough.
    /// `eager` sends whatever is ready; nothing leaves that stands behind the limit of its lane (`limits`, by lane; a lane that is missing there has
    /// none), unless it holds up what stands before it. Entries that `is_expired` means do not go with the batch.
    pub fn launch(&mut self, now: Instant, eager: bool, limits: &[Option<Position>], is_expired: impl Fn(&Item) -> bool) -> Option<Launch> {
        let is_within = |item: &Item| {
            let limit_of = |place: Place| limits.get(place.lane.index()).copied().flatten();
            item.origin.place().is_none_or(|place| limit_of(place).is_none_or(|up_to| place.position <= up_to))
        };
        for leg in 0..self.legs.len() {
            let (Some(sending), Some(pace)) = (self.legs.get_mut(leg), self.paces.get(leg)) else { continue };
            // Mail may enter the log before a message of the same key that was sent past it: then what is beyond the limit has to go first.
            let holds_up: HashSet<OrderKey> = if limits.is_empty() {
                HashSet::new()
            } else {
                sending.lines.iter().filter(|(_, line)| line.iter().any(is_within)).map(|(key, _)| *key).collect()
            };
            let may_leave = |item: &Item| is_within(item) || item.key.is_some_and(|key| holds_up.contains(&key));
            sending.admit(pace, now, may_leave, &is_expired);
            let Some(count) = sending.batch_count(pace, now, eager, may_leave) else { continue };
            let mut items = Vec::with_capacity(count);
            let mut expired = Vec::new();
            let mut delays = Vec::new();
            for _ in 0..count {
                let Some(turn) = sending.ready.iter().find(|(_, item)| may_leave(item)).map(|(turn, _)| *turn) else { break };
                let Some(mut item) = sending.ready.remove(&turn) else { break };
                if is_expired(&item) {
                    expired.push(item);
                    continue;
                }
                if item.first_attempt.is_none() {
                    item.first_attempt = Some(now);
                    delays.push(now.since(item.ready_at));
                }
                item.attempts = item.attempts.saturating_add(1);
                self.shares.of(item.origin).in_flight += 1;
                items.push(item);
            }
            let batch = BatchId(self.next_id);
            let entries: Vec<Arc<Entry>> = items.iter().map(|item| Arc::clone(&item.entry)).collect();
            if !items.is_empty() {
                self.next_id += 1;
                sending.in_flight += items.len();
                sending.unacked += items.iter().map(|item| item.size).sum::<usize>();
                sending.sends += 1;
                if let Some(breaker) = &mut sending.breaker {
                    breaker.began();
                }
                sending.last_send_began = Some(now);
                self.flights.insert(batch, items);
            }
            return Some(Launch { batch, leg, entries, delays, expired });
        }
        None
    }

    /// The entries of a batch that came back, in order; they are the caller's to settle, retry or park.
    pub fn landed(&mut self, batch: BatchId) -> Vec<Item> {
        let items = self.flights.remove(&batch).unwrap_or_default();
        if let Some(sending) = items.first().and_then(|item| self.legs.get_mut(item.leg)) {
            sending.sends -= 1;
        }
        for item in &items {
            if let Some(sending) = self.legs.get_mut(item.leg) {
                sending.in_flight -= 1;
                sending.unacked -= item.size;
            }
            self.share_mut(item.origin).in_flight -= 1;
        }
        items
    }

    /// Whether any entry is ready to be sent, and nothing keeps it from leaving.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        let may_send = |sending: &Sending| sending.circuit() == Circuit::Closed && sending.flow.window() > 0;
        self.legs.iter().any(|sending| !sending.ready.is_empty() && may_send(sending))
    }

    /// What is known of the connection under `leg` changed.
    pub fn linked(&mut self, now: Instant, leg: usize, link: SenderLink, jitter: &mut Jitter) {
        if let Some(sending) = self.legs.get_mut(leg) {
            sending.flow.linked(now, link, jitter);
        }
    }

    /// What a send of `leg` that ended says of its sender: so many entries were accepted, or the destination asked for less.
    pub fn answered(&mut self, now: Instant, leg: usize, accepted: usize, throttled: bool, jitter: &mut Jitter) {
        let Some(sending) = self.legs.get_mut(leg) else { return };
        sending.flow.accepted(accepted);
        if throttled {
            sending.flow.throttle(now, jitter);
        }
    }

    /// What the sender of `leg` does.
    #[must_use]
    pub fn flow(&self, leg: usize) -> Option<&SenderFlow> {
        self.legs.get(leg).map(|sending| &sending.flow)
    }

    /// Bytes of `leg` under way.
    #[must_use]
    pub fn unacked_of(&self, leg: usize) -> usize {
        self.legs.get(leg).map_or(0, |sending| sending.unacked)
    }

    /// Tells the circuit breaker of `leg`, if it has one, how a send ended; whether it is open from now on.
    pub fn send_ended(&mut self, now: Instant, leg: usize, end: SendEnd) -> bool {
        let breaker = self.legs.get_mut(leg).and_then(|sending| sending.breaker.as_mut());
        breaker.is_some_and(|breaker| breaker.ended(now, end))
    }

    /// What the circuit breaker of `leg` lets through.
    #[must_use]
    pub fn circuit(&self, leg: usize) -> Circuit {
        self.legs.get(leg).map(Sending::circuit).unwrap_or_default()
    }

    /// Puts an entry back until `at`.
    pub fn retry(&mut self, mut item: Item, at: Instant) {
        self.answer(&mut item, Answer::PutOff);
        self.waiting.insert((at, item.turn), item);
    }

    /// Notes that an entry's dead letter is being written.
    pub fn parking(&mut self, item: Item) -> ParkId {
        let id = ParkId(self.next_id);
        self.next_id += 1;
        self.share_mut(item.origin).in_flight += 1;
        self.parks.insert(id, item);
        id
    }

    /// How many dead letters are being written.
    #[must_use]
    pub fn parks(&self) -> usize {
        self.parks.len()
    }

    /// The entry whose dead letter was written, or was refused.
    pub fn parked(&mut self, park: ParkId) -> Option<Item> {
        let item = self.parks.remove(&park)?;
        self.share_mut(item.origin).in_flight -= 1;
        Some(item)
    }

    /// An entry that the caller took out is settled. The next of its key is ready at once.
    pub fn settled(&mut self, now: Instant, item: &Item) {
        if let Some(key) = item.key {
            self.advance(now, item.leg, key);
        }
        let weight = item.entry.message.weight();
        self.count -= 1;
        self.weight -= weight;
        let share = self.share_mut(item.origin);
        share.count -= 1;
        share.weight -= weight;
    }

    /// Takes out what the source held of `connection`, but for what is being sent or parked, and for what `stays` means: the source brings it again.
    /// Oldest first; the caller's to settle.
    pub fn forget(&mut self, connection: ConnectionEpoch, stays: impl Fn(&Item) -> bool) -> Vec<Item> {
        let goes = |item: &Item| item.origin.delivery().is_some_and(|delivery| delivery.connection == connection) && !stays(item);
        let mut gone: Vec<Item> = self.waiting.extract_if(.., |_, item| goes(item)).map(|(_, item)| item).collect();
        gone.iter_mut().for_each(|item| self.unreserve(item));
        for sending in &mut self.legs {
            gone.extend(sending.extract(goes));
        }
        for item in &mut gone {
            self.ended(item);
        }
        gone.sort_unstable_by_key(|item| item.turn);
        gone
    }

    /// Takes out the oldest entry of `leg` that `is_its` means, but for what is being sent or parked; the caller's to settle.
    pub fn take_oldest(&mut self, leg: usize, is_its: impl Fn(&Item) -> bool) -> Option<Item> {
        let unsent = self.legs.get(leg).into_iter().flat_map(Sending::unsent);
        let turn = self.waiting.values().chain(unsent).filter(|item| is_its(item)).map(|item| item.turn).min()?;
        let waiting = self.waiting.extract_if(.., |_, item| item.turn == turn).map(|(_, item)| item).next();
        let waiting = waiting.map(|mut item| {
            self.unreserve(&mut item);
            item
        });
        waiting.or_else(|| self.legs.get_mut(leg)?.extract(|item| item.turn == turn).pop())
    }

    /// The ids of entries in memory, for tests and counting.
    pub fn ids(&self) -> impl Iterator<Item = Id128> + '_ {
        self.waiting
            .values()
            .chain(self.parks.values())
            .chain(self.flights.values().flatten())
            .chain(self.legs.iter().flat_map(Sending::unsent))
            .map(|item| item.entry.id)
    }
}
