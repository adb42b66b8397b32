//! What a connection was given and has not written: it writes in the order in which it is given.

use std::collections::VecDeque;

/// Messages that may wait for a connection, whatever their size: the client takes no more requests than a few above.
const MOST: usize = 200;

/// The sizes of the packets that wait to be written, oldest first.
#[derive(Debug, Default)]
pub(super) struct Pending {
    sizes: VecDeque<u64>,
    bytes: u64,
}

impl Pending {
    /// Whether the connection may be given another packet. `high`: the bytes above which it may not.
    pub(super) fn has_room(&self, high: u64) -> bool {
        self.bytes <= high && self.sizes.len() < MOST
    }

    /// It was given a packet of this size.
    pub(super) fn given(&mut self, size: u64) {
        self.sizes.push_back(size);
        self.bytes += size;
    }

    /// It has written the oldest of them.
    pub(super) fn written(&mut self) {
        self.bytes -= self.sizes.pop_front().unwrap_or_default();
    }

    /// The bytes that wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the packets: never more than the mark and one of them.
        #[test]
        fn flow_no_more_waits_than_the_mark_and_one_packet(steps in prop::collection::vec(prop::option::of(1_u64..50_000), 0..600), high in 1_u64..1_000_000) {
            let (mut pending, mut largest) = (Pending::default(), 0);
            for step in steps {
                match step {
                    Some(size) if pending.has_room(high) => {
                        largest = largest.max(size);
                        pending.given(size);
                    }
                    Some(_) => prop_assert!(pending.bytes() > high || pending.sizes.len() >= MOST),
                    None => pending.written(),
                }
                prop_assert!(pending.bytes() <= high + largest);
                prop_assert_eq!(pending.bytes(), pending.sizes.iter().sum::<u64>());
            }
        }
    }
}
