//! What becomes of the knowledge of messages that were not delivered: `drops`.

use super::super::values::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is told of messages that were not delivered.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Drops {
    /// The ledger of drops: whose messages, why, by which topic, how many, when the first and the last. It is kept in `stores.ledger`; without that in the worker's memory.
    pub ledger: DropLedgerOptions,
}

/// The ledger of drops.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DropLedgerOptions {
    /// Whether there is one. The counters tell all drops by reason, with a ledger or without.
    pub enabled: bool,
    /// For how long a row is kept after the last message that it tells of.
    pub retention: Span,
    /// The most rows that are kept: the oldest go.
    pub max_rows: u32,
    /// How often a worker writes what was dropped. Where nothing was, nothing is written.
    pub flush_interval: Span,
}

impl Default for DropLedgerOptions {
    fn default() -> Self {
        Self { enabled: true, retention: Span::secs(7 * 86_400), max_rows: 100_000, flush_interval: Span::secs(10) }
    }
}
