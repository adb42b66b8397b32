//! Leases and managed subscriptions in DynamoDB, against emulators.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, TimeToLiveSpecification};
use causeway_aws::{DynamoLeases, DynamoManagedSubscriptions, DynamoQuota};
use causeway_core::lease::row::{CorruptLease, Evidence, LeaseRow, OwnerFacts, Tuple};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::conformance::{leases, managed_subscriptions, quota};
use causeway_ports::{Generation, Leases, ManagedSubscriptions, MemberRecord};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use support::emulator::{Emulator, dynamodb, ministack};
use support::scripted::{Reply, Scripted};

type Item = HashMap<String, AttributeValue>;

const KEY: &str = "LEASE#plant-1";

fn client(emulator: &Emulator) -> Client {
    support::clients(&emulator.endpoint).dynamodb().unwrap()
}

/// Runs cases of the leases' contract, each in a table of its own.
async fn lease_contract(emulator: &Emulator, cases: &[&str]) {
    for case in cases {
        eprintln!("{}: leases: {case}", emulator.name);
        let store = DynamoLeases::new(client(emulator), *case);
        assert_eq!(store.create().await.expect("create"), [*case]);
        leases::run(case, Arc::new(store)).await;
    }
}

async fn subscription_contract(emulator: &Emulator, cases: &[&str]) {
    for case in cases {
        eprintln!("{}: managed subscriptions: {case}", emulator.name);
        let store = DynamoManagedSubscriptions::new(client(emulator), format!("s-{case}"));
        assert_eq!(store.create().await.expect("create"), [format!("s-{case}")]);
        managed_subscriptions::run(case, Arc::new(store)).await;
    }
}

async fn quota_contract(emulator: &Emulator, cases: &[&str]) {
    for case in cases {
        eprintln!("{}: quota: {case}", emulator.name);
        let table = format!("q-{case}");
        DynamoLeases::new(client(emulator), &table).create().await.expect("create");
        quota::run(case, Arc::new(DynamoQuota::new(client(emulator), &table))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_budgets_keep_their_contract_on_dynamodb() {
    quota_contract(&dynamodb(), quota::CASES).await;
}

/// What the demo runs on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_budgets_keep_their_contract_on_ministack() {
    quota_contract(&ministack(), quota::CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_keep_their_contract_on_dynamodb() {
    lease_contract(&dynamodb(), leases::CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managed_subscriptions_keep_their_contract_on_dynamodb() {
    subscription_contract(&dynamodb(), managed_subscriptions::CASES).await;
}

/// MiniStack is what the demo runs on: what a fail-over needs is held there too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_keep_the_heart_of_their_contracts_on_ministack() {
    let emulator = ministack();
    let leases = [
        "a_row_is_created_once",
        "rows_come_back_whole",
        "extreme_numbers_come_back",
        "every_field_of_the_tuple_counts",
        "evidence_counts_present_absent_and_changed",
        "a_holder_is_known_by_owner_and_version_alone",
        "a_condition_on_a_missing_row_is_refused_without_a_row",
        "of_many_who_create_exactly_one_is_written",
        "of_many_who_claim_one_tuple_exactly_one_is_written",
        "a_renewal_and_a_takeover_exclude_each_other",
        "members_of_bridges_with_similar_names_are_kept_apart",
    ];
    lease_contract(&emulator, &leases).await;
    let subscriptions = [
        "what_nobody_told_is_not_the_same_as_none",
        "the_first_telling_stands",
        "nothing_is_remembered_without_a_first_telling",
        "the_last_filter_leaves_a_known_empty_set",
        "forgetting_makes_no_row",
        "many_change_the_set_at_once",
    ];
    subscription_contract(&emulator, &subscriptions).await;
}

fn row(owner: &str, version: u64) -> LeaseRow {
    LeaseRow {
        tuple: Tuple { owner: owner.to_owned(), version, renewed_at: UnixMillis(1_000), expires_at: UnixMillis(46_000) },
        acquired_at: UnixMillis(1_000),
        evidence: None,
        facts: OwnerFacts::default(),
    }
}

fn write(condition: Condition, row: LeaseRow) -> LeaseWrite {
    LeaseWrite { condition, row }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number(number: &str) -> AttributeValue {
    AttributeValue::N(number.to_owned())
}

/// An active row as another program would write it.
fn foreign() -> Item {
    [
        ("pk", text(KEY)),
        ("owner", text("a#1")),
        ("version", number("7")),
        ("acquired_at", number("500")),
        ("renewed_at", number("1000")),
        ("expires_at", number("46000")),
        ("endpoints", AttributeValue::M(HashMap::from([("transport".to_owned(), text("http://10.0.0.1:8082"))]))),
        ("ttl", number("1700000000")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

async fn put(client: &Client, table: &str, item: Item) {
    client.put_item().table_name(table).set_item(Some(item)).send().await.unwrap();
}

async fn raw(client: &Client, table: &str, key: &str) -> Item {
    client.get_item().table_name(table).key("pk", text(key)).consistent_read(true).send().await.unwrap().item.unwrap()
}

/// A row that another program wrote is read, taken over under the exact tuple, and holds nothing of the former afterwards.
async fn rows_of_other_programs_are_taken_over_whole(emulator: &Emulator) {
    let client = client(emulator);
    let store = DynamoLeases::new(client.clone(), "foreign");
    store.create().await.unwrap();
    put(&client, "foreign", foreign()).await;
    let found = LeaseRow::try_from(store.read(KEY).await.unwrap().unwrap()).unwrap();
    assert_eq!((found.tuple.version, found.acquired_at.0, found.facts.endpoints.len()), (7, 500, 1));
    let taken = write(Condition::Exactly { tuple: found.tuple, evidence: None }, row("b#1", 8));
    assert_eq!(store.write(KEY, &taken).await, Outcome::Done(LeaseAnswer::Written));
    let mut names: Vec<_> = raw(&client, "foreign", KEY).await.into_keys().collect();
    names.sort_unstable();
    assert_eq!(names, ["acquired_at", "endpoints", "expires_at", "owner", "pk", "renewed_at", "version"]);
}

/// Rows that cannot be believed come to the core as they stand, which refuses every one; and no condition of a valid row holds for them.
async fn corrupt_rows_are_read_as_they_stand(emulator: &Emulator) {
    let client = client(emulator);
    let store = DynamoLeases::new(client.clone(), "corrupt");
    store.create().await.unwrap();
    let with = |name: &str, value| foreign().into_iter().chain([(name.to_owned(), value)]).collect::<Item>();
    let without = |name: &str| foreign().into_iter().filter(|(found, _)| found != name).collect::<Item>();
    let needs_repair = without("renewed_at");
    let mut corrupt: Vec<Item> = ["owner", "version", "expires_at"].into_iter().map(without).collect();
    for name in ["version", "acquired_at", "renewed_at", "expires_at"] {
        corrupt.extend(["-1", "18446744073709551616", "9E+100", "1.5"].map(|value| with(name, number(value))));
        corrupt.extend([text("7"), AttributeValue::Null(true), AttributeValue::L(Vec::new())].map(|value| with(name, value)));
    }
    corrupt.push(with("owner", number("1")));
    corrupt.push(with("owner", text("")));
    corrupt.push(with("expires_at", number("1000")));
    corrupt.push(with("version", number("0")));
    for (name, value) in [
        ("takeover_observation_fingerprint", text("f")),
        ("takeover_observation_fingerprint", number("1")),
        ("takeover_observation_elapsed_ns", number("5")),
        ("takeover_observation_generation", number("1")),
        ("takeover_observation_generation", text("1")),
    ] {
        corrupt.push(with(name, value));
    }
    for item in corrupt {
        put(&client, "corrupt", item.clone()).await;
        let read = LeaseRow::try_from(store.read(KEY).await.unwrap().unwrap());
        assert!(read.is_err(), "{item:?} was read as {read:?}");
        assert_ne!(read, Err(CorruptLease::NeedsRepair), "{item:?}");
        let claim = write(Condition::Absent, row("b#1", 1));
        let Outcome::Done(LeaseAnswer::Refused(Some(shown))) = store.write(KEY, &claim).await else { panic!("{item:?} was replaced") };
        assert!(LeaseRow::try_from(shown).is_err());
        let listed = store.list().await.unwrap();
        assert!(listed.len() == 1 && LeaseRow::try_from(listed[0].1.clone()).is_err(), "a list shows it, too");
        assert_eq!(raw(&client, "corrupt", KEY).await.len(), item.len(), "left as it was");
    }
    put(&client, "corrupt", needs_repair).await;
    assert_eq!(LeaseRow::try_from(store.read(KEY).await.unwrap().unwrap()), Err(CorruptLease::NeedsRepair));
}

/// An observation that is not exactly there keeps a takeover away, however the rest looks.
async fn half_an_observation_is_not_none(emulator: &Emulator) {
    let client = client(emulator);
    let store = DynamoLeases::new(client.clone(), "half");
    store.create().await.unwrap();
    let expected = row("a#1", 7).tuple;
    for (name, value) in [
        ("takeover_observation_fingerprint", AttributeValue::Null(true)),
        ("takeover_observation_elapsed_ns", number("5")),
        ("takeover_observation_generation", text("x")),
    ] {
        put(&client, "half", foreign().into_iter().chain([(name.to_owned(), value)]).collect()).await;
        let evidence = Some(Evidence { fingerprint: String::new(), elapsed_ns: 5, generation: 0 });
        for evidence in [None, evidence] {
            let claim = write(Condition::Exactly { tuple: expected.clone(), evidence }, row("b#1", 8));
            assert!(matches!(store.write(KEY, &claim).await, Outcome::Done(LeaseAnswer::Refused(Some(_)))), "{name}");
        }
    }
}

/// A member that cannot be read hides no other; a name that would make keys ambiguous is refused.
async fn members_are_read_one_by_one(emulator: &Emulator) {
    let client = client(emulator);
    let store = DynamoLeases::new(client.clone(), "members");
    store.create().await.unwrap();
    let member = MemberRecord { bridge: "plant".into(), owner: "a#1".into(), role: "worker".into(), ..MemberRecord::default() };
    assert_eq!(store.put_member(&member).await, Outcome::Done(()));
    let strange = Item::from([("pk".to_owned(), text("MEMBER#plant#b#1")), ("bridge".to_owned(), text("plant"))]);
    put(&client, "members", strange).await;
    assert_eq!(store.list_members("plant").await.unwrap(), std::slice::from_ref(&member));
    for bridge in ["plant#a", ""] {
        let Outcome::NotDone(fault) = store.put_member(&MemberRecord { bridge: bridge.into(), ..member.clone() }).await else {
            panic!("`{bridge}` was taken")
        };
        assert_eq!(fault.code, FaultCode::InvalidConfig);
        assert!(matches!(store.remove_member(bridge, "1").await, Outcome::NotDone(_)));
    }
}

async fn a_table_that_forgets_is_refused(emulator: &Emulator) {
    let client = client(emulator);
    let store = DynamoLeases::new(client.clone(), "forgets");
    store.create().await.unwrap();
    store.probe().await.unwrap();
    let specification = TimeToLiveSpecification::builder().attribute_name("expires_at").enabled(true).build().unwrap();
    client.update_time_to_live().table_name("forgets").time_to_live_specification(specification).send().await.unwrap();
    let fault = store.probe().await.unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidConfig);
    assert!(fault.detail.contains("`expires_at`") && fault.detail.contains("fencing"), "{fault}");
    assert!(store.create().await.is_err());
}

/// A row that does not say what the session had is no history, and is not made one by writing to it.
async fn subscriptions_without_a_baseline_are_refused(emulator: &Emulator) {
    let client = client(emulator);
    let store = DynamoManagedSubscriptions::new(client.clone(), "no-baseline");
    store.create().await.unwrap();
    let filters = || ("filters".to_owned(), AttributeValue::Ss(vec!["a".to_owned()]));
    for baseline in [None, Some(AttributeValue::Bool(false)), Some(text("true"))] {
        let mut item = Item::from([("storage_identity".to_owned(), text("s")), filters()]);
        item.extend(baseline.map(|baseline| ("baseline".to_owned(), baseline)));
        put(&client, "no-baseline", item.clone()).await;
        let fault = store.load("s").await.unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidConfig);
        assert!(fault.detail.contains("no-baseline") && fault.detail.contains("causeway baseline"), "{fault}");
        assert_eq!(store.remember("s", &BTreeSet::from(["b".to_owned()])).await, Outcome::Done(None));
        assert_eq!(store.forget("s", "a", Generation(1)).await, Outcome::Done(false));
        assert_eq!(store.seed("s", &BTreeSet::new()).await, Outcome::Done(false));
        let stands = client.get_item().table_name("no-baseline").key("storage_identity", text("s")).send().await.unwrap();
        assert_eq!(stands.item.unwrap(), item);
    }
}

/// What one owner and its standbys cost is known, failed conditions among it.
async fn refused_writes_are_counted(emulator: &Emulator) {
    let store = DynamoLeases::new(client(emulator), "counted");
    store.create().await.unwrap();
    assert_eq!(store.write(KEY, &write(Condition::Absent, row("a#1", 1))).await, Outcome::Done(LeaseAnswer::Written));
    for _ in 0..3 {
        let renewal = write(Condition::Held { owner: "a#1".to_owned(), version: 1 }, row("a#1", 1));
        assert_eq!(store.write(KEY, &renewal).await, Outcome::Done(LeaseAnswer::Written));
        store.read(KEY).await.unwrap();
    }
    assert_eq!(store.usage().refused_writes, 0, "an owner that renews refuses nobody");
    let late = write(Condition::Held { owner: "b#1".to_owned(), version: 1 }, row("b#1", 1));
    assert!(matches!(store.write(KEY, &late).await, Outcome::Done(LeaseAnswer::Refused(Some(_)))));
    assert!(matches!(store.write("LEASE#none", &late).await, Outcome::Done(LeaseAnswer::Refused(None))));
    let usage = store.usage();
    assert_eq!((usage.refused_writes, usage.store.write_calls, usage.store.read_calls), (2, 6, 3));
}

async fn faults_name_the_table(emulator: &Emulator) {
    let store = DynamoLeases::new(client(emulator), "nowhere");
    let names = |fault: &Fault| fault.code == FaultCode::NotFound && fault.detail.contains("nowhere");
    assert!(names(&store.read(KEY).await.unwrap_err()));
    assert!(names(&store.list().await.unwrap_err()));
    assert!(names(&store.probe().await.unwrap_err()));
    let Outcome::NotDone(fault) = store.write(KEY, &write(Condition::Absent, row("a#1", 1))).await else { panic!("written to nowhere") };
    assert!(names(&fault), "{fault}");
    let store = DynamoManagedSubscriptions::new(client(emulator), "nowhere");
    assert!(names(&store.load("s").await.unwrap_err()));
    let Outcome::NotDone(fault) = store.forget("s", "a", Generation(1)).await else { panic!("written to nowhere") };
    assert!(names(&fault), "{fault}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_left_in_the_tables_on_dynamodb() {
    let emulator = dynamodb();
    rows_of_other_programs_are_taken_over_whole(&emulator).await;
    corrupt_rows_are_read_as_they_stand(&emulator).await;
    half_an_observation_is_not_none(&emulator).await;
    members_are_read_one_by_one(&emulator).await;
    a_table_that_forgets_is_refused(&emulator).await;
    subscriptions_without_a_baseline_are_refused(&emulator).await;
    refused_writes_are_counted(&emulator).await;
    faults_name_the_table(&emulator).await;
}

/// A write without an answer is sent once, and nobody claims to know what became of it; a throttled one certainly left nothing.
#[tokio::test]
async fn a_write_is_sent_once_and_its_end_is_told_as_it_is() {
    let claim = write(Condition::Absent, row("a#1", 1));
    for (reply, unknown, code) in [
        (Reply::ResetAfterRequest, true, FaultCode::ConnectionLost),
        (Reply::Silence, true, FaultCode::Timeout),
        (Reply::failure(500, "InternalServerError"), true, FaultCode::Unavailable),
        (Reply::failure(400, "ProvisionedThroughputExceededException"), false, FaultCode::Throttled),
        (Reply::failure(400, "ThrottlingException"), false, FaultCode::Throttled),
        // A condition on the absence of a row failed, and the endpoint shows none: nothing can be decided from that.
        (Reply::failure(400, "ConditionalCheckFailedException"), false, FaultCode::ProtocolError),
    ] {
        let server = Scripted::start([reply.clone()]).await;
        let clients = support::clients_with_timeout(&server.endpoint, Duration::from_millis(500));
        let store = DynamoLeases::new(clients.dynamodb().unwrap(), "leases");
        let (fault, is_unknown) = match store.write(KEY, &claim).await {
            Outcome::NotDone(fault) => (fault, false),
            Outcome::Unknown(fault) => (fault, true),
            Outcome::Done(answer) => panic!("{reply:?}: {answer:?}"),
        };
        assert_eq!((fault.code, is_unknown), (code, unknown), "{reply:?}: {fault}");
        assert_eq!(server.requests().len(), 1, "{reply:?}");
    }
}
