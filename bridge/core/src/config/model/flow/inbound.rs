//! `flow.inbound`: what is taken in.

use crate::config::values::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is taken in from brokers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Inbound {
    /// A process that for so long has taken nothing and acknowledged nothing leaves the groups of its `$share` subscriptions, as long as it knows of another
    /// one of the bridge that gives full service, so that the others get its share; it comes back with the first message that it takes, or when there is
    /// no other, and then stays for twice this time at least. Left out: never. 2s to 1h. What it holds is acknowledged as before. Of others it knows by
    /// their rows among the members, which are believed for three times `cluster.member_interval`: if the last other one dies without a word, what is published until
    /// then has no receiver.
    pub unshare_after: Option<Span>,
}
