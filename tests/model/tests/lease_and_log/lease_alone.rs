//! The lease without a log: renewals, releases, and workers that come back.

use crate::protocol::{Begins, Composed, Says, Without};
use crate::seen::Sight;
use crate::{holds, mutants};
use causeway_sim::reference::LeaseRule;
use std::sync::LazyLock;

/// Two workers that renew every second.
static BASE: LazyLock<Composed> = LazyLock::new(|| Composed {
    workers: 2,
    ttl: 2,
    horizon: 6,
    begins: Begins::Held,
    log: None,
    renews: true,
    at_once: false,
    a_clock_stands_still: false,
    give_ups: 1,
    only_puts_are_given_up: false,
    crashes: 0,
    come_back: true,
    releases: 0,
    restores: 0,
    testimony: Says::Nothing,
    without: None,
    seen: std::sync::Arc::default(),
});

/// Three that wait for an owner who is gone, with a long lease; what they ask is answered at once.
static OBSERVERS: LazyLock<Composed> = LazyLock::new(|| Composed {
    workers: 3,
    ttl: 8,
    horizon: 10,
    begins: Begins::OfNobodyHere,
    at_once: true,
    give_ups: 0,
    crashes: 1,
    ..BASE.clone()
});

/// An owner that may crash, and two that may ask what became of its task. Time is too short for any lease to run out.
static ASKED: LazyLock<Composed> = LazyLock::new(|| Composed {
    workers: 3,
    ttl: 4,
    horizon: 1,
    give_ups: 0,
    crashes: 1,
    come_back: false,
    renews: false,
    testimony: Says::TheTruth,
    ..BASE.clone()
});

#[test]
fn who_asks_what_became_of_the_owner_takes_over_from_the_dead_alone() {
    holds("who asks", ASKED.clone(), 600_000, &[Sight::TakenByTestimony]);
    let renewing = Composed { workers: 2, renews: true, horizon: 4, come_back: true, give_ups: 1, ..ASKED.clone() };
    holds("who asks about one that renews", renewing, 600_000, &[Sight::TakenByTestimony, Sight::LateRequestApplied]);
}

#[test]
fn two_workers_deep() {
    let sights = [Sight::TakenByExpiry, Sight::OwnClaimRecognised, Sight::LateRequestApplied, Sight::SteppedDown];
    holds("two workers", BASE.clone(), 1_000_000, &sights);
    holds("two workers, a longer lease", Composed { ttl: 3, ..BASE.clone() }, 500_000, &[Sight::OwnRenewalRecognised]);
}

#[test]
fn two_workers_that_crash_and_hand_over() {
    let model = Composed { crashes: 1, releases: 1, ..BASE.clone() };
    holds(
        "two workers, a crash and a release",
        model,
        800_000,
        &[Sight::TakenByExpiry, Sight::TakenAfterRelease, Sight::LateRequestApplied],
    );
}

#[test]
fn three_workers_shallow() {
    let model = Composed { workers: 3, horizon: 5, ..BASE.clone() };
    holds("three workers", model, 800_000, &[Sight::TakenByExpiry, Sight::SteppedDown]);
}

#[test]
fn observers_never_take_over_early_however_they_share_what_they_saw() {
    holds("three observers", OBSERVERS.clone(), 400_000, &[Sight::TakenByExpiry]);
}

mutants! {
    a_claim_without_its_condition_has_a_counterexample: Without::Lease(LeaseRule::ClaimsAreConditional), BASE.clone();
    an_observer_that_counts_from_before_its_read_has_a_counterexample: Without::Lease(LeaseRule::ObserversCountFromTheAnswer), BASE.clone();
    an_owner_that_stamps_after_the_answer_has_a_counterexample: Without::Lease(LeaseRule::OwnersStampBeforeSending), BASE.clone();
    evidence_that_is_summed_has_a_counterexample: Without::Lease(LeaseRule::EvidenceIsNotSummed), OBSERVERS.clone();
    a_row_that_is_read_after_the_question_has_a_counterexample: Without::Lease(LeaseRule::RowsAreReadBeforeTheQuestion), ASKED.clone();
    a_claim_upon_testimony_without_its_condition_has_a_counterexample: Without::Lease(LeaseRule::ClaimsAreConditional), ASKED.clone();
    a_task_that_is_to_stop_and_counts_as_stopped_has_a_counterexample: Without::Lease(LeaseRule::OnlyStoppedCounts), ASKED.clone();
}
