//! The decisions of the Causeway bridge.
//!
//! Everything here is a function of state and event to state and actions. Nothing in this crate waits, reads a clock, draws a random
//! number, opens a socket or names a cloud service: time and randomness come in as arguments, effects go out as values.

pub mod adoption;
pub mod commands;
pub mod config;
pub mod dead_letter;
pub mod dispatch;
pub mod drain;
pub mod drops;
pub mod fleet;
pub mod flow;
pub mod guesses;
pub mod history;
pub mod hold;
pub mod housekeeping;
pub mod identity;
pub mod ingress;
pub mod lease;
pub mod log;
pub mod mailbox;
pub mod member;
pub mod message;
pub mod metrics;
pub mod outcome;
pub mod protection;
pub mod proxies;
pub mod rebase;
pub mod redrive;
pub mod rows;
pub mod source_id;
pub mod spill;
pub mod subscriptions;
pub mod timing;
pub mod units;
pub mod worker;
