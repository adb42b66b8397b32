//! Managed subscriptions in SQLite: the contract, who may see the file, and what outlives a process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use causeway_core::outcome::{FaultCode, Outcome};
use causeway_local::sqlite::{LocalStoreError, OpenMode, SqliteManagedSubscriptions, SqliteStore};
use causeway_ports::{DeadLetters, ManagedSubscriptions};
use common::{Child, letter};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

mod contract {
    use causeway_local::sqlite::{OpenMode, SqliteManagedSubscriptions};
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::ManagedSubscriptions>, tempfile::TempDir) {
        let folder = super::private_folder();
        let store = SqliteManagedSubscriptions::open(folder.path().join("causeway.db"), OpenMode::ReadWrite).unwrap();
        (Arc::new(store), folder)
    }
    causeway_ports::managed_subscriptions_conformance!(fresh);
}

/// A folder of this user's alone, whatever files are made like here.
fn private_folder() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

fn set(filters: &[&str]) -> BTreeSet<String> {
    filters.iter().map(|&filter| filter.to_owned()).collect()
}

fn open(path: &Path) -> Result<SqliteManagedSubscriptions, LocalStoreError> {
    SqliteManagedSubscriptions::open(path, OpenMode::ReadWrite)
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn refused(result: Result<SqliteManagedSubscriptions, LocalStoreError>, code: &str, says: &[&str]) {
    let Err(error) = result else { panic!("the store opened") };
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    assert!(says.iter().all(|word| text.contains(word)), "`{text}` does not say {says:?}");
    assert_eq!(error.fault().code, FaultCode::InvalidConfig);
}

#[test]
fn a_path_that_names_another_file_elsewhere_is_refused() {
    let folder = private_folder();
    let base = folder.path().display();
    let paths = [
        "causeway.db".to_owned(),
        "./causeway.db".to_owned(),
        String::new(),
        "/".to_owned(),
        format!("{base}/./causeway.db"),
        format!("{base}//causeway.db"),
        format!("{base}/../causeway.db"),
        format!("{base}/causeway.db/"),
    ];
    for path in paths {
        refused(open(Path::new(&path)), "STORE_PATH_UNCLEAN", &["absolute"]);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[tokio::test]
async fn a_file_that_others_may_see_is_refused() {
    let folder = private_folder();
    let path = folder.path().join("causeway.db");
    for mode in [0o755, 0o750, 0o701, 0o1777] {
        chmod(folder.path(), mode);
        refused(open(&path), "STORE_NOT_PRIVATE", &[&format!("{} has the mode {mode:04o}", folder.path().display()), "chmod 700"]);
        assert!(!path.exists(), "nothing was made there");
    }
    chmod(folder.path(), 0o700);
    open(&path).unwrap();
    for mode in [0o644, 0o640, 0o602] {
        chmod(&path, mode);
        refused(open(&path), "STORE_NOT_PRIVATE", &[&format!("causeway.db has the mode {mode:04o}"), "chmod 600"]);
    }
    chmod(&path, 0o600);
    // Opened to others while it is in use.
    let store = open(&path).unwrap();
    store.probe().await.unwrap();
    chmod(folder.path(), 0o755);
    let fault = store.probe().await.unwrap_err();
    assert!(fault.code == FaultCode::InvalidConfig && fault.detail.contains("chmod 700"), "{fault}");
}

#[test]
fn a_folder_of_another_user_is_refused() {
    // Only the superuser can give a folder away; as anybody else, the superuser's own serves, should there be one.
    let folder = private_folder();
    let path = folder.path().join("causeway.db");
    if std::os::unix::fs::chown(folder.path(), Some(65_534), None).is_ok() {
        refused(open(&path), "STORE_NOT_PRIVATE", &["belongs to user 65534", "this is user"]);
    }
}

#[tokio::test]
async fn one_file_holds_them_beside_the_rest() {
    let folder = private_folder();
    let path = folder.path().join("causeway.db");
    let store = SqliteStore::open(&path, OpenMode::ReadWrite).unwrap();
    let subscriptions = open(&path).unwrap();
    store.dead_letters().park(&letter(1)).await.done().unwrap();
    assert_eq!(subscriptions.seed("s", &set(&["a"])).await, Outcome::Done(true));
    let look = SqliteManagedSubscriptions::open(&path, OpenMode::ReadOnly).unwrap();
    assert_eq!(look.load("s").await.unwrap(), Some(set(&["a"])));
    let Outcome::NotDone(fault) = look.remember("s", &set(&["b"])).await else { panic!("a reader wrote") };
    assert_eq!(fault.code, FaultCode::NotAuthorized);
    assert_eq!(store.managed_subscriptions().unwrap().load("s").await.unwrap(), Some(set(&["a"])));
}

#[tokio::test]
async fn what_was_answered_outlives_a_killed_process() {
    let folder = private_folder();
    let path = folder.path().join("causeway.db");
    let mut child = Child::start("child_remembers", &path);
    assert_eq!(child.line(), "remembered");
    child.kill();
    let store = open(&path).unwrap();
    assert_eq!(store.load("s").await.unwrap(), Some(set(&["b", "c"])));
    assert_eq!(store.load("empty").await.unwrap(), Some(set(&[])));
    assert_eq!(store.load("other").await.unwrap(), None);
}

#[tokio::test]
#[ignore = "a process of another test"]
async fn child_remembers() {
    let store = open(&Child::path()).unwrap();
    store.seed("s", &set(&["a", "b"])).await.done().unwrap();
    store.seed("empty", &set(&[])).await.done().unwrap();
    let generation = store.remember("s", &set(&["c"])).await.done().unwrap().unwrap();
    assert!(store.forget("s", "a", generation).await.done().unwrap());
    Child::say("remembered");
    std::future::pending::<()>().await;
}
