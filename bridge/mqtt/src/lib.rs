//! The MQTT source and destination of the Causeway bridge, for MQTT 5 and, translated, MQTT 3.1.1.
//!
//! [`start`] makes a [`MqttSource`], which implements [`causeway_ports::Source`]. One task owns everything MQTT; it makes a fresh client for
//! every connection, so that nothing of one connection can leak into the next. The decisions behind it, and the library's traps, are in
//! `docs/adr/0002-mqtt-client.md`. [`MqttSink`] publishes, on a connection of its own.

mod acks;
mod backoff;
mod budget;
mod connection;
mod convert;
mod dial;
mod downgrade;
mod fault;
pub mod filter;
mod gate;
mod identity;
mod loose;
mod options;
mod probe;
mod publisher;
mod renewal;
mod session;
mod source;
mod subscriptions;
mod tls;
mod unsubscriptions;
mod websocket;

pub use options::{
    BrokerUrl, CaSource, ClientIdentity, Credentials, LooseBuffer, MqttConfigError, OnFull, Protocol, Secret, SourceOptions, Subscription,
    TlsOptions, Will,
};
pub use probe::{ProbeReport, probe};
pub use publisher::{
    CAUSATION_ID, MESSAGE_ID, Marks, MqttPublisher, MqttSink, MqttSinkOptions, PublisherOptions, REDRIVE_ATTEMPT, SinglePublisher,
};
pub use renewal::{Renewal, Shown};
pub use source::{ConnectionStatus, MqttSource, StatusHandle, start};
