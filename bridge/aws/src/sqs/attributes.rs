//! The message attributes: ten at most, with valid names and non-empty values of characters that SQS accepts, and nothing of the message
//! lost on the way.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use causeway_core::message::Entry;
use causeway_core::source_id::source_id;
use causeway_core::units::UnixMillis;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// What SQS takes.
pub const MAX_ATTRIBUTES: usize = 10;
/// Longest name of an attribute.
const MAX_NAME_BYTES: usize = 256;

/// The names of the bridge's own attributes start with it; a user property of such a name never becomes an attribute of its own, so that
/// no publisher can speak for the bridge.
pub const RESERVED_PREFIX: &str = "causeway.";
/// The entry's id, the same however often the message is sent.
pub const MESSAGE_ID: &str = "causeway.message_id";
/// What the publisher calls the message: its user property `mqtt.message-id`, its correlation data, or where it gave neither, `sha256:` and a digest of the
/// content. Copies that a broker makes of one message share it; a publisher that uses an id twice makes two messages share it.
pub const SOURCE_ID: &str = "causeway.source_id";
/// The MQTT topic.
pub const TOPIC: &str = "causeway.topic";
/// The receiver that the message came by.
pub const SOURCE: &str = "causeway.source";
/// When the bridge received it, ISO 8601 in UTC with milliseconds. MQTT tells no time of publication: this is the closest there is.
pub const PUBLISHED_AT: &str = "causeway.published_at";
/// `base64` where the body is not the payload itself.
pub const ENCODING: &str = "causeway.encoding";
/// `true` where the broker had kept the message before the bridge subscribed.
pub const RETAINED: &str = "causeway.retained";
/// The MQTT 5 content type.
pub const CONTENT_TYPE: &str = "causeway.content_type";
/// The MQTT 5 response topic.
pub const RESPONSE_TOPIC: &str = "causeway.response_topic";
/// The MQTT 5 correlation data, binary.
pub const CORRELATION_DATA: &str = "causeway.correlation_data";
/// How often it was put back from the dead letters, this time included; only on what was put back.
pub const REDRIVE_ATTEMPT: &str = "causeway.redrive_attempt";
/// The request that put it back; only on what was put back.
pub const CAUSATION_ID: &str = "causeway.causation_id";
/// A JSON object of the bridge's own attributes for which there was no room, by name. See [`YIELDING`].
pub const MORE: &str = "causeway.more";

/// What makes room, in this order, where a message has more attributes than SQS takes: what the bridge tells of it, never what its
/// publisher did. It stands in [`MORE`] then.
pub(super) const YIELDING: [&str; 4] = [RETAINED, PUBLISHED_AT, SOURCE, SOURCE_ID];

/// The MQTT 5 user properties that have no attribute of their own: a JSON array of `[name, value]` in the publisher's order.
pub const USER_PROPERTIES: &str = "causeway.user_properties";

/// The user properties that get an attribute of their own before all others: traces break without them.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// The type of an attribute whose value is one JSON string: what the text would be if SQS took it as it is.
pub const JSON_TYPE: &str = "String.json";
const STRING: &str = "String";
const BINARY: &str = "Binary";

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute<'e> {
    /// Its name.
    pub name: Cow<'e, str>,
    /// Its value.
    pub value: Value<'e>,
}

/// An attribute's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'e> {
    /// Text as it is.
    Text(Cow<'e, str>),
    /// A JSON string that stands for a text which SQS refuses as it is, an empty one for instance.
    Json(String),
    /// Bytes.
    Binary(&'e [u8]),
}

impl Attribute<'_> {
    /// The data type that SQS is told.
    #[must_use]
    pub const fn data_type(&self) -> &'static str {
        match self.value {
            Value::Text(_) => STRING,
            Value::Json(_) => JSON_TYPE,
            Value::Binary(_) => BINARY,
        }
    }

    /// What it takes of the size limit: SQS counts name, type and value.
    #[must_use]
    pub fn size(&self) -> usize {
        let value = match &self.value {
            Value::Text(text) => text.len(),
            Value::Json(text) => text.len(),
            Value::Binary(bytes) => bytes.len(),
        };
        self.name.len() + self.data_type().len() + value
    }
}

/// Whether SQS accepts `c` in bodies and values: `#x9 | #xA | #xD | #x20-#xD7FF | #xE000-#xFFFD | #x10000-#x10FFFF`.
#[must_use]
pub const fn is_accepted(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..='\u{10FFFF}')
}

/// Whether SQS accepts `name` for an attribute.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let reserved = |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..")
        && !reserved("aws.")
        && !reserved("amazon.")
}

/// The attributes of `entry`, whose body stands encoded as base64 or not.
#[must_use]
pub fn attributes(entry: &Entry, base64: bool) -> Vec<Attribute<'_>> {
    let mut attributes = own_attributes(entry, base64);
    let user = &entry.message.properties.user;
    make_room(&mut attributes, MAX_ATTRIBUTES - usize::from(!user.is_empty()));
    let promoted = promoted(user, MAX_ATTRIBUTES.saturating_sub(attributes.len()));
    for &index in &promoted {
        let (name, value) = &user[index];
        attributes.push(Attribute { name: Cow::Borrowed(name), value: Value::Text(Cow::Borrowed(value)) });
    }
    let rest: Vec<_> = user.iter().enumerate().filter(|(index, _)| !promoted.contains(index)).map(|(_, property)| property).collect();
    if !rest.is_empty() {
        attributes.push(Attribute { name: Cow::Borrowed(USER_PROPERTIES), value: Value::Text(Cow::Owned(properties_to_json(&rest))) });
    }
    attributes
}

/// The attributes that the bridge itself gives: ten at most; twelve on what was put back.
fn own_attributes(entry: &Entry, base64: bool) -> Vec<Attribute<'_>> {
    let message = &entry.message;
    let properties = &message.properties;
    let mut attributes = Vec::with_capacity(MAX_ATTRIBUTES);
    let mut push = |name, value| attributes.push(Attribute { name: Cow::Borrowed(name), value });
    push(MESSAGE_ID, Value::Text(Cow::Owned(entry.id.to_string())));
    push(SOURCE_ID, owned_text(source_id(message)));
    push(TOPIC, text(&message.topic));
    push(SOURCE, text(&entry.source));
    push(PUBLISHED_AT, Value::Text(Cow::Owned(iso8601(entry.received_at))));
    if let Some(redrive) = &entry.redrive {
        push(REDRIVE_ATTEMPT, Value::Text(Cow::Owned(redrive.attempt.to_string())));
        push(CAUSATION_ID, text(&redrive.causation));
    }
    if base64 {
        push(ENCODING, Value::Text(Cow::Borrowed("base64")));
    }
    if message.retain {
        push(RETAINED, Value::Text(Cow::Borrowed("true")));
    }
    if let Some(content_type) = &properties.content_type {
        push(CONTENT_TYPE, text(content_type));
    }
    if let Some(topic) = &properties.response_topic {
        push(RESPONSE_TOPIC, text(topic));
    }
    if let Some(correlation) = &properties.correlation_data {
        // SQS refuses empty values, in binary too.
        push(CORRELATION_DATA, if correlation.is_empty() { Value::Json(json_string("")) } else { Value::Binary(correlation) });
    }
    attributes
}

/// Takes out what yields until `room` is enough, and tells of it in one attribute.
fn make_room(attributes: &mut Vec<Attribute<'_>>, room: usize) {
    if attributes.len() <= room {
        return;
    }
    let mut more = Vec::new();
    for name in YIELDING {
        // One place is for the attribute that tells of them.
        if attributes.len() < room {
            break;
        }
        let Some(at) = attributes.iter().position(|attribute| attribute.name == name) else { continue };
        let value = match attributes.remove(at).value {
            Value::Text(text) => json_string(&text),
            Value::Json(json) => json,
            Value::Binary(bytes) => json_string(&BASE64.encode(bytes)),
        };
        more.push(format!("{}:{value}", json_string(name)));
    }
    attributes.push(Attribute { name: Cow::Borrowed(MORE), value: Value::Text(Cow::Owned(format!("{{{}}}", more.join(",")))) });
}

/// A text as it is where SQS accepts it, else as a JSON string.
fn text(text: &str) -> Value<'_> {
    owned_text(Cow::Borrowed(text))
}

fn owned_text(text: Cow<'_, str>) -> Value<'_> {
    if !text.is_empty() && text.chars().all(is_accepted) { Value::Text(text) } else { Value::Json(json_string(&text)) }
}

/// Which user properties become attributes of their own, by index, if `room` attributes are left. Those that cannot be told apart or
/// written as they are stay out, and where any stays out one attribute is kept for them.
fn promoted(user: &[(String, String)], room: usize) -> Vec<usize> {
    let mut times: HashMap<&str, u32> = HashMap::with_capacity(user.len());
    for (name, _) in user {
        *times.entry(name).or_default() += 1;
    }
    let fits = |(name, value): &(String, String)| {
        is_valid_name(name)
            && !name.get(..RESERVED_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED_PREFIX))
            && !value.is_empty()
            && value.chars().all(is_accepted)
            && times.get(name.as_str()) == Some(&1)
    };
    let mut candidates: Vec<usize> = (0..user.len()).filter(|&index| fits(&user[index])).collect();
    let all_fit = candidates.len() == user.len() && candidates.len() <= room;
    candidates.sort_by_key(|&index| (!TRACE.contains(&user[index].0.as_str()), index));
    candidates.truncate(if all_fit { room } else { room.saturating_sub(1) });
    candidates
}

fn properties_to_json(properties: &[&(String, String)]) -> String {
    let pair = |(name, value): &&(String, String)| format!("[{},{}]", json_string(name), json_string(value));
    format!("[{}]", properties.iter().map(pair).collect::<Vec<_>>().join(","))
}

/// A JSON string of characters that SQS accepts: what it does not accept is escaped, which JSON allows for every character.
fn json_string(text: &str) -> String {
    use core::fmt::Write as _;
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            c if is_accepted(c) => json.push(c),
            c => {
                // What SQS refuses lies in the basic plane: four digits name it.
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
        }
    }
    json.push('"');
    json
}

/// `2026-03-01T12:00:00.123Z`; milliseconds since 1970 in digits where the calendar ends.
fn iso8601(at: UnixMillis) -> String {
    let (seconds, millis) = (at.0 / 1000, at.0 % 1000);
    let moment = i64::try_from(seconds).ok().map(aws_smithy_types::DateTime::from_secs);
    let text = moment.and_then(|moment| moment.fmt(aws_smithy_types::date_time::Format::DateTime).ok());
    match text {
        Some(text) => format!("{}.{millis:03}Z", text.trim_end_matches('Z')),
        None => at.0.to_string(),
    }
}

/// What a consumer reads back from attributes: for tests, and as the description of the mapping in code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The topic.
    pub topic: String,
    /// The content type.
    pub content_type: Option<String>,
    /// The response topic.
    pub response_topic: Option<String>,
    /// The correlation data.
    pub correlation_data: Option<Vec<u8>>,
    /// The user properties: those with an attribute of their own by name, then the others in the publisher's order.
    pub user: Vec<(String, String)>,
}

/// Reads the attributes back; `None` where they are not what [`attributes`] makes.
#[must_use]
pub fn decode(attributes: &[Attribute<'_>]) -> Option<Decoded> {
    let mut decoded = Decoded::default();
    let mut packed = Vec::new();
    let mut seen = HashSet::new();
    for attribute in attributes {
        if !seen.insert(attribute.name.as_ref()) {
            return None;
        }
        let text = || match &attribute.value {
            Value::Text(text) => Some(text.to_string()),
            Value::Json(json) => serde_json::from_str(json).ok(),
            Value::Binary(_) => None,
        };
        match attribute.name.as_ref() {
            TOPIC => decoded.topic = text()?,
            CONTENT_TYPE => decoded.content_type = Some(text()?),
            RESPONSE_TOPIC => decoded.response_topic = Some(text()?),
            CORRELATION_DATA => {
                decoded.correlation_data = Some(match &attribute.value {
                    Value::Binary(bytes) => bytes.to_vec(),
                    Value::Text(_) | Value::Json(_) => BASE64.decode(text()?).ok()?,
                });
            }
            USER_PROPERTIES => packed = serde_json::from_str(&text()?).ok()?,
            name if name.starts_with(RESERVED_PREFIX) => {}
            name => decoded.user.push((name.to_owned(), text()?)),
        }
    }
    decoded.user.append(&mut packed);
    Some(decoded)
}
