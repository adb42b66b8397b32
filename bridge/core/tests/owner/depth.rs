//! A bounded outbox: with so many messages in it nothing more is taken in, and it goes on where it stopped.

use crate::support::{Rig, Store, fault, message, ms, options, route};
use causeway_core::config::model as config;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::worker::depth::DepthLimit;
use causeway_core::worker::options::{Delivery, OwnerOptions, to_first_legs};
use causeway_core::worker::{Event, Observation};
use proptest::prelude::*;
use std::time::Duration;

fn bounded(nth: u64, most: u64, look_again_after: Duration) -> OwnerOptions {
    let mut options = options(nth);
    options.legs[0].depth = Some(DepthLimit { most, look_again_after });
    options
}

fn refused() -> Outcome<()> {
    Outcome::NotDone(fault(FaultCode::Unavailable))
}

/// Gives it what it wants, `most` messages at most; tells how many.
fn feed(rig: &mut Rig, most: u32) -> u32 {
    let mut given = 0;
    while given < most && rig.owner.wants_input() {
        rig.deliver("in", message(&format!("{given}")));
        given += 1;
        rig.run_for(ms(1));
    }
    given
}

fn times_full(rig: &Rig) -> usize {
    rig.observations.iter().filter(|seen| matches!(seen, Observation::OutboxFull { .. })).count()
}

#[test]
fn nothing_is_taken_in_above_the_depth_and_nothing_is_lost() {
    let mut rig = Rig::opened(bounded(1, 50, ms(1_000)), Store::default());
    let healed = rig.now.plus(ms(20_000));
    rig.on_send = Box::new(move |now, _| if now < healed { refused() } else { Outcome::Done(()) });
    assert_eq!(feed(&mut rig, 200), 50);
    rig.run_until(healed);
    assert!(!rig.owner.wants_input());
    assert_eq!((rig.acks.last().map(|ack| ack.ordinal), times_full(&rig)), (Some(50), 1), "what was taken in is safe, and acknowledged");
    rig.run_while(|rig| !rig.owner.wants_input());
    while rig.delivered.len() < 200 {
        let left = 200 - u32::try_from(rig.counters(0).received).unwrap();
        feed(&mut rig, left);
        rig.run_for(ms(100));
    }
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), rig.store.unsettled().len()), (200, 0));
}

#[test]
fn it_is_looked_at_again_after_the_time_that_was_configured_and_not_before() {
    for time in [ms(300), ms(5_000)] {
        let mut rig = Rig::opened(bounded(1, 10, time), Store::default());
        rig.send_latency = ms(100);
        assert_eq!(feed(&mut rig, 20), 10);
        let full_at = rig.now;
        rig.run_while(|rig| !rig.owner.wants_input());
        assert_eq!(rig.delivered.len(), 10);
        let held = rig.now.since(full_at);
        assert!(held <= time && held + ms(5) >= time, "{held:?} of {time:?}");
    }
}

#[test]
fn what_a_former_owner_left_counts() {
    let mut former = Rig::opened(options(1), Store::default());
    former.on_send = Box::new(|_, _| refused());
    for nth in 0..60 {
        former.deliver("in", message(&format!("{nth}")));
    }
    former.run_for(ms(60));
    let mut rig = former.successor(bounded(2, 50, ms(1_000)));
    rig.on_send = Box::new(|_, _| refused());
    rig.event(Event::Tick);
    while !rig.observations.iter().any(|seen| matches!(seen, Observation::Recovered { .. })) {
        assert!(rig.step() && !rig.owner.wants_input(), "before it is read nobody knows how much there is");
    }
    rig.run_for(ms(10));
    assert!(!rig.owner.wants_input());
    rig.on_send = Box::new(|_, _| Outcome::Done(()));
    rig.run_while(|rig| !rig.owner.wants_input());
    assert_eq!(rig.counters(0).received, 0);
}

#[test]
fn a_route_that_is_full_holds_up_its_session_and_one_that_is_held_by_its_source_has_no_depth() {
    let legs = vec![route("full", "in"), route("other", "elsewhere")];
    let mut options = OwnerOptions { dispatch: to_first_legs(&legs), legs, ..options(1) };
    options.legs[0].depth = Some(DepthLimit { most: 5, look_again_after: ms(100) });
    let mut rig = Rig::opened(options, Store::default());
    rig.on_send = Box::new(|_, entry| if &*entry.route == "full" { refused() } else { Outcome::Done(()) });
    for nth in 0..40 {
        rig.deliver("elsewhere", message(&format!("{nth}")));
    }
    rig.run_for(ms(10_000));
    assert!(rig.owner.wants_input(), "what went through does not count");
    assert_eq!(feed(&mut rig, 20), 5);

    let unbounded = config::Policy::default();
    assert_eq!(DepthLimit::of(Delivery::Logged, &unbounded), None);
    let policy = config::Policy { max_outbox_depth: Some(500), ..unbounded };
    assert_eq!(DepthLimit::of(Delivery::Held { retry_budget: ms(1) }, &policy), None);
    let limit = Some(DepthLimit { most: 500, look_again_after: ms(1_000) });
    assert_eq!(DepthLimit::of(Delivery::Logged, &policy), limit);
    assert_eq!(DepthLimit::of(Delivery::Spilled { after: ms(1) }, &policy), limit);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// However sends fail and whatever the mode: the depth is never exceeded, and everything arrives.
    #[test]
    fn the_depth_is_never_exceeded(most in 1_u64..40, look in 1_u64..400, refusals in any::<u64>(), spills in any::<bool>(), pause in 0_u64..30) {
        let mut options = bounded(1, most, ms(look));
        if spills {
            options.legs[0].delivery = Delivery::Spilled { after: ms(30) };
        }
        let mut rig = Rig::opened(options, Store::default());
        let mut dice = refusals;
        rig.on_send = Box::new(move |_, _| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if dice >> 63 == 0 { refused() } else { Outcome::Done(()) }
        });
        let mut given = 0;
        for _ in 0..100_000 {
            if given == 150 {
                break;
            }
            if rig.owner.wants_input() {
                rig.deliver("in", message(&format!("{given}")));
                given += 1;
            }
            let status = rig.owner.status(rig.wall());
            let leg = &status.legs[0];
            prop_assert!(leg.pending + leg.in_outbox + leg.in_flight <= most, "{:?}", leg);
            rig.run_for(ms(1 + pause));
        }
        rig.run_to_rest();
        prop_assert_eq!((given, rig.delivered.len()), (150, 150));
    }
}
