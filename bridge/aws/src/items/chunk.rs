//! A part of a dead letter that is too large for one item. Key: `DLQ#<id>` / the part's number from `000001`.
//!
//! The parts are written before the letter's first row, which makes them visible; nobody reads a part that no first row counts.

use super::{Item, ItemError, b, binary, key};
use causeway_core::identity::EntryId;

/// Bytes in one part: with its key far below what an item may hold.
pub const CHUNK_BYTES: usize = 350 * 1024;
const PART: &str = "part";

/// The sort key of part `number`, counted from 1.
#[must_use]
pub fn sort_key(number: usize) -> String {
    format!("{number:06}")
}

/// The items that hold `bytes` for letter `id`.
#[must_use]
pub fn encode(id: EntryId, bytes: &[u8]) -> Vec<Item> {
    let one = |(index, part): (usize, &[u8])| {
        let mut item = key(super::letter::partition_key(id), sort_key(index + 1));
        item.insert(PART.to_owned(), b(part));
        item
    };
    bytes.chunks(CHUNK_BYTES).enumerate().map(one).collect()
}

/// Puts the parts together again; they come in the order of their sort keys.
///
/// # Errors
/// [`ItemError`] where an item is not a part.
pub fn decode(items: &[Item]) -> Result<Vec<u8>, ItemError> {
    let mut bytes = Vec::new();
    for item in items {
        bytes.extend_from_slice(binary(item, PART)?);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::items::{MAX_ITEM_BYTES, SK, item_size, text};
    use causeway_core::identity::Id128;

    #[test]
    fn parts_come_together_in_the_order_of_their_keys() {
        for length in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 11 * CHUNK_BYTES + 7] {
            let bytes: Vec<u8> = (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect();
            let mut items = encode(Id128(5), &bytes);
            assert!(items.iter().all(|item| item_size(item) < MAX_ITEM_BYTES));
            items.reverse();
            items.sort_by_key(|item| text(item, SK).unwrap().to_owned());
            assert_eq!(decode(&items).unwrap(), bytes, "{length}");
        }
    }
}
