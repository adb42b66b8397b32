//! Commands to devices: the shell around the decisions of [`causeway_core::commands`].

pub mod api;
mod counters;
mod engine;
mod envelope;

pub use counters::{CommandCounters, CommandCounts};
pub use engine::{CommandGateway, DIRECT_RECEIVER, EngineOptions, EnginePorts, NOTIFY_RECEIVER, SHARED_RECEIVER};
