//! The control role: one process watches, and tells how the whole bridge stands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use async_trait::async_trait;
use causeway_core::lease::row::{LeaseRow, OwnerFacts, RawLease, Tuple};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_local::memory::MemoryLeases;
use causeway_ports::{Clock, Described, Leases, MemberRecord, SystemClock, TaskRecord, Tasks};
use causeway_worker::control::{Control, Singleton, WatchedSession};
use causeway_worker::status::StatusBoard;
use causeway_worker::telemetry::Metrics;
use causeway_worker::telemetry::collect::Collector;
use causeway_worker::telemetry::prometheus;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const KEY: &str = "LEASE#s";
const EVERY: Duration = Duration::from_millis(20);

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

fn arn(name: &str) -> String {
    format!("arn:aws:ecs:eu-west-1:111122223333:task/plant/{name}")
}

/// Tasks that run, but for those that have stopped; or nobody answers.
#[derive(Default)]
struct Orchestrator {
    stopped: Mutex<BTreeMap<String, UnixMillis>>,
    is_away: Mutex<bool>,
    /// A service that was deleted.
    gone: Mutex<Option<&'static str>>,
}

#[async_trait]
impl Tasks for Orchestrator {
    async fn describe(&self, tasks: &[String]) -> Result<Described, Fault> {
        if *self.is_away.lock().unwrap() {
            return Err(Fault::new(FaultCode::Throttled, "not now"));
        }
        let stopped = self.stopped.lock().unwrap();
        let record = |arn: &String| {
            let stopped_at = stopped.get(arn).copied();
            let status = if stopped_at.is_some() { "STOPPED" } else { "RUNNING" }.to_owned();
            let service = if arn.ends_with("/c") { "service:control" } else { "service:workers" };
            let group = Some(service.to_owned());
            TaskRecord { arn: arn.clone(), last_status: status.clone(), desired_status: status, stopped_at, group, ..TaskRecord::default() }
        };
        Ok(Described { tasks: tasks.iter().map(record).collect(), missing: Vec::new() })
    }

    async fn list(&self, service: Option<&str>) -> Result<Vec<String>, Fault> {
        let service = service.unwrap();
        if *self.gone.lock().unwrap() == Some(service) {
            return Err(Fault::new(FaultCode::NotFound, "no such service"));
        }
        let tasks: &[&str] = match service {
            "workers" => &["a", "b", "mute"],
            "control" => &["c"],
            other => panic!("{other}"),
        };
        Ok(tasks.iter().map(|name| arn(name)).collect())
    }

    async fn primary_deployment(&self, _: &str) -> Result<Option<String>, Fault> {
        panic!("nobody asks for it")
    }

    async fn stop(&self, _: &str, _: &str) -> Outcome<TaskRecord> {
        panic!("nobody stops tasks")
    }
}

struct World {
    leases: Arc<MemoryLeases>,
    tasks: Arc<Orchestrator>,
}

/// A control process that runs.
struct Running {
    collector: Collector,
    quit: CancellationToken,
    task: JoinHandle<()>,
}

impl World {
    async fn new() -> Self {
        let world = Self { leases: Arc::new(MemoryLeases::new()), tasks: Arc::default() };
        world.own(None, &row("a", 1, "full")).await;
        for (name, az, level) in [("a", "z1", "full"), ("b", "z2", "none")] {
            world.member(name, "worker", az, level).await;
        }
        world.member("c", "control", "z3", "none").await;
        world
    }

    async fn member(&self, name: &str, role: &str, az: &str, level: &str) {
        let record = MemberRecord {
            bridge: "bridge".to_owned(),
            owner: format!("{name}#1"),
            role: role.to_owned(),
            facts: OwnerFacts { az: Some(az.to_owned()), task_arn: Some(arn(name)), ..OwnerFacts::default() },
            sessions: BTreeMap::from([("s".to_owned(), level.to_owned())]),
            started_at: SystemClock.wall(),
            written_at: SystemClock.wall(),
        };
        assert_eq!(self.leases.put_member(&record).await, Outcome::Done(()));
    }

    /// Puts this row in the place of another.
    async fn own(&self, before: Option<&LeaseRow>, row: &LeaseRow) {
        let condition =
            before.map_or(Condition::Absent, |row| Condition::Exactly { tuple: row.tuple.clone(), evidence: row.evidence.clone() });
        let written = self.leases.write(KEY, &LeaseWrite { condition, row: row.clone() }).await;
        assert!(matches!(written, Outcome::Done(LeaseAnswer::Written)), "{written:?}");
    }

    fn control(&self, name: &str) -> Running {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let status = StatusBoard::new("bridge", name, Arc::clone(&clock));
        let metrics = Metrics::default();
        let leases: Arc<dyn Leases> = Arc::clone(&self.leases) as Arc<dyn Leases>;
        let owner = format!("{name}#1");
        let control = Control {
            singleton: Singleton::new(Arc::clone(&leases), "bridge", &owner, OwnerFacts::default(), Arc::clone(&clock), 7),
            leases,
            tasks: Some(Arc::clone(&self.tasks) as Arc<dyn Tasks>),
            bridge: "bridge".to_owned(),
            sessions: vec![WatchedSession { id: "s".to_owned(), key: KEY.to_owned(), hinter: None, subscriptions: None }],
            every: EVERY,
            stale_after: Duration::from_secs(90),
            status: status.clone(),
            metrics: metrics.clone(),
            clock,
        };
        let quit = CancellationToken::new();
        let task = tokio::spawn(control.run(quit.clone()));
        Running {
            collector: Collector { metrics, status, outbox: None, queues: Vec::new(), topics: Vec::new(), commands: None },
            quit,
            task,
        }
    }
}

impl Running {
    /// The lines of its metrics that tell of the whole bridge.
    fn told(&self) -> BTreeSet<String> {
        self.collector.collect();
        let text = prometheus::render(&self.collector.metrics.gather());
        let of_the_bridge = [
            "causeway_fleet_workers",
            "causeway_az_spread",
            "causeway_fleet_unseen_tasks",
            "causeway_warm_standby_available",
            "causeway_lease_holders",
        ];
        text.lines().filter(|line| of_the_bridge.iter().any(|name| line.starts_with(name))).map(str::to_owned).collect()
    }

    async fn tells(&self, lines: &[&str]) {
        let wanted: BTreeSet<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        until(&format!("{wanted:?}"), async || self.told() == wanted).await;
    }

    async fn stop(self) {
        self.quit.cancel();
        self.task.await.unwrap();
    }
}

fn row(name: &str, version: u64, level: &str) -> LeaseRow {
    let now = SystemClock.wall();
    let tuple = Tuple { owner: format!("{name}#1"), version, renewed_at: now, expires_at: now.plus(Duration::from_secs(45)) };
    let facts = OwnerFacts {
        task_arn: Some(arn(name)),
        service_level: Some(level.to_owned()),
        service_level_since: Some(now),
        ..OwnerFacts::default()
    };
    LeaseRow { tuple, acquired_at: now, evidence: None, facts }
}

const ALL_IS_WELL: &[&str] = &[
    "causeway_fleet_workers 2",
    "causeway_az_spread 2",
    "causeway_fleet_unseen_tasks 1",
    "causeway_warm_standby_available{session=\"s\"} 1",
    "causeway_lease_holders{session=\"s\"} 1",
];

#[tokio::test]
async fn one_process_watches_and_the_next_one_goes_on_where_it_stops() {
    let world = World::new().await;
    let first = world.control("c");
    first.tells(ALL_IS_WELL).await;
    let second = world.control("d");
    tokio::time::sleep(EVERY * 20).await;
    assert_eq!(second.told(), BTreeSet::new(), "who does not watch tells nothing");
    assert!(second.collector.status.snapshot().fleet.is_none());
    let fleet = first.collector.status.snapshot().fleet.unwrap();
    assert_eq!((fleet.members.len(), fleet.sessions[0].holders.len(), fleet.sessions[0].version), (3, 1, 1));
    assert_eq!(fleet.unseen_tasks, Some(BTreeSet::from([arn("mute")])), "of the services' tasks one never told of itself");
    let collector = first.collector.clone();
    first.stop().await;
    assert!(collector.status.snapshot().fleet.is_none(), "who has stopped tells nothing any more");
    second.tells(ALL_IS_WELL).await;
    let raw = world.leases.read("LEASE#control:bridge").await.unwrap().unwrap();
    assert_eq!(LeaseRow::try_from(raw).unwrap().tuple.owner, "d#1");
    second.stop().await;
    let raw: RawLease = world.leases.read("LEASE#control:bridge").await.unwrap().unwrap();
    assert!(LeaseRow::try_from(raw).unwrap().tuple.is_released(), "given back");
}

#[tokio::test]
async fn the_end_of_the_owners_task_and_its_replacement_are_seen() {
    let world = World::new().await;
    let control = world.control("c");
    control.tells(ALL_IS_WELL).await;
    let stopped_at = SystemClock.wall();
    world.tasks.stopped.lock().unwrap().insert(arn("a"), stopped_at);
    control
        .tells(&[
            "causeway_fleet_workers 1",
            "causeway_az_spread 1",
            "causeway_fleet_unseen_tasks 1",
            "causeway_warm_standby_available{session=\"s\"} 1",
            "causeway_lease_holders{session=\"s\"} 0",
        ])
        .await;
    let raw = world.leases.read(KEY).await.unwrap().unwrap();
    let before = LeaseRow::try_from(raw).unwrap();
    world.own(Some(&before), &row("b", 2, "full")).await;
    world.member("b", "worker", "z2", "full").await;
    control
        .tells(&[
            "causeway_fleet_workers 1",
            "causeway_az_spread 1",
            "causeway_fleet_unseen_tasks 1",
            "causeway_warm_standby_available{session=\"s\"} 0",
            "causeway_lease_holders{session=\"s\"} 1",
        ])
        .await;
    let failover = control.collector.status.snapshot().fleet.unwrap().sessions[0].last_failover.clone().unwrap();
    assert_eq!((failover.from.as_str(), failover.to.as_str(), failover.version), ("a#1", "b#1", 2));
    assert!((0.0..60.0).contains(&failover.seconds), "{failover:?}");
    let text = prometheus::render(&control.collector.metrics.gather());
    assert!(text.contains("causeway_fleet_failure_to_full_seconds_count{session=\"s\",cause=\"crash\"} 1"), "{text}");
    control.stop().await;
}

#[tokio::test]
async fn while_the_orchestrator_is_away_rows_alone_are_counted() {
    let world = World::new().await;
    world.tasks.stopped.lock().unwrap().insert(arn("b"), SystemClock.wall());
    *world.tasks.is_away.lock().unwrap() = true;
    let control = world.control("c");
    let by_rows: Vec<&str> = ALL_IS_WELL.iter().copied().filter(|line| !line.contains("unseen")).collect();
    control.tells(&by_rows).await;
    *world.tasks.is_away.lock().unwrap() = false;
    control
        .tells(&[
            "causeway_fleet_workers 1",
            "causeway_az_spread 1",
            "causeway_fleet_unseen_tasks 1",
            "causeway_warm_standby_available{session=\"s\"} 0",
            "causeway_lease_holders{session=\"s\"} 1",
        ])
        .await;
    control.stop().await;
}

/// The service `control` is listed first.
#[tokio::test]
async fn a_service_that_was_deleted_does_not_hide_the_tasks_of_the_others() {
    let world = World::new().await;
    *world.tasks.gone.lock().unwrap() = Some("control");
    let control = world.control("c");
    control.tells(ALL_IS_WELL).await;
    control.stop().await;
}
