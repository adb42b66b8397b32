//! What callers are answered: commands as JSON, and problems as RFC 9457 has them.

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_core::commands::gateway::Refusal;
use causeway_core::commands::{Command, CommandResult, Why};
use causeway_core::identity::Id128;
use causeway_core::outcome::Fault;
use causeway_core::units::UnixMillis;
use core::time::Duration;
use serde::Serialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::UNIX_EPOCH;
use tracing::warn;

/// The last moment that has a date of four digits.
const LAST_DATE: u64 = 253_402_300_799_999;
/// After so long a caller may look again.
const SOON: Duration = Duration::from_secs(1);
/// After so long a store may answer again.
const LATER: Duration = Duration::from_secs(5);

/// Why a request is not carried out.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: Cow<'static, str>,
    field: Option<&'static str>,
    retry_after: Option<Duration>,
}

#[derive(Serialize)]
struct ProblemBody<'p> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'p str,
    status: u16,
    code: &'static str,
    detail: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
}

impl Problem {
    /// One that does not pass by itself.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, detail: detail.into(), field: None, retry_after: None }
    }

    /// It is about this field.
    pub fn of(self, field: Option<&'static str>) -> Self {
        Self { field, ..self }
    }

    /// It may have passed after this time.
    pub fn passing(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }

    /// No command has this id.
    pub fn unknown() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NO_COMMAND", "there is no such command, or it is forgotten")
    }

    /// The store fails.
    pub fn store(fault: &Fault) -> Self {
        warn!(code = fault.code.as_str(), detail = %fault.detail, "the store of commands failed; the caller was told");
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "STORE_UNAVAILABLE",
            "the store of commands did not confirm it: come again, a POST with the same Idempotency-Key",
        )
        .passing(LATER)
    }

    /// Nobody answered in time.
    pub fn undecided() -> Self {
        let detail = "it is not known yet what became of it: come again, a POST with the same Idempotency-Key";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNDECIDED", detail).passing(LATER)
    }

    /// The gateway refuses it.
    pub fn refused(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Stopping => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "STOPPING", "this process stops: another one takes it").passing(SOON)
            }
            Refusal::TooManyPending => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_PENDING", "the target has as many commands under way as it may")
                    .passing(SOON)
            }
            Refusal::Running => {
                Self::new(StatusCode::CONFLICT, "IN_PROGRESS", "a command with this key is being recorded or published just now")
                    .passing(SOON)
            }
            Refusal::KeyReused => {
                let detail = "this Idempotency-Key was given to another command: each command needs a key of its own";
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "KEY_REUSED", detail)
            }
            Refusal::Store(fault) => Self::store(fault),
            Refusal::Unknown => Self::unknown(),
            Refusal::NotCancelled(Why::OnItsWay) => {
                Self::new(StatusCode::CONFLICT, "ON_ITS_WAY", "the command is with the broker or the target, and cannot be taken back")
            }
            Refusal::NotCancelled(_) => Self::new(StatusCode::CONFLICT, "ENDED", "the command came to an end before"),
        }
    }

    /// Its code, for the log.
    pub const fn code(&self) -> &'static str {
        self.code
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or_default();
        let (status, code) = (self.status.as_u16(), self.code);
        let body = ProblemBody { kind: "about:blank", title, status, code, detail: &self.detail, field: self.field };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(pause) = self.retry_after {
            // A part of a second is a whole one: who comes too early comes twice.
            let seconds = pause.as_secs() + u64::from(pause.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[derive(Serialize)]
struct CommandBody<'c> {
    id: Id128,
    target: &'c str,
    status: &'static str,
    created_at: String,
    expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_at: Option<String>,
    publishes: u32,
    no_subscriber: bool,
    late: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ResultBody<'c>>,
}

#[derive(Serialize)]
struct ResultBody<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'r RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_text: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
}

/// A command, with the answer that ended it.
pub fn command(status: StatusCode, command: &Command, result: Option<&CommandResult>) -> Response {
    let body = CommandBody {
        id: command.id,
        target: &command.target,
        status: command.state.as_str(),
        created_at: date(command.created_at),
        expires_at: date(command.expires_at),
        published_at: command.published_at.map(date),
        publishes: command.publishes,
        no_subscriber: command.no_subscriber,
        late: command.late,
        result: result.map(result_body),
    };
    (status, Json(body)).into_response()
}

/// A command that goes on: where it stands, as far as that is known, and where to ask.
pub fn accepted(id: Id128, row: Option<&Command>) -> Response {
    let mut response = match row {
        Some(row) => command(StatusCode::ACCEPTED, row, None),
        None => (StatusCode::ACCEPTED, Json(serde_json::json!({ "id": id }))).into_response(),
    };
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::try_from(format!("/v1/commands/{id}")) {
        headers.insert(header::LOCATION, location);
    }
    headers.insert(header::RETRY_AFTER, HeaderValue::from(SOON.as_secs()));
    response
}

fn date(moment: UnixMillis) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(moment.0.min(LAST_DATE))).to_string()
}

/// As a JSON value where it is one and is not said to be something else; else as a text; else as bytes.
fn result_body(result: &CommandResult) -> ResultBody<'_> {
    let may_be_json = result.content_type.as_deref().is_none_or(is_json);
    let payload = may_be_json.then(|| json(&result.payload)).flatten();
    let payload_text = payload.is_none().then(|| core::str::from_utf8(&result.payload).ok()).flatten();
    let payload_base64 = (payload.is_none() && payload_text.is_none()).then(|| STANDARD.encode(&result.payload));
    ResultBody { content_type: result.content_type.as_deref(), payload, payload_text, payload_base64, reason: result.reason.as_deref() }
}

fn json(payload: &Bytes) -> Option<&RawValue> {
    serde_json::from_slice(payload).ok()
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{Value, json};

    fn told(payload: &'static [u8], content_type: Option<&str>) -> Value {
        let result = CommandResult { payload: Bytes::from_static(payload), content_type: content_type.map(str::to_owned), reason: None };
        serde_json::to_value(result_body(&result)).unwrap()
    }

    #[test]
    fn rr9_every_value_is_a_result() {
        for value in [json!(0), json!(false), json!(""), json!(null), json!([])] {
            let text: &'static str = Box::leak(value.to_string().into_boxed_str());
            let told = told(text.as_bytes(), Some("application/json"));
            assert!(told.as_object().unwrap().contains_key("payload"), "{told}");
            assert_eq!(told["payload"], value);
        }
        assert_eq!(told(b"", Some("application/json")), json!({"content_type": "application/json", "payload_text": ""}));
    }

    #[test]
    fn a_payload_is_told_as_what_it_is() {
        assert_eq!(told(b"{\"a\":1}", None), json!({"payload": {"a": 1}}));
        assert_eq!(told(b"1", Some("text/plain")), json!({"content_type": "text/plain", "payload_text": "1"}));
        assert_eq!(told(b"[1]", Some("Application/SenML+JSON; charset=utf-8"))["payload"], json!([1]));
        assert_eq!(told(b"{broken", Some("application/json"))["payload_text"], "{broken");
        assert_eq!(told(&[0, 255], None), json!({"payload_base64": "AP8="}));
        // Numbers stay as the device wrote them.
        let result = CommandResult { payload: Bytes::from_static(b"123456789012345678901234567890.10"), ..CommandResult::default() };
        assert_eq!(serde_json::to_string(&result_body(&result)).unwrap(), r#"{"payload":123456789012345678901234567890.10}"#);
    }

    #[test]
    fn dates_are_told_however_far_away_they_are() {
        assert_eq!(date(UnixMillis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(date(UnixMillis(u64::MAX)), "9999-12-31T23:59:59.999Z");
    }
}
