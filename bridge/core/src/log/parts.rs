//! Putting segments together again whose parts stand in rows of their own.

use crate::identity::{Epoch, Slot};
use crate::rows::{Part, Segment};
use bytes::Bytes;

/// The parts of one segment, as far as they were read.
#[derive(Clone, Debug)]
struct Open {
    first: Slot,
    last: Slot,
    epoch: Epoch,
    part: Part,
    /// The first part's row; `body` grows into the whole.
    segment: Segment,
    body: Vec<u8>,
}

/// A segment that is whole again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The slot of its first part, where its entries have their positions.
    pub first: Slot,
    /// The slot of its last part.
    pub last: Slot,
    /// The segment, as if it had one row.
    pub segment: Segment,
}

/// What a part led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Slots of parts that belong to no whole: their writer ended before the last one, and nobody was told that they stand.
    pub strays: Vec<Slot>,
    /// The segment that is whole now.
    pub whole: Option<Whole>,
}

/// Takes rows in slot order.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    open: Option<Open>,
}

impl Assembly {
    /// Takes the part that stands at `slot`.
    pub fn add(&mut self, slot: Slot, segment: &Segment, part: Part, piece: &[u8]) -> Added {
        let continues = self.open.as_ref().is_some_and(|open| {
            open.last.next() == slot && open.epoch == segment.epoch && Part { index: open.part.index + 1, ..open.part } == part
        });
        let mut added = Added::default();
        if !continues {
            added.strays = self.give_up();
            if part.index > 0 {
                added.strays.push(slot);
                return added;
            }
            let segment = Segment { body: Bytes::new(), codec: part.codec, ..segment.clone() };
            self.open = Some(Open { first: slot, last: slot, epoch: segment.epoch, part, segment, body: Vec::new() });
        }
        let Some(mut open) = self.open.take() else { return added };
        open.last = slot;
        open.part = part;
        open.body.extend_from_slice(piece);
        if part.index + 1 < part.of {
            self.open = Some(open);
        } else {
            let segment = Segment { body: Bytes::from(open.body), ..open.segment };
            added.whole = Some(Whole { first: open.first, last: open.last, segment });
        }
        added
    }

    /// Something else follows than the next part: answers the slots of those that were read, which belong to no whole.
    pub fn give_up(&mut self) -> Vec<Slot> {
        self.open.take().map(|open| (open.first.0..=open.last.0).map(Slot).collect()).unwrap_or_default()
    }
}
