//! What a gateway is told, and what it answers.

use super::super::command::{Command, CommandResult, State, Verdict, Why};
use super::super::waiters::WaiterId;
use crate::identity::{ConnectionEpoch, DeliveryId, Id128};
use crate::outcome::{Fault, Outcome};
use crate::source_id::ContentDigest;
use crate::units::Instant;
use bytes::Bytes;
use core::time::Duration;
use std::sync::Arc;

/// What a command says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Whom it is for.
    pub target: String,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// Its content type.
    pub content_type: Option<String>,
    /// User properties.
    pub properties: Vec<(String, String)>,
}

/// Somebody gives a command.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Who.
    pub waiter: WaiterId,
    /// The new command's name: 128 random bits.
    pub id: Id128,
    /// What it says.
    pub request: Arc<Request>,
    /// A digest of that.
    pub digest: ContentDigest,
    /// The caller's name for it, by which a repeat is told.
    pub key: Option<String>,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// How long the caller waits for the end; `None`: the caller does not.
    pub patience: Option<Duration>,
}

/// By which subscription a reply came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// This instance's own.
    Direct,
    /// The one that all instances share.
    Shared,
}

impl Path {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Direct, Self::Shared];

    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Shared => "shared",
        }
    }
}

/// A target's reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its delivery.
    pub delivery: DeliveryId,
    /// How it came.
    pub path: Path,
    /// The command that it answers.
    pub id: Id128,
    /// Who answers, as the topic tells.
    pub by: String,
    /// What it says; `None`: the target works on it.
    pub verdict: Option<Verdict>,
    /// A digest of the verdict and the payload.
    pub digest: ContentDigest,
    /// What it brings.
    pub result: CommandResult,
}

/// How the recording of a command ended.
#[derive(Clone, Debug)]
pub enum Created {
    /// It stands.
    New(Box<Command>),
    /// The caller's key names a command that was given before.
    Before {
        /// That command.
        command: Box<Command>,
        /// The digest of what it says.
        digest: ContentDigest,
    },
}

/// How a conditional write ended.
#[derive(Clone, Debug)]
pub enum Written {
    /// This stands now.
    Stands(Box<Command>),
    /// Another version stands there, or nothing.
    Refused(Option<Box<Command>>),
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// Somebody gives a command.
    Asked(Ask),
    /// The recording of a command ended.
    Created {
        /// The command.
        id: Id128,
        /// How.
        outcome: Outcome<Created>,
    },
    /// A row was read.
    Read {
        /// The command.
        id: Id128,
        /// What stands there.
        outcome: Result<Option<Command>, Fault>,
    },
    /// A write ended.
    Written {
        /// The command.
        id: Id128,
        /// How.
        outcome: Outcome<Written>,
    },
    /// The keeping of an answer to nobody ended.
    OrphanKept {
        /// The command that it names.
        id: Id128,
        /// How.
        outcome: Outcome<()>,
    },
    /// A publishing ended; done with whether the broker had nobody to give it to.
    Published {
        /// The command.
        id: Id128,
        /// How.
        outcome: Outcome<bool>,
    },
    /// A reply came.
    Replied(Reply),
    /// Another instance says that a command is over.
    Notified {
        /// The command.
        id: Id128,
    },
    /// Somebody takes a command back.
    Cancelled {
        /// Who.
        waiter: WaiterId,
        /// The command.
        id: Id128,
    },
    /// One who waited went away.
    Gone {
        /// Who.
        waiter: WaiterId,
        /// For what.
        id: Id128,
    },
    /// Something came that is no reply. It is acknowledged in its turn.
    Ignored {
        /// Its delivery.
        delivery: DeliveryId,
    },
    /// Whether replies to this instance would come. Before the first word of it they would not.
    Listening(bool),
    /// A connection of the source ended.
    Disconnected {
        /// The connection.
        connection: ConnectionEpoch,
    },
    /// Time went by.
    Tick,
    /// Stop: nothing new is taken, who waits is told, and what is under way ends.
    Stop {
        /// At the latest then.
        until: Instant,
    },
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The instance stops.
    Stopping,
    /// The target has as many commands under way as it may.
    TooManyPending,
    /// The same call is being carried out.
    Running,
    /// The caller's key names another command.
    KeyReused,
    /// The command could not be recorded.
    Store(Fault),
    /// There is no such command.
    Unknown,
    /// It cannot be taken back.
    NotCancelled(Why),
}

/// What somebody who asked is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is recorded, and will be published.
    Accepted(Box<Command>),
    /// It goes on, longer than the caller waits.
    Running {
        /// The command.
        id: Id128,
        /// Its row, as far as it is known.
        row: Option<Box<Command>>,
    },
    /// It is over.
    Over(Box<Command>),
    /// It is refused.
    Refused(Refusal),
}

/// Something to do.
#[derive(Debug)]
pub enum Effect {
    /// Record a command if nothing stands under its name, and, with a key, nothing under that; comes back as [`Event::Created`].
    Create {
        /// The command.
        command: Box<Command>,
        /// The caller's name for it.
        key: Option<String>,
        /// The digest of what it says.
        digest: ContentDigest,
    },
    /// Read a row, as it stands now; comes back as [`Event::Read`].
    Read {
        /// The command.
        id: Id128,
    },
    /// Write a row in the place of the version before it; comes back as [`Event::Written`].
    Write {
        /// The command.
        command: Box<Command>,
        /// The answer that ends it.
        result: Option<CommandResult>,
    },
    /// Keep an answer whose command has no row; comes back as [`Event::OrphanKept`].
    KeepOrphan {
        /// The command that it names.
        id: Id128,
        /// The answer.
        reply: Box<Reply>,
    },
    /// Publish a command; comes back as [`Event::Published`].
    Publish {
        /// The command.
        id: Id128,
        /// What it says.
        request: Arc<Request>,
        /// The Message Expiry Interval, in seconds.
        expiry_seconds: u32,
    },
    /// Tell all instances that a command is over. Nothing comes back.
    Notify {
        /// The command.
        id: Id128,
    },
    /// Answer somebody.
    Answer {
        /// Whom.
        waiter: WaiterId,
        /// What.
        answer: Answer,
    },
    /// Acknowledge this delivery and all before it.
    Acknowledge(DeliveryId),
    /// Nothing to do, something to count.
    Observe(Observation),
    /// It is over; no further effect follows.
    Finished,
}

/// Something to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A command was recorded.
    Accepted,
    /// A command that was given here came to an end, or is overdue.
    Ended {
        /// Where it stands.
        state: State,
    },
    /// A reply was taken in.
    Replied {
        /// How it came.
        path: Path,
        /// Why it changed nothing, where it did not.
        why: Option<Why>,
        /// It counts, and is late.
        late: bool,
    },
    /// A reply names a command that has no row.
    Orphan,
    /// Another instance told of a command.
    Notified {
        /// Whether somebody here waits for it.
        awaited: bool,
    },
    /// Another instance had changed the row.
    Conflict,
    /// A call to the store failed, and is repeated.
    StoreFault(Fault),
}
