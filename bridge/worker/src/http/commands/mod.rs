//! Commands to devices over HTTP: `POST /v1/commands`, and what became of them.
//!
//! What becomes of a command is decided in [`causeway_core::commands`]; here it is asked for and told. No payload, property, key or token stands in a log or in a
//! problem.

mod answer;
mod body;
mod prefer;

use super::auth::ApiKey;
use super::serve::client;
use crate::commands::api::{CommandDesk, Order};
use crate::secrets::Token;
use crate::telemetry::logs::AUDIT;
use answer::Problem;
use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use causeway_core::commands::gateway::Answer;
use causeway_core::commands::{Command, CommandResult, State as CommandState};
use causeway_core::guesses::Guesses;
use causeway_core::identity::Id128;
use causeway_core::outcome::Fault;
use causeway_core::proxies::Proxies;
use causeway_ports::{Clock, MAX_KEY_BYTES};

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use tracing::debug;

/// The caller's name for a command.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Callers that wait for the end of their commands at a time. Each keeps a connection of the port, and members and others need some too: whoever comes after
/// them is answered at once.
pub const MAX_WAITING: usize = 64;
/// What is not known after this time is told to be unknown.
pub const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// So much larger than two of the largest payloads may a body be: what stands around the payload in it.
const BODY_MORE: usize = 64 * 1024;
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The description of the routes, for programs and people.
pub const DOCUMENT: &str = include_str!("openapi.json");

/// One thing that a caller can do: the list that the routes are made from, and that their description is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read the description of the routes.
    Document,
    /// Give a command.
    Give,
    /// Ask what became of one.
    Read,
    /// Take one back.
    Cancel,
}

impl Operation {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Document, Self::Give, Self::Read, Self::Cancel];

    /// Its path.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Document => "/v1/openapi.json",
            Self::Give => "/v1/commands",
            Self::Read | Self::Cancel => "/v1/commands/{id}",
        }
    }

    /// Its method.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Document | Self::Read => "get",
            Self::Give => "post",
            Self::Cancel => "delete",
        }
    }

    /// Its name in the description.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::Document => "openapi",
            Self::Give => "commands.give",
            Self::Read => "commands.read",
            Self::Cancel => "commands.cancel",
        }
    }

    fn handler(self) -> MethodRouter<CommandPort> {
        match self {
            Self::Document => get(|| async { ([(header::CONTENT_TYPE, "application/json")], DOCUMENT) }),
            Self::Give => post(give),
            Self::Read => get(read),
            Self::Cancel => delete(cancel),
        }
    }
}

/// Takes commands of whoever has the token. Clones share everything.
#[derive(Clone)]
pub struct CommandPort(Arc<Port>);

struct Port {
    desk: Arc<dyn CommandDesk>,
    key: ApiKey,
    guesses: Mutex<Guesses>,
    proxies: Proxies,
    clock: Arc<dyn Clock>,
    waiting: Arc<Semaphore>,
}

impl core::fmt::Debug for CommandPort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CommandPort").field("limits", self.0.desk.limits()).finish_non_exhaustive()
    }
}

impl CommandPort {
    /// For whoever shows `token`, behind these proxies.
    #[must_use]
    pub fn new(desk: Arc<dyn CommandDesk>, token: Token, proxies: Proxies, clock: Arc<dyn Clock>) -> Self {
        let (key, waiting) = (ApiKey::of(token), Arc::new(Semaphore::new(MAX_WAITING)));
        Self(Arc::new(Port { desk, key, guesses: Mutex::default(), proxies, clock, waiting }))
    }

    /// Its routes: one for every [`Operation`], and no other.
    pub fn router(self) -> Router {
        let routes =
            Operation::ALL.into_iter().fold(Router::new(), |router, operation| router.route(operation.path(), operation.handler()));
        routes
            .method_not_allowed_fallback(|| async {
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD", "the header Allow says what can be done here")
            })
            .route_layer(middleware::from_fn_with_state(self.clone(), authorize))
            .route_layer(middleware::map_response(harden))
            .with_state(self)
    }
}

impl Port {
    fn guesses(&self) -> MutexGuard<'_, Guesses> {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer that ended a command, where one did.
    async fn result(&self, command: &Command) -> Result<Option<CommandResult>, Problem> {
        if command.answer.is_none() {
            return Ok(None);
        }
        in_time(self.desk.result(command.id)).await
    }

    /// A command that is over, as it is told.
    async fn over(&self, command: &Command) -> Result<Response, Problem> {
        Ok(answer::command(StatusCode::OK, command, self.result(command).await?.as_ref()))
    }
}

/// What the store says, if it does so in time.
async fn in_time<T>(call: impl Future<Output = Result<T, Fault>>) -> Result<T, Problem> {
    match tokio::time::timeout(STORE_PATIENCE, call).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(fault)) => Err(Problem::store(&fault)),
        Err(_) => Err(Problem::undecided()),
    }
}

/// Before anything is read: who has no token learns nothing. Whoever gave wrong ones too often waits, with a right one too: else the answer would tell which one
/// is right. That is so only where proxies are known: without them many callers may share an address.
async fn authorize(State(CommandPort(port)): State<CommandPort>, request: Request, next: Next) -> Response {
    let (address, now) = (client(&request, &port.proxies), port.clock.now());
    let counts = !port.proxies.is_empty();
    let shut_out = port.guesses().shut_out(address, now).filter(|_| counts);
    if let Some(left) = shut_out {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_FAILURES", "too many wrong tokens came from this address");
        return problem.passing(left).into_response();
    }
    if port.key.admits(request.headers()) {
        return next.run(request).await;
    }
    // No token is no guess.
    if request.headers().contains_key("x-api-key") || request.headers().contains_key(header::AUTHORIZATION) {
        if counts {
            port.guesses().wrong(address, now);
        }
        tracing::warn!(target: AUDIT, action = "auth.failure", %address, "a wrong token for commands");
    }
    Problem::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "send commands.token as a bearer token or as X-API-Key").into_response()
}

/// Answers are for whoever asked with the token: nothing keeps them, and nothing shows them as anything but data.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn told(result: Result<Response, Problem>) -> Response {
    result.unwrap_or_else(|problem| {
        debug!(code = problem.code(), "a request about a command was refused");
        problem.into_response()
    })
}

async fn give(State(CommandPort(port)): State<CommandPort>, request: Request) -> Response {
    told(carry_out(&port, request).await)
}

async fn carry_out(port: &Port, request: Request) -> Result<Response, Problem> {
    let limits = port.desk.limits();
    let (headers, body) = receive(request, limits.max_request_bytes.saturating_mul(2).saturating_add(BODY_MORE)).await?;
    let key = key_of(&headers)?;
    let order = body::parse(&body, limits).map_err(|error| {
        let (status, code) = match error {
            body::BodyError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE"),
            _ => (StatusCode::BAD_REQUEST, "INVALID_COMMAND"),
        };
        Problem::new(status, code, error.to_string()).of(error.field())
    })?;
    // A wait of no time is none.
    let patience = prefer::wait(&headers).filter(|wait| !wait.is_zero()).map(|wait| wait.min(limits.sync_wait_max));
    let place = patience.and_then(|_| Arc::clone(&port.waiting).try_acquire_owned().ok());
    let patience = patience.filter(|_| place.is_some());
    let order = Order { key, patience, ..order };
    let answer = tokio::time::timeout(patience.unwrap_or_default() + STORE_PATIENCE, port.desk.give(order)).await;
    drop(place);
    let mut response = match answer.map_err(|_| Problem::undecided())? {
        Answer::Accepted(row) => answer::accepted(row.id, Some(&row)),
        Answer::Running { id, row: Some(row) } => answer::accepted(id, Some(&row)),
        // It is recorded: that its row cannot be read just now changes nothing about it.
        Answer::Running { id, row: None } => answer::accepted(id, in_time(port.desk.read(id)).await.ok().flatten().as_ref()),
        Answer::Over(row) => match port.over(&row).await {
            Ok(response) => response,
            // The same: its end is told, and the result is asked for.
            Err(_) => answer::accepted(row.id, Some(&row)),
        },
        Answer::Refused(refusal) => return Err(Problem::refused(&refusal)),
    };
    if let Some(wait) = patience.and_then(|patience| HeaderValue::try_from(format!("wait={}", patience.as_secs())).ok()) {
        response.headers_mut().insert(PREFERENCE_APPLIED, wait);
    }
    Ok(response)
}

/// The headers and the whole body.
async fn receive(request: Request, limit: usize) -> Result<(HeaderMap, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "MEDIA_TYPE",
            "post `application/json`: an object with `target` and a payload",
        ));
    }
    let too_large = || Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", format!("the body is larger than {limit} bytes"));
    let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    // Too long, or cut off; who cut it off does not read the answer.
    to_bytes(body, limit).await.map(|body| (parts.headers, body)).map_err(|_| too_large())
}

/// The caller's name for the command.
fn key_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let printable = |key: &&str| (1..=MAX_KEY_BYTES).contains(&key.len()) && key.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    match key.to_str().ok().filter(printable) {
        Some(key) if keys.next().is_none() => Ok(Some(key.to_owned())),
        _ => {
            let detail = format!("give Idempotency-Key once: 1 to {MAX_KEY_BYTES} printable ASCII characters");
            Err(Problem::new(StatusCode::BAD_REQUEST, "INVALID_KEY", detail))
        }
    }
}

/// The id of a path: what is none is the id of no command.
fn id_of(path: Result<Path<String>, PathRejection>) -> Result<Id128, Problem> {
    let Path(id) = path.map_err(|_| Problem::unknown())?;
    let id = Some(id).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    id.and_then(|id| id.parse().ok()).ok_or_else(Problem::unknown)
}

async fn read(State(CommandPort(port)): State<CommandPort>, path: Result<Path<String>, PathRejection>) -> Response {
    told(look_up(&port, path).await)
}

async fn look_up(port: &Port, path: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let command = in_time(port.desk.read(id_of(path)?)).await?.ok_or_else(Problem::unknown)?;
    if command.forget_at(port.desk.limits().retention) <= port.clock.wall() {
        return Err(Problem::new(StatusCode::GONE, "FORGOTTEN", "the command is older than commands.retention"));
    }
    port.over(&command).await
}

async fn cancel(State(CommandPort(port)): State<CommandPort>, path: Result<Path<String>, PathRejection>) -> Response {
    told(take_back(&port, path).await)
}

async fn take_back(port: &Port, path: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let asked = tokio::time::timeout(STORE_PATIENCE, port.desk.cancel(id_of(path)?)).await;
    match asked.map_err(|_| Problem::undecided())? {
        Answer::Over(row) if row.state == CommandState::Cancelled => Ok(answer::command(StatusCode::ACCEPTED, &row, None)),
        Answer::Over(_) => Err(Problem::new(StatusCode::CONFLICT, "ENDED", "the command came to an end before")),
        Answer::Accepted(_) | Answer::Running { .. } => Err(Problem::undecided()),
        Answer::Refused(refusal) => Err(Problem::refused(&refusal)),
    }
}
