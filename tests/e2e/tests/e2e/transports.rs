//! Every way between brokers and queues. The messages of a run take it between where they are published and the queue that is read: through another
//! topic, through another queue, or both.

use crate::exclusive::{ACKNOWLEDGED, TWO, counter};
use causeway_e2e::{Listener, Run, Setup};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::Path;
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

/// A broker of MQTT 3.1.1, and a way over websockets: the promises are the same. `window`: what the broker hands over ahead of acknowledgements, where it
/// is not told.
async fn killed_at_the_broker(setup: Setup, window: u64) {
    let mut run = Run::start(&setup).await.unwrap();
    run.publish(0..4_000, 500);
    for at in [1_000, 2_500] {
        run.published(at).await.unwrap();
        run.delivered(1).await.unwrap();
        run.kill().await.unwrap();
        run.expose("the window is the broker's", vec![("messages that it hands over ahead".to_owned(), window)]);
        run.start_worker().await.unwrap();
    }
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (4_000, 4_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_over_mqtt_3_1_1() {
    let layer = "sessions: [{ id: mqtt-conn, options: { session: { protocol_version: v3.1.1, message_id: content_hash } } }]";
    // `max_inflight_messages` of the broker: that version has no window of its own.
    killed_at_the_broker(Setup { layer: Some(layer), ..Setup::new(Store::Sqlite, 4_000) }, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_over_websockets() {
    let listener = Listener { scheme: "ws", path: "/mqtt", kind: "protocol websockets".to_owned() };
    killed_at_the_broker(Setup { listener: Some(listener), ..Setup::new(Store::Sqlite, 4_000) }, 0).await;
}

/// A broker that wants to know who connects, and that tells others when a worker vanishes. What a worker says goodbye with takes its will back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_shows_its_certificate_and_its_will_is_published_when_it_is_killed_and_only_then() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let of_broker = [("cafile", "ca.pem"), ("certfile", "server.pem"), ("keyfile", "server.key")];
    let kind: String = of_broker.iter().map(|(setting, name)| format!("{setting} {}\n", path(name))).collect();
    let layer = format!(
        "sessions: [{{ id: mqtt-conn, options: {{ session: {{ will: {{ topic: status/worker, payload: gone, qos: 1, retain: true }}, \
         tls: {{ ca_cert_file: '{}', cert_file: '{}', key_file: '{}' }} }} }} }}]",
        path("ca.pem"),
        path("client.pem"),
        path("client.key")
    );
    let listener = Listener { scheme: "mqtts", path: "", kind: kind + "require_certificate true" };
    let setup = Setup { listener: Some(listener), layer: Some(Box::leak(layer.into_boxed_str())), ..Setup::new(Store::Sqlite, 1_000) };
    let mut run = Run::start(&setup).await.unwrap();
    run.publish(0..1_000, 250);
    run.published(300).await.unwrap();
    run.stop().await.unwrap();
    assert_eq!(kept_will(&run).await, None, "it said goodbye");
    run.start_worker().await.unwrap();
    run.published(600).await.unwrap();
    run.kill().await.unwrap();
    assert_eq!(kept_will(&run).await.as_deref(), Some("gone"));
    run.start_worker().await.unwrap();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (1_000, 1_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound);
}

/// The will of a worker, which the broker keeps once it was published. Waits for it for a while.
async fn kept_will(run: &Run) -> Option<String> {
    let mut command = tokio::process::Command::new("mosquitto_sub");
    command.args(["-h", "127.0.0.1", "-p", &run.rig.stack.broker.port().to_string(), "-t", "status/worker", "-C", "1", "-W", "5"]);
    let output = command.kill_on_drop(true).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (!text.is_empty()).then(|| text.trim().to_owned())
}

/// An authority, and certificates of it for a broker and for a worker.
fn certificates(dir: &Path) {
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write("ca.pem", &authority.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(authority, key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let mut certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        certificate.distinguished_name.push(rcgen::DnType::CommonName, name);
        write(&format!("{name}.pem"), &certificate.signed_by(&key, &issuer).unwrap().pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
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
