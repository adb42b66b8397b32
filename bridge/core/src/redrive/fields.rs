//! Reading an event field by field, so that every refusal names its field and nothing unknown is passed over.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use thiserror::Error;

/// The code of every [`InvalidEvent`] in answers.
pub const INVALID_REQUEST: &str = "invalid_request";

/// An event that is not carried out. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field}: {message}")]
pub struct InvalidEvent {
    /// The field, such as `filter.since`; `event` where the event as a whole is meant.
    pub field: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl InvalidEvent {
    /// A refusal of `field`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// The fields of one object. `null`, an empty text and an empty list count as left out.
pub struct Fields<'a> {
    prefix: &'static str,
    map: &'a Map<String, Value>,
    known: BTreeSet<&'static str>,
}

impl<'a> Fields<'a> {
    /// The fields of the event itself.
    ///
    /// # Errors
    /// Where it is not an object, or an empty one.
    pub fn of_event(event: &'a Value) -> Result<Self, InvalidEvent> {
        match event {
            Value::Object(map) if map.is_empty() => {
                Err(InvalidEvent::new("event", "the event is empty; examples stand beside the function's code"))
            }
            Value::Object(map) => Ok(Self { prefix: "", map, known: BTreeSet::new() }),
            _ => Err(InvalidEvent::new("event", "a JSON object is expected")),
        }
    }

    fn path(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.prefix) }
    }

    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.insert(name);
        self.map.get(name).filter(|value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
        })
    }

    fn wrong(&self, name: &str, expected: &str) -> InvalidEvent {
        InvalidEvent::new(self.path(name), format!("{expected} is expected"))
    }

    /// The object in `name`.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn object(&mut self, name: &'static str) -> Result<Option<Fields<'a>>, InvalidEvent> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields { prefix: name, map, known: BTreeSet::new() })),
            Some(_) => Err(self.wrong(name, "an object")),
        }
    }

    /// The text in `name`.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn text(&mut self, name: &'static str) -> Result<Option<&'a str>, InvalidEvent> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "a text")),
        }
    }

    /// The texts in `name`.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn texts(&mut self, name: &'static str) -> Result<Vec<&'a str>, InvalidEvent> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().ok_or_else(|| self.wrong(name, "a list of texts"))).collect()
            }
            Some(_) => Err(self.wrong(name, "a list of texts")),
        }
    }

    /// The truth value in `name`.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn flag(&mut self, name: &'static str, default: bool) -> Result<bool, InvalidEvent> {
        match self.take(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    /// The whole number in `name`, from `low` to `high`.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn number(&mut self, name: &'static str, default: u64, low: u64, high: u64) -> Result<u64, InvalidEvent> {
        match self.take(name) {
            None => Ok(default),
            Some(value) => value
                .as_u64()
                .filter(|number| (low..=high).contains(number))
                .ok_or_else(|| self.wrong(name, &format!("a whole number from {low} to {high}"))),
        }
    }

    /// Whether `name` is there as an empty list, which elsewhere counts as left out.
    #[must_use]
    pub fn is_empty_list(&self, name: &str) -> bool {
        self.map.get(name).and_then(Value::as_array).is_some_and(Vec::is_empty)
    }

    /// Refuses the fields of `names` that are there.
    ///
    /// # Errors
    /// The first of them, with `message`.
    pub fn refuse(&mut self, names: &[&'static str], message: &str) -> Result<(), InvalidEvent> {
        match names.iter().find(|name| self.take(name).is_some()) {
            None => Ok(()),
            Some(name) => Err(InvalidEvent::new(self.path(name), message)),
        }
    }

    /// The value in `name`, whatever it is.
    pub fn any(&mut self, name: &'static str) -> Option<&'a Value> {
        self.take(name)
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// Where there is a field that nobody asked for.
    pub fn finish(self) -> Result<(), InvalidEvent> {
        match self.map.keys().find(|name| !self.known.contains(name.as_str())) {
            None => Ok(()),
            Some(unknown) => {
                let known: Vec<&str> = self.known.iter().copied().collect();
                Err(InvalidEvent::new(self.path(unknown), format!("there is no such field; the fields are {}", known.join(", "))))
            }
        }
    }
}
