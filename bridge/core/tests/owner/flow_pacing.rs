//! Limits on what is sent: what came is durable and acknowledged, waits for its key's budget, and others pass it.

use crate::support::{Rig, Sent, Store, fault, message, ms, options, route};
use causeway_core::drain::{OrderKey, SendLimit};
use causeway_core::flow::{LimitKey, Mode, OVERFLOW_KEY, Pairs, Reason};
use causeway_core::message::Message;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::units::Instant;
use causeway_core::worker::Observation;
use causeway_core::worker::options::{Delivery, OwnerOptions, to_first_legs};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn limit(key: LimitKey, pairs: &str) -> SendLimit {
    SendLimit {
        key,
        pairs: Pairs::parse(pairs).unwrap(),
        mode: Mode::StrictWindow,
        max_keys: 100,
        overflow_key: OVERFLOW_KEY.into(),
        drops_qos_0: false,
    }
}

fn paced(limits: Vec<SendLimit>) -> OwnerOptions {
    let mut options = options(1);
    options.legs[0].send_limits = limits;
    options
}

fn on(topic: &str, text: &str) -> Message {
    Message { topic: topic.to_owned(), qos: 1, ..message(text) }
}

fn sent(sends: &[Sent]) -> Vec<(Instant, String, String)> {
    let one = |batch: &Sent| -> Vec<(Instant, String, String)> {
        let text = |message: &Message| String::from_utf8(message.payload.to_vec()).unwrap();
        batch.entries.iter().map(|entry| (batch.at, entry.message.topic.clone(), text(&entry.message))).collect()
    };
    sends.iter().flat_map(one).collect()
}

#[test]
fn a_noisy_key_is_parked_and_the_others_pass_it_without_delay() {
    let mut rig = Rig::opened(paced(vec![limit(LimitKey::Topic, "5:10")]), Store::default());
    let began = rig.now;
    for nth in 0..50 {
        rig.deliver("in", on("noisy", &format!("{nth:02}")));
    }
    for nth in 0..30 {
        rig.deliver("in", on(&format!("quiet/{nth}"), "q"));
    }
    rig.run_for(ms(500));
    assert_eq!(rig.acks.last().map(|ack| ack.ordinal), Some(80), "durable, so acknowledged");
    let (noisy, quiet): (Vec<_>, Vec<_>) = sent(&rig.sends).into_iter().partition(|(_, topic, _)| topic == "noisy");
    assert_eq!((noisy.len(), quiet.len(), rig.owner.status(rig.wall()).deferred), (5, 30, 45));
    let deferred: u64 = rig
        .observations
        .iter()
        .map(|seen| match seen {
            Observation::Deferred { leg: 0, reason: Reason::KeyLimit, entries } => *entries,
            _ => 0,
        })
        .sum();
    assert_eq!(deferred, 45, "each is counted once, however often its line waits");
    rig.run_to_rest();
    let noisy: Vec<_> = sent(&rig.sends).into_iter().filter(|(_, topic, _)| topic == "noisy").collect();
    let texts: Vec<&str> = noisy.iter().map(|(_, _, text)| text.as_str()).collect();
    assert_eq!(texts, (0..50).map(|nth| format!("{nth:02}")).collect::<Vec<_>>(), "its own order");
    assert!(noisy.last().unwrap().0.since(began) >= ms(90_000), "ten windows of five");
    assert_eq!((rig.counters(0).delivered, rig.owner.status(rig.wall()).deferred), (80, 0));
}

#[test]
fn what_a_former_owner_left_is_paced_too_and_nothing_is_lost_by_a_crash() {
    let mut rig = Rig::opened(paced(vec![limit(LimitKey::Topic, "3:10")]), Store::default());
    for nth in 0..20 {
        rig.deliver("in", on("noisy", &format!("{nth:02}")));
    }
    rig.run_for(ms(500));
    let mut next =
        rig.successor(OwnerOptions { entry_id_base: 5 << 64, row_id_base: 5 << 96, ..paced(vec![limit(LimitKey::Topic, "3:10")]) });
    next.event(causeway_core::worker::Event::Tick);
    let began = next.now;
    next.run_until(began.plus(ms(5_000)));
    assert_eq!(sent(&next.sends).len(), 3, "the next owner keeps to it");
    next.run_to_rest();
    let all: BTreeSet<String> = sent(&rig.sends).into_iter().chain(sent(&next.sends)).map(|(_, _, text)| text).collect();
    assert_eq!(all.len(), 20);
    assert_eq!(next.store.unsettled().len(), 0);
}

#[test]
fn retries_are_free() {
    let mut rig = Rig::opened(paced(vec![limit(LimitKey::Connection, "1:1000")]), Store::default());
    let healed = rig.now.plus(ms(20_000));
    rig.on_send = Box::new(move |now, _| if now < healed { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) });
    rig.deliver("in", on("t", "a"));
    rig.run_until(healed.plus(ms(5_000)));
    assert_eq!(rig.counters(0).delivered, 1);
    assert!(rig.sends.len() > 5);
}

#[test]
fn no_budget_is_spent_while_nothing_can_leave() {
    let mut options = paced(vec![limit(LimitKey::Connection, "2:1")]);
    options.legs[0].policy.max_in_flight = 1;
    let mut rig = Rig::opened(options, Store::default());
    rig.send_latency = ms(10_000);
    for nth in 0..5 {
        rig.deliver("in", on("t", &nth.to_string()));
    }
    rig.run_for(ms(9_000));
    assert_eq!((rig.sends.len(), rig.owner.status(rig.wall()).deferred), (1, 0), "they wait for the destination, not for the limit");
    rig.run_to_rest();
    assert_eq!(rig.counters(0).delivered, 5);
}

#[test]
fn a_pace_drops_quality_of_service_0_and_counts_it() {
    let mut options = paced(vec![SendLimit { drops_qos_0: true, ..limit(LimitKey::Connection, "2:1") }]);
    options.legs[0].key_of = Arc::new(|_| Some(OrderKey(1)));
    let mut rig = Rig::opened(options, Store::default());
    for nth in 0..4 {
        rig.deliver("in", Message { qos: 0, ..on("t", &nth.to_string()) });
        rig.deliver("in", on("t", &format!("kept {nth}")));
    }
    rig.run_to_rest();
    let counters = rig.counters(0);
    assert_eq!((counters.received, counters.delivered, counters.route_limit), (8, 5, 3));
    assert_eq!(sent(&rig.sends).iter().filter(|(_, _, text)| text.starts_with("kept")).count(), 4);
    assert_eq!(rig.store.unsettled().len(), 0);
}

#[test]
fn a_key_that_is_parked_too_long_holds_the_intake_before_it_fills_the_memory() {
    let mut options = OwnerOptions { memory_entries: 40, ..paced(vec![limit(LimitKey::Topic, "1:1")]) };
    options.legs.truncate(1);
    let mut rig = Rig::opened(options, Store::default());
    let mut given = 0;
    while rig.owner.wants_input() && given < 100 {
        rig.deliver("in", on("noisy", &given.to_string()));
        rig.run_for(ms(50));
        given += 1;
    }
    assert!((20..30).contains(&given), "{given}");
    let before = rig.now;
    rig.run_while(|rig| !rig.owner.wants_input());
    assert!(rig.now.since(before) <= ms(2_000), "one leaves in a second, and the next is taken in");
    rig.deliver("in", on("quiet", "q"));
    rig.run_for(ms(500));
    assert!(sent(&rig.sends).iter().any(|(_, topic, _)| topic == "quiet"));
}

#[test]
fn a_stop_does_not_wait_for_what_is_parked() {
    let mut rig = Rig::opened(paced(vec![limit(LimitKey::Topic, "1:100")]), Store::default());
    for nth in 0..5 {
        rig.deliver("in", on("noisy", &nth.to_string()));
    }
    rig.run_for(ms(500));
    let began = rig.now;
    rig.stop_within(ms(60_000));
    rig.run_while(|rig| rig.end.is_none());
    assert!(rig.now.since(began) < ms(5_000));
    assert_eq!((rig.store.unsettled().len(), rig.owner.closing_counters()[0].handed_over), (4, 4));
}

#[test]
fn what_its_source_holds_waits_in_the_same_way() {
    let mut leg = route("r", "in");
    leg.delivery = Delivery::Held { retry_budget: ms(1_000) };
    leg.send_limits = vec![limit(LimitKey::Topic, "1:1")];
    let mut rig =
        Rig::opened(OwnerOptions { dispatch: to_first_legs(&[leg.clone()]), legs: vec![leg], lanes: 0, ..options(1) }, Store::default());
    for nth in 0..3 {
        rig.deliver("in", on("noisy", &nth.to_string()));
    }
    rig.deliver("in", on("quiet", "q"));
    rig.run_for(ms(100));
    assert_eq!((sent(&rig.sends).len(), rig.acks.last().map(|ack| ack.ordinal)), (2, Some(1)));
    rig.reconnect();
    assert_eq!((rig.counters(0).returned, rig.owner.status(rig.wall()).deferred), (2, 0));
    rig.run_to_rest();
}

/// What happens to the owner in the property below.
#[derive(Clone, Debug)]
enum Step {
    Come(u8),
    Pass(u64),
    Crash,
    Fail(u8),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// P6: each message is charged once, whatever is parked, unparked or tried again: as many first attempts as messages, and the budget lets as many through as
    /// if nothing had failed. P7: no window of any key holds more first attempts of one owner than its pairs allow. And order of each key, and no loss.
    #[test]
    fn p_6_p_7_each_message_is_charged_once_and_no_window_of_a_key_exceeds_its_pairs(
        steps in proptest::collection::vec(
            prop_oneof![
                6 => (0_u8..3).prop_map(Step::Come),
                3 => (0_u64..1_500).prop_map(Step::Pass),
                1 => Just(Step::Crash),
                1 => (1_u8..6).prop_map(Step::Fail),
            ],
            1..50,
        ),
    ) {
        let limits = || vec![limit(LimitKey::Topic, "2:1,5:4"), limit(LimitKey::Connection, "6:1")];
        let mut rig = Rig::opened(paced(limits()), Store::default());
        let (mut came, mut generation) = (BTreeMap::<String, Vec<String>>::new(), 1_u128);
        let mut lives: Vec<Vec<Sent>> = Vec::new();
        for step in steps {
            match step {
                Step::Come(topic) => {
                    let topic = format!("t{topic}");
                    let texts = came.entry(topic.clone()).or_default();
                    let text = format!("{:03}", texts.len());
                    texts.push(text.clone());
                    rig.deliver("in", on(&topic, &text));
                }
                Step::Pass(millis) => rig.run_for(ms(millis)),
                Step::Crash => {
                    // What was not durable would come again; here everything is made so.
                    rig.run_for(ms(50));
                    generation += 1;
                    lives.push(core::mem::take(&mut rig.sends));
                    rig = rig.successor(OwnerOptions { entry_id_base: generation << 64, row_id_base: generation << 96, ..paced(limits()) });
                    rig.event(causeway_core::worker::Event::Tick);
                    rig.run_while(|rig| !rig.observations.iter().any(|seen| matches!(seen, Observation::Recovered { .. })));
                }
                Step::Fail(times) => {
                    let mut left = times;
                    rig.on_send = Box::new(move |_, _| {
                        left = left.saturating_sub(1);
                        if left > 0 { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) }
                    });
                }
            }
        }
        rig.run_to_rest();
        lives.push(core::mem::take(&mut rig.sends));
        prop_assert_eq!(rig.store.unsettled().len(), 0);
        let mut arrived = BTreeMap::<String, BTreeSet<String>>::new();
        for life in lives {
            let mut firsts = BTreeMap::<String, Vec<(Instant, String)>>::new();
            for (at, topic, text) in sent(&life) {
                arrived.entry(topic.clone()).or_default().insert(text.clone());
                let of_topic = firsts.entry(topic).or_default();
                if of_topic.iter().all(|(_, seen)| *seen != text) {
                    of_topic.push((at, text));
                }
            }
            for (topic, firsts) in firsts {
                prop_assert!(firsts.is_sorted_by_key(|(_, text)| text.clone()), "{topic}: {firsts:?}");
                for (at, _) in &firsts {
                    for (count, span) in [(2, 1_000), (5, 4_000)] {
                        // A batch may wait for company for a linger after it was charged.
                        let within = firsts.iter().filter(|(then, _)| then <= at && at.since(*then) + ms(20) < ms(span)).count();
                        prop_assert!(within <= count, "{within} of {topic} within {span} ms");
                    }
                }
            }
        }
        for (topic, texts) in came {
            prop_assert_eq!(arrived.get(&topic).map_or(0, BTreeSet::len), texts.len(), "{}", topic);
        }
    }
}
