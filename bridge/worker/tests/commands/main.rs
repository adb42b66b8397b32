//! Commands over HTTP, before a desk that answers what each test has it answer: every status that the description names, and what reaches the desk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod desk;

use bytes::Bytes;
use causeway_core::commands::gateway::{Answer, Refusal};
use causeway_core::commands::{CommandResult, State, Why};
use causeway_core::config::Secret;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::proxies::Proxies;
use causeway_core::units::UnixMillis;
use causeway_worker::commands::api::Order;
use causeway_worker::http::commands::{CommandPort, DOCUMENT, IDEMPOTENCY_KEY, MAX_WAITING, Operation};
use core::time::Duration;
use desk::{ID, LIMITS, Server, TOKEN, accepted, command, told};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

#[test]
fn the_description_has_every_route_and_no_other() {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let described: BTreeSet<_> =
        paths.flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |method| (path.clone(), method.clone()))).collect();
    assert_eq!(described, Operation::ALL.map(|operation| (operation.path().to_owned(), operation.method().to_owned())).into());
    for operation in Operation::ALL {
        assert_eq!(document["paths"][operation.path()][operation.method()]["operationId"], operation.action());
    }
}

#[tokio::test]
async fn every_route_asks_for_the_token_first_and_answers_with_it() {
    let server = Server::start().await;
    for operation in Operation::ALL {
        let path = operation.path().replace("{id}", &ID.to_string());
        for request in [server.bare(operation.method(), &path), server.bare(operation.method(), &path).bearer_auth("a wrong token")] {
            let told = told(operation, request).await;
            assert_eq!((told.code(), told.header("www-authenticate")), ((401, "UNAUTHORIZED"), Some("Bearer")));
        }
        let status = server.bare(operation.method(), &path).header("x-api-key", TOKEN).send().await.unwrap().status();
        assert!(!matches!(status, StatusCode::UNAUTHORIZED | StatusCode::METHOD_NOT_ALLOWED), "{operation:?}: {status}");
        // Other methods: first the token, then what may be done.
        assert_eq!(server.bare("patch", &path).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
        let refused = server.bare("patch", &path).bearer_auth(TOKEN).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
        let allowed = refused.headers()["allow"].to_str().unwrap().to_ascii_lowercase();
        assert!(allowed.contains(operation.method()), "{allowed}");
        assert_eq!(refused.json::<Value>().await.unwrap()["code"], "METHOD");
    }
    assert!(server.orders().is_empty(), "nothing was asked of the desk without a body");
    let document = told(Operation::Document, server.bare("get", "/v1/openapi.json").bearer_auth(TOKEN)).await;
    assert_eq!(document.body["openapi"], "3.1.0");
}

#[tokio::test]
async fn who_guesses_tokens_behind_known_proxies_waits_and_nobody_else_does() {
    let server = Server::with(Proxies::of(["127.0.0.0/8"]), None).await;
    let ask = |client: &str, token: &str| {
        told(
            Operation::Read,
            server.bare("get", &format!("/v1/commands/{ID}")).header("x-forwarded-for", client).header("x-api-key", token),
        )
    };
    for _ in 0..5 {
        assert_eq!(ask("198.51.100.1", "wrong").await.code(), (401, "UNAUTHORIZED"));
    }
    let refused = ask("198.51.100.1", TOKEN).await;
    assert_eq!((refused.code(), refused.header("retry-after")), ((429, "TOO_MANY_FAILURES"), Some("60")));
    assert_eq!(ask("198.51.100.2", TOKEN).await.code(), (404, "NO_COMMAND"));
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(ask("198.51.100.1", TOKEN).await.code(), (404, "NO_COMMAND"));

    let open = Server::start().await;
    for _ in 0..9 {
        assert_eq!(told(Operation::Read, open.of_one("get").header("x-api-key", "wrong")).await.status, 401);
    }
    assert_eq!(told(Operation::Read, open.of_one("get")).await.status, 404, "callers that share an address do not shut one another out");
}

#[tokio::test]
async fn what_is_recorded_is_accepted_and_says_where_to_ask() {
    let server = Server::start().await;
    let body = json!({"target": "pump-1", "payload": null, "properties": {"a": "b"}, "timeout_ms": 500});
    let told = told(Operation::Give, server.post().json(&body).header(IDEMPOTENCY_KEY, "order 1")).await;
    assert_eq!((told.status, told.header("location"), told.header("retry-after")), (202, Some(&*format!("/v1/commands/{ID}")), Some("1")));
    assert_eq!((told.header("preference-applied"), &told.body["status"]), (None, &json!("created")));
    assert_eq!((&told.body["id"], &told.body["expires_at"]), (&json!(ID), &json!("1970-01-01T00:00:11.000Z")));
    let order = Order {
        target: "pump-1".to_owned(),
        payload: Bytes::from_static(b"null"),
        content_type: Some("application/json".to_owned()),
        properties: vec![("a".to_owned(), "b".to_owned())],
        key: Some("order 1".to_owned()),
        timeout: Some(Duration::from_millis(500)),
        patience: None,
    };
    assert_eq!(server.orders(), [order]);
}

#[tokio::test]
async fn what_is_over_is_answered_with_its_result_and_a_timeout_is_no_error() {
    let server = Server::start().await;
    *server.desk.result.lock().unwrap() =
        Ok(Some(CommandResult { payload: Bytes::from_static(b"0"), content_type: None, reason: Some("as asked".to_owned()) }));
    for state in State::ALL.into_iter().filter(|state| state.is_over()) {
        server.answers(Answer::Over(Box::new(command(state))));
        *server.desk.row.lock().unwrap() = Ok(Some(command(state)));
        for (operation, request) in [(Operation::Give, server.give().header("prefer", "wait=5")), (Operation::Read, server.of_one("get"))] {
            let told = told(operation, request).await;
            assert_eq!((told.status, &told.body["status"]), (200, &json!(state.as_str())));
            let result = command(state).answer.map(|_| json!({"payload": 0, "reason": "as asked"}));
            assert_eq!(told.body.get("result"), result.as_ref(), "{state:?}");
        }
    }
}

#[tokio::test]
async fn what_goes_on_longer_than_the_caller_waits_is_accepted_with_what_is_known() {
    let server = Server::start().await;
    let ask = || told(Operation::Give, server.give().header("prefer", "wait=1"));
    server.answers(Answer::Running { id: ID, row: Some(Box::new(command(State::Published))) });
    let known = ask().await;
    assert_eq!((known.status, &known.body["status"], known.header("preference-applied")), (202, &json!("published"), Some("wait=1")));
    // Without a row it is read, and told without one where that cannot be.
    server.answers(Answer::Running { id: ID, row: None });
    *server.desk.row.lock().unwrap() = Ok(Some(command(State::InProgress)));
    assert_eq!(ask().await.body["status"], "in_progress");
    *server.desk.row.lock().unwrap() = Err(Fault::new(FaultCode::Throttled, "slow down"));
    let unknown = ask().await;
    assert_eq!((unknown.status, &unknown.body, unknown.header("location").is_some()), (202, &json!({"id": ID}), true));
    // It is carried out: a result that cannot be read is no failure of the request.
    server.answers(Answer::Over(Box::new(command(State::Succeeded))));
    *server.desk.result.lock().unwrap() = Err(Fault::new(FaultCode::Throttled, "slow down"));
    let over = ask().await;
    assert_eq!((over.status, &over.body["status"], over.body.get("result")), (202, &json!("succeeded"), None));
}

#[tokio::test]
async fn each_refusal_has_its_status_and_what_passes_says_when() {
    let server = Server::start().await;
    let fault = || Fault::new(FaultCode::Throttled, "arn:aws:secret-table");
    for (refusal, status, code, retry) in [
        (Refusal::Running, 409, "IN_PROGRESS", Some("1")),
        (Refusal::KeyReused, 422, "KEY_REUSED", None),
        (Refusal::TooManyPending, 429, "TOO_MANY_PENDING", Some("1")),
        (Refusal::Stopping, 503, "STOPPING", Some("1")),
        (Refusal::Store(fault()), 503, "STORE_UNAVAILABLE", Some("5")),
    ] {
        server.answers(Answer::Refused(refusal));
        let told = told(Operation::Give, server.give()).await;
        assert_eq!((told.code(), told.header("retry-after")), ((status, code), retry));
        assert!(!told.body.to_string().contains("secret-table"), "callers do not learn where commands are kept");
    }
    for (answer, status, code) in [
        (Answer::Refused(Refusal::Unknown), 404, "NO_COMMAND"),
        (Answer::Refused(Refusal::NotCancelled(Why::OnItsWay)), 409, "ON_ITS_WAY"),
        (Answer::Refused(Refusal::NotCancelled(Why::Ended)), 409, "ENDED"),
        (Answer::Over(Box::new(command(State::Succeeded))), 409, "ENDED"),
        (Answer::Refused(Refusal::Stopping), 503, "STOPPING"),
        (Answer::Refused(Refusal::Store(fault())), 503, "STORE_UNAVAILABLE"),
        (Answer::Running { id: ID, row: None }, 503, "UNDECIDED"),
    ] {
        server.answers(answer);
        assert_eq!(told(Operation::Cancel, server.of_one("delete")).await.code(), (status, code));
    }
    server.answers(Answer::Over(Box::new(command(State::Cancelled))));
    let cancelled = told(Operation::Cancel, server.of_one("delete")).await;
    assert_eq!((cancelled.status, &cancelled.body["status"]), (202, &json!("cancelled")));
}

#[tokio::test]
async fn what_is_read_is_found_unknown_forgotten_or_not_to_be_had() {
    let server = Server::start().await;
    let ask = |row| {
        *server.desk.row.lock().unwrap() = row;
        told(Operation::Read, server.of_one("get"))
    };
    assert_eq!(ask(Ok(None)).await.code(), (404, "NO_COMMAND"));
    assert_eq!(ask(Ok(Some(command(State::Created)))).await.status, 200);
    let failed = ask(Err(Fault::new(FaultCode::Timeout, "late"))).await;
    assert_eq!((failed.code(), failed.header("retry-after")), ((503, "STORE_UNAVAILABLE"), Some("5")));
    let forgotten = command(State::TimedOut).forget_at(LIMITS.retention);
    server.clock.set_wall(UnixMillis(forgotten.0 - 1));
    assert_eq!(ask(Ok(Some(command(State::TimedOut)))).await.status, 200);
    server.clock.set_wall(forgotten);
    assert_eq!(ask(Ok(Some(command(State::TimedOut)))).await.code(), (410, "FORGOTTEN"));
    *server.desk.row.lock().unwrap() = Ok(Some(command(State::Created)));
    server.clock.set_wall(UnixMillis(2_000));
    for id in ["7", "+0000000000000000000000000000007", "%ff", &"0".repeat(33)] {
        for (operation, method) in [(Operation::Read, "get"), (Operation::Cancel, "delete")] {
            let request = server.bare(method, &format!("/v1/commands/{id}")).bearer_auth(TOKEN);
            assert_eq!(told(operation, request).await.code(), (404, "NO_COMMAND"), "{id}");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_no_command_never_reaches_the_desk() {
    let server = Server::start().await;
    let json = |body: String| server.post().header("content-type", "Application/JSON; charset=utf-8").body(body);
    for (body, field) in [
        ("", None),
        ("[]", None),
        ("{\"target\":1,\"payload\":1}", None),
        ("{\"target\":\"p\",\"payload\":1,\"more\":1}", None),
        ("{\"target\":\"a/b\",\"payload\":1}", Some("target")),
        ("{\"target\":\"p\"}", Some("payload")),
        ("{\"target\":\"p\",\"payload_base64\":\"?\"}", Some("payload_base64")),
        ("{\"target\":\"p\",\"payload\":1,\"timeout_ms\":1}", Some("timeout_ms")),
    ] {
        let told = told(Operation::Give, json(body.to_owned())).await;
        assert_eq!((told.code(), told.body["field"].as_str()), ((400, "INVALID_COMMAND"), field), "{body}");
    }
    for (kind, body) in [(None, "{}"), (Some("text/plain"), "{}"), (Some("application/jsonp"), "{}")] {
        let request = server.post().body(body);
        let request = kind.into_iter().fold(request, |request, kind| request.header("content-type", kind));
        assert_eq!(told(Operation::Give, request).await.code(), (415, "MEDIA_TYPE"), "{kind:?}");
    }
    // The payload counts, and the body around it: one that tells its length, and one that does not.
    let text = |length: usize| json!({"target": "p", "payload_text": "x".repeat(length)}).to_string();
    assert_eq!(told(Operation::Give, json(text(1_001))).await.code(), (413, "TOO_LARGE"));
    assert_eq!(told(Operation::Give, json(text(100_000))).await.code(), (413, "TOO_LARGE"));
    let key = |request: RequestBuilder| told(Operation::Give, request);
    let long = "x".repeat(256);
    for wrong in ["", &long, "a\tb"] {
        assert_eq!(key(server.give().header(IDEMPOTENCY_KEY, wrong)).await.code(), (400, "INVALID_KEY"), "{wrong:?}");
    }
    assert_eq!(key(server.give().header(IDEMPOTENCY_KEY, &b"\xff"[..])).await.code(), (400, "INVALID_KEY"));
    assert_eq!(key(server.give().header(IDEMPOTENCY_KEY, "a").header(IDEMPOTENCY_KEY, "a")).await.code(), (400, "INVALID_KEY"));
    assert!(server.orders().is_empty());
    assert_eq!(told(Operation::Give, json(text(1_000))).await.status, 202);
    assert_eq!(key(server.give().header(IDEMPOTENCY_KEY, "x".repeat(255))).await.status, 202);
    assert_eq!(server.orders().len(), 2);
}

#[tokio::test]
async fn a_caller_waits_as_long_as_it_prefers_and_the_configuration_lets_it() {
    let server = Server::start().await;
    for (prefer, patience) in [
        ("wait=3", Some(3)),
        ("respond-async, WAIT=\"4\"", Some(4)),
        ("wait=99999999999999999999", Some(25)),
        ("wait=0", None),
        ("wait=soon", None),
        ("respond-async", None),
    ] {
        let told = told(Operation::Give, server.give().header("prefer", prefer)).await;
        let applied = patience.map(|seconds| format!("wait={seconds}"));
        assert_eq!((told.status, told.header("preference-applied")), (202, applied.as_deref()), "{prefer}");
        assert_eq!(server.orders()[0].patience, patience.map(Duration::from_secs), "{prefer}");
    }
}

#[tokio::test]
async fn who_comes_after_many_that_wait_is_answered_at_once() {
    let server = Arc::new(Server::with(Proxies::default(), Some(Semaphore::new(0))).await);
    let waiting: Vec<_> = (0..MAX_WAITING)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { told(Operation::Give, server.give().header("prefer", "wait=25")).await })
        })
        .collect();
    while server.desk.orders.lock().unwrap().len() < MAX_WAITING {
        tokio::task::yield_now().await;
    }
    let late = told(Operation::Give, server.give().header("prefer", "wait=25")).await;
    assert_eq!((late.status, late.header("preference-applied")), (202, None));
    server.desk.held.as_ref().unwrap().add_permits(MAX_WAITING);
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().header("preference-applied"), Some("wait=25"));
    }
    // Their places are free again.
    server.desk.held.as_ref().unwrap().add_permits(1);
    assert_eq!(told(Operation::Give, server.give().header("prefer", "wait=25")).await.header("preference-applied"), Some("wait=25"));
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_wait_any_more() {
    let server = Server::with(Proxies::default(), Some(Semaphore::new(0))).await;
    let asking = tokio::spawn(server.give().header("prefer", "wait=25").send());
    while server.desk.orders.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    asking.abort();
    // The order's future is dropped, and not because it took too long: that would be after 35 s.
    tokio::time::timeout(Duration::from_secs(25), server.desk.gone.acquire()).await.unwrap().unwrap().forget();
}

/// Everything that is logged, at every level.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_log_has_a_token_a_payload_a_property_or_a_key() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false).with_writer(move || writer.clone()).finish();
    // This test runs on one thread, so everything that it does is logged here.
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start().await;
    let body = json!({"target": "pump-1", "payload": "private-payload", "properties": {"private-name": "private-value"}});
    for answer in
        [accepted(), Answer::Refused(Refusal::KeyReused), Answer::Refused(Refusal::Store(Fault::new(FaultCode::Throttled, "slow down")))]
    {
        server.answers(answer);
        told(Operation::Give, server.post().json(&body).header(IDEMPOTENCY_KEY, "private-key")).await;
    }
    told(Operation::Give, server.post().json(&json!({"target": "private-target/1", "payload_text": "private-payload"}))).await;
    told(Operation::Give, server.bare("post", "/v1/commands").bearer_auth("private-guess").json(&body)).await;
    let order = server.orders().remove(0);
    let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for expected in ["a request about a command was refused", "the store of commands failed", "a wrong token for commands"] {
        assert!(logged.contains(expected), "{logged}");
    }
    for text in [
        logged,
        format!("{order:?}"),
        format!("{:?}", CommandPort::new(server.desk.clone(), Secret::new(TOKEN).into(), Proxies::default(), server.clock.clone())),
    ] {
        assert!(!text.contains("private") && !text.contains(TOKEN), "{text}");
    }
}
