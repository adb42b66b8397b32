//! The ledger of drops in SQLite.

use super::SqliteStore;
use super::reserve::Purpose;
use super::value::{Number, unknown};
use async_trait::async_trait;
use causeway_core::drops::ledger::{LedgerCount, LedgerKey, LedgerLimits, LedgerRow};
use causeway_core::drops::{Direction, DropReason};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{DropLedger, LedgerBatch, LedgerPage};
use rusqlite::{Connection, TransactionBehavior, named_params};

/// A ledger in a SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteDropLedger {
    pub(super) store: SqliteStore,
}

const ADD: &str = "
INSERT INTO drop_ledger (name, client_or_key, reason, topic, direction, lost, dead_lettered, first, last, route, qos, detail)
VALUES (:name, :key, :reason, :topic, :direction, :lost, :dead, :first, :last, :route, :qos, :detail)
ON CONFLICT (name) DO UPDATE
SET lost = lost + excluded.lost, dead_lettered = dead_lettered + excluded.dead_lettered, last = excluded.last, route = excluded.route,
    qos = excluded.qos, detail = excluded.detail";
/// A batch is counted once: only one process writes the file, and it repeats none but its last.
const IS_LAST: &str =
    "INSERT INTO drop_ledger_batch (one, id) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET id = excluded.id WHERE id <> excluded.id";
const LIST: &str = "
SELECT client_or_key, reason, topic, direction, lost, dead_lettered, first, last, route, qos, detail FROM drop_ledger ORDER BY last DESC, name LIMIT ?";
const AGES: &str = "SELECT last, name FROM drop_ledger";
const DELETE: &str = "DELETE FROM drop_ledger WHERE name = ?";

impl SqliteStore {
    /// The ledger of drops in this file.
    #[must_use]
    pub fn drop_ledger(&self) -> SqliteDropLedger {
        SqliteDropLedger { store: self.clone() }
    }
}

#[async_trait]
impl DropLedger for SqliteDropLedger {
    async fn add(&self, batch: &LedgerBatch) -> Outcome<()> {
        let batch = batch.clone();
        self.store.shared.thread.write(Purpose::Settle, move |connection| add(connection, &batch)).await
    }

    async fn list(&self, limit: usize) -> Result<LedgerPage, Fault> {
        let most = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
        let call = move |connection: &mut Connection| -> rusqlite::Result<Vec<LedgerRow>> {
            connection.prepare_cached(LIST)?.query_map([most], row)?.collect()
        };
        let rows = self.store.shared.thread.read(call).await?;
        let complete = rows.len() <= limit;
        Ok(LedgerPage::newest(rows, limit, complete))
    }

    async fn prune(&self, limits: LedgerLimits) -> Outcome<usize> {
        self.store.shared.thread.write(Purpose::Settle, move |connection| prune(connection, limits)).await
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.store.probe().await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.store.probe().await.map(|()| Vec::new())
    }
}

fn add(connection: &mut Connection, batch: &LedgerBatch) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if transaction.prepare_cached(IS_LAST)?.execute([format!("{:032x}", batch.id)])? > 0 {
        let mut statement = transaction.prepare_cached(ADD)?;
        for LedgerRow { key, count } in &batch.rows {
            statement.execute(named_params! {
                ":name": key.name(), ":key": key.key, ":reason": key.reason.as_str(), ":topic": key.topic, ":direction": key.direction.as_str(),
                ":lost": i64::try_from(count.lost).unwrap_or(i64::MAX), ":dead": i64::try_from(count.dead_lettered).unwrap_or(i64::MAX),
                ":first": Number(count.first.0), ":last": Number(count.last.0), ":route": count.route, ":qos": count.qos, ":detail": count.detail,
            })?;
        }
    }
    transaction.commit()
}

fn prune(connection: &mut Connection, limits: LedgerLimits) -> rusqlite::Result<usize> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let ages: Vec<(UnixMillis, String)> = transaction
        .prepare_cached(AGES)?
        .query_map([], |row| Ok((UnixMillis(row.get::<_, Number>(0)?.0), row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let doomed = limits.doomed(ages);
    for name in &doomed {
        transaction.prepare_cached(DELETE)?.execute([name])?;
    }
    transaction.commit()?;
    Ok(doomed.len())
}

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<LedgerRow> {
    let (reason, direction): (String, String) = (row.get(1)?, row.get(3)?);
    let count = |at: usize| -> rusqlite::Result<u64> { Ok(row.get::<_, i64>(at)?.unsigned_abs()) };
    Ok(LedgerRow {
        key: LedgerKey {
            key: row.get(0)?,
            reason: DropReason::parse(&reason).ok_or_else(|| unknown(1, &reason))?,
            topic: row.get(2)?,
            direction: Direction::parse(&direction).ok_or_else(|| unknown(3, &direction))?,
        },
        count: LedgerCount {
            lost: count(4)?,
            dead_lettered: count(5)?,
            first: UnixMillis(row.get::<_, Number>(6)?.0),
            last: UnixMillis(row.get::<_, Number>(7)?.0),
            route: row.get(8)?,
            qos: row.get(9)?,
            detail: row.get(10)?,
        },
    })
}
