//! Limits by key: `flow.limits`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// So many messages in so much time, for each key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlowLimit {
    /// Whether it is kept. A limit that is not is checked all the same.
    pub enabled: bool,
    /// Who shares one budget: messages of one key, of one route, or all that come by one session, queue or receiver of posts. Each session, queue and receiver of posts keeps budgets of its own, in each process.
    pub scope: LimitScope,
    /// `scope: key`: what the key is taken from: `topic`, `topic_level:N` (counted from 1), or `user_property:NAME`. A subscriber never learns which client published a message: only its topic and its user properties can tell. Messages that lack it share the budget of the key `-`, and are counted.
    pub key: Option<String>,
    /// The budget: `10:1,300:60` is ten in any second and three hundred in any minute; all pairs must hold. Count and seconds, whole numbers above zero, at most 1,000,000,000 and 86,400.
    pub pairs: String,
    /// How the budget is kept.
    pub mode: LimitMode,
    /// What becomes of a message that exceeds it. Left out: `park` for `scope: key`, else `hold`.
    pub on_exceed: Option<LimitAction>,
    /// How many keys have a budget of their own at a time. A key is forgotten only when its budget is whole again.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_keys: u32,
    /// The key whose budget is shared by those for which there is no room.
    pub overflow_key: String,
    /// Permits `on_exceed: drop` where messages come that their source would repeat.
    pub allow_loss: bool,
}

impl Default for FlowLimit {
    fn default() -> Self {
        Self {
            enabled: false,
            scope: LimitScope::Key,
            key: None,
            pairs: String::new(),
            mode: LimitMode::StrictWindow,
            on_exceed: None,
            max_keys: 100_000,
            overflow_key: crate::flow::OVERFLOW_KEY.to_owned(),
            allow_loss: false,
        }
    }
}

impl FlowLimit {
    /// What becomes of a message that exceeds it.
    #[must_use]
    pub fn action(&self) -> LimitAction {
        self.on_exceed.unwrap_or(match self.scope {
            LimitScope::Key => LimitAction::Park,
            LimitScope::Route | LimitScope::Connection => LimitAction::Hold,
        })
    }
}

/// Who shares one budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// Messages of one key.
    #[default]
    Key,
    /// Messages of one route.
    Route,
    /// All that comes by one session, queue or receiver of posts.
    Connection,
}

/// How a budget is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitMode {
    /// In every span of a pair's time never more than its count.
    #[default]
    StrictWindow,
    /// A bucket of the pair's count that starts full and is refilled all the time: almost twice the count may pass in one span.
    TokenBucket,
}

/// What becomes of a message that exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitAction {
    /// It is kept in the outbox and acknowledged, and sent when the budget admits it; other keys pass it. Each destination has the budget for itself. On a route with
    /// `direct_hold` no outbox has it: it is not acknowledged, and the acknowledgements behind it wait.
    Park,
    /// It waits, not acknowledged, and so does everything that comes after it by the same session.
    Hold,
    /// It is acknowledged and dropped, and counted.
    Drop,
}
