//! What callers post: a JSON object, read into an order.

use crate::commands::api::{CommandLimits, Order};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use causeway_core::commands::{TargetError, check_target};
use core::fmt;
use core::time::Duration;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use thiserror::Error;

/// The longest text that MQTT 5 carries, in bytes.
const MAX_TEXT_BYTES: usize = 65_535;
/// The longest content type, in bytes.
const MAX_CONTENT_TYPE_BYTES: usize = 255;
/// The most properties of a command.
const MAX_PROPERTIES: usize = 64;
/// So much of an error is told: names of fields stand in it, as long as the caller likes.
const MAX_DETAIL: usize = 200;

/// Why a body is no command. Says nothing of what stands in it but names of fields.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// Not the JSON object that it must be.
    #[error("the body is not a command: {0}")]
    Malformed(String),
    /// No target.
    #[error("{0}")]
    Target(#[from] TargetError),
    /// None, or more than one.
    #[error("give the payload once: as `payload`, any JSON value, as `payload_text`, or as `payload_base64`")]
    Payload,
    /// No base64.
    #[error("`payload_base64` is not base64 with its padding")]
    Base64,
    /// Not a content type.
    #[error("a content type has 1 to {MAX_CONTENT_TYPE_BYTES} bytes and no control characters")]
    ContentType,
    /// Properties that MQTT cannot carry.
    #[error("`properties` are at most {MAX_PROPERTIES} texts of at most {MAX_TEXT_BYTES} bytes without control characters")]
    Properties,
    /// A time that is out of bounds.
    #[error("`timeout_ms` is {min} to {max} milliseconds")]
    Timeout {
        /// The shortest, in milliseconds.
        min: u128,
        /// The longest, in milliseconds.
        max: u128,
    },
    /// Larger than may be.
    #[error("the payload, its content type and its properties are larger than {0} bytes together")]
    TooLarge(usize),
}

impl BodyError {
    /// The field that it is about.
    #[must_use]
    pub const fn field(&self) -> Option<&'static str> {
        match self {
            Self::Malformed(_) => None,
            Self::Target(_) => Some("target"),
            Self::Payload | Self::TooLarge(_) => Some("payload"),
            Self::Base64 => Some("payload_base64"),
            Self::ContentType => Some("content_type"),
            Self::Properties => Some("properties"),
            Self::Timeout { .. } => Some("timeout_ms"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    target: String,
    // `null` is a payload: what counts is that the field is there.
    #[serde(default, deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    payload_text: Option<String>,
    payload_base64: Option<String>,
    content_type: Option<String>,
    #[serde(default)]
    properties: Properties,
    timeout_ms: Option<u64>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Texts by name, in the order in which they are given.
#[derive(Default)]
struct Properties(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PropertiesVisitor)
    }
}

struct PropertiesVisitor;

impl<'de> Visitor<'de> for PropertiesVisitor {
    type Value = Properties;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties, A::Error> {
        let mut properties: Vec<(String, String)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, String>()? {
            // Few enough to be compared one by one; whatever is more is refused afterwards.
            if properties.len() > MAX_PROPERTIES {
                continue;
            }
            if properties.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom("duplicate field in `properties`"));
            }
            properties.push((name, value));
        }
        Ok(Properties(properties))
    }
}

/// Reads a body. Key and patience of the order are left open: headers say them.
///
/// # Errors
/// What is wrong with it.
pub fn parse(body: &[u8], limits: &CommandLimits) -> Result<Order, BodyError> {
    let body: Body = serde_json::from_slice(body).map_err(|error| BodyError::Malformed(told(&error)))?;
    check_target(&body.target)?;
    let (payload, own_type) = match (body.payload, body.payload_text, body.payload_base64) {
        (Some(json), None, None) => (Bytes::from(Box::<str>::from(json).into_string()), Some("application/json")),
        (None, Some(text), None) => (Bytes::from(text), None),
        (None, None, Some(base64)) => (STANDARD.decode(base64).map_err(|_| BodyError::Base64)?.into(), None),
        _ => return Err(BodyError::Payload),
    };
    let content_type = body.content_type.or_else(|| own_type.map(str::to_owned));
    if content_type.as_deref().is_some_and(|name| name.is_empty() || name.len() > MAX_CONTENT_TYPE_BYTES || !is_plain(name)) {
        return Err(BodyError::ContentType);
    }
    let properties = body.properties.0;
    let fits = |text: &String| text.len() <= MAX_TEXT_BYTES && is_plain(text);
    if properties.len() > MAX_PROPERTIES || !properties.iter().all(|(name, value)| fits(name) && fits(value)) {
        return Err(BodyError::Properties);
    }
    let timeout = body.timeout_ms.map(Duration::from_millis);
    if timeout.is_some_and(|timeout| timeout < limits.min_timeout || timeout > limits.max_timeout) {
        return Err(BodyError::Timeout { min: limits.min_timeout.as_millis(), max: limits.max_timeout.as_millis() });
    }
    let named: usize = properties.iter().map(|(name, value)| name.len() + value.len()).sum();
    if payload.len() + content_type.as_deref().map_or(0, str::len) + named > limits.max_request_bytes {
        return Err(BodyError::TooLarge(limits.max_request_bytes));
    }
    Ok(Order { target: body.target, payload, content_type, properties, key: None, timeout, patience: None })
}

fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// Where it went wrong, and not what stands there: an error about a type repeats the value.
fn told(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        serde_json::error::Category::Data
            if ["unknown field", "missing field", "duplicate field"].iter().any(|about| text.starts_with(about)) =>
        {
            text.chars().take(MAX_DETAIL).collect()
        }
        serde_json::error::Category::Data => format!("something of another type than it must have stands at {place}"),
        _ => format!("no JSON at {place}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LIMITS: CommandLimits = CommandLimits {
        max_request_bytes: 100,
        sync_wait_max: Duration::from_secs(25),
        default_timeout: Duration::from_secs(10),
        min_timeout: Duration::from_millis(100),
        max_timeout: Duration::from_secs(43_200),
        retention: Duration::from_secs(604_800),
    };

    fn parsed(body: &str) -> Result<Order, BodyError> {
        parse(body.as_bytes(), &LIMITS)
    }

    fn payload(field: &str) -> (Vec<u8>, Option<String>) {
        let order = parsed(&format!(r#"{{"target":"pump-1",{field}}}"#)).unwrap();
        (order.payload.to_vec(), order.content_type)
    }

    #[test]
    fn a_body_becomes_the_order_that_it_says() {
        let order =
            parsed(r#"{"target":"pump-1","payload_base64":"AP8=","content_type":"x/y","properties":{"z":"1","a":""},"timeout_ms":100}"#)
                .unwrap();
        assert_eq!((order.target.as_str(), &order.payload[..], order.content_type.as_deref()), ("pump-1", &[0, 255][..], Some("x/y")));
        assert_eq!(order.properties, [("z".to_owned(), "1".to_owned()), ("a".to_owned(), String::new())], "in the order of the body");
        assert_eq!((order.timeout, order.key, order.patience), (Some(Duration::from_millis(100)), None, None));
    }

    #[test]
    fn any_json_value_is_a_payload_and_goes_out_as_it_was_written() {
        for json in ["0", "false", "null", "\"\"", "[]", "{}", "1.10", "123456789012345678901234567890", r#"{"b": 1,  "a":"\u00e9"}"#] {
            assert_eq!(payload(&format!("\"payload\": {json} ")), (json.as_bytes().to_vec(), Some("application/json".to_owned())));
        }
        assert_eq!(payload(r#""payload":1,"content_type":"application/senml+json""#).1.as_deref(), Some("application/senml+json"));
    }

    #[test]
    fn a_text_and_bytes_are_payloads_without_a_type_and_may_be_empty() {
        assert_eq!(payload(r#""payload_text":"on\n""#), (b"on\n".to_vec(), None));
        assert_eq!(payload(r#""payload_text":"""#), (Vec::new(), None));
        assert_eq!(payload(r#""payload_base64":"""#), (Vec::new(), None));
    }

    #[test]
    fn what_is_no_command_is_told_by_its_field() {
        let timeout = BodyError::Timeout { min: 100, max: 43_200_000 };
        let many = (0..=MAX_PROPERTIES).map(|n| format!("\"{n}\":\"\"")).collect::<Vec<_>>().join(",");
        for (body, error) in [
            (r#"{"target":"a/b","payload":1}"#, BodyError::Target(TargetError)),
            (r#"{"target":"","payload":1}"#, BodyError::Target(TargetError)),
            (r#"{"target":"+","payload":1}"#, BodyError::Target(TargetError)),
            (r#"{"target":"p"}"#, BodyError::Payload),
            (r#"{"target":"p","payload":null,"payload_text":"a"}"#, BodyError::Payload),
            (r#"{"target":"p","payload_text":"a","payload_base64":"YQ=="}"#, BodyError::Payload),
            (r#"{"target":"p","payload_base64":"YQ"}"#, BodyError::Base64),
            (r#"{"target":"p","payload":1,"content_type":""}"#, BodyError::ContentType),
            (r#"{"target":"p","payload":1,"content_type":"a\u0000"}"#, BodyError::ContentType),
            (r#"{"target":"p","payload":1,"properties":{"a":"\u0000"}}"#, BodyError::Properties),
            (&format!(r#"{{"target":"p","payload":1,"properties":{{{many}}}}}"#), BodyError::Properties),
            (r#"{"target":"p","payload":1,"timeout_ms":99}"#, timeout.clone()),
            (r#"{"target":"p","payload":1,"timeout_ms":43200001}"#, timeout),
        ] {
            assert_eq!(parsed(body), Err(error), "{body}");
        }
        let named = |body| parsed(body).unwrap_err().to_string();
        assert!(named(r#"{"target":"p","payload":1,"ttl":1}"#).contains("unknown field `ttl`"));
        assert!(named(r#"{"payload":1}"#).contains("missing field `target`"));
        assert!(named(r#"{"target":"p","target":"p","payload":1}"#).contains("duplicate field `target`"));
        assert!(named(r#"{"target":"p","payload":1,"properties":{"a":"1","a":"2"}}"#).contains("duplicate field in `properties`"));
        assert!(named(&format!(r#"{{"{}":1}}"#, "x".repeat(10_000))).len() < 300);
    }

    #[test]
    fn an_error_repeats_nothing_of_what_was_posted() {
        for body in [
            "secret",
            "[\"secret\"]",
            r#"{"target":"secret/1","payload":1}"#,
            r#"{"target":"p","payload_text":"secret"#,
            r#"{"target":"p","payload_text":"secret"} secret"#,
            r#"{"target":"p","payload":1,"timeout_ms":"secret"}"#,
            r#"{"target":"p","payload":1,"properties":"secret"}"#,
            r#"{"target":"p","payload_base64":"secret"}"#,
        ] {
            let error = parsed(body).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{body}: {error}");
        }
    }

    #[test]
    fn everything_that_is_published_counts_against_the_limit() {
        let with = |length: usize, more: &str| parsed(&format!(r#"{{"target":"p","payload_text":"{}"{more}}}"#, "x".repeat(length)));
        assert!(with(100, "").is_ok());
        assert_eq!(with(101, ""), Err(BodyError::TooLarge(100)));
        assert_eq!(with(97, r#","content_type":"a/b""#).map(|order| order.payload.len()), Ok(97));
        assert_eq!(with(98, r#","content_type":"a/b""#), Err(BodyError::TooLarge(100)));
        assert_eq!(with(98, r#","properties":{"ab":"c"}"#), Err(BodyError::TooLarge(100)));
    }
}
