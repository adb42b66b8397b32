//! How much is taken in, kept and sent: `flow`. One file for each of its blocks.

mod inbound;
mod limits;
mod outbound;
mod quota;
mod store;

pub use inbound::{AckHoldAction, Inbound, Qos0OnFull};
pub use limits::{FlowLimit, LimitAction, LimitMode, LimitScope};
pub use outbound::{Outbound, Resume};
pub use quota::{QuotaExhausted, QuotaOptions, QuotaOutage};
pub use store::{FlowStore, OnFull};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much is taken in, kept and sent, and what becomes of what is too much.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Flow {
    /// What is taken in.
    pub inbound: Inbound,
    /// So many messages in so much time, by key, by route, or by session.
    pub limits: Vec<FlowLimit>,
    /// One budget for everything that all processes of the bridge take in.
    pub quota: QuotaOptions,
    /// What is sent: when senders pause, and how they come back.
    pub outbound: Outbound,
    /// What is kept of messages on their way, and for how long.
    pub store: FlowStore,
}
