//! What is posted: a JSON object.

use crate::dispatch::is_topic;
use crate::message::{Message, Properties};
use crate::source_id::MESSAGE_ID_PROPERTY;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// Bytes of a caller's id at most.
pub const MAX_ID_BYTES: usize = 256;

/// A message as it is posted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Envelope {
    /// The caller's id of the message: posting it again is no second message. The header `Idempotency-Key` says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it is about: what the topic is to a message from a broker, and may be called so too. Left out: the receiver's id.
    #[serde(alias = "topic", skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The payload as text. This or `payload_base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The payload's bytes in base64. This or `payload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The payload's media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Headers of the message: what user properties are to a message from a broker.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// After how many seconds it is of no use any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry_seconds: Option<u32>,
}

/// Why a post is no message. Says nothing of the payload.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EnvelopeError {
    /// Not the JSON object that it must be.
    #[error("the body is not a message: {0}")]
    Malformed(String),
    /// Neither or both.
    #[error("give the payload once: as `payload`, a text, or as `payload_base64`")]
    Payload,
    /// No base64.
    #[error("`payload_base64` is not base64 with its padding")]
    Base64,
    /// An id that cannot be one.
    #[error("an id has 1 to {MAX_ID_BYTES} bytes and no control characters")]
    Id,
    /// Two ids.
    #[error("the header `Idempotency-Key` and the body's `id` differ: give one of them")]
    TwoIds,
    /// A subject that is no topic.
    #[error("`subject` is not something that can be published to: no `+`, `#` and U+0000, 1 to 65535 bytes")]
    Subject,
    /// A header that the bridge writes.
    #[error("the header `{MESSAGE_ID_PROPERTY}` is the message's id: give it as `id`")]
    Reserved,
}

impl EnvelopeError {
    /// The field that it is about.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "body",
            Self::Payload => "payload",
            Self::Base64 => "payload_base64",
            Self::Id | Self::TwoIds => "id",
            Self::Subject => "subject",
            Self::Reserved => "headers",
        }
    }
}

impl Envelope {
    /// Reads a body.
    ///
    /// # Errors
    /// [`EnvelopeError::Malformed`].
    pub fn parse(body: &[u8]) -> Result<Self, EnvelopeError> {
        // Where it went wrong and not what stands there: bodies are not repeated in answers and logs.
        serde_json::from_slice(body).map_err(|error| {
            let what = match error.classify() {
                serde_json::error::Category::Data => error.to_string(),
                _ => format!("no JSON at line {}, column {}", error.line(), error.column()),
            };
            EnvelopeError::Malformed(what)
        })
    }

    /// The message's id: of the body or of the header `key`.
    ///
    /// # Errors
    /// Where they differ, or cannot be ids.
    pub fn id_with(&self, key: Option<&str>) -> Result<Option<String>, EnvelopeError> {
        let id = match (self.id.as_deref(), key) {
            (Some(id), Some(key)) if id != key => return Err(EnvelopeError::TwoIds),
            (id, key) => id.or(key),
        };
        match id {
            Some(id) if id.is_empty() || id.len() > MAX_ID_BYTES || id.chars().any(char::is_control) => Err(EnvelopeError::Id),
            id => Ok(id.map(str::to_owned)),
        }
    }

    /// The message, called `id` where it has a name, as it came by `receiver`.
    ///
    /// # Errors
    /// What is wrong with the rest of it.
    pub fn message(self, receiver: &str, id: Option<&str>) -> Result<Message, EnvelopeError> {
        let payload = match (self.payload, self.payload_base64) {
            (Some(text), None) => Bytes::from(text),
            (None, Some(base64)) => STANDARD.decode(base64).map_err(|_| EnvelopeError::Base64)?.into(),
            (None, None) | (Some(_), Some(_)) => return Err(EnvelopeError::Payload),
        };
        let topic = self.subject.unwrap_or_else(|| receiver.to_owned());
        if !is_topic(&topic) {
            return Err(EnvelopeError::Subject);
        }
        if self.headers.contains_key(MESSAGE_ID_PROPERTY) {
            return Err(EnvelopeError::Reserved);
        }
        let own = id.map(|id| (MESSAGE_ID_PROPERTY.to_owned(), id.to_owned()));
        let properties = Properties {
            content_type: self.content_type,
            expiry_seconds: self.expiry_seconds,
            user: self.headers.into_iter().chain(own).collect(),
            ..Properties::default()
        };
        Ok(Message { topic, payload, qos: 1, retain: false, properties })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn parsed(body: &str) -> Envelope {
        Envelope::parse(body.as_bytes()).unwrap()
    }

    fn message(body: &str) -> Result<Message, EnvelopeError> {
        parsed(body).message("orders", Some("id-1"))
    }

    #[test]
    fn a_post_becomes_the_message_that_it_says() {
        let full = message(
            r#"{"id":"id-1","subject":"a/b","payload_base64":"AP8=","content_type":"x/y","headers":{"k":"v"},"expiry_seconds":60}"#,
        )
        .unwrap();
        assert_eq!((full.topic.as_str(), &full.payload[..], full.properties.expiry_seconds), ("a/b", &[0, 255][..], Some(60)));
        assert_eq!(full.properties.content_type.as_deref(), Some("x/y"));
        assert_eq!(crate::source_id::source_id(&full), "id-1");
        assert_eq!(full.properties.user[0], ("k".to_owned(), "v".to_owned()));
        let least = message(r#"{"payload":""}"#).unwrap();
        assert_eq!((least.topic.as_str(), least.payload.len()), ("orders", 0));
    }

    #[test]
    fn what_is_no_message_is_told_without_its_content() {
        for (body, error) in [
            ("{}", EnvelopeError::Payload),
            (r#"{"payload":"a","payload_base64":"YQ=="}"#, EnvelopeError::Payload),
            (r#"{"payload_base64":"%"}"#, EnvelopeError::Base64),
            (r#"{"payload":"a","subject":"a/#"}"#, EnvelopeError::Subject),
            (r#"{"payload":"a","subject":""}"#, EnvelopeError::Subject),
            (r#"{"payload":"a","headers":{"mqtt.message-id":"x"}}"#, EnvelopeError::Reserved),
        ] {
            assert_eq!(message(body), Err(error), "{body}");
        }
        for body in ["", "[1]", "secret", r#"{"payload":"secret""#, r#"{"payloads":"a"}"#] {
            let error = Envelope::parse(body.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_id_is_given_once_and_fits() {
        let id = |body: &str, key: Option<&str>| parsed(body).id_with(key);
        assert_eq!(id(r#"{"id":"a"}"#, None).unwrap().as_deref(), Some("a"));
        assert_eq!(id("{}", Some("a")).unwrap().as_deref(), Some("a"));
        assert_eq!(id(r#"{"id":"a"}"#, Some("a")).unwrap().as_deref(), Some("a"));
        assert_eq!(id("{}", None).unwrap(), None);
        assert_eq!(id(r#"{"id":"a"}"#, Some("b")), Err(EnvelopeError::TwoIds));
        let long = "x".repeat(MAX_ID_BYTES + 1);
        for wrong in ["", "a\nb", &long] {
            assert_eq!(id("{}", Some(wrong)), Err(EnvelopeError::Id), "{wrong:?}");
        }
    }

    proptest! {
        /// What is passed on to the owner is the same message.
        #[test]
        fn passing_on_changes_nothing(
            id in proptest::option::of("[a-z]{1,9}"), payload in ".*", headers in proptest::collection::btree_map("[a-z]{1,5}", ".*", 0..3),
            expiry_seconds in proptest::option::of(any::<u32>()),
        ) {
            let envelope = Envelope { id, payload: Some(payload), headers, expiry_seconds, ..Envelope::default() };
            let passed = Envelope::parse(&serde_json::to_vec(&envelope).unwrap()).unwrap();
            prop_assert_eq!(passed, envelope);
        }

        #[test]
        fn no_body_breaks_it(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Envelope::parse(&body).and_then(|envelope| envelope.message("r", Some("i")));
        }
    }
}
