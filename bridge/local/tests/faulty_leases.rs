//! Leases and managed subscriptions with injected faults: the store inside where nothing is injected, and what was injected otherwise.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use causeway_core::lease::row::{LeaseRow, OwnerFacts, Tuple};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_local::memory::{MemoryLeases, MemoryManagedSubscriptions};
use causeway_ports::fake::{FaultyLeases, FaultySubscriptions, Injection, LeaseCall, SubscriptionCall};
use causeway_ports::{Leases, ManagedSubscriptions};
use std::collections::BTreeSet;
use std::sync::Arc;

mod leases_without_injections {
    use super::{FaultyLeases, MemoryLeases};
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::Leases>, ()) {
        (Arc::new(FaultyLeases::new(MemoryLeases::new())), ())
    }
    causeway_ports::leases_conformance!(fresh);
}

mod subscriptions_without_injections {
    use super::{FaultySubscriptions, MemoryManagedSubscriptions};
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::ManagedSubscriptions>, ()) {
        (Arc::new(FaultySubscriptions::new(MemoryManagedSubscriptions::new())), ())
    }
    causeway_ports::managed_subscriptions_conformance!(fresh);
}

const KEY: &str = "LEASE#s";

fn fault() -> Fault {
    Fault::new(FaultCode::Timeout, "no answer in time")
}

fn row(owner: &str, version: u64) -> LeaseRow {
    LeaseRow {
        tuple: Tuple { owner: owner.to_owned(), version, renewed_at: UnixMillis(1_000), expires_at: UnixMillis(46_000) },
        acquired_at: UnixMillis(1_000),
        evidence: None,
        facts: OwnerFacts::default(),
    }
}

fn create(owner: &str) -> LeaseWrite {
    LeaseWrite { condition: Condition::Absent, row: row(owner, 1) }
}

async fn owner(store: &FaultyLeases<MemoryLeases>) -> Option<String> {
    store.inner().read(KEY).await.unwrap().and_then(|row| row.owner)
}

#[tokio::test]
async fn writes_get_lost_in_every_way() {
    let store = FaultyLeases::new(MemoryLeases::new());
    store.inject_next(LeaseCall::Write, Injection::Refuse(fault()));
    assert_eq!(store.write(KEY, &create("a#1")).await, Outcome::NotDone(fault()));
    store.inject_next(LeaseCall::Write, Injection::LoseRequest(fault()));
    assert_eq!(store.write(KEY, &create("b#1")).await, Outcome::Unknown(fault()));
    assert_eq!(owner(&store).await, None);
    store.inject_next(LeaseCall::Write, Injection::LoseAnswer(fault()));
    assert_eq!(store.write(KEY, &create("c#1")).await, Outcome::Unknown(fault()));
    assert_eq!(owner(&store).await.as_deref(), Some("c#1"));
    store.inject_next(LeaseCall::Read, Injection::LoseAnswer(fault()));
    assert_eq!(store.read(KEY).await, Err(fault()));
    assert_eq!((store.calls(LeaseCall::Write), store.calls(LeaseCall::Read)), (3, 1));
}

/// The renewal that arrives after the release: its condition, not its time of sending, decides.
#[tokio::test]
async fn a_write_that_arrives_late_meets_what_stands_then() {
    let store = FaultyLeases::new(MemoryLeases::new());
    store.write(KEY, &create("a#1")).await.done().unwrap();
    let held = Condition::Held { owner: "a#1".to_owned(), version: 1 };
    store.inject_next(LeaseCall::Write, Injection::ApplyLate(fault()));
    let renewal = LeaseWrite { condition: held.clone(), row: row("a#1", 1) };
    assert_eq!(store.write(KEY, &renewal).await, Outcome::Unknown(fault()));
    let tuple = Tuple { owner: String::new(), expires_at: UnixMillis(0), ..row("a#1", 1).tuple };
    let release = LeaseWrite { condition: held, row: LeaseRow { tuple, ..row("a#1", 1) } };
    assert_eq!(store.write(KEY, &release).await, Outcome::Done(LeaseAnswer::Written));
    assert_eq!(store.apply_late().await, 1);
    assert_eq!(owner(&store).await.as_deref(), Some(""), "a late renewal does not revive a released lease");
    assert_eq!(store.apply_late().await, 0);
}

#[tokio::test]
async fn a_held_call_waits_until_it_is_released() {
    let store = Arc::new(FaultyLeases::new(MemoryLeases::new()));
    store.inject_next(LeaseCall::Write, Injection::Hold);
    let held = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.write(KEY, &create("a#1")).await }
    });
    store.held_at_least(1).await;
    assert_eq!(owner(&store).await, None);
    store.release();
    assert_eq!(held.await.unwrap(), Outcome::Done(LeaseAnswer::Written));
    assert_eq!(owner(&store).await.as_deref(), Some("a#1"));
}

#[tokio::test]
async fn subscriptions_get_lost_in_every_way() {
    let store = FaultySubscriptions::new(MemoryManagedSubscriptions::new());
    let set = |filter: &str| BTreeSet::from([filter.to_owned()]);
    store.inject_next(SubscriptionCall::Seed, Injection::LoseAnswer(fault()));
    assert_eq!(store.seed("s", &set("a")).await, Outcome::Unknown(fault()));
    store.inject_next(SubscriptionCall::Remember, Injection::Refuse(fault()));
    assert_eq!(store.remember("s", &set("b")).await, Outcome::NotDone(fault()));
    store.inject_next(SubscriptionCall::Forget, Injection::ApplyLate(fault()));
    let generation = store.remember("s", &BTreeSet::new()).await.done().unwrap().unwrap();
    assert_eq!(store.forget("s", "a", generation).await, Outcome::Unknown(fault()));
    assert_eq!(store.load("s").await.unwrap(), Some(set("a")));
    assert_eq!(store.apply_late().await, 1);
    assert_eq!(store.load("s").await.unwrap(), Some(BTreeSet::new()));
    store.inject(SubscriptionCall::Load, 1, 1, Injection::Refuse(fault()));
    assert!(store.load("s").await.is_ok());
    assert_eq!(store.load("s").await, Err(fault()));
    store.inject(SubscriptionCall::Load, 0, 5, Injection::Refuse(fault()));
    store.heal();
    assert!(store.load("s").await.is_ok());
}
