//! Every way between brokers and queues. The messages of a run take it between where they are published and the queue that is read: through another
//! topic, through another queue, or both.

use crate::exclusive::{ACKNOWLEDGED, TWO, counter};
use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::ledger::Account;
use xtask::stack::Store;

/// From the topic back to the broker, and from there to the queue.
const OVER_ANOTHER_TOPIC: &str = r#"
sessions:
  - id: relay
    transport: mqtt
    session_mode: persistent
    options:
      session:
        broker_url: ${CAUSEWAY_BROKER_URL}
        client_id: relay
        session_expiry_interval: 3600
        reconnect_delay: 500ms
        reconnect_max_delay: 2s
        connect_timeout: 5s
        reconcile_timeout: 5s
receivers:
  - id: relay-in
    session_id: relay
    topics: [{topic: "relay/#", qos: 1}]
senders:
  - id: relay-out
    session_id: mqtt-conn
    options: {qos: 1, retain: false, timeout: 10s, throttle_retry_after: 500ms}
bindings:
  - {id: to-topic, sender_id: relay-out, address: relay/all}
routes:
  - {id: ingest, bindings: [to-topic]}
  - id: relay
    receiver_id: relay-in
    delivery_mode: shared_outbox
    bindings: [to-sqs]
    policy: {max_replay_attempts: 50, backoff: {initial_interval: 250ms, max_interval: 5s}}
"#;

/// What the address of the first binding does not fit, which is all of it.
fn over_the_default_topic() -> &'static str {
    let addressed = OVER_ANOTHER_TOPIC
        .replace("address: relay/all", "address: 'elsewhere/{site}'")
        .replace("qos: 1, retain", "default_topic: relay/lost, qos: 1, retain");
    assert!(addressed.contains("relay/lost") && addressed.contains("{site}"));
    Box::leak(addressed.into_boxed_str())
}

/// From the topic to another queue, and from there to the queue.
const OVER_ANOTHER_QUEUE: &str = r#"
receivers:
  - id: from-relay
    transport: sqs
    options: {queue_url: "${CAUSEWAY_RELAY_QUEUE_URL}", wait_time_seconds: 2, visibility_timeout: 10}
senders:
  - id: relay-out
    transport: sqs
    options: {queue_url: "${CAUSEWAY_RELAY_QUEUE_URL}"}
bindings:
  - {id: to-relay, sender_id: relay-out, address: relay}
routes:
  - {id: ingest, bindings: [to-relay]}
  - id: hop
    receiver_id: from-relay
    delivery_mode: shared_outbox
    bindings: [to-sqs]
    policy: {max_replay_attempts: 50, backoff: {initial_interval: 250ms, max_interval: 5s}}
"#;

/// From the topic, which one process at a time receives from, to another queue, and from there, by every process and through no outbox, to the queue.
const MIXED_SESSION_MODES: &str = r#"
receivers:
  - id: from-relay
    transport: sqs
    options: {queue_url: "${CAUSEWAY_RELAY_QUEUE_URL}", wait_time_seconds: 2, visibility_timeout: 10}
senders:
  - id: relay-out
    transport: sqs
    options: {queue_url: "${CAUSEWAY_RELAY_QUEUE_URL}"}
bindings:
  - {id: to-relay, sender_id: relay-out, address: relay}
routes:
  - {id: ingest, bindings: [to-relay], session: {sender_id: relay-out}}
  - {id: hop, receiver_id: from-relay, delivery_mode: direct_hold, bindings: [to-sqs]}
"#;

/// From the topic to another queue, from there to another topic, and from there to the queue.
const OVER_BOTH: &str = r#"
sessions:
  - id: relay
    transport: mqtt
    session_mode: persistent
    options:
      session:
        broker_url: ${CAUSEWAY_BROKER_URL}
        client_id: relay
        session_expiry_interval: 3600
        reconnect_delay: 500ms
        reconnect_max_delay: 2s
        connect_timeout: 5s
        reconcile_timeout: 5s
receivers:
  - id: relay-in
    session_id: relay
    topics: [{topic: "relay/#", qos: 1}]
  - id: from-relay
    transport: sqs
    options: {queue_url: "${CAUSEWAY_RELAY_QUEUE_URL}", wait_time_seconds: 2, visibility_timeout: 10}
senders:
  - id: relay-out
    transport: sqs
    options: {queue_url: "${CAUSEWAY_RELAY_QUEUE_URL}"}
  - {id: topic-out, session_id: relay}
bindings:
  - {id: to-relay, sender_id: relay-out, address: relay}
  - {id: to-topic, sender_id: topic-out, address: relay/all}
routes:
  - {id: ingest, bindings: [to-relay]}
  - id: hop
    receiver_id: from-relay
    delivery_mode: shared_outbox
    bindings: [to-topic]
    policy: {max_replay_attempts: 50, backoff: {initial_interval: 250ms, max_interval: 5s}}
  - id: relay
    receiver_id: relay-in
    delivery_mode: shared_outbox
    bindings: [to-sqs]
    policy: {max_replay_attempts: 50, backoff: {initial_interval: 250ms, max_interval: 5s}}
"#;

/// Kills the worker twice while messages are at every stage of their way.
async fn killed_on_the_way(layer: &'static str, keeps_topics: bool) -> Account {
    let setup = Setup { layer: Some(layer), keeps_topics, ..Setup::new(Store::Sqlite, 4_000) };
    let mut run = Run::start(&setup).await.unwrap();
    run.publish(0..4_000, 500);
    for at in [1_000, 2_500] {
        run.published(at).await.unwrap();
        run.delivered(1).await.unwrap();
        run.kill().await.unwrap();
        run.start_worker().await.unwrap();
    }
    let (account, log) = run.settle().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (4_000, 4_000, 0, 0), "{account:#?}\n{log}");
    account
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_from_broker_to_broker() {
    killed_on_the_way(OVER_ANOTHER_TOPIC, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_address_does_not_fit_goes_over_the_default_topic() {
    killed_on_the_way(over_the_default_topic(), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_from_queue_to_queue() {
    killed_on_the_way(OVER_ANOTHER_QUEUE, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_from_queue_to_broker() {
    killed_on_the_way(OVER_BOTH, false).await;
}

/// Nothing is repeated where nothing fails, and each way ends in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_repeats_nothing_on_any_way() {
    for (layer, keeps_topics) in [(OVER_ANOTHER_TOPIC, false), (OVER_ANOTHER_QUEUE, true), (OVER_BOTH, false)] {
        let setup = Setup { layer: Some(layer), keeps_topics, ..Setup::new(Store::Sqlite, 1_000) };
        let mut run = Run::start(&setup).await.unwrap();
        run.publish(0..1_000, 500);
        run.published(400).await.unwrap();
        run.stop().await.unwrap();
        run.start_worker().await.unwrap();
        let account = run.finish().await.unwrap();
        assert_eq!((account.published, account.unique, account.duplicates, account.lost), (1_000, 1_000, 0, 0));
    }
}

/// One process owns the session with the broker, and both take from the queue between; the owner is killed while messages are at every stage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_owner_loses_nothing_beside_a_queue_that_all_receive_from() {
    let setup = Setup { members: TWO, layer: Some(MIXED_SESSION_MODES), ..Setup::new(Store::Dynamodb, 3_000) };
    let mut run = Run::start(&setup).await.unwrap();
    let former = run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..3_000, 300);
    run.published(1_000).await.unwrap();
    // A standby has no broker: what it acknowledges it took from the queue.
    let standby = 1 - former.member;
    for _ in 0..600 {
        if counter(run.cluster().unwrap(), standby, ACKNOWLEDGED).await > 0.0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(counter(run.cluster().unwrap(), standby, ACKNOWLEDGED).await > 0.0, "the standby takes nothing from the queue");
    let cluster = run.cluster().unwrap();
    cluster.members[former.member].worker.process.kill().await.unwrap();
    let successor = cluster.successor(&former.lease).await.unwrap();
    assert_eq!(successor.member, standby);
    cluster.start_again(former.member).await.unwrap();
    let (account, log) = run.settle().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0), "{account:#?}\n{log}");
}
