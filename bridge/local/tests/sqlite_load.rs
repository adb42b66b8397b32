//! A long log, callers that give up, and other programs that hold the file.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use causeway_core::identity::Slot;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_local::sqlite::{OpenMode, QUEUE_CALLS, SqliteStore};
use causeway_ports::{Outbox, Put};
use common::{log, segment};
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::task::JoinSet;

fn store() -> (SqliteStore, PathBuf, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    (SqliteStore::open(&path, OpenMode::ReadWrite).unwrap(), path, folder)
}

#[tokio::test]
async fn a_log_of_a_million_rows_is_read_page_by_page() {
    const ROWS: u64 = 1_000_000;
    let (store, path, _folder) = store();
    let outbox = store.outbox();
    outbox.put(&log(), Slot(1), &segment(1, vec![7; 100])).await.done().unwrap();
    // Written at once, as a million puts would take minutes.
    let copies = "INSERT INTO outbox (pk, sk, kind, epoch, drained, id, count, codec, created_at, body)
        WITH RECURSIVE slots (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM slots WHERE n < ?)
        SELECT pk, n, kind, epoch, drained, id, count, codec, created_at, body FROM slots JOIN outbox ON sk = 1";
    rusqlite::Connection::open(path).unwrap().execute(copies, [ROWS as i64]).unwrap();
    assert_eq!(outbox.read_tail(&log()).await.unwrap().unwrap().slot, Slot(ROWS));
    // The beginning, somewhere in the middle, and the end.
    for after in [0, ROWS / 2, ROWS - 10] {
        let page = outbox.read_page(&log(), Slot(after), Slot(u64::MAX)).await.unwrap();
        assert!(page.rows.len() <= 10_000, "{} small rows on one page", page.rows.len());
        let slots = page.rows.iter().map(|(slot, _)| slot.0);
        assert!(slots.eq(after + 1..=after + page.rows.len() as u64), "one after another");
        assert_eq!(page.next_after, (after < ROWS - 10).then(|| Slot(after + page.rows.len() as u64)));
    }
}

#[tokio::test]
async fn more_callers_than_the_queue_holds_are_all_served() {
    let (store, _path, _folder) = store();
    let mut puts = JoinSet::new();
    let count = 4 * QUEUE_CALLS as u64;
    for slot in 1..=count {
        let outbox = store.outbox();
        puts.spawn(async move { outbox.put(&log(), Slot(slot), &segment(u128::from(slot), "x")).await });
    }
    assert!(puts.join_all().await.into_iter().all(|put| put == Outcome::Done(Put::Stored)));
    assert_eq!(store.outbox().read_page(&log(), Slot(0), Slot(count)).await.unwrap().rows.len() as u64, count);
    assert_eq!(store.outbox().usage().write_calls, count, "the store counts for all its handles");
}

#[tokio::test]
async fn a_put_whose_caller_gave_up_takes_effect_and_is_recognised() {
    let (store, path, _folder) = store();
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (outbox, row) = (store.outbox(), segment(1, "x"));
    let put = tokio::spawn({
        let (outbox, row) = (outbox.clone(), row.clone());
        async move { outbox.put(&log(), Slot(1), &row).await }
    });
    // Counted when the call begins; it then waits for the other program's lock.
    while outbox.usage().write_calls == 0 {
        tokio::task::yield_now().await;
    }
    put.abort();
    assert!(put.await.unwrap_err().is_cancelled());
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(outbox.read_tail(&log()).await.unwrap(), Some(row.meta(Slot(1))));
    assert_eq!(outbox.put(&log(), Slot(1), &row).await, Outcome::Done(Put::Stored));
}

#[tokio::test]
async fn a_lock_of_another_program_is_reported_and_over_when_it_is_gone() {
    let (store, path, _folder) = store();
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let Outcome::NotDone(fault) = store.outbox().put(&log(), Slot(1), &segment(1, "x")).await else { panic!("stored beside a lock") };
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(fault.is_transient() && fault.detail.contains("another program"), "{fault}");
    assert_eq!(store.outbox().read_tail(&log()).await.unwrap(), None, "reads go on");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.outbox().put(&log(), Slot(1), &segment(1, "x")).await, Outcome::Done(Put::Stored));
}

#[tokio::test]
async fn slot_zero_is_refused_and_the_head_row_stays() {
    let (store, _path, _folder) = store();
    let outbox = store.outbox();
    outbox.put_head(&log(), &Default::default()).await.done().unwrap();
    let Outcome::NotDone(fault) = outbox.put(&log(), Slot::HEAD, &segment(1, "x")).await else { panic!("a row stands in slot 0") };
    assert_eq!(fault.code, FaultCode::InvalidConfig);
    outbox.delete(&log(), &[Slot::HEAD]).await.done().unwrap();
    assert_eq!(outbox.read_head(&log()).await.unwrap(), Some(Default::default()));
}
