//! The ledger of what was dropped: who, why, by which topic, how often. What accumulates until the next flush is bounded, and its totals are always those of the
//! counter, whatever had to be put together.

use super::{Direction, DropOutcome, DropReason, Dropped};
use crate::units::UnixMillis;
use serde::Serialize;
use std::collections::BTreeMap;

/// Distinct keys of one flush at most. What comes beyond is put together under [`OVERFLOW`].
pub const MAX_KEYS: usize = 1_000;
/// Stands for the client or key, and for the topic, of what found no place of its own.
pub const OVERFLOW: &str = "*overflow*";
/// Of a client or key so many bytes are kept.
const MAX_KEY_BYTES: usize = 160;
/// Of a topic so many bytes are kept.
const MAX_TOPIC_BYTES: usize = 640;
/// Of a detail so many bytes are kept.
const MAX_DETAIL_BYTES: usize = 240;

/// What a row of the ledger is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LedgerKey {
    /// The client or key, see [`Dropped::key`].
    pub key: String,
    /// Why.
    pub reason: DropReason,
    /// The topic.
    pub topic: String,
    /// On which of its ways.
    pub direction: Direction,
}

impl LedgerKey {
    /// The row's name in a store: no two keys share one. At most about 850 bytes.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}#{}#{}#{}#{}", self.reason.as_str(), self.direction.as_str(), self.key.len(), self.key, self.topic)
    }
}

/// What is told of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerCount {
    /// Messages of which nothing is left.
    pub lost: u64,
    /// Messages that became dead letters.
    pub dead_lettered: u64,
    /// When the first was dropped, by the wall clock of the host.
    pub first: UnixMillis,
    /// When the last was.
    pub last: UnixMillis,
    /// The last one's route.
    pub route: String,
    /// The last one's quality of service.
    pub qos: u8,
    /// What exactly became of the last one.
    pub detail: String,
}

impl LedgerCount {
    /// Both together.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.lost + self.dead_lettered
    }

    /// Adds what was counted elsewhere, or later, of the same key.
    pub fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.dead_lettered += other.dead_lettered;
        self.first = self.first.min(other.first);
        if other.last >= self.last {
            (self.last, self.qos) = (other.last, other.qos);
            self.route.clone_from(&other.route);
            self.detail.clone_from(&other.detail);
        }
    }
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerRow {
    /// What it is about.
    #[serde(flatten)]
    pub key: LedgerKey,
    /// What is told of it.
    #[serde(flatten)]
    pub count: LedgerCount,
}

/// What was dropped since the last flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerBuffer {
    rows: BTreeMap<LedgerKey, LedgerCount>,
    own_places: usize,
}

impl LedgerBuffer {
    /// Takes in `many` messages that were dropped alike.
    pub fn record(&mut self, at: UnixMillis, dropped: &Dropped, many: u64) {
        let (lost, dead_lettered) = match dropped.outcome {
            DropOutcome::Lost => (many, 0),
            DropOutcome::DeadLettered => (0, many),
        };
        let key = LedgerKey {
            key: clipped(&dropped.key, MAX_KEY_BYTES),
            reason: dropped.reason,
            topic: clipped(&dropped.topic, MAX_TOPIC_BYTES),
            direction: dropped.direction,
        };
        let detail = clipped(&dropped.detail, MAX_DETAIL_BYTES);
        let route = clipped(&dropped.route, MAX_KEY_BYTES);
        self.merge(key, LedgerCount { lost, dead_lettered, first: at, last: at, route, qos: dropped.qos, detail });
    }

    /// Takes in what is told of a key.
    fn merge(&mut self, key: LedgerKey, count: LedgerCount) {
        if let Some(row) = self.rows.get_mut(&key) {
            return row.add(&count);
        }
        let is_overflow = key.key == OVERFLOW;
        if is_overflow || self.own_places < MAX_KEYS {
            self.own_places += usize::from(!is_overflow);
            self.rows.insert(key, count);
            return;
        }
        // The reason and the direction stay: their totals are right whatever happens to the rest. There are few of both, so this is bounded too.
        let key = LedgerKey { key: OVERFLOW.to_owned(), topic: OVERFLOW.to_owned(), ..key };
        match self.rows.get_mut(&key) {
            Some(row) => row.add(&count),
            None => {
                self.rows.insert(key, count);
            }
        }
    }

    /// Puts rows back that could not be flushed; what was recorded meanwhile is added to them.
    pub fn restore(&mut self, rows: Vec<LedgerRow>) {
        for LedgerRow { key, count } in rows {
            self.merge(key, count);
        }
    }

    /// Whether there is nothing to flush.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes out what is to be flushed.
    pub fn take(&mut self) -> Vec<LedgerRow> {
        self.own_places = 0;
        core::mem::take(&mut self.rows).into_iter().map(|(key, count)| LedgerRow { key, count }).collect()
    }
}

/// What becomes of a ledger's rows with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerLimits {
    /// Rows whose last message was dropped before this go.
    pub before: UnixMillis,
    /// Rows that stay at most: the oldest go.
    pub max_rows: usize,
}

impl LedgerLimits {
    /// The rows that go. Of several that are equally old, those whose names come first.
    #[must_use]
    pub fn doomed(&self, mut rows: Vec<(UnixMillis, String)>) -> Vec<String> {
        rows.sort_unstable();
        let too_many = rows.len().saturating_sub(self.max_rows);
        rows.into_iter().enumerate().filter(|(nth, (last, _))| *nth < too_many || *last < self.before).map(|(_, (_, name))| name).collect()
    }
}

/// The text, cut at a character's end where it is longer than `most` bytes.
fn clipped(text: &str, most: usize) -> String {
    if text.len() <= most { text.to_owned() } else { format!("{}…", text.get(..text.floor_char_boundary(most)).unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn dropped(key: &str, topic: &str, outcome: DropOutcome) -> Dropped {
        Dropped {
            reason: DropReason::Trimmed,
            direction: Direction::Egress,
            outcome,
            route: "r".into(),
            key: key.to_owned(),
            topic: topic.to_owned(),
            qos: 1,
            detail: "TRIMMED: x".to_owned(),
        }
    }

    #[test]
    fn flow_ledger_merges_by_key_reason_topic_and_direction() {
        let mut buffer = LedgerBuffer::default();
        buffer.record(UnixMillis(10), &dropped("k", "a", DropOutcome::Lost), 1);
        buffer.record(UnixMillis(30), &dropped("k", "a", DropOutcome::DeadLettered), 2);
        buffer.record(UnixMillis(20), &dropped("k", "b", DropOutcome::Lost), 1);
        let rows = buffer.take();
        assert_eq!(rows.len(), 2);
        let row = &rows[0].count;
        assert_eq!((row.lost, row.dead_lettered, row.count(), row.first, row.last), (1, 2, 3, UnixMillis(10), UnixMillis(30)));
        assert!(buffer.is_empty() && buffer.take().is_empty());
    }

    #[test]
    fn flow_ledger_names_are_the_keys_own() {
        let key = |key: &str, topic: &str| LedgerKey {
            key: key.to_owned(),
            reason: DropReason::Expired,
            topic: topic.to_owned(),
            direction: Direction::Egress,
        };
        assert_ne!(key("a#b", "c").name(), key("a", "b#c").name());
        assert_ne!(key("", "1##").name(), key("1#", "").name());
    }

    #[test]
    fn flow_ledger_texts_are_cut_between_characters() {
        assert_eq!(clipped("aéé", 2), "a…");
        assert_eq!(clipped("aéé", 3), "aé…");
        assert_eq!(clipped("aéé", 5), "aéé");
    }

    #[test]
    fn flow_ledger_lets_the_oldest_go() {
        let rows = || [3, 1, 5, 4].into_iter().map(|at| (UnixMillis(at), format!("at-{at}"))).collect::<Vec<_>>();
        let go = |before, max_rows| LedgerLimits { before: UnixMillis(before), max_rows }.doomed(rows());
        assert_eq!(go(0, 4), Vec::<String>::new());
        assert_eq!(go(0, 2), ["at-1", "at-3"]);
        assert_eq!(go(4, 100), ["at-1", "at-3"]);
        assert_eq!(go(9, 0).len(), 4);
    }

    proptest! {
        /// P13: whatever was put together, and however often a flush failed, the ledger's sum is the counter's, in all and by outcome and reason.
        #[test]
        fn flow_p13_the_sum_of_the_ledger_is_the_counters(
            drops in prop::collection::vec((0_u32..1_500, any::<bool>(), any::<bool>(), 1_u64..4), 0..3_000),
            flush_every in 1_usize..2_000,
            fails in any::<bool>(),
        ) {
            let mut buffer = LedgerBuffer::default();
            let (mut lost, mut dead, mut expired) = (0, 0, 0);
            let mut ledger: BTreeMap<String, LedgerCount> = BTreeMap::new();
            let mut store = |rows: Vec<LedgerRow>| for row in rows {
                ledger.entry(row.key.name()).and_modify(|count| count.add(&row.count)).or_insert(row.count);
            };
            for (nth, (topic, is_lost, is_expired, many)) in drops.into_iter().enumerate() {
                let outcome = if is_lost { DropOutcome::Lost } else { DropOutcome::DeadLettered };
                let reason = if is_expired { DropReason::Expired } else { DropReason::Trimmed };
                let (to, expiry) = (if is_lost { &mut lost } else { &mut dead }, if is_expired { many } else { 0 });
                *to += many;
                expired += expiry;
                buffer.record(UnixMillis(nth as u64), &Dropped { reason, ..dropped("k", &format!("t/{topic}"), outcome) }, many);
                if nth % flush_every == 0 {
                    let rows = buffer.take();
                    prop_assert!(rows.len() <= MAX_KEYS + 2 * DropReason::ALL.len());
                    if fails && nth % 2 == 0 { buffer.restore(rows) } else { store(rows) }
                }
            }
            store(buffer.take());
            prop_assert_eq!(ledger.values().map(|count| count.lost).sum::<u64>(), lost);
            prop_assert_eq!(ledger.values().map(|count| count.dead_lettered).sum::<u64>(), dead);
            let of_expired = ledger.iter().filter(|(name, _)| name.starts_with("expired#")).map(|(_, count)| count.count()).sum::<u64>();
            prop_assert_eq!(of_expired, expired);
        }
    }
}
