//! A full disk loses nothing and is over when there is space again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use causeway_core::identity::Slot;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_local::sqlite::{OpenMode, SqliteOutbox, SqliteStore};
use causeway_ports::{DeadLetters, Outbox, Put};
use common::{letter, log, segment};
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
    /// `None` where this user may not mount.
    fn mount(at: &Path, size: &str) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o"]).arg(format!("size={size}")).arg("causeway-test").arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at.to_owned()))
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

#[test]
fn a_store_cannot_be_made_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), "64k") else { return };
    std::fs::write(disk.0.join("ballast"), vec![0; 48 * 1024]).unwrap();
    let error = SqliteStore::open(disk.0.join("causeway.db"), OpenMode::ReadWrite).unwrap_err();
    assert_eq!(error.code(), "STORE_FULL", "{error}");
    assert!(error.to_string().contains("free some space"));
}
