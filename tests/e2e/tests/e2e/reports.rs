//! Faults that other bridges were reported for, with the inputs of those reports: docs/VERIFICATION.md has the list.

use crate::watched::{Watched, attribute, publish_numbers, until};
use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName};
use causeway_aws::sqs::source::{SOURCE_MESSAGE_ID, message as decoded};
use causeway_e2e::{Run, Setup};
use std::collections::BTreeSet;
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::rig::Rig;
use xtask::stack::Store;

const SEND: &str = "SendMessageBatch";
const DEAD_LETTERS: &str = "causeway_dlq_entries_total";

/// Topic, payload, and user properties.
type Published<'p> = (&'p str, Vec<u8>, &'p [(&'p str, &'p str)]);

/// What SQS demands of every message, whether the emulator does or not.
fn meets_the_rules_of_sqs(message: &Received) {
    assert!(!message.body().unwrap().is_empty(), "SQS refuses empty bodies");
    let attributes = message.message_attributes().cloned().unwrap_or_default();
    assert!(attributes.len() <= 10, "{} attributes", attributes.len());
    for (name, value) in &attributes {
        let valid = name.len() <= 256 && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        assert!(valid && !name.starts_with('.') && !name.ends_with('.') && !name.contains(".."), "{name}");
        let empty = value.string_value().is_none_or(str::is_empty) && value.binary_value().is_none_or(|bytes| bytes.as_ref().is_empty());
        assert!(!empty, "{name} is empty");
    }
}

/// Payloads around a library's packet limit and up to the bridge's own, bytes that SQS refuses, nothing at all, empty values, and more properties than SQS
/// has attributes, under names that it refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sqs_refuses_as_it_is_arrives_whole() {
    let watched = Watched::start(Store::Sqlite, false, "version: 1").await;
    let pattern = |size: usize| -> Vec<u8> { (0..size).map(|index| [0xa0, 0xa1][index % 2]).collect() };
    let fourteen: Vec<(String, String)> = (1..=14).map(|number| (format!("p {number}"), format!("value {number}"))).collect();
    let fourteen: Vec<(&str, &str)> = fourteen.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let sent: Vec<Published<'_>> = vec![
        ("telemetry/size/1", pattern(10_239), &[]),
        ("telemetry/size/2", pattern(10_241), &[]),
        ("telemetry/size/3", pattern(131_072), &[]),
        ("telemetry/size/4", pattern(262_144), &[]),
        ("telemetry/bell", b"\x07bell".to_vec(), &[]),
        ("telemetry/cleared", Vec::new(), &[("note", "")]),
        ("telemetry/many", b"{}".to_vec(), &fourteen),
    ];
    for (topic, payload, properties) in &sent {
        watched.publish(topic, payload, properties).await;
    }
    let arrived = watched.arrivals(sent.len()).await;
    assert_eq!(arrived.len(), sent.len());
    for (topic, payload, properties) in &sent {
        let received = arrived.iter().find(|message| attribute(message, "causeway.topic") == Some(*topic)).unwrap();
        meets_the_rules_of_sqs(received);
        let told = decoded(received, false);
        assert!(told.payload == payload[..], "{topic}: {} bytes", told.payload.len());
        let mut user = told.properties.user;
        user.retain(|(name, _)| name != SOURCE_MESSAGE_ID);
        let expected: Vec<(String, String)> = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(user, expected, "{topic}");
        if std::str::from_utf8(payload).is_err() || payload.contains(&7) {
            assert_eq!(attribute(received, "causeway.encoding"), Some("base64"), "{topic}");
        }
    }
    assert_eq!(watched.rig.proxies.as_ref().unwrap().sqs.refusals(), 0, "SQS had nothing to refuse");
    assert_eq!(watched.metric(DEAD_LETTERS).await, 0.0);
}

/// A session that lasts: the worker is away for a while, and what is published meanwhile is there when it comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_published_while_nobody_is_there_waits_with_the_broker() {
    let mut watched = Watched::start(Store::Sqlite, false, "version: 1").await;
    watched
        .stop_and_start_again(async |rig| {
            publish_numbers(rig, "telemetry/away", 0..30).await;
            // Longer than a session without an expiry interval would last.
            tokio::time::sleep(Duration::from_secs(20)).await;
        })
        .await;
    let arrived = watched.arrivals(30).await;
    let numbers: BTreeSet<u64> = arrived.iter().map(|message| message.body().unwrap().parse().unwrap()).collect();
    assert_eq!((arrived.len(), numbers), (30, (0..30).collect()));
    assert!(watched.stragglers().await.is_empty());
}

/// A message that no queue takes is put aside at once and for good; the ones behind it do not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_larger_than_a_queue_takes_is_put_aside_and_never_tried() {
    const MARK: &str = "no queue takes this";
    let layer = "sessions: [{ id: mqtt-conn, options: { session: { max_payload_bytes: 2097152 } } }]";
    let mut watched = Watched::start(Store::Sqlite, false, layer).await;
    let sqs = |watched: &Watched| watched.rig.proxies.as_ref().unwrap().sqs.injected();
    // It changes nothing; it counts the requests that hold the message.
    watched.rig.proxies.as_ref().unwrap().sqs.inject(Rule::always(Fault::Delay(Duration::ZERO)).containing(MARK));
    let mut large = MARK.as_bytes().to_vec();
    large.resize(1_048_577, b'x');
    watched.publish("telemetry/large", &large, &[]).await;
    watched.publish_numbers("telemetry/small", 0..20).await;
    let arrived = watched.arrivals(20).await;
    let numbers: BTreeSet<u64> = arrived.iter().map(|message| message.body().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (0..20).collect());
    until("the dead letter", async || watched.metric(DEAD_LETTERS).await == 1.0).await;

    assert!(watched.worker.stop().await.unwrap().success());
    let letters = watched.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].error_code.as_str(), letters[0].attempts), ("PAYLOAD_TOO_LARGE", 0));
    assert!(letters[0].message.payload == large[..]);
    watched.worker = watched.rig.worker().await.unwrap();
    watched.publish_numbers("telemetry/small", 20..21).await;
    assert_eq!(watched.arrivals(1).await[0].body(), Some("20"));
    assert_eq!((sqs(&watched), watched.metric(DEAD_LETTERS).await), (0, 0.0), "it is not tried again after a start either");
    assert!(watched.stragglers().await.is_empty());
}

/// A refusal that means "later": twenty times 403 with the name of a throttle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttle_in_the_form_of_a_refusal_is_waited_out_with_growing_pauses() {
    const FULL: f64 = 0.4;
    // A destination that asks for less is left alone by its sender, whatever the route's own pauses are.
    let layer = "flow: { outbound: { resume: { base: 25ms, max: 400ms, jitter: 100ms } } }";
    let watched = Watched::start(Store::Sqlite, false, layer).await;
    let throttle = Fault::FailBefore { status: 403, code: "com.amazonaws.sqs#RequestThrottled".to_owned() };
    let sqs = &watched.rig.proxies.as_ref().unwrap().sqs;
    sqs.inject(Rule::next(SEND, 20, throttle));
    watched.publish_numbers("telemetry/one", 0..1).await;
    assert_eq!(watched.arrivals(1).await[0].body(), Some("0"));
    assert_eq!((sqs.injected(), sqs.calls(SEND), watched.metric(DEAD_LETTERS).await), (20, 21, 0.0));
    let at = sqs.injected_at();
    let pauses: Vec<f64> = at.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64()).collect();
    for (index, pause) in pauses.iter().enumerate() {
        // Half of it is certain, and a busy machine only makes it longer.
        let full = (0.025 * 2_f64.powi(i32::try_from(index).unwrap())).min(FULL);
        assert!(*pause >= full * 0.5, "pause {index}: {pause} s of {full} s in {pauses:?}");
    }
    let longest: Vec<f64> = pauses[5..].to_vec();
    let spread = longest.iter().copied().fold(0.0, f64::max) - longest.iter().copied().fold(f64::MAX, f64::min);
    assert!(spread >= FULL * 0.02, "no jitter: {pauses:?}");
    assert!(watched.stragglers().await.is_empty());
}

/// Messages of the tests below; a fifth of 1,500 a second come, and a fifth of the 1,000 write units that DynamoDB lets one partition key have.
const METERED: u64 = 4_500;

/// Publishes them at a store that enforces that. Gives the units of the log by partition key, and the calls that were let through and those that were not.
async fn metered(setup: Setup) -> (Vec<f64>, u64, u64) {
    let layer = "stores: { outbox: { options: { segment_linger: 50ms } } }";
    let mut run = Run::start(&Setup { proxies: true, size: 900, layer: Some(layer), ..setup }).await.unwrap();
    run.dynamodb().unwrap().limit_writes(200);
    run.publish(0..METERED, 300);
    run.publishing_done().await.unwrap();
    run.delivered(METERED).await.unwrap();
    let used = run.dynamodb().unwrap().write_units();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (METERED, METERED, 0, 0), "{used:?}");
    let of_log = used.by_key.iter().filter(|(key, _)| key.starts_with("LOG#telemetry-bridge#mqtt-conn#"));
    (of_log.map(|(_, units)| *units).collect(), used.admitted, used.throttled)
}

/// All messages of one topic stand under one key. Packed, telemetry stays below what that may write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_of_one_topic_does_not_use_up_what_a_partition_may_write() {
    let (units, admitted, throttled) = metered(Setup { topics: 1, noise: false, ..Setup::new(Store::Dynamodb, METERED) }).await;
    let each = units.iter().sum::<f64>() / METERED as f64;
    assert!(units.len() == 1 && each < 1_000.0 / 1_500.0, "{each} units for a message: {units:?}");
    // A machine that stands still for a moment has a second's messages at once afterwards.
    assert!(throttled <= (admitted / 100).max(3), "{throttled} of {admitted}");
}

/// What packs badly does use it up at that rate (0.77 units a message): lanes, over which topics are spread, have a partition each. How much each of them
/// uses depends on how many messages meet in a segment; two units a message, one alone to a segment, would still be less than a partition may write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_have_a_partition_each() {
    let (units, admitted, throttled) = metered(Setup { lanes: 4, ..Setup::new(Store::Dynamodb, METERED) }).await;
    assert_eq!(units.len(), 4, "{units:?}");
    let most = units.iter().copied().fold(0.0, f64::max) / METERED as f64;
    assert!(most < 1_000.0 / 1_500.0, "{units:?}");
    assert!(throttled <= (admitted / 100).max(3), "{throttled} of {admitted}");
}

/// Where one topic brings more than its partition takes, the store sets the pace, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_more_than_a_partition_takes_is_held_back_and_not_lost() {
    let (units, _, throttled) = metered(Setup { topics: 1, ..Setup::new(Store::Dynamodb, METERED) }).await;
    assert!(units.iter().sum::<f64>() / METERED as f64 > 1_000.0 / 1_500.0 && throttled > 0, "{units:?} {throttled}");
}

fn message_ids(arrived: &[Received]) -> BTreeSet<String> {
    arrived.iter().map(|message| attribute(message, "causeway.message_id").unwrap().to_owned()).collect()
}

/// The ten messages are in the queue, and the store does not take that they are: neither the rows go nor the head moves.
fn forgets_nothing(rig: &Rig) {
    let fault = Fault::FailBefore { status: 500, code: "InternalServerError".to_owned() };
    let store = &rig.proxies.as_ref().unwrap().dynamodb;
    store.inject(Rule::always(fault.clone()).of("BatchWriteItem"));
    store.inject(Rule::always(fault).of("PutItem").containing("\"head\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_rows_cannot_be_deleted_is_told_by_its_ids_when_it_comes_again() {
    let mut watched = Watched::start(Store::Dynamodb, false, "version: 1").await;
    // Once: the worker tries the delete again, and nothing comes again.
    let fault = Fault::FailBefore { status: 500, code: "InternalServerError".to_owned() };
    let store = |watched: &Watched| watched.rig.proxies.as_ref().unwrap().dynamodb.injected();
    watched.rig.proxies.as_ref().unwrap().dynamodb.inject(Rule::next("BatchWriteItem", 1, fault));
    watched.publish_numbers("telemetry/one", 0..10).await;
    let first = watched.arrivals(10).await;
    assert_eq!((first.len(), message_ids(&first).len()), (10, 10));
    until("the delete that fails", async || store(&watched) == 1).await;
    assert!(watched.stragglers().await.is_empty());

    // For good, until the process dies: then they come again, each as what it is.
    forgets_nothing(&watched.rig);
    watched.publish_numbers("telemetry/one", 10..20).await;
    let first = watched.arrivals(10).await;
    let before = store(&watched);
    until("another delete that fails", async || store(&watched) > before.max(1)).await;
    watched.kill_and_start_again(|rig| rig.proxies.as_ref().unwrap().dynamodb.heal()).await;
    let again = watched.arrivals(10).await;
    assert_eq!((again.len(), message_ids(&again)), (10, message_ids(&first)));
    let bodies = |all: &[Received]| -> BTreeSet<String> { all.iter().map(|message| message.body().unwrap().to_owned()).collect() };
    assert_eq!(bodies(&again), bodies(&first));
    assert!(watched.stragglers().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fifo_queue_knows_a_batch_whose_rows_could_not_be_deleted() {
    let mut watched = Watched::start(Store::Dynamodb, true, "version: 1").await;
    forgets_nothing(&watched.rig);
    watched.publish_numbers("telemetry/one", 0..10).await;
    let first = watched.arrivals(10).await;
    for message in &first {
        let deduplication = message.attributes().unwrap().get(&MessageSystemAttributeName::MessageDeduplicationId).unwrap();
        assert_eq!(Some(deduplication.as_str()), attribute(message, "causeway.message_id"));
    }
    let sqs = |watched: &Watched| watched.rig.proxies.as_ref().unwrap().sqs.calls(SEND);
    let sends = sqs(&watched);
    watched.kill_and_start_again(|rig| rig.proxies.as_ref().unwrap().dynamodb.heal()).await;
    until("a send that repeats", async || sqs(&watched) > sends).await;
    until("the end of the backlog", async || watched.metric("causeway_outbox_depth").await == 0.0).await;
    assert!(watched.stragglers().await.is_empty(), "the queue recognised every one");
}
