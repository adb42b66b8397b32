//! The real program, invoked as Lambda invokes it, on Amazon DynamoDB Local (or what stands for it).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use aws_sdk_dynamodb::types::{AttributeValue, TimeToLiveSpecification};
use bytes::Bytes;
use causeway_aws::schema::{COMMANDS, LEDGER, create_missing_tables};
use causeway_aws::{DynamoCommands, DynamoDeadLetters, DynamoLeases, DynamoOutbox};
use causeway_core::commands::{Command, State};
use causeway_core::identity::{Epoch, Id128, LogName, Slot};
use causeway_core::lease::row::{LeaseRow, OwnerFacts, Tuple};
use causeway_core::lease::{Condition, LeaseWrite};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::Outcome;
use causeway_core::rows::{CODEC_POSTCARD_ZSTD, Head, Row, Segment, pack};
use causeway_core::units::UnixMillis;
use causeway_ports::{Commands, DeadLetters, Leases, LogRecord, LogState, OrphanAnswer, Outbox, SystemClock};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use world::Stack;
use xtask::lambda::{Answer, Function};

#[path = "../../runtime/tests/world/mod.rs"]
mod world;

const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    stack: Stack,
    outbox: DynamoOutbox,
    leases: DynamoLeases,
}

async fn world() -> World {
    let stack = Stack::start(&["leases", "outbox", "dlq", "commands", "ledger"]).await;
    let aws = &stack.aws;
    let (outbox, leases) = (DynamoOutbox::new(aws.dynamodb.clone(), "outbox"), DynamoLeases::new(aws.dynamodb.clone(), "leases"));
    outbox.create().await.unwrap();
    leases.create().await.unwrap();
    DynamoDeadLetters::new(aws.dynamodb.clone(), "dlq").create().await.unwrap();
    create_missing_tables(&aws.dynamodb, &[(&COMMANDS, "commands"), (&LEDGER, "ledger")], &[]).await.unwrap();
    World { stack, outbox, leases }
}

fn wall() -> UnixMillis {
    UnixMillis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64)
}

fn log() -> LogName {
    LogName::new("plant-1", "s", 0).unwrap()
}

fn segment(slot: u64, expires_at: Option<UnixMillis>) -> Row {
    let message = Message { topic: "t".into(), payload: Bytes::from(slot.to_string()), qos: 1, ..Message::default() };
    let id = Id128(u128::from(slot));
    let entry = Entry {
        id,
        route: "r".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "in".into(),
        received_at: UnixMillis(1_000),
        expires_at,
        redrive: None,
        message,
    };
    let body = pack(&[Arc::new(entry)]).unwrap();
    let (epoch, created_at) = (Epoch(1), UnixMillis(1_000));
    Row::Segment(Segment {
        epoch,
        segment_id: id,
        count: 1,
        codec: CODEC_POSTCARD_ZSTD,
        body,
        created_at,
        earliest_expiry: expires_at,
        drained: Slot(0),
    })
}

impl World {
    async fn function(&self) -> Function {
        self.stack.function(env!("CARGO_BIN_EXE_housekeeping")).await
    }

    async fn log_of(&self, rows: u64, expires_at: Option<UnixMillis>) {
        let record = LogRecord { log: log(), epoch: Epoch(1), lanes: 1, state: LogState::Open };
        assert!(matches!(self.outbox.replace_record(&record, None).await, Outcome::Done(true)));
        let name = log();
        let puts = futures_util::stream::iter(1..=rows).map(|slot| {
            let (row, name) = (segment(slot, expires_at), &name);
            async move { self.outbox.put(name, Slot(slot), &row).await }
        });
        let outcomes: Vec<_> = puts.buffer_unordered(32).collect().await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done(_))));
    }

    async fn released(&self) {
        let at = UnixMillis(wall().0 - 3_600_000);
        let tuple = Tuple { owner: String::new(), version: 1, renewed_at: at, expires_at: UnixMillis(0) };
        let row = LeaseRow { tuple, acquired_at: at, evidence: None, facts: OwnerFacts::default() };
        assert!(matches!(self.leases.write("LEASE#s", &LeaseWrite { condition: Condition::Absent, row }).await, Outcome::Done(_)));
    }
}

async fn invoke(function: &Function, event: &Value, timeout: Duration) -> Answer {
    let answer = world::invoke(function, event, timeout).await;
    assert!(!answer.failed, "{answer:?}");
    answer
}

fn swept(answer: &Answer, name: &str) -> u64 {
    answer.payload["swept"][name].as_u64().unwrap_or_else(|| panic!("{name} in {}", answer.payload))
}

/// As many rows as `CAUSEWAY_TEST_ROWS` says; without it a fiftieth of a hundred thousand.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_is_swept_within_the_time_of_each_run_which_goes_on_where_the_last_one_stopped() {
    let rows = std::env::var("CAUSEWAY_TEST_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(2_000);
    let world = world().await;
    world.log_of(rows, None).await;
    let head = Head { epoch: Epoch(1), drained: Slot(rows), ..Head::default() };
    assert!(matches!(world.outbox.put_head(&log(), &head).await, Outcome::Done(true)));
    let function = world.function().await;
    let mut event = json!({"op": "sweep", "max_items": rows / 3});
    let (mut deleted, mut runs) = (0, 0);
    loop {
        let timeout = Duration::from_secs(30);
        let answer = invoke(&function, &event, timeout).await;
        assert!(answer.payload["duration_ms"].as_u64().unwrap() < timeout.as_millis() as u64 && answer.payload["errors"] == json!([]));
        (deleted, runs) = (deleted + swept(&answer, "segments_deleted"), runs + 1);
        println!("run {runs}: {} segments in {} ms", swept(&answer, "segments_deleted"), answer.payload["duration_ms"]);
        if answer.payload["truncated"] == json!(false) {
            break;
        }
        event["continuation"] = answer.payload["continuation"].clone();
        assert!(runs < 100);
    }
    assert_eq!(deleted, rows - 1, "everything but the tail");
    assert!(runs >= 3, "{runs}");
    assert_eq!(world.outbox.read_tail(&log()).await.unwrap().unwrap().slot, Slot(rows));
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_entries_of_a_log_that_nobody_owns_become_dead_letters_and_gauges_are_exact() {
    let world = world().await;
    world.log_of(300, Some(UnixMillis(2_000))).await;
    world.released().await;
    let function = world.function().await;
    let dry = invoke(&function, &json!({"op": "sweep", "dry_run": true}), PATIENCE).await;
    assert_eq!(
        (swept(&dry, "expired_to_dlq"), &dry.payload["gauges"]["outbox_pending"], &dry.payload["gauges"]["dlq_depth"]),
        (300, &json!(300), &json!(0))
    );
    let answer = invoke(&function, &json!({"op": "sweep", "dry_run": false, "max_items": 5000, "continuation": null}), PATIENCE).await;
    assert_eq!((swept(&answer, "expired_to_dlq"), swept(&answer, "conflicts")), (300, 0), "{}", answer.payload);
    let after = invoke(&function, &json!({"op": "sweep"}), PATIENCE).await;
    let gauges = &after.payload["gauges"];
    assert_eq!((&gauges["outbox_pending"], &gauges["dlq_depth"], &gauges["logs_without_owner"]), (&json!(0), &json!(300), &json!(0)));
    let letters = DynamoDeadLetters::new(world.stack.aws.dynamodb.clone(), "dlq");
    let letter = letters.get(Id128(7)).await.unwrap().unwrap();
    assert_eq!((letter.error_code.as_str(), letter.session.as_str()), ("MESSAGE_EXPIRED", "s"));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_end_and_go_in_their_time_and_rows_whose_retention_is_over_go() {
    let world = world().await;
    let (s, n) = (|text: &str| AttributeValue::S(text.to_owned()), |number: u64| AttributeValue::N(number.to_string()));
    let now = wall().0 / 1_000;
    // The store would remove what is over by itself, sooner here than AWS does, and there would be nothing to see.
    for table in ["commands", "ledger"] {
        let off = TimeToLiveSpecification::builder().attribute_name("ttl").enabled(false).build().unwrap();
        world.stack.aws.dynamodb.update_time_to_live().table_name(table).time_to_live_specification(off).send().await.unwrap();
    }
    let day = Duration::from_secs(86_400);
    let commands =
        DynamoCommands::new(world.stack.aws.dynamodb.clone(), "commands", 7 * day, Duration::from_secs(600), Arc::new(SystemClock));
    let began = |ago: Duration| UnixMillis(wall().0 - ago.as_millis() as u64);
    for (id, ago) in [(1, 8 * day), (2, 6 * day), (3, Duration::from_secs(60)), (4, Duration::ZERO)] {
        let command = Command::new(Id128(id), "pump-1", "worker-1", began(ago), Duration::from_secs(30));
        assert!(matches!(commands.create(&command, Some(&format!("key {id}")), &[1; 32]).await, Outcome::Done(_)));
    }
    for (id, ago) in [(10, Duration::from_secs(601)), (3, Duration::from_secs(700)), (11, Duration::ZERO)] {
        let orphan = OrphanAnswer { id: Id128(id), by: "pump-1".to_owned(), came_at: began(ago) };
        assert!(matches!(commands.keep_orphan(&orphan).await, Outcome::Done(())));
    }
    for (id, ttl) in [("over", now - 10), ("young", now + 1_000)] {
        let put = world.stack.aws.dynamodb.put_item().table_name("ledger").item("pk", s("client")).item("sk", s(id));
        put.item("ttl", n(ttl)).send().await.unwrap();
    }
    let function = world.function().await;
    let told = |answer: &Answer| {
        let of =
            ["commands_timed_out", "commands_deleted", "command_orphans_deleted", "command_orphans_adopted", "ledger_pruned", "conflicts"];
        of.map(|name| swept(answer, name))
    };
    let dry = invoke(&function, &json!({"op": "sweep", "dry_run": true}), PATIENCE).await;
    assert_eq!((told(&dry), &dry.payload["errors"]), ([3, 1, 1, 1, 1, 0], &json!([])));
    let answer = invoke(&function, &json!({"op": "sweep"}), PATIENCE).await;
    assert_eq!((told(&answer), &answer.payload["errors"]), ([3, 1, 1, 1, 1, 0], &json!([])));
    let mut states = Vec::new();
    for id in 1..=4 {
        states.push(commands.standing(Id128(id)).await.unwrap().map(|command| command.state));
    }
    assert_eq!(states, [None, Some(State::TimedOut), Some(State::TimedOut), Some(State::Created)]);
    // Three commands, each with its caller's name, and the young answer to nobody.
    for (table, rows) in [("commands", 7), ("ledger", 1)] {
        let left = world.stack.aws.dynamodb.scan().table_name(table).send().await.unwrap();
        assert_eq!(left.count, rows, "{table}");
    }
    let again = invoke(&function, &json!({"op": "sweep"}), PATIENCE).await;
    assert_eq!(told(&again), [0; 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_events_and_missing_tables_are_errors_that_name_the_field() {
    let mut world = world().await;
    let function = world.function().await;
    for (event, field) in [(json!({}), "event"), (json!({"op": "x"}), "op"), (json!({"op": "sweep", "shards": []}), "shards")] {
        let answer = world::invoke(&function, &event, PATIENCE).await;
        assert_eq!(
            (answer.failed, &answer.payload["error"]["code"], &answer.payload["error"]["field"]),
            (true, &json!("invalid_request"), &json!(field))
        );
    }
    for name in ["CAUSEWAY_OUTBOX_TABLE", "CAUSEWAY_LEASES_TABLE", "CAUSEWAY_DLQ_TABLE"] {
        let right = world.stack.environment.insert(name.to_owned(), "missing".to_owned()).unwrap();
        let (answer, _) = world.function().await.invoke(b"{\"op\": \"sweep\"}", PATIENCE).await.unwrap();
        assert_eq!(
            (answer.failed, &answer.payload["error"]["code"], &answer.payload["error"]["field"]),
            (true, &json!("not_found"), &json!(name))
        );
        world.stack.environment.insert(name.to_owned(), right);
    }
}
