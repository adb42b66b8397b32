//! Sessions and routes: list, put a message in, hand over.

use super::{Admin, failed, invalid, ok, refusal};
use crate::http::posts::IDEMPOTENCY_KEY;
use crate::ingress::Refused;
use crate::status::{BridgeStatus, RouteStatus, SessionRole, SessionStatus};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use causeway_core::ingress::{Envelope, EnvelopeError};
use causeway_core::message::Message;
use causeway_core::outcome::FaultCode;
use causeway_core::source_id::MESSAGE_ID_PROPERTY;
use serde_json::{Value, json};

/// Bytes of a payload.
const MAX_PAYLOAD: usize = 1024 * 1024;

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

/// Why it is no message that can be put in.
enum Unwritten {
    Envelope(EnvelopeError),
    /// Nothing stands for it: what is put in is to take the way of a message of this subject.
    NoSubject,
    Pairs,
}

impl From<EnvelopeError> for Unwritten {
    fn from(error: EnvelopeError) -> Self {
        Self::Envelope(error)
    }
}

impl Unwritten {
    fn told(&self) -> Response {
        match self {
            Self::Envelope(error) => invalid(error.field(), &error.to_string()),
            Self::NoSubject => {
                invalid("subject", "say what the message is about: `subject`, or `topic`, is what the topic is to a message from a broker")
            }
            Self::Pairs => invalid("headers", "give an object of texts, or a list of pairs of texts: [[\"name\", \"value\"]]"),
        }
    }
}

/// A message in the form of those that are posted to receivers. Its headers may be a list of pairs, as they were once; they are kept in that order.
fn written(headers: &HeaderMap, bytes: &[u8], receiver: &str) -> Result<(Message, Option<String>), Unwritten> {
    let (envelope, pairs) = match serde_json::from_slice::<serde_json::Map<String, Value>>(bytes) {
        Ok(mut fields) if fields.get("headers").is_some_and(Value::is_array) => {
            let pairs = fields.remove("headers").unwrap_or_default();
            let pairs: Vec<(String, String)> = serde_json::from_value(pairs).map_err(|_| Unwritten::Pairs)?;
            (Envelope::parse(Value::Object(fields).to_string().as_bytes())?, pairs)
        }
        // What is wrong with it is told there.
        Ok(_) | Err(_) => (Envelope::parse(bytes)?, Vec::new()),
    };
    let key = headers.get(IDEMPOTENCY_KEY).map(HeaderValue::to_str).transpose().map_err(|_| EnvelopeError::Id)?;
    let id = envelope.id_with(key)?;
    if envelope.subject.is_none() {
        return Err(Unwritten::NoSubject);
    }
    if pairs.iter().any(|(name, _)| name == MESSAGE_ID_PROPERTY) {
        return Err(EnvelopeError::Reserved.into());
    }
    let mut message = envelope.message(receiver, id.as_deref())?;
    message.properties.user.splice(0..0, pairs);
    Ok((message, id))
}

pub(super) async fn inject(State(admin): State<Admin>, Path(route): Path<String>, headers: HeaderMap, bytes: Bytes) -> Response {
    // Of a route that is not there the message is looked at first, like that of any other.
    let receiver = admin.desk.ingress.receiver(&route).unwrap_or(&route);
    let (message, name) = match written(&headers, &bytes, receiver) {
        Ok((message, _)) if message.payload.len() > MAX_PAYLOAD => return invalid("payload", "1 MiB at most"),
        Ok(written) => written,
        Err(wrong) => return wrong.told(),
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
