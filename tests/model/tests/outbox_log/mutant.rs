//! Rules of the protocol that the world can break on the owners' behalf, one at a time.

use crate::check::part_of;
use crate::store::Log;
use causeway_core::identity::{EntryId, Epoch, Id128, Slot};
use causeway_core::log::Registration;
use causeway_core::rows::{Head, Row, RowMeta};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The protocol as it is.
    None,
    /// The look at the tail that confirms an anchor is answered with that anchor, unseen.
    NoConfirm,
    /// Answers hide the epoch of the tail row.
    NoEpoch,
    /// With every head row written and every delete, a settled tail row goes too.
    DeleteTail,
    /// With every head row written and every delete, the anchors of older epochs go too.
    DeleteAnchors,
    /// A segment goes as soon as its last entry is settled, whatever the store knows of it.
    DeleteBeforeHead,
    /// After a conflict the look at the tail is answered with the row that was in the way, and the head that was known before.
    NoReread,
    /// The source sees a message acknowledged when its segment leaves for the store.
    AckBeforeStored,
    /// A put takes the slot, whatever stands there.
    NoSlotCondition,
    /// A head row is written over another of the same epoch, whichever was written first.
    NoRevision,
    /// Owners believe in one lane less than is registered.
    FewerLanes,
    /// A row of an equal or lower epoch in the way of a segment does not stop its owner: it appends behind it.
    FencedByHigherEpochsOnly,
    /// Rows are told apart by epoch and slot.
    IdsOfEpochAndSlot,
    /// Moving mail deletes it in a request of its own.
    MoveWithoutDelete,
    /// What an owner appends while it recovers is sent at once.
    MemoryFirst,
    /// The next part of a segment leaves before the one before is known to stand.
    ParallelParts,
    /// A head that stands before a segment in parts moves into it.
    HeadInsideSegment,
}

/// What an owner's answers told so far: what lies to it are made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub drained: Slot,
    pub own_anchor: Option<RowMeta>,
    pub conflict: Option<RowMeta>,
    /// The row that was put last.
    pub last_put: Option<RowMeta>,
}

impl Mutant {
    /// A lie instead of reading the tail.
    pub fn tail_lie(self, memory: &mut Memory) -> Option<RowMeta> {
        let (own, conflict) = (memory.own_anchor.take(), memory.conflict.take());
        match self {
            Self::NoConfirm => own,
            Self::NoReread => conflict.map(|meta| RowMeta { drained: memory.drained, ..meta }),
            _ => None,
        }
    }

    /// What an owner is told of the tail. `last_put`: the row that it put last.
    pub fn told(self, tail: Option<RowMeta>, last_put: Option<RowMeta>) -> Option<RowMeta> {
        match (self, tail, last_put) {
            (Self::NoEpoch, Some(meta), _) => Some(RowMeta { epoch: Epoch(0), ..meta }),
            (Self::IdsOfEpochAndSlot, Some(meta), Some(own)) if (meta.slot, meta.epoch) == (own.slot, own.epoch) => {
                Some(RowMeta { id: own.id, ..meta })
            }
            // Where its row found another place, it is told of the one that it expects.
            (Self::FencedByHigherEpochsOnly, Some(meta), Some(own)) if meta.id == own.id => Some(RowMeta { slot: own.slot, ..meta }),
            _ => tail,
        }
    }

    /// What an owner is told of the registry's record.
    pub fn record_told(self, record: Option<Registration>) -> Option<Registration> {
        record.map(|record| match self {
            Self::FewerLanes => Registration { lanes: (record.lanes - 1).max(1), ..record },
            Self::NoEpoch => Registration { epoch: Epoch(0), ..record },
            _ => record,
        })
    }

    /// A head row as it is written.
    pub fn head_row(self, log: &Log, head: &mut Head) {
        let next = head.drained.next();
        if self == Self::HeadInsideSegment && log.rows.get(&next).and_then(part_of).is_some_and(|part| part.index == 0) {
            head.drained = next;
        }
    }

    /// What disappears beside a head row or a delete of an owner of `epoch`.
    pub fn tidied(self, store: &mut Log, epoch: Epoch) {
        let tail = store.tail();
        if self == Self::DeleteTail && tail <= store.effective_head() && matches!(store.rows.get(&tail), Some(Row::Segment(_))) {
            store.rows.remove(&tail);
        }
        if self == Self::DeleteAnchors {
            store.rows.retain(|slot, row| *slot == tail || !matches!(row, Row::Anchor(_)) || row.epoch() >= epoch);
        }
    }

    /// What disappears once an owner has settled the entries `settled`; answers whether anything did.
    pub fn settled(self, store: &mut Log, settled: &BTreeSet<EntryId>, entries_of: &impl Fn(Id128) -> Vec<EntryId>) -> bool {
        let (tail, before) = (store.tail(), store.rows.len());
        if self == Self::DeleteBeforeHead {
            store.rows.retain(|slot, row| {
                *slot == tail || matches!(row, Row::Anchor(_)) || !entries_of(row.id()).iter().all(|entry| settled.contains(entry))
            });
        }
        store.rows.len() != before
    }
}
