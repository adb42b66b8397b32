//! The configuration as it is written: one definition, from which decoding, the JSON Schema and the reference page come.
//!
//! The doc comments of fields are what users read in their editor and in the reference.

mod bridge;
mod commands;
mod drops;
mod flow;
mod policy;
mod processor;
mod route;
mod store;
mod transport;

pub use bridge::{AdminKey, Bridge, Cluster, DeploymentMode, DrainCeiling, Evidence, Http, LogFormat, LogLevel, MetricsExporter};
pub use commands::{CommandCorrelation, Commands};
pub use drops::{DropLedgerOptions, Drops};
pub use flow::{
    AckHoldAction, Flow, FlowLimit, FlowStore, Inbound, LimitAction, LimitMode, LimitScope, OnFull, Outbound, Qos0OnFull, QuotaExhausted,
    QuotaOptions, QuotaOutage, Resume,
};
pub use policy::{AckAfter, Backoff, OnFailure, Policy};
pub use processor::{FilterAction, FilterCondition, Mapping, Processor, ProcessorKind, ProcessorOptions, ValueType};
pub use route::{
    DeliveryMode, DispatchMode, DrainStrategy, DrainStrategyKind, Literal, Operator, Resolver, ResolverKind, Route, RouteSession, Rule,
};
pub use store::{
    CommandStore, CommandStoreOptions, DlqOptions, DlqStore, LeaseOptions, LeaseStore, LedgerOptions, LedgerStore, OutboxOptions,
    OutboxStore, StoreKind, Stores, SubscriptionOptions, SubscriptionStore,
};
pub use transport::{
    Baseline, Binding, ClientIdSuffix, MessageIdSource, MqttSession, ProtocolVersion, Receiver, ReceiverOptions, Retained, Sender,
    SenderOptions, Session, SessionMode, SessionOptions, SubscriptionTuning, Tls, Topic, TopicOptions, Transport, Will,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The whole configuration of a bridge.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["bridge"]))]
pub struct Config {
    /// A number that grows with every change, for those who publish configurations; shown, nothing else depends on it.
    #[serde(default)]
    pub version: u64,
    /// The process itself.
    #[serde(default)]
    pub bridge: Bridge,
    /// Where leases, waiting messages, dead letters and subscription histories are kept.
    #[serde(default)]
    pub stores: Stores,
    /// Connections to MQTT brokers.
    #[serde(default)]
    pub sessions: Vec<Session>,
    /// Where messages come from.
    #[serde(default)]
    pub receivers: Vec<Receiver>,
    /// Clients of destinations.
    #[serde(default)]
    pub senders: Vec<Sender>,
    /// Named destinations.
    #[serde(default)]
    pub bindings: Vec<Binding>,
    /// What handles messages on their way; routes name them.
    #[serde(default)]
    pub processors: Vec<Processor>,
    /// From a receiver to bindings, and how.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// How much is taken in, kept and sent, and what becomes of what is too much.
    #[serde(default)]
    pub flow: Flow,
    /// What is told of messages that were not delivered.
    #[serde(default)]
    pub drops: Drops,
    /// Commands to devices, given over HTTP and answered over MQTT.
    #[serde(default)]
    pub commands: Commands,
    /// The program's own listeners.
    #[serde(default)]
    pub http: Http,
}
