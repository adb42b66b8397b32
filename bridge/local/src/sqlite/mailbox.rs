//! The mailbox in SQLite: a table beside the log's, so that a move is one transaction.

use super::SqliteOutbox;
use super::outbox;
use super::reserve::Purpose;
use super::value::Number;
use async_trait::async_trait;
use bytes::Bytes;
use causeway_core::identity::{LogName, Slot};
use causeway_core::mailbox::{MAX_MOVE_BYTES, MAX_MOVE_ROWS, check_move};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::rows::Row;
use causeway_core::units::UnixMillis;
use causeway_ports::{Mail, Mailbox, MailboxName, Moved, Put};
use rusqlite::types::Type;
use rusqlite::{Connection, TransactionBehavior, params};

const POST: &str = "
INSERT INTO mail (mailbox, id, posted_at, codec, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (mailbox, id) DO NOTHING";

const READ: &str = "SELECT id, posted_at, codec, body FROM mail WHERE mailbox = ? ORDER BY id LIMIT ?";

const DELETE: &str = "DELETE FROM mail WHERE mailbox = ? AND id = ?";

/// Mail with its entry packed: what a call on the store's thread takes along.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    mailbox: String,
    id: String,
    posted_at: UnixMillis,
    body: Bytes,
}

impl Packed {
    /// Packs it.
    ///
    /// # Errors
    /// What [`Mail::pack`] says.
    pub(super) fn of(mailbox: &MailboxName, mail: &Mail) -> Result<Self, Fault> {
        Ok(Self { mailbox: mailbox.as_str().to_owned(), id: mail.id.clone(), posted_at: mail.posted_at, body: mail.pack()? })
    }

    /// What a write of it is for.
    pub(super) fn purpose(&self) -> Purpose {
        Purpose::Append(self.body.len() as u64)
    }

    /// Puts it unless it stands; answers whether it did.
    pub(super) fn post(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let values = params![self.mailbox, self.id, Number(self.posted_at.0), Mail::CODEC, &self.body[..]];
        Ok(connection.prepare_cached(POST)?.execute(values)? > 0)
    }
}

#[async_trait]
impl Mailbox for SqliteOutbox {
    async fn post(&self, mailbox: &MailboxName, mail: &Mail) -> Outcome<bool> {
        let shared = &self.store.shared;
        shared.calls.wrote();
        let packed = match Packed::of(mailbox, mail) {
            Ok(packed) => packed,
            Err(fault) => return Outcome::NotDone(fault),
        };
        shared.thread.write(packed.purpose(), move |connection| packed.post(connection)).await
    }

    async fn read_mail(&self, mailbox: &MailboxName, limit: usize) -> Result<Vec<Mail>, Fault> {
        let shared = &self.store.shared;
        shared.calls.read();
        let mailbox = mailbox.clone();
        shared.thread.read(move |connection| read(connection, &mailbox, limit.min(MAX_MOVE_ROWS))).await
    }

    /// What a move takes in the log it gives back in the mailbox, so that it may use the reserve of a full disk: mail that filled the disk must be
    /// able to leave it.
    async fn move_mail(&self, log: &LogName, slot: Slot, segment: &Row, mailbox: &MailboxName, mail: &[String]) -> Outcome<Moved> {
        let shared = &self.store.shared;
        shared.calls.wrote();
        if let Err(fault) = check_move(slot, mail) {
            return Outcome::NotDone(fault);
        }
        let (log, segment, mailbox, mail) = (log.clone(), segment.clone(), mailbox.clone(), mail.to_vec());
        shared.thread.write(Purpose::Settle, move |connection| moved(connection, &log, slot, &segment, &mailbox, &mail)).await
    }
}

fn read(connection: &Connection, mailbox: &MailboxName, limit: usize) -> rusqlite::Result<Vec<Mail>> {
    let mut statement = connection.prepare_cached(READ)?;
    let mut rows = statement.query(params![mailbox.as_str(), i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let (id, Number(posted_at), codec): (String, _, _) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let unreadable = |error| rusqlite::Error::FromSqlConversionFailure(3, Type::Blob, Box::new(error));
        let mail = Mail::unpack(id, UnixMillis(posted_at), codec, row.get_ref(3)?.as_blob()?).map_err(unreadable)?;
        bytes += mail.entry.message.weight();
        if bytes > MAX_MOVE_BYTES && !found.is_empty() {
            break;
        }
        found.push(mail);
    }
    Ok(found)
}

fn moved(
    connection: &mut Connection,
    log: &LogName,
    slot: Slot,
    segment: &Row,
    mailbox: &MailboxName,
    mail: &[String],
) -> rusqlite::Result<Moved> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Rolled back wherever the end is not reached.
    if let Some(standing) = outbox::meta_at(&transaction, log, slot)? {
        return Ok(if standing.id == segment.id() { Moved::Stored } else { Moved::Occupied(standing) });
    }
    for id in mail {
        if transaction.prepare_cached(DELETE)?.execute(params![mailbox.as_str(), id])? == 0 {
            return Ok(Moved::MailGone);
        }
    }
    if let Put::Occupied(standing) = outbox::put(&transaction, log, slot, segment)? {
        return Ok(Moved::Occupied(standing));
    }
    transaction.commit()?;
    Ok(Moved::Stored)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::schema;
    use super::*;

    /// A mailbox costs what it holds, whatever others hold.
    #[test]
    fn reading_and_deleting_walk_the_key() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::create(&mut connection).unwrap();
        for sql in [READ, DELETE] {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan: Vec<String> = statement.query_map(["m", "1"], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
            assert_eq!(plan.len(), 1, "{plan:?}");
            assert!(plan[0].starts_with("SEARCH mail USING PRIMARY KEY (mailbox=?"), "{plan:?}");
        }
    }
}
