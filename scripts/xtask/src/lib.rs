//! The tools of this repository: the local stack, the demo, the ledger that counts what became of every message, and a proxy that injects
//! faults. The end-to-end tests use them as a library.
//!
//! Nothing here trusts what the worker says about deliveries: the publisher counts what the broker acknowledged, the consumer counts what
//! the queue handed out, and both recognise every message by its content.

pub mod chaos;
pub mod cluster;
pub mod dead_letters;
pub mod demo;
pub mod device;
pub mod failover;
pub mod fleet;
pub mod lambda;
pub mod latency;
pub mod ledger;
pub mod local;
pub mod metrics;
pub mod network;
pub mod proxy;
pub mod random;
pub mod rig;
pub mod stack;
pub mod terminal;
pub mod worker;
