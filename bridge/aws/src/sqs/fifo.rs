//! FIFO queues: which group a message belongs to, and what SQS tells repetitions by.

use causeway_core::dispatch::headers::{DEDUP_ID, believed};
use causeway_core::drain::OrderKey;
use causeway_core::message::Entry;
use causeway_core::worker::ordering_key;
use core::fmt::Write as _;
use core::hash::{Hash as _, Hasher as _};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::hash::DefaultHasher;

/// Characters of a group id and of a deduplication id at most.
pub const MAX_ID: usize = 128;

/// How a FIFO queue is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// The groups.
    pub group: Group,
    /// Whether a message is sent only after the one before it in its group was accepted. Else those of a group leave side by side, and a batch that is
    /// accepted in part changes their order.
    pub strict_order: bool,
}

/// Which group a message belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// All to this one.
    Fixed(String),
    /// Those of one ordering key to one.
    OfOrderingKey,
}

impl Fifo {
    /// The group of `entry`.
    #[must_use]
    pub fn group_of<'e>(&'e self, entry: &'e Entry) -> Cow<'e, str> {
        match &self.group {
            Group::Fixed(group) => Cow::Borrowed(group),
            Group::OfOrderingKey => group_id(ordering_key(entry)),
        }
    }

    /// What the owner must not overtake with `entry`: its group, where order is strict.
    #[must_use]
    pub fn key_of(&self, entry: &Entry) -> Option<OrderKey> {
        self.strict_order.then(|| {
            // Only compared within one process.
            let mut hasher = DefaultHasher::new();
            match &self.group {
                Group::Fixed(_) => {}
                Group::OfOrderingKey => ordering_key(entry).hash(&mut hasher),
            }
            OrderKey(hasher.finish())
        })
    }
}

/// What SQS tells repetitions of `entry` by, for five minutes: what a believed bridge told, else the entry's id, which all attempts at it share.
#[must_use]
pub fn deduplication_id(entry: &Entry) -> Cow<'_, str> {
    believed(&entry.message, DEDUP_ID).map_or_else(|| Cow::Owned(entry.id.to_string()), |told| group_id(told.as_bytes()))
}

/// Whether SQS accepts `id` for a group: 1 to 128 letters, digits and marks of ASCII.
#[must_use]
pub fn is_valid_group(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The group of an ordering key: the key itself where SQS accepts it, else with `%XX` for each byte that it does not accept, and where that is too long
/// `%sha256:` and the hash of the key. No two keys share one: a `%` of a key is always written as `%25`, so that no escaped key looks like a hash.
#[must_use]
pub fn group_id(key: &[u8]) -> Cow<'_, str> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'%';
    if let Some(text) = core::str::from_utf8(key).ok().filter(|text| is_valid_group(text) && key.iter().all(plain)) {
        return Cow::Borrowed(text);
    }
    if key.is_empty() {
        return Cow::Borrowed("%");
    }
    let mut id = String::with_capacity(key.len() + 16);
    for byte in key {
        if plain(byte) {
            id.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(id, "%{byte:02X}");
        }
        if id.len() > MAX_ID {
            return Cow::Owned(format!("%sha256:{:x}", Sha256::digest(key)));
        }
    }
    Cow::Owned(id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_group_is_readable_where_it_can_be() {
        for (key, group) in [
            ("plant/line-3/temperature", "plant/line-3/temperature"),
            ("with space/100%", "with%20space/100%25"),
            ("gr\u{fc}n", "gr%C3%BCn"),
            ("", "%"),
        ] {
            let id = group_id(key.as_bytes());
            assert!(is_valid_group(&id), "{id}");
            assert_eq!(id, group);
        }
        let (longest, too_long) = ("a".repeat(128), "a".repeat(129));
        assert_eq!(group_id(longest.as_bytes()), longest);
        let hashed = group_id(too_long.as_bytes());
        assert!(is_valid_group(&hashed) && hashed.starts_with("%sha256:") && hashed.len() == 8 + 64, "{hashed}");
    }

    /// Keys that differ where escaping, length and hashes meet.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<Vec<u8>>(),
            "[a-b% ]{0,4}".prop_map(String::into_bytes),
            "%sha256:[0-9a-f]{2}".prop_map(String::into_bytes),
            "[a ]{120,140}".prop_map(String::into_bytes),
            "%[0-9A-F]{2}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn groups_are_valid_and_no_two_keys_share_one(a in key(), b in key()) {
            let (group_a, group_b) = (group_id(&a), group_id(&b));
            prop_assert!(is_valid_group(&group_a), "{}", group_a);
            prop_assert_eq!(a == b, group_a == group_b);
        }
    }
}
