//! The store as plain maps: the reference that every other store is measured by.

use crate::mutant::Mutant;
use causeway_core::identity::{LaneId, Slot};
use causeway_core::log::{Moved, Page, Put, Registration};
use causeway_core::mailbox::Mail;
use causeway_core::rows::{Head, Row, RowMeta};
use std::collections::BTreeMap;

/// The log of one lane.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub rows: BTreeMap<Slot, Row>,
    pub head: Option<Head>,
}

/// Every lane's log, the registry's record and the mailbox.
#[derive(Clone, Debug, Default)]
pub struct Store {
    pub logs: BTreeMap<LaneId, Log>,
    pub record: Option<Registration>,
    pub mail: BTreeMap<String, Mail>,
}

impl Store {
    pub fn log(&mut self, lane: LaneId) -> &mut Log {
        self.logs.entry(lane).or_default()
    }

    /// The lanes that the registry names.
    pub fn registered(&self) -> impl Iterator<Item = (LaneId, &Log)> {
        let lanes = self.record.map_or(0, |record| record.lanes);
        self.logs.iter().filter(move |(lane, _)| lane.0 < lanes).map(|(lane, log)| (*lane, log))
    }

    /// Writes the record if `replaces` stands there.
    pub fn register(&mut self, record: Registration, replaces: Option<Registration>) -> bool {
        let holds = self.record == replaces;
        if holds {
            self.record = Some(record);
        }
        holds
    }

    /// Moves mail into the log, in one transaction.
    pub fn move_mail(&mut self, lane: LaneId, slot: Slot, row: &Row, ids: &[String], mutant: Mutant) -> Moved {
        let gone = !ids.iter().all(|id| self.mail.contains_key(id));
        let log = self.log(lane);
        match log.rows.get(&slot) {
            Some(standing) if standing.id() == row.id() => return Moved::Stored,
            Some(standing) => return Moved::Occupied(standing.meta(slot)),
            None if gone && mutant != Mutant::MoveWithoutDelete => return Moved::MailGone,
            None => log.rows.insert(slot, row.clone()),
        };
        if mutant != Mutant::MoveWithoutDelete {
            self.mail.retain(|id, _| !ids.contains(id));
        }
        Moved::Stored
    }
}

impl Log {
    pub fn tail(&self) -> Slot {
        self.rows.last_key_value().map_or(Slot(0), |(slot, _)| *slot)
    }

    pub fn tail_meta(&self) -> Option<RowMeta> {
        self.rows.last_key_value().map(|(slot, row)| row.meta(*slot))
    }

    /// Rows up to here are garbage, whatever they hold.
    pub fn effective_head(&self) -> Slot {
        let of_tail = self.rows.last_key_value().map_or(Slot(0), |(_, row)| row.drained());
        self.head.as_ref().map_or(of_tail, |head| of_tail.max(head.drained))
    }

    pub fn put(&mut self, slot: Slot, row: &Row, mutant: Mutant) -> Put {
        if mutant == Mutant::NoSlotCondition {
            self.rows.insert(slot, row.clone());
            return Put::Stored;
        }
        let Some(standing) = self.rows.get(&slot) else {
            self.rows.insert(slot, row.clone());
            return Put::Stored;
        };
        if standing.id() == row.id() || mutant == Mutant::IdsOfEpochAndSlot && standing.epoch() == row.epoch() {
            return Put::Stored;
        }
        if mutant == Mutant::FencedByHigherEpochsOnly && matches!(row, Row::Segment(_)) && standing.epoch() <= row.epoch() {
            // It finds room behind what is in its way.
            let free = self.tail().next();
            if !self.rows.values().any(|row_there| row_there.id() == row.id()) {
                self.rows.insert(free, row.clone());
            }
            return Put::Stored;
        }
        Put::Occupied(standing.meta(slot))
    }

    pub fn put_head(&mut self, head: &Head, mutant: Mutant) -> bool {
        let forward = self.head.as_ref().is_none_or(|old| {
            let without_revision = mutant == Mutant::NoRevision && head.epoch >= old.epoch && head.drained >= old.drained;
            without_revision || head.may_replace(old)
        });
        if forward {
            self.head = Some(head.clone());
        }
        forward
    }

    pub fn page(&self, after: Slot, up_to: Slot, most: usize) -> Page {
        let mut page = Page::default();
        if after < up_to {
            for (slot, row) in self.rows.range(after.next()..=up_to) {
                if page.rows.len() >= most {
                    page.next_after = page.rows.last().map(|(slot, _)| *slot);
                    break;
                }
                page.rows.push((*slot, row.clone()));
            }
        }
        page
    }
}
