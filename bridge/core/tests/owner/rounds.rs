//! Retries and recovery in rounds: each setting of the pacing changes what is sent, and when; what is new never waits, and nothing is lost or overtaken.

use crate::support::{Rig, Store, fault, message, ms, options, policy};
use causeway_core::config::model::RouteSession;
use causeway_core::drain::retry::Backoff;
use causeway_core::drain::{OrderKey, Pacing};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::units::Instant;
use causeway_core::worker::options::{OwnerOptions, Policy};
use causeway_core::worker::{Event, Observation};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn pacing() -> Pacing {
    Pacing { shortest: ms(4_000), longest: ms(4_000), multiplier: 1.0, first: 10, most: 10, max_sends: 100 }
}

fn paced(nth: u64, pacing: Pacing) -> OwnerOptions {
    let mut options = options(nth);
    options.legs[0].pacing = Some(pacing);
    options.legs[0].policy = Policy { backoff: Backoff { initial: ms(50), max: ms(50), multiplier: 1.0, jitter: 0.0 }, ..policy() };
    options
}

fn refused(code: FaultCode) -> Outcome<()> {
    Outcome::NotDone(fault(code))
}

/// An owner that has recovered nothing yet of `count` messages that a former one could not send.
fn successor(options: OwnerOptions, count: u32) -> Rig {
    let mut former = Rig::opened(crate::support::options(1), Store::default());
    former.on_send = Box::new(|_, _| refused(FaultCode::Unavailable));
    for nth in 0..count {
        former.deliver("in", message(&format!("{nth}")));
    }
    former.run_for(ms(60));
    assert_eq!(former.store.unsettled().len(), count as usize);
    former.successor(options)
}

/// Messages sent until now, for each moment of a send.
fn sent_at(rig: &Rig) -> BTreeMap<Instant, usize> {
    let mut sent = BTreeMap::new();
    for send in &rig.sends {
        *sent.entry(send.at).or_insert(0) += send.entries.len();
    }
    sent
}

/// The rounds of what an owner sent: messages of sends that lie closer together than a second.
fn rounds(rig: &Rig) -> Vec<(Instant, usize)> {
    let mut rounds: Vec<(Instant, Instant, usize)> = Vec::new();
    for (at, count) in sent_at(rig) {
        match rounds.last_mut() {
            Some((_, last, total)) if at.since(*last) < ms(1_000) => (*last, *total) = (at, *total + count),
            _ => rounds.push((at, at, count)),
        }
    }
    rounds.into_iter().map(|(began, _, count)| (began, count)).collect()
}

#[test]
fn recovery_into_an_outage_takes_a_round_at_a_time_and_the_rest_at_once_when_it_is_over() {
    let mut rig = successor(paced(2, pacing()), 60);
    let healed = rig.now.plus(Duration::from_secs(20));
    rig.on_send = Box::new(move |now, _| if now < healed { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    rig.event(Event::Tick);
    rig.run_until(healed);
    let seen = rounds(&rig);
    assert_eq!(seen.iter().map(|(_, count)| *count).collect::<Vec<_>>()[..4], [10, 5, 2, 1], "the size is that of the first round, halved");
    for pair in seen.windows(2) {
        let pause = pair[1].0.since(pair[0].0);
        assert!(pause >= ms(3_000) && pause <= ms(5_000), "4 s, give or take a quarter: {pause:?}");
    }
    rig.run_while(|rig| rig.delivered.is_empty());
    let first = rig.now;
    rig.run_to_rest();
    assert_eq!(rig.delivered.len(), 60);
    let last = rig.sends.last().unwrap().at;
    assert!(last.since(first) < ms(1_000), "rounds of which everything is accepted follow at once: {:?}", last.since(first));
}

#[test]
fn a_successor_under_a_healthy_destination_waits_for_nothing() {
    for (first, most, largest) in [(10, 40, 40), (10, 80, 80), (50, 80, 80)] {
        let mut rig = successor(paced(2, Pacing { first, most, ..pacing() }), 300);
        rig.event(Event::Tick);
        rig.run_while(|rig| rig.delivered.is_empty());
        let began = rig.now;
        rig.run_to_rest();
        let per_round: Vec<usize> = sent_at(&rig).into_values().collect();
        assert_eq!((per_round[0], per_round.iter().max()), (first, Some(&largest)), "{per_round:?}");
        assert!(rig.sends.last().unwrap().at.since(began) < ms(1_000));
        assert_eq!(rig.delivered.len(), 300);
    }
}

#[test]
fn what_failed_waits_for_a_round_and_what_is_new_does_not() {
    let mut rig = Rig::opened(paced(1, pacing()), Store::default());
    let began = rig.now;
    rig.on_send =
        Box::new(|_, entry| if entry.message.payload.starts_with(b"bad") { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    for nth in 0..30 {
        rig.deliver("in", message(&format!("bad {nth}")));
    }
    let tries =
        |rig: &Rig| rig.sends.iter().flat_map(|sent| &sent.entries).filter(|entry| entry.message.payload.starts_with(b"bad")).count();
    rig.run_for(ms(2_000));
    assert_eq!(tries(&rig), 30 + 1, "each once, and with the first round the one that was back by then");
    rig.deliver("in", message("new"));
    rig.run_for(ms(50));
    assert_eq!(rig.delivered.len(), 1, "it was not held up");
    rig.run_until(began.plus(ms(10_000)));
    assert!(tries(&rig) < 30 + 30, "{}: at most one more round in each 3 s", tries(&rig));
    // Whoever failed again stands behind the others: none of them is starved.
    rig.run_for(Duration::from_secs(200));
    let mut attempts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for entry in rig.sends.iter().flat_map(|sent| &sent.entries) {
        *attempts.entry(entry.message.payload.to_vec()).or_default() += 1;
    }
    attempts.remove(&b"new"[..]);
    let (least, most) = (attempts.values().min().unwrap(), attempts.values().max().unwrap());
    assert!(*least >= 2 && most - least <= 2, "{attempts:?}");
}

#[test]
fn an_adaptive_pause_grows_while_nothing_is_accepted() {
    let adaptive = Pacing { shortest: ms(2_000), longest: ms(30_000), multiplier: 3.0, ..pacing() };
    let mut rig = Rig::opened(paced(1, adaptive), Store::default());
    rig.on_send = Box::new(|_, _| refused(FaultCode::Unavailable));
    rig.deliver("in", message("one"));
    rig.run_for(Duration::from_secs(180));
    let seen = rounds(&rig);
    // The first attempt and the first round stand together.
    let pauses: Vec<Duration> = seen.windows(2).map(|pair| pair[1].0.since(pair[0].0)).collect();
    for (pause, full) in pauses.iter().zip([6_000, 18_000, 30_000, 30_000]) {
        assert!(*pause >= ms(full * 3 / 4) && *pause <= ms(full * 5 / 4 + 100), "{pauses:?}");
    }
    assert!(pauses.len() >= 4, "{pauses:?}");
    assert!(pauses[2] != pauses[3], "spread at random: {pauses:?}");
}

#[test]
fn no_more_sends_than_configured_are_under_way() {
    for max_sends in [1, 3] {
        let mut rig = Rig::opened(paced(1, Pacing { max_sends, ..pacing() }), Store::default());
        rig.send_latency = ms(500);
        for nth in 0..60 {
            rig.deliver("in", message(&format!("{nth}")));
        }
        rig.run_for(ms(200));
        assert_eq!(rig.sends.len(), max_sends, "nothing has come back yet");
        rig.run_to_rest();
        assert_eq!(rig.delivered.len(), 60);
    }
}

#[test]
fn a_stop_does_not_wait_for_rounds() {
    let mut rig = successor(paced(2, pacing()), 60);
    let healed = rig.now.plus(ms(1_000));
    rig.on_send = Box::new(move |now, _| if now < healed { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    rig.event(Event::Tick);
    rig.run_until(healed);
    assert!(rig.delivered.is_empty());
    rig.stop_within(ms(1_000));
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!(rig.delivered.len(), 60);
}

#[test]
fn nothing_new_overtakes_what_former_owners_left() {
    let mut rig = successor(paced(2, pacing()), 60);
    let healed = rig.now.plus(ms(6_000));
    rig.on_send = Box::new(move |now, _| if now < healed { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    rig.event(Event::Tick);
    rig.run_while(|rig| !rig.observations.iter().any(|seen| matches!(seen, Observation::Recovered { .. })));
    rig.deliver("in", message("new"));
    rig.run_to_rest();
    let first_tries: Vec<String> = {
        let mut seen = std::collections::BTreeSet::new();
        let entries = rig.sends.iter().flat_map(|sent| &sent.entries).filter(|entry| seen.insert(entry.id));
        entries.map(|entry| String::from_utf8(entry.message.payload.to_vec()).unwrap()).collect()
    };
    assert_eq!((first_tries.len(), first_tries.last().map(String::as_str)), (61, Some("new")));
}

#[test]
fn the_configuration_says_how() {
    let block = |rest: serde_json::Value| -> Pacing {
        let mut fields = json!({ "session_id": "s", "sender_id": "q" });
        fields.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Pacing::from(&serde_json::from_value::<RouteSession>(fields).unwrap())
    };
    let default = Pacing { shortest: ms(1_000), longest: ms(1_000), multiplier: 1.0, first: 100, most: 500, max_sends: 10 };
    assert_eq!(block(json!({})), default);
    let fixed = |interval: u64| Pacing { shortest: ms(interval), longest: ms(interval), ..default };
    assert_eq!(block(json!({ "drain_interval": "3s" })), fixed(3_000));
    assert_eq!(block(json!({ "drain_strategy": { "type": "fixed_poll" } })), default);
    assert_eq!(block(json!({ "drain_strategy": { "type": "fixed_poll", "interval": "2s" } })), fixed(2_000));
    let adaptive = Pacing { shortest: ms(100), longest: ms(30_000), multiplier: 2.0, ..default };
    assert_eq!(block(json!({ "drain_strategy": { "type": "adaptive_backoff" } })), adaptive);
    assert_eq!(
        block(
            json!({ "drain_strategy": { "type": "adaptive_backoff", "min_interval": "500ms", "max_interval": "10s", "multiplier": 1.5 } })
        ),
        Pacing { shortest: ms(500), longest: ms(10_000), multiplier: 1.5, ..default }
    );
    assert_eq!(
        block(json!({ "drain_batch_size": 7, "drain_max_batch_size": 9, "drain_max_concurrency": 2 })),
        Pacing { first: 7, most: 9, max_sends: 2, ..default }
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever is refused and however it is paced: everything arrives, what has a key in its order, and nobody sends more than allowed at a time.
    #[test]
    fn everything_arrives_in_order(
        first in 1_usize..6, more in 0_usize..6, max_sends in 1_usize..4, multiplier in 1.0_f64..3.0, refusals in any::<u64>(),
        inherited in 0_u32..40, settled_ahead in 1_usize..30, fresh in 1_u32..40,
    ) {
        let mut options = paced(2, Pacing { shortest: ms(200), longest: ms(2_000), multiplier, first, most: first + more, max_sends });
        options.max_settled_ahead = settled_ahead;
        options.memory_entries = 25;
        options.legs[0].key_of = Arc::new(|entry: &Entry| Some(OrderKey(u64::from(entry.message.payload[0] % 5))));
        let mut rig = successor(options, inherited);
        let mut dice = refusals;
        rig.on_send = Box::new(move |_, _| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if dice >> 62 == 0 { refused(FaultCode::Unavailable) } else { Outcome::Done(()) }
        });
        rig.event(Event::Tick);
        rig.run_while(|rig| !rig.observations.iter().any(|seen| matches!(seen, Observation::Opened { .. })));
        for nth in 0..fresh {
            rig.deliver("in", Message { payload: bytes::Bytes::from(vec![u8::try_from(nth).unwrap()]), ..message("") });
            rig.run_for(ms(7));
        }
        rig.run_to_rest();
        prop_assert_eq!(rig.delivered.len(), (inherited + fresh) as usize);
        prop_assert!(rig.store.unsettled().is_empty());
    }
}
