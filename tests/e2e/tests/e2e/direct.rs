//! `direct_hold`: the broker keeps every message until the queue has it, and there is no outbox at all.

use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;
use xtask::worker::DeliveryMode;

/// Acknowledgements that the worker wrote to the broker.
const ACKNOWLEDGED: &str = "causeway_mqtt_acknowledged_total";

fn direct(messages: u64) -> Setup {
    Setup { delivery_mode: DeliveryMode::DirectHold, ..Setup::new(Store::Sqlite, messages) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_although_nothing_is_stored() {
    let mut run = Run::start(&direct(10_000)).await.unwrap();
    run.publish(0..10_000, 1_500);
    for at in [3_000, 7_000] {
        run.published(at).await.unwrap();
        run.kill().await.unwrap();
        run.start_worker().await.unwrap();
    }
    assert!(!run.rig.launch.dir.join("outbox.db").exists(), "there is no outbox");
    // More duplicates than were announced are a fault of the account.
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.lost, account.corrupted), (10_000, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_repeats_nothing() {
    let mut run = Run::start(&direct(4_000)).await.unwrap();
    run.publish(0..4_000, 1_000);
    for at in [1_500, 3_000] {
        run.published(at).await.unwrap();
        run.stop().await.unwrap();
        run.start_worker().await.unwrap();
    }
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.duplicates, account.lost), (4_000, 4_000, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_queue_is_away_nothing_is_acknowledged_and_a_crash_loses_nothing() {
    let mut run = Run::start(&Setup { proxies: true, ..direct(2_000) }).await.unwrap();
    let outage = || Rule::always(Fault::FailBefore { status: 503, code: String::new() });
    run.sqs().unwrap().inject(outage());
    run.publish(0..2_000, 1_000);
    run.publishing_done().await.unwrap();
    run.metric_reaches("causeway_mqtt_received_total", 1.0).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let metrics = run.metrics().await.unwrap();
    assert_eq!(metrics.get(ACKNOWLEDGED).unwrap_or(0.0), 0.0);
    let window = f64::from(run.settings().receive_maximum);
    assert!(metrics.get("causeway_mqtt_received_total").unwrap_or(0.0) <= window, "the broker stops at the receive window");
    run.kill().await.unwrap();
    run.start_worker().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(run.consumer.unique(), 0);
    run.sqs().unwrap().heal();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (2_000, 2_000, 0));
    assert_eq!(account.duplicates, 0, "what was never accepted is not repeated");
}
