//! A lease. Key: `LEASE#<session>`, `LEASE#log:<partition>` or `LEASE#<duty>`; there is no sort key.
//!
//! The attributes have the names and types that gobridge gives them. Reading believes nothing: a field that is missing stays missing, and one
//! that has another type or no whole number becomes a value that no valid row has, so that
//! [`LeaseRow`] refuses the row instead of taking it for an older release's.

use super::{Item, PK, n, s, text};
use aws_sdk_dynamodb::types::AttributeValue;
use causeway_core::lease::row::{LeaseRow, OwnerFacts, RawLease};
use causeway_core::units::UnixMillis;
use std::collections::{BTreeMap, HashMap};

/// What every lease's key begins with.
pub const LEASE_PREFIX: &str = "LEASE#";

/// Attribute names, as conditions need them too.
pub(crate) const OWNER: &str = "owner";
pub(crate) const VERSION: &str = "version";
pub(crate) const RENEWED_AT: &str = "renewed_at";
pub(crate) const EXPIRES_AT: &str = "expires_at";
pub(crate) const FINGERPRINT: &str = "takeover_observation_fingerprint";
pub(crate) const ELAPSED_NS: &str = "takeover_observation_elapsed_ns";
pub(crate) const GENERATION: &str = "takeover_observation_generation";
const ACQUIRED_AT: &str = "acquired_at";
const ENDPOINTS: &str = "endpoints";
const AZ: &str = "az";
const TASK_ARN: &str = "task_arn";
const SERVICE_LEVEL: &str = "service_level";
const SERVICE_LEVEL_SINCE: &str = "service_level_since";
const LEFT_BECAUSE: &str = "left_because";
const LEFT_SINCE: &str = "left_since";

/// Stands for a number that is there and cannot be read. Below every number that a row may hold.
const UNREADABLE: i128 = i128::MIN;

/// The item of `row` under `key`. Nothing else is ever in it, so that a put removes what other programs left there.
#[must_use]
pub fn encode(key: &str, row: &LeaseRow) -> Item {
    let mut item = Item::from([
        (PK.to_owned(), s(key)),
        (OWNER.to_owned(), s(row.tuple.owner.as_str())),
        (VERSION.to_owned(), n(row.tuple.version)),
        (ACQUIRED_AT.to_owned(), n(row.acquired_at.0)),
        (RENEWED_AT.to_owned(), n(row.tuple.renewed_at.0)),
        (EXPIRES_AT.to_owned(), n(row.tuple.expires_at.0)),
    ]);
    if let Some(evidence) = &row.evidence {
        item.extend([
            (FINGERPRINT.to_owned(), s(evidence.fingerprint.as_str())),
            (ELAPSED_NS.to_owned(), n(evidence.elapsed_ns)),
            (GENERATION.to_owned(), n(evidence.generation)),
        ]);
    }
    encode_facts(&mut item, &row.facts);
    item
}

/// Reads it back as it stands.
#[must_use]
pub fn decode(item: &Item) -> RawLease {
    let string = |name| text(item, name).ok().map(str::to_owned);
    RawLease {
        owner: string(OWNER),
        version: integer(item, VERSION),
        acquired_at: integer(item, ACQUIRED_AT),
        renewed_at: integer(item, RENEWED_AT),
        expires_at: integer(item, EXPIRES_AT),
        fingerprint: fingerprint(item),
        elapsed_ns: integer(item, ELAPSED_NS),
        generation: integer(item, GENERATION),
        facts: decode_facts(item),
    }
}

/// The fingerprint. One that is no text makes the observation a part of one, whatever else of it is there: the row is corrupt then, and not
/// without an observation.
fn fingerprint(item: &Item) -> Option<String> {
    let rest = item.contains_key(ELAPSED_NS) || item.contains_key(GENERATION);
    match item.get(FINGERPRINT)?.as_s() {
        Ok(fingerprint) => Some(fingerprint.clone()),
        Err(_) => (!rest).then(String::new),
    }
}

/// A whole number, if the attribute is there.
fn integer(item: &Item, name: &'static str) -> Option<i128> {
    let value = item.get(name)?;
    Some(value.as_n().ok().and_then(|number| number.parse().ok()).unwrap_or(UNREADABLE))
}

/// Adds what an owner or a member tells of itself.
pub(super) fn encode_facts(item: &mut Item, facts: &OwnerFacts) {
    let endpoints: HashMap<_, _> = facts.endpoints.iter().map(|(name, address)| (name.clone(), s(address.as_str()))).collect();
    item.insert(ENDPOINTS.to_owned(), AttributeValue::M(endpoints));
    let texts = [(AZ, &facts.az), (TASK_ARN, &facts.task_arn), (SERVICE_LEVEL, &facts.service_level), (LEFT_BECAUSE, &facts.left_because)];
    for (name, value) in texts {
        if let Some(value) = value {
            item.insert(name.to_owned(), s(value.as_str()));
        }
    }
    for (name, since) in [(SERVICE_LEVEL_SINCE, facts.service_level_since), (LEFT_SINCE, facts.left_since)] {
        if let Some(since) = since {
            item.insert(name.to_owned(), n(since.0));
        }
    }
}

/// Reads it back. Nothing here decides who owns what: what cannot be read is left out, and stops nobody.
pub(super) fn decode_facts(item: &Item) -> OwnerFacts {
    let string = |name| text(item, name).ok().map(str::to_owned);
    let endpoints = item.get(ENDPOINTS).and_then(|value| value.as_m().ok()).map_or_else(BTreeMap::new, |map| {
        map.iter().filter_map(|(name, value)| Some((name.clone(), value.as_s().ok()?.clone()))).collect()
    });
    let time = |name| integer(item, name).and_then(|since| u64::try_from(since).ok()).map(UnixMillis);
    OwnerFacts {
        endpoints,
        az: string(AZ),
        task_arn: string(TASK_ARN),
        service_level: string(SERVICE_LEVEL),
        service_level_since: time(SERVICE_LEVEL_SINCE),
        left_because: string(LEFT_BECAUSE),
        left_since: time(LEFT_SINCE),
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use causeway_core::lease::row::{CorruptLease, Evidence, Tuple};
    use proptest::prelude::*;

    pub(in super::super) fn any_facts() -> impl Strategy<Value = OwnerFacts> {
        let text = || proptest::option::of(".*");
        let endpoints = proptest::collection::btree_map(".{1,12}", ".*", 0..4);
        let texts = (text(), text(), text(), text());
        (endpoints, texts, any::<Option<u64>>(), any::<Option<u64>>()).prop_map(|(endpoints, texts, since, left)| {
            let (az, task_arn, service_level, left_because) = texts;
            let (service_level_since, left_since) = (since.map(UnixMillis), left.map(UnixMillis));
            OwnerFacts { endpoints, az, task_arn, service_level, service_level_since, left_because, left_since }
        })
    }

    fn any_row() -> impl Strategy<Value = LeaseRow> {
        const MOST: u64 = u64::MAX - 1;
        let evidence = proptest::option::of((".*", 0..=MOST, 0..=MOST));
        let tuple = (".*", 1..=MOST, 1..MOST)
            .prop_flat_map(|(owner, version, renewed_at)| (Just(owner), Just(version), Just(renewed_at), (renewed_at + 1)..=MOST));
        (tuple, 0..=MOST, evidence, any_facts()).prop_map(|((owner, version, renewed_at, expires_at), acquired_at, evidence, facts)| {
            let expires_at = if owner.is_empty() { 0 } else { expires_at };
            LeaseRow {
                tuple: Tuple { owner, version, renewed_at: UnixMillis(renewed_at), expires_at: UnixMillis(expires_at) },
                acquired_at: UnixMillis(acquired_at),
                evidence: evidence.map(|(fingerprint, elapsed_ns, generation)| Evidence { fingerprint, elapsed_ns, generation }),
                facts,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(key in "LEASE#.*", row in any_row()) {
            let item = encode(&key, &row);
            prop_assert_eq!(text(&item, PK).unwrap(), &key);
            prop_assert_eq!(LeaseRow::try_from(decode(&item)).unwrap(), row);
        }

        /// Whatever one attribute that counts is replaced with: another type, no number, a fraction, a negative or too large a number, nothing at all.
        #[test]
        fn a_damaged_attribute_never_goes_unnoticed(row in any_row(), which in 0_usize..8, damage in 0_usize..9) {
            let observed = LeaseRow { evidence: row.evidence.clone().or(Some(Evidence { fingerprint: "f".into(), elapsed_ns: 1, generation: 1 })), ..row };
            let mut item = encode("LEASE#s", &observed);
            let name = [OWNER, VERSION, RENEWED_AT, EXPIRES_AT, ACQUIRED_AT, FINGERPRINT, ELAPSED_NS, GENERATION][which];
            let is_text = item[name].is_s();
            match damage {
                0 if name != ACQUIRED_AT => drop(item.remove(name)),
                1 if is_text => drop(item.insert(name.to_owned(), n(5))),
                2 | 3 if is_text => drop(item.insert(name.to_owned(), AttributeValue::Null(true))),
                0..=3 => drop(item.insert(name.to_owned(), s("5"))),
                _ if is_text => drop(item.insert(name.to_owned(), AttributeValue::Bool(true))),
                damage => {
                    let number = ["-1", "1.5", "18446744073709551615", "1E+300", "170141183460469231731687303715884105728"][damage - 4];
                    item.insert(name.to_owned(), AttributeValue::N(number.to_owned()));
                }
            }
            let refused = LeaseRow::try_from(decode(&item));
            prop_assert!(refused.is_err(), "{name} {damage}: {refused:?}");
        }
    }

    #[test]
    fn a_row_of_an_older_release_needs_repair_and_a_damaged_one_does_not_pass_for_it() {
        let row = LeaseRow {
            tuple: Tuple { owner: "a#1".into(), version: 4, renewed_at: UnixMillis(1_000), expires_at: UnixMillis(46_000) },
            acquired_at: UnixMillis(1_000),
            evidence: None,
            facts: OwnerFacts::default(),
        };
        let mut item = encode("LEASE#s", &row);
        item.remove(RENEWED_AT);
        assert_eq!(LeaseRow::try_from(decode(&item)), Err(CorruptLease::NeedsRepair));
        item.insert(RENEWED_AT.to_owned(), s("1000"));
        assert_eq!(LeaseRow::try_from(decode(&item)), Err(CorruptLease::OutOfRange { field: RENEWED_AT }));
    }

    #[test]
    fn an_observation_of_another_type_is_not_the_same_as_none() {
        let whole = Item::from([
            (OWNER.to_owned(), s("a#1")),
            (VERSION.to_owned(), n(4)),
            (RENEWED_AT.to_owned(), n(1_000)),
            (EXPIRES_AT.to_owned(), n(46_000)),
        ]);
        assert!(LeaseRow::try_from(decode(&whole)).is_ok());
        for damaged in [&[FINGERPRINT][..], &[FINGERPRINT, ELAPSED_NS], &[ELAPSED_NS, GENERATION], &[FINGERPRINT, ELAPSED_NS, GENERATION]] {
            let damage = damaged.iter().map(|&name| (name.to_owned(), AttributeValue::Bool(true)));
            let item = whole.clone().into_iter().chain(damage).collect();
            assert!(LeaseRow::try_from(decode(&item)).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn facts_of_another_kind_stop_nobody() {
        let item = Item::from([(ENDPOINTS.to_owned(), s("x")), (AZ.to_owned(), n(1)), (SERVICE_LEVEL_SINCE.to_owned(), n(-1))]);
        assert_eq!(decode_facts(&item), OwnerFacts::default());
    }
}
