//! Puts dead letters back on their way: `{"filter": …, "dry_run": false}` and so on. `../README.md` has the events and answers.

pub mod handler;
mod parts;
pub mod queue_move;

pub use parts::Parts;
