//! What a source handed over while an outbox is full. Connections come and go meanwhile, and what is told of them stands behind messages.

use causeway_ports::{ConnectionEpoch, Delivery};
use std::collections::VecDeque;

/// What is kept at most, roughly, in bytes: some 30,000 small messages. Some brokers send more than the window that they were told, and the answer to a
/// subscription stands behind all of it.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Messages that nobody was told of yet, in the order of their arrival. The source has not seen them acknowledged.
#[derive(Debug, Default)]
pub(super) struct KeptBack {
    queue: VecDeque<Delivery>,
    bytes: usize,
}

impl KeptBack {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether another one may be kept.
    pub fn has_room(&self) -> bool {
        self.bytes < MAX_BYTES
    }

    pub fn push(&mut self, delivery: Delivery) {
        self.bytes += delivery.message.weight();
        self.queue.push_back(delivery);
    }

    /// The oldest one.
    pub fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.queue.pop_front()?;
        self.bytes -= delivery.message.weight();
        Some(delivery)
    }

    /// A connection ended: what came by it comes again.
    pub fn forget(&mut self, connection: ConnectionEpoch) {
        self.queue.retain(|delivery| delivery.id.connection != connection);
        self.bytes = self.queue.iter().map(|delivery| delivery.message.weight()).sum();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use causeway_core::message::Message;
    use causeway_ports::DeliveryId;

    fn delivery(connection: u64, ordinal: u64, size: usize) -> Delivery {
        let message = Message { payload: vec![0_u8; size].into(), ..Message::default() };
        Delivery { id: DeliveryId { connection: ConnectionEpoch(connection), ordinal }, receiver: "in".into(), message }
    }

    #[test]
    fn it_is_bounded_keeps_the_order_and_forgets_what_comes_again() {
        let mut kept = KeptBack::default();
        for (nth, size) in [(1, 10), (2, 20), (3, MAX_BYTES)] {
            assert!(kept.has_room());
            kept.push(delivery(nth / 3, nth, size));
        }
        assert!(!kept.has_room());
        assert_eq!(kept.pop().unwrap().id.ordinal, 1);
        kept.forget(ConnectionEpoch(1));
        assert!(kept.has_room());
        assert_eq!(kept.pop().unwrap().id.ordinal, 2);
        assert!(kept.is_empty() && kept.pop().is_none());
        let of_one = delivery(1, 0, 0).message.weight();
        for nth in 0..MAX_BYTES.div_ceil(of_one) as u64 {
            assert!(kept.has_room(), "{nth}");
            kept.push(delivery(1, nth, 0));
        }
        assert!(!kept.has_room());
    }
}
