//! The budget of the whole bridge: a message and all that it leads to is charged as one, before anything of it is written, and waits until it is.

use crate::support::{Rig, Store, message, ms, options};
use causeway_core::flow::Reason;
use causeway_core::flow::quota::{DrawRequest, Drawn, NodeOptions, OutagePolicy, QuotaCall, QuotaReply, Terms};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::worker::options::OwnerOptions;
use causeway_core::worker::{Event, Observation};
use std::time::Duration;

fn charged(burst: u64, block: u64) -> OwnerOptions {
    let quota = NodeOptions {
        terms: Terms { count: 100, period_ms: 1_000, burst },
        block,
        lease_return: Some(ms(1_000)),
        dry_backoff: ms(50),
        draw_timeout: ms(500),
        probe_interval: ms(1_000),
        book_ahead: Duration::ZERO,
        outage: OutagePolicy::FailClosed,
        notice: Duration::from_secs(300),
    };
    OwnerOptions { quota: Some(quota), ..options(1) }
}

fn draws(rig: &Rig) -> Vec<DrawRequest> {
    rig.quota_calls.iter().filter_map(|call| if let QuotaCall::Draw(request) = call { Some(*request) } else { None }).collect()
}

fn brings(rig: &mut Rig, tokens: u64) {
    rig.event(Event::Quota(QuotaReply::Drawn(Outcome::Done(Drawn { tokens, ..Drawn::default() }))));
}

fn acknowledged(rig: &Rig) -> u64 {
    rig.acks.last().map_or(0, |ack| ack.ordinal)
}

/// P2, P3: nothing is written or acknowledged before all of it is paid.
#[test]
fn nothing_of_a_message_is_written_before_all_of_it_is_charged() {
    let mut rig = Rig::opened(charged(100, 1), Store::default());
    rig.deliver("in", message("a"));
    rig.run_for(ms(200));
    assert_eq!(draws(&rig).last().map(|draw| draw.tokens), Some(2), "one for it and one for where it goes");
    assert_eq!((acknowledged(&rig), rig.delivered.len(), rig.owner.wants_input()), (0, 0, false));
    brings(&mut rig, 1);
    rig.run_for(ms(40));
    assert_eq!((acknowledged(&rig), rig.delivered.len()), (0, 0), "in part is not at all");
    assert!(rig.observations.contains(&Observation::HeldUp { reason: Reason::QuotaExhausted }));
    assert_eq!(rig.observations.iter().filter(|seen| **seen == Observation::QuotaReached).count(), 1);
    rig.run_for(ms(60));
    assert_eq!(draws(&rig).len(), 2, "asked again after the pause");
    brings(&mut rig, 1);
    rig.run_for(ms(500));
    assert_eq!((acknowledged(&rig), rig.delivered.len(), rig.owner.wants_input()), (1, 1, true));
    assert_eq!(rig.owner.quota().unwrap().counters().charged, 2);
}

/// P6 and Q17: what is in the log is paid, whoever sends it and how often.
#[test]
fn a_repeated_send_and_what_another_owner_takes_up_are_not_charged_again() {
    let mut rig = Rig::opened(charged(100, 10), Store::default());
    rig.deliver("in", message("a"));
    rig.run_for(ms(100));
    brings(&mut rig, 10);
    rig.run_for(ms(5_000));
    assert_eq!(rig.delivered.len(), 1);
    assert_eq!(rig.owner.quota().unwrap().counters().charged, 2);

    let of_next = OwnerOptions { quota: charged(100, 10).quota, ..options(2) };
    let mut next = Rig::opened(of_next, rig.store.clone());
    next.run_for(ms(5_000));
    assert_eq!(next.owner.quota().unwrap().counters().charged, 0);
    assert!(draws(&next).is_empty());
}

#[test]
fn what_came_by_a_lost_connection_waits_no_more() {
    let mut rig = Rig::opened(charged(100, 1), Store::default());
    let first = rig.deliver("in", message("a"));
    rig.run_for(ms(100));
    rig.event(Event::Disconnected { connection: first.connection });
    assert_eq!(rig.owner.status(rig.wall()).held_up, 0);
    assert_eq!(rig.owner.quota().unwrap().status(rig.now).waiting, 0);
    assert!(rig.owner.wants_input());
}

/// P19
#[test]
fn whoever_stops_gives_back_what_it_has() {
    let mut rig = Rig::opened(charged(100, 10), Store::default());
    rig.deliver("in", message("a"));
    rig.run_for(ms(100));
    brings(&mut rig, 10);
    rig.event(Event::Shutdown { drain_until: rig.now.plus(ms(5_000)) });
    assert!(matches!(rig.quota_calls.last(), Some(QuotaCall::Return(_))), "{:?}", rig.quota_calls);
    assert_eq!(rig.owner.quota().unwrap().status(rig.now).tokens_local, 0);
}

#[test]
fn without_the_store_the_reason_is_another_one_and_nothing_is_raised() {
    let mut rig = Rig::opened(charged(100, 1), Store::default());
    rig.deliver("in", message("a"));
    rig.run_for(ms(100));
    rig.event(Event::Quota(QuotaReply::Drawn(Outcome::NotDone(Fault::new(FaultCode::Unavailable, "away")))));
    rig.run_for(ms(10));
    assert!(rig.owner.quota().unwrap().status(rig.now).degraded_since.is_some());
    rig.deliver("in", message("b"));
    assert!(!rig.observations.contains(&Observation::QuotaReached));
    assert_eq!(acknowledged(&rig), 0);
    rig.run_for(ms(1_100));
    brings(&mut rig, 10);
    rig.run_for(ms(500));
    assert_eq!(acknowledged(&rig), 2);
}
