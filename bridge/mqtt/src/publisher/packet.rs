//! Entries as PUBLISH packets: what is carried over, what is added, and what no broker may be shown.

use bytes::Bytes;
use causeway_core::flow::forwarded_expiry;
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::units::UnixMillis;
use causeway_ports::Publication;
use core::time::Duration;
use rumqttc::{PublishProperties, QoS};
use tokio::time::Instant;

/// The entry's id, the same however often it is published: subscribers tell repetitions by it.
pub const MESSAGE_ID: &str = "causeway.message_id";
/// How often the entry was put back from the dead letters; only on what was put back.
pub const REDRIVE_ATTEMPT: &str = "causeway.redrive_attempt";
/// The request that put it back; only on what was put back.
pub const CAUSATION_ID: &str = "causeway.causation_id";

/// What the bridge itself says; nothing that came in with such a name is carried over, so that no publisher can speak for the bridge.
const OWN: [&str; 3] = [MESSAGE_ID, REDRIVE_ATTEMPT, CAUSATION_ID];

/// The longest text or binary value of a packet, in bytes.
const MAX_FIELD: usize = 65_535;
/// The largest packet that MQTT knows, in bytes.
pub(crate) const MAX_PACKET: usize = 268_435_455 + 5;

/// A PUBLISH packet but for its identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) topic: String,
    pub(crate) payload: Bytes,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) properties: PublishProperties,
    /// When nobody wants it any more: what is left until then goes out as its expiry interval.
    pub(crate) expires_at: Option<Instant>,
    /// What it takes on the wire, in bytes.
    pub(crate) size: usize,
}

/// How entries are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
}

/// The packet of `entry` to `topic`, as of `now`.
pub(crate) fn packet(entry: &Entry, topic: &str, manner: Manner, now: UnixMillis) -> Result<Packet, Fault> {
    check_topic(topic).map_err(|reason| refused(format!("it cannot be published to the topic of its binding: {reason}")))?;
    let message = &entry.message;
    let from = &message.properties;
    if let Some(topic) = &from.response_topic {
        check_topic(topic).map_err(|reason| refused(format!("its response topic is no topic: {reason}")))?;
    }
    let properties = PublishProperties {
        payload_format_indicator: from.payload_format.filter(|format| *format <= 1),
        message_expiry_interval: remaining(entry, now)?,
        topic_alias: None,
        response_topic: from.response_topic.clone(),
        correlation_data: from.correlation_data.clone(),
        user_properties: user_properties(entry),
        // Those that it came with concern the subscription that it came by.
        subscription_identifiers: Vec::new(),
        content_type: from.content_type.clone(),
    };
    check_properties(&properties)?;
    let size = size(entry, topic);
    Ok(Packet {
        topic: topic.to_owned(),
        payload: message.payload.clone(),
        qos: manner.qos,
        retain: manner.retain,
        properties,
        expires_at: None,
        size,
    })
}

/// The packet of a single message.
pub(crate) fn of_publication(publication: Publication) -> Result<Packet, Fault> {
    let Publication { topic, payload, qos, expiry_seconds, response_topic, correlation_data, content_type, user } = publication;
    check_topic(&topic).map_err(|reason| refused(format!("it cannot be published to its topic: {reason}")))?;
    if let Some(topic) = &response_topic {
        check_topic(topic).map_err(|reason| refused(format!("its response topic is no topic: {reason}")))?;
    }
    let properties = PublishProperties {
        payload_format_indicator: None,
        message_expiry_interval: expiry_seconds,
        topic_alias: None,
        response_topic,
        correlation_data,
        user_properties: user,
        subscription_identifiers: Vec::new(),
        content_type,
    };
    check_properties(&properties)?;
    let size = wire_size(&topic, payload.len(), properties_size(&properties));
    let qos = if qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
    Ok(Packet {
        topic,
        payload,
        qos,
        retain: false,
        properties,
        expires_at: expiry_seconds.map(|seconds| Instant::now() + Duration::from_secs(u64::from(seconds))),
        size,
    })
}

fn check_properties(properties: &PublishProperties) -> Result<(), Fault> {
    let texts = properties.content_type.iter().chain(properties.user_properties.iter().flat_map(|(name, value)| [name, value]));
    for text in texts {
        check_text(text).map_err(|reason| refused(format!("one of its properties {reason}")))?;
    }
    if properties.correlation_data.as_ref().is_some_and(|data| data.len() > MAX_FIELD) {
        return Err(refused("its correlation data is longer than 65535 bytes".to_owned()));
    }
    Ok(())
}

fn properties_size(properties: &PublishProperties) -> usize {
    let text = |text: &String| 3 + text.len();
    let user: usize = properties.user_properties.iter().map(|(name, value)| 5 + name.len() + value.len()).sum();
    user + properties.content_type.as_ref().map_or(0, text)
        + properties.response_topic.as_ref().map_or(0, text)
        + properties.correlation_data.as_ref().map_or(0, |data| 3 + data.len())
        + properties.message_expiry_interval.map_or(0, |_| 5)
}

fn wire_size(topic: &str, payload: usize, properties: usize) -> usize {
    let remaining = 2 + topic.len() + 2 + varint(properties) + properties + payload;
    1 + varint(remaining) + remaining
}

/// What remains of the expiry interval that the publisher gave, in whole seconds, rounded up: a second that has begun still counts. How long the bridge keeps
/// what has none is nobody else's affair.
fn remaining(entry: &Entry, now: UnixMillis) -> Result<Option<u32>, Fault> {
    let Some((at, told)) = entry.expires_at.zip(entry.message.properties.expiry_seconds) else { return Ok(None) };
    // The one attempt of a message without any time.
    if now >= at && told > 0 {
        return Err(Fault::new(FaultCode::MessageExpired, format!("expired {} ms ago", now.since(at).as_millis())));
    }
    Ok(Some(forwarded_expiry(at.since(now))))
}

fn user_properties(entry: &Entry) -> Vec<(String, String)> {
    let carried = entry.message.properties.user.iter().filter(|(name, _)| !OWN.contains(&name.as_str())).cloned();
    let mut all: Vec<(String, String)> = carried.collect();
    all.push((MESSAGE_ID.to_owned(), entry.id.to_string()));
    if let Some(redrive) = &entry.redrive {
        all.push((REDRIVE_ATTEMPT.to_owned(), redrive.attempt.to_string()));
        all.push((CAUSATION_ID.to_owned(), redrive.causation.clone()));
    }
    all
}

/// What the packet of `entry` to `topic` takes on the wire at most, in bytes.
pub(crate) fn size(entry: &Entry, topic: &str) -> usize {
    let from = &entry.message.properties;
    let text = |text: &str| 3 + text.len();
    let user: usize = user_properties(entry).iter().map(|(name, value)| 5 + name.len() + value.len()).sum();
    let properties = user
        + from.content_type.as_deref().map_or(0, text)
        + from.response_topic.as_deref().map_or(0, text)
        + from.correlation_data.as_ref().map_or(0, |data| 3 + data.len())
        + from.payload_format.map_or(0, |_| 2)
        + entry.expires_at.and(entry.message.properties.expiry_seconds).map_or(0, |_| 5);
    wire_size(topic, entry.message.payload.len(), properties)
}

/// How many bytes `value` takes as a variable byte integer.
const fn varint(value: usize) -> usize {
    match value {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        _ => 4,
    }
}

/// Whether a message can be published to `topic`. A broker may end the connection over one that is not valid, and take all others in flight with it.
pub(crate) fn check_topic(topic: &str) -> Result<(), &'static str> {
    if topic.is_empty() {
        return Err("it is empty");
    }
    if topic.contains(['+', '#']) {
        return Err("it has a wildcard");
    }
    check_text(topic)
}

fn check_text(text: &str) -> Result<(), &'static str> {
    if text.len() > MAX_FIELD {
        return Err("is longer than 65535 bytes");
    }
    if text.contains('\0') {
        return Err("has the character U+0000, which MQTT does not allow");
    }
    Ok(())
}

fn refused(detail: String) -> Fault {
    Fault::new(FaultCode::InvalidPayload, detail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use causeway_core::identity::Id128;
    use causeway_core::message::{Message, Properties, Redrive};
    use core::time::Duration;
    use proptest::prelude::*;

    const LATER: UnixMillis = UnixMillis(1_700_000_000_000);
    const MANNER: Manner = Manner { qos: QoS::AtLeastOnce, retain: false };

    fn entry(properties: Properties) -> Entry {
        Entry {
            id: Id128(7),
            route: "r".into(),
            binding: "b".into(),
            address: None,
            refusal: None,
            source: "s".into(),
            received_at: LATER,
            expires_at: None,
            message: Message { topic: "in".to_owned(), payload: Bytes::from_static(b"x"), qos: 1, retain: true, properties },
            redrive: None,
        }
    }

    #[test]
    fn everything_is_carried_over_and_the_id_is_added() {
        let properties = Properties {
            content_type: Some("text/plain".into()),
            response_topic: Some("answers/1".into()),
            correlation_data: Some(Bytes::from_static(&[0, 255])),
            payload_format: Some(1),
            expiry_seconds: None,
            user: vec![("k".into(), "1".into()), ("k".into(), "2".into()), (MESSAGE_ID.into(), "forged".into())],
            subscription_ids: vec![9],
        };
        let packet = packet(&entry(properties.clone()), "out/a", MANNER, LATER).unwrap();
        assert_eq!((packet.topic.as_str(), &packet.payload[..], packet.qos, packet.retain), ("out/a", &b"x"[..], QoS::AtLeastOnce, false));
        let to = &packet.properties;
        assert_eq!((&to.content_type, &to.response_topic), (&properties.content_type, &properties.response_topic));
        assert_eq!((&to.correlation_data, to.payload_format_indicator), (&properties.correlation_data, Some(1)));
        assert_eq!(to.subscription_identifiers, Vec::<usize>::new());
        let id = entry(Properties::default()).id.to_string();
        assert_eq!(to.user_properties, [("k", "1"), ("k", "2"), (MESSAGE_ID, id.as_str())].map(|(k, v)| (k.to_owned(), v.to_owned())));
    }

    #[test]
    fn what_was_put_back_says_so() {
        let redriven = Entry { redrive: Some(Redrive { attempt: 2, causation: "request".into() }), ..entry(Properties::default()) };
        let packet = packet(&redriven, "out", MANNER, LATER).unwrap();
        let value = |name: &str| packet.properties.user_properties.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!((value(REDRIVE_ATTEMPT), value(CAUSATION_ID)), (Some("2"), Some("request")));
    }

    #[test]
    fn of_the_expiry_only_what_remains_is_forwarded() {
        let at = |millis: u64| {
            let told = Properties { expiry_seconds: Some(60), ..Properties::default() };
            let entry = Entry { expires_at: Some(LATER.plus(Duration::from_secs(60))), ..entry(told) };
            packet(&entry, "out", MANNER, UnixMillis(LATER.0 + millis)).map(|packet| packet.properties.message_expiry_interval)
        };
        assert_eq!(at(0), Ok(Some(60)));
        assert_eq!(at(45_000), Ok(Some(15)));
        assert_eq!(at(59_999), Ok(Some(1)));
        assert_eq!(at(60_000).map_err(|fault| fault.code), Err(FaultCode::MessageExpired));
        assert_eq!(packet(&entry(Properties::default()), "out", MANNER, LATER).unwrap().properties.message_expiry_interval, None);
    }

    #[test]
    fn flow_c5_vectors_of_the_forwarded_expiry() {
        let after = |told: u32, millis: u64| {
            let properties = Properties { expiry_seconds: Some(told), ..Properties::default() };
            let entry = Entry { expires_at: Some(LATER.plus(Duration::from_secs(u64::from(told)))), ..entry(properties) };
            let packet = packet(&entry, "out", MANNER, UnixMillis(LATER.0 + millis));
            packet.map(|packet| packet.properties.message_expiry_interval).map_err(|fault| fault.code)
        };
        let expired = Err(FaultCode::MessageExpired);
        assert_eq!([after(10, 0), after(10, 1), after(10, 9_999), after(10, 10_000)], [Ok(Some(10)), Ok(Some(10)), Ok(Some(1)), expired]);
        assert_eq!([after(0, 0), after(0, 5_000)], [Ok(Some(1)), Ok(Some(1))], "its one attempt");
        assert_eq!(after(u32::MAX, 0), Ok(Some(u32::MAX)));
        // The bridge's own time to live is not forwarded; a longer interval than the bridge keeps anything is cut.
        let kept = Entry { expires_at: Some(LATER.plus(Duration::from_secs(100))), ..entry(Properties::default()) };
        assert_eq!(packet(&kept, "out", MANNER, LATER).unwrap().properties.message_expiry_interval, None);
        let told = Properties { expiry_seconds: Some(u32::MAX), ..Properties::default() };
        let cut = Entry { expires_at: Some(LATER.plus(Duration::from_secs(100))), ..entry(told) };
        assert_eq!(packet(&cut, "out", MANNER, LATER).unwrap().properties.message_expiry_interval, Some(100));
    }

    #[test]
    fn what_would_cost_the_connection_is_refused_by_itself() {
        let code = |properties: Properties, topic: &str| packet(&entry(properties), topic, MANNER, LATER).map_err(|fault| fault.code).err();
        for topic in ["", "a/+", "#", "a\0b", &"t".repeat(65_536)] {
            assert_eq!(code(Properties::default(), topic), Some(FaultCode::InvalidPayload));
        }
        for properties in [
            Properties { response_topic: Some("a/#".into()), ..Properties::default() },
            Properties { content_type: Some("\0".into()), ..Properties::default() },
            Properties { user: vec![("k".into(), "a\0".into())], ..Properties::default() },
            Properties { user: vec![("k".repeat(65_536), String::new())], ..Properties::default() },
            Properties { correlation_data: Some(vec![0; 65_536].into()), ..Properties::default() },
        ] {
            assert_eq!(code(properties, "out"), Some(FaultCode::InvalidPayload));
        }
    }

    proptest! {
        /// Against the library's own encoder.
        #[test]
        fn the_size_is_that_on_the_wire(
            payload in 0_usize..20_000, topic in "[a-z/]{1,200}", content in proptest::option::of("[a-z]{0,20}"),
            user in prop::collection::vec(("[a-z]{0,9}", "[a-z]{0,90}"), 0..9), expires: bool, format in proptest::option::of(0_u8..2)
        ) {
            let mut entry = entry(Properties { content_type: content, user, payload_format: format, ..Properties::default() });
            entry.message.payload = vec![0; payload].into();
            entry.expires_at = expires.then(|| LATER.plus(Duration::from_secs(9)));
            let packet = packet(&entry, &topic, MANNER, LATER).unwrap();
            let mut publish = rumqttc::Publish::new(packet.topic, packet.qos, packet.payload, Some(packet.properties));
            publish.pkid = 1;
            let mut wire = bytes::BytesMut::new();
            publish.write(&mut wire).unwrap();
            prop_assert_eq!(wire.len(), packet.size);
        }
    }
}
