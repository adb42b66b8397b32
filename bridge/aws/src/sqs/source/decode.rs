//! What a received message is: the mirror of what [`encode`](super::super::encode) writes, and what it means of messages that others sent.

use super::super::attributes::{self, Attribute, ENCODING, JSON_TYPE, MESSAGE_ID, MORE, RESERVED_PREFIX, RETAINED, Value};
use aws_sdk_sqs::types::{Message as Received, MessageAttributeValue, MessageSystemAttributeName};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use causeway_core::message::{Message, Properties};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The user property that tells which message it is, however often it is received: the id that an earlier bridge gave it, else the one of SQS.
pub const SOURCE_MESSAGE_ID: &str = "mqtt.message-id";

/// The message in `received`. `unwrap_sns`: a notification of SNS is taken out of its wrapping.
///
/// The topic is the one that a bridge sent along; else the group of a FIFO queue, which is what it keeps the order of; else empty. Attributes of others
/// become user properties, binary ones as base64.
#[must_use]
pub fn message(received: &Received, unwrap_sns: bool) -> Message {
    let body = received.body().unwrap_or_default();
    let mut own: BTreeMap<String, Text> = received.message_attributes().into_iter().flatten().filter_map(text_of).collect();
    let notification = if unwrap_sns { Notification::read(body) } else { None };
    let body = match notification {
        None => Cow::Borrowed(body),
        Some(notification) => {
            for (name, attribute) in notification.attributes {
                own.entry(name).or_insert(Text { data_type: attribute.kind, value: attribute.value });
            }
            Cow::Owned(notification.message)
        }
    };
    let given = |name: &str| own.get(name).map(|text| text.value.as_str());
    let is_base64 = given(ENCODING) == Some("base64");
    let more = given(MORE).and_then(|json| serde_json::from_str::<BTreeMap<String, String>>(json).ok()).unwrap_or_default();
    let retain = given(RETAINED) == Some("true") || more.get(RETAINED).map(String::as_str) == Some("true");
    let group = received.attributes().and_then(|all| all.get(&MessageSystemAttributeName::MessageGroupId)).cloned().unwrap_or_default();
    let id = given(MESSAGE_ID).or_else(|| received.message_id()).map(str::to_owned);

    let all: Vec<Attribute<'_>> = own.iter().map(|(name, text)| text.attribute(name)).collect();
    let decoded = attributes::decode(&all).unwrap_or_else(|| attributes::Decoded { user: plain(&own), ..attributes::Decoded::default() });
    let mut user = decoded.user;
    if let Some(id) = id.filter(|_| !user.iter().any(|(name, _)| name == SOURCE_MESSAGE_ID)) {
        user.push((SOURCE_MESSAGE_ID.to_owned(), id));
    }
    Message {
        topic: if own.contains_key(attributes::TOPIC) { decoded.topic } else { group },
        payload: payload(&body, is_base64),
        qos: 1,
        retain,
        properties: Properties {
            content_type: decoded.content_type,
            response_topic: decoded.response_topic,
            correlation_data: decoded.correlation_data.map(Bytes::from),
            user,
            ..Properties::default()
        },
    }
}

/// What says that it is base64 and is not was not written by a bridge: then the text is the payload.
fn payload(body: &str, is_base64: bool) -> Bytes {
    let decoded = if is_base64 { BASE64.decode(body.trim()).ok() } else { None };
    decoded.map_or_else(|| Bytes::copy_from_slice(body.as_bytes()), Bytes::from)
}

/// What others sent in attributes that do not fit together, as it stands.
fn plain(own: &BTreeMap<String, Text>) -> Vec<(String, String)> {
    own.iter().filter(|(name, _)| !name.starts_with(RESERVED_PREFIX)).map(|(name, text)| (name.clone(), text.value.clone())).collect()
}

/// An attribute, binary ones as base64.
struct Text {
    data_type: String,
    value: String,
}

impl Text {
    fn attribute<'t>(&'t self, name: &'t str) -> Attribute<'t> {
        // Only the bridge's own attributes are known to be JSON; the correlation data is base64 here, which is how JSON holds it too.
        let own = name.starts_with(RESERVED_PREFIX);
        let value =
            if own && self.data_type == JSON_TYPE { Value::Json(self.value.clone()) } else { Value::Text(Cow::Borrowed(&self.value)) };
        Attribute { name: Cow::Borrowed(name), value }
    }
}

fn text_of((name, value): (&String, &MessageAttributeValue)) -> Option<(String, Text)> {
    let text = match (value.string_value(), value.binary_value()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(bytes)) => BASE64.encode(bytes.as_ref()),
        (None, None) => return None,
    };
    Some((name.clone(), Text { data_type: value.data_type().to_owned(), value: text }))
}

/// A message as SNS puts it into a queue, unless it is told to deliver it raw.
#[derive(Deserialize)]
struct Notification {
    #[serde(rename = "Type")]
    kind: String,
    #[serde(rename = "Message")]
    message: String,
    /// Names the topic of SNS; without it this is only something that looks alike.
    #[serde(rename = "TopicArn")]
    topic_arn: String,
    #[serde(rename = "MessageAttributes", default)]
    attributes: BTreeMap<String, SnsAttribute>,
}

#[derive(Deserialize)]
struct SnsAttribute {
    #[serde(rename = "Type")]
    kind: String,
    #[serde(rename = "Value")]
    value: String,
}

impl Notification {
    fn read(body: &str) -> Option<Self> {
        let read: Self = serde_json::from_str(body).ok()?;
        (read.kind == "Notification" && !read.topic_arn.is_empty()).then_some(read)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::super::attributes::Value as Sent;
    use super::super::super::encode::encode;
    use super::*;
    use aws_sdk_sqs::primitives::Blob;
    use causeway_core::identity::Id128;
    use causeway_core::message::{Entry, Redrive};
    use causeway_core::units::UnixMillis;
    use proptest::prelude::*;

    fn value(data_type: &str, text: &str) -> MessageAttributeValue {
        MessageAttributeValue::builder().data_type(data_type).string_value(text).build().unwrap()
    }

    /// What a queue gives back of what the bridge sends.
    fn through_a_queue(entry: &Entry) -> Received {
        let encoded = encode(entry);
        let mut received = Received::builder().message_id("sqs-id").body(encoded.body.as_ref());
        for attribute in &encoded.attributes {
            let value = match &attribute.value {
                Sent::Text(text) => value(attribute.data_type(), text),
                Sent::Json(text) => value(attribute.data_type(), text),
                Sent::Binary(bytes) => {
                    MessageAttributeValue::builder().data_type(attribute.data_type()).binary_value(Blob::new(*bytes)).build().unwrap()
                }
            };
            received = received.message_attributes(attribute.name.as_ref(), value);
        }
        received.build()
    }

    fn entry(message: Message) -> Entry {
        Entry {
            id: Id128(7),
            route: "r".into(),
            binding: "b".into(),
            address: None,
            refusal: None,
            source: "s".into(),
            received_at: UnixMillis(1_772_366_400_123),
            expires_at: None,
            message,
            redrive: None,
        }
    }

    fn any_message() -> impl Strategy<Value = Message> {
        // A pattern is a strategy for the texts that it matches.
        let text = ".{0,12}";
        let name = prop_oneof![Just("traceparent".to_owned()), "[a-z]{1,6}", ".{0,5}"];
        let user = prop::collection::vec((name, text), 0..14);
        let bytes = prop::collection::vec(any::<u8>(), 0..40);
        (".{1,12}", bytes.clone(), any::<bool>(), proptest::option::of(text), proptest::option::of(text), proptest::option::of(bytes), user)
            .prop_map(|(topic, payload, retain, content_type, response_topic, correlation, user)| Message {
                topic,
                payload: payload.into(),
                qos: 1,
                retain,
                properties: Properties {
                    content_type,
                    response_topic,
                    correlation_data: correlation.map(Bytes::from),
                    user: user.into_iter().filter(|(name, _)| name != SOURCE_MESSAGE_ID).collect(),
                    ..Properties::default()
                },
            })
    }

    proptest! {
        /// What one bridge sends another one receives, byte for byte; only the order of properties that have an attribute of their own is not kept.
        #[test]
        fn what_a_bridge_sent_comes_back_whole(message in any_message(), redriven: bool) {
            let redrive = redriven.then(|| Redrive { attempt: 2, causation: "again".into() });
            let mut back = super::message(&through_a_queue(&Entry { redrive, ..entry(message.clone()) }), false);
            let mut expected = message;
            expected.properties.user.push((SOURCE_MESSAGE_ID.to_owned(), Id128(7).to_string()));
            back.properties.user.sort();
            expected.properties.user.sort();
            prop_assert_eq!(back, expected);
        }
    }

    #[test]
    fn a_message_of_somebody_else_keeps_its_attributes_as_properties() {
        let received = Received::builder()
            .message_id("11-22")
            .body("{\"n\":1}")
            .message_attributes("colour", value("String", "red"))
            .message_attributes("count", value("Number", "12"))
            .message_attributes(
                "raw",
                MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new([0, 255])).build().unwrap(),
            )
            .build();
        let got = message(&received, false);
        assert_eq!((got.topic.as_str(), &got.payload[..], got.qos, got.retain), ("", &b"{\"n\":1}"[..], 1, false));
        let expected = [("colour", "red"), ("count", "12"), ("raw", "AP8="), (SOURCE_MESSAGE_ID, "11-22")];
        assert_eq!(got.properties.user, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn the_group_of_a_fifo_queue_is_the_topic_where_no_bridge_told_one() {
        let grouped = |received: aws_sdk_sqs::types::builders::MessageBuilder| {
            message(&received.attributes(MessageSystemAttributeName::MessageGroupId, "line-3").body("x").build(), false).topic
        };
        assert_eq!(grouped(Received::builder()), "line-3");
        assert_eq!(grouped(Received::builder().message_attributes("causeway.topic", value("String", "a/b"))), "a/b");
    }

    #[test]
    fn what_pretends_to_be_encoded_is_taken_as_it_is() {
        let received = Received::builder().body("not base64!").message_attributes(ENCODING, value("String", "base64")).build();
        assert_eq!(message(&received, false).payload, "not base64!");
        let odd = Received::builder()
            .body("x")
            .message_attributes("causeway.user_properties", value("String", "no json"))
            .message_attributes("k", value("String", "v"));
        assert_eq!(message(&odd.build(), false).properties.user, [("k".to_owned(), "v".to_owned())]);
    }

    #[test]
    fn a_notification_is_unwrapped_where_that_is_wanted() {
        let body = r#"{"Type":"Notification","MessageId":"m","TopicArn":"arn:aws:sns:eu-west-1:1:t","Message":"{\"n\":1}",
            "MessageAttributes":{"colour":{"Type":"String","Value":"red"},"causeway.topic":{"Type":"String","Value":"a/b"}}}"#;
        let received = Received::builder().body(body).build();
        let got = message(&received, true);
        assert_eq!((got.topic.as_str(), &got.payload[..]), ("a/b", &b"{\"n\":1}"[..]));
        assert_eq!(got.properties.user, [("colour".to_owned(), "red".to_owned())]);
        assert_eq!(message(&received, false).payload, body);
        for other in ["", "{", r#"{"Type":"Notification","Message":"x"}"#, r#"{"Type":"Other","Message":"x","TopicArn":"t"}"#] {
            assert_eq!(message(&Received::builder().body(other).build(), true).payload, other);
        }
    }
}
