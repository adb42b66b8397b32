//! What the store knows of what is settled, while head rows are on their way and more is settled meanwhile.

use causeway_core::identity::{Position, Slot};
use causeway_core::log::settled::{HeadSnapshot, Settled};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Nothing is kept.
const ANY: Slot = Slot(u64::MAX);

#[derive(Clone, Copy, Debug)]
enum Step {
    Settle(u64, u32),
    /// A head row leaves, if none is on its way.
    HeadLeaves,
    /// It is written, or it fails.
    HeadArrives {
        written: bool,
    },
    /// A segment that carries the head as it was when it left is stored.
    SegmentStored,
    SegmentLeaves,
    Delete(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1_u64..10, 0_u32..5).prop_map(|(slot, index)| Step::Settle(slot, index)),
        1 => Just(Step::HeadLeaves),
        1 => any::<bool>().prop_map(|written| Step::HeadArrives { written }),
        1 => Just(Step::SegmentLeaves),
        1 => Just(Step::SegmentStored),
        1 => (0_usize..4).prop_map(Step::Delete),
    ];
    proptest::collection::vec(step, 0..150)
}

type Entries = BTreeSet<(u64, u32)>;

/// The oracle: what is settled, and what the store knows of it.
struct Oracle {
    sizes: Vec<u32>,
    settled: Entries,
    known: Entries,
    durable: u64,
}

impl Oracle {
    fn line(&self) -> u64 {
        let complete =
            |slot: &u64| (0..self.sizes[usize::try_from(*slot - 1).unwrap()]).all(|index| self.settled.contains(&(*slot, index)));
        (1..=self.sizes.len() as u64).take_while(complete).last().unwrap_or(0)
    }

    fn up_to(&self, line: u64) -> Entries {
        self.settled.iter().filter(|(slot, _)| *slot <= line).copied().collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn exposed_is_exactly_what_a_crash_would_repeat(sizes in proptest::collection::vec(0_u32..5, 1..10), steps in steps()) {
        let mut settled = Settled::at(Slot(0));
        for (slot, size) in (1..).zip(&sizes) {
            settled.load(Slot(slot), *size);
        }
        let tail = Slot(sizes.len() as u64);
        let mut oracle = Oracle { sizes, settled: Entries::new(), known: Entries::new(), durable: 0 };
        let mut head: Option<(HeadSnapshot, Entries, u64)> = None;
        let mut segment: Option<u64> = None;
        for step in steps {
            match step {
                Step::Settle(slot, index) => {
                    settled.settle(Position { slot: Slot(slot), index });
                    if usize::try_from(slot).is_ok_and(|slot| oracle.sizes.get(slot - 1).is_some_and(|size| index < *size)) {
                        oracle.settled.insert((slot, index));
                    }
                }
                Step::HeadLeaves if head.is_none() => head = Some((settled.snapshot(), oracle.settled.clone(), oracle.line())),
                Step::HeadLeaves => {}
                Step::HeadArrives { written } => {
                    if let Some((snapshot, tells, line)) = head.take().filter(|_| written) {
                        settled.snapshot_durable(&snapshot);
                        oracle.known.extend(tells);
                        oracle.durable = oracle.durable.max(line);
                    }
                }
                Step::SegmentLeaves => segment = Some(settled.drained().0),
                Step::SegmentStored => {
                    if let Some(line) = segment.take() {
                        settled.made_durable(Slot(line));
                        oracle.known.extend(oracle.up_to(line));
                        oracle.durable = oracle.durable.max(line);
                    }
                }
                Step::Delete(most) => {
                    let slots = settled.deletable(tail, ANY, most);
                    prop_assert!(slots.iter().all(|slot| *slot < tail && slot.0 <= oracle.durable));
                    settled.deleted(&slots);
                    prop_assert!(slots.iter().all(|slot| !settled.deletable(tail, ANY, usize::MAX).contains(slot)));
                }
            }
            prop_assert_eq!(settled.drained().0, oracle.line());
            prop_assert_eq!(settled.durable().0, oracle.durable);
            prop_assert_eq!(settled.exposed(), oracle.settled.difference(&oracle.known).count());
            prop_assert_eq!(settled.settled_ahead(), oracle.settled.iter().filter(|(slot, _)| *slot > oracle.line()).count());
            let behind = oracle.durable < oracle.line() || settled.exposed() > 0;
            prop_assert_eq!(settled.is_behind(), behind);
            let stuck = (1..).zip(&oracle.sizes).find(|(slot, _)| *slot > oracle.line()).map(|(slot, _)| slot);
            prop_assert_eq!(settled.stuck_at().map(|position| position.slot.0), stuck);
        }
    }
}
