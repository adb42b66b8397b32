//! Space that is kept back for the day the disk is full.

use super::connection::BUSY_TIMEOUT;
use super::error::lacks_space;
use causeway_core::outcome::{Fault, FaultCode};
use rusqlite::Connection;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The reserve on a disk that is large enough. It covers the write-ahead log, which is carried over at half of it.
pub const RESERVE_BYTES: u64 = 4 * 1024 * 1024;

/// The smallest reserve: the log and a few deletes.
const SMALLEST_BYTES: u64 = 256 * 1024;

/// A small disk gives this part of itself.
const PART_OF_DISK: u64 = 8;

/// Free pages that an append leaves to the writes that make room, which may need a few before they give any back.
const SPARE_PAGES: u64 = 8;

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Takes up messages with a body of so many bytes. The other side keeps them where it is refused.
    Append(u64),
    /// Makes or marks room, or must be done first: what the reserve is for.
    Settle,
}

/// The file `<database>.reserve`, or the knowledge that it had to be given up.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    wal: PathBuf,
    bytes: u64,
    given_up: bool,
    /// The length of the write-ahead log at which the last look at it was taken.
    looked_at: u64,
}

impl Reserve {
    /// The reserve of `database`, not yet taken.
    pub(super) fn of(database: &Path) -> Self {
        let path = beside(database, ".reserve");
        let bytes = rustix::fs::statvfs(database).map_or(RESERVE_BYTES, |disk| {
            (disk.f_blocks.saturating_mul(disk.f_frsize) / PART_OF_DISK).clamp(SMALLEST_BYTES, RESERVE_BYTES)
        });
        Self { path, wal: beside(database, "-wal"), bytes, given_up: true, looked_at: 0 }
    }

    /// Takes the space where there is enough, and bounds the write-ahead log by it. Without the space the store is open all the same.
    pub(super) fn begin(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let page: u64 = connection.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0))?.unsigned_abs().max(1);
        let pages = (self.bytes / 2 / page).max(1);
        connection.pragma_update_and_check(None, "wal_autocheckpoint", i64::try_from(pages).unwrap_or(i64::MAX), |_| Ok(()))?;
        if !self.take() {
            tracing::warn!(reserve = %self.path.display(), missing_bytes = self.missing(), "the disk has no room for the store's reserve; new messages are refused until it has");
        }
        Ok(())
    }

    /// Gives the space back to the disk; answers whether there was any.
    pub(super) fn give_up(&mut self) -> bool {
        self.given_up = true;
        std::fs::remove_file(&self.path).is_ok()
    }

    /// Whether a write may begin.
    ///
    /// # Errors
    /// [`FaultCode::StorageFull`] for an append while there is no reserve, unless free pages of the database hold it.
    pub(super) fn admit(&mut self, connection: &Connection, purpose: Purpose) -> Result<(), Fault> {
        let Purpose::Append(bytes) = purpose else { return Ok(()) };
        if !self.given_up || self.take() || has_free_pages(connection, bytes) {
            return Ok(());
        }
        let detail = format!(
            "the disk that holds {} is full, {} KiB more are needed; free some space; while messages are being sent that frees some, too",
            self.path.with_extension("").display(),
            self.missing().div_ceil(1024)
        );
        Err(Fault::new(FaultCode::StorageFull, detail))
    }

    /// A write found no space. Answers whether it is worth a second attempt.
    pub(super) fn ran_out(&mut self, connection: &Connection, purpose: Purpose) -> bool {
        let append = matches!(purpose, Purpose::Append(_));
        // The disk has room: it is the bound of the file that was met.
        if append && self.available().is_some_and(|available| available >= self.bytes) {
            return false;
        }
        if self.give_up() {
            tracing::warn!(reserve = %self.path.display(), "the disk is full: the store gave up its reserve and refuses new messages until sending has made room");
        }
        carry_over(connection);
        !append
    }

    /// After a write. A log that outgrew its bound could not be carried over into the database. That is not told to anybody, and the reserve
    /// covers only so much of it.
    pub(super) fn wrote(&mut self, connection: &Connection, purpose: Purpose) {
        if self.given_up {
            if purpose == Purpose::Settle {
                self.take();
            }
            return;
        }
        let length = self.wal.metadata().map_or(0, |found| found.len());
        if length > self.looked_at.max(self.bytes / 4 * 3) {
            let carried = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            if carried.is_err_and(|error| lacks_space(&error)) {
                self.ran_out(connection, Purpose::Settle);
            }
        }
        self.looked_at = length;
    }

    /// Takes the space if that leaves as much again to work with; answers whether the store has its reserve.
    fn take(&mut self) -> bool {
        let standing = self.path.metadata().is_ok_and(|found| found.blocks() * 512 >= self.bytes);
        if !standing {
            if self.missing() > 0 {
                return false;
            }
            match allocate(&self.path, self.bytes) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                    self.give_up();
                    return false;
                }
                // Not for want of space: better without a reserve than without a store.
                Err(error) => tracing::warn!(reserve = %self.path.display(), %error, "the store has no reserve for a full disk"),
            }
        }
        self.given_up = false;
        true
    }

    /// How many bytes the disk lacks to take the reserve and have as much again; 0 where it cannot be told.
    fn missing(&self) -> u64 {
        self.available().map_or(0, |available| (self.bytes * 2).saturating_sub(available))
    }

    fn available(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(self.path.parent()?).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Makes a file for this user alone whose every block is there.
fn allocate(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => write_out(&mut file, bytes),
        done => Ok(done?),
    }
}

/// For file systems that cannot allocate.
fn write_out(file: &mut File, bytes: u64) -> std::io::Result<()> {
    let block = [0xA5; 4096];
    for _ in 0..bytes.div_ceil(block.len() as u64) {
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// Whether the database can hold a body without growing.
fn has_free_pages(connection: &Connection, bytes: u64) -> bool {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_or(0, i64::unsigned_abs);
    number("freelist_count") > bytes / number("page_size").max(1) + SPARE_PAGES
}

/// Carries the log over and cuts it, without waiting for readers. Where that fails, the next write tells.
fn carry_over(connection: &Connection) {
    let impatient = connection.busy_timeout(Duration::ZERO);
    let carried = impatient.and_then(|()| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    if let Err(error) = carried.and(connection.busy_timeout(BUSY_TIMEOUT)) {
        tracing::debug!(%error, "the write-ahead log could not be cut");
    }
}
