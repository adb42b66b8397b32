//! What is kept of a message that can never be delivered.

use crate::identity::EntryId;
use crate::message::{Entry, Message};
use crate::outcome::{Fault, FaultClass};
use crate::units::UnixMillis;
use serde::{Deserialize, Serialize};

/// A dead letter: the message, why it died, and everything that a person needs to decide what to do with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The entry's id: writing the same letter again changes nothing.
    pub id: EntryId,
    /// The route that it came by.
    pub route: String,
    /// The binding that it was bound for.
    pub binding: String,
    /// The session that received it.
    pub session: String,
    /// The receiver.
    pub source: String,
    /// The destination's address.
    pub address: String,
    /// The class of the fault.
    pub category: FaultClass,
    /// The fault's code, such as `PAYLOAD_TOO_LARGE`.
    pub error_code: String,
    /// A short reason in words, such as `payload_too_large`.
    pub reason: String,
    /// What the last attempt said, for people.
    pub last_error: String,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it was put back already.
    pub redrive_count: u32,
    /// Dead, redriven or parked.
    pub state: DeadLetterState,
    /// When it died, by the owner's wall clock.
    pub failed_at: UnixMillis,
    /// When it was received.
    pub received_at: UnixMillis,
    /// The message itself.
    pub message: Message,
}

/// What became of a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterState {
    /// It waits for a decision.
    #[default]
    Dead,
    /// It was put back on its way.
    Redriven,
    /// It was set aside after too many redrives.
    Parked,
}

impl DeadLetterState {
    /// The name in stores and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Redriven => "redriven",
            Self::Parked => "parked",
        }
    }

    /// Reads a name back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Dead, Self::Redriven, Self::Parked].into_iter().find(|state| state.as_str() == text)
    }
}

/// Where a route's entries are bound for: what a dead letter tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// The binding's id.
    pub binding: String,
    /// The binding's address.
    pub address: String,
    /// The session that feeds the route.
    pub session: String,
}

impl DeadLetter {
    /// The letter for `entry`, which died of `fault` after `attempts` attempts.
    #[must_use]
    pub fn new(entry: &Entry, destination: &Destination, fault: &Fault, attempts: u32, failed_at: UnixMillis) -> Self {
        Self {
            id: entry.id,
            route: entry.route.to_string(),
            binding: destination.binding.clone(),
            session: destination.session.clone(),
            source: entry.source.to_string(),
            address: destination.address.clone(),
            category: fault.code.class(),
            error_code: fault.code.as_str().to_owned(),
            reason: fault.code.as_str().to_ascii_lowercase(),
            last_error: fault.detail.clone(),
            attempts,
            redrive_count: entry.redrives(),
            state: DeadLetterState::Dead,
            failed_at,
            received_at: entry.received_at,
            message: entry.message.clone(),
        }
    }
}
