//! Limits: what is held waits with everything behind it, unacknowledged; what is dropped is counted and done with in its turn; nothing is lost.

use crate::support::{Rig, Store, at_ms, fault, message, ms, options};
use causeway_core::flow::{Limit, LimitKey, Mode, OVERFLOW_KEY, OnExceed, Pairs, Reason};
use causeway_core::hold::Order;
use causeway_core::message::Message;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::units::Instant;
use causeway_core::worker::options::{AckHold, AckHoldAction, OwnerOptions};
use causeway_core::worker::{Event, Observation};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

fn limit(key: LimitKey, pairs: &str, on_exceed: OnExceed) -> Limit {
    Limit {
        key,
        pairs: Pairs::parse(pairs).unwrap(),
        mode: Mode::StrictWindow,
        on_exceed,
        max_keys: 100,
        overflow_key: OVERFLOW_KEY.into(),
    }
}

fn limited(limits: Vec<Limit>) -> OwnerOptions {
    OwnerOptions { limits, ..options(1) }
}

fn on(topic: &str, text: &str) -> Message {
    Message { topic: topic.to_owned(), ..message(text) }
}

fn acknowledged(rig: &Rig) -> u64 {
    rig.acks.last().map_or(0, |ack| ack.ordinal)
}

#[test]
fn what_is_held_withholds_every_acknowledgement_behind_it_until_its_time() {
    let mut rig = Rig::opened(limited(vec![limit(LimitKey::Topic, "2:10", OnExceed::Hold)]), Store::default());
    let began = rig.now;
    for nth in 0..3 {
        rig.deliver("in", on("noisy", &format!("n{nth}")));
    }
    rig.deliver("in", on("quiet", "q"));
    let status = rig.owner.status(rig.wall());
    assert_eq!((status.held_up, status.held_up_since, rig.owner.wants_input()), (2, Some(began), false));
    rig.run_for(ms(9_000));
    assert_eq!((acknowledged(&rig), rig.delivered.len()), (2, 2));
    rig.run_until(began.plus(ms(10_100)));
    assert_eq!((acknowledged(&rig), rig.delivered.len(), rig.owner.wants_input()), (4, 4, true));
    let told: Vec<&Observation> = rig.observations.iter().filter(|seen| matches!(seen, Observation::HeldUp { .. })).collect();
    assert_eq!(told, [&Observation::HeldUp { reason: Reason::KeyLimit }], "once for each that waits");
    rig.run_to_rest();
}

#[test]
fn what_is_dropped_is_counted_and_acknowledged_in_its_turn() {
    let mut rig = Rig::opened(limited(vec![limit(LimitKey::Connection, "2:10", OnExceed::Drop)]), Store::default());
    for nth in 0..5 {
        rig.deliver("in", message(&nth.to_string()));
    }
    assert_eq!(acknowledged(&rig), 0, "not before what came earlier is durable");
    rig.run_to_rest();
    let counters = rig.counters(0);
    assert_eq!((acknowledged(&rig), counters.received, counters.route_limit, counters.delivered), (5, 5, 3, 2));
    let told =
        rig.observations.iter().filter(|seen| matches!(seen, Observation::Limited { leg: 0, reason: Reason::RouteLimit, .. })).count();
    assert_eq!(told, 3);
}

#[test]
fn what_is_held_is_given_up_with_its_connection_and_comes_again() {
    let mut rig = Rig::opened(limited(vec![limit(LimitKey::Route, "1:10", OnExceed::Hold)]), Store::default());
    let began = rig.now;
    rig.deliver("in", message("a"));
    rig.deliver("in", message("b"));
    rig.run_for(ms(500));
    rig.reconnect();
    assert_eq!((rig.counters(0).returned, rig.owner.waiting_for_admission(), rig.owner.wants_input()), (1, 0, true));
    rig.deliver("in", message("b"));
    assert_eq!(rig.owner.waiting_for_admission(), 1, "a reconnect makes no budget whole");
    rig.run_until(began.plus(ms(10_000)));
    assert_eq!(rig.owner.waiting_for_admission(), 0, "nor does giving up charge anything");
    rig.run_to_rest();
    assert_eq!(rig.delivered.len(), 2);
}

/// No broker repeats quality of service 0: what is given up with its connection is lost, and said to be.
#[test]
fn what_is_held_of_quality_of_service_0_is_lost_with_its_connection_and_counted() {
    let limits = vec![limit(LimitKey::Connection, "1:10", OnExceed::Hold)];
    for (order, expected) in [(Order::OfArrival, (1, 1)), (Order::Free, (2, 0))] {
        let mut rig = Rig::opened(OwnerOptions { acknowledge: order, ..limited(limits.clone()) }, Store::default());
        rig.deliver("in", message("taken in"));
        rig.run_for(ms(500));
        rig.deliver("in", message("comes again"));
        rig.deliver("in", Message { qos: 0, ..message("does not") });
        rig.reconnect();
        let counters = rig.counters(0);
        assert_eq!((counters.returned, counters.session_lost), expected, "{order:?}");
        let told = rig.observations.iter().filter(|seen| matches!(seen, Observation::Lost { leg: 0, dropped } if dropped.qos == 0)).count();
        assert_eq!(told as u64, expected.1);
    }
}

#[test]
fn a_stop_leaves_what_is_held_with_its_source() {
    let mut rig = Rig::opened(limited(vec![limit(LimitKey::Route, "1:10", OnExceed::Hold)]), Store::default());
    for text in ["a", "b", "c"] {
        rig.deliver("in", message(text));
    }
    rig.stop_within(ms(30_000));
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!((acknowledged(&rig), rig.delivered.len()), (1, 1));
    assert_eq!(rig.owner.closing_counters()[0].handed_over, 2);
    assert!(rig.now < at_ms(9_000), "it does not wait for the limit");
}

#[test]
fn a_message_without_the_key_of_a_limit_is_counted() {
    let mut rig = Rig::opened(limited(vec![limit(LimitKey::UserProperty("tenant".to_owned()), "2:10", OnExceed::Drop)]), Store::default());
    for nth in 0..3 {
        rig.deliver("in", message(&nth.to_string()));
    }
    let told = rig.observations.iter().filter(|seen| **seen == Observation::KeyMissing { limits: 1 }).count();
    assert_eq!((told, rig.counters(0).key_limit), (3, 1), "they share one budget");
}

/// What happens to the owner in the property below.
#[derive(Clone, Debug)]
enum Step {
    Come(u8),
    Pass(u64),
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u8..3).prop_map(Step::Come),
        4 => (0_u64..900).prop_map(Step::Pass),
        1 => Just(Step::Reconnect),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A broker with a window: it brings what was not acknowledged again after a reconnect, in order, and hands over no more than its window.
struct Broker {
    window: usize,
    /// Handed over and not acknowledged.
    open: Vec<(u8, u64)>,
    /// Not handed over yet.
    queue: VecDeque<(u8, u64)>,
    told: u64,
    peak: usize,
}

impl Broker {
    fn pump(&mut self, rig: &mut Rig) {
        loop {
            let told = rig.acks.iter().filter(|ack| ack.connection == rig.connection).map(|ack| ack.ordinal).max().unwrap_or(0);
            assert!(told >= self.told, "acknowledgements never go back");
            self.open.drain(..usize::try_from(told - self.told).unwrap());
            self.told = told;
            self.peak = self.peak.max(self.open.len());
            if self.open.len() >= self.window || !rig.owner.wants_input() {
                return;
            }
            let Some((topic, nth)) = self.queue.pop_front() else { return };
            self.open.push((topic, nth));
            rig.deliver("in", on(&format!("t{topic}"), &nth.to_string()));
        }
    }

    fn reconnect(&mut self, rig: &mut Rig) {
        rig.reconnect();
        self.told = 0;
        for one in core::mem::take(&mut self.open).into_iter().rev() {
            self.queue.push_front(one);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// P4: acknowledgements leave in the order of arrival. P5: never more unacknowledged than the window. P7, of the whole owner: of no key more is kept in any
    /// window than its pairs allow, whatever reconnects. And: nothing is lost.
    #[test]
    fn p_4_p_5_p_7_held_messages_keep_order_window_and_limits(steps in steps(), window in 1_usize..8) {
        let limits = vec![limit(LimitKey::Topic, "2:1,5:4", OnExceed::Hold), limit(LimitKey::Route, "4:1", OnExceed::Hold)];
        let mut rig = Rig::opened(limited(limits), Store::default());
        let mut broker = Broker { window, open: Vec::new(), queue: VecDeque::new(), told: 0, peak: 0 };
        let mut came = 0;
        for step in steps {
            match step {
                Step::Come(topic) => {
                    broker.queue.push_back((topic, came));
                    came += 1;
                }
                Step::Pass(millis) => {
                    let until = rig.now.plus(ms(millis));
                    while rig.next_at().is_some_and(|at| at <= until) {
                        rig.step();
                        broker.pump(&mut rig);
                    }
                    rig.run_until(until);
                }
                Step::Reconnect => broker.reconnect(&mut rig),
            }
            broker.pump(&mut rig);
        }
        let mut rounds = 0;
        while !(broker.queue.is_empty() && broker.open.is_empty()) {
            prop_assert!(rig.step(), "held for ever: {:?}", rig.owner.status(rig.wall()));
            broker.pump(&mut rig);
            rounds += 1;
            prop_assert!(rounds < 100_000);
        }
        rig.run_to_rest();
        prop_assert!(broker.peak <= window);
        let sent: Vec<(Instant, &Message)> =
            rig.sends.iter().flat_map(|batch| batch.entries.iter().map(|entry| (batch.at, &entry.message))).collect();
        let seen: BTreeSet<u64> = sent.iter().map(|(_, message)| text_of(message)).collect();
        prop_assert_eq!(seen.len() as u64, came, "each arrives");
        for topic in 0..3 {
            let name = format!("t{topic}");
            let kept: Vec<Instant> = sent.iter().filter(|(_, message)| message.topic == name).map(|(at, _)| *at).collect();
            for at in &kept {
                for (count, span) in [(2, 1_000), (5, 4_000)] {
                    // What was kept is sent a linger and a segment later; that much it may have come together.
                    let within = kept.iter().filter(|then| *then <= at && at.since(**then) + ms(200) < ms(span)).count();
                    prop_assert!(within <= count, "{within} of {name} within {span} ms");
                }
            }
        }
    }
}

fn text_of(message: &Message) -> u64 {
    core::str::from_utf8(&message.payload).unwrap().parse().unwrap()
}

#[test]
fn time_alone_admits_what_is_held() {
    let mut rig = Rig::opened(limited(vec![limit(LimitKey::Connection, "1:1", OnExceed::Hold)]), Store::default());
    for nth in 0..4 {
        rig.deliver("in", message(&nth.to_string()));
    }
    let wake = rig.owner.wake_at(rig.now).unwrap();
    assert!(wake <= rig.now.plus(ms(1_000)));
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), acknowledged(&rig)), (4, 4));
    rig.event(Event::Tick);
}

#[test]
fn what_is_held_for_too_long_is_parked_in_the_log_and_sent_when_its_limit_admits_it() {
    let hold = AckHold { most: ms(5_000), then: AckHoldAction::Park };
    let limits = vec![limit(LimitKey::Connection, "2:60", OnExceed::Hold)];
    let mut rig = Rig::opened(OwnerOptions { ack_hold: Some(hold), ..limited(limits) }, Store::default());
    let began = rig.now;
    for nth in 0..5 {
        rig.deliver("in", message(&nth.to_string()));
    }
    rig.run_for(ms(4_900));
    assert_eq!((acknowledged(&rig), rig.owner.waiting_for_admission()), (2, 3));
    rig.run_for(ms(1_000));
    let status = rig.owner.status(rig.wall());
    assert_eq!((acknowledged(&rig), status.held_up, status.deferred, rig.owner.wants_input()), (5, 0, 3, true));
    rig.run_until(began.plus(ms(59_900)));
    assert_eq!(rig.counters(0).delivered, 2, "the limit still holds");
    rig.deliver("in", message("late"));
    rig.run_until(began.plus(ms(119_000)));
    assert_eq!((rig.counters(0).delivered, acknowledged(&rig)), (4, 6));
    rig.run_to_rest();
    let order: Vec<String> = rig
        .sends
        .iter()
        .flat_map(|batch| batch.entries.iter().map(|entry| String::from_utf8(entry.message.payload.to_vec()).unwrap()))
        .collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "late"]);
    assert_eq!((rig.store.unsettled().len(), rig.owner.status(rig.wall()).deferred), (0, 0));
}

#[test]
fn what_is_held_for_too_long_comes_again_by_a_new_connection_where_that_is_wanted() {
    let hold = AckHold { most: ms(5_000), then: AckHoldAction::Reconnect };
    let limits = vec![limit(LimitKey::Connection, "1:60", OnExceed::Hold)];
    let mut rig = Rig::opened(OwnerOptions { ack_hold: Some(hold), ..limited(limits) }, Store::default());
    rig.deliver("in", message("a"));
    rig.deliver("in", message("b"));
    rig.run_for(ms(4_900));
    assert_eq!(rig.reconnects_wanted, 0);
    rig.run_for(ms(1_000));
    assert_eq!((rig.reconnects_wanted, rig.owner.waiting_for_admission()), (1, 1), "asked for once");
    rig.reconnect();
    rig.deliver("in", message("b"));
    rig.run_to_rest();
    assert_eq!(rig.counters(0).delivered, 2);
}

#[test]
fn what_is_parked_and_given_up_with_its_connection_leaves_nothing_behind() {
    let hold = AckHold { most: ms(0), then: AckHoldAction::Park };
    let limits = vec![limit(LimitKey::Connection, "1:10", OnExceed::Hold)];
    let mut rig = Rig::opened(OwnerOptions { ack_hold: Some(hold), memory_entries: 8, ..limited(limits) }, Store::default());
    for _ in 0..20 {
        rig.deliver("in", message("a"));
        rig.deliver("in", message("b"));
        rig.reconnect();
    }
    rig.run_to_rest();
    assert!(rig.owner.wants_input());
    assert_eq!((rig.owner.status(rig.wall()).deferred, rig.store.unsettled().len()), (0, 0));
}

/// A message that waits when the number of lanes changes goes to the lane that it has afterwards.
#[test]
fn what_waits_at_the_door_survives_a_change_of_lanes() {
    let refuses = || Outcome::NotDone(fault(FaultCode::Unavailable));
    let mut former = Rig::opened(OwnerOptions { lanes: 4, ..options(1) }, Store::default());
    former.on_send = Box::new(move |_, _| refuses());
    former.deliver("in", on("a", "a"));
    former.run_for(ms(50));
    let limits = vec![limit(LimitKey::Connection, "1:10", OnExceed::Hold)];
    let mut rig = former.successor(OwnerOptions { lanes: 2, limits, ..options(2) });
    rig.on_send = Box::new(move |_, _| refuses());
    rig.event(Event::Tick);
    rig.run_for(ms(5_000));
    assert!(rig.owner.wants_input());
    rig.deliver("in", on("b", "b"));
    rig.deliver("in", on("c", "c"));
    assert_eq!(rig.owner.waiting_for_admission(), 1);
    rig.on_send = Box::new(|_, _| Outcome::Done(()));
    rig.run_for(ms(30_000));
    rig.run_to_rest();
    assert_eq!(rig.store.record.map(|record| record.lanes), Some(2));
    assert_eq!((rig.delivered.len(), acknowledged(&rig), rig.owner.waiting_for_admission()), (3, 2, 0));
}

/// What a limit admits only later is charged to the others now: they go on admitting.
#[test]
fn what_is_parked_takes_no_more_of_other_limits_than_it_is() {
    let hold = AckHold { most: ms(1_000), then: AckHoldAction::Park };
    let limits = vec![limit(LimitKey::Connection, "10:1", OnExceed::Hold), limit(LimitKey::Topic, "1:60", OnExceed::Hold)];
    let mut rig = Rig::opened(OwnerOptions { ack_hold: Some(hold), ..limited(limits) }, Store::default());
    rig.deliver("in", on("hot", "1"));
    rig.deliver("in", on("hot", "2"));
    rig.run_for(ms(1_500));
    assert_eq!((rig.owner.waiting_for_admission(), acknowledged(&rig)), (0, 2), "it is parked");
    rig.deliver("in", on("other", "3"));
    rig.run_for(ms(1_500));
    assert_eq!((rig.owner.waiting_for_admission(), rig.delivered.len()), (0, 2), "the connection's budget is nearly whole");
    rig.run_for(ms(60_000));
    rig.run_to_rest();
    assert_eq!(rig.delivered.len(), 3);
}

/// Once it was told to stop, an answer of a budget lets nothing in any more.
#[test]
fn what_waits_when_it_is_told_to_stop_stays_with_the_source() {
    let mut rig = Rig::opened(limited(vec![limit(LimitKey::Connection, "1:10", OnExceed::Hold)]), Store::default());
    rig.deliver("in", message("a"));
    rig.deliver("in", message("b"));
    let drain_until = rig.now.plus(ms(60_000));
    rig.event(Event::Shutdown { drain_until });
    rig.run_to_rest();
    assert_eq!((acknowledged(&rig), rig.delivered.len()), (1, 1));
}
