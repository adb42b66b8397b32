//! Mail: moved once, sent in order, settled like everything else.

use crate::support::{Rig, Store, Trouble, entry_of, message, ms, options};
use causeway_core::identity::Id128;
use causeway_core::log::Call;
use causeway_core::mailbox::Mail;
use causeway_core::message::Entry;
use causeway_core::units::UnixMillis;
use causeway_core::worker::options::OwnerOptions;
use causeway_core::worker::{End, Event};
use std::sync::Arc;
use std::time::Duration;

const POLL: Duration = Duration::from_secs(2);

fn reader(nth: u64) -> OwnerOptions {
    OwnerOptions { mailbox_poll: Some(POLL), ..options(nth) }
}

fn post(rig: &mut Rig, nth: u128, change: impl FnOnce(&mut Entry)) {
    let mut entry = Entry::clone(&entry_of(&format!("mail {nth}"), (9 << 100) + nth));
    change(&mut entry);
    let id = format!("{nth:06}");
    rig.store.mail.insert(id.clone(), Mail { id, posted_at: UnixMillis(0), entry: Arc::new(entry) });
}

#[test]
fn mail_is_moved_at_the_next_look_and_keeps_its_id() {
    let mut rig = Rig::opened(reader(1), Store::default());
    rig.run_for(ms(100));
    post(&mut rig, 1, |_| {});
    rig.run_for(ms(1_000));
    assert_eq!(rig.store.mail.len(), 1, "it looks every two seconds");
    rig.run_for(POLL);
    assert!(rig.store.mail.is_empty());
    assert_eq!(rig.delivered.keys().copied().collect::<Vec<_>>(), [Id128((9 << 100) + 1)]);
    let counters = rig.counters(0);
    assert_eq!((counters.mailed, counters.received, counters.delivered), (1, 0, 1));
    assert!(rig.acks.is_empty(), "mail acknowledges nothing");
}

#[test]
fn a_hint_makes_it_look_at_once() {
    let mut rig = Rig::opened(reader(1), Store::default());
    rig.run_for(ms(100));
    post(&mut rig, 1, |_| {});
    rig.event(Event::MailHint);
    rig.run_for(ms(50));
    assert_eq!(rig.delivered.len(), 1);
}

#[test]
fn any_amount_of_mail_is_moved_in_bounded_lots_in_order_beside_what_the_source_brings() {
    let mut rig = Rig::opened(reader(1), Store::default());
    for nth in 0..350 {
        post(&mut rig, nth, |_| {});
    }
    rig.event(Event::MailHint);
    for nth in 0..200 {
        rig.deliver("in", message(&format!("{nth}")));
        rig.run_for(ms(2));
    }
    rig.run_for(ms(1_000));
    assert!(rig.store.mail.is_empty());
    assert_eq!(rig.delivered.len(), 550);
    assert!(rig.delivered.values().all(|times| *times == 1));
    let mail: Vec<u128> = rig.sends.iter().flat_map(|sent| &sent.entries).map(|entry| entry.id.0).filter(|id| *id >= 9 << 100).collect();
    assert!(mail.is_sorted(), "in the order of the mailbox");
    assert_eq!(rig.acks.last().map(|last| last.ordinal), Some(200));
}

#[test]
fn a_move_whose_answer_is_lost_is_recognised_and_one_that_never_happened_is_made_again() {
    for trouble in [Trouble::AnswerLost, Trouble::RequestLost, Trouble::Refused] {
        let mut rig = Rig::opened(reader(1), Store::default());
        let mut left = 2;
        rig.on_call = Box::new(move |_, call| {
            let hit = left > 0 && matches!(call, Call::MoveMail { .. });
            left -= i32::from(hit);
            hit.then_some(trouble)
        });
        post(&mut rig, 1, |_| {});
        rig.event(Event::MailHint);
        rig.run_for(ms(3_000));
        assert_eq!(rig.delivered.values().copied().collect::<Vec<_>>(), [1], "{trouble:?}");
        assert!(rig.store.mail.is_empty() && rig.end.is_none());
    }
}

#[test]
fn mail_that_is_gone_is_let_go_and_the_rest_is_read_again() {
    let mut rig = Rig::opened(reader(1), Store::default());
    rig.run_for(ms(100));
    post(&mut rig, 1, |_| {});
    post(&mut rig, 2, |_| {});
    rig.event(Event::MailHint);
    // Read, and on its way: then one piece is taken back.
    rig.run_while(|rig| rig.calls.mail_reads < 2);
    rig.store.mail.remove("000001");
    rig.run_for(ms(1_000));
    assert_eq!(rig.delivered.keys().copied().collect::<Vec<_>>(), [Id128((9 << 100) + 2)]);
    assert!(rig.end.is_none());
}

#[test]
fn expired_mail_and_mail_for_nobody_die_as_entries_do() {
    let mut rig = Rig::opened(reader(1), Store::default());
    post(&mut rig, 1, |entry| entry.expires_at = Some(UnixMillis(1)));
    post(&mut rig, 2, |entry| entry.route = "gone".into());
    rig.event(Event::MailHint);
    rig.run_for(ms(500));
    assert_eq!((rig.delivered.len(), rig.letters.len()), (0, 2));
    let status = rig.owner.status(rig.wall());
    assert_eq!((status.legs[0].counters.mailed, status.legs[1].counters.mailed), (1, 1));
}

#[test]
fn nothing_is_read_while_stopping_and_what_was_read_stays_where_it_is() {
    let mut rig = Rig::opened(reader(1), Store::default());
    rig.run_for(ms(100));
    for nth in 0..50 {
        post(&mut rig, nth, |_| {});
    }
    rig.event(Event::MailHint);
    rig.stop_within(ms(5_000));
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!(rig.end, Some(End::Stopped { unsettled: 0 }));
    assert_eq!(rig.store.mail.len() + rig.delivered.len(), 50, "moved or not, and nothing in between");
    let reads = rig.calls.mail_reads;
    assert!(reads <= 2, "{reads}");
}

/// Mail that nothing shortens, over several rows.
fn large(entry: &mut Entry) {
    let mut state = 1_u64;
    let noise = (0..900).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        u8::try_from(state >> 56).unwrap_or_default()
    });
    entry.message.payload = noise.collect();
}

fn of_small_rows(nth: u64) -> OwnerOptions {
    let mut options = reader(nth);
    options.segment.max_row_bytes = 200;
    options
}

#[test]
fn mail_that_no_row_holds_is_moved_with_its_last_part() {
    for trouble in [None, Some(Trouble::AnswerLost), Some(Trouble::RequestLost), Some(Trouble::Refused)] {
        let mut rig = Rig::opened(of_small_rows(1), Store::default());
        let mut calls = 0;
        rig.on_call = Box::new(move |_, call| {
            calls += usize::from(matches!(call, Call::Put { .. } | Call::MoveMail { .. }));
            // Every other call, those that move included.
            trouble.filter(|_| matches!(call, Call::Put { .. } | Call::MoveMail { .. }) && calls % 2 == 0)
        });
        post(&mut rig, 1, large);
        post(&mut rig, 2, |_| {});
        rig.event(Event::MailHint);
        rig.run_for(ms(20_000));
        assert_eq!(rig.delivered.values().copied().collect::<Vec<_>>(), [1, 1], "{trouble:?}");
        assert!(rig.store.mail.is_empty() && rig.end.is_none());
        let status = rig.owner.status(rig.wall());
        assert_eq!((status.legs[0].counters.mailed, status.legs[0].counters.delivered), (2, 2));
    }
}

#[test]
fn parts_whose_mail_is_gone_are_nothing_and_are_passed() {
    let mut rig = Rig::opened(of_small_rows(1), Store::default());
    rig.run_for(ms(100));
    post(&mut rig, 1, large);
    rig.event(Event::MailHint);
    let before = rig.calls.puts;
    rig.run_while(|rig| rig.calls.puts < before + 2);
    rig.store.mail.clear();
    rig.run_for(ms(1_000));
    for nth in 0..5 {
        rig.deliver("in", message(&format!("{nth}")));
        rig.run_for(ms(100));
    }
    rig.run_for(ms(5_000));
    assert_eq!(rig.delivered.len(), 5);
    assert_eq!(rig.acks.last().map(|last| last.ordinal), Some(5));
    rig.stop_within(ms(5_000));
    rig.run_while(|rig| rig.end.is_none());
    assert_eq!(rig.end, Some(End::Stopped { unsettled: 0 }), "the head went past the parts");
}

#[test]
fn a_crash_amid_the_parts_leaves_the_mail_to_the_next_owner() {
    for puts in 1..6 {
        let mut rig = Rig::opened(of_small_rows(1), Store::default());
        rig.run_for(ms(100));
        post(&mut rig, 1, large);
        rig.event(Event::MailHint);
        let before = rig.calls.puts;
        rig.run_while(|rig| rig.calls.puts < before + puts);
        let (store, first) = (rig.store.clone(), rig.delivered.len());
        let mut next = Rig::opened(of_small_rows(2), store);
        next.run_for(ms(5_000));
        assert!(next.store.mail.is_empty());
        assert!(next.delivered.len() == 1 || first == 1, "{puts}");
        assert!(next.delivered.values().all(|times| *times == 1));
    }
}
