//! What the program tells about itself: one snapshot, written by the owner loops, read by the monitor, the metrics and the health check.
//!
//! Each owner loop publishes its own session and the routes that the session feeds; nothing else writes. Readers always see a whole
//! snapshot, never a half-written one, and cannot slow a loop down.

pub use crate::levels::{ProcessRole, ReadinessLevel, ServiceLevel};
use causeway_core::drain::breaker::Circuit;
pub use causeway_core::drops::{DropReason, FilterCause};
use causeway_core::fleet::FleetView;
use causeway_core::flow::quota::NodeCounters;
use causeway_core::flow::sender::SenderPhase;
use causeway_core::identity::Epoch;
use causeway_core::member::LeaseCounters;
use causeway_core::metrics::{FailoverCause, FailoverStart};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::units::{Instant, UnixMillis};
use causeway_ports::SourceCounters;
use core::fmt;
use core::time::Duration;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Without a sign of life of an owner loop, or with a source or drain standing still, for this long, `live` answers 503 and the platform
/// restarts the process. The platform's own probe interval and retries come on top.
pub const STALL_LIMIT: Duration = Duration::from_secs(15);

/// How often an owner loop publishes at least, idle or not. A third of it would do; five missed ones are a stall.
pub const BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Where a session stands in the bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionRole {
    /// It waits for its turn.
    #[default]
    Standby,
    /// It owns the log and the connection.
    Owner,
}

/// Where a session's log stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogPhase {
    /// Its anchor is not confirmed yet.
    #[default]
    Opening,
    /// Entries of former owners are being read back.
    Recovering,
    /// Everything there is known.
    Running,
    /// Another owner took over; nothing more is written.
    Fenced,
    /// Closed by a clean stop.
    Stopped,
}

/// The last thing that went wrong, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastFault {
    /// When, by this host's wall clock.
    pub at: UnixMillis,
    /// What was being done: `append`, `send`, `connect` …
    pub doing: &'static str,
    /// The fault's code.
    pub code: &'static str,
    /// What happened, without secrets or payloads.
    pub detail: String,
}

impl LastFault {
    /// Notes `fault`, which happened at `at` while `doing`.
    #[must_use]
    pub fn new(at: UnixMillis, doing: &'static str, fault: &Fault) -> Self {
        Self { at, doing, code: fault.code.as_str(), detail: fault.detail.clone() }
    }
}

/// A filter that the broker did not grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedFilter {
    /// The filter.
    pub filter: String,
    /// The broker's reason.
    pub reason: String,
}

/// A session that came to this process from another owner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failover {
    /// Why the former owner had to be replaced.
    pub cause: FailoverCause,
    /// Whether this process ran when that began.
    pub start: FailoverStart,
    /// From the failure to this process's full service, in seconds; see [`causeway_core::member::Handover`] for the clocks.
    pub seconds: f64,
    /// The lease's version.
    pub version: u64,
    /// When full service was reached, by this host's wall clock.
    pub at: UnixMillis,
}

/// A session's lease, as this process sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LeaseStatus {
    /// Whether this process holds it.
    pub held: bool,
    /// Whether it waits for it: it looks at the row, and the row can be read and believed.
    pub watched: bool,
    /// Until when this process may act under it, unless it renews it.
    #[serde(skip)]
    pub acts_until: Option<Instant>,
    /// How much longer that is, in milliseconds. Computed by [`StatusBoard::snapshot`].
    pub margin_ms: Option<u64>,
    /// What it counted.
    #[serde(serialize_with = "lease_counters")]
    pub counters: LeaseCounters,
    /// The last time that the session came to this process.
    pub last_failover: Option<Failover>,
}

/// What waits in a session's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutboxDepth {
    /// Entries that are persisted and not settled.
    pub entries: u64,
    /// What those of them that are in memory occupy, in bytes.
    pub bytes: u64,
    /// When the oldest of them was received, by the receiving host's wall clock.
    pub oldest_received_at: Option<UnixMillis>,
}

/// A session's part in the budget of the whole bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QuotaStatus {
    /// The budget's name.
    pub name: String,
    /// Tokens and seconds, as they were written.
    pub rate: String,
    /// Tokens at hand.
    pub tokens_local: u64,
    /// Whether the budget's store cannot be asked.
    pub degraded: bool,
    /// Since when the notice stands that the budget is spent.
    pub reached_since: Option<UnixMillis>,
    /// What it did since the start of the process.
    #[serde(skip)]
    pub counters: NodeCounters,
}

/// What the sender of one binding of a route does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SenderStatus {
    /// The sender's id.
    pub sender: String,
    /// The route.
    pub route: String,
    /// The binding.
    pub binding: String,
    /// What it does.
    pub phase: SenderPhase,
    /// For how long, in milliseconds; `None`: since the start.
    pub phase_ms: Option<u64>,
    /// Messages under way at most, for now.
    pub window: u64,
    /// Messages under way.
    pub in_flight: u64,
    /// Bytes under way.
    pub unacked_bytes: u64,
    /// Bytes that its connection was given and has not written, those of other senders of the same connection included.
    pub pending_bytes: u64,
}

/// One session as its owner loop sees it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SessionStatus {
    /// The session's id.
    pub id: String,
    /// The broker's address, without user name and password.
    pub broker: String,
    /// Owner or standby.
    pub role: SessionRole,
    /// The fencing epoch, once there is one.
    pub epoch: Option<Epoch>,
    /// Where its log stands.
    pub log: LogPhase,
    /// Whether the source is connected.
    pub connected: bool,
    /// Whether the broker still had the session at the last connect.
    pub session_present: Option<bool>,
    /// Filters that the configuration wants.
    pub subscriptions_wanted: usize,
    /// Filters that the broker granted.
    pub subscriptions_active: usize,
    /// Filters that it refused.
    pub refused: Vec<RefusedFilter>,
    /// Entries of former owners that were read back.
    pub recovered: u64,
    /// How long opening and recovery took, in milliseconds, once done.
    pub recovery_ms: Option<u64>,
    /// What waits in the log.
    pub outbox: OutboxDepth,
    /// Messages that could be delivered twice if the process died now: in flight, settled since the last append or head write began, and
    /// sent by the source without an acknowledgement seen.
    pub duplicate_exposure: u64,
    /// The largest value that `duplicate_exposure` had since the start.
    pub duplicate_exposure_peak: u64,
    /// Whether admission is held back, because memory or the log is full.
    pub paused: bool,
    /// Messages that came and wait, unacknowledged, until a limit admits them.
    pub held_up: u64,
    /// Since when the first of them has waited.
    #[serde(skip)]
    pub held_up_since: Option<Instant>,
    /// Times that a message had to wait, by the kind of limit.
    pub held_up_total: BTreeMap<&'static str, u64>,
    /// Messages that had to wait until a limit of what is sent admitted them, by its kind; others passed them.
    pub parked_total: BTreeMap<&'static str, u64>,
    /// How many of them wait now.
    pub parked: u64,
    /// Messages that lacked the key of a limit, once for each such limit.
    pub limit_keys_missing: u64,
    /// Its part in the budget of the whole bridge; `None` where there is none.
    pub quota: Option<QuotaStatus>,
    /// What its senders do, in the order of the routes and their bindings.
    pub senders: Vec<SenderStatus>,
    /// Whether nothing is received because no destination takes anything.
    pub source_paused: bool,
    /// Whether the log's store does not take what it is given: it is away, or its disk is full.
    pub store_failing: bool,
    /// Its lease; `None` where this process is the session's only candidate.
    pub lease: Option<LeaseStatus>,
    /// Logs of processes that are gone which this one drained and closed.
    pub adopted_logs: u64,
    /// The one of them that it is draining.
    pub adopting: Option<String>,
    /// Whether the session is emptying its log before it ends.
    pub draining: bool,
    /// Whether it left the groups of its shared subscriptions for a while, so that others get its share.
    pub unshared: bool,
    /// Whether it takes and acknowledges nothing, so that others of its groups must not count on it.
    #[serde(skip)]
    pub stuck: bool,
    /// Since when the source should have shown progress and did not.
    #[serde(skip)]
    pub source_stalled_since: Option<Instant>,
    /// Since when entries are due and none was attempted.
    #[serde(skip)]
    pub drain_stalled_since: Option<Instant>,
    /// The last sign of life of the owner loop; set by [`StatusBoard::publish`].
    #[serde(skip)]
    pub beat_at: Instant,
    /// The last thing that went wrong.
    pub last_fault: Option<LastFault>,
    /// The source's counters.
    #[serde(serialize_with = "source_counters")]
    pub source: SourceCounters,
    /// Computed by [`StatusBoard::snapshot`]; owner loops leave it alone.
    pub service_level: ServiceLevel,
    /// Likewise.
    pub readiness: ReadinessLevel,
}

impl SessionStatus {
    /// Whether it makes no progress or has ended.
    fn is_down(&self, now: Instant) -> bool {
        let stalled = |since: Option<Instant>| since.is_some_and(|since| now.since(since) >= STALL_LIMIT);
        now.since(self.beat_at) >= STALL_LIMIT
            || matches!(self.log, LogPhase::Fenced | LogPhase::Stopped)
            || stalled(self.source_stalled_since)
            || stalled(self.drain_stalled_since)
    }

    /// How much of its service it gives at `now`.
    #[must_use]
    pub fn service(&self, now: Instant) -> ServiceLevel {
        let without_filter = self.subscriptions_wanted > 0 && self.subscriptions_active == 0;
        if self.is_down(now) || self.role != SessionRole::Owner || !self.connected || without_filter {
            return ServiceLevel::None;
        }
        let held_back = self.paused || self.stuck || self.draining || self.store_failing || self.log != LogPhase::Running;
        if held_back || self.subscriptions_active < self.subscriptions_wanted { ServiceLevel::Degraded } else { ServiceLevel::Full }
    }

    /// How far it has come at `now`.
    #[must_use]
    pub fn level(&self, now: Instant) -> ReadinessLevel {
        if self.is_down(now) {
            return ReadinessLevel::Down;
        }
        if self.role != SessionRole::Owner {
            return if self.stands_by() { ReadinessLevel::Subscribed } else { ReadinessLevel::Live };
        }
        if self.log == LogPhase::Opening {
            return ReadinessLevel::Live;
        }
        if !self.connected {
            return ReadinessLevel::Running;
        }
        if self.subscriptions_active < self.subscriptions_wanted {
            return ReadinessLevel::Connected;
        }
        if self.service(now) == ServiceLevel::Full { ReadinessLevel::Full } else { ReadinessLevel::Subscribed }
    }

    /// Whether it waits for its lease in good order.
    fn stands_by(&self) -> bool {
        self.role == SessionRole::Standby && self.lease.as_ref().is_some_and(|lease| lease.watched)
    }

    /// Why the session makes no progress at `now`, if so.
    #[must_use]
    pub fn stall(&self, now: Instant) -> Option<String> {
        let overdue = |since: Instant| (now.since(since) >= STALL_LIMIT).then(|| now.since(since).as_secs());
        let of = |what: &str, seconds: u64| format!("session {}: {what} for {seconds} s", self.id);
        if matches!(self.log, LogPhase::Stopped) {
            return None;
        }
        if let Some(seconds) = overdue(self.beat_at) {
            return Some(of("the owner loop has not moved", seconds));
        }
        if let Some(seconds) = self.source_stalled_since.and_then(overdue) {
            return Some(of("the source stands still", seconds));
        }
        self.drain_stalled_since.and_then(overdue).map(|seconds| of("entries are due and none was attempted", seconds))
    }
}

/// One route's account since the start of the process. Every field is absolute; none ever falls but `in_outbox` and `in_flight`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouteStatus {
    /// The route's id.
    pub id: String,
    /// The session that feeds it.
    pub session: String,
    /// Messages received from the source.
    pub received: u64,
    /// Moved in from the mailbox: put back from the dead letters, or put in by HTTP.
    pub mailed: u64,
    /// Entries of former owners that were read back from the log.
    pub recovered: u64,
    /// Accepted by the destination.
    pub delivered: u64,
    /// Kept as dead letters, by the fault's code.
    #[serde(serialize_with = "by_code")]
    pub dead_lettered: BTreeMap<FaultCode, u64>,
    /// Lost, by reason; without those that expired.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Taken out of the stream, as the configuration wants.
    pub filtered: BTreeMap<FilterCause, u64>,
    /// Expired where the route says `on_expired: drop`.
    pub expired: u64,
    /// Received and given up unacknowledged, because their connection ended before they were persisted: the broker sends them again.
    pub returned: u64,
    /// Left in the log for the next owner when this process's ownership ended.
    pub handed_over: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Times that its circuit breaker opened.
    pub circuits_opened: u64,
    /// What its circuit breaker lets through.
    pub circuit: Circuit,
    /// Times that its senders went on after a pause with nothing under way.
    pub resumed: u64,
    /// Times that they did although something was.
    pub resumed_forced: u64,
    /// Attempts that its destinations answered by asking for less.
    pub throttled: u64,
    /// Times that its outbox was full.
    pub outbox_full: u64,
    /// Persisted, not settled, and not being sent now.
    pub in_outbox: u64,
    /// Received and not persisted yet, or being sent now.
    pub in_flight: u64,
}

impl RouteStatus {
    /// Messages that came in and are not accounted for: 0, or there is a defect. Positive: missing; negative: counted twice.
    #[must_use]
    pub fn imbalance(&self) -> i64 {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let came = self.received.saturating_add(self.mailed).saturating_add(self.recovered);
        let went = [
            self.delivered,
            self.dead_lettered_total(),
            self.dropped_total(),
            self.filtered_total(),
            self.expired,
            self.returned,
            self.handed_over,
            self.in_outbox,
            self.in_flight,
        ]
        .into_iter()
        .fold(0_u64, u64::saturating_add);
        signed(came).saturating_sub(signed(went))
    }

    /// Adds the account of another log of the same route.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.mailed += other.mailed;
        self.recovered += other.recovered;
        self.delivered += other.delivered;
        for (code, count) in &other.dead_lettered {
            *self.dead_lettered.entry(*code).or_default() += count;
        }
        for (reason, count) in &other.dropped {
            *self.dropped.entry(*reason).or_default() += count;
        }
        for (cause, count) in &other.filtered {
            *self.filtered.entry(*cause).or_default() += count;
        }
        self.expired += other.expired;
        self.returned += other.returned;
        self.handed_over += other.handed_over;
        self.retries += other.retries;
        self.outbox_full += other.outbox_full;
        self.circuits_opened += other.circuits_opened;
        self.resumed += other.resumed;
        self.resumed_forced += other.resumed_forced;
        self.throttled += other.throttled;
        self.circuit = self.circuit.max(other.circuit);
        self.in_outbox += other.in_outbox;
        self.in_flight += other.in_flight;
    }

    /// Dead letters of every code.
    #[must_use]
    pub fn dead_lettered_total(&self) -> u64 {
        self.dead_lettered.values().sum()
    }

    /// What was taken out of the stream for every cause.
    #[must_use]
    pub fn filtered_total(&self) -> u64 {
        self.filtered.values().sum()
    }

    /// Drops of every reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// The whole program at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BridgeStatus {
    /// The bridge's id.
    pub bridge_id: String,
    /// This process among those of the bridge.
    pub instance_id: String,
    /// When the process started, by this host's wall clock.
    pub started_at: UnixMillis,
    /// When the snapshot was taken, by this host's wall clock.
    pub taken_at: UnixMillis,
    /// The lowest level among the sessions that this process owns; `none` where it owns none.
    pub service_level: ServiceLevel,
    /// The lowest level among the sessions, without those that stand by where others are owned; at most `running` where there are none.
    pub readiness: ReadinessLevel,
    /// What the process is in its bridge.
    pub role: ProcessRole,
    /// Whether the program is on its way out.
    pub shutting_down: bool,
    /// Why the program is not live, if so.
    pub stalled: Vec<String>,
    /// The sessions, in the order of the configuration.
    pub sessions: Vec<SessionStatus>,
    /// The routes, in the order of the configuration.
    pub routes: Vec<RouteStatus>,
    /// All processes of the bridge, where this one watches them.
    pub fleet: Option<FleetView>,
}

/// Where owner loops publish and everybody reads. Clones share the board.
#[derive(Clone)]
pub struct StatusBoard {
    board: Arc<watch::Sender<BridgeStatus>>,
    clock: Arc<dyn causeway_ports::Clock>,
}

impl fmt::Debug for StatusBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusBoard").finish_non_exhaustive()
    }
}

impl StatusBoard {
    /// A board for a process that has just started.
    #[must_use]
    pub fn new(bridge_id: &str, instance_id: &str, clock: Arc<dyn causeway_ports::Clock>) -> Self {
        let started_at = clock.wall();
        let first =
            BridgeStatus { bridge_id: bridge_id.to_owned(), instance_id: instance_id.to_owned(), started_at, ..BridgeStatus::default() };
        Self { board: Arc::new(watch::Sender::new(first)), clock }
    }

    /// Publishes a session and the routes that it feeds, and notes that its loop is alive. Call it after every change worth seeing, and at
    /// least every [`BEAT_INTERVAL`]; it costs one short lock. Sessions and routes keep the place of their first publication.
    pub fn publish(&self, mut session: SessionStatus, routes: Vec<RouteStatus>) {
        session.beat_at = self.clock.now();
        self.board.send_modify(|status| {
            match status.sessions.iter_mut().find(|known| known.id == session.id) {
                Some(known) => *known = session,
                None => status.sessions.push(session),
            }
            for route in routes {
                match status.routes.iter_mut().find(|known| known.id == route.id) {
                    Some(known) => *known = route,
                    None => status.routes.push(route),
                }
            }
        });
    }

    /// Publishes what this process sees of the whole bridge; `None`: it does not watch.
    pub fn publish_fleet(&self, fleet: Option<FleetView>) {
        self.board.send_if_modified(|status| {
            let changed = status.fleet != fleet;
            status.fleet = fleet;
            changed
        });
    }

    /// Tells that the program is on its way out: it is not ready any more from this moment.
    pub fn begin_shutdown(&self) {
        self.board.send_modify(|status| status.shutting_down = true);
    }

    /// The whole program now, with levels and stalls computed.
    #[must_use]
    pub fn snapshot(&self) -> BridgeStatus {
        let now = self.clock.now();
        let mut status = self.board.borrow().clone();
        status.taken_at = self.clock.wall();
        for session in &mut status.sessions {
            session.service_level = session.service(now);
            session.readiness = session.level(now);
            if let Some(lease) = &mut session.lease {
                lease.margin_ms = lease.acts_until.map(|until| u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX));
            }
        }
        status.stalled = status.sessions.iter().filter_map(|session| session.stall(now)).collect();
        let owned = || status.sessions.iter().filter(|session| session.role == SessionRole::Owner);
        let shared = status.sessions.iter().any(|session| session.lease.is_some());
        let active = owned().any(|session| session.lease.is_some());
        status.role = match (shared, active) {
            (false, _) => ProcessRole::Standalone,
            (true, true) => ProcessRole::Active,
            (true, false) => ProcessRole::Standby,
        };
        let owns = owned().next().is_some();
        let counted = status.sessions.iter().filter(|session| !(owns && session.stands_by()));
        let readiness = counted.map(|session| session.readiness).min().unwrap_or(ReadinessLevel::Running);
        status.service_level = owned().map(|session| session.service_level).min().unwrap_or_default();
        status.readiness = readiness;
        status
    }

    /// Tells of every change that an owner loop publishes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<BridgeStatus> {
        self.board.subscribe()
    }
}

fn source_counters<S: serde::Serializer>(counters: &SourceCounters, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeStruct;
    let mut out = serializer.serialize_struct("SourceCounters", 16)?;
    out.serialize_field("received", &counters.received)?;
    out.serialize_field("acknowledged", &counters.acknowledged)?;
    out.serialize_field("unacknowledged", &counters.unacknowledged)?;
    out.serialize_field("unacknowledged_peak", &counters.unacknowledged_peak)?;
    out.serialize_field("reconnects", &counters.reconnects)?;
    out.serialize_field("connect_failures", &counters.connect_failures)?;
    out.serialize_field("sessions_lost", &counters.sessions_lost)?;
    out.serialize_field("poison_packets", &counters.poison_packets)?;
    out.serialize_field("poison_lost", &counters.poison_lost)?;
    out.serialize_field("poison_dropped", &counters.poison_dropped)?;
    out.serialize_field("window_overruns", &counters.window_overruns)?;
    out.serialize_field("reused_ids", &counters.reused_ids)?;
    out.serialize_field("dropped_qos0", &counters.dropped_qos0)?;
    out.serialize_field("refusals", &counters.refusals)?;
    out.serialize_field("quarantined", &counters.quarantined)?;
    out.serialize_field("unmatched_held", &counters.unmatched_held)?;
    out.end()
}

fn by_code<S: serde::Serializer>(counts: &BTreeMap<FaultCode, u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().map(|(code, count)| (code.as_str(), count)))
}

fn lease_counters<S: serde::Serializer>(counters: &LeaseCounters, serializer: S) -> Result<S::Ok, S::Error> {
    let LeaseCounters { transfers, expiries, renew_failures, broker_step_downs } = *counters;
    let named =
        [("transfers", transfers), ("expiries", expiries), ("renew_failures", renew_failures), ("broker_step_downs", broker_step_downs)];
    serializer.collect_map(named)
}
