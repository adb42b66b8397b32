//! A deterministic simulation of a bridge: several members compete for one session, with a broker, stores and a queue around them, in one thread.
//!
//! Nothing here waits and nothing reads a clock: a heap of events and one seeded generator make time. So the same seed is the same run, a fault may
//! strike between any two effects, every worker has a clock of its own, and hours pass in milliseconds.
//!
//! A run has two phases. First the faults that its seed drew strike; then everything heals and the world has to converge within the computed bound.
//! Invariants are checked at every event.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test tool: what cannot be has to stop the run")]

mod account;
mod admission;
pub mod broker;
mod calls;
mod checks;
pub mod event;
pub mod faults;
pub mod mail;
pub mod queue;
pub mod reference;
pub mod rng;
pub mod seen;
mod shell;
pub mod single;
mod source;
pub mod store;
mod strikes;
mod wire;
pub mod worker;
pub mod world;

use causeway_core::worker::options::Delivery;
use core::time::Duration;
use faults::{Knobs, Testimony};
use reference::{LeaseRule, LogRule};
use rng::Rng;
use seen::Seen;
use world::World;

/// A rule that is left out, to see whether its absence is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// One of the log.
    Log(LogRule),
    /// One of the lease.
    Lease(LeaseRule),
    /// A move of mail deletes it whatever becomes of the segment.
    MailGoesFirst,
    /// A move of mail puts the segment and leaves the mail where it is.
    MailStays,
    /// Whoever holds messages takes a send whose outcome nobody knows for done.
    HeldUnknownIsDone,
    /// The same where messages spill.
    SpilledUnknownIsDone,
    /// Whoever holds messages pays no heed to topics.
    HeldKeysIgnored,
}

/// The source holds a message until the queue has it.
const HELD: Delivery = Delivery::Held { retry_budget: Duration::from_secs(1) };
/// The same, and what takes longer goes to the log.
const SPILLED: Delivery = Delivery::Spilled { after: Duration::from_millis(100) };

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The invariant that broke, if one did.
    pub violation: Option<String>,
    /// What it met.
    pub seen: Seen,
    /// A hash over everything that happened, in order.
    pub trace: u64,
    /// Events.
    pub events: u64,
    /// Simulated nanoseconds.
    pub simulated: u64,
    /// Messages that arrived more than once, counted.
    pub duplicates: u64,
    /// Messages that might have arrived again if the owner had crashed when a single fault struck.
    pub announced: u64,
    /// From the first fault of the schedule to a successor at full service, where the schedule is a single fault.
    pub failover: Option<u64>,
}

/// Runs the world that `seed` draws.
#[must_use]
pub fn run(seed: u64) -> Report {
    let mut rng = Rng::new(seed);
    let knobs = Knobs::draw(&mut rng);
    // Not drawn: what else the seed draws is the same for every number of lanes, and for worlds of one.
    let lanes = 1 + u32::try_from(seed % 3).unwrap_or(0);
    let knobs = Knobs { lanes, ..knobs };
    let knobs = match seed / 6 % 4 {
        0 => knobs,
        1 => knobs.by(Delivery::Logged),
        2 => knobs.by(HELD),
        _ => knobs.by(SPILLED),
    };
    let knobs = Knobs { paced: seed / 24 % 2 == 1, ..knobs };
    let knobs = match seed / 48 % 4 {
        1 => Knobs { testimony: Testimony::True, ..knobs },
        2 => Knobs { testimony: Testimony::False, lawless: true, ..knobs },
        _ => knobs,
    };
    World::new(seed, rng, if seed / 3 % 2 == 1 { knobs.with_mail(seed) } else { knobs }, None).run()
}

/// Runs a world that `seed` draws, of the kind in which a rule that is left out matters; with `None` nothing is left out.
#[must_use]
pub fn run_mutant(seed: u64, about: Mutant, mutant: Option<Mutant>) -> Report {
    let mut rng = Rng::new(seed);
    let knobs = match about {
        Mutant::Lease(_) => Knobs::draw_slow(&mut rng),
        Mutant::Log(LogRule::Epoch | LogRule::FenceOnAnyEpoch) => Knobs::draw_restored(&mut rng),
        Mutant::Log(LogRule::SlotCondition | LogRule::Fence) => Knobs::draw_lawless(&mut rng),
        Mutant::Log(LogRule::Confirm | LogRule::KeepTail | LogRule::HeadFirst | LogRule::Reread) => Knobs::draw_crowded(&mut rng),
        Mutant::MailGoesFirst | Mutant::MailStays => Knobs::draw_lawless(&mut rng).with_mail(seed),
        Mutant::HeldUnknownIsDone | Mutant::HeldKeysIgnored => Knobs::draw(&mut rng).by(HELD),
        Mutant::SpilledUnknownIsDone => Knobs::draw(&mut rng).by(SPILLED),
    };
    let keys_ignored = mutant == Some(Mutant::HeldKeysIgnored);
    World::new(seed, rng, Knobs { keys_ignored, ..knobs }, mutant).run()
}

/// Runs a world with these settings.
#[must_use]
pub fn run_with(seed: u64, knobs: Knobs, mutant: Option<Mutant>) -> Report {
    World::new(seed, Rng::new(seed), knobs, mutant).run()
}
