//! How much of one key stands in the log: the bound holds at every moment, whatever is full makes room as it is told to, and nothing else is lost.

use crate::support::{Rig, Store, fault, message, ms, options};
use causeway_core::flow::Reason;
use causeway_core::flow::{OnFull, StoreBound};
use causeway_core::message::Message;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::units::Instant;
use causeway_core::worker::Observation;
use causeway_core::worker::options::OwnerOptions;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn bounded(nth: u64, messages: u64, on_full: OnFull) -> OwnerOptions {
    let bound = StoreBound { messages, bytes: 1 << 30, on_full, counts_unread: true };
    OwnerOptions { store: Some(bound), ..options(nth) }
}

fn on(topic: &str, text: &str) -> Message {
    Message { topic: topic.to_owned(), ..message(text) }
}

/// The destination refuses everything until `heals`.
fn refusing_until(rig: &mut Rig, heals: Instant) {
    rig.on_send = Box::new(move |now, _| if now < heals { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) });
}

fn texts<'m>(messages: impl Iterator<Item = &'m Message>) -> Vec<String> {
    messages.map(|message| String::from_utf8_lossy(&message.payload).into_owned()).collect()
}

fn delivered(rig: &Rig) -> Vec<String> {
    let entries = rig.sends.iter().flat_map(|send| &send.entries);
    let mut done: Vec<String> = texts(entries.filter(|entry| rig.delivered.contains_key(&entry.id)).map(|entry| &entry.message));
    done.sort();
    done.dedup();
    done
}

fn letters(rig: &Rig) -> Vec<(String, String)> {
    rig.letters.values().map(|letter| (texts([&letter.message].into_iter()).remove(0), letter.error_code.clone())).collect()
}

fn acknowledged(rig: &Rig) -> u64 {
    rig.acks.last().map_or(0, |ack| ack.ordinal)
}

/// Limit 3, four appended while nothing is accepted; then it heals.
fn four_of_three(on_full: OnFull) -> (Rig, u64, usize) {
    let mut rig = Rig::opened(bounded(1, 3, on_full), Store::default());
    let heals = rig.now.plus(ms(5_000));
    refusing_until(&mut rig, heals);
    for nth in 1..=4 {
        rig.deliver("in", message(&nth.to_string()));
    }
    rig.run_for(ms(4_000));
    let (acks, deepest) = (acknowledged(&rig), rig.owner.store_usage().deepest());
    assert!(deepest <= 3, "{deepest}");
    let letters = rig.letters.len();
    rig.run_to_rest();
    (rig, acks, letters)
}

#[test]
fn flow_c5_limit_3_append_4_hold() {
    let (rig, acks, letters) = four_of_three(OnFull::Hold);
    assert_eq!((acks, letters), (3, 0), "the fourth is not stored, and its source not told");
    assert!(rig.observations.contains(&Observation::HeldUp { reason: Reason::StoreFull }));
    assert_eq!((delivered(&rig), acknowledged(&rig)), (vec!["1".into(), "2".into(), "3".into(), "4".into()], 4));
}

#[test]
fn flow_c5_limit_3_append_4_dead_letter_oldest() {
    let (rig, acks, _) = four_of_three(OnFull::DeadLetterOldest);
    assert_eq!((acks, letters(&rig)), (4, vec![("1".to_owned(), "TRIMMED".to_owned())]));
    assert_eq!(delivered(&rig), ["2", "3", "4"]);
    let counters = rig.counters(0);
    assert_eq!((counters.dropped, counters.expired, counters.dead_lettered), (0, 0, 1), "lost 0");
}

#[test]
fn flow_c5_limit_3_append_4_drop_oldest() {
    let (rig, acks, letters) = four_of_three(OnFull::DropOldest);
    assert_eq!((acks, letters, rig.counters(0).dropped), (4, 0, 1));
    assert_eq!(delivered(&rig), ["2", "3", "4"]);
    let told = rig.observations.iter().find_map(|seen| if let Observation::Dropped { dropped, .. } = seen { Some(dropped) } else { None });
    let told = told.expect("it is told");
    assert_eq!((told.reason.as_str(), told.outcome.as_str()), ("trimmed", "lost"));
}

#[test]
fn flow_c5_limit_3_append_4_reject_newest() {
    let (rig, acks, _) = four_of_three(OnFull::RejectNewest);
    assert_eq!((acks, letters(&rig)), (4, vec![("4".to_owned(), "STORE_FULL".to_owned())]));
    assert_eq!(delivered(&rig), ["1", "2", "3"]);
}

#[test]
fn flow_c5_the_bound_of_one_key_is_no_other_keys() {
    let mut rig = Rig::opened(bounded(1, 2, OnFull::RejectNewest), Store::default());
    let heals = rig.now.plus(ms(5_000));
    refusing_until(&mut rig, heals);
    for nth in 0..3 {
        rig.deliver("in", on("noisy", &format!("n{nth}")));
        rig.deliver("in", on("quiet", &format!("q{nth}")));
    }
    rig.run_to_rest();
    assert_eq!((delivered(&rig), letters(&rig).len()), (vec!["n0".into(), "n1".into(), "q0".into(), "q1".into()], 2));
}

/// A successor counts what the former owner left, before it has read it too.
#[test]
fn flow_p12_the_bound_holds_over_a_crash() {
    let mut rig = Rig::opened(bounded(1, 3, OnFull::Hold), Store::default());
    let heals = rig.now.plus(ms(60_000));
    refusing_until(&mut rig, heals);
    for nth in 1..=3 {
        rig.deliver("in", message(&nth.to_string()));
    }
    rig.run_for(ms(2_000));
    let mut next = rig.successor(bounded(2, 3, OnFull::Hold));
    refusing_until(&mut next, heals);
    next.event(causeway_core::worker::Event::Tick);
    next.run_while(|rig| !rig.observations.iter().any(|seen| matches!(seen, Observation::Opened { .. })));
    next.deliver("in", message("4"));
    next.run_for(ms(20_000));
    assert_eq!((acknowledged(&next), next.owner.store_usage().deepest(), next.owner.waiting_for_admission()), (0, 3, 1));
    next.run_to_rest();
    assert_eq!((next.delivered.len(), acknowledged(&next), next.owner.store_usage().keys()), (4, 1, 0));
}

/// What waits for room is given up with its connection, and what was given up unwritten counts no more.
#[test]
fn flow_p12_what_is_given_up_counts_no_more() {
    let mut rig = Rig::opened(bounded(1, 2, OnFull::Hold), Store::default());
    rig.on_call = Box::new(|_, _| Some(crate::support::Trouble::Refused));
    for nth in 0..4 {
        rig.deliver("in", message(&nth.to_string()));
    }
    rig.reconnect();
    rig.on_call = Box::new(|_, _| None);
    for nth in 0..4 {
        rig.deliver("in", message(&nth.to_string()));
    }
    rig.run_to_rest();
    assert_eq!((acknowledged(&rig), rig.owner.store_usage().keys()), (4, 0));
}

fn any_policy() -> impl Strategy<Value = OnFull> {
    prop_oneof![Just(OnFull::Hold), Just(OnFull::DeadLetterOldest), Just(OnFull::DropOldest), Just(OnFull::RejectNewest)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// P12: count(key) <= limit at every moment. P3: what was acknowledged is delivered, dead-lettered, or dropped by the one policy that says so; P9: and all of it comes
    /// to its end by itself once the destination is back.
    #[test]
    fn flow_p12_p3_the_bound_holds_and_nothing_is_lost_unasked(
        on_full in any_policy(),
        limit in 1_u64..5,
        messages in prop::collection::vec((0_usize..3, 0_u64..400), 1..40),
        outages in prop::collection::vec((0_u64..3_000, 1_u64..3_000), 0..4),
        letters_fail in any::<bool>(),
    ) {
        let mut rig = Rig::opened(bounded(1, limit, on_full), Store::default());
        let began = rig.now;
        let mut windows = Vec::new();
        let mut at = 0;
        for (after, lasts) in outages {
            windows.push((began.plus(ms(at + after)), began.plus(ms(at + after + lasts))));
            at += after + lasts;
        }
        let until = windows.last().map_or(began, |(_, until)| *until);
        rig.on_send = Box::new(move |now, _| {
            let out = windows.iter().any(|(from, until)| now >= *from && now < *until);
            if out { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) }
        });
        rig.on_park = Box::new(move |now, _| if letters_fail && now < until { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) });
        let mut keys: BTreeMap<String, u64> = BTreeMap::new();
        for (nth, (key, pause)) in messages.iter().enumerate() {
            let topic = format!("k{key}");
            *keys.entry(topic.clone()).or_default() += 1;
            rig.deliver("in", on(&topic, &nth.to_string()));
            let end = rig.now.plus(ms(*pause));
            while rig.next_at().is_some_and(|at| at <= end) {
                rig.step();
                prop_assert!(rig.owner.store_usage().deepest() <= limit, "{:?}", rig.owner.store_usage());
            }
            rig.run_until(end);
        }
        for _ in 0..200_000 {
            prop_assert!(rig.owner.store_usage().deepest() <= limit, "{:?}", rig.owner.store_usage());
            if !rig.step() { break }
        }
        let (counters, all) = (rig.counters(0), messages.len() as u64);
        prop_assert_eq!(counters.delivered + counters.dead_lettered + counters.dropped, all, "{:?}", counters);
        prop_assert_eq!(acknowledged(&rig), all);
        prop_assert_eq!(rig.owner.store_usage().keys(), 0, "{:?}", rig.owner.store_usage());
        match on_full {
            OnFull::Hold => prop_assert_eq!(counters.delivered, all),
            OnFull::DropOldest => prop_assert_eq!(counters.dead_lettered, 0),
            OnFull::DeadLetterOldest | OnFull::RejectNewest => prop_assert_eq!(counters.dropped, 0),
        }
    }
}
