//! Any row of a log above slot 0: an anchor or a segment.

use super::{DRAINED, EPOCH, ID, Item, ItemError, KIND, anchor, id, number, segment, slot, text};
use causeway_core::identity::{Epoch, LogName, Slot};
use causeway_core::rows::{Row, RowMeta};

/// The item of `row` at `at`.
#[must_use]
pub fn encode(log: &LogName, at: Slot, row: &Row) -> Item {
    match row {
        Row::Anchor(row) => anchor::encode(log, at, row),
        Row::Segment(row) => segment::encode(log, at, row),
    }
}

/// Reads a row and its slot.
///
/// # Errors
/// [`ItemError`] where the item is of a kind that this release does not know, or damaged.
pub fn decode(item: &Item) -> Result<(Slot, Row), ItemError> {
    let row = match text(item, KIND)? {
        anchor::ANCHOR => Row::Anchor(anchor::decode(item)?),
        segment::SEGMENT => Row::Segment(segment::decode(item)?),
        kind => return Err(ItemError::UnknownKind(kind.to_owned())),
    };
    Ok((slot(item)?, row))
}

/// Reads whose row it is. The kind does not matter: also a newer release's row fences.
///
/// # Errors
/// [`ItemError`] where the item does not tell.
pub fn decode_meta(item: &Item) -> Result<RowMeta, ItemError> {
    Ok(RowMeta { slot: slot(item)?, epoch: Epoch(number(item, EPOCH)?), id: id(item, ID)?, drained: Slot(number(item, DRAINED)?) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::s;
    use super::*;
    use causeway_core::identity::Id128;
    use causeway_core::rows::Anchor;
    use causeway_core::units::UnixMillis;

    #[test]
    fn a_kind_of_a_newer_release_stops_reading_but_still_fences() {
        let row = Row::Anchor(Anchor {
            epoch: Epoch(4),
            anchor_id: Id128(9),
            owner: "a".to_owned(),
            opened_at: UnixMillis(1),
            drained: Slot(2),
            retired: false,
        });
        let mut item = encode(&LogName::new("b", "s", 0).unwrap(), Slot(7), &row);
        item.insert(KIND.to_owned(), s("chunk"));
        assert_eq!(decode(&item), Err(ItemError::UnknownKind("chunk".to_owned())));
        assert_eq!(decode_meta(&item).unwrap(), row.meta(Slot(7)));
    }
}
