//! The promises, held against real processes: mosquitto, DynamoDB Local or MiniStack, SQS of MiniStack, and the worker.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod adoption;
mod broker;
mod copies;
mod crash;
mod exclusive;
mod functions;
mod lease;
mod memory;
mod sqs;
mod store;
