//! Opening, sharing and closing a store.

use super::file::{self, Identity};
use super::lock::WriterLock;
use super::reserve::Reserve;
use super::thread::StoreThread;
use super::{LocalStoreError, SqliteDeadLetters, SqliteOutbox, connection, schema};
use crate::calls::Calls;
use causeway_core::outcome::{Fault, FaultCode};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// To write: takes the exclusive lock, makes the file (not its folder) where it is missing.
    ReadWrite,
    /// To look at, beside a running writer or without one. Takes no lock.
    ReadOnly,
}

/// One SQLite file. Clones and handles share it; it is closed with the last of them.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    pub(super) shared: Arc<Shared>,
}

/// The fields are dropped in this order: the lock goes back after the connection was closed.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) thread: StoreThread,
    pub(super) calls: Calls,
    path: PathBuf,
    identity: Identity,
    _lock: Option<WriterLock>,
}

/// The files that this process has open to write, by canonical path.
static WRITERS: Mutex<Vec<(PathBuf, Weak<Shared>)>> = Mutex::new(Vec::new());

impl SqliteStore {
    /// Opens the store at `path`. Blocks for a few file operations; meant for the start of the process.
    ///
    /// # Errors
    /// [`LocalStoreError::Locked`] where another process writes to it; see there for the others.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<Self, LocalStoreError> {
        match mode {
            OpenMode::ReadWrite => Self::open_to_write(path.as_ref()),
            OpenMode::ReadOnly => {
                let path = file::existing(path.as_ref())?;
                let connection = connection::open_to_read(&path)?;
                Self::start(path, connection, None, None)
            }
        }
    }

    fn open_to_write(path: &Path) -> Result<Self, LocalStoreError> {
        let path = file::existing_or_new(path)?;
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = writers.iter().find(|(open, _)| *open == path).and_then(|(_, shared)| shared.upgrade()) {
            return Ok(Self { shared });
        }
        let lock = WriterLock::acquire(&path)?;
        let mut reserve = Reserve::of(&path);
        let connection = match connection::open_to_write(&path) {
            Err(LocalStoreError::Full { .. }) if reserve.give_up() => connection::open_to_write(&path),
            opened => opened,
        }?;
        reserve.begin(&connection).map_err(|error| LocalStoreError::of(path.clone(), error))?;
        let store = Self::start(path.clone(), connection, Some(reserve), Some(lock))?;
        writers.retain(|(_, shared)| shared.strong_count() > 0);
        writers.push((path, Arc::downgrade(&store.shared)));
        Ok(store)
    }

    fn start(
        path: PathBuf,
        connection: rusqlite::Connection,
        reserve: Option<Reserve>,
        lock: Option<WriterLock>,
    ) -> Result<Self, LocalStoreError> {
        let failed = |error| LocalStoreError::of_io(path.clone(), error);
        let identity = file::identity(&path).map_err(failed)?;
        let thread = StoreThread::start(connection, reserve).map_err(failed)?;
        Ok(Self { shared: Arc::new(Shared { thread, calls: Calls::default(), path, identity, _lock: lock }) })
    }

    /// Creates what is missing of the store at `path`: its folder (mode 0700), its file (mode 0600), its tables, those that an older release did
    /// not have included. Answers what was created; a store that exists, even one that a worker is using, is left alone.
    ///
    /// # Errors
    /// See [`LocalStoreError`].
    pub fn create(path: impl AsRef<Path>) -> Result<Vec<String>, LocalStoreError> {
        let path = path.as_ref();
        let mut created = Vec::new();
        if file::make_folder(path)? {
            created.push(format!("folder {}", file::folder(path).display()));
        }
        match Self::open(path, OpenMode::ReadOnly) {
            Ok(_) => {}
            Err(LocalStoreError::Missing { .. }) => {
                Self::open(path, OpenMode::ReadWrite)?;
                created.push(format!("file {}", path.display()));
            }
            Err(LocalStoreError::OlderSchema { found, known, .. }) => {
                Self::open(path, OpenMode::ReadWrite)?;
                created.push(format!("schema version {known} in file {}, which had {found}", path.display()));
            }
            Err(error) => return Err(error),
        }
        Ok(created)
    }

    /// The outbox in this file.
    #[must_use]
    pub fn outbox(&self) -> SqliteOutbox {
        SqliteOutbox { store: self.clone() }
    }

    /// The dead letters in this file.
    #[must_use]
    pub fn dead_letters(&self) -> SqliteDeadLetters {
        SqliteDeadLetters { store: self.clone() }
    }

    /// Where it is: the canonical path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Bounds the database file, from now until the store is closed; a write beyond it ends as on a full disk. What is larger already stays.
    ///
    /// # Errors
    /// What SQLite said.
    pub async fn limit_bytes(&self, bytes: u64) -> Result<(), Fault> {
        let limit = move |connection: &mut rusqlite::Connection| {
            let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
            connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))
        };
        self.shared.thread.read(limit).await
    }

    /// Whether the file that was opened still stands at its path and has its tables.
    pub(super) async fn probe(&self) -> Result<(), Fault> {
        let shared = &self.shared;
        if file::identity(&shared.path).ok() != Some(shared.identity) {
            let detail =
                format!("{} was moved, replaced or deleted while in use; stop the worker, put it back, start again", shared.path.display());
            return Err(Fault::new(FaultCode::NotFound, detail));
        }
        shared.thread.read(|connection| schema::verify(connection)).await
    }
}
