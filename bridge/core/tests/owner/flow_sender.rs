//! Senders that pause: nothing leaves meanwhile, nothing is lost, and they come back by themselves.

use crate::support::{Rig, Store, fault, message, ms, options};
use causeway_core::flow::sender::{ResumeOptions, SenderLink, SenderOptions, SenderPhase};
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::worker::options::OwnerOptions;
use causeway_core::worker::{Event, Observation};
use proptest::prelude::*;
use std::time::Duration;

fn flowing() -> OwnerOptions {
    let mut options = options(1);
    let resume = ResumeOptions { jitter: Duration::ZERO, ..ResumeOptions::default() };
    options.legs[0].sender = SenderOptions { resume, ..SenderOptions::default() };
    options
}

const fn link(pending_bytes: u64) -> SenderLink {
    SenderLink { pending_bytes, up: Some(true), session_present: false, window: None, throttles: 0 }
}

fn tell(rig: &mut Rig, link: SenderLink) {
    rig.event(Event::SenderLink { leg: 0, link });
}

fn phase(rig: &Rig) -> SenderPhase {
    rig.owner.status(rig.wall()).legs[0].sender.phase
}

fn resumed(rig: &Rig, wanted: bool) -> usize {
    rig.observations.iter().filter(|seen| matches!(seen, Observation::SenderResumed { leg: 0, forced } if *forced == wanted)).count()
}

fn deliver(rig: &mut Rig, count: usize) {
    for nth in 0..count {
        rig.deliver("in", message(&format!("{nth}")));
    }
}

#[test]
fn flow_nothing_is_sent_while_a_sender_pauses_and_everything_after() {
    let mut rig = Rig::opened(flowing(), Store::default());
    tell(&mut rig, link(1_310_721));
    deliver(&mut rig, 100);
    rig.run_for(Duration::from_secs(60));
    assert_eq!((rig.sends.len(), phase(&rig)), (0, SenderPhase::Paused));
    assert!(rig.owner.senders_pause() && !rig.owner.is_due(), "what is held back is no sign that the drain is stuck");
    tell(&mut rig, link(655_359));
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), rig.store.unsettled().len(), phase(&rig)), (100, 0, SenderPhase::Running));
    assert_eq!((resumed(&rig, false), resumed(&rig, true)), (1, 0));
    assert!(!rig.owner.senders_pause());
    let most: Vec<usize> = rig.sends.iter().map(|sent| sent.entries.len()).collect();
    assert_eq!(most[0], 8, "it begins with little: {most:?}");
}

#[test]
fn flow_a_send_that_never_ends_holds_a_sender_up_for_30_seconds() {
    let mut rig = Rig::opened(flowing(), Store::default());
    rig.send_latency = Duration::from_secs(300);
    deliver(&mut rig, 1);
    rig.run_for(ms(100));
    assert_eq!(rig.sends.len(), 1);
    tell(&mut rig, link(2_000_000));
    tell(&mut rig, link(0));
    let settling_since = rig.now;
    deliver(&mut rig, 10);
    rig.run_until(settling_since.plus(ms(29_900)));
    assert_eq!((rig.sends.len(), phase(&rig)), (1, SenderPhase::Settling));
    rig.run_until(settling_since.plus(ms(30_200)));
    assert_eq!((resumed(&rig, true), phase(&rig)), (1, SenderPhase::Running));
    assert!(rig.sends.len() > 1);
}

#[test]
fn flow_a_full_window_alone_is_no_pause() {
    let mut options = flowing();
    options.legs[0].sender.max_in_flight = 4;
    let mut rig = Rig::opened(options, Store::default());
    deliver(&mut rig, 100);
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), resumed(&rig, false) + resumed(&rig, true)), (100, 0));
    assert!(rig.sends.iter().all(|sent| sent.entries.len() <= 4));
}

#[test]
fn flow_bytes_under_way_are_bounded() {
    let mut options = flowing();
    // Each takes 101 bytes of a batch.
    options.legs[0].sender.max_unacked_bytes = 250;
    let mut rig = Rig::opened(options, Store::default());
    deliver(&mut rig, 9);
    rig.run_to_rest();
    assert_eq!(rig.delivered.len(), 9);
    assert!(rig.sends.iter().all(|sent| sent.entries.len() <= 2), "two fit");
}

/// Whoever asks for less is left alone, and the message that it happened to is none the worse for it.
#[test]
fn flow_throttled_attempts_do_not_count() {
    let mut options = flowing();
    options.legs[0].policy.max_replay_attempts = 2;
    options.legs[0].policy.replay_budget = Duration::ZERO;
    let mut rig = Rig::opened(options, Store::default());
    let healed = rig.now.plus(Duration::from_secs(120));
    rig.on_send = Box::new(move |now, entry| match entry.message.payload.as_ref() {
        b"0" if now < healed => Outcome::NotDone(fault(FaultCode::Throttled)),
        _ => Outcome::Done(()),
    });
    deliver(&mut rig, 20);
    rig.run_until(healed);
    let throttled = rig.observations.iter().filter(|seen| matches!(seen, Observation::Throttled { leg: 0, .. })).count();
    assert!(throttled > 5, "{throttled}");
    assert_eq!(rig.observations.iter().filter(|seen| matches!(seen, Observation::Retried { .. })).count(), 0);
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), rig.letters.len()), (20, 0), "others passed all the while, and it is no poison");
}

/// A message that is refused for a reason of its own is poison as ever, also where it was throttled before.
#[test]
fn flow_refused_attempts_count_as_ever_after_throttled_ones() {
    let mut options = flowing();
    options.legs[0].policy.max_replay_attempts = 2;
    options.legs[0].policy.replay_budget = Duration::ZERO;
    let mut rig = Rig::opened(options, Store::default());
    let until = rig.now.plus(Duration::from_secs(30));
    rig.on_send = Box::new(move |now, entry| match entry.message.payload.as_ref() {
        b"0" => Outcome::NotDone(fault(if now < until { FaultCode::Throttled } else { FaultCode::Unavailable })),
        _ => Outcome::Done(()),
    });
    deliver(&mut rig, 1);
    rig.run_until(until.plus(ms(500)));
    for _ in 0..20 {
        rig.deliver("in", message("x"));
        rig.run_for(ms(2_000));
    }
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), rig.letters.len()), (20, 1));
    assert_eq!(rig.letters.values().next().unwrap().error_code, "POISON_MESSAGE");
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(u8),
    Link(SenderLink),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let link = (0_u64..3_000_000, prop::option::of(any::<bool>()), any::<bool>(), prop::option::of(0_u16..20), 0_u64..3).prop_map(
        |(pending_bytes, up, session_present, window, throttles)| SenderLink { pending_bytes, up, session_present, window, throttles },
    );
    prop_oneof![(1_u8..30).prop_map(Step::Deliver), link.prop_map(Step::Link), (0_u64..15_000).prop_map(Step::Pass)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever is told of a connection, and whenever: each message is on exactly one account, what a sender may not send is not sent, and once the
    /// connection takes everything, all of it arrives.
    #[test]
    fn flow_no_message_is_forgotten_or_sent_in_a_pause(steps in prop::collection::vec(step(), 1..40), throttles in 0_u32..20) {
        let mut rig = Rig::opened(flowing(), Store::default());
        let mut left = throttles;
        rig.on_send = Box::new(move |_, _| {
            left = left.saturating_sub(1);
            if left % 3 == 2 { Outcome::NotDone(fault(FaultCode::Throttled)) } else { Outcome::Done(()) }
        });
        let mut delivered = 0;
        for step in steps {
            let before = (rig.sends.len(), phase(&rig));
            match step {
                Step::Deliver(count) => {
                    delivered += usize::from(count);
                    deliver(&mut rig, usize::from(count));
                }
                Step::Link(link) => tell(&mut rig, link),
                Step::Pass(millis) => rig.run_for(ms(millis)),
            }
            let status = rig.owner.status(rig.wall());
            prop_assert_eq!(status.legs[0].imbalance(), 0);
            prop_assert!(before.1 != SenderPhase::Paused || phase(&rig) != SenderPhase::Paused || rig.sends.len() == before.0);
        }
        tell(&mut rig, SenderLink { throttles: 2, ..link(0) });
        rig.run_to_rest();
        prop_assert_eq!((rig.delivered.len(), rig.store.unsettled().len()), (delivered, 0));
    }
}
