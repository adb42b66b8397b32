//! What is sent: `flow.outbound`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much is sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Outbound {
    /// How many messages of a route may be sent to one of its bindings: pairs as in `flow.limits`, such as `100:1`. What exceeds it waits in the outbox, or with its source; what came with quality of service 0 is dropped and counted. Only the first send of a message counts. Empty: as many as the destination takes.
    pub pace: String,
}
