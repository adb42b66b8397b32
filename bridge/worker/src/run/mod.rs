//! The owner loop of one session: wait for one event, let the core decide, carry its effects out, tell how things stand.

mod dispatch;
mod engine;
mod kept_back;
mod lease;
mod report;
mod senders;
mod share;

use crate::parts::{LegParts, LogKind, SessionParts};
use crate::status::{BEAT_INTERVAL, DropReason, LastFault, LeaseStatus, LogPhase, RefusedFilter, ServiceLevel, SessionStatus};
use crate::telemetry::AppendResult;
use causeway_core::drain::{BatchId, BatchLimits};
use causeway_core::flow::quota::{NodeCounters, OnExhausted};
use causeway_core::flow::share::Change;
use causeway_core::lease::row::HOUSEKEEPING;
use causeway_core::log::writer::WriterEnd;
use causeway_core::member::{Effect, Part, Reason, Term};
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::Instant;
use causeway_core::worker::options::{LegOptions, MEMORY_BYTES, MEMORY_ENTRIES, OwnerOptions};
use causeway_core::worker::{self, End, Observation};
use causeway_ports::{ConnectionEpoch, Source, SourceEvent};
use core::time::Duration;
use dispatch::{Dispatch, SendBound};
use engine::{Engine, Event};
use kept_back::KeptBack;
use lease::{HeldLease, LeaseCalls, SessionGate};
use senders::Senders;
use share::Groups;
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

/// Closing the source flushes acknowledgements; a broker that does not read them any more gets so long.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// A fault that stays is logged again after so long.
const REPEAT_FAULT_AFTER: Duration = Duration::from_secs(30);

/// How a session ended without a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// It was told to stop, and everything in flight was settled.
    Clean,
    /// It was told to stop, and the deadline passed before everything was settled: the rest is in the log or with the broker.
    DeadlinePassed,
    /// It lost the lease of a log that it had adopted: another process goes on with it.
    HandedOver,
}

/// Why a session cannot go on. The process ends with exit code 1 and is started again by its platform.
#[derive(Clone, Debug, Error)]
pub enum RunError {
    /// Another owner took the log over.
    #[error("session {session}: another owner took the log over")]
    Fenced {
        /// The session.
        session: String,
    },
    /// Another process adopted the log, which was this process's own.
    #[error("session {session}: {by} took this process for gone and adopted its log; a new start gets a new log")]
    Adopted {
        /// The session.
        session: String,
        /// Who did.
        by: String,
    },
    /// A fault that does not pass.
    #[error("session {session}: {doing}: {fault}")]
    Fault {
        /// The session.
        session: String,
        /// What was being done.
        doing: &'static str,
        /// The fault.
        fault: Fault,
    },
}

/// Runs one session until it is told to stop, or cannot go on.
///
/// # Errors
/// [`RunError`] where the log was taken over or a store cannot be used.
pub async fn run_session(parts: SessionParts) -> Result<SessionEnd, RunError> {
    let mut session = Session::new(parts)?;
    session.apply(Input::Engine(Event::Tick)).await;
    loop {
        if session.dirty || session.now().since(session.published_at) >= BEAT_INTERVAL {
            session.publish();
        }
        if let Some(end) = session.ended.take() {
            session.publish();
            return end;
        }
        let input = session.select().await;
        session.apply(input).await;
    }
}

/// What the loop waits for.
enum Input {
    Engine(Event),
    Source(SourceEvent),
    KeptBack,
    /// Others of the groups were looked for.
    Looked,
    Stop,
}

struct Session {
    parts: SessionParts,
    engine: Engine,
    /// The term of ownership that `dispatch` and `source` belong to.
    term: Term,
    dispatch: Dispatch,
    lease: Option<LeaseCalls>,
    held: watch::Sender<HeldLease>,
    source: Option<Box<dyn Source>>,
    kept_back: KeptBack,
    groups: Option<Groups>,
    stopping: bool,
    /// Whether this term looked for dead letters of subscriptions that are there again.
    returned: bool,
    status: SessionStatus,
    dead_letters: Vec<BTreeMap<FaultCode, u64>>,
    /// Lost, by reason, without those that expired; for each leg.
    dropped: Vec<BTreeMap<DropReason, u64>>,
    /// What was told of what the source dropped.
    source_drops: BTreeMap<DropReason, u64>,
    retries: Vec<u64>,
    outbox_full: Vec<u64>,
    circuits_opened: Vec<u64>,
    senders: Senders,
    published_at: Instant,
    dirty: bool,
    term_began: Instant,
    due_since: Option<Instant>,
    told_level: Option<ServiceLevel>,
    /// The term whose way to full service has been told.
    told_failover: Option<Term>,
    /// What nodes of earlier terms did.
    quota_before: NodeCounters,
    /// Whether the last send that ended was not accepted.
    sending_fails: bool,
    last_logged: Option<(FaultCode, Instant)>,
    /// What the owner had not settled when it was last seen.
    unsettled: u64,
    ended: Option<Result<SessionEnd, RunError>>,
}

impl Session {
    fn new(parts: SessionParts) -> Result<Self, RunError> {
        let random =
            (parts.random)().map_err(|fault| RunError::Fault { session: parts.session.clone(), doing: "drawing random bits", fault })?;
        let options = OwnerOptions {
            owner: parts.owner.clone(),
            legs: parts.legs.iter().map(leg_options).collect(),
            dispatch: Arc::clone(&parts.dispatch),
            epoch: None,
            acknowledge: parts.acknowledge,
            limits: parts.arrival_limits.clone(),
            ack_hold: parts.ack_hold,
            quota: parts.quota.as_ref().map(|quota| quota.options.clone()),
            store: parts.limits.store.filter(|_| parts.outbox.is_some()),
            lanes: if parts.outbox.is_some() { parts.lanes } else { 0 },
            mailbox_poll: parts.mailbox.as_ref().map(|mailbox| mailbox.poll),
            retire_when_drained: matches!(parts.kind, LogKind::Adopted(_)),
            segment: parts.limits.segment,
            send_linger: parts.limits.send_linger,
            max_settled_ahead: parts.limits.max_settled_ahead,
            keep_settled: parts.limits.keep_settled,
            memory_entries: MEMORY_ENTRIES,
            memory_bytes: MEMORY_BYTES,
            entry_id_base: random.entry_ids,
            row_id_base: random.row_ids,
            jitter_seed: random.jitter,
        };
        let now = parts.clock.now();
        let status = SessionStatus {
            id: parts.session.clone(),
            broker: parts.broker.clone(),
            subscriptions_wanted: parts.subscriptions_wanted,
            lease: parts.lease.as_ref().map(|_| LeaseStatus::default()),
            ..SessionStatus::default()
        };
        let legs = parts.legs.len();
        parts.legs.iter().for_each(|leg| parts.metrics.announce_drops(&leg.route));
        let mut session = Self {
            engine: Engine::new(&parts, options, now),
            term: Term(0),
            dispatch: Dispatch::new(&parts),
            lease: parts.lease.as_ref().map(|lease| LeaseCalls::new(lease, &parts.session)),
            held: watch::Sender::new(None),
            source: None,
            kept_back: KeptBack::default(),
            groups: Groups::of(&parts),
            stopping: false,
            returned: false,
            status,
            dead_letters: vec![BTreeMap::new(); legs],
            dropped: vec![BTreeMap::new(); legs],
            source_drops: BTreeMap::new(),
            retries: vec![0; legs],
            outbox_full: vec![0; legs],
            circuits_opened: vec![0; legs],
            senders: Senders::new(&parts.legs),
            published_at: Instant::default(),
            dirty: true,
            term_began: now,
            due_since: None,
            told_level: None,
            told_failover: None,
            quota_before: NodeCounters::default(),
            sending_fails: false,
            last_logged: None,
            unsettled: 0,
            ended: None,
            parts,
        };
        session.senders.watch(&mut session.dispatch);
        Ok(session)
    }

    fn now(&self) -> Instant {
        self.parts.clock.now()
    }

    /// Waits for one input. Only reads: whatever it is dropped in the middle of, nothing is lost.
    async fn select(&mut self) -> Input {
        let now = self.now();
        let beat = self.published_at.plus(BEAT_INTERVAL);
        let wake = self.engine.wake_at(now).map_or(beat, |at| at.min(beat));
        let wake = self.groups.as_ref().and_then(|groups| groups.wake_at(now)).map_or(wake, |at| at.min(wake));
        let wants_input = self.engine.wants_input(now);
        // While an outbox is full messages are kept back here, so that what stands behind them is heard: how the connection is.
        let is_full = self.engine.owner().is_some_and(|(_, owner)| owner.is_full());
        let (gives_back, keeps_back) = (wants_input && !self.kept_back.is_empty(), is_full && self.kept_back.has_room());
        let hint = self.parts.lease.as_ref().map(|lease| &*lease.hinted);
        let asked = self.parts.lease.as_ref().map(|lease| &*lease.asked);
        let mailed =
            self.parts.mailbox.as_ref().filter(|_| self.engine.owner().is_some() && !matches!(self.parts.kind, LogKind::Adopted(_)));
        let mailed = mailed.map(|mailbox| &*mailbox.mailed);
        let quota = self.parts.quota.as_mut().map(|quota| &mut quota.seen);
        let (term, source, lease, groups) = (self.term, &mut self.source, &mut self.lease, &mut self.groups);
        tokio::select! {
            biased;
            () = self.parts.stop.cancelled(), if !self.stopping => Input::Stop,
            event = next_answer(lease) => Input::Engine(event),
            () = told(hint), if !self.stopping => Input::Engine(Event::Hint),
            () = told(asked), if !self.stopping => Input::Engine(Event::StepDown),
            () = quota_seen(quota) => Input::Engine(Event::Owner(term, worker::Event::QuotaSeen)),
            () = told(mailed) => Input::Engine(Event::Owner(term, worker::Event::MailHint)),
            () = looked(groups) => Input::Looked,
            event = self.dispatch.next() => Input::Engine(Event::Owner(term, event)),
            () = core::future::ready(()), if gives_back => Input::KeptBack,
            event = next_of(source), if wants_input || keeps_back => Input::Source(event),
            () = tokio::time::sleep(wake.since(now)) => Input::Engine(Event::Tick),
        }
    }

    async fn apply(&mut self, input: Input) {
        let events = match input {
            Input::Engine(event) => {
                self.note_lease(&event);
                vec![self.senders.follow(event, &mut self.dispatch)]
            }
            Input::Source(SourceEvent::Delivery(delivery)) if !self.kept_back.is_empty() || !self.engine.wants_input(self.now()) => {
                self.kept_back.push(delivery);
                Vec::new()
            }
            Input::Source(event) => self.source_event(event),
            Input::KeptBack => self.kept_back.pop().map(|delivery| self.source_event(SourceEvent::Delivery(delivery))).unwrap_or_default(),
            Input::Looked => Vec::new(),
            Input::Stop => {
                self.stopping = true;
                self.dirty = true;
                info!("stopping: settling what is in flight");
                vec![Event::Shutdown { drain_until: self.now().plus(self.drain_ceiling()) }]
            }
        };
        for event in events {
            if let Some(by) = self.adopter_in(&event) {
                let session = self.parts.session.clone();
                self.ended = Some(Err(RunError::Adopted { session, by }));
                return;
            }
            let effects = self.engine.apply(self.now(), self.parts.clock.wall(), event);
            self.carry_out(effects).await;
        }
        self.watch_groups();
        self.pause_source();
        let unacknowledged = self.source.as_ref().map_or(0, |source| source.counters().unacknowledged);
        if let Some((_, owner)) = self.engine.owner() {
            self.unsettled = owner.unsettled();
        }
        let exposed = self.engine.owner().map_or(0, |(_, owner)| owner.exposed() as u64);
        self.status.duplicate_exposure = exposed + unacknowledged;
        self.status.duplicate_exposure_peak = self.status.duplicate_exposure_peak.max(self.status.duplicate_exposure);
    }

    /// Leaves the groups of shared subscriptions, or enters them again, where it is time to.
    fn watch_groups(&mut self) {
        let now = self.now();
        let (Some(groups), Some(source)) = (&mut self.groups, &mut self.source) else { return };
        if self.stopping {
            return;
        }
        match groups.see(now, self.engine.wants_input(now), &source.counters()) {
            Some(Change::Leave) => {
                warn!(
                    "nothing is taken and nothing acknowledged here, and another process gives full service: it gets this one's share of the messages"
                );
                source.share(false);
            }
            Some(Change::Return) => {
                info!("taking a share of the messages again");
                source.share(true);
            }
            None => {}
        }
        let (unshared, stuck) = (groups.is_away(), groups.is_stuck(now));
        self.dirty |= (self.status.unshared, self.status.stuck) != (unshared, stuck);
        (self.status.unshared, self.status.stuck) = (unshared, stuck);
    }

    /// Who took over the lease of a log that is this process's own. Nobody does that while this process is known to live: it was paused, or cut off
    /// from the lease store, for longer than the lease held.
    fn adopter_in(&self, event: &Event) -> Option<String> {
        let (LogKind::OfProcess(_), Some(lease), None) = (&self.parts.kind, &self.parts.lease, self.engine.owner()) else { return None };
        let Event::LeaseRead(Ok(Some(row))) = event else { return None };
        let others = |owner: &&String| !owner.is_empty() && **owner != lease.member.candidate.owner && !owner.starts_with(HOUSEKEEPING);
        row.owner.as_ref().filter(others).cloned()
    }

    /// How long to settle what is in flight. Under a lease not longer than the grace: another member goes on with the rest. Nobody waits for a log
    /// that is this process's own.
    fn drain_ceiling(&self) -> Duration {
        let unsettled = self.engine.owner().map_or(0, |(_, owner)| owner.unsettled());
        let ceiling = self.parts.drain_ceiling.with(unsettled);
        if matches!(self.parts.kind, LogKind::OfProcess(_)) {
            return ceiling;
        }
        self.parts.lease.as_ref().map_or(ceiling, |lease| ceiling.min(lease.member.step_down_grace))
    }

    fn source_event(&mut self, event: SourceEvent) -> Vec<Event> {
        self.dirty |= !matches!(event, SourceEvent::Delivery(_));
        match event {
            SourceEvent::Delivery(delivery) => {
                let event = worker::Event::Delivered { delivery: delivery.id, receiver: delivery.receiver, message: delivery.message };
                vec![Event::Owner(self.term, event)]
            }
            SourceEvent::Connected { connection, session_present } => {
                self.status.connected = true;
                self.status.session_present = Some(session_present);
                info!(connection = connection.0, session_present, broker = %self.parts.broker, "connected");
                Vec::new()
            }
            SourceEvent::Subscribed { granted, refused, .. } => {
                for (filter, fault) in &refused {
                    warn!(%filter, code = fault.code.as_str(), detail = %fault.detail, "the broker refused a filter");
                }
                self.status.subscriptions_active = granted;
                self.status.refused = refused.into_iter().map(|(filter, fault)| RefusedFilter { filter, reason: fault.detail }).collect();
                info!(granted, wanted = self.status.subscriptions_wanted, "subscribed");
                if let Some(returning) = self.parts.returning.clone().filter(|_| !core::mem::replace(&mut self.returned, true)) {
                    self.dispatch.put_back(returning);
                }
                // A filter that the broker refuses is no reason for another worker to try: the way to the broker is there.
                vec![Event::Converged]
            }
            SourceEvent::Disconnected { connection, fault, retry_in } => {
                self.kept_back.forget(connection);
                self.disconnected(connection, &fault, retry_in);
                // What came by that connection is given up first; then the loss of the broker may be a reason to step down.
                vec![Event::Owner(self.term, worker::Event::Disconnected { connection }), Event::BrokerLost]
            }
            SourceEvent::Closed => {
                self.source = None;
                self.kept_back.clear();
                self.status.connected = false;
                if !self.stopping {
                    let fault = Fault::new(FaultCode::ConnectionLost, "the source ended by itself");
                    self.ended = Some(Err(RunError::Fault { session: self.parts.session.clone(), doing: "receiving", fault }));
                }
                Vec::new()
            }
        }
    }

    fn disconnected(&mut self, connection: ConnectionEpoch, fault: &Fault, retry_in: Duration) {
        self.status.connected = false;
        self.status.subscriptions_active = 0;
        self.status.last_fault = Some(LastFault::new(self.parts.clock.wall(), "connect", fault));
        let pause_ms = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
        warn!(connection = connection.0, code = fault.code.as_str(), detail = %fault.detail, pause_ms, "not connected");
    }

    async fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Owner { term, effect } if term == self.term => self.carry_out_for_owner(effect).await,
                // Of a term that is over.
                Effect::Owner { .. } => {}
                Effect::ReadLease => {
                    if let Some(lease) = &mut self.lease {
                        lease.read();
                    }
                }
                Effect::WriteLease(write) => {
                    if let Some(lease) = &mut self.lease {
                        lease.write(write);
                    }
                }
                Effect::AskAboutTask(task) => {
                    if let Some(lease) = &mut self.lease {
                        lease.ask_about(task);
                    }
                }
                Effect::Became(part) => self.became(part),
                Effect::Finished(result) => {
                    self.status.log = LogPhase::Stopped;
                    let session = self.parts.session.clone();
                    let clean = self.unsettled == 0 || !matches!(self.parts.kind, LogKind::OfProcess(_));
                    let ended = result.map(|()| if clean { SessionEnd::Clean } else { SessionEnd::DeadlinePassed });
                    self.ended = Some(ended.map_err(|fault| RunError::Fault { session, doing: "using the log", fault }));
                }
            }
        }
    }

    async fn carry_out_for_owner(&mut self, effect: worker::Effect) {
        match effect {
            worker::Effect::Log { lane, call } => self.dispatch.call(lane, call),
            worker::Effect::ReadMail { limit } => self.dispatch.read_mail(limit),
            worker::Effect::Quota(call) => self.dispatch.quota(call),
            worker::Effect::Acknowledge(delivery) => {
                if let Some(source) = &mut self.source {
                    source.acknowledge(delivery);
                }
            }
            worker::Effect::Send { batch, leg, entries, delays } => self.send(batch, leg, entries, delays),
            worker::Effect::Park { park, letter } => self.dispatch.park(park, letter),
            worker::Effect::Reconnect => {
                if let Some(source) = &mut self.source {
                    warn!("a limit has held a message for ack_hold_max: asking for a new connection, by which it comes again");
                    source.reconnect();
                }
            }
            worker::Effect::CloseSource => self.close_source().await,
            worker::Effect::Observe(observation) => self.observe(observation),
            worker::Effect::Finished(end) => self.finished(end),
        }
    }

    /// Logs the member's new part. A new term has its own tasks: those of the one before end with it.
    fn became(&mut self, part: Part) {
        self.dirty = true;
        if let Some(lease) = &mut self.status.lease {
            lease.watched &= matches!(part, Part::Standby | Part::Owner { .. });
        }
        if matches!((&self.parts.kind, &part), (LogKind::Adopted(_), Part::Standby | Part::HoldingOff(_))) {
            // An adopter competes anew for whatever log is next.
            self.ended = Some(Ok(SessionEnd::HandedOver));
        }
        let held = match &part {
            Part::Owner { term, version } => {
                self.term = *term;
                self.term_began = self.now();
                self.quota_before = self.status.quota.as_ref().map_or(self.quota_before, |quota| quota.counters);
                self.dispatch = Dispatch::new(&self.parts);
                self.senders.watch(&mut self.dispatch);
                self.returned = false;
                self.status.log = LogPhase::Opening;
                info!(version, "the lease is held");
                self.parts.lease.as_ref().map(|lease| (lease.member.candidate.owner.clone(), *version))
            }
            Part::Standby => {
                info!("standing by");
                None
            }
            Part::Blind(fault) => {
                warn!(code = fault.code.as_str(), detail = %fault.detail, "the lease cannot be looked at");
                None
            }
            Part::Stuck(corrupt) => {
                error!(%corrupt, "nobody can own this session until the lease row is repaired");
                None
            }
            Part::SteppingDown(Reason::Shutdown) => {
                info!("giving the lease back, as told");
                None
            }
            Part::SteppingDown(reason) => {
                warn!(?reason, "stepping down");
                None
            }
            Part::HoldingOff(pause) => {
                info!(pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX), "staying out for a while");
                None
            }
        };
        // While it steps down in order the connection still stands under the lease; it only may not come back.
        self.held.send_replace(held);
    }

    fn send(&mut self, batch: BatchId, leg: usize, entries: Vec<Arc<Entry>>, delays: Vec<Duration>) {
        let Some(parts) = self.parts.legs.get(leg) else { return };
        self.due_since = None;
        let (metrics, id) = (self.parts.metrics.clone(), parts.route.clone());
        metrics.observe_dispatch_delays(&id, delays);
        let observe = move |took: Duration, outcomes: &[Outcome<()>]| metrics.observe_send(&id, took, outcomes);
        let bound = SendBound { timeout: parts.policy.send_timeout, given_up_after: self.parts.stale_claim };
        self.dispatch.send(batch, Arc::clone(&parts.sink), entries, bound, observe);
    }

    async fn close_source(&mut self) {
        self.kept_back.clear();
        if let Some(mut source) = self.source.take() {
            source.close(CLOSE_TIMEOUT).await;
            self.status.source = source.counters();
        }
        self.status.connected = false;
        self.status.subscriptions_active = 0;
        self.dirty = true;
    }

    fn observe(&mut self, observation: Observation) {
        let session = self.parts.session.as_str();
        let route_of = |leg: usize| self.parts.legs.get(leg).map_or("", |leg| leg.route.as_str()).to_owned();
        match observation {
            Observation::Opened { epoch, slots_to_recover } => {
                if self.parts.outbox.is_some() {
                    info!(epoch = epoch.0, slots_to_recover, log = %self.parts.log, "log opened");
                } else {
                    info!("no route of this session needs a log: its source holds what is not delivered");
                }
                self.dirty = true;
                if matches!(self.parts.kind, LogKind::Adopted(_)) {
                    return;
                }
                let gate = SessionGate::of(&self.parts, self.held.subscribe());
                self.kept_back.clear();
                self.source = Some((self.parts.start_source)(gate));
                // A new source is in all of them.
                self.groups = Groups::of(&self.parts);
                self.status.source_paused = false;
            }
            Observation::Recovered { entries } => {
                let took = self.parts.clock.now().since(self.term_began);
                self.status.recovered = entries;
                self.status.recovery_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
                info!(entries, took_ms = self.status.recovery_ms, "recovery done");
                self.dirty = true;
            }
            Observation::Stored { entries, bytes, took } => {
                self.dirty |= core::mem::take(&mut self.status.store_failing);
                self.parts.metrics.observe_append(session, AppendResult::Stored, took, entries, bytes)
            }
            Observation::Delivered { leg, latency } => {
                self.parts.metrics.observe_deliveries(&route_of(leg), [latency]);
                if self.sending_fails {
                    self.sending_fails = false;
                    self.status.last_fault = None;
                    info!(route = %route_of(leg), "the destination accepts messages again");
                }
            }
            Observation::Retried { leg, fault } => {
                if let Some(retries) = self.retries.get_mut(leg) {
                    *retries += 1;
                }
                self.sending_fails = true;
                self.fault("send", &fault);
            }
            Observation::Throttled { leg, fault } => {
                self.senders.throttled(leg);
                self.sending_fails = true;
                self.fault("send", &fault);
            }
            Observation::SenderResumed { leg, forced } => {
                self.senders.resumed(leg, forced);
                info!(route = %route_of(leg), forced, "the sender goes on");
            }
            Observation::DeadLettered { leg, code, dropped } => {
                self.parts.metrics.observe_drop(self.parts.clock.wall(), &dropped, 1);
                if let Some(letters) = self.dead_letters.get_mut(leg) {
                    *letters.entry(code).or_insert(0) += 1;
                }
                warn!(route = %route_of(leg), code = code.as_str(), "dead-lettered");
            }
            Observation::Dropped { leg, code, dropped } => {
                self.parts.metrics.observe_drop(self.parts.clock.wall(), &dropped, 1);
                // Those have a counter of their own.
                if code != FaultCode::MessageExpired
                    && let Some(reasons) = self.dropped.get_mut(leg)
                {
                    *reasons.entry(dropped.reason).or_insert(0) += 1;
                }
                warn!(route = %route_of(leg), code = code.as_str(), reason = dropped.reason.as_str(), "dropped, as the policy says");
            }
            // One line for each would be too many: the status and the metrics tell how many.
            Observation::HeldUp { reason } => *self.status.held_up_total.entry(reason.name()).or_insert(0) += 1,
            Observation::KeyMissing { limits } => self.status.limit_keys_missing += limits as u64,
            Observation::Deferred { reason, entries, .. } => *self.status.parked_total.entry(reason.name()).or_insert(0) += entries,
            Observation::Limited { leg, dropped, .. } | Observation::Lost { leg, dropped } => {
                self.parts.metrics.observe_drop(self.parts.clock.wall(), &dropped, 1);
                if let Some(reasons) = self.dropped.get_mut(leg) {
                    *reasons.entry(dropped.reason).or_insert(0) += 1;
                }
                self.dirty = true;
            }
            Observation::CircuitOpened { leg } => {
                if let Some(times) = self.circuits_opened.get_mut(leg) {
                    *times += 1;
                }
                warn!(route = %route_of(leg), "the circuit breaker opened: nothing is sent until it tries again; nothing is lost meanwhile");
            }
            Observation::OutboxFull { leg } => {
                if let Some(times) = self.outbox_full.get_mut(leg) {
                    *times += 1;
                }
                warn!(route = %route_of(leg), "as many messages as max_outbox_depth wait in the outbox: nothing more is taken in until there is room");
            }
            Observation::QuotaReached { on_exhausted } => {
                self.dirty = true;
                let meanwhile = match on_exhausted {
                    OnExhausted::Hold => "messages wait, not acknowledged, until there are tokens again; nothing is lost meanwhile",
                    OnExhausted::Park => {
                        "messages wait in the outbox, or not acknowledged where that may not have them, until there are tokens again; nothing is lost meanwhile"
                    }
                    OnExhausted::Drop => "messages are dropped, and counted, until there are tokens again",
                };
                warn!("the budget of the bridge is spent: {meanwhile}");
            }
            Observation::StoreFault(fault) => self.fault("outbox", &fault),
            Observation::DeadLetterFault(fault) => self.fault("dead letters", &fault),
        }
    }

    /// Notes a fault that will be tried again; logs it when it is new, and now and then while it stays.
    fn fault(&mut self, doing: &'static str, fault: &Fault) {
        let now = self.parts.clock.now();
        let repeated = self.last_logged.is_some_and(|(code, at)| code == fault.code && now.since(at) < REPEAT_FAULT_AFTER);
        if !repeated {
            self.last_logged = Some((fault.code, now));
            warn!(doing, code = fault.code.as_str(), detail = %fault.detail, "trying again; nothing is lost meanwhile");
        }
        if doing == "outbox" {
            self.dirty |= !core::mem::replace(&mut self.status.store_failing, true);
            self.parts.metrics.observe_append_fault(&self.parts.session, fault);
        }
        self.status.last_fault = Some(LastFault::new(self.parts.clock.wall(), doing, fault));
    }

    fn finished(&mut self, end: End) {
        let session = self.parts.session.clone();
        self.dirty = true;
        self.ended = Some(match end {
            End::Stopped { unsettled: 0 } | End::Retired => {
                self.status.log = LogPhase::Stopped;
                info!("stopped; everything is settled");
                Ok(SessionEnd::Clean)
            }
            End::Stopped { unsettled } => {
                self.status.log = LogPhase::Stopped;
                warn!(unsettled, "stopped at the deadline; what is left stands in the log or with the broker");
                Ok(SessionEnd::DeadlinePassed)
            }
            End::Ended(WriterEnd::Fenced { found, same_or_older_epoch }) => {
                self.status.log = LogPhase::Fenced;
                error!(
                    epoch = self.status.epoch.map(|epoch| epoch.0),
                    found_epoch = found.epoch.0,
                    slot = found.slot.0,
                    same_or_older_epoch,
                    "another owner writes this log; stopping"
                );
                Err(RunError::Fenced { session })
            }
            End::Ended(WriterEnd::EpochTooLow { found }) => {
                let fault = Fault::new(FaultCode::InvalidConfig, format!("the log's epoch {found} is above the lease's version"));
                Err(RunError::Fault { session, doing: "opening the log", fault })
            }
            End::Ended(WriterEnd::Unusable(fault)) => Err(RunError::Fault { session, doing: "writing the log", fault }),
            End::Unreadable(fault) => Err(RunError::Fault { session, doing: "reading the log", fault }),
        });
    }
}

/// The answer of the lease store; never, where there is no lease.
async fn next_answer(lease: &mut Option<LeaseCalls>) -> Event {
    match lease {
        Some(lease) => lease.next().await,
        None => core::future::pending().await,
    }
}

/// Looks for others of the groups; never, while there is no look.
async fn looked(groups: &mut Option<Groups>) {
    match groups {
        Some(groups) => groups.looked().await,
        None => core::future::pending().await,
    }
}

/// What others say; never, where there is nobody to say it.
async fn told(place: Option<&Notify>) {
    match place {
        Some(place) => place.notified().await,
        None => core::future::pending().await,
    }
}

/// Somebody has seen the notice of a spent budget; never, where there is no budget. Cancel-safe.
async fn quota_seen(seen: Option<&mut watch::Receiver<u64>>) {
    if let Some(seen) = seen
        && seen.changed().await.is_ok()
    {
        return;
    }
    core::future::pending().await
}

/// The next event of the source; never, while there is none.
async fn next_of(source: &mut Option<Box<dyn Source>>) -> SourceEvent {
    match source {
        Some(source) => source.next().await,
        None => core::future::pending().await,
    }
}

fn leg_options(parts: &LegParts) -> LegOptions {
    let limits = parts.sink.limits();
    let (measure, order) = (Arc::clone(&parts.sink), Arc::clone(&parts.sink));
    LegOptions {
        route: parts.route.as_str().into(),
        receiver: parts.receiver.as_str().into(),
        destination: parts.destination.clone(),
        delivery: parts.delivery,
        depth: parts.depth,
        pacing: parts.pacing,
        breaker: parts.breaker,
        send_limits: parts.send_limits.clone(),
        sender: parts.flow,
        policy: parts.policy,
        limits: BatchLimits { entries: limits.batch_entries, bytes: limits.batch_bytes, entry_bytes: limits.entry_bytes },
        size_of: Arc::new(move |entry| measure.size_of(entry)),
        key_of: Arc::new(move |entry| order.key_of(entry)),
    }
}
