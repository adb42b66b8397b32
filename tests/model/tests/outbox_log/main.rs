//! An adversarial model of the outbox log that drives the core's own [`Owner`](causeway_core::worker::Owner).
//!
//! Any number of owners open the same log, each with a higher epoch than the one before; nothing stops an old one but the store's put-if-absent.
//! Requests are applied at a random later moment, also after their caller gave up; answers get lost; requests are refused; owners crash. Time is
//! a counter that the scheduler moves. Every seed draws its own mix of faults and settings.
//!
//! `CAUSEWAY_MODEL_SEEDS` names other seeds: `17`, `3,5,8` or `0..20000`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod check;
mod dice;
mod knobs;
mod mutant;
mod store;
mod world;

use check::Seen;
use mutant::Mutant;
use std::ops::Range;
use world::{World, run};

/// Seeds of the protocol itself, half of them with epochs of a lease, half with epochs that the owners choose.
const SEEDS: Range<u64> = 0..600;
/// Seeds within which every mutant has to be caught.
const MUTANT_SEEDS: Range<u64> = 0..1_500;

fn seeds(usual: Range<u64>) -> (Vec<u64>, bool) {
    let Ok(text) = std::env::var("CAUSEWAY_MODEL_SEEDS") else { return (usual.collect(), true) };
    let number = |text: &str| text.trim().parse::<u64>().expect("CAUSEWAY_MODEL_SEEDS: a seed, a list or a range");
    let chosen: Vec<u64> = match text.split_once("..") {
        Some((from, to)) => (number(from)..number(to)).collect(),
        None => text.split(',').map(number).collect(),
    };
    let enough = chosen.len() >= usual.count();
    (chosen, enough)
}

fn hold(leased: bool) {
    let (seeds, enough) = seeds(SEEDS);
    let mut seen = Seen::default();
    for seed in &seeds {
        let outcome = run(*seed, leased, Mutant::None, None);
        if let Some(violation) = outcome.violation {
            panic!(
                "seed {seed}: {violation}\nto see it again: CAUSEWAY_MODEL_SEEDS={seed} cargo nextest run -p causeway-model (leased: {leased})"
            );
        }
        seen.add(&outcome.seen);
    }
    println!("{} seeds, epochs {}: {seen}", seeds.len(), if leased { "of a lease" } else { "of the owners' own choice" });
    if enough {
        let never = seen.never();
        assert!(never.is_empty(), "these never happened, so nothing was proved about them: {never:?}");
    }
}

#[test]
fn owners_with_epochs_of_a_lease_keep_every_promise() {
    hold(true);
}

#[test]
fn owners_that_choose_their_epochs_keep_every_promise() {
    hold(false);
}

fn caught(mutant: Mutant) {
    for seed in MUTANT_SEEDS {
        if let Some(violation) = run(seed, true, mutant, None).violation {
            println!("{mutant:?} is caught by seed {seed}: {violation}");
            return;
        }
    }
    panic!("{mutant:?} was not caught within {} seeds", MUTANT_SEEDS.count());
}

macro_rules! mutants {
    ($($name:ident: $mutant:ident;)*) => { $(#[test] fn $name() { caught(Mutant::$mutant); })* };
}

mutants! {
    an_owner_that_does_not_confirm_its_anchor_is_caught: NoConfirm;
    an_owner_that_ignores_the_epoch_of_the_tail_is_caught: NoEpoch;
    deleting_the_tail_is_caught: DeleteTail;
    deleting_anchors_is_caught: DeleteAnchors;
    deleting_before_the_head_is_durable_is_caught: DeleteBeforeHead;
    stepping_past_a_conflict_without_reading_again_is_caught: NoReread;
    acknowledging_before_it_is_stored_is_caught: AckBeforeStored;
    a_store_that_overwrites_a_taken_slot_is_caught: NoSlotCondition;
    head_rows_without_a_revision_are_caught: NoRevision;
    opening_fewer_lanes_than_are_registered_is_caught: FewerLanes;
    fencing_only_on_a_higher_epoch_is_caught: FencedByHigherEpochsOnly;
    ids_made_of_epoch_and_slot_are_caught: IdsOfEpochAndSlot;
    moving_mail_without_deleting_it_in_the_same_transaction_is_caught: MoveWithoutDelete;
    sending_new_segments_during_recovery_is_caught: MemoryFirst;
    parts_that_leave_before_one_another_stand_are_caught: ParallelParts;
    a_head_inside_a_segment_in_parts_is_caught: HeadInsideSegment;
}

#[test]
fn the_same_seed_takes_the_same_way() {
    for seed in 0..20 {
        let mut hashes = [0; 2];
        for hash in &mut hashes {
            run(seed, seed % 2 == 0, Mutant::None, Some(hash));
        }
        assert_eq!(hashes[0], hashes[1], "seed {seed}");
        assert_ne!(hashes[0], 0);
    }
    let mut other = 0;
    let mut first = 0;
    run(1, true, Mutant::None, Some(&mut first));
    run(2, true, Mutant::None, Some(&mut other));
    assert_ne!(first, other, "the trace tells seeds apart");
}

#[test]
fn a_world_without_faults_delivers_everything_exactly_once() {
    for seed in 0..40 {
        let ended = World::new(seed, seed % 2 == 0, Mutant::None).play_calmly();
        assert_eq!(ended.violation, None, "seed {seed}");
        assert_eq!(ended.seen.repeated_sends, 0, "seed {seed}: nothing is sent twice where nothing fails");
        assert!(ended.seen.acknowledged > 10, "seed {seed}: {}", ended.seen);
    }
}
