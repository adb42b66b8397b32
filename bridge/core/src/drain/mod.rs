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
mod figures;
mod item;
mod leg;
mod pacer;
pub mod retry;
pub mod rounds;
mod shares;

pub use item::{BatchId, BatchLimits, Item, Launch, OrderKey, Origin, Pace, ParkId, UNTIL_LET_GO};
pub use pacer::SendLimit;
pub use rounds::Pacing;

use crate::flow::Reason;
use crate::flow::sender::SenderLink;
use crate::identity::{ConnectionEpoch, Id128, Place, Position};
use crate::message::Entry;
use crate::units::Instant;
use breaker::SendEnd;
use leg::Sending;
use retry::Jitter;
use rounds::Answer;
use shares::{Share, Shares};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

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

    /// What limits dropped since it was last asked; the caller's to settle.
    pub fn take_limited(&mut self) -> Vec<(Item, Reason)> {
        self.legs.iter_mut().flat_map(Sending::take_limited).collect()
    }

    /// How many entries of a leg have to wait that did not when it was last asked.
    pub fn take_told(&mut self) -> Vec<(usize, Reason, u64)> {
        let each = self.legs.iter_mut().enumerate();
        each.flat_map(|(leg, sending)| sending.take_told().into_iter().map(move |(reason, count)| (leg, reason, count))).collect()
    }

    fn share_mut(&mut self, origin: Origin) -> &mut Share {
        self.shares.of(origin)
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

    /// Tells the circuit breaker of `leg`, if it has one, how a send ended; whether it is open from now on.
    pub fn send_ended(&mut self, now: Instant, leg: usize, end: SendEnd) -> bool {
        let breaker = self.legs.get_mut(leg).and_then(|sending| sending.breaker.as_mut());
        breaker.is_some_and(|breaker| breaker.ended(now, end))
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
}
