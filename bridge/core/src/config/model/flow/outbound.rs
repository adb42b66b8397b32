//! How much is sent: `flow.outbound`.

use super::super::super::values::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When senders pause, and how they come back. It holds for each binding of each route.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Outbound {
    /// How many messages of a route may be sent to one of its bindings: pairs as in `flow.limits`, such as `100:1`. What exceeds it waits in the outbox, or with its source; what came with quality of service 0 is dropped and counted. Only the first send of a message counts. Empty: as many as the destination takes.
    pub pace: String,
    /// Messages under way at most. The route's `policy.max_in_flight` and what a broker announces (Receive Maximum) may be less. Left out: those two alone.
    pub max_in_flight: Option<u32>,
    /// Bytes under way at which nothing more is sent until an answer comes. At least the largest `max_payload_bytes` of a session.
    pub max_unacked_bytes: u64,
    /// Bytes that an MQTT connection was given and has not written above which its senders pause. At least the largest `max_payload_bytes` of a session. Left out: 1310720, or that where it is more.
    pub high_water_bytes: Option<u64>,
    /// Bytes below which that pause ends, and the sender waits until nothing is under way. Left out: half of `high_water_bytes`.
    pub low_water_bytes: Option<u64>,
    /// How a sender comes back from a pause.
    pub resume: Resume,
    /// Whether a queue is asked for nothing (no ReceiveMessage call begins) while none of the destinations that its receiver feeds takes anything. What was received before is kept and stays hidden.
    pub pause_receiver: bool,
    /// How long before a received message of a queue would show again it is hidden anew, while it is held. Left out: two thirds of the receiver's `visibility_timeout`. SQS ends that 12 hours after a message was received.
    pub visibility_extend: Option<Span>,
}

impl Default for Outbound {
    fn default() -> Self {
        Self {
            pace: String::new(),
            max_in_flight: None,
            max_unacked_bytes: 16 * 1024 * 1024,
            high_water_bytes: None,
            low_water_bytes: None,
            resume: Resume::default(),
            pause_receiver: true,
            visibility_extend: None,
        }
    }
}

/// How a sender comes back from a pause: it looks whether anything is still under way, and goes on once nothing is, or after the last look in any case.
/// The pauses between two looks are `base`, then `base` × 2, 3, 5, 9 …, none longer than `max`: 1, 2, 3, 5, 9 and 10 seconds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resume {
    /// From the first look to the second; and how long a sender waits after its destination asked for less, the first time.
    pub base: Span,
    /// The longest pause between two looks.
    pub max: Span,
    /// Looks after the second.
    pub max_retries: u32,
    /// By how much each pause is drawn longer at most.
    pub jitter: Span,
    /// Whether it begins with 8 messages under way at most, and doubles that with every window that was accepted.
    pub slow_start: bool,
}

impl Default for Resume {
    fn default() -> Self {
        Self { base: Span::secs(1), max: Span::secs(10), max_retries: 5, jitter: Span::secs(1), slow_start: true }
    }
}
