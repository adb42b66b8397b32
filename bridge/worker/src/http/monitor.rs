//! The monitor: liveness, readiness, health, topology, routes, metrics, and the status page.

use super::auth::ApiKey;
use super::origins::{Origins, cross_origin, origin_of};
use super::page;
use super::serve::{Bounds, serve_with};
use crate::drop_ledger::LedgerView;
use crate::fleet::Fleet;
use crate::history::Recorder;
use crate::secrets::Token;
use crate::status::{BridgeStatus, LogPhase, ReadinessLevel, RouteStatus, ServiceLevel, SessionRole, SessionStatus};
use crate::telemetry::collect::Collector;
use crate::telemetry::prometheus;
use crate::telemetry::registry::Sample;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use causeway_core::metrics::Metric;
use causeway_core::metrics::emf::number;
use causeway_core::units::UnixMillis;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Where every path of the monitor's programs' interface begins.
pub const PREFIX: &str = "/api/v1/monitor";

/// What the monitor answers from.
#[derive(Clone, Debug)]
pub struct Monitor {
    collector: Collector,
    topology: Arc<Value>,
    key: Option<ApiKey>,
    fleet: Fleet,
    recorder: Recorder,
    /// Where the admin interface listens, for the page.
    admin_port: Option<u16>,
    origins: Origins,
    ledger: Option<LedgerView>,
}

impl Monitor {
    /// A monitor that answers from `collector`; `topology` is what `/topology` shows besides the status (sessions, routes and stores as
    /// configured, without secrets). With a `key`, the detailed pages ask for it.
    #[must_use]
    pub fn new(collector: Collector, topology: Value, key: Option<&str>) -> Self {
        Self {
            collector,
            topology: Arc::new(topology),
            key: key.map(ApiKey::new),
            fleet: Fleet::default(),
            recorder: Recorder::default(),
            admin_port: None,
            origins: Origins::default(),
            ledger: None,
        }
    }

    /// Shows the bridge as a whole, too.
    #[must_use]
    pub fn with_fleet(self, fleet: Fleet) -> Self {
        Self { fleet, ..self }
    }

    /// Shows the ledger of drops, too.
    #[must_use]
    pub fn with_ledger(self, ledger: Option<LedgerView>) -> Self {
        Self { ledger, ..self }
    }

    /// Lets its page call the admin interface at this port of the same host.
    #[must_use]
    pub fn with_admin_port(self, admin_port: Option<u16>) -> Self {
        Self { admin_port, ..self }
    }

    /// Lets pages of other origins read it.
    #[must_use]
    pub fn with_origins(self, origins: Origins) -> Self {
        Self { origins, ..self }
    }

    /// What it shows of the last hour; somebody has to run it.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The same with a key that may be renewed.
    #[must_use]
    pub fn keyed(self, key: Option<Token>) -> Self {
        Self { key: key.map(ApiKey::of), ..self }
    }

    /// Every route of the monitor.
    pub fn router(self) -> Router {
        let detailed = Router::new()
            .route("/deephealth", get(deep_health))
            .route("/topology", get(topology))
            .route("/routes", get(routes))
            .route("/status", get(status))
            .route("/fleet", get(fleet))
            .route("/history", get(history))
            .route("/drops", get(drops))
            .route_layer(middleware::from_fn_with_state(self.clone(), authorize));
        let open = Router::new().route("/live", get(live)).route("/ready", get(ready)).route("/health", get(health));
        Router::new()
            .nest(PREFIX, open.merge(detailed))
            .route("/metrics", get(metrics))
            .merge(page::routes())
            .fallback(|| async { answer(StatusCode::NOT_FOUND, json!({ "error": "no such page" })) })
            .layer(middleware::from_fn_with_state(self.origins.clone(), cross_origin))
            .layer(middleware::from_fn_with_state(self.clone(), harden))
            .with_state(self)
    }

    /// Serves on `listener` until `stop`.
    pub async fn serve(self, listener: TcpListener, bounds: Bounds, stop: CancellationToken) {
        self.serve_with(listener, None, bounds, stop).await;
    }

    /// The same, with TLS where `tls` is given.
    pub async fn serve_with(self, listener: TcpListener, tls: Option<TlsAcceptor>, bounds: Bounds, stop: CancellationToken) {
        serve_with(listener, tls, self.router(), bounds, stop).await;
    }

    fn now(&self) -> BridgeStatus {
        self.collector.status.snapshot()
    }
}

/// No page runs foreign code, is shown in a frame, or is kept by a cache. It calls nothing but the monitor it came from and, at the same host, the admin
/// interface.
async fn harden(State(monitor): State<Monitor>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).filter(|host| is_host(host)).map(ToOwned::to_owned);
    let mut response = next.run(request).await;
    let admin = monitor.admin_port.zip(host).map(|(port, host)| {
        let [plain, tls] = [false, true].map(|tls| origin_of(&host, port, tls));
        format!("; connect-src 'self' {plain} {tls}")
    });
    let policy = format!("{POLICY}{}", admin.unwrap_or_default());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static(POLICY)));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Whether this is a host and nothing that would write on in the policy.
fn is_host(text: &str) -> bool {
    !text.is_empty() && text.len() <= 255 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
}

async fn authorize(State(monitor): State<Monitor>, request: Request, next: Next) -> Response {
    match &monitor.key {
        Some(key) if !key.admits(request.headers()) => {
            answer(StatusCode::UNAUTHORIZED, json!({ "error": "send http.monitor_api_key as X-API-Key or as a bearer token" }))
        }
        Some(_) | None => next.run(request).await,
    }
}

fn answer(status: StatusCode, body: Value) -> Response {
    (status, Json(body)).into_response()
}

const fn code(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn live(State(monitor): State<Monitor>) -> Response {
    let stalled = monitor.now().stalled;
    let alive = stalled.is_empty();
    answer(code(alive), json!({ "status": if alive { "alive" } else { "terminal" }, "stalled": stalled }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyQuery {
    level: Option<String>,
}

async fn ready(State(monitor): State<Monitor>, Query(query): Query<ReadyQuery>) -> Response {
    let requested = match query.level.as_deref() {
        None => ReadinessLevel::Full,
        Some(name) => match ReadinessLevel::parse(name) {
            Some(level) if level > ReadinessLevel::Down => level,
            Some(_) | None => {
                return answer(StatusCode::BAD_REQUEST, json!({ "error": "level is one of live, running, connected, subscribed, full" }));
            }
        },
    };
    let status = monitor.now();
    let ready = is_ready(&status, requested);
    let word = if ready { "ready" } else { "not_ready" };
    answer(code(ready), json!({ "status": word, "role": status.role, "level": status.readiness, "requested": requested }))
}

fn is_ready(status: &BridgeStatus, requested: ReadinessLevel) -> bool {
    !status.shutting_down && status.readiness >= requested
}

fn health_word(status: &BridgeStatus) -> &'static str {
    let ended = |session: &SessionStatus| matches!(session.log, LogPhase::Fenced | LogPhase::Stopped);
    if status.shutting_down || status.sessions.is_empty() {
        "not_running"
    } else if !status.stalled.is_empty() || status.sessions.iter().any(ended) {
        "unhealthy"
    } else if status.readiness < ReadinessLevel::Connected || status.sessions.iter().any(|session| session.store_failing) {
        "unavailable"
    } else {
        "ok"
    }
}

async fn health(State(monitor): State<Monitor>) -> Response {
    let word = health_word(&monitor.now());
    answer(code(word == "ok"), json!({ "status": word }))
}

async fn deep_health(State(monitor): State<Monitor>) -> Response {
    let status = monitor.now();
    let word = health_word(&status);
    let sessions: Vec<Value> = status.sessions.iter().map(|session| deep_session(session, &status)).collect();
    let body = json!({
        "running": !status.shutting_down && !status.sessions.is_empty(),
        "healthy": word == "ok",
        "status": word,
        "instance_id": status.instance_id,
        "role": status.role,
        "ready_for_traffic": is_ready(&status, ReadinessLevel::Full),
        "empty": status.sessions.is_empty(),
        "service_level": status.service_level,
        "level": status.readiness,
        "stalled": status.stalled,
        "sessions": sessions,
        "routes": route_views(&status),
    });
    answer(code(word == "ok"), body)
}

fn deep_session(session: &SessionStatus, status: &BridgeStatus) -> Value {
    json!({
        "session_id": session.id,
        "connected": session.connected,
        "has_lease": session.role == SessionRole::Owner && session.log != LogPhase::Fenced,
        "epoch": session.epoch,
        "subscriptions_wanted": session.subscriptions_wanted,
        "subscriptions_active": session.subscriptions_active,
        "refused": session.refused,
        "ready": session.service_level >= ServiceLevel::Full && !status.shutting_down,
        "service_level": session.service_level,
        "level": session.readiness,
        "store_failing": session.store_failing,
        "unsettled_count": session.outbox.entries,
        "oldest_unsettled_age_ms": session.outbox.oldest_received_at.map(|at| status.taken_at.since(at).as_millis() as u64),
        "unacknowledged": session.source.unacknowledged,
        "last_fault": session.last_fault,
    })
}

async fn topology(State(monitor): State<Monitor>) -> Response {
    let status = monitor.now();
    let mut body = (*monitor.topology).clone();
    if let Some(object) = body.as_object_mut() {
        object.insert("bridge_id".to_owned(), json!(status.bridge_id));
        object.insert("instance_id".to_owned(), json!(status.instance_id));
        object.insert("role".to_owned(), json!(status.role));
        let leases = status.sessions.iter().filter_map(|session| Some((session.id.clone(), json!(session.lease.as_ref()?))));
        object.insert("leases".to_owned(), Value::Object(leases.collect()));
        object.insert("fleet".to_owned(), json!(status.fleet));
    }
    answer(StatusCode::OK, body)
}

/// A route as it is shown: its account, and whether it is even.
#[derive(Debug, Serialize)]
struct RouteView<'a> {
    #[serde(flatten)]
    account: &'a RouteStatus,
    dead_lettered_total: u64,
    dropped_total: u64,
    filtered_total: u64,
    conservation_imbalance: i64,
}

fn route_views(status: &BridgeStatus) -> Vec<RouteView<'_>> {
    let view = |route| {
        let account: &RouteStatus = route;
        RouteView {
            account,
            dead_lettered_total: account.dead_lettered_total(),
            dropped_total: account.dropped_total(),
            filtered_total: account.filtered_total(),
            conservation_imbalance: account.imbalance(),
        }
    };
    status.routes.iter().map(view).collect()
}

async fn routes(State(monitor): State<Monitor>) -> Response {
    let status = monitor.now();
    Json(json!({ "routes": route_views(&status) })).into_response()
}

/// What the status page polls.
async fn status(State(monitor): State<Monitor>) -> Response {
    let status = monitor.collector.status.snapshot();
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "health": health_word(&status),
        "ready": is_ready(&status, ReadinessLevel::Full),
        "bridge": status,
        "accounts": route_views(&status),
        "admin_port": monitor.admin_port,
        "memory_bytes": crate::telemetry::collect::memory().map(|memory| memory.resident),
    });
    Json(body).into_response()
}

async fn metrics(State(monitor): State<Monitor>) -> Response {
    monitor.collector.collect();
    let text = prometheus::render(&monitor.collector.metrics.gather());
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response()
}

/// The bridge as its lease table told it last; `null` where there is none to look at, or nobody looked yet.
async fn fleet(State(monitor): State<Monitor>) -> Response {
    Json(json!({ "fleet": monitor.fleet.last_seen() })).into_response()
}

/// What was not delivered: the counters of this process, those that are above 0, and the ledger, which tells of every process that writes it.
async fn drops(State(monitor): State<Monitor>) -> Response {
    let families = monitor.collector.metrics.gather();
    let drops = families.iter().find(|family| family.definition.name == Metric::DroppedMessages.definition().name);
    let counted = drops.into_iter().flat_map(|family| {
        family.series.iter().filter_map(|series| {
            let Sample::Value(count) = series.sample else { return None };
            let labels =
                family.definition.labels.iter().map(|label| label.as_str().to_owned()).zip(series.labels.iter().map(|value| json!(value)));
            let mut counted: serde_json::Map<String, Value> = labels.collect();
            counted.insert("count".to_owned(), number(count));
            (count > 0.0).then_some(Value::Object(counted))
        })
    });
    let counters: Vec<Value> = counted.collect();
    let ledger = match &monitor.ledger {
        None => Value::Null,
        Some(view) => match view.read().await {
            Ok(page) => json!({ "rows": page.rows, "complete": page.complete }),
            Err(fault) => json!({ "error": { "code": fault.code.as_str(), "detail": fault.detail } }),
        },
    };
    Json(json!({ "counters": counters, "ledger": ledger })).into_response()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HistoryQuery {
    /// Only what is later than this, in milliseconds since 1970.
    since: u64,
}

/// The last hour.
async fn history(State(monitor): State<Monitor>, Query(query): Query<HistoryQuery>) -> Response {
    Json(monitor.recorder.after(UnixMillis(query.since))).into_response()
}
