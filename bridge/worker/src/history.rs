//! Takes the samples of the last hour for the status page's charts.

use crate::levels::ServiceLevel;
use crate::status::{BridgeStatus, SessionRole, StatusBoard};
use causeway_core::history::{History, INTERVAL, RouteSample, Sample, SessionSample};
use causeway_core::units::UnixMillis;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// The last hour. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<History>>);

impl Recorder {
    /// Takes a sample of `status` every few seconds until `quit`.
    pub async fn run(self, status: StatusBoard, quit: CancellationToken) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while quit.run_until_cancelled(ticks.tick()).await.is_some() {
            self.note(&status.snapshot());
        }
    }

    /// Takes one sample.
    pub fn note(&self, status: &BridgeStatus) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sample(status));
    }

    /// The samples after `since`, for programs.
    #[must_use]
    pub fn after(&self, since: UnixMillis) -> Value {
        let history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json!({ "interval_ms": INTERVAL.as_millis() as u64, "samples": history.after(since).collect::<Vec<_>>() })
    }
}

fn sample(status: &BridgeStatus) -> Sample {
    let sessions = status.sessions.iter().map(|session| SessionSample {
        level: match session.service_level {
            ServiceLevel::None => 0,
            ServiceLevel::Degraded => 1,
            ServiceLevel::Full => 2,
        },
        owner: session.role == SessionRole::Owner,
        entries: session.outbox.entries,
        oldest_ms: session.outbox.oldest_received_at.map_or(0, |at| millis(status.taken_at.since(at))),
        margin_ms: session.lease.as_ref().and_then(|lease| lease.margin_ms),
    });
    let routes = status.routes.iter().map(|route| RouteSample {
        received: route.received,
        delivered: route.delivered,
        dead: route.dead_lettered_total(),
        dropped: route.dropped_total(),
    });
    Sample { at: status.taken_at, sessions: sessions.collect(), routes: routes.collect() }
}

fn millis(duration: core::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
