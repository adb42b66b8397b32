//! Which acknowledgements of one connection are owed, in what order, and what came of them. Pure; a new connection begins with a new window.

use std::collections::{HashSet, VecDeque};

/// Stands for a delivery that is still to come; no watermark gets there.
const HELD: u64 = u64::MAX;

/// The acknowledgement of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    /// The last delivery that the packet led to.
    pub(crate) ordinal: u64,
    /// The packet's identifier.
    pub(crate) packet_id: u16,
    /// Whether it came with quality of service 2, which is answered by PUBREC. Only a session of an earlier subscription can hold such.
    pub(crate) exactly_once: bool,
}

/// A packet identifier that came again although its packet is not acknowledged: an answer could no longer be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

/// Deliveries are numbered from 1; acknowledgements leave in order of arrival, up to the watermark that the consumer gave.
#[derive(Debug, Default)]
pub(crate) struct AckWindow {
    last_ordinal: u64,
    watermark: u64,
    waiting: VecDeque<Owed>,
    queued: VecDeque<Owed>,
    unwritten: HashSet<u16>,
}

impl AckWindow {
    /// A packet that wants an acknowledgement has arrived.
    pub(crate) fn arrived(&mut self, packet_id: u16) -> Result<(), Repeated> {
        if self.unwritten.insert(packet_id) { Ok(()) } else { Err(Repeated) }
    }

    /// The number of the next delivery.
    pub(crate) const fn next_ordinal(&mut self) -> u64 {
        self.last_ordinal += 1;
        self.last_ordinal
    }

    /// The packet led to the deliveries up to and including the last number given out.
    pub(crate) fn owe(&mut self, packet_id: u16, exactly_once: bool) {
        self.waiting.push_back(Owed { ordinal: self.last_ordinal, packet_id, exactly_once });
    }

    /// The packet is held back: it has led to no delivery yet. What came after it waits with its acknowledgement, because those leave in order.
    pub(crate) fn hold(&mut self, packet_id: u16, exactly_once: bool) {
        self.waiting.push_back(Owed { ordinal: HELD, packet_id, exactly_once });
    }

    /// A packet that was held back has led to the deliveries up to and including the last number given out.
    pub(crate) fn release(&mut self, packet_id: u16) {
        if let Some(owed) = self.waiting.iter_mut().find(|owed| owed.packet_id == packet_id && owed.ordinal == HELD) {
            owed.ordinal = self.last_ordinal;
        }
    }

    /// The consumer is done with every delivery up to and including `ordinal`. What was not delivered yet cannot be acknowledged.
    pub(crate) fn acknowledge(&mut self, ordinal: u64) {
        self.watermark = self.watermark.max(ordinal.min(self.last_ordinal));
    }

    /// The acknowledgement to hand to the client next.
    pub(crate) fn due(&self) -> Option<Owed> {
        self.waiting.front().copied().filter(|owed| owed.ordinal <= self.watermark)
    }

    /// The client took what [`Self::due`] returned.
    pub(crate) fn queued(&mut self) {
        self.queued.extend(self.waiting.pop_front());
    }

    /// The client wrote an acknowledgement. `false` where it is not the one that was next: a fault of the library.
    pub(crate) fn written(&mut self, packet_id: u16) -> bool {
        let in_order = self.queued.front().is_some_and(|owed| owed.packet_id == packet_id);
        if in_order {
            self.queued.pop_front();
            self.unwritten.remove(&packet_id);
        }
        in_order
    }

    /// Whether the client has acknowledgements that it did not write yet.
    pub(crate) fn writing(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Whether everything that may be acknowledged has been written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.queued.is_empty() && self.due().is_none()
    }

    /// Packets that the broker still counts against its window.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.waiting.len() + self.queued.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Packet { id: u16, copies: u64 },
        Loose,
        Acknowledge(u64),
        Queue(usize),
        Write(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1_u16..30, 1_u64..3).prop_map(|(id, copies)| Step::Packet { id, copies }),
            Just(Step::Loose),
            (0_u64..80).prop_map(Step::Acknowledge),
            (0_usize..5).prop_map(Step::Queue),
            (0_usize..5).prop_map(Step::Write),
        ]
    }

    proptest! {
        /// Against a plain list of (last ordinal, packet id): what is written is a prefix of what arrived, covered by the watermark, and complete once
        /// everything was queued and written.
        #[test]
        fn writes_a_prefix_of_the_arrivals(steps in prop::collection::vec(step(), 0..120)) {
            let mut window = AckWindow::default();
            let mut arrivals: Vec<(u64, u16)> = Vec::new();
            let mut written: Vec<u16> = Vec::new();
            let (mut ordinal, mut watermark) = (0, 0);
            let drain = |window: &mut AckWindow, count: usize| for _ in 0..count { if window.due().is_some() { window.queued(); } };
            for step in steps {
                match step {
                    Step::Packet { id, copies } => {
                        let open = arrivals[written.len()..].iter().any(|(_, other)| *other == id);
                        prop_assert_eq!(window.arrived(id), if open { Err(Repeated) } else { Ok(()) });
                        if !open {
                            for _ in 0..copies { ordinal += 1; prop_assert_eq!(window.next_ordinal(), ordinal); }
                            window.owe(id, false);
                            arrivals.push((ordinal, id));
                        }
                    }
                    Step::Loose => { ordinal += 1; prop_assert_eq!(window.next_ordinal(), ordinal); }
                    Step::Acknowledge(up_to) => { window.acknowledge(up_to); watermark = watermark.max(up_to.min(ordinal)); }
                    Step::Queue(count) => drain(&mut window, count),
                    Step::Write(count) => for _ in 0..count {
                        if let Some(owed) = window.queued.front().copied() { prop_assert!(window.written(owed.packet_id)); written.push(owed.packet_id); }
                    },
                }
                prop_assert_eq!(window.unacknowledged(), arrivals.len() - written.len());
                for (index, id) in written.iter().enumerate() {
                    prop_assert_eq!(*id, arrivals[index].1);
                    prop_assert!(arrivals[index].0 <= watermark);
                }
            }
            drain(&mut window, 1_000);
            while let Some(owed) = window.queued.front().copied() { prop_assert!(window.written(owed.packet_id)); written.push(owed.packet_id); }
            prop_assert!(window.is_flushed());
            prop_assert_eq!(written.len(), arrivals.iter().filter(|(last, _)| *last <= watermark).count());
        }
    }

    #[test]
    fn an_acknowledgement_cannot_reach_into_the_future() {
        let mut window = AckWindow::default();
        window.acknowledge(u64::MAX);
        window.arrived(7).unwrap();
        window.next_ordinal();
        window.owe(7, false);
        assert_eq!(window.due(), None);
    }

    #[test]
    fn what_is_held_back_holds_the_acknowledgements_behind_it() {
        let mut window = AckWindow::default();
        window.arrived(1).unwrap();
        window.hold(1, false);
        window.arrived(2).unwrap();
        window.next_ordinal();
        window.owe(2, false);
        window.acknowledge(1);
        assert_eq!((window.due(), window.unacknowledged(), window.is_flushed()), (None, 2, true));
        window.next_ordinal();
        window.release(1);
        assert_eq!(window.due(), None, "it is delivered, and not yet done with");
        window.acknowledge(2);
        for packet_id in [1, 2] {
            assert_eq!(window.due().map(|owed| owed.packet_id), Some(packet_id));
            window.queued();
            assert!(window.written(packet_id));
        }
    }

    #[test]
    fn an_unexpected_write_is_noticed() {
        let mut window = AckWindow::default();
        assert!(!window.written(1));
        window.arrived(1).unwrap();
        window.next_ordinal();
        window.owe(1, true);
        window.acknowledge(1);
        assert_eq!(window.due(), Some(Owed { ordinal: 1, packet_id: 1, exactly_once: true }));
        window.queued();
        assert!(!window.written(2));
        assert!(window.writing());
        assert!(window.written(1));
        assert!(window.is_flushed());
    }
}
