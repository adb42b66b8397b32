//! Processes of one bridge that share a session's work: each has a log of its own, and what one leaves behind another delivers, once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_core::adoption::Adopter;
use causeway_core::config::model::Bridge;
use causeway_core::dead_letter::Destination;
use causeway_core::dispatch::Dispatch;
use causeway_core::hold::Order;
use causeway_core::identity::{LogName, lease_of, partition_of_process};
use causeway_core::lease::holder::Upkeep;
use causeway_core::lease::row::{LeaseRow, OwnerFacts, Tuple};
use causeway_core::lease::standby::Candidate;
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::log::LogState;
use causeway_core::member::MemberOptions;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_core::worker::options::{Delivery, Policy};
use causeway_local::memory::{MemoryLeases, MemoryOutbox};
use causeway_ports::fake::{FakeBroker, FakeSink, SinkAnswer};
use causeway_ports::{Leases, Outbox, Sink, SystemClock};
use causeway_worker::adoption::{Adoptable, Adoption, run_and_retire};
use causeway_worker::parts::{LeaseParts, LegParts, LogKind, LogLimits, RandomBits, SessionParts};
use causeway_worker::run::{RunError, SessionEnd};
use causeway_worker::status::{RouteStatus, ServiceLevel, SessionStatus, StatusBoard};
use causeway_worker::telemetry::Metrics;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Shorter than any lease that a configuration may ask for: real time passes here.
const TTL: Duration = Duration::from_secs(2);

/// Waits until `holds`, generously.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..6_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within a minute");
}

/// What all processes share.
#[derive(Clone)]
struct World {
    leases: Arc<MemoryLeases>,
    outbox: Arc<MemoryOutbox>,
    sink: Arc<FakeSink>,
}

impl World {
    fn new() -> Self {
        Self { leases: Arc::new(MemoryLeases::new()), outbox: Arc::new(MemoryOutbox::new()), sink: Arc::new(FakeSink::default()) }
    }

    /// The destination is away.
    fn sink_away(&self) {
        self.sink.answer_by(|_, _| SinkAnswer::Refuse(Fault::new(FaultCode::Unavailable, "away")));
    }

    fn sink_back(&self) {
        self.sink.answer_by(|_, _| SinkAnswer::Accept);
    }

    async fn state_of(&self, log: &LogName) -> Option<LogState> {
        self.outbox.read_record(log).await.unwrap().map(|record| record.state)
    }

    async fn lease_of(&self, log: &LogName) -> LeaseRow {
        LeaseRow::try_from(self.leases.read(&lease_of(log)).await.unwrap().unwrap()).unwrap()
    }
}

/// A process: its owner loop and its adopter.
struct Process {
    log: LogName,
    broker: FakeBroker,
    status: StatusBoard,
    stop: CancellationToken,
    session: JoinHandle<Result<SessionEnd, RunError>>,
    adopter: JoinHandle<()>,
}

impl Process {
    fn start(world: &World, nonce: u64) -> Self {
        let (broker, clock, stop) = (FakeBroker::new(), Arc::new(SystemClock), CancellationToken::new());
        broker.answer_subscriptions(1, vec![]);
        let owner = format!("w{nonce}#{nonce}");
        let status = StatusBoard::new("b", &owner, clock.clone());
        let partition = partition_of_process("s", nonce);
        let log = LogName::new("b", &partition, 0).unwrap();
        let (source, report) = (broker.clone(), watch::Sender::default());
        let parts = SessionParts {
            session: "s".to_owned(),
            owner: owner.clone(),
            broker: "fake".to_owned(),
            subscriptions_wanted: 1,
            log: log.clone(),
            kind: LogKind::OfProcess(report.subscribe()),
            dispatch: Arc::new(Dispatch::to_first([("r", "in", "b")])),
            legs: vec![LegParts {
                route: "r".to_owned(),
                receiver: "in".to_owned(),
                destination: Destination { binding: "b".to_owned(), ..Destination::default() },
                sink: Arc::clone(&world.sink) as Arc<dyn Sink>,
                delivery: Delivery::Logged,
                depth: None,
                breaker: None,
                send_limits: Vec::new(),
                sender: String::new(),
                flow: Default::default(),
                pacing: None,
                policy: Policy::default(),
            }],
            outbox: Some(Arc::clone(&world.outbox) as Arc<dyn Outbox>),
            acknowledge: Order::OfArrival,
            arrival_limits: Vec::new(),
            ack_hold: None,
            quota: None,
            lanes: 1,
            mailbox: None,
            limits: LogLimits::default(),
            stale_claim: Duration::from_secs(60),
            dead_letters: None,
            start_source: Arc::new(move |_| Box::new(source.source())),
            lease: Some(LeaseParts {
                leases: Arc::clone(&world.leases) as Arc<dyn Leases>,
                hinted: Arc::default(),
                asked: Arc::default(),
                hinter: None,
                call_timeout: Duration::from_secs(1),
                tasks: None,
                member: MemberOptions {
                    candidate: Candidate { key: lease_of(&log), owner, ttl: TTL, facts: OwnerFacts::default() },
                    upkeep: Upkeep {
                        ttl: TTL,
                        renew_interval: TTL / 8,
                        jitter: Duration::ZERO,
                        max_fails: 3,
                        guard: Duration::from_millis(100),
                    },
                    poll_interval: TTL / 4,
                    questions: None,
                    looks_late: false,
                    step_down_grace: Duration::from_secs(1),
                    hold_off: TTL / 4,
                    broker_hold_off: TTL,
                    broker_health_step_down: None,
                    opening_timeout: Duration::from_secs(30),
                },
            }),
            subscriptions: None,
            share: None,
            returning: None,
            random: Arc::new(RandomBits::of_the_system),
            clock,
            metrics: Metrics::default(),
            status: status.clone(),
            stop: stop.clone(),
            pause_source: false,
            drain_ceiling: Bridge::default().drain_ceiling(),
        };
        let adoption = Adoption {
            sessions: vec![Adoptable { parts: parts.clone(), report }],
            adopter: Adopter { bridge: "b".to_owned(), sessions: ["s".to_owned()].into(), own: [partition].into(), turn: nonce },
            jitter_seed: nonce,
            stop: stop.clone(),
        };
        Self { log, broker, status, stop, session: tokio::spawn(run_and_retire(parts)), adopter: tokio::spawn(adoption.run()) }
    }

    fn told(&self) -> SessionStatus {
        self.status.snapshot().sessions.first().cloned().unwrap_or_default()
    }

    fn route(&self) -> RouteStatus {
        self.status.snapshot().routes.first().cloned().unwrap_or_default()
    }

    async fn is_full(&self) {
        until("full service", async || self.status.snapshot().service_level == ServiceLevel::Full).await;
    }

    /// Nothing of it goes on: as kill -9 would.
    async fn crash(self) -> LogName {
        self.session.abort();
        self.adopter.abort();
        assert!(self.session.await.unwrap_err().is_cancelled());
        self.log
    }

    async fn end(self) -> Result<SessionEnd, RunError> {
        self.stop.cancel();
        self.adopter.await.unwrap();
        self.session.await.unwrap()
    }
}

#[tokio::test]
async fn what_a_crash_leaves_is_delivered_once_by_one_of_several_adopters() {
    let world = World::new();
    world.sink_away();
    let processes = [Process::start(&world, 1), Process::start(&world, 2), Process::start(&world, 3)];
    let [dead, one, other] = processes;
    for process in [&dead, &one, &other] {
        process.is_full().await;
    }
    for nth in 0..50 {
        dead.broker.publish_text("in", &format!("t/{nth}"), &nth.to_string());
    }
    dead.broker.all_acknowledged().await;
    let log = dead.crash().await;
    assert_eq!(world.state_of(&log).await, Some(LogState::Open));
    until("somebody adopts it", async || one.told().adopting.is_some() || other.told().adopting.is_some()).await;
    world.sink_back();
    until("it is retired", async || world.state_of(&log).await == Some(LogState::Retired)).await;
    until("it is told", async || one.told().adopted_logs + other.told().adopted_logs == 1).await;
    let payloads: Vec<_> = world.sink.accepted().iter().map(|entry| entry.message.payload.clone()).collect();
    assert_eq!(payloads.len(), 50, "none twice: nothing of it was under way");
    assert_eq!(payloads.iter().collect::<BTreeSet<_>>().len(), 50);

    let adopter = if one.told().adopted_logs == 1 { &one } else { &other };
    assert!(adopter.told().adopting.is_none());
    let route = adopter.route();
    assert_eq!((route.received, route.recovered, route.delivered, route.imbalance()), (0, 50, 50, 0), "{route:?}");
    until("the lease is given back", async || world.lease_of(&log).await.tuple.is_released()).await;
    assert_eq!(world.lease_of(&log).await.tuple.version, 2);
    for process in [one, other] {
        assert_eq!(process.end().await.unwrap(), SessionEnd::Clean);
    }
}

#[tokio::test]
async fn nobody_competes_for_the_log_of_a_process_that_lives_and_a_clean_stop_closes_it() {
    let world = World::new();
    let (one, other) = (Process::start(&world, 1), Process::start(&world, 2));
    for process in [&one, &other] {
        process.is_full().await;
    }
    // The adopters look several times.
    tokio::time::sleep(TTL * 3).await;
    for process in [&one, &other] {
        let lease = world.lease_of(&process.log).await;
        assert_eq!((lease.tuple.version, lease.evidence), (1, None), "nobody else wrote it");
    }
    one.broker.publish_text("in", "t", "x");
    one.broker.all_acknowledged().await;
    let log = one.log.clone();
    assert_eq!(one.end().await.unwrap(), SessionEnd::Clean);
    assert_eq!(world.sink.accepted().len(), 1);
    assert_eq!(world.state_of(&log).await, Some(LogState::Retired));
    assert!(world.lease_of(&log).await.tuple.is_released());
    other.end().await.unwrap();
}

#[tokio::test]
async fn what_a_stop_cannot_deliver_stays_for_the_others() {
    let world = World::new();
    world.sink_away();
    let one = Process::start(&world, 1);
    one.is_full().await;
    one.broker.publish_text("in", "t", "x");
    one.broker.all_acknowledged().await;
    let log = one.log.clone();
    assert_eq!(one.end().await.unwrap(), SessionEnd::DeadlinePassed);
    assert_eq!(world.state_of(&log).await, Some(LogState::Open));
    assert!(world.lease_of(&log).await.tuple.is_released());
    world.sink_back();
    let other = Process::start(&world, 2);
    until("it is retired", async || world.state_of(&log).await == Some(LogState::Retired)).await;
    assert_eq!(world.sink.accepted().len(), 1);
    other.end().await.unwrap();
}

#[tokio::test]
async fn a_process_whose_log_was_adopted_ends() {
    let world = World::new();
    let one = Process::start(&world, 1);
    one.is_full().await;
    // As if it had been paused for longer than its lease holds.
    let mut row = world.lease_of(&one.log).await;
    let condition = Condition::Held { owner: row.tuple.owner.clone(), version: row.tuple.version };
    row.tuple = Tuple { owner: "w9#9".to_owned(), version: 2, renewed_at: UnixMillis(row.tuple.renewed_at.0 + 1), ..row.tuple };
    let taken = world.leases.write(&lease_of(&one.log), &LeaseWrite { condition, row }).await;
    assert!(matches!(taken, Outcome::Done(LeaseAnswer::Written)), "{taken:?}");
    let ended = tokio::time::timeout(Duration::from_secs(60), one.session).await.unwrap().unwrap();
    assert!(matches!(&ended, Err(RunError::Adopted { by, .. }) if by == "w9#9"), "{ended:?}");
    assert_eq!(world.lease_of(&one.log).await.tuple.owner, "w9#9", "it fights nobody");
}
