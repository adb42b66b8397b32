//! Shutdown: make durable what was taken in, send until the deadline, leave a head that tells all, end.

use crate::support::{Rig, Store, Trouble, at_ms, fault, message, ms, options};
use causeway_core::log::Call;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::worker::End;

#[test]
fn a_clean_stop_leaves_nothing_behind() {
    let mut rig = Rig::opened(options(1), Store::default());
    for nth in 0..100 {
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.run_for(ms(1));
    rig.stop_within(ms(10_000));
    assert!(!rig.owner.wants_input());
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!(rig.end, Some(End::Stopped { unsettled: 0 }));
    assert_eq!((rig.delivered.len(), rig.owner.exposed()), (100, 0));
    assert!(rig.store.unsettled().is_empty(), "the next owner repeats nothing");
    assert!(rig.now < at_ms(2_000), "it does not wait for its deadline: {:?}", rig.now);
    assert_eq!(rig.acks.last().map(|ack| ack.ordinal), Some(100));
    assert!(rig.source_closed_at < rig.ended_at);
}

#[test]
fn nothing_waits_for_company_while_stopping() {
    let mut slow = options(1);
    slow.segment.linger = ms(5_000);
    slow.send_linger = ms(5_000);
    let mut rig = Rig::opened(slow, Store::default());
    for nth in 0..3 {
        rig.deliver("in", message(&format!("{nth}")));
        rig.run_for(ms(4));
    }
    let began = rig.now;
    rig.stop_within(ms(60_000));
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!(rig.delivered.len(), 3);
    assert!(rig.now.since(began) < ms(100), "{:?}", rig.now.since(began));
}

#[test]
fn with_a_dead_destination_it_ends_at_the_deadline_and_everything_stays_in_the_log() {
    let mut rig = Rig::opened(options(1), Store::default());
    rig.on_send = Box::new(|_, _| Outcome::Unknown(fault(FaultCode::Timeout)));
    for nth in 0..30 {
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.run_for(ms(50));
    let until = rig.now.plus(ms(5_000));
    rig.stop_within(ms(5_000));
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!(rig.end, Some(End::Stopped { unsettled: 30 }));
    assert!(rig.sends.iter().all(|sent| sent.at < until), "no send begins after the deadline");
    assert!(rig.now.since(until) < ms(100));
    assert_eq!(rig.acks.last().map(|ack| ack.ordinal), Some(30), "all of it is durable");
    assert_eq!(rig.store.unsettled().len(), 30);
}

#[test]
fn with_a_dead_dead_letter_store_it_ends_at_the_deadline() {
    let mut rig = Rig::opened(options(1), Store::default());
    rig.on_send = Box::new(|_, _| Outcome::NotDone(fault(FaultCode::InvalidPayload)));
    rig.on_park = Box::new(|_, _| Outcome::NotDone(fault(FaultCode::Unavailable)));
    rig.deliver("in", message("bad"));
    rig.run_for(ms(50));
    rig.stop_within(ms(5_000));
    let until = rig.now.plus(ms(5_000));
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!(rig.end, Some(End::Stopped { unsettled: 1 }));
    assert!(rig.now.since(until) < ms(100));
}

#[test]
fn with_a_dead_outbox_it_ends_soon_after_the_deadline() {
    for delivered_before in [0, 5] {
        for pending in [0, 5] {
            let mut rig = Rig::opened(options(1), Store::default());
            for nth in 0..delivered_before {
                rig.deliver("in", message(&format!("{nth}")));
            }
            // Late enough that all is sent, too early for the head row.
            rig.run_for(ms(22));
            rig.on_call = Box::new(|_, _| Some(Trouble::Refused));
            for nth in 0..pending {
                rig.deliver("in", message(&format!("late {nth}")));
            }
            let until = rig.now.plus(ms(5_000));
            rig.stop_within(ms(5_000));
            rig.run_until(until.plus(ms(1_000)));
            assert_eq!(rig.end, Some(End::Stopped { unsettled: pending }), "{delivered_before} delivered before, {pending} pending");
        }
    }
}

#[test]
fn a_head_that_the_store_refuses_does_not_keep_it_from_ending() {
    // Another owner of a higher epoch wrote the head row: this one's can never be written.
    let mut rig = Rig::opened(options(1), Store::default());
    rig.deliver("in", message("one"));
    rig.run_for(ms(20));
    rig.store.head = Some(causeway_core::rows::Head { epoch: causeway_core::identity::Epoch(99), ..Default::default() });
    rig.run_for(ms(500));
    rig.stop_within(ms(5_000));
    let until = rig.now.plus(ms(5_000));
    rig.run_until(until.plus(ms(1_000)));
    assert_eq!(rig.end, Some(End::Stopped { unsettled: 0 }));
}

#[test]
fn a_stop_before_the_log_is_open_ends_at_once() {
    let mut rig = Rig::new(options(1), Store::default());
    rig.on_call = Box::new(|_, _| Some(Trouble::Refused));
    rig.event(causeway_core::worker::Event::Tick);
    rig.run_for(ms(1_000));
    rig.stop_within(ms(60_000));
    assert_eq!(rig.end, Some(End::Stopped { unsettled: 0 }));
}

#[test]
fn a_head_write_that_fails_once_is_tried_again_before_the_end() {
    let mut rig = Rig::opened(options(1), Store::default());
    let mut left = 1;
    rig.on_call = Box::new(move |_, call| {
        let hit = left > 0 && matches!(call, Call::PutHead { .. });
        left -= i32::from(hit);
        hit.then_some(Trouble::RequestLost)
    });
    rig.deliver("in", message("one"));
    rig.run_for(ms(20));
    rig.stop_within(ms(10_000));
    rig.run_while(|rig| rig.end.is_none());
    assert!(rig.calls.head_writes >= 2);
    assert_eq!(rig.owner.exposed(), 0);
    assert!(rig.store.unsettled().is_empty());
}

#[test]
fn a_stop_whose_lease_is_gone_ends_at_its_deadline_and_leaves_the_rest_to_the_next_owner() {
    let mut rig = Rig::opened(options(1), Store::default());
    for nth in 0..5 {
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.run_for(ms(50));
    for nth in 0..5 {
        rig.deliver("in", message(&format!("late {nth}")));
    }
    let (sends, puts) = (rig.calls.sends, rig.calls.puts);
    rig.owner.act_until(rig.now);
    let until = rig.now.plus(ms(5_000));
    rig.stop_within(ms(5_000));
    rig.run_until(until.plus(ms(1_000)));
    assert!(matches!(rig.end, Some(End::Stopped { unsettled: 1.. })), "{:?}", rig.end);
    assert_eq!((rig.calls.sends, rig.calls.puts), (sends, puts), "nothing begins without the lease");
}
