//! The outbox log: who may write it, what stands in it, what is settled.
//!
//! A log has one writer at a time. Nothing stops an old one but the store's put-if-absent: a new writer raises an anchor at the first free
//! slot and confirms that it is the tail before it does anything else, so whatever an old writer still tries lands on a taken slot.

pub mod loader;
pub mod settled;
pub mod writer;

use crate::identity::Slot;
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
    /// Record the log in the registry.
    Register {
        /// The epoch to record it under.
        epoch: crate::identity::Epoch,
    },
    /// Put the row at the slot if absent.
    Put {
        /// The slot.
        slot: Slot,
        /// The row.
        row: Arc<Row>,
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
            Self::ReadTail | Self::ReadHead | Self::Register { .. } | Self::Put { .. } => Channel::Writer,
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
    /// To [`Call::Register`].
    Registered(Outcome<bool>),
    /// To [`Call::Put`].
    Put(Outcome<Put>),
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

/// Rows in slot order, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The rows, ascending.
    pub rows: Vec<(Slot, Row)>,
    /// Read on after this slot; `None` where the page reached its end.
    pub next_after: Option<Slot>,
}
