//! The program `causeway`: commands, wiring, owner loops, monitor and telemetry around the decisions of `causeway-core`.

pub mod clock;
pub mod http;
pub mod parts;
pub mod run;
pub mod status;
pub mod telemetry;
