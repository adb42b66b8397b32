//! Why a message is not taken in or sent yet, or never.

use super::key::LimitKey;
use crate::drops::DropReason;

/// Which kind of limit does not admit a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The limit of a key.
    KeyLimit,
    /// The limit of a route, of all that comes by a source, or of all that goes to a destination.
    RouteLimit,
    /// The budget of the whole bridge is spent.
    QuotaExhausted,
    /// The budget of the whole bridge cannot be seen, and this process has no share left.
    QuotaUnavailable,
    /// As much of its key as may waits in the log.
    StoreFull,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::KeyLimit, Self::RouteLimit, Self::QuotaExhausted, Self::QuotaUnavailable, Self::StoreFull];

    /// As metrics and people name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyLimit => "key_limit",
            Self::RouteLimit => "route_limit",
            Self::QuotaExhausted => "quota_exhausted",
            Self::QuotaUnavailable => "quota_unavailable",
            Self::StoreFull => "store_full",
        }
    }

    /// As drops are told by it.
    #[must_use]
    pub const fn drop_reason(self) -> DropReason {
        match self {
            Self::KeyLimit => DropReason::KeyLimit,
            Self::RouteLimit => DropReason::RouteLimit,
            Self::QuotaExhausted => DropReason::QuotaExhausted,
            Self::QuotaUnavailable => DropReason::QuotaUnavailable,
            Self::StoreFull => DropReason::StoreFull,
        }
    }

    /// That of a limit.
    #[must_use]
    pub const fn of(key: &LimitKey) -> Self {
        match key {
            LimitKey::Topic | LimitKey::TopicLevel(_) | LimitKey::UserProperty(_) => Self::KeyLimit,
            LimitKey::Route | LimitKey::Connection => Self::RouteLimit,
        }
    }
}
