//! The monitor over a real port.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::units::UnixMillis;
use causeway_worker::http::{bind, monitor::Monitor, serve::Bounds};
use causeway_worker::status::{LastFault, LeaseStatus, LogPhase, RouteStatus, STALL_LIMIT, SessionRole, SessionStatus};
use common::{collector_with_clock, fill, route, session};
use core::time::Duration;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct Server {
    base: String,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Server {
    async fn start(monitor: Monitor) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = bind("http.monitor_addr", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        tokio::spawn(monitor.serve(listener, Bounds::default(), stop.clone()));
        Self { base, stop }
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        let answer = reqwest::get(format!("{}{path}", self.base)).await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    async fn monitor(&self, path: &str) -> (StatusCode, Value) {
        self.get(&format!("/api/v1/monitor{path}")).await
    }
}

#[tokio::test]
async fn liveness_follows_progress() {
    let (collector, clock) = collector_with_clock();
    let server = Server::start(Monitor::new(collector.clone(), json!({}), None)).await;
    assert_eq!(server.monitor("/live").await, (StatusCode::OK, json!({ "status": "alive", "stalled": [] })));
    fill(&collector);
    clock.advance(STALL_LIMIT - Duration::from_millis(1));
    assert_eq!(server.monitor("/live").await.0, StatusCode::OK);
    clock.advance(Duration::from_millis(1));
    let (status, body) = server.monitor("/live").await;
    assert_eq!((status, &body["status"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("terminal")));
    assert!(body["stalled"][0].as_str().unwrap().contains("session s: the owner loop has not moved for 15 s"), "{body}");
    assert_eq!(server.monitor("/ready?level=live").await.0, StatusCode::SERVICE_UNAVAILABLE);
    fill(&collector);
    assert_eq!(server.monitor("/live").await.0, StatusCode::OK, "a beat brings it back");
}

#[tokio::test]
async fn a_stalled_source_or_drain_is_not_alive_though_the_loop_beats() {
    type Stall = fn(&mut SessionStatus, causeway_core::units::Instant);
    let stalls: [(&str, Stall); 2] =
        [("source", |s, at| s.source_stalled_since = Some(at)), ("entries are due", |s, at| s.drain_stalled_since = Some(at))];
    for (word, stall) in stalls {
        let (collector, clock) = collector_with_clock();
        let server = Server::start(Monitor::new(collector.clone(), json!({}), None)).await;
        let mut stuck = session();
        stall(&mut stuck, causeway_ports::Clock::now(&*clock));
        collector.status.publish(stuck.clone(), vec![]);
        assert_eq!(server.monitor("/live").await.0, StatusCode::OK);
        clock.advance(STALL_LIMIT);
        collector.status.publish(stuck, vec![]);
        let (status, body) = server.monitor("/live").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body["stalled"][0].as_str().unwrap().contains(word), "{body}");
    }
}

#[tokio::test]
async fn readiness_has_levels() {
    let (collector, _) = collector_with_clock();
    let server = Server::start(Monitor::new(collector.clone(), json!({}), None)).await;
    type Change = fn(&mut SessionStatus);
    let cases: [(&str, Change); 9] = [
        ("full", |_| {}),
        ("subscribed", |s| s.paused = true),
        ("subscribed", |s| s.log = LogPhase::Recovering),
        ("connected", |s| s.subscriptions_active = 1),
        ("running", |s| s.connected = false),
        ("live", |s| s.role = SessionRole::Standby),
        ("subscribed", |s| {
            s.role = SessionRole::Standby;
            s.lease = Some(LeaseStatus { watched: true, ..LeaseStatus::default() });
        }),
        ("subscribed", |s| s.store_failing = true),
        ("live", |s| s.log = LogPhase::Opening),
    ];
    let levels = ["live", "running", "connected", "subscribed", "full"];
    for (level, change) in cases {
        let mut changed = session();
        change(&mut changed);
        collector.status.publish(changed, vec![]);
        let reached = levels.iter().position(|name| *name == level).unwrap();
        for (at, requested) in levels.iter().enumerate() {
            let (status, body) = server.monitor(&format!("/ready?level={requested}")).await;
            assert_eq!(status.is_success(), at <= reached, "{level} reached, {requested} requested");
            assert_eq!((body["level"].as_str(), body["requested"].as_str()), (Some(level), Some(*requested)));
        }
    }
    assert_eq!(server.monitor("/ready").await.1["requested"], "full");
    assert_eq!(server.monitor("/ready?level=up").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(server.monitor("/ready?level=down").await.0, StatusCode::BAD_REQUEST);
    let mut fenced = session();
    fenced.log = LogPhase::Fenced;
    collector.status.publish(fenced, vec![]);
    assert_eq!(server.monitor("/ready?level=live").await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn the_program_is_only_as_ready_as_its_last_session() {
    let (collector, _) = collector_with_clock();
    let server = Server::start(Monitor::new(collector.clone(), json!({}), None)).await;
    fill(&collector);
    collector.status.publish(SessionStatus { id: "second".to_owned(), connected: false, ..session() }, vec![]);
    assert_eq!(server.monitor("/ready").await.1["level"], "running");
}

#[tokio::test]
async fn a_session_that_stands_by_does_not_lower_a_program_that_owns_another() {
    let (collector, _) = collector_with_clock();
    let server = Server::start(Monitor::new(collector.clone(), json!({}), None)).await;
    let lease = |watched| Some(LeaseStatus { watched, ..LeaseStatus::default() });
    let waiting = SessionStatus { id: "second".to_owned(), role: SessionRole::Standby, connected: false, lease: lease(true), ..session() };
    collector.status.publish(waiting.clone(), vec![]);
    let (code, body) = server.monitor("/ready").await;
    assert_eq!((code, &body["role"], &body["level"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("standby"), &json!("subscribed")));
    assert_eq!(server.monitor("/health").await.0, StatusCode::OK, "nothing is wrong with a standby");
    collector.status.publish(SessionStatus { lease: lease(true), ..session() }, vec![]);
    let (code, body) = server.monitor("/ready").await;
    assert_eq!((code, &body["role"], &body["level"]), (StatusCode::OK, &json!("active"), &json!("full")));
    let deep = server.monitor("/deephealth").await.1;
    assert_eq!((&deep["service_level"], &deep["sessions"][0]["service_level"]), (&json!("full"), &json!("none")));
    collector.status.publish(SessionStatus { lease: lease(false), ..waiting }, vec![]);
    assert_eq!(server.monitor("/ready").await.1["level"], "live", "it cannot see its lease");
}

#[tokio::test]
async fn a_refused_filter_or_a_full_disk_degrades_the_service() {
    let (collector, _) = collector_with_clock();
    let server = Server::start(Monitor::new(collector.clone(), json!({}), None)).await;
    type Change = fn(&mut SessionStatus);
    let cases: [(&str, bool, Change); 5] = [
        ("full", true, |_| {}),
        ("degraded", true, |s| s.subscriptions_active = 1),
        ("none", true, |s| s.subscriptions_active = 0),
        ("degraded", false, |s| s.store_failing = true),
        ("none", false, |s| s.connected = false),
    ];
    for (level, healthy, change) in cases {
        let mut changed = session();
        change(&mut changed);
        collector.status.publish(changed, vec![]);
        let deep = server.monitor("/deephealth").await.1;
        assert_eq!((&deep["service_level"], &deep["healthy"]), (&json!(level), &json!(healthy)), "{deep}");
        assert_eq!(deep["sessions"][0]["service_level"], level);
    }
}

#[tokio::test]
async fn a_program_on_its_way_out_is_not_ready_and_still_alive() {
    let (collector, _) = collector_with_clock();
    let server = Server::start(Monitor::new(collector.clone(), json!({}), None)).await;
    fill(&collector);
    assert_eq!(server.monitor("/ready").await.0, StatusCode::OK);
    assert_eq!(server.monitor("/health").await, (StatusCode::OK, json!({ "status": "ok" })));
    collector.status.begin_shutdown();
    assert_eq!(server.monitor("/ready?level=live").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.monitor("/health").await, (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "not_running" })));
    assert_eq!(server.monitor("/live").await.0, StatusCode::OK);
}

#[tokio::test]
async fn deep_health_and_routes_tell_the_whole_account() {
    let (collector, _) = collector_with_clock();
    let server = Server::start(Monitor::new(collector.clone(), json!({ "stores": { "outbox": "sqlite" } }), None)).await;
    let mut unwell = session();
    unwell.last_fault = Some(LastFault::new(UnixMillis(1), "send", &Fault::new(FaultCode::Throttled, "slow down")));
    let uneven = RouteStatus { id: "uneven".to_owned(), received: 5, ..RouteStatus::default() };
    collector.status.publish(unwell, vec![route(), uneven]);
    let (status, body) = server.monitor("/deephealth").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["sessions"][0]["session_id"], "s");
    assert_eq!(body["sessions"][0]["oldest_unsettled_age_ms"], 10_000);
    assert_eq!(body["sessions"][0]["last_fault"]["code"], "THROTTLED");
    let (_, body) = server.monitor("/routes").await;
    assert_eq!(body["routes"][0]["conservation_imbalance"], 0);
    assert_eq!(body["routes"][0]["dead_lettered"]["PAYLOAD_TOO_LARGE"], 2);
    assert_eq!(body["routes"][1]["conservation_imbalance"], 5);
    let (_, body) = server.monitor("/topology").await;
    assert_eq!((&body["bridge_id"], &body["stores"]["outbox"]), (&json!("bridge"), &json!("sqlite")));
    let (_, body) = server.monitor("/status").await;
    assert_eq!(body["bridge"]["sessions"][0]["epoch"], 7);
}

#[tokio::test]
async fn detailed_pages_ask_for_the_key_where_there_is_one() {
    let (collector, _) = collector_with_clock();
    let key = "a-key-of-16-chars";
    let server = Server::start(Monitor::new(collector, json!({}), Some(key))).await;
    let client = reqwest::Client::new();
    for path in ["deephealth", "topology", "routes", "status", "fleet", "history"] {
        let url = format!("{}/api/v1/monitor/{path}", server.base);
        assert_eq!(client.get(&url).send().await.unwrap().status(), StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(client.get(&url).header("X-API-Key", "wrong").send().await.unwrap().status(), StatusCode::UNAUTHORIZED, "{path}");
        assert_ne!(client.get(&url).header("X-API-Key", key).send().await.unwrap().status(), StatusCode::UNAUTHORIZED, "{path}");
        assert_ne!(client.get(&url).bearer_auth(key).send().await.unwrap().status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    for path in ["/api/v1/monitor/live", "/metrics", "/"] {
        assert_eq!(client.get(format!("{}{path}", server.base)).send().await.unwrap().status(), StatusCode::OK, "{path} stays open");
    }
}

#[tokio::test]
async fn the_page_and_its_parts_are_served_and_run_nothing_foreign() {
    let (collector, _) = collector_with_clock();
    let server = Server::start(Monitor::new(collector, json!({}), None)).await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/dom.js", "text/javascript"),
        ("/charts.js", "text/javascript"),
        ("/flow.js", "text/javascript"),
        ("/fleet.js", "text/javascript"),
        ("/letters.js", "text/javascript"),
        ("/page.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
        ("/metrics", "text/plain"),
    ] {
        let answer = reqwest::get(format!("{}{path}", server.base)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with(kind), "{path}");
        assert!(answer.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'self'"));
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        let text = answer.text().await.unwrap();
        assert!(path != "/" || !text.contains("style=") && !text.contains("onclick"), "the policy forbids inline code");
    }
    assert_eq!(server.get("/nothing").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_page_may_call_the_admin_interface_of_the_same_host_and_nothing_else() {
    let (collector, _) = collector_with_clock();
    let server = Server::start(Monitor::new(collector.clone(), json!({}), None).with_admin_port(Some(8080))).await;
    let client = reqwest::Client::new();
    let policy = async |host: &str| {
        let answer = client.get(format!("{}/", server.base)).header("host", host).send().await.unwrap();
        answer.headers()["content-security-policy"].to_str().unwrap().to_owned()
    };
    assert!(policy("10.0.0.1:8081").await.ends_with("; connect-src 'self' http://10.0.0.1:8080 https://10.0.0.1:8080"));
    assert!(policy("[::1]:8081").await.ends_with("http://[::1]:8080 https://[::1]:8080"));
    for forged in ["evil.com;script-src *", "a b", "x'y"] {
        assert!(!policy(forged).await.contains("connect-src"), "{forged}");
    }
    assert_eq!(server.monitor("/status").await.1["admin_port"], 8080);
    let without = Server::start(Monitor::new(collector, json!({}), None)).await;
    let answer = reqwest::get(&without.base).await.unwrap();
    assert!(!answer.headers()["content-security-policy"].to_str().unwrap().contains("connect-src"));
}

#[test]
fn what_was_put_in_is_part_of_the_account() {
    let account = RouteStatus { received: 1, mailed: 3, recovered: 2, delivered: 5, in_flight: 1, ..RouteStatus::default() };
    assert_eq!(account.imbalance(), 0);
    let mut both = account.clone();
    both.add(&account);
    assert_eq!((both.mailed, both.imbalance()), (6, 0));
}

#[tokio::test]
async fn the_last_hour_is_kept_and_told_from_where_one_left_off() {
    let (collector, clock) = collector_with_clock();
    let monitor = Monitor::new(collector.clone(), json!({}), None);
    let recorder = monitor.recorder();
    let server = Server::start(monitor).await;
    assert_eq!(server.monitor("/history").await.1, json!({ "interval_ms": 5000, "samples": [] }));
    let mut owned = session();
    owned.lease = Some(LeaseStatus {
        held: true,
        acts_until: Some(causeway_ports::Clock::now(&*clock).plus(Duration::from_secs(9))),
        ..LeaseStatus::default()
    });
    collector.status.publish(owned, vec![route()]);
    recorder.note(&collector.status.snapshot());
    clock.advance(Duration::from_secs(5));
    recorder.note(&collector.status.snapshot());
    let (_, all) = server.monitor("/history").await;
    let first = &all["samples"][0];
    assert_eq!(first["sessions"][0], json!({ "level": 2, "owner": true, "entries": 3, "oldest_ms": 10_000, "margin_ms": 9_000 }));
    assert_eq!(first["routes"][0], json!({ "received": 10, "delivered": 4, "dead": 2, "dropped": 1 }));
    assert_eq!(all["samples"][1]["sessions"][0]["margin_ms"], 4_000);
    let (_, rest) = server.monitor(&format!("/history?since={}", first["at"])).await;
    assert_eq!(rest["samples"].as_array().unwrap().len(), 1);
    assert_eq!(server.monitor("/status").await.1["bridge"]["sessions"][0]["lease"]["margin_ms"], 4_000);
    assert_eq!(server.monitor("/fleet").await.1, json!({ "fleet": null }));
}

#[tokio::test]
async fn a_port_in_use_is_told_clearly() {
    let first = bind("http.monitor_addr", "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = first.local_addr().unwrap();
    let text = bind("http.monitor_addr", addr).await.unwrap_err().to_string();
    assert_eq!(text, format!("http.monitor_addr {addr}: the port is in use: stop the other program, or set another port"));
}
