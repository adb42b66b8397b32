//! A dead letter. Key: `DLQ#<id>` / `0`; what does not fit stands in parts beside it (see [`super::chunk`]).
//!
//! A person reads it in a console: every fact has an attribute of its own, and the payload is text wherever it is text.

use super::{Item, ItemError, boolean, chunk, item_size, key, n, number, number_if_any, s, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState, Redriven};
use causeway_core::identity::EntryId;
use causeway_core::message::{Message, Properties};
use causeway_core::outcome::FaultClass;
use causeway_core::units::UnixMillis;
use core::time::Duration;
use serde_json::{Value, json};

/// The sort key of the first row.
pub const FIRST: &str = "0";
/// The attribute by which DynamoDB removes a letter, in seconds since 1970.
pub const TTL: &str = "ttl";
/// The sort key of the indexes: when it failed and its id, so that no two letters are equal.
pub const FAILED_SORT: &str = "failed_sort";
/// The bridge that a letter came by: several may keep theirs in one table.
pub const BRIDGE: &str = "bridge_id";
/// The partition key of the index by route.
pub const ROUTE: &str = "route_id";
/// The partition key of the index by category.
pub const CATEGORY: &str = "category";
/// The letter's state.
pub const STATE: &str = "state";
/// The fault's code.
pub const ERROR_CODE: &str = "error_code";
/// How often it was put back.
pub const REDRIVE_COUNT: &str = "redrive_count";
/// Who put it back, and when; how much of the payload the tombstone does not keep.
const REDRIVEN_BY: &str = "redriven_by";
const REDRIVEN_AT: &str = "redriven_at";
const DROPPED_BYTES: &str = "dropped_bytes";
/// How many parts stand beside the first row.
pub const CHUNKS: &str = "chunks";

const PAYLOAD: &str = "payload";
const PAYLOAD_ENCODING: &str = "payload_encoding";
const PAYLOAD_BYTES: &str = "payload_bytes";
const HEADERS: &str = "headers";
const UTF8: &str = "utf-8";
const TEXT_BASE64: &str = "base64";
const IN_CHUNKS: &str = "chunks";

/// A first row larger than this moves its payload into parts.
const MAX_FIRST_ROW: usize = 350 * 1024;
/// Longest `last_error` that is kept, in bytes.
const MAX_LAST_ERROR: usize = 4096;

/// Every category, for reading all letters by category.
pub const CATEGORIES: [FaultClass; 5] =
    [FaultClass::Transient, FaultClass::Permanent, FaultClass::Rejected, FaultClass::Expired, FaultClass::Poison];

/// A letter as items.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// The row that makes the letter visible: written last.
    pub first: Item,
    /// What did not fit.
    pub chunks: Vec<Item>,
}

/// The partition key of letter `id`.
#[must_use]
pub fn partition_key(id: EntryId) -> String {
    format!("DLQ#{id}")
}

/// The value by which indexes sort: the same for everyone who asks for letters since or before a moment.
#[must_use]
pub fn failed_sort(failed_at: UnixMillis, id: EntryId) -> String {
    format!("{}{id}", failed_sort_prefix(failed_at))
}

/// What every sort value of `failed_at` starts with.
#[must_use]
pub fn failed_sort_prefix(failed_at: UnixMillis) -> String {
    format!("{:020}#", failed_at.0)
}

/// Whether `text` is such a value.
#[must_use]
pub fn is_failed_sort(text: &str) -> bool {
    let moment = |digits: &str| digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('#').is_some_and(|(at, id)| moment(at) && id.parse::<EntryId>().is_ok())
}

/// The items of `letter`; with a retention, DynamoDB removes the first row after it.
#[must_use]
pub fn encode(letter: &DeadLetter, retention: Option<Duration>) -> Encoded {
    let mut first = facts(letter);
    if let Some(retention) = retention {
        first.insert(TTL.to_owned(), n(letter.failed_at.plus(retention).0 / 1000));
    }
    let payload = &letter.message.payload;
    let headers = headers_to_json(&letter.message.properties).to_string();
    let (encoding, payload_text) = payload_to_text(payload);
    first.insert(PAYLOAD_BYTES.to_owned(), n(payload.len()));
    let named = first.len() + 64;
    let base = item_size(&first) + named;
    if base + headers.len() + payload_text.len() <= MAX_FIRST_ROW {
        first.insert(PAYLOAD_ENCODING.to_owned(), s(encoding));
        first.insert(PAYLOAD.to_owned(), s(payload_text));
        first.insert(HEADERS.to_owned(), s(headers));
        return Encoded { first, chunks: Vec::new() };
    }
    let mut outside = payload.to_vec();
    if base + headers.len() <= MAX_FIRST_ROW {
        first.insert(HEADERS.to_owned(), s(headers));
    } else {
        outside.extend_from_slice(headers.as_bytes());
    }
    let mut chunks = chunk::encode(letter.id, &outside);
    if let Some(expiry) = first.get(TTL) {
        // A part that outlived its letter would never be found again.
        chunks.iter_mut().for_each(|part| drop(part.insert(TTL.to_owned(), expiry.clone())));
    }
    first.insert(PAYLOAD_ENCODING.to_owned(), s(IN_CHUNKS));
    first.insert(CHUNKS.to_owned(), n(chunks.len()));
    Encoded { first, chunks }
}

/// The item of a tombstone: always one. Headers that need parts of their own go with the payload.
#[must_use]
pub fn encode_tombstone(letter: &DeadLetter) -> Item {
    let encoded = encode(letter, None);
    if encoded.chunks.is_empty() {
        return encoded.first;
    }
    let message = Message { properties: Properties::default(), ..letter.message.clone() };
    encode(&DeadLetter { message, ..letter.clone() }, None).first
}

/// Everything but the payload and the headers.
fn facts(letter: &DeadLetter) -> Item {
    let mut item = key(partition_key(letter.id), FIRST);
    let last_error = shortened(&letter.last_error, MAX_LAST_ERROR);
    let texts = [
        ("message_id", letter.id.to_string()),
        (BRIDGE, letter.bridge.clone()),
        ("binding", letter.binding.clone()),
        ("session", letter.session.clone()),
        ("source", letter.source.clone()),
        ("address", letter.address.clone()),
        (CATEGORY, letter.category.as_str().to_owned()),
        (ERROR_CODE, letter.error_code.clone()),
        ("reason", letter.reason.clone()),
        ("last_error", last_error.to_owned()),
        (STATE, letter.state.as_str().to_owned()),
        ("topic", letter.message.topic.clone()),
        (FAILED_SORT, failed_sort(letter.failed_at, letter.id)),
    ];
    item.extend(texts.map(|(name, value)| (name.to_owned(), s(value))));
    // A key of an index must not be empty.
    if !letter.route.is_empty() {
        item.insert(ROUTE.to_owned(), s(letter.route.as_str()));
    }
    let numbers = [
        ("attempts", u64::from(letter.attempts)),
        (REDRIVE_COUNT, u64::from(letter.redrive_count)),
        ("failed_at", letter.failed_at.0),
        ("received_at", letter.received_at.0),
        ("qos", u64::from(letter.message.qos)),
    ];
    item.extend(numbers.map(|(name, value)| (name.to_owned(), n(value))));
    if let Some(redriven) = &letter.redriven {
        item.insert(REDRIVEN_BY.to_owned(), s(redriven.request.as_str()));
        item.insert(REDRIVEN_AT.to_owned(), n(redriven.at.0));
        item.insert(DROPPED_BYTES.to_owned(), n(redriven.dropped_bytes));
    }
    item.insert("retain".to_owned(), aws_sdk_dynamodb::types::AttributeValue::Bool(letter.message.retain));
    item
}

/// How many parts stand beside a first row.
///
/// # Errors
/// [`ItemError`] where the count cannot be read.
pub fn chunk_count(first: &Item) -> Result<usize, ItemError> {
    Ok(number_if_any(first, CHUNKS)?.unwrap_or(0))
}

/// Reads a letter from its first row and its parts.
///
/// # Errors
/// [`ItemError`] where an attribute is missing or damaged.
pub fn decode(first: &Item, chunks: &[Item]) -> Result<DeadLetter, ItemError> {
    let (payload, headers) = content(first, chunks)?;
    let mut letter = decode_facts(first)?;
    letter.message.payload = payload;
    letter.message.properties = headers_from_json(&headers).ok_or(ItemError::Unreadable(HEADERS))?;
    Ok(letter)
}

/// Reads a letter without its payload and its headers.
///
/// # Errors
/// [`ItemError`] where an attribute is missing or damaged.
pub fn decode_facts(first: &Item) -> Result<DeadLetter, ItemError> {
    let own = |name| text(first, name).map(str::to_owned);
    let category = text(first, CATEGORY)?;
    Ok(DeadLetter {
        id: text(first, "message_id")?.parse().map_err(|_| ItemError::Unreadable("message_id"))?,
        // Letters of earlier releases do not say.
        bridge: if first.contains_key(BRIDGE) { own(BRIDGE)? } else { String::new() },
        route: if first.contains_key(ROUTE) { own(ROUTE)? } else { String::new() },
        binding: own("binding")?,
        session: own("session")?,
        source: own("source")?,
        address: own("address")?,
        category: CATEGORIES.into_iter().find(|class| class.as_str() == category).ok_or(ItemError::Unreadable(CATEGORY))?,
        error_code: own(ERROR_CODE)?,
        reason: own("reason")?,
        last_error: own("last_error")?,
        attempts: number(first, "attempts")?,
        redrive_count: number(first, REDRIVE_COUNT)?,
        state: DeadLetterState::parse(text(first, STATE)?).ok_or(ItemError::Unreadable(STATE))?,
        failed_at: UnixMillis(number(first, "failed_at")?),
        received_at: UnixMillis(number(first, "received_at")?),
        message: Message {
            topic: own("topic")?,
            payload: Bytes::new(),
            qos: number(first, "qos")?,
            retain: boolean(first, "retain")?,
            properties: Properties::default(),
        },
        redriven: redriven(first)?,
    })
}

fn redriven(first: &Item) -> Result<Option<Redriven>, ItemError> {
    let Some(at) = number_if_any(first, REDRIVEN_AT)? else { return Ok(None) };
    let dropped_bytes = number_if_any(first, DROPPED_BYTES)?.unwrap_or(0);
    Ok(Some(Redriven { at: UnixMillis(at), request: text(first, REDRIVEN_BY)?.to_owned(), dropped_bytes }))
}

fn content(first: &Item, chunks: &[Item]) -> Result<(Bytes, Value), ItemError> {
    let inline_headers = || {
        let text = text(first, HEADERS)?;
        serde_json::from_str(text).map_err(|_| ItemError::Unreadable(HEADERS))
    };
    match text(first, PAYLOAD_ENCODING)? {
        UTF8 => Ok((Bytes::copy_from_slice(text(first, PAYLOAD)?.as_bytes()), inline_headers()?)),
        TEXT_BASE64 => {
            let bytes = BASE64.decode(text(first, PAYLOAD)?).map_err(|_| ItemError::Unreadable(PAYLOAD))?;
            Ok((Bytes::from(bytes), inline_headers()?))
        }
        IN_CHUNKS => {
            let mut outside = Bytes::from(chunk::decode(chunks)?);
            let length: usize = number(first, PAYLOAD_BYTES)?;
            if chunks.len() != chunk_count(first)? || outside.len() < length {
                return Err(ItemError::Unreadable(CHUNKS));
            }
            let payload = outside.split_to(length);
            if first.contains_key(HEADERS) {
                return Ok((payload, inline_headers()?));
            }
            let headers = serde_json::from_slice(&outside).map_err(|_| ItemError::Unreadable(HEADERS))?;
            Ok((payload, headers))
        }
        _ => Err(ItemError::Unreadable(PAYLOAD_ENCODING)),
    }
}

/// Text where it can be read as text, else base64.
fn payload_to_text(payload: &[u8]) -> (&'static str, String) {
    let readable = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r');
    match core::str::from_utf8(payload) {
        Ok(text) if text.chars().all(readable) => (UTF8, text.to_owned()),
        _ => (TEXT_BASE64, BASE64.encode(payload)),
    }
}

fn headers_to_json(properties: &Properties) -> Value {
    json!({
        "content_type": properties.content_type,
        "response_topic": properties.response_topic,
        "correlation_data": properties.correlation_data.as_ref().map(|bytes| BASE64.encode(bytes)),
        "payload_format": properties.payload_format,
        "expiry_seconds": properties.expiry_seconds,
        "user": properties.user,
        "subscription_ids": properties.subscription_ids,
    })
}

fn headers_from_json(headers: &Value) -> Option<Properties> {
    let field = |name: &str| headers.get(name).cloned().unwrap_or(Value::Null);
    let correlation: Option<String> = serde_json::from_value(field("correlation_data")).ok()?;
    Some(Properties {
        content_type: serde_json::from_value(field("content_type")).ok()?,
        response_topic: serde_json::from_value(field("response_topic")).ok()?,
        correlation_data: match correlation {
            Some(text) => Some(Bytes::from(BASE64.decode(text).ok()?)),
            None => None,
        },
        payload_format: serde_json::from_value(field("payload_format")).ok()?,
        expiry_seconds: serde_json::from_value(field("expiry_seconds")).ok()?,
        user: serde_json::from_value(field("user")).ok()?,
        subscription_ids: serde_json::from_value(field("subscription_ids")).ok()?,
    })
}

fn shortened(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::items::MAX_ITEM_BYTES;
    use causeway_core::identity::Id128;
    use proptest::prelude::*;

    fn properties() -> impl Strategy<Value = Properties> {
        let text = || proptest::option::of(any::<String>());
        let user = proptest::collection::vec(any::<(String, String)>(), 0..4);
        let bytes = proptest::option::of(any::<Vec<u8>>());
        (text(), text(), bytes, any::<Option<u8>>(), any::<Option<u32>>(), user, any::<Vec<u32>>()).prop_map(
            |(content_type, response_topic, correlation, payload_format, expiry_seconds, user, subscription_ids)| Properties {
                content_type,
                response_topic,
                correlation_data: correlation.map(Bytes::from),
                payload_format,
                expiry_seconds,
                user,
                subscription_ids,
            },
        )
    }

    fn letter() -> impl Strategy<Value = DeadLetter> {
        let payload = prop_oneof![any::<Vec<u8>>(), any::<String>().prop_map(String::into_bytes)];
        let texts = proptest::collection::vec(any::<String>(), 9);
        let state = prop_oneof![Just(DeadLetterState::Dead), Just(DeadLetterState::Redriven), Just(DeadLetterState::Parked)];
        let redriven = proptest::option::of((any::<u64>(), any::<String>(), any::<u64>()));
        (any::<(u128, u32, u32, u32, u32, u8, bool)>(), texts, payload, properties(), state, 0_usize..5, redriven).prop_map(
            |((id, attempts, redrive_count, failed, received, qos, retain), texts, payload, properties, state, class, redriven)| {
                DeadLetter {
                    id: Id128(id),
                    bridge: texts[8].clone(),
                    route: texts[0].clone(),
                    binding: texts[1].clone(),
                    session: texts[2].clone(),
                    source: texts[3].clone(),
                    address: texts[4].clone(),
                    category: CATEGORIES[class],
                    error_code: "PAYLOAD_TOO_LARGE".to_owned(),
                    reason: texts[5].clone(),
                    last_error: texts[6].clone(),
                    attempts,
                    redrive_count,
                    state,
                    failed_at: UnixMillis(u64::from(failed)),
                    received_at: UnixMillis(u64::from(received)),
                    message: Message { topic: texts[7].clone(), payload: Bytes::from(payload), qos, retain, properties },
                    redriven: redriven.map(|(at, request, dropped_bytes)| Redriven { at: UnixMillis(at), request, dropped_bytes }),
                }
            },
        )
    }

    fn sizes_fit(encoded: &Encoded) -> bool {
        core::iter::once(&encoded.first).chain(&encoded.chunks).all(|item| item_size(item) <= MAX_ITEM_BYTES)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(letter in letter()) {
            let encoded = encode(&letter, None);
            prop_assert!(encoded.chunks.is_empty());
            prop_assert!(!encoded.first.contains_key(TTL));
            prop_assert_eq!(decode(&encoded.first, &encoded.chunks).unwrap(), letter);
        }

        #[test]
        fn large_letters_are_kept_whole(mut letter in letter(), payload in 0_usize..1_200_000, headers in 0_usize..1_200_000) {
            letter.message.payload = (0..payload).map(|i| u8::try_from(i % 256).unwrap()).collect();
            letter.message.properties.user.push(("big".to_owned(), "h".repeat(headers)));
            let encoded = encode(&letter, None);
            prop_assert!(sizes_fit(&encoded));
            prop_assert_eq!(decode(&encoded.first, &encoded.chunks).unwrap(), letter);
        }
    }

    #[test]
    fn a_letter_that_does_not_say_its_bridge_is_read() {
        let mut encoded = encode(&DeadLetter { bridge: "plant".to_owned(), ..decode_default() }, None);
        assert_eq!(text(&encoded.first, BRIDGE).unwrap(), "plant");
        encoded.first.remove(BRIDGE);
        assert_eq!(decode(&encoded.first, &[]).unwrap(), decode_default());
    }

    #[test]
    fn a_tombstone_is_one_item_whatever_its_headers() {
        let mut letter = decode_default();
        letter.message.payload = vec![7; 900_000].into();
        letter.message.properties.user.push(("big".to_owned(), "h".repeat(600_000)));
        let tombstone = letter.tombstone("op-1", UnixMillis(5));
        let item = encode_tombstone(&tombstone);
        assert!(item_size(&item) < 4096);
        let found = decode(&item, &[]).unwrap();
        assert_eq!(found.redriven.as_ref().map(|redriven| redriven.dropped_bytes), Some(900_000));
        assert_eq!(DeadLetter { message: Message::default(), ..found }, DeadLetter { message: Message::default(), ..tombstone });
    }

    #[test]
    fn every_category_is_listed() {
        for class in CATEGORIES {
            // A new class must be added to the list, or its letters are never found.
            match class {
                FaultClass::Transient | FaultClass::Permanent | FaultClass::Rejected | FaultClass::Expired | FaultClass::Poison => {}
            }
        }
    }

    #[test]
    fn retention_is_in_seconds() {
        let letter = DeadLetter { failed_at: UnixMillis(1_772_366_400_999), ..decode_default() };
        let encoded = encode(&letter, Some(Duration::from_secs(60)));
        assert_eq!(number::<u64>(&encoded.first, TTL).unwrap(), 1_772_366_460);
        let mut large = letter;
        large.message.payload = vec![0; 1_000_000].into();
        let encoded = encode(&large, Some(Duration::from_secs(60)));
        assert!(encoded.chunks.iter().all(|part| number::<u64>(part, TTL) == Ok(1_772_366_460)), "the parts go with their letter");
    }

    fn decode_default() -> DeadLetter {
        let entry = causeway_core::message::Entry {
            id: Id128(1),
            route: "r".into(),
            binding: "b".into(),
            address: None,
            refusal: None,
            source: "s".into(),
            received_at: UnixMillis(0),
            expires_at: None,
            redrive: None,
            message: Message::default(),
        };
        let fault = causeway_core::outcome::Fault::new(causeway_core::outcome::FaultCode::Refused, "no");
        DeadLetter::new(&entry, &causeway_core::dead_letter::Destination::default(), &fault, 1, UnixMillis(0))
    }

    #[test]
    fn order_of_the_index_is_order_of_failure() {
        let early = failed_sort(UnixMillis(999), Id128(u128::MAX));
        let late = failed_sort(UnixMillis(1000), Id128(0));
        assert!(is_failed_sort(&early) && !is_failed_sort("1#2") && !is_failed_sort(""));
        assert!(early < late && failed_sort_prefix(UnixMillis(1000)) > early && failed_sort_prefix(UnixMillis(1000)) <= late);
    }
}
