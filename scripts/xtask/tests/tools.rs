//! The tools against real parts: a proxy that does not do what it says, or a publisher that miscounts, would make every other test worthless.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use aws_sdk_dynamodb::types::{AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use std::time::Duration;
use xtask::ledger::Ledger;
use xtask::ledger::consumer::Consumer;
use xtask::ledger::payload::Plan;
use xtask::ledger::publisher::{Progress, Publisher};
use xtask::proxy::{Fault, Proxy, Rule};
use xtask::stack::aws::Aws;
use xtask::stack::broker::{Broker, Ways};
use xtask::stack::emulators::{Emulator, dynamodb_local_home};
use xtask::stack::ports::free_port;
use xtask::stack::process::Lifetime;

const SEND: &str = "SendMessageBatch";

async fn queue(dir: &std::path::Path) -> (Emulator, Proxy, Aws, String) {
    let emulator = Emulator::ministack(dir, free_port().unwrap(), Lifetime::Bound).await.unwrap();
    let proxy = Proxy::start(emulator.endpoint()).await.unwrap();
    let aws = Aws::new(&proxy.endpoint(), &proxy.endpoint()).await;
    let url = aws.create_queue("q").await.unwrap();
    (emulator, proxy, aws, url)
}

/// Sends `count` payloads of the plan in one batch, without retries. The answer's accepted and refused entries; `Err` is the fault's text.
async fn send(aws: &Aws, url: &str, plan: &Plan, numbers: std::ops::Range<u64>) -> Result<(usize, usize), String> {
    let entries = numbers.map(|number| {
        let body = String::from_utf8(plan.payload(number, 1)).unwrap();
        SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(body).build().unwrap()
    });
    let once = aws_sdk_sqs::config::Builder::new().retry_config(aws_sdk_sqs::config::retry::RetryConfig::disabled());
    let sent =
        aws.sqs.send_message_batch().queue_url(url).set_entries(Some(entries.collect())).customize().config_override(once).send().await;
    sent.map(|sent| (sent.successful.len(), sent.failed.len())).map_err(|fault| xtask::stack::aws::explain(&fault))
}

async fn received(aws: &Aws, url: &str, plan: &Plan, wanted: u64) -> Vec<u64> {
    let consumer = Consumer::start(&aws.sqs, url, 1, Ledger::new(plan.clone()));
    for _ in 0..200 {
        if consumer.unique() >= wanted && consumer.idle() > Duration::from_millis(1_500) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ledger = consumer.finish().await.unwrap();
    (0..plan.messages).filter(|number| ledger.has(*number)).collect()
}

#[tokio::test]
async fn the_proxy_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let (_emulator, proxy, aws, url) = queue(dir.path()).await;
    let plan = Plan::new(100, 250);

    let throttled = Fault::FailBefore { status: 403, code: "com.amazonaws.sqs#RequestThrottled".to_owned() };
    proxy.inject(Rule::next(SEND, 1, throttled));
    let fault = send(&aws, &url, &plan, 0..5).await.unwrap_err();
    assert!(fault.contains("RequestThrottled"), "{fault}");

    proxy.inject(Rule::next(SEND, 1, Fault::ResetBefore));
    send(&aws, &url, &plan, 10..15).await.unwrap_err();

    proxy.inject(Rule::next(SEND, 1, Fault::DropAnswer));
    send(&aws, &url, &plan, 20..25).await.unwrap_err();

    let refuse = Fault::RefuseEntries { count: 2, code: "InternalError".to_owned(), sender_fault: false };
    proxy.inject(Rule::next(SEND, 1, refuse));
    assert_eq!(send(&aws, &url, &plan, 30..35).await.unwrap(), (3, 2));

    proxy.inject(Rule::always(Fault::Hang));
    let hanging = tokio::time::timeout(Duration::from_secs(1), send(&aws, &url, &plan, 40..45)).await;
    assert!(hanging.is_err(), "it must not answer");
    proxy.heal();

    assert_eq!(send(&aws, &url, &plan, 50..55).await.unwrap(), (5, 0));
    assert_eq!((proxy.injected(), proxy.calls(SEND)), (5, 6));
    let expected: Vec<u64> = (20..25).chain(32..35).chain(50..55).collect();
    assert_eq!(received(&aws, &url, &plan, 13).await, expected);
}

#[tokio::test]
async fn the_publisher_counts_what_the_broker_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(dir.path(), Ways { port: free_port().unwrap(), second: None }, true, Lifetime::Bound).await.unwrap();
    let publisher = Publisher { plan: Plan::new(3_000, 250), broker_port: broker.port(), numbers: 0..3_000, rate: 1_500 };
    let progress = Progress::default();
    let watched = progress.clone();
    let publishing = tokio::spawn(async move { publisher.run(&watched).await });
    progress.reaches(1_000).await;
    broker.stop().await.unwrap();
    broker.start_again().await.unwrap();
    let published = publishing.await.unwrap().unwrap();
    assert_eq!((published.acknowledged.len(), progress.acknowledged()), (3_000, 3_000));
    assert_eq!(published.unrouted, 3_000, "nobody had subscribed");
    assert!(published.reconnects >= 1);
}

/// Tests that nobody writes what is not his count these refusals: a counter that stood still would prove nothing.
#[tokio::test]
async fn the_proxy_counts_conditional_writes_that_the_store_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port().unwrap();
    let emulator = match dynamodb_local_home() {
        Some(home) => Emulator::dynamodb_local(&home, dir.path(), port, Lifetime::Bound).await.unwrap(),
        None => Emulator::ministack(dir.path(), port, Lifetime::Bound).await.unwrap(),
    };
    let proxy = Proxy::start(emulator.endpoint()).await.unwrap();
    let store = Aws::new(&proxy.endpoint(), &proxy.endpoint()).await.dynamodb;
    let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash).build().unwrap();
    let attribute = AttributeDefinition::builder().attribute_name("pk").attribute_type(ScalarAttributeType::S).build().unwrap();
    let table = store.create_table().table_name("table").key_schema(key).attribute_definitions(attribute);
    table.billing_mode(BillingMode::PayPerRequest).send().await.unwrap();
    let put = || {
        store.put_item().table_name("table").item("pk", AttributeValue::S("a".to_owned())).condition_expression("attribute_not_exists(pk)")
    };
    put().send().await.unwrap();
    assert_eq!((proxy.calls("PutItem"), proxy.refused("ConditionalCheckFailedException")), (1, 0));
    put().send().await.unwrap_err();
    assert_eq!((proxy.calls("PutItem"), proxy.refused("ConditionalCheckFailedException")), (2, 1));
}
