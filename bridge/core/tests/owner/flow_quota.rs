//! The budget of the whole bridge: a message and all that it leads to is charged as one, before anything of it is written, and waits until it is.

use crate::support::{Rig, Store, Trouble, at_ms, message, ms, options};
use causeway_core::drain::OrderKey;
use causeway_core::flow::Reason;
use causeway_core::flow::quota::{DrawRequest, Drawn, NodeOptions, OnExhausted, OutagePolicy, QuotaCall, QuotaReply, Terms};
use causeway_core::log::Call;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::worker::options::{Delivery, OwnerOptions};
use causeway_core::worker::{Event, Observation};
use std::sync::Arc;
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
        on_exhausted: OnExhausted::Hold,
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
    assert_eq!(rig.observations.iter().filter(|seen| matches!(seen, Observation::QuotaReached { .. })).count(), 1);
    assert!(rig.observations.contains(&Observation::QuotaReached { on_exhausted: OnExhausted::Hold }));
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
    assert!(!rig.observations.iter().any(|seen| matches!(seen, Observation::QuotaReached { .. })));
    assert_eq!(acknowledged(&rig), 0);
    rig.run_for(ms(1_100));
    brings(&mut rig, 10);
    rig.run_for(ms(500));
    assert_eq!(acknowledged(&rig), 2);
}

fn exhausted(on_exhausted: OnExhausted, burst: u64, block: u64) -> OwnerOptions {
    let mut options = charged(burst, block);
    options.quota = options.quota.map(|quota| NodeOptions { on_exhausted, ..quota });
    options
}

/// What is parked is in the log and acknowledged, is sent only once it is charged, and in the order of arrival with what comes later.
#[test]
fn with_park_a_spent_budget_fills_the_log_and_nothing_is_sent_before_it_is_charged() {
    let mut rig = Rig::opened(exhausted(OnExhausted::Park, 100, 1), Store::default());
    for text in ["a", "b", "c"] {
        rig.deliver("in", message(text));
    }
    assert_eq!((acknowledged(&rig), rig.owner.unpaid()), (0, 0), "nobody knows yet whether the budget is spent");
    brings(&mut rig, 0);
    rig.run_for(ms(40));
    assert_eq!((acknowledged(&rig), rig.delivered.len(), rig.owner.unpaid()), (3, 0, 3));
    let status = rig.owner.status(rig.wall());
    assert_eq!((status.held_up, status.deferred, rig.owner.wants_input()), (0, 3, true));
    let told = rig.observations.iter().filter(|seen| matches!(seen, Observation::Deferred { reason: Reason::QuotaExhausted, .. })).count();
    assert_eq!(told, 3);
    rig.run_for(ms(60));
    brings(&mut rig, 2);
    rig.run_for(ms(500));
    assert_eq!((rig.delivered.len(), rig.owner.unpaid()), (1, 2), "one is paid");
    rig.deliver("in", message("d"));
    rig.run_for(ms(100));
    assert_eq!(acknowledged(&rig), 4, "what comes later stands behind what was parked");
    brings(&mut rig, 100);
    rig.run_to_rest();
    let order: Vec<&[u8]> = rig.sends.iter().flat_map(|batch| batch.entries.iter().map(|entry| &*entry.message.payload)).collect();
    assert_eq!(order, [b"a", b"b", b"c", b"d"]);
    assert_eq!((rig.owner.quota().unwrap().counters().charged, rig.owner.unpaid()), (8, 0), "each is charged once");
    assert!(rig.store.unsettled().is_empty());
}

/// While the budget's store is away, or that of the log, nobody parks.
#[test]
fn with_park_an_outage_makes_messages_wait_with_their_source() {
    let mut rig = Rig::opened(exhausted(OnExhausted::Park, 100, 1), Store::default());
    rig.deliver("in", message("a"));
    rig.event(Event::Quota(QuotaReply::Drawn(Outcome::NotDone(Fault::new(FaultCode::Unavailable, "away")))));
    rig.run_for(ms(500));
    assert_eq!((acknowledged(&rig), rig.owner.unpaid(), rig.owner.waiting_for_admission()), (0, 0, 1));

    let mut rig = Rig::opened(exhausted(OnExhausted::Park, 100, 1), Store::default());
    rig.on_call = Box::new(|_, call| matches!(call, Call::Put { .. }).then_some(Trouble::Refused));
    rig.deliver("in", message("a"));
    brings(&mut rig, 0);
    rig.run_for(ms(20));
    assert_eq!((acknowledged(&rig), rig.owner.unpaid()), (0, 1), "nobody knew");
    rig.deliver("in", message("b"));
    rig.run_for(ms(20));
    assert_eq!((rig.owner.unpaid(), rig.owner.waiting_for_admission()), (1, 1), "the log is known to be away");
}

/// A head row that cannot be written, for one: the log takes segments all the same.
#[test]
fn with_park_a_store_that_refuses_something_else_than_a_segment_still_takes_what_is_parked() {
    let mut rig = Rig::opened(exhausted(OnExhausted::Park, 100, 1), Store::default());
    rig.on_call = Box::new(|_, call| matches!(call, Call::PutHead { .. } | Call::Delete { .. }).then_some(Trouble::Refused));
    rig.deliver("in", message("a"));
    brings(&mut rig, 2);
    rig.run_while(|rig| !rig.observations.iter().any(|seen| matches!(seen, Observation::StoreFault(_))));
    rig.deliver("in", message("b"));
    brings(&mut rig, 0);
    assert_eq!((rig.owner.unpaid(), rig.owner.waiting_for_admission()), (1, 0));
    rig.run_for(ms(40));
    assert_eq!((acknowledged(&rig), rig.delivered.len()), (2, 1), "the log has it");
}

#[test]
fn with_park_what_no_log_may_have_is_held() {
    let mut options = exhausted(OnExhausted::Park, 100, 1);
    for leg in &mut options.legs {
        leg.delivery = Delivery::Held { retry_budget: ms(1_000) };
    }
    let mut rig = Rig::opened(options, Store::default());
    rig.deliver("in", message("a"));
    brings(&mut rig, 0);
    rig.run_for(ms(40));
    assert_eq!((acknowledged(&rig), rig.owner.unpaid(), rig.owner.waiting_for_admission()), (0, 0, 1));
}

#[test]
fn with_park_as_much_waits_in_the_log_as_the_memory_has_room_for() {
    let mut options = exhausted(OnExhausted::Park, 100, 1);
    options.memory_entries = 8;
    let mut rig = Rig::opened(options, Store::default());
    for nth in 0..20 {
        rig.deliver("in", message(&nth.to_string()));
    }
    brings(&mut rig, 0);
    assert_eq!((rig.owner.unpaid(), rig.owner.waiting_for_admission()), (4, 16));
    rig.run_for(ms(60));
    brings(&mut rig, 100);
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), rig.owner.quota().unwrap().counters().charged), (20, 40));
}

/// Entries of one key stand in line behind the first of them, which alone waits by itself: the others take memory all the same.
#[test]
fn with_park_what_stands_in_line_behind_another_of_its_key_takes_room_too() {
    let mut options = exhausted(OnExhausted::Park, 100, 1);
    options.memory_entries = 8;
    options.legs[0].key_of = Arc::new(|_| Some(OrderKey(1)));
    let mut rig = Rig::opened(options, Store::default());
    for nth in 0..20 {
        rig.deliver("in", message(&nth.to_string()));
    }
    for _ in 0..3 {
        brings(&mut rig, 0);
        rig.run_for(ms(60));
        assert_eq!((rig.owner.unpaid(), rig.owner.waiting_for_admission(), rig.owner.wants_input()), (4, 16, false));
    }
    brings(&mut rig, 100);
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), rig.owner.unpaid(), rig.owner.quota().unwrap().counters().charged), (20, 0, 40));
}

#[test]
fn what_is_parked_and_given_up_with_its_connection_is_not_charged() {
    let mut rig = Rig::opened(exhausted(OnExhausted::Park, 100, 1), Store::default());
    rig.deliver("in", message("a"));
    brings(&mut rig, 0);
    rig.deliver("in", message("b"));
    assert_eq!(rig.owner.unpaid(), 2, "one is on its way into the log, the other waits for that");
    rig.reconnect();
    assert_eq!((rig.owner.unpaid(), rig.counters(0).returned), (1, 1));
    assert_eq!(rig.owner.quota().unwrap().status(rig.now).waiting, 1);
    rig.run_for(ms(60));
    brings(&mut rig, 10);
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), rig.owner.quota().unwrap().counters().charged), (1, 2));
}

/// P19: whoever stops leaves what is parked in the log.
#[test]
fn a_stop_does_not_wait_for_what_is_parked() {
    let mut rig = Rig::opened(exhausted(OnExhausted::Park, 100, 1), Store::default());
    rig.deliver("in", message("a"));
    brings(&mut rig, 0);
    rig.run_for(ms(40));
    rig.stop_within(ms(30_000));
    rig.run_while(|rig| rig.end.is_none());
    assert!(rig.now < at_ms(9_000), "it does not wait for the budget");
    assert_eq!((rig.delivered.len(), rig.store.unsettled().len(), acknowledged(&rig)), (0, 1, 1));
}

#[test]
fn with_drop_a_spent_budget_loses_what_comes_and_counts_it() {
    let mut rig = Rig::opened(exhausted(OnExhausted::Drop, 100, 1), Store::default());
    for text in ["a", "b"] {
        rig.deliver("in", message(text));
    }
    brings(&mut rig, 0);
    rig.run_for(ms(40));
    let counters = rig.counters(0);
    assert_eq!((acknowledged(&rig), counters.received, counters.quota_exhausted, rig.delivered.len()), (2, 2, 2, 0));
    let told =
        rig.observations.iter().filter(|seen| matches!(seen, Observation::Limited { leg: 0, reason: Reason::QuotaExhausted, .. })).count();
    assert_eq!(told, 2);
    assert!(rig.observations.contains(&Observation::QuotaReached { on_exhausted: OnExhausted::Drop }));
    assert_eq!(rig.owner.quota().unwrap().status(rig.now).waiting, 0, "nobody waits for what is gone");
    rig.run_for(ms(60));
    rig.deliver("in", message("c"));
    brings(&mut rig, 2);
    rig.run_for(ms(500));
    assert_eq!((rig.delivered.len(), rig.owner.quota().unwrap().counters().charged), (1, 2));
}
