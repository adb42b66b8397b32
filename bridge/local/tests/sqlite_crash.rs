//! What was answered survives the end of the process, however it ends.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use causeway_core::identity::Slot;
use causeway_core::outcome::Outcome;
use causeway_core::rows::{Head, Row};
use causeway_local::sqlite::{OpenMode, SqliteStore};
use causeway_ports::{DeadLetters, Outbox, Put};
use common::{Child, letter, log, segment};

/// How many puts the child has answered when it is killed, in each round.
const ROUNDS: [usize; 6] = [1, 3, 20, 57, 150, 300];

fn body(slot: u64) -> Vec<u8> {
    // From a few bytes to many pages.
    slot.to_be_bytes().repeat(1 + (slot as usize * 37) % 4_000)
}

/// Puts one row after another until it is killed, and says each that was answered. Every tenth brings a head, a letter and a delete.
#[tokio::test]
#[ignore = "a process of another test"]
async fn child_puts_until_it_is_killed() {
    let store = SqliteStore::open(Child::path(), OpenMode::ReadWrite).unwrap();
    let (outbox, letters) = (store.outbox(), store.dead_letters());
    let first = outbox.read_tail(&log()).await.unwrap().map_or(1, |tail| tail.slot.0 + 1);
    for slot in first.. {
        assert_eq!(outbox.put(&log(), Slot(slot), &segment(u128::from(slot), body(slot))).await, Outcome::Done(Put::Stored));
        Child::say(&slot.to_string());
        if slot % 10 == 0 {
            let head = Head { revision: slot, drained: Slot(slot - 5), ..Head::default() };
            assert_eq!(outbox.put_head(&log(), &head).await, Outcome::Done(true));
            letters.park(&letter(u128::from(slot))).await.done().unwrap();
            outbox.delete(&log(), &[Slot(slot - 9)]).await.done().unwrap();
            Child::say(&format!("settled {slot}"));
        }
    }
}

#[tokio::test]
async fn every_answered_write_survives_a_kill_in_the_middle_of_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    let (mut last, mut settled) = (0, 0);
    for answers in ROUNDS {
        let mut child = Child::start("child_puts_until_it_is_killed", &path);
        let mut lines = Vec::new();
        while lines.len() < answers {
            lines.push(child.line());
        }
        child.kill();
        // What it said between the last line that was read and its end was answered, too.
        lines.extend(std::iter::from_fn(|| Some(child.line()).filter(|line| !line.is_empty())));
        for line in lines {
            match line.strip_prefix("settled ") {
                Some(slot) => settled = slot.parse().unwrap(),
                None => last = line.parse().unwrap(),
            }
        }
        check(&path, last, settled).await;
    }
    assert!(last >= 300, "the rounds build on each other");
}

async fn check(path: &std::path::Path, last: u64, settled: u64) {
    let store = SqliteStore::open(path, OpenMode::ReadWrite).unwrap();
    let outbox = store.outbox();
    let mut found = Vec::new();
    let mut after = Slot(0);
    loop {
        let page = outbox.read_page(&log(), after, Slot(u64::MAX)).await.unwrap();
        found.extend(page.rows);
        match page.next_after {
            Some(next) => after = next,
            None => break,
        }
    }
    for (slot, row) in &found {
        let Row::Segment(segment) = row else { continue };
        assert!(segment.body == body(slot.0), "the row at slot {slot} came back changed");
    }
    let slots: Vec<u64> = found.iter().map(|(slot, _)| slot.0).collect();
    for slot in 1..=last {
        let deleted = slot % 10 == 1 && slot + 9 <= settled;
        let maybe_deleted = slot % 10 == 1 && slot + 9 <= last;
        assert!(slots.contains(&slot) != deleted || maybe_deleted && !deleted, "slot {slot} of {last}, settled up to {settled}");
    }
    // One more may be there: it was under way.
    assert!(slots.last().is_some_and(|tail| *tail == last || *tail == last + 1));
    if settled > 0 {
        assert!(outbox.read_head(&log()).await.unwrap().unwrap().drained >= Slot(settled - 5));
        assert!(store.dead_letters().get(letter(u128::from(settled)).id).await.unwrap().is_some());
    }
}
