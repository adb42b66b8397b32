//! The lease row: who owns a session, and since when nobody heard of the owner.

use crate::units::UnixMillis;
use core::time::Duration;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use thiserror::Error;

/// The part of the row that an owner changes with every renewal. As long as it stays the same, the owner gave no sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// The owner, `instance_id#<boot nonce>`; empty where the lease is released.
    pub owner: String,
    /// The fencing version: raised by every acquisition, never reset.
    pub version: u64,
    /// When the owner wrote it last, by the owner's wall clock; strictly increasing. Never compared with another host's clock.
    pub renewed_at: UnixMillis,
    /// `renewed_at` and how long the lease holds, by the owner's wall clock; 0 where it is released.
    pub expires_at: UnixMillis,
}

/// In front of the owner name of housekeeping, which takes a lease that nobody wants for a moment. No process is called so: an owner's name
/// begins with its instance.
pub const HOUSEKEEPING: &str = "#housekeeping#";

impl Tuple {
    /// Whether housekeeping has the lease: it counts as no holder, and whoever wants the lease takes it from it at once.
    #[must_use]
    pub fn is_housekeeping(&self) -> bool {
        self.owner.starts_with(HOUSEKEEPING)
    }

    /// Whether nobody owns the lease.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.owner.is_empty()
    }

    /// How long the lease holds, as its owner wrote it. The difference of two readings of one clock.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.expires_at.since(self.renewed_at)
    }

    /// Names exactly this state of exactly this lease: hex SHA-256 over the key, and over every field with its length.
    #[must_use]
    pub fn fingerprint(&self, key: &str) -> String {
        let mut hash = Sha256::new();
        for part in [key.as_bytes(), self.owner.as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        for number in [self.version, self.renewed_at.0, self.expires_at.0] {
            hash.update(number.to_be_bytes());
        }
        hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            use core::fmt::Write;
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// What observers confirmed: for how long the tuple with this fingerprint was unchanged. Outlives the observer that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// The observed tuple's [`Tuple::fingerprint`].
    pub fingerprint: String,
    /// For how long it was unchanged, in nanoseconds.
    pub elapsed_ns: u64,
    /// Raised by every write of evidence.
    pub generation: u64,
}

/// What the owner tells of itself, for people and for other members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnerFacts {
    /// Where the owner is reached, by capability.
    pub endpoints: BTreeMap<String, String>,
    /// Its availability zone.
    pub az: Option<String>,
    /// Its ECS task.
    pub task_arn: Option<String>,
    /// Its level of service.
    pub service_level: Option<String>,
    /// Since when, by its wall clock.
    pub service_level_since: Option<UnixMillis>,
    /// In a released row: why it gave the lease back, as [`crate::metrics::FailoverCause`] names it.
    pub left_because: Option<String>,
    /// In a released row: when what made it do so began, by its wall clock.
    pub left_since: Option<UnixMillis>,
}

/// A valid lease row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRow {
    /// Who, which version, since when.
    pub tuple: Tuple,
    /// When the owner acquired it, by the owner's wall clock.
    pub acquired_at: UnixMillis,
    /// What observers confirmed, if any did.
    pub evidence: Option<Evidence>,
    /// What the owner tells of itself.
    pub facts: OwnerFacts,
}

/// A row as a store has it, before anything is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawLease {
    /// `owner`.
    pub owner: Option<String>,
    /// `version`.
    pub version: Option<i128>,
    /// `acquired_at`.
    pub acquired_at: Option<i128>,
    /// `renewed_at`.
    pub renewed_at: Option<i128>,
    /// `expires_at`.
    pub expires_at: Option<i128>,
    /// `takeover_observation_fingerprint`.
    pub fingerprint: Option<String>,
    /// `takeover_observation_elapsed_ns`.
    pub elapsed_ns: Option<i128>,
    /// `takeover_observation_generation`.
    pub generation: Option<i128>,
    /// What the owner tells of itself.
    pub facts: OwnerFacts,
}

/// A row that cannot be believed. It is never healed by guessing: who owns it is exactly what is unclear.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CorruptLease {
    /// A field that every row has is missing.
    #[error("corrupt lease row: `{field}` is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// The row was written by a release that did not know `renewed_at`.
    #[error("the lease row is older than `renewed_at`: stop every worker of this bridge, run `causeway lease repair`, start again")]
    NeedsRepair,
    /// A number that cannot be.
    #[error("corrupt lease row: `{field}` is out of range")]
    OutOfRange {
        /// The field.
        field: &'static str,
    },
    /// Fields that contradict each other.
    #[error("corrupt lease row: {what}")]
    Contradiction {
        /// What.
        what: &'static str,
    },
}

impl From<&LeaseRow> for RawLease {
    fn from(row: &LeaseRow) -> Self {
        let wide = |number: u64| Some(i128::from(number));
        Self {
            owner: Some(row.tuple.owner.clone()),
            version: wide(row.tuple.version),
            acquired_at: wide(row.acquired_at.0),
            renewed_at: wide(row.tuple.renewed_at.0),
            expires_at: wide(row.tuple.expires_at.0),
            fingerprint: row.evidence.as_ref().map(|evidence| evidence.fingerprint.clone()),
            elapsed_ns: row.evidence.as_ref().and_then(|evidence| wide(evidence.elapsed_ns)),
            generation: row.evidence.as_ref().and_then(|evidence| wide(evidence.generation)),
            facts: row.facts.clone(),
        }
    }
}

impl TryFrom<RawLease> for LeaseRow {
    type Error = CorruptLease;

    fn try_from(raw: RawLease) -> Result<Self, CorruptLease> {
        let owner = raw.owner.clone().ok_or(CorruptLease::Missing { field: "owner" })?;
        let version = number(raw.version, "version")?;
        let renewed_at = raw.renewed_at.map_or(Err(CorruptLease::NeedsRepair), |value| number(Some(value), "renewed_at"))?;
        let expires_at = number(raw.expires_at, "expires_at")?;
        if version == 0 || renewed_at == 0 {
            return Err(CorruptLease::OutOfRange { field: if version == 0 { "version" } else { "renewed_at" } });
        }
        if owner.is_empty() && expires_at != 0 {
            return Err(CorruptLease::Contradiction { what: "released, but with an expiry" });
        }
        if !owner.is_empty() && expires_at <= renewed_at {
            return Err(CorruptLease::Contradiction { what: "it expires before it was renewed" });
        }
        let evidence = match (raw.fingerprint, raw.elapsed_ns, raw.generation) {
            (None, None, None) => None,
            (Some(fingerprint), Some(elapsed), Some(generation)) => Some(Evidence {
                fingerprint,
                elapsed_ns: number(Some(elapsed), "takeover_observation_elapsed_ns")?,
                generation: number(Some(generation), "takeover_observation_generation")?,
            }),
            _ => return Err(CorruptLease::Contradiction { what: "only a part of the takeover observation is there" }),
        };
        Ok(Self {
            tuple: Tuple { owner, version, renewed_at: UnixMillis(renewed_at), expires_at: UnixMillis(expires_at) },
            acquired_at: UnixMillis(raw.acquired_at.map_or(Ok(renewed_at), |value| number(Some(value), "acquired_at"))?),
            evidence,
            facts: raw.facts,
        })
    }
}

fn number(value: Option<i128>, field: &'static str) -> Result<u64, CorruptLease> {
    let value = value.ok_or(CorruptLease::Missing { field })?;
    // One below the largest: a version or a time that cannot be raised any more is as unusable as a negative one.
    u64::try_from(value).ok().filter(|number| *number < u64::MAX).ok_or(CorruptLease::OutOfRange { field })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn active() -> RawLease {
        RawLease {
            owner: Some("worker-1#7f".into()),
            version: Some(4),
            acquired_at: Some(900),
            renewed_at: Some(1_000),
            expires_at: Some(46_000),
            ..RawLease::default()
        }
    }

    #[test]
    fn an_active_and_a_released_row_are_valid() {
        assert_eq!(LeaseRow::try_from(active()).unwrap().tuple.ttl(), Duration::from_secs(45));
        let released = RawLease { owner: Some(String::new()), expires_at: Some(0), ..active() };
        assert!(LeaseRow::try_from(released).unwrap().tuple.is_released());
    }

    #[test]
    fn anything_ambiguous_fails_closed() {
        let cases = [
            RawLease { owner: None, ..active() },
            RawLease { version: None, ..active() },
            RawLease { version: Some(0), ..active() },
            RawLease { version: Some(-1), ..active() },
            RawLease { version: Some(i128::from(u64::MAX)), ..active() },
            RawLease { renewed_at: Some(0), ..active() },
            RawLease { expires_at: Some(1_000), ..active() },
            RawLease { expires_at: None, ..active() },
            RawLease { owner: Some(String::new()), ..active() },
            RawLease { fingerprint: Some("x".into()), ..active() },
            RawLease { fingerprint: Some("x".into()), elapsed_ns: Some(-5), generation: Some(1), ..active() },
        ];
        for case in cases {
            assert!(LeaseRow::try_from(case.clone()).is_err(), "{case:?}");
        }
        assert_eq!(LeaseRow::try_from(RawLease { renewed_at: None, ..active() }), Err(CorruptLease::NeedsRepair));
    }

    proptest! {
        #[test]
        fn two_states_never_share_a_fingerprint(a in ("[a-z#]{0,6}", 1u64..5, 1u64..5, 0u64..5), b in ("[a-z#]{0,6}", 1u64..5, 1u64..5, 0u64..5), key_a in "[a-c]{1,2}", key_b in "[a-c]{1,2}") {
            let tuple = |t: &(String, u64, u64, u64)| Tuple { owner: t.0.clone(), version: t.1, renewed_at: UnixMillis(t.2), expires_at: UnixMillis(t.3) };
            prop_assert_eq!(tuple(&a).fingerprint(&key_a) == tuple(&b).fingerprint(&key_b), a == b && key_a == key_b);
        }
    }
}
