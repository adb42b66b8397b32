//! Managed subscriptions in SQLite.

use super::file::{folder_only_its_users, is_clean_absolute, only_its_users};
use super::reserve::Purpose;
use super::{LocalStoreError, OpenMode, SqliteStore};
use async_trait::async_trait;
use causeway_core::outcome::{Fault, Outcome};
use causeway_ports::{Generation, ManagedSubscriptions};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use std::collections::BTreeSet;
use std::path::Path;

/// Managed subscriptions in a SQLite file, which nobody but its user may read or write: whoever changed it would have the worker unsubscribe what
/// the session needs, or keep what it should not have.
#[derive(Clone, Debug)]
pub struct SqliteManagedSubscriptions {
    store: SqliteStore,
}

const KNOWN: &str = "SELECT EXISTS (SELECT 1 FROM subscription_baselines WHERE storage_identity = ?)";
const LOAD: &str = "SELECT filter FROM managed_subscriptions WHERE storage_identity = ?";
const SEED: &str = "INSERT INTO subscription_baselines (storage_identity) VALUES (?) ON CONFLICT DO NOTHING";
const ADD: &str = "INSERT INTO managed_subscriptions (storage_identity, filter) VALUES (?, ?) ON CONFLICT DO NOTHING";
const BEGIN_GENERATION: &str =
    "UPDATE subscription_baselines SET generation = ifnull(generation, 0) + 1 WHERE storage_identity = ? RETURNING generation";
const OF_GENERATION: &str = "SELECT EXISTS (SELECT 1 FROM subscription_baselines WHERE storage_identity = ? AND generation = ?)";
const FORGET: &str = "DELETE FROM managed_subscriptions WHERE storage_identity = ? AND filter = ?";

/// Whether managed subscriptions may be kept at `path`, as far as its folder tells; nothing is made or opened.
///
/// # Errors
/// [`LocalStoreError::NotPrivate`] where it is not for this user alone.
pub fn folder_is_private(path: &Path) -> Result<(), LocalStoreError> {
    folder_only_its_users(path)
}

impl SqliteManagedSubscriptions {
    /// Opens the store at `path`, which must be absolute and free of `.` and `..`, so that it names one file from wherever the worker is started.
    /// A file that other stores of this process have open is shared with them.
    ///
    /// # Errors
    /// [`LocalStoreError::UncleanPath`], [`LocalStoreError::NotPrivate`], and those of [`SqliteStore::open`].
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<Self, LocalStoreError> {
        let path = path.as_ref();
        if !is_clean_absolute(path) {
            return Err(LocalStoreError::UncleanPath { path: path.to_owned() });
        }
        folder_only_its_users(path)?;
        SqliteStore::open(path, mode)?.managed_subscriptions()
    }
}

impl SqliteStore {
    /// The managed subscriptions in this file.
    ///
    /// # Errors
    /// [`LocalStoreError::NotPrivate`] where the file or its folder is not for this user alone.
    pub fn managed_subscriptions(&self) -> Result<SqliteManagedSubscriptions, LocalStoreError> {
        only_its_users(self.path())?;
        Ok(SqliteManagedSubscriptions { store: self.clone() })
    }
}

#[async_trait]
impl ManagedSubscriptions for SqliteManagedSubscriptions {
    async fn load(&self, identity: &str) -> Result<Option<BTreeSet<String>>, Fault> {
        let identity = identity.to_owned();
        self.store.shared.thread.read(move |connection| load(connection, &identity)).await
    }

    async fn seed(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<bool> {
        let (identity, filters) = (identity.to_owned(), filters.clone());
        self.store.shared.thread.write(Purpose::Settle, move |connection| seed(connection, &identity, &filters)).await
    }

    async fn remember(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<Option<Generation>> {
        let (identity, filters) = (identity.to_owned(), filters.clone());
        self.store.shared.thread.write(Purpose::Settle, move |connection| remember(connection, &identity, &filters)).await
    }

    async fn forget(&self, identity: &str, filter: &str, generation: Generation) -> Outcome<bool> {
        let (identity, filter) = (identity.to_owned(), filter.to_owned());
        self.store.shared.thread.write(Purpose::Settle, move |connection| forget(connection, &identity, &filter, generation)).await
    }

    /// Looks at the modes of file and folder as well: somebody may have opened them to others since.
    async fn probe(&self) -> Result<(), Fault> {
        only_its_users(self.store.path()).map_err(|error| error.fault())?;
        self.store.probe().await
    }

    /// Creates nothing: whoever opened the store to write has its file and tables. [`SqliteStore::create`] makes a missing one.
    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.probe().await.map(|()| Vec::new())
    }
}

fn is_known(connection: &Connection, identity: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached(KNOWN)?.query_row([identity], |row| row.get(0))
}

/// Both reads see one state: another process may be writing.
fn load(connection: &mut Connection, identity: &str) -> rusqlite::Result<Option<BTreeSet<String>>> {
    let transaction = connection.transaction()?;
    if !is_known(&transaction, identity)? {
        return Ok(None);
    }
    let mut statement = transaction.prepare_cached(LOAD)?;
    let filters = statement.query_map([identity], |row| row.get(0))?;
    filters.collect::<rusqlite::Result<_>>().map(Some)
}

fn seed(connection: &mut Connection, identity: &str, filters: &BTreeSet<String>) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let first = transaction.prepare_cached(SEED)?.execute([identity])? > 0;
    if first {
        add(&transaction, identity, filters)?;
    }
    transaction.commit()?;
    Ok(first)
}

fn remember(connection: &mut Connection, identity: &str, filters: &BTreeSet<String>) -> rusqlite::Result<Option<Generation>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let begun: Option<i64> = transaction.prepare_cached(BEGIN_GENERATION)?.query_row([identity], |row| row.get(0)).optional()?;
    if begun.is_some() {
        add(&transaction, identity, filters)?;
    }
    transaction.commit()?;
    Ok(begun.map(|generation| Generation(generation.unsigned_abs())))
}

fn forget(connection: &mut Connection, identity: &str, filter: &str, generation: Generation) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // One that is too large for the column was never given out.
    let wanted = i64::try_from(generation.0).unwrap_or(-1);
    let current: bool = transaction.prepare_cached(OF_GENERATION)?.query_row((identity, wanted), |row| row.get(0))?;
    if current {
        transaction.prepare_cached(FORGET)?.execute([identity, filter])?;
    }
    transaction.commit()?;
    Ok(current)
}

fn add(connection: &Connection, identity: &str, filters: &BTreeSet<String>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(ADD)?;
    filters.iter().try_for_each(|filter| statement.execute([identity, filter]).map(|_| ()))
}
