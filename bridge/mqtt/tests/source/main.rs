//! Source and publisher against a scripted broker, which plays every trap, and against a real one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod broker;
mod flow_publishing;
mod gated;
mod mosquitto;
mod older;
mod packets;
mod publishing;
mod publishing_contract;
mod publishing_real;
mod publishing_single;
mod real;
mod rivals;
mod scripted;
mod scripted_flow;
mod secure;
mod support;
mod terms;
mod transports;
