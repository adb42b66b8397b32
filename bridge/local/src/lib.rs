//! Stores of a bridge that runs alone: one SQLite file ([`sqlite`]), or this process's memory ([`memory`]).
//!
//! Both keep the contracts of [`causeway_ports::Outbox`], [`causeway_ports::DeadLetters`] and [`causeway_ports::ManagedSubscriptions`], memory that of
//! [`causeway_ports::Leases`] as well, and run the same suites as every other store.

mod calls;
pub mod memory;
mod paging;
pub mod secrets;
pub mod sqlite;
