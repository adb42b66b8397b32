//! PUBLISH packets as messages, nothing of them lost.

use bytes::Bytes;
use causeway_core::message::{Message, Properties};
use rumqttc::{Publish, QoS};

/// Why a PUBLISH packet makes no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PoisonPublish {
    /// No topic: the broker used a topic alias that was never agreed to.
    #[error("a PUBLISH without a topic")]
    NoTopic,
    /// A topic that is no UTF-8.
    #[error("a PUBLISH whose topic is not UTF-8")]
    TopicNotUtf8,
}

/// The message in `publish`. What came with quality of service 2 counts as 1: it is delivered at least once.
pub(crate) fn message(publish: Publish) -> Result<Message, PoisonPublish> {
    if publish.topic.is_empty() {
        return Err(PoisonPublish::NoTopic);
    }
    let topic = core::str::from_utf8(&publish.topic).map_err(|_| PoisonPublish::TopicNotUtf8)?.to_owned();
    let properties = publish.properties.map(|p| Properties {
        content_type: p.content_type,
        response_topic: p.response_topic,
        correlation_data: p.correlation_data.map(|data| detached(&data)),
        payload_format: p.payload_format_indicator,
        expiry_seconds: p.message_expiry_interval,
        user: p.user_properties,
        subscription_ids: p.subscription_identifiers.into_iter().filter_map(|id| u32::try_from(id).ok()).collect(),
    });
    Ok(Message {
        topic,
        payload: detached(&publish.payload),
        qos: u8::from(publish.qos != QoS::AtMostOnce),
        retain: publish.retain,
        properties: properties.unwrap_or_default(),
    })
}

/// A copy that does not keep the read buffer alive: small messages would otherwise hold on to a whole buffer of the connection.
fn detached(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use rumqttc::PublishProperties;

    #[test]
    fn every_property_survives() {
        let mut publish = Publish::new("a/b", QoS::AtLeastOnce, "hello", None);
        publish.retain = true;
        publish.properties = Some(PublishProperties {
            payload_format_indicator: Some(1),
            message_expiry_interval: Some(60),
            topic_alias: None,
            response_topic: Some("r".into()),
            correlation_data: Some(Bytes::from_static(&[0, 255])),
            user_properties: vec![("k".into(), "1".into()), ("k".into(), "2".into())],
            subscription_identifiers: vec![1, 268_435_455],
            content_type: Some("text/plain".into()),
        });
        let message = message(publish).unwrap();
        assert_eq!((message.topic.as_str(), &message.payload[..], message.qos, message.retain), ("a/b", &b"hello"[..], 1, true));
        let expected = Properties {
            content_type: Some("text/plain".into()),
            response_topic: Some("r".into()),
            correlation_data: Some(Bytes::from_static(&[0, 255])),
            payload_format: Some(1),
            expiry_seconds: Some(60),
            user: vec![("k".into(), "1".into()), ("k".into(), "2".into())],
            subscription_ids: vec![1, 268_435_455],
        };
        assert_eq!(message.properties, expected);
    }

    #[test]
    fn a_publish_without_a_usable_topic_is_poison() {
        assert_eq!(message(Publish::new("", QoS::AtMostOnce, "x", None)), Err(PoisonPublish::NoTopic));
        let mut publish = Publish::new("a", QoS::ExactlyOnce, "x", None);
        assert_eq!(message(publish.clone()).unwrap().qos, 1);
        publish.topic = Bytes::from_static(&[0xff]);
        assert_eq!(message(publish), Err(PoisonPublish::TopicNotUtf8));
    }
}
