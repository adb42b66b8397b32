//! The outbox in SQLite.

use super::SqliteStore;
use super::reserve::Purpose;
use super::value::{Id, Number, unknown};
use crate::memory::head_slot;
use crate::paging::{PAGE_BYTES, row_bytes};
use async_trait::async_trait;
use bytes::Bytes;
use causeway_core::identity::{Epoch, LogName, Position, Slot};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::rows::{Anchor, Head, Row, RowMeta, Segment, SettledRange};
use causeway_core::units::UnixMillis;
use causeway_ports::{LogRecord, LogState, Outbox, Page, Put, Registration, StoreUsage};
use rusqlite::{Connection, OptionalExtension, named_params, params};
use serde::{Deserialize, Serialize};

/// An outbox in a SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteOutbox {
    pub(super) store: SqliteStore,
}

const HEAD: &str = "head";
const ANCHOR: &str = "anchor";
const SEGMENT: &str = "segment";

const TAIL: &str = "SELECT sk, epoch, id, drained FROM outbox WHERE pk = ? AND sk > 0 ORDER BY sk DESC LIMIT 1";

const META: &str = "SELECT sk, epoch, id, drained FROM outbox WHERE pk = ? AND sk = ?";

const PUT: &str = "
INSERT INTO outbox (pk, sk, kind, epoch, drained, id, owner, opened_at, retired, count, codec, created_at, earliest_expiry, body)
VALUES (:pk, :sk, :kind, :epoch, :drained, :id, :owner, :opened_at, :retired, :count, :codec, :created_at, :earliest_expiry, :body)
ON CONFLICT (pk, sk) DO NOTHING";

const PAGE: &str = "
SELECT sk, kind, epoch, drained, id, owner, opened_at, count, codec, created_at, earliest_expiry, body, retired
FROM outbox WHERE pk = ? AND sk > ? AND sk <= ? ORDER BY sk";

const READ_HEAD: &str = "SELECT epoch, drained, progress, revision FROM outbox WHERE pk = ? AND sk = 0";

const PUT_HEAD: &str = "
INSERT INTO outbox (pk, sk, kind, epoch, revision, drained, progress) VALUES (?, 0, ?, ?, ?, ?, ?)
ON CONFLICT (pk, sk) DO UPDATE
SET epoch = excluded.epoch, revision = excluded.revision, drained = excluded.drained, progress = excluded.progress
WHERE excluded.drained >= outbox.drained
    AND (excluded.epoch > outbox.epoch OR (excluded.epoch = outbox.epoch AND excluded.revision > coalesce(outbox.revision, 0)))";

/// The head row is safe from any caller.
const DELETE: &str = "DELETE FROM outbox WHERE pk = ? AND sk = ? AND sk > 0";

const REGISTER_FIRST: &str = "INSERT INTO registry (log, epoch, lanes, state) VALUES (?, ?, ?, ?) ON CONFLICT (log) DO NOTHING";

const REGISTER_OVER: &str = "
UPDATE registry SET epoch = ?2, lanes = ?3, state = ?4 WHERE log = ?1 AND epoch = ?5 AND lanes = ?6 AND state = ?7";

const READ_RECORD: &str = "SELECT log, epoch, lanes, state FROM registry WHERE log = ?";

const LIST: &str = "SELECT log, epoch, lanes, state FROM registry ORDER BY log";

/// What a head row tells besides its epoch and `drained`, kept as JSON.
#[derive(Serialize, Deserialize)]
struct Progress {
    settled_ahead: Vec<SettledRange>,
    attempts: Vec<(Position, u32)>,
}

#[async_trait]
impl Outbox for SqliteOutbox {
    async fn read_tail(&self, log: &LogName) -> Result<Option<RowMeta>, Fault> {
        let shared = &self.store.shared;
        shared.calls.read();
        let log = log.clone();
        shared.thread.read(move |connection| connection.prepare_cached(TAIL)?.query_row([log.as_str()], meta).optional()).await
    }

    async fn read_head(&self, log: &LogName) -> Result<Option<Head>, Fault> {
        let shared = &self.store.shared;
        shared.calls.read();
        let log = log.clone();
        shared.thread.read(move |connection| connection.prepare_cached(READ_HEAD)?.query_row([log.as_str()], head).optional()).await
    }

    async fn put(&self, log: &LogName, slot: Slot, row: &Row) -> Outcome<Put> {
        let shared = &self.store.shared;
        shared.calls.wrote();
        if slot == Slot::HEAD {
            return Outcome::NotDone(head_slot());
        }
        let (log, row) = (log.clone(), row.clone());
        let purpose = match &row {
            // Without its anchor an owner cannot drain.
            Row::Anchor(_) => Purpose::Settle,
            Row::Segment(segment) => Purpose::Append(segment.body.len() as u64),
        };
        shared.thread.write(purpose, move |connection| put(connection, &log, slot, &row)).await
    }

    async fn put_head(&self, log: &LogName, head: &Head) -> Outcome<bool> {
        let shared = &self.store.shared;
        shared.calls.wrote();
        let (log, head) = (log.clone(), head.clone());
        let call = move |connection: &mut Connection| {
            let progress = Progress { settled_ahead: head.settled_ahead.clone(), attempts: head.attempts.clone() };
            let progress = serde_json::to_string(&progress).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            let values = params![log.as_str(), HEAD, Number(head.epoch.0), Number(head.revision), Number(head.drained.0), progress];
            Ok(connection.prepare_cached(PUT_HEAD)?.execute(values)? > 0)
        };
        shared.thread.write(Purpose::Settle, call).await
    }

    async fn read_page(&self, log: &LogName, after: Slot, up_to: Slot) -> Result<Page, Fault> {
        let shared = &self.store.shared;
        shared.calls.read();
        let log = log.clone();
        shared.thread.read(move |connection| page(connection, &log, after, up_to)).await
    }

    async fn delete(&self, log: &LogName, slots: &[Slot]) -> Outcome<()> {
        if slots.is_empty() {
            return Outcome::Done(());
        }
        let shared = &self.store.shared;
        shared.calls.wrote();
        let (log, slots) = (log.clone(), slots.to_vec());
        let call = move |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            {
                let mut delete = transaction.prepare_cached(DELETE)?;
                for slot in &slots {
                    delete.execute(params![log.as_str(), Number(slot.0)])?;
                }
            }
            transaction.commit()
        };
        shared.thread.write(Purpose::Settle, call).await
    }

    async fn read_record(&self, log: &LogName) -> Result<Option<LogRecord>, Fault> {
        let log = log.clone();
        let read = move |connection: &mut Connection| connection.prepare_cached(READ_RECORD)?.query_row([log.as_str()], record).optional();
        self.store.shared.thread.read(read).await
    }

    async fn replace_record(&self, record: &LogRecord, replaces: Option<Registration>) -> Outcome<bool> {
        let shared = &self.store.shared;
        shared.calls.wrote();
        let record = record.clone();
        let call = move |connection: &mut Connection| {
            let (log, epoch, state) = (record.log.as_str(), Number(record.epoch.0), state_name(record.state));
            let written = match replaces {
                None => connection.prepare_cached(REGISTER_FIRST)?.execute(params![log, epoch, record.lanes, state])?,
                Some(old) => {
                    let values = params![log, epoch, record.lanes, state, Number(old.epoch.0), old.lanes, state_name(old.state)];
                    connection.prepare_cached(REGISTER_OVER)?.execute(values)?
                }
            };
            Ok(written > 0)
        };
        shared.thread.write(Purpose::Settle, call).await
    }

    async fn list_logs(&self) -> Result<Vec<LogRecord>, Fault> {
        let list = |connection: &mut Connection| connection.prepare_cached(LIST)?.query_map([], record)?.collect();
        self.store.shared.thread.read(list).await
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.store.probe().await
    }

    /// Creates nothing: whoever opened the store to write has its file and tables. [`SqliteStore::create`] makes a missing one.
    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.store.probe().await.map(|()| Vec::new())
    }

    fn usage(&self) -> StoreUsage {
        self.store.shared.calls.usage()
    }
}

/// One transaction: the statement itself. No other writer can come between it and the look at what stands there.
pub(super) fn put(connection: &Connection, log: &LogName, slot: Slot, row: &Row) -> rusqlite::Result<Put> {
    let mut statement = connection.prepare_cached(PUT)?;
    let (pk, sk, epoch, drained, id) = (log.as_str(), Number(slot.0), Number(row.epoch().0), Number(row.drained().0), Id(row.id()));
    let inserted = match row {
        Row::Anchor(anchor) => statement.execute(named_params! {
            ":pk": pk, ":sk": sk, ":kind": ANCHOR, ":epoch": epoch, ":drained": drained, ":id": id,
            ":owner": anchor.owner, ":opened_at": Number(anchor.opened_at.0), ":retired": anchor.retired,
            ":count": None::<u32>, ":codec": None::<u8>, ":created_at": None::<Number>, ":earliest_expiry": None::<Number>, ":body": None::<&[u8]>,
        })?,
        Row::Segment(segment) => statement.execute(named_params! {
            ":pk": pk, ":sk": sk, ":kind": SEGMENT, ":epoch": epoch, ":drained": drained, ":id": id,
            ":owner": None::<&str>, ":opened_at": None::<Number>, ":retired": None::<bool>,
            ":count": segment.count, ":codec": segment.codec, ":created_at": Number(segment.created_at.0),
            ":earliest_expiry": segment.earliest_expiry.map(|expiry| Number(expiry.0)), ":body": &segment.body[..],
        })?,
    };
    if inserted > 0 {
        return Ok(Put::Stored);
    }
    let standing = connection.prepare_cached(META)?.query_row(params![pk, sk], meta)?;
    Ok(if standing.id == row.id() { Put::Stored } else { Put::Occupied(standing) })
}

/// Whose row stands at `slot`.
pub(super) fn meta_at(connection: &Connection, log: &LogName, slot: Slot) -> rusqlite::Result<Option<RowMeta>> {
    connection.prepare_cached(META)?.query_row(params![log.as_str(), Number(slot.0)], meta).optional()
}

/// Steps through the rows and stops at the end of the page: what lies beyond is never read, however long the log.
fn page(connection: &Connection, log: &LogName, after: Slot, up_to: Slot) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut statement = connection.prepare_cached(PAGE)?;
    let mut found = statement.query(params![log.as_str(), Number(after.0), Number(up_to.0)])?;
    let mut bytes = 0;
    while let Some(next) = found.next()? {
        if bytes >= PAGE_BYTES {
            page.next_after = page.rows.last().map(|(slot, _)| *slot);
            break;
        }
        let (slot, row) = slot_and_row(next)?;
        bytes += row_bytes(&row);
        page.rows.push((slot, row));
    }
    Ok(page)
}

fn meta(row: &rusqlite::Row<'_>) -> rusqlite::Result<RowMeta> {
    let (Number(slot), Number(epoch), Id(id), Number(drained)) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(RowMeta { slot: Slot(slot), epoch: Epoch(epoch), id, drained: Slot(drained) })
}

fn head(row: &rusqlite::Row<'_>) -> rusqlite::Result<Head> {
    let (Number(epoch), Number(drained)) = (row.get(0)?, row.get(1)?);
    let progress = row.get_ref(2)?.as_str()?;
    let progress: Progress = serde_json::from_str(progress)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(2, rusqlite::types::Type::Text, error.into()))?;
    let revision = row.get::<_, Option<Number>>(3)?.map_or(0, |Number(revision)| revision);
    Ok(Head { epoch: Epoch(epoch), revision, drained: Slot(drained), settled_ahead: progress.settled_ahead, attempts: progress.attempts })
}

fn slot_and_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Slot, Row)> {
    let (Number(slot), Number(epoch), Number(drained), Id(id)) = (row.get(0)?, row.get(2)?, row.get(3)?, row.get(4)?);
    let (epoch, drained) = (Epoch(epoch), Slot(drained));
    let millis = |column: usize| row.get(column).map(|Number(millis)| UnixMillis(millis));
    let read = match row.get_ref(1)?.as_str()? {
        ANCHOR => Row::Anchor(Anchor {
            epoch,
            anchor_id: id,
            owner: row.get(5)?,
            opened_at: millis(6)?,
            drained,
            retired: row.get::<_, Option<bool>>(12)?.unwrap_or(false),
        }),
        SEGMENT => Row::Segment(Segment {
            epoch,
            segment_id: id,
            count: row.get(7)?,
            codec: row.get(8)?,
            body: Bytes::copy_from_slice(row.get_ref(11)?.as_blob()?),
            created_at: millis(9)?,
            earliest_expiry: row.get::<_, Option<Number>>(10)?.map(|Number(millis)| UnixMillis(millis)),
            drained,
        }),
        other => return Err(unknown(1, other)),
    };
    Ok((Slot(slot), read))
}

const fn state_name(state: LogState) -> &'static str {
    match state {
        LogState::Open => "open",
        LogState::Retired => "retired",
    }
}

fn record(row: &rusqlite::Row<'_>) -> rusqlite::Result<LogRecord> {
    let name = row.get_ref(0)?.as_str()?;
    let log = LogName::parse(name).ok_or_else(|| unknown(0, name))?;
    let Number(epoch) = row.get(1)?;
    let state = match row.get_ref(3)?.as_str()? {
        "open" => LogState::Open,
        "retired" => LogState::Retired,
        other => return Err(unknown(3, other)),
    };
    Ok(LogRecord { log, epoch: Epoch(epoch), lanes: row.get(2)?, state })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::schema;
    use super::*;

    /// The tail and a page cost what they answer, however long the log.
    #[test]
    fn tail_and_pages_walk_the_key() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::create(&mut connection).unwrap();
        for (sql, values) in [(TAIL, 1), (PAGE, 3), (META, 2), (READ_HEAD, 1), (DELETE, 2)] {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan: Vec<String> =
                statement.query_map(rusqlite::params_from_iter(vec![0; values]), |row| row.get(3)).unwrap().map(Result::unwrap).collect();
            assert_eq!(plan.len(), 1, "{plan:?}");
            assert!(plan[0].starts_with("SEARCH outbox USING PRIMARY KEY (pk=? AND sk"), "{plan:?}");
        }
    }
}
