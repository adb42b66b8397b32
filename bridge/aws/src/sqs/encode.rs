//! What a message becomes on SQS: a pure function of the entry.

use super::attributes::{Attribute, attributes, is_accepted};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use causeway_core::message::Entry;
use std::borrow::Cow;

/// A message as SQS takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded<'e> {
    /// The body.
    pub body: Cow<'e, str>,
    /// The attributes.
    pub attributes: Vec<Attribute<'e>>,
    /// What it takes of the size limits.
    pub size: usize,
}

/// The message of `entry`: the payload as text where SQS accepts it as it is, else as base64, which an attribute then tells.
#[must_use]
pub fn encode(entry: &Entry) -> Encoded<'_> {
    let (body, base64) = match accepted_text(&entry.message.payload) {
        Some(text) => (Cow::Borrowed(text), false),
        None => (Cow::Owned(BASE64.encode(&entry.message.payload)), true),
    };
    // SQS refuses an empty body, and base64 of nothing is empty.
    let body = if body.is_empty() { Cow::Borrowed(EMPTY_BODY) } else { body };
    let attributes = attributes(entry, base64);
    let size = body.len() + attributes.iter().map(Attribute::size).sum::<usize>();
    Encoded { body, attributes, size }
}

/// The body of an empty payload: a line feed, which stands for no bytes. Decoders of base64 skip line breaks (those of Go, Python,
/// JavaScript and the shell do by themselves; strict ones want the text trimmed).
pub const EMPTY_BODY: &str = "\n";

/// What [`encode`] would count, without encoding the body.
#[must_use]
pub fn size_of(entry: &Entry) -> usize {
    let payload = &entry.message.payload;
    let (body, base64) = match accepted_text(payload) {
        Some(text) => (text.len(), false),
        None => (payload.len().div_ceil(3) * 4, true),
    };
    body.max(if payload.is_empty() { EMPTY_BODY.len() } else { 0 }) + attributes(entry, base64).iter().map(Attribute::size).sum::<usize>()
}

/// The payload as text, if SQS accepts it as a body.
fn accepted_text(payload: &[u8]) -> Option<&str> {
    let text = core::str::from_utf8(payload).ok()?;
    let accepted = !text.is_empty() && text.chars().all(is_accepted);
    accepted.then_some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::super::attributes::{self, ENCODING, MAX_ATTRIBUTES, Value, is_valid_name};
    use super::*;
    use bytes::Bytes;
    use causeway_core::identity::Id128;
    use causeway_core::message::{Message, Properties, Redrive};
    use causeway_core::units::UnixMillis;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn entry(message: Message) -> Entry {
        Entry {
            id: Id128(7),
            route: "r".into(),
            binding: "b".into(),
            address: None,
            refusal: None,
            source: "plant".into(),
            received_at: UnixMillis(1_772_366_400_123),
            expires_at: None,
            redrive: None,
            message,
        }
    }

    fn of_payload(payload: &[u8]) -> Entry {
        entry(Message { topic: "a/b".to_owned(), payload: Bytes::copy_from_slice(payload), qos: 1, ..Message::default() })
    }

    /// The payload that a consumer reads.
    fn payload_of(encoded: &Encoded<'_>) -> Vec<u8> {
        let base64 = encoded.attributes.iter().any(|a| a.name == ENCODING && a.value == Value::Text("base64".into()));
        if base64 { BASE64.decode(encoded.body.trim()).unwrap() } else { encoded.body.as_bytes().to_vec() }
    }

    /// What SQS enforces on one message, by its documentation.
    fn check_rules(encoded: &Encoded<'_>) {
        assert!(!encoded.body.is_empty() && encoded.body.chars().all(is_accepted));
        assert!(encoded.attributes.len() <= MAX_ATTRIBUTES, "{} attributes", encoded.attributes.len());
        let names: BTreeSet<_> = encoded.attributes.iter().map(|a| a.name.as_ref()).collect();
        assert_eq!(names.len(), encoded.attributes.len(), "names repeat");
        let mut size = encoded.body.len();
        for attribute in &encoded.attributes {
            assert!(is_valid_name(&attribute.name), "{}", attribute.name);
            let length = match &attribute.value {
                Value::Text(text) => text_length(text),
                Value::Json(text) => text_length(text),
                Value::Binary(bytes) => bytes.len(),
            };
            assert!(length > 0, "{} is empty", attribute.name);
            size += attribute.name.len() + attribute.data_type().len() + length;
        }
        assert_eq!(encoded.size, size);
    }

    fn text_length(text: &str) -> usize {
        assert!(text.chars().all(is_accepted), "{text:?}");
        text.len()
    }

    fn message() -> impl Strategy<Value = Message> {
        let payload =
            prop_oneof![any::<Vec<u8>>(), any::<String>().prop_map(String::into_bytes), "[ -~]{0,40}".prop_map(String::into_bytes)];
        let name =
            prop_oneof![any::<String>(), "[a-zA-Z0-9_.-]{1,8}", Just("traceparent".to_owned()), "(?i)(aws|amazon|causeway)\\.[a-z]{1,3}"];
        let value = prop_oneof![any::<String>(), "[a-z]{0,5}", "[\u{0}-\u{1f}\u{fffd}-\u{ffff}]{0,3}"];
        let user = proptest::collection::vec((name, value), 0..16);
        let text = || proptest::option::of(prop_oneof![any::<String>(), "[\u{0}-\u{1f}a-z\u{ffff}]{0,4}"]);
        (any::<(String, bool)>(), payload, text(), text(), any::<Option<Vec<u8>>>(), user).prop_map(
            |((topic, retain), payload, content_type, response_topic, correlation, user)| Message {
                topic,
                payload: Bytes::from(payload),
                qos: 1,
                retain,
                properties: Properties {
                    content_type,
                    response_topic,
                    correlation_data: correlation.map(Bytes::from),
                    user,
                    ..Properties::default()
                },
            },
        )
    }

    proptest! {
        #[test]
        fn everything_comes_out_again(message in message(), redrive in any::<Option<(u32, String)>>()) {
            let redrive = redrive.map(|(attempt, causation)| Redrive { attempt, causation });
            let entry = Entry { redrive, ..entry(message) };
            let encoded = encode(&entry);
            check_rules(&encoded);
            prop_assert_eq!(size_of(&entry), encoded.size);
            prop_assert_eq!(payload_of(&encoded), entry.message.payload.to_vec());
            let decoded = attributes::decode(&encoded.attributes).unwrap();
            let properties = &entry.message.properties;
            prop_assert_eq!(&decoded.topic, &entry.message.topic);
            prop_assert_eq!(&decoded.content_type, &properties.content_type);
            prop_assert_eq!(&decoded.response_topic, &properties.response_topic);
            prop_assert_eq!(decoded.correlation_data, properties.correlation_data.as_ref().map(|bytes| bytes.to_vec()));
            let sorted = |user: &[(String, String)]| { let mut user = user.to_vec(); user.sort(); user };
            prop_assert_eq!(sorted(&decoded.user), sorted(&properties.user));
            // Repeated names keep the publisher's order among themselves.
            for (name, _) in &properties.user {
                let of_name = |user: &[(String, String)]| user.iter().filter(|(other, _)| other == name).map(|(_, value)| value.clone()).collect::<Vec<_>>();
                prop_assert_eq!(of_name(&decoded.user), of_name(&properties.user));
            }
        }

        #[test]
        fn payloads_come_out_byte_for_byte(payload: Vec<u8>) {
            let entry = of_payload(&payload);
            let encoded = encode(&entry);
            prop_assert_eq!(payload_of(&encoded), payload);
            prop_assert_eq!(size_of(&entry), encoded.size);
        }
    }

    #[test]
    fn text_stays_text_and_the_rest_becomes_base64() {
        for (payload, body) in [
            (&b"{\"n\":1}"[..], "{\"n\":1}"),
            ("gr\u{fc}n\t\r\n\u{1F600}\u{FFFD}".as_bytes(), "gr\u{fc}n\t\r\n\u{1F600}\u{FFFD}"),
            (b"\x07bell", "B2JlbGw="),
            (b"\x00", "AA=="),
            ("\u{FFFF}".as_bytes(), "77+/"),
            ("\u{FFFE}".as_bytes(), "77++"),
            (b"\xff\xfe", "//4="),
            (b"", "\n"),
        ] {
            let entry = of_payload(payload);
            let encoded = encode(&entry);
            assert_eq!(encoded.body, body, "{payload:?}");
            assert_eq!(payload_of(&encoded), payload);
        }
    }

    /// The text of an attribute, wherever it stands.
    fn told(encoded: &Encoded<'_>, name: &str) -> Option<String> {
        let value = |name: &str| encoded.attributes.iter().find(|attribute| attribute.name == name).map(|attribute| &attribute.value);
        match value(name) {
            Some(Value::Text(text)) => Some(text.to_string()),
            Some(Value::Json(json)) => serde_json::from_str(json).unwrap(),
            Some(Value::Binary(_)) => panic!("{name} is binary"),
            None => match value(attributes::MORE) {
                Some(Value::Text(more)) => serde_json::from_str::<serde_json::Value>(more).unwrap()[name].as_str().map(str::to_owned),
                _ => None,
            },
        }
    }

    #[test]
    fn what_was_put_back_keeps_its_body_headers_and_id_and_tells_of_it() {
        let first = entry(Message {
            topic: "t".to_owned(),
            payload: Bytes::from_static(b"{}"),
            properties: Properties { user: vec![("a".to_owned(), "1".to_owned())], ..Properties::default() },
            ..Message::default()
        });
        let again = Entry { redrive: Some(Redrive { attempt: 2, causation: "op-1".to_owned() }), ..first.clone() };
        let (first, again) = (encode(&first), encode(&again));
        check_rules(&again);
        assert_eq!(again.body, first.body);
        for attribute in &first.attributes {
            assert!(again.attributes.contains(attribute), "{} changed", attribute.name);
        }
        assert_eq!(again.attributes.len(), first.attributes.len() + 2);
        assert_eq!(told(&again, attributes::REDRIVE_ATTEMPT).as_deref(), Some("2"));
        assert_eq!(told(&again, attributes::CAUSATION_ID).as_deref(), Some("op-1"));
        assert_eq!(told(&first, attributes::REDRIVE_ATTEMPT), None);
    }

    /// Every attribute that there is, on a message that was put back: what the bridge itself tells makes room, and is told all the same.
    #[test]
    fn where_there_is_no_room_the_bridges_own_facts_yield_and_nothing_is_lost() {
        for (user, content_type, yielded) in [
            (vec![("a".to_owned(), "1".to_owned()), ("traceparent".to_owned(), "2".to_owned())], Some("x/y"), 4),
            (Vec::new(), Some("x/y"), 3),
            (vec![("a".to_owned(), "1".to_owned())], None, 3),
            (Vec::new(), None, 2),
        ] {
            let message = Message {
                topic: "t".to_owned(),
                payload: Bytes::from_static(b"\xff"),
                retain: true,
                properties: Properties {
                    content_type: content_type.map(str::to_owned),
                    response_topic: Some("answers".to_owned()),
                    correlation_data: Some(Bytes::from_static(b"c")),
                    user: user.clone(),
                    ..Properties::default()
                },
                ..Message::default()
            };
            let entry = Entry { redrive: Some(Redrive { attempt: 1, causation: "op \u{0}".to_owned() }), ..entry(message) };
            let encoded = encode(&entry);
            check_rules(&encoded);
            let names: Vec<&str> = encoded.attributes.iter().map(|attribute| attribute.name.as_ref()).collect();
            let gone = attributes::YIELDING.iter().filter(|name| !names.contains(name)).count();
            assert_eq!(gone, yielded, "{names:?}");
            assert_eq!(told(&encoded, attributes::MESSAGE_ID), Some(entry.id.to_string()));
            assert_eq!(told(&encoded, attributes::SOURCE).as_deref(), Some("plant"));
            assert_eq!(told(&encoded, attributes::PUBLISHED_AT).as_deref(), Some("2026-03-01T12:00:00.123Z"));
            assert_eq!(told(&encoded, attributes::RETAINED).as_deref(), Some("true"));
            assert_eq!(told(&encoded, attributes::CAUSATION_ID).as_deref(), Some("op \u{0}"));
            let decoded = attributes::decode(&encoded.attributes).unwrap();
            assert_eq!((decoded.user, decoded.content_type.as_deref()), (user, content_type));
            assert_eq!((decoded.response_topic.as_deref(), decoded.correlation_data.as_deref()), (Some("answers"), Some(&b"c"[..])));
        }
    }

    #[test]
    fn the_publishers_id_travels_and_one_of_the_content_takes_its_place() {
        let id = |user: &[(&str, &str)], correlation: Option<&'static [u8]>| {
            let user = user.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let properties = Properties { user, correlation_data: correlation.map(Bytes::from_static), ..Properties::default() };
            let entry = entry(Message { topic: "t".to_owned(), properties, ..Message::default() });
            let encoded = encode(&entry);
            check_rules(&encoded);
            told(&encoded, attributes::SOURCE_ID).unwrap()
        };
        assert_eq!(id(&[("mqtt.message-id", "m-1")], Some(b"c")), "m-1");
        assert_eq!(id(&[], Some(b"bell \x07")), "bell \u{7}");
        assert_eq!(id(&[], Some(b"\xff")), "mqtt-bin:_w");
        assert!(id(&[], None).starts_with("sha256:"));
        assert_eq!(id(&[], None), id(&[], None));
    }

    #[test]
    fn fourteen_properties_with_spaces_are_packed() {
        let user: Vec<_> = (1..=14).map(|i| (format!("p {i}"), format!("v{i}"))).collect();
        let entry = entry(Message {
            topic: "t".to_owned(),
            properties: Properties { user: user.clone(), ..Properties::default() },
            ..Message::default()
        });
        let encoded = encode(&entry);
        check_rules(&encoded);
        assert_eq!(attributes::decode(&encoded.attributes).unwrap().user, user);
    }

    #[test]
    fn properties_that_fit_are_attributes_and_traces_go_first() {
        let named = |names: &[&str]| {
            let user = names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
            let entry = entry(Message {
                topic: "t".to_owned(),
                payload: Bytes::from_static(b"x"),
                properties: Properties { user, ..Properties::default() },
                ..Message::default()
            });
            let encoded = encode(&entry);
            let names = encoded
                .attributes
                .iter()
                .map(|a| a.name.to_string())
                .filter(|name| !name.starts_with("causeway.") || name.ends_with("properties"));
            names.collect::<Vec<_>>()
        };
        assert_eq!(named(&["b", "a"]), ["b", "a"]);
        assert_eq!(named(&["a", "b", "c", "d", "e"]).len(), 5);
        assert_eq!(named(&["a", "b", "c", "d", "e", "f", "traceparent"]), ["traceparent", "a", "b", "c", "causeway.user_properties"]);
        assert_eq!(named(&["a", "a"]), ["causeway.user_properties"], "repeats have no attribute of their own");
        assert_eq!(named(&["causeway.topic", "AWS.x", "a..b", ".a"]), ["causeway.user_properties"]);
    }

    #[test]
    fn the_time_is_iso_8601() {
        let entry = of_payload(b"x");
        let encoded = encode(&entry);
        let at = encoded.attributes.iter().find(|a| a.name == attributes::PUBLISHED_AT).unwrap();
        assert_eq!(at.value, Value::Text("2026-03-01T12:00:00.123Z".into()));
        let far = Entry { received_at: UnixMillis(u64::MAX), ..of_payload(b"x") };
        check_rules(&encode(&far));
    }
}
