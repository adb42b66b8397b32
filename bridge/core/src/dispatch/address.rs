//! Addresses with `{header}` in them, and topics.

use super::fields::header;
use crate::message::Message;
use std::sync::Arc;

/// The longest text that MQTT takes, in bytes.
const MAX_TEXT: usize = 65_535;

/// Whether a message can be published to `topic`.
#[must_use]
pub fn is_topic(topic: &str) -> bool {
    !topic.is_empty() && topic.len() <= MAX_TEXT && !topic.contains(['+', '#', '\0'])
}

/// A binding's address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Header(String),
}

impl Address {
    /// Reads an address; `None` where a placeholder is not closed, nested, or empty.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            let (name, after) = from.strip_prefix('{')?.split_once('}')?;
            if name.is_empty() || name.contains('{') {
                return None;
            }
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Header(name.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Some(Self(parts))
    }

    /// Whether it comes to something else for each message.
    #[must_use]
    pub fn has_placeholders(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Header(_)))
    }

    /// What it comes to for `message`: `None` where it has no placeholders, and stands as it is.
    ///
    /// # Errors
    /// The first header that the message does not have, or has empty.
    pub fn of(&self, message: &Message) -> Result<Option<Arc<str>>, &str> {
        if !self.has_placeholders() {
            return Ok(None);
        }
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Header(name) => match header(message, name).filter(|value| !value.is_empty()) {
                    Some(value) => text.push_str(&value),
                    None => return Err(name),
                },
            }
        }
        Ok(Some(text.into()))
    }
}
