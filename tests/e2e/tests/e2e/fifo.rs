//! FIFO queues: what is sent again is recognised, and a group keeps its order, over crashes and redrives.

use crate::functions::{function, invoke};
use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName};
use bytes::Bytes;
use causeway_aws::DynamoDeadLetters;
use causeway_core::dead_letter::{DeadLetter, Destination};
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message, Properties};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_e2e::{Run, Setup, use_fifo_queue};
use causeway_ports::{Clock as _, DeadLetters as _, SystemClock};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use xtask::proxy::{Fault as Harm, Rule};
use xtask::rig::Rig;
use xtask::stack::{StackOptions, Store};

const PATIENCE: Duration = Duration::from_secs(60);

async fn killed_twice(store: Store, lanes: u32) {
    let mut run = Run::start(&Setup { fifo: true, lanes, ..Setup::new(store, 3_000) }).await.unwrap();
    run.publish(0..3_000, 500);
    for at in [1_000, 2_000] {
        run.published(at).await.unwrap();
        run.kill().await.unwrap();
        run.start_worker().await.unwrap();
    }
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0), "{account:#?}");
    assert_eq!(account.order_violations, 0, "the order of a group is exact: {account:#?}");
    assert!(account.duplicates <= account.duplicate_bound, "{account:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_before_a_fifo_queue_loses_nothing_and_keeps_the_order_of_every_group_on_sqlite() {
    killed_twice(Store::Sqlite, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_before_a_fifo_queue_loses_nothing_and_keeps_the_order_of_every_group_on_dynamodb_in_lanes() {
    killed_twice(Store::Dynamodb, 3).await;
}

/// Sends whose answers are lost are repeated, and the queue knows them by their deduplication ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_a_fifo_queue_that_are_lost_repeat_nothing() {
    let mut run = Run::start(&Setup { fifo: true, proxies: true, ..Setup::new(Store::Sqlite, 1_500) }).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Harm::DropAnswer).of("SendMessageBatch").percent(20));
    run.publish(0..1_500, 300);
    run.publishing_done().await.unwrap();
    run.delivered(1_500).await.unwrap();
    run.sqs().unwrap().heal();
    let account = run.finish().await.unwrap();
    assert_eq!((account.unique, account.lost, account.duplicates, account.order_violations), (1_500, 0, 0, 0), "{account:#?}");
}

/// Five letters of two groups, in the order in which they died.
fn letters() -> Vec<DeadLetter> {
    let now = SystemClock.wall();
    let letter = |number: u64| {
        let group = if number.is_multiple_of(2) { "g1" } else { "g2" };
        let user = vec![("number".to_owned(), number.to_string()), ("site".to_owned(), format!("site of {group}"))];
        let message = Message {
            topic: format!("telemetry/{group}"),
            payload: Bytes::from(format!("{{\"number\":{number}}}")),
            qos: 1,
            properties: Properties { user, content_type: Some("application/json".to_owned()), ..Properties::default() },
            ..Message::default()
        };
        let received_at = UnixMillis(now.0 - 60_000 + number);
        let id = Id128(u128::from(now.0) << 64 | u128::from(number));
        let entry = Entry {
            id,
            route: "ingest".into(),
            binding: "to-sqs".into(),
            address: None,
            refusal: None,
            source: "telemetry-in".into(),
            received_at,
            expires_at: None,
            message,
            redrive: None,
        };
        let destination = Destination {
            binding: "to-sqs".to_owned(),
            address: "telemetry".to_owned(),
            session: "mqtt-conn".to_owned(),
            ..Destination::default()
        };
        DeadLetter::new(&entry, &destination, &Fault::new(FaultCode::NotAuthorized, "the queue's policy refused it"), 5, received_at)
    };
    (0..5).map(letter).collect()
}

/// What arrives in the queue, in the order of arrival, until there are `count`.
async fn arrivals(rig: &Rig, count: usize) -> Vec<Received> {
    let (mut arrived, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while arrived.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} arrived", arrived.len());
        let receive = rig.stack.aws.sqs.receive_message().queue_url(&rig.settings.queue_url).max_number_of_messages(10);
        let receive =
            receive.wait_time_seconds(1).message_attribute_names("All").message_system_attribute_names(MessageSystemAttributeName::All);
        let messages = receive.send().await.unwrap().messages.unwrap_or_default();
        for message in messages {
            let handle = message.receipt_handle().unwrap();
            rig.stack.aws.sqs.delete_message().queue_url(&rig.settings.queue_url).receipt_handle(handle).send().await.unwrap();
            arrived.push(message);
        }
    }
    arrived
}

fn system(message: &Received, name: &MessageSystemAttributeName) -> String {
    message.attributes().and_then(|all| all.get(name)).cloned().unwrap_or_default()
}

fn attribute(message: &Received, name: &str) -> Option<String> {
    message.message_attributes()?.get(name)?.string_value().map(str::to_owned)
}

fn number(message: &Received) -> u64 {
    serde_json::from_str::<Value>(message.body().unwrap()).unwrap()["number"].as_u64().unwrap()
}

/// <https://github.com/MassTransit/MassTransit/issues/4015>: group and deduplication id do not survive the way back from dead letters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_a_fifo_queue_come_back_in_their_groups_in_order_with_their_attributes() {
    let dir = tempfile::Builder::new().prefix("causeway-e2e-").tempdir().unwrap();
    let mut rig = Rig::start(&StackOptions::bound(dir.path(), Store::Dynamodb), false).await.unwrap();
    use_fifo_queue(&mut rig).await.unwrap();
    let store = DynamoDeadLetters::new(rig.stack.aws.dynamodb.clone(), "causeway-dlq");
    let letters = letters();
    for letter in &letters {
        assert!(matches!(store.park(letter).await, Outcome::Done(())));
    }
    let redrive = function("redrive", &rig).await;
    let answer = invoke(&redrive, &serde_json::to_vec(&json!({ "all": true, "dry_run": false })).unwrap()).await;
    assert_eq!((&answer["redriven"], &answer["failed"], &answer["complete"]), (&json!(5), &json!(0), &json!(true)), "{answer}");

    let mut worker = rig.worker().await.unwrap();
    let arrived = arrivals(&rig, 5).await;
    let mut groups: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for message in &arrived {
        let letter = &letters[usize::try_from(number(message)).unwrap()];
        let group = system(message, &MessageSystemAttributeName::MessageGroupId);
        assert_eq!(group, letter.message.topic, "the group of a message that never died is its topic, too");
        assert_eq!(system(message, &MessageSystemAttributeName::MessageDeduplicationId), letter.id.to_string());
        for (name, value) in &letter.message.properties.user {
            assert_eq!(attribute(message, name).as_ref(), Some(value), "{message:?}");
        }
        assert_eq!(attribute(message, "causeway.topic").as_deref(), Some(letter.message.topic.as_str()));
        assert_eq!(attribute(message, "causeway.message_id"), Some(letter.id.to_string()));
        assert_eq!(attribute(message, "causeway.redrive_attempt").as_deref(), Some("1"));
        groups.entry(group).or_default().push(number(message));
    }
    let expected = [("telemetry/g1".to_owned(), vec![0, 2, 4]), ("telemetry/g2".to_owned(), vec![1, 3])];
    assert_eq!(groups, BTreeMap::from(expected));
    assert!(worker.stop().await.unwrap().success());
}
