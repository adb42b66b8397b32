//! The budget of the whole bridge: `flow.quota`.

use crate::config::values::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One budget for everything that all processes of the bridge take in. A message costs one, and one more for each of its destinations; all of that is
/// charged before anything of it is stored, sent or acknowledged, unless `on_exhausted: park` says that it may be stored first. What is stored and paid is never
/// charged again, however often it is sent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaOptions {
    /// Whether there is a budget. One that is not kept is checked all the same.
    pub enabled: bool,
    /// The budget's name in the store of leases. Bridges that name the same one share it. Left out: the bridge's id. Without a `stores.lease` of DynamoDB the budget is in memory, of each process for itself.
    pub name: Option<String>,
    /// One pair of tokens and seconds: `1000:1`.
    pub rate: String,
    /// Tokens that may be saved up. Left out: those of the pair.
    pub burst: Option<u64>,
    /// Tokens that a process draws at a time. 0: a tenth of a second's, 1 at least.
    pub block_size: u64,
    /// How often a process gives back what it does not spend. 0: never.
    pub lease_return: Span,
    /// How long the store is given to answer a draw.
    pub draw_timeout: Span,
    /// How long a process leaves the store alone after it found the budget spent.
    pub dry_backoff: Span,
    /// How often a process that draws nothing looks at the store, and tries it while it is away.
    pub probe_interval: Span,
    /// How far ahead a draw may take its turn: tokens that the budget does not have yet, to be spent when it has them. 0: what there is is taken, and asked for again after `dry_backoff`.
    pub book_ahead: Span,
    /// What is admitted while the store is away.
    pub outage_policy: QuotaOutage,
    /// `outage_policy: fail_open`: for how long everything is admitted.
    pub outage_grace: Span,
    /// What becomes of a message while the budget is spent. While its store is away, or the outbox is, messages wait whatever this says.
    pub on_exhausted: QuotaExhausted,
    /// Permits `on_exhausted: drop` where messages come that their source would repeat.
    pub allow_loss: bool,
    /// How long the notice of a spent budget stands that nobody acknowledges.
    pub notice: Span,
}

impl Default for QuotaOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            name: None,
            rate: "1000:1".to_owned(),
            burst: None,
            block_size: 0,
            lease_return: Span::secs(1),
            draw_timeout: Span::millis(500),
            dry_backoff: Span::millis(50),
            probe_interval: Span::secs(1),
            book_ahead: Span::secs(1),
            outage_policy: QuotaOutage::LocalShare,
            outage_grace: Span::secs(30),
            on_exhausted: QuotaExhausted::Hold,
            allow_loss: false,
            notice: Span::secs(300),
        }
    }
}

/// What becomes of a message while the budget is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaExhausted {
    /// It waits, not acknowledged, and so does everything that comes after it by the same session.
    #[default]
    Hold,
    /// It is kept in the outbox and acknowledged, and sent once all of it is charged; those that came first are charged first. As many are parked as the memory has room for, then what comes
    /// is held. So is a message that goes by a route with `direct_hold`, which no outbox has.
    Park,
    /// It is acknowledged and dropped, and counted.
    Drop,
}

/// What is admitted while the budget's store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaOutage {
    /// Each session of each process has its share: the rate divided by those that were known last.
    #[default]
    LocalShare,
    /// Everything for `outage_grace`, then what was drawn before.
    FailOpen,
    /// What was drawn before.
    FailClosed,
}
