//! Messages that the broker keeps for later subscribers, over starts and stops.

use crate::watched::{Watched, attribute, publish_retained, until};
use xtask::stack::Store;

const DROPPED: &str = "causeway_messages_filtered_total";
const ACKNOWLEDGED: &str = "causeway_mqtt_acknowledged_total";
const IMBALANCE: &str = "causeway_conservation_imbalance";
const TOPIC: &str = "telemetry/7/door";

/// The broker forgets the session with its connection, and so sends what it keeps with every new one.
const EPHEMERAL: &str =
    "sessions: [{ id: mqtt-conn, session_mode: ephemeral, options: { session: { clean_start: true, session_expiry_interval: null } } }]";

fn receiver(policy: &str) -> String {
    format!("receivers: [{{ id: telemetry-in, options: {{ retained: {policy} }} }}]")
}

async fn kept_before_the_start(layer: &str) -> Watched {
    Watched::start_after(Store::Sqlite, false, layer, async |rig| publish_retained(rig, TOPIC, "open").await).await
}

/// Every start of a session that the broker forgot brings a copy, and each says what it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_keeps_comes_with_every_start_and_each_copy_is_marked() {
    let mut watched = kept_before_the_start(&format!("{EPHEMERAL}\n{}", receiver("forward"))).await;
    for start in 1..=3 {
        let arrived = watched.arrivals(1).await;
        assert_eq!((arrived.len(), arrived[0].body(), attribute(&arrived[0], "causeway.retained")), (1, Some("open"), Some("true")));
        if start < 3 {
            watched.stop_and_start_again(async |_| {}).await;
        }
    }
    assert!(watched.stragglers().await.is_empty());
}

/// A session that the broker keeps has its subscription already when it comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_kept_gets_what_the_broker_keeps_once() {
    let mut watched = kept_before_the_start("version: 1").await;
    let arrived = watched.arrivals(1).await;
    assert_eq!((arrived.len(), attribute(&arrived[0], "causeway.retained")), (1, Some("true")));
    for _ in 0..2 {
        watched.stop_and_start_again(async |_| {}).await;
        assert!(watched.stragglers().await.is_empty());
    }
    // What is published while it is subscribed is news, whatever its publisher asks the broker to do with it.
    publish_retained(&watched.rig, TOPIC, "closed").await;
    let arrived = watched.arrivals(1).await;
    assert_eq!((arrived[0].body(), attribute(&arrived[0], "causeway.retained")), (Some("closed"), None));
}

/// It is acknowledged, and told of, and goes nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_keeps_is_skipped_and_counted_at_every_start() {
    let mut watched = kept_before_the_start(&format!("{EPHEMERAL}\n{}", receiver("skip"))).await;
    for start in 1..=3 {
        until("the message that is dropped", async || watched.metric(DROPPED).await == 1.0).await;
        until("its acknowledgement", async || watched.metric(ACKNOWLEDGED).await == 1.0).await;
        assert!(watched.stragglers().await.is_empty());
        assert_eq!(watched.metric(IMBALANCE).await, 0.0);
        if start < 3 {
            watched.stop_and_start_again(async |_| {}).await;
        }
    }
    let told = watched.worker.metrics_text().await.unwrap();
    assert!(told.lines().any(|line| line.starts_with(DROPPED) && line.contains("reason=\"retained\"") && line.ends_with(" 1")), "{told}");
    publish_retained(&watched.rig, TOPIC, "closed").await;
    let arrived = watched.arrivals(1).await;
    assert_eq!((arrived[0].body(), attribute(&arrived[0], "causeway.retained")), (Some("closed"), None), "it came while it was subscribed");
    assert!(watched.stragglers().await.is_empty());
}
