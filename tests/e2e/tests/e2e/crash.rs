//! A worker that dies, and one that is asked to stop.

use causeway_e2e::{Run, Setup};
use xtask::stack::Store;

async fn killed_in_the_middle(store: Store) {
    let mut run = Run::start(&Setup::new(store, 20_000)).await.unwrap();
    run.publish(0..20_000, 2_500);
    for at in [6_000, 13_000] {
        run.published(at).await.unwrap();
        run.kill().await.unwrap();
        run.start_worker().await.unwrap();
    }
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.lost, account.corrupted), (20_000, 0, 0));
    assert!(account.delivered >= 20_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_on_sqlite() {
    killed_in_the_middle(Store::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_on_dynamodb() {
    killed_in_the_middle(Store::Dynamodb).await;
}

async fn stopped_in_the_middle(store: Store) {
    let mut run = Run::start(&Setup::new(store, 6_000)).await.unwrap();
    run.publish(0..6_000, 1_500);
    for at in [2_000, 4_000] {
        run.published(at).await.unwrap();
        run.stop().await.unwrap();
        run.start_worker().await.unwrap();
    }
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.duplicates, account.lost), (6_000, 6_000, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_repeats_nothing_on_sqlite() {
    stopped_in_the_middle(Store::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_repeats_nothing_on_dynamodb() {
    stopped_in_the_middle(Store::Dynamodb).await;
}
