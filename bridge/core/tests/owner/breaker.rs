//! A circuit breaker before a destination: what it holds back is safe and goes on when it closes.

use crate::support::{Rig, Store, fault, message, ms, options};
use causeway_core::config::model::Config;
use causeway_core::config::{Source, load};
use causeway_core::drain::breaker::{BreakerOptions, Circuit};
use causeway_core::drain::retry::Backoff;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::worker::Observation;
use causeway_core::worker::options::OwnerOptions;
use proptest::prelude::*;
use std::time::Duration;

const OPTIONS: BreakerOptions = BreakerOptions { failures: 3, successes: 2, reset: Duration::from_secs(30), probes: 1 };

fn guarded(breaker: BreakerOptions) -> OwnerOptions {
    let mut options = options(1);
    options.legs[0].breaker = Some(breaker);
    options.legs[0].policy.backoff = Backoff { initial: ms(100), max: ms(1_000), multiplier: 2.0, jitter: 0.0 };
    options
}

fn refused(code: FaultCode) -> Outcome<()> {
    Outcome::NotDone(fault(code))
}

#[test]
fn it_opens_tries_with_one_message_and_closes_and_nothing_is_lost() {
    let mut rig = Rig::opened(guarded(OPTIONS), Store::default());
    let healed = rig.now.plus(Duration::from_secs(70));
    rig.on_send = Box::new(move |now, _| if now < healed { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
    for nth in 0..50 {
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.run_for(ms(5_000));
    let circuit = |rig: &Rig| rig.owner.status(rig.wall()).legs[0].circuit;
    let before = rig.sends.len();
    assert!(before >= 3 && circuit(&rig) == Circuit::Open, "{before}");
    assert!(!rig.owner.is_due(), "what is held back is no sign that the drain is stuck");
    rig.run_until(healed);
    let probes: Vec<usize> = rig.sends[before..].iter().map(|sent| sent.entries.len()).collect();
    assert_eq!(probes, [1, 1], "one probe every 30 s");
    assert_eq!(rig.observations.iter().filter(|seen| matches!(seen, Observation::CircuitOpened { leg: 0 })).count(), 3);
    rig.run_to_rest();
    let after: Vec<usize> = rig.sends[before + 2..].iter().map(|sent| sent.entries.len()).collect();
    assert_eq!(after[..2], [1, 1], "two probes are accepted before it closes");
    assert_eq!((rig.delivered.len(), rig.store.unsettled().len(), circuit(&rig)), (50, 0, Circuit::Closed));
}

#[test]
fn every_number_counts() {
    // Sends until it opens, under an outage: one message, so that each send is one attempt.
    let sends = |breaker: BreakerOptions, time: Duration| {
        let mut rig = Rig::opened(guarded(breaker), Store::default());
        rig.on_send = Box::new(|_, _| refused(FaultCode::Unavailable));
        rig.deliver("in", message("one"));
        rig.run_for(time);
        rig.sends.len()
    };
    assert_eq!((sends(OPTIONS, ms(20_000)), sends(BreakerOptions { failures: 7, ..OPTIONS }, ms(20_000))), (3, 7));
    assert_eq!(sends(BreakerOptions { reset: Duration::from_secs(4), ..OPTIONS }, ms(10_000)), 5);
    // Sends of half an open circuit, and how many it takes to close it.
    for (probes, successes) in [(1, 1), (3, 2), (2, 4)] {
        let mut rig = Rig::opened(guarded(BreakerOptions { probes, successes, ..OPTIONS }), Store::default());
        let healed = rig.now.plus(Duration::from_secs(15));
        rig.on_send = Box::new(move |now, _| if now < healed { refused(FaultCode::Unavailable) } else { Outcome::Done(()) });
        for nth in 0..60 {
            rig.deliver("in", message(&format!("{nth}")));
        }
        rig.run_until(healed);
        let before = rig.sends.len();
        rig.run_to_rest();
        let sizes: Vec<usize> = rig.sends[before..].iter().map(|sent| sent.entries.len()).collect();
        assert!(sizes[..successes as usize].iter().all(|size| *size <= probes), "{sizes:?}");
        assert!(sizes[successes as usize] > probes, "{sizes:?}");
    }
}

#[test]
fn a_message_that_is_refused_for_what_it_is_opens_nothing() {
    let mut rig = Rig::opened(guarded(OPTIONS), Store::default());
    rig.on_send = Box::new(|_, _| refused(FaultCode::InvalidPayload));
    for nth in 0..20 {
        rig.deliver("in", message(&format!("{nth}")));
        rig.run_for(ms(50));
    }
    assert_eq!((rig.letters.len(), rig.observations.iter().any(|seen| matches!(seen, Observation::CircuitOpened { .. }))), (20, false));
}

#[test]
fn the_configuration_says_how() {
    let of = |text: &str| {
        let config: Config = load(&[Source { name: "c", text }], &|_| None).unwrap().config;
        BreakerOptions::of(&config, &config.routes[0])
    };
    let text = include_str!("../../../../tests/fixtures/valid/processors.yaml");
    assert_eq!(of(text), Some(BreakerOptions { failures: 3, successes: 1, reset: Duration::from_secs(10), probes: 2 }));
    let (before, _) = text.split_once("    options: {failure_threshold").unwrap();
    let default = BreakerOptions { failures: 5, successes: 2, reset: Duration::from_secs(30), probes: 1 };
    assert_eq!(of(before), Some(default));
    assert_eq!(of(&text.replace("tenant, guard]", "tenant]")), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// However sends fail: everything arrives.
    #[test]
    fn everything_arrives(failures in 1_u32..5, successes in 1_u32..4, probes in 1_usize..4, refusals in any::<u64>()) {
        let mut rig = Rig::opened(guarded(BreakerOptions { failures, successes, reset: ms(700), probes }), Store::default());
        let mut dice = refusals;
        rig.on_send = Box::new(move |_, _| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if dice >> 63 == 0 { refused(FaultCode::Unavailable) } else { Outcome::Done(()) }
        });
        for nth in 0..100 {
            rig.deliver("in", message(&format!("{nth}")));
            rig.run_for(ms(5));
        }
        rig.run_to_rest();
        prop_assert_eq!(rig.delivered.len(), 100);
    }
}
