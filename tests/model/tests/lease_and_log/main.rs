//! A model of the lease composed with the log, checked exhaustively within bounds.
//!
//! The transitions are the core's own: [`Standby`](causeway_core::lease::standby::Standby), [`Holder`](causeway_core::lease::holder::Holder), and the
//! whole [`Owner`](causeway_core::worker::Owner) of a log with its writer. Requests and answers are separate; a call may be given up and still take
//! effect; a worker may crash; nobody is ever forced to act, so that every pause is among the runs. Where a clock stands still, or the lease table is
//! put back to an older copy while everybody runs, two believe at once that they own the session: what must hold all the same is the log's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod automaton;
mod flights;
mod lease;
mod log;
mod named;
mod protocol;
mod steps;

use automaton::Automaton;
use log::Mutant;
use protocol::{Begins, Composed};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

const LAWFUL: Composed = Composed {
    workers: 2,
    ttl: 1,
    horizon: 2,
    messages: 2,
    begins: Begins::Open,
    a_clock_stands_still: false,
    give_ups: 0,
    only_puts_are_given_up: false,
    crashes: 0,
    restores: 0,
    mutant: None,
};

/// The first worker's clock stands still: it acts for ever.
const STANDING_CLOCK: Composed = Composed { a_clock_stands_still: true, horizon: 1, messages: 3, ..LAWFUL };

/// Nobody owns the lease, its table may be put back to that, and so two owners may come to write under one epoch.
const RESTORED: Composed =
    Composed { begins: Begins::Released, a_clock_stands_still: true, horizon: 0, messages: 1, restores: 1, ..LAWFUL };

const SAFETY: [&str; 2] = ["never two that may act", "no rule of the log is broken"];

/// Explores up to `cap` states; answers which properties were decided: broken ones, and sights that were seen.
fn explore(name: &str, model: Composed, cap: usize) -> Vec<&'static str> {
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = model.checker().threads(threads).target_state_count(cap).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "{name}: {} states, {} of them unique ({}), depth {}, {} steps of owners computed, {:.1?}",
        checker.state_count(),
        checker.unique_state_count(),
        if checker.state_count() < cap { "all there are".to_owned() } else { format!("cap {cap}") },
        checker.max_depth(),
        Automaton::computed(),
        started.elapsed()
    );
    for property in SAFETY {
        if let Some(path) = checker.discovery(property) {
            let broken = path.last_state().log.broken;
            println!("  {property} ({broken:?}): {:?}", path.into_actions());
        }
    }
    checker.discoveries().into_keys().collect()
}

fn assert_holds(found: &[&'static str], sights: &[&str]) {
    assert!(!SAFETY.iter().any(|property| found.contains(property)), "broken: {found:?}");
    for sight in sights {
        assert!(found.contains(sight), "`{sight}` was never seen; {found:?} were");
    }
}

#[test]
fn two_workers_deep() {
    let found = explore("two workers", Composed { horizon: 1, messages: 1, ..LAWFUL }, 600_000);
    assert_holds(&found, &["taken over", "late request applied", "delivered by a successor", "everything arrived"]);
}

#[test]
fn two_workers_that_crash_and_give_up() {
    let found = explore(
        "two workers, a crash and a call given up",
        Composed { horizon: 1, messages: 1, give_ups: 1, only_puts_are_given_up: true, crashes: 1, ..LAWFUL },
        400_000,
    );
    assert_holds(&found, &["taken over", "late request applied"]);
}

#[test]
fn three_workers_shallow() {
    let found = explore("three workers", Composed { workers: 3, messages: 1, ..LAWFUL }, 200_000);
    assert_holds(&found, &["taken over"]);
}

#[test]
fn an_owner_whose_clock_stands_still_harms_nothing() {
    let found = explore("a clock that stands still", STANDING_CLOCK, 300_000);
    assert_holds(&found, &["taken over", "a put is refused", "an owner is fenced", "delivered by a successor"]);
}

#[test]
fn a_lease_table_that_is_put_back_under_its_owners_harms_nothing() {
    let found = explore("a lease table put back", RESTORED, 300_000);
    assert_holds(&found, &["taken over", "a put is refused", "an owner is fenced", "the lease is raised above the log"]);
}

// Every rule of the log that is left out has a counterexample here. Those of the lease (a claim without its condition, an observer that counts from before
// its read, an owner that stamps after the answer, evidence that is summed) concern the lease alone and have theirs in the model of the lease, beside this
// one; with the log below them they do no more than the clock that stands still, which is allowed for here. Anchors that are deleted, and acknowledgements
// before a put is answered, are in the model of the log (`outbox_log`), where any number of owners write at once: here the third owner that the former
// needs makes the exploration too deep. Parallel chunks and a head inside an entry cannot be expressed: the core has neither.
fn caught(mutant: Mutant, model: Composed) {
    let found = explore(&format!("without a rule, {mutant:?}"), Composed { mutant: Some(mutant), ..model }, 1_500_000);
    assert!(SAFETY.iter().any(|property| found.contains(property)), "{mutant:?} has no counterexample: {found:?}");
}

macro_rules! mutants {
    ($($name:ident: $mutant:ident, $model:expr;)*) => { $(#[test] fn $name() { caught(Mutant::$mutant, $model); })* };
}

mutants! {
    a_log_without_the_slot_condition_has_a_counterexample: NoSlotCondition, STANDING_CLOCK;
    an_anchor_that_is_not_confirmed_has_a_counterexample: NoConfirm, STANDING_CLOCK;
    a_tail_whose_epoch_is_not_looked_at_has_a_counterexample: NoEpoch, Composed { begins: Begins::Held, messages: 1, ..STANDING_CLOCK };
    deleting_the_tail_has_a_counterexample: DeleteTail, STANDING_CLOCK;
    deleting_before_the_head_is_durable_has_a_counterexample: DeleteBeforeHead, Composed { messages: 2, give_ups: 1, only_puts_are_given_up: true, ..STANDING_CLOCK };
    stepping_past_a_conflict_without_reading_again_has_a_counterexample: NoReread, STANDING_CLOCK;
    fencing_on_a_higher_epoch_only_has_a_counterexample: FencesOnHigherEpochOnly, RESTORED;
}
