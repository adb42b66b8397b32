//! How much a page holds, and where the next one begins.

use causeway_core::dead_letter::DeadLetter;
use causeway_core::identity::EntryId;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::rows::Row;
use causeway_core::units::UnixMillis;
use core::fmt;

/// A page of rows or letters ends with the one that reaches this many bytes.
pub(crate) const PAGE_BYTES: usize = 1024 * 1024;

/// What a row takes of a page besides its body, roughly.
const ROW_OVERHEAD_BYTES: usize = 128;

/// What `row` takes of a page.
pub(crate) fn row_bytes(row: &Row) -> usize {
    ROW_OVERHEAD_BYTES
        + match row {
            Row::Anchor(anchor) => anchor.owner.len(),
            Row::Segment(segment) => segment.body.len(),
        }
}

/// The last letter of a page; the next page begins after it. Its text is `<failed_at>#<id>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) failed_at: UnixMillis,
    pub(crate) id: EntryId,
}

impl Cursor {
    /// Continues after `letter`.
    pub(crate) fn after(letter: &DeadLetter) -> Self {
        Self { failed_at: letter.failed_at, id: letter.id }
    }

    /// Reads a continuation back.
    ///
    /// # Errors
    /// Where it was not given by a list of this kind of store.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        text.split_once('#')
            .and_then(|(failed_at, id)| Some(Self { failed_at: UnixMillis(failed_at.parse().ok()?), id: id.parse().ok()? }))
            .ok_or_else(|| Fault::new(FaultCode::InvalidConfig, "this continuation was not given by this store; list from the start again"))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.failed_at.0, self.id)
    }
}
