//! The admin interface over a real port.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests, which write certificates")]

mod common;

use causeway_core::config::{Config, Source, load};
use causeway_core::dead_letter::{DeadLetter, Destination};
use causeway_core::identity::Id128;
use causeway_core::lease::row::OwnerFacts;
use causeway_core::mailbox::{Mail, MailboxName};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::proxies::Proxies;
use causeway_core::units::UnixMillis;
use causeway_ports::{Clock, Mailbox as _};
use causeway_worker::fleet::Fleet;
use causeway_worker::hints::HintBoard;
use causeway_worker::http::admin::{Admin, CONNECTION_OF_REQUEST, DOCUMENT, NamedKey, Operation, PREFIX, REQUEST};
use causeway_worker::http::bind;
use causeway_worker::http::origins::Origins;
use causeway_worker::http::serve::{Bounds, serve_with};
use causeway_worker::http::tls::{ListenerTls, TlsFiles, only};
use causeway_worker::status::{LeaseStatus, SessionRole, StatusBoard};
use causeway_worker::step_down::StepDowns;
use causeway_worker::telemetry::Metrics;
use causeway_worker::wiring::{Purpose, Shared, StoreSet, desk};
use common::{TestClock, route, session};
use core::time::Duration;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const KEY: &str = "0123456789abcdef";
const OTHER_KEY: &str = "fedcba9876543210";
const PATIENCE: Duration = Duration::from_secs(30);

const CONFIG: &str = r#"
bridge: { id: b }
stores:
  outbox: { type: memory, options: { acknowledge_volatile: true } }
  dlq: { type: memory, options: { acknowledge_volatile: true } }
sessions:
  - { id: s, transport: mqtt, session_mode: persistent, options: { session: { broker_url: "tcp://localhost:1883", client_id: c } } }
receivers:
  - { id: in, session_id: s, topics: [{ topic: "a/#", qos: 1 }] }
senders:
  - { id: out, transport: sqs, options: { queue_url: "https://sqs.eu-west-1.amazonaws.com/1/one" } }
bindings:
  - { id: to-queue, sender_id: out, address: queue }
processors:
  - { id: not-y, type: filter, options: { action: drop, conditions: [{ field: header.kind, operator: eq, value: y }] } }
routes:
  - { id: r, receiver_id: in, delivery_mode: shared_outbox, bindings: [to-queue] }
  - { id: filtered, receiver_id: in, delivery_mode: shared_outbox, bindings: [to-queue], processors: [not-y] }
  - { id: direct, receiver_id: in, delivery_mode: direct_hold, bindings: [to-queue] }
"#;

struct Server {
    base: String,
    client: Client,
    stores: StoreSet,
    clock: Arc<TestClock>,
    status: StatusBoard,
    step_downs: StepDowns,
    quota_seen: tokio::sync::watch::Sender<u64>,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn config() -> Config {
    load(&[Source { name: "test", text: CONFIG }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}")).config
}

impl Server {
    async fn start() -> Self {
        Self::with(None, Origins::default()).await
    }

    async fn with(tls: Option<&ListenerTls>, origins: Origins) -> Self {
        Self::within(REQUEST, tls, origins).await
    }

    async fn within(patience: Duration, tls: Option<&ListenerTls>, origins: Origins) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = config();
        let clock = Arc::new(TestClock::default());
        let status = StatusBoard::new("b", "me", Arc::clone(&clock) as Arc<dyn Clock>);
        let stores = StoreSet::open(&config.stores, None, Purpose::Run).unwrap();
        let (stop, step_downs) = (CancellationToken::new(), StepDowns::default());
        let quota_seen = tokio::sync::watch::Sender::default();
        let shared = Shared {
            instance_id: "me".to_owned(),
            owner: "me#1".to_owned(),
            nonce: 1,
            looks_late: false,
            facts: OwnerFacts::default(),
            hints: HintBoard::default(),
            tasks: None,
            step_downs: step_downs.clone(),
            quota_seen: quota_seen.clone(),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            metrics: Metrics::default(),
            secrets: Default::default(),
            status: status.clone(),
            stop: stop.clone(),
        };
        let sinks = vec![("out".to_owned(), Arc::new(common::IdleSink) as Arc<dyn causeway_ports::Sink>)];
        let desk = desk(&config, &stores, &sinks, &shared, Fleet::default()).unwrap();
        let keys = vec![NamedKey::new("admin", KEY), NamedKey::new("ops", OTHER_KEY)];
        let router = Admin::new(keys, origins, desk).behind(Proxies::of(["127.0.0.0/8"])).within(patience).router();
        let listener = bind("http.admin_addr", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let base = format!("{}://{}", if tls.is_some() { "https" } else { "http" }, listener.local_addr().unwrap());
        tokio::spawn(serve(listener, tls.map(ListenerTls::acceptor), router, stop.clone()));
        let client = Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { base, client, stores, clock, status, step_downs, quota_seen, stop }
    }

    /// A request without a key.
    fn bare(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.base))
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.bare("get", &format!("{PREFIX}{path}")).header("x-api-key", KEY)).await
    }

    async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        answer(self.bare("post", &format!("{PREFIX}{path}")).bearer_auth(OTHER_KEY).json(&body)).await
    }

    async fn mail(&self) -> Vec<Mail> {
        self.stores.mailbox.as_ref().unwrap().read_mail(&MailboxName::new("b", "s").unwrap(), 99).await.unwrap()
    }

    async fn park(&self, id: u128, payload: &'static [u8]) -> String {
        let message = Message { topic: "a/b".to_owned(), payload: payload.into(), ..Message::default() };
        let entry = Entry {
            id: Id128(id),
            route: "r".into(),
            binding: "to-queue".into(),
            address: None,
            refusal: None,
            source: "in".into(),
            received_at: UnixMillis(1),
            expires_at: None,
            redrive: None,
            message,
        };
        let bound =
            Destination { bridge: "b".to_owned(), binding: "to-queue".to_owned(), session: "s".to_owned(), address: "queue".to_owned() };
        let letter = DeadLetter::new(&entry, &bound, &Fault::new(FaultCode::InvalidPayload, "no"), 1, UnixMillis(id as u64));
        assert!(matches!(self.stores.dead_letters.as_ref().unwrap().park(&letter).await, causeway_core::outcome::Outcome::Done(())));
        letter.id.to_string()
    }
}

async fn serve(listener: TcpListener, tls: Option<tokio_rustls::TlsAcceptor>, router: axum::Router, stop: CancellationToken) {
    serve_with(listener, tls, router, Bounds { request: CONNECTION_OF_REQUEST, ..Bounds::default() }, stop).await;
}

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap_or(Value::Null))
}

/// The paths and methods that the description has.
fn described() -> BTreeSet<(String, String)> {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(|method| (path.clone(), method.clone()))).collect()
}

#[test]
fn the_description_has_every_route_and_no_other() {
    let routes = Operation::ALL.map(|operation| (operation.path().to_owned(), operation.method().to_owned()));
    assert_eq!(described(), routes.into());
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    for operation in Operation::ALL {
        assert_eq!(document["paths"][operation.path()][operation.method()]["operationId"], operation.action());
    }
}

/// A path with something in its places.
fn filled(path: &str) -> String {
    path.replace("{route}", "nowhere").replace("{session}", "nobody").replace("{id}", &"0".repeat(32))
}

#[tokio::test]
async fn no_route_answers_without_a_key_and_each_that_is_described_answers_with_one() {
    let server = Server::start().await;
    for (path, method) in described() {
        let path = filled(&path);
        assert_eq!(answer(server.bare(&method, &path)).await.0, StatusCode::UNAUTHORIZED, "{method} {path}");
        let (status, body) = answer(server.bare(&method, &path).header("x-api-key", KEY).body("{}")).await;
        assert!(status != StatusCode::METHOD_NOT_ALLOWED && body["error"]["code"] != "NO_SUCH_PAGE", "{method} {path}: {status} {body}");
        assert_ne!(status, StatusCode::UNAUTHORIZED);
        let other = if method == "get" { "post" } else { "get" };
        assert_eq!(answer(server.bare(other, &path)).await.0, StatusCode::UNAUTHORIZED, "{other} {path}");
    }
    for path in ["/", "/api/v1/admin", "/api/v1/admin/no-such-page", "/api/v1/monitor/live"] {
        assert_eq!(answer(server.bare("get", path)).await.0, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(answer(server.bare("get", path).header("x-api-key", KEY)).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

/// Holds an answer against the description.
fn conforms(operation: Operation, status: StatusCode, body: &Value) {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let described = &document["paths"][operation.path()][operation.method()]["responses"][status.as_str()];
    let mut schema = described["content"]["application/json"]["schema"].clone();
    assert!(schema.is_object(), "{operation:?}: {status} is not described");
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = validator.iter_errors(body).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{operation:?}: {wrong:?}\n{body}");
}

#[tokio::test]
async fn who_guesses_keys_waits_and_who_has_none_is_only_told_to_bring_one() {
    let server = Server::start().await;
    let routes = format!("{PREFIX}/routes");
    for _ in 0..10 {
        assert_eq!(answer(server.bare("get", &routes)).await.0, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(server.get("/routes").await.0, StatusCode::OK);
    for _ in 0..5 {
        assert_eq!(answer(server.bare("get", &routes).header("x-api-key", "0123456789abcdeX")).await.0, StatusCode::UNAUTHORIZED);
    }
    let refused = server.bare("get", &routes).header("x-api-key", KEY).send().await.unwrap();
    assert_eq!((refused.status(), refused.headers()["retry-after"].to_str().unwrap()), (StatusCode::TOO_MANY_REQUESTS, "61"));
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(server.get("/routes").await.0, StatusCode::OK);
}

#[tokio::test]
async fn wrong_keys_of_one_client_lock_out_nobody_else_behind_the_same_load_balancer() {
    let server = Server::start().await;
    let request = |client: &str, key: &str| {
        let request = server.bare("get", &format!("{PREFIX}/routes")).header("x-api-key", key);
        answer(request.header("x-forwarded-for", client))
    };
    for guess in 0..5 {
        // What the client writes itself stands before what the load balancer adds.
        let forged = format!("203.0.113.{guess}, 198.51.100.1");
        assert_eq!(request(&forged, "0123456789abcdeX").await.0, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(request("198.51.100.1", KEY).await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(request("198.51.100.2", KEY).await.0, StatusCode::OK);
    assert_eq!(server.get("/routes").await.0, StatusCode::OK, "nor the load balancer's own address");
}

#[tokio::test]
async fn a_message_that_is_put_in_waits_in_the_mailbox_of_its_session() {
    let server = Server::start().await;
    let message = json!({ "subject": "a/b", "payload": "hello", "headers": { "kind": "y" }, "id": "op-1" });
    let (status, body) = server.post("/routes/r/inject", message.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    conforms(Operation::Inject, status, &body);
    let mail = server.mail().await;
    let entry = &mail[0].entry;
    assert_eq!(mail.len(), 1, "no other route of the receiver gets it");
    assert_eq!(
        (&*entry.route, &*entry.binding, &*entry.source, entry.id.to_string()),
        ("r", "to-queue", "in", body["ids"][0].as_str().unwrap().to_owned())
    );
    assert_eq!((entry.message.topic.as_str(), &entry.message.payload[..]), ("a/b", &b"hello"[..]));
    assert_eq!(server.post("/routes/r/inject", message.clone()).await.1, body, "the same again is the same");
    assert_eq!(server.mail().await.len(), 1);
    assert_eq!(server.post("/routes/r/inject", json!({ "topic": "a/b", "payload_base64": "/wA=" })).await.0, StatusCode::ACCEPTED);
    let pairs = json!({ "topic": "a/b", "payload": "x", "headers": [["kind", "y"], ["b", "1"], ["a", "2"], ["b", "3"]], "id": "op-2" });
    assert_eq!(server.post("/routes/r/inject", pairs).await.0, StatusCode::ACCEPTED);
    let mail = server.mail().await;
    assert_eq!(mail.len(), 3);
    let user = |mail: &Mail| mail.entry.message.properties.user.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    assert!(mail.iter().any(|mail| user(mail) == ["kind=y", "b=1", "a=2", "b=3", "mqtt.message-id=op-2"]), "in their order");
    let (status, body) = server.post("/routes/filtered/inject", message.clone()).await;
    assert_eq!((status, &body["status"]), (StatusCode::OK, &json!("filtered")));
    conforms(Operation::Inject, status, &body);
    assert_eq!(server.post("/routes/direct/inject", message.clone()).await.1["error"]["code"], "ROUTE_WITHOUT_OUTBOX");
    assert_eq!(server.post("/routes/none/inject", message).await.0, StatusCode::NOT_FOUND);
    for wrong in [
        json!({ "subject": "a/+", "payload": "x" }),
        json!({ "subject": "a/b" }),
        json!({ "payload": "x" }),
        json!({ "subject": "a/b", "payload": "x", "headers": [["k"]] }),
        json!({ "subject": "a/b", "payload": "x", "headers": [["k", 1]] }),
        json!({ "subject": "a/b", "payload": "x", "headers": [["mqtt.message-id", "x"]] }),
        json!({ "subject": "a/b", "payload": "x", "headers": [], "qos": 2 }),
        json!({ "subject": "a/b", "topic": "a/b", "payload": "x" }),
        json!({ "subject": "a/b", "payload": "x", "headers": { "mqtt.message-id": "x" } }),
        json!({ "subject": "a/b", "payload": "x", "payload_base64": "eA==" }),
        json!({ "subject": "a/b", "payload_base64": "?" }),
        json!({ "topic": "a/b", "payload": "x", "id": "" }),
        json!({ "topic": "a/b", "payload": "x", "qos": 2 }),
    ] {
        assert_eq!(server.post("/routes/r/inject", wrong.clone()).await.0, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let told = server.post("/routes/r/inject", json!({ "payload": "x" })).await.1;
    assert_eq!(told["error"]["field"], "subject", "{told}");
    assert_eq!(server.mail().await.len(), 3);
}

#[tokio::test]
async fn dead_letters_are_listed_shown_put_back_and_deleted() {
    let server = Server::start().await;
    let first = server.park(1_000, b"one").await;
    let second = server.park(2_000, b"\xff").await;
    let third = server.park(3_000, b"three").await;
    let (status, page) = server.get("/dlq?limit=2&count=true&category=rejected").await;
    assert_eq!(status, StatusCode::OK, "{page}");
    conforms(Operation::Letters, status, &page);
    let category = page["letters"][0]["category"].as_str().unwrap_or("permanent").to_owned();
    let page = server.get(&format!("/dlq?limit=2&count=true&category={category}&route_id=r")).await.1;
    assert_eq!(
        (page["letters"].as_array().unwrap().len(), &page["letters"][0]["id"], page["letters"][0].get("payload")),
        (2, &json!(first), None)
    );
    assert_eq!(page["dead"]["by_category"][&category], 3, "{page}");
    let rest = server.get(&format!("/dlq?continuation={}", page["continuation"].as_str().unwrap().replace('#', "%23"))).await.1;
    assert_eq!((&rest["letters"][0]["id"], &rest["continuation"]), (&json!(third), &Value::Null));
    for wrong in ["limit=0", "limit=x", "category=bad", "since=yesterday", "what=1"] {
        assert_eq!(server.get(&format!("/dlq?{wrong}")).await.0, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let (status, letter) = server.get(&format!("/dlq/messages/{second}")).await;
    conforms(Operation::Letter, status, &letter);
    assert_eq!((&letter["payload"], &letter["payload_encoding"]), (&json!("/w=="), &json!("base64")));
    assert_eq!(server.get(&format!("/dlq/messages/{}", "0".repeat(32))).await.0, StatusCode::NOT_FOUND);

    let (status, dry) = server.post("/dlq/redrive", json!({ "filter": { "ids": [first] } })).await;
    conforms(Operation::Redrive, status, &dry);
    assert_eq!((&dry["dry_run"], &dry["would_redrive"], &dry["redriven"]), (&json!(true), &json!(1), &json!(0)));
    assert!(server.mail().await.is_empty());
    let done = server.post("/dlq/redrive", json!({ "filter": { "ids": [first] }, "dry_run": false })).await.1;
    assert_eq!((&done["redriven"], &done["complete"]), (&json!(1), &json!(true)), "{done}");
    assert!(done["request_id"].as_str().unwrap().starts_with("admin-ops-"), "{done}");
    assert_eq!(server.mail().await[0].entry.message.payload, "one");
    assert_eq!(server.post("/dlq/redrive", json!({ "dry_run": false })).await.0, StatusCode::BAD_REQUEST, "nothing is meant");
    assert_eq!(server.post("/dlq/redrive", json!({ "mode": "sqs", "queue": "q" })).await.0, StatusCode::BAD_REQUEST);

    let (status, would) = server.post("/dlq/delete", json!({ "ids": [second] })).await;
    conforms(Operation::Delete, status, &would);
    assert_eq!((&would["dry_run"], &would["matched"], &would["deleted"]), (&json!(true), &json!(1), &json!(0)));
    let gone = server.post("/dlq/delete", json!({ "ids": [second], "confirm": true })).await.1;
    assert_eq!(gone["deleted"], 1);
    assert_eq!(server.get(&format!("/dlq/messages/{second}")).await.0, StatusCode::NOT_FOUND);
    for unclear in [json!({}), json!({ "confirm": true }), json!({ "all": true, "ids": [third] }), json!({ "ids": ["7"] })] {
        assert_eq!(server.post("/dlq/delete", unclear.clone()).await.0, StatusCode::BAD_REQUEST, "{unclear}");
    }
    let rest = server.post("/dlq/delete", json!({ "filter": { "route_id": "r" }, "confirm": true })).await.1;
    assert_eq!(rest["deleted"], 1, "the tombstone stays: {rest}");
}

#[tokio::test]
async fn only_an_owner_with_a_lease_can_be_asked_to_step_down() {
    let server = Server::start().await;
    assert_eq!(server.post("/sessions/s/step-down", json!({})).await.0, StatusCode::NOT_FOUND, "no such session yet");
    let mut waiting = session();
    (waiting.role, waiting.lease) = (SessionRole::Standby, Some(LeaseStatus::default()));
    server.status.publish(waiting.clone(), vec![route()]);
    assert_eq!(server.post("/sessions/s/step-down", json!({})).await.1["error"]["code"], "NOT_OWNED_HERE");
    server.status.publish(causeway_worker::status::SessionStatus { role: SessionRole::Owner, ..waiting }, vec![]);
    assert_eq!(server.post("/sessions/s/step-down", json!({})).await.1["error"]["code"], "NOT_SHARED");
    let asked = server.step_downs.listen("s");
    let (status, body) = server.post("/sessions/s/step-down", json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    conforms(Operation::StepDown, status, &body);
    tokio::time::timeout(PATIENCE, asked.notified()).await.unwrap();
    let (status, sessions) = server.get("/sessions").await;
    conforms(Operation::Sessions, status, &sessions);
    assert_eq!((&sessions["sessions"][0]["owner"], &sessions["sessions"][0]["can_step_down"]), (&json!("me"), &json!(true)));
    let (status, routes) = server.get("/routes").await;
    conforms(Operation::Routes, status, &routes);
    assert_eq!((&routes["routes"][0]["outbox"], &routes["routes"][0]["received"]), (&json!(true), &json!(10)));
}

#[tokio::test]
async fn flow_the_notice_of_a_spent_budget_is_acknowledged_where_it_stands() {
    let server = Server::start().await;
    let mut told = server.quota_seen.subscribe();
    let (status, body) = server.post("/quota/acknowledge", json!({})).await;
    assert_eq!((status, &body["sessions"]), (StatusCode::OK, &json!([])));
    let quota = causeway_worker::status::QuotaStatus { reached_since: Some(UnixMillis(5)), ..Default::default() };
    server.status.publish(causeway_worker::status::SessionStatus { quota: Some(quota), ..session() }, vec![route()]);
    let (status, body) = server.post("/quota/acknowledge", json!({})).await;
    assert_eq!(body, json!({ "status": "acknowledged", "sessions": ["s"] }));
    conforms(Operation::QuotaSeen, status, &body);
    told.changed().await.unwrap();
    assert_eq!(*told.borrow(), 2, "every loop is told");
}

#[tokio::test]
async fn the_status_page_of_the_same_host_may_call_and_another_page_may_not() {
    let server = Server::with(None, Origins::named(&["https://ops.example.com".to_owned()]).with_page(8081, false)).await;
    let preflight = |origin: &'static str| {
        let request = server.bare("options", &format!("{PREFIX}/dlq/redrive")).header("origin", origin);
        request.header("access-control-request-method", "POST").header("access-control-request-headers", "x-api-key").send()
    };
    for origin in ["http://127.0.0.1:8081", "https://ops.example.com"] {
        let allowed = preflight(origin).await.unwrap();
        assert_eq!(
            (allowed.status(), allowed.headers()["access-control-allow-origin"].to_str().unwrap()),
            (StatusCode::NO_CONTENT, origin)
        );
        let answered = server.bare("get", &format!("{PREFIX}/routes")).header("origin", origin).send().await.unwrap();
        assert_eq!(
            (answered.status(), answered.headers()["access-control-allow-origin"].to_str().unwrap()),
            (StatusCode::UNAUTHORIZED, origin)
        );
    }
    for origin in ["http://127.0.0.1:8082", "http://evil.example.com:8081"] {
        let refused = preflight(origin).await.unwrap();
        assert_eq!((refused.status(), refused.headers().get("access-control-allow-origin")), (StatusCode::FORBIDDEN, None));
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let folder = tempfile::TempDir::new().unwrap();
    let files = TlsFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    let write = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        std::fs::write(&files.cert, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    };
    write("one");
    let tls = ListenerTls::load(files.clone()).unwrap();
    let server = Server::with(Some(&tls), Origins::default()).await;
    let knows = || {
        Client::builder()
            .no_proxy()
            .timeout(PATIENCE)
            .tls_backend_preconfigured(only(files.certificate().unwrap()).unwrap())
            .build()
            .unwrap()
    };
    let url = format!("{}{PREFIX}/routes", server.base);
    let status = async |client: &Client| client.get(&url).header("x-api-key", KEY).send().await.map(|answer| answer.status());
    let first = knows();
    assert_eq!(status(&first).await.unwrap(), StatusCode::OK);
    let plain = server.client.get(url.replace("https", "http")).send().await;
    assert!(plain.is_err(), "{plain:?}");
    assert!(server.client.get(&url).send().await.is_err(), "a certificate that nobody vouches for is no one's");
    write("two");
    tls.reload().unwrap();
    assert_eq!(status(&knows()).await.unwrap(), StatusCode::OK);
    std::fs::write(&files.cert, "no certificate").unwrap();
    assert!(tls.reload().is_err() && ListenerTls::load(files.clone()).is_err());
    // What clients of the second one get is still the second one.
    write("three");
    let third = knows();
    assert!(status(&third).await.is_err());
    tls.reload().unwrap();
    assert_eq!(status(&knows()).await.unwrap(), StatusCode::OK);
}

/// One whose body never ends.
#[tokio::test]
async fn a_request_that_takes_too_long_is_refused_in_json_that_the_page_may_read() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let origins = Origins::named(&["https://ops.example.com".to_owned()]);
    let server = Server::within(Duration::from_millis(200), None, origins).await;
    let mut stream = tokio::net::TcpStream::connect(server.base.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "POST {PREFIX}/dlq/delete HTTP/1.1\r\nhost: localhost\r\norigin: https://ops.example.com\r\nx-api-key: {KEY}\r\ncontent-length: 10\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = Vec::new();
    let mut more = [0; 4096];
    while !String::from_utf8_lossy(&told).contains("TOO_LATE") {
        let read = stream.read(&mut more).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&more[..read]);
    }
    let told = String::from_utf8_lossy(&told).to_lowercase();
    assert!(told.starts_with("http/1.1 408") && told.contains("content-type: application/json"), "{told}");
    assert!(told.contains("access-control-allow-origin: https://ops.example.com"), "{told}");
}
