//! What became of messages that were not delivered: a closed set of reasons, and whether anything of them is left.
//!
//! Everything that a bridge drops or dead-letters is one [`Dropped`], made where it is decided. What a route's configuration takes out of the stream (a
//! filter with `on_filtered: drop`, kept messages with `retained: skip`) is none: it is no loss, and is counted by [`FilterCause`]. What is held back, or
//! waits, is none either.

pub mod ledger;

use crate::dispatch::headers;
use crate::message::Entry;
use crate::outcome::{Fault, FaultClass, FaultCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $directions:expr;)*) => {
        /// Why a message was not delivered: the closed set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// Every reason, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in metrics, answers and the ledger.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Reads a name back.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$name),)* _ => None }
            }

            /// On which of its ways a message may meet it.
            #[must_use]
            pub const fn directions(self) -> &'static [Direction] {
                match self { $(Self::$name => $directions,)* }
            }
        }
    };
}

const IN: &[Direction] = &[Direction::Ingress];
const OUT: &[Direction] = &[Direction::Egress];
const BOTH: &[Direction] = &[Direction::Ingress, Direction::Egress];

reasons! {
    /// No way leads on for it: its route has no binding for it, or filters it out and keeps it; it went through too many bridges; no filter asks for it.
    NoRoute = "no_route", IN;
    /// Its key sends more than a limit allows.
    KeyLimit = "key_limit", BOTH;
    /// Its route carries more than a limit allows.
    RouteLimit = "route_limit", BOTH;
    /// The bridge's quota is used up.
    QuotaExhausted = "quota_exhausted", BOTH;
    /// The quota could not be asked.
    QuotaUnavailable = "quota_unavailable", BOTH;
    /// Larger than the destination takes.
    PayloadTooLarge = "payload_too_large", BOTH;
    /// It came while nothing could be taken in, and its source does not bring it again.
    NotReady = "not_ready", BOTH;
    /// More were under way than its peer allows.
    InflightWindow = "inflight_window", BOTH;
    /// The way to its destination was full.
    SenderNotWritable = "sender_not_writable", OUT;
    /// Its destination cannot be used until somebody mends it.
    DeliveryFailed = "delivery_failed", OUT;
    /// Too many attempts, while others went through; or its source gave it too often.
    RetriesExhausted = "retries_exhausted", BOTH;
    /// Past its expiry.
    Expired = "expired", OUT;
    /// The oldest of a key that is full, to make room for a newer one.
    Trimmed = "trimmed", OUT;
    /// The newest of a key that is full.
    StoreFull = "store_full", IN;
    /// What came cannot be read.
    DecodeError = "decode_error", IN;
    /// A processor could not handle it.
    TransformError = "transform_error", IN;
    /// It was there before.
    Duplicate = "duplicate", BOTH;
    /// Its destination refuses it for what it is.
    TargetRejected = "target_rejected", OUT;
    /// The session that kept it is gone.
    SessionLost = "session_lost", BOTH;
    /// The program stopped before it was safe.
    Shutdown = "shutdown", BOTH;
    /// A defect.
    InternalError = "internal_error", BOTH;
}

impl DropReason {
    /// Why an entry is not delivered. `refused`: that was clear when it came; `homeless`: the configuration has no route or binding of its name.
    #[must_use]
    pub const fn of(code: FaultCode, refused: bool, homeless: bool) -> Self {
        match code {
            FaultCode::MessageExpired => Self::Expired,
            FaultCode::PayloadTooLarge => Self::PayloadTooLarge,
            FaultCode::PoisonMessage => Self::RetriesExhausted,
            FaultCode::Trimmed => Self::Trimmed,
            FaultCode::StoreFull => Self::StoreFull,
            FaultCode::AddressTemplate
            | FaultCode::NoBinding
            | FaultCode::HopLimit
            | FaultCode::MessageFiltered
            | FaultCode::SubscriptionRemoved => Self::NoRoute,
            FaultCode::NotFound if homeless => Self::NoRoute,
            FaultCode::InvalidPayload if refused => Self::TransformError,
            FaultCode::InvalidPayload | FaultCode::Refused => Self::TargetRejected,
            _ => match code.class() {
                FaultClass::Transient | FaultClass::Permanent => Self::DeliveryFailed,
                FaultClass::Rejected => Self::TargetRejected,
                FaultClass::Expired => Self::Expired,
                FaultClass::Poison => Self::RetriesExhausted,
            },
        }
    }

    /// The way on which an entry that the bridge had taken in met it.
    const fn direction(self) -> Direction {
        match self.directions() {
            [Direction::Ingress] => Direction::Ingress,
            _ => Direction::Egress,
        }
    }
}

/// On which of its ways a message was when it was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From its source into the bridge.
    Ingress,
    /// From the bridge to its destination.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: &'static [Self] = &[Self::Ingress, Self::Egress];

    /// The name in metrics, answers and the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    /// Reads a name back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|direction| direction.as_str() == text)
    }
}

/// What is left of a message that was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropOutcome {
    /// Nothing.
    Lost,
    /// A dead letter.
    DeadLettered,
}

impl DropOutcome {
    /// Both.
    pub const ALL: &'static [Self] = &[Self::Lost, Self::DeadLettered];

    /// The name in metrics and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::DeadLettered => "dead_lettered",
        }
    }
}

/// Why a message was taken out of the stream, as the configuration wants. No loss, and not among the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterCause {
    /// A processor filtered it out and the route says `on_filtered: drop`.
    Filtered,
    /// The broker had kept it for later subscribers and the receiver says `retained: skip`.
    Retained,
}

impl FilterCause {
    /// Both.
    pub const ALL: &'static [Self] = &[Self::Filtered, Self::Retained];

    /// The name in metrics and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filtered => "filtered",
            Self::Retained => "retained",
        }
    }
}

/// The route of what was dropped before it was known which one it belongs to.
pub const NO_ROUTE: &str = "-";

/// A message that was dropped, or several alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Why.
    pub reason: DropReason,
    /// On which of its ways.
    pub direction: Direction,
    /// What is left of it.
    pub outcome: DropOutcome,
    /// Its route; [`NO_ROUTE`] where that was not known yet.
    pub route: Arc<str>,
    /// Whose it was: the ordering key that came with it, where its route believes that; else the receiver that it came by, or the binding that it was bound for.
    pub key: String,
    /// Its topic.
    pub topic: String,
    /// Its quality of service.
    pub qos: u8,
    /// What exactly, for people: the fault's code and its text. No payload.
    pub detail: String,
}

impl Dropped {
    /// An entry that is not taken in: nothing is left of it.
    #[must_use]
    pub fn at_the_door(entry: &Entry, reason: DropReason, detail: &str) -> Self {
        Self {
            reason,
            direction: Direction::Ingress,
            outcome: DropOutcome::Lost,
            route: Arc::clone(&entry.route),
            key: headers::believed(&entry.message, headers::ORDERING_KEY).unwrap_or(&entry.source).to_owned(),
            topic: entry.message.topic.clone(),
            qos: entry.message.qos,
            detail: detail.to_owned(),
        }
    }

    /// An entry of a route that is given up for `fault`. `homeless`: the configuration has no route or binding of its name.
    #[must_use]
    pub fn of(entry: &Entry, fault: &Fault, outcome: DropOutcome, homeless: bool) -> Self {
        let refused = entry.refusal.as_ref().is_some_and(|refusal| refusal.code == fault.code);
        let reason = DropReason::of(fault.code, refused, homeless);
        let direction = reason.direction();
        let place = match direction {
            Direction::Egress if !entry.binding.is_empty() => &entry.binding,
            Direction::Ingress | Direction::Egress => &entry.source,
        };
        let key = headers::believed(&entry.message, headers::ORDERING_KEY).unwrap_or(place).to_owned();
        Self {
            reason,
            direction,
            outcome,
            route: Arc::clone(&entry.route),
            key,
            topic: entry.message.topic.clone(),
            qos: entry.message.qos,
            detail: fault.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever fault an entry ends with, it has one reason, and that reason's series exists.
    #[test]
    fn flow_every_fault_has_exactly_one_reason() {
        for &code in FaultCode::ALL {
            for (refused, homeless) in [(false, false), (true, false), (false, true)] {
                let reason = DropReason::of(code, refused, homeless);
                assert!(reason.directions().contains(&reason.direction()), "{code:?}");
            }
        }
        for (code, refused, homeless, reason) in [
            (FaultCode::MessageExpired, false, false, DropReason::Expired),
            (FaultCode::PayloadTooLarge, false, false, DropReason::PayloadTooLarge),
            (FaultCode::HopLimit, true, false, DropReason::NoRoute),
            (FaultCode::NoBinding, true, false, DropReason::NoRoute),
            (FaultCode::NotFound, false, true, DropReason::NoRoute),
            (FaultCode::NotFound, false, false, DropReason::DeliveryFailed),
            (FaultCode::InvalidPayload, true, false, DropReason::TransformError),
            (FaultCode::InvalidPayload, false, false, DropReason::TargetRejected),
            (FaultCode::Refused, false, false, DropReason::TargetRejected),
            (FaultCode::PoisonMessage, false, false, DropReason::RetriesExhausted),
            (FaultCode::NotAuthorized, false, false, DropReason::DeliveryFailed),
            (FaultCode::Trimmed, false, false, DropReason::Trimmed),
            (FaultCode::StoreFull, false, false, DropReason::StoreFull),
        ] {
            assert_eq!(DropReason::of(code, refused, homeless), reason, "{code:?}");
        }
    }

    #[test]
    fn flow_names_of_reasons_are_read_back() {
        for &reason in DropReason::ALL {
            assert_eq!(DropReason::parse(reason.as_str()), Some(reason));
            assert_eq!(serde_json::to_value(reason).ok(), Some(reason.as_str().into()));
        }
        assert_eq!(DropReason::ALL.len(), 21);
        assert_eq!(DropReason::parse("packet_too_large"), None);
        assert!(Direction::ALL.iter().all(|direction| Direction::parse(direction.as_str()) == Some(*direction)));
    }
}
