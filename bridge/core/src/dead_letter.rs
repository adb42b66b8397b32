//! What is kept of a message that can never be delivered.

use crate::identity::EntryId;
use crate::message::{Entry, Message};
use crate::outcome::{Fault, FaultClass};
use crate::units::UnixMillis;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// How long the tombstone of a letter that was put back is kept: as long as a replay of its first death may come, and a person may ask what became of it.
pub const TOMBSTONE_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A tombstone keeps a payload of up to so many bytes; the message itself is on its way again.
pub const TOMBSTONE_PAYLOAD_BYTES: usize = 4096;

/// A dead letter: the message, why it died, and everything that a person needs to decide what to do with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The entry's id: writing the same letter again changes nothing.
    pub id: EntryId,
    /// The bridge that it came by; empty in a letter of a release that did not say so.
    #[serde(default)]
    pub bridge: String,
    /// The route that it came by.
    pub route: String,
    /// The binding that it was bound for; empty where none was found.
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
    /// How it was put back the last time; only while it is [redriven](DeadLetterState::Redriven).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redriven: Option<Redriven>,
}

/// How a letter was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redriven {
    /// When, by the wall clock of whoever did it.
    pub at: UnixMillis,
    /// The request that did it.
    pub request: String,
    /// Bytes of payload that the tombstone does not keep; 0 where it keeps all.
    pub dropped_bytes: u64,
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

/// Where a leg's entries are bound for: what a dead letter tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// The bridge's id.
    pub bridge: String,
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
            bridge: destination.bridge.clone(),
            route: entry.route.to_string(),
            binding: entry.binding.to_string(),
            session: destination.session.clone(),
            source: entry.source.to_string(),
            address: entry.address.as_deref().unwrap_or(&destination.address).to_owned(),
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
            redriven: None,
        }
    }

    /// Whether it is still what `seen` was: dead, and put back as often. Only then it is put back or set aside.
    #[must_use]
    pub fn is_as_seen(&self, seen: &Self) -> bool {
        self.state == DeadLetterState::Dead && self.redrive_count == seen.redrive_count
    }

    /// What is left of it once `request` put it back: its facts, and its payload if that is small.
    #[must_use]
    pub fn tombstone(&self, request: &str, at: UnixMillis) -> Self {
        let mut tombstone = self.clone();
        let length = tombstone.message.payload.len();
        let dropped = if length > TOMBSTONE_PAYLOAD_BYTES { core::mem::take(&mut tombstone.message.payload).len() } else { 0 };
        tombstone.state = DeadLetterState::Redriven;
        tombstone.redrive_count = self.redrive_count.saturating_add(1);
        tombstone.redriven = Some(Redriven { at, request: request.to_owned(), dropped_bytes: dropped as u64 });
        tombstone
    }

    /// Whether it is what is left of `seen` after `request` put it back.
    #[must_use]
    pub fn is_tombstone_of(&self, seen: &Self, request: &str) -> bool {
        self.state == DeadLetterState::Redriven
            && self.redrive_count == seen.redrive_count.saturating_add(1)
            && self.redriven.as_ref().is_some_and(|redriven| redriven.request == request)
    }

    /// Whether it is `seen`, set aside.
    #[must_use]
    pub fn is_set_aside(&self, seen: &Self) -> bool {
        self.state == DeadLetterState::Parked && self.redrive_count == seen.redrive_count
    }

    /// Whether `again` is the next death of its message: it was put back, and exactly as often as `again` tells. Everything else that comes under
    /// its id is a replay, which must not raise the dead. The one rule of every store.
    #[must_use]
    pub fn may_be_replaced_by(&self, again: &Self) -> bool {
        self.state == DeadLetterState::Redriven && self.redrive_count == again.redrive_count
    }
}
