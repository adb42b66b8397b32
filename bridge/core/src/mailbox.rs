//! The mailbox of a log: how everybody who is not its owner hands entries to it.
//!
//! Nobody but the owner writes into a log. Whoever else wants to enqueue puts a row into the mailbox; the owner *moves* it: one transaction puts
//! the log's next segment, if its slot is absent, and deletes the mailbox's rows, if they exist. So an entry gets into the log exactly once, fenced
//! and in order, whatever is retried.

use crate::identity::{EntryId, IdentityError};
use crate::message::Entry;
use crate::units::UnixMillis;
use core::fmt;
use std::sync::Arc;

/// Rows that one move takes at most: a transaction has room for 100 items, and one of them is the segment.
pub const MAX_MOVE_ROWS: usize = 99;

/// Bytes of mail that one move takes at most: a transaction has room for 4 MiB, and the segment needs its share.
pub const MAX_MOVE_BYTES: usize = 3 * 1024 * 1024;

/// The name of a mailbox, and its partition key in every store: `MAIL#<bridge>#<session>`.
///
/// The logs of all processes that share a session without owning it exclusively have one mailbox: any of them may move its mail, and only one can.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailboxName(String);

impl MailboxName {
    /// Names the mailbox of `session` in bridge `bridge`.
    ///
    /// # Errors
    /// Where a part is empty, or holds `#`, which separates the parts.
    pub fn new(bridge: &str, session: &str) -> Result<Self, IdentityError> {
        for part in [bridge, session] {
            if part.is_empty() || part.contains('#') {
                return Err(IdentityError::LogNamePart { part: part.to_owned() });
            }
        }
        Ok(Self(format!("MAIL#{bridge}#{session}")))
    }

    /// The name as stores keep it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MailboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One piece of mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Its name in the mailbox. Posting the same name twice leaves one.
    pub id: String,
    /// When it was posted, by the poster's wall clock.
    pub posted_at: UnixMillis,
    /// The entry as the log shall have it, its id included.
    pub entry: Arc<Entry>,
}

impl Mail {
    /// The name under which a dead letter is put back for the `attempt`-th time: the same for everyone who tries.
    #[must_use]
    pub fn id_of_redrive(letter: EntryId, attempt: u32) -> String {
        format!("{letter}-{attempt}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn names_can_be_told_apart() {
        assert_eq!(MailboxName::new("b", "s").unwrap().as_str(), "MAIL#b#s");
        assert!(MailboxName::new("b#", "s").is_err());
        assert!(MailboxName::new("b", "").is_err());
    }
}
