//! The program's own loop ([`run_session`](causeway_worker::run::run_session)) in several hosts at once, under a runtime whose time jumps.
//!
//! Hosts crash (their future is dropped wherever it is), sleep (they are not polled while time goes on), stop, and lose answers; the doubles of the ports
//! are shared by all of them. A ledger sees every effect begin: none without the lease, and no acknowledgement of what is not durable.
//!
//! `SHELL_SEEDS=17,100..200 cargo test -p causeway-shell --features paused` runs just those. What a seed draws is the faults; the ids and the jitter of the
//! hosts come from the operating system, so that a seed may need to be run several times to fail again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod ports;
mod world;

use std::time::Instant;
use world::{Played, play};

const SEEDS: u64 = 300;

fn run(seed: u64) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(seed))
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
            (all.refused_puts, "refused puts"),
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
