//! Two members of one bridge in one process: their rows, and a planned hand-over by a hint.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use causeway_core::config::Secret;
use causeway_core::config::model::Bridge;
use causeway_core::hold::Order;
use causeway_core::identity::LogName;
use causeway_core::lease::holder::Upkeep;
use causeway_core::lease::row::{LeaseRow, OwnerFacts};
use causeway_core::lease::standby::Candidate;
use causeway_core::member::MemberOptions;
use causeway_local::memory::{MemoryLeases, MemoryOutbox};
use causeway_ports::fake::{FakeBroker, FaultyLeases, LeaseCall};
use causeway_ports::{Leases, MemberRecord, Outbox, SystemClock};
use causeway_worker::hints::{HintBoard, Hinter, PATH};
use causeway_worker::http::serve::Bounds;
use causeway_worker::http::transport::Transport;
use causeway_worker::members::{Membership, is_fresh};
use causeway_worker::parts::{LeaseParts, LogKind, LogLimits, RandomBits, SessionParts};
use causeway_worker::run::{RunError, SessionEnd, run_session};
use causeway_worker::status::{ServiceLevel, StatusBoard};
use causeway_worker::telemetry::{Metrics, prometheus};
use common::{collector_with_clock, session};
use core::time::Duration;
use reqwest::StatusCode;
use serde_json::json;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const TOKEN: &str = "a token of some length";
/// Nobody waits that long here: a standby that finds the lease before has been told.
const POLL: Duration = Duration::from_secs(3_600);

fn token() -> Secret {
    serde_json::from_value(json!(TOKEN)).unwrap()
}

fn crypto() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

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

/// Both members' store; it counts the calls of both.
type Store = FaultyLeases<MemoryLeases>;

struct Member {
    status: StatusBoard,
    metrics: Metrics,
    stop: CancellationToken,
    quit: CancellationToken,
    url: String,
    task: JoinHandle<Result<SessionEnd, RunError>>,
}

impl Member {
    async fn start(name: &str, leases: &Arc<Store>, outbox: &Arc<dyn Outbox>, broker: &FakeBroker) -> Self {
        let owner = format!("{name}#1");
        let (clock, hints, quit, stop) = (Arc::new(SystemClock), HintBoard::default(), CancellationToken::new(), CancellationToken::new());
        let status = StatusBoard::new("b", name, clock.clone());
        let metrics = Metrics::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let hinted = hints.listen("s");
        tokio::spawn(Transport::new(hints, token().into()).serve(listener, Bounds::default(), quit.clone()));
        let facts = OwnerFacts { endpoints: [("http".to_owned(), url.clone())].into(), ..OwnerFacts::default() };
        let record = MemberRecord {
            bridge: "b".to_owned(),
            owner: owner.clone(),
            role: "worker".to_owned(),
            facts: facts.clone(),
            ..MemberRecord::default()
        };
        leases.put_member(&record).await;
        let shared: Arc<dyn Leases> = Arc::clone(leases) as Arc<dyn Leases>;
        let hinter = Hinter::new(Arc::clone(&shared), "b", &owner, token().into()).unwrap();
        let ttl = Duration::from_secs(600);
        let upkeep = Upkeep { ttl, renew_interval: ttl / 2, jitter: Duration::ZERO, max_fails: 3, guard: Duration::from_secs(1) };
        let source = broker.clone();
        let parts = SessionParts {
            session: "s".to_owned(),
            owner: owner.clone(),
            broker: "fake".to_owned(),
            subscriptions_wanted: 1,
            log: LogName::new("b", "s", 0).unwrap(),
            kind: LogKind::OfSession,
            legs: Vec::new(),
            dispatch: Arc::default(),
            outbox: Some(Arc::clone(outbox)),
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
                leases: shared,
                hinted,
                asked: Arc::default(),
                hinter: Some(hinter),
                call_timeout: Duration::from_secs(30),
                tasks: None,
                member: MemberOptions {
                    candidate: Candidate { key: "LEASE#s".to_owned(), owner, ttl, facts },
                    upkeep,
                    poll_interval: POLL,
                    questions: None,
                    looks_late: false,
                    step_down_grace: Duration::from_secs(5),
                    hold_off: POLL,
                    broker_hold_off: POLL,
                    broker_health_step_down: None,
                    opening_timeout: Duration::from_secs(30),
                },
            }),
            subscriptions: None,
            share: None,
            returning: None,
            random: Arc::new(RandomBits::of_the_system),
            clock,
            metrics: metrics.clone(),
            status: status.clone(),
            stop: stop.clone(),
            pause_source: false,
            drain_ceiling: Bridge::default().drain_ceiling(),
        };
        Self { status, metrics, stop, quit, url, task: tokio::spawn(run_session(parts)) }
    }

    fn level(&self) -> ServiceLevel {
        self.status.snapshot().service_level
    }

    async fn end(self) -> SessionEnd {
        self.stop.cancel();
        let end = self.task.await.unwrap().unwrap();
        self.quit.cancel();
        end
    }
}

async fn post(url: &str, token: Option<&str>, body: &str) -> StatusCode {
    let request = reqwest::Client::new().post(format!("{url}{PATH}")).header("content-type", "application/json").body(body.to_owned());
    let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn a_planned_hand_over_waits_for_no_poll() {
    crypto();
    let (leases, broker) = (Arc::new(Store::new(MemoryLeases::new())), FakeBroker::new());
    broker.answer_subscriptions(1, vec![]);
    let outbox: Arc<dyn Outbox> = Arc::new(MemoryOutbox::new());
    let first = Member::start("first", &leases, &outbox, &broker).await;
    until("the first owns it", async || first.level() == ServiceLevel::Full).await;
    let second = Member::start("second", &leases, &outbox, &broker).await;
    until("the second watches", async || leases.calls(LeaseCall::Read) == 2).await;
    assert_eq!(second.level(), ServiceLevel::None);

    assert_eq!(first.end().await, SessionEnd::Clean);
    until("the second owns it", async || second.level() == ServiceLevel::Full).await;
    assert_eq!(leases.calls(LeaseCall::Read), 3, "one look made by the hint, an hour before the next poll");

    let status = second.status.snapshot();
    let lease = status.sessions[0].lease.clone().unwrap();
    assert!(lease.held);
    assert_eq!((lease.counters.transfers, lease.counters.expiries), (1, 0));
    let failover = lease.last_failover.unwrap();
    assert_eq!((failover.cause.as_str(), failover.start.as_str(), failover.version), ("release", "warm", 2));
    let text = prometheus::render(&second.metrics.gather());
    let series = r#"causeway_failure_to_full_seconds_count{session="s",cause="release",start="warm"} 1"#;
    assert!(text.contains(series), "{text}");
    assert_eq!(second.end().await, SessionEnd::Clean);
    let released = LeaseRow::try_from(leases.read("LEASE#s").await.unwrap().unwrap()).unwrap();
    assert!(released.tuple.is_released());
    assert_eq!(released.facts.left_because.as_deref(), Some("release"));
}

#[tokio::test]
async fn a_hint_needs_the_token_and_can_do_nothing_but_cause_one_look() {
    crypto();
    let (leases, broker) = (Arc::new(Store::new(MemoryLeases::new())), FakeBroker::new());
    broker.answer_subscriptions(1, vec![]);
    let outbox: Arc<dyn Outbox> = Arc::new(MemoryOutbox::new());
    let owner = Member::start("owner", &leases, &outbox, &broker).await;
    until("the owner owns it", async || owner.level() == ServiceLevel::Full).await;
    let waiting = Member::start("waiting", &leases, &outbox, &broker).await;
    until("the other watches", async || leases.calls(LeaseCall::Read) == 2).await;
    let writes = leases.calls(LeaseCall::Write);
    let hint = json!({ "session": "s" }).to_string();
    let longer = format!("{TOKEN}x");
    for (token, body, expected) in [
        (None, hint.as_str(), StatusCode::UNAUTHORIZED),
        (Some("a token of some lengtH"), &hint, StatusCode::UNAUTHORIZED),
        (Some(longer.as_str()), &hint, StatusCode::UNAUTHORIZED),
        (Some(TOKEN), r#"{"session":"elsewhere"}"#, StatusCode::NOT_FOUND),
        (Some(TOKEN), r#"{"session":"s","owner":"me"}"#, StatusCode::UNPROCESSABLE_ENTITY),
        (Some(TOKEN), "{", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(post(&waiting.url, token, body).await, expected, "{token:?} {body}");
    }
    assert_eq!(leases.calls(LeaseCall::Read), 2);
    assert_eq!(post(&waiting.url, Some(TOKEN), &hint).await, StatusCode::ACCEPTED);
    until("it looks", async || leases.calls(LeaseCall::Read) == 3).await;
    assert_eq!(leases.calls(LeaseCall::Write), writes, "the owner is well");
    assert_eq!(post(&owner.url, Some(TOKEN), &hint).await, StatusCode::ACCEPTED);
    assert_eq!((owner.level(), waiting.level()), (ServiceLevel::Full, ServiceLevel::None));
    waiting.end().await;
    owner.end().await;
}

#[tokio::test]
async fn a_members_row_is_written_at_start_and_on_change_and_removed_at_the_end() {
    let leases = Arc::new(MemoryLeases::new());
    let (collector, _) = collector_with_clock();
    let record = MemberRecord { bridge: "b".to_owned(), owner: "a#1".to_owned(), role: "control".to_owned(), ..MemberRecord::default() };
    let quit = CancellationToken::new();
    let membership = Membership {
        leases: leases.clone(),
        record,
        interval: Duration::from_secs(3_600),
        status: collector.status.clone(),
        clock: Arc::new(SystemClock),
    };
    let task = tokio::spawn(membership.run(quit.clone()));
    let row = async || leases.list_members("b").await.unwrap().into_iter().next();
    until("the row", async || row().await.is_some()).await;
    let first = row().await.unwrap();
    assert_eq!((first.role.as_str(), first.sessions.len()), ("control", 0));
    collector.status.publish(session(), vec![]);
    until("the change", async || row().await.unwrap().sessions.get("s").map(String::as_str) == Some("full")).await;
    quit.cancel();
    task.await.unwrap();
    assert_eq!(row().await, None);
    let second = Duration::from_secs(1);
    assert!(is_fresh(first.written_at, first.written_at.plus(second * 80), second * 30));
    assert!(!is_fresh(first.written_at, first.written_at.plus(second * 90), second * 30));
}
