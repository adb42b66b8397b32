//! The program's own loop ([`run_session`](causeway_worker::run::run_session)) in several hosts at once, under a runtime whose time jumps.
//!
//! Hosts crash (their future is dropped wherever it is), sleep (they are not polled while time goes on), stop, and lose answers; the doubles of the ports
//! are shared by all of them. A ledger sees every effect begin: none without the lease, and no acknowledgement of what is not durable.
//!
//! `SHELL_SEEDS=17,100..200 cargo test -p causeway-shell` runs just those seeds. A seed draws the faults, the clocks, the ids and the jitter: the same
//! seed is the same run, call for call.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod ports;
mod scenarios;
mod world;

use std::time::Instant;
use world::{Played, play};

const SEEDS: u64 = 300;

/// Runs on a runtime whose time jumps to the next deadline whenever nobody has anything to do.
fn on_paused_time<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work)
}

fn run(seed: u64) -> Played {
    on_paused_time(play(seed, 100))
}

#[test]
fn a_clock_that_no_lease_allows_for_is_noticed() {
    let noticed = |seed: &u64| !on_paused_time(play(*seed, 30)).violations.is_empty();
    assert!((0..100).any(|seed| noticed(&seed)), "the ledger sees nothing");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let traces: Vec<u64> = (0..6).map(|seed| run(seed).trace).collect();
    for (seed, trace) in (0..6).zip(&traces) {
        let again = run(seed);
        assert_eq!(again.trace, *trace, "seed {seed}");
    }
    let different: std::collections::BTreeSet<&u64> = traces.iter().collect();
    assert_eq!(different.len(), traces.len(), "other seeds are other runs");
}

fn seeds() -> Vec<u64> {
    let Ok(text) = std::env::var("SHELL_SEEDS") else { return (0..SEEDS).collect() };
    let number = |text: &str| text.trim().parse::<u64>().expect("SHELL_SEEDS: seeds and ranges");
    text.split(',')
        .flat_map(|part| match part.split_once("..") {
            Some((from, to)) => (number(from)..number(to)).collect::<Vec<_>>(),
            None => vec![number(part)],
        })
        .collect()
}

#[test]
fn hosts_that_crash_sleep_and_lose_answers_lose_nothing_and_never_act_without_the_lease() {
    let started = Instant::now();
    let (mut all, mut failed) = (Played::default(), Vec::new());
    let seeds = seeds();
    for seed in &seeds {
        let played = run(*seed);
        failed.extend(played.violations.first().map(|violation| format!("SHELL_SEEDS={seed}: {violation}")));
        all.holders += played.holders;
        all.acts += played.acts;
        all.refused_puts += played.refused_puts;
        all.acknowledged += played.acknowledged;
        all.repeated += played.repeated;
        all.crashes += played.crashes;
        all.pauses += played.pauses;
        all.stops += played.stops;
        all.lost += played.lost;
        all.disconnects += played.disconnects;
    }
    println!("{} seeds in {:.1?}: {all:?}", seeds.len(), started.elapsed());
    assert!(failed.is_empty(), "{} seeds failed:\n{}", failed.len(), failed[..failed.len().min(20)].join("\n"));
    if seeds.len() as u64 >= SEEDS {
        for (count, what) in [
            (all.holders - seeds.len() as u64, "take-overs"),
            (all.repeated as u64, "repeats"),
            (all.crashes, "crashes"),
            (all.pauses, "pauses"),
            (all.stops, "stops"),
            (all.lost, "lost answers"),
            (all.disconnects, "disconnects"),
        ] {
            assert!(count > 0, "a batch without {what} proves nothing");
        }
    }
}
