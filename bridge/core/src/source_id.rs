//! What a message is called by whoever published it, and what it says. The bridge's own id of an entry is another one: each delivery gets its own.

use crate::message::Message;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

/// The user property by which a publisher gives its message an id.
pub const MESSAGE_ID_PROPERTY: &str = "mqtt.message-id";
/// Begins an id that the publisher gave as correlation data that are no text.
pub const BINARY_PREFIX: &str = "mqtt-bin:";
/// Begins an id that the bridge computed because the publisher gave none.
pub const GENERATED_PREFIX: &str = "sha256:";

/// A digest of content.
pub type ContentDigest = [u8; 32];

/// The id that the publisher gave: the user property `mqtt.message-id`, else the correlation data. Empty ones count as none.
#[must_use]
pub fn given(message: &Message) -> Option<Cow<'_, str>> {
    let properties = &message.properties;
    let property = properties.user.iter().find(|(name, value)| name == MESSAGE_ID_PROPERTY && !value.is_empty());
    if let Some((_, value)) = property {
        return Some(Cow::Borrowed(value));
    }
    let correlation = properties.correlation_data.as_ref().filter(|data| !data.is_empty())?;
    Some(match core::str::from_utf8(correlation) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(format!("{BINARY_PREFIX}{}", URL_SAFE_NO_PAD.encode(correlation))),
    })
}

/// The id that the publisher gave, or one that is computed from the content and begins with [`GENERATED_PREFIX`]: copies of one message share it, and
/// so do messages that say the same twice.
#[must_use]
pub fn source_id(message: &Message) -> Cow<'_, str> {
    given(message).unwrap_or_else(|| Cow::Owned(format!("{GENERATED_PREFIX}{}", URL_SAFE_NO_PAD.encode(content_digest(message)))))
}

/// A digest of what the publisher said: topic, payload and properties, without what the broker adds or counts down (subscription identifiers, the
/// remaining expiry, whether it is retained).
#[must_use]
pub fn content_digest(message: &Message) -> ContentDigest {
    let mut hash = Sha256::new();
    let properties = &message.properties;
    field(&mut hash, Some(message.topic.as_bytes()));
    field(&mut hash, Some(&message.payload));
    field(&mut hash, properties.content_type.as_deref().map(str::as_bytes));
    field(&mut hash, properties.response_topic.as_deref().map(str::as_bytes));
    field(&mut hash, properties.correlation_data.as_deref());
    field(&mut hash, properties.payload_format.as_ref().map(core::slice::from_ref));
    for (name, value) in &properties.user {
        field(&mut hash, Some(name.as_bytes()));
        field(&mut hash, Some(value.as_bytes()));
    }
    hash.finalize().into()
}

/// The length goes first, so that no two lists of fields are hashed as the same bytes.
fn field(hash: &mut Sha256, bytes: Option<&[u8]>) {
    let Some(bytes) = bytes else { return hash.update([0]) };
    hash.update([1]);
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// What is known of an id that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// It was not seen lately.
    First,
    /// It came with the same content: a copy.
    Same,
    /// It came with other content: the publisher uses one id for two messages.
    Other,
}

/// The ids that came last, each with what it stood for. Nothing is decided by it: a message with a used id is a message like any other.
#[derive(Debug)]
pub struct RecentIds {
    room: usize,
    content: HashMap<ContentDigest, ContentDigest>,
    order: VecDeque<ContentDigest>,
}

impl Default for RecentIds {
    fn default() -> Self {
        Self::new(4_096)
    }
}

impl RecentIds {
    /// Remembers `room` ids, about 200 bytes each.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self { room, content: HashMap::new(), order: VecDeque::new() }
    }

    /// Takes note of `id` and what it stands for.
    pub fn note(&mut self, id: &str, content: ContentDigest) -> Meeting {
        let id: ContentDigest = Sha256::digest(id).into();
        match self.content.insert(id, content) {
            Some(known) if known == content => Meeting::Same,
            Some(_) => Meeting::Other,
            None => {
                self.order.push_back(id);
                if self.order.len() > self.room
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.content.remove(&oldest);
                }
                Meeting::First
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::message::Properties;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn message(user: &[(&str, &str)], correlation: Option<&'static [u8]>) -> Message {
        let user = user.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let properties = Properties { user, correlation_data: correlation.map(Bytes::from_static), ..Properties::default() };
        Message { topic: "t".to_owned(), payload: Bytes::from_static(b"p"), properties, ..Message::default() }
    }

    #[test]
    fn the_property_goes_before_the_correlation_data_and_both_before_the_content() {
        let of = |user: &[(&str, &str)], correlation| source_id(&message(user, correlation)).into_owned();
        assert_eq!(of(&[("a", "1"), ("mqtt.message-id", "m-1")], Some(b"c-1")), "m-1");
        assert_eq!(of(&[("mqtt.message-id", "")], Some(b"c-1")), "c-1");
        assert_eq!(of(&[], Some(&[0xff, 0xfe])), "mqtt-bin:__4");
        assert!(of(&[], Some(b"")).starts_with("sha256:"));
        assert_eq!(given(&message(&[], None)), None);
    }

    #[test]
    fn copies_share_their_content_whatever_the_broker_adds() {
        let one = message(&[("a", "1")], None);
        let mut other = one.clone();
        (other.retain, other.qos) = (true, 1);
        (other.properties.expiry_seconds, other.properties.subscription_ids) = (Some(7), vec![2]);
        assert_eq!(source_id(&one), source_id(&other));
        for changed in [
            Message { topic: "tp".to_owned(), payload: Bytes::new(), ..one.clone() },
            Message { payload: Bytes::from_static(b"q"), ..one.clone() },
            message(&[("a", "2")], None),
            message(&[("a", "1"), ("", "")], None),
        ] {
            assert_ne!(content_digest(&one), content_digest(&changed), "{changed:?}");
        }
    }

    proptest! {
        /// Against a plain list of the last distinct ids.
        #[test]
        fn what_came_lately_is_known(steps in prop::collection::vec((0_u8..6, 0_u8..3), 0..60), room in 1_usize..5) {
            let mut recent = RecentIds::new(room);
            let mut model: Vec<(u8, u8)> = Vec::new();
            for (id, content) in steps {
                let expected = match model.iter_mut().find(|(known, _)| *known == id) {
                    Some((_, known)) => {
                        let same = *known == content;
                        *known = content;
                        if same { Meeting::Same } else { Meeting::Other }
                    }
                    None => {
                        model.push((id, content));
                        if model.len() > room { model.remove(0); }
                        Meeting::First
                    }
                };
                prop_assert_eq!(recent.note(&id.to_string(), [content; 32]), expected);
                prop_assert!(recent.content.len() <= room && recent.order.len() <= room);
            }
        }
    }
}
