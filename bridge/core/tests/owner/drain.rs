//! Batches against a naive oracle.

use crate::support::{at_ms, entry_of, ms};
use causeway_core::drain::{BatchId, BatchLimits, Drain, Item, Launch, OrderKey, Origin, Pace};
use causeway_core::identity::{LaneId, Place, Position, Slot};
use causeway_core::log::writer::LOAD_LINGERS;
use causeway_core::units::Instant;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const LINGER: u64 = 10;

fn slot_of(item: &Item) -> u64 {
    item.origin.place().expect("these tests know entries of the log alone").position.slot.0
}

fn item(id: u64, leg: usize, size: usize, now: Instant) -> Item {
    Item {
        origin: Origin::Log(Place { lane: LaneId(0), position: Position { slot: Slot(id), index: 0 } }),
        turn: 0,
        entry: entry_of("x", u128::from(id)),
        leg,
        size,
        attempts: 0,
        first_attempt: None,
        ready_at: now,
        not_before: None,
        key: None,
        inherited: false,
        round: None,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        leg: usize,
        size: usize,
    },
    Wait(u64),
    Launch {
        eager: bool,
    },
    /// The `nth` batch in flight comes back; entries whose bit is set are tried again after a pause.
    Land {
        nth: usize,
        again: u16,
        pause: u64,
    },
    /// The entries of ids divisible by this expire.
    Expire(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0_usize..2, 1_usize..400).prop_map(|(leg, size)| Step::Push { leg, size }),
        2 => (0_u64..25).prop_map(Step::Wait),
        4 => (0_u8..4).prop_map(|die| Step::Launch { eager: die == 0 }),
        2 => (0_usize..4, any::<u16>(), 0_u64..40).prop_map(|(nth, again, pause)| Step::Land { nth, again, pause }),
        1 => (5_u64..9).prop_map(Step::Expire),
    ];
    proptest::collection::vec(step, 0..200)
}

/// What the oracle knows: each entry's state, by id.
#[derive(Default)]
struct Oracle {
    now: u64,
    next: u64,
    size: BTreeMap<u64, usize>,
    leg: BTreeMap<u64, usize>,
    ready: BTreeMap<u64, u64>,
    waiting: BTreeMap<u64, u64>,
    flights: BTreeMap<BatchId, Vec<u64>>,
    expired: BTreeSet<u64>,
    last_send: [Option<u64>; 2],
    first_sent: BTreeSet<u64>,
}

impl Oracle {
    fn in_flight(&self, leg: usize) -> usize {
        self.flights.values().flatten().filter(|id| self.leg[id] == leg).count()
    }

    fn wake(&mut self) {
        let due: Vec<u64> = self.waiting.iter().filter(|(_, at)| **at <= self.now).map(|(id, _)| *id).collect();
        for id in due {
            self.waiting.remove(&id);
            self.ready.insert(id, self.now);
        }
    }

    /// The entries that a launch of `leg` takes, by the rules in words.
    fn expected(&self, leg: usize, pace: &Pace, eager: bool) -> Option<Vec<u64>> {
        let ready: Vec<u64> = self.ready.keys().copied().filter(|id| self.leg[id] == leg).collect();
        let room = pace.max_in_flight.saturating_sub(self.in_flight(leg)).min(pace.limits.entries);
        if ready.is_empty() || room == 0 {
            return None;
        }
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut limited = false;
        for id in &ready {
            if batch.len() == room {
                limited = room == pace.limits.entries;
                break;
            }
            if !batch.is_empty() && bytes + self.size[id] > pace.limits.bytes {
                limited = true;
                break;
            }
            bytes += self.size[id];
            batch.push(*id);
        }
        let full = limited || batch.len() == pace.limits.entries;
        let lately = self.last_send[leg].is_some_and(|at| self.now - at < LINGER * u64::from(LOAD_LINGERS));
        let busy = self.in_flight(leg) > 0 || lately;
        let waited = self.now - self.ready[&batch[0]] >= LINGER;
        (full || eager || !busy || waited).then_some(batch)
    }
}

fn paces(max_in_flight: usize, entries: usize, bytes: usize) -> Vec<Pace> {
    let limits = BatchLimits { entries, bytes, entry_bytes: bytes };
    let pace = Pace { max_in_flight, linger: ms(LINGER), limits, pacing: None, breaker: None, sender: Default::default() };
    vec![pace, Pace { max_in_flight: max_in_flight + 3, ..pace }]
}

fn check_launch(oracle: &mut Oracle, paces: &[Pace], eager: bool, launch: Option<&Launch>) {
    let expected = (0..2).find_map(|leg| oracle.expected(leg, &paces[leg], eager).map(|batch| (leg, batch)));
    let Some(launch) = launch else {
        assert_eq!(expected, None, "something should have left");
        return;
    };
    let (leg, batch) = expected.expect("nothing should have left");
    assert_eq!(launch.leg, leg);
    let sent: Vec<u64> = launch.entries.iter().map(|entry| u64::try_from(entry.id.0).unwrap()).collect();
    let expired: Vec<u64> = launch.expired.iter().map(slot_of).collect();
    let (gone, goes): (Vec<u64>, Vec<u64>) = batch.into_iter().partition(|id| oracle.expired.contains(id));
    assert_eq!((&sent, &expired), (&goes, &gone));
    let fresh = sent.iter().filter(|id| oracle.first_sent.insert(**id)).count();
    assert_eq!(launch.delays.len(), fresh, "a delay for each first send");
    for id in sent.iter().chain(&expired) {
        oracle.ready.remove(id);
    }
    if !sent.is_empty() {
        oracle.last_send[leg] = Some(oracle.now);
        oracle.flights.insert(launch.batch, sent);
    }
}

fn run(steps: Vec<Step>, paces: Vec<Pace>) {
    let mut drain = Drain::new(paces.clone());
    let mut oracle = Oracle { now: 1_000, next: 1, ..Oracle::default() };
    for step in steps {
        match step {
            Step::Push { leg, size } => {
                let id = oracle.next;
                oracle.next += 1;
                oracle.size.insert(id, size);
                oracle.leg.insert(id, leg);
                oracle.ready.insert(id, oracle.now);
                drain.push(item(id, leg, size, at_ms(oracle.now)));
            }
            Step::Wait(time) => oracle.now += time,
            Step::Launch { eager } => {
                drain.wake(at_ms(oracle.now));
                oracle.wake();
                let launch = drain.launch(at_ms(oracle.now), eager, &[], |item| oracle.expired.contains(&slot_of(item)));
                check_launch(&mut oracle, &paces, eager, launch.as_ref());
                for item in launch.into_iter().flat_map(|launch| launch.expired) {
                    drain.settled(at_ms(oracle.now), &item);
                }
            }
            Step::Land { nth, again, pause } => land(&mut drain, &mut oracle, nth, again, pause),
            Step::Expire(factor) => {
                let known: Vec<u64> = (1..oracle.next).filter(|id| id % factor == 0).collect();
                oracle.expired.extend(known);
            }
        }
        let flying: usize = oracle.flights.values().map(Vec::len).sum();
        assert_eq!(drain.in_flight(), flying);
        assert_eq!(drain.len(), flying + oracle.ready.len() + oracle.waiting.len());
        assert_eq!(drain.weight(), drain.len() * entry_of("x", 0).message.weight());
        for (leg, pace) in paces.iter().enumerate() {
            assert!(drain.in_flight_of(leg) <= pace.max_in_flight);
        }
        assert_eq!(drain.has_ready(), !oracle.ready.is_empty());
        let oldest = oracle.ready.keys().chain(oracle.waiting.keys()).chain(oracle.flights.values().flatten()).min();
        assert_eq!(drain.oldest().map(slot_of), oldest.copied());
        assert_eq!(drain.ids().count(), drain.len());
    }
}

fn land(drain: &mut Drain, oracle: &mut Oracle, nth: usize, again: u16, pause: u64) {
    let Some(batch) = oracle.flights.keys().nth(nth).copied() else { return };
    let ids = oracle.flights.remove(&batch).unwrap();
    let items = drain.landed(batch);
    assert_eq!(items.iter().map(slot_of).collect::<Vec<_>>(), ids, "in the order that they left in");
    assert!(drain.landed(batch).is_empty(), "it lands once");
    for (bit, item) in items.into_iter().enumerate() {
        assert!(item.attempts > 0);
        if again & (1 << (bit % 16)) == 0 {
            drain.settled(at_ms(oracle.now), &item);
        } else {
            oracle.waiting.insert(slot_of(&item), oracle.now + pause);
            drain.retry(item, at_ms(oracle.now + pause));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn batches_leave_as_the_oracle_says(steps in steps(), max_in_flight in 1_usize..25, entries in 1_usize..12, bytes in 400_usize..2_000) {
        run(steps, paces(max_in_flight, entries, bytes));
    }
}

#[test]
fn a_limit_lets_only_what_stands_up_to_it_leave() {
    let mut drain = Drain::new(paces(100, 10, 10_000));
    for id in 1..=8 {
        drain.push(item(id, 0, 10, at_ms(0)));
    }
    let up_to = Position { slot: Slot(3), index: u32::MAX };
    let launch = drain.launch(at_ms(5), true, &[Some(up_to)], |_| false).unwrap();
    assert_eq!(launch.entries.iter().map(|entry| entry.id.0).collect::<Vec<_>>(), vec![1, 2, 3]);
    assert!(drain.launch(at_ms(5), true, &[Some(up_to)], |_| false).is_none());
    assert_eq!(drain.launch(at_ms(5), true, &[], |_| false).unwrap().entries.len(), 5);
}

#[test]
fn what_has_to_wait_is_woken_in_time() {
    let mut drain = Drain::new(paces(100, 10, 10_000));
    drain.push(item(1, 0, 10, at_ms(0)));
    let launch = drain.launch(at_ms(0), false, &[], |_| false).unwrap();
    drain.push(item(2, 0, 10, at_ms(3)));
    assert!(drain.launch(at_ms(3), false, &[], |_| false).is_none(), "one is under way: it waits for company");
    assert_eq!(drain.wake_at(at_ms(3)), Some(at_ms(3 + LINGER)));
    assert_eq!(drain.launch(at_ms(3 + LINGER), false, &[], |_| false).unwrap().entries.len(), 1);
    let item = drain.landed(launch.batch).pop().unwrap();
    drain.retry(item, at_ms(70));
    assert_eq!(drain.wake_at(at_ms(30)), Some(at_ms(70)));
    assert_eq!(drain.attempts(LaneId(0), 10), vec![(Position { slot: Slot(1), index: 0 }, 1), (Position { slot: Slot(2), index: 0 }, 1)]);
    assert_eq!(drain.attempts(LaneId(0), 1).len(), 1);
}

/// One step of a run in which order is kept.
#[derive(Clone, Debug)]
enum Ordered {
    Push {
        key: u64,
    },
    Launch,
    /// The oldest batch comes back; entries whose bit is set are tried again after a pause.
    Land {
        again: u16,
        pause: u64,
    },
    Wait(u64),
    Expire(u64),
}

fn ordered() -> impl Strategy<Value = Vec<Ordered>> {
    let step = prop_oneof![
        5 => (0_u64..4).prop_map(|key| Ordered::Push { key }),
        4 => Just(Ordered::Launch),
        3 => (any::<u16>(), 0_u64..40).prop_map(|(again, pause)| Ordered::Land { again, pause }),
        2 => (0_u64..25).prop_map(Ordered::Wait),
        1 => (5_u64..9).prop_map(Ordered::Expire),
    ];
    proptest::collection::vec(step, 0..300)
}

/// A drain that keeps order, what is in flight, and what was settled of each key.
struct OrderedRun {
    drain: Drain,
    now: u64,
    pushed: u64,
    flights: Vec<BatchId>,
    expired: BTreeSet<u64>,
    settled: BTreeMap<u64, Vec<u64>>,
}

impl OrderedRun {
    fn settle(&mut self, item: &Item) {
        self.settled.entry(item.key.unwrap().0).or_default().push(slot_of(item));
        self.drain.settled(at_ms(self.now), item);
    }

    fn launch(&mut self) -> bool {
        self.drain.wake(at_ms(self.now));
        let expired = self.expired.clone();
        let Some(launch) = self.drain.launch(at_ms(self.now), true, &[], |item| expired.contains(&slot_of(item))) else {
            return false;
        };
        let keys: Vec<&str> = launch.entries.iter().map(|entry| entry.message.topic.as_str()).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a batch holds one entry of a key: {keys:?}");
        if !launch.entries.is_empty() {
            self.flights.push(launch.batch);
        }
        launch.expired.iter().for_each(|item| self.settle(item));
        true
    }

    fn land(&mut self, again: u16, pause: u64) -> bool {
        if self.flights.is_empty() {
            return false;
        }
        let batch = self.flights.remove(0);
        for (bit, item) in self.drain.landed(batch).into_iter().enumerate() {
            if again & (1 << (bit % 16)) == 0 {
                self.settle(&item);
            } else {
                self.drain.retry(item, at_ms(self.now + pause));
            }
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever fails, is tried again or expires: entries of one key are settled in the order in which they came, and all of them are.
    #[test]
    fn no_entry_overtakes_another_of_its_key(steps in ordered(), max_in_flight in 1_usize..25, entries in 1_usize..12) {
        let drain = Drain::new(paces(max_in_flight, entries, 10_000));
        let mut run = OrderedRun {
            drain, now: 1_000, pushed: 0, flights: Vec::new(), expired: BTreeSet::new(), settled: BTreeMap::new(),
        };
        for step in steps {
            match step {
                Ordered::Push { key } => {
                    run.pushed += 1;
                    let id = run.pushed;
                    let mut entry = (*entry_of("x", u128::from(id))).clone();
                    entry.message.topic = format!("key {key}");
                    let entry = Arc::new(entry);
                    run.drain.push(Item { key: Some(OrderKey(key)), entry, ..item(id, 0, 10, at_ms(run.now)) });
                }
                Ordered::Launch => { run.launch(); }
                Ordered::Land { again, pause } => { run.land(again, pause); }
                Ordered::Wait(time) => run.now += time,
                Ordered::Expire(factor) => run.expired.extend((1..=run.pushed).filter(|id| id % factor == 0)),
            }
            let done: usize = run.settled.values().map(Vec::len).sum();
            prop_assert_eq!(run.drain.len() + done, usize::try_from(run.pushed).unwrap());
            prop_assert_eq!(run.drain.ids().count(), run.drain.len());
        }
        while run.launch() || run.land(0, 0) || !run.drain.is_empty() {
            run.now += 50;
        }
        prop_assert_eq!(run.settled.values().map(Vec::len).sum::<usize>(), usize::try_from(run.pushed).unwrap());
        for ids in run.settled.values() {
            prop_assert!(ids.is_sorted(), "{ids:?}");
        }
    }
}
