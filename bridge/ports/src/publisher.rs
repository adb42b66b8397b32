//! Publishing one message at a time, with everything that it carries said by the caller.

use async_trait::async_trait;
use bytes::Bytes;
use causeway_core::outcome::Outcome;

/// A message to publish.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Publication {
    /// The topic.
    pub topic: String,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// The quality of service: 0 or 1.
    pub qos: u8,
    /// Message Expiry Interval, in seconds. Without an answer until then it is given up.
    pub expiry_seconds: Option<u32>,
    /// Response Topic.
    pub response_topic: Option<String>,
    /// Correlation Data.
    pub correlation_data: Option<Bytes>,
    /// Content Type.
    pub content_type: Option<String>,
    /// User Properties, in order.
    pub user: Vec<(String, String)>,
}

impl core::fmt::Debug for Publication {
    /// Without the payload and the properties, which may be secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Publication")
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.len())
            .field("qos", &self.qos)
            .field("expiry_seconds", &self.expiry_seconds)
            .finish_non_exhaustive()
    }
}

/// What the broker said of a message that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishAnswer {
    /// It had nobody to give it to (0x10).
    pub no_subscriber: bool,
}

/// Publishes single messages.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Publishes; done once the broker took it, or, with quality of service 0, once it is written.
    async fn publish(&self, publication: Publication) -> Outcome<PublishAnswer>;
}
