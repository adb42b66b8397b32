//! Opening the log of a lane and appending to it.
//!
//! The writer of a lane decides nothing that concerns the other lanes: it tells what it found, and waits to be told with which epoch to go on.

mod append;
mod open;

use super::loader::Appended;
use super::patience::Patience;
use super::{Answer, Call};
use crate::identity::{ConnectionEpoch, DeliveryId, Epoch, IdSequence, Slot};
use crate::mailbox::Mail;
use crate::message::Entry;
use crate::outcome::Fault;
use crate::rows::{Head, RowMeta};
use crate::units::{Instant, UnixMillis};
use append::Append;
use core::time::Duration;
use open::Phase;
use std::collections::VecDeque;
use std::sync::Arc;

/// The lane counts as under load while the previous append began less than this many lingers ago. One linger would be exactly the distance of
/// two full groups at 1,000 messages a second, and flip between idle and load there.
pub const LOAD_LINGERS: u32 = 4;

/// What a row takes of packed entries: a DynamoDB item holds 400 KiB with keys and attributes, and the other stores keep the same rows.
pub const MAX_ROW_BYTES: usize = 384 * 1024;

/// How segments are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Entries in one segment at most.
    pub max_messages: usize,
    /// Bytes of a segment at most, counted before packing; a single larger entry has a segment of its own.
    pub max_bytes: usize,
    /// Bytes of packed entries in one row at most: a segment that has more stands in parts, one row after another.
    pub max_row_bytes: usize,
    /// How long a message may wait for others under load.
    pub linger: Duration,
    /// A put that took longer than this since its first attempt counts as stored only after a read of the tail.
    pub doubt_after: Duration,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            max_messages: 200,
            max_bytes: 256 * 1024,
            max_row_bytes: MAX_ROW_BYTES,
            linger: Duration::from_millis(10),
            doubt_after: Duration::from_secs(30),
        }
    }
}

/// An entry that waits to be made durable.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The entry.
    pub entry: Arc<Entry>,
    /// The delivery that it came by.
    pub delivery: DeliveryId,
    /// When it came.
    pub since: Instant,
}

/// Entries that are durable. Only an append that the store confirmed makes one, and only from one can an acknowledgement be taken.
#[derive(Clone, Debug)]
pub struct Stored {
    appended: Appended,
    deliveries: Vec<DeliveryId>,
    mail: usize,
    drained: Slot,
    took: Duration,
    bytes: usize,
}

impl Stored {
    /// The slot of the segment, or of its first part.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        self.appended.first
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.appended.entries
    }

    /// The delivery of each entry, in order; none where the entries are mail.
    #[must_use]
    pub fn deliveries(&self) -> &[DeliveryId] {
        &self.deliveries
    }

    /// How many pieces of mail were moved; 0 where the entries came from the source.
    #[must_use]
    pub const fn mail(&self) -> usize {
        self.mail
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

    /// Gives away what stands in the log, to be loaded.
    #[must_use]
    pub fn into_appended(self) -> Appended {
        self.appended
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
    /// The last row was read. Nothing goes on before [`Writer::go`] or [`Writer::reopen`].
    TailFound {
        /// The row.
        tail: Option<RowMeta>,
        /// An anchor of this writer's epoch was put already: it may be what was found.
        anchored: bool,
    },
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
    /// Mail was not moved, because some of it is not there any more.
    MailGone {
        /// How many pieces.
        pieces: usize,
        /// The parts of its segment that stand already, and belong to no whole.
        strays: Option<Appended>,
    },
    /// The retired anchor stands.
    Retired,
}

/// The single writer of one lane's log.
#[derive(Debug)]
pub struct Writer {
    options: SegmentOptions,
    owner: String,
    ids: IdSequence,
    phase: Phase,
    /// An anchor was raised under this epoch.
    anchored: bool,
    epoch: Epoch,
    tail: Slot,
    in_flight: bool,
    /// The answer that is under way counts for nothing: the log is opened anew.
    discards: bool,
    patience: Patience,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    mail: VecDeque<Mail>,
    append: Option<Append>,
    last_append_began: Option<Instant>,
    flushing: bool,
}

impl Writer {
    /// A writer that will open its log. `owner` names it for people; `ids` starts at a random base.
    #[must_use]
    pub fn new(options: SegmentOptions, owner: String, ids: IdSequence) -> Self {
        Self {
            options,
            owner,
            ids,
            phase: Phase::ReadTail,
            anchored: false,
            epoch: Epoch(0),
            tail: Slot(0),
            in_flight: false,
            discards: false,
            patience: Patience::default(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            mail: VecDeque::new(),
            append: None,
            last_append_began: None,
            flushing: false,
        }
    }

    /// The slot of the last row known to stand whose segment is whole.
    #[must_use]
    pub const fn tail(&self) -> Slot {
        self.tail
    }

    /// Whether the log is open.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Whether the log was closed for good.
    #[must_use]
    pub const fn is_retired(&self) -> bool {
        matches!(self.phase, Phase::Retired)
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
        self.patience.fault()
    }

    /// Entries of the source that are not durable yet, those in flight included.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len() + self.append.as_ref().map_or(0, Append::messages_pending)
    }

    /// Bytes of the entries not durable yet and not in flight.
    #[must_use]
    pub const fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// The entries of the source that are not durable yet, for counting.
    pub fn pending_entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let in_flight = self.append.iter().filter(|append| append.messages_pending() > 0).flat_map(Append::entries);
        self.pending.iter().map(|pending| &pending.entry).chain(in_flight)
    }

    /// Whether nothing waits to be written and nothing is being written.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.mail.is_empty() && self.append.is_none()
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

    /// Takes mail to be moved.
    pub fn push_mail(&mut self, mail: Mail) {
        self.mail.push_back(mail);
    }

    /// Gives up the mail that is not being moved yet: it stays in the mailbox. Answers how many pieces it was.
    pub fn forget_mail(&mut self) -> usize {
        core::mem::take(&mut self.mail).len()
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
        if self.in_flight || !self.patience.is_due(now) {
            return None;
        }
        let call = if self.is_running() { self.next_append(now, wall, drained) } else { self.next_of_opening(wall) }?;
        self.in_flight = true;
        self.patience.called();
        Some(call)
    }

    /// Whether the last call failed and is going to be made again.
    #[must_use]
    pub const fn backs_off(&self) -> bool {
        self.patience.wake_at().is_some()
    }

    /// When `poll` should be asked again although nothing happened.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        if self.in_flight {
            return None;
        }
        if self.patience.wake_at().is_some() {
            return self.patience.wake_at();
        }
        let first = self.pending.front()?;
        self.is_running().then(|| first.since.plus(self.options.linger))
    }

    /// Takes the answer to the last call.
    pub fn answer(&mut self, now: Instant, answer: Answer) -> Option<WriterEvent> {
        self.in_flight = false;
        if core::mem::take(&mut self.discards) {
            return None;
        }
        if self.is_running() { self.append_answered(now, answer) } else { self.opening_answered(now, answer) }
    }

    fn fenced(&mut self, found: RowMeta) {
        self.phase = Phase::Ended(WriterEnd::Fenced { found, same_or_older_epoch: found.epoch <= self.epoch });
    }

    fn failed(&mut self, now: Instant, fault: Fault) {
        self.patience.failed(now, fault);
    }
}
