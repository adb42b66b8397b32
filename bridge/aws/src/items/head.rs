//! A log's head row. Key: `LOG#<bridge>#<partition>#<lane>` / slot 0.

use super::{DRAINED, EPOCH, Item, ItemError, KIND, key, n, number, number_if_any, s, text};
use causeway_core::identity::{Epoch, LogName, Position, Slot};
use causeway_core::rows::{Head, SettledRange};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const HEAD: &str = "head";
/// Which head row of its epoch it is.
pub const REVISION: &str = "revision";
/// JSON `[[from slot, from index, to slot, to index], …]`, both ends settled.
const SETTLED_AHEAD: &str = "settled_ahead";
/// JSON `[[slot, index, attempts], …]`.
const ATTEMPTS: &str = "attempts";

/// The item of `head`.
#[must_use]
pub fn encode(log: &LogName, head: &Head) -> Item {
    let mut item = key(log.as_str(), Slot::HEAD.sort_key());
    item.extend([
        (KIND.to_owned(), s(HEAD)),
        (EPOCH.to_owned(), n(head.epoch.0)),
        (REVISION.to_owned(), n(head.revision)),
        (DRAINED.to_owned(), n(head.drained.0)),
    ]);
    if !head.settled_ahead.is_empty() {
        let range = |range: &SettledRange| json!([range.from.slot.0, range.from.index, range.to.slot.0, range.to.index]);
        item.insert(SETTLED_AHEAD.to_owned(), s(head.settled_ahead.iter().map(range).collect::<Value>().to_string()));
    }
    if !head.attempts.is_empty() {
        let attempt = |(at, count): &(Position, u32)| json!([at.slot.0, at.index, count]);
        item.insert(ATTEMPTS.to_owned(), s(head.attempts.iter().map(attempt).collect::<Value>().to_string()));
    }
    item
}

/// Reads it back.
///
/// # Errors
/// [`ItemError`] where the item is not a head row.
pub fn decode(item: &Item) -> Result<Head, ItemError> {
    if text(item, KIND)? != HEAD {
        return Err(ItemError::UnknownKind(text(item, KIND)?.to_owned()));
    }
    let position = |slot, index| Position { slot: Slot(slot), index };
    let ranges: Vec<(u64, u32, u64, u32)> = list(item, SETTLED_AHEAD)?;
    let attempts: Vec<(u64, u32, u32)> = list(item, ATTEMPTS)?;
    Ok(Head {
        epoch: Epoch(number(item, EPOCH)?),
        revision: number_if_any(item, REVISION)?.unwrap_or(0),
        drained: Slot(number(item, DRAINED)?),
        settled_ahead: ranges
            .into_iter()
            .map(|(slot, index, to, last)| SettledRange { from: position(slot, index), to: position(to, last) })
            .collect(),
        attempts: attempts.into_iter().map(|(slot, index, count)| (position(slot, index), count)).collect(),
    })
}

/// A list that is left out where it is empty.
fn list<T: DeserializeOwned>(item: &Item, name: &'static str) -> Result<Vec<T>, ItemError> {
    if !item.contains_key(name) {
        return Ok(Vec::new());
    }
    serde_json::from_str(text(item, name)?).map_err(|_| ItemError::Unreadable(name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            epoch: u64,
            revision: u64,
            drained: u64,
            ranges in proptest::collection::vec(any::<(u64, u32, u64, u32)>(), 0..20),
            attempts in proptest::collection::vec(any::<(u64, u32, u32)>(), 0..20),
        ) {
            let head = Head {
                epoch: Epoch(epoch),
                revision,
                drained: Slot(drained),
                settled_ahead: ranges
                    .into_iter()
                    .map(|(slot, index, to, last)| SettledRange {
                        from: Position { slot: Slot(slot), index },
                        to: Position { slot: Slot(to), index: last },
                    })
                    .collect(),
                attempts: attempts.into_iter().map(|(slot, index, count)| (Position { slot: Slot(slot), index }, count)).collect(),
            };
            let item = encode(&LogName::new("bridge", "session", 3).unwrap(), &head);
            prop_assert_eq!(super::super::slot(&item).unwrap(), Slot::HEAD);
            prop_assert_eq!(decode(&item).unwrap(), head.clone());
            let mut older = item;
            older.remove(REVISION);
            prop_assert_eq!(decode(&older).unwrap(), Head { revision: 0, ..head });
        }
    }
}
