//! Redrives within one SQLite file: one transaction. Across two files there is none; see [`causeway_ports::TwoStores`].

use super::dead_letters::{self, SELECT};
use super::mailbox::Packed;
use super::reserve::Purpose;
use super::value::{Id, Number};
use super::{SqliteDeadLetters, SqliteStore};
use crate::memory::wall;
use async_trait::async_trait;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState, TOMBSTONE_KEPT};
use causeway_core::outcome::Outcome;
use causeway_core::units::UnixMillis;
use causeway_ports::{Mail, MailboxName, PutBack, Redrives};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, named_params, params};

/// Redrives from the dead letters of a file to the mailboxes of the same file.
#[derive(Clone, Debug)]
pub struct SqliteRedrives {
    store: SqliteStore,
}

const BURY: &str = "
UPDATE dlq SET state = :state, redrive_count = :count, redriven_at = :at, redriven_by = :by, dropped_bytes = :dropped, expires_at = :expires_at,
    payload = :payload
WHERE id = :id";

const SET_ASIDE: &str = "UPDATE dlq SET state = ? WHERE id = ?";

/// Tombstones whose time is over, a few with every redrive: nothing else would ever remove them.
const PRUNE: &str = "DELETE FROM dlq WHERE id IN (SELECT id FROM dlq WHERE expires_at IS NOT NULL AND expires_at < ? LIMIT 16)";

impl SqliteDeadLetters {
    /// What puts these letters back, into the mailboxes of the same file.
    #[must_use]
    pub fn redrives(&self) -> SqliteRedrives {
        SqliteRedrives { store: self.store.clone() }
    }
}

#[async_trait]
impl Redrives for SqliteRedrives {
    async fn put_back(&self, letter: &DeadLetter, mailbox: &MailboxName, mail: &Mail, request: &str) -> Outcome<PutBack> {
        let packed = match Packed::of(mailbox, mail) {
            Ok(packed) => packed,
            Err(fault) => return Outcome::NotDone(fault),
        };
        let (letter, request, at) = (letter.clone(), request.to_owned(), mail.posted_at);
        let call = move |connection: &mut Connection| bury(connection, &letter, &request, at, Some(&packed));
        self.store.shared.thread.write(Purpose::Append(mail.entry.message.payload.len() as u64), call).await
    }

    async fn mark_redriven(&self, letter: &DeadLetter, request: &str) -> Outcome<PutBack> {
        let (letter, request) = (letter.clone(), request.to_owned());
        let call = move |connection: &mut Connection| bury(connection, &letter, &request, wall(), None);
        self.store.shared.thread.write(Purpose::Settle, call).await
    }

    async fn set_aside(&self, letter: &DeadLetter) -> Outcome<PutBack> {
        let letter = letter.clone();
        let call = move |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            match standing(&transaction, &letter)? {
                Some(standing) if standing.is_as_seen(&letter) => {}
                Some(standing) if standing.is_set_aside(&letter) => return Ok(PutBack::Done),
                _ => return Ok(PutBack::Conflict),
            }
            transaction.prepare_cached(SET_ASIDE)?.execute(params![DeadLetterState::Parked.as_str(), Id(letter.id)])?;
            transaction.commit()?;
            Ok(PutBack::Done)
        };
        self.store.shared.thread.write(Purpose::Settle, call).await
    }
}

fn standing(connection: &Connection, letter: &DeadLetter) -> rusqlite::Result<Option<DeadLetter>> {
    connection.prepare_cached(&format!("{SELECT} WHERE id = ?"))?.query_row([Id(letter.id)], dead_letters::letter).optional()
}

fn bury(
    connection: &mut Connection,
    letter: &DeadLetter,
    request: &str,
    at: UnixMillis,
    mail: Option<&Packed>,
) -> rusqlite::Result<PutBack> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let tombstone = match standing(&transaction, letter)? {
        Some(standing) if standing.is_as_seen(letter) => standing.tombstone(request, at),
        Some(standing) if standing.is_tombstone_of(letter, request) => return Ok(PutBack::Done),
        _ => return Ok(PutBack::Conflict),
    };
    if let Some(mail) = mail {
        mail.post(&transaction)?;
    }
    let redriven = tombstone.redriven.as_ref();
    transaction.prepare_cached(BURY)?.execute(named_params! {
        ":id": Id(tombstone.id), ":state": tombstone.state.as_str(), ":count": tombstone.redrive_count, ":at": Number(at.0), ":by": request,
        ":dropped": Number(redriven.map_or(0, |redriven| redriven.dropped_bytes)), ":expires_at": Number(at.plus(TOMBSTONE_KEPT).0),
        ":payload": &tombstone.message.payload[..],
    })?;
    transaction.prepare_cached(PRUNE)?.execute([Number(at.0)])?;
    transaction.commit()?;
    Ok(PutBack::Done)
}
