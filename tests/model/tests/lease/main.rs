//! A model of the lease, checked exhaustively within bounds: every order in which requests, answers, seconds and crashes may come.
//!
//! The transitions are the core's own [`Standby`](causeway_core::lease::standby::Standby) and [`Holder`](causeway_core::lease::holder::Holder). A request
//! and its answer are separate messages; a call may be given up and still take effect later; nobody is ever forced to act, so that every pause is among
//! the runs. The wall clock stands still.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod protocol;
mod steps;

use protocol::{Lease, Mutant};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

const BASE: Lease =
    Lease { workers: 2, ttl: 2, horizon: 6, give_ups: 1, crashes: 0, releases: 0, owner_is_gone: false, at_once: false, mutant: None };

/// Explores up to `cap` states; answers which properties were decided: broken ones, and sights that were seen.
fn explore(name: &str, model: Lease, cap: usize, depth: usize) -> Vec<&'static str> {
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = model
        .checker()
        .threads(threads)
        .target_state_count(cap)
        .target_max_depth(depth)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!(
        "{name}: {} states, {} of them unique (cap {cap}), depth {} (at most {depth}), {:.1?}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        started.elapsed()
    );
    let mut found: Vec<&'static str> = checker.discoveries().into_keys().collect();
    found.sort_unstable();
    for property in found.iter().filter(|name| name.starts_with("n")) {
        let path = checker.discovery(property).unwrap();
        println!("  {property}: {:?}", path.into_actions());
    }
    found
}

const SAFETY: [&str; 2] = ["never two that may act", "no rule of the row is broken"];

fn assert_holds(found: &[&'static str], sights: &[&str]) {
    assert!(!SAFETY.iter().any(|property| found.contains(property)), "broken: {found:?}");
    for sight in sights {
        assert!(found.contains(sight), "`{sight}` was never seen; {found:?} were");
    }
}

#[test]
fn two_workers_deep() {
    let found = explore("two workers", BASE, 1_200_000, 60);
    assert_holds(&found, &["taken by expiry", "own claim recognised", "late request applied", "stepped down"]);
    let found = explore("two workers, a longer lease", Lease { ttl: 3, ..BASE }, 500_000, 60);
    assert_holds(&found, &["own renewal recognised"]);
}

#[test]
fn two_workers_that_crash_and_hand_over() {
    let found = explore("two workers, a crash and a release", Lease { crashes: 1, releases: 1, ..BASE }, 800_000, 60);
    assert_holds(&found, &["taken by expiry", "taken after release", "late request applied"]);
}

#[test]
fn three_workers_shallow() {
    let found = explore("three workers", Lease { workers: 3, horizon: 5, ..BASE }, 800_000, 60);
    assert_holds(&found, &["taken by expiry", "stepped down"]);
}

/// Three that wait for an owner who is gone, with a long lease; what they ask is answered at once.
const OBSERVERS: Lease = Lease { workers: 3, ttl: 8, horizon: 10, owner_is_gone: true, at_once: true, give_ups: 0, crashes: 1, ..BASE };

#[test]
fn observers_never_take_over_early_however_they_share_what_they_saw() {
    let found = explore("three observers", OBSERVERS, 400_000, 60);
    assert_holds(&found, &["taken by expiry"]);
}

#[test]
fn each_rule_that_is_left_out_has_a_counterexample() {
    for (mutant, model, broken) in [
        (Mutant::UnconditionalTakeover, BASE, SAFETY.as_slice()),
        (Mutant::ObserverCountsFromBeforeRead, BASE, &SAFETY),
        (Mutant::OwnerStampsAfterAnswer, BASE, &SAFETY[..1]),
        (Mutant::EvidenceIsSummed, OBSERVERS, &SAFETY[1..]),
    ] {
        let found = explore(&format!("without a rule, {mutant:?}"), Lease { mutant: Some(mutant), ..model }, 2_500_000, 60);
        assert!(broken.iter().any(|property| found.contains(property)), "{mutant:?} has no counterexample: {found:?}");
    }
}
