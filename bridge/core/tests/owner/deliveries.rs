//! When a source may forget a delivery, held to a plain list of what is left of each.

use causeway_core::hold::{Deliveries, Order};
use causeway_core::identity::{ConnectionEpoch, DeliveryId};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(u32),
    Done(usize),
    Reconnect,
    Tell,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u32..3).prop_map(Step::Arrive),
        6 => (0_usize..20).prop_map(Step::Done),
        1 => Just(Step::Reconnect),
        4 => Just(Step::Tell),
    ];
    prop::collection::vec(step, 0..200)
}

/// Every delivery of the connection, and how many of its entries are left.
#[derive(Default)]
struct Oracle {
    connection: u64,
    left: Vec<u32>,
    told: BTreeSet<u64>,
}

impl Oracle {
    fn id(&self, index: usize) -> DeliveryId {
        DeliveryId { connection: ConnectionEpoch(self.connection), ordinal: index as u64 + 1 }
    }

    /// The `nth` of those with entries left.
    fn open(&self, nth: usize) -> Option<usize> {
        let open: Vec<usize> = (0..self.left.len()).filter(|index| self.left[*index] > 0).collect();
        (!open.is_empty()).then(|| open[nth % open.len()])
    }

    fn done_with(&self) -> BTreeSet<u64> {
        (0..self.left.len()).filter(|index| self.left[*index] == 0).map(|index| index as u64 + 1).collect()
    }

    /// Those before the first that has entries left.
    fn prefix(&self) -> u64 {
        self.left.iter().take_while(|left| **left == 0).count() as u64
    }
}

fn run(
    order: Order,
    steps: Vec<Step>,
    check: impl Fn(&mut Oracle, Vec<DeliveryId>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let (mut deliveries, mut oracle) = (Deliveries::new(order), Oracle { connection: 1, ..Oracle::default() });
    for step in steps.into_iter().chain([Step::Tell]) {
        match step {
            Step::Arrive(entries) => {
                oracle.left.push(entries);
                deliveries.arrived(oracle.id(oracle.left.len() - 1), entries);
            }
            Step::Done(nth) => {
                if let Some(index) = oracle.open(nth) {
                    prop_assert!(deliveries.is_open(oracle.id(index)));
                    oracle.left[index] -= 1;
                    deliveries.entry_done(oracle.id(index));
                }
            }
            Step::Reconnect => {
                deliveries.forget(ConnectionEpoch(oracle.connection));
                // What still ends on the old connection is nobody's concern.
                deliveries.entry_done(oracle.id(0));
                oracle = Oracle { connection: oracle.connection + 1, ..Oracle::default() };
            }
            Step::Tell => check(&mut oracle, deliveries.take_due())?,
        }
        prop_assert_eq!(deliveries.open(), oracle.left.iter().filter(|left| **left > 0).count());
    }
    Ok(())
}

proptest! {
    /// The watermark ascends, never passes a delivery that is not done with, and stands behind none that could be told.
    #[test]
    fn in_the_order_of_arrival_exactly_the_finished_prefix_is_told(steps in steps()) {
        run(Order::OfArrival, steps, |oracle, told| {
            let before = oracle.told.last().copied().unwrap_or(0);
            prop_assert!(told.len() <= 1);
            let up_to = told.first().map_or(before, |delivery| delivery.ordinal);
            prop_assert!(told.first().is_none_or(|delivery| delivery.connection.0 == oracle.connection && delivery.ordinal > before));
            prop_assert_eq!(up_to, oracle.prefix());
            oracle.told.insert(up_to);
            Ok(())
        })?;
    }

    /// Each delivery is told once, when it is done with, whatever stands before it.
    #[test]
    fn in_a_free_order_each_is_told_once_when_it_is_done_with(steps in steps()) {
        run(Order::Free, steps, |oracle, told| {
            for delivery in told {
                prop_assert_eq!(delivery.connection.0, oracle.connection);
                prop_assert!(oracle.told.insert(delivery.ordinal), "told twice: {:?}", delivery);
            }
            prop_assert_eq!(&oracle.told, &oracle.done_with());
            Ok(())
        })?;
    }
}
