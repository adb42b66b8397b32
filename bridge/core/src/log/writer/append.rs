//! Group commit: one append in flight, and what comes meanwhile goes into the next one.

use super::open::Phase;
use super::{LOAD_LINGERS, Pending, Stored, Writer, WriterEnd, WriterEvent};
use crate::identity::{DeliveryId, Slot};
use crate::log::{Answer, Call, Moved, Put};
use crate::mailbox::MAX_MOVE_ROWS;
use crate::message::Entry;
use crate::outcome::{Fault, FaultCode, Outcome};
use crate::rows::{CODEC_POSTCARD_ZSTD, Row, RowMeta, Segment, pack};
use crate::units::{Instant, UnixMillis};
use std::sync::Arc;

/// Segments close at a multiple of this under load, because the destination takes so many in one request.
const GROUP: usize = 10;

/// A row on its way to the slot after the tail.
#[derive(Debug)]
pub(super) struct Append {
    slot: Slot,
    row: Arc<Row>,
    entries: Vec<Arc<Entry>>,
    /// The delivery of each entry that came from the source.
    deliveries: Vec<DeliveryId>,
    /// The mail that the entries are moved from.
    mail: Option<Arc<[String]>>,
    began: Instant,
    doubtful: bool,
    /// Only the tail can tell whether the row stands and counts.
    verifying: bool,
    bytes: usize,
}

impl Append {
    /// How many of its entries came from the source.
    pub(super) fn messages_pending(&self) -> usize {
        if self.mail.is_some() { 0 } else { self.entries.len() }
    }

    pub(super) fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    fn call(&self) -> Call {
        if self.verifying {
            return Call::ReadTail;
        }
        let (slot, row) = (self.slot, Arc::clone(&self.row));
        match &self.mail {
            Some(ids) => Call::MoveMail { slot, row, ids: Arc::clone(ids) },
            None => Call::Put { slot, row },
        }
    }
}

impl Writer {
    /// Closes the log for good: everything in it is settled and nothing is being written. An anchor tells the next owner so.
    pub fn retire(&mut self, now: Instant, wall: UnixMillis, drained: Slot) {
        debug_assert!(self.is_idle() && drained >= self.tail, "only a log that is drained is closed");
        if self.is_running() && self.is_idle() {
            let row = Row::Anchor(self.anchor(wall, drained, true));
            self.begin(now, row, Vec::new(), Vec::new(), None);
        }
    }

    fn begin(&mut self, now: Instant, row: Row, entries: Vec<Arc<Entry>>, deliveries: Vec<DeliveryId>, mail: Option<Arc<[String]>>) {
        let bytes = if let Row::Segment(segment) = &row { segment.body.len() } else { 0 };
        self.append = Some(Append {
            slot: self.tail.next(),
            row: Arc::new(row),
            entries,
            deliveries,
            mail,
            began: now,
            doubtful: false,
            verifying: false,
            bytes,
        });
    }

    pub(super) fn next_append(&mut self, now: Instant, wall: UnixMillis, drained: Slot) -> Option<Call> {
        if self.append.is_none() {
            // Mail is rare and comes in bounded lots: it takes its turn before what the source brings.
            if self.mail.is_empty() { self.begin_segment(now, wall, drained)? } else { self.begin_move(now, wall, drained)? }
        }
        self.append.as_ref().map(Append::call)
    }

    fn begin_segment(&mut self, now: Instant, wall: UnixMillis, drained: Slot) -> Option<()> {
        let count = self.closing_count(now)?;
        let taken: Vec<Pending> = self.pending.drain(..count).collect();
        self.pending_bytes -= taken.iter().map(|pending| pending.entry.message.weight()).sum::<usize>();
        let (entries, deliveries): (Vec<Arc<Entry>>, Vec<DeliveryId>) =
            taken.into_iter().map(|pending| (pending.entry, pending.delivery)).unzip();
        let row = self.segment(wall, drained, &entries)?;
        self.last_append_began = Some(now);
        self.begin(now, row, entries, deliveries, None);
        Some(())
    }

    fn begin_move(&mut self, now: Instant, wall: UnixMillis, drained: Slot) -> Option<()> {
        let mut bytes = 0;
        let fit = self
            .mail
            .iter()
            .take(self.options.max_messages.min(MAX_MOVE_ROWS))
            .take_while(|mail| {
                bytes += mail.entry.message.weight();
                bytes <= self.options.max_bytes
            })
            .count()
            .max(1);
        let (ids, entries): (Vec<String>, Vec<Arc<Entry>>) = self.mail.drain(..fit).map(|mail| (mail.id, mail.entry)).unzip();
        let row = self.segment(wall, drained, &entries)?;
        self.last_append_began = Some(now);
        self.begin(now, row, entries, Vec::new(), Some(ids.into()));
        Some(())
    }

    fn segment(&mut self, wall: UnixMillis, drained: Slot, entries: &[Arc<Entry>]) -> Option<Row> {
        let body = match pack(entries) {
            Ok(body) => body,
            Err(error) => {
                self.phase = Phase::Ended(WriterEnd::Unusable(Fault::new(FaultCode::ProtocolError, error.to_string())));
                return None;
            }
        };
        Some(Row::Segment(Segment {
            epoch: self.epoch,
            segment_id: self.ids.take(),
            count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            codec: CODEC_POSTCARD_ZSTD,
            body,
            created_at: wall,
            earliest_expiry: entries.iter().filter_map(|entry| entry.expires_at).min(),
            drained,
        }))
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

    pub(super) fn append_answered(&mut self, now: Instant, answer: Answer) -> Option<WriterEvent> {
        match answer {
            Answer::Tail(Ok(tail)) => self.append_verified(now, tail),
            Answer::Tail(Err(fault)) => {
                self.failed(now, fault);
                None
            }
            Answer::Put(outcome) => self.append_put(now, outcome),
            Answer::Moved(outcome) => self.mail_moved(now, outcome),
            _ => {
                debug_assert!(false, "an answer to a question that was not asked");
                None
            }
        }
    }

    fn append_put(&mut self, now: Instant, outcome: Outcome<Put>) -> Option<WriterEvent> {
        match outcome {
            Outcome::Done(Put::Stored) => self.answered_stored(now),
            Outcome::Done(Put::Occupied(meta)) => {
                self.occupied(meta);
                None
            }
            Outcome::NotDone(fault) => {
                self.failed(now, fault);
                None
            }
            Outcome::Unknown(fault) => {
                self.append.as_mut()?.doubtful = true;
                self.failed(now, fault);
                None
            }
        }
    }

    fn mail_moved(&mut self, now: Instant, outcome: Outcome<Moved>) -> Option<WriterEvent> {
        match outcome {
            Outcome::Done(Moved::Stored) => self.answered_stored(now),
            Outcome::Done(Moved::Occupied(meta)) => {
                self.occupied(meta);
                None
            }
            Outcome::Done(Moved::MailGone) => {
                self.patience.succeeded();
                let append = self.append.take()?;
                Some(WriterEvent::MailGone(append.entries.len()))
            }
            Outcome::NotDone(fault) => {
                self.failed(now, fault);
                None
            }
            // Whether it happened is to be seen at the slot.
            Outcome::Unknown(fault) => {
                let append = self.append.as_mut()?;
                append.doubtful = true;
                append.verifying = true;
                self.failed(now, fault);
                None
            }
        }
    }

    fn answered_stored(&mut self, now: Instant) -> Option<WriterEvent> {
        self.patience.succeeded();
        let append = self.append.as_mut()?;
        if append.doubtful || now.since(append.began) > self.options.doubt_after {
            append.verifying = true;
            return None;
        }
        self.stored(now)
    }

    fn occupied(&mut self, meta: RowMeta) {
        match &mut self.append {
            Some(append) if meta.id == append.row.id() => {
                append.verifying = true;
                self.patience.succeeded();
            }
            _ => self.fenced(meta),
        }
    }

    fn append_verified(&mut self, now: Instant, tail: Option<RowMeta>) -> Option<WriterEvent> {
        self.patience.succeeded();
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
        if matches!(append.row.as_ref(), Row::Anchor(_)) {
            self.phase = Phase::Retired;
            return Some(WriterEvent::Retired);
        }
        Some(WriterEvent::Stored(Stored {
            slot: append.slot,
            mail: append.mail.map_or(0, |ids| ids.len()),
            entries: append.entries,
            deliveries: append.deliveries,
            drained: append.row.drained(),
            took: now.since(append.began),
            bytes: append.bytes,
        }))
    }
}
