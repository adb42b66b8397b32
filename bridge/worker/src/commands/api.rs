//! What the HTTP interface asks of the gateway of commands.

use async_trait::async_trait;
use bytes::Bytes;
use causeway_core::commands::gateway::Answer;
use causeway_core::commands::{Command, CommandResult};
use causeway_core::identity::Id128;
use causeway_core::outcome::Fault;
use core::time::Duration;

/// A command that somebody gives.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Whom it is for: one level of a topic.
    pub target: String,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// Its content type.
    pub content_type: Option<String>,
    /// User properties that are published with it.
    pub properties: Vec<(String, String)>,
    /// The caller's name for it, by which a repeat is told.
    pub key: Option<String>,
    /// How long an answer is waited for; `None`: as long as the configuration says.
    pub timeout: Option<Duration>,
    /// How long the caller waits for the end; `None`: not at all.
    pub patience: Option<Duration>,
}

impl core::fmt::Debug for Order {
    /// Without what it says: a payload, a property or a key may be a secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Order")
            .field("target", &self.target)
            .field("payload_bytes", &self.payload.len())
            .field("properties", &self.properties.len())
            .field("has_key", &self.key.is_some())
            .field("timeout", &self.timeout)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// The bounds of what callers may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandLimits {
    /// The largest payload of a command, in bytes.
    pub max_request_bytes: usize,
    /// The longest that a caller may wait for the end of a command.
    pub sync_wait_max: Duration,
    /// How long an answer is waited for where the caller does not say.
    pub default_timeout: Duration,
    /// The shortest that a caller may say.
    pub min_timeout: Duration,
    /// The longest that a caller may say.
    pub max_timeout: Duration,
    /// For how long after its time a command can be asked for.
    pub retention: Duration,
}

/// Takes commands, and tells what became of them.
#[async_trait]
pub trait CommandDesk: Send + Sync {
    /// Gives a command. Whoever drops the future does not wait any more; the command goes on.
    async fn give(&self, order: Order) -> Answer;

    /// Takes a command back, if nobody has it yet.
    async fn cancel(&self, id: Id128) -> Answer;

    /// A command as it stands now; `None` where it is unknown, or forgotten.
    async fn read(&self, id: Id128) -> Result<Option<Command>, Fault>;

    /// The answer that ended a command; `None` where none did.
    async fn result(&self, id: Id128) -> Result<Option<CommandResult>, Fault>;

    /// The bounds of what callers may ask.
    fn limits(&self) -> &CommandLimits;
}
