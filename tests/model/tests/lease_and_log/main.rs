//! A model of the lease, alone and composed with the log that is written under it, checked exhaustively within bounds.
//!
//! The transitions are the core's own: [`Standby`](causeway_core::lease::standby::Standby), [`Holder`](causeway_core::lease::holder::Holder), and the
//! whole [`Owner`](causeway_core::worker::Owner) of a log with its writer. Requests and answers are separate; a call may be given up and still take
//! effect; a worker may crash; nobody is ever forced to act, so that every pause is among the runs. The wall clock stands still. Where a boot clock
//! stands still too, or the lease table is put back to an older copy while everybody runs, two believe at once that they own the session: what must
//! hold all the same is the log's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod automaton;
mod composed;
mod flights;
mod lease;
mod lease_alone;
mod log;
mod named;
mod protocol;
mod seen;
mod steps;

use automaton::Automaton;
use protocol::{Composed, Without};
use seen::{Seen, Sight};
use stateright::{Checker, HasDiscoveries, Model};
use std::sync::Arc;
use std::time::Instant;

/// Explores up to `cap` states; answers what was broken, if anything was.
fn explore(name: &str, model: Composed, cap: usize) -> Option<String> {
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
    checker.discoveries().into_iter().next().map(|(property, path)| {
        let state = path.last_state();
        let detail = state.log.broken().or(state.broken).unwrap_or_default();
        let steps = path.into_actions();
        format!("not so: {property}; {detail}; {} steps: {steps:?}", steps.len())
    })
}

/// Nothing is broken, and these were seen.
fn holds(name: &str, model: Composed, cap: usize, sights: &[Sight]) {
    let seen = Arc::new(Seen::default());
    let broken = explore(name, Composed { seen: Arc::clone(&seen), ..model }, cap);
    assert_eq!(broken, None, "{name}");
    let missing: Vec<&Sight> = sights.iter().filter(|sight| !seen.has(**sight)).collect();
    assert!(missing.is_empty(), "{name}: never seen: {missing:?}");
}

/// The rule that is left out has a counterexample, and the model holds with it.
fn caught(without: Without, model: Composed, cap: usize) {
    let broken = explore(&format!("without {without:?}"), Composed { without: Some(without), ..model }, cap);
    println!("  {}", broken.unwrap_or_else(|| panic!("{without:?} has no counterexample")));
}

macro_rules! mutants {
    ($($name:ident: $without:expr, $model:expr;)*) => { $(#[test] fn $name() { crate::caught($without, $model, 1_500_000); })* };
}
pub(crate) use mutants;
