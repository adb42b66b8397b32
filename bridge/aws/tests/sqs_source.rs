//! The SQS source against an emulator, and against answers by a script.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use bytes::Bytes;
use causeway_aws::{Fifo, Group, Queue, SqsOptions, SqsSink, SqsSource, SqsSourceOptions};
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message, Properties};
use causeway_core::outcome::Outcome;
use causeway_core::units::UnixMillis;
use causeway_ports::{Delivery, Sink, Source, SourceEvent};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use support::emulator::{Emulator, ministack};
use support::scripted::{Reply, Scripted};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

fn entry(id: u128, topic: &str, payload: impl Into<Bytes>) -> Arc<Entry> {
    let properties = Properties { user: vec![("k".into(), id.to_string())], ..Properties::default() };
    Arc::new(Entry {
        id: Id128(id),
        route: "r".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "plant".into(),
        received_at: UnixMillis(1_772_366_400_123),
        expires_at: None,
        redrive: None,
        message: Message { topic: topic.to_owned(), payload: payload.into(), qos: 1, properties, ..Message::default() },
    })
}

async fn queue(emulator: &Emulator, name: &str, attributes: &[(QueueAttributeName, &str)]) -> (Client, String) {
    let client = support::clients(&emulator.endpoint).sqs(None).unwrap();
    let mut request = client.create_queue().queue_name(name);
    for (attribute, value) in attributes {
        request = request.attributes(attribute.clone(), *value);
    }
    let url = request.send().await.unwrap().queue_url.unwrap();
    (client, url)
}

fn options(url: &str) -> SqsSourceOptions {
    SqsSourceOptions { wait_time: Duration::from_secs(1), ..SqsSourceOptions::new("in", Queue::Url(url.to_owned())) }
}

fn start(emulator: &Emulator, options: SqsSourceOptions) -> SqsSource {
    SqsSource::start(&support::clients(&emulator.endpoint), options).unwrap()
}

async fn send(emulator: &Emulator, url: &str, entries: &[Arc<Entry>]) {
    let mut options = SqsOptions::new(url);
    options.fifo = url.ends_with(".fifo").then_some(Fifo { group: Group::OfOrderingKey, strict_order: true });
    let sink = SqsSink::new(&support::clients(&emulator.endpoint), options).unwrap();
    for batch in entries.chunks(10) {
        assert!(sink.send(batch, PATIENCE).await.iter().all(|outcome| *outcome == Outcome::Done(())));
    }
}

async fn delivery(source: &mut SqsSource) -> Delivery {
    let found = async {
        loop {
            if let SourceEvent::Delivery(delivery) = source.next().await {
                return delivery;
            }
        }
    };
    timeout(PATIENCE, found).await.expect("no delivery came")
}

/// Whether nothing is delivered for so long.
async fn quiet(source: &mut SqsSource, span: Duration) -> bool {
    let found = async { while !matches!(source.next().await, SourceEvent::Delivery(_)) {} };
    timeout(span, found).await.is_err()
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.message.payload.to_vec()).unwrap()
}

/// Waits until the queue has neither visible nor hidden messages.
async fn empties(client: &Client, url: &str) {
    for _ in 0..600 {
        let answer = client.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All).send().await.unwrap();
        let number = |name| answer.attributes().and_then(|all| all.get(&name)).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let left =
            number(QueueAttributeName::ApproximateNumberOfMessages) + number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible);
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("messages are left in {url}");
}

async fn what_was_sent_arrives_whole_and_is_deleted_once_acknowledged(emulator: &Emulator) {
    let (client, url) = queue(emulator, "whole", &[]).await;
    let sent: Vec<_> = (0..45).map(|n| entry(n, "plant/a", format!("payload {n}"))).collect();
    send(emulator, &url, &sent).await;
    let mut source = start(emulator, options(&url));
    assert!(matches!(source.next().await, SourceEvent::Connected { session_present: true, .. }));
    assert!(matches!(source.next().await, SourceEvent::Subscribed { granted: 1, .. }));
    let mut missing: BTreeSet<String> = (0..45).map(|n| format!("payload {n}")).collect();
    while !missing.is_empty() {
        let delivery = delivery(&mut source).await;
        assert!(missing.remove(&text(&delivery)), "twice");
        assert_eq!((delivery.message.topic.as_str(), &*delivery.receiver), ("plant/a", "in"));
        let n: u128 = text(&delivery).trim_start_matches("payload ").parse().unwrap();
        let expected = [("k".to_owned(), n.to_string()), ("mqtt.message-id".to_owned(), Id128(n).to_string())];
        assert_eq!(delivery.message.properties.user, expected);
        source.acknowledge(delivery.id);
    }
    empties(&client, &url).await;
    source.close(PATIENCE).await;
    let counters = source.counters();
    assert_eq!((counters.received, counters.acknowledged, counters.unacknowledged), (45, 45, 0));
    assert!(matches!(source.next().await, SourceEvent::Closed));
}

async fn what_is_in_work_stays_hidden_and_what_is_dropped_comes_again(emulator: &Emulator) {
    let (client, url) = queue(emulator, "held", &[]).await;
    send(emulator, &url, &[entry(1, "a", "held")]).await;
    let held = SqsSourceOptions { visibility_timeout: Duration::from_secs(3), ..options(&url) };
    let mut source = start(emulator, held.clone());
    assert_eq!(text(&delivery(&mut source).await), "held");
    assert!(quiet(&mut source, Duration::from_secs(8)).await, "it was received again although it is in work");
    drop(source);
    let mut source = start(emulator, held);
    let again = delivery(&mut source).await;
    assert_eq!(text(&again), "held", "nobody acknowledged it");
    source.acknowledge(again.id);
    empties(&client, &url).await;
}

async fn an_orderly_close_gives_back_what_is_not_acknowledged(emulator: &Emulator) {
    let (client, url) = queue(emulator, "given-back", &[]).await;
    send(emulator, &url, &(0..6).map(|n| entry(n, "a", n.to_string())).collect::<Vec<_>>()).await;
    // Far longer than the test may take: only what is given back comes again in time.
    let long = SqsSourceOptions { visibility_timeout: Duration::from_secs(3_600), ..options(&url) };
    let mut source = start(emulator, long.clone());
    let mut order = Vec::new();
    for _ in 0..6 {
        let delivery = delivery(&mut source).await;
        order.push(text(&delivery));
        // Each by itself: those between stay.
        if order.len() % 2 == 0 {
            source.acknowledge(delivery.id);
        }
    }
    source.close(PATIENCE).await;
    let mut source = start(emulator, long);
    let mut rest: BTreeSet<String> = order.iter().step_by(2).cloned().collect();
    while !rest.is_empty() {
        let delivery = delivery(&mut source).await;
        assert!(rest.remove(&text(&delivery)), "{} was acknowledged", text(&delivery));
        source.acknowledge(delivery.id);
    }
    empties(&client, &url).await;
}

async fn a_fifo_queue_keeps_the_order_of_each_group(emulator: &Emulator) {
    let (client, url) = queue(emulator, "ordered.fifo", &[(QueueAttributeName::FifoQueue, "true")]).await;
    let sent: Vec<_> = (0..20).map(|n| entry(n, &format!("line/{}", n % 2), n.to_string())).collect();
    send(emulator, &url, &sent).await;
    let mut source = start(emulator, options(&url));
    let mut seen: [Vec<u32>; 2] = Default::default();
    for _ in 0..20 {
        let delivery = delivery(&mut source).await;
        let n: u32 = text(&delivery).parse().unwrap();
        assert_eq!(delivery.message.topic, format!("line/{}", n % 2));
        seen[n as usize % 2].push(n);
        source.acknowledge(delivery.id);
    }
    assert_eq!(seen, [(0..20).step_by(2).collect::<Vec<_>>(), (1..20).step_by(2).collect()]);
    empties(&client, &url).await;
}

async fn poison_is_dropped_where_that_is_wanted(emulator: &Emulator) {
    let (client, url) = queue(emulator, "poison", &[]).await;
    client.send_message().queue_url(&url).message_body("poison").send().await.unwrap();
    let often = SqsSourceOptions {
        visibility_timeout: Duration::from_secs(1),
        auto_extend: false,
        poison_max_receives: 2,
        poison_drop_without_dlq: true,
        ..options(&url)
    };
    let mut source = start(emulator, often);
    for _ in 0..2 {
        assert_eq!(text(&delivery(&mut source).await), "poison");
    }
    empties(&client, &url).await;
    let counters = source.counters();
    assert_eq!((counters.received, counters.poison_packets, counters.poison_dropped, counters.poison_lost), (2, 1, 1, 0));
}

async fn a_queue_is_found_by_its_name_and_waited_for(emulator: &Emulator) {
    let named =
        SqsSourceOptions { poll_backoff: Duration::from_millis(20), ..SqsSourceOptions::new("in", Queue::Name("later".to_owned())) };
    let mut source = start(emulator, SqsSourceOptions { wait_time: Duration::from_secs(1), ..named });
    assert!(matches!(source.next().await, SourceEvent::Disconnected { .. }), "there is no such queue yet");
    let (client, url) = queue(emulator, "later", &[]).await;
    client.send_message().queue_url(&url).message_body("hello").send().await.unwrap();
    let delivery = delivery(&mut source).await;
    assert_eq!((text(&delivery).as_str(), delivery.message.topic.as_str()), ("hello", ""));
    source.acknowledge(delivery.id);
    empties(&client, &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_source_against_the_emulator() {
    let emulator = ministack();
    tokio::join!(
        what_was_sent_arrives_whole_and_is_deleted_once_acknowledged(&emulator),
        what_is_in_work_stays_hidden_and_what_is_dropped_comes_again(&emulator),
        an_orderly_close_gives_back_what_is_not_acknowledged(&emulator),
        a_fifo_queue_keeps_the_order_of_each_group(&emulator),
        poison_is_dropped_where_that_is_wanted(&emulator),
        a_queue_is_found_by_its_name_and_waited_for(&emulator),
    );
}

const ATTRIBUTES: &str = r#"{"Attributes":{"QueueArn":"arn"}}"#;

fn messages(bodies: &[&str]) -> Reply {
    let one = |body: &&str| format!(r#"{{"MessageId":"id-{body}","ReceiptHandle":"receipt-{body}","Body":"{body}"}}"#);
    Reply::ok(format!(r#"{{"Messages":[{}]}}"#, bodies.iter().map(one).collect::<Vec<_>>().join(",")))
}

/// A poll that fails costs a pause and nothing else, whatever it failed of.
#[tokio::test]
async fn polls_that_fail_are_repeated() {
    let failures =
        [Reply::failure(503, "ServiceUnavailable"), Reply::failure(403, "RequestThrottled"), Reply::ResetAfterRequest, Reply::TornAnswer];
    let replies = [Reply::ok(ATTRIBUTES)].into_iter().chain(failures).chain([messages(&["a"]), Reply::Silence]);
    let server = Scripted::start(replies).await;
    let wanted = SqsSourceOptions { poll_backoff: Duration::from_millis(5), ..options(&format!("{}/1/q", server.endpoint)) };
    let mut source = SqsSource::start(&support::clients(&server.endpoint), wanted).unwrap();
    assert_eq!(text(&delivery(&mut source).await), "a");
    assert_eq!(source.counters().connect_failures, 4);
    let polls = server.requests().into_iter().filter(|body| body.contains("WaitTimeSeconds")).count();
    assert!(polls >= 5, "{polls}");
}

/// A delete that SQS refuses for one message is repeated for that one; a receipt that is no good any more is not.
#[tokio::test]
async fn deletes_are_repeated_until_they_stand() {
    let partly = r#"{"Successful":[{"Id":"0"}],"Failed":[{"Id":"1","Code":"InternalError","SenderFault":false},{"Id":"2","Code":"ReceiptHandleIsInvalid","SenderFault":true}]}"#;
    let whole = r#"{"Successful":[{"Id":"0"}],"Failed":[]}"#;
    // The poll after the three messages comes before the deletes, and is never answered.
    let replies = [
        Reply::ok(ATTRIBUTES),
        messages(&["a", "b", "c"]),
        Reply::Silence,
        Reply::failure(500, "InternalError"),
        Reply::ok(partly),
        Reply::ok(whole),
    ];
    let server = Scripted::start(replies).await;
    let mut source = SqsSource::start(&support::clients(&server.endpoint), options(&format!("{}/1/q", server.endpoint))).unwrap();
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(delivery(&mut source).await.id);
    }
    while server.requests().len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    all.into_iter().for_each(|delivery| source.acknowledge(delivery));
    timeout(PATIENCE, async {
        while source.counters().acknowledged < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("they were never deleted");
    let deletes: Vec<String> = server.requests().into_iter().filter(|body| body.contains("Entries")).collect();
    assert_eq!(deletes.len(), 3, "{deletes:?}");
    let receipts = |body: &str| ["a", "b", "c"].into_iter().filter(|name| body.contains(&format!("receipt-{name}"))).collect::<String>();
    assert_eq!([receipts(&deletes[0]), receipts(&deletes[1]), receipts(&deletes[2])], ["abc", "abc", "b"]);
    assert_eq!(source.counters().unacknowledged, 0);
}
