//! How much is taken in, kept and sent: `flow`. One file for each of its blocks.

mod inbound;

pub use inbound::Inbound;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much is taken in, kept and sent, and what becomes of what is too much.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Flow {
    /// What is taken in.
    pub inbound: Inbound,
}
