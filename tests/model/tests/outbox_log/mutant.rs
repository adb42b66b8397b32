//! Rules of the protocol that the world can break on the owners' behalf, one at a time.

use crate::store::Store;
use causeway_core::identity::{EntryId, Epoch, Id128, Slot};
use causeway_core::rows::{Row, RowMeta};
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
}

/// What an owner's answers told so far: what lies to it are made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub drained: Slot,
    pub own_anchor: Option<RowMeta>,
    pub conflict: Option<RowMeta>,
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

    /// What an owner is told of the tail.
    pub fn told(self, tail: Option<RowMeta>) -> Option<RowMeta> {
        if self == Self::NoEpoch { tail.map(|meta| RowMeta { epoch: Epoch(0), ..meta }) } else { tail }
    }

    /// What disappears beside a head row or a delete of an owner of `epoch`.
    pub fn tidied(self, store: &mut Store, epoch: Epoch) {
        let tail = store.tail();
        if self == Self::DeleteTail && tail <= store.effective_head() && matches!(store.rows.get(&tail), Some(Row::Segment(_))) {
            store.rows.remove(&tail);
        }
        if self == Self::DeleteAnchors {
            store.rows.retain(|slot, row| *slot == tail || !matches!(row, Row::Anchor(_)) || row.epoch() >= epoch);
        }
    }

    /// What disappears once an owner has settled the entries `settled`; answers whether anything did.
    pub fn settled(self, store: &mut Store, settled: &BTreeSet<EntryId>, entries_of: impl Fn(Id128) -> Vec<EntryId>) -> bool {
        let (tail, before) = (store.tail(), store.rows.len());
        if self == Self::DeleteBeforeHead {
            store.rows.retain(|slot, row| {
                *slot == tail || matches!(row, Row::Anchor(_)) || !entries_of(row.id()).iter().all(|entry| settled.contains(entry))
            });
        }
        store.rows.len() != before
    }
}
