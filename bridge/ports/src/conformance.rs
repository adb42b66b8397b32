//! Contract suites: every implementation of a port runs the same cases.
//!
//! A suite is a list of named cases and a macro that turns each into one `#[tokio::test]`, so that a failure names the broken promise:
//!
//! ```ignore
//! async fn fresh() -> (Arc<dyn Outbox>, TempDir) { … }
//! causeway_ports::outbox_conformance!(fresh);
//! ```
//!
//! The function makes an **empty, created** store for every case and answers it with whatever must live as long (a folder, a child process;
//! `()` where there is nothing). The calling crate needs `tokio` with `macros` and `rt-multi-thread`. Cases never look at a clock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite of tests reports by panicking")]

pub mod commands;
pub mod dead_letters;
pub mod drop_ledger;
pub mod leases;
pub mod mailbox;
pub mod managed_subscriptions;
pub mod outbox;
pub mod quota;
pub mod redrives;
pub mod sink;

use causeway_core::outcome::Outcome;
use core::fmt::Debug;

/// The value of an effect that must have taken place.
#[track_caller]
fn done<T: Debug>(outcome: Outcome<T>, what: &str) -> T {
    match outcome {
        Outcome::Done(value) => value,
        Outcome::NotDone(fault) => panic!("{what} was refused: {fault}"),
        Outcome::Unknown(fault) => panic!("{what} ended unknown: {fault}"),
    }
}

/// `length` bytes that no compression shortens: a fixed linear congruential sequence.
fn incompressible(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Declares a suite: the macro that turns each of its cases into a test, the list of their names, and the function that runs one by its name. Begins
/// with a `$`, which a macro cannot write into a macro by itself.
macro_rules! suite {
    ($dollar:tt $(#[$doc:meta])* $conformance:ident, $suite:ident, $store:ty; $($name:ident,)+) => {
        $(#[$doc])*
        #[macro_export]
        macro_rules! $conformance {
            ($dollar make:expr) => {
                $dollar crate::__conformance_tests! { $suite, $dollar make; $($name,)+ }
            };
        }

        /// The names of all cases.
        pub const CASES: &[&str] = &[$(stringify!($name),)+];

        /// Runs the case `name` against an empty store.
        ///
        /// # Panics
        /// Where the store breaks the contract, or there is no such case.
        pub async fn run(name: &str, store: $store) {
            match name {
                $(stringify!($name) => $name(store).await,)+
                other => panic!("the suite has no case `{other}`"),
            }
        }
    };
}
use suite;

/// One test per case of a suite. Used by the suites' macros.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($suite:ident, $make:expr; $($name:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let (store, _keep) = $make().await;
                $crate::conformance::$suite::run(stringify!($name), store).await;
            }
        )+
    };
}
