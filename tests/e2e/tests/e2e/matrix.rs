//! Every way of delivery over every store, before both kinds of queue, under each harm: `scripts/chaos --matrix --short`.

use xtask::chaos::matrix::{Scale, play};
use xtask::terminal::result;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mode_over_every_store_keeps_its_promises_under_every_harm() {
    let dir = tempfile::Builder::new().prefix("causeway-e2e-").tempdir().unwrap();
    let matrix = play(Scale::SHORT, "", dir.path()).await.unwrap();
    result(&format!("{}\n{}", matrix.text(), matrix.ending()));
    assert!(matrix.ok, "{}", matrix.faults().join("\n"));
}
