//! The lease and the log under it.

use crate::protocol::{Begins, Composed, Says, Without};
use crate::seen::Sight;
use crate::{holds, mutants};
use causeway_sim::reference::{LeaseRule, LogRule};
use std::sync::LazyLock;

/// The first of two owns the lease and its log is open; another may take it over after a second.
static LAWFUL: LazyLock<Composed> = LazyLock::new(|| Composed {
    workers: 2,
    ttl: 1,
    horizon: 1,
    begins: Begins::Open,
    log: Some(1),
    renews: false,
    at_once: false,
    a_clock_stands_still: false,
    give_ups: 0,
    only_puts_are_given_up: false,
    crashes: 0,
    come_back: false,
    releases: 0,
    restores: 0,
    testimony: Says::Nothing,
    without: None,
    seen: std::sync::Arc::default(),
});

/// The first worker's clock stands still: it acts for ever.
static STANDING_CLOCK: LazyLock<Composed> = LazyLock::new(|| Composed { a_clock_stands_still: true, log: Some(3), ..LAWFUL.clone() });

/// Nobody owns the lease, its table may be put back to that, and so two owners may come to write under one epoch.
static RESTORED: LazyLock<Composed> =
    LazyLock::new(|| Composed { begins: Begins::Released, a_clock_stands_still: true, horizon: 0, restores: 1, ..LAWFUL.clone() });

/// Nobody owns the lease at first.
static RELEASED: LazyLock<Composed> = LazyLock::new(|| Composed { begins: Begins::Released, ..LAWFUL.clone() });

/// The owner falls silent under a long lease, and two watch it; what they ask of the lease is answered at once.
static WATCHED: LazyLock<Composed> =
    LazyLock::new(|| Composed { workers: 3, ttl: 8, horizon: 8, log: Some(0), at_once: true, ..LAWFUL.clone() });

#[test]
fn two_workers_deep() {
    let sights = [Sight::TakenByExpiry, Sight::LateRequestApplied, Sight::DeliveredByASuccessor, Sight::EverythingArrived];
    holds("two workers", LAWFUL.clone(), 600_000, &sights);
}

#[test]
fn two_workers_that_crash_and_give_up() {
    let model = Composed { give_ups: 1, only_puts_are_given_up: true, crashes: 1, ..LAWFUL.clone() };
    holds("two workers, a crash and a put given up", model, 400_000, &[Sight::TakenByExpiry, Sight::LateRequestApplied]);
}

#[test]
fn three_workers_shallow() {
    let model = Composed { workers: 3, horizon: 2, ..LAWFUL.clone() };
    holds("three workers", model, 200_000, &[Sight::TakenByExpiry]);
}

#[test]
fn an_owner_whose_clock_stands_still_harms_nothing() {
    let sights = [Sight::TakenByExpiry, Sight::PutRefused, Sight::Fenced, Sight::DeliveredByASuccessor];
    holds("a clock that stands still", STANDING_CLOCK.clone(), 300_000, &sights);
}

#[test]
fn an_orchestrator_that_lies_about_the_owner_harms_nothing() {
    let model = Composed { ttl: 2, testimony: Says::AllHaveStopped, log: Some(2), ..LAWFUL.clone() };
    let sights = [Sight::TakenByTestimony, Sight::PutRefused, Sight::Fenced, Sight::DeliveredByASuccessor];
    holds("an orchestrator that lies", model, 300_000, &sights);
}

#[test]
fn a_lease_table_that_is_put_back_under_its_owners_harms_nothing() {
    let sights = [Sight::TakenAfterRelease, Sight::PutRefused, Sight::Fenced, Sight::Raised];
    holds("a lease table put back", RESTORED.clone(), 300_000, &sights);
}

// Anchors that are deleted, and acknowledgements before a put is answered, are in the model of the log (`outbox_log`), where any number of owners write
// at once: here the third owner that the former needs makes the exploration too deep. Parallel chunks and a head inside an entry cannot be expressed: the
// core has neither.
mutants! {
    a_log_without_the_slot_condition_has_a_counterexample: Without::Log(LogRule::SlotCondition), STANDING_CLOCK.clone();
    an_anchor_that_is_not_confirmed_has_a_counterexample: Without::Log(LogRule::Confirm), STANDING_CLOCK.clone();
    a_tail_whose_epoch_is_not_looked_at_has_a_counterexample:
        Without::Log(LogRule::Epoch), Composed { begins: Begins::Held, log: Some(1), ..STANDING_CLOCK.clone() };
    deleting_the_tail_has_a_counterexample: Without::Log(LogRule::KeepTail), STANDING_CLOCK.clone();
    deleting_before_the_head_is_durable_has_a_counterexample:
        Without::Log(LogRule::HeadFirst), Composed { log: Some(2), give_ups: 1, only_puts_are_given_up: true, ..STANDING_CLOCK.clone() };
    stepping_past_a_conflict_without_reading_again_has_a_counterexample: Without::Log(LogRule::Reread), STANDING_CLOCK.clone();
    fencing_on_a_higher_epoch_only_has_a_counterexample: Without::Log(LogRule::FenceOnAnyEpoch), RESTORED.clone();
    a_claim_without_its_condition_has_a_counterexample: Without::Lease(LeaseRule::ClaimsAreConditional), RELEASED.clone();
    an_observer_that_counts_from_before_its_read_has_a_counterexample: Without::Lease(LeaseRule::ObserversCountFromTheAnswer), RELEASED.clone();
    an_owner_that_stamps_after_the_answer_has_a_counterexample: Without::Lease(LeaseRule::OwnersStampBeforeSending), RELEASED.clone();
    evidence_that_is_summed_has_a_counterexample: Without::Lease(LeaseRule::EvidenceIsNotSummed), WATCHED.clone();
}
