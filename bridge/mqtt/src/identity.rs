//! Ids for messages of brokers that carry none.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use causeway_core::message::Message;
use causeway_core::source_id::MESSAGE_ID_PROPERTY;
use sha2::{Digest, Sha256};

/// Gives messages an id that is the same whenever client, broker, topic and payload are: the copies of one message share it, and so do messages that say the
/// same twice.
#[derive(Clone, Debug)]
pub(crate) struct ContentHash {
    /// Client and broker, hashed already.
    seed: Sha256,
}

impl ContentHash {
    pub(crate) fn new(client_id: &str, broker: &str) -> Self {
        let mut seed = Sha256::new();
        field(&mut seed, client_id);
        field(&mut seed, broker);
        Self { seed }
    }

    /// Adds the id to `message`, as the property by which publishers of MQTT 5 give one. MQTT 3.1.1 has no user properties, so none is in the way.
    pub(crate) fn identify(&self, message: &mut Message) {
        let mut hash = self.seed.clone();
        field(&mut hash, &message.topic);
        hash.update(&message.payload);
        let id = format!("mqtt-sha256:{}", URL_SAFE_NO_PAD.encode(hash.finalize()));
        message.properties.user.push((MESSAGE_ID_PROPERTY.to_owned(), id));
    }
}

/// The length goes first, so that no two lists of fields are hashed as the same bytes.
fn field(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn id(client: &str, topic: &str, payload: &'static [u8]) -> String {
        let mut message = Message { topic: topic.to_owned(), payload: Bytes::from_static(payload), ..Message::default() };
        ContentHash::new(client, "tcp://broker:1883").identify(&mut message);
        message.properties.user.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn the_published_example() {
        assert_eq!(id("c", "t", b"p"), "mqtt.message-id=mqtt-sha256:J9sTAITCmYSboGvwPskEehxc2_vzajBMr1WEj0MBI1k");
    }

    #[test]
    fn another_client_topic_or_payload_makes_another_id() {
        let one = id("c", "t", b"p");
        for other in [id("d", "t", b"p"), id("c", "tp", b""), id("c", "t", b"q")] {
            assert_ne!(one, other);
        }
    }
}
