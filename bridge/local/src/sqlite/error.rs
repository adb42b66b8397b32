//! Why a store cannot be opened, and what an error of SQLite means for a call.

use causeway_core::outcome::{Fault, FaultCode};
use rusqlite::ErrorCode;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a store cannot be opened or created. The text says what to do.
#[derive(Debug, Error)]
pub enum LocalStoreError {
    /// Another process writes to it.
    #[error("{} is in use by {holder}; stop that process, or give this one another path", path.display())]
    Locked {
        /// The database file.
        path: PathBuf,
        /// Who holds the lock, as it introduced itself.
        holder: String,
    },
    /// The folder that should hold the file is missing. It is not made on the way, as a mistyped path would go unnoticed.
    #[error("the folder {} does not exist; create it, run `causeway stores create`, or correct the path", folder.display())]
    MissingFolder {
        /// The missing folder.
        folder: PathBuf,
    },
    /// There is no file, and it was to be read only.
    #[error("there is no store at {}; start the worker or run `causeway stores create` first, or correct the path", path.display())]
    Missing {
        /// The database file.
        path: PathBuf,
    },
    /// The path names a folder or another thing that is no file.
    #[error("{} is not a file; give the path of a file, such as {}", path.display(), path.join("causeway.db").display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// The file or its folder cannot be written.
    #[error("{} cannot be written ({reason}); give this user write access to the folder and its files, or choose another path", path.display())]
    NotWritable {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The path is relative, or holds `.`, `..` or empty parts.
    #[error("{} is not an absolute path without `.` and `..`; write it out, such as /var/lib/causeway/causeway.db", path.display())]
    UncleanPath {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The file or its folder is not for this user alone.
    #[error("{} {found}, but must be for the worker's user alone; run `chmod {wanted:o} {}` as its owner, or choose another path", path.display(), path.display())]
    NotPrivate {
        /// The file or folder.
        path: PathBuf,
        /// What it is instead.
        found: String,
        /// The mode that it should have.
        wanted: u32,
    },
    /// Not a SQLite database.
    #[error("{} is not a SQLite database; move that file away or give another path", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// A SQLite database that another program made.
    #[error("{} is a SQLite database, but not one of Causeway; give another path", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer release wrote it.
    #[error(
        "{} has schema version {found}, this release knows {known}: a newer release wrote it; run that release, or drain the outbox with it before going back",
        path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: i64,
        /// The version that this release writes.
        known: i64,
    },
    /// An older release wrote it, and it was to be read only.
    #[error(
        "{} has schema version {found}, this release keeps {known}: start the worker, or run `causeway stores create` while none runs, to bring it up to date",
        path.display()
    )]
    OlderSchema {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: i64,
        /// The version that this release writes.
        known: i64,
    },
    /// The database is damaged.
    #[error("{} is damaged ({reason}); stop the worker, keep a copy, and restore a backup or save what is readable with `sqlite3 {} .recover`", path.display(), path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// No space is left.
    #[error("the disk that holds {} is full; free some space", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file system cannot keep a database in WAL mode.
    #[error("{} cannot be kept in WAL mode (it stays in `{found}`); put it on a local disk, not on a network file system", path.display())]
    NoWal {
        /// The file.
        path: PathBuf,
        /// The journal mode that SQLite fell back to.
        found: String,
    },
    /// The system refused something else.
    #[error("{}: {source}", path.display())]
    Io {
        /// What it was about.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// SQLite refused something else.
    #[error("{}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl LocalStoreError {
    /// A stable name of the kind of error, for scripts and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Locked { .. } => "STORE_LOCKED",
            Self::MissingFolder { .. } => "STORE_FOLDER_MISSING",
            Self::Missing { .. } => "STORE_MISSING",
            Self::NotAFile { .. } => "STORE_NOT_A_FILE",
            Self::NotWritable { .. } => "STORE_NOT_WRITABLE",
            Self::UncleanPath { .. } => "STORE_PATH_UNCLEAN",
            Self::NotPrivate { .. } => "STORE_NOT_PRIVATE",
            Self::NotADatabase { .. } => "STORE_NOT_A_DATABASE",
            Self::Foreign { .. } => "STORE_FOREIGN",
            Self::NewerSchema { .. } => "STORE_NEWER_SCHEMA",
            Self::OlderSchema { .. } => "STORE_OLDER_SCHEMA",
            Self::Damaged { .. } => "STORE_DAMAGED",
            Self::Full { .. } => "STORE_FULL",
            Self::NoWal { .. } => "STORE_NO_WAL",
            Self::Io { .. } => "STORE_IO",
            Self::Database { .. } => "STORE_DATABASE",
        }
    }

    /// The same as a fact that the core can act on.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let code = match self {
            Self::Locked { .. } | Self::Io { .. } | Self::Database { .. } => FaultCode::Unavailable,
            Self::Full { .. } => FaultCode::StorageFull,
            Self::MissingFolder { .. } | Self::Missing { .. } => FaultCode::NotFound,
            Self::NotWritable { .. } => FaultCode::NotAuthorized,
            Self::NotAFile { .. }
            | Self::UncleanPath { .. }
            | Self::NotPrivate { .. }
            | Self::NotADatabase { .. }
            | Self::Foreign { .. }
            | Self::NewerSchema { .. }
            | Self::OlderSchema { .. }
            | Self::Damaged { .. }
            | Self::NoWal { .. } => FaultCode::InvalidConfig,
        };
        Fault::new(code, self.to_string())
    }

    /// What an error of SQLite while opening `path` means.
    pub(super) fn of(path: PathBuf, source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            _ if lacks_space(&source) => Self::Full { path },
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, reason: source.to_string() },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::NotWritable { path, reason: source.to_string() }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Locked { path, holder: "another program that has it open in SQLite".to_owned() }
            }
            _ => Self::Database { path, source },
        }
    }

    /// What an error of the system about `path` means.
    pub(super) fn of_io(path: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::NotWritable { path, reason: source.to_string() },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { path, source },
        }
    }
}

/// Whether SQLite ran out of space. Where the index of the write-ahead log cannot grow it says so with an error of its own.
pub(super) fn lacks_space(error: &rusqlite::Error) -> bool {
    let index = |error: &rusqlite::ffi::Error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
    error.sqlite_error_code() == Some(ErrorCode::DiskFull) || error.sqlite_error().is_some_and(index)
}

/// What an error of SQLite during a call means.
pub(super) fn fault(error: &rusqlite::Error) -> Fault {
    let (code, advice) = match error.sqlite_error_code() {
        _ if lacks_space(error) => (FaultCode::StorageFull, "free some space; while messages are being sent that frees some, too"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (FaultCode::Unavailable, "another program holds a lock on the file; end its transaction")
        }
        Some(ErrorCode::ReadOnly) => {
            (FaultCode::NotAuthorized, "the store was opened to be read only, or its file lost the write permission")
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            (FaultCode::InvalidConfig, "the file is damaged; stop the worker, keep a copy and restore a backup")
        }
        Some(ErrorCode::SystemIoFailure) => (FaultCode::Unavailable, "look at the system's log for errors of the disk"),
        Some(_) => (FaultCode::Unavailable, "see the SQLite documentation for this error"),
        None => (FaultCode::InvalidConfig, "a row that this release cannot read; a newer release or another program wrote it"),
    };
    Fault::new(code, format!("{error}; {advice}"))
}

/// Whether a write that ended with `error` certainly left nothing behind.
///
/// An I/O error is not certain: the commit record may have reached the log on disk before the sync failed. Everything that is refused before
/// or during the writing of the pages is certain, a full disk among it: the commit record is the last to be written.
pub(super) fn left_nothing(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory | ErrorCode::InternalMalfunction | ErrorCode::Unknown)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn sqlite(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn only_errors_after_which_a_commit_may_stand_are_uncertain() {
        for code in
            [ffi::SQLITE_FULL, ffi::SQLITE_BUSY, ffi::SQLITE_READONLY, ffi::SQLITE_CORRUPT, ffi::SQLITE_CONSTRAINT, ffi::SQLITE_TOOBIG]
        {
            assert!(left_nothing(&sqlite(code)), "{code}");
        }
        for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_NOMEM] {
            assert!(!left_nothing(&sqlite(code)), "{code}");
        }
    }

    #[test]
    fn errors_become_facts() {
        let facts = [
            (ffi::SQLITE_FULL, FaultCode::StorageFull),
            (ffi::SQLITE_IOERR_SHMSIZE, FaultCode::StorageFull),
            (ffi::SQLITE_IOERR_FSYNC, FaultCode::Unavailable),
            (ffi::SQLITE_BUSY, FaultCode::Unavailable),
            (ffi::SQLITE_READONLY, FaultCode::NotAuthorized),
            (ffi::SQLITE_CORRUPT, FaultCode::InvalidConfig),
        ];
        for (sqlite_code, code) in facts {
            assert_eq!(fault(&sqlite(sqlite_code)).code, code, "{sqlite_code}");
        }
    }
}
