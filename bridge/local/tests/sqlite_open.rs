//! Opening a SQLite store: who may, what it makes, and what it says where it cannot.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use causeway_core::identity::{Epoch, Id128, Slot};
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::rows::{Anchor, Head, Row};
use causeway_core::units::UnixMillis;
use causeway_local::sqlite::{LocalStoreError, OpenMode, SqliteStore};
use causeway_ports::{DeadLetters, Generation, ManagedSubscriptions, Outbox, Put};
use common::{Child, letter, log, segment};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn open(path: impl AsRef<Path>) -> Result<SqliteStore, LocalStoreError> {
    SqliteStore::open(path, OpenMode::ReadWrite)
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// The error, and that its text holds each of `says`.
#[track_caller]
fn refused(result: Result<SqliteStore, LocalStoreError>, code: &str, says: &[&str]) {
    let Err(error) = result else { panic!("the store opened") };
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    for word in says {
        assert!(text.contains(word), "`{text}` does not say `{word}`");
    }
    assert!(!text.contains('\n'), "one line");
    assert_eq!(error.fault().detail, text);
}

#[tokio::test]
async fn a_new_store_is_for_its_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    let store = open(&path).unwrap();
    assert_eq!(store.outbox().put(&log(), Slot(1), &segment(1, "x")).await, Outcome::Done(Put::Stored));
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 3, "the database, its write-ahead log, its lock: {files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn create_makes_folder_file_and_tables_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/causeway.db");
    let created = SqliteStore::create(&path).unwrap();
    assert_eq!(created, [format!("folder {}", folder.path().join("a/b").display()), format!("file {}", path.display())]);
    assert_eq!((mode(&path), mode(&folder.path().join("a")), mode(&folder.path().join("a/b"))), (0o600, 0o700, 0o700));
    assert!(SqliteStore::create(&path).unwrap().is_empty());
    let _in_use = open(&path).unwrap();
    assert!(SqliteStore::create(&path).unwrap().is_empty(), "not disturbed by a worker");
    SqliteStore::open(&path, OpenMode::ReadOnly).unwrap();
}

#[test]
fn a_path_that_cannot_hold_a_store_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    refused(open(at("no/such/causeway.db")), "STORE_FOLDER_MISSING", &["no/such does not exist", "stores create"]);
    refused(open(folder.path()), "STORE_NOT_A_FILE", &["is not a file", "causeway.db"]);
    refused(SqliteStore::open(at("causeway.db"), OpenMode::ReadOnly), "STORE_MISSING", &["there is no store", "stores create"]);
    assert!(!at("causeway.db").exists(), "looking makes nothing");
    // A file system where nobody, not even root, makes files.
    refused(open("/sys/causeway.db"), "STORE_NOT_WRITABLE", &["/sys cannot be written", "write access"]);
    fs::write(at("notes.txt"), "This is a text, and quite long enough to be more than the header of a database. ".repeat(20)).unwrap();
    refused(open(at("notes.txt")), "STORE_NOT_A_DATABASE", &["not a SQLite database"]);
    assert!(fs::read_to_string(at("notes.txt")).unwrap().starts_with("This is a text"), "it is left as it was");
    refused(open(at("notes.txt/causeway.db")), "STORE_IO", &["Not a directory"]);
}

#[test]
fn another_programs_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (n)").unwrap();
    drop(other);
    let before = fs::read(&path).unwrap();
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        refused(SqliteStore::open(&path, mode), "STORE_FOREIGN", &["not one of Causeway"]);
    }
    assert!(fs::read(&path).unwrap() == before, "not a byte was changed");
}

#[test]
fn a_newer_releases_store_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    SqliteStore::create(&path).unwrap();
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        refused(SqliteStore::open(&path, mode), "STORE_NEWER_SCHEMA", &["schema version 99", "knows 5", "run that release"]);
    }
}

/// What a release of schema version 1 left: the same without what version 2 added.
fn of_version_1(path: &Path) {
    SqliteStore::create(path).unwrap();
    let sql = r#"
        DROP TABLE drop_ledger;
        DROP TABLE drop_ledger_batch;
        DROP TABLE mail;
        DROP INDEX dlq_by_expiry;
        ALTER TABLE dlq DROP COLUMN redriven_at;
        ALTER TABLE dlq DROP COLUMN redriven_by;
        ALTER TABLE dlq DROP COLUMN dropped_bytes;
        ALTER TABLE dlq DROP COLUMN expires_at;
        ALTER TABLE dlq DROP COLUMN bridge;
        ALTER TABLE outbox DROP COLUMN revision;
        ALTER TABLE outbox DROP COLUMN retired;
        ALTER TABLE subscription_baselines DROP COLUMN generation;
        INSERT INTO outbox (pk, sk, kind, epoch, drained, progress) VALUES ('LOG#bridge#session#0', 0, 'head', 3, 7, '{"settled_ahead":[],"attempts":[]}');
        INSERT INTO outbox (pk, sk, kind, epoch, drained, id, owner, opened_at)
            VALUES ('LOG#bridge#session#0', 8, 'anchor', 3, 7, '00000000000000000000000000000005', 'o', 1);
        PRAGMA user_version = 1;"#;
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn an_older_releases_store_is_brought_up_to_date_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    of_version_1(&path);
    let says = ["schema version 1", "keeps 5", "start the worker", "stores create"];
    refused(SqliteStore::open(&path, OpenMode::ReadOnly), "STORE_OLDER_SCHEMA", &says);
    let store = open(&path).unwrap();
    let outbox = store.outbox();
    let head = Head { epoch: Epoch(3), drained: Slot(7), ..Head::default() };
    assert_eq!(outbox.read_head(&log()).await.unwrap(), Some(head.clone()), "its head has revision 0");
    assert_eq!(outbox.put_head(&log(), &head).await, Outcome::Done(false));
    assert_eq!(outbox.put_head(&log(), &Head { revision: 1, ..head }).await, Outcome::Done(true));
    let page = outbox.read_page(&log(), Slot(0), Slot(9)).await.unwrap();
    let anchor =
        Anchor { epoch: Epoch(3), anchor_id: Id128(5), owner: "o".to_owned(), opened_at: UnixMillis(1), drained: Slot(7), retired: false };
    assert_eq!(page.rows, [(Slot(8), Row::Anchor(anchor))], "its anchor retires nothing");
    outbox.probe().await.unwrap();
    SqliteStore::open(&path, OpenMode::ReadOnly).unwrap();
}

#[tokio::test]
async fn what_an_older_release_remembered_has_had_no_generation() {
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    SqliteStore::create(&path).unwrap();
    let sql = "DROP TABLE drop_ledger;
        DROP TABLE drop_ledger_batch;
        ALTER TABLE subscription_baselines DROP COLUMN generation;
        ALTER TABLE dlq DROP COLUMN bridge;
        INSERT INTO subscription_baselines (storage_identity) VALUES ('s');
        INSERT INTO managed_subscriptions (storage_identity, filter) VALUES ('s', 'a');
        PRAGMA user_version = 2;";
    rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let subscriptions = open(&path).unwrap().managed_subscriptions().unwrap();
    assert_eq!(subscriptions.forget("s", "a", Generation(0)).await, Outcome::Done(false));
    assert_eq!(subscriptions.load("s").await.unwrap(), Some(BTreeSet::from(["a".to_owned()])));
    assert_eq!(subscriptions.remember("s", &BTreeSet::new()).await, Outcome::Done(Some(Generation(1))));
    assert_eq!(subscriptions.forget("s", "a", Generation(1)).await, Outcome::Done(true));
}

#[test]
fn create_brings_an_older_releases_store_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    of_version_1(&path);
    assert_eq!(SqliteStore::create(&path).unwrap(), [format!("schema version 5 in file {}, which had 1", path.display())]);
    assert!(SqliteStore::create(&path).unwrap().is_empty());
}

#[test]
fn a_store_without_its_tables_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    SqliteStore::create(&path).unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch("DROP TABLE dlq").unwrap();
    refused(open(&path), "STORE_DAMAGED", &["no such table: dlq", ".recover"]);
}

#[test]
fn a_file_left_empty_by_a_crash_becomes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    fs::write(&path, "").unwrap();
    refused(SqliteStore::open(&path, OpenMode::ReadOnly), "STORE_MISSING", &["there is no store"]);
    open(&path).unwrap();
}

#[tokio::test]
async fn one_process_shares_a_file_by_whatever_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    let link = folder.path().join("link.db");
    let first = open(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let second = open(&link).unwrap();
    assert_eq!(first.path(), second.path());
    first.dead_letters().park(&letter(1)).await.done().unwrap();
    drop(first);
    assert_eq!(second.dead_letters().get(letter(1).id).await.unwrap(), Some(letter(1)));
    // A handle alone keeps it open; the last one gives it back, and what was written is there at the next opening.
    let outbox = second.outbox();
    drop(second);
    assert_eq!(outbox.put(&log(), Slot(1), &segment(1, "x")).await, Outcome::Done(Put::Stored));
    drop(outbox);
    assert!(!folder.path().join("causeway.db-wal").exists(), "a clean end leaves nothing in the write-ahead log");
    let again = open(&path).unwrap();
    assert_eq!(again.outbox().read_tail(&log()).await.unwrap().unwrap().slot, Slot(1));
    assert_eq!(again.dead_letters().get(letter(1).id).await.unwrap(), Some(letter(1)));
}

#[tokio::test]
async fn a_second_process_is_told_who_has_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    let mut child = Child::start("child_keeps_the_store_open", &path);
    assert_eq!(child.line(), "open");
    refused(open(&path), "STORE_LOCKED", &[&format!("process {}", child.id()), "sqlite_open", "stop that process"]);
    // Looking on is possible, and shows what was committed.
    let look = SqliteStore::open(&path, OpenMode::ReadOnly).unwrap();
    assert_eq!(look.outbox().read_tail(&log()).await.unwrap().unwrap().slot, Slot(1));
    assert_eq!(look.dead_letters().get(letter(1).id).await.unwrap(), Some(letter(1)));
    assert!(SqliteStore::create(&path).unwrap().is_empty());
    child.kill();
    // The lock ends with the process, however it ends.
    let store = open(&path).unwrap();
    assert_eq!(store.outbox().read_tail(&log()).await.unwrap().unwrap().slot, Slot(1));
}

#[tokio::test]
#[ignore = "a process of another test"]
async fn child_keeps_the_store_open() {
    let store = open(Child::path()).unwrap();
    store.outbox().put(&log(), Slot(1), &segment(1, "x")).await.done().unwrap();
    store.dead_letters().park(&letter(1)).await.done().unwrap();
    Child::say("open");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_reader_sees_each_commit_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    let store = open(&path).unwrap();
    let look = SqliteStore::open(&path, OpenMode::ReadOnly).unwrap();
    for slot in 1..=5 {
        store.outbox().put(&log(), Slot(slot), &segment(u128::from(slot), "x")).await.done().unwrap();
        assert_eq!(look.outbox().read_tail(&log()).await.unwrap().unwrap().slot, Slot(slot));
    }
    look.outbox().probe().await.unwrap();
    let Outcome::NotDone(fault) = look.outbox().put(&log(), Slot(6), &segment(6, "x")).await else { panic!("a reader wrote") };
    assert_eq!(fault.code, FaultCode::NotAuthorized);
    assert!(matches!(look.dead_letters().park(&letter(1)).await, Outcome::NotDone(_)));
    assert!(matches!(look.outbox().delete(&log(), &[Slot(1)]).await, Outcome::NotDone(_)));
    assert_eq!(store.outbox().read_tail(&log()).await.unwrap().unwrap().slot, Slot(5));
}

#[tokio::test]
async fn a_probe_notices_that_the_file_was_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    let store = open(&path).unwrap();
    store.outbox().probe().await.unwrap();
    store.dead_letters().probe().await.unwrap();
    fs::rename(&path, folder.path().join("elsewhere.db")).unwrap();
    assert_eq!(store.outbox().probe().await.unwrap_err().code, FaultCode::NotFound);
    fs::write(&path, "").unwrap();
    assert_eq!(store.dead_letters().probe().await.unwrap_err().code, FaultCode::NotFound, "another file in its place is noticed too");
}

#[tokio::test]
async fn a_row_that_a_newer_release_wrote_stops_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    let store = open(&path).unwrap();
    store.outbox().put(&log(), Slot(1), &segment(1, "x")).await.done().unwrap();
    store.outbox().put(&log(), Slot(2), &segment(2, "x")).await.done().unwrap();
    rusqlite::Connection::open(&path).unwrap().execute("UPDATE outbox SET kind = 'chunk' WHERE sk = 2", []).unwrap();
    let fault = store.outbox().read_page(&log(), Slot(0), Slot(9)).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidConfig);
    assert!(fault.detail.contains("chunk") && fault.detail.contains("newer release"), "{fault}");
}
