//! The real program, invoked as Lambda invokes it, on Amazon DynamoDB Local (or what stands for it).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use aws_sdk_dynamodb::types::{AttributeValue, Select};
use bytes::Bytes;
use causeway_aws::{DynamoDeadLetters, DynamoOutbox};
use causeway_core::dead_letter::{DeadLetter, DeadLetterState, Destination};
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{DeadLetterFilter, DeadLetters, Outbox};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use world::Stack;
use xtask::lambda::{Answer, Function};

#[path = "../../runtime/tests/world/mod.rs"]
mod world;

const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    stack: Stack,
    letters: DynamoDeadLetters,
}

async fn world() -> World {
    let stack = Stack::start(&["dlq", "outbox"]).await;
    let aws = &stack.aws;
    let letters = DynamoDeadLetters::new(aws.dynamodb.clone(), "dlq");
    letters.create().await.unwrap();
    DynamoOutbox::new(aws.dynamodb.clone(), "outbox").create().await.unwrap();
    World { stack, letters }
}

impl World {
    async fn seed(&self, count: u128) {
        let letters: Vec<DeadLetter> = (1..=count).map(letter).collect();
        let parks = futures_util::stream::iter(&letters).map(|letter| self.letters.park(letter)).buffer_unordered(16);
        let outcomes: Vec<Outcome<()>> = parks.collect().await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done(()))), "{outcomes:?}");
    }

    async fn function(&self) -> Function {
        self.stack.function(env!("CARGO_BIN_EXE_redrive")).await
    }

    async fn in_state(&self, state: DeadLetterState) -> usize {
        let filter = DeadLetterFilter { state: Some(state), ..DeadLetterFilter::default() };
        let (mut count, mut at) = (0, None);
        loop {
            let page = self.letters.list(&filter, 500, at.as_deref()).await.unwrap();
            count += page.letters.len();
            at = page.continuation;
            if at.is_none() {
                return count;
            }
        }
    }

    async fn mail(&self) -> i32 {
        let (mut count, mut start) = (0, None);
        loop {
            let query = self.stack.aws.dynamodb.query().table_name("outbox").select(Select::Count).consistent_read(true);
            let query =
                query.key_condition_expression("pk = :pk").expression_attribute_values(":pk", AttributeValue::S("MAIL#plant-1#s".into()));
            let answer = query.set_exclusive_start_key(start).send().await.unwrap();
            count += answer.count;
            start = answer.last_evaluated_key;
            if start.is_none() {
                return count;
            }
        }
    }
}

fn letter(id: u128) -> DeadLetter {
    let message = Message { topic: "t".into(), payload: Bytes::from(format!("payload {id}")), qos: 1, ..Message::default() };
    let entry = Entry {
        id: Id128(id),
        route: "r".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "in".into(),
        received_at: UnixMillis(1),
        expires_at: None,
        redrive: None,
        message,
    };
    let destination = Destination { binding: "b".into(), address: "q".into(), session: "s".into(), ..Destination::default() };
    // Many in one millisecond: ties must not stall a listing.
    DeadLetter::new(&entry, &destination, &Fault::new(FaultCode::InvalidPayload, "no"), 1, UnixMillis(1_700_000_000_000 + id as u64 / 50))
}

async fn invoke(function: &Function, event: &Value) -> Answer {
    world::invoke(function, event, PATIENCE).await
}

fn count(answer: &Answer, name: &str) -> u64 {
    answer.payload[name].as_u64().unwrap_or_else(|| panic!("{name} in {}", answer.payload))
}

fn adds_up(answer: &Answer) -> bool {
    count(answer, "matched") == ["redriven", "skipped", "parked", "failed"].map(|name| count(answer, name)).iter().sum::<u64>()
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_at_once_put_two_hundred_letters_back_once_each() {
    let world = world().await;
    world.seed(200).await;
    let mut functions = Vec::new();
    for _ in 0..8 {
        functions.push(world.function().await);
    }
    let answers = functions.iter().enumerate().map(|(nth, function)| async move {
        invoke(function, &json!({"all": true, "dry_run": false, "limit": 1000, "rate_per_second": 500, "request_id": format!("op-{nth}")}))
            .await
    });
    let answers = futures_util::future::join_all(answers).await;
    assert!(answers.iter().all(|answer| !answer.failed && adds_up(answer)), "{answers:?}");
    assert_eq!(answers.iter().map(|answer| count(answer, "redriven")).sum::<u64>(), 200);
    assert_eq!(answers.iter().map(|answer| count(answer, "failed")).sum::<u64>(), 0);
    assert_eq!((world.mail().await, world.in_state(DeadLetterState::Redriven).await), (200, 200));
    // What a replayed part of a log says of these entries does not raise them again.
    for id in 1..=200 {
        let tombstone = world.letters.get(Id128(id)).await.unwrap().unwrap();
        assert_eq!((tombstone.state, tombstone.redrive_count), (DeadLetterState::Redriven, 1));
        assert_eq!(world.letters.park(&letter(id)).await, Outcome::Done(()));
    }
    assert_eq!(world.in_state(DeadLetterState::Dead).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_a_rerun_brings_it_to_the_same_end() {
    let world = world().await;
    world.seed(120).await;
    for _ in 0..3 {
        let before = world.mail().await;
        let function = world.function().await;
        let event = json!({"all": true, "dry_run": false, "limit": 1000, "rate_per_second": 60});
        let event = serde_json::to_vec(&event).unwrap();
        tokio::select! {
            answer = function.invoke(&event, PATIENCE) => panic!("{answer:?}"),
            () = async { while world.mail().await < before + 10 { tokio::time::sleep(Duration::from_millis(5)).await } } => {}
        }
        function.kill().await.unwrap();
    }
    let rerun = invoke(&world.function().await, &json!({"all": true, "dry_run": false, "limit": 1000, "rate_per_second": 500})).await;
    assert!(!rerun.failed && adds_up(&rerun), "{rerun:?}");
    assert_eq!((world.mail().await, world.in_state(DeadLetterState::Redriven).await), (120, 120));
}

/// As many letters as `CAUSEWAY_TEST_LETTERS` says, 10,000 at most; without it a thousand, a tenth of what one request may ask for: as fast as it was
/// told and no faster, and not with more memory the longer it takes.
#[tokio::test(flavor = "multi_thread")]
async fn many_letters_go_at_the_set_rate_with_flat_memory() {
    let letters = std::env::var("CAUSEWAY_TEST_LETTERS").ok().and_then(|letters| letters.parse::<u64>().ok()).unwrap_or(1_000);
    let rate = std::env::var("CAUSEWAY_TEST_RATE").ok().and_then(|rate| rate.parse::<u64>().ok()).unwrap_or(500);
    let world = world().await;
    world.seed(u128::from(letters)).await;
    let function = world.function().await;
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", function.id().unwrap())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let began = std::time::Instant::now();
    let first = invoke(&function, &json!({"all": true, "dry_run": false, "limit": 200, "rate_per_second": 100})).await;
    assert!(began.elapsed() >= Duration::from_millis(1_800), "200 at 100 a second took {:?}", began.elapsed());
    let event = serde_json::to_vec(&json!({"all": true, "dry_run": false, "limit": 10_000, "rate_per_second": rate})).unwrap();
    let began = std::time::Instant::now();
    let mut memory = vec![resident()];
    let rest = tokio::select! {
        rest = function.invoke(&event, Duration::from_secs(900)) => rest.unwrap().0,
        () = async {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                memory.push(resident());
            }
        } => panic!("it samples for ever"),
    };
    memory.push(resident());
    let took = began.elapsed();
    assert_eq!((count(&first, "redriven"), count(&rest, "redriven"), rest.payload["complete"].as_bool()), (200, letters - 200, Some(true)));
    // A bucket holds a second's worth at the start.
    assert!(took.as_secs_f64() >= (letters - 200) as f64 / rate as f64 - 1.1, "{} at {rate} a second took {took:?}", letters - 200);
    let (start, middle, end) = (memory[0], memory[memory.len() / 2], memory[memory.len() - 1]);
    println!("{} letters in {took:?}; resident KiB at the start, in the middle, at the end: {start}, {middle}, {end}", letters - 200);
    assert!(memory.iter().all(|now| *now < start + 16 * 1024), "{memory:?}");
    assert_eq!(u64::try_from(world.mail().await), Ok(letters));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_events_and_missing_tables_are_errors_that_name_the_field_and_change_nothing() {
    let mut world = world().await;
    world.seed(3).await;
    let function = world.function().await;
    for (event, field) in [
        (json!({}), "event"),
        (json!([]), "event"),
        (json!({"surprise": 1, "all": true}), "surprise"),
        (json!({"filter": {"rout_id": "r"}}), "filter.rout_id"),
        (json!({"dry_run": false}), "filter"),
        (json!({"all": true, "limit": 10_001}), "limit"),
        (json!({"all": true, "continuation": "1.0000000000000000.x"}), "continuation"),
        (json!({"Records": 7}), "Records"),
    ] {
        let answer = invoke(&function, &event).await;
        assert!(answer.failed, "{event}: {answer:?}");
        assert_eq!(answer.payload["error"]["code"], "invalid_request", "{event}");
        assert_eq!(answer.payload["error"]["field"], field, "{event}");
    }
    let (malformed, _) = function.invoke(b"{\"all\": tru", PATIENCE).await.unwrap();
    assert_eq!((malformed.failed, &malformed.payload["error"]["field"]), (true, &json!("event")));
    let nothing = invoke(&function, &json!({"filter": {"route_id": "none"}, "dry_run": false})).await;
    assert_eq!((nothing.failed, count(&nothing, "matched"), &nothing.payload["errors"]), (false, 0, &json!([])));
    for name in ["CAUSEWAY_DLQ_TABLE", "CAUSEWAY_OUTBOX_TABLE"] {
        let right = world.stack.environment.insert(name.to_owned(), "missing".to_owned()).unwrap();
        let answer = invoke(&world.function().await, &json!({"all": true, "dry_run": false})).await;
        assert_eq!(
            (answer.failed, &answer.payload["error"]["code"], &answer.payload["error"]["field"]),
            (true, &json!("not_found"), &json!(name))
        );
        world.stack.environment.insert(name.to_owned(), right);
    }
    assert_eq!((world.mail().await, world.in_state(DeadLetterState::Dead).await), (0, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_queue_are_redrives_and_those_that_fail_are_named() {
    let world = world().await;
    world.seed(4).await;
    let record =
        |id: &str, body: &str, queue: &str| json!({"messageId": id, "body": body, "eventSource": "aws:sqs", "eventSourceARN": queue});
    let good = |id: u128| json!({"filter": {"ids": [Id128(id).to_string()]}, "dry_run": false}).to_string();
    let function = world.function().await;
    let standard = "arn:aws:sqs:us-east-1:000000000000:redrives";
    let batch = json!({"Records": [record("m1", &good(1), standard), record("m2", "{", standard), record("m3", &good(2), standard)]});
    assert_eq!(invoke(&function, &batch).await.payload, json!({"batchItemFailures": [{"itemIdentifier": "m2"}]}));
    let fifo = "arn:aws:sqs:us-east-1:000000000000:redrives.fifo";
    let batch = json!({"Records": [record("m1", &good(3), fifo), record("m2", "{}", fifo), record("m3", &good(4), fifo)]});
    let stopped = json!({"batchItemFailures": [{"itemIdentifier": "m2"}, {"itemIdentifier": "m3"}]});
    assert_eq!(invoke(&function, &batch).await.payload, stopped, "in order: nothing goes on behind a failure");
    assert_eq!(world.mail().await, 3);
    assert!(invoke(&function, &json!({"Records": [{"body": "{}"}]})).await.failed, "without an id nothing could be named");
}
