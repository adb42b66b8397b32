//! The filters that a durable session may have at its broker. Key: `storage_identity`, which names the session.
//!
//! DynamoDB keeps no empty sets: a session without filters is a row with `baseline` and without `filters`.

use super::{Item, ItemError, boolean, s};
use aws_sdk_dynamodb::types::AttributeValue;
use std::collections::BTreeSet;

pub(crate) const STORAGE_IDENTITY: &str = "storage_identity";
/// True: everything that the session had when the row was made stands in it.
pub(crate) const BASELINE: &str = "baseline";
pub(crate) const FILTERS: &str = "filters";
/// How often filters were remembered, counted up from 1. Absent in rows in which none were since there are generations. Only compared for being the same,
/// so that a late request to forget a filter is refused once anybody remembered.
pub(crate) const GENERATION: &str = "generation";

/// The key of a session.
#[must_use]
pub fn key(identity: &str) -> Item {
    Item::from([(STORAGE_IDENTITY.to_owned(), s(identity))])
}

/// `filters` as a set; `None` where it is empty.
pub(crate) fn set(filters: &BTreeSet<String>) -> Option<AttributeValue> {
    (!filters.is_empty()).then(|| AttributeValue::Ss(filters.iter().cloned().collect()))
}

/// The item of a session with these filters.
#[must_use]
pub fn encode(identity: &str, filters: &BTreeSet<String>) -> Item {
    let mut item = key(identity);
    item.insert(BASELINE.to_owned(), AttributeValue::Bool(true));
    item.extend(set(filters).map(|filters| (FILTERS.to_owned(), filters)));
    item
}

/// Reads the filters back.
///
/// # Errors
/// [`ItemError`] where the row has no baseline, so that its filters may not be all, or where they are not a set of texts.
pub fn decode(item: &Item) -> Result<BTreeSet<String>, ItemError> {
    if !boolean(item, BASELINE)? {
        return Err(ItemError::Unreadable(BASELINE));
    }
    let Some(filters) = item.get(FILTERS) else { return Ok(BTreeSet::new()) };
    filters.as_ss().map(|filters| filters.iter().cloned().collect()).map_err(|_| ItemError::Unreadable(FILTERS))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::n;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(identity in ".+", filters in proptest::collection::btree_set(".+", 0..20)) {
            let item = encode(&identity, &filters);
            prop_assert_eq!(item.get(STORAGE_IDENTITY), Some(&s(identity)));
            prop_assert!(item.get(FILTERS).is_none_or(|set| !set.as_ss().unwrap().is_empty()));
            prop_assert_eq!(decode(&item).unwrap(), filters);
        }
    }

    #[test]
    fn a_row_without_a_baseline_is_not_believed() {
        let whole = encode("a", &BTreeSet::from(["f".to_owned()]));
        let with = |name: &str, value| whole.clone().into_iter().chain([(name.to_owned(), value)]).collect::<Item>();
        let without = |name: &str| whole.clone().into_iter().filter(|(found, _)| found != name).collect::<Item>();
        assert!(decode(&without(BASELINE)).is_err());
        assert!(decode(&with(BASELINE, AttributeValue::Bool(false))).is_err());
        assert!(decode(&with(BASELINE, n(1))).is_err());
        assert!(decode(&with(FILTERS, s("f"))).is_err());
        assert!(decode(&without(FILTERS)).unwrap().is_empty());
    }
}
