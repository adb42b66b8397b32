//! A proxy in front of an AWS service that injects faults: refuse before the call, lose the answer after it, delay, hang, or take single
//! entries out of a batch. It also counts calls by operation, as an independent witness.

mod capacity;

pub use capacity::WriteUnits;

use crate::random::Random;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use capacity::Capacity;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, TRANSFER_ENCODING};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The environment variable that names a worker to the services it calls.
pub const CALLER: &str = "AWS_SDK_UA_APP_ID";

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with an AWS error and never reaches the service.
    FailBefore {
        /// The HTTP status.
        status: u16,
        /// The error's code, as `__type`; empty for an answer that is no AWS error at all.
        code: String,
    },
    /// The connection is closed without an answer, and the call never reaches the service.
    ResetBefore,
    /// It reaches the service, and the connection is closed without an answer: the caller cannot know.
    DropAnswer,
    /// It waits this long, then goes its way.
    Delay(Duration),
    /// It waits for some time between these two, another one for each call.
    DelayBetween(Duration, Duration),
    /// It goes its way, and its answer waits this long.
    DelayAnswer(Duration),
    /// It gets no answer until the proxy is healed, then its connection is closed.
    Hang,
    /// The first entries of a batch are refused with this code, and the others reach the service.
    RefuseEntries {
        /// How many.
        count: usize,
        /// The error's code.
        code: String,
        /// Whether it is the sender's fault, which means that trying again is in vain.
        sender_fault: bool,
    },
}

/// Which calls a fault hits.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The operation, for example `SendMessageBatch`. `None`: every one.
    pub operation: Option<String>,
    /// Whose calls, by [`CALLER`]. `None`: everybody's.
    pub caller: Option<String>,
    /// What the call's body has to contain, for example a key.
    pub containing: Option<String>,
    /// What happens.
    pub fault: Fault,
    /// How many calls it hits. `None`: every one until healed.
    pub times: Option<u32>,
    /// How many calls of a hundred it hits, drawn from [`Proxy::seed`].
    pub percent: u8,
}

impl Rule {
    /// Hits the next `times` calls of an operation.
    #[must_use]
    pub fn next(operation: &str, times: u32, fault: Fault) -> Self {
        Self { operation: Some(operation.to_owned()), times: Some(times), ..Self::always(fault) }
    }

    /// Hits every call of every operation, until healed.
    #[must_use]
    pub fn always(fault: Fault) -> Self {
        Self { operation: None, caller: None, containing: None, fault, times: None, percent: 100 }
    }

    /// The same for calls of one operation only.
    #[must_use]
    pub fn of(self, operation: &str) -> Self {
        Self { operation: Some(operation.to_owned()), ..self }
    }

    /// The same for calls of one caller only.
    #[must_use]
    pub fn by(self, caller: &str) -> Self {
        Self { caller: Some(caller.to_owned()), ..self }
    }

    /// The same for calls only whose body contains this.
    #[must_use]
    pub fn containing(self, text: &str) -> Self {
        Self { containing: Some(text.to_owned()), ..self }
    }

    /// The same for so many calls of a hundred.
    #[must_use]
    pub fn percent(self, percent: u8) -> Self {
        Self { percent, ..self }
    }

    fn matches(&self, operation: &str, caller: Option<&str>, body: &[u8]) -> bool {
        let contains = |text: &String| body.windows(text.len().max(1)).any(|window| window == text.as_bytes());
        self.operation.as_deref().is_none_or(|wanted| wanted == operation)
            && self.caller.as_deref().is_none_or(|wanted| Some(wanted) == caller)
            && self.containing.as_ref().is_none_or(contains)
    }
}

#[derive(Debug)]
struct Shared {
    upstream: String,
    client: reqwest::Client,
    rules: Mutex<Vec<Rule>>,
    calls: Mutex<BTreeMap<String, u64>>,
    callers: Mutex<BTreeMap<(String, String), u64>>,
    random: Mutex<Random>,
    injected: Mutex<Vec<Instant>>,
    capacity: Mutex<Option<Capacity>>,
    refused: Mutex<BTreeMap<String, u64>>,
    healed: watch::Sender<u64>,
}

/// A running proxy. It stops when dropped.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: Ipv4Addr,
    port: u16,
    accept: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Starts one on a free port in front of `upstream`, for example `http://127.0.0.1:4566`.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(upstream: &str) -> Result<Self> {
        Self::start_on(Ipv4Addr::LOCALHOST, upstream).await
    }

    /// The same on another address than loopback.
    ///
    /// # Errors
    /// No port is free there.
    pub async fn start_on(address: Ipv4Addr, upstream: &str) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).await.context("the proxy finds no port")?;
        let port = listener.local_addr()?.port();
        let client = reqwest::Client::builder().no_proxy().build()?;
        let shared = Arc::new(Shared {
            upstream: upstream.trim_end_matches('/').to_owned(),
            client,
            rules: Mutex::default(),
            calls: Mutex::default(),
            callers: Mutex::default(),
            random: Mutex::new(Random::new(0)),
            injected: Mutex::default(),
            capacity: Mutex::default(),
            refused: Mutex::default(),
            healed: watch::Sender::new(0),
        });
        let accept = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { shared, address, port, accept })
    }

    /// Its address, to be used in place of the upstream's.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}:{}", self.address, self.port)
    }

    /// The port it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What [`Rule::percent`] and [`Fault::DelayBetween`] are drawn from.
    pub fn seed(&self, seed: u64) {
        *lock(&self.shared.random) = Random::new(seed);
    }

    /// Adds a rule. The first one that matches a call counts.
    pub fn inject(&self, rule: Rule) {
        lock(&self.shared.rules).push(rule);
    }

    /// Puts a rule in the place of all others, without a moment in between that has none.
    pub fn supersede(&self, rule: Rule) {
        *lock(&self.shared.rules) = vec![rule];
    }

    /// Takes all rules away and ends what hangs.
    pub fn heal(&self) {
        lock(&self.shared.rules).clear();
        self.shared.healed.send_modify(|count| *count += 1);
    }

    /// How many calls of this operation came in, whatever became of them.
    #[must_use]
    pub fn calls(&self, operation: &str) -> u64 {
        lock(&self.shared.calls).get(operation).copied().unwrap_or_default()
    }

    /// How many calls of this operation came from a worker, by its name.
    #[must_use]
    pub fn calls_of(&self, caller: &str, operation: &str) -> u64 {
        lock(&self.shared.callers).get(&(caller.to_owned(), operation.to_owned())).copied().unwrap_or_default()
    }

    /// How many calls came in that write, whatever became of them.
    #[must_use]
    pub fn writes(&self) -> u64 {
        ["PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"].iter().map(|operation| self.calls(operation)).sum()
    }

    /// How many calls the service itself refused with this error, for example `ConditionalCheckFailedException`.
    #[must_use]
    pub fn refused(&self, code: &str) -> u64 {
        lock(&self.shared.refused).get(code).copied().unwrap_or_default()
    }

    /// How many calls the service itself refused, with whatever error.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        lock(&self.shared.refused).values().sum()
    }

    /// How many calls a fault hit.
    #[must_use]
    pub fn injected(&self) -> u64 {
        lock(&self.shared.injected).len() as u64
    }

    /// When faults hit calls, in order.
    #[must_use]
    pub fn injected_at(&self) -> Vec<Instant> {
        lock(&self.shared.injected).clone()
    }

    /// From here on each partition key of DynamoDB lets so many write units through in a second, and refuses what is above that, as the service does.
    pub fn limit_writes(&self, units_a_second: u32) {
        *lock(&self.shared.capacity) = Some(Capacity::new(units_a_second));
    }

    /// What [`Self::limit_writes`] saw since.
    #[must_use]
    pub fn write_units(&self) -> WriteUnits {
        lock(&self.shared.capacity).as_ref().map(Capacity::used).unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // The connections belong to this task: they end with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(|request| handle(Arc::clone(&shared), request));
    // An error of the service closes the connection without an answer, which is what some faults are.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Closes the connection without an answer.
fn hang_up<T>() -> Result<T, std::io::Error> {
    Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let operation = operation(&request);
    *lock(&shared.calls).entry(operation.clone()).or_default() += 1;
    let caller = caller(&request);
    if let Some(caller) = caller.clone() {
        *lock(&shared.callers).entry((caller, operation.clone())).or_default() += 1;
    }
    let mut healed = shared.healed.subscribe();
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return hang_up();
    };
    let fault = shared.fault_for(&operation, caller.as_deref(), &body);
    if fault.is_none() && lock(&shared.capacity).as_mut().is_some_and(|capacity| !capacity.admits(&operation, &body, Instant::now())) {
        return Ok(refusal(400, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"));
    }
    match fault {
        None => shared.forward(&parts, body).await,
        Some(Fault::FailBefore { status, code }) => Ok(refusal(status, &code)),
        Some(Fault::ResetBefore) => hang_up(),
        Some(Fault::DropAnswer) => {
            let _ = shared.forward(&parts, body).await;
            hang_up()
        }
        Some(Fault::Delay(delay)) => {
            tokio::time::sleep(delay).await;
            shared.forward(&parts, body).await
        }
        Some(Fault::DelayBetween(least, most)) => {
            let share = lock(&shared.random).share();
            tokio::time::sleep(least + most.saturating_sub(least).mul_f64(share)).await;
            shared.forward(&parts, body).await
        }
        Some(Fault::DelayAnswer(delay)) => {
            let answer = shared.forward(&parts, body).await;
            tokio::time::sleep(delay).await;
            answer
        }
        Some(Fault::Hang) => {
            let _ = healed.changed().await;
            hang_up()
        }
        Some(Fault::RefuseEntries { count, code, sender_fault }) => shared.forward_some(&parts, &body, count, &code, sender_fault).await,
    }
}

/// The operation that an AWS request names, or its path.
fn operation(request: &Request<Incoming>) -> String {
    let target = request.headers().get("x-amz-target").and_then(|value| value.to_str().ok());
    target.map_or_else(|| request.uri().path().to_owned(), |target| target.rsplit('.').next().unwrap_or(target).to_owned())
}

/// The worker that calls: it has its name in [`CALLER`], and the SDK puts that into the header.
fn caller(request: &Request<Incoming>) -> Option<String> {
    let mut agents = ["x-amz-user-agent", "user-agent"].into_iter().filter_map(|name| request.headers().get(name)?.to_str().ok());
    agents.find_map(|agent| agent.split(' ').find_map(|part| part.strip_prefix("app/"))).map(str::to_owned)
}

/// The error that an answer names, without its namespace; empty where it names none.
fn error_code(body: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let name = body["__type"].as_str().unwrap_or_default();
    name.rsplit('#').next().unwrap_or(name).to_owned()
}

fn refusal(status: u16, code: &str) -> Response<Full<Bytes>> {
    let body = if code.is_empty() {
        Bytes::from_static(b"<html><body>Service Unavailable</body></html>")
    } else {
        Bytes::from(serde_json::json!({ "__type": code, "message": "injected by the fault proxy" }).to_string())
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if code.is_empty() { "text/html" } else { "application/x-amz-json-1.0" };
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

impl Shared {
    fn fault_for(&self, operation: &str, caller: Option<&str>, body: &[u8]) -> Option<Fault> {
        let mut rules = lock(&self.rules);
        let position = rules.iter().position(|rule| rule.matches(operation, caller, body))?;
        if rules[position].percent < 100 && lock(&self.random).below(100) >= u64::from(rules[position].percent) {
            return None;
        }
        lock(&self.injected).push(Instant::now());
        let rule = &mut rules[position];
        let fault = rule.fault.clone();
        if let Some(times) = &mut rule.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                rules.remove(position);
            }
        }
        Some(fault)
    }

    async fn forward(&self, parts: &hyper::http::request::Parts, body: Bytes) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let path = parts.uri.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str);
        let mut request = self.client.request(parts.method.clone(), format!("{}{path}", self.upstream)).body(body);
        for (name, value) in parts.headers.iter().filter(|(name, _)| !is_hop(name)) {
            request = request.header(name, value);
        }
        let Ok(answer) = request.send().await else {
            return hang_up();
        };
        let (status, headers) = (answer.status(), answer.headers().clone());
        let Ok(body) = answer.bytes().await else {
            return hang_up();
        };
        if status.is_client_error() {
            *lock(&self.refused).entry(error_code(&body)).or_default() += 1;
        }
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        for (name, value) in headers.iter().filter(|(name, _)| !is_hop(name)) {
            response.headers_mut().append(name, value.clone());
        }
        Ok(response)
    }

    /// Forwards a batch without its first `count` entries and adds those to the answer as failed.
    async fn forward_some(
        &self,
        parts: &hyper::http::request::Parts,
        body: &Bytes,
        count: usize,
        code: &str,
        sender_fault: bool,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let mut request: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(entries) = request["Entries"].as_array_mut() else {
            return self.forward(parts, body.clone()).await;
        };
        let refused: Vec<serde_json::Value> = entries.drain(..count.min(entries.len())).collect();
        let failed = refused.iter().map(|entry| {
            serde_json::json!({ "Id": entry["Id"], "Code": code, "SenderFault": sender_fault, "Message": "injected by the fault proxy" })
        });
        let failed: Vec<serde_json::Value> = failed.collect();
        if entries.is_empty() {
            return Ok(json_answer(&serde_json::json!({ "Successful": [], "Failed": failed })));
        }
        let answer = self.forward(parts, Bytes::from(request.to_string())).await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let bytes = answer.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let mut answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match answer["Failed"].as_array_mut() {
            Some(present) => present.extend(failed),
            None => answer["Failed"] = failed.into(),
        }
        Ok(json_answer(&answer))
    }
}

fn json_answer(value: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/x-amz-json-1.0"));
    response
}

/// Headers that belong to one connection, not to the message.
fn is_hop(name: &HeaderName) -> bool {
    [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, hyper::header::CONNECTION].contains(name)
}
