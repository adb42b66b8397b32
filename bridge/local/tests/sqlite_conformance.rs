//! The SQLite stores keep the contracts.
#![allow(clippy::unwrap_used, reason = "tests")]

use causeway_local::sqlite::{OpenMode, SqliteStore};
use tempfile::TempDir;

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

mod dead_letters {
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::DeadLetters>, tempfile::TempDir) {
        let (store, folder) = super::store();
        (Arc::new(store.dead_letters()), folder)
    }
    causeway_ports::dead_letters_conformance!(fresh);
}
