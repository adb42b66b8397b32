//! What the source has not been told to forget, and when it may be.
//!
//! A delivery leads to one entry or more. Each comes to an end of its own: the log keeps it, the destination accepted it, it was dead-lettered, or
//! dropped as its route's policy says. When all of them have, the source may forget the delivery, and not before. A broker takes acknowledgements in the
//! order of arrival alone; a queue takes each by itself ([`Order`]).

use crate::identity::{ConnectionEpoch, DeliveryId};
use std::collections::BTreeMap;

/// How a source takes acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order of arrival: each acknowledges every delivery of its connection up to and including the one that it names. MQTT.
    #[default]
    OfArrival,
    /// Each names one delivery, in whatever order they are done with. SQS.
    Free,
}

/// The deliveries that are not done with.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    order: Order,
    /// How many entries of each have not come to their end.
    open: BTreeMap<DeliveryId, u32>,
    /// The newest one that arrived.
    newest: Option<DeliveryId>,
    /// In the order of arrival: the last one that was told.
    told: Option<DeliveryId>,
    /// In a free order: those to be told.
    done: Vec<DeliveryId>,
}

impl Deliveries {
    /// None yet.
    #[must_use]
    pub fn new(order: Order) -> Self {
        Self { order, ..Self::default() }
    }

    /// One arrived that leads to so many entries. They are done with one by one; with none there is nothing to wait for.
    pub fn arrived(&mut self, delivery: DeliveryId, entries: u32) {
        self.newest = Some(delivery);
        if entries > 0 {
            self.open.insert(delivery, entries);
        } else if self.order == Order::Free {
            self.done.push(delivery);
        }
    }

    /// An entry of it came to its end. Nothing, where the delivery is not known any more.
    pub fn entry_done(&mut self, delivery: DeliveryId) {
        let Some(entries) = self.open.get_mut(&delivery) else { return };
        *entries -= 1;
        if *entries == 0 {
            self.open.remove(&delivery);
            if self.order == Order::Free {
                self.done.push(delivery);
            }
        }
    }

    /// Its connection ended: nothing of it can be acknowledged any more, and what was not comes again.
    pub fn forget(&mut self, connection: ConnectionEpoch) {
        self.open.retain(|delivery, _| delivery.connection != connection);
        self.done.retain(|delivery| delivery.connection != connection);
        self.newest = self.newest.filter(|newest| newest.connection != connection);
    }

    /// Whether it is known and not done with.
    #[must_use]
    pub fn is_open(&self, delivery: DeliveryId) -> bool {
        self.open.contains_key(&delivery)
    }

    /// How many are not done with.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// What the source is to be told now: in the order of arrival one at most, which stands for all before it.
    pub fn take_due(&mut self) -> Vec<DeliveryId> {
        if self.order == Order::Free {
            return core::mem::take(&mut self.done);
        }
        let due = match self.open.first_key_value() {
            None => self.newest,
            Some((oldest, _)) => Some(DeliveryId { ordinal: oldest.ordinal.saturating_sub(1), ..*oldest }),
        };
        let due = due.filter(|due| due.ordinal > 0 && Some(*due) > self.told);
        self.told = due.or(self.told);
        due.into_iter().collect()
    }

    /// Nothing is told any more.
    pub fn close(&mut self) {
        *self = Self { order: self.order, told: self.told, ..Self::default() };
    }
}
