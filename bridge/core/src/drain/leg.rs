//! What one leg sends: what is ready, what waits for a round, what stands in line.

use super::breaker::{Breaker, Circuit};
use super::pacer::{Pacer, SendLimit};
use super::rounds::{Answer, Rounds};
use super::{Item, OrderKey, Pace};
use crate::flow::Reason;
use crate::flow::sender::{SenderFlow, SenderOptions};
use crate::units::Instant;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What one leg sends.
#[derive(Debug)]
pub(super) struct Sending {
    /// By turn.
    pub ready: BTreeMap<u64, Item>,
    /// For each key of which an entry is not settled: those behind it, oldest first.
    pub lines: HashMap<OrderKey, VecDeque<Item>>,
    /// What waits for a round, by the time since when, and by turn. Whoever failed again stands behind all others.
    due: BTreeMap<(Instant, u64), Item>,
    /// How many of those a former owner left, or stand behind such.
    inherited: usize,
    rounds: Option<Rounds>,
    /// What limits on its first attempt may make wait.
    pacer: Option<Pacer>,
    pub breaker: Option<Breaker>,
    /// When it sends, and how much.
    pub flow: SenderFlow,
    pub in_flight: usize,
    /// What those take of a batch's bytes.
    pub unacked: usize,
    /// Batches in flight.
    pub sends: usize,
    pub last_send_began: Option<Instant>,
}

impl Sending {
    pub fn new(pace: &Pace) -> Self {
        let max_in_flight = pace.max_in_flight.min(pace.sender.max_in_flight);
        Self {
            ready: BTreeMap::new(),
            lines: HashMap::new(),
            due: BTreeMap::new(),
            inherited: 0,
            pacer: None,
            rounds: pace.pacing.map(Rounds::new),
            breaker: pace.breaker.map(Breaker::new),
            flow: SenderFlow::new(SenderOptions { max_in_flight, ..pace.sender }),
            in_flight: 0,
            unacked: 0,
            sends: 0,
            last_send_began: None,
        }
    }

    /// Sets limits on what it sends.
    pub fn limit(&mut self, limits: Vec<SendLimit>) {
        self.pacer = (!limits.is_empty()).then(|| Pacer::new(limits));
    }

    /// Entries that wait because a limit says so, and what they weigh.
    pub fn deferred(&self) -> (usize, usize) {
        self.pacer.as_ref().map_or((0, 0), Pacer::deferred)
    }

    pub fn take_limited(&mut self) -> Vec<(Item, Reason)> {
        self.pacer.as_mut().map(Pacer::take_dropped).unwrap_or_default()
    }

    pub fn take_told(&mut self) -> Vec<(Reason, u64)> {
        self.pacer.as_mut().map(Pacer::take_told).unwrap_or_default()
    }

    /// Entries that a limit was not asked about yet, or does not admit.
    pub fn limited(&self) -> impl Iterator<Item = &Item> {
        self.pacer.iter().flat_map(Pacer::items)
    }

    /// When a limit admits something that waits for it.
    pub fn admits_at(&self, now: Instant) -> Option<Instant> {
        self.pacer.as_ref()?.wake_at(now)
    }

    /// As many as may leave as one batch are ready, as far as limits admit them. They leave within a linger, so that what they were charged holds.
    pub fn admit(&mut self, pace: &Pace, now: Instant, may_leave: impl Fn(&Item) -> bool, is_expired: impl Fn(&Item) -> bool) {
        if self.pacer.as_ref().is_none_or(|pacer| pacer.len() == 0) {
            return;
        }
        let most = self.room(pace, now).min(pace.limits.entries);
        let mut ready = self.ready.values().filter(|item| may_leave(item)).count();
        let Some(pacer) = &mut self.pacer else { return };
        while ready < most
            && let Some(item) = pacer.admit(now, &may_leave, &is_expired)
        {
            self.ready.insert(item.turn, item);
            ready += 1;
        }
    }

    /// An item is ready, or waits until limits on its first attempt admit it.
    fn make_ready(&mut self, item: Item) {
        match &mut self.pacer {
            Some(pacer) if item.first_attempt.is_none() => pacer.push(item),
            Some(_) | None => {
                self.ready.insert(item.turn, item);
            }
        }
    }

    /// What the circuit breaker lets through.
    pub fn circuit(&self) -> Circuit {
        self.breaker.as_ref().map(Breaker::circuit).unwrap_or_default()
    }

    /// Entries that may leave now.
    pub fn room(&self, pace: &Pace, now: Instant) -> usize {
        if self.sends >= pace.max_sends() || self.flow.room_in_bytes(self.unacked) == 0 {
            return 0;
        }
        let most = self.breaker.as_ref().and_then(|breaker| breaker.most(now)).unwrap_or(usize::MAX);
        self.flow.window().min(most).saturating_sub(self.in_flight)
    }

    /// When the circuit breaker lets something through that is ready.
    pub fn probe_at(&self) -> Option<Instant> {
        let has_some = !self.ready.is_empty() || self.pacer.as_ref().is_some_and(|pacer| pacer.len() > 0);
        self.breaker.as_ref().filter(|_| has_some)?.opens_at()
    }

    /// Entries that wait for a round.
    pub fn due(&self) -> impl Iterator<Item = &Item> {
        self.due.values()
    }

    /// Entries that wait neither for a pause nor for an answer.
    pub fn unsent(&self) -> impl Iterator<Item = &Item> {
        self.ready.values().chain(self.due.values()).chain(self.lines.values().flatten()).chain(self.limited())
    }

    /// The same, to be changed.
    pub fn unsent_mut(&mut self) -> impl Iterator<Item = &mut Item> {
        let limited = self.pacer.iter_mut().flat_map(Pacer::items_mut);
        self.ready.values_mut().chain(self.due.values_mut()).chain(self.lines.values_mut().flatten()).chain(limited)
    }

    /// Lets nothing new overtake what former owners left.
    pub const fn stand_behind(&self, item: &mut Item) {
        item.inherited |= self.inherited > 0;
    }

    /// Whether something of former owners waits for a round, or whether the item waits for one for another reason.
    const fn is_paced(&self, item: &Item) -> bool {
        self.rounds.is_some() && (item.inherited || item.first_attempt.is_some())
    }

    /// An item may be sent: at once, or with a round.
    pub fn line_up(&mut self, item: Item) {
        if self.is_paced(&item) {
            self.inherited += usize::from(item.inherited);
            self.due.insert((item.ready_at, item.turn), item);
        } else {
            self.make_ready(item);
        }
    }

    /// Begins the rounds that are due: their items are ready. `all`: there is no time left for rounds.
    pub fn release(&mut self, now: Instant, all: bool, spread: &mut impl FnMut() -> f64) {
        // A round is not spent on a destination that is left alone.
        if self.breaker.as_ref().is_some_and(|breaker| breaker.most(now) == Some(0)) {
            return;
        }
        let Some(rounds) = self.rounds.as_mut().filter(|_| !self.due.is_empty()) else { return };
        let (round, count) = if all {
            (None, self.due.len())
        } else if rounds.due_at().is_some_and(|at| now < at) {
            return;
        } else {
            let Some((round, count)) = rounds.begin(now, spread(), self.due.len()) else { return };
            (Some(round), count)
        };
        for _ in 0..count {
            let Some((_, mut item)) = self.due.pop_first() else { return };
            self.inherited -= usize::from(core::mem::take(&mut item.inherited));
            item.round = round;
            item.ready_at = now;
            self.make_ready(item);
        }
    }

    /// When a round begins although nothing happens.
    pub fn release_at(&self) -> Option<Instant> {
        let due_at = self.rounds.as_ref().filter(|_| !self.due.is_empty())?.due_at();
        due_at.max(self.breaker.as_ref().and_then(Breaker::opens_at))
    }

    /// Tells the round of an item, if it has one, what became of it.
    pub fn answer(&mut self, item: &mut Item, answer: Answer) {
        if let (Some(rounds), Some(round)) = (&mut self.rounds, item.round.take()) {
            rounds.answered(round, answer);
        }
        if let (Some(rounds), Answer::Accepted) = (&mut self.rounds, answer) {
            rounds.accepted();
        }
    }

    /// Takes out what `goes` means; where it stood in line nobody is behind it whom its end would bring forward.
    pub fn extract(&mut self, goes: impl Fn(&Item) -> bool) -> Vec<Item> {
        let mut gone: Vec<Item> = self.ready.extract_if(.., |_, item| goes(item)).map(|(_, item)| item).collect();
        for (_, item) in self.due.extract_if(.., |_, item| goes(item)) {
            self.inherited -= usize::from(item.inherited);
            gone.push(item);
        }
        gone.extend(self.pacer.iter_mut().flat_map(|pacer| pacer.extract(&goes)));
        for line in self.lines.values_mut() {
            let (left, kept): (VecDeque<Item>, VecDeque<Item>) = core::mem::take(line).into_iter().partition(&goes);
            *line = kept;
            gone.extend(left.into_iter().map(|item| Item { key: None, ..item }));
        }
        gone
    }

    /// How many are to leave now as one batch, if any.
    pub fn batch_count(&self, pace: &Pace, now: Instant, eager: bool, may_leave: impl Fn(&Item) -> bool) -> Option<usize> {
        let mut ready = self.ready.values().filter(|item| may_leave(item)).peekable();
        let ready_at = ready.peek()?.ready_at;
        let room = self.room(pace, now).min(pace.limits.entries);
        if room == 0 {
            return None;
        }
        let most = pace.limits.bytes.min(self.flow.room_in_bytes(self.unacked));
        let mut bytes = 0;
        let mut considered = 0;
        let count = ready
            .take(room)
            .take_while(|item| {
                considered += 1;
                bytes += item.size;
                bytes <= most
            })
            .count()
            .max(1);
        let full = count == pace.limits.entries || considered > count;
        let under_load = self.in_flight > 0
            || self.last_send_began.is_some_and(|began| now.since(began) < pace.linger * crate::log::writer::LOAD_LINGERS);
        (full || eager || !under_load || now.since(ready_at) >= pace.linger).then_some(count)
    }
}
