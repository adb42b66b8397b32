//! The log's store, what is promised of it, and the rules of the log that the world can break on the owners' behalf.

use crate::automaton::number_of;
use causeway_core::identity::{Epoch, Position, Slot};
use causeway_core::log::{Answer, Call, Page, Put};
use causeway_core::outcome::Outcome;
use causeway_core::rows::{Head, Row, RowMeta, unpack};
use std::collections::{BTreeMap, BTreeSet};

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A put overwrites what stands at its slot.
    NoSlotCondition,
    /// The look at the tail that confirms an anchor is answered with that anchor, unseen.
    NoConfirm,
    /// Answers hide the epoch of the tail.
    NoEpoch,
    /// A settled tail goes with every head row and every delete.
    DeleteTail,
    /// A segment goes as soon as it is settled, whatever the store knows of it.
    DeleteBeforeHead,
    /// After a conflict the look at the tail is answered with the row in the way, and the head that was known before.
    NoReread,
    /// A foreign row fences only if its epoch is higher: else the put steps forward.
    FencesOnHigherEpochOnly,
}

/// What an owner's answers told so far: what lies to it are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    drained: Slot,
    own_anchor: Option<RowMeta>,
    conflict: Option<RowMeta>,
}

/// The log, and the ledger of what it has to keep.
#[derive(Clone, Debug, Default)]
pub struct Log {
    rows: BTreeMap<Slot, Row>,
    head: Option<Head>,
    /// Whose anchor was found to be the tail by its owner last, and its epoch.
    confirmed: Option<(Epoch, String)>,
    pub delivered: BTreeSet<u8>,
    pub acknowledged: BTreeSet<u8>,
    pub refused: bool,
    pub broken: Option<&'static str>,
}

impl Log {
    fn tail(&self) -> Slot {
        self.rows.last_key_value().map_or(Slot(0), |(slot, _)| *slot)
    }

    fn effective_head(&self) -> Slot {
        let of_tail = self.rows.last_key_value().map_or(Slot(0), |(_, row)| row.drained());
        self.head.as_ref().map_or(of_tail, |head| of_tail.max(head.drained))
    }

    /// What the next owner would take up.
    fn recoverable(&self) -> BTreeSet<u8> {
        let ranges = self.head.as_ref().map(|head| head.settled_ahead.as_slice()).unwrap_or_default();
        let mut found = BTreeSet::new();
        for (slot, row) in self.rows.range(self.effective_head().next()..) {
            let Row::Segment(segment) = row else { continue };
            for (index, entry) in (0_u32..).zip(unpack(segment).unwrap()) {
                let position = Position { slot: *slot, index };
                if !ranges.iter().any(|range| range.from <= position && position <= range.to) {
                    found.insert(number_of(&entry));
                }
            }
        }
        found
    }

    fn check(&mut self, head_before: Slot) {
        if self.effective_head() < head_before {
            self.broken = Some("the head moved back");
        }
        self.check_promises();
    }

    pub fn check_promises(&mut self) {
        let at_risk: Vec<u8> = self.acknowledged.difference(&self.delivered).copied().collect();
        if !at_risk.is_empty() {
            let recoverable = self.recoverable();
            if at_risk.iter().any(|message| !recoverable.contains(message)) {
                self.broken = Some("a message is acknowledged, and in neither log nor destination");
            }
        }
    }

    /// Carries out a call of the owner named `owner`, whose answer reaches it unless it gave up: then nothing is confirmed by it.
    pub fn call(&mut self, call: &Call, owner: &str, waits: bool, told: &mut Told, mutant: Option<Mutant>) -> Answer {
        let head_before = self.effective_head();
        let answer = match call {
            Call::ReadTail => Answer::Tail(Ok(self.read_tail(owner, waits, told, mutant))),
            Call::ReadHead => Answer::Head(Ok(self.head.clone())),
            Call::ReadRecord | Call::Register { .. } | Call::MoveMail { .. } => panic!("{call:?} is no call to the log"),
            Call::Put { slot, row } => Answer::Put(Outcome::Done(self.put(*slot, row, owner, told, mutant))),
            Call::ReadPage { purpose, after, up_to } => Answer::Page { purpose: *purpose, page: Ok(self.page(*after, *up_to)) },
            Call::PutHead { head } => {
                let forward = self.head.as_ref().is_none_or(|old| head.may_replace(old));
                if forward {
                    self.head = Some(head.clone());
                }
                self.tidy(mutant);
                Answer::HeadPut(Outcome::Done(forward))
            }
            Call::Delete { slots } => {
                self.rows.retain(|slot, _| !slots.contains(slot));
                self.tidy(mutant);
                Answer::Deleted(Outcome::Done(()))
            }
        };
        self.check(head_before);
        answer
    }

    fn read_tail(&mut self, owner: &str, waits: bool, told: &mut Told, mutant: Option<Mutant>) -> Option<RowMeta> {
        let (own, conflict) = (told.own_anchor.take(), told.conflict.take());
        let lie = match mutant {
            Some(Mutant::NoConfirm) => own,
            Some(Mutant::NoReread) => conflict.map(|meta| RowMeta { drained: told.drained, ..meta }),
            _ => None,
        };
        let tail = lie.or_else(|| self.rows.last_key_value().map(|(slot, row)| row.meta(*slot)));
        told.drained = tail.map_or(Slot(0), |meta| meta.drained);
        let confirms = tail.and_then(|meta| self.rows.get(&meta.slot).filter(|row| row.id() == meta.id).map(|row| (meta, row)));
        if let Some((meta, Row::Anchor(anchor))) = confirms
            && waits
            && anchor.owner == owner
        {
            if self.confirmed.as_ref().is_some_and(|(epoch, _)| *epoch > meta.epoch) {
                self.broken = Some("an old owner opens the log after a newer one");
            }
            self.confirmed = Some((meta.epoch, owner.to_owned()));
        }
        if mutant == Some(Mutant::NoEpoch) { tail.map(|meta| RowMeta { epoch: Epoch(0), ..meta }) } else { tail }
    }

    fn put(&mut self, slot: Slot, row: &Row, owner: &str, told: &mut Told, mutant: Option<Mutant>) -> Put {
        let mut slot = slot;
        if let Some(standing) = self.rows.get(&slot) {
            let foreign = standing.id() != row.id();
            let forward = mutant == Some(Mutant::FencesOnHigherEpochOnly)
                && matches!(row, Row::Segment(_))
                && foreign
                && standing.epoch() <= row.epoch();
            if forward {
                slot = self.tail().next();
            } else if mutant != Some(Mutant::NoSlotCondition) || !foreign {
                let meta = standing.meta(slot);
                if foreign {
                    self.refused = true;
                    told.conflict = Some(meta);
                    return Put::Occupied(meta);
                }
                if matches!(row, Row::Anchor(_)) {
                    told.own_anchor = Some(meta);
                }
                return Put::Stored;
            }
        }
        let head = self.effective_head();
        match row {
            Row::Anchor(_) => told.own_anchor = Some(row.meta(slot)),
            Row::Segment(_) => {
                if slot > head && self.confirmed.as_ref().is_some_and(|(_, last)| last != owner) {
                    self.broken = Some("an append of an old owner is accepted above the head");
                }
            }
        }
        self.rows.insert(slot, row.clone());
        Put::Stored
    }

    fn page(&self, after: Slot, up_to: Slot) -> Page {
        let rows = if after < up_to {
            self.rows.range(after.next()..=up_to).map(|(slot, row)| (*slot, row.clone())).collect()
        } else {
            Vec::new()
        };
        Page { rows, next_after: None }
    }

    fn tidy(&mut self, mutant: Option<Mutant>) {
        let tail = self.tail();
        if mutant == Some(Mutant::DeleteTail) && tail <= self.effective_head() && matches!(self.rows.get(&tail), Some(Row::Segment(_))) {
            self.rows.remove(&tail);
        }
    }

    /// The owner learns that messages were accepted by the destination.
    pub fn settled(&mut self, mutant: Option<Mutant>) {
        if mutant == Some(Mutant::DeleteBeforeHead) {
            let (tail, head_before, delivered) = (self.tail(), self.effective_head(), self.delivered.clone());
            self.rows.retain(|slot, row| match row {
                Row::Segment(segment) if *slot != tail => {
                    !unpack(segment).unwrap().iter().all(|entry| delivered.contains(&number_of(entry)))
                }
                Row::Segment(_) | Row::Anchor(_) => true,
            });
            self.check(head_before);
        }
    }
}
