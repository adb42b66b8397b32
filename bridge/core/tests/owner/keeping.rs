//! Settled rows that are kept for a time, so that people can look back.

use crate::support::{Rig, Store, Trouble, message, ms, options};
use causeway_core::log::Call;
use causeway_core::rows::Row;
use causeway_core::worker::options::OwnerOptions;

fn keeping(nth: u64, seconds: u64) -> OwnerOptions {
    OwnerOptions { keep_settled: ms(seconds * 1_000), ..options(nth) }
}

fn segments(rig: &Rig) -> usize {
    rig.store.rows.values().filter(|row| matches!(row, Row::Segment(_))).count()
}

/// Thirty segments, settled within three seconds.
fn thirty(rig: &mut Rig) {
    for nth in 0..30 {
        rig.deliver("in", message(&format!("{nth}")));
        rig.run_for(ms(100));
    }
    assert_eq!((rig.delivered.len(), segments(rig)), (30, 30));
}

#[test]
fn settled_rows_stay_for_their_time_and_go_then() {
    let mut rig = Rig::opened(keeping(1, 10), Store::default());
    thirty(&mut rig);
    let wakes = rig.calls.head_writes;
    rig.run_for(ms(6_500));
    assert_eq!((segments(&rig), rig.calls.deletes), (30, 0), "nothing is settled for so long");
    assert!(rig.calls.head_writes <= wakes + 1, "keeping writes nothing");
    rig.run_for(ms(5_000));
    assert_eq!(segments(&rig), 1, "the last row marks the log's position");
    assert!(rig.calls.deletes <= 30, "{}", rig.calls.deletes);
}

#[test]
fn without_a_time_they_go_at_once() {
    let mut rig = Rig::opened(options(1), Store::default());
    for nth in 0..30 {
        rig.deliver("in", message(&format!("{nth}")));
        rig.run_for(ms(100));
    }
    rig.run_for(ms(500));
    assert_eq!(segments(&rig), 1);
}

/// What is left stands in slots 2 to 31; each row tells that those before the one before it were settled when it was written.
#[test]
fn the_next_owner_keeps_what_was_left_for_its_time_and_looks_at_it_seldom() {
    let mut rig = Rig::opened(keeping(1, 10), Store::default());
    thirty(&mut rig);
    rig.stop_within(ms(5_000));
    rig.run_while(|rig| rig.end.is_none());
    let mut next = Rig::opened(keeping(2, 10), rig.store.clone());
    let reads = next.calls.reads;
    next.run_for(ms(5_000));
    assert!(segments(&next) == 30 && next.calls.reads <= reads + 1, "nothing is old enough, and one look tells so");
    next.run_for(ms(6_000));
    assert_eq!(segments(&next), 0, "an anchor marks the log's position");
    assert!(next.calls.reads <= reads + 40, "{} looks", next.calls.reads - reads);
    assert_eq!(next.delivered.len(), 0, "nothing of it is sent again");
}

/// None of them lives for as long as anything is kept.
#[test]
fn owners_that_change_often_delete_what_is_old_enough_all_the_same() {
    let mut store = Store::default();
    let (mut now, mut most) = (None, 0);
    for nth in 1..=12 {
        let mut rig = Rig::opened(keeping(nth, 10), store);
        if let Some(now) = now {
            rig.now = now;
        }
        for text in 0..5 {
            rig.deliver("in", message(&format!("{nth} {text}")));
            rig.run_for(ms(800));
        }
        rig.stop_within(ms(5_000));
        rig.run_while(|rig| rig.end.is_none());
        most = most.max(segments(&rig));
        (now, store) = (Some(rig.now), rig.store.clone());
    }
    // Of sixty that came in four seconds for each owner, those of ten seconds, and of the time until it is looked again.
    assert!((10..=30).contains(&most), "{most} segments stood at a time");
}

#[test]
fn a_store_that_takes_nothing_more_gets_their_room_at_once() {
    let mut rig = Rig::opened(keeping(1, 3_600), Store::default());
    thirty(&mut rig);
    let (slow_until, full_until) = (rig.now.plus(ms(2_000)), rig.now.plus(ms(6_000)));
    let trouble = move |now| if now < slow_until { Trouble::Refused } else { Trouble::Full };
    rig.on_call = Box::new(move |now, call| (now < full_until && matches!(call, Call::Put { .. })).then(|| trouble(now)));
    rig.deliver("in", message("one more"));
    rig.run_for(ms(1_900));
    assert_eq!(segments(&rig), 30, "a store that is slow has its reasons");
    rig.run_for(ms(3_900));
    assert!(segments(&rig) <= 1, "{}", segments(&rig));
    rig.run_for(ms(5_000));
    assert_eq!(rig.delivered.len(), 31);
}
