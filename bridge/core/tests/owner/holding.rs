//! Messages that the source holds until their destination accepted them: never acknowledged before, in order, bounded, and without a log where no
//! route has one.

use crate::support::{Rig, Store, fault, message, ms, options, route};
use causeway_core::drain::OrderKey;
use causeway_core::drain::retry::Jitter;
use causeway_core::hold::Order;
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::worker::options::{Delivery, Fate, LegOptions, OwnerOptions, to_first_legs};
use causeway_core::worker::{End, Event, Observation};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const BUDGET: Duration = ms(2_000);

fn held(id: &str, receiver: &str) -> LegOptions {
    LegOptions { delivery: Delivery::Held { retry_budget: BUDGET }, ..route(id, receiver) }
}

/// An owner without a log, with one route that is held.
fn without_log(nth: u64) -> OwnerOptions {
    OwnerOptions { legs: vec![held("r", "in")], lanes: 0, ..options(nth) }
}

fn refused(code: FaultCode) -> Outcome<()> {
    Outcome::NotDone(fault(code))
}

fn acked(rig: &Rig) -> u64 {
    rig.acks.last().map_or(0, |ack| ack.ordinal)
}

#[test]
fn it_is_acknowledged_once_the_destination_accepted_it_and_no_store_is_called() {
    let mut rig = Rig::opened(without_log(1), Store::default());
    let began = rig.now;
    rig.deliver("in", message("one"));
    assert_eq!((rig.sends.len(), rig.acks.len(), rig.owner.held()), (1, 0, 1), "sent the moment that it came");
    rig.run_while(|rig| rig.acks.is_empty());
    assert_eq!(rig.now, began.plus(rig.send_latency));
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), rig.owner.held()), (1, 0));
    assert_eq!((rig.calls.puts, rig.calls.reads, rig.calls.head_writes, rig.calls.registry), (0, 0, 0, 0));
}

#[test]
fn a_broker_is_told_in_the_order_of_arrival_and_a_queue_as_it_comes() {
    for (order, told) in [(Order::OfArrival, vec![]), (Order::Free, vec![2, 3])] {
        let mut rig = Rig::opened(OwnerOptions { acknowledge: order, ..without_log(1) }, Store::default());
        rig.on_send = Box::new(|_, entry| if entry.message.payload == "1" { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
        for text in ["1", "2", "3"] {
            rig.deliver("in", message(text));
        }
        rig.run_for(ms(50));
        assert_eq!(rig.acks.iter().map(|ack| ack.ordinal).collect::<Vec<_>>(), told, "{order:?}");
        rig.acks.clear();
        rig.on_send = Box::new(|_, _| Outcome::Done(()));
        rig.run_to_rest();
        assert_eq!(acked(&rig), if order == Order::Free { 1 } else { 3 }, "{order:?}");
    }
}

#[test]
fn what_one_route_logs_and_another_holds_is_acknowledged_after_both() {
    let legs = vec![held("h", "in"), route("l", "in")];
    let mut rig = Rig::opened(OwnerOptions { dispatch: to_first_legs(&legs), legs, ..options(1) }, Store::default());
    let healed = rig.now.plus(ms(700));
    rig.on_send =
        Box::new(move |now, entry| if &*entry.route == "h" && now < healed { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    rig.deliver("in", message("one"));
    rig.run_for(ms(600));
    assert_eq!(
        (rig.counters(1).delivered, rig.acks.len(), rig.calls.puts),
        (1, 0, 2),
        "an anchor and a segment; the other route has neither"
    );
    rig.run_while(|rig| rig.acks.is_empty());
    assert_eq!(rig.counters(0).delivered, 1);
}

#[test]
fn an_outage_of_hours_loses_nothing_and_the_source_is_the_buffer() {
    let mut options = without_log(1);
    options.memory_entries = 50;
    options.legs[0].policy.max_replay_attempts = 2;
    options.legs[0].policy.backoff.max = Duration::from_secs(60);
    let mut rig = Rig::opened(options, Store::default());
    let healed = rig.now.plus(Duration::from_secs(3_600));
    rig.on_send = Box::new(move |now, _| if now < healed { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    let mut taken = 0;
    while rig.now < healed {
        while rig.owner.wants_input() {
            taken += 1;
            rig.deliver("in", message(&format!("{taken}")));
        }
        rig.run_for(Duration::from_secs(60));
        assert!(rig.acks.is_empty() && rig.owner.held() == 50, "{} held", rig.owner.held());
    }
    rig.run_to_rest();
    assert_eq!((taken, rig.delivered.len(), acked(&rig)), (50, 50, 50));
    assert!(rig.letters.is_empty(), "while nothing is accepted the destination is at fault");
}

#[test]
fn within_the_budget_the_pauses_grow_and_after_it_they_are_the_longest() {
    for (budget, most_before_the_budget) in [(BUDGET, 6), (Duration::ZERO, 1)] {
        let mut options = without_log(1);
        options.legs[0].delivery = Delivery::Held { retry_budget: budget };
        options.legs[0].policy.backoff.jitter = 0.0;
        options.legs[0].policy.backoff.max = ms(10_000);
        let mut rig = Rig::opened(options, Store::default());
        rig.on_send = Box::new(|_, _| refused(FaultCode::Unavailable));
        rig.deliver("in", message("one"));
        rig.run_for(ms(60_000));
        let pauses: Vec<Duration> = rig.sends.windows(2).map(|pair| pair[1].at.since(pair[0].at)).collect();
        let growing = pauses.iter().take_while(|pause| **pause < ms(10_000)).count();
        assert!(growing < most_before_the_budget && (budget.is_zero() || growing >= 3), "{pauses:?}");
        assert!(pauses[growing..].iter().all(|pause| *pause >= ms(10_000)), "{pauses:?}");
    }
}

#[test]
fn a_message_that_alone_is_refused_becomes_a_dead_letter_after_all_its_rounds_and_is_acknowledged_then() {
    let mut options = without_log(1);
    options.legs[0].policy.max_replay_attempts = 2;
    let mut rig = Rig::opened(options, Store::default());
    let began = rig.now;
    rig.on_send = Box::new(|_, entry| if entry.message.payload == "bad" { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    rig.deliver("in", message("bad"));
    while rig.letters.is_empty() {
        assert!(rig.acks.is_empty());
        rig.deliver("in", message("good"));
        rig.run_for(ms(100));
    }
    rig.run_to_rest();
    assert!(rig.now.since(began) >= 3 * BUDGET, "{:?}", rig.now.since(began));
    assert_eq!(rig.letters.len(), 1);
    assert_eq!(rig.owner.held(), 0);
    assert!(acked(&rig) > 1);
}

#[test]
fn what_is_refused_for_good_or_expired_is_acknowledged_once_the_letter_stands_or_it_is_dropped() {
    let mut rig = Rig::opened(without_log(1), Store::default());
    rig.on_send = Box::new(|_, _| refused(FaultCode::InvalidPayload));
    let healed = rig.now.plus(ms(3_000));
    rig.on_park = Box::new(move |now, _| if now < healed { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    rig.deliver("in", message("refused"));
    rig.run_for(ms(2_900));
    assert!(rig.acks.is_empty(), "the letter does not stand yet");
    rig.run_to_rest();
    assert_eq!((acked(&rig), rig.letters.len()), (1, 1));

    let mut options = without_log(2);
    options.legs[0].policy.on_expired = Fate::Drop;
    let mut rig = Rig::opened(options, Store::default());
    let mut expired = message("late");
    expired.properties.expiry_seconds = Some(0);
    // It has one attempt.
    rig.on_send = Box::new(|_, _| refused(FaultCode::Unavailable));
    rig.deliver("in", expired);
    rig.run_to_rest();
    assert_eq!((acked(&rig), rig.counters(0).expired), (1, 1));
}

#[test]
fn what_a_lost_connection_held_is_given_up_and_what_is_being_sent_is_listened_to() {
    let mut options = without_log(1);
    options.legs[0].policy.max_in_flight = 2;
    options.legs[0].limits.entries = 1;
    let mut rig = Rig::opened(options, Store::default());
    rig.on_send = Box::new(|_, entry| if entry.message.payload == "2" { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    for text in ["1", "2", "3"] {
        rig.deliver("in", message(text));
    }
    rig.reconnect();
    assert_eq!((rig.owner.held(), rig.counters(0).returned), (2, 1), "two are on their way");
    rig.run_to_rest();
    assert_eq!((rig.counters(0).delivered, rig.counters(0).returned, rig.owner.held()), (1, 2, 0));
    assert!(rig.acks.is_empty(), "nothing of a connection that is gone is acknowledged");
    for text in ["1", "3"] {
        rig.deliver("in", message(text));
    }
    rig.run_to_rest();
    assert_eq!(rig.acks.last().map(|ack| (ack.connection.0, ack.ordinal)), Some((2, 2)));
}

#[test]
fn nothing_is_sent_before_what_former_owners_left_was_read() {
    let mut first = Rig::opened(options(1), Store::default());
    first.on_send = Box::new(|_, _| refused(FaultCode::Unavailable));
    for nth in 0..20 {
        first.deliver("in", message(&format!("{nth}")));
    }
    first.run_for(ms(50));
    let mut rig = first.successor(OwnerOptions { legs: vec![held("r", "in")], ..options(2) });
    rig.event(Event::Tick);
    rig.run_while(|rig| !rig.observations.iter().any(|seen| matches!(seen, Observation::Opened { .. })));
    rig.deliver("in", message("new"));
    assert!(rig.sends.is_empty());
    rig.run_to_rest();
    let sent: Vec<Arc<Entry>> = rig.sends.iter().flat_map(|sent| sent.entries.clone()).collect();
    assert_eq!((sent.len(), &sent[20].message.payload[..]), (21, &b"new"[..]));
    assert_eq!((acked(&rig), rig.store.unsettled().len()), (1, 0));
}

#[test]
fn a_stop_settles_what_is_held_before_the_source_is_closed() {
    let mut rig = Rig::opened(without_log(1), Store::default());
    let healed = rig.now.plus(ms(400));
    rig.on_send = Box::new(move |now, _| if now < healed { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    for nth in 0..100 {
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.stop_within(ms(10_000));
    assert!(!rig.owner.wants_input());
    rig.run_while(|rig| rig.source_closed_at.is_none());
    assert_eq!((acked(&rig), rig.delivered.len()), (100, 100), "the acknowledgements leave before the source is closed");
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!(rig.end, Some(End::Stopped { unsettled: 0 }));
}

#[test]
fn with_a_dead_destination_a_stop_leaves_what_is_held_with_the_source() {
    let mut rig = Rig::opened(without_log(1), Store::default());
    rig.on_send = Box::new(|_, _| Outcome::Unknown(fault(FaultCode::Timeout)));
    for nth in 0..30 {
        rig.deliver("in", message(&format!("{nth}")));
    }
    let until = rig.now.plus(ms(5_000));
    rig.stop_within(ms(5_000));
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!(rig.end, Some(End::Stopped { unsettled: 30 }));
    assert!(rig.acks.is_empty() && rig.now.since(until) < ms(100));
    assert_eq!(rig.owner.closing_counters()[0].handed_over, 30);
}

/// What a destination took, by route and in order.
type Taken = Rc<RefCell<Vec<(String, u64)>>>;

struct Dice(Jitter);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        (self.0.fraction() * limit as f64) as u64
    }
}

/// A broker that delivers in order, and again from the first message that is not acknowledged.
#[derive(Default)]
struct Broker {
    acknowledged: u64,
    base: u64,
    next: u64,
    acks_seen: usize,
}

impl Broker {
    /// A new connection.
    fn connected(&mut self) {
        self.base = self.acknowledged;
        self.next = self.acknowledged;
        self.acks_seen = 0;
    }

    fn deliver(&mut self, rig: &mut Rig) {
        let number = self.next;
        self.next += 1;
        rig.deliver("in", Message { topic: format!("t{}", number % 3), ..message(&format!("{number}")) });
    }

    /// Takes the acknowledgements of this connection; every message below is no longer the broker's.
    fn hear(&mut self, rig: &Rig) {
        for ack in &rig.acks[self.acks_seen..] {
            if ack.connection == rig.connection {
                self.acknowledged = self.base + ack.ordinal;
            }
        }
        self.acks_seen = rig.acks.len();
    }
}

fn number(entry: &Entry) -> u64 {
    String::from_utf8(entry.message.payload.to_vec()).unwrap().parse().unwrap()
}

/// Which ways there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ways {
    Held,
    HeldAndLogged,
    Spilled,
}

fn drawn(life: u64, ways: Ways, dice: &mut Dice) -> OwnerOptions {
    let mut options = options(life);
    options.legs = vec![held("h", "in")];
    match ways {
        Ways::Held => {}
        Ways::HeldAndLogged => options.legs.push(route("l", "in")),
        Ways::Spilled => options.legs[0].delivery = Delivery::Spilled { after: ms(1 + dice.below(100)) },
    }
    options.dispatch = to_first_legs(&options.legs);
    for route in &mut options.legs {
        route.key_of = Arc::new(|entry| Some(OrderKey(u64::from(entry.message.topic.as_bytes()[1]))));
        route.policy.max_in_flight = 1 + usize::try_from(dice.below(12)).unwrap();
    }
    options.lanes = u32::from(ways != Ways::Held);
    options.segment.max_messages = 1 + usize::try_from(dice.below(12)).unwrap();
    options.memory_entries = 5 + usize::try_from(dice.below(40)).unwrap();
    options
}

fn misfortunes(rig: &mut Rig, dice: &mut Dice, taken: &Taken) {
    let mut fates = Dice(Jitter::new(dice.below(u64::MAX)));
    let (share, taken) = (dice.below(60), Rc::clone(taken));
    rig.on_send = Box::new(move |_, entry| {
        let drawn = fates.below(100);
        if drawn >= share || drawn.is_multiple_of(7) {
            taken.borrow_mut().push((entry.route.to_string(), number(entry)));
        }
        match drawn {
            _ if drawn >= share => Outcome::Done(()),
            // It was taken, and nobody knows.
            _ if drawn.is_multiple_of(7) => Outcome::Unknown(fault(FaultCode::Timeout)),
            _ => refused(FaultCode::Unavailable),
        }
    });
}

/// Lives that end in a crash, connections that break, sends that fail or whose answers are lost.
fn lives(seed: u64) {
    let mut dice = Dice(Jitter::new(seed));
    let ways = [Ways::Held, Ways::HeldAndLogged, Ways::Spilled][usize::try_from(seed % 3).unwrap()];
    let (taken, mut broker, mut store) = (Taken::default(), Broker::default(), Store::default());
    let mut now = crate::support::at_ms(1_000);
    for life in 1..=4 {
        let calm = life == 4;
        let options = drawn(life, ways, &mut dice);
        // What is in flight when its connection goes stays until its answer comes.
        let memory = options.memory_entries + options.legs[0].policy.max_in_flight;
        let mut rig = Rig::new(options, store.clone());
        rig.now = now;
        rig.send_latency = ms(1 + dice.below(150));
        rig.store_latency = ms(1 + dice.below(40));
        let mut still = Dice(Jitter::new(seed));
        misfortunes(&mut rig, if calm { &mut still } else { &mut dice }, &taken);
        rig.event(Event::Tick);
        broker.connected();
        for _ in 0..if calm { 20_000 } else { dice.below(400) } {
            if broker.acknowledged == 120 && rig.next_at().is_none() {
                break;
            }
            match dice.below(20) {
                0 if !calm && rig.owner.is_open() => {
                    broker.hear(&rig);
                    rig.reconnect();
                    broker.connected();
                    broker.acks_seen = rig.acks.len();
                }
                1..9 if rig.owner.wants_input() && broker.next < 120 => broker.deliver(&mut rig),
                _ => {
                    rig.step();
                }
            }
            assert!(rig.owner.held() <= memory, "seed {seed}: {} held", rig.owner.held());
            let before = broker.acknowledged;
            broker.hear(&rig);
            assert!(broker.acknowledged >= before, "seed {seed}: the watermark falls");
            if broker.acknowledged == before {
                continue;
            }
            let kept: BTreeSet<(String, u64)> =
                rig.store.unsettled().iter().map(|(_, entry)| (entry.route.to_string(), number(entry))).collect();
            for gone in before..broker.acknowledged {
                let accepted = |route: &str| taken.borrow().contains(&(route.to_owned(), gone));
                let logged = |route: &str| kept.contains(&(route.to_owned(), gone));
                assert!(accepted("h") || ways == Ways::Spilled && logged("h"), "seed {seed}: {gone} was acknowledged and never accepted");
                assert!(ways != Ways::HeldAndLogged || accepted("l") || logged("l"), "seed {seed}: {gone} is not in the log");
            }
        }
        (now, store) = (rig.now.plus(ms(10)), rig.store.clone());
    }
    assert_eq!(broker.acknowledged, 120, "seed {seed}");
    let mut last: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (route, number) in taken.borrow().iter() {
        if seen.insert((route.clone(), *number)) {
            let before = last.insert((route.clone(), number % 3), *number);
            assert!(before < Some(*number), "seed {seed}, route {route}: {number} came after {before:?}");
        }
    }
    assert_eq!(seen.len(), if ways == Ways::HeldAndLogged { 240 } else { 120 }, "seed {seed}");
}

#[test]
fn nothing_is_acknowledged_early_lost_or_overtaken_by_its_key_whatever_fails() {
    for seed in 0..90 {
        lives(seed);
    }
}
