//! Takes into the metrics what is counted elsewhere: by the owner loops, by the adapters, by the operating system.

use super::Metrics;
use crate::commands::CommandGateway;
use crate::parts::NamedSinks;
use crate::status::{BridgeStatus, QuotaStatus, RouteStatus, SessionStatus, StatusBoard};
use causeway_core::commands::gateway::Path;
use causeway_core::commands::{IgnoredReply, State, Why};
use causeway_core::flow::Reason;
use causeway_core::metrics::{Kind, Metric, PEER_CODES, REPLY_COUNTS};
use causeway_core::units::UnixMillis;
use causeway_ports::Outbox;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where [`collect`] reads from.
#[derive(Clone)]
pub struct Collector {
    /// The values.
    pub metrics: Metrics,
    /// What the owner loops tell.
    pub status: StatusBoard,
    /// The log's store, for its costs.
    pub outbox: Option<Arc<dyn Outbox>>,
    /// The queues by sender id, for their requests.
    pub queues: NamedSinks,
    /// The topics by sender id, for what was published.
    pub topics: NamedSinks,
    /// The gateway of commands, where commands are taken.
    pub commands: Option<CommandGateway>,
}

impl core::fmt::Debug for Collector {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Collector").field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

impl Collector {
    /// Brings everything up to date and answers the snapshot that it was taken from.
    pub fn collect(&self) -> BridgeStatus {
        let status = self.status.snapshot();
        self.program(&status);
        for session in &status.sessions {
            self.session(session, status.taken_at);
        }
        for route in &status.routes {
            self.route(route);
        }
        self.fleet(&status);
        self.flow(&status.sessions);
        self.adapters();
        self.commands();
        status
    }

    fn commands(&self) {
        let Some(gateway) = &self.commands else { return };
        let counts = gateway.counters().snapshot();
        self.set(Metric::CommandsAccepted, &[], counts.accepted);
        self.set(Metric::CommandsPending, &[], counts.pending as u64);
        self.set(Metric::CommandsWaiting, &[], counts.waiting as u64);
        self.set(Metric::CommandRepliesLate, &[], counts.late);
        self.set(Metric::CommandOrphans, &[], counts.orphans);
        self.set(Metric::CommandConflicts, &[], counts.conflicts);
        self.set(Metric::CommandStoreFaults, &[], counts.store_faults);
        self.set(Metric::CommandPublishFaults, &[], counts.publish_faults);
        self.set(Metric::CommandNotices, &["true"], counts.notified_awaited);
        self.set(Metric::CommandNotices, &["false"], counts.notified_other);
        for state in State::ALL {
            self.set(Metric::CommandsEnded, &[state.as_str()], counts.ended.get(&state).copied().unwrap_or(0));
        }
        for why in IgnoredReply::ALL {
            self.set(Metric::CommandRepliesIgnored, &[why.as_str()], counts.ignored.get(&why).copied().unwrap_or(0));
        }
        for path in Path::ALL {
            for why in core::iter::once(None).chain(Why::ALL.map(Some)) {
                let result = why.map_or(REPLY_COUNTS, Why::as_str);
                self.set(Metric::CommandReplies, &[path.as_str(), result], counts.replies.get(&(path, why)).copied().unwrap_or(0));
            }
        }
    }

    fn set(&self, metric: Metric, labels: &[&str], value: u64) {
        self.metrics.0.set(metric, labels, float(value));
    }

    fn program(&self, status: &BridgeStatus) {
        self.set(Metric::BuildInfo, &[env!("CARGO_PKG_VERSION")], 1);
        self.set(Metric::Live, &[], u64::from(status.stalled.is_empty()));
        self.metrics.0.set(Metric::Uptime, &[], status.taken_at.since(status.started_at).as_secs_f64());
        if let Some(memory) = memory() {
            self.set(Metric::ResidentBytes, &[], memory.resident);
            self.set(Metric::ResidentPeakBytes, &[], memory.peak);
        }
    }

    fn session(&self, session: &SessionStatus, now: UnixMillis) {
        let labels = &[session.id.as_str()];
        let age = session.outbox.oldest_received_at.map_or(0.0, |oldest| now.since(oldest).as_secs_f64());
        self.set(Metric::OutboxDepth, labels, session.outbox.entries);
        self.set(Metric::OutboxBytes, labels, session.outbox.bytes);
        self.metrics.0.set(Metric::OutboxOldestAge, labels, age);
        self.set(Metric::DuplicateExposure, labels, session.duplicate_exposure);
        self.set(Metric::DuplicateExposurePeak, labels, session.duplicate_exposure_peak);
        self.set(Metric::RecoveredEntries, labels, session.recovered);
        if let Some(millis) = session.recovery_ms {
            self.metrics.0.set(Metric::RecoverySeconds, labels, float(millis) / 1000.0);
        }
        if let Some(epoch) = session.epoch {
            self.set(Metric::Epoch, labels, epoch.0);
        }
        self.set(Metric::Connected, labels, u64::from(session.connected));
        self.set(Metric::SubscriptionsWanted, labels, session.subscriptions_wanted as u64);
        self.set(Metric::SubscriptionsActive, labels, session.subscriptions_active as u64);
        self.set(Metric::ServiceLevel, labels, session.service_level as u64);
        self.set(Metric::ReadinessLevel, labels, session.readiness as u64);
        if let Some(lease) = &session.lease {
            self.set(Metric::LeaseHeld, labels, u64::from(lease.held));
            self.set(Metric::LeaseTransfers, labels, lease.counters.transfers);
            self.set(Metric::LeaseExpiries, labels, lease.counters.expiries);
            self.set(Metric::LeaseRenewFailures, labels, lease.counters.renew_failures);
            self.set(Metric::BrokerHealthStepDowns, labels, lease.counters.broker_step_downs);
        }
        if let Some(quota) = &session.quota {
            self.quota(&session.id, quota);
        }
        self.set(Metric::AdoptedLogs, labels, session.adopted_logs);
        self.set(Metric::AdmissionPaused, labels, u64::from(session.paused));
        self.limits(session);
        let source = &session.source;
        self.set(Metric::MqttReceived, labels, source.received);
        self.set(Metric::MqttAcknowledged, labels, source.acknowledged);
        self.set(Metric::MqttUnacknowledged, labels, source.unacknowledged);
        self.set(Metric::MqttUnacknowledgedPeak, labels, source.unacknowledged_peak);
        self.set(Metric::MqttReconnects, labels, source.reconnects);
        self.set(Metric::MqttConnectFailures, labels, source.connect_failures);
        self.set(Metric::SessionResumeLost, labels, source.sessions_lost);
        self.set(Metric::MqttPoison, labels, source.poison_packets);
        self.set(Metric::MqttWindowOverruns, labels, source.window_overruns);
        self.set(Metric::MqttReusedIds, labels, source.reused_ids);
        self.set(Metric::MqttQos0Dropped, labels, source.dropped_qos0);
        self.set(Metric::SubscriptionsRefused, labels, source.refusals);
        self.set(Metric::SubscriptionsQuarantined, labels, source.quarantined);
        self.set(Metric::MqttUnmatchedHeld, labels, source.unmatched_held);
    }

    fn quota(&self, session: &str, quota: &QuotaStatus) {
        let (labels, counters) = (&[session], &quota.counters);
        self.set(Metric::QuotaTokensLocal, labels, quota.tokens_local);
        self.set(Metric::QuotaCharged, labels, counters.charged);
        self.set(Metric::QuotaUnmetered, labels, counters.unmetered);
        self.set(Metric::QuotaReturned, labels, counters.returned);
        self.set(Metric::QuotaDegraded, labels, u64::from(quota.degraded));
        self.set(Metric::QuotaReached, labels, u64::from(quota.reached_since.is_some()));
        for (result, count) in counters.draws() {
            self.set(Metric::QuotaDraws, &[session, result], count);
        }
        for (cause, count) in counters.failures() {
            self.set(Metric::QuotaFailures, &[session, cause], count);
        }
    }

    fn limits(&self, session: &SessionStatus) {
        let id = session.id.as_str();
        self.set(Metric::HeldMessages, &[id], session.held_up);
        self.set(Metric::ParkedMessages, &[id], session.parked);
        self.set(Metric::LimitKeyMissing, &[id], session.limit_keys_missing);
        let held_for = session.held_up_since.map_or(0.0, |since| session.beat_at.since(since).as_secs_f64());
        self.metrics.0.set(Metric::AckHold, &[id], held_for);
        for reason in Reason::ALL {
            let of = |totals: &BTreeMap<&'static str, u64>| totals.get(reason.name()).copied().unwrap_or(0);
            self.set(Metric::Held, &[id, reason.name()], of(&session.held_up_total));
            self.set(Metric::Parked, &[id, reason.name()], of(&session.parked_total));
        }
    }

    fn route(&self, route: &RouteStatus) {
        let id = route.id.as_str();
        self.set(Metric::MessagesReceived, &[id], route.received);
        self.set(Metric::MessagesMailed, &[id], route.mailed);
        self.set(Metric::MessagesRecovered, &[id], route.recovered);
        self.set(Metric::MessagesDelivered, &[id], route.delivered);
        self.set(Metric::MessagesExpired, &[id], route.expired);
        self.set(Metric::MessagesReturned, &[id], route.returned);
        self.set(Metric::MessagesHandedOver, &[id], route.handed_over);
        self.set(Metric::SendRetries, &[id], route.retries);
        self.set(Metric::OutboxFull, &[id], route.outbox_full);
        self.set(Metric::Resumes, &[id, "false"], route.resumed);
        self.set(Metric::Resumes, &[id, "true"], route.resumed_forced);
        self.set(Metric::Throttled, &[id], route.throttled);
        self.set(Metric::CircuitBreakerState, &[id], route.circuit as u64);
        self.set(Metric::CircuitBreakerOpened, &[id], route.circuits_opened);
        self.set(Metric::RouteInOutbox, &[id], route.in_outbox);
        self.set(Metric::RouteInFlight, &[id], route.in_flight);
        self.metrics.0.set(Metric::ConservationImbalance, &[id], signed(route.imbalance()));
        for (code, &count) in &route.dead_lettered {
            self.set(Metric::DlqEntries, &[id, code.as_str()], count);
        }
        for (reason, &count) in &route.dropped {
            self.set(Metric::MessagesDropped, &[id, reason.as_str()], count);
        }
        for (cause, &count) in &route.filtered {
            self.set(Metric::MessagesFiltered, &[id, cause.as_str()], count);
        }
    }

    /// Who pauses, counted from what each does: nothing is counted up and down.
    fn flow(&self, sessions: &[SessionStatus]) {
        let senders = || sessions.iter().flat_map(|session| &session.senders);
        let paused: BTreeSet<&str> = senders().filter(|sender| sender.phase.is_paused()).map(|sender| sender.sender.as_str()).collect();
        self.set(Metric::PausedSenders, &["egress"], paused.len() as u64);
        self.set(Metric::PausedSenders, &["ingress"], sessions.iter().filter(|session| session.source_paused).count() as u64);
        self.set(Metric::InFlight, &["egress"], senders().map(|sender| sender.in_flight).sum());
        self.set(Metric::InFlight, &["ingress"], sessions.iter().map(|session| session.source.unacknowledged).sum());
    }

    /// What one that watches tells of the whole bridge. Who does not watch tells nothing of it.
    fn fleet(&self, status: &BridgeStatus) {
        let Some(fleet) = &status.fleet else {
            for metric in [Metric::FleetWorkers, Metric::AzSpread, Metric::UnseenTasks, Metric::WarmStandby, Metric::LeaseHolders] {
                self.metrics.0.forget(metric);
            }
            return;
        };
        self.set(Metric::FleetWorkers, &[], fleet.workers as u64);
        self.set(Metric::AzSpread, &[], fleet.zones.len() as u64);
        match &fleet.unseen_tasks {
            Some(tasks) => self.set(Metric::UnseenTasks, &[], tasks.len() as u64),
            None => self.metrics.0.forget(Metric::UnseenTasks),
        }
        for session in &fleet.sessions {
            self.set(Metric::WarmStandby, &[&session.id], u64::from(session.standbys > 0));
            self.set(Metric::LeaseHolders, &[&session.id], session.holders.len() as u64);
        }
    }

    fn adapters(&self) {
        if let Some(outbox) = &self.outbox {
            let usage = outbox.usage();
            self.set(Metric::StoreWriteCalls, &[], usage.write_calls);
            self.set(Metric::StoreReadCalls, &[], usage.read_calls);
            if let Some(units) = usage.write_units {
                self.metrics.0.set(Metric::StoreWriteUnits, &[], units);
            }
            if let Some(units) = usage.read_units {
                self.metrics.0.set(Metric::StoreReadUnits, &[], units);
            }
        }
        for (metric, sinks) in [(Metric::SqsRequests, &self.queues), (Metric::MqttPublished, &self.topics)] {
            for (sender, sink) in sinks {
                self.set(metric, &[sender], sink.requests());
            }
        }
        for (sender, sink) in &self.topics {
            self.set(Metric::PendingBytes, &[sender], sink.link().map_or(0, |link| link.borrow().pending_bytes));
            let answers = sink.answers();
            let count = |code: u8| answers.iter().find(|(answered, _)| *answered == code).map_or(0, |(_, count)| *count);
            for (code, name) in PEER_CODES {
                self.set(Metric::PeerAcks, &[sender, name], count(code));
            }
            self.set(Metric::NoMatchingSubscribers, &[sender], count(0x10));
        }
    }
}

/// Whether a metric's value is counted here (and not observed): its declaration is a counter or a gauge.
#[must_use]
pub fn is_collected(metric: Metric) -> bool {
    metric.definition().kind != Kind::Histogram && !matches!(metric, Metric::Appends | Metric::SendResults | Metric::DroppedMessages)
}

const fn float(count: u64) -> f64 {
    count as f64
}

const fn signed(count: i64) -> f64 {
    count as f64
}

/// What the process occupies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Now.
    pub resident: u64,
    /// At most, since the start.
    pub peak: u64,
}

/// Reads the process's memory from procfs; `None` where there is none.
#[must_use]
pub fn memory() -> Option<Memory> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory { resident: field("VmRSS:")?, peak: field("VmHWM:")? })
}
