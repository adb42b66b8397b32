//! Where messages go: to several queues, to the one that a rule names, and to the dead letters where an address lacks its header.

use causeway_core::dead_letter::DeadLetter;
use causeway_e2e::{Run, Setup};
use causeway_local::sqlite::{OpenMode, SqliteStore};
use causeway_ports::{DeadLetterFilter, DeadLetters as _};
use std::collections::BTreeSet;
use std::process::Stdio;
use xtask::ledger::Ledger;
use xtask::ledger::consumer::Consumer;
use xtask::stack::Store;
use xtask::stack::emulators::REGION;

/// A run whose route has two more bindings, to a queue of their own, and says `route` besides.
async fn with_second_queue(messages: u64, route: &str) -> (Run, Consumer) {
    let mut run = Run::start(&Setup::new(Store::Sqlite, messages)).await.unwrap();
    let aws = &run.rig.stack.aws;
    let url = aws.create_queue("second").await.unwrap();
    let second = Consumer::start(&aws.sqs, &url, 2, Ledger::new(run.plan().clone()));
    let layer = run.rig.launch.dir.join("dispatch.yaml");
    let text = format!(
        "senders: [{{ id: second-out, transport: sqs, options: {{ queue_url: '{url}', region: {REGION} }} }}]\n\
         bindings: [{{ id: to-second, sender_id: second-out, address: 'second/{{mqtt.topic}}' }}, {{ id: to-third, sender_id: second-out, address: '{{site}}' }}]\n\
         routes: [{{ id: ingest, bindings: [to-sqs, to-second, to-third], {route} }}]\n\
         processors:\n  - {{ id: half, type: filter, options: {{ action: pass, conditions: [{{ field: $.device, operator: lt, value: dev-0020 }}] }} }}\n  \
         - {{ id: copy, type: transform, options: {{ mappings: [{{ from: $.device, to: header.device }}] }} }}\n"
    );
    std::fs::write(&layer, text).unwrap();
    run.rig.launch.layers.push(layer);
    run.stop().await.unwrap();
    run.start_worker().await.unwrap();
    (run, second)
}

/// Publishes one message with these user properties, and waits for the broker's acknowledgement.
async fn publish(run: &Run, payload: &[u8], properties: &[(&str, &str)]) {
    let port = run.rig.stack.broker.port().to_string();
    let mut command = tokio::process::Command::new("mosquitto_pub");
    command.args(["-V", "5", "-h", "127.0.0.1", "-p", &port, "-q", "1", "-t", "telemetry/dev-0001", "-s"]);
    for (name, value) in properties {
        command.args(["-D", "publish", "user-property", *name, *value]);
    }
    let mut child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut child.stdin.take().unwrap(), payload).await.unwrap();
    assert!(child.wait().await.unwrap().success());
}

async fn letters(run: &Run) -> Vec<DeadLetter> {
    let store = SqliteStore::open(run.rig.settings.dir.join("dlq.db"), OpenMode::ReadOnly).unwrap().dead_letters();
    store.list(&DeadLetterFilter::default(), 100, None).await.unwrap().letters
}

/// All of `indices` arrive at `consumer`.
async fn arrive(consumer: &Consumer, indices: &BTreeSet<u64>) {
    for _ in 0..1_200 {
        if consumer.has_all(indices.iter().copied()).await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{} of {} messages arrived", consumer.unique(), indices.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fan_out_reaches_both_queues_although_the_worker_is_killed() {
    let fan_out = "dispatch_mode: fan_out, resolver: { type: rules, rules: [{ field: subject, operator: exists, binding: to-sqs }, { field: $.device, operator: prefix, value: dev-, binding: to-second }] }";
    let (mut run, second) = with_second_queue(6_000, fan_out).await;
    run.publish(0..6_000, 1_000);
    for at in [2_000, 4_000] {
        run.published(at).await.unwrap();
        run.kill().await.unwrap();
        run.start_worker().await.unwrap();
    }
    run.publishing_done().await.unwrap();
    let all: BTreeSet<u64> = (0..6_000).collect();
    arrive(&second, &all).await;
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (6_000, 6_000, 0, 0));
    assert_eq!(second.unique(), 6_000, "and nothing else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_choose_the_queue_and_what_none_means_is_dead_lettered() {
    let rules = "resolver: { type: rules, rules: [{ field: $.device, operator: lt, value: dev-0010, binding: to-sqs }, { field: subject, operator: regex, value: '^telemetry/dev-00[1-3]', binding: to-second }] }";
    let (mut run, second) = with_second_queue(500, rules).await;
    run.publish(0..500, 500);
    run.publishing_done().await.unwrap();
    let to = |devices: std::ops::Range<u64>| -> BTreeSet<u64> {
        (0..500).filter(|index| devices.contains(&run.plan().device(*index))).collect()
    };
    let (first, other, none) = (to(0..10), to(10..40), to(40..50));
    arrive(&run.consumer, &first).await;
    arrive(&second, &other).await;
    run.metric_reaches("causeway_dlq_entries_total", none.len() as f64).await.unwrap();
    run.stop().await.unwrap();
    let found = letters(&run).await;
    assert_eq!((found.len(), run.consumer.unique(), second.unique()), (none.len(), first.len() as u64, other.len() as u64));
    assert!(found.iter().all(|letter| letter.error_code == "NO_BINDING" && letter.binding.is_empty() && letter.route == "ingest"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_without_its_header_is_dead_lettered_and_one_with_it_is_delivered() {
    let (mut run, second) = with_second_queue(2, "resolver: { type: static, default_binding: to-third }").await;
    let payloads: Vec<Vec<u8>> = (0..2).map(|index| run.plan().payload(index, 1)).collect();
    publish(&run, &payloads[0], &[]).await;
    publish(&run, &payloads[1], &[("site", "plant-7")]).await;
    arrive(&second, &[1].into()).await;
    run.metric_reaches("causeway_dlq_entries_total", 1.0).await.unwrap();
    run.stop().await.unwrap();
    let found = letters(&run).await;
    assert_eq!((found.len(), second.unique(), run.consumer.unique()), (1, 1, 0));
    let letter = &found[0];
    assert_eq!(
        (letter.error_code.as_str(), letter.category.as_str(), letter.binding.as_str()),
        ("ADDRESS_TEMPLATE", "rejected", "to-third")
    );
    assert_eq!(&letter.message.payload[..], &payloads[0][..]);
    assert!(letter.last_error.contains("`site`"), "{}", letter.last_error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_filter_takes_out_is_acknowledged_and_counted_and_the_rest_arrives_transformed() {
    let route = "processors: [half, copy]";
    let (mut run, second) = with_second_queue(400, route).await;
    run.publish(0..400, 400);
    run.publishing_done().await.unwrap();
    let kept: BTreeSet<u64> = (0..400).filter(|index| run.plan().device(*index) < 20).collect();
    arrive(&run.consumer, &kept).await;
    run.metric_reaches("causeway_messages_filtered_total", (400 - kept.len()) as f64).await.unwrap();
    run.stop().await.unwrap();
    assert_eq!((run.consumer.unique(), second.unique(), letters(&run).await.len()), (kept.len() as u64, 0, 0));
}
