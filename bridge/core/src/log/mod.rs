//! The outbox log: who may write it, what stands in it, what is settled.
//!
//! A log has one writer at a time. Nothing stops an old one but the store's put-if-absent: a new writer raises an anchor at the first free
//! slot and confirms that it is the tail before it does anything else, so whatever an old writer still tries lands on a taken slot.

pub mod kept;
pub mod loader;
pub mod parts;
pub mod patience;
pub mod settled;
pub mod writer;

use crate::identity::{Epoch, Slot};
use crate::outcome::{Fault, Outcome};
use crate::rows::{Head, Row, RowMeta};
use std::sync::Arc;

/// A call to the log's store. At most one of each [`Channel`] is in flight.
#[derive(Clone, Debug)]
pub enum Call {
    /// Read the row with the highest slot.
    ReadTail,
    /// Read the head row.
    ReadHead,
    /// Read the partition's record in the registry. Concerns all lanes.
    ReadRecord,
    /// Put the partition's record into the registry if `replaces` is what stands there. Concerns all lanes.
    Register {
        /// The record.
        record: Registration,
        /// What has to stand there; `None`: nothing.
        replaces: Option<Registration>,
    },
    /// Put the row at the slot if absent.
    Put {
        /// The slot.
        slot: Slot,
        /// The row.
        row: Arc<Row>,
    },
    /// In one transaction: put the segment at the slot if absent, and delete the mail of those ids if all of it exists.
    MoveMail {
        /// The slot.
        slot: Slot,
        /// The segment.
        row: Arc<Row>,
        /// The mail's ids.
        ids: Arc<[String]>,
    },
    /// Read rows after `after` up to and including `up_to`.
    ReadPage {
        /// Who asked.
        purpose: PagePurpose,
        /// Read after this slot.
        after: Slot,
        /// Read up to and including this slot.
        up_to: Slot,
    },
    /// Write the head row, forward only.
    PutHead {
        /// The row.
        head: Head,
    },
    /// Delete segments.
    Delete {
        /// Their slots.
        slots: Vec<Slot>,
    },
}

/// Why a page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePurpose {
    /// To send what it holds.
    Load,
    /// To find what an earlier owner left to delete.
    Sweep,
}

/// Calls that may be in flight beside one another: one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// The registry's record.
    Registry,
    /// Opening and appending: strictly one after another.
    Writer,
    /// Reading back.
    Load,
    /// Looking for garbage.
    Sweep,
    /// The head row.
    Head,
    /// Deleting.
    Delete,
}

impl Call {
    /// The channel that the call belongs to.
    #[must_use]
    pub const fn channel(&self) -> Channel {
        match self {
            Self::ReadRecord | Self::Register { .. } => Channel::Registry,
            Self::ReadTail | Self::ReadHead | Self::Put { .. } | Self::MoveMail { .. } => Channel::Writer,
            Self::ReadPage { purpose: PagePurpose::Load, .. } => Channel::Load,
            Self::ReadPage { purpose: PagePurpose::Sweep, .. } => Channel::Sweep,
            Self::PutHead { .. } => Channel::Head,
            Self::Delete { .. } => Channel::Delete,
        }
    }
}

/// What the store answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Call::ReadTail`].
    Tail(Result<Option<RowMeta>, Fault>),
    /// To [`Call::ReadHead`].
    Head(Result<Option<Head>, Fault>),
    /// To [`Call::ReadRecord`].
    Record(Result<Option<Registration>, Fault>),
    /// To [`Call::Register`]: whether it was written.
    Registered(Outcome<bool>),
    /// To [`Call::Put`].
    Put(Outcome<Put>),
    /// To [`Call::MoveMail`].
    Moved(Outcome<Moved>),
    /// To [`Call::ReadPage`].
    Page {
        /// Who asked.
        purpose: PagePurpose,
        /// The rows, and where to read on.
        page: Result<Page, Fault>,
    },
    /// To [`Call::PutHead`].
    HeadPut(Outcome<bool>),
    /// To [`Call::Delete`].
    Deleted(Outcome<()>),
}

/// How a put-if-absent ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The row stands at its slot: written now, or by an earlier attempt of the same row.
    Stored,
    /// Another row stands there.
    Occupied(RowMeta),
}

/// How a move ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The segment stands at its slot and the mail is gone: by this call, or by an earlier attempt with the same segment.
    Stored,
    /// Another row stands at the slot; nothing was changed.
    Occupied(RowMeta),
    /// Some of the mail is not there any more: another process moved it, or it was withdrawn. Nothing was changed; read the mailbox again.
    MailGone,
}

/// What the registry tells of a partition's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The epoch of the owner that wrote it.
    pub epoch: Epoch,
    /// How many lanes the partition has.
    pub lanes: u32,
    /// Open or retired.
    pub state: LogState,
}

/// Whether a log is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It may hold entries.
    Open,
    /// It was drained for good; housekeeping removes it.
    Retired,
}

/// Rows in slot order, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The rows, ascending.
    pub rows: Vec<(Slot, Row)>,
    /// Read on after this slot; `None` where the page reached its end.
    pub next_after: Option<Slot>,
}
