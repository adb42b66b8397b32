//! How a route treats its messages: `routes[].policy`.

use super::super::values::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a route treats its messages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// How many messages of the route may be being sent at once, to each of its bindings.
    #[schemars(range(min = 1))]
    pub max_in_flight: u32,
    /// When the source is acknowledged. Left out: as the delivery mode says.
    pub ack_after: Option<AckAfter>,
    /// After how many sends a message may be poison; 0 for no bound. It becomes a dead letter once `replay_budget` has passed too.
    pub max_replay_attempts: u32,
    /// How long a message is tried at least before it can be poison.
    pub replay_budget: Span,
    /// `direct_hold`: for how long a send is repeated in the process; 0s for not at all.
    pub send_retry_budget: Span,
    /// `shared_outbox` and `spill_outbox`: how many messages of the route may wait in the outbox, and on their way into it, for each of its bindings. With so many nothing is taken in for the route's session, or from its queue, until there is room: the broker or the queue keeps it, not acknowledged. What a former owner left counts for every route of the session until it was read. Left out: as many as the store takes.
    pub max_outbox_depth: Option<u64>,
    /// What becomes of a message that expired.
    pub on_expired: OnFailure,
    /// What becomes of a message that the destination refuses for good.
    pub on_permanent_failure: OnFailure,
    /// What becomes of a message that a processor filters out. `drop`: it is acknowledged and counted, and nothing is kept.
    pub on_filtered: OnFailure,
    /// How long one send may take.
    pub send_timeout: Span,
    /// Once `max_outbox_depth` was reached: how long it takes until the depth is looked at again, and messages are taken in again if there is room. That the depth is reached is seen at once, since it is known at every moment.
    pub depth_cache_ttl: Span,
    /// Permits a source that cannot redeliver.
    pub allow_retry_drop: bool,
    /// `spill_outbox`: how long a send may take before the message goes into the outbox.
    pub spill_after: Span,
    /// The pauses between sends of one message.
    pub backoff: Backoff,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_in_flight: 100,
            ack_after: None,
            max_replay_attempts: 5,
            replay_budget: Span::secs(900),
            send_retry_budget: Span::secs(60),
            max_outbox_depth: None,
            on_expired: OnFailure::Dlq,
            on_permanent_failure: OnFailure::Dlq,
            on_filtered: OnFailure::Drop,
            send_timeout: Span::secs(30),
            depth_cache_ttl: Span::secs(1),
            allow_retry_drop: false,
            spill_after: Span::millis(250),
            backoff: Backoff::default(),
        }
    }
}

/// When the source is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AckAfter {
    /// When the destination accepted the message.
    TargetAccept,
    /// When the outbox keeps the message.
    OutboxPersist,
}

/// What becomes of a message that cannot be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It is kept as a dead letter.
    Dlq,
    /// It is dropped and counted.
    Drop,
}

/// The pauses between sends of one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Backoff {
    /// The first pause.
    pub initial_interval: Span,
    /// The longest pause.
    pub max_interval: Span,
    /// By what each pause is longer than the one before, at least 1.
    #[schemars(range(min = 1.0))]
    pub multiplier: f64,
    /// Which share of a pause is random, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial_interval: Span::secs(1), max_interval: Span::secs(30), multiplier: 2.0, jitter: 0.2 }
    }
}
