//! The task's protection: an agent that answers by script, and a process that asks it for what its sessions need.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use async_trait::async_trait;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::put;
use causeway_core::lease::row::OwnerFacts;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_local::memory::MemoryLeases;
use causeway_ports::{Clock, Described, Leases, MemberRecord, SystemClock, TaskRecord, Tasks};
use causeway_worker::protection::{Agent, AgentError, Protector};
use causeway_worker::status::{LeaseStatus, SessionRole, SessionStatus, StatusBoard};
use core::time::Duration;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const ARN: &str = "arn:aws:ecs:eu-west-1:111122223333:task/plant/own";

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within a minute");
}

/// What it was asked for, and what it answers; `None`: as asked for.
#[derive(Clone, Default)]
struct Script {
    asked: Arc<Mutex<Vec<Value>>>,
    answer: Arc<Mutex<Option<(u16, String)>>>,
}

async fn state(State(script): State<Script>, body: String) -> (StatusCode, String) {
    let asked: Value = serde_json::from_str(&body).unwrap();
    script.asked.lock().unwrap().push(asked.clone());
    let as_asked = || (200, json!({ "protection": { "ProtectionEnabled": asked["ProtectionEnabled"], "TaskArn": ARN } }).to_string());
    let (status, text) = script.answer.lock().unwrap().clone().unwrap_or_else(as_asked);
    (StatusCode::from_u16(status).unwrap(), text)
}

impl Script {
    async fn start() -> (Self, Agent) {
        let script = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/api/1", listener.local_addr().unwrap());
        let router = Router::new().route("/api/1/task-protection/v1/state", put(state)).with_state(script.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (script, Agent::new(&base).unwrap())
    }

    fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }
}

/// Requests and answers as the documentation of the endpoint has them.
#[tokio::test]
async fn the_agent_is_asked_as_it_wants_to_be_and_its_refusals_are_understood() {
    let (script, agent) = Script::start().await;
    agent.protect(true).await.unwrap();
    agent.protect(false).await.unwrap();
    assert_eq!(script.asked(), [json!({ "ProtectionEnabled": true, "ExpiresInMinutes": 5 }), json!({ "ProtectionEnabled": false })]);
    let answers = [
        (400, json!({ "error": { "Arn": ARN, "Code": "AccessDeniedException", "Message": "no" } }).to_string(), "AccessDeniedException"),
        (200, json!({ "failure": { "Arn": ARN, "Reason": "TASK_NOT_VALID", "Detail": null } }).to_string(), "TASK_NOT_VALID"),
        (200, json!({ "protection": { "ProtectionEnabled": false, "TaskArn": ARN } }).to_string(), ""),
        (200, "{}".to_owned(), ""),
        (502, "<html>".to_owned(), ""),
        (200, " ".repeat(100_000), ""),
    ];
    for (status, text, code) in answers {
        *script.answer.lock().unwrap() = Some((status, text.clone()));
        match (agent.protect(true).await, code) {
            (Err(AgentError::Malformed { .. } | AgentError::TooLong), "") => {}
            (Err(AgentError::Refused { code: found, .. }), code) if !code.is_empty() => assert_eq!(found, code),
            (result, _) => panic!("{text}: {result:?}"),
        }
    }
    let nobody = Agent::new("http://127.0.0.1:1").unwrap();
    assert!(matches!(nobody.protect(true).await, Err(AgentError::NoAnswer(_))));
}

/// The deployments of tasks, by ARN, in their order; the one that the service says it goes on with, if it tells; and whether tasks are not described now. All
/// tasks run.
#[derive(Default)]
struct Revisions(Mutex<BTreeMap<String, u32>>, Mutex<Option<u32>>, Mutex<Away>);

/// Looks that were in vain.
#[derive(Default)]
struct Away {
    describes_nothing: bool,
    looks: usize,
}

#[async_trait]
impl Tasks for Revisions {
    async fn describe(&self, tasks: &[String]) -> Result<Described, Fault> {
        let mut away = self.2.lock().unwrap();
        away.looks += 1;
        if away.describes_nothing {
            return Err(Fault::new(FaultCode::Throttled, "not now"));
        }
        let revisions = self.0.lock().unwrap();
        let record = |arn: &String| {
            Some(TaskRecord {
                arn: arn.clone(),
                last_status: "RUNNING".to_owned(),
                desired_status: "RUNNING".to_owned(),
                group: Some("service:workers".to_owned()),
                started_by: Some(format!("ecs-svc/{}", revisions.get(arn)?)),
                started_at: Some(UnixMillis(u64::from(*revisions.get(arn)?))),
                ..TaskRecord::default()
            })
        };
        Ok(Described { tasks: tasks.iter().filter_map(record).collect(), missing: Vec::new() })
    }

    async fn list(&self, _: Option<&str>) -> Result<Vec<String>, Fault> {
        panic!("nobody lists tasks")
    }

    async fn primary_deployment(&self, service: &str) -> Result<Option<String>, Fault> {
        assert_eq!(service, "workers");
        let told = self.1.lock().unwrap().ok_or_else(|| Fault::new(FaultCode::NotAuthorized, "may not"));
        told.map(|revision| Some(format!("ecs-svc/{revision}")))
    }

    async fn stop(&self, _: &str, _: &str) -> Outcome<TaskRecord> {
        panic!("nobody stops tasks")
    }
}

struct World {
    script: Script,
    status: StatusBoard,
    leases: Arc<MemoryLeases>,
    revisions: Arc<Revisions>,
    asked: Arc<Notify>,
    quit: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl World {
    async fn start() -> Self {
        let (script, agent) = Script::start().await;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let status = StatusBoard::new("bridge", "own", Arc::clone(&clock));
        let (leases, revisions, asked) = (Arc::new(MemoryLeases::new()), Arc::new(Revisions::default()), Arc::new(Notify::new()));
        revisions.0.lock().unwrap().insert(ARN.to_owned(), 3);
        let protector = Protector {
            agent,
            status: status.clone(),
            leases: Arc::clone(&leases) as Arc<dyn Leases>,
            tasks: Some(Arc::clone(&revisions) as Arc<dyn Tasks>),
            bridge: "bridge".to_owned(),
            task: ARN.to_owned(),
            stale_after: Duration::from_secs(90),
            asked: vec![Arc::clone(&asked)],
            clock,
        };
        let quit = CancellationToken::new();
        let running = tokio::spawn(protector.run(quit.clone()));
        Self { script, status, leases, revisions, asked, quit, running }
    }

    fn is_owner(&self, owns: bool) {
        let role = if owns { SessionRole::Owner } else { SessionRole::Standby };
        self.has(role, true);
    }

    fn has(&self, role: SessionRole, connected: bool) {
        let session = SessionStatus { role, connected, lease: Some(LeaseStatus::default()), ..common::session() };
        self.status.publish(session, Vec::new());
    }

    /// Another process of the bridge, whose task is of this revision.
    async fn joins(&self, name: &str, revision: u32) {
        let arn = format!("arn:aws:ecs:eu-west-1:111122223333:task/plant/{name}");
        self.revisions.0.lock().unwrap().insert(arn.clone(), revision);
        let record = MemberRecord {
            bridge: "bridge".to_owned(),
            owner: format!("{name}#1"),
            facts: OwnerFacts { task_arn: Some(arn), ..OwnerFacts::default() },
            written_at: SystemClock.wall(),
            ..MemberRecord::default()
        };
        assert_eq!(self.leases.put_member(&record).await, Outcome::Done(()));
    }

    /// Waits until the owner loops are asked to hand over; meanwhile they publish.
    async fn hands_over(&self) {
        let publishing = async {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                self.is_owner(true);
            }
        };
        tokio::select! {
            () = publishing => {}
            asked = tokio::time::timeout(Duration::from_secs(60), self.asked.notified()) => asked.unwrap(),
        }
    }

    async fn asked_for(&self, enabled: &[bool]) {
        let asked = || self.script.asked().iter().filter_map(|asked| asked["ProtectionEnabled"].as_bool()).collect::<Vec<_>>();
        until(&format!("{enabled:?}"), || asked() == enabled).await;
    }
}

#[tokio::test]
async fn an_owner_is_protected_until_it_owns_nothing_and_a_standby_is_not() {
    let world = World::start().await;
    world.is_owner(false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.script.asked(), Vec::<Value>::new());
    world.has(SessionRole::Owner, false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.script.asked(), Vec::<Value>::new(), "who cannot serve is in nobody's way");
    world.is_owner(true);
    world.asked_for(&[true]).await;
    world.is_owner(false);
    world.asked_for(&[true, false]).await;
    world.is_owner(true);
    world.asked_for(&[true, false, true]).await;
    world.status.begin_shutdown();
    world.asked_for(&[true, false, true, false]).await;
    world.quit.cancel();
    world.running.await.unwrap();
    assert_eq!(world.script.asked().len(), 4);
}

#[tokio::test]
async fn an_owner_hands_over_to_a_newer_revision_and_to_no_other() {
    let world = World::start().await;
    world.joins("equal", 3).await;
    world.is_owner(true);
    world.asked_for(&[true]).await;
    assert!(
        tokio::time::timeout(Duration::from_millis(200), world.asked.notified()).await.is_err(),
        "nobody of a later deployment is there"
    );
    world.joins("newer", 4).await;
    world.hands_over().await;
    world.asked_for(&[true]).await;
    world.is_owner(false);
    world.asked_for(&[true, false]).await;
}

#[tokio::test]
async fn in_a_rollback_the_earlier_deployment_gets_the_sessions_and_the_later_one_does_not() {
    let world = World::start().await;
    *world.revisions.1.lock().unwrap() = Some(3);
    world.joins("failed", 4).await;
    world.is_owner(true);
    world.asked_for(&[true]).await;
    assert!(
        tokio::time::timeout(Duration::from_millis(200), world.asked.notified()).await.is_err(),
        "the service goes on with this task's deployment, whatever started later"
    );
    *world.revisions.1.lock().unwrap() = Some(2);
    world.joins("former", 2).await;
    world.hands_over().await;
    world.is_owner(false);
    world.asked_for(&[true, false]).await;
}

/// One that no look found superseded, so that nothing but its deployment keeps it from being protected.
async fn of_a_former_deployment_in_spite_of(fault: impl FnOnce(&Revisions)) {
    let world = World::start().await;
    *world.revisions.1.lock().unwrap() = Some(2);
    let looked = async |times: usize| {
        while world.revisions.2.lock().unwrap().looks < times {
            world.is_owner(true);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // What a look leads to is done before the next one.
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    tokio::time::timeout(Duration::from_secs(60), looked(1)).await.unwrap();
    fault(&world.revisions);
    tokio::time::timeout(Duration::from_secs(60), looked(2)).await.unwrap();
    assert_eq!(world.script.asked(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_former_task_is_not_protected_while_tasks_are_not_described() {
    of_a_former_deployment_in_spite_of(|revisions| revisions.2.lock().unwrap().describes_nothing = true).await;
}

#[tokio::test]
async fn a_former_task_is_not_protected_while_the_service_does_not_tell_its_deployments() {
    of_a_former_deployment_in_spite_of(|revisions| *revisions.1.lock().unwrap() = None).await;
}

#[tokio::test]
async fn what_still_stands_at_the_end_is_dropped() {
    let world = World::start().await;
    world.is_owner(true);
    world.asked_for(&[true]).await;
    world.quit.cancel();
    world.running.await.unwrap();
    assert_eq!(world.script.asked().last().unwrap(), &json!({ "ProtectionEnabled": false }));
}
