//! How much of one key may stand in the log: what counts, and what becomes of the next message where that is too much.
//!
//! A key is a leg and an ordering key. Its log has one writer, the owner, so the count is kept in that writer's memory: no counter is stored, and none can be
//! wrong about the log.

use crate::config::model;
use std::collections::HashMap;

/// Keys that are counted each for itself. What comes beyond is counted together, and held where that is too much, never trimmed.
pub const MAX_KEYS: usize = 100_000;

/// A key: the leg's index, and the hash of the ordering key.
pub type StoreKey = (usize, u64);

/// What becomes of a message whose key is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It waits, unacknowledged, and everything that came later behind it.
    Hold,
    /// The oldest of the key that is not being sent becomes a dead letter.
    DeadLetterOldest,
    /// The oldest of the key that is not being sent is dropped.
    DropOldest,
    /// It becomes a dead letter itself.
    RejectNewest,
}

/// How much of one key may stand in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreBound {
    /// Messages.
    pub messages: u64,
    /// Bytes, as memory counts them.
    pub bytes: u64,
    /// What becomes of the next one.
    pub on_full: OnFull,
    /// Whether what former owners left and nobody read yet counts as if it were of every key.
    pub counts_unread: bool,
}

/// Messages of a key where the configuration says nothing.
pub const DEFAULT_MESSAGES: u32 = 10_000;

impl From<&model::FlowStore> for StoreBound {
    fn from(store: &model::FlowStore) -> Self {
        Self {
            messages: u64::from(store.max_messages_per_key.unwrap_or(DEFAULT_MESSAGES)),
            bytes: store.max_bytes_per_key,
            on_full: match store.on_full {
                model::OnFull::Hold => OnFull::Hold,
                model::OnFull::DeadLetterOldest => OnFull::DeadLetterOldest,
                model::OnFull::DropOldest => OnFull::DropOldest,
                model::OnFull::RejectNewest => OnFull::RejectNewest,
            },
            counts_unread: store.max_messages_per_key.is_some(),
        }
    }
}

/// What of a key stands in the log, or is on its way there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Usage {
    const fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    const fn remove(&mut self, bytes: u64) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// What is to become of a message, as far as its key's share of the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerdict {
    /// There is room.
    Room,
    /// It waits for room.
    Wait,
    /// It waits for room, which the oldest of its key has to make.
    Trim,
    /// It becomes a dead letter.
    Reject,
}

/// What stands in the log, by key.
#[derive(Debug, Default)]
pub struct StoreUsage {
    keys: HashMap<StoreKey, Usage>,
    others: Usage,
}

impl StoreUsage {
    /// A message of `bytes` is on its way into the log, or was found there.
    pub fn add(&mut self, key: StoreKey, bytes: u64) {
        if let Some(usage) = self.keys.get_mut(&key) {
            usage.add(bytes);
        } else if self.others.messages == 0 && self.keys.len() < MAX_KEYS {
            // While anything is counted together nobody knows whether this key is part of it: then it stays so.
            self.keys.insert(key, Usage { messages: 1, bytes });
        } else {
            self.others.add(bytes);
        }
    }

    /// It came to its end, or never got there.
    pub fn remove(&mut self, key: StoreKey, bytes: u64) {
        match self.keys.get_mut(&key) {
            Some(usage) => {
                usage.remove(bytes);
                if usage.messages == 0 {
                    self.keys.remove(&key);
                }
            }
            None => {
                self.others.remove(bytes);
                if self.others.messages == 0 {
                    self.others = Usage::default();
                }
            }
        }
    }

    /// What is counted for a key: its own, or what is counted together.
    #[must_use]
    pub fn of(&self, key: StoreKey) -> Usage {
        self.keys.get(&key).copied().unwrap_or(self.others)
    }

    /// What becomes of one message more of a key. `unread`: messages of former owners that nobody read yet.
    #[must_use]
    pub fn verdict(&self, key: StoreKey, bytes: u64, bound: &StoreBound, unread: u64) -> StoreVerdict {
        let (usage, is_own) = match self.keys.get(&key) {
            Some(usage) => (*usage, true),
            None => (self.others, self.others.messages == 0),
        };
        // One that is larger than the bound by itself goes in alone: nothing would ever make room for it.
        let full = |messages: u64| {
            messages > 0 && (messages >= bound.messages || usage.bytes.saturating_add(bytes) > bound.bytes && usage.messages > 0)
        };
        if full(usage.messages) {
            return match bound.on_full {
                OnFull::Hold => StoreVerdict::Wait,
                OnFull::DeadLetterOldest | OnFull::DropOldest if is_own => StoreVerdict::Trim,
                OnFull::RejectNewest if is_own => StoreVerdict::Reject,
                OnFull::DeadLetterOldest | OnFull::DropOldest | OnFull::RejectNewest => StoreVerdict::Wait,
            };
        }
        let unread = if bound.counts_unread { unread } else { 0 };
        // Only known to be possible: nothing is given up for that.
        if full(usage.messages.saturating_add(unread)) { StoreVerdict::Wait } else { StoreVerdict::Room }
    }

    /// Keys that are counted each for itself.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The most that is counted for any key.
    #[must_use]
    pub fn deepest(&self) -> u64 {
        self.keys.values().map(|usage| usage.messages).max().unwrap_or(0).max(self.others.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn bound(messages: u64, on_full: OnFull) -> StoreBound {
        StoreBound { messages, bytes: 1_000_000, on_full, counts_unread: true }
    }

    const KEY: StoreKey = (0, 7);

    fn usage(messages: u64) -> StoreUsage {
        let mut usage = StoreUsage::default();
        (0..messages).for_each(|_| usage.add(KEY, 10));
        usage
    }

    #[test]
    fn flow_c5_limit_3_append_4_by_policy() {
        let verdict = |stored, on_full| usage(stored).verdict(KEY, 10, &bound(3, on_full), 0);
        for on_full in [OnFull::Hold, OnFull::DeadLetterOldest, OnFull::DropOldest, OnFull::RejectNewest] {
            assert_eq!(verdict(2, on_full), StoreVerdict::Room);
        }
        assert_eq!(verdict(3, OnFull::Hold), StoreVerdict::Wait);
        assert_eq!(verdict(3, OnFull::DeadLetterOldest), StoreVerdict::Trim);
        assert_eq!(verdict(3, OnFull::DropOldest), StoreVerdict::Trim);
        assert_eq!(verdict(3, OnFull::RejectNewest), StoreVerdict::Reject);
    }

    #[test]
    fn flow_c5_bytes_bound_too_and_one_that_is_too_large_goes_in_alone() {
        let narrow = StoreBound { bytes: 100, ..bound(10, OnFull::Hold) };
        assert_eq!(usage(9).verdict(KEY, 10, &narrow, 0), StoreVerdict::Room);
        assert_eq!(usage(9).verdict(KEY, 11, &narrow, 0), StoreVerdict::Wait);
        assert_eq!(usage(0).verdict(KEY, 1_000, &narrow, 0), StoreVerdict::Room);
    }

    #[test]
    fn flow_c5_what_nobody_read_counts_for_every_key_and_nothing_is_given_up_for_it() {
        for on_full in [OnFull::Hold, OnFull::DeadLetterOldest, OnFull::DropOldest, OnFull::RejectNewest] {
            assert_eq!(usage(1).verdict(KEY, 10, &bound(3, on_full), 2), StoreVerdict::Wait);
            assert_eq!(usage(0).verdict(KEY, 10, &bound(3, on_full), 2), StoreVerdict::Room);
        }
        let known = StoreBound { counts_unread: false, ..bound(3, OnFull::Hold) };
        assert_eq!(usage(1).verdict(KEY, 10, &known, 1_000_000), StoreVerdict::Room);
    }

    proptest! {
        /// Whatever comes and goes, every message is taken off where it was counted.
        #[test]
        fn flow_p12_what_is_added_is_removed(steps in prop::collection::vec((0_u64..5, any::<bool>()), 0..500)) {
            let (mut usage, mut model) = (StoreUsage::default(), HashMap::<u64, u64>::new());
            for (key, adds) in steps {
                let count = model.entry(key).or_default();
                if adds {
                    usage.add((0, key), 3);
                    *count += 1;
                } else if *count > 0 {
                    usage.remove((0, key), 3);
                    *count -= 1;
                }
                for (key, count) in &model {
                    prop_assert_eq!(usage.of((0, *key)), Usage { messages: *count, bytes: count * 3 });
                }
            }
        }
    }

    #[test]
    fn flow_p12_keys_beyond_the_table_are_counted_together() {
        let mut usage = StoreUsage::default();
        let many = MAX_KEYS as u64 + 5;
        (0..many).for_each(|key| usage.add((0, key), 1));
        assert_eq!((usage.keys(), usage.of((0, many - 1)).messages, usage.of((0, 0)).messages), (MAX_KEYS, 5, 1));
        // One of those goes: its key does not move into the table while others of its kind are counted together.
        usage.remove((0, 0), 1);
        usage.add((0, many - 1), 1);
        assert_eq!(usage.of((0, many - 1)).messages, 6);
        assert_eq!(
            usage.verdict((0, many - 1), 1, &bound(3, OnFull::DropOldest), 0),
            StoreVerdict::Wait,
            "nothing is given up for a guess"
        );
        (0..6).for_each(|_| usage.remove((0, many - 1), 1));
        usage.add((0, many - 1), 1);
        assert_eq!(usage.of((0, many - 1)).messages, 1);
    }
}
