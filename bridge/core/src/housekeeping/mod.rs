//! Tidying up behind the owners of logs: what may be done without a lease, when a log counts as left behind, and how it is swept then.
//!
//! Below the head everything is garbage and anybody may remove it. Above the head only the holder of the log's lease acts, and housekeeping takes
//! that lease only where nobody wanted it for long. It never sends.

mod adopt;
mod request;
mod survey;
mod sweep;

pub use adopt::{Kept, LATEST_WRITE, LEASE_TTL, claim, is_owned, kept_for, orphaned_since, patience, release, upkeep, why_kept};
pub use request::{At, DEFAULT_MAX_ITEMS, MAX_MAX_ITEMS, Request};
pub use survey::{ANCHOR_RETENTION, Collector, Garbage, Survey, may_remove};
pub use sweep::{Step, Sweep, SweepEnd, SweepOptions};

use crate::dead_letter::Destination;
use crate::message::Entry;
use crate::outcome::{Fault, FaultCode};
use crate::redrive::Routes;
use crate::units::UnixMillis;

/// What a log's entries are judged by.
#[derive(Clone, Debug)]
pub struct Judge {
    /// The session whose log it is.
    pub session: String,
    /// What the configuration knows.
    pub routes: Routes,
}

/// Why an entry is moved to the dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doom {
    /// It expired.
    Expired(Fault),
    /// No configuration names its log or its route any more.
    Orphaned(Fault),
}

impl Judge {
    /// Whether no configuration names the log any more. Without a configuration at hand nothing is known, and every log counts as named.
    #[must_use]
    pub fn is_unnamed(&self) -> bool {
        self.routes.are_known() && !self.routes.has_session(&self.session)
    }

    /// Why `entry` is moved, if it is.
    #[must_use]
    pub fn doom_of(&self, entry: &Entry, now: UnixMillis) -> Option<Doom> {
        if let Some(at) = entry.expires_at.filter(|at| now >= *at) {
            let detail = format!("expired {} ms ago", now.since(at).as_millis());
            return Some(Doom::Expired(Fault::new(FaultCode::MessageExpired, detail)));
        }
        let orphaned = |what: String| Some(Doom::Orphaned(Fault::new(FaultCode::NotFound, what)));
        if self.is_unnamed() {
            return orphaned(format!("no session of the configuration is named `{}`", self.session));
        }
        if self.routes.are_known() && self.routes.route(&entry.route).is_none() {
            return orphaned(format!("no route of the configuration is named `{}`", entry.route));
        }
        None
    }

    /// What the entry's letter tells of its destination.
    #[must_use]
    pub fn destination_of(&self, entry: &Entry) -> Destination {
        let known = self.routes.route(&entry.route).and_then(|facts| facts.binding(&entry.binding)).map(|facts| facts.destination.clone());
        known.unwrap_or_else(|| Destination {
            bridge: self.routes.bridge().to_owned(),
            session: self.session.clone(),
            ..Destination::default()
        })
    }
}

#[cfg(test)]
mod tests;
