//! Group commit: one append in flight, and what comes meanwhile goes into the next one.

use super::open::Phase;
use super::{LOAD_LINGERS, Pending, Stored, Writer, WriterEnd, WriterEvent};
use crate::identity::{DeliveryId, Slot};
use crate::log::loader::Appended;
use crate::log::{Answer, Call, Moved, Put};
use crate::mailbox::MAX_MOVE_ROWS;
use crate::message::Entry;
use crate::outcome::{Fault, FaultCode, Outcome};
use crate::rows::{CODEC_PART, CODEC_POSTCARD_ZSTD, PackError, Row, RowMeta, Segment, pack, split};
use crate::units::{Instant, UnixMillis};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Segments close at a multiple of this under load, because the destination takes so many in one request.
const GROUP: usize = 10;

/// What is on its way to the slots after the tail: one row, or the parts of one segment, one after another.
#[derive(Debug)]
pub(super) struct Append {
    first: Slot,
    /// The slot of `row`.
    slot: Slot,
    row: Arc<Row>,
    /// The bodies of the parts that follow once `row` is known to stand.
    rest: VecDeque<Bytes>,
    entries: Vec<Arc<Entry>>,
    /// The delivery of each entry that came from the source.
    deliveries: Vec<DeliveryId>,
    /// The mail that the entries are moved from.
    mail: Option<Arc<[String]>>,
    began: Instant,
    /// When `row` was first sent.
    row_began: Instant,
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
            // The last part decides: with it the segment is whole and the mail is gone, and without it the parts before are nothing.
            Some(ids) if self.rest.is_empty() => Call::MoveMail { slot, row, ids: Arc::clone(ids) },
            Some(_) | None => Call::Put { slot, row },
        }
    }
}

impl Writer {
    /// Closes the log for good: everything in it is settled and nothing is being written. An anchor tells the next owner so.
    pub fn retire(&mut self, now: Instant, wall: UnixMillis, drained: Slot) {
        debug_assert!(self.is_idle() && drained >= self.tail, "only a log that is drained is closed");
        if self.is_running() && self.is_idle() {
            let row = Row::Anchor(self.anchor(wall, drained, true));
            self.begin(now, row, VecDeque::new(), Vec::new(), Vec::new(), None);
        }
    }

    fn begin(
        &mut self,
        now: Instant,
        row: Row,
        rest: VecDeque<Bytes>,
        entries: Vec<Arc<Entry>>,
        deliveries: Vec<DeliveryId>,
        mail: Option<Arc<[String]>>,
    ) {
        let of_row = if let Row::Segment(segment) = &row { segment.body.len() } else { 0 };
        let bytes = of_row + rest.iter().map(Bytes::len).sum::<usize>();
        let slot = self.tail.next();
        self.append = Some(Append {
            first: slot,
            slot,
            row: Arc::new(row),
            rest,
            entries,
            deliveries,
            mail,
            began: now,
            row_began: now,
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
        let (row, rest) = self.segment(wall, drained, &entries, self.options.max_row_bytes)?;
        self.last_append_began = Some(now);
        self.begin(now, row, rest, entries, deliveries, None);
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
        let (row, rest) = self.segment(wall, drained, &entries, self.options.max_row_bytes)?;
        self.last_append_began = Some(now);
        self.begin(now, row, rest, entries, Vec::new(), Some(ids.into()));
        Some(())
    }

    /// The segment of those entries, and the bodies of its further parts where it has some.
    fn segment(&mut self, wall: UnixMillis, drained: Slot, entries: &[Arc<Entry>], max_row: usize) -> Option<(Row, VecDeque<Bytes>)> {
        let (codec, body, rest) = match self.bodies(entries, max_row) {
            Ok(bodies) => bodies,
            Err(error) => {
                self.phase = Phase::Ended(WriterEnd::Unusable(Fault::new(FaultCode::ProtocolError, error.to_string())));
                return None;
            }
        };
        let segment = Segment {
            epoch: self.epoch,
            segment_id: self.ids.take(),
            count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            codec,
            body,
            created_at: wall,
            earliest_expiry: entries.iter().filter_map(|entry| entry.expires_at).min(),
            drained,
        };
        Some((Row::Segment(segment), rest))
    }

    fn bodies(&mut self, entries: &[Arc<Entry>], max_row: usize) -> Result<(u8, Bytes, VecDeque<Bytes>), PackError> {
        let packed = pack(entries)?;
        if packed.len() <= max_row {
            return Ok((CODEC_POSTCARD_ZSTD, packed, VecDeque::new()));
        }
        let mut bodies = VecDeque::from(split(&packed, self.ids.take(), max_row)?);
        let first = bodies.pop_front().ok_or(PackError::Encode)?;
        Ok((CODEC_PART, first, bodies))
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
                let strays = (append.first < append.slot).then(|| {
                    self.tail = Slot(append.slot.0 - 1);
                    Appended { first: append.first, last: self.tail, entries: Vec::new() }
                });
                Some(WriterEvent::MailGone { pieces: append.entries.len(), strays })
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
        if append.doubtful || now.since(append.row_began) > self.options.doubt_after {
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

    /// The row stands. Its next part follows, or everything is durable.
    fn stored(&mut self, now: Instant) -> Option<WriterEvent> {
        let mut append = self.append.take()?;
        if let (Row::Segment(segment), Some(body)) = (append.row.as_ref(), append.rest.pop_front()) {
            // The head that a row carries is the head wherever the row is the last one, so that all parts carry the same: below the first.
            let next = Segment { segment_id: self.ids.take(), count: 0, body, ..segment.clone() };
            append.slot = append.slot.next();
            append.row = Arc::new(Row::Segment(next));
            append.row_began = now;
            append.doubtful = false;
            append.verifying = false;
            self.append = Some(append);
            return None;
        }
        self.tail = append.slot;
        if matches!(append.row.as_ref(), Row::Anchor(_)) {
            self.phase = Phase::Retired;
            return Some(WriterEvent::Retired);
        }
        Some(WriterEvent::Stored(Stored {
            mail: append.mail.map_or(0, |ids| ids.len()),
            appended: Appended { first: append.first, last: append.slot, entries: append.entries },
            deliveries: append.deliveries,
            drained: append.row.drained(),
            took: now.since(append.began),
            bytes: append.bytes,
        }))
    }
}
