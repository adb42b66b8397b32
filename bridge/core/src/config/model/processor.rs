//! What handles messages on their way: `processors`.

use super::super::values::{Id, Span};
use super::route::{Literal, Operator};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that handles each message of the routes that name it, before their bindings are chosen.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Its name.
    pub id: Id,
    /// `filter`: takes messages out, or says where they go; `transform`: copies values into headers or into the JSON payload; `tenant`: sets `x-bridge.tenant-id`; `circuit_breaker`: leaves the route's destinations alone for a while when they take nothing.
    #[serde(rename = "type")]
    pub kind: ProcessorKind,
    /// How it does that.
    #[serde(default)]
    pub options: ProcessorOptions,
}

/// The kind of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessorKind {
    /// Takes messages out, or says where they go.
    Filter,
    /// Copies values.
    Transform,
    /// Tells whose a message is.
    Tenant,
    /// Leaves destinations alone that take nothing.
    CircuitBreaker,
}

impl ProcessorKind {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Transform => "transform",
            Self::Tenant => "tenant",
            Self::CircuitBreaker => "circuit_breaker",
        }
    }
}

/// How a processor does its work.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessorOptions {
    /// `filter`: what becomes of messages for which all `conditions` hold: `pass` lets them pass and takes out all others, `drop` takes them out, `route` sends them to `binding`.
    pub action: Option<FilterAction>,
    /// `filter`: whether `action` is for those for which not all conditions hold.
    pub invert: bool,
    /// `filter`: what must hold.
    pub conditions: Vec<FilterCondition>,
    /// `filter` with `route`: the binding, one of the route's. The resolver is not asked then.
    pub binding: Option<Id>,
    /// `transform`: what is copied, in this order.
    pub mappings: Vec<Mapping>,
    /// `tenant`: the field that tells it. Fields are those of resolvers.
    pub from: Option<String>,
    /// `tenant`: the tenant of messages that tell none; without it such a message is dead-lettered as `INVALID_PAYLOAD`.
    pub default_tenant: Option<String>,
    /// `circuit_breaker`: with so many sends in a row that fail it opens, for each binding of the route by itself: nothing is sent any more, and messages wait where they are safe. A message that is refused for what it is says nothing of its destination. Left out: 5.
    #[schemars(range(min = 1, max = 10_000))]
    pub failure_threshold: Option<u32>,
    /// `circuit_breaker`: with so many probes in a row that are accepted it closes; one that fails opens it again. Left out: 2.
    #[schemars(range(min = 1, max = 10_000))]
    pub success_threshold: Option<u32>,
    /// `circuit_breaker`: how long it stays open before probes are sent. Left out: 30s.
    pub reset_timeout: Option<Span>,
    /// `circuit_breaker`: how many messages are under way at once as probes. Left out: 1.
    #[schemars(range(min = 1, max = 10_000))]
    pub half_open_probes: Option<u32>,
}

/// What a filter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FilterAction {
    /// Lets pass, and takes out all others.
    Pass,
    /// Takes out.
    Drop,
    /// Sends to a binding.
    Route,
}

/// What must hold.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterCondition {
    /// What is looked at, as in a rule of a resolver.
    pub field: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what. Not for `exists` and `in`.
    #[serde(default)]
    pub value: Option<Literal>,
    /// With what, for `in`.
    #[serde(default)]
    pub values: Vec<Literal>,
}

/// What is copied.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The field that it comes from. Where the message does not have it, nothing is copied.
    pub from: String,
    /// Where it goes: `header.NAME`, or `$.name.name` in a JSON payload, whose objects on the way are made where they are missing.
    pub to: String,
    /// As what. A value that is none of the kind makes the message a dead letter as `INVALID_PAYLOAD`.
    #[serde(default, rename = "type")]
    pub kind: ValueType,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ValueType {
    /// Text.
    #[default]
    String,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// `true` or `false`.
    Bool,
    /// Text, encoded as base64.
    Base64,
}

impl ValueType {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Int => "int",
            Self::Float => "float",
            Self::Bool => "bool",
            Self::Base64 => "base64",
        }
    }
}
