//! The owner of a log and its parts, held to naive oracles and to the promises that the rest of the program is built on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod breaker;
mod crash;
mod deliveries;
mod depth;
mod drain;
mod fates;
mod figures;
mod flow_admission;
mod flow_expiry;
mod flow_pacing;
mod flow_quota;
mod flow_sender;
mod flow_store;
mod holding;
mod keeping;
mod lanes;
mod loader;
mod mail;
mod rounds;
mod rows;
mod settled;
mod spilling;
mod stopping;
mod support;
mod writer;
