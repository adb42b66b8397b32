//! A full disk loses nothing and is over when there is space again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use causeway_core::identity::{Epoch, Id128, Slot};
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::rows::{Anchor, Head, Row};
use causeway_core::units::UnixMillis;
use causeway_local::sqlite::{OpenMode, SqliteOutbox, SqliteStore};
use causeway_ports::{DeadLetters, LogRecord, LogState, Outbox, Put};
use common::{Child, letter, log, segment};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const BODY: usize = 16 * 1024;

fn body(slot: u64) -> Vec<u8> {
    slot.to_be_bytes().repeat(BODY / 8)
}

/// Puts rows until one does not fit; answers how many did.
async fn fill(outbox: &SqliteOutbox, from: u64) -> u64 {
    for slot in from..from + 100_000 {
        match outbox.put(&log(), Slot(slot), &segment(u128::from(slot), body(slot))).await {
            Outcome::Done(put) => assert_eq!(put, Put::Stored),
            Outcome::NotDone(fault) => {
                assert_eq!(fault.code, FaultCode::StorageFull, "{fault}");
                assert!(fault.is_transient() && fault.detail.contains("free some space"), "{fault}");
                return slot - from;
            }
            Outcome::Unknown(fault) => panic!("a full disk is certain: {fault}"),
        }
    }
    panic!("it was never full");
}

/// Reads every row from slot 1 to `last`.
async fn all_there(outbox: &SqliteOutbox, last: u64) {
    assert_eq!(outbox.read_tail(&log()).await.unwrap().unwrap().slot, Slot(last));
    let (mut after, mut count) = (Slot(0), 0);
    loop {
        let page = outbox.read_page(&log(), after, Slot(last)).await.unwrap();
        for (slot, row) in page.rows {
            count += 1;
            assert!(row == segment(u128::from(slot.0), body(slot.0)), "the row at slot {slot} came back changed");
        }
        match page.next_after {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(count, last);
}

#[tokio::test]
async fn a_bounded_file_refuses_what_does_not_fit_and_takes_it_after_a_delete() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("causeway.db"), OpenMode::ReadWrite).unwrap();
    let outbox = store.outbox();
    store.limit_bytes(2 * 1024 * 1024).await.unwrap();
    let stored = fill(&outbox, 1).await;
    assert!((50..130).contains(&stored), "{stored} rows of 16 KiB fit into 2 MiB");
    all_there(&outbox, stored).await;
    let Outcome::NotDone(fault) = store.dead_letters().park(&large_letter()).await else {
        panic!("a letter of 1 MiB fits into a full file")
    };
    assert_eq!(fault.code, FaultCode::StorageFull);
    assert_eq!(store.dead_letters().get(letter(1).id).await.unwrap(), None);
    // The head cannot grow either, but rows below it can always be deleted, and that makes room.
    outbox.delete(&log(), &[Slot(stored)]).await.done().unwrap();
    assert_eq!(outbox.put(&log(), Slot(stored), &segment(u128::from(stored), body(stored))).await, Outcome::Done(Put::Stored));
    store.limit_bytes(4 * 1024 * 1024).await.unwrap();
    let more = fill(&outbox, stored + 1).await;
    assert!(more > 0);
    all_there(&outbox, stored + more).await;
}

fn large_letter() -> causeway_core::dead_letter::DeadLetter {
    let mut large = letter(1);
    large.message.payload = vec![1; 1024 * 1024].into();
    large
}

/// A small file system in memory, gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and a line that says so, where this user may not mount.
    #[allow(clippy::print_stderr, reason = "a skipped test must be seen")]
    fn mount(at: &Path, size: &str) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o"]).arg(format!("size={size}")).arg("causeway-test").arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(at.to_owned()));
        }
        eprintln!("SKIPPED: this user may not mount a small disk");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_refuses_puts_and_serves_again_once_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), "3m") else {
        // Without the right to mount, the bounded file above stands for it.
        return;
    };
    let (path, ballast) = (disk.0.join("causeway.db"), disk.0.join("ballast"));
    std::fs::write(&ballast, vec![0; 1024 * 1024]).unwrap();
    let store = SqliteStore::open(&path, OpenMode::ReadWrite).unwrap();
    let outbox = store.outbox();
    let stored = fill(&outbox, 1).await;
    assert!(stored > 10, "only {stored} rows of 16 KiB on 2 MiB");
    all_there(&outbox, stored).await;
    assert!(matches!(outbox.put(&log(), Slot(stored + 1), &segment(7, body(7))).await, Outcome::NotDone(_)), "it stays full");
    std::fs::remove_file(&ballast).unwrap();
    let more = fill(&outbox, stored + 1).await;
    assert!(more > 0, "it goes on by itself once there is space");
    all_there(&outbox, stored + more).await;
    drop((outbox, store));
    // And everything is there after the file was closed on the full disk.
    let store = SqliteStore::open(&path, OpenMode::ReadWrite).unwrap();
    all_there(&store.outbox(), stored + more).await;
    drop(store);
}

/// Rows of `size` bytes until one is refused; answers the last slot that was stored.
async fn fill_with(outbox: &SqliteOutbox, size: usize, after: u64) -> u64 {
    let mut slot = after;
    loop {
        match outbox.put(&log(), Slot(slot + 1), &segment(u128::from(slot + 1), vec![7; size])).await {
            Outcome::Done(_) => slot += 1,
            Outcome::NotDone(fault) => {
                assert_eq!(fault.code, FaultCode::StorageFull, "{fault}");
                assert!(fault.detail.contains("free some space"), "{fault}");
                return slot;
            }
            Outcome::Unknown(fault) => panic!("a full disk is certain: {fault}"),
        }
        assert!(slot < 1_000_000, "it was never full");
    }
}

/// Marks everything up to `last` as sent and deletes it, as the worker does.
async fn settle(outbox: &SqliteOutbox, first: u64, last: u64) {
    let head = Head { epoch: Epoch(1), revision: last, drained: Slot(last), ..Head::default() };
    assert_eq!(outbox.put_head(&log(), &head).await, Outcome::Done(true));
    let slots: Vec<Slot> = (first..=last).map(Slot).collect();
    for some in slots.chunks(25) {
        outbox.delete(&log(), some).await.done().unwrap();
    }
}

async fn slots(outbox: &SqliteOutbox) -> Vec<u64> {
    let (mut after, mut slots) = (Slot(0), Vec::new());
    loop {
        let page = outbox.read_page(&log(), after, Slot(u64::MAX)).await.unwrap();
        slots.extend(page.rows.iter().map(|(slot, _)| slot.0));
        match page.next_after {
            Some(next) => after = next,
            None => return slots,
        }
    }
}

/// Fills the disk with nothing but its own files, and needs no other space than what sending gives back.
async fn drains_a_full_disk(disk: &str, size: usize) {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), disk) else { return };
    let path = disk.0.join("causeway.db");
    let store = SqliteStore::open(&path, OpenMode::ReadWrite).unwrap();
    assert!(disk.0.join("causeway.db.reserve").metadata().unwrap().blocks() * 512 >= 256 * 1024, "the reserve is really allocated");
    let outbox = store.outbox();
    let mut first = 1;
    let mut last = fill_with(&outbox, size, 0).await;
    let capacity = last;
    for _ in 0..3 {
        assert_eq!(fill_with(&outbox, size, last).await, last, "it stays full");
        settle(&outbox, first, last).await;
        first = last + 1;
        last = fill_with(&outbox, size, last).await;
        assert!(last - first > capacity / 2, "only {} of {capacity} rows went into what was sent", last - first);
    }
    for letters in 0..20 {
        store.dead_letters().park(&letter(letters)).await.done().unwrap();
    }
    drop((outbox, store));
    // A restart finds the disk as full as it was left.
    let store = SqliteStore::open(&path, OpenMode::ReadWrite).unwrap();
    let outbox = store.outbox();
    assert_eq!(slots(&outbox).await, (first..=last).collect::<Vec<_>>(), "everything acknowledged is there");
    let record = LogRecord { log: log(), epoch: Epoch(2), lanes: 1, state: LogState::Open };
    assert_eq!(outbox.replace_record(&record, None).await, Outcome::Done(true));
    let anchor =
        Anchor { epoch: Epoch(2), anchor_id: Id128(99), owner: "o".to_owned(), opened_at: UnixMillis(1), drained: Slot(0), retired: false };
    assert_eq!(outbox.put(&log(), Slot(last + 1), &Row::Anchor(anchor)).await, Outcome::Done(Put::Stored));
    settle(&outbox, first, last + 1).await;
    let more = fill_with(&outbox, size, last + 1).await - last - 1;
    assert!(more > capacity / 2, "only {more} of {capacity} rows after the restart");
    drop((outbox, store));
}

#[tokio::test]
async fn a_full_disk_drains_and_goes_on_with_small_rows() {
    drains_a_full_disk("12m", 900).await;
}

#[tokio::test]
async fn a_full_disk_drains_and_goes_on_with_large_rows() {
    drains_a_full_disk("8m", 60_000).await;
}

#[tokio::test]
async fn a_kill_on_a_full_disk_loses_nothing_and_it_drains_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), "8m") else { return };
    let path = disk.0.join("causeway.db");
    let mut child = Child::start("child_fills_the_disk", &path);
    let last: u64 = child.line().parse().unwrap();
    child.kill();
    // What others wrote meanwhile; the reserve's space may be among it.
    let ballast_path = disk.0.join("ballast");
    let mut ballast = std::fs::File::create(&ballast_path).unwrap();
    while std::io::Write::write_all(&mut ballast, &[1; 64 * 1024]).is_ok() && ballast.metadata().unwrap().len() < 256 * 1024 {}
    let store = SqliteStore::open(&path, OpenMode::ReadWrite).unwrap();
    let outbox = store.outbox();
    assert_eq!(slots(&outbox).await, (1..=last).collect::<Vec<_>>(), "everything acknowledged is there");
    settle(&outbox, 1, last).await;
    let more = fill_with(&outbox, 4000, last).await - last;
    assert!(more > last / 2, "only {more} of {last} rows went into what was sent");
    drop((outbox, store));
}

#[tokio::test]
#[ignore = "run by the test above in a process of its own"]
async fn child_fills_the_disk() {
    let store = SqliteStore::open(Child::path(), OpenMode::ReadWrite).unwrap();
    let last = fill_with(&store.outbox(), 4000, 0).await;
    Child::say(&last.to_string());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_disk_that_others_filled_is_no_obstacle_to_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), "8m") else { return };
    let path = disk.0.join("causeway.db");
    let store = SqliteStore::open(&path, OpenMode::ReadWrite).unwrap();
    for slot in 1..=20 {
        let put = store.outbox().put(&log(), Slot(slot), &segment(u128::from(slot), vec![7; 1000])).await;
        assert_eq!(put, Outcome::Done(Put::Stored));
    }
    drop(store);
    let mut ballast = std::fs::File::create(disk.0.join("ballast")).unwrap();
    while std::io::Write::write_all(&mut ballast, &[1; 4096]).is_ok() {}
    let store = SqliteStore::open(&path, OpenMode::ReadWrite).unwrap();
    let outbox = store.outbox();
    assert_eq!(slots(&outbox).await.len(), 20);
    settle(&outbox, 1, 20).await;
    drop((outbox, store));
}

#[test]
fn a_store_cannot_be_made_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), "64k") else { return };
    std::fs::write(disk.0.join("ballast"), vec![0; 48 * 1024]).unwrap();
    let error = SqliteStore::open(disk.0.join("causeway.db"), OpenMode::ReadWrite).unwrap_err();
    assert_eq!(error.code(), "STORE_FULL", "{error}");
    assert!(error.to_string().contains("free some space"));
}
