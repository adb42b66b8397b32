//! A message as it came from its source, and as it stands in the log.

use crate::identity::EntryId;
use crate::outcome::{Fault, FaultCode};
use crate::units::UnixMillis;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A message as its source delivered it. Nothing of it is interpreted or lost on the way through the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The topic that it was published to.
    pub topic: String,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// The quality of service that it was received with: 0 or 1.
    pub qos: u8,
    /// Whether it is a retained message.
    pub retain: bool,
    /// The MQTT 5 properties of its PUBLISH packet.
    pub properties: Properties,
}

/// The properties of an MQTT 5 PUBLISH packet, except the topic alias, which is never negotiated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties {
    /// Content Type.
    pub content_type: Option<String>,
    /// Response Topic.
    pub response_topic: Option<String>,
    /// Correlation Data.
    pub correlation_data: Option<Bytes>,
    /// Payload Format Indicator: 0 unspecified bytes, 1 UTF-8 text.
    pub payload_format: Option<u8>,
    /// Message Expiry Interval: the seconds that remained when the broker forwarded it.
    pub expiry_seconds: Option<u32>,
    /// User Properties, in order, repeated names kept.
    pub user: Vec<(String, String)>,
    /// Subscription Identifiers.
    pub subscription_ids: Vec<u32>,
}

impl Message {
    /// What the message occupies in memory, roughly, in bytes. Memory bounds are counted in it.
    #[must_use]
    pub fn weight(&self) -> usize {
        let properties = &self.properties;
        let user: usize = properties.user.iter().map(|(name, value)| name.len() + value.len() + 48).sum();
        let optional = [&properties.content_type, &properties.response_topic].into_iter().flatten().map(String::len).sum::<usize>()
            + properties.correlation_data.as_ref().map_or(0, Bytes::len);
        256 + self.topic.len() + self.payload.len() + user + optional
    }
}

/// A message in the log, bound for one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Given once at admission; the message id that the destination sees, however often it is sent.
    pub id: EntryId,
    /// The route that it came by.
    pub route: Arc<str>,
    /// The binding of that route which it is bound for; empty where none was found for it, and then `refusal` says why.
    pub binding: Arc<str>,
    /// What the binding's address came to for this message, where it has placeholders.
    pub address: Option<Arc<str>>,
    /// Why it is not sent, where that was clear when it came: it is kept first, and then treated as the route's policy says.
    pub refusal: Option<Refusal>,
    /// The receiver that it came from.
    pub source: Arc<str>,
    /// When it was received, by the receiving host's wall clock.
    pub received_at: UnixMillis,
    /// When it expires, by the receiving host's wall clock: `received_at` plus what remained of its expiry interval.
    pub expires_at: Option<UnixMillis>,
    /// The message itself.
    pub message: Message,
    /// How it came back from the dead letters, if it did.
    pub redrive: Option<Redrive>,
}

/// Why a message is not sent, as it was found when it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of fault.
    pub code: FaultCode,
    /// What is wrong, for people: one line, without secrets or payloads.
    pub detail: String,
}

impl Refusal {
    /// As the fault that it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        Fault::new(self.code, self.detail.clone())
    }
}

/// What is told of an entry that was put back from the dead letters. The entry keeps its id, its message and its times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redrive {
    /// How often it was put back, this time included.
    pub attempt: u32,
    /// The request that put it back.
    pub causation: String,
}

impl Entry {
    /// How often it was put back from the dead letters.
    #[must_use]
    pub fn redrives(&self) -> u32 {
        self.redrive.as_ref().map_or(0, |redrive| redrive.attempt)
    }
}
