//! Stores in one SQLite file: the default of a bridge that runs alone.
//!
//! **Durability.** The file is in WAL mode with `synchronous=FULL`: an answered write survives `kill -9` and power loss. One put is one
//! transaction and one fsync. Rows are kept readable: `sqlite3 file 'select pk, sk, kind, epoch, count from outbox'` shows a log.
//!
//! **One writer.** [`OpenMode::ReadWrite`] holds an exclusive lock on `<file>.lock` as long as the store lives, so a second process gets
//! [`LocalStoreError::Locked`], which names the first. The lock is a file of its own because SQLite's locks belong to the process and
//! would be lost with any descriptor of the database that the process closes; it is never deleted, and means nothing while nobody holds
//! it. Within one process a second open of the same file answers the same store, so that an outbox and the dead letters may share it.
//!
//! **Readers.** [`OpenMode::ReadOnly`] takes no lock and works beside a running writer: it sees whatever was committed before each call
//! began. Its writes are refused.
//!
//! **The thread.** All calls of a store run one after another on a thread that the store owns, behind a queue of [`QUEUE_CALLS`] calls; a
//! full queue makes callers wait. A caller that stops waiting does not stop its call: a write that was queued takes effect, which is
//! what [`Outcome::Unknown`](causeway_core::outcome::Outcome) stands for. The last handle that is dropped lets the queue run empty,
//! closes the file and gives the lock back; that blocks for as long as the queued calls take.
//!
//! **Size.** The file keeps the size of the largest backlog that it held; the space is used again. `-wal` beside it is cut to
//! [`WAL_BYTES`] once a burst is over.
//!
//! **A full disk.** Even a delete needs space in the write-ahead log first, so a store that filled its disk could never empty itself. A
//! writer therefore keeps `<file>.reserve`: [`RESERVE_BYTES`], or an eighth of a small disk, really allocated. The first write that finds no
//! space gives it up. From then on segments are refused with [`StorageFull`](causeway_core::outcome::FaultCode::StorageFull) before they touch
//! the disk, except where free pages of the database hold them, so that the file does not grow; heads, deletes, anchors, registrations and
//! dead letters live from what was given up. The write-ahead log is carried over at half of the reserve, so that what was given up always holds
//! all of it. The reserve is taken again once the disk has twice its size. A store that is opened on a full disk begins without it.

mod connection;
mod dead_letters;
mod drop_ledger;
mod error;
mod file;
mod lock;
mod mailbox;
mod managed_subscriptions;
mod outbox;
mod redrives;
mod reserve;
mod schema;
mod store;
mod thread;
mod value;

pub use connection::WAL_BYTES;
pub use dead_letters::SqliteDeadLetters;
pub use drop_ledger::SqliteDropLedger;
pub use error::LocalStoreError;
pub use managed_subscriptions::{SqliteManagedSubscriptions, folder_is_private};
pub use outbox::SqliteOutbox;
pub use redrives::SqliteRedrives;
pub use reserve::RESERVE_BYTES;
pub use store::{OpenMode, SqliteStore};
pub use thread::QUEUE_CALLS;
