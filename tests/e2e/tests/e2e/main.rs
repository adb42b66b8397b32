//! The promises, held against real processes: mosquitto, DynamoDB Local or MiniStack, SQS of MiniStack, and the worker.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod admin;
mod adoption;
mod breaker;
mod broker;
mod commands;
mod control;
mod copies;
mod crash;
mod deployed;
mod depth;
mod direct;
mod dispatch;
mod evidence;
mod exclusive;
mod fifo;
mod flow_drops;
mod flow_limits;
mod flow_outbound;
mod flow_page;
mod flow_quota;
mod flow_reports;
mod flow_shared;
mod flow_store;
mod functions;
mod kept;
mod lanes;
mod large;
mod lease;
mod mailbox;
mod matrix;
mod memory;
mod page;
mod posts;
mod protection;
mod reports;
mod restore;
mod retained;
mod rounds;
mod runbooks;
mod spill;
mod sqs;
mod store;
mod transports;
mod watched;
