//! What several test files share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, reason = "tests; not every file uses all of it")]

use async_trait::async_trait;
use causeway_core::drain::OrderKey;
use causeway_core::identity::Epoch;
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::{Instant, UnixMillis};
use causeway_ports::{Clock, Sink, SinkLimits};
use causeway_worker::status::{DropReason, LogPhase, OutboxDepth, RouteStatus, SessionRole, SessionStatus, StatusBoard};
use causeway_worker::telemetry::Metrics;
use causeway_worker::telemetry::collect::Collector;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

/// A clock that stands until it is moved.
#[derive(Debug, Default)]
pub struct TestClock(AtomicU64);

impl TestClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(1_000_000_000_000 + self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_000 + self.0.load(Ordering::SeqCst) / 1_000_000)
    }
}

/// A destination that nothing is sent to.
#[derive(Debug)]
pub struct IdleSink;

#[async_trait]
impl Sink for IdleSink {
    fn limits(&self) -> SinkLimits {
        SinkLimits { batch_entries: 10, batch_bytes: 1 << 20, entry_bytes: 1 << 20 }
    }

    fn size_of(&self, entry: &Entry) -> usize {
        entry.message.payload.len()
    }

    fn key_of(&self, _: &Entry) -> Option<OrderKey> {
        None
    }

    async fn send(&self, batch: &[Arc<Entry>], _: Duration) -> Vec<Outcome<()>> {
        batch.iter().map(|_| Outcome::Done(())).collect()
    }

    async fn probe(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn requests(&self) -> u64 {
        0
    }
}

/// A collector on a standing clock, and its metrics.
pub fn collector() -> (Collector, Metrics) {
    let (collector, _) = collector_with_clock();
    let metrics = collector.metrics.clone();
    (collector, metrics)
}

/// A collector, and the clock that it reads.
pub fn collector_with_clock() -> (Collector, Arc<TestClock>) {
    let clock = Arc::new(TestClock::default());
    let status = StatusBoard::new("bridge", "instance", Arc::clone(&clock) as Arc<dyn Clock>);
    let sink = |name: &str| vec![(name.to_owned(), Arc::new(IdleSink) as Arc<dyn Sink>)];
    (Collector { metrics: Metrics::default(), status, outbox: None, queues: sink("out"), topics: sink("topic-out"), commands: None }, clock)
}

/// A session at full service.
pub fn session() -> SessionStatus {
    SessionStatus {
        id: "s".to_owned(),
        broker: "mqtt://127.0.0.1:1883".to_owned(),
        role: SessionRole::Owner,
        epoch: Some(Epoch(7)),
        log: LogPhase::Running,
        connected: true,
        session_present: Some(true),
        subscriptions_wanted: 2,
        subscriptions_active: 2,
        outbox: OutboxDepth { entries: 3, bytes: 900, oldest_received_at: Some(UnixMillis(1_699_999_990_000)) },
        ..SessionStatus::default()
    }
}

/// A route whose account is even.
pub fn route() -> RouteStatus {
    RouteStatus {
        id: "r".to_owned(),
        session: "s".to_owned(),
        received: 10,
        delivered: 4,
        dead_lettered: [(FaultCode::PayloadTooLarge, 2)].into(),
        dropped: [(DropReason::TargetRejected, 1)].into(),
        in_outbox: 2,
        in_flight: 1,
        ..RouteStatus::default()
    }
}

/// Publishes one session and one route.
pub fn fill(collector: &Collector) {
    collector.status.publish(session(), vec![route()]);
}
