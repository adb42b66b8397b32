//! An owner's flag in a log. Key: `LOG#<bridge>#<partition>#<lane>` / the slot.

use super::{DRAINED, EPOCH, ID, Item, ItemError, KIND, boolean, id, id_value, key, n, number, s, text};
use aws_sdk_dynamodb::types::AttributeValue;
use causeway_core::identity::{Epoch, LogName, Slot};
use causeway_core::rows::Anchor;
use causeway_core::units::UnixMillis;

/// The kind in the row.
pub(crate) const ANCHOR: &str = "anchor";
const OWNER: &str = "owner";
const OPENED_AT: &str = "opened_at";
/// Left out where it is false.
const RETIRED: &str = "retired";

/// The item of `anchor` at `slot`.
#[must_use]
pub fn encode(log: &LogName, slot: Slot, anchor: &Anchor) -> Item {
    let mut item = key(log.as_str(), slot.sort_key());
    item.extend([
        (KIND.to_owned(), s(ANCHOR)),
        (EPOCH.to_owned(), n(anchor.epoch.0)),
        (ID.to_owned(), id_value(anchor.anchor_id)),
        (OWNER.to_owned(), s(anchor.owner.as_str())),
        (OPENED_AT.to_owned(), n(anchor.opened_at.0)),
        (DRAINED.to_owned(), n(anchor.drained.0)),
    ]);
    if anchor.retired {
        item.insert(RETIRED.to_owned(), AttributeValue::Bool(true));
    }
    item
}

/// Reads it back.
///
/// # Errors
/// [`ItemError`] where the item is not an anchor.
pub fn decode(item: &Item) -> Result<Anchor, ItemError> {
    Ok(Anchor {
        epoch: Epoch(number(item, EPOCH)?),
        anchor_id: id(item, ID)?,
        owner: text(item, OWNER)?.to_owned(),
        opened_at: UnixMillis(number(item, OPENED_AT)?),
        drained: Slot(number(item, DRAINED)?),
        retired: item.contains_key(RETIRED) && boolean(item, RETIRED)?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use causeway_core::identity::Id128;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(epoch: u64, anchor_id: u128, owner in ".*", opened_at: u64, drained: u64, retired: bool, slot: u64) {
            let anchor = Anchor { epoch: Epoch(epoch), anchor_id: Id128(anchor_id), owner, opened_at: UnixMillis(opened_at), drained: Slot(drained), retired };
            let log = LogName::new("bridge", "session", 0).unwrap();
            let item = encode(&log, Slot(slot), &anchor);
            prop_assert_eq!(super::super::slot(&item).unwrap(), Slot(slot));
            prop_assert_eq!(decode(&item).unwrap(), anchor);
        }
    }
}
