//! How much is taken in, kept and sent: `flow`. One file for each of its blocks.

mod store;

pub use store::{FlowStore, OnFull};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much is taken in, kept and sent, and what becomes of what is too much.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Flow {
    /// What is kept of messages on their way, and for how long.
    pub store: FlowStore,
}
