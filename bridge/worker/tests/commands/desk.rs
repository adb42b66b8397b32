//! A desk that answers what each test has it answer, behind a real listener.

use async_trait::async_trait;
use causeway_core::commands::gateway::Answer;
use causeway_core::commands::{Command, CommandResult, State};
use causeway_core::config::Secret;
use causeway_core::identity::Id128;
use causeway_core::outcome::Fault;
use causeway_core::proxies::Proxies;
use causeway_core::units::UnixMillis;
use causeway_ports::fake::FakeClock;
use causeway_worker::commands::api::{CommandDesk, CommandLimits, Order};
use causeway_worker::http::commands::{CommandPort, DOCUMENT, MAX_WAITING, Operation};
use causeway_worker::http::serve::Bounds;
use causeway_worker::http::transport::Transport;
use core::time::Duration;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

pub const TOKEN: &str = "a token of some length";
pub const ID: Id128 = Id128(7);
pub const LIMITS: CommandLimits = CommandLimits {
    max_request_bytes: 1_000,
    sync_wait_max: Duration::from_secs(25),
    default_timeout: Duration::from_secs(10),
    min_timeout: Duration::from_millis(100),
    max_timeout: Duration::from_secs(43_200),
    retention: Duration::from_secs(604_800),
};

/// Answers what it was told to, and remembers what it was asked.
pub struct Desk {
    pub answer: Mutex<Answer>,
    pub row: Mutex<Result<Option<Command>, Fault>>,
    pub result: Mutex<Result<Option<CommandResult>, Fault>>,
    pub orders: Mutex<Vec<Order>>,
    /// Orders of callers that wait are held until there is a permit.
    pub held: Option<Semaphore>,
    pub gone: Arc<Semaphore>,
}

/// Tells when it is dropped before its time.
struct Held(Arc<Semaphore>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

#[async_trait]
impl CommandDesk for Desk {
    async fn give(&self, order: Order) -> Answer {
        let waits = order.patience.is_some();
        self.orders.lock().unwrap().push(order);
        if let Some(held) = self.held.as_ref().filter(|_| waits) {
            let _held = Held(Arc::clone(&self.gone));
            held.acquire().await.unwrap().forget();
        }
        self.answer.lock().unwrap().clone()
    }

    async fn cancel(&self, _: Id128) -> Answer {
        self.answer.lock().unwrap().clone()
    }

    async fn read(&self, _: Id128) -> Result<Option<Command>, Fault> {
        self.row.lock().unwrap().clone()
    }

    async fn result(&self, _: Id128) -> Result<Option<CommandResult>, Fault> {
        self.result.lock().unwrap().clone()
    }

    fn limits(&self) -> &CommandLimits {
        &LIMITS
    }
}

pub struct Server {
    pub desk: Arc<Desk>,
    pub clock: Arc<FakeClock>,
    pub url: String,
    pub client: Client,
    _stop: DropGuard,
}

pub fn command(state: State) -> Command {
    let command = Command::new(ID, "pump-1", "worker-1", UnixMillis(1_000), Duration::from_secs(10));
    let is_answered = matches!(state, State::Succeeded | State::Failed | State::Rejected);
    Command { state, answer: is_answered.then_some([1; 32]), ..command }
}

pub fn accepted() -> Answer {
    Answer::Accepted(Box::new(command(State::Created)))
}

impl Server {
    pub async fn start() -> Self {
        Self::with(Proxies::default(), None).await
    }

    pub async fn with(proxies: Proxies, held: Option<Semaphore>) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let desk = Arc::new(Desk {
            answer: Mutex::new(accepted()),
            row: Mutex::new(Ok(None)),
            result: Mutex::new(Ok(None)),
            orders: Mutex::default(),
            held,
            gone: Arc::new(Semaphore::new(0)),
        });
        let (clock, stop) = (Arc::new(FakeClock::new()), CancellationToken::new());
        clock.set_wall(UnixMillis(2_000));
        let port = CommandPort::new(Arc::clone(&desk) as Arc<dyn CommandDesk>, Secret::new(TOKEN).into(), proxies, Arc::clone(&clock) as _);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bounds = Bounds { connections: MAX_WAITING + 8, ..Bounds::of_posts().for_requests_of(Duration::from_secs(600)) };
        tokio::spawn(Transport::default().with_commands(port).serve(listener, bounds, stop.clone()));
        Self { desk, clock, url, client: Client::builder().no_proxy().build().unwrap(), _stop: stop.drop_guard() }
    }

    pub fn bare(&self, method: &str, path: &str) -> RequestBuilder {
        self.client.request(method.to_uppercase().parse().unwrap(), format!("{}{path}", self.url))
    }

    pub fn post(&self) -> RequestBuilder {
        self.bare("post", "/v1/commands").bearer_auth(TOKEN)
    }

    pub fn give(&self) -> RequestBuilder {
        self.post().json(&json!({"target": "pump-1", "payload": {"speed": 3}}))
    }

    pub fn of_one(&self, method: &str) -> RequestBuilder {
        self.bare(method, &format!("/v1/commands/{ID}")).bearer_auth(TOKEN)
    }

    pub fn answers(&self, answer: Answer) {
        *self.desk.answer.lock().unwrap() = answer;
    }

    pub fn orders(&self) -> Vec<Order> {
        core::mem::take(&mut *self.desk.orders.lock().unwrap())
    }
}

pub struct Told {
    pub status: u16,
    pub body: Value,
    pub headers: reqwest::header::HeaderMap,
}

impl Told {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn code(&self) -> (u16, &str) {
        (self.status, self.body["code"].as_str().unwrap())
    }
}

/// What is answered, held against the description.
pub async fn told(operation: Operation, request: RequestBuilder) -> Told {
    let response: Response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body: Value = response.json().await.unwrap();
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let described = &document["paths"][operation.path()][operation.method()]["responses"][status.to_string()];
    let kind = headers["content-type"].to_str().unwrap();
    let mut schema = described["content"][kind]["schema"].clone();
    assert!(schema.is_object(), "{operation:?}: {status} {kind} is not described");
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = validator.iter_errors(&body).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{operation:?} {status}: {wrong:?}\n{body}");
    for name in ["retry-after", "location", "preference-applied", "www-authenticate"] {
        let is_described = described["headers"].as_object().is_some_and(|known| known.keys().any(|known| known.eq_ignore_ascii_case(name)));
        assert!(is_described || !headers.contains_key(name), "{operation:?} {status}: {name} is not described");
    }
    assert_eq!(headers["cache-control"], "no-store");
    Told { status, body, headers }
}
