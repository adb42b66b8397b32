//! What is kept when a message has come to its end, for how long, and how it comes back.

use causeway_e2e::{Run, Setup};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use xtask::stack::Store;

const NOWHERE: &str = "bindings: [{ id: to-sqs, address: '{missing}' }]";
const DEAD_LETTERS: &str = "causeway_dlq_entries_total";
const TRIES: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);

fn layer(run: &Run) -> &PathBuf {
    run.rig.launch.layers.first().unwrap()
}

/// `causeway ARGS` with the worker's configuration.
async fn told(run: &Run, arguments: &[&str]) -> Value {
    let (config, layer) = (run.rig.launch.config.to_string_lossy(), layer(run).to_string_lossy());
    let told = run.rig.launch.run(&[arguments, &["--json", "-c", &config, "-c", &layer]].concat()).await.unwrap();
    serde_json::from_str(&told).unwrap()
}

/// The ids of the settled messages that are kept.
async fn settled(run: &Run) -> BTreeSet<String> {
    let told = told(run, &["outbox", "list", "--settled", "--limit", "100000"]).await;
    let entries = told["settled"].as_array().unwrap();
    let ids: BTreeSet<String> = entries.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), entries.len(), "each once");
    assert!(entries.iter().all(|entry| entry["route"] == "ingest" && entry["topic"].as_str().unwrap().starts_with("telemetry/")));
    ids
}

async fn settled_become(run: &Run, what: &str, holds: impl Fn(usize) -> bool) -> BTreeSet<String> {
    for _ in 0..TRIES {
        let found = settled(run).await;
        if holds(found.len()) {
            return found;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("{what}: {}", settled(run).await.len());
}

async fn settled_messages_are_kept_for_their_time(store: Store, option: &'static str) {
    let keep = |time: &str| format!("stores: {{ outbox: {{ options: {{ {option}: {time} }} }} }}\n");
    let mut run = Run::start(&Setup { layer: Some("{}"), ..Setup::new(store, 600) }).await.unwrap();
    std::fs::write(layer(&run), keep("1h")).unwrap();
    run.stop().await.unwrap();
    run.start_worker().await.unwrap();
    run.publish(0..400, 0);
    run.published(400).await.unwrap();
    run.delivered(400).await.unwrap();
    let found = settled_become(&run, "all are settled and stay", |count| count == 400).await;
    run.kill().await.unwrap();
    run.start_worker().await.unwrap();
    assert!(settled_become(&run, "the next owner keeps them too", |count| count >= 400).await.is_superset(&found));
    // A shorter time holds from the next start on, counted from then.
    run.kill().await.unwrap();
    std::fs::write(layer(&run), keep("3s")).unwrap();
    run.start_worker().await.unwrap();
    run.publish(400..600, 0);
    run.published(600).await.unwrap();
    settled_become(&run, "they go", |count| count <= 200).await;
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (600, 600, 0, 0), "{account:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settled_messages_are_kept_for_their_time_in_sqlite() {
    settled_messages_are_kept_for_their_time(Store::Sqlite, "retention").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settled_messages_are_kept_for_their_time_in_dynamodb() {
    settled_messages_are_kept_for_their_time(Store::Dynamodb, "compaction_grace").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_in_sqlite_end_with_their_retention() {
    let setup = Setup { layer: Some(NOWHERE), dlq_retention: Some(5), ..Setup::new(Store::Sqlite, 50) };
    let mut run = Run::start(&setup).await.unwrap();
    run.publish(0..50, 0);
    run.publishing_done().await.unwrap();
    run.metric_reaches(DEAD_LETTERS, 50.0).await.unwrap();
    run.metric_reaches("causeway_dlq_deleted_total", 50.0).await.unwrap();
    assert_eq!(told(&run, &["dlq", "list"]).await["letters"], serde_json::json!([]));
    run.stop().await.unwrap();
}

/// Larger than a row of DynamoDB, also when they are packed: as letters, as mail, and in the log they stand in parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_larger_than_a_row_are_put_back_over_a_kill_9() {
    const LARGE: &str = "sessions: [{ id: mqtt-conn, options: { session: { max_payload_bytes: 1000000, receive_maximum: 4 } } }]\n";
    let setup = Setup { size: 950_000, layer: Some("{}"), ..Setup::new(Store::Dynamodb, 12) };
    let mut run = Run::start(&setup).await.unwrap();
    run.stop().await.unwrap();
    std::fs::write(layer(&run), format!("{LARGE}{NOWHERE}\n")).unwrap();
    run.start_worker().await.unwrap();
    run.publish(0..12, 0);
    run.publishing_done().await.unwrap();
    run.metric_reaches(DEAD_LETTERS, 12.0).await.unwrap();
    run.stop().await.unwrap();
    std::fs::write(layer(&run), LARGE).unwrap();
    let answer = told(&run, &["dlq", "redrive", "--all", "--yes"]).await;
    assert_eq!((&answer["redriven"], &answer["failed"], &answer["skipped"]), (&12.into(), &0.into(), &0.into()), "{answer}");
    run.start_worker().await.unwrap();
    // Somewhere amid the moves.
    run.delivered(3).await.unwrap();
    run.kill().await.unwrap();
    run.start_worker().await.unwrap();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (12, 12, 0, 0), "{account:#?}");
}

/// What a broker still sends for a filter that is gone dies, and comes back with the filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_removed_subscription_come_back_with_it() {
    const REMOVED: &str = "
receivers: [{ id: telemetry-in, topics: [{ topic: 'other/#', qos: 1 }] }]
sessions: [{ id: mqtt-conn, options: { session: { unmatched_grace: 0s } } }]
";
    for (store, again) in [(Store::Sqlite, true), (Store::Sqlite, false), (Store::Dynamodb, true)] {
        let mut run = Run::start(&Setup { layer: Some("{}"), ..Setup::new(store, 60) }).await.unwrap();
        run.stop().await.unwrap();
        std::fs::write(layer(&run), REMOVED).unwrap();
        run.publish(0..60, 0);
        run.publishing_done().await.unwrap();
        run.start_worker().await.unwrap();
        run.metric_reaches(DEAD_LETTERS, 60.0).await.unwrap();
        assert_eq!(run.consumer.unique(), 0);
        run.kill().await.unwrap();
        let window = if again { "24h" } else { "0s" };
        std::fs::write(layer(&run), format!("stores: {{ dlq: {{ auto_redrive_window: {window} }} }}\n")).unwrap();
        run.start_worker().await.unwrap();
        if again {
            run.delivered(20).await.unwrap();
            run.kill().await.unwrap();
            run.start_worker().await.unwrap();
        } else {
            let letters = told(&run, &["dlq", "list", "--code", "SUBSCRIPTION_REMOVED", "--state", "dead"]).await;
            assert_eq!(letters["letters"].as_array().map(Vec::len), Some(60), "{letters}");
            run.stop().await.unwrap();
            assert_eq!(told(&run, &["dlq", "redrive", "--all", "--yes"]).await["redriven"], 60);
            run.start_worker().await.unwrap();
        }
        let account = run.finish().await.unwrap();
        assert_eq!((account.published, account.unique, account.lost, account.corrupted), (60, 60, 0, 0), "{account:#?}");
    }
}
