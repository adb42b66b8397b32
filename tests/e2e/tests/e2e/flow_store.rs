//! How much of one key may wait in the outbox: limit 3, four published while the queue refuses, a worker that is killed, and each policy.

use crate::watched::{Watched, until};
use aws_sdk_sqs::types::Message as Received;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

const TOPIC: &str = "telemetry/9/temperature";
const ACKNOWLEDGED: &str = "causeway_mqtt_acknowledged_total";
const DROPPED: &str = "causeway_messages_dropped_total";
const DEAD_LETTERS: &str = "causeway_dlq_entries_total";
const IMBALANCE: &str = "causeway_conservation_imbalance";

/// Limit 3, the queue refuses, four are published.
async fn four_of_three(on_full: &str) -> Watched {
    let layer = format!("flow: {{ store: {{ max_messages_per_key: 3, {on_full} }} }}");
    let watched = Watched::start(Store::Sqlite, false, &layer).await;
    queue(&watched).inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    watched.publish_numbers(TOPIC, 1..4).await;
    until("three acknowledgements", async || watched.metric(ACKNOWLEDGED).await == 3.0).await;
    watched
}

fn queue(watched: &Watched) -> &xtask::proxy::Proxy {
    &watched.rig.proxies.as_ref().unwrap().sqs
}

fn numbers(arrived: &[Received]) -> Vec<u64> {
    let mut numbers: Vec<u64> = arrived.iter().map(|message| message.body().unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

async fn letters(watched: &Watched) -> Vec<(String, String)> {
    let letters = watched.letters().await.into_iter();
    letters.map(|letter| (String::from_utf8_lossy(&letter.message.payload).into_owned(), letter.error_code)).collect()
}

/// The fourth stays with its publisher's broker, over a crash too, and arrives once there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_store_hold_withholds_the_acknowledgement_and_loses_nothing() {
    let mut watched = four_of_three("on_full: hold").await;
    watched.publish_numbers(TOPIC, 4..5).await;
    until("the fourth message", async || watched.metric("causeway_mqtt_received_total").await == 4.0).await;
    until("the fourth message being held", async || watched.metric("causeway_admission_paused").await == 1.0).await;
    assert_eq!(watched.metric(ACKNOWLEDGED).await, 3.0);
    watched.kill_and_start_again(|_| {}).await;
    until("the fourth message again", async || watched.metric("causeway_mqtt_received_total").await == 1.0).await;
    until("the fourth message being held again", async || watched.metric("causeway_admission_paused").await == 1.0).await;
    assert_eq!(watched.metric(ACKNOWLEDGED).await, 0.0, "what the former owner left counts");
    queue(&watched).heal();
    let arrived = watched.arrivals(4).await;
    assert_eq!(numbers(&arrived), [1, 2, 3, 4]);
    until("its acknowledgement", async || watched.metric(ACKNOWLEDGED).await == 1.0).await;
    assert_eq!((watched.metric(DROPPED).await, watched.metric(DEAD_LETTERS).await, watched.metric(IMBALANCE).await), (0.0, 0.0, 0.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_store_dead_letter_oldest_keeps_what_it_trims() {
    let mut watched = four_of_three("on_full: dead_letter_oldest").await;
    watched.publish_numbers(TOPIC, 4..5).await;
    until("the fourth acknowledgement", async || watched.metric(ACKNOWLEDGED).await == 4.0).await;
    assert_eq!(letters(&watched).await, [("1".to_owned(), "TRIMMED".to_owned())]);
    until("the dead letter", async || watched.metric(DEAD_LETTERS).await == 1.0).await;
    assert_eq!(watched.metric(DROPPED).await, 0.0);
    watched.kill_and_start_again(|rig| rig.proxies.as_ref().unwrap().sqs.heal()).await;
    assert_eq!(numbers(&watched.arrivals(3).await), [2, 3, 4]);
    assert_eq!(letters(&watched).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_store_drop_oldest_counts_what_it_loses() {
    let watched = four_of_three("on_full: drop_oldest, allow_loss: true").await;
    watched.publish_numbers(TOPIC, 4..5).await;
    until("the fourth acknowledgement", async || watched.metric(ACKNOWLEDGED).await == 4.0).await;
    until("the drop", async || watched.metric(DROPPED).await == 1.0).await;
    let told = watched.worker.metrics_text().await.unwrap();
    let series = "causeway_dropped_messages_total{reason=\"trimmed\",direction=\"egress\",route=\"ingest\",outcome=\"lost\"} 1";
    assert!(told.lines().any(|line| line == series), "{told}");
    queue(&watched).heal();
    assert_eq!(numbers(&watched.arrivals(3).await), [2, 3, 4]);
    assert_eq!((watched.letters().await.len(), watched.metric(IMBALANCE).await), (0, 0.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_store_reject_newest_keeps_the_newest_as_a_dead_letter() {
    let watched = four_of_three("on_full: reject_newest").await;
    watched.publish_numbers(TOPIC, 4..5).await;
    until("the fourth acknowledgement", async || watched.metric(ACKNOWLEDGED).await == 4.0).await;
    assert_eq!(letters(&watched).await, [("4".to_owned(), "STORE_FULL".to_owned())]);
    queue(&watched).heal();
    assert_eq!(numbers(&watched.arrivals(3).await), [1, 2, 3]);
    assert_eq!((watched.metric(DROPPED).await, watched.metric(IMBALANCE).await), (0.0, 0.0));
}
