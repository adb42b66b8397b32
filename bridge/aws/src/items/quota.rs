//! The budget that many processes draw from. Key: `QUOTA#<name>`. Only numbers: `tat` is the moment at which the budget would be whole again, in
//! milliseconds times `n`.

use super::{Item, ItemError, PK, n, number, s};
use causeway_core::flow::quota::{QuotaRow, Terms};

pub(crate) const PREFIX: &str = "QUOTA#";
pub(crate) const TAT: &str = "tat";
/// Tokens in each period.
pub(crate) const COUNT: &str = "n";
pub(crate) const PERIOD_MS: &str = "period_ms";
pub(crate) const BURST: &str = "burst";
/// How often the terms changed.
pub(crate) const REVISION: &str = "rev";

/// The key of a budget.
#[must_use]
pub fn key(name: &str) -> Item {
    Item::from([(PK.to_owned(), s(format!("{PREFIX}{name}")))])
}

/// The item of a budget.
#[must_use]
pub fn encode(name: &str, row: &QuotaRow) -> Item {
    let mut item = key(name);
    item.insert(TAT.to_owned(), n(row.tat));
    item.insert(COUNT.to_owned(), n(row.terms.count));
    item.insert(PERIOD_MS.to_owned(), n(row.terms.period_ms));
    item.insert(BURST.to_owned(), n(row.terms.burst));
    item.insert(REVISION.to_owned(), n(row.revision));
    item
}

/// Reads it back.
///
/// # Errors
/// [`ItemError`] where a number is missing or is none that is written there.
pub fn decode(item: &Item) -> Result<QuotaRow, ItemError> {
    Ok(QuotaRow {
        tat: number(item, TAT)?,
        terms: Terms { count: number(item, COUNT)?, period_ms: number(item, PERIOD_MS)?, burst: number(item, BURST)? },
        revision: number(item, REVISION)?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(name in ".+", tat: i64, count: u32, period_ms: u64, burst: u64, revision: u64) {
            let row = QuotaRow { tat: i128::from(tat) * 1_000_000, terms: Terms { count, period_ms, burst }, revision };
            let item = encode(&name, &row);
            prop_assert_eq!(item.get(PK), Some(&s(format!("QUOTA#{name}"))));
            prop_assert_eq!(decode(&item).unwrap(), row);
        }
    }

    #[test]
    fn a_damaged_row_is_not_believed() {
        let row = QuotaRow { tat: 5, terms: Terms { count: 1, period_ms: 1, burst: 1 }, revision: 1 };
        for name in [TAT, COUNT, PERIOD_MS, BURST, REVISION] {
            let mut item = encode("a", &row);
            item.insert(name.to_owned(), s("5"));
            assert_eq!(decode(&item), Err(ItemError::Missing(name)));
        }
    }
}
