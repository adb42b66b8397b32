//! Messages posted over HTTP to two members of a bridge, of which one owns the session: every answer that the documentation names, and what is kept.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_core::config::Secret;
use causeway_core::dispatch::Dispatch;
use causeway_core::lease::row::{LeaseRow, OwnerFacts, RawLease, Tuple};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::proxies::Proxies;
use causeway_core::units::UnixMillis;
use causeway_local::memory::{MemoryLeases, MemoryOutbox};
use causeway_ports::fake::{FaultyLeases, FaultyMailbox, Injection, LeaseCall, MailboxCall};
use causeway_ports::{Clock as _, Leases, Mail, Mailbox, MailboxName, SystemClock};
use causeway_worker::http::posts::{FORWARDED, IDEMPOTENCY_KEY, OwnerLease, PostBoard, PostReceiver};
use causeway_worker::http::serve::Bounds;
use causeway_worker::http::transport::Transport;
use causeway_worker::telemetry::{Metrics, prometheus};
use core::time::Duration;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

const TOKEN: &str = "a token of some length";
const KEY: &str = "LEASE#s";
const BODY_LIMIT: usize = 4_096;

fn mailbox() -> MailboxName {
    MailboxName::new("b", "s").unwrap()
}

/// A store of leases and of mail, and two processes.
struct Bridge {
    leases: Arc<FaultyLeases<MemoryLeases>>,
    mail: Arc<FaultyMailbox<MemoryOutbox>>,
}

struct Member {
    name: String,
    url: String,
    metrics: Metrics,
    mailed: Arc<Notify>,
    client: Client,
    _stop: DropGuard,
}

impl Bridge {
    fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Self { leases: Arc::new(FaultyLeases::new(MemoryLeases::new())), mail: Arc::new(FaultyMailbox::new(MemoryOutbox::new())) }
    }

    async fn member(&self, name: &str, fail_open: bool) -> Member {
        self.member_behind(Proxies::of(["127.0.0.0/8"]), name, fail_open).await
    }

    async fn member_behind(&self, proxies: Proxies, name: &str, fail_open: bool) -> Member {
        let (metrics, stop, mailed) = (Metrics::default(), CancellationToken::new(), Arc::new(Notify::new()));
        let receiver = PostReceiver {
            id: "orders".into(),
            token: Secret::new(TOKEN).into(),
            max_body_bytes: BODY_LIMIT,
            fail_open,
            dispatch: Arc::new(Dispatch::to_first([("r", "orders", "b")])),
            mailbox: Arc::clone(&self.mail) as Arc<dyn Mailbox>,
            name: mailbox(),
            mailed: Arc::clone(&mailed),
            lease: Some(OwnerLease { leases: Arc::clone(&self.leases) as Arc<dyn Leases>, key: KEY.to_owned(), me: name.to_owned() }),
        };
        let base = name.bytes().fold(0, |base, byte| base << 8 | u128::from(byte)) << 64;
        let board = PostBoard::new(vec![receiver], base, proxies, Arc::new(SystemClock), metrics.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(Transport::default().with_posts(board).serve(listener, Bounds::of_posts(), stop.clone()));
        let client = Client::builder().no_proxy().build().unwrap();
        Member { name: name.to_owned(), url, metrics, mailed, client, _stop: stop.drop_guard() }
    }

    /// Writes the lease row: `owner` is reached at `url`, for so long.
    fn owned(&self, owner: &str, url: Option<&str>, left: Duration) {
        let now = SystemClock.wall();
        let endpoints = url.map(|url| ("http".to_owned(), url.to_owned())).into_iter().collect();
        let tuple = Tuple { owner: owner.to_owned(), version: 3, renewed_at: UnixMillis(now.0 - 1_000), expires_at: now.plus(left) };
        let facts = OwnerFacts { endpoints, ..OwnerFacts::default() };
        self.leases.inner().put_raw(KEY, Some(RawLease::from(&LeaseRow { tuple, acquired_at: UnixMillis(1), evidence: None, facts })));
    }

    async fn kept(&self) -> Vec<Mail> {
        self.mail.inner().read_mail(&mailbox(), 99).await.unwrap()
    }
}

impl Member {
    fn request(&self, receiver: &str) -> reqwest::RequestBuilder {
        self.client.post(format!("{}/transport/http/receivers/{receiver}/messages", self.url)).bearer_auth(TOKEN)
    }

    async fn post(&self, body: Value) -> (u16, Value) {
        told(self.request("orders").json(&body).send().await.unwrap()).await
    }

    fn metrics(&self) -> String {
        prometheus::render(&self.metrics.gather())
    }
}

async fn told(answer: Response) -> (u16, Value) {
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap())
}

fn order(id: &str) -> Value {
    json!({ "id": id, "subject": "a/b", "payload": format!("order {id}"), "headers": { "k": "v" } })
}

const LONG: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn the_owner_keeps_a_post_before_it_answers_and_another_member_passes_it_on() {
    let bridge = Bridge::new();
    let (owner, other) = (bridge.member("one#1", false).await, bridge.member("two#2", false).await);
    bridge.owned(&owner.name, Some(&owner.url), LONG);
    assert_eq!(owner.post(order("1")).await, (202, json!({ "id": "1", "status": "accepted" })));
    let kept = bridge.kept().await;
    let message = &kept[0].entry.message;
    assert_eq!((kept.len(), message.topic.as_str(), &message.payload[..]), (1, "a/b", &b"order 1"[..]));
    assert_eq!(causeway_core::source_id::source_id(message), "1", "consumers are told the caller's id");
    // The owner's loop is woken; it would wait for its next look otherwise.
    tokio::time::timeout(LONG, owner.mailed.notified()).await.unwrap();

    assert_eq!(other.post(order("2")).await, (202, json!({ "id": "2", "status": "accepted" })));
    tokio::time::timeout(LONG, owner.mailed.notified()).await.unwrap();
    assert_eq!(bridge.kept().await.len(), 2);
    assert!(owner.metrics().contains(r#"causeway_http_posts_total{receiver="orders",result="accepted"} 2"#), "{}", owner.metrics());
    assert!(other.metrics().contains(r#"result="forwarded"} 1"#), "{}", other.metrics());

    // Whichever member a repeat comes to, it is none, and it stays one after the mail was moved into the log.
    for member in [&owner, &other] {
        assert_eq!(member.post(order("2")).await, (202, json!({ "id": "2", "status": "repeated" })));
    }
    assert_eq!(bridge.kept().await.len(), 2);
    let changed = json!({ "id": "2", "payload": "another" });
    for member in [&owner, &other] {
        let (status, answer) = member.post(changed.clone()).await;
        assert!(status == 422 && answer["error"].as_str().unwrap().contains("id"), "{status} {answer}");
    }
    // Without an id each is a message of its own, and the caller is told what it is called.
    let (_, first) = owner.post(json!({ "payload": "x" })).await;
    let (_, second) = other.post(json!({ "payload": "x" })).await;
    assert_ne!(first["id"], second["id"]);
    assert_eq!(bridge.kept().await.len(), 4);
}

#[tokio::test]
async fn what_is_no_message_is_refused_before_anything_is_asked() {
    let bridge = Bridge::new();
    let member = bridge.member("one#1", false).await;
    bridge.owned(&member.name, Some(&member.url), LONG);
    let send = async |request: reqwest::RequestBuilder| told(request.send().await.unwrap()).await.0;
    let url = |receiver: &str| format!("{}/transport/http/receivers/{receiver}/messages", member.url);
    for receiver in ["orders", "none"] {
        assert_eq!(send(member.client.post(url(receiver)).json(&order("1"))).await, 401);
        assert_eq!(send(member.client.post(url(receiver)).bearer_auth("another token").json(&order("1"))).await, 401);
    }
    assert_eq!(send(member.request("none").json(&order("1"))).await, 404);
    assert_eq!(send(member.request("orders").body("{}")).await, 415);
    assert_eq!(send(member.request("orders").json(&json!({ "payload": "x".repeat(BODY_LIMIT) }))).await, 413);
    for wrong in [json!({}), json!([]), json!({ "payload": "a", "unknown": 1 }), json!({ "payload": "a", "id": "" })] {
        assert_eq!(send(member.request("orders").json(&wrong)).await, 400, "{wrong}");
    }
    assert_eq!(send(member.request("orders").header(IDEMPOTENCY_KEY, "2").json(&order("1"))).await, 400, "two ids");
    assert_eq!(member.client.get(url("orders")).send().await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(bridge.kept().await, []);
    let by_key = member.client.post(url("orders")).header("x-api-key", TOKEN).header(IDEMPOTENCY_KEY, "k-1");
    assert_eq!(told(by_key.json(&json!({ "payload": "a" })).send().await.unwrap()).await.1["id"], "k-1");
    assert_eq!(bridge.kept().await.len(), 1);
}

/// The status and the code of a post, and whether it says when to come again.
async fn refused(member: &Member, forwarded: bool) -> (u16, String, bool) {
    let request = member.request("orders").json(&order("1"));
    let answer = if forwarded { request.header(FORWARDED, "true") } else { request }.send().await.unwrap();
    let again = answer.headers().contains_key("retry-after");
    let (status, body) = told(answer).await;
    (status, body["code"].as_str().unwrap_or_default().to_owned(), again)
}

#[tokio::test]
async fn without_a_known_owner_a_post_is_refused_or_kept_as_configured() {
    let bridge = Bridge::new();
    let told = |status, code: &str| (status, code.to_owned(), true);
    // Each its own process: what was found is remembered for a moment.
    assert_eq!(refused(&bridge.member("a#1", false).await, false).await, told(503, "UNKNOWN_OWNER"));
    bridge.owned("gone#9", Some("http://127.0.0.1:9"), Duration::ZERO);
    let expired = bridge.member("b#1", false).await;
    assert_eq!(refused(&expired, false).await, told(503, "UNKNOWN_OWNER"));
    assert!(expired.metrics().contains(r#"causeway_route_owner_unknown_total{receiver="orders",reason="lease_expired"} 1"#));
    bridge.owned("mute#9", None, LONG);
    let (status, code, _) = refused(&bridge.member("c#1", false).await, false).await;
    assert_eq!((status, code.as_str()), (502, "OWNER_WITHOUT_ENDPOINT"));
    bridge.owned("other#9", Some("http://127.0.0.1:9"), LONG);
    assert_eq!(refused(&bridge.member("d#1", false).await, true).await, told(508, "FORWARD_LOOP"));
    // Port 9 answers nobody.
    assert_eq!(refused(&bridge.member("e#1", false).await, false).await, told(502, "OWNER_UNREACHABLE"));
    assert_eq!(bridge.kept().await, [], "whoever was refused has it still");

    let open = bridge.member("f#1", true).await;
    assert_eq!(open.post(order("1")).await.0, 202, "the owner does not answer, and the mailbox is as good");
    bridge.leases.inner().put_raw(KEY, None);
    let open = bridge.member("g#1", true).await;
    assert_eq!(open.post(order("2")).await.0, 202);
    assert_eq!(bridge.kept().await.len(), 2);
}

#[tokio::test]
async fn a_store_that_fails_is_told_and_left_alone() {
    let bridge = Bridge::new();
    let member = bridge.member("one#1", false).await;
    let timeout = || Fault::new(FaultCode::Timeout, "late");
    bridge.leases.inject(LeaseCall::Read, 0, 3, Injection::Refuse(timeout()));
    for _ in 0..4 {
        assert_eq!(refused(&member, false).await.0, 503);
    }
    let metrics = member.metrics();
    for (reason, count) in [("store_unavailable", 3), ("store_breaker_open", 1)] {
        assert!(metrics.contains(&format!(r#"reason="{reason}"}} {count}"#)), "{metrics}");
    }
    bridge.owned("two#2", None, LONG);
    let owner = bridge.member("two#2", false).await;
    bridge.mail.inject_next(MailboxCall::Post, Injection::LoseRequest(timeout()));
    assert_eq!(refused(&owner, false).await, (503, "OUTBOX_UNAVAILABLE".to_owned(), true));
    assert_eq!(owner.post(order("1")).await, (202, json!({ "id": "1", "status": "accepted" })), "what was not kept is no repeat");
    assert_eq!(bridge.kept().await.len(), 1);
}

#[tokio::test]
async fn who_guesses_tokens_waits_and_nobody_else_behind_the_same_proxy_does() {
    let bridge = Bridge::new();
    let member = bridge.member("a", true).await;
    let post = |client: &str, token: &str| {
        let request = member.client.post(format!("{}/transport/http/receivers/orders/messages", member.url));
        request.header("x-forwarded-for", format!("6.6.6.6, {client}")).bearer_auth(token).json(&order(client)).send()
    };
    for _ in 0..5 {
        assert_eq!(post("198.51.100.1", "wrong").await.unwrap().status(), 401);
    }
    let refused = post("198.51.100.1", TOKEN).await.unwrap();
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() <= 60);
    let (status, told) = told(refused).await;
    assert_eq!((status, &told["code"]), (429, &json!("TOO_MANY_FAILURES")), "with a right one too: {told}");
    assert_eq!(post("198.51.100.2", TOKEN).await.unwrap().status(), 202, "another client of the proxy");
    assert_eq!(member.post(order("direct")).await.0, 202, "and the proxy itself");
}

#[tokio::test]
async fn an_address_that_many_may_share_is_not_shut_out() {
    let bridge = Bridge::new();
    let (behind, bare) = (bridge.member("a", true).await, bridge.member_behind(Proxies::default(), "b", true).await);
    let post = |member: &Member, client: Option<&str>, token: &str| {
        let request = member.client.post(format!("{}/transport/http/receivers/orders/messages", member.url));
        let request = client.into_iter().fold(request, |request, client| request.header("x-forwarded-for", client));
        request.bearer_auth(token).json(&order("x"))
    };
    for _ in 0..6 {
        assert_eq!(post(&bare, Some("198.51.100.1"), "wrong").send().await.unwrap().status(), 401);
        assert_eq!(post(&behind, None, "wrong").header("x-bridge-forwarded", "1").send().await.unwrap().status(), 401);
    }
    assert_eq!(post(&bare, Some("198.51.100.1"), TOKEN).send().await.unwrap().status(), 202, "nobody told whose address it is");
    assert_eq!(post(&behind, None, TOKEN).send().await.unwrap().status(), 202, "another member passed on what somebody posted to it");
    for _ in 0..5 {
        let guess = post(&behind, Some("198.51.100.1"), "wrong").header("x-bridge-forwarded", "1");
        assert_eq!(guess.send().await.unwrap().status(), 401);
    }
    let guess = post(&behind, Some("198.51.100.1"), TOKEN).header("x-bridge-forwarded", "1");
    assert_eq!(guess.send().await.unwrap().status(), 429, "no member comes by the proxy");
}
