//! The one connection of a store.

use super::LocalStoreError;
use super::schema::{self, Found};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// What the write-ahead log is cut to once everything in it is in the database.
pub const WAL_BYTES: u64 = 16 * 1024 * 1024;

/// How long a call waits for a lock of another program, such as a `sqlite3` shell with an open transaction.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Every statement of this store, with room for the forms of the dead letters' filter in use.
const CACHED_STATEMENTS: usize = 64;

/// Opens a database to write; makes its tables where it is empty, and brings those of an older release up to date.
///
/// # Errors
/// See [`LocalStoreError`].
pub(super) fn open_to_write(path: &Path) -> Result<Connection, LocalStoreError> {
    let failed = |error| LocalStoreError::of(path.to_owned(), error);
    let mut connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // SQLite falls back to reading without a word where the file's mode forbids writing.
    if connection.is_readonly("main").map_err(failed)? {
        return Err(LocalStoreError::NotWritable { path: path.to_owned(), reason: "the file is read-only".to_owned() });
    }
    // Looked at before anything is changed: it may be somebody else's.
    let found = schema::inspect(&connection, path)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(LocalStoreError::NoWal { path: path.to_owned(), found: mode });
    }
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    // The answer of this pragma is the limit itself; of no interest.
    connection.pragma_update_and_check(None, "journal_size_limit", WAL_BYTES as i64, |_| Ok(())).map_err(failed)?;
    match found {
        Found::Current => {}
        Found::Empty => schema::create(&mut connection).map_err(failed)?,
        Found::Older(version) => schema::upgrade(&mut connection, version).map_err(failed)?,
    }
    Ok(connection)
}

/// Opens a database to read.
///
/// # Errors
/// See [`LocalStoreError`].
pub(super) fn open_to_read(path: &Path) -> Result<Connection, LocalStoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    match schema::inspect(&connection, path)? {
        Found::Current => Ok(connection),
        Found::Empty => Err(LocalStoreError::Missing { path: path.to_owned() }),
        Found::Older(found) => Err(LocalStoreError::OlderSchema { path: path.to_owned(), found, known: schema::VERSION }),
    }
}

fn open(path: &Path, access: OpenFlags) -> Result<Connection, LocalStoreError> {
    let failed = |error| LocalStoreError::of(path.to_owned(), error);
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(connection)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// No test can pull the plug: that every commit reaches the disk rests on these settings.
    #[test]
    fn every_commit_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("causeway.db");
        std::fs::write(&path, "").unwrap();
        let connection = open_to_write(&path).unwrap();
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        let number = |name: &str| -> i64 { connection.pragma_query_value(None, name, |row| row.get(0)).unwrap() };
        const FULL: i64 = 2;
        assert_eq!((mode.as_str(), number("synchronous"), number("journal_size_limit")), ("wal", FULL, WAL_BYTES as i64));
    }
}
