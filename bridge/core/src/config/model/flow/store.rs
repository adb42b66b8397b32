//! What is kept of messages on their way, and for how long: `flow.store`.

use super::super::super::values::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of the next message of a key of which as much as is allowed waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// It waits, unacknowledged, and everything that comes later behind it: the broker keeps it.
    #[default]
    Hold,
    /// The oldest of the key that is not being sent becomes a dead letter (`TRIMMED`).
    DeadLetterOldest,
    /// The oldest of the key that is not being sent is dropped. Needs `allow_loss`.
    DropOldest,
    /// It becomes a dead letter itself (`STORE_FULL`).
    RejectNewest,
}

/// What is kept of messages on their way, and for how long.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlowStore {
    /// How many messages of one ordering key (its topic, where nothing else is said) may wait in the outbox, for each binding of each route. What a former owner left counts for every key until it was read. Left out: 10000, and what a former owner left counts once it was read.
    pub max_messages_per_key: Option<u32>,
    /// How many bytes of one key may wait there, each message with its topic, its properties and 256 bytes besides. One that is larger by itself goes in alone.
    pub max_bytes_per_key: u64,
    /// What becomes of the next message of a key that is full.
    pub on_full: OnFull,
    /// Must be true for `drop_oldest`: what was acknowledged is lost then.
    pub allow_loss: bool,
    /// How long a message is kept whose publisher gives no Message Expiry Interval; then `policy.on_expired` says what becomes of it. It counts from its receipt, and nobody is told of it. 0s: for ever.
    pub message_ttl: Span,
    /// The longest that any message is kept: a longer Message Expiry Interval is cut to this, and forwarded so. 0s: as its publisher says.
    pub max_message_ttl: Span,
}

impl Default for FlowStore {
    fn default() -> Self {
        Self {
            max_messages_per_key: None,
            max_bytes_per_key: 64 * 1024 * 1024,
            on_full: OnFull::default(),
            allow_loss: false,
            message_ttl: Span::secs(7 * 86_400),
            max_message_ttl: Span::secs(14 * 86_400),
        }
    }
}
