//! Who shares one budget. A subscriber never learns who published a message: the topic, a user property or the route has to tell.

use crate::message::Message;
use core::fmt;
use thiserror::Error;

/// The key of messages that lack what their key is taken from.
pub const NO_KEY: &str = "-";
/// The one key of a budget that everything shares.
const CONNECTION: &str = "connection";

/// What the key of a message is taken from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LimitKey {
    /// The whole topic.
    Topic,
    /// One level of it, counted from 1.
    TopicLevel(usize),
    /// The first value of a user property.
    UserProperty(String),
    /// Nothing: all messages of a route share one budget.
    Route,
    /// Nothing: all messages of a session, queue or caller share one budget.
    Connection,
}

/// Why a text is no key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not `topic`, `topic_level:N` (from 1), `user_property:NAME` or `route`")]
pub struct KeyError(pub String);

impl LimitKey {
    /// Reads `topic`, `topic_level:2`, `user_property:tenant` or `route`.
    ///
    /// # Errors
    /// It is none of these.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let unknown = || KeyError(text.to_owned());
        match text.split_once(':') {
            None if text == "topic" => Ok(Self::Topic),
            None if text == "route" => Ok(Self::Route),
            Some(("topic_level", level)) => match level.parse() {
                Ok(level @ 1..) => Ok(Self::TopicLevel(level)),
                Ok(0) | Err(_) => Err(unknown()),
            },
            Some(("user_property", name)) if !name.is_empty() => Ok(Self::UserProperty(name.to_owned())),
            None | Some(_) => Err(unknown()),
        }
    }

    /// The key of a message that goes by `route`; [`NO_KEY`] where the message has none.
    #[must_use]
    pub fn of<'m>(&self, message: &'m Message, route: &'m str) -> &'m str {
        self.found(message, route).unwrap_or(NO_KEY)
    }

    /// Whether a message lacks what the key is taken from.
    #[must_use]
    pub fn is_missing(&self, message: &Message) -> bool {
        self.found(message, NO_KEY).is_none()
    }

    fn found<'m>(&self, message: &'m Message, route: &'m str) -> Option<&'m str> {
        let found = match self {
            Self::Topic => Some(message.topic.as_str()),
            Self::TopicLevel(level) => message.topic.split('/').nth(level - 1),
            Self::UserProperty(name) => message.properties.user.iter().find(|(named, _)| named == name).map(|(_, value)| value.as_str()),
            Self::Route => Some(route),
            Self::Connection => Some(CONNECTION),
        };
        found.filter(|key| !key.is_empty())
    }
}

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic => f.write_str("topic"),
            Self::TopicLevel(level) => write!(f, "topic_level:{level}"),
            Self::UserProperty(name) => write!(f, "user_property:{name}"),
            Self::Route => f.write_str("route"),
            Self::Connection => f.write_str(CONNECTION),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn keys_are_taken_from_what_a_subscriber_sees() {
        let mut message = Message { topic: "fleet/truck-7//speed".to_owned(), ..Message::default() };
        message.properties.user = vec![("tenant".to_owned(), "a".to_owned()), ("tenant".to_owned(), "b".to_owned())];
        let key = |text: &str| LimitKey::parse(text).unwrap().of(&message, "ingest").to_owned();
        assert_eq!(key("topic"), "fleet/truck-7//speed");
        assert_eq!(key("topic_level:2"), "truck-7");
        assert_eq!(key("topic_level:3"), NO_KEY, "an empty level is none");
        assert_eq!(key("topic_level:9"), NO_KEY);
        assert_eq!(key("user_property:tenant"), "a");
        assert_eq!(key("user_property:other"), NO_KEY);
        assert_eq!(key("route"), "ingest");
        for text in ["", "topics", "topic_level", "topic_level:0", "topic_level:x", "user_property:", "route:1"] {
            assert_eq!(LimitKey::parse(text), Err(KeyError(text.to_owned())), "{text}");
        }
        for text in ["topic", "topic_level:2", "user_property:tenant", "route"] {
            assert_eq!(LimitKey::parse(text).unwrap().to_string(), text);
        }
    }
}
