//! From a receiver to bindings: `routes`.

use super::super::values::{Id, Span, StepDown};
use super::policy::{AckAfter, Policy};
use core::fmt;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// From a receiver to bindings, and how.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Its name.
    pub id: Id,
    /// Where its messages come from.
    pub receiver_id: Id,
    /// When the source is acknowledged: `direct_hold`, once the destination accepted; `shared_outbox`, once the outbox keeps the message; `spill_outbox`, whichever comes first.
    #[serde(default)]
    pub delivery_mode: DeliveryMode,
    /// `single`: each message goes to one binding; `fan_out`: to several, through the outbox.
    #[serde(default)]
    pub dispatch_mode: DispatchMode,
    /// Whether what another bridge tells in headers is believed: correlation-id, causation-id, idempotency-key, dedup-id, ordering-key, tenant-id, forwarded-from and forwarded-hop, each behind `x-bridge.`. Every other header of that beginning is taken off, and these too where this is false. The ordering-key takes the place of the topic wherever order is kept (lanes, groups of FIFO queues, publishing), the dedup-id that of the entry's id on FIFO queues.
    #[serde(default)]
    pub trust_bridge_headers: bool,
    /// How messages are treated.
    #[serde(default)]
    pub policy: Policy,
    /// Where messages may go.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub bindings: Vec<Id>,
    /// What handles each message before its bindings are chosen, by name, in this order.
    #[serde(default)]
    pub processors: Vec<Id>,
    /// What picks the binding. Left out: the first binding; with `fan_out` all of them.
    #[serde(default)]
    pub resolver: Option<Resolver>,
    /// The lease of an exclusive session, and how its outbox is drained. A route of an HTTP receiver belongs to the session that it names here: only the session's owner sends its messages.
    #[serde(default)]
    pub session: Option<RouteSession>,
}

impl Route {
    /// When the source is acknowledged: as written, else as the delivery mode says.
    #[must_use]
    pub fn ack_after(&self) -> AckAfter {
        self.policy.ack_after.unwrap_or(match self.delivery_mode {
            DeliveryMode::DirectHold | DeliveryMode::SpillOutbox => AckAfter::TargetAccept,
            DeliveryMode::SharedOutbox => AckAfter::OutboxPersist,
        })
    }
}

/// When the source is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryMode {
    /// Once the destination accepted.
    #[default]
    DirectHold,
    /// Once the outbox keeps the message.
    SharedOutbox,
    /// Once the destination accepted within `spill_after`, else once the outbox keeps the message.
    SpillOutbox,
}

impl DeliveryMode {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DirectHold => "direct_hold",
            Self::SharedOutbox => "shared_outbox",
            Self::SpillOutbox => "spill_outbox",
        }
    }

    /// Whether it needs `stores.outbox`.
    #[must_use]
    pub const fn needs_outbox(self) -> bool {
        matches!(self, Self::SharedOutbox | Self::SpillOutbox)
    }
}

/// To how many bindings a message goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DispatchMode {
    /// One.
    #[default]
    Single,
    /// Several.
    FanOut,
}

/// What picks the binding of a message.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolver {
    /// `static`: the default binding, else the first; `all`: all of them; `header_map`: by the value of a header; `rules`: by the first rule that holds, with `fan_out` by every rule that holds.
    #[serde(rename = "type")]
    pub kind: ResolverKind,
    /// The binding where nothing else holds. Without it such a message is dead-lettered as `NO_BINDING`, or treated as `on_permanent_failure` says.
    #[serde(default)]
    pub default_binding: Option<Id>,
    /// `header_map`: the header.
    #[serde(default)]
    pub header_key: Option<String>,
    /// `header_map`: the binding for each value.
    #[serde(default)]
    pub header_map: BTreeMap<String, Id>,
    /// `rules`: what is tried, in order.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// How the binding is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolverKind {
    /// The first binding.
    Static,
    /// All bindings.
    All,
    /// By the value of a header.
    HeaderMap,
    /// By the first rule that holds.
    Rules,
}

/// One rule of a resolver.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What is looked at: `subject` (the topic), `header.NAME`, `$.json.path` (names and indices), or the name of a header: a user property, or `mqtt.topic`, `mqtt.qos`, `mqtt.retained`, `mqtt.response-topic`, `mqtt.content-type`. Where the message does not have it, no rule holds.
    pub field: String,
    /// How it is compared. `gt`, `lt`, `gte` and `lte` compare numbers where `value` is one, else texts.
    pub operator: Operator,
    /// With what. Not for `exists` and `in`.
    #[serde(default)]
    pub value: Option<Literal>,
    /// With what, for `in`.
    #[serde(default)]
    pub values: Vec<Literal>,
    /// The binding where it holds.
    pub binding: Id,
}

/// How a rule compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Begins with.
    Prefix,
    /// Contains.
    Contains,
    /// Matches a regular expression of at most 4096 characters.
    Regex,
    /// Greater.
    Gt,
    /// Less.
    Lt,
    /// Greater or equal.
    Gte,
    /// Less or equal.
    Lte,
    /// Is there at all.
    Exists,
    /// Is one of.
    In,
}

/// A text, number or truth value to compare with, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Literal(pub String);

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Literal;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, or true or false")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Literal, E> {
                Ok(Literal(text.to_owned()))
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Literal, E> {
                Ok(Literal(value.to_string()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Literal, E> {
                Ok(Literal(value.to_string()))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Literal, E> {
                Ok(Literal(value.to_string()))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Literal, E> {
                Ok(Literal(value.to_string()))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Literal, E> {
                Ok(Literal(String::new()))
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl JsonSchema for Literal {
    fn schema_name() -> Cow<'static, str> {
        "Literal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"], "title": "text, number or boolean", "description": "A text, number or truth value." })
    }
}

/// The lease of an exclusive session, and how its outbox is drained. Every route of a session must say the same about the lease.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSession {
    /// The session.
    pub session_id: Id,
    /// The sender that drains it: that of one of the route's bindings. Each message leaves by the sender of its own binding.
    pub sender_id: Id,
    /// How long a lease holds without a renewal; at least 5s. Left out: 360s, or 45s in clustered mode.
    #[serde(default)]
    pub lease_ttl: Option<Span>,
    /// How often it is renewed. Left out: derived from `lease_ttl` and `max_renew_fails`, or 10s in clustered mode without `lease_ttl`.
    #[serde(default)]
    pub renew_interval: Option<Span>,
    /// The range in which each renewal is shifted at random. Left out: a quarter of a derived `renew_interval`.
    #[serde(default)]
    pub lease_renew_jitter: Option<Span>,
    /// How many renewals may fail in a row before the owner looks whether it still is the owner.
    #[serde(default = "three")]
    pub max_renew_fails: u32,
    /// How long one renewal may take. Left out: derived, between 1s and 5s.
    #[serde(default)]
    pub renew_call_timeout: Option<Span>,
    /// How often a replica that waits looks at the lease. Left out: derived, at most 5s.
    #[serde(default)]
    pub acquire_poll_interval: Option<Span>,
    /// How long an owner that steps down goes on settling before it lets go. Left out: 15s, or 5s in clustered mode without `lease_ttl`.
    #[serde(default)]
    pub step_down_grace: Option<Span>,
    /// Whether the broker is connected only once the lease is won. It always is: a replica that waits would, with the client_id that all replicas of an exclusive session share, disconnect the owner.
    #[serde(default = "yes")]
    pub connect_after_lease: bool,
    /// After how long without a healthy broker path the owner lets go; `off` for never. Must be written where `failover_slo` is.
    #[serde(default)]
    pub broker_health_step_down: Option<StepDown>,
    /// The objective from failure detection to a successor at full service. `check` refuses what cannot meet it.
    #[serde(default)]
    pub failover_slo: Option<Span>,
    /// What starting a replacement adds to it, at most 10m.
    #[serde(default)]
    pub startup_allowance: Span,
    /// The pause between rounds; short for `drain_strategy: {type: fixed_poll}`. Left out, with `drain_strategy` left out as well: 1s.
    #[serde(default)]
    pub drain_interval: Option<Span>,
    /// The pause between rounds. Instead of `drain_interval`. What is new is sent as it comes; what failed before and is past its `policy.backoff`, and what a former owner left, is taken up in rounds, by each binding of the route for itself. Where all of a round came to an end the next one follows at once; else it begins after this pause, counted from the round's begin and shifted at random by up to a quarter, either way. A clean stop does not wait for rounds.
    #[serde(default)]
    pub drain_strategy: Option<DrainStrategy>,
    /// How many messages the first round takes. A round that was full and of which some were accepted makes the next one twice as large, one of which none was accepted half as large.
    #[serde(default = "hundred")]
    pub drain_batch_size: u32,
    /// The most messages that a round takes.
    #[serde(default = "five_hundred")]
    pub drain_max_batch_size: u32,
    /// How many sends, of up to a batch of messages each, are under way at once to each binding of the route. `policy.max_in_flight` bounds their messages.
    #[serde(default = "ten")]
    pub drain_max_concurrency: u32,
}

const fn three() -> u32 {
    3
}
const fn yes() -> bool {
    true
}
const fn ten() -> u32 {
    10
}
const fn hundred() -> u32 {
    100
}
const fn five_hundred() -> u32 {
    500
}

/// The pause from one round of retries or recovery to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainStrategy {
    /// `fixed_poll`, or `adaptive_backoff`.
    #[serde(rename = "type")]
    pub kind: DrainStrategyKind,
    /// `fixed_poll`: the pause. Left out: 1s.
    #[serde(default)]
    pub interval: Option<Span>,
    /// `adaptive_backoff`: the pause while something is accepted. Left out: 100ms.
    #[serde(default)]
    pub min_interval: Option<Span>,
    /// `adaptive_backoff`: the longest pause. Left out: 30s.
    #[serde(default)]
    pub max_interval: Option<Span>,
    /// `adaptive_backoff`: by what the pause grows with every round of which nothing was accepted. Left out: 2.
    #[serde(default)]
    pub multiplier: Option<f64>,
}

/// The kind of a drain strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrainStrategyKind {
    /// Always the same pause.
    FixedPoll,
    /// Short while something is accepted, longer and longer while nothing is.
    AdaptiveBackoff,
}
