//! The stores as plain maps, for the simulation and for the models: what every other store is measured by, and the rules that they can leave out.

use causeway_core::identity::{Epoch, Position, Slot};
use causeway_core::lease::Condition;
use causeway_core::lease::row::LeaseRow;
use causeway_core::log::{Page, Put};
use causeway_core::message::Entry;
use causeway_core::rows::{Head, Row, RowMeta, unpack};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether a lease row meets a condition.
#[must_use]
pub fn holds(condition: &Condition, row: Option<&LeaseRow>) -> bool {
    match (condition, row) {
        (Condition::Absent, row) => row.is_none(),
        (Condition::Exactly { tuple, evidence }, Some(row)) => row.tuple == *tuple && row.evidence == *evidence,
        (Condition::Held { owner, version }, Some(row)) => row.tuple.owner == *owner && row.tuple.version == *version,
        (Condition::Exactly { .. } | Condition::Held { .. }, None) => false,
    }
}

/// A rule of the lease that is left out, to see whether its absence is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRule {
    /// A claim is written whatever the row says by then.
    ClaimsAreConditional,
    /// An observer counts from the answer of its read, not from before it was sent.
    ObserversCountFromTheAnswer,
    /// A deadline counts from before the write was sent, not from its answer.
    OwnersStampBeforeSending,
    /// An observer does not add its own interval to what others observed.
    EvidenceIsNotSummed,
    /// What the orchestrator says of a task counts for the row that named it, which was read before the question; not for one that was read since.
    RowsAreReadBeforeTheQuestion,
    /// A task that is to stop has not stopped.
    OnlyStoppedCounts,
}

/// A rule of the log that is left out, to see whether its absence is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRule {
    /// A put does not overwrite what stands at its slot.
    SlotCondition,
    /// A put does not go to the end of the log when its slot is taken.
    Fence,
    /// The look at the tail that confirms an anchor is not answered with that anchor, unseen.
    Confirm,
    /// Answers do not hide the epoch of the tail.
    Epoch,
    /// A settled tail does not go with head rows and deletes.
    KeepTail,
    /// A segment does not go before the head that settles it is durable.
    HeadFirst,
    /// After a conflict the look at the tail is not answered with the row in the way, and the head that was known before.
    Reread,
    /// A foreign row fences, whatever its epoch; the put does not step forward past one whose epoch is not higher.
    FenceOnAnyEpoch,
}

/// A row, and what was packed into it.
#[derive(Clone, Debug)]
pub struct Kept {
    row: Arc<Row>,
    entries: Arc<[Entry]>,
}

impl Kept {
    /// The row.
    #[must_use]
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// Its entries; of an anchor none.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn of(row: &Arc<Row>) -> Self {
        let entries = match row.as_ref() {
            Row::Segment(segment) => unpack(segment).expect("a segment of our own").into(),
            Row::Anchor(_) => Arc::default(),
        };
        Self { row: Arc::clone(row), entries }
    }
}

/// One lane of a log.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    rows: BTreeMap<Slot, Kept>,
    head: Option<Head>,
}

impl Lane {
    /// The rows, by slot.
    #[must_use]
    pub const fn rows(&self) -> &BTreeMap<Slot, Kept> {
        &self.rows
    }

    /// The head row.
    #[must_use]
    pub const fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// The row that stands at a slot.
    #[must_use]
    pub fn standing(&self, slot: Slot) -> Option<&Row> {
        self.rows.get(&slot).map(Kept::row)
    }

    /// The slot of the last row.
    #[must_use]
    pub fn tail(&self) -> Slot {
        self.rows.last_key_value().map_or(Slot::HEAD, |(slot, _)| *slot)
    }

    /// The last row.
    #[must_use]
    pub fn tail_meta(&self) -> Option<RowMeta> {
        self.rows.last_key_value().map(|(slot, kept)| kept.row.meta(*slot))
    }

    /// Every slot up to this one is settled, as the next owner will see it: what stands there is garbage.
    #[must_use]
    pub fn effective_head(&self) -> Slot {
        let of_tail = self.rows.last_key_value().map_or(Slot::HEAD, |(_, kept)| kept.row.drained());
        self.head.as_ref().map_or(of_tail, |head| of_tail.max(head.drained))
    }

    /// What the next owner would take up.
    pub fn unsettled(&self) -> impl Iterator<Item = &Entry> {
        let ranges = self.head.as_ref().map(|head| head.settled_ahead.as_slice()).unwrap_or_default();
        let above = self.rows.range(self.effective_head().next()..);
        let positions = above
            .flat_map(|(slot, kept)| (0_u32..).zip(kept.entries()).map(move |(index, entry)| (Position { slot: *slot, index }, entry)));
        positions
            .filter(move |(position, _)| !ranges.iter().any(|range| range.from <= *position && *position <= range.to))
            .map(|(_, entry)| entry)
    }

    /// Puts a row if its slot is absent; answers, and tells where the row went, if it is new.
    pub fn put(&mut self, slot: Slot, row: &Arc<Row>, without: Option<LogRule>) -> (Put, Option<Slot>) {
        let mut slot = slot;
        if let Some(standing) = self.standing(slot) {
            if standing.id() == row.id() {
                return (Put::Stored, None);
            }
            let segment = matches!(**row, Row::Segment(_));
            match without {
                Some(LogRule::SlotCondition) => {}
                Some(LogRule::Fence) => slot = self.tail().next(),
                Some(LogRule::FenceOnAnyEpoch) if segment && standing.epoch() <= row.epoch() => slot = self.tail().next(),
                _ => return (Put::Occupied(standing.meta(slot)), None),
            }
        }
        self.rows.insert(slot, Kept::of(row));
        (Put::Stored, Some(slot))
    }

    /// Writes the head row, forward only; answers whether it was written.
    pub fn put_head(&mut self, head: &Head, without: Option<LogRule>) -> bool {
        let forward = self.head.as_ref().is_none_or(|old| head.may_replace(old));
        if forward {
            self.head = Some(head.clone());
        }
        self.tidy(without);
        forward
    }

    /// Deletes rows.
    pub fn delete(&mut self, slots: &[Slot], without: Option<LogRule>) {
        for slot in slots {
            self.rows.remove(slot);
        }
        self.tidy(without);
    }

    /// Rows after one slot up to another, `most` of them.
    #[must_use]
    pub fn page(&self, after: Slot, up_to: Slot, most: usize) -> Page {
        let mut page = Page::default();
        if after >= up_to {
            return page;
        }
        for (slot, kept) in self.rows.range(after.next()..=up_to) {
            if page.rows.len() >= most {
                page.next_after = page.rows.last().map(|(slot, _)| *slot);
                break;
            }
            page.rows.push((*slot, kept.row().clone()));
        }
        page
    }

    fn tidy(&mut self, without: Option<LogRule>) {
        let tail = self.tail();
        let is_segment = matches!(self.standing(tail), Some(Row::Segment(_)));
        if without == Some(LogRule::KeepTail) && tail <= self.effective_head() && is_segment {
            self.rows.remove(&tail);
        }
    }

    /// The owner learned that entries arrived; `arrived` tells which ever did.
    pub fn settled(&mut self, arrived: impl Fn(&Entry) -> bool, without: Option<LogRule>) {
        if without == Some(LogRule::HeadFirst) {
            let tail = self.tail();
            self.rows.retain(|slot, kept| *slot == tail || matches!(kept.row(), Row::Anchor(_)) || !kept.entries().iter().all(&arrived));
        }
    }
}

/// What a caller was told so far: what lies to it are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    drained: Slot,
    own_anchor: Option<RowMeta>,
    conflict: Option<RowMeta>,
}

impl Told {
    /// The tail, as the caller is told it, and the row that it is told of in truth.
    pub fn tail(&mut self, lane: &Lane, without: Option<LogRule>) -> Option<RowMeta> {
        let (own, conflict) = (self.own_anchor.take(), self.conflict.take());
        let lie = match without {
            Some(LogRule::Confirm) => own,
            Some(LogRule::Reread) => conflict.map(|meta| RowMeta { drained: self.drained, ..meta }),
            _ => None,
        };
        let tail = lie.or_else(|| lane.tail_meta());
        self.drained = tail.map_or(Slot::HEAD, |meta| meta.drained);
        tail
    }

    /// What the caller hears of a tail.
    #[must_use]
    pub fn heard(tail: Option<RowMeta>, without: Option<LogRule>) -> Option<RowMeta> {
        if without == Some(LogRule::Epoch) { tail.map(|meta| RowMeta { epoch: Epoch(0), ..meta }) } else { tail }
    }

    /// The caller put `row`, and that is how it ended.
    pub fn put(&mut self, slot: Slot, row: &Row, put: &Put) {
        match put {
            Put::Occupied(meta) => self.conflict = Some(*meta),
            Put::Stored if matches!(row, Row::Anchor(_)) => self.own_anchor = Some(row.meta(slot)),
            Put::Stored => {}
        }
    }
}
