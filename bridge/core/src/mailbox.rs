//! The mailbox of a log: how everybody who is not its owner hands entries to it.
//!
//! Nobody but the owner writes into a log. Whoever else wants to enqueue puts a row into the mailbox; the owner *moves* it: one transaction puts
//! the log's next segment, if its slot is absent, and deletes the mailbox's rows, if they exist. So an entry gets into the log exactly once, fenced
//! and in order, whatever is retried.

use crate::identity::{EntryId, IdentityError, Slot};
use crate::message::Entry;
use crate::outcome::{Fault, FaultCode};
use crate::rows::{self, CODEC_POSTCARD_ZSTD, PackError};
use crate::units::UnixMillis;
use bytes::Bytes;
use core::fmt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rows that one move takes at most: a transaction has room for 100 items, and one of them is the segment.
pub const MAX_MOVE_ROWS: usize = 99;

/// Bytes of mail that one move takes at most, counted as [`Message::weight`](crate::message::Message::weight), which is never less than what a
/// store keeps of it: a transaction has room for 4 MiB, and the segment needs its share.
pub const MAX_MOVE_BYTES: usize = 3 * 1024 * 1024;

/// Bytes of a piece of mail's id at most.
pub const MAX_MAIL_ID_BYTES: usize = 512;

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

    /// The entry as stores keep it: packed like a segment of one, under [`CODEC_POSTCARD_ZSTD`].
    ///
    /// # Errors
    /// Where the id cannot be a key, or the encoder fails.
    pub fn pack(&self) -> Result<Bytes, Fault> {
        check_id(&self.id)?;
        rows::pack(core::slice::from_ref(&self.entry)).map_err(|error| Fault::new(FaultCode::InvalidPayload, error.to_string()))
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`PackError`] where a newer release packed it, or it is damaged.
    pub fn unpack(id: impl Into<String>, posted_at: UnixMillis, codec: u8, body: &[u8]) -> Result<Self, PackError> {
        let entry = rows::unpack_body(codec, body, 1)?.pop().ok_or(PackError::Damaged)?;
        Ok(Self { id: id.into(), posted_at, entry: Arc::new(entry) })
    }

    /// The codec of [`Self::pack`].
    pub const CODEC: u8 = CODEC_POSTCARD_ZSTD;
}

fn check_id(id: &str) -> Result<(), Fault> {
    if id.is_empty() || id.len() > MAX_MAIL_ID_BYTES {
        let detail = format!("an id of mail has 1 to {MAX_MAIL_ID_BYTES} bytes, this one {}", id.len());
        return Err(Fault::new(FaultCode::InvalidConfig, detail));
    }
    Ok(())
}

/// Checks what a move asks for, before any store is asked.
///
/// # Errors
/// For the head row's slot, and for mail that is too much for one transaction, named twice, or cannot exist.
pub fn check_move(slot: Slot, mail: &[String]) -> Result<(), Fault> {
    let refuse = |detail: String| Err(Fault::new(FaultCode::InvalidConfig, detail));
    if slot == Slot::HEAD {
        return refuse("mail is moved to slot 1 or above; slot 0 belongs to the head row".to_owned());
    }
    if mail.len() > MAX_MOVE_ROWS {
        return refuse(format!("a move takes at most {MAX_MOVE_ROWS} pieces of mail, not {}", mail.len()));
    }
    if mail.iter().collect::<BTreeSet<_>>().len() < mail.len() {
        return refuse("a move names each piece of mail once".to_owned());
    }
    mail.iter().try_for_each(|id| check_id(id))
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

    #[test]
    fn a_move_that_no_store_can_carry_out_is_refused() {
        let ids = |count: usize| (0..count).map(|id| id.to_string()).collect::<Vec<_>>();
        assert!(check_move(Slot(1), &ids(MAX_MOVE_ROWS)).is_ok());
        assert!(check_move(Slot(1), &[]).is_ok());
        for (slot, mail) in [
            (Slot::HEAD, ids(1)),
            (Slot(1), ids(MAX_MOVE_ROWS + 1)),
            (Slot(1), vec!["a".to_owned(), "a".to_owned()]),
            (Slot(1), vec![String::new()]),
            (Slot(1), vec!["x".repeat(MAX_MAIL_ID_BYTES + 1)]),
        ] {
            assert_eq!(check_move(slot, &mail).unwrap_err().code, FaultCode::InvalidConfig, "{mail:?}");
        }
    }
}
