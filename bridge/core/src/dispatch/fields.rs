//! What a rule looks at: the subject, a header, or a place in a JSON payload.

use crate::message::Message;
use core::cell::OnceCell;
use serde_json::Value;
use std::borrow::Cow;
use thiserror::Error;

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// What the message is about: its topic.
    Subject,
    /// A header.
    Header(String),
    /// A place in the payload, read as JSON.
    Json(JsonPath),
}

/// Why a text names no field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// Nothing is named.
    #[error("it names nothing")]
    Empty,
    /// Not a path, or one that may mean several values.
    #[error("`{0}` is not a path to one value: `$` is followed by `.name`, `['name']` and `[index]`")]
    Path(String),
}

impl Field {
    /// Reads `subject`, `header.NAME`, `$.json.path`, or the bare name of a header.
    ///
    /// # Errors
    /// [`FieldError`] where it is none of these.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        if text.starts_with('$') {
            return JsonPath::parse(text).map(Self::Json);
        }
        match text.strip_prefix("header.").unwrap_or(text) {
            "" => Err(FieldError::Empty),
            "subject" if text == "subject" => Ok(Self::Subject),
            name => Ok(Self::Header(name.to_owned())),
        }
    }
}

/// The way to one value in a JSON document: names and indices, without wildcards and filters (RFC 9535 calls such a query singular).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Name(String),
    /// From the start, or from the end where it is negative.
    Index(i64),
}

impl JsonPath {
    /// Reads `$.a['b c'][0]`.
    ///
    /// # Errors
    /// [`FieldError::Path`] where it is not that.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let wrong = || FieldError::Path(text.to_owned());
        let mut rest = text.strip_prefix('$').ok_or_else(wrong)?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = step(rest).ok_or_else(wrong)?;
            steps.push(step);
            rest = after;
        }
        Ok(Self(steps))
    }

    /// The names on the way, where there are names only.
    #[must_use]
    pub fn into_names(self) -> Option<Vec<String>> {
        let name = |step| match step {
            Step::Name(name) => Some(name),
            Step::Index(_) => None,
        };
        self.0.into_iter().map(name).collect::<Option<Vec<_>>>().filter(|names| !names.is_empty())
    }

    /// The value at this place.
    #[must_use]
    pub fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(document, |value, step| match step {
            Step::Name(name) => value.get(name),
            Step::Index(index) => {
                let items = value.as_array()?;
                let back = usize::try_from(index.unsigned_abs()).ok()?;
                items.get(if *index < 0 { items.len().checked_sub(back)? } else { back })
            }
        })
    }
}

/// The first step of a path, and what follows it.
fn step(rest: &str) -> Option<(Step, &str)> {
    if let Some(name) = rest.strip_prefix('.') {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '@'));
        return plain.then(|| (Step::Name(name.to_owned()), after));
    }
    let inner = rest.strip_prefix('[')?;
    if let Some(quote) = inner.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let (name, after) = inner.get(1..)?.split_once(quote)?;
        return Some((Step::Name(name.to_owned()), after.strip_prefix(']')?));
    }
    let (index, after) = inner.split_once(']').filter(|(index, _)| !index.starts_with('+'))?;
    Some((Step::Index(index.parse().ok()?), after))
}

/// A message as rules look at it. The payload is read as JSON at the first question that needs it, and once.
#[derive(Debug)]
pub struct View<'m> {
    message: &'m Message,
    json: OnceCell<Option<Value>>,
}

impl<'m> View<'m> {
    /// A look at `message`.
    #[must_use]
    pub const fn new(message: &'m Message) -> Self {
        Self { message, json: OnceCell::new() }
    }

    /// The message.
    #[must_use]
    pub const fn message(&self) -> &'m Message {
        self.message
    }

    /// The value of a field: as text, and whether it was a JSON number. `None` where the message does not have it.
    #[must_use]
    pub fn value(&self, field: &Field) -> Option<Found<'_>> {
        match field {
            Field::Subject => Some(Found::text(self.message.topic.as_str())),
            Field::Header(name) => header(self.message, name).map(Found::text),
            Field::Json(path) => self.json(path).map(|value| match value {
                Value::String(text) => Found::text(text.as_str()),
                other => Found { text: Cow::Owned(other.to_string()), is_number: other.is_number() },
            }),
        }
    }

    /// The JSON value at a place in the payload.
    #[must_use]
    pub fn json(&self, path: &JsonPath) -> Option<&Value> {
        path.find(self.json.get_or_init(|| serde_json::from_slice(&self.message.payload).ok()).as_ref()?)
    }
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'v> {
    /// As text; JSON arrays and objects as JSON.
    pub text: Cow<'v, str>,
    /// Whether it is a number by its type, not only by its looks.
    pub is_number: bool,
}

impl<'v> Found<'v> {
    fn text(text: impl Into<Cow<'v, str>>) -> Self {
        Self { text: text.into(), is_number: false }
    }
}

/// A header of a message: what its MQTT packet says under the names `mqtt.…`, else the first user property of this name.
#[must_use]
pub fn header<'m>(message: &'m Message, name: &str) -> Option<Cow<'m, str>> {
    let properties = &message.properties;
    match name {
        "mqtt.topic" => Some(Cow::Borrowed(message.topic.as_str())),
        "mqtt.qos" => Some(Cow::Owned(message.qos.to_string())),
        "mqtt.retained" => Some(Cow::Borrowed(if message.retain { "true" } else { "false" })),
        "mqtt.response-topic" => properties.response_topic.as_deref().map(Cow::Borrowed),
        "mqtt.content-type" => properties.content_type.as_deref().map(Cow::Borrowed),
        _ => properties.user.iter().find(|(known, _)| known == name).map(|(_, value)| Cow::Borrowed(value.as_str())),
    }
}
