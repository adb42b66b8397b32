//! The DynamoDB stores against emulators: the contracts that every store keeps, and the tables they stand in.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TimeToLiveSpecification,
    TimeToLiveStatus,
};
use causeway_aws::schema::{self, TABLES, Table, TimeToLive};
use causeway_aws::{DynamoCommands, DynamoDeadLetters, DynamoDropLedger, DynamoOutbox, DynamoRedrives};
use causeway_core::dead_letter::{DeadLetter, DeadLetterState, Destination};
use causeway_core::identity::{Epoch, Id128, LogName, Slot};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Anchor, Head, Row};
use causeway_core::units::UnixMillis;
use causeway_ports::conformance::{commands, dead_letters, drop_ledger, mailbox, outbox, redrives};
use causeway_ports::{Commands, DeadLetters, DropLedger, Outbox, Put, SystemClock};
use std::sync::Arc;
use support::emulator::{Emulator, dynamodb, ministack};

fn client(emulator: &Emulator) -> aws_sdk_dynamodb::Client {
    support::clients(&emulator.endpoint).dynamodb().unwrap()
}

/// A table name of the case's own: at most 255 characters of what DynamoDB takes.
fn table(case: &str) -> String {
    format!("test-{case}")
}

/// Runs cases of the outbox contract, each in a table of its own.
async fn outbox_contract(emulator: &Emulator, cases: &[&str]) {
    for case in cases {
        eprintln!("{}: outbox: {case}", emulator.name);
        let store = DynamoOutbox::new(client(emulator), table(case));
        assert_eq!(store.create().await.expect("create"), [table(case)]);
        outbox::run(case, Arc::new(store)).await;
    }
}

async fn mailbox_contract(emulator: &Emulator, cases: &[&str]) {
    for case in cases {
        eprintln!("{}: mailbox: {case}", emulator.name);
        let store = DynamoOutbox::new(client(emulator), table(case));
        assert_eq!(store.create().await.expect("create"), [table(case)]);
        mailbox::run(case, Arc::new(store)).await;
    }
}

async fn redrive_contract(emulator: &Emulator, cases: &[&str]) {
    for case in cases {
        eprintln!("{}: redrives: {case}", emulator.name);
        let (outbox, letters) = (format!("o-{case}"), format!("d-{case}"));
        let store = DynamoOutbox::new(client(emulator), &outbox);
        let dead_letters = || DynamoDeadLetters::new(client(emulator), &letters);
        store.create().await.expect("create");
        dead_letters().create().await.expect("create");
        let redrives = Arc::new(DynamoRedrives::new(dead_letters(), Some(outbox)));
        redrives::run(case, redrives::Stores { letters: Arc::new(dead_letters()), redrives, outbox: Arc::new(store) }).await;
    }
}

async fn dead_letter_contract(emulator: &Emulator, cases: &[&str]) {
    for case in cases {
        eprintln!("{}: dead letters: {case}", emulator.name);
        let store = DynamoDeadLetters::new(client(emulator), table(case));
        assert_eq!(store.create().await.expect("create"), [table(case)]);
        dead_letters::run(case, Arc::new(store)).await;
    }
}

async fn command_contract(emulator: &Emulator, cases: &[&str]) {
    for case in cases {
        eprintln!("{}: commands: {case}", emulator.name);
        let name = table(case);
        let store = DynamoCommands::new(client(emulator), &name, commands::RETENTION, commands::ORPHANS, Arc::new(SystemClock));
        assert_eq!(store.create_tables().await.expect("create"), [name]);
        commands::run(case, Arc::new(store)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_keep_their_contract_on_dynamodb() {
    command_contract(&dynamodb(), commands::CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_keep_their_contract_on_ministack() {
    command_contract(&ministack(), commands::CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_ledger_keeps_its_contract_on_dynamodb() {
    let emulator = dynamodb();
    let fresh = async |case: &str| {
        let ledger = DynamoDropLedger::new(client(&emulator), table(case), "bridge", core::time::Duration::from_secs(60));
        assert_eq!(ledger.create().await.expect("create"), [table(case)]);
        ledger.probe().await.expect("its shape is right");
        let ledger: Arc<dyn DropLedger> = Arc::new(ledger);
        ledger
    };
    drop_ledger::counts_add_up(fresh("ledger-adds").await).await;
    drop_ledger::a_repeated_batch_counts_once(fresh("ledger-repeats").await).await;
    drop_ledger::the_oldest_go(fresh("ledger-prunes").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outbox_keeps_its_contract_on_dynamodb() {
    outbox_contract(&dynamodb(), outbox::CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mailbox_keeps_its_contract_on_dynamodb() {
    mailbox_contract(&dynamodb(), mailbox::CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mailbox_keeps_its_contract_on_ministack() {
    mailbox_contract(&ministack(), mailbox::CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redrives_keep_their_contract_on_dynamodb() {
    redrive_contract(&dynamodb(), redrives::CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redrives_keep_their_contract_on_ministack() {
    redrive_contract(&ministack(), redrives::CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_keep_their_contract_on_dynamodb() {
    dead_letter_contract(&dynamodb(), dead_letters::CASES).await;
}

/// MiniStack is what the demo runs on: what the running bridge needs most is held there too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_keep_the_heart_of_their_contracts_on_ministack() {
    let emulator = ministack();
    let rows = [
        "the_same_row_put_twice_is_stored_both_times",
        "another_row_meets_what_stands_there",
        "concurrent_puts_at_one_slot_store_exactly_one",
        "the_tail_is_the_highest_slot_whatever_the_order_of_writes",
        "the_head_moves_only_forward",
        "segments_come_back_whole",
        "large_rows_are_split_into_pages",
        "deletes_take_any_number_of_slots_and_spare_the_rest",
        "a_record_replaces_only_the_one_that_it_names",
        "of_many_that_replace_the_same_record_one_does",
        "usage_counts_writes_and_reads",
    ];
    outbox_contract(&emulator, &rows).await;
    let letters = [
        "the_same_id_again_changes_nothing",
        "large_payloads_come_back_byte_for_byte",
        "the_oldest_come_first",
        "equal_milliseconds_do_not_stall_a_page",
        "a_deleted_large_letter_leaves_nothing_behind",
    ];
    dead_letter_contract(&emulator, &letters).await;
}

fn letter(payload: usize, redrive_count: u32, attempts: u32) -> DeadLetter {
    let message = Message { topic: "a/b".to_owned(), payload: vec![7_u8; payload].into(), ..Message::default() };
    let entry = Entry {
        id: Id128(77),
        route: "r".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "s".into(),
        received_at: UnixMillis(1),
        expires_at: None,
        redrive: None,
        message,
    };
    let fault = Fault::new(FaultCode::Refused, "no");
    DeadLetter { redrive_count, ..DeadLetter::new(&entry, &Destination::default(), &fault, attempts, UnixMillis(1_772_366_400_000)) }
}

/// What a redrive leaves behind: the letter as a tombstone with its count raised.
async fn put_back(client: &aws_sdk_dynamodb::Client, table: &str, count: u32) {
    let request = client.update_item().table_name(table).key("pk", AttributeValue::S(format!("DLQ#{}", Id128(77))));
    let request = request.key("sk", AttributeValue::S("0".to_owned())).update_expression("SET #state = :state, redrive_count = :count");
    let request = request
        .expression_attribute_names("#state", "state")
        .expression_attribute_values(":state", AttributeValue::S("redriven".to_owned()));
    request.expression_attribute_values(":count", AttributeValue::N(count.to_string())).send().await.unwrap();
}

/// A letter that was put back may die again, once for each time, and a replay of its first death changes nothing.
async fn a_letter_that_was_put_back_can_die_again(emulator: &Emulator) {
    let client = client(emulator);
    for payload in [10, 1_000_000] {
        let table = format!("redriven-{payload}");
        let store = DynamoDeadLetters::new(client.clone(), &table);
        store.create().await.unwrap();
        assert_eq!(store.park(&letter(payload, 0, 1)).await, Outcome::Done(()));
        put_back(&client, &table, 1).await;
        assert_eq!(store.park(&letter(payload, 0, 2)).await, Outcome::Done(()));
        assert_eq!(store.get(Id128(77)).await.unwrap().unwrap().state, DeadLetterState::Redriven, "a replay does not raise the dead");
        let again = letter(payload, 1, 3);
        assert_eq!(store.park(&again).await, Outcome::Done(()));
        assert_eq!(store.get(Id128(77)).await.unwrap(), Some(again));
    }
}

/// Rows of a release that knew neither revisions nor retired logs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_older_rows_do_not_tell_reads_as_nothing() {
    let emulator = dynamodb();
    let client = client(&emulator);
    let store = DynamoOutbox::new(client.clone(), "older");
    store.create().await.unwrap();
    let log = LogName::new("b", "s", 0).unwrap();
    let head = Head { epoch: Epoch(3), drained: Slot(7), ..Head::default() };
    assert_eq!(store.put_head(&log, &head).await, Outcome::Done(true));
    assert_eq!(store.put(&log, Slot(8), &anchor("o")).await, Outcome::Done(Put::Stored));
    let key = |slot: u64| AttributeValue::S(Slot(slot).sort_key());
    let update = client.update_item().table_name("older").key("pk", AttributeValue::S(log.to_string())).key("sk", key(0));
    update.update_expression("REMOVE revision").send().await.unwrap();
    assert_eq!(store.read_head(&log).await.unwrap(), Some(head.clone()));
    assert_eq!(store.put_head(&log, &head).await, Outcome::Done(false), "it has revision 0");
    assert_eq!(store.put_head(&log, &Head { revision: 1, ..head }).await, Outcome::Done(true));
    let page = store.read_page(&log, Slot(7), Slot(8)).await.unwrap();
    assert_eq!(page.rows, [(Slot(8), anchor("o"))]);
    let rows = client.scan().table_name("older").send().await.unwrap().items.unwrap();
    assert!(rows.iter().all(|row| !row.contains_key("retired")), "an anchor that does not retire its log says nothing of it");
}

/// A delete that ended after the first row is finished by the next one.
async fn a_half_deleted_letter_is_swept(emulator: &Emulator) {
    let client = client(emulator);
    let store = DynamoDeadLetters::new(client.clone(), "half");
    store.create().await.unwrap();
    assert_eq!(store.park(&letter(1_000_000, 0, 1)).await, Outcome::Done(()));
    let key = format!("DLQ#{}", Id128(77));
    let first = client.delete_item().table_name("half").key("pk", AttributeValue::S(key)).key("sk", AttributeValue::S("0".to_owned()));
    first.send().await.unwrap();
    let rows = async || client.scan().table_name("half").send().await.unwrap().count;
    assert_eq!(rows().await, 3);
    assert_eq!(store.delete(Id128(77)).await, Outcome::Done(false));
    assert_eq!(rows().await, 0);
}

fn anchor(owner: &str) -> Row {
    Row::Anchor(Anchor {
        epoch: Epoch(1),
        anchor_id: Id128(1),
        owner: owner.to_owned(),
        opened_at: UnixMillis(0),
        drained: Slot(0),
        retired: false,
    })
}

async fn every_table_is_created_and_checked(emulator: &Emulator) {
    let client = client(emulator);
    let names: Vec<String> = TABLES.iter().map(|table| table.default_name()).collect();
    let wanted: Vec<(&Table, &str)> = TABLES.iter().copied().zip(names.iter().map(String::as_str)).collect();
    for (table, name) in &wanted {
        let fault = schema::verify(&client, table, name).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::NotFound, "{fault}");
        assert!(fault.detail.contains(name) && fault.detail.contains("causeway stores create"), "{fault}");
    }
    let tags = [("project".to_owned(), "causeway".to_owned())];
    assert_eq!(schema::create_missing_tables(&client, &wanted, &tags).await.unwrap(), names);
    assert_eq!(schema::create_missing_tables(&client, &wanted, &tags).await.unwrap(), Vec::<String>::new());
    for (table, name) in &wanted {
        schema::verify(&client, table, name).await.unwrap();
        let found = client.describe_table().table_name(*name).send().await.unwrap().table.unwrap();
        assert_eq!(found.deletion_protection_enabled, Some(true), "{name}");
        assert_eq!(found.billing_mode_summary.unwrap().billing_mode, Some(BillingMode::PayPerRequest), "{name}");
        let ttl = client.describe_time_to_live().table_name(*name).send().await.unwrap().time_to_live_description.unwrap();
        let enabled = matches!(ttl.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling));
        let attribute = match table.time_to_live {
            TimeToLive::Attribute(name) => Some(name),
            TimeToLive::Forbidden(_) | TimeToLive::Unused => None,
        };
        assert_eq!(enabled.then(|| ttl.attribute_name.unwrap()).as_deref(), attribute, "{name}");
    }
}

async fn enable_ttl(client: &aws_sdk_dynamodb::Client, table: &str) {
    let specification = TimeToLiveSpecification::builder().attribute_name("expires_at").enabled(true).build().unwrap();
    client.update_time_to_live().table_name(table).time_to_live_specification(specification).send().await.unwrap();
}

async fn plain_table(client: &aws_sdk_dynamodb::Client, name: &str, keys: &[(&str, ScalarAttributeType, KeyType)]) {
    let mut request = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    for (key, kind, role) in keys {
        request = request
            .key_schema(KeySchemaElement::builder().attribute_name(*key).key_type(role.clone()).build().unwrap())
            .attribute_definitions(AttributeDefinition::builder().attribute_name(*key).attribute_type(kind.clone()).build().unwrap());
    }
    request.send().await.unwrap();
}

/// Every way in which a table can be wrong: the text names the table, what was found, what is expected and what to run.
async fn wrong_tables_are_refused(emulator: &Emulator) {
    let client = client(emulator);
    let text = ScalarAttributeType::S;
    plain_table(&client, "no-sort", &[("pk", text.clone(), KeyType::Hash)]).await;
    plain_table(&client, "other-keys", &[("id", text.clone(), KeyType::Hash), ("at", ScalarAttributeType::N, KeyType::Range)]).await;
    plain_table(&client, "no-index", &[("pk", text.clone(), KeyType::Hash), ("sk", text.clone(), KeyType::Range)]).await;
    for (definition, name, words) in [
        (&schema::OUTBOX, "no-sort", ["(pk S HASH)", "(pk S HASH, sk S RANGE)", "stores create"]),
        (&schema::OUTBOX, "other-keys", ["(id S HASH, at N RANGE)", "(pk S HASH, sk S RANGE)", "stores create"]),
        (
            &schema::DLQ,
            "no-index",
            ["no index `by_route`", "(route_id S HASH, failed_sort S RANGE)", "aws dynamodb update-table --table-name no-index"],
        ),
    ] {
        let fault = schema::verify(&client, definition, name).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidConfig, "{fault}");
        assert!(words.iter().all(|word| fault.detail.contains(word)) && fault.detail.contains(name), "{fault}");
        assert!(schema::create_missing_tables(&client, &[(definition, name)], &[]).await.is_err(), "a wrong table is not taken over");
    }
    schema::verify(&client, &schema::OUTBOX, "no-index").await.expect("as an outbox it is right");
    for (definition, name) in [(&schema::LEASES, "no-sort"), (&schema::OUTBOX, "no-index")] {
        enable_ttl(&client, name).await;
        let fault = schema::verify(&client, definition, name).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidConfig, "{fault}");
        let words = [name, "`expires_at`", "aws dynamodb update-time-to-live", "Enabled=false"];
        assert!(words.iter().all(|word| fault.detail.contains(word)), "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_and_letters_on_dynamodb() {
    let emulator = dynamodb();
    every_table_is_created_and_checked(&emulator).await;
    wrong_tables_are_refused(&emulator).await;
    faults_name_the_table(&emulator).await;
    a_letter_that_was_put_back_can_die_again(&emulator).await;
    a_half_deleted_letter_is_swept(&emulator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_created_and_checked_on_ministack() {
    let emulator = ministack();
    every_table_is_created_and_checked(&emulator).await;
    wrong_tables_are_refused(&emulator).await;
    let backups = client(&emulator).describe_continuous_backups().table_name("causeway-outbox").send().await.unwrap();
    let recovery = backups.continuous_backups_description.unwrap().point_in_time_recovery_description.unwrap();
    assert_eq!(recovery.point_in_time_recovery_status.unwrap().as_str(), "ENABLED");
}

async fn faults_name_the_table(emulator: &Emulator) {
    let store = DynamoOutbox::new(client(emulator), "nowhere");
    let log = LogName::new("bridge", "session", 0).unwrap();
    let fault = store.read_tail(&log).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::NotFound, "{fault}");
    assert!(fault.detail.contains("nowhere"), "{fault}");
    let Outcome::NotDone(fault) = store.put(&log, Slot(1), &anchor("a")).await else { panic!("a missing table takes nothing") };
    assert_eq!(fault.code, FaultCode::NotFound, "{fault}");
    let Outcome::NotDone(fault) = store.put(&log, Slot(1), &anchor(&"x".repeat(500_000))).await else { panic!("too large") };
    assert_eq!(fault.code, FaultCode::PayloadTooLarge, "{fault}");
    let Outcome::NotDone(fault) = store.delete(&log, &[Slot(3), Slot::HEAD]).await else { panic!("the head row is never deleted") };
    assert_eq!(fault.code, FaultCode::ProtocolError, "{fault}");
    let letters = DynamoDeadLetters::new(client(emulator), "nowhere");
    assert_eq!(letters.get(Id128(1)).await.unwrap_err().code, FaultCode::NotFound);
}
