//! Stores of a bridge that runs alone: one SQLite file ([`sqlite`]), or this process's memory ([`memory`]).
//!
//! Both keep the contracts of [`causeway_ports::Outbox`] and [`causeway_ports::DeadLetters`] and run the same suites as every other store.

mod calls;
pub mod memory;
mod paging;
pub mod sqlite;
