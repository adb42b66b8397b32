//! A log of several lanes: killed in the middle, and given another number of lanes.

use causeway_e2e::{Run, Setup};
use xtask::stack::Store;

/// One send at a time, so that the queue's time stamps tell the order in which entries left. 50 topics spread over the lanes.
fn in_order(store: Store, lanes: u32, messages: u64) -> Setup {
    Setup { lanes, max_in_flight: Some(1), ..Setup::new(store, messages) }
}

/// The owner is killed while it sends from `before` lanes; then `after` lanes are configured, and it is killed once more.
async fn killed_and_resized(store: Store, before: u32, after: u32) {
    let mut run = Run::start(&in_order(store, before, 1_600)).await.unwrap();
    assert_eq!(run.registered_lanes().await.unwrap(), u64::from(before));
    run.publish(0..800, 400);
    run.published(400).await.unwrap();
    run.kill().await.unwrap();
    run.start_worker().await.unwrap();
    run.publishing_done().await.unwrap();
    run.delivered(800).await.unwrap();
    run.stop().await.unwrap();

    run.configure_lanes(after).unwrap();
    run.start_worker().await.unwrap();
    run.lanes_become(u64::from(after)).await.unwrap();
    run.publish(800..1_600, 400);
    run.published(1_200).await.unwrap();
    run.kill().await.unwrap();
    run.start_worker().await.unwrap();
    assert_eq!(run.registered_lanes().await.unwrap(), u64::from(after));
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (1_600, 1_600, 0, 0));
    assert_eq!(account.order_violations, 0, "topics keep their order: {account:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lanes_become_three_and_kill_9_loses_nothing_on_sqlite() {
    killed_and_resized(Store::Sqlite, 2, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_lanes_become_two_and_kill_9_loses_nothing_on_dynamodb() {
    killed_and_resized(Store::Dynamodb, 3, 2).await;
}

/// At full speed nothing tells the order of sends that are under way at once; nothing is lost all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_in_three_lanes_at_full_speed() {
    let mut run = Run::start(&Setup { lanes: 3, ..Setup::new(Store::Dynamodb, 10_000) }).await.unwrap();
    run.publish(0..10_000, 2_000);
    for at in [3_000, 6_500] {
        run.published(at).await.unwrap();
        run.kill().await.unwrap();
        run.start_worker().await.unwrap();
    }
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (10_000, 10_000, 0, 0));
}
