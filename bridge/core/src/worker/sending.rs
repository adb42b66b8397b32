//! Sending: what is taken up into memory, what becomes of each attempt, and what is dead-lettered.

use super::events::{Effect, Observation};
use super::lane::Lane;
use super::options::Fate;
use super::{Doomed, MAX_PARKS, Owner, Stage};
use crate::dead_letter::DeadLetter;
use crate::drain::breaker::SendEnd;
use crate::drain::{BatchId, Item, Origin, ParkId};
use crate::drops::{DropOutcome, Dropped};
use crate::identity::{LaneId, Place, Position};
use crate::message::{Entry, Refusal};
use crate::outcome::{Fault, FaultClass, FaultCode, Outcome};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;
use std::sync::Arc;

impl Owner {
    /// Loads what memory has room for, lane by lane; returns whether anything was loaded.
    pub(super) fn load(&mut self, now: Instant, wall: UnixMillis) -> bool {
        let mut progress = false;
        for index in 0..self.lanes.len() {
            progress |= self.load_lane(now, wall, LaneId(u32::try_from(index).unwrap_or(u32::MAX)));
        }
        if !self.recovered && self.lanes.iter().all(Lane::is_recovered) {
            self.recovered = true;
            let entries = self.counters.iter().map(|counters| counters.recovered).sum();
            self.effects.push(Effect::Observe(Observation::Recovered { entries }));
            self.take_up_held(now, wall);
            progress = true;
        }
        progress
    }

    fn load_lane(&mut self, now: Instant, wall: UnixMillis, id: LaneId) -> bool {
        let mut progress = false;
        while self.has_room(id) {
            let Some(lane) = self.lanes.get_mut(id.index()) else { break };
            let loaded = match lane.loader.take_next() {
                Ok(Some(loaded)) => loaded,
                Ok(None) => break,
                Err(fault) => {
                    self.unreadable = Some(fault);
                    break;
                }
            };
            progress = true;
            if loaded.slot <= lane.settled.loaded() {
                continue;
            }
            if loaded.is_segment {
                lane.settled.load(loaded.slot, u32::try_from(loaded.entries.len()).unwrap_or(u32::MAX));
            } else {
                lane.settled.pass(loaded.slot);
            }
            for (index, entry) in (0_u32..).zip(loaded.entries) {
                let place = Place { lane: id, position: Position { slot: loaded.slot, index } };
                self.take_up(now, wall, place, entry, loaded.read_back);
            }
        }
        progress
    }

    fn take_up(&mut self, now: Instant, wall: UnixMillis, place: Place, entry: Arc<Entry>, read_back: bool) {
        let leg = self.leg_of(&entry);
        let Some(lane) = self.lanes.get_mut(place.lane.index()) else { return };
        let inherited = place.position.slot < lane.anchor;
        if inherited && lane.loader.was_settled(place.position) {
            lane.settled.restore(place.position);
            return;
        }
        let attempts = lane.loader.take_attempts(place.position);
        if inherited {
            self.store_added(&entry);
        }
        if let Some(counters) = self.counters.get_mut(leg) {
            if inherited {
                counters.recovered += 1;
            } else if read_back {
                counters.unloaded = counters.unloaded.saturating_sub(1);
            }
        }
        if self.meet(place, &entry) {
            return;
        }
        self.admit(now, wall, Origin::Log(place), entry, attempts, inherited);
    }

    /// Takes an entry into memory, to be sent unless something is against it. `inherited`: a former owner left it.
    pub(super) fn admit(&mut self, now: Instant, wall: UnixMillis, origin: Origin, entry: Arc<Entry>, attempts: u32, inherited: bool) {
        let leg = self.leg_of(&entry);
        let makes_room = self.has_to_make_room(origin, &entry);
        let options = self.options.legs.get(leg);
        let size = options.map_or(0, |options| (options.size_of)(&entry));
        let refusal = makes_room.or_else(|| match options {
            None => Some(self.unknown(&entry)),
            Some(options) if entry.refusal.is_none() && size > options.limits.entry_bytes => {
                let detail = format!("{size} bytes with attributes; the destination takes {}", options.limits.entry_bytes);
                Some(Fault::new(FaultCode::PayloadTooLarge, detail))
            }
            Some(_) => entry.refusal.as_ref().map(Refusal::fault).or_else(|| expired(&entry, attempts, wall)),
        });
        let mut item = Item {
            origin,
            turn: 0,
            entry,
            leg,
            size,
            attempts,
            first_attempt: None,
            ready_at: now,
            not_before: None,
            key: None,
            inherited,
            round: None,
        };
        item.not_before = self.reserved.remove(&item.entry.id);
        match refusal {
            None => {
                item.key = options.and_then(|options| (options.key_of)(&item.entry));
                self.drain.push(item);
            }
            Some(fault) => {
                self.drain.admit(&mut item);
                self.doom(now, item, fault);
            }
        }
    }

    /// Why an entry has no leg.
    fn unknown(&self, entry: &Entry) -> Fault {
        let route_is_known = self.options.legs.iter().any(|leg| leg.route == entry.route);
        let detail = if route_is_known {
            format!("route `{}` has no binding named `{}`", entry.route, entry.binding)
        } else {
            format!("no route of this configuration is named `{}`", entry.route)
        };
        Fault::new(FaultCode::NotFound, detail)
    }

    pub(super) fn send(&mut self, now: Instant, wall: UnixMillis) {
        let eager = match self.stage {
            Stage::Running => false,
            Stage::Draining { until } if now < until => true,
            Stage::Draining { .. } | Stage::Finished => return,
        };
        for (leg, forced) in self.drain.release(now, eager, &mut self.jitter) {
            self.effects.push(Effect::Observe(Observation::SenderResumed { leg, forced }));
        }
        loop {
            // Where too much is settled behind a stuck entry, only its own segment goes on. Were the stuck entry held back too, nothing would ever
            // move again.
            let most = self.options.max_settled_ahead;
            let limit = |lane: &Lane| if lane.settled.settled_ahead() < most { None } else { lane.settled.stuck_at() };
            // No list where no lane is stuck, which is nearly always.
            let limits: Vec<Option<Position>> =
                if self.lanes.iter().any(|lane| limit(lane).is_some()) { self.lanes.iter().map(limit).collect() } else { Vec::new() };
            let launch = self.drain.launch(now, eager, &limits, |item| expired(&item.entry, item.attempts, wall).is_some());
            let dropped = self.settle_limited(now);
            let Some(launch) = launch else {
                // What stood behind it may be ready now.
                if dropped { continue } else { break }
            };
            for item in launch.expired {
                if let Some(fault) = expired(&item.entry, item.attempts, wall) {
                    self.doom(now, item, fault);
                }
            }
            if !launch.entries.is_empty() {
                self.effects.push(Effect::Send { batch: launch.batch, leg: launch.leg, entries: launch.entries, delays: launch.delays });
            }
        }
    }

    /// Drops what a limit of its leg does not let wait, and tells how many have to; whether anything was dropped.
    fn settle_limited(&mut self, now: Instant) -> bool {
        for (leg, reason, entries) in self.drain.take_told() {
            self.effects.push(Effect::Observe(Observation::Deferred { leg, reason, entries }));
        }
        let dropped = self.drain.take_limited();
        let any = !dropped.is_empty();
        for (mut item, reason) in dropped {
            self.drain.ended(&mut item);
            self.count_limited(&item.entry, reason);
            self.finish(now, &item);
        }
        any
    }

    pub(super) fn sent(&mut self, now: Instant, wall: UnixMillis, batch: BatchId, outcomes: Vec<Outcome<()>>) {
        let items = self.drain.landed(batch);
        self.tell_breaker(now, &items, &outcomes);
        self.tell_flow(now, &items, &outcomes);
        let mut outcomes = outcomes.into_iter();
        for mut item in items {
            self.follow_spilled(&mut item);
            let outcome =
                outcomes.next().unwrap_or_else(|| Outcome::Unknown(Fault::new(FaultCode::ProtocolError, "no outcome for this entry")));
            match outcome {
                Outcome::Done(()) => {
                    if let Some(last) = self.last_success.get_mut(item.leg) {
                        *last = Some(now);
                    }
                    if let Some(counters) = self.counters.get_mut(item.leg) {
                        counters.delivered += 1;
                    }
                    self.drain.accepted(&mut item);
                    let latency = wall.since(item.entry.received_at);
                    self.effects.push(Effect::Observe(Observation::Delivered { leg: item.leg, latency }));
                    self.finish(now, &item);
                }
                // What is not certain is repeated: a duplicate is better than a loss.
                Outcome::Unknown(fault) => self.attempt_failed(now, item, fault),
                Outcome::NotDone(fault) => match fault.code.class() {
                    FaultClass::Transient | FaultClass::Permanent => self.attempt_failed(now, item, fault),
                    // This message is refused, whatever is done about the destination.
                    FaultClass::Rejected | FaultClass::Expired | FaultClass::Poison => self.doom(now, item, fault),
                },
            }
        }
    }

    /// What a send that ended says of its destination.
    fn tell_breaker(&mut self, now: Instant, items: &[Item], outcomes: &[Outcome<()>]) {
        let Some(leg) = items.first().map(|item| item.leg) else { return };
        let refused = |outcome: &Outcome<()>| match outcome {
            Outcome::NotDone(fault) => !matches!(fault.code.class(), FaultClass::Transient | FaultClass::Permanent),
            Outcome::Done(()) | Outcome::Unknown(_) => false,
        };
        let end = if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Done(()))) {
            SendEnd::Accepted
        } else if outcomes.iter().all(refused) && !outcomes.is_empty() {
            SendEnd::Refused
        } else {
            SendEnd::Failed
        };
        if self.drain.send_ended(now, leg, end) {
            self.effects.push(Effect::Observe(Observation::CircuitOpened { leg }));
        }
    }

    /// What a send that ended says of its sender's load.
    fn tell_flow(&mut self, now: Instant, items: &[Item], outcomes: &[Outcome<()>]) {
        let Some(leg) = items.first().map(|item| item.leg) else { return };
        let accepted = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(()))).count();
        let throttled = outcomes.iter().any(|outcome| match outcome {
            Outcome::Done(()) => false,
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => fault.code == FaultCode::Throttled,
        });
        self.drain.answered(now, leg, accepted, throttled, &mut self.jitter);
    }

    /// The destination asked for less: that says nothing of the entry, whose attempts and budget stay as they were. Its sender pauses as a whole, so the
    /// entry waits no longer than it was asked to.
    fn throttled(&mut self, now: Instant, mut item: Item, fault: Fault) {
        item.attempts = item.attempts.saturating_sub(1);
        let first = item.first_attempt.filter(|_| item.attempts > 0).unwrap_or(now);
        let Some(leg) = self.options.legs.get(item.leg) else { return self.drain.retry(item, now) };
        let pause = leg.policy.backoff.pause(1, &mut self.jitter).max(fault.retry_after.unwrap_or_default());
        item.first_attempt = Some(first.plus(pause));
        self.spill_failed(now, &mut item);
        self.effects.push(Effect::Observe(Observation::Throttled { leg: item.leg, fault }));
        self.drain.retry(item, now.plus(pause));
    }

    fn attempt_failed(&mut self, now: Instant, mut item: Item, fault: Fault) {
        let first = item.first_attempt.unwrap_or(now);
        if self.is_given_up(&item) {
            self.drain.ended(&mut item);
            return self.give_up(now, &item);
        }
        if fault.code == FaultCode::Throttled {
            return self.throttled(now, item, fault);
        }
        if let Some(fault) = self.has_to_make_room(item.origin, &item.entry) {
            self.doom(now, item, fault);
            return;
        }
        let (pause, exhausted) = self.retry_of(now, &item, &fault);
        // A queue that is gone or a permission that is missing concerns every message: somebody gets the budget to mend it.
        if exhausted && fault.code.class() == FaultClass::Permanent {
            self.doom(now, item, fault);
            return;
        }
        // While nothing at all is accepted the destination is at fault, not this entry: an outage of any length makes no poison.
        let others_pass = self.last_success.get(item.leg).copied().flatten().is_some_and(|last| last > first);
        if exhausted && others_pass {
            let detail = format!("{} attempts failed while others were delivered; last: {fault}", item.attempts);
            self.doom(now, item, Fault::new(FaultCode::PoisonMessage, detail));
            return;
        }
        self.spill_failed(now, &mut item);
        if let Some(lane) = item.origin.place().and_then(|place| self.lanes.get_mut(place.lane.index())) {
            lane.attempts_untold = true;
        }
        self.effects.push(Effect::Observe(Observation::Retried { leg: item.leg, fault }));
        self.drain.retry(item, now.plus(pause));
    }

    /// The entry will not be delivered: it is dead-lettered, or dropped where its route's policy says so.
    pub(super) fn doom(&mut self, now: Instant, mut item: Item, fault: Fault) {
        self.drain.ended(&mut item);
        let fate = self.options.legs.get(item.leg).map_or(Fate::DeadLetter, |leg| match fault.code {
            FaultCode::MessageExpired => leg.policy.on_expired,
            // It was kept for that alone.
            FaultCode::MessageFiltered => Fate::DeadLetter,
            FaultCode::Trimmed => self.fate_of_trimmed(),
            // Whoever wants it lost has another policy for that.
            FaultCode::StoreFull => Fate::DeadLetter,
            _ => leg.policy.on_permanent_failure,
        });
        match fate {
            Fate::DeadLetter => self.doomed.push_back(Doomed { item, fault, failures: 0 }),
            Fate::Drop => {
                if let Some(counters) = self.counters.get_mut(item.leg) {
                    if fault.code == FaultCode::MessageExpired { counters.expired += 1 } else { counters.dropped += 1 }
                }
                let dropped = self.dropped(&item, &fault, DropOutcome::Lost);
                self.effects.push(Effect::Observe(Observation::Dropped { leg: item.leg, code: fault.code, dropped }));
                self.finish(now, &item);
            }
        }
    }

    /// What is told of an item that is given up.
    fn dropped(&self, item: &Item, fault: &Fault, outcome: DropOutcome) -> Box<Dropped> {
        Box::new(Dropped::of(&item.entry, fault, outcome, item.leg >= self.options.legs.len()))
    }

    pub(super) fn park(&mut self, now: Instant, wall: UnixMillis) {
        while let Some(first) = self.doomed_later.first_entry() {
            if first.key().0 > now {
                break;
            }
            self.doomed.push_back(first.remove());
        }
        while self.drain.parks() < MAX_PARKS {
            let Some(Doomed { item, fault, failures }) = self.doomed.pop_front() else { break };
            let destination = self.options.legs.get(item.leg).map(|leg| leg.destination.clone()).unwrap_or_default();
            let letter = Box::new(DeadLetter::new(&item.entry, &destination, &fault, item.attempts, wall));
            let park = self.drain.parking(item);
            self.parking.insert(park, (fault, failures));
            self.effects.push(Effect::Park { park, letter });
        }
    }

    pub(super) fn parked(&mut self, now: Instant, park: ParkId, outcome: Outcome<()>) {
        let (Some(item), Some((fault, failures))) = (self.drain.parked(park), self.parking.remove(&park)) else { return };
        match outcome {
            Outcome::Done(()) => {
                if let Some(counters) = self.counters.get_mut(item.leg) {
                    counters.dead_lettered += 1;
                }
                let dropped = self.dropped(&item, &fault, DropOutcome::DeadLettered);
                self.effects.push(Effect::Observe(Observation::DeadLettered { leg: item.leg, code: fault.code, dropped }));
                self.finish(now, &item);
            }
            // The letter is written again until it stands: an entry is never given up without one.
            Outcome::NotDone(_) | Outcome::Unknown(_) if self.is_given_up(&item) => self.give_up(now, &item),
            Outcome::NotDone(refusal) | Outcome::Unknown(refusal) => {
                let pause = Duration::from_millis(500).saturating_mul(1 << failures.min(6));
                self.effects.push(Effect::Observe(Observation::DeadLetterFault(refusal)));
                self.doomed_later.insert((now.plus(pause), item.turn), Doomed { item, fault, failures: failures + 1 });
            }
        }
    }

    fn finish(&mut self, now: Instant, item: &Item) {
        if item.origin.delivery().is_none() {
            self.store_removed(&item.entry);
        }
        match item.origin {
            Origin::Log(place) => {
                if let Some(lane) = self.lanes.get_mut(place.lane.index()) {
                    lane.settled.settle(place.position);
                }
                if let Some(key) = self.spill_key_of(&item.entry) {
                    self.spill.unlogged(key);
                }
            }
            Origin::Held(delivery) => {
                self.spill.held_ended(item.entry.id);
                self.deliveries.entry_done(delivery);
            }
            Origin::Spilled(_) => {
                if let Some(delivery) = self.spill.spilled_ended(item.entry.id) {
                    self.deliveries.entry_done(delivery);
                }
            }
        }
        self.drain.settled(now, item);
    }
}

/// Why an entry that was tried `attempts` times is not sent any more, where its time is over. One whose publisher gave it no time at all is sent once.
fn expired(entry: &Entry, attempts: u32, wall: UnixMillis) -> Option<Fault> {
    let at = entry.expires_at.filter(|at| wall >= *at)?;
    if attempts == 0 && entry.message.properties.expiry_seconds == Some(0) {
        return None;
    }
    Some(Fault::new(FaultCode::MessageExpired, format!("expired {} ms ago", wall.since(at).as_millis())))
}
