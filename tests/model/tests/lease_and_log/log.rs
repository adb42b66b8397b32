//! The log's store, what is promised of it, and what would break it.

use crate::automaton::number_of;
use causeway_core::identity::Epoch;
use causeway_core::log::{Answer, Call};
use causeway_core::outcome::Outcome;
use causeway_core::rows::{Row, RowMeta};
use causeway_sim::reference::{Lane, LogRule, Told};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The log, and the ledger of what it has to keep. Cheap to copy.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Kept>);

#[derive(Clone, Debug, Default)]
struct Kept {
    lane: Lane,
    /// Whose anchor was found to be the tail by its owner last, and its epoch.
    confirmed: Option<(Epoch, u64)>,
    delivered: BTreeSet<u8>,
    acknowledged: BTreeSet<u8>,
    broken: Option<&'static str>,
}

/// A row of an id is the same row everywhere in one run; in two runs what it holds may differ.
impl Hash for Log {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Kept { lane, confirmed, delivered, acknowledged, broken } = &*self.0;
        lane.rows().len().hash(state);
        for (slot, kept) in lane.rows() {
            (slot, kept.row().id(), kept.row().epoch(), kept.row().drained()).hash(state);
            kept.entries().iter().for_each(|entry| (entry.id, number_of(entry)).hash(state));
        }
        if let Some(head) = lane.head() {
            (head.epoch, head.revision, head.drained, &head.attempts).hash(state);
            head.settled_ahead.iter().for_each(|range| (range.from, range.to).hash(state));
        }
        (confirmed, delivered, acknowledged, broken).hash(state);
    }
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        let digest = |log: &Self| {
            let mut hasher = std::hash::DefaultHasher::new();
            log.hash(&mut hasher);
            hasher.finish()
        };
        Arc::ptr_eq(&self.0, &other.0) || digest(self) == digest(other)
    }
}
impl Eq for Log {}

impl Log {
    pub fn broken(&self) -> Option<&'static str> {
        self.0.broken
    }

    pub fn delivered(&self) -> &BTreeSet<u8> {
        &self.0.delivered
    }

    pub fn acknowledged(&self) -> &BTreeSet<u8> {
        &self.0.acknowledged
    }

    pub fn deliver(&mut self, messages: &[u8]) {
        Arc::make_mut(&mut self.0).delivered.extend(messages);
    }

    pub fn acknowledge(&mut self, messages: Vec<u8>) {
        let kept = Arc::make_mut(&mut self.0);
        kept.acknowledged.extend(messages);
        kept.check_promises();
    }

    /// Carries out a call of the owner of a term, whose answer reaches it unless it gave up: then nothing is confirmed by it.
    pub fn call(&mut self, call: &Call, term: u64, waits: bool, told: &mut Told, without: Option<LogRule>) -> Answer {
        match call {
            Call::ReadHead => Answer::Head(Ok(self.0.lane.head().cloned())),
            Call::ReadPage { purpose, after, up_to } => {
                Answer::Page { purpose: *purpose, page: Ok(self.0.lane.page(*after, *up_to, usize::MAX)) }
            }
            Call::ReadTail => {
                let tail = told.tail(&self.0.lane, without);
                if let Some(meta) = tail.filter(|_| waits) {
                    self.confirmed_by(term, &meta);
                }
                Answer::Tail(Ok(Told::heard(tail, without)))
            }
            Call::Put { slot, row } => {
                let kept = Arc::make_mut(&mut self.0);
                let head = kept.lane.effective_head();
                let (put, new) = kept.lane.put(*slot, row, without);
                told.put(new.unwrap_or(*slot), row, &put);
                let above = new.is_some_and(|slot| slot > head) && matches!(**row, Row::Segment(_));
                if above && kept.confirmed.is_some_and(|(_, last)| last != term) {
                    kept.broken = Some("an append of an old owner is accepted above the head");
                }
                kept.check(head);
                Answer::Put(Outcome::Done(put))
            }
            Call::PutHead { head } => {
                let kept = Arc::make_mut(&mut self.0);
                let before = kept.lane.effective_head();
                let forward = kept.lane.put_head(head, without);
                kept.check(before);
                Answer::HeadPut(Outcome::Done(forward))
            }
            Call::Delete { slots } => {
                let kept = Arc::make_mut(&mut self.0);
                let before = kept.lane.effective_head();
                kept.lane.delete(slots, without);
                kept.check(before);
                Answer::Deleted(Outcome::Done(()))
            }
            Call::ReadRecord | Call::Register { .. } | Call::MoveMail { .. } => panic!("{call:?} is no call to the log"),
        }
    }

    /// The owner of a term found this row to be the tail.
    fn confirmed_by(&mut self, term: u64, meta: &RowMeta) {
        let standing = self.0.lane.standing(meta.slot).filter(|row| row.id() == meta.id);
        if !matches!(standing, Some(Row::Anchor(anchor)) if anchor.owner == name_of(term)) {
            return;
        }
        if self.0.confirmed == Some((meta.epoch, term)) {
            return;
        }
        let kept = Arc::make_mut(&mut self.0);
        if kept.confirmed.is_some_and(|(epoch, _)| epoch > meta.epoch) {
            kept.broken = Some("an old owner opens the log after a newer one");
        }
        kept.confirmed = Some((meta.epoch, term));
    }

    /// The owner learns that messages were accepted by the destination.
    pub fn settled(&mut self, without: Option<LogRule>) {
        if without == Some(LogRule::HeadFirst) {
            let kept = Arc::make_mut(&mut self.0);
            let (before, delivered) = (kept.lane.effective_head(), kept.delivered.clone());
            kept.lane.settled(|entry| delivered.contains(&number_of(entry)), without);
            kept.check(before);
        }
    }
}

/// The name of the owner of a term.
pub fn name_of(term: u64) -> String {
    format!("o{term}")
}

impl Kept {
    fn check(&mut self, head_before: causeway_core::identity::Slot) {
        if self.lane.effective_head() < head_before {
            self.broken = Some("the head moved back");
        }
        self.check_promises();
    }

    fn check_promises(&mut self) {
        let mut at_risk = self.acknowledged.difference(&self.delivered).peekable();
        if at_risk.peek().is_some() {
            let recoverable: BTreeSet<u8> = self.lane.unsettled().map(number_of).collect();
            if at_risk.any(|message| !recoverable.contains(message)) {
                self.broken = Some("a message is acknowledged, and in neither log nor destination");
            }
        }
    }
}
