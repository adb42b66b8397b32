//! Putting dead letters back on their way: which, where to, how fast, and what is told of it.
//!
//! Everything here is decided from a page of letters and the request; the caller lists, carries the actions out one by one, and brings their ends
//! back to a [`Tally`]. Whoever drives it (the function, the desk) does the same.

mod bucket;
pub mod continuation;
pub mod fields;
mod request;
mod routes;

pub use bucket::Bucket;
pub use request::{DEFAULT_LIMIT, DEFAULT_MAX_REDRIVES, DEFAULT_RATE, Filter, MAX_LIMIT, MAX_RATE, Mode, Request};
pub use routes::{BindingFacts, RouteFacts, Routes, Way};

use crate::dead_letter::{DeadLetter, DeadLetterState};
use crate::identity::EntryId;
use crate::mailbox::{Mail, MailboxName};
use crate::message::{Entry, Redrive};
use crate::outcome::FaultCode;
use crate::units::UnixMillis;
use core::time::Duration;
use serde::Serialize;
use std::sync::Arc;

/// Why a letter was left where it is, or set aside: the code in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Its destination refuses it for its size, and still is the destination.
    PayloadTooLarge,
    /// It is past its expiry.
    Expired,
    /// It is not dead any more: somebody put it back, set it aside or deleted it meanwhile.
    Conflict,
    /// There is no letter of that id.
    NotFound,
    /// It came by another bridge, which keeps its letters in the same table.
    OtherBridge,
    /// No route of the configuration has the letter's name.
    RouteUnknown,
    /// Its route has no binding of the letter's name.
    BindingUnknown,
    /// Its route has no outbox: mode `queue` is for it.
    RouteWithoutOutbox,
    /// Its route has an outbox: past it, its order would be lost.
    RouteWithOutbox,
    /// It goes past the outbox to a destination that whoever redrives does not reach: a function holds no connection to a broker.
    OutOfReach,
    /// It was put back `max_redrives` times.
    MaxRedrives,
    /// A store or a queue asked for fewer requests, again and again.
    Throttled,
    /// A store or a queue could not be used; the message tells more.
    Internal,
}

impl Reason {
    /// The code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PayloadTooLarge => "payload_too_large",
            Self::Expired => "expired",
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::OtherBridge => "other_bridge",
            Self::RouteUnknown => "route_unknown",
            Self::BindingUnknown => "binding_unknown",
            Self::RouteWithoutOutbox => "route_without_outbox",
            Self::RouteWithOutbox => "route_with_outbox",
            Self::OutOfReach => "out_of_reach",
            Self::MaxRedrives => "max_redrives",
            Self::Throttled => "throttled",
            Self::Internal => "internal",
        }
    }
}

/// What to do with one letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// In one transaction: the letter becomes a tombstone, and `mail` is posted.
    PutBack {
        /// The letter as it was seen.
        letter: DeadLetter,
        /// The mailbox of its session.
        mailbox: MailboxName,
        /// What its owner finds there.
        mail: Mail,
    },
    /// Send `entry`, then turn the letter into a tombstone.
    Send {
        /// The letter as it was seen.
        letter: DeadLetter,
        /// The sender that sends it.
        sender: String,
        /// What is sent.
        entry: Arc<Entry>,
    },
    /// Set it aside: it was put back too often.
    SetAside {
        /// The letter as it was seen.
        letter: DeadLetter,
    },
    /// Leave it.
    Skip {
        /// The letter.
        id: EntryId,
        /// Why.
        reason: Reason,
        /// Why, for people.
        message: String,
    },
}

impl Action {
    /// The letter that it is about.
    #[must_use]
    pub const fn id(&self) -> EntryId {
        match self {
            Self::PutBack { letter, .. } | Self::Send { letter, .. } | Self::SetAside { letter } => letter.id,
            Self::Skip { id, .. } => *id,
        }
    }
}

/// What to do with the letters of a page, in their order. A letter that the request does not mean, or that is not dead, gives no action.
#[must_use]
pub fn plan(page: &[DeadLetter], request: &Request, routes: &Routes, now: UnixMillis) -> Vec<Action> {
    page.iter()
        .filter(|letter| letter.state == DeadLetterState::Dead && request.filter.means(letter))
        .map(|letter| decide(letter, request, routes, now))
        .collect()
}

fn decide(letter: &DeadLetter, request: &Request, routes: &Routes, now: UnixMillis) -> Action {
    let skip = |reason, message: String| Action::Skip { id: letter.id, reason, message };
    // Routes of two bridges may have one name. A letter that does not say its bridge is believed.
    if !letter.bridge.is_empty() && letter.bridge != routes.bridge() {
        return skip(Reason::OtherBridge, format!("it came by bridge `{}`, whose redrive puts it back", letter.bridge));
    }
    let way = match (routes.way_of(letter), request.mode) {
        (Way::Unknown, _) => return skip(Reason::RouteUnknown, format!("no route of the configuration is named `{}`", letter.route)),
        (Way::NoBinding, _) => {
            let message = format!("route `{}` has no binding named `{}`: add it again, or delete the letter", letter.route, letter.binding);
            return skip(Reason::BindingUnknown, message);
        }
        (Way::Queue { .. }, Mode::Outbox) => {
            return skip(Reason::RouteWithoutOutbox, format!("route `{}` has no outbox: redrive it with mode queue", letter.route));
        }
        (Way::Outbox { .. }, Mode::Queue) => {
            return skip(Reason::RouteWithOutbox, format!("route `{}` has an outbox: redrive it with mode outbox", letter.route));
        }
        (way, _) => way,
    };
    let destination = way.address();
    if letter.error_code == FaultCode::PayloadTooLarge.as_str() && destination.is_none_or(|address| address == letter.address) {
        return skip(
            Reason::PayloadTooLarge,
            "its destination does not take it at this size: it goes to another one, or is deleted".to_owned(),
        );
    }
    if letter.redrive_count >= request.max_redrives {
        return Action::SetAside { letter: letter.clone() };
    }
    let expires_at = expires_at(letter);
    if let Some(at) = expires_at.filter(|at| now >= *at && !request.include_expired) {
        return skip(Reason::Expired, format!("it expired {} s ago; include_expired puts it back nevertheless", now.since(at).as_secs()));
    }
    let entry = Arc::new(entry_of(letter, request, expires_at.filter(|at| now < *at)));
    match way {
        Way::Outbox { mailbox, .. } => {
            let mail = Mail { id: Mail::id_of_redrive(letter.id, letter.redrive_count + 1), posted_at: now, entry };
            Action::PutBack { letter: letter.clone(), mailbox, mail }
        }
        Way::Queue { sender, .. } => Action::Send { letter: letter.clone(), sender, entry },
        Way::Unknown | Way::NoBinding => skip(Reason::RouteUnknown, String::new()),
    }
}

/// When the letter's message expires, as its entry had it.
fn expires_at(letter: &DeadLetter) -> Option<UnixMillis> {
    letter.message.properties.expiry_seconds.map(|seconds| letter.received_at.plus(Duration::from_secs(u64::from(seconds))))
}

/// The entry as it was, its id, bytes and headers included, and by whom and how often it was put back.
fn entry_of(letter: &DeadLetter, request: &Request, expires_at: Option<UnixMillis>) -> Entry {
    Entry {
        id: letter.id,
        route: letter.route.as_str().into(),
        binding: letter.binding.as_str().into(),
        address: None,
        refusal: None,
        source: letter.source.as_str().into(),
        received_at: letter.received_at,
        expires_at,
        message: letter.message.clone(),
        redrive: Some(Redrive { attempt: letter.redrive_count + 1, causation: request.request_id.clone() }),
    }
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The letter is on its way again.
    Redriven,
    /// It was set aside.
    Parked,
    /// It stays, for a reason that is its own.
    Skipped(Reason, String),
    /// It stays, because something does not work.
    Failed(Reason, String),
}

/// One line of an answer's `errors`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ItemError {
    /// What it is about.
    pub id: String,
    /// A stable code.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

/// Lines of `errors` in one answer at most: a function's answer has a size limit.
pub const MAX_ERRORS: usize = 1_000;

/// What came of a run so far. `matched` is the sum of the four others, always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Put back.
    pub redriven: u64,
    /// Left, each for a reason of its own.
    pub skipped: u64,
    /// Set aside.
    pub parked: u64,
    /// Left, because something does not work.
    pub failed: u64,
    /// What to tell of single letters.
    pub errors: Vec<ItemError>,
}

impl Tally {
    /// Letters that the request meant.
    #[must_use]
    pub const fn matched(&self) -> u64 {
        self.redriven + self.skipped + self.parked + self.failed
    }

    /// Counts one letter.
    pub fn count(&mut self, id: EntryId, end: End) {
        let (code, message) = match end {
            End::Redriven => {
                self.redriven += 1;
                return;
            }
            End::Parked => {
                self.parked += 1;
                (Reason::MaxRedrives, "it was put back as often as the request allows; it is set aside as parked".to_owned())
            }
            End::Skipped(reason, message) => {
                self.skipped += 1;
                (reason, message)
            }
            End::Failed(reason, message) => {
                self.failed += 1;
                (reason, message)
            }
        };
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(ItemError { id: id.to_string(), code: code.as_str(), message });
        }
    }
}

#[cfg(test)]
mod tests;
