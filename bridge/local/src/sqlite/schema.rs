//! The tables, their version, and whose database it is.

use super::LocalStoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::Path;

/// The version that this release writes, in `user_version`.
pub(super) const VERSION: i64 = 5;

/// The first version that was released.
const FIRST: i64 = 1;

/// "CSWY", in `application_id`: tells a store from another program's database.
const APPLICATION: i64 = 0x4353_5759;

/// Columns of 64 unsigned bits are `ANY`, see [`super::value::Number`]. Bodies and payloads stand last, so that the columns before them are
/// read without them. Slot 0 of a log is its head row: kind, epoch, drained, progress. A session without a baseline is unknown, whatever filters stand
/// there; one with a baseline and without filters has none. A baseline's generation counts how often filters were remembered.
const TABLES: &str = "
CREATE TABLE outbox (
    pk TEXT NOT NULL,
    sk ANY NOT NULL,
    kind TEXT NOT NULL,
    epoch ANY NOT NULL,
    drained ANY NOT NULL,
    id TEXT,
    owner TEXT,
    opened_at ANY,
    count INTEGER,
    codec INTEGER,
    created_at ANY,
    earliest_expiry ANY,
    progress TEXT,
    body BLOB,
    PRIMARY KEY (pk, sk)
) STRICT, WITHOUT ROWID;

CREATE TABLE registry (
    log TEXT NOT NULL PRIMARY KEY,
    epoch ANY NOT NULL,
    lanes INTEGER NOT NULL,
    state TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE dlq (
    id TEXT NOT NULL PRIMARY KEY,
    route TEXT NOT NULL,
    binding TEXT NOT NULL,
    session TEXT NOT NULL,
    source TEXT NOT NULL,
    address TEXT NOT NULL,
    category TEXT NOT NULL,
    error_code TEXT NOT NULL,
    reason TEXT NOT NULL,
    last_error TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    redrive_count INTEGER NOT NULL,
    state TEXT NOT NULL,
    failed_at ANY NOT NULL,
    received_at ANY NOT NULL,
    topic TEXT NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    headers TEXT NOT NULL,
    correlation_data BLOB,
    payload BLOB NOT NULL
) STRICT;

CREATE INDEX dlq_by_age ON dlq (failed_at, id);
CREATE INDEX dlq_by_route ON dlq (route, failed_at, id);
CREATE INDEX dlq_by_category ON dlq (category, failed_at, id);

CREATE TABLE subscription_baselines (
    storage_identity TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE managed_subscriptions (
    storage_identity TEXT NOT NULL,
    filter TEXT NOT NULL,
    PRIMARY KEY (storage_identity, filter)
) STRICT, WITHOUT ROWID;
";

/// What each version added to the one before, from version 2. Columns that are added are absent in older rows, which read as `false`, 0 or nothing.
const UPGRADES: [&str; 4] = [
    "
ALTER TABLE outbox ADD COLUMN revision ANY;
ALTER TABLE outbox ADD COLUMN retired INTEGER;

CREATE TABLE mail (
    mailbox TEXT NOT NULL,
    id TEXT NOT NULL,
    posted_at ANY NOT NULL,
    codec INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (mailbox, id)
) STRICT, WITHOUT ROWID;

ALTER TABLE dlq ADD COLUMN redriven_at ANY;
ALTER TABLE dlq ADD COLUMN redriven_by TEXT;
ALTER TABLE dlq ADD COLUMN dropped_bytes ANY;
ALTER TABLE dlq ADD COLUMN expires_at ANY;

CREATE INDEX dlq_by_expiry ON dlq (expires_at) WHERE expires_at IS NOT NULL;
",
    "ALTER TABLE subscription_baselines ADD COLUMN generation INTEGER;",
    "ALTER TABLE dlq ADD COLUMN bridge TEXT NOT NULL DEFAULT '';",
    "
CREATE TABLE drop_ledger (
    name TEXT NOT NULL PRIMARY KEY,
    client_or_key TEXT NOT NULL,
    reason TEXT NOT NULL,
    topic TEXT NOT NULL,
    direction TEXT NOT NULL,
    lost INTEGER NOT NULL,
    dead_lettered INTEGER NOT NULL,
    first ANY NOT NULL,
    last ANY NOT NULL,
    route TEXT NOT NULL,
    qos INTEGER NOT NULL,
    detail TEXT NOT NULL
) STRICT;

CREATE INDEX drop_ledger_by_age ON drop_ledger (last);

CREATE TABLE drop_ledger_batch (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL
) STRICT;
",
];

/// What a database turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing in it.
    Empty,
    /// A store of this version.
    Current,
    /// A store of an older version.
    Older(i64),
}

/// Looks at the database without changing it.
///
/// # Errors
/// Where it is no database, another program's, or a newer release's.
pub(super) fn inspect(connection: &Connection, path: &Path) -> Result<Found, LocalStoreError> {
    let number = |sql: &str| -> Result<i64, LocalStoreError> {
        connection.query_row(sql, [], |row| row.get(0)).map_err(|error| LocalStoreError::of(path.to_owned(), error))
    };
    let (application, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    if application == 0 && version == 0 && number("SELECT count(*) FROM sqlite_schema")? == 0 {
        return Ok(Found::Empty);
    }
    if application != APPLICATION {
        return Err(LocalStoreError::Foreign { path: path.to_owned() });
    }
    if version > VERSION {
        return Err(LocalStoreError::NewerSchema { path: path.to_owned(), found: version, known: VERSION });
    }
    if version < FIRST {
        return Err(LocalStoreError::Damaged { path: path.to_owned(), reason: format!("schema version {version} was never released") });
    }
    if version < VERSION {
        return Ok(Found::Older(version));
    }
    verify(connection).map_err(|error| LocalStoreError::Damaged { path: path.to_owned(), reason: error.to_string() })?;
    Ok(Found::Current)
}

/// Makes the tables in an empty database, all or none.
///
/// # Errors
/// What SQLite refuses.
pub(super) fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    upgrade_within(&transaction, FIRST)?;
    transaction.commit()
}

/// Brings a store of version `from` up to this one, all or nothing.
///
/// # Errors
/// What SQLite refuses.
pub(super) fn upgrade(connection: &mut Connection, from: i64) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    upgrade_within(&transaction, from)?;
    transaction.commit()
}

fn upgrade_within(transaction: &Transaction<'_>, from: i64) -> rusqlite::Result<()> {
    for (sql, version) in UPGRADES.iter().zip(FIRST + 1..) {
        if version > from {
            transaction.execute_batch(sql)?;
        }
    }
    transaction.pragma_update(None, "user_version", VERSION)
}

/// Checks that the tables are there and have their columns.
///
/// # Errors
/// What SQLite says of the first that is missing.
pub(super) fn verify(connection: &Connection) -> rusqlite::Result<()> {
    for sql in [
        "SELECT pk, sk, kind, epoch, drained, id, owner, opened_at, count, codec, created_at, earliest_expiry, progress, body,
            revision, retired FROM outbox LIMIT 0",
        "SELECT log, epoch, lanes, state FROM registry LIMIT 0",
        "SELECT id, route, binding, session, source, address, category, error_code, reason, last_error, attempts, redrive_count, state, failed_at,
            received_at, topic, qos, retain, headers, correlation_data, payload, redriven_at, redriven_by, dropped_bytes, expires_at, bridge
            FROM dlq LIMIT 0",
        "SELECT mailbox, id, posted_at, codec, body FROM mail LIMIT 0",
        "SELECT storage_identity, generation FROM subscription_baselines LIMIT 0",
        "SELECT storage_identity, filter FROM managed_subscriptions LIMIT 0",
        "SELECT name, client_or_key, reason, topic, direction, lost, dead_lettered, first, last, route, qos, detail FROM drop_ledger LIMIT 0",
        "SELECT one, id FROM drop_ledger_batch LIMIT 0",
    ] {
        connection.prepare_cached(sql)?;
    }
    Ok(())
}
