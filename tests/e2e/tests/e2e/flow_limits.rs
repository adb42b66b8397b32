//! Limits by key, session and route, with a broker, a queue, and a worker that is killed.

use crate::watched::{Watched, until};
use aws_sdk_sqs::types::Message as Received;
use causeway_e2e::wire::Tap;
use std::collections::BTreeSet;
use std::time::Duration;
use xtask::stack::Store;

const ACKNOWLEDGED: &str = "causeway_mqtt_acknowledged_total";
const DROPPED: &str = "causeway_messages_dropped_total";
const IMBALANCE: &str = "causeway_conservation_imbalance";
const CLIENT_ID: &str = xtask::worker::CLIENT_ID;

fn bodies(arrived: &[Received]) -> BTreeSet<String> {
    arrived.iter().filter_map(|message| message.body()).map(str::to_owned).collect()
}

/// Arrivals until these are among them.
async fn collect(watched: &Watched, seen: &mut BTreeSet<String>, count: usize) {
    until("what was published", async || {
        seen.extend(bodies(&watched.arrivals(1).await));
        seen.len() >= count
    })
    .await;
}

/// Ten a minute for each device: of thirty, twenty are parked in the outbox, acknowledged; other devices are not delayed; and over kill -9 nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_noisy_key_is_parked_others_pass_and_nothing_is_lost_over_kill_9() {
    let layer = "flow: { limits: [{ key: 'topic_level:2', pairs: '10:120', enabled: true }] }";
    let mut watched = Watched::start(Store::Sqlite, false, layer).await;
    watched.publish_numbers("telemetry/noisy/a", 0..30).await;
    for device in 0..10 {
        watched.publish_numbers(&format!("telemetry/quiet-{device}/a"), 100 + 4 * device..104 + 4 * device).await;
    }
    let first = bodies(&watched.arrivals(50).await);
    let quiet: BTreeSet<String> = (100..140).map(|number: u64| number.to_string()).collect();
    assert!(first.is_superset(&quiet), "{first:?}");
    assert_eq!(first.difference(&quiet).count(), 10);
    until("every acknowledgement", async || watched.metric(ACKNOWLEDGED).await == 70.0).await;
    let parked = async || (watched.metric("causeway_parked_messages").await, watched.metric("causeway_parked_total").await);
    until("what is parked", async || parked().await == (20.0, 20.0)).await;
    assert_eq!(watched.metric(IMBALANCE).await, 0.0);
    assert!(watched.stragglers().await.is_empty());
    let mut seen = first;
    for _ in 0..6 {
        if seen.len() == 70 {
            break;
        }
        watched.kill_and_start_again(|_| {}).await;
        let before = seen.len();
        collect(&watched, &mut seen, before + 1).await;
        // What of a window follows the first of it.
        seen.extend(bodies(&watched.stragglers().await));
        assert!(seen.len() <= before + 10, "the next owner keeps to it");
    }
    assert_eq!(seen.len(), 70, "{seen:?}");
}

/// Twenty at a time for a session: what exceeds it stays unacknowledged with the broker, seen on the wire, on a connection that lives on; and comes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_withholds_acknowledgements_on_a_connection_that_lives_on() {
    let mut tap = None;
    let mut watched = Watched::start_after(Store::Sqlite, false, "version: 1", async |rig| {
        let on_the_wire = Tap::start(rig.stack.broker.port()).await.unwrap();
        let layer = format!(
            "flow: {{ inbound: {{ ack_hold_max: 30m }}, limits: [{{ scope: connection, pairs: '20:300', enabled: true }}] }}\nsessions: [{{ id: mqtt-conn, options: {{ session: {{ broker_url: '{}', keep_alive: 5 }} }} }}]",
            on_the_wire.url()
        );
        std::fs::write(rig.launch.layers.last().unwrap(), layer).unwrap();
        tap = Some(on_the_wire);
    })
    .await;
    let tap = tap.unwrap();
    watched.publish_numbers("telemetry/1/a", 0..50).await;
    let mut seen = bodies(&watched.arrivals(20).await);
    until("twenty acknowledgements", async || tap.acknowledgements() == 20).await;
    until("what is held", async || watched.metric("causeway_held_messages").await > 0.0).await;
    // Twice the broker's patience with a client that says nothing.
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!((tap.acknowledgements(), tap.logins(CLIENT_ID)), (20, (1, 1)));
    assert_eq!((watched.metric(IMBALANCE).await, watched.metric("causeway_admission_paused").await), (0.0, 1.0));
    assert!(watched.metric("causeway_ack_hold_seconds").await >= 10.0);
    // A connection that ends makes no budget whole: what is not acknowledged comes again, and is held again.
    tap.cut();
    until("another connection", async || tap.logins(CLIENT_ID).0 == 2).await;
    until("what comes again", async || watched.metric("causeway_mqtt_received_total").await > 50.0).await;
    assert!(watched.stragglers().await.is_empty());
    assert_eq!(tap.acknowledgements(), 20);
    let url = tap.url();
    let without = format!("sessions: [{{ id: mqtt-conn, options: {{ session: {{ broker_url: '{url}' }} }} }}]");
    watched.kill_and_start_again(|rig| std::fs::write(rig.launch.layers.last().unwrap(), without).unwrap()).await;
    collect(&watched, &mut seen, 50).await;
    until("every acknowledgement", async || tap.acknowledgements() == 50).await;
    assert_eq!(seen, (0..50).map(|number| number.to_string()).collect());
}

/// Ten at a time for a route that drops the rest: it is acknowledged, counted, and goes nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_limit_drops_is_acknowledged_and_counted() {
    let layer = "flow: { limits: [{ scope: route, pairs: '10:300', on_exceed: drop, allow_loss: true, enabled: true }] }";
    let watched = Watched::start(Store::Sqlite, false, layer).await;
    watched.publish_numbers("telemetry/1/a", 0..25).await;
    let arrived = watched.arrivals(10).await;
    assert_eq!(bodies(&arrived), (0..10).map(|number| number.to_string()).collect());
    until("every acknowledgement", async || watched.metric(ACKNOWLEDGED).await == 25.0).await;
    until("what is dropped", async || watched.metric(DROPPED).await == 15.0).await;
    assert_eq!(watched.metric(IMBALANCE).await, 0.0);
    let told = watched.worker.metrics_text().await.unwrap();
    assert!(
        told.lines().any(|line| line.starts_with(DROPPED) && line.contains("reason=\"route_limit\"") && line.ends_with(" 15")),
        "{told}"
    );
    assert!(watched.stragglers().await.is_empty());
}

/// A pace for each destination: what exceeds it waits in the outbox, and leaves as the pace says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pace_delays_what_a_route_sends() {
    let watched = Watched::start(Store::Sqlite, false, "flow: { outbound: { pace: '10:3' } }").await;
    watched.publish_numbers("telemetry/1/a", 0..35).await;
    let mut seen = BTreeSet::new();
    collect(&watched, &mut seen, 35).await;
    assert!(watched.metric("causeway_parked_total").await >= 20.0);
    assert_eq!(watched.metric(IMBALANCE).await, 0.0);
}

/// What a limit holds for too long goes into the outbox: it is acknowledged, survives a crash, and is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_for_too_long_is_parked_and_survives_kill_9() {
    let layer = "flow: { inbound: { ack_hold_max: 2s }, limits: [{ scope: connection, pairs: '20:300', enabled: true }] }";
    let mut watched = Watched::start(Store::Sqlite, false, layer).await;
    watched.publish_numbers("telemetry/1/a", 0..30).await;
    let mut seen = bodies(&watched.arrivals(20).await);
    until("every acknowledgement", async || watched.metric(ACKNOWLEDGED).await == 30.0).await;
    let waits = async || (watched.metric("causeway_parked_messages").await, watched.metric("causeway_held_messages").await);
    until("what is parked", async || waits().await == (10.0, 0.0)).await;
    assert_eq!(watched.metric(IMBALANCE).await, 0.0);
    assert!(watched.stragglers().await.is_empty(), "the limit still holds");
    watched.kill_and_start_again(|_| {}).await;
    collect(&watched, &mut seen, 30).await;
    assert_eq!(seen, (0..30).map(|number| number.to_string()).collect());
}
