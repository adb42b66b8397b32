//! The owner loop of one session: wait for one event, let the core decide, carry its effects out, tell how things stand.

use crate::dispatch::{Dispatch, SendBound};
use crate::parts::{RouteParts, SessionParts};
use crate::status::{BEAT_INTERVAL, DropReason, LastFault, LogPhase, OutboxDepth, RefusedFilter, RouteStatus, SessionRole, SessionStatus};
use crate::telemetry::AppendResult;
use causeway_core::drain::BatchLimits;
use causeway_core::log::writer::WriterEnd;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::units::Instant;
use causeway_core::log::writer::SegmentOptions;
use causeway_core::worker::options::{MEMORY_BYTES, MEMORY_ENTRIES, OwnerOptions, Policy, RouteOptions};
use causeway_core::worker::{Effect, End, Event, Observation, Owner, Phase};
use causeway_ports::{ConnectionEpoch, Source, SourceCounters, SourceEvent};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;
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
    let first = session.owner.apply(session.clock_now(), session.parts.clock.wall(), Event::Tick);
    session.carry_out(first).await;
    loop {
        session.publish_when_due();
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
    Core(Event),
    Source(SourceEvent),
    Stop,
}

struct Session {
    parts: SessionParts,
    owner: Owner,
    dispatch: Dispatch,
    source: Option<Box<dyn Source>>,
    /// Counters of the source, kept when it is closed.
    source_counters: SourceCounters,
    stopping: bool,
    status: SessionStatus,
    dead_letters: Vec<BTreeMap<FaultCode, u64>>,
    retries: Vec<u64>,
    published_at: Instant,
    dirty: bool,
    began: Instant,
    progress_at: Instant,
    last_logged: Option<(FaultCode, Instant)>,
    ended: Option<Result<SessionEnd, RunError>>,
}

impl Session {
    fn new(parts: SessionParts) -> Result<Self, RunError> {
        let random = random_bits().map_err(|fault| RunError::Fault { session: parts.session.clone(), doing: "drawing random bits", fault })?;
        let options = OwnerOptions {
            owner: parts.owner.clone(),
            routes: parts.routes.iter().map(route_options).collect(),
            epoch: None,
            segment: SegmentOptions::from(&parts.limits),
            send_linger: parts.limits.send_linger.get(),
            max_settled_ahead: parts.limits.max_settled_ahead as usize,
            memory_entries: MEMORY_ENTRIES,
            memory_bytes: MEMORY_BYTES,
            entry_id_base: random.0,
            row_id_base: random.1,
            jitter_seed: random.2,
        };
        let now = parts.clock.now();
        let status = SessionStatus {
            id: parts.session.clone(),
            broker: parts.broker.clone(),
            role: SessionRole::Owner,
            subscriptions_wanted: parts.subscriptions_wanted,
            ..SessionStatus::default()
        };
        let routes = parts.routes.len();
        Ok(Self {
            owner: Owner::new(options),
            dispatch: Dispatch::new(parts.log.clone(), Arc::clone(&parts.outbox), parts.dead_letters.clone()),
            source: None,
            source_counters: SourceCounters::default(),
            stopping: false,
            status,
            dead_letters: vec![BTreeMap::new(); routes],
            retries: vec![0; routes],
            published_at: Instant::default(),
            dirty: true,
            began: now,
            progress_at: now,
            last_logged: None,
            ended: None,
            parts,
        })
    }

    fn clock_now(&self) -> Instant {
        self.parts.clock.now()
    }

    /// Waits for one input. Only reads: whatever it is dropped in the middle of, nothing is lost.
    async fn select(&mut self) -> Input {
        let now = self.clock_now();
        let beat = self.published_at.plus(BEAT_INTERVAL);
        let wake = self.owner.wake_at(now).map_or(beat, |at| at.min(beat));
        let wants_input = self.owner.wants_input();
        let source = &mut self.source;
        tokio::select! {
            biased;
            () = self.parts.stop.cancelled(), if !self.stopping => Input::Stop,
            event = self.dispatch.next() => Input::Core(event),
            event = next_of(source), if wants_input => Input::Source(event),
            () = tokio::time::sleep(wake.since(now)) => Input::Core(Event::Tick),
        }
    }

    async fn apply(&mut self, input: Input) {
        let event = match input {
            Input::Core(event) => {
                if matches!(event, Event::Sent { .. } | Event::Parked { .. }) {
                    self.progress_at = self.clock_now();
                }
                event
            }
            Input::Source(event) => match self.source_event(event) {
                Some(event) => event,
                None => return,
            },
            Input::Stop => {
                self.stopping = true;
                self.dirty = true;
                info!(session = %self.parts.session, "stopping: settling what is in flight");
                Event::Shutdown { drain_until: self.clock_now().plus(self.parts.drain_timeout) }
            }
        };
        let effects = self.owner.apply(self.clock_now(), self.parts.clock.wall(), event);
        self.carry_out(effects).await;
        let unacknowledged = self.source.as_ref().map_or(0, |source| source.counters().unacknowledged);
        self.status.duplicate_exposure = self.owner.exposed() as u64 + unacknowledged;
        self.status.duplicate_exposure_peak = self.status.duplicate_exposure_peak.max(self.status.duplicate_exposure);
    }

    fn source_event(&mut self, event: SourceEvent) -> Option<Event> {
        let session = self.parts.session.clone();
        match event {
            SourceEvent::Delivery(delivery) => {
                return Some(Event::Delivered { delivery: delivery.id, receiver: delivery.receiver, message: delivery.message });
            }
            SourceEvent::Connected { connection, session_present } => {
                self.status.connected = true;
                self.status.session_present = Some(session_present);
                info!(%session, connection = connection.0, session_present, broker = %self.parts.broker, "connected");
            }
            SourceEvent::Subscribed { granted, refused, .. } => {
                for (filter, fault) in &refused {
                    warn!(%session, %filter, code = fault.code.as_str(), detail = %fault.detail, "the broker refused a filter");
                }
                self.status.subscriptions_active = granted;
                self.status.refused = refused.into_iter().map(|(filter, fault)| RefusedFilter { filter, reason: fault.detail }).collect();
                info!(%session, granted, wanted = self.status.subscriptions_wanted, "subscribed");
            }
            SourceEvent::Disconnected { connection, fault, retry_in } => {
                self.disconnected(connection, &fault, retry_in);
                self.dirty = true;
                return Some(Event::Disconnected { connection });
            }
            SourceEvent::Closed => {
                self.source = None;
                self.status.connected = false;
                if !self.stopping {
                    let fault = Fault::new(FaultCode::ConnectionLost, "the source ended by itself");
                    self.ended = Some(Err(RunError::Fault { session, doing: "receiving", fault }));
                }
            }
        }
        self.dirty = true;
        None
    }

    fn disconnected(&mut self, connection: ConnectionEpoch, fault: &Fault, retry_in: Duration) {
        self.status.connected = false;
        self.status.subscriptions_active = 0;
        self.status.last_fault = Some(LastFault::new(self.parts.clock.wall(), "connect", fault));
        let pause_ms = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
        warn!(session = %self.parts.session, connection = connection.0, code = fault.code.as_str(), detail = %fault.detail, pause_ms, "not connected");
    }

    async fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Log(call) => self.dispatch.call(call),
                Effect::Acknowledge(delivery) => {
                    if let Some(source) = &mut self.source {
                        source.acknowledge(delivery);
                    }
                }
                Effect::Send { batch, route, entries, delays } => self.send(batch, route, entries, delays),
                Effect::Park { park, letter } => self.dispatch.park(park, letter),
                Effect::CloseSource => self.close_source().await,
                Effect::Observe(observation) => self.observe(observation),
                Effect::Finished(end) => self.finished(end),
            }
        }
    }

    fn send(&mut self, batch: causeway_core::drain::BatchId, route: usize, entries: Vec<Arc<causeway_core::message::Entry>>, delays: Vec<Duration>) {
        let Some(parts) = self.parts.routes.get(route) else { return };
        self.progress_at = self.parts.clock.now();
        let (metrics, id) = (self.parts.metrics.clone(), parts.id.clone());
        metrics.observe_dispatch_delays(&id, delays);
        let observe = move |took: Duration, outcomes: &[causeway_core::outcome::Outcome<()>]| metrics.observe_send(&id, took, outcomes);
        let bound = SendBound { timeout: parts.policy.send_timeout.get(), given_up_after: self.parts.stale_claim };
        self.dispatch.send(batch, Arc::clone(&parts.sink), entries, bound, observe);
    }

    async fn close_source(&mut self) {
        if let Some(mut source) = self.source.take() {
            source.close(CLOSE_TIMEOUT).await;
            self.source_counters = source.counters();
        }
        self.status.connected = false;
        self.status.subscriptions_active = 0;
        self.dirty = true;
    }

    fn observe(&mut self, observation: Observation) {
        let session = self.parts.session.as_str();
        let route_id = |route: usize| self.parts.routes.get(route).map_or("", |route| route.id.as_str()).to_owned();
        match observation {
            Observation::Opened { epoch, slots_to_recover } => {
                info!(%session, epoch = epoch.0, slots_to_recover, log = %self.parts.log, "log opened");
                self.dirty = true;
                if let Some(start) = self.parts.start_source.take() {
                    self.source = Some(start());
                }
            }
            Observation::Recovered { entries } => {
                let took = self.parts.clock.now().since(self.began);
                self.status.recovered = entries;
                self.status.recovery_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
                info!(%session, entries, took_ms = self.status.recovery_ms, "recovery done");
                self.dirty = true;
            }
            Observation::Stored { entries, bytes, took } => self.parts.metrics.observe_append(session, AppendResult::Stored, took, entries, bytes),
            Observation::Delivered { route, latency } => self.parts.metrics.observe_deliveries(&route_id(route), [latency]),
            Observation::Retried { route, .. } => {
                if let Some(retries) = self.retries.get_mut(route) {
                    *retries += 1;
                }
            }
            Observation::DeadLettered { route, code } => {
                if let Some(letters) = self.dead_letters.get_mut(route) {
                    *letters.entry(code).or_insert(0) += 1;
                }
                warn!(%session, route = %route_id(route), code = code.as_str(), "dead-lettered");
            }
            Observation::Dropped { route, code } => warn!(%session, route = %route_id(route), code = code.as_str(), "dropped, as the policy says"),
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
            warn!(session = %self.parts.session, doing, code = fault.code.as_str(), detail = %fault.detail, "trying again; nothing is acknowledged meanwhile");
        }
        if doing == "outbox" {
            self.parts.metrics.observe_append_fault(&self.parts.session, fault);
        }
        self.status.last_fault = Some(LastFault::new(self.parts.clock.wall(), doing, fault));
    }

    fn finished(&mut self, end: End) {
        let session = self.parts.session.clone();
        self.dirty = true;
        self.ended = Some(match end {
            End::Stopped { unsettled: 0 } => {
                self.status.log = LogPhase::Stopped;
                info!(%session, "stopped; everything is settled");
                Ok(SessionEnd::Clean)
            }
            End::Stopped { unsettled } => {
                self.status.log = LogPhase::Stopped;
                warn!(%session, unsettled, "stopped at the deadline; what is left stands in the log or with the broker");
                Ok(SessionEnd::DeadlinePassed)
            }
            End::Ended(WriterEnd::Fenced { found, same_or_older_epoch }) => {
                self.status.log = LogPhase::Fenced;
                error!(%session, epoch = self.owner.status(self.parts.clock.wall()).epoch.0, found_epoch = found.epoch.0, slot = found.slot.0, same_or_older_epoch, "another owner writes this log; stopping");
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

    fn publish_when_due(&mut self) {
        if self.dirty || self.clock_now().since(self.published_at) >= BEAT_INTERVAL {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let now = self.clock_now();
        let wall = self.parts.clock.wall();
        let status = self.owner.status(wall);
        if let Some(source) = &self.source {
            self.source_counters = source.counters();
        }
        let unloaded: u64 = status.routes.iter().map(|route| route.counters.unloaded).sum();
        self.status.epoch = (status.epoch.0 > 0).then_some(status.epoch);
        self.status.log = match status.phase {
            Phase::Opening => LogPhase::Opening,
            Phase::Recovering => LogPhase::Recovering,
            Phase::Running | Phase::Stopping => LogPhase::Running,
            Phase::Stopped => self.status.log,
        };
        self.status.outbox = OutboxDepth {
            entries: status.in_memory as u64 + unloaded,
            bytes: status.in_memory_bytes as u64,
            oldest_received_at: status.oldest_age.map(|age| causeway_core::units::UnixMillis(wall.0.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(0)))),
        };
        self.status.paused = !self.owner.wants_input() && status.phase == Phase::Running;
        self.status.draining = self.stopping;
        self.status.drain_stalled_since = self.owner.is_due().then_some(self.progress_at);
        self.status.source = self.source_counters;
        let routes = self.parts.routes.iter().enumerate().filter_map(|(index, parts)| {
            let route = status.routes.get(index)?;
            Some(self.route_status(index, parts, route))
        });
        self.parts.status.publish(self.status.clone(), routes.collect());
        self.published_at = now;
        self.dirty = false;
    }

    fn route_status(&self, index: usize, parts: &RouteParts, route: &causeway_core::worker::counters::RouteStatus) -> RouteStatus {
        let counters = &route.counters;
        RouteStatus {
            id: parts.id.clone(),
            session: self.parts.session.clone(),
            received: counters.received,
            recovered: counters.recovered,
            delivered: counters.delivered,
            dead_lettered: self.dead_letters.get(index).cloned().unwrap_or_default(),
            dropped: (counters.dropped > 0).then_some((DropReason::PermanentFailure, counters.dropped)).into_iter().collect(),
            expired: counters.expired,
            returned: counters.returned,
            retries: self.retries.get(index).copied().unwrap_or(0),
            in_outbox: route.in_outbox,
            in_flight: route.pending + route.in_flight,
        }
    }
}

/// The next event of the source; never, while there is none.
async fn next_of(source: &mut Option<Box<dyn Source>>) -> SourceEvent {
    match source {
        Some(source) => source.next().await,
        None => core::future::pending().await,
    }
}

fn route_options(parts: &RouteParts) -> RouteOptions {
    let limits = parts.sink.limits();
    let sink = Arc::clone(&parts.sink);
    RouteOptions {
        id: parts.id.as_str().into(),
        receiver: parts.receiver.as_str().into(),
        destination: parts.destination.clone(),
        policy: Policy::from(&parts.policy),
        limits: BatchLimits { entries: limits.batch_entries, bytes: limits.batch_bytes, entry_bytes: limits.entry_bytes },
        size_of: Arc::new(move |entry| sink.size_of(entry)),
    }
}

/// Two ids' bases and a seed, from the operating system.
fn random_bits() -> Result<(u128, u128, u64), Fault> {
    let mut bytes = [0_u8; 40];
    getrandom::fill(&mut bytes).map_err(|error| Fault::new(FaultCode::Unavailable, format!("the operating system has no random bits: {error}")))?;
    let (first, rest) = bytes.split_at(16);
    let (second, third) = rest.split_at(16);
    let wide = |part: &[u8]| part.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
    Ok((wide(first), wide(second), u64::try_from(wide(third) & u128::from(u64::MAX)).unwrap_or(0)))
}
