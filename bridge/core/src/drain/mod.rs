//! What to send next.
//!
//! Entries leave in slot order. One that has to wait for its next attempt lets others pass; how far they may get ahead of it is bounded, because
//! everything settled behind it has to be remembered.

pub mod retry;

use crate::identity::{Id128, Position};
use crate::message::Entry;
use crate::units::Instant;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// An entry on its way to a destination.
#[derive(Clone, Debug)]
pub struct Item {
    /// Where it stands in the log.
    pub position: Position,
    /// The entry.
    pub entry: Arc<Entry>,
    /// The index of its route.
    pub route: usize,
    /// What it takes of a batch's bytes.
    pub size: usize,
    /// Attempts so far, those of former owners included.
    pub attempts: u32,
    /// When this owner first sent it.
    pub first_attempt: Option<Instant>,
    /// When it became ready.
    pub ready_at: Instant,
}

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

/// How one route sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Entries in flight at most.
    pub max_in_flight: usize,
    /// How long a ready entry may wait for company under load.
    pub linger: Duration,
    /// The destination's limits.
    pub limits: BatchLimits,
}

/// What leaves at once.
#[derive(Debug)]
pub struct Launch {
    /// The batch.
    pub batch: BatchId,
    /// The index of its route.
    pub route: usize,
    /// Its entries; empty where all had expired.
    pub entries: Vec<Arc<Entry>>,
    /// How long each entry that is sent for the first time by this owner had been ready.
    pub delays: Vec<Duration>,
    /// What is not sent because it expired; the caller's to settle or park.
    pub expired: Vec<Item>,
}

#[derive(Debug, Default)]
struct Lane {
    ready: BTreeMap<Position, Item>,
    in_flight: usize,
    last_send_began: Option<Instant>,
}

/// The entries in memory: ready, waiting for another attempt, in flight.
#[derive(Debug)]
pub struct Drain {
    paces: Vec<Pace>,
    lanes: Vec<Lane>,
    waiting: BTreeMap<(Instant, Position), Item>,
    flights: HashMap<BatchId, Vec<Item>>,
    parks: HashMap<ParkId, Item>,
    next_id: u64,
    weight: usize,
    count: usize,
}

impl Drain {
    /// One lane of sending for each route.
    #[must_use]
    pub fn new(paces: Vec<Pace>) -> Self {
        let lanes = paces.iter().map(|_| Lane::default()).collect();
        Self { paces, lanes, waiting: BTreeMap::new(), flights: HashMap::new(), parks: HashMap::new(), next_id: 0, weight: 0, count: 0 }
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
        self.lanes.iter().map(|lane| lane.in_flight).sum::<usize>() + self.parks.len()
    }

    /// Entries of `route` being sent or parked.
    #[must_use]
    pub fn in_flight_of(&self, route: usize) -> usize {
        self.lanes.get(route).map_or(0, |lane| lane.in_flight) + self.parks.values().filter(|item| item.route == route).count()
    }

    /// Entries of `route` in memory.
    #[must_use]
    pub fn count_of(&self, route: usize) -> usize {
        self.lanes.get(route).map_or(0, |lane| lane.ready.len() + lane.in_flight)
            + self.waiting.values().chain(self.parks.values()).filter(|item| item.route == route).count()
    }

    /// The attempts of entries that were tried and are not settled, oldest first, at most `limit`.
    #[must_use]
    pub fn attempts(&self, limit: usize) -> Vec<(Position, u32)> {
        let mut attempts: Vec<(Position, u32)> = self
            .waiting
            .values()
            .chain(self.parks.values())
            .chain(self.flights.values().flatten())
            .chain(self.lanes.iter().flat_map(|lane| lane.ready.values()))
            .filter(|item| item.attempts > 0)
            .map(|item| (item.position, item.attempts))
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
            .chain(self.lanes.iter().filter_map(|lane| lane.ready.first_key_value().map(|(_, item)| item)))
            .min_by_key(|item| item.position)
    }

    /// Takes a loaded entry to be sent.
    pub fn push(&mut self, item: Item) {
        self.admit(&item);
        self.make_ready(item);
    }

    /// Counts an entry that the caller keeps: it will be parked or settled, never sent.
    pub fn admit(&mut self, item: &Item) {
        self.count += 1;
        self.weight += item.entry.message.weight();
    }

    fn make_ready(&mut self, item: Item) {
        if let Some(lane) = self.lanes.get_mut(item.route) {
            lane.ready.insert(item.position, item);
        }
    }

    /// Moves entries whose pause is over to the ready ones.
    pub fn wake(&mut self, now: Instant) {
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > now {
                break;
            }
            let mut item = first.remove();
            item.ready_at = now;
            self.make_ready(item);
        }
    }

    /// When `wake` or `launch` should be asked again although nothing happened.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let waiting = self.waiting.first_key_value().map(|((at, _), _)| *at);
        let lingering =
            self.lanes.iter().zip(&self.paces).filter(|(lane, pace)| lane.in_flight < pace.max_in_flight).filter_map(|(lane, pace)| {
                let (_, first) = lane.ready.first_key_value()?;
                Some(first.ready_at.plus(pace.linger))
            });
        // What lingered long enough and still did not leave waits for an event; it must not hide the next pause's end.
        lingering.filter(|at| *at > now).chain(waiting).min()
    }

    /// What is to leave now, if anything: a full batch, or a smaller one where nothing is under way or its oldest entry has waited long enough.
    /// `eager` sends whatever is ready; nothing that stands behind `up_to` leaves. Entries that `is_expired` means do not go with the batch.
    pub fn launch(&mut self, now: Instant, eager: bool, up_to: Option<Position>, is_expired: impl Fn(&Item) -> bool) -> Option<Launch> {
        for route in 0..self.lanes.len() {
            let (Some(lane), Some(pace)) = (self.lanes.get_mut(route), self.paces.get(route)) else { continue };
            let Some(count) = batch_count(lane, pace, now, eager, up_to) else { continue };
            let mut items = Vec::with_capacity(count);
            let mut expired = Vec::new();
            let mut delays = Vec::new();
            for _ in 0..count {
                let Some((_, mut item)) = lane.ready.pop_first() else { break };
                if is_expired(&item) {
                    expired.push(item);
                    continue;
                }
                if item.first_attempt.is_none() {
                    item.first_attempt = Some(now);
                    delays.push(now.since(item.ready_at));
                }
                item.attempts = item.attempts.saturating_add(1);
                items.push(item);
            }
            let batch = BatchId(self.next_id);
            let entries: Vec<Arc<Entry>> = items.iter().map(|item| Arc::clone(&item.entry)).collect();
            if !items.is_empty() {
                self.next_id += 1;
                lane.in_flight += items.len();
                lane.last_send_began = Some(now);
                self.flights.insert(batch, items);
            }
            return Some(Launch { batch, route, entries, delays, expired });
        }
        None
    }

    /// The entries of a batch that came back, in order; they are the caller's to settle, retry or park.
    pub fn landed(&mut self, batch: BatchId) -> Vec<Item> {
        let items = self.flights.remove(&batch).unwrap_or_default();
        for item in &items {
            if let Some(lane) = self.lanes.get_mut(item.route) {
                lane.in_flight -= 1;
            }
        }
        items
    }

    /// Whether any entry is ready to be sent.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.ready.is_empty())
    }

    /// Puts an entry back until `at`.
    pub fn retry(&mut self, item: Item, at: Instant) {
        self.waiting.insert((at, item.position), item);
    }

    /// Notes that an entry's dead letter is being written.
    pub fn parking(&mut self, item: Item) -> ParkId {
        let id = ParkId(self.next_id);
        self.next_id += 1;
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
        self.parks.remove(&park)
    }

    /// An entry that the caller took out is settled.
    pub fn settled(&mut self, item: &Item) {
        self.count -= 1;
        self.weight -= item.entry.message.weight();
    }

    /// The ids of entries in memory, for tests and counting.
    pub fn ids(&self) -> impl Iterator<Item = Id128> + '_ {
        self.waiting
            .values()
            .chain(self.parks.values())
            .chain(self.flights.values().flatten())
            .chain(self.lanes.iter().flat_map(|lane| lane.ready.values()))
            .map(|item| item.entry.id)
    }
}

fn batch_count(lane: &Lane, pace: &Pace, now: Instant, eager: bool, up_to: Option<Position>) -> Option<usize> {
    let may_leave = |item: &Item| up_to.is_none_or(|up_to| item.position <= up_to);
    let first = lane.ready.first_key_value().map(|(_, first)| first).filter(|first| may_leave(first))?;
    let room = pace.max_in_flight.saturating_sub(lane.in_flight).min(pace.limits.entries);
    if room == 0 {
        return None;
    }
    let mut bytes = 0;
    let mut considered = 0;
    let count = lane
        .ready
        .values()
        .take(room)
        .take_while(|item| may_leave(item))
        .take_while(|item| {
            considered += 1;
            bytes += item.size;
            bytes <= pace.limits.bytes
        })
        .count()
        .max(1);
    let full = count == pace.limits.entries || considered > count;
    let under_load =
        lane.in_flight > 0 || lane.last_send_began.is_some_and(|began| now.since(began) < pace.linger * crate::log::writer::LOAD_LINGERS);
    (full || eager || !under_load || now.since(first.ready_at) >= pace.linger).then_some(count)
}
