//! Tidies up behind the bridge: `{"op": "sweep"}`. `../README.md` has the events and answers.

pub mod chores;
pub mod handler;
mod parts;

pub use parts::Parts;
