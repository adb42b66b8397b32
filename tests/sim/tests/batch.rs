//! Batches of seeds.
//!
//! `SIM_SEEDS=17,100..200 cargo test -p causeway-sim --test batch seeds_hold -- --nocapture` runs just those; `SIM_FROM=random` runs a batch that nobody
//! ran before, and prints where it began. With `SIM_KEEP=1` seeds that fail are added to the corpus.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use causeway_sim::faults::Knobs;
use causeway_sim::reference::{LeaseRule, LogRule};
use causeway_sim::rng::Rng;
use causeway_sim::seen::{Seen, Sight};
use causeway_sim::single::Single;
use causeway_sim::{Mutant, Report, run, run_mutant, run_with};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Seeds of a batch.
const BATCH: u64 = 3_000;
/// No seed begins later than this after the batch did, so that a slow machine still ends in time, with fewer seeds.
const LONGEST: Duration = Duration::from_secs(45);

/// What a batch of runs came to.
#[derive(Default)]
struct Batch {
    runs: u64,
    events: u64,
    simulated: u64,
    seen: Seen,
    violations: Vec<(u64, String)>,
}

impl Batch {
    fn add(&mut self, report: Report) {
        self.runs += 1;
        self.events += report.events;
        self.simulated += report.simulated;
        self.seen.add(&report.seen);
        self.violations.extend(report.violation.map(|violation| (report.seed, violation)));
    }
}

/// Runs seeds on every core, until the time is up.
fn on_all_cores(seeds: impl IntoIterator<Item = u64>, longest: Duration, run: impl Fn(u64) -> Report + Sync) -> Batch {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    let (next, batch) = (AtomicU64::new(0), Mutex::new(Batch::default()));
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while started.elapsed() < longest {
                    let Some(seed) = seeds.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap()) else { break };
                    let report = run(*seed);
                    batch.lock().unwrap().add(report);
                }
            });
        }
    });
    let mut batch = batch.into_inner().unwrap();
    batch.violations.sort();
    let minutes = batch.simulated / 60_000_000_000;
    println!(
        "{} seeds, {} events, {minutes} simulated minutes in {:.1?} on {threads} threads",
        batch.runs,
        batch.events,
        started.elapsed()
    );
    batch
}

/// Seeds from a text such as `17,100..200`.
fn seeds_of(text: &str) -> Vec<u64> {
    let number = |text: &str| text.trim().parse::<u64>().expect("a seed");
    text.split(',')
        .flat_map(|part| match part.split_once("..") {
            Some((from, to)) => (number(from)..number(to)).collect::<Vec<_>>(),
            None => vec![number(part)],
        })
        .collect()
}

fn assert_none(violations: &[(u64, String)]) {
    let lines: Vec<String> = violations.iter().take(20).map(|(seed, violation)| format!("SIM_SEEDS={seed}: {violation}")).collect();
    assert!(violations.is_empty(), "{} seeds failed:\n{}", violations.len(), lines.join("\n"));
}

/// Adds seeds that failed to the corpus, which runs with every batch, where `SIM_KEEP` is set.
fn keep(violations: &[(u64, String)]) {
    if std::env::var_os("SIM_KEEP").is_none() || violations.is_empty() {
        return;
    }
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/seeds.txt");
    let mut file = std::fs::OpenOptions::new().append(true).open(corpus).unwrap();
    for (seed, violation) in violations.iter().take(20) {
        std::io::Write::write_all(&mut file, format!("{seed} # {}\n", violation.replace('\n', " ")).as_bytes()).unwrap();
    }
}

#[test]
fn seeds_hold_every_invariant_and_a_batch_meets_everything() {
    if let Ok(text) = std::env::var("SIM_SEEDS") {
        let batch = on_all_cores(seeds_of(&text), Duration::MAX, run);
        println!("{}", batch.seen);
        return assert_none(&batch.violations);
    }
    let from = match std::env::var("SIM_FROM").as_deref() {
        Ok("random") => Rng::new(u64::from(std::process::id()) ^ started_at()).bits() >> 16,
        Ok(text) => text.parse().expect("SIM_FROM is a seed, or `random`"),
        Err(_) => 0,
    };
    println!("SIM_FROM={from}");
    let batch = on_all_cores(from..from + BATCH, LONGEST, run);
    println!("{}", batch.seen);
    keep(&batch.violations);
    assert_none(&batch.violations);
    let missing = batch.seen.missing();
    if batch.runs < BATCH {
        // A machine that is too slow for a whole batch proves less, and says so.
        println!("only {} of {BATCH} seeds within {LONGEST:?}; not met: {missing:?}", batch.runs);
        assert!(batch.runs >= BATCH / 10, "the simulation is far too slow");
        return;
    }
    assert_eq!(missing, Vec::<Sight>::new(), "SIM_FROM={from}: a batch never met these");
}

fn started_at() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[test]
fn seeds_that_once_failed_hold() {
    let kept = include_str!("../corpus/seeds.txt");
    let seeds = kept.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|seed| !seed.is_empty());
    let batch = on_all_cores(seeds.flat_map(seeds_of), Duration::MAX, run);
    assert_none(&batch.violations);
}

/// Runs `count` seeds of a world in which one thing goes wrong.
fn singles(fault: Single, count: u64) -> Vec<(Knobs, Report)> {
    let runs = (0..count).map(|seed| {
        let knobs = Knobs::single(&mut Rng::new(seed ^ 0x51_4E_61_1E), fault);
        (knobs.clone(), run_with(seed, knobs, None))
    });
    runs.inspect(|(_, report)| assert_none(&report.violation.iter().map(|violation| (report.seed, violation.clone())).collect::<Vec<_>>()))
        .collect()
}

#[test]
fn after_any_single_fault_a_successor_serves_within_the_computed_budget() {
    for fault in Single::FATAL {
        let mut shares = Vec::new();
        for (knobs, report) in singles(fault, 60) {
            let budget = knobs.terms().sum().unwrap();
            let bound = if fault.is_of_the_broker() { budget.broker_path.unwrap() } else { budget.owner_death };
            // By the slowest clock.
            let bound = bound.unsigned_abs() / 1_000_000 * (1_000_000 + 2 * knobs.rate_ppm);
            let took = report.failover.unwrap_or_else(|| panic!("{fault:?}, seed {}: nobody took over", report.seed));
            let (taken, allowed) = (Duration::from_nanos(took), Duration::from_nanos(bound));
            assert!(took <= bound, "{fault:?}, seed {}: {taken:?}, the budget is {allowed:?}", report.seed);
            shares.push(took as f64 / bound as f64);
        }
        shares.sort_by(f64::total_cmp);
        println!(
            "{fault:?}: median {:.0} %, longest {:.0} % of the budget",
            100.0 * shares[shares.len() / 2],
            100.0 * shares[shares.len() - 1]
        );
    }
}

#[test]
fn what_does_not_concern_the_owner_changes_no_owner() {
    for fault in Single::HARMLESS {
        for (_, report) in singles(fault, 60) {
            let takeovers = report.seen.count(Sight::TakeoverByExpiry) + report.seen.count(Sight::TakeoverByRelease);
            assert_eq!(takeovers, 0, "{fault:?}, seed {}", report.seed);
        }
    }
}

#[test]
fn a_clean_hand_over_repeats_nothing_and_a_crash_no_more_than_was_announced() {
    for (_, report) in singles(Single::Stop, 60) {
        assert_eq!(report.duplicates, 0, "seed {}", report.seed);
    }
    let mut repeated = 0;
    for (_, report) in singles(Single::Crash, 120) {
        assert!(
            report.duplicates <= report.announced,
            "seed {}: {} repeated, {} announced",
            report.seed,
            report.duplicates,
            report.announced
        );
        repeated += report.duplicates;
    }
    assert!(repeated > 0, "no crash ever repeated anything: nothing was tested");
}

/// Seeds within which a rule that is left out has to be missed.
const MUTANT_SEEDS: u64 = 12_000;

fn missed(mutant: Mutant, invariants: &[&str]) {
    // Runs of the same kind hold with the rule in place.
    assert_none(&on_all_cores(0..50, Duration::MAX, |seed| run_mutant(seed, mutant, None)).violations);
    let caught = AtomicBool::new(false);
    let without = on_all_cores(0..MUTANT_SEEDS, Duration::MAX, |seed| {
        if caught.load(Ordering::Relaxed) {
            return Report::default();
        }
        let report = run_mutant(seed, mutant, Some(mutant));
        caught.fetch_or(report.violation.is_some(), Ordering::Relaxed);
        report
    });
    let (seed, first) = without.violations.first().unwrap_or_else(|| panic!("{mutant:?} was not caught by {MUTANT_SEEDS} seeds"));
    println!("{mutant:?}: caught by seed {seed}: {first}");
    for (seed, violation) in &without.violations {
        let known = invariants.iter().any(|invariant| violation.contains(invariant));
        assert!(known, "{mutant:?}, seed {seed}, broke something else: {violation}");
    }
}

macro_rules! mutants {
    ($($name:ident: $mutant:expr, $invariants:expr;)*) => { $(#[test] fn $name() { missed($mutant, $invariants); })* };
}

const LOG: &[&str] = &["S1", "S2", "S5", "S6", "S8", "L2"];
const LEASE: &[&str] = &["S3", "S4"];
const CLAIMS: &[&str] = &["S2", "S3", "S4"];
const MAIL: &[&str] = &["M1", "M2"];
const HELD: &[&str] = &["S8", "S10", "L2"];
/// Two owners of one epoch, of which none is fenced, also keep the account of subscriptions side by side.
const LOG_AND_ACCOUNT: &[&str] = &["S1", "S2", "S5", "S6", "S8", "S9", "L2"];

mutants! {
    a_put_without_the_slot_condition_is_caught: Mutant::Log(LogRule::SlotCondition), LOG;
    a_put_that_finds_room_anywhere_is_caught: Mutant::Log(LogRule::Fence), LOG;
    a_claim_without_its_condition_is_caught: Mutant::Lease(LeaseRule::ClaimsAreConditional), CLAIMS;
    an_owner_that_stamps_after_the_answer_is_caught: Mutant::Lease(LeaseRule::OwnersStampBeforeSending), LEASE;
    an_observer_that_counts_from_before_its_read_is_caught: Mutant::Lease(LeaseRule::ObserversCountFromTheAnswer), LEASE;
    evidence_that_is_summed_is_caught: Mutant::Lease(LeaseRule::EvidenceIsNotSummed), LEASE;
    an_anchor_that_is_not_confirmed_is_caught: Mutant::Log(LogRule::Confirm), LOG;
    a_tail_whose_epoch_is_not_looked_at_is_caught: Mutant::Log(LogRule::Epoch), LOG;
    deleting_the_tail_is_caught: Mutant::Log(LogRule::KeepTail), LOG;
    deleting_before_the_head_is_durable_is_caught: Mutant::Log(LogRule::HeadFirst), LOG;
    stepping_past_a_conflict_without_reading_again_is_caught: Mutant::Log(LogRule::Reread), LOG;
    fencing_on_a_higher_epoch_only_is_caught: Mutant::Log(LogRule::FenceOnAnyEpoch), LOG_AND_ACCOUNT;
    mail_that_goes_before_its_segment_is_caught: Mutant::MailGoesFirst, MAIL;
    mail_that_stays_where_it_was_is_caught: Mutant::MailStays, MAIL;
    a_held_message_of_unknown_fate_that_is_taken_for_sent_is_caught: Mutant::HeldUnknownIsDone, HELD;
    a_spilling_message_of_unknown_fate_that_is_taken_for_sent_is_caught: Mutant::SpilledUnknownIsDone, HELD;
    held_messages_without_their_keys_are_caught: Mutant::HeldKeysIgnored, &["S10"];
}

#[test]
fn while_all_is_well_nobody_writes_the_lease_but_its_owner() {
    for seed in 0..20 {
        let mut knobs = Knobs::calm(&mut Rng::new(seed));
        knobs.chaos_ends = 600_000_000_000;
        let others = knobs.workers as u64 - 1;
        let report = run_with(seed, knobs, None);
        assert_none(&report.violation.iter().map(|violation| (seed, violation.clone())).collect::<Vec<_>>());
        assert_eq!(report.seen.count(Sight::EvidenceWritten), 0, "seed {seed}");
        // They start at about the same time, and all but one are refused once.
        assert!(report.seen.count(Sight::StaleLeaseWriteRefused) <= others, "seed {seed}: refused writes in ten idle minutes");
    }
}

/// Not a test of its own: what the next one runs in two processes.
#[test]
fn trace_of_seeds() {
    let from: u64 = std::env::var("SIM_TRACE_FROM").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let traces: Vec<String> = (from..from + 5).map(|seed| format!("{:016x}", run(seed).trace)).collect();
    assert_eq!(traces.iter().collect::<std::collections::BTreeSet<_>>().len(), 5, "other seeds are other runs");
    println!("trace {}", traces.join(","));
}

#[test]
fn the_same_seed_is_the_same_run_in_every_process() {
    let trace = || {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "trace_of_seeds", "--nocapture"])
            .env("SIM_TRACE_FROM", "40")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find_map(|line| line.strip_prefix("trace ").map(str::to_owned)).unwrap_or_else(|| panic!("no trace in {text}"))
    };
    let here: Vec<String> = (40..45).map(|seed| format!("{:016x}", run(seed).trace)).collect();
    assert_eq!(trace(), trace());
    assert_eq!(trace(), here.join(","));
}
