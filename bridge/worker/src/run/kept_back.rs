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
    /// Messages of quality of service 0 that were given up.
    lost: u64,
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

    /// A connection ended: what came by it comes again, but for what has quality of service 0 where a broker sent it.
    pub fn forget(&mut self, connection: ConnectionEpoch) {
        self.give_up(|delivery| delivery.id.connection == connection);
    }

    /// The source is gone, and with it all that it handed over.
    pub fn clear(&mut self) {
        self.give_up(|_| true);
    }

    /// So many of quality of service 0 were given up since the start.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    fn give_up(&mut self, goes: impl Fn(&Delivery) -> bool) {
        self.lost += self.queue.iter().filter(|delivery| delivery.message.qos == 0 && goes(delivery)).count() as u64;
        self.queue.retain(|delivery| !goes(delivery));
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

    #[test]
    fn what_no_broker_repeats_is_counted_when_it_is_given_up() {
        let of = |connection, ordinal, qos| {
            let delivery = delivery(connection, ordinal, 1);
            Delivery { message: Message { qos, ..delivery.message }, ..delivery }
        };
        let mut kept = KeptBack::default();
        for (connection, qos) in [(1, 0), (1, 1), (2, 0), (2, 0), (2, 2)] {
            kept.push(of(connection, 1, qos));
        }
        kept.forget(ConnectionEpoch(1));
        assert_eq!(kept.lost(), 1);
        kept.pop();
        kept.clear();
        assert_eq!((kept.lost(), kept.is_empty(), kept.has_room()), (2, true, true), "what was taken in is not given up");
    }
}
