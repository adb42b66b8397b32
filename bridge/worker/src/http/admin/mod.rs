//! The admin interface: what operators do to a running bridge, over its own listener and never without a key.

mod letters;
mod operation;
mod sessions;

pub use operation::Operation;

use super::auth::ApiKey;
use super::origins::{Origins, cross_origin};
use super::serve::client;
use crate::fleet::Fleet;
use crate::ingress::Ingress;
use crate::secrets::Token;
use crate::status::StatusBoard;
use crate::step_down::StepDowns;
use crate::telemetry::logs::AUDIT;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use causeway_core::guesses::Guesses;
use causeway_core::outcome::Fault;
use causeway_core::proxies::Proxies;
use causeway_core::redrive::Routes;
use causeway_duties::redrive::Ports;
use causeway_ports::{Clock, DeadLetters};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// Where every path of the interface begins.
pub const PREFIX: &str = "/api/v1/admin";

/// How long a request may take; a redrive ends before and says where to go on.
pub const REQUEST: Duration = Duration::from_secs(30);
/// When the connection ends that a request came by, answered or not.
pub const CONNECTION_OF_REQUEST: Duration = Duration::from_secs(35);

/// A message of a mebibyte as base64, and what is told about it.
const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;

/// The interface's description, for programs and people.
pub const DOCUMENT: &str = include_str!("openapi.json");

/// A key, and what the log calls whoever uses it.
#[derive(Clone, Debug)]
pub struct NamedKey {
    name: Arc<str>,
    key: ApiKey,
}

impl NamedKey {
    /// Keeps the digest of `key`.
    #[must_use]
    pub fn new(name: &str, key: &str) -> Self {
        Self { name: name.into(), key: ApiKey::new(key) }
    }

    /// A key that may be renewed while the program runs.
    #[must_use]
    pub fn kept(name: &str, token: Token) -> Self {
        Self { name: name.into(), key: ApiKey::of(token) }
    }
}

/// What the interface acts on.
#[derive(Clone)]
pub struct Desk {
    /// What is known of the routes.
    pub routes: Routes,
    /// The dead letters; `None` where the configuration keeps none.
    pub letters: Option<Arc<dyn DeadLetters>>,
    /// What a redrive calls; or why there is none.
    pub redrive: Result<Ports, &'static str>,
    /// The way in for messages.
    pub ingress: Ingress,
    /// Where sessions are asked to hand over.
    pub step_downs: StepDowns,
    /// Counted up to tell the sessions that somebody has seen the notice of a spent budget.
    pub quota_seen: tokio::sync::watch::Sender<u64>,
    /// The status of this process.
    pub status: StatusBoard,
    /// The bridge as a whole.
    pub fleet: Fleet,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

/// The admin interface. Clones share everything.
#[derive(Clone)]
pub struct Admin {
    keys: Arc<[NamedKey]>,
    guesses: Arc<Mutex<Guesses>>,
    origins: Origins,
    proxies: Proxies,
    patience: Duration,
    desk: Arc<Desk>,
}

impl core::fmt::Debug for Admin {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Admin").field("keys", &self.keys).field("origins", &self.origins).finish_non_exhaustive()
    }
}

/// Who asks: the name of the key.
#[derive(Clone, Debug)]
struct Caller(Arc<str>);

/// From where.
#[derive(Clone, Copy, Debug)]
struct ClientAddress(IpAddr);

impl Admin {
    /// For whoever has one of `keys`, from pages of `origins` too.
    #[must_use]
    pub fn new(keys: Vec<NamedKey>, origins: Origins, desk: Desk) -> Self {
        Self { keys: keys.into(), guesses: Arc::default(), origins, proxies: Proxies::default(), patience: REQUEST, desk: Arc::new(desk) }
    }

    /// Behind these proxies.
    #[must_use]
    pub fn behind(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
    }

    /// Every request is answered within this time.
    #[must_use]
    pub fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Its routes: one for every [`Operation`], and no other.
    pub fn router(self) -> Router {
        let patience = self.patience;
        let mut operations = Router::new();
        for operation in Operation::ALL {
            let noted = middleware::from_fn(move |request: Request, next: Next| note(operation, request, next));
            operations = operations.route(operation.path(), handler(operation).layer(noted));
        }
        operations
            .fallback(|| async { refusal(StatusCode::NOT_FOUND, "NO_SUCH_PAGE", "no such page") })
            .layer(middleware::from_fn_with_state(self.clone(), authorize))
            .layer(middleware::from_fn(move |request, next| within(patience, request, next)))
            .layer(middleware::from_fn_with_state(self.origins.clone(), cross_origin))
            .layer(middleware::map_response(harden))
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .with_state(self)
    }
}

fn handler(operation: Operation) -> MethodRouter<Admin> {
    match operation {
        Operation::Document => get(document),
        Operation::Routes => get(sessions::routes),
        Operation::Inject => post(sessions::inject),
        Operation::Letters => get(letters::list),
        Operation::Letter => get(letters::show),
        Operation::Redrive => post(letters::redrive),
        Operation::Delete => post(letters::delete),
        Operation::Sessions => get(sessions::list),
        Operation::StepDown => post(sessions::step_down),
        Operation::QuotaSeen => post(sessions::quota_seen),
    }
}

/// A request that takes too long is answered like any other that is refused: in JSON, and so that the page that made it may read it.
async fn within(patience: Duration, request: Request, next: Next) -> Response {
    tokio::time::timeout(patience, next.run(request)).await.unwrap_or_else(|_| {
        let message = format!("not answered within {} s; what was begun may go on: look before you ask again", patience.as_secs());
        refusal(StatusCode::REQUEST_TIMEOUT, "TOO_LATE", message)
    })
}

async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// Answers are for whoever asked with a key: nothing keeps them, and nothing shows them as anything but data.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Before anything is read: who has no key learns nothing, not even which pages there are. Whoever gave wrong ones too often waits, with a right one too:
/// else the answer would tell which one is right.
async fn authorize(State(admin): State<Admin>, mut request: Request, next: Next) -> Response {
    let address = client(&request, &admin.proxies);
    request.extensions_mut().insert(ClientAddress(address));
    let now = admin.desk.clock.now();
    let shut_out = admin.guesses.lock().unwrap_or_else(PoisonError::into_inner).shut_out(address, now);
    if let Some(left) = shut_out {
        let seconds = left.as_secs().saturating_add(1).to_string();
        let response = refusal(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_FAILURES", "too many wrong keys came from this address");
        return ([(header::RETRY_AFTER, seconds)], response).into_response();
    }
    match caller(&admin.keys, request.headers()) {
        Some(name) => {
            request.extensions_mut().insert(Caller(name));
            next.run(request).await
        }
        None => {
            // No key is no guess.
            if request.headers().contains_key("x-api-key") || request.headers().contains_key(header::AUTHORIZATION) {
                admin.guesses.lock().unwrap_or_else(PoisonError::into_inner).wrong(address, now);
                tracing::warn!(target: AUDIT, action = "auth.failure", %address, "a wrong key for the admin interface");
            }
            refusal(
                StatusCode::UNAUTHORIZED,
                "UNAUTHORIZED",
                "send a key of http.admin_api_key or http.admin_keys as X-API-Key or as a bearer token",
            )
        }
    }
}

/// The name of the key that the request carries. Every key is compared, so that the time tells nothing.
fn caller(keys: &[NamedKey], headers: &HeaderMap) -> Option<Arc<str>> {
    keys.iter().fold(None, |found, named| if named.key.admits(headers) { Some(Arc::clone(&named.name)) } else { found })
}

/// Logs who did what, and how it ended.
async fn note(operation: Operation, request: Request, next: Next) -> Response {
    let address = request.extensions().get::<ClientAddress>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.0);
    let key = request.extensions().get::<Caller>().map(|caller| Arc::clone(&caller.0)).unwrap_or_default();
    let path = request.uri().path().to_owned();
    let mut line = AuditLine { operation, key, path, address, outcome: None };
    let response = next.run(request).await;
    line.outcome = Some(response.status().as_u16());
    response
}

/// Told however the request ends: what it began is done also where nobody waits for the answer any more, or it took too long.
struct AuditLine {
    operation: Operation,
    key: Arc<str>,
    path: String,
    address: IpAddr,
    /// The status; `None` where there was no answer.
    outcome: Option<u16>,
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        let Self { operation, key, path, address, outcome } = self;
        if operation.is_noted() {
            let outcome = outcome.map_or_else(|| "broken off".to_owned(), |status| status.to_string());
            tracing::info!(target: AUDIT, %key, action = operation.action(), path, outcome, %address, "admin interface");
        }
    }
}

/// A refusal for programs and people.
fn refusal(status: StatusCode, code: &str, message: impl Into<String>) -> Response {
    (status, Json(json!({ "error": { "code": code, "message": message.into() } }))).into_response()
}

/// The request makes no sense.
fn invalid(field: &str, message: &str) -> Response {
    let error = json!({ "code": "INVALID_REQUEST", "field": field, "message": message });
    (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response()
}

/// A store that did not do its part.
fn failed(fault: &Fault) -> Response {
    let status = if fault.is_transient() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
    refusal(status, fault.code.as_str(), fault.to_string())
}

/// A JSON body.
fn body<T: DeserializeOwned>(body: &Bytes) -> Result<T, Box<Response>> {
    serde_json::from_slice(body).map_err(|error| Box::new(invalid("body", &error.to_string())))
}

type Desked = Extension<Caller>;

fn ok(body: Value) -> Response {
    Json(body).into_response()
}
