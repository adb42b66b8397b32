//! What a run of housekeeping is asked for.

use crate::redrive::continuation;
use crate::redrive::fields::{Fields, InvalidEvent};
use serde_json::Value;

/// Items that one run treats unless the event says otherwise.
pub const DEFAULT_MAX_ITEMS: u64 = 5_000;
/// Items that one run treats at most.
pub const MAX_MAX_ITEMS: u64 = 1_000_000;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Only tell what would be done.
    pub dry_run: bool,
    /// Rows that are deleted or moved at most.
    pub max_items: u64,
    /// Where the last run stopped.
    pub resume: Option<At>,
    bound: String,
}

/// Where a run stopped. What was done before is done; the next run begins there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// Before this log, by name.
    Log(String),
    /// In the commands, after this key.
    Commands(String),
    /// In the ledger, after this key.
    Ledger(String),
}

impl Request {
    /// Reads an event; `bridge` is what its continuation is bound to.
    ///
    /// # Errors
    /// The first field that is wrong, unknown or missing.
    pub fn parse(event: &Value, bridge: &str) -> Result<Self, InvalidEvent> {
        let bound = continuation::bound_to(&["housekeeping", bridge]);
        let mut fields = Fields::of_event(event)?;
        match fields.text("op")? {
            Some("sweep") => {}
            Some(_) | None => return Err(InvalidEvent::new("op", "\"sweep\" is expected")),
        }
        let dry_run = fields.flag("dry_run", false)?;
        let max_items = fields.number("max_items", DEFAULT_MAX_ITEMS, 1, MAX_MAX_ITEMS)?;
        let resume = match fields.text("continuation")? {
            None => None,
            Some(text) => Some(At::parse(continuation::read(text, &bound)?)?),
        };
        fields.finish()?;
        Ok(Self { dry_run, max_items, resume, bound })
    }

    /// The continuation that goes on at `at`.
    #[must_use]
    pub fn continuation(&self, at: &At) -> String {
        let (kind, key) = match at {
            At::Log(name) => ("log", name),
            At::Commands(key) => ("commands", key),
            At::Ledger(key) => ("ledger", key),
        };
        continuation::write(&self.bound, &format!("{kind}:{key}"))
    }
}

impl At {
    fn parse(text: &str) -> Result<Self, InvalidEvent> {
        match text.split_once(':') {
            Some(("log", name)) => Ok(Self::Log(name.to_owned())),
            Some(("commands", key)) => Ok(Self::Commands(key.to_owned())),
            Some(("ledger", key)) => Ok(Self::Ledger(key.to_owned())),
            _ => Err(InvalidEvent::new("continuation", "this is not a continuation: give back the one of the last answer, or none")),
        }
    }
}
