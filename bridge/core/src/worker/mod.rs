//! The owner of one session's log: what happens when, from a delivery to its settlement.
//!
//! [`Owner::apply`] takes one event, changes the state, restores the invariants and returns the effects to carry out. It never waits. The shell
//! around it carries effects out one by one and brings their outcomes back as events.
//!
//! A log has one lane or more. An ordering key keeps its lane, so that each lane is a log of its own, with a writer of its own; the owner opens all
//! of them before it does anything, and whoever is fenced in one is fenced in all.

mod admission;
mod bounds;
mod change;
pub mod counters;
pub mod depth;
mod events;
mod holding;
mod lane;
mod mail;
mod opening;
pub mod options;
mod registry;
mod sending;
mod spilling;
mod status;
mod stopping;
mod unpaid;

pub use events::{Effect, End, Event, Observation};
pub use status::{LaneStatus, OwnerStatus, Phase};

use crate::dispatch::{Arrival, Dispatched, headers};
use crate::drain::retry::Jitter;
use crate::drain::{Drain, Item, Pace, ParkId};
use crate::hold::Deliveries;
use crate::identity::{DeliveryId, EntryId, Epoch, IdSequence, LaneId};
use crate::log::writer::{Stored, WriterEnd, WriterEvent};
use crate::log::{Answer, Call, PagePurpose};
use crate::message::{Entry, Message};
use crate::outcome::{Fault, FaultCode};
use crate::spill::Spill;
use crate::units::{Instant, UnixMillis};
use admission::{Admission, Arrived};
use bounds::Bounds;
use change::Change;
use counters::LegCounters;
use holding::Waiting;
use lane::Lane;
use mail::MailReader;
use opening::Step;
use options::{Delivery, LegOptions, OwnerOptions};
use registry::Registry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use unpaid::Unpaid;

/// Dead letters being written at once.
const MAX_PARKS: usize = 16;
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

/// The owner of one log, with all its lanes.
#[derive(Debug)]
pub struct Owner {
    options: OwnerOptions,
    epoch: Epoch,
    entry_ids: IdSequence,
    jitter: Jitter,
    step: Step,
    registry: Registry,
    lanes: Vec<Lane>,
    change: Change,
    drain: Drain,
    doomed: VecDeque<Doomed>,
    /// By when it is due, and by turn.
    doomed_later: BTreeMap<(Instant, u64), Doomed>,
    parking: BTreeMap<ParkId, (Fault, u32)>,
    mail: MailReader,
    recovered: bool,
    counters: Vec<LegCounters>,
    last_success: Vec<Option<Instant>>,
    /// For each leg whose outbox is full: when it is looked at again.
    full_until: Vec<Option<Instant>>,
    stage: Stage,
    source_closed: bool,
    ended: Option<WriterEnd>,
    unreadable: Option<Fault>,
    fault: Option<Fault>,
    /// What of the source is not done with.
    deliveries: Deliveries,
    /// What of it is on its way past the log, and what spilled.
    spill: Spill,
    /// What the source holds until the recovery is over.
    waiting: Waiting,
    /// What came and is not taken in yet.
    admission: Admission,
    /// What was parked, until it is in the drain: when limits admit it.
    reserved: HashMap<EntryId, Instant>,
    /// What was parked and is not charged yet.
    unpaid: Unpaid,
    /// What stands in the log, by key.
    bounds: Bounds,
    act_until: Option<Instant>,
    effects: Vec<Effect>,
}

/// What decides the order of entries: those of one key are sent in the order of their arrival. The key that a bridge told which the route believes,
/// else the topic.
#[must_use]
pub fn ordering_key(entry: &Entry) -> &[u8] {
    headers::believed(&entry.message, headers::ORDERING_KEY).unwrap_or(&entry.message.topic).as_bytes()
}

impl Owner {
    /// An owner that will open its log.
    #[must_use]
    pub fn new(options: OwnerOptions) -> Self {
        let paces = options
            .legs
            .iter()
            .map(|leg| Pace {
                max_in_flight: leg.policy.max_in_flight,
                linger: options.send_linger,
                limits: leg.limits,
                pacing: leg.pacing,
                breaker: leg.breaker,
                sender: leg.sender,
            })
            .collect();
        let legs = options.legs.len();
        Self {
            epoch: options.epoch.unwrap_or_default(),
            entry_ids: IdSequence::new(options.entry_id_base),
            jitter: Jitter::new(options.jitter_seed),
            step: Step::Record,
            registry: Registry::new(),
            lanes: Vec::new(),
            change: Change::None { not_before: None },
            drain: Drain::new(paces).limited_by(options.legs.iter().map(|leg| leg.send_limits.clone())),
            doomed: VecDeque::new(),
            doomed_later: BTreeMap::new(),
            parking: BTreeMap::new(),
            mail: MailReader::new(options.mailbox_poll),
            recovered: false,
            // One more than there are legs: for entries whose leg is gone from the configuration.
            counters: vec![LegCounters::default(); legs + 1],
            last_success: vec![None; legs + 1],
            full_until: vec![None; legs],
            stage: Stage::Running,
            // Who only drains what another left has no source.
            source_closed: options.retire_when_drained,
            ended: None,
            unreadable: None,
            fault: None,
            deliveries: Deliveries::new(options.acknowledge),
            spill: Spill::default(),
            waiting: Waiting::default(),
            // Who only drains what another left takes nothing in.
            admission: Admission::new(options.limits.clone(), options.quota.clone().filter(|_| !options.retire_when_drained)),
            reserved: HashMap::new(),
            unpaid: Unpaid::default(),
            bounds: Bounds::default(),
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
        self.is_open()
            && self.stage == Stage::Running
            && !self.change.holds_up()
            && !self.options.retire_when_drained
            && self.has_depth()
            && self.has_room_to_hold()
            && self.admission.is_empty()
            && self.has_room_to_defer()
            && self.pending() < self.options.segment.max_messages * PENDING_SEGMENTS
            && self.lanes.iter().map(|lane| lane.writer.pending_bytes()).sum::<usize>() < self.options.memory_bytes / 2
    }

    /// Takes one event; returns what to do.
    pub fn apply(&mut self, now: Instant, wall: UnixMillis, event: Event) -> Vec<Effect> {
        if self.stage == Stage::Finished {
            return Vec::new();
        }
        match event {
            Event::Delivered { delivery, receiver, message } => self.delivered(now, wall, delivery, &receiver, message),
            Event::Disconnected { connection } => {
                let returned: Vec<Arc<Entry>> = self.lanes.iter_mut().flat_map(|lane| lane.writer.forget(connection)).collect();
                let returned = self.unspill(returned);
                returned.iter().for_each(|entry| _ = self.reserved.remove(&entry.id));
                self.forget_unpaid(&returned);
                self.given_back(&returned);
                self.forget_held(now, connection);
                self.forget_arrived(now, wall, connection);
            }
            Event::Log { lane, answer } => self.answered(now, wall, lane, answer),
            Event::Sent { batch, outcomes } => self.sent(now, wall, batch, outcomes),
            Event::SenderLink { leg, link } => self.drain.linked(now, leg, link, &mut self.jitter),
            Event::Parked { park, outcome } => self.parked(now, park, outcome),
            Event::MailRead(answer) => self.mail_read(now, answer),
            Event::MailHint => self.mail.hint(),
            Event::Quota(reply) => self.quota_replied(now, wall, reply),
            Event::QuotaNodes(nodes) => self.know_quota_nodes(nodes),
            Event::QuotaSeen => self.quota_seen(now),
            Event::Tick => {}
            Event::Shutdown { drain_until } => {
                self.stage = Stage::Draining { until: drain_until };
                self.lanes.iter_mut().for_each(|lane| lane.writer.flush());
                self.forget_mail();
                self.stop_quota();
            }
        }
        if self.stage != Stage::Finished {
            self.settle(now, wall);
        }
        core::mem::take(&mut self.effects)
    }

    /// Whether none of its senders sends for now, and all will go on by themselves: what the source still keeps may stay there. One without a
    /// connection is none of those, since only something to send makes it connect.
    #[must_use]
    pub fn senders_pause(&self) -> bool {
        let legs = 0..self.options.legs.len();
        !legs.is_empty() && legs.into_iter().all(|leg| self.drain.flow(leg).is_some_and(|flow| flow.phase().is_paused()))
    }

    /// When to come back with [`Event::Tick`] although nothing happened.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let until = match self.stage {
            Stage::Draining { until } => Some(until),
            Stage::Running | Stage::Finished => None,
        };
        [
            self.registry.wake_at(),
            self.drain.wake_at(now),
            self.doomed_later.first_key_value().map(|((at, _), _)| *at),
            self.mail.wake_at().filter(|_| self.stage == Stage::Running),
            self.change.wake_at(),
            self.spill.wake_at(),
            self.admission.quota.as_ref().and_then(|node| node.wake_at(now)).filter(|_| self.stage == Stage::Running),
            self.admission.wake_at().filter(|_| self.stage == Stage::Running),
            self.depth_wake_at().filter(|_| self.stage == Stage::Running),
            until,
        ]
        .into_iter()
        .flatten()
        .chain(self.lanes.iter().flat_map(|lane| lane.wake_at(now)))
        // What is due and still did not happen waits for an event, not for time.
        .filter(|at| *at > now)
        .min()
    }

    /// The lane of an entry.
    fn lane_of(&self, entry: &Entry) -> LaneId {
        match u32::try_from(self.lanes.len()) {
            Ok(0 | 1) | Err(_) => LaneId(0),
            Ok(lanes) => LaneId::of(ordering_key(entry), lanes),
        }
    }

    /// Entries not durable yet.
    fn pending(&self) -> usize {
        self.lanes.iter().map(|lane| lane.writer.pending()).sum()
    }

    fn delivered(&mut self, now: Instant, wall: UnixMillis, delivery: DeliveryId, receiver: &Arc<str>, message: Message) {
        if !self.is_open() {
            // It has no lane yet, and were it skipped, a later one would acknowledge it.
            let fault = Fault::new(FaultCode::ProtocolError, "a message came before the log was open");
            return self.stop_for_good(WriterEnd::Unusable(fault));
        }
        let arrival = Arrival { receiver, received_at: wall, message: &message };
        let Dispatched { entries, filtered, retained } = self.options.dispatch.entries(&arrival, &mut self.entry_ids);
        self.count_dropped(filtered, |counters| counters.filtered += 1);
        self.count_dropped(retained, |counters| counters.retained += 1);
        self.deliveries.arrived(delivery, u32::try_from(entries.len()).unwrap_or(u32::MAX));
        let entries: Vec<Arc<Entry>> = entries.into_iter().map(Arc::new).collect();
        self.count(&entries, |counters| counters.received += 1);
        self.arrived(now, wall, Arrived { delivery, entries, since: now });
    }

    /// Takes in a message that was admitted.
    fn take_in(&mut self, now: Instant, wall: UnixMillis, Arrived { delivery, entries, .. }: Arrived) {
        for entry in entries {
            let leg = self.leg_of(&entry);
            if self.rejects(&entry) {
                self.reject(now, delivery, entry);
                continue;
            }
            match self.options.legs.get(leg).map_or(Delivery::Logged, |options| options.delivery) {
                Delivery::Logged => self.append(now, delivery, entry),
                Delivery::Spilled { .. } if self.reserved.contains_key(&entry.id) => self.log_behind_held(now, delivery, entry),
                Delivery::Held { .. } => self.hold(now, wall, delivery, entry),
                Delivery::Spilled { after } => self.hold_or_log(now, wall, delivery, entry, after),
            }
        }
    }

    /// Of what makes no entry, each route is told that it came and why it went.
    fn count_dropped(&mut self, routes: Vec<Arc<str>>, count: impl Fn(&mut LegCounters)) {
        for route in routes {
            let leg = self.options.legs.iter().position(|leg| leg.route == route);
            if let Some(counters) = leg.and_then(|leg| self.counters.get_mut(leg)) {
                counters.received += 1;
                count(counters);
            }
        }
    }

    fn answered(&mut self, now: Instant, wall: UnixMillis, id: LaneId, answer: Answer) {
        if matches!(answer, Answer::Record(_) | Answer::Registered(_)) {
            return self.registry_answered(now, answer);
        }
        // A lane that is gone is listened to no more.
        let Some(lane) = self.lanes.get_mut(id.index()) else { return };
        match answer {
            Answer::Page { purpose: PagePurpose::Load, page } => {
                let fault = page.as_ref().err().cloned();
                let unloaded = lane.loader.answer(now, page);
                self.count(&unloaded, |counters| counters.unloaded += 1);
                self.note_fault(fault);
            }
            Answer::Page { purpose: PagePurpose::Sweep, page } => lane.swept(now, wall, page),
            Answer::HeadPut(outcome) => {
                let fault = lane.head_put(now, outcome);
                self.note_fault(fault);
            }
            Answer::Deleted(outcome) => {
                let fault = lane.deleted(now, outcome);
                self.note_fault(fault);
            }
            Answer::Tail(_) | Answer::Head(_) | Answer::Put(_) | Answer::Moved(_) | Answer::Record(_) | Answer::Registered(_) => {
                let event = lane.writer.answer(now, answer);
                let fault = lane.writer.fault().cloned();
                self.writer_told(now, id, event);
                self.fault = None;
                self.note_fault(fault);
            }
        }
    }

    fn writer_told(&mut self, now: Instant, id: LaneId, event: Option<WriterEvent>) {
        match event {
            Some(WriterEvent::TailFound { tail, anchored }) => {
                if let Some(lane) = self.lanes.get_mut(id.index()) {
                    lane.found = Some(tail);
                    lane.anchored = anchored;
                }
            }
            Some(WriterEvent::Opened { head, drained, anchor }) => self.lane_opened(now, id, head, drained, anchor),
            Some(WriterEvent::Stored(stored)) => self.stored(now, id, stored),
            Some(WriterEvent::MailGone { pieces, strays }) => {
                let room = self.has_room(id);
                if let (Some(strays), Some(lane)) = (strays, self.lanes.get_mut(id.index())) {
                    // Without room they are read back, like everything else, and on an idle lane nothing follows that would tell what they are.
                    lane.loader.note_strays(strays.first, strays.last);
                    lane.loader.offer(strays, room);
                }
                self.mail_gone(now, pieces);
            }
            Some(WriterEvent::Retired) | None => {}
        }
    }

    fn store_fault(&mut self, fault: Fault) {
        self.fault = Some(fault.clone());
        self.effects.push(Effect::Observe(Observation::StoreFault(fault)));
    }

    fn note_fault(&mut self, fault: Option<Fault>) {
        if let Some(fault) = fault {
            self.store_fault(fault);
        }
    }

    /// Counts each entry with its leg.
    fn count(&mut self, entries: &[Arc<Entry>], count: impl Fn(&mut LegCounters)) {
        for entry in entries {
            let leg = self.leg_of(entry);
            if let Some(counters) = self.counters.get_mut(leg) {
                count(counters);
            }
        }
    }

    fn stored(&mut self, now: Instant, id: LaneId, stored: Stored) {
        let room = self.has_room(id);
        let Some(lane) = self.lanes.get_mut(id.index()) else { return };
        lane.made_durable(now, stored.drained());
        self.effects.push(Effect::Observe(Observation::Stored {
            entries: stored.entries().len(),
            bytes: stored.bytes(),
            took: stored.took(),
        }));
        if stored.mail() > 0 {
            self.mail_moved(stored.mail());
            self.count(stored.entries(), |counters| counters.mailed += 1);
            stored.entries().iter().for_each(|entry| self.store_added(entry));
        }
        for (entry, delivery) in stored.entries().iter().zip(stored.deliveries()) {
            self.delivery_stored(entry, *delivery);
        }
        let legs: Vec<usize> = stored.entries().iter().map(|entry| self.leg_of(entry)).collect();
        let Some(lane) = self.lanes.get_mut(id.index()) else { return };
        if !lane.loader.offer(stored.into_appended(), room) {
            for leg in legs {
                if let Some(counters) = self.counters.get_mut(leg) {
                    counters.unloaded += 1;
                }
            }
        }
    }

    /// The leg of an entry; one that is bound for nothing goes with the first of its route.
    fn leg_of(&self, entry: &Entry) -> usize {
        let is_its =
            |leg: &LegOptions| leg.route == entry.route && (entry.binding.is_empty() || *leg.destination.binding == *entry.binding);
        self.options.legs.iter().position(is_its).unwrap_or(self.options.legs.len())
    }

    /// Whether memory has room for more of a lane. Each lane has its share, so that one that is stuck cannot take the room of the others.
    fn has_room(&self, lane: LaneId) -> bool {
        let lanes = self.lanes.len().max(1);
        self.drain.len_of(lane) < self.options.memory_entries.div_ceil(lanes)
            && self.drain.weight_of(lane) < self.options.memory_bytes.div_ceil(lanes)
    }

    /// Whether what limits make wait leaves room for the rest: it may take half of one lane's share. So may what nothing was charged for yet, which also stands in
    /// line behind others of its key.
    fn has_room_to_defer(&self) -> bool {
        let (lanes, (deferred, weight)) = (self.lanes.len().max(1), self.drain.deferred());
        let (most_entries, most_bytes) = (self.options.memory_entries.div_ceil(lanes), self.options.memory_bytes.div_ceil(lanes));
        [(deferred + self.reserved.len(), weight), self.unpaid.total()]
            .into_iter()
            .all(|(entries, bytes)| 2 * entries < most_entries && 2 * bytes < most_bytes)
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
                self.lanes.iter_mut().for_each(|lane| lane.head_failed = true);
                self.finish_stage(now);
            }
            return;
        }
        self.acknowledge();
        self.drain.wake(now);
        self.open();
        if self.is_open() {
            self.change(now, wall);
        }
        if let Some(end) = self.fatal() {
            self.abandon(end);
            return;
        }
        if self.options.has_log()
            && let Some(call) = self.registry.poll(now)
        {
            self.effects.push(Effect::Log { lane: LaneId(0), call });
        }
        self.pay_for_parked(now, wall);
        self.admit_arrived(now, wall);
        self.settle_quota(now, wall);
        self.spill_overdue(now);
        self.write(now, wall);
        if self.is_open() {
            // Dropping what expired makes room to load more, which may have expired too.
            while self.load(now, wall) {
                self.send(now, wall);
            }
            self.send(now, wall);
            self.read_back(now);
            self.park(now, wall);
            self.tidy(now);
            self.read_mail(now);
        }
        // What made room just now lets in what waits for it.
        if self.is_open() && self.admission.is_due() {
            self.admit_arrived(now, wall);
            self.write(now, wall);
            self.send(now, wall);
        }
        self.watch_depth(now);
        // What came to its end just now, without anything having to be waited for.
        self.acknowledge();
        self.finish_stage(now);
    }

    /// Tells the source what is done with.
    fn acknowledge(&mut self) {
        let due = self.deliveries.take_due();
        self.effects.extend(due.into_iter().map(Effect::Acknowledge));
    }

    fn fatal(&self) -> Option<End> {
        let of_writers = self.lanes.iter().find_map(|lane| lane.writer.end());
        if let Some(end) = self.ended.as_ref().or(of_writers) {
            return Some(End::Ended(end.clone()));
        }
        self.unreadable.clone().map(End::Unreadable)
    }

    /// Opens, and appends.
    fn write(&mut self, now: Instant, wall: UnixMillis) {
        for lane in &mut self.lanes {
            let drained = lane.settled.drained();
            if let Some(call) = lane.writer.poll(now, wall, drained) {
                self.effects.push(Effect::Log { lane: lane.id, call });
            }
        }
    }

    fn read_back(&mut self, now: Instant) {
        for index in 0..self.lanes.len() {
            let Some(id) = self.lanes.get(index).filter(|lane| lane.writer.is_running()).map(|lane| lane.id) else { continue };
            let room = self.has_room(id);
            let Some(lane) = self.lanes.get_mut(index) else { continue };
            if let Some(call) = lane.loader.poll(now, lane.writer.tail(), room) {
                self.effects.push(Effect::Log { lane: id, call });
            }
        }
    }

    fn tidy(&mut self, now: Instant) {
        let (pressure, epoch) = (self.pressure(now), self.epoch);
        for lane in self.lanes.iter_mut().filter(|lane| lane.writer.is_running()) {
            let id = lane.id;
            let effects = &mut self.effects;
            lane.tidy(now, &self.drain, epoch, pressure, |call: Call| effects.push(Effect::Log { lane: id, call }));
        }
    }
}
