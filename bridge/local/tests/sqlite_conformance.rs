//! The SQLite stores keep the contracts.
#![allow(clippy::unwrap_used, reason = "tests")]

use causeway_local::sqlite::{OpenMode, SqliteStore};
use tempfile::TempDir;

mod redrives {
    use causeway_ports::conformance::redrives::Stores;
    use std::sync::Arc;

    async fn fresh() -> (Stores, tempfile::TempDir) {
        let (store, folder) = super::store();
        let letters = store.dead_letters();
        (Stores { redrives: Arc::new(letters.redrives()), letters: Arc::new(letters), outbox: Arc::new(store.outbox()) }, folder)
    }
    causeway_ports::redrives_conformance!(fresh);
}

mod redrives_between_two_files {
    use causeway_local::sqlite::{OpenMode, SqliteStore};
    use causeway_ports::TwoStores;
    use causeway_ports::conformance::redrives::Stores;
    use std::sync::Arc;

    async fn fresh() -> (Stores, tempfile::TempDir) {
        let (store, folder) = super::store();
        let letters = SqliteStore::open(folder.path().join("letters.db"), OpenMode::ReadWrite).unwrap().dead_letters();
        let outbox = Arc::new(store.outbox());
        let redrives = TwoStores::new(Arc::new(letters.clone()), Arc::new(letters.redrives()), Arc::clone(&outbox) as _);
        (Stores { letters: Arc::new(letters), redrives: Arc::new(redrives), outbox }, folder)
    }
    causeway_ports::redrives_conformance!(fresh);
}

/// A store of its own, in a folder of its own. The folder goes last.
fn store() -> (SqliteStore, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("causeway.db"), OpenMode::ReadWrite).unwrap();
    (store, folder)
}

mod outbox {
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::Outbox>, tempfile::TempDir) {
        let (store, folder) = super::store();
        (Arc::new(store.outbox()), folder)
    }
    causeway_ports::outbox_conformance!(fresh);
}

mod mailbox {
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::LogStore>, tempfile::TempDir) {
        let (store, folder) = super::store();
        (Arc::new(store.outbox()), folder)
    }
    causeway_ports::mailbox_conformance!(fresh);
}

mod dead_letters {
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::DeadLetters>, tempfile::TempDir) {
        let (store, folder) = super::store();
        (Arc::new(store.dead_letters()), folder)
    }
    causeway_ports::dead_letters_conformance!(fresh);
}

mod drop_ledger {
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::DropLedger>, tempfile::TempDir) {
        let (store, folder) = super::store();
        (Arc::new(store.drop_ledger()), folder)
    }
    causeway_ports::drop_ledger_conformance!(fresh);
}
