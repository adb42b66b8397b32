//! Where commands and their answers are kept.

use async_trait::async_trait;
use causeway_core::commands::gateway::{Created, Written};
use causeway_core::commands::{Command, CommandResult};
use causeway_core::identity::Id128;
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::source_id::ContentDigest;
use causeway_core::units::UnixMillis;

/// Rows that fall due are spread over so many parts, which are looked through one by one.
pub const DUE_SHARDS: u8 = 16;

/// The longest name that a caller may give a command, in bytes.
pub const MAX_KEY_BYTES: usize = 255;

/// An answer whose command has no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanAnswer {
    /// The command that it names.
    pub id: Id128,
    /// Who answers, as the topic tells.
    pub by: String,
    /// When it came.
    pub came_at: UnixMillis,
}

/// A row that has fallen due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// A command.
    Command(Id128),
    /// An answer to nobody.
    Orphan(Id128),
}

/// Rows that have fallen due, those that have been so for longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DuePage {
    /// The rows.
    pub rows: Vec<Due>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
}

/// Where commands are kept. Reads see every write that was answered before they began. What is older than its time is never given out, whether it was deleted or not,
/// but by [`Self::standing`].
#[async_trait]
pub trait Commands: Send + Sync {
    /// Records a command, and the caller's name for it, if neither its id nor that name is taken. `digest` is of what the command says.
    async fn create(&self, command: &Command, key: Option<&str>, digest: &ContentDigest) -> Outcome<Created>;

    /// The command's row.
    async fn read(&self, id: Id128) -> Result<Option<Command>, Fault>;

    /// The command's row, even where it is older than its time: for whoever deletes it.
    async fn standing(&self, id: Id128) -> Result<Option<Command>, Fault>;

    /// Writes the row in the place of the version before it, and with it the answer that ends the command.
    async fn write(&self, command: &Command, result: Option<&CommandResult>) -> Outcome<Written>;

    /// The answer that ended a command; `None` where none did.
    async fn result(&self, id: Id128) -> Result<Option<CommandResult>, Fault>;

    /// Keeps an answer to nobody; whatever stood there.
    async fn keep_orphan(&self, orphan: &OrphanAnswer) -> Outcome<()>;

    /// An answer to nobody.
    async fn orphan(&self, id: Id128) -> Result<Option<OrphanAnswer>, Fault>;

    /// Rows of one of the [`DUE_SHARDS`] parts that had fallen due by `until`, at most `limit`; they follow what `after` names, the `next` of a page before.
    async fn due(&self, shard: u8, until: UnixMillis, after: Option<&str>, limit: usize) -> Result<DuePage, Fault>;

    /// Deletes a command with all that belongs to it, if this version stands; answers whether it did.
    async fn delete(&self, command: &Command) -> Outcome<bool>;

    /// Deletes an answer to nobody.
    async fn delete_orphan(&self, id: Id128) -> Outcome<()>;

    /// Whether the store can be reached and has the right shape; the fault says what to do.
    async fn probe(&self) -> Result<(), Fault>;

    /// Creates what is missing: tables or files. Answers what it created.
    async fn create_tables(&self) -> Result<Vec<String>, Fault>;
}
