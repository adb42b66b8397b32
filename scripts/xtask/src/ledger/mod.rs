//! What became of every message: published, delivered, repeated, lost.
//!
//! The publisher and the consumer know nothing of the bridge between them. Every payload can be computed anew from its number, so that a
//! changed byte shows, and tells by itself which message and which attempt of the publisher it is.

pub mod consumer;
pub mod payload;
pub mod publisher;
pub mod report;

use payload::{Identity, Plan};
use std::collections::{HashMap, HashSet};

/// What the consumer saw of one message from the queue.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The queue's own id: the same one twice is the queue's repetition, not the bridge's.
    pub queue_message_id: String,
    /// The payload, decoded.
    pub payload: Vec<u8>,
    /// The topic that the message names, where it does.
    pub topic: Option<String>,
    /// When the queue accepted it, in milliseconds since 1970 by the queue's clock.
    pub sent_at_ms: u64,
}

/// Why a crash or a cut may repeat messages, and how many at most.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Exposure {
    /// What happened.
    pub cause: String,
    /// What the number is made of.
    pub terms: Vec<(String, u64)>,
}

impl Exposure {
    /// The most repetitions that this one thing explains.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.terms.iter().map(|(_, count)| count).sum()
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    receipts: u64,
    attempts: HashSet<u32>,
    first_sent_ms: u64,
}

/// Collects receipts and holds them against what was published.
#[derive(Debug)]
pub struct Ledger {
    plan: Plan,
    any_topic: bool,
    seen: HashMap<u64, Seen>,
    queue_ids: HashSet<String>,
    queue_repetitions: u64,
    corrupted: u64,
    foreign: u64,
}

impl Ledger {
    /// An empty ledger of one run.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { plan, any_topic: false, seen: HashMap::new(), queue_ids: HashSet::new(), queue_repetitions: 0, corrupted: 0, foreign: 0 }
    }

    /// For messages that go through another topic on their way.
    #[must_use]
    pub fn of_any_topic(self) -> Self {
        Self { any_topic: true, ..self }
    }

    /// Notes one receipt.
    pub fn receive(&mut self, receipt: &Receipt) {
        if !self.queue_ids.insert(receipt.queue_message_id.clone()) {
            self.queue_repetitions += 1;
            return;
        }
        let Some(identity) = payload::identify(&receipt.payload) else {
            self.foreign += 1;
            return;
        };
        if !self.is_intact(&identity, receipt) {
            self.corrupted += 1;
            return;
        }
        let seen = self.seen.entry(identity.index).or_default();
        seen.first_sent_ms = if seen.receipts == 0 { receipt.sent_at_ms } else { seen.first_sent_ms.min(receipt.sent_at_ms) };
        seen.receipts += 1;
        seen.attempts.insert(identity.attempt);
    }

    fn is_intact(&self, identity: &Identity, receipt: &Receipt) -> bool {
        identity.index < self.plan.messages
            && receipt.payload == self.plan.payload(identity.index, identity.attempt)
            && (self.any_topic || receipt.topic.as_ref().is_none_or(|topic| *topic == self.plan.topic(identity.index)))
    }

    /// How many different messages arrived.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Whether this message arrived.
    #[must_use]
    pub fn has(&self, index: u64) -> bool {
        self.seen.contains_key(&index)
    }

    /// What was published and did not arrive.
    #[must_use]
    pub fn missing(&self, published: &publisher::Published) -> Vec<u64> {
        published.acknowledged.iter().copied().filter(|index| !self.has(*index)).collect()
    }

    /// Holds the receipts against what was published.
    #[must_use]
    pub fn settle(&self, published: &publisher::Published, exposures: &[Exposure]) -> Account {
        let receipts: u64 = self.seen.values().map(|seen| seen.receipts).sum();
        let attempts: u64 = self.seen.values().map(|seen| seen.attempts.len() as u64).sum();
        let lost = self.missing(published);
        Account {
            published: published.acknowledged.len() as u64,
            delivered: receipts + self.corrupted + self.foreign,
            unique: self.unique(),
            duplicates: receipts - attempts,
            duplicate_bound: exposures.iter().map(Exposure::bound).sum(),
            lost: lost.len() as u64,
            lost_examples: lost.into_iter().take(10).collect(),
            corrupted: self.corrupted + self.foreign,
            order_violations: self.order_violations(),
            publisher_repeats: attempts - self.unique(),
            publisher_reconnects: published.reconnects,
            unrouted: published.unrouted,
            queue_repetitions: self.queue_repetitions,
            exposures: exposures.to_vec(),
        }
    }

    /// Messages that the queue accepted for the first time after a later one of the same device. Within one millisecond of the queue's clock
    /// there is no telling, and such pairs do not count.
    fn order_violations(&self) -> u64 {
        let mut first_sent: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        for (index, seen) in &self.seen {
            first_sent.entry(self.plan.device(*index)).or_default().push((*index, seen.first_sent_ms));
        }
        let mut violations = 0;
        for messages in first_sent.values_mut() {
            messages.sort_unstable();
            let mut earliest_later = u64::MAX;
            for (_, sent) in messages.iter().rev() {
                if *sent > earliest_later {
                    violations += 1;
                }
                earliest_later = earliest_later.min(*sent);
            }
        }
        violations
    }
}

/// The sums.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Account {
    /// Messages that the broker acknowledged to the publisher.
    pub published: u64,
    /// Messages that the queue handed out, each counted once.
    pub delivered: u64,
    /// Different messages among them.
    pub unique: u64,
    /// Repetitions that the bridge, or the broker towards the bridge, made.
    pub duplicates: u64,
    /// The most repetitions that what happened explains.
    pub duplicate_bound: u64,
    /// Acknowledged to the publisher, and never delivered.
    pub lost: u64,
    /// The numbers of some of them.
    pub lost_examples: Vec<u64>,
    /// Payload or topic differ from what was published, or nobody published such a thing.
    pub corrupted: u64,
    /// Messages sent for the first time after a later one of the same device.
    pub order_violations: u64,
    /// Repetitions that the publisher made because its own connection broke.
    pub publisher_repeats: u64,
    /// How often that happened.
    pub publisher_reconnects: u64,
    /// Messages for which the broker had no subscriber: not the bridge's to lose.
    pub unrouted: u64,
    /// Repetitions that the queue itself made.
    pub queue_repetitions: u64,
    /// Where the bound comes from.
    pub exposures: Vec<Exposure>,
}

impl Account {
    /// Everything that is wrong, in words. Empty: all promises were kept.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.lost > 0 {
            faults.push(format!("{} messages were lost (numbers {:?}…)", self.lost, self.lost_examples));
        }
        if self.corrupted > 0 {
            faults.push(format!("{} messages were changed on the way", self.corrupted));
        }
        if self.duplicates > self.duplicate_bound {
            faults.push(format!("{} duplicates are more than the bound of {}", self.duplicates, self.duplicate_bound));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::publisher::Published;
    use super::*;
    use std::collections::BTreeSet;

    fn plan() -> Plan {
        Plan { run: "t1".into(), messages: 100, devices: 5, size: 250, started_ms: 1_700_000_000_000, noise: true }
    }

    fn receipt(index: u64, attempt: u32, queue_id: &str, sent: u64) -> Receipt {
        Receipt {
            queue_message_id: queue_id.into(),
            payload: plan().payload(index, attempt),
            topic: Some(plan().topic(index)),
            sent_at_ms: sent,
        }
    }

    fn published(indices: impl IntoIterator<Item = u64>) -> Published {
        Published { acknowledged: indices.into_iter().collect::<BTreeSet<_>>(), ..Published::default() }
    }

    #[test]
    fn a_clean_run_has_no_faults() {
        let mut ledger = Ledger::new(plan());
        for index in 0..100 {
            ledger.receive(&receipt(index, 1, &format!("q{index}"), index));
        }
        let account = ledger.settle(&published(0..100), &[]);
        assert_eq!((account.published, account.delivered, account.unique, account.duplicates, account.lost), (100, 100, 100, 0, 0));
        assert_eq!(account.order_violations, 0);
        assert_eq!(account.faults(), Vec::<String>::new());
    }

    #[test]
    fn a_missing_message_is_lost_only_if_the_broker_had_acknowledged_it() {
        let mut ledger = Ledger::new(plan());
        ledger.receive(&receipt(0, 1, "q0", 1));
        let account = ledger.settle(&published([0, 7]), &[]);
        assert_eq!((account.lost, account.lost_examples.clone()), (1, vec![7]));
        assert_eq!(account.faults().len(), 1);
        assert_eq!(ledger.settle(&published([0]), &[]).lost, 0);
    }

    #[test]
    fn tells_the_three_kinds_of_repetition_apart() {
        let mut ledger = Ledger::new(plan());
        ledger.receive(&receipt(3, 1, "a", 1));
        ledger.receive(&receipt(3, 1, "a", 1)); // the queue's
        ledger.receive(&receipt(3, 2, "b", 2)); // the publisher's
        ledger.receive(&receipt(3, 2, "c", 3)); // the bridge's
        let exposure = Exposure { cause: "kill".into(), terms: vec![("in flight".into(), 1)] };
        let account = ledger.settle(&published([3]), &[exposure]);
        assert_eq!((account.delivered, account.duplicates, account.publisher_repeats, account.queue_repetitions), (3, 1, 1, 1));
        assert_eq!(account.faults(), Vec::<String>::new());
        assert_eq!(ledger.settle(&published([3]), &[]).faults().len(), 1, "without a reason for it, one duplicate is a fault");
    }

    #[test]
    fn a_changed_byte_or_topic_or_a_stranger_is_corruption() {
        let mut ledger = Ledger::new(plan());
        let mut changed = receipt(1, 1, "a", 1);
        let last = changed.payload.len() - 3;
        changed.payload[last] ^= 1;
        ledger.receive(&changed);
        ledger.receive(&Receipt { topic: Some("telemetry/other".into()), ..receipt(2, 1, "b", 1) });
        ledger.receive(&Receipt { payload: b"hello".to_vec(), ..receipt(3, 1, "c", 1) });
        ledger.receive(&Receipt { payload: Plan { run: "t2".into(), ..plan() }.payload(4, 1), ..receipt(4, 1, "d", 1) });
        let account = ledger.settle(&published([]), &[]);
        assert_eq!((account.corrupted, account.unique), (4, 0));
    }

    #[test]
    fn order_counts_first_sends_per_device() {
        let mut ledger = Ledger::new(plan());
        // Devices take turns, so 0, 5 and 10 are of one device and 1 of another.
        ledger.receive(&receipt(5, 1, "a", 10));
        ledger.receive(&receipt(0, 1, "b", 20));
        ledger.receive(&receipt(10, 1, "c", 30));
        ledger.receive(&receipt(5, 1, "d", 40)); // a repetition is no violation
        ledger.receive(&receipt(1, 1, "e", 1));
        assert_eq!(ledger.settle(&published([]), &[]).order_violations, 1);
    }
}
