//! A store that does not answer.

use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

/// Acknowledgements that the worker wrote to the broker.
const ACKNOWLEDGED: &str = "causeway_mqtt_acknowledged_total";
/// Messages that the source handed over.
const RECEIVED: &str = "causeway_mqtt_received_total";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_before_the_store_has_it() {
    let mut run = Run::start(&Setup { proxies: true, ..Setup::new(Store::Dynamodb, 50) }).await.unwrap();
    run.dynamodb().unwrap().inject(Rule::always(Fault::Hang));
    run.publish(0..50, 0);
    run.publishing_done().await.unwrap();
    run.metric_reaches(RECEIVED, 50.0).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(run.metrics().await.unwrap().get(ACKNOWLEDGED).unwrap_or(0.0), 0.0);
    assert_eq!(run.consumer.unique(), 0);
    run.kill().await.unwrap();

    tokio::time::sleep(Duration::from_secs(3)).await;
    run.dynamodb().unwrap().heal();
    run.start_worker().await.unwrap();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (50, 50, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_of_the_store_lose_and_repeat_nothing() {
    let mut run = Run::start(&Setup { proxies: true, ..Setup::new(Store::Dynamodb, 3_000) }).await.unwrap();
    run.publish(0..3_000, 1_000);
    for at in [500, 1_000, 1_500, 2_000] {
        run.published(at).await.unwrap();
        run.dynamodb().unwrap().inject(Rule::next("PutItem", 1, Fault::DropAnswer));
    }
    run.published(2_500).await.unwrap();
    assert!(run.dynamodb().unwrap().injected() >= 1, "segments are put with PutItem");
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (3_000, 3_000, 0, 0));
}
