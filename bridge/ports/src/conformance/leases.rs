//! What every [`Leases`] store promises.

use super::{done, suite};
use crate::{Leases, MemberRecord};
use causeway_core::lease::row::{Evidence, LeaseRow, OwnerFacts, Tuple};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::units::UnixMillis;
use std::sync::Arc;

suite! { $
    /// Expands to one test per case. `$make` is an async function that answers `(Arc<dyn Leases>, what must live as long)`.
    leases_conformance, leases, Arc<dyn Leases>;
    a_key_that_was_never_written_has_no_row,
    a_row_is_created_once,
    rows_come_back_whole,
    extreme_numbers_come_back,
    the_expected_row_is_replaced_as_a_whole,
    every_field_of_the_tuple_counts,
    evidence_counts_present_absent_and_changed,
    what_the_owner_tells_of_itself_does_not_count,
    a_holder_is_known_by_owner_and_version_alone,
    a_condition_on_a_missing_row_is_refused_without_a_row,
    a_released_row_stands_with_its_version,
    of_many_who_create_exactly_one_is_written,
    of_many_who_claim_one_tuple_exactly_one_is_written,
    a_renewal_and_a_takeover_exclude_each_other,
    keys_do_not_touch_each_other,
    the_list_holds_every_lease_and_no_member,
    a_list_longer_than_a_page_misses_nothing,
    members_come_back_whole,
    a_members_record_is_replaced,
    a_removed_member_is_gone,
    members_of_bridges_with_similar_names_are_kept_apart,
    creating_again_creates_nothing_and_loses_nothing,
}

type Store = Arc<dyn Leases>;

const KEY: &str = "LEASE#plant-1";

/// How many contenders a race has.
const CONTENDERS: u64 = 32;

/// How often a race of two is run: either order of the two must be met.
const ROUNDS: u64 = 24;

fn tuple(owner: &str, version: u64, renewed_at: u64) -> Tuple {
    Tuple { owner: owner.to_owned(), version, renewed_at: UnixMillis(renewed_at), expires_at: UnixMillis(renewed_at + 45_000) }
}

fn row(owner: &str, version: u64, renewed_at: u64) -> LeaseRow {
    LeaseRow {
        tuple: tuple(owner, version, renewed_at),
        acquired_at: UnixMillis(1_700_000_000_000),
        evidence: None,
        facts: OwnerFacts::default(),
    }
}

fn evidence() -> Evidence {
    Evidence { fingerprint: "ab".repeat(32), elapsed_ns: 12_345_678_901, generation: 3 }
}

fn facts() -> OwnerFacts {
    OwnerFacts {
        endpoints: [
            ("monitor".to_owned(), "http://10.0.3.17:8081".to_owned()),
            ("transport".to_owned(), "http://[fd00::17]:8082".to_owned()),
            ("Grüße # . :x".to_owned(), String::new()),
        ]
        .into(),
        az: Some("eu-west-1b".to_owned()),
        task_arn: Some("arn:aws:ecs:eu-west-1:000000000000:task/plant/0123456789abcdef".to_owned()),
        service_level: Some("full".to_owned()),
        service_level_since: Some(UnixMillis(1_700_000_004_321)),
        left_because: Some("broker_path".to_owned()),
        left_since: Some(UnixMillis(1_700_000_004_000)),
    }
}

fn released(row: &LeaseRow) -> LeaseRow {
    LeaseRow { tuple: Tuple { owner: String::new(), expires_at: UnixMillis(0), ..row.tuple.clone() }, ..row.clone() }
}

fn exactly(row: &LeaseRow) -> Condition {
    Condition::Exactly { tuple: row.tuple.clone(), evidence: row.evidence.clone() }
}

fn held(row: &LeaseRow) -> Condition {
    Condition::Held { owner: row.tuple.owner.clone(), version: row.tuple.version }
}

async fn read(store: &Store, key: &str) -> Option<LeaseRow> {
    store.read(key).await.unwrap().map(|raw| LeaseRow::try_from(raw).unwrap())
}

async fn write(store: &Store, key: &str, condition: Condition, row: &LeaseRow) -> LeaseAnswer {
    done(store.write(key, &LeaseWrite { condition, row: row.clone() }).await, "a conditional write")
}

async fn written(store: &Store, key: &str, condition: Condition, row: &LeaseRow) {
    assert_eq!(write(store, key, condition.clone(), row).await, LeaseAnswer::Written, "{condition:?}");
    assert_eq!(read(store, key).await.as_ref(), Some(row));
}

/// The write is refused, shows what stands, and changes nothing.
async fn refused(store: &Store, key: &str, condition: Condition, standing: Option<&LeaseRow>) {
    let attempt =
        LeaseRow { facts: OwnerFacts { az: Some("of the refused".to_owned()), ..OwnerFacts::default() }, ..row("refused#0", 900, 900) };
    let LeaseAnswer::Refused(shown) = write(store, key, condition.clone(), &attempt).await else { panic!("written under {condition:?}") };
    assert_eq!(shown.map(|raw| LeaseRow::try_from(raw).unwrap()).as_ref(), standing, "{condition:?}");
    assert_eq!(read(store, key).await.as_ref(), standing, "a refused write changes nothing");
}

async fn a_key_that_was_never_written_has_no_row(store: Store) {
    assert_eq!(store.read(KEY).await.unwrap(), None);
    assert!(store.list().await.unwrap().is_empty());
    assert!(store.list_members("plant").await.unwrap().is_empty());
    store.probe().await.unwrap();
}

async fn a_row_is_created_once(store: Store) {
    let first = row("a#1", 1, 1_000);
    written(&store, KEY, Condition::Absent, &first).await;
    refused(&store, KEY, Condition::Absent, Some(&first)).await;
    // Not even the same row again: who lost an answer reads.
    assert!(matches!(write(&store, KEY, Condition::Absent, &first).await, LeaseAnswer::Refused(Some(_))));
}

async fn rows_come_back_whole(store: Store) {
    let plain = row("worker-1#7f", 4, 1_700_000_000_000);
    let one = OwnerFacts { endpoints: [("monitor".to_owned(), "x".to_owned())].into(), ..OwnerFacts::default() };
    let rows = [
        plain.clone(),
        LeaseRow { facts: facts(), ..plain.clone() },
        LeaseRow { evidence: Some(evidence()), ..plain.clone() },
        LeaseRow { evidence: Some(evidence()), facts: facts(), ..plain.clone() },
        LeaseRow { evidence: Some(Evidence { fingerprint: String::new(), elapsed_ns: 0, generation: 0 }), ..plain.clone() },
        LeaseRow { facts: OwnerFacts { service_level: Some(String::new()), ..OwnerFacts::default() }, ..plain.clone() },
        LeaseRow { facts: one, acquired_at: UnixMillis(0), ..plain.clone() },
        released(&LeaseRow { facts: facts(), evidence: Some(evidence()), ..plain }),
    ];
    for (nth, row) in rows.iter().enumerate() {
        written(&store, &format!("LEASE#{nth}"), Condition::Absent, row).await;
    }
}

async fn extreme_numbers_come_back(store: Store) {
    // The largest number is no valid version or time (it could not be raised), the one before it is.
    const MOST: u64 = u64::MAX - 1;
    let most = LeaseRow {
        tuple: Tuple { owner: "o#1".to_owned(), version: MOST, renewed_at: UnixMillis(MOST - 1), expires_at: UnixMillis(MOST) },
        acquired_at: UnixMillis(MOST),
        evidence: Some(Evidence { fingerprint: "f".to_owned(), elapsed_ns: MOST, generation: MOST }),
        facts: OwnerFacts { service_level_since: Some(UnixMillis(u64::MAX)), ..OwnerFacts::default() },
    };
    written(&store, KEY, Condition::Absent, &most).await;
    written(&store, KEY, exactly(&most), &most).await;
    written(&store, KEY, held(&most), &most).await;
    // Neighbours beyond what a double holds are told apart.
    let beside = LeaseRow { tuple: Tuple { version: MOST - 1, ..most.tuple.clone() }, ..most.clone() };
    refused(&store, KEY, exactly(&beside), Some(&most)).await;
    refused(&store, KEY, held(&beside), Some(&most)).await;
}

async fn the_expected_row_is_replaced_as_a_whole(store: Store) {
    let full = LeaseRow { evidence: Some(evidence()), facts: facts(), ..row("a#1", 1, 1_000) };
    written(&store, KEY, Condition::Absent, &full).await;
    // Nothing of the former row is left: neither evidence nor facts.
    let bare = row("b#1", 2, 50_000);
    written(&store, KEY, exactly(&full), &bare).await;
    refused(&store, KEY, exactly(&full), Some(&bare)).await;
    let observed = LeaseRow { evidence: Some(evidence()), ..bare.clone() };
    written(&store, KEY, exactly(&bare), &observed).await;
    let renewed = LeaseRow { tuple: tuple("b#1", 2, 60_000), facts: facts(), ..bare };
    written(&store, KEY, held(&observed), &renewed).await;
}

async fn every_field_of_the_tuple_counts(store: Store) {
    for stands in [row("a#1", 7, 1_000), released(&row("a#1", 7, 1_000)), LeaseRow { evidence: Some(evidence()), ..row("a#1", 7, 1_000) }] {
        let key = format!("LEASE#{}-{}", stands.tuple.owner, stands.evidence.is_some());
        written(&store, &key, Condition::Absent, &stands).await;
        let is = &stands.tuple;
        let others = [
            Tuple { owner: "a#2".to_owned(), ..is.clone() },
            Tuple { owner: "A#1".to_owned(), ..is.clone() },
            Tuple { version: is.version - 1, ..is.clone() },
            Tuple { version: is.version + 1, ..is.clone() },
            Tuple { renewed_at: UnixMillis(is.renewed_at.0 + 1), ..is.clone() },
            Tuple { renewed_at: UnixMillis(is.renewed_at.0 - 1), ..is.clone() },
            Tuple { expires_at: UnixMillis(is.expires_at.0 + 1), ..is.clone() },
        ];
        for tuple in others {
            refused(&store, &key, Condition::Exactly { tuple, evidence: stands.evidence.clone() }, Some(&stands)).await;
        }
        written(&store, &key, exactly(&stands), &row("b#1", 8, 2_000)).await;
    }
}

async fn evidence_counts_present_absent_and_changed(store: Store) {
    let bare = row("a#1", 7, 1_000);
    let observed = LeaseRow { evidence: Some(evidence()), ..bare.clone() };
    let other = |evidence| Condition::Exactly { tuple: bare.tuple.clone(), evidence };
    written(&store, KEY, Condition::Absent, &bare).await;
    refused(&store, KEY, exactly(&observed), Some(&bare)).await;
    written(&store, KEY, exactly(&bare), &observed).await;
    refused(&store, KEY, exactly(&bare), Some(&observed)).await;
    for changed in [
        Evidence { fingerprint: "cd".repeat(32), ..evidence() },
        Evidence { elapsed_ns: evidence().elapsed_ns + 1, ..evidence() },
        Evidence { elapsed_ns: evidence().elapsed_ns - 1, ..evidence() },
        Evidence { generation: evidence().generation + 1, ..evidence() },
        Evidence { generation: evidence().generation - 1, ..evidence() },
    ] {
        refused(&store, KEY, other(Some(changed)), Some(&observed)).await;
    }
    written(&store, KEY, exactly(&observed), &row("b#1", 8, 2_000)).await;
}

async fn what_the_owner_tells_of_itself_does_not_count(store: Store) {
    let stands = LeaseRow { facts: facts(), acquired_at: UnixMillis(5), ..row("a#1", 7, 1_000) };
    written(&store, KEY, Condition::Absent, &stands).await;
    // The condition is made from a row that another release wrote, with facts that this one does not keep.
    let condition = exactly(&LeaseRow { facts: OwnerFacts::default(), acquired_at: UnixMillis(6), ..stands });
    written(&store, KEY, condition, &row("b#1", 8, 2_000)).await;
}

async fn a_holder_is_known_by_owner_and_version_alone(store: Store) {
    let acquired = row("a#1", 7, 1_000);
    written(&store, KEY, Condition::Absent, &acquired).await;
    let observed = LeaseRow { evidence: Some(evidence()), ..acquired.clone() };
    written(&store, KEY, exactly(&acquired), &observed).await;
    // A renewal goes through over what observers wrote, and however much it looks expired.
    let renewed = LeaseRow { tuple: tuple("a#1", 7, 900_000), ..acquired };
    written(&store, KEY, held(&renewed), &renewed).await;
    refused(&store, KEY, Condition::Held { owner: "a#2".to_owned(), version: 7 }, Some(&renewed)).await;
    refused(&store, KEY, Condition::Held { owner: "a#1".to_owned(), version: 6 }, Some(&renewed)).await;
    refused(&store, KEY, Condition::Held { owner: "a#1".to_owned(), version: 8 }, Some(&renewed)).await;
    // The version goes up under the same owner: the log was ahead of it.
    let raised = LeaseRow { tuple: tuple("a#1", 40, 900_001), ..renewed.clone() };
    written(&store, KEY, held(&renewed), &raised).await;
    refused(&store, KEY, held(&renewed), Some(&raised)).await;
}

async fn a_condition_on_a_missing_row_is_refused_without_a_row(store: Store) {
    let nobody = row("a#1", 7, 1_000);
    refused(&store, KEY, exactly(&nobody), None).await;
    refused(&store, KEY, exactly(&LeaseRow { evidence: Some(evidence()), ..nobody.clone() }), None).await;
    refused(&store, KEY, exactly(&released(&nobody)), None).await;
    refused(&store, KEY, held(&nobody), None).await;
    assert!(store.list().await.unwrap().is_empty());
}

async fn a_released_row_stands_with_its_version(store: Store) {
    let owned = LeaseRow { facts: facts(), ..row("a#1", 7, 1_000) };
    written(&store, KEY, Condition::Absent, &owned).await;
    let free = released(&owned);
    written(&store, KEY, held(&owned), &free).await;
    // A renewal that was under way meanwhile does not revive it.
    refused(&store, KEY, held(&owned), Some(&free)).await;
    refused(&store, KEY, Condition::Absent, Some(&free)).await;
    written(&store, KEY, exactly(&free), &row("b#1", 8, 2_000)).await;
}

/// Lets everybody write at once; answers the rows that were written.
async fn race(store: &Store, key: &str, contenders: Vec<(Condition, LeaseRow)>) -> Vec<LeaseRow> {
    let start = Arc::new(tokio::sync::Barrier::new(contenders.len()));
    let mut tasks = Vec::new();
    for (condition, row) in contenders {
        let (store, start, key) = (Arc::clone(store), Arc::clone(&start), key.to_owned());
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            match write(&store, &key, condition, &row).await {
                LeaseAnswer::Written => Some(row),
                LeaseAnswer::Refused(standing) => {
                    assert!(standing.is_some(), "a loser is shown who won");
                    None
                }
            }
        }));
    }
    let mut winners = Vec::new();
    for task in tasks {
        winners.extend(task.await.unwrap());
    }
    winners
}

async fn of_many_who_create_exactly_one_is_written(store: Store) {
    let contenders = (0..CONTENDERS).map(|nth| (Condition::Absent, row(&format!("w{nth}#1"), 1, 1_000 + nth))).collect();
    let winners = race(&store, KEY, contenders).await;
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(read(&store, KEY).await.as_ref(), winners.first());
}

async fn of_many_who_claim_one_tuple_exactly_one_is_written(store: Store) {
    let mut stands = row("dead#1", 7, 1_000);
    written(&store, KEY, Condition::Absent, &stands).await;
    for round in 0..3 {
        // Observed, and then released: in every state only one may follow.
        let next = if round == 1 { released(&stands) } else { LeaseRow { evidence: Some(evidence()), ..stands.clone() } };
        written(&store, KEY, exactly(&stands), &next).await;
        stands = next;
        let claim = |nth| row(&format!("w{nth}#{round}"), stands.tuple.version + 1, 2_000 + nth);
        let winners = race(&store, KEY, (0..CONTENDERS).map(|nth| (exactly(&stands), claim(nth))).collect()).await;
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(read(&store, KEY).await.as_ref(), winners.first());
        stands = winners.into_iter().next().unwrap();
    }
}

async fn a_renewal_and_a_takeover_exclude_each_other(store: Store) {
    for round in 0..ROUNDS {
        let key = format!("LEASE#{round}");
        let stands = LeaseRow { evidence: Some(evidence()), ..row("a#1", 7, 1_000) };
        written(&store, &key, Condition::Absent, &stands).await;
        let mut contenders = vec![(held(&stands), row("a#1", 7, 2_000)), (exactly(&stands), row("b#1", 8, 3_000))];
        if round % 2 == 1 {
            contenders.reverse();
        }
        let winners = race(&store, &key, contenders).await;
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(read(&store, &key).await.as_ref(), winners.first());
    }
}

async fn keys_do_not_touch_each_other(store: Store) {
    let keys = ["LEASE#plant", "LEASE#plant-1", "LEASE#plant#", "LEASE#plant#1", "LEASE#log:plant", "LEASE#Plant", "LEASE#"];
    for (nth, key) in (0..).zip(keys) {
        written(&store, key, Condition::Absent, &row(&format!("{key}#x"), 1 + nth, 1_000)).await;
    }
    let moved = row("other#1", 99, 5_000);
    written(&store, keys[0], exactly(&row("LEASE#plant#x", 1, 1_000)), &moved).await;
    for (nth, key) in (0..).zip(keys).skip(1) {
        assert_eq!(read(&store, key).await, Some(row(&format!("{key}#x"), 1 + nth, 1_000)), "{key}");
    }
}

async fn the_list_holds_every_lease_and_no_member(store: Store) {
    let leases = vec![
        ("LEASE#a".to_owned(), LeaseRow { facts: facts(), evidence: Some(evidence()), ..row("x#1", 3, 1_000) }),
        ("LEASE#b".to_owned(), released(&row("x#1", 4, 1_000))),
        ("LEASE#log:b".to_owned(), row("y#1", 5, 1_000)),
    ];
    for (key, row) in leases.iter().rev() {
        written(&store, key, Condition::Absent, row).await;
    }
    done(store.put_member(&member("LEASE", "a")).await, "put_member");
    done(store.put_member(&member("plant", "x#1")).await, "put_member");
    let found: Vec<_> = store.list().await.unwrap().into_iter().map(|(key, raw)| (key, LeaseRow::try_from(raw).unwrap())).collect();
    assert_eq!(found, leases);
}

async fn a_list_longer_than_a_page_misses_nothing(store: Store) {
    // Together more than the megabyte that some stores answer at once.
    let long = OwnerFacts { endpoints: [("monitor".to_owned(), "x".repeat(60_000))].into(), ..OwnerFacts::default() };
    let mut expected = Vec::new();
    for nth in 0..24 {
        let key = format!("LEASE#{nth:02}");
        written(&store, &key, Condition::Absent, &LeaseRow { facts: long.clone(), ..row("x#1", 1 + nth, 1_000) }).await;
        done(store.put_member(&MemberRecord { facts: long.clone(), ..member("plant", &key) }).await, "put_member");
        expected.push(key);
    }
    let leases: Vec<_> = store.list().await.unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(leases, expected);
    let members: Vec<_> = store.list_members("plant").await.unwrap().into_iter().map(|member| member.owner).collect();
    assert_eq!(members, expected);
}

fn member(bridge: &str, owner: &str) -> MemberRecord {
    MemberRecord {
        bridge: bridge.to_owned(),
        owner: owner.to_owned(),
        role: "worker".to_owned(),
        facts: OwnerFacts::default(),
        sessions: [("plant.main".to_owned(), "full".to_owned()), ("Grüße # .".to_owned(), String::new())].into(),
        started_at: UnixMillis(1_700_000_000_000),
        written_at: UnixMillis(1_700_000_030_000),
    }
}

async fn members(store: &Store, bridge: &str) -> Vec<MemberRecord> {
    store.list_members(bridge).await.unwrap()
}

async fn members_come_back_whole(store: Store) {
    let all = [
        MemberRecord { facts: facts(), role: "control".to_owned(), ..member("plant", "a#1") },
        member("plant", "b#2"),
        MemberRecord { started_at: UnixMillis(0), written_at: UnixMillis(u64::MAX), ..member("plant", "i-0123456789#äöü") },
    ];
    for member in &all {
        done(store.put_member(member).await, "put_member");
    }
    assert_eq!(members(&store, "plant").await, all);
}

async fn a_members_record_is_replaced(store: Store) {
    done(store.put_member(&MemberRecord { facts: facts(), ..member("plant", "a#1") }).await, "put_member");
    // An older record replaces a newer one too: clocks of two hosts are not compared, and an owner has one writer.
    let later = MemberRecord { written_at: UnixMillis(5), role: "control".to_owned(), ..member("plant", "a#1") };
    done(store.put_member(&later).await, "put_member");
    assert_eq!(members(&store, "plant").await, [later]);
}

async fn a_removed_member_is_gone(store: Store) {
    done(store.put_member(&member("plant", "a#1")).await, "put_member");
    done(store.put_member(&member("plant", "b#1")).await, "put_member");
    for _ in 0..2 {
        done(store.remove_member("plant", "a#1").await, "remove_member");
        assert_eq!(members(&store, "plant").await, [member("plant", "b#1")]);
    }
    done(store.remove_member("elsewhere", "b#1").await, "remove_member");
    assert_eq!(members(&store, "plant").await, [member("plant", "b#1")]);
}

async fn members_of_bridges_with_similar_names_are_kept_apart(store: Store) {
    let bridges = ["plant", "plant-1", "plan", "Plant", "plant-10"];
    for bridge in bridges {
        for owner in ["a#1", "a#10", "plant#1"] {
            done(store.put_member(&member(bridge, owner)).await, "put_member");
        }
    }
    done(store.remove_member("plant", "a#1").await, "remove_member");
    for bridge in bridges {
        let owners: &[&str] = if bridge == "plant" { &["a#10", "plant#1"] } else { &["a#1", "a#10", "plant#1"] };
        let expected: Vec<_> = owners.iter().map(|owner| member(bridge, owner)).collect();
        assert_eq!(members(&store, bridge).await, expected, "{bridge}");
    }
    assert!(members(&store, "pl").await.is_empty());
}

async fn creating_again_creates_nothing_and_loses_nothing(store: Store) {
    written(&store, KEY, Condition::Absent, &row("a#1", 1, 1_000)).await;
    done(store.put_member(&member("plant", "a#1")).await, "put_member");
    assert!(store.create().await.unwrap().is_empty());
    store.probe().await.unwrap();
    assert_eq!(read(&store, KEY).await, Some(row("a#1", 1, 1_000)));
    assert_eq!(members(&store, "plant").await, [member("plant", "a#1")]);
}
