//! Opening a log and appending to it.

use super::{Answer, Call, Put};
use crate::identity::{ConnectionEpoch, DeliveryId, Epoch, Id128, IdSequence, Slot};
use crate::message::Entry;
use crate::outcome::{Fault, Outcome};
use crate::rows::{Anchor, CODEC_POSTCARD_ZSTD, Head, Row, RowMeta, Segment, pack};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

/// Segments close at a multiple of this under load, because the destination takes so many in one request.
const GROUP: usize = 10;

/// The lane counts as under load while the previous append began less than this many lingers ago. One linger would be exactly the distance of
/// two full groups at 1,000 messages a second, and flip between idle and load there.
pub const LOAD_LINGERS: u32 = 4;

/// The pause before a store call is tried again: doubles from the first to the last.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// How segments are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Entries in one segment at most.
    pub max_messages: usize,
    /// Bytes of a segment at most, counted before packing; a single larger entry has a segment of its own.
    pub max_bytes: usize,
    /// How long a message may wait for others under load.
    pub linger: Duration,
    /// A put that took longer than this since its first attempt counts as stored only after a read of the tail.
    pub doubt_after: Duration,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self { max_messages: 200, max_bytes: 256 * 1024, linger: Duration::from_millis(10), doubt_after: Duration::from_secs(30) }
    }
}

/// An entry that waits to be made durable.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The entry.
    pub entry: Arc<Entry>,
    /// The delivery that it came by.
    pub delivery: DeliveryId,
    /// Whether it is the delivery's last entry: once it is stored the delivery may be acknowledged.
    pub completes_delivery: bool,
    /// When it came.
    pub since: Instant,
}

/// Entries that are durable. Only an append that the store confirmed makes one, and only from one can an acknowledgement be taken.
#[derive(Clone, Debug)]
pub struct Stored {
    slot: Slot,
    entries: Vec<Arc<Entry>>,
    delivery: Option<DeliveryId>,
    drained: Slot,
    took: Duration,
    bytes: usize,
}

impl Stored {
    /// The segment's slot.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The newest delivery whose entries are all durable now.
    #[must_use]
    pub const fn delivery(&self) -> Option<DeliveryId> {
        self.delivery
    }

    /// The head that the row carries: durable with it.
    #[must_use]
    pub const fn drained(&self) -> Slot {
        self.drained
    }

    /// From the first attempt to the confirmation.
    #[must_use]
    pub const fn took(&self) -> Duration {
        self.took
    }

    /// The packed body's bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the entries away.
    #[must_use]
    pub fn into_entries(self) -> Vec<Arc<Entry>> {
        self.entries
    }
}

/// Why a writer stopped for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterEnd {
    /// Another owner wrote where this one was about to.
    Fenced {
        /// The foreign row.
        found: RowMeta,
        /// The row's epoch is not above this writer's: two writers share an epoch, which must be looked into.
        same_or_older_epoch: bool,
    },
    /// The log is ahead of the lease that gave this writer its epoch: the lease table was restored or made anew. The lease's version has to be raised
    /// above `found`, if the lease is still held.
    EpochTooLow {
        /// The epoch of the log's last row.
        found: Epoch,
    },
    /// The log cannot be written or read by this release.
    Unusable(Fault),
}

/// What a call's answer led to.
#[derive(Debug)]
pub enum WriterEvent {
    /// The log is open: nothing of this owner was written before, and everything between `head` and `anchor` is to be loaded.
    Opened {
        /// The head row, if there is one.
        head: Option<Head>,
        /// The head to start from.
        drained: Slot,
        /// This owner's anchor.
        anchor: Slot,
    },
    /// A segment is durable.
    Stored(Stored),
}

#[derive(Clone, Debug)]
enum Phase {
    ReadTail,
    Register { tail: Slot, drained: Slot },
    PutAnchor { slot: Slot, row: Arc<Row> },
    Confirm { slot: Slot, id: Id128, drained: Slot },
    ReadHead { anchor: Slot, drained: Slot },
    Running,
    Ended(WriterEnd),
}

#[derive(Debug)]
struct Append {
    slot: Slot,
    row: Arc<Row>,
    entries: Vec<Arc<Entry>>,
    delivery: Option<DeliveryId>,
    began: Instant,
    doubtful: bool,
    /// The put was answered with "stored", and only the tail can tell whether it still counts.
    verifying: bool,
    bytes: usize,
}

/// The single writer of one log.
#[derive(Debug)]
pub struct Writer {
    options: SegmentOptions,
    owner: String,
    ids: IdSequence,
    phase: Phase,
    chooses_epoch: bool,
    /// Whether an anchor of this writer may stand in the log already.
    anchored: bool,
    epoch: Epoch,
    tail: Slot,
    in_flight: bool,
    retry_at: Option<Instant>,
    failures: u32,
    last_fault: Option<Fault>,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    append: Option<Append>,
    last_append_began: Option<Instant>,
    flushing: bool,
}

impl Writer {
    /// A writer that will open its log. `owner` names it for people; `ids` starts at a random base. `epoch` is the one that a lease gave it;
    /// without a lease it takes one above the log's last.
    #[must_use]
    pub fn new(options: SegmentOptions, owner: String, ids: IdSequence, epoch: Option<Epoch>) -> Self {
        Self {
            options,
            owner,
            ids,
            phase: Phase::ReadTail,
            chooses_epoch: epoch.is_none(),
            anchored: false,
            epoch: epoch.unwrap_or_default(),
            tail: Slot(0),
            in_flight: false,
            retry_at: None,
            failures: 0,
            last_fault: None,
            pending: VecDeque::new(),
            pending_bytes: 0,
            append: None,
            last_append_began: None,
            flushing: false,
        }
    }

    /// The epoch that this writer opened, or tries to open, the log with.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The slot of the last row known to stand.
    #[must_use]
    pub const fn tail(&self) -> Slot {
        self.tail
    }

    /// Whether the log is open.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Why it stopped for good, if it did.
    #[must_use]
    pub const fn end(&self) -> Option<&WriterEnd> {
        match &self.phase {
            Phase::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// The last fault, until a call succeeds.
    #[must_use]
    pub const fn fault(&self) -> Option<&Fault> {
        self.last_fault.as_ref()
    }

    /// Entries not durable yet, those in flight included.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len() + self.append.as_ref().map_or(0, |append| append.entries.len())
    }

    /// Bytes of the entries not durable yet and not in flight.
    #[must_use]
    pub const fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// The entries not durable yet, for counting.
    pub fn pending_entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.pending.iter().map(|pending| &pending.entry).chain(self.append.iter().flat_map(|append| &append.entries))
    }

    /// When the last append began.
    #[must_use]
    pub const fn last_append_began(&self) -> Option<Instant> {
        self.last_append_began
    }

    /// Takes an entry to be made durable.
    pub fn push(&mut self, pending: Pending) {
        self.pending_bytes += pending.entry.message.weight();
        self.pending.push_back(pending);
    }

    /// Gives up what came by `connection` and is not being written yet: it can no longer be acknowledged, and the source brings it again.
    pub fn forget(&mut self, connection: ConnectionEpoch) -> Vec<Arc<Entry>> {
        let (gone, kept): (VecDeque<Pending>, VecDeque<Pending>) =
            core::mem::take(&mut self.pending).into_iter().partition(|pending| pending.delivery.connection == connection);
        self.pending = kept;
        self.pending_bytes = self.pending.iter().map(|pending| pending.entry.message.weight()).sum();
        gone.into_iter().map(|pending| pending.entry).collect()
    }

    /// From now on nothing waits for company.
    pub fn flush(&mut self) {
        self.flushing = true;
    }

    /// The call to make now, if any. `drained` is the head that a row written now may carry.
    pub fn poll(&mut self, now: Instant, wall: UnixMillis, drained: Slot) -> Option<Call> {
        if self.in_flight || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        let call = match &self.phase {
            Phase::ReadTail | Phase::Confirm { .. } => Call::ReadTail,
            Phase::Register { .. } => Call::Register { epoch: self.epoch },
            Phase::PutAnchor { slot, row } => Call::Put { slot: *slot, row: Arc::clone(row) },
            Phase::ReadHead { .. } => Call::ReadHead,
            Phase::Running => self.next_append(now, wall, drained)?,
            Phase::Ended(_) => return None,
        };
        self.in_flight = true;
        self.retry_at = None;
        Some(call)
    }

    /// When `poll` should be asked again although nothing happened.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        if self.in_flight {
            return None;
        }
        if self.retry_at.is_some() {
            return self.retry_at;
        }
        let first = self.pending.front()?;
        matches!(self.phase, Phase::Running).then(|| first.since.plus(self.options.linger))
    }

    fn next_append(&mut self, now: Instant, wall: UnixMillis, drained: Slot) -> Option<Call> {
        if let Some(append) = &self.append {
            return Some(if append.verifying { Call::ReadTail } else { Call::Put { slot: append.slot, row: Arc::clone(&append.row) } });
        }
        let count = self.closing_count(now)?;
        let taken: Vec<Pending> = self.pending.drain(..count).collect();
        self.pending_bytes -= taken.iter().map(|pending| pending.entry.message.weight()).sum::<usize>();
        let delivery = taken.iter().rev().find(|pending| pending.completes_delivery).map(|pending| pending.delivery);
        let entries: Vec<Arc<Entry>> = taken.into_iter().map(|pending| pending.entry).collect();
        let body = match pack(&entries) {
            Ok(body) => body,
            Err(error) => {
                self.phase = Phase::Ended(WriterEnd::Unusable(Fault::new(crate::outcome::FaultCode::ProtocolError, error.to_string())));
                return None;
            }
        };
        let bytes = body.len();
        let row = Arc::new(Row::Segment(Segment {
            epoch: self.epoch,
            segment_id: self.ids.take(),
            count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            codec: CODEC_POSTCARD_ZSTD,
            body,
            created_at: wall,
            earliest_expiry: entries.iter().filter_map(|entry| entry.expires_at).min(),
            drained,
        }));
        let slot = self.tail.next();
        self.append = Some(Append { slot, row: Arc::clone(&row), entries, delivery, began: now, doubtful: false, verifying: false, bytes });
        self.last_append_began = Some(now);
        Some(Call::Put { slot, row })
    }

    /// How many pending entries make the next segment, if one is to be closed now.
    fn closing_count(&self, now: Instant) -> Option<usize> {
        let first = self.pending.front()?;
        let mut bytes = 0;
        let fit = self
            .pending
            .iter()
            .take(self.options.max_messages)
            .take_while(|pending| {
                bytes += pending.entry.message.weight();
                bytes <= self.options.max_bytes
            })
            .count()
            .max(1);
        let full = fit < self.pending.len() || fit == self.options.max_messages;
        let under_load = self.last_append_began.is_some_and(|began| now.since(began) < self.options.linger * LOAD_LINGERS);
        if !under_load || self.flushing || (full && fit < GROUP) {
            return Some(fit);
        }
        if fit >= GROUP {
            return Some(fit - fit % GROUP);
        }
        (now.since(first.since) >= self.options.linger).then_some(fit)
    }

    /// Takes the answer to the last call.
    pub fn answer(&mut self, now: Instant, wall: UnixMillis, answer: Answer) -> Option<WriterEvent> {
        self.in_flight = false;
        let phase = self.phase.clone();
        match (phase, answer) {
            (
                _,
                Answer::Tail(Err(fault)) | Answer::Head(Err(fault)) | Answer::Registered(Outcome::NotDone(fault) | Outcome::Unknown(fault)),
            ) => {
                self.failed(now, fault);
                None
            }
            (Phase::ReadTail, Answer::Tail(Ok(tail))) => {
                self.succeeded();
                self.tail_read(tail);
                None
            }
            (Phase::Register { tail, drained }, Answer::Registered(Outcome::Done(_))) => {
                // A record of a higher epoch stands where another owner is opening too; the anchors decide between the two.
                self.succeeded();
                self.raise_anchor(wall, tail, drained);
                None
            }
            (Phase::PutAnchor { slot, row }, Answer::Put(outcome)) => {
                self.anchor_put(now, slot, &row, outcome);
                None
            }
            (Phase::Confirm { slot, id, drained }, Answer::Tail(Ok(tail))) => {
                self.succeeded();
                match tail {
                    Some(meta) if meta.slot == slot && meta.id == id => {
                        self.phase = Phase::ReadHead { anchor: slot, drained: drained.max(meta.drained) };
                    }
                    Some(meta) if meta.epoch > self.epoch => self.fenced(meta),
                    Some(_) | None => self.phase = Phase::ReadTail,
                }
                None
            }
            (Phase::ReadHead { anchor, drained }, Answer::Head(Ok(head))) => {
                self.succeeded();
                self.phase = Phase::Running;
                self.tail = anchor;
                let drained = head.as_ref().map_or(drained, |head| drained.max(head.drained));
                Some(WriterEvent::Opened { head, drained, anchor })
            }
            (Phase::Running, Answer::Put(outcome)) => self.segment_put(now, outcome),
            (Phase::Running, Answer::Tail(Ok(tail))) => self.segment_verified(now, tail),
            _ => {
                debug_assert!(false, "an answer to a question that was not asked");
                None
            }
        }
    }

    fn tail_read(&mut self, tail: Option<RowMeta>) {
        let (slot, epoch, drained) = tail.map_or((Slot(0), Epoch(0), Slot(0)), |meta| (meta.slot, meta.epoch, meta.drained));
        // Without a lease the epoch is the writer's own choice: one above what it finds. Meeting an equal one on a second look means that another
        // writer chose the same at the same time; one of the two steps up, and the anchors decide.
        if self.chooses_epoch && (self.epoch == Epoch(0) || epoch == self.epoch) {
            self.epoch = epoch.next();
        } else if epoch > self.epoch || (epoch == self.epoch && !self.anchored) {
            // With a lease: overtaken by a newer owner, or a lease that is older than the log; the lease row tells which. Without one: overtaken.
            match tail {
                Some(_) if !self.chooses_epoch => self.phase = Phase::Ended(WriterEnd::EpochTooLow { found: epoch }),
                Some(meta) => self.fenced(meta),
                None => {}
            }
            return;
        }
        self.phase = Phase::Register { tail: slot, drained };
    }

    fn raise_anchor(&mut self, wall: UnixMillis, tail: Slot, drained: Slot) {
        let anchor =
            Anchor { epoch: self.epoch, anchor_id: self.ids.take(), owner: self.owner.clone(), opened_at: wall, drained, retired: false };
        self.anchored = true;
        self.phase = Phase::PutAnchor { slot: tail.next(), row: Arc::new(Row::Anchor(anchor)) };
    }

    fn anchor_put(&mut self, now: Instant, slot: Slot, row: &Row, outcome: Outcome<Put>) {
        match outcome {
            Outcome::Done(Put::Stored) => {
                self.succeeded();
                self.phase = Phase::Confirm { slot, id: row.id(), drained: row.drained() };
            }
            Outcome::Done(Put::Occupied(meta)) if meta.id == row.id() => {
                self.succeeded();
                self.phase = Phase::Confirm { slot, id: row.id(), drained: row.drained() };
            }
            Outcome::Done(Put::Occupied(meta)) if meta.epoch > self.epoch => self.fenced(meta),
            // Never a blind step forward: the anchor would carry an old `drained`, and the head would fall back.
            Outcome::Done(Put::Occupied(_)) => self.phase = Phase::ReadTail,
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => self.failed(now, fault),
        }
    }

    fn segment_put(&mut self, now: Instant, outcome: Outcome<Put>) -> Option<WriterEvent> {
        let append = self.append.as_mut()?;
        match outcome {
            Outcome::Done(Put::Stored) => {
                if append.doubtful || now.since(append.began) > self.options.doubt_after {
                    append.verifying = true;
                    self.succeeded();
                    return None;
                }
                self.succeeded();
                self.stored(now)
            }
            Outcome::Done(Put::Occupied(meta)) if meta.id == append.row.id() => {
                append.verifying = true;
                self.succeeded();
                None
            }
            Outcome::Done(Put::Occupied(meta)) => {
                self.fenced(meta);
                None
            }
            Outcome::NotDone(fault) => {
                self.failed(now, fault);
                None
            }
            Outcome::Unknown(fault) => {
                append.doubtful = true;
                self.failed(now, fault);
                None
            }
        }
    }

    fn segment_verified(&mut self, now: Instant, tail: Option<RowMeta>) -> Option<WriterEvent> {
        self.succeeded();
        let append = self.append.as_mut()?;
        match tail {
            Some(meta) if meta.slot == append.slot && meta.id == append.row.id() => self.stored(now),
            Some(meta) if meta.slot >= append.slot => {
                self.fenced(meta);
                None
            }
            // The row is not there after all: put it again.
            Some(_) | None => {
                append.verifying = false;
                None
            }
        }
    }

    fn stored(&mut self, now: Instant) -> Option<WriterEvent> {
        let append = self.append.take()?;
        self.tail = append.slot;
        Some(WriterEvent::Stored(Stored {
            slot: append.slot,
            entries: append.entries,
            delivery: append.delivery,
            drained: append.row.drained(),
            took: now.since(append.began),
            bytes: append.bytes,
        }))
    }

    fn fenced(&mut self, found: RowMeta) {
        self.phase = Phase::Ended(WriterEnd::Fenced { found, same_or_older_epoch: found.epoch <= self.epoch });
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        self.last_fault = None;
    }

    fn failed(&mut self, now: Instant, fault: Fault) {
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(10)).min(RETRY_LAST);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now.plus(fault.retry_after.unwrap_or(pause)));
        self.last_fault = Some(fault);
    }
}
