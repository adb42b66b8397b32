//! Opening a log: read the tail, put an anchor behind it, see that it is the tail, read the head.

use super::{Writer, WriterEnd, WriterEvent};
use crate::identity::{Epoch, Id128, Slot};
use crate::log::{Answer, Call, Put};
use crate::outcome::Outcome;
use crate::rows::{Anchor, Row};
use crate::units::{Instant, UnixMillis};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) enum Phase {
    ReadTail,
    /// What the tail told. It goes on when it is told to.
    Found {
        tail: Slot,
        drained: Slot,
        go: bool,
    },
    PutAnchor {
        slot: Slot,
        row: Arc<Row>,
    },
    Confirm {
        slot: Slot,
        id: Id128,
        drained: Slot,
    },
    ReadHead {
        anchor: Slot,
        drained: Slot,
    },
    Running,
    Retired,
    Ended(WriterEnd),
}

impl Writer {
    /// Goes on with `epoch` after [`WriterEvent::TailFound`].
    pub fn go(&mut self, epoch: Epoch) {
        if let Phase::Found { go, .. } = &mut self.phase {
            *go = true;
            self.anchored &= self.epoch == epoch;
            self.epoch = epoch;
        }
    }

    /// Opens the log from the beginning, whatever it was about to do. Not for a log that was written to.
    pub fn reopen(&mut self) {
        debug_assert!(self.append.is_none(), "a log that is written to stays open");
        self.discards |= self.in_flight;
        self.phase = Phase::ReadTail;
        self.patience.succeeded();
    }

    /// Stops for good.
    pub fn stop(&mut self, end: WriterEnd) {
        self.phase = Phase::Ended(end);
    }

    pub(super) fn next_of_opening(&mut self, wall: UnixMillis) -> Option<Call> {
        if let Phase::Found { tail, drained, go: true } = self.phase {
            let anchor = self.anchor(wall, drained, false);
            self.anchored = true;
            self.phase = Phase::PutAnchor { slot: tail.next(), row: Arc::new(Row::Anchor(anchor)) };
        }
        match &self.phase {
            Phase::ReadTail | Phase::Confirm { .. } => Some(Call::ReadTail),
            Phase::PutAnchor { slot, row } => Some(Call::Put { slot: *slot, row: Arc::clone(row) }),
            Phase::ReadHead { .. } => Some(Call::ReadHead),
            Phase::Found { .. } | Phase::Running | Phase::Retired | Phase::Ended(_) => None,
        }
    }

    pub(super) fn anchor(&mut self, wall: UnixMillis, drained: Slot, retired: bool) -> Anchor {
        Anchor { epoch: self.epoch, anchor_id: self.ids.take(), owner: self.owner.clone(), opened_at: wall, drained, retired }
    }

    pub(super) fn opening_answered(&mut self, now: Instant, answer: Answer) -> Option<WriterEvent> {
        let phase = self.phase.clone();
        match (phase, answer) {
            (_, Answer::Tail(Err(fault)) | Answer::Head(Err(fault))) => {
                self.failed(now, fault);
                None
            }
            (Phase::ReadTail, Answer::Tail(Ok(tail))) => {
                self.patience.succeeded();
                let (slot, drained) = tail.map_or((Slot(0), Slot(0)), |meta| (meta.slot, meta.drained));
                self.phase = Phase::Found { tail: slot, drained, go: false };
                Some(WriterEvent::TailFound { tail, anchored: self.anchored })
            }
            (Phase::PutAnchor { slot, row }, Answer::Put(outcome)) => {
                self.anchor_put(now, slot, &row, outcome);
                None
            }
            (Phase::Confirm { slot, id, drained }, Answer::Tail(Ok(tail))) => {
                self.patience.succeeded();
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
                self.patience.succeeded();
                self.phase = Phase::Running;
                self.tail = anchor;
                let drained = head.as_ref().map_or(drained, |head| drained.max(head.drained));
                Some(WriterEvent::Opened { head, drained, anchor })
            }
            (Phase::Ended(_), _) => None,
            _ => {
                debug_assert!(false, "an answer to a question that was not asked");
                None
            }
        }
    }

    fn anchor_put(&mut self, now: Instant, slot: Slot, row: &Row, outcome: Outcome<Put>) {
        self.phase = match outcome {
            Outcome::Done(Put::Occupied(meta)) if meta.id != row.id() && meta.epoch > self.epoch => return self.fenced(meta),
            // Never a blind step forward: the anchor would carry an old `drained`, and the head would fall back.
            Outcome::Done(Put::Occupied(meta)) if meta.id != row.id() => Phase::ReadTail,
            Outcome::Done(Put::Stored | Put::Occupied(_)) => Phase::Confirm { slot, id: row.id(), drained: row.drained() },
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => return self.failed(now, fault),
        };
        self.patience.succeeded();
    }
}
