//! Several lanes: opened together, fenced together, acknowledged in the order of arrival, and changed only when they are drained.

use crate::support::{Rig, Store, Trouble, message, ms, options};
use causeway_core::identity::{Epoch, LaneId};
use causeway_core::log::writer::WriterEnd;
use causeway_core::log::{Call, LogState, Registration};
use causeway_core::message::Message;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::rows::Row;
use causeway_core::worker::options::OwnerOptions;
use causeway_core::worker::{End, Event, Observation};
use std::collections::{BTreeMap, BTreeSet};

fn with_lanes(nth: u64, lanes: u32) -> OwnerOptions {
    OwnerOptions { lanes, ..options(nth) }
}

fn on(topic: u64, text: &str) -> Message {
    Message { topic: format!("topic/{topic}"), ..message(text) }
}

fn lane_of(topic: u64, lanes: u32) -> LaneId {
    LaneId::of(format!("topic/{topic}").as_bytes(), lanes)
}

/// A topic of each lane.
fn topics(lanes: u32) -> Vec<u64> {
    (0..lanes).map(|lane| (0..).find(|topic| lane_of(*topic, lanes) == LaneId(lane)).unwrap()).collect()
}

fn record(epoch: u64, lanes: u32) -> Registration {
    Registration { epoch: Epoch(epoch), lanes, state: LogState::Open }
}

fn texts(store: &Store) -> BTreeSet<String> {
    store.unsettled_in_lanes().iter().map(|(_, _, entry)| String::from_utf8(entry.message.payload.to_vec()).unwrap()).collect()
}

#[test]
fn every_registered_lane_is_anchored_before_the_log_counts_as_open() {
    let mut rig = Rig::new(with_lanes(1, 3), Store::default());
    rig.event(Event::Tick);
    rig.run_while(|rig| !rig.observations.iter().any(|seen| matches!(seen, Observation::Opened { .. })));
    assert_eq!(rig.store.record, Some(record(1, 3)));
    for lane in 0..3 {
        assert!(matches!(rig.store.lane(lane).rows.last_key_value(), Some((_, Row::Anchor(_)))), "lane {lane}");
    }
    // The number that is registered counts, not the configured one, while anything is left.
    rig.on_send = Box::new(|_, _| Outcome::NotDone(crate::support::fault(FaultCode::Unavailable)));
    for topic in topics(3) {
        rig.deliver("in", on(topic, &format!("{topic}")));
    }
    rig.run_for(ms(50));
    let mut next = rig.successor(with_lanes(2, 1));
    next.on_send = Box::new(|_, _| Outcome::NotDone(crate::support::fault(FaultCode::Unavailable)));
    next.event(Event::Tick);
    next.run_for(ms(5_000));
    assert_eq!(next.store.record, Some(record(2, 3)));
    assert_eq!(texts(&next.store).len(), 3);
    assert!(next.owner.wants_input(), "what is stuck does not hold up the intake for ever");
    // The change was put off for a minute. As soon as nothing waits there is no reason to.
    next.on_send = Box::new(|_, _| Outcome::Done(()));
    next.run_while(|next| !texts(&next.store).is_empty());
    next.run_for(ms(500));
    assert_eq!(next.store.record, Some(record(2, 1)));
}

#[test]
fn with_a_lane_whose_anchor_cannot_be_put_nothing_is_open() {
    let mut rig = Rig::new(with_lanes(1, 3), Store::default());
    // Lanes are asked in order: the third anchor is refused.
    let mut anchors = 0;
    rig.on_call = Box::new(move |_, call| {
        anchors += u32::from(matches!(call, Call::Put { .. }));
        (anchors > 2 && matches!(call, Call::Put { .. })).then_some(Trouble::Refused)
    });
    rig.event(Event::Tick);
    rig.run_for(ms(60_000));
    assert!(!rig.observations.iter().any(|seen| matches!(seen, Observation::Opened { .. })));
    assert!(!rig.owner.wants_input());
}

#[test]
fn whoever_is_fenced_in_one_lane_is_fenced_in_all() {
    let mut rig = Rig::opened(with_lanes(1, 3), Store::default());
    let mut next = rig.successor(with_lanes(2, 3));
    next.event(Event::Tick);
    next.run_for(ms(200));
    rig.store = next.store.clone();
    rig.deliver("in", on(topics(3)[2], "late"));
    rig.run_for(ms(100));
    assert!(matches!(rig.end, Some(End::Ended(WriterEnd::Fenced { .. }))), "{:?}", rig.end);
    assert!(rig.acks.is_empty() && rig.source_closed_at.is_some());
}

#[test]
fn a_lease_that_is_older_than_the_registry_is_told_so() {
    let store = Store { record: Some(record(9, 2)), ..Store::default() };
    let mut rig = Rig::new(OwnerOptions { epoch: crate::support::epoch(4), ..with_lanes(1, 2) }, store);
    rig.event(Event::Tick);
    rig.run_for(ms(100));
    assert_eq!(rig.end, Some(End::Ended(WriterEnd::EpochTooLow { found: Epoch(9) })));
}

#[test]
fn acknowledgements_wait_for_the_slowest_lane() {
    let mut rig = Rig::opened(with_lanes(1, 2), Store::default());
    let topics = topics(2);
    // The first lane's segment is refused for a while.
    let refuse_until = rig.now.plus(ms(500));
    let mut refused = false;
    rig.on_call = Box::new(move |now, call| {
        let hit = matches!(call, Call::Put { .. }) && now < refuse_until && !std::mem::replace(&mut refused, true);
        hit.then_some(Trouble::Refused)
    });
    let first = rig.deliver("in", on(topics[0], "slow"));
    let second = rig.deliver("in", on(topics[1], "fast"));
    rig.run_for(ms(20));
    assert_eq!(rig.sends.len(), 1, "the other lane goes on");
    assert!(rig.acks.is_empty(), "and nothing is acknowledged past what is not durable");
    rig.run_for(ms(500));
    assert_eq!(rig.acks.last(), Some(&second));
    assert!(first < second);
}

#[test]
fn more_and_fewer_lanes_take_effect_once_all_are_drained_and_a_topic_keeps_its_order() {
    let mut store = Store::default();
    let mut now = None;
    let mut order: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut number = 0;
    for (nth, lanes) in (1..).zip([1, 3, 2, 4, 1]) {
        let mut rig = Rig::new(with_lanes(nth, lanes), store);
        rig.now = now.unwrap_or(rig.now);
        rig.event(Event::Tick);
        rig.run_for(ms(200));
        assert_eq!(rig.store.record.map(|record| record.lanes), Some(lanes));
        for topic in 0..40 {
            number += 1;
            rig.deliver("in", on(topic % 8, &format!("{number}")));
        }
        rig.run_for(ms(300));
        for entry in rig.sends.iter().flat_map(|sent| &sent.entries) {
            let text = String::from_utf8(entry.message.payload.to_vec()).unwrap();
            order.entry(entry.message.topic.clone()).or_default().push(text.parse().unwrap());
        }
        rig.stop_within(ms(5_000));
        rig.run_while(|rig| rig.end.is_none());
        assert_eq!(rig.end, Some(End::Stopped { unsettled: 0 }));
        for lane in lanes..4 {
            let used = rig.store.others.contains_key(&lane);
            assert!(!used || rig.store.is_retired(lane), "lane {lane} of {lanes} was closed");
        }
        now = Some(rig.now.plus(ms(100)));
        store = rig.store.clone();
    }
    assert_eq!(order.values().map(Vec::len).sum::<usize>(), 200, "each once");
    assert!(order.values().all(|numbers| numbers.is_sorted()), "{order:?}");
}

#[test]
fn a_lane_that_is_stuck_leaves_the_others_their_room() {
    let mut options = with_lanes(1, 2);
    options.memory_entries = 20;
    options.max_settled_ahead = 5;
    let topics = topics(2);
    let mut rig = Rig::opened(options, Store::default());
    let stuck = format!("topic/{}", topics[0]);
    rig.on_send = Box::new(move |_, entry| {
        if entry.message.topic == stuck { Outcome::NotDone(crate::support::fault(FaultCode::Unavailable)) } else { Outcome::Done(()) }
    });
    for nth in 0..100 {
        rig.deliver("in", on(topics[0], &format!("stuck {nth}")));
        rig.run_for(ms(20));
    }
    for nth in 0..100 {
        rig.deliver("in", on(topics[1], &format!("free {nth}")));
        rig.run_for(ms(20));
    }
    rig.run_for(ms(200));
    assert_eq!(rig.delivered.len(), 100, "the other lane is delivered as ever");
    assert!(rig.memory_peak <= 2 * (10 + 1), "{}", rig.memory_peak);
}

#[test]
fn an_adopter_drains_every_lane_closes_them_and_the_log_can_be_opened_again() {
    let mut rig = Rig::opened(with_lanes(1, 3), Store::default());
    rig.on_send = Box::new(|_, _| Outcome::NotDone(crate::support::fault(FaultCode::Unavailable)));
    for topic in 0..12 {
        rig.deliver("in", on(topic, &format!("{topic}")));
    }
    rig.run_for(ms(100));
    let mut adopter = rig.successor(OwnerOptions { retire_when_drained: true, ..with_lanes(2, 1) });
    adopter.event(Event::Tick);
    assert!(!adopter.owner.wants_input());
    adopter.run_while(|rig| rig.end.is_none());
    assert_eq!(adopter.end, Some(End::Retired));
    assert_eq!(adopter.delivered.len(), 12);
    assert!((0..3).all(|lane| adopter.store.is_retired(lane)));
    assert_eq!(adopter.store.record, Some(Registration { state: LogState::Retired, ..record(2, 3) }));
    // Whoever owns the partition again goes on behind the closed end.
    let mut again = adopter.successor(with_lanes(3, 3));
    again.event(Event::Tick);
    again.run_for(ms(100));
    assert_eq!(again.store.record, Some(record(3, 3)));
    again.deliver("in", on(0, "again"));
    again.run_for(ms(100));
    assert_eq!(again.delivered.len(), 1);
}

#[test]
fn an_adopter_that_is_interrupted_leaves_the_record_open() {
    let mut rig = Rig::opened(with_lanes(1, 2), Store::default());
    rig.run_for(ms(50));
    let mut adopter = rig.successor(OwnerOptions { retire_when_drained: true, ..with_lanes(2, 2) });
    // Closing the second lane fails until it is told to stop.
    let mut anchors = 0;
    adopter.on_call = Box::new(move |_, call| {
        anchors += u32::from(matches!(call, Call::Put { .. }));
        (anchors > 3 && matches!(call, Call::Put { .. })).then_some(Trouble::Refused)
    });
    adopter.event(Event::Tick);
    adopter.run_for(ms(1_000));
    adopter.stop_within(ms(1_000));
    adopter.run_while(|rig| rig.end.is_none());
    assert!(matches!(adopter.end, Some(End::Stopped { .. })));
    assert_eq!(adopter.store.record, Some(record(2, 2)), "another adopter finds it open");
}
