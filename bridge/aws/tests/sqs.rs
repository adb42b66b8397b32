//! The SQS sink against an emulator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName, QueueAttributeName};
use base64::Engine as _;
use bytes::Bytes;
use causeway_aws::sqs::MAX_MESSAGE_BYTES;
use causeway_aws::{Fifo, Group, SqsOptions, SqsSink};
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message, Properties};
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::Sink;
use causeway_ports::conformance::sink as contract;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use support::destination::QueueUnderTest;
use support::emulator::{Emulator, ministack};

const TIMEOUT: Duration = Duration::from_secs(60);

fn entry(id: u128, message: Message) -> Arc<Entry> {
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
        message,
    })
}

fn of_payload(id: u128, payload: impl Into<Bytes>) -> Arc<Entry> {
    entry(id, Message { topic: "plant/a/line3".to_owned(), payload: payload.into(), qos: 1, ..Message::default() })
}

async fn queue(emulator: &Emulator, name: &str, attributes: &[(QueueAttributeName, &str)]) -> (aws_sdk_sqs::Client, String) {
    let client = support::clients(&emulator.endpoint).sqs(None).unwrap();
    let mut request = client.create_queue().queue_name(name);
    for (attribute, value) in attributes {
        request = request.attributes(attribute.clone(), *value);
    }
    let url = request.send().await.unwrap().queue_url.unwrap();
    (client, url)
}

fn sink(emulator: &Emulator, url: &str) -> SqsSink {
    SqsSink::new(&support::clients(&emulator.endpoint), SqsOptions::new(url)).unwrap()
}

/// Receives `count` messages, by their message id attribute.
async fn receive(client: &aws_sdk_sqs::Client, url: &str, count: usize) -> BTreeMap<String, Received> {
    let mut all = BTreeMap::new();
    for _ in 0..count + 20 {
        let request =
            client.receive_message().queue_url(url).max_number_of_messages(10).wait_time_seconds(1).message_attribute_names("All");
        for message in request.send().await.unwrap().messages.unwrap_or_default() {
            client.delete_message().queue_url(url).receipt_handle(message.receipt_handle.clone().unwrap()).send().await.unwrap();
            let id = text(&message, "causeway.message_id").expect("every message has an id");
            assert!(all.insert(id, message).is_none(), "a message was sent twice");
        }
        if all.len() >= count {
            break;
        }
    }
    assert_eq!(all.len(), count);
    all
}

fn text(message: &Received, name: &str) -> Option<String> {
    message.message_attributes.as_ref()?.get(name)?.string_value.clone()
}

/// The payload as a consumer reads it.
fn payload(message: &Received) -> Vec<u8> {
    let body = message.body.clone().unwrap();
    match text(message, "causeway.encoding").as_deref() {
        None => body.into_bytes(),
        Some("base64") => base64::engine::general_purpose::STANDARD.decode(body.trim()).unwrap(),
        Some(other) => panic!("encoding {other}"),
    }
}

async fn payloads_arrive_byte_for_byte(emulator: &Emulator) {
    let (client, url) = queue(emulator, "payloads", &[]).await;
    let sink = sink(emulator, &url);
    sink.probe().await.unwrap();
    let large: Vec<u8> = (0..262_144_u32).map(|i| b"0123456789abcdef"[i as usize % 16]).collect();
    let payloads: Vec<Vec<u8>> = vec![
        b"{\"n\":1}".to_vec(),
        Vec::new(),
        vec![0x07, 0x62, 0x65, 0x6c, 0x6c],
        vec![0],
        vec![0xff, 0xfe, 0x80],
        "\u{FFFF}\u{FFFE}".as_bytes().to_vec(),
        "grün \u{1F600}\t\r\n".as_bytes().to_vec(),
        b"<xml attr=\"&amp;\">".to_vec(),
        large,
        vec![0xA0; 262_144],
    ];
    let batch: Vec<_> = (0_u128..).zip(&payloads).map(|(id, payload)| of_payload(id, payload.clone())).collect();
    let outcomes = sink.send(&batch, TIMEOUT).await;
    assert_eq!(outcomes, vec![Outcome::Done(()); payloads.len()]);
    assert_eq!(sink.requests(), 1, "ten messages within the byte limit are one request");
    let received = receive(&client, &url, payloads.len()).await;
    for (entry, sent) in batch.iter().zip(&payloads) {
        let message = &received[&entry.id.to_string()];
        assert!(payload(message) == *sent, "payload of entry {}", entry.id);
        assert_eq!(text(message, "causeway.topic").as_deref(), Some("plant/a/line3"));
        assert_eq!(text(message, "causeway.source").as_deref(), Some("plant"));
        assert_eq!(text(message, "causeway.published_at").as_deref(), Some("2026-03-01T12:00:00.123Z"));
    }
}

async fn properties_arrive(emulator: &Emulator) {
    let (client, url) = queue(emulator, "properties", &[]).await;
    let sink = sink(emulator, &url);
    let user: Vec<_> = (1..=14).map(|i| (format!("p {i}"), format!("v{i}"))).chain([("note".to_owned(), String::new())]).collect();
    let packed = entry(
        1,
        Message { topic: "cfg/x".to_owned(), properties: Properties { user: user.clone(), ..Properties::default() }, ..Message::default() },
    );
    let own = entry(
        2,
        Message {
            topic: "odd/\u{7}topic".to_owned(),
            payload: Bytes::from_static(b"x"),
            retain: true,
            properties: Properties {
                content_type: Some(String::new()),
                response_topic: Some("answers".to_owned()),
                correlation_data: Some(Bytes::from_static(&[0, 1, 255])),
                user: vec![("traceparent".to_owned(), "00-1-2-01".to_owned())],
                ..Properties::default()
            },
            ..Message::default()
        },
    );
    let outcomes = sink.send(&[Arc::clone(&packed), Arc::clone(&own)], TIMEOUT).await;
    assert_eq!(outcomes, vec![Outcome::Done(()); 2]);
    let received = receive(&client, &url, 2).await;
    let message = &received[&packed.id.to_string()];
    assert_eq!(payload(message), b"");
    let json: Vec<(String, String)> = serde_json::from_str(&text(message, "causeway.user_properties").unwrap()).unwrap();
    assert_eq!(json, user);
    let message = &received[&own.id.to_string()];
    let attributes = message.message_attributes.as_ref().unwrap();
    assert_eq!(attributes["causeway.topic"].data_type, "String.json");
    assert_eq!(serde_json::from_str::<String>(&text(message, "causeway.topic").unwrap()).unwrap(), "odd/\u{7}topic");
    assert_eq!(text(message, "causeway.content_type").as_deref(), Some("\"\""));
    assert_eq!(text(message, "causeway.response_topic").as_deref(), Some("answers"));
    assert_eq!(attributes["causeway.correlation_data"].binary_value.as_ref().unwrap().as_ref(), [0, 1, 255]);
    assert_eq!(text(message, "causeway.retained").as_deref(), Some("true"));
    assert_eq!(text(message, "traceparent").as_deref(), Some("00-1-2-01"));
}

/// One byte over the limit is refused without a request; at the limit it is sent. The sizes are counted as SQS counts them.
async fn the_size_limit_is_exact(emulator: &Emulator) {
    let (client, url) = queue(emulator, "sizes", &[(QueueAttributeName::MaximumMessageSize, "1048576")]).await;
    let sink = sink(emulator, &url);
    sink.probe().await.unwrap();
    let overhead = sink.size_of(&of_payload(1, Bytes::from_static(b"x"))) - 1;
    let at = of_payload(1, vec![b'x'; MAX_MESSAGE_BYTES - overhead]);
    let over = of_payload(2, vec![b'x'; MAX_MESSAGE_BYTES - overhead + 1]);
    assert_eq!(sink.size_of(&at), sink.limits().entry_bytes);
    let small = of_payload(3, Bytes::from_static(b"small"));
    let outcomes = sink.send(&[Arc::clone(&at), over, small], TIMEOUT).await;
    assert_eq!(outcomes[0], Outcome::Done(()));
    assert!(matches!(&outcomes[1], Outcome::NotDone(fault) if fault.code == FaultCode::PayloadTooLarge), "{:?}", outcomes[1]);
    assert_eq!(outcomes[2], Outcome::Done(()), "its neighbour is not held up");
    assert_eq!(sink.requests(), 2, "the two that fit do not fit together");
    let received = receive(&client, &url, 2).await;
    assert_eq!(payload(&received[&at.id.to_string()]).len(), at.message.payload.len());
}

async fn a_queue_that_takes_less_is_found_out(emulator: &Emulator) {
    let (client, url) = queue(emulator, "narrow", &[(QueueAttributeName::MaximumMessageSize, "2048")]).await;
    let large = of_payload(1, vec![b'x'; 3000]);
    let batch = [Arc::clone(&large), of_payload(2, Bytes::from_static(b"a")), of_payload(3, Bytes::from_static(b"b"))];
    // Without the probe the queue refuses it, and it alone.
    let unknowing = sink(emulator, &url);
    let outcomes = unknowing.send(&batch, TIMEOUT).await;
    assert!(matches!(&outcomes[0], Outcome::NotDone(fault) if !fault.is_transient()), "{:?}", outcomes[0]);
    assert_eq!(outcomes[1..], [Outcome::Done(()), Outcome::Done(())]);
    receive(&client, &url, 2).await;
    // With it nothing is asked.
    let knowing = sink(emulator, &url);
    knowing.probe().await.unwrap();
    assert_eq!(knowing.limits().entry_bytes, 2048);
    let outcomes = knowing.send(&batch[..1], TIMEOUT).await;
    assert!(matches!(&outcomes[0], Outcome::NotDone(fault) if fault.code == FaultCode::PayloadTooLarge), "{:?}", outcomes[0]);
    assert_eq!(knowing.requests(), 0);
}

async fn a_wrong_queue_is_named(emulator: &Emulator) {
    let url = format!("{}/000000000000/nowhere", emulator.endpoint);
    let missing = sink(emulator, &url);
    let fault = missing.probe().await.unwrap_err();
    assert_eq!(fault.code, FaultCode::NotFound, "{fault}");
    assert!(fault.detail.contains("nowhere") && fault.detail.contains("queue_url"), "{fault}");
    let outcomes = missing.send(&[of_payload(1, Bytes::from_static(b"x"))], TIMEOUT).await;
    assert!(matches!(&outcomes[0], Outcome::NotDone(fault) if fault.code == FaultCode::NotFound), "{:?}", outcomes[0]);
    // Its kind has to be said, and fit its name.
    let fifo = format!("{}/000000000000/orders.fifo", emulator.endpoint);
    let fault = SqsSink::new(&support::clients(&emulator.endpoint), SqsOptions::new(fifo)).unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidConfig, "{fault}");
}

async fn a_delay_is_kept(emulator: &Emulator) {
    let (client, url) = queue(emulator, "delayed", &[]).await;
    let options = SqsOptions { delay_seconds: Some(900), ..SqsOptions::new(&url) };
    let sink = SqsSink::new(&support::clients(&emulator.endpoint), options).unwrap();
    assert_eq!(sink.send(&[of_payload(1, Bytes::from_static(b"x"))], TIMEOUT).await, [Outcome::Done(())]);
    let answer = client.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All).send().await.unwrap();
    let attribute = |name| answer.attributes().unwrap().get(&name).cloned().unwrap();
    assert_eq!(attribute(QueueAttributeName::ApproximateNumberOfMessagesDelayed), "1");
    assert_eq!(attribute(QueueAttributeName::ApproximateNumberOfMessages), "0");
}

/// Messages of a FIFO queue in the order in which they are received, each deleted at once: its body, group and deduplication id.
async fn receive_in_order(client: &aws_sdk_sqs::Client, url: &str) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    loop {
        let request = client.receive_message().queue_url(url).max_number_of_messages(10).wait_time_seconds(1);
        let request = request.message_system_attribute_names(MessageSystemAttributeName::All);
        let messages = request.send().await.unwrap().messages.unwrap_or_default();
        if messages.is_empty() {
            return all;
        }
        for message in messages {
            client.delete_message().queue_url(url).receipt_handle(message.receipt_handle.clone().unwrap()).send().await.unwrap();
            let attribute = |name| message.attributes.as_ref().unwrap().get(&name).cloned().unwrap();
            let group = attribute(MessageSystemAttributeName::MessageGroupId);
            all.push((message.body.clone().unwrap(), group, attribute(MessageSystemAttributeName::MessageDeduplicationId)));
        }
    }
}

async fn a_fifo_queue_keeps_groups_in_order_and_takes_repetitions_once(emulator: &Emulator) {
    let (client, url) = queue(emulator, "orders.fifo", &[(QueueAttributeName::FifoQueue, "true")]).await;
    let sink = |group| {
        let options = SqsOptions { fifo: Some(Fifo { group, strict_order: true }), ..SqsOptions::new(&url) };
        SqsSink::new(&support::clients(&emulator.endpoint), options).unwrap()
    };
    let of_topic = |id: u128, topic: &str| {
        let payload = Bytes::from(format!("{topic} {id}"));
        entry(id, Message { topic: topic.to_owned(), payload, qos: 1, ..Message::default() })
    };
    let by_key = sink(Group::OfOrderingKey);
    by_key.probe().await.unwrap();
    let first: Vec<_> = ["a/1", "b 2", "c"].iter().zip(1..).map(|(topic, id)| of_topic(id, topic)).collect();
    let second: Vec<_> = ["a/1", "b 2", "c"].iter().zip(11..).map(|(topic, id)| of_topic(id, topic)).collect();
    assert_eq!(by_key.key_of(&first[0]), by_key.key_of(&second[0]));
    assert_ne!(by_key.key_of(&first[0]), by_key.key_of(&first[1]));
    for batch in [&first, &second, &first] {
        assert_eq!(by_key.send(batch, TIMEOUT).await, vec![Outcome::Done(()); 3], "what is sent again is accepted again");
    }
    let received = receive_in_order(&client, &url).await;
    assert_eq!(received.len(), 6, "and delivered once: {received:?}");
    for (group, entries) in [("a/1", [&first[0], &second[0]]), ("b%202", [&first[1], &second[1]]), ("c", [&first[2], &second[2]])] {
        let of_group: Vec<_> = received.iter().filter(|(_, of, _)| of == group).map(|(_, _, id)| id.clone()).collect();
        assert_eq!(of_group, entries.map(|entry| entry.id.to_string()), "{group}");
    }
    let told = |id: u128, topic: &str| {
        let user =
            [("X-Bridge.ordering-key", "order 7"), ("x-bridge.Dedup-Id", "d 1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let properties = Properties { user: user.to_vec(), ..Properties::default() };
        entry(id, Message { topic: topic.to_owned(), payload: Bytes::from_static(b"told"), qos: 1, properties, ..Message::default() })
    };
    let told = [told(31, "x"), told(32, "y")];
    assert_eq!(by_key.key_of(&told[0]), by_key.key_of(&told[1]), "the believed key takes the place of the topic");
    assert_eq!(by_key.send(&told, TIMEOUT).await, vec![Outcome::Done(()); 2]);
    let received = receive_in_order(&client, &url).await;
    assert_eq!(
        received.iter().map(|(_, group, _)| group.as_str()).collect::<Vec<_>>(),
        ["order%207"],
        "two entries of one believed id are one"
    );
    let fixed = sink(Group::Fixed("all".to_owned()));
    assert_eq!(fixed.key_of(&first[0]), fixed.key_of(&first[1]), "one group is one line");
    assert_eq!(fixed.send(&[of_topic(21, "x"), of_topic(22, "y")], TIMEOUT).await, vec![Outcome::Done(()); 2]);
    let received = receive_in_order(&client, &url).await;
    assert_eq!(
        received.iter().map(|(body, group, _)| (body.as_str(), group.as_str())).collect::<Vec<_>>(),
        [("x 21", "all"), ("y 22", "all")]
    );
    let free = SqsOptions { fifo: Some(Fifo { group: Group::OfOrderingKey, strict_order: false }), ..SqsOptions::new(&url) };
    assert_eq!(SqsSink::new(&support::clients(&emulator.endpoint), free).unwrap().key_of(&first[0]), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_whole() {
    let emulator = ministack();
    payloads_arrive_byte_for_byte(&emulator).await;
    properties_arrive(&emulator).await;
    the_size_limit_is_exact(&emulator).await;
    a_queue_that_takes_less_is_found_out(&emulator).await;
    a_wrong_queue_is_named(&emulator).await;
    a_delay_is_kept(&emulator).await;
    a_fifo_queue_keeps_groups_in_order_and_takes_repetitions_once(&emulator).await;
}

/// The contract that every destination keeps, on queues of both kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_of_both_kinds_keep_the_contract_of_destinations() {
    let emulator = ministack();
    for suffix in ["", ".fifo"] {
        for case in contract::CASES {
            eprintln!("{case}{suffix}");
            // 80 characters at most, the suffix included.
            contract::run(case, Arc::new(QueueUnderTest::new(&emulator, &format!("{case}{suffix}")).await)).await;
        }
    }
}
