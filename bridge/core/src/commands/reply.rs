//! What a message on the topics of replies is: a reply, word from another instance, or nothing that counts.

use super::command::{CommandResult, Verdict};
use super::correlation::{Correlation, CorrelationError, correlation_of};
use super::gateway::{Path, Reply};
use super::topics::Topics;
use crate::identity::{DeliveryId, Id128};
use crate::message::Message;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The user property in which a target says how it went.
pub const STATUS: &str = "status";
/// The user property in which a target says why.
pub const REASON: &str = "reason";
/// The reason of a command that failed because its answer is larger than may be kept.
pub const RESPONSE_TOO_LARGE: &str = "response_too_large";

/// The longest reason that is kept, in bytes; the rest is cut off.
const MAX_REASON: usize = 1_024;

/// How replies are read.
#[derive(Clone, Debug)]
pub struct ReplyReader {
    /// The topics of this gateway.
    pub topics: Topics,
    /// Where instances tell each other that a command is over.
    pub broadcast_topic: String,
    /// This instance, as its reply topics call it.
    pub instance: String,
    /// Where a reply names its command.
    pub correlation: Correlation,
    /// The largest answer, payload and content type together, in bytes.
    pub max_response_bytes: usize,
}

/// What a message is.
#[derive(Clone, Debug)]
pub enum Arrival {
    /// A target's reply.
    Reply(Box<Reply>),
    /// Another instance says that this command is over.
    Notified(Id128),
    /// Nothing that counts.
    Ignored(IgnoredReply),
}

/// Why a message does not count.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IgnoredReply {
    /// Its topic is none of a reply.
    #[error("the topic is none of a reply")]
    UnknownTopic,
    /// It names no command.
    #[error("it names no command")]
    NoCorrelation,
    /// It cannot be read.
    #[error("it cannot be read")]
    Malformed,
    /// Its status is none that is known.
    #[error("its status is unknown")]
    UnknownStatus,
}

impl IgnoredReply {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::UnknownTopic, Self::NoCorrelation, Self::Malformed, Self::UnknownStatus];

    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTopic => "unknown_topic",
            Self::NoCorrelation => "no_correlation",
            Self::Malformed => "malformed",
            Self::UnknownStatus => "unknown_status",
        }
    }
}

/// What a reply says in its payload, where it has no properties.
#[derive(Deserialize)]
struct Envelope<'p> {
    status: Option<String>,
    reason: Option<String>,
    /// `null` is a result like any other; only what is not there at all is none.
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'p RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

struct Said {
    status: Option<String>,
    result: CommandResult,
}

impl ReplyReader {
    /// What `message` is. `path`: by which subscription it came, where that is known; else its topic tells.
    #[must_use]
    pub fn read(&self, delivery: DeliveryId, path: Option<Path>, message: &Message) -> Arrival {
        if message.topic == self.broadcast_topic {
            return match <[u8; 16]>::try_from(&*message.payload) {
                Ok(bytes) => Arrival::Notified(Id128(u128::from_be_bytes(bytes))),
                Err(_) => Arrival::Ignored(IgnoredReply::Malformed),
            };
        }
        self.reply(delivery, path, message).map_or_else(Arrival::Ignored, |reply| Arrival::Reply(Box::new(reply)))
    }

    fn reply(&self, delivery: DeliveryId, path: Option<Path>, message: &Message) -> Result<Reply, IgnoredReply> {
        let place = self.topics.place(&message.topic).ok_or(IgnoredReply::UnknownTopic)?;
        let id = correlation_of(message, self.correlation).map_err(|error| match error {
            CorrelationError::Missing => IgnoredReply::NoCorrelation,
            CorrelationError::NotAnId | CorrelationError::NotJson => IgnoredReply::Malformed,
        })?;
        let Said { status, result } = match self.correlation {
            Correlation::Property => by_properties(message),
            Correlation::Payload => by_payload(message)?,
        };
        let verdict = verdict_of(status.as_deref())?;
        let is_own = place.instance == Some(self.instance.as_str());
        let path = path.unwrap_or(if is_own { Path::Direct } else { Path::Shared });
        let digest = digest_of(verdict, &result.payload);
        let size = result.payload.len() + result.content_type.as_ref().map_or(0, String::len);
        let (verdict, result) = if verdict.is_some() && size > self.max_response_bytes {
            let reason = Some(RESPONSE_TOO_LARGE.to_owned());
            (Some(Verdict::Failed), CommandResult { reason, ..CommandResult::default() })
        } else {
            (verdict, result)
        };
        Ok(Reply { delivery, path, id, by: place.target.to_owned(), verdict, digest, result })
    }
}

fn by_properties(message: &Message) -> Said {
    let properties = &message.properties;
    let user = |wanted: &str| properties.user.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    let result = CommandResult {
        payload: message.payload.clone(),
        content_type: properties.content_type.clone(),
        reason: user(REASON).map(shortened),
    };
    Said { status: user(STATUS), result }
}

fn by_payload(message: &Message) -> Result<Said, IgnoredReply> {
    let envelope: Envelope<'_> = serde_json::from_slice(&message.payload).map_err(|_| IgnoredReply::Malformed)?;
    let content_type = envelope.payload.map(|_| "application/json".to_owned());
    let payload = envelope.payload.map_or_else(Bytes::new, |value| Bytes::copy_from_slice(value.get().as_bytes()));
    Ok(Said { status: envelope.status, result: CommandResult { payload, content_type, reason: envelope.reason.map(shortened) } })
}

/// `None`: the target works on it. A target that does not say how it went carried the command out.
fn verdict_of(status: Option<&str>) -> Result<Option<Verdict>, IgnoredReply> {
    match status {
        None | Some("ok" | "succeeded") => Ok(Some(Verdict::Succeeded)),
        Some("failed") => Ok(Some(Verdict::Failed)),
        Some("rejected") => Ok(Some(Verdict::Rejected)),
        Some("in_progress") => Ok(None),
        Some(_) => Err(IgnoredReply::UnknownStatus),
    }
}

/// Two answers are the same where they say the same with the same payload: an empty failure is no copy of an empty success.
fn digest_of(verdict: Option<Verdict>, payload: &[u8]) -> [u8; 32] {
    let verdict: u8 = match verdict {
        None => 0,
        Some(Verdict::Succeeded) => 1,
        Some(Verdict::Failed) => 2,
        Some(Verdict::Rejected) => 3,
    };
    Sha256::new().chain_update([verdict]).chain_update(payload).finalize().into()
}

fn shortened(mut reason: String) -> String {
    let end = (0..=reason.len().min(MAX_REASON)).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or_default();
    reason.truncate(end);
    reason
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::identity::ConnectionEpoch;
    use proptest::prelude::*;

    const ID: Id128 = Id128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    const HEX: &str = "0102030405060708090a0b0c0d0e0f10";
    const DELIVERY: DeliveryId = DeliveryId { connection: ConnectionEpoch(1), ordinal: 1 };

    fn reader(correlation: Correlation) -> ReplyReader {
        ReplyReader {
            topics: Topics::new("c/{target}/command", "c/reply/{instance_id}/{target}", Some("c/{target}/response"), "g").unwrap(),
            broadcast_topic: "c/reply-notify".into(),
            instance: "i1".into(),
            correlation,
            max_response_bytes: 262_144,
        }
    }

    fn message(topic: &str, payload: impl Into<Bytes>, user: &[(&str, &str)]) -> Message {
        let mut message = Message { topic: topic.into(), payload: payload.into(), qos: 1, ..Message::default() };
        message.properties.correlation_data = Some(Bytes::copy_from_slice(&ID.0.to_be_bytes()));
        message.properties.user = user.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        message
    }

    fn replied(correlation: Correlation, message: &Message) -> Reply {
        match reader(correlation).read(DELIVERY, None, message) {
            Arrival::Reply(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn ignored(correlation: Correlation, message: &Message) -> IgnoredReply {
        match reader(correlation).read(DELIVERY, None, message) {
            Arrival::Ignored(why) => why,
            other => panic!("{other:?}"),
        }
    }

    /// RR9.
    #[test]
    fn rr9_every_payload_is_a_result_whatever_it_is() {
        for payload in ["0", "false", "\"\"", "null", "[]", ""] {
            let reply = replied(Correlation::Property, &message("c/reply/i1/pump", payload, &[]));
            assert_eq!((reply.verdict, &*reply.result.payload), (Some(Verdict::Succeeded), payload.as_bytes()));
        }
        for payload in ["0", "false", "\"\"", "null", "[]", "{ \"a\" :1}"] {
            let text = format!("{{\"correlationData\":\"{HEX}\",\"payload\":{payload}}}");
            let reply = replied(Correlation::Payload, &message("c/pump/response", text, &[]));
            assert_eq!((reply.id, reply.verdict, &*reply.result.payload), (ID, Some(Verdict::Succeeded), payload.as_bytes()));
        }
        let without = replied(Correlation::Payload, &message("c/pump/response", format!("{{\"correlationData\":\"{HEX}\"}}"), &[]));
        assert_eq!((without.result.payload.len(), without.result.content_type), (0, None));
    }

    /// RR10, without a store for what is larger.
    #[test]
    fn rr10_an_answer_that_is_too_large_is_a_failure_and_is_not_kept() {
        let fits = replied(Correlation::Property, &message("c/reply/i1/pump", vec![b'x'; 262_144], &[]));
        assert_eq!((fits.verdict, fits.result.payload.len()), (Some(Verdict::Succeeded), 262_144));
        let large = replied(Correlation::Property, &message("c/reply/i1/pump", vec![b'x'; 262_145], &[]));
        assert_eq!((large.verdict, large.result.payload.len()), (Some(Verdict::Failed), 0));
        assert_eq!(large.result.reason.as_deref(), Some(RESPONSE_TOO_LARGE));
    }

    /// RR4: who answers is told by the topic, whatever the message says of itself.
    #[test]
    fn rr4_who_answers_is_told_by_the_topic_alone() {
        let reply = replied(Correlation::Property, &message("c/reply/i1/valve", "x", &[("target", "pump"), ("by", "pump")]));
        assert_eq!(reply.by, "valve");
        let text = format!("{{\"correlationData\":\"{HEX}\",\"target\":\"pump\",\"payload\":1}}");
        assert_eq!(replied(Correlation::Payload, &message("c/valve/response", text, &[])).by, "valve");
    }

    #[test]
    fn the_path_is_the_subscription_or_else_the_topic() {
        let path = |topic: &str| replied(Correlation::Property, &message(topic, "", &[])).path;
        assert_eq!((path("c/reply/i1/pump"), path("c/reply/i2/pump"), path("c/pump/response")), (Path::Direct, Path::Shared, Path::Shared));
        let told = reader(Correlation::Property).read(DELIVERY, Some(Path::Shared), &message("c/reply/i1/pump", "", &[]));
        assert!(matches!(told, Arrival::Reply(reply) if reply.path == Path::Shared));
    }

    #[test]
    fn a_status_says_how_it_went_and_a_reason_why() {
        for (status, verdict) in [
            ("ok", Some(Verdict::Succeeded)),
            ("succeeded", Some(Verdict::Succeeded)),
            ("failed", Some(Verdict::Failed)),
            ("rejected", Some(Verdict::Rejected)),
            ("in_progress", None),
        ] {
            let reply = replied(Correlation::Property, &message("c/reply/i1/pump", "", &[(STATUS, status), (REASON, "dry")]));
            assert_eq!((reply.verdict, reply.result.reason.as_deref()), (verdict, Some("dry")));
            let text = format!("{{\"correlationData\":\"{HEX}\",\"status\":\"{status}\",\"reason\":\"dry\"}}");
            assert_eq!(replied(Correlation::Payload, &message("c/pump/response", text, &[])).verdict, verdict);
        }
        assert_eq!(ignored(Correlation::Property, &message("c/reply/i1/pump", "", &[(STATUS, "OK?")])), IgnoredReply::UnknownStatus);
        let long = "ä".repeat(600);
        let reply = replied(Correlation::Property, &message("c/reply/i1/pump", "", &[(REASON, &long)]));
        assert_eq!(reply.result.reason.map(|reason| reason.len()), Some(1_024));
    }

    #[test]
    fn an_empty_failure_is_no_copy_of_an_empty_success() {
        let digest = |status| replied(Correlation::Property, &message("c/reply/i1/pump", "", &[(STATUS, status)])).digest;
        assert_eq!(digest("ok"), digest("succeeded"));
        assert_ne!(digest("ok"), digest("failed"));
    }

    #[test]
    fn what_is_no_reply_is_ignored_with_its_reason() {
        let by_property = |message: &Message| ignored(Correlation::Property, message);
        assert_eq!(by_property(&message("elsewhere", "", &[])), IgnoredReply::UnknownTopic);
        assert_eq!(by_property(&message("c/reply/i1/a/b", "", &[])), IgnoredReply::UnknownTopic);
        let mut bare = message("c/reply/i1/pump", "", &[]);
        bare.properties.correlation_data = None;
        assert_eq!(by_property(&bare), IgnoredReply::NoCorrelation);
        bare.properties.correlation_data = Some(Bytes::from_static(b"short"));
        assert_eq!(by_property(&bare), IgnoredReply::Malformed);
        assert_eq!(ignored(Correlation::Payload, &message("c/pump/response", "{", &[])), IgnoredReply::Malformed);
        let wrong = format!("{{\"correlationData\":\"{HEX}\",\"status\":7}}");
        assert_eq!(ignored(Correlation::Payload, &message("c/pump/response", wrong, &[])), IgnoredReply::Malformed);
    }

    #[test]
    fn word_from_another_instance_is_sixteen_bytes() {
        let read = |payload: Vec<u8>| reader(Correlation::Property).read(DELIVERY, None, &message("c/reply-notify", payload, &[]));
        assert!(matches!(read(ID.0.to_be_bytes().to_vec()), Arrival::Notified(ID)));
        assert!(matches!(read(vec![1; 15]), Arrival::Ignored(IgnoredReply::Malformed)));
    }

    proptest! {
        #[test]
        fn anything_is_read_without_a_panic(topic in "c/(reply/)?[a-z0-9/+#]{0,12}", payload in prop::collection::vec(any::<u8>(), 0..80), reason in ".{0,40}") {
            for correlation in [Correlation::Property, Correlation::Payload] {
                let _ = reader(correlation).read(DELIVERY, None, &message(&topic, payload.clone(), &[(REASON, &reason)]));
            }
        }
    }
}
