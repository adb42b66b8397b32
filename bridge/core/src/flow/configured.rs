//! Limits as the configuration has them. One that cannot be read is none: `check` refuses it before.

use super::{Limit, LimitKey, Mode, OnExceed, Pairs};
use crate::config::model::{Flow, FlowLimit, LimitAction, LimitMode, LimitScope};
use crate::drain::SendLimit;

/// Keys that a limit with one key for all keeps.
const ONE_KEY: usize = 1;

impl From<LimitMode> for Mode {
    fn from(mode: LimitMode) -> Self {
        match mode {
            LimitMode::StrictWindow => Self::StrictWindow,
            LimitMode::TokenBucket => Self::TokenBucket,
        }
    }
}

fn key_of(limit: &FlowLimit) -> Option<LimitKey> {
    match limit.scope {
        LimitScope::Key => LimitKey::parse(limit.key.as_deref()?).ok(),
        LimitScope::Route => Some(LimitKey::Route),
        LimitScope::Connection => Some(LimitKey::Connection),
    }
}

/// The limits that hold or drop what comes.
#[must_use]
pub fn arrival_limits(flow: &Flow) -> Vec<Limit> {
    let limit = |limit: &FlowLimit| {
        let on_exceed = match limit.action() {
            LimitAction::Park => return None,
            LimitAction::Hold => OnExceed::Hold,
            LimitAction::Drop => OnExceed::Drop,
        };
        Some(Limit {
            key: key_of(limit)?,
            pairs: Pairs::parse(&limit.pairs).ok()?,
            mode: limit.mode.into(),
            on_exceed,
            max_keys: limit.max_keys as usize,
            overflow_key: limit.overflow_key.as_str().into(),
        })
    };
    flow.limits.iter().filter(|limit| limit.enabled).filter_map(limit).collect()
}

/// The limits on what a leg sends. `of_broker`: what it sends comes from a broker, which says by its quality of service that it would not repeat it either.
#[must_use]
pub fn send_limits(flow: &Flow, of_broker: bool) -> Vec<SendLimit> {
    let parked = flow.limits.iter().filter(|limit| limit.enabled && limit.action() == LimitAction::Park);
    let limit = |limit: &FlowLimit| {
        Some(SendLimit {
            key: key_of(limit)?,
            pairs: Pairs::parse(&limit.pairs).ok()?,
            mode: limit.mode.into(),
            max_keys: limit.max_keys as usize,
            overflow_key: limit.overflow_key.as_str().into(),
            drops_qos_0: false,
        })
    };
    let pace = Pairs::parse(&flow.outbound.pace).ok().map(|pairs| SendLimit {
        key: LimitKey::Connection,
        pairs,
        mode: Mode::StrictWindow,
        max_keys: ONE_KEY,
        overflow_key: super::OVERFLOW_KEY.into(),
        drops_qos_0: of_broker,
    });
    parked.filter_map(limit).chain(pace).collect()
}
