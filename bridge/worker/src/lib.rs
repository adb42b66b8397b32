//! The program `causeway`: commands, wiring, owner loops, monitor and telemetry around the decisions of `causeway-core`.

pub mod adoption;
pub mod cli;
pub mod commands;
pub mod control;
pub mod dead_letters;
pub mod drop_ledger;
pub mod ecs;
pub mod fleet;
pub mod hints;
pub mod history;
pub mod http;
pub mod ingress;
pub mod instance;
pub mod levels;
pub mod members;
pub mod parts;
pub mod protection;
pub mod retention;
pub mod returning;
pub mod run;
pub mod secrets;
pub mod status;
pub mod step_down;
pub mod supervisor;
pub mod telemetry;
pub mod wiring;
