//! Sessions and routes: list, put a message in, hand over.

use super::{Admin, body, failed, invalid, ok, refusal};
use crate::ingress::Refused;
use crate::status::{BridgeStatus, RouteStatus, SessionRole, SessionStatus};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_core::dispatch::is_topic;
use causeway_core::message::{Message, Properties};
use causeway_core::outcome::FaultCode;
use serde::Deserialize;
use serde_json::{Value, json};

/// Bytes of a payload.
const MAX_PAYLOAD: usize = 1024 * 1024;
/// Characters of what the sender calls a message.
const MAX_NAME: usize = 128;

pub(super) async fn routes(State(admin): State<Admin>) -> Response {
    let status = admin.desk.status.snapshot();
    let view = |route: &RouteStatus| {
        let facts = admin.desk.routes.route(&route.id);
        json!({
            "route_id": route.id,
            "session_id": route.session,
            "outbox": facts.is_some_and(|facts| facts.outbox),
            "bindings": facts.map(|facts| facts.bindings.iter().map(|binding| &binding.destination.binding).collect::<Vec<_>>()),
            "received": route.received,
            "delivered": route.delivered,
            "dead_lettered": route.dead_lettered_total(),
            "dropped": route.dropped_total(),
            "in_outbox": route.in_outbox,
            "in_flight": route.in_flight,
            "conservation_imbalance": route.imbalance(),
        })
    };
    ok(json!({ "routes": status.routes.iter().map(view).collect::<Vec<_>>() }))
}

/// A message, as an operator writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    topic: String,
    payload: Option<String>,
    payload_base64: Option<String>,
    content_type: Option<String>,
    expiry_seconds: Option<u32>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    id: Option<String>,
}

impl Written {
    fn message(self) -> Result<Message, (&'static str, &'static str)> {
        let payload = match (self.payload, self.payload_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(base64)) => STANDARD.decode(base64).map_err(|_| ("payload_base64", "base64 with padding is expected"))?,
            (None, None) => return Err(("payload", "`payload` or `payload_base64` is missing")),
            (Some(_), Some(_)) => return Err(("payload", "`payload` or `payload_base64` is expected, not both")),
        };
        if payload.len() > MAX_PAYLOAD {
            return Err(("payload", "1 MiB at most"));
        }
        if !is_topic(&self.topic) {
            return Err(("topic", "a topic without wildcards is expected"));
        }
        if self.id.as_ref().is_some_and(|id| id.is_empty() || id.chars().count() > MAX_NAME) {
            return Err(("id", "1 to 128 characters are expected"));
        }
        Ok(Message {
            topic: self.topic,
            payload: payload.into(),
            qos: 1,
            retain: false,
            properties: Properties {
                content_type: self.content_type,
                expiry_seconds: self.expiry_seconds,
                user: self.headers,
                ..Properties::default()
            },
        })
    }
}

pub(super) async fn inject(State(admin): State<Admin>, Path(route): Path<String>, bytes: Bytes) -> Response {
    let written: Written = match body(&bytes) {
        Ok(written) => written,
        Err(response) => return *response,
    };
    let name = written.id.clone();
    let message = match written.message() {
        Ok(message) => message,
        Err((field, wrong)) => return invalid(field, wrong),
    };
    match admin.desk.ingress.take(&route, &message, name.as_deref()).await {
        Ok(accepted) if accepted.entries.is_empty() => ok(json!({ "status": "filtered", "ids": [] })),
        Ok(accepted) => (StatusCode::ACCEPTED, Json(json!({ "status": "accepted", "ids": accepted.entries }))).into_response(),
        Err(refused) => match &refused {
            Refused::UnknownRoute(_) => refusal(StatusCode::NOT_FOUND, "UNKNOWN_ROUTE", refused.to_string()),
            Refused::NoOutbox(_) => refusal(StatusCode::CONFLICT, "ROUTE_WITHOUT_OUTBOX", refused.to_string()),
            Refused::Store(fault) if fault.code == FaultCode::PayloadTooLarge => {
                refusal(StatusCode::PAYLOAD_TOO_LARGE, fault.code.as_str(), refused.to_string())
            }
            Refused::Store(fault) => failed(fault),
        },
    }
}

pub(super) async fn list(State(admin): State<Admin>) -> Response {
    let (status, fleet) = (admin.desk.status.snapshot(), admin.desk.fleet.last_seen());
    let sessions: Vec<Value> = status.sessions.iter().map(|session| view(session, &status, &fleet)).collect();
    ok(json!({ "instance_id": status.instance_id, "sessions": sessions, "fleet": fleet }))
}

fn view(session: &SessionStatus, status: &BridgeStatus, fleet: &Value) -> Value {
    let owned = session.role == SessionRole::Owner;
    json!({
        "session_id": session.id,
        "role": session.role,
        "owner": if owned { Some(status.instance_id.clone()) } else { owner(fleet, &session.id) },
        "epoch": session.epoch,
        "service_level": session.service_level,
        "level": session.readiness,
        "log": session.log,
        "connected": session.connected,
        "can_step_down": owned && session.lease.is_some(),
        "lease_margin_ms": session.lease.as_ref().and_then(|lease| lease.margin_ms),
        "in_outbox": session.outbox.entries,
    })
}

/// Who held the session's lease when somebody looked last.
fn owner(fleet: &Value, session: &str) -> Option<String> {
    let key = format!("LEASE#{session}");
    let lease = fleet["leases"].as_array()?.iter().find(|lease| lease["lease"] == key.as_str())?;
    lease["owner"].as_str().filter(|owner| !owner.is_empty()).map(ToOwned::to_owned)
}

pub(super) async fn step_down(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    let status = admin.desk.status.snapshot();
    let Some(session) = status.sessions.iter().find(|session| session.id == id) else {
        return refusal(StatusCode::NOT_FOUND, "UNKNOWN_SESSION", format!("this process has no session `{id}`"));
    };
    if session.role != SessionRole::Owner {
        let owner = owner(&admin.desk.fleet.last_seen(), &id).map(|owner| format!(": ask {owner}")).unwrap_or_default();
        return refusal(StatusCode::CONFLICT, "NOT_OWNED_HERE", format!("this process does not own the session{owner}"));
    }
    if !admin.desk.step_downs.ask(&id) {
        return refusal(StatusCode::CONFLICT, "NOT_SHARED", "no other process could own this session: it is not exclusive");
    }
    (StatusCode::ACCEPTED, Json(json!({ "status": "stepping_down", "session_id": id }))).into_response()
}

/// Of the sessions of this process: each has a notice of its own.
pub(super) async fn quota_seen(State(admin): State<Admin>) -> Response {
    let status = admin.desk.status.snapshot();
    let reached = |session: &&SessionStatus| session.quota.as_ref().is_some_and(|quota| quota.reached_since.is_some());
    let sessions: Vec<&str> = status.sessions.iter().filter(reached).map(|session| session.id.as_str()).collect();
    admin.desk.quota_seen.send_modify(|times| *times += 1);
    ok(json!({ "status": "acknowledged", "sessions": sessions }))
}
