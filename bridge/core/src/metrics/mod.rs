//! Every metric of the bridge and of its two functions, declared once: name, kind, unit, labels, meaning, and who tells it.
//!
//! Pure data: exports, documentation and alarms are made from it. [`catalog`] is the table, [`emf`] writes values as CloudWatch reads them.

mod catalog;
pub mod emf;

pub use catalog::{CATALOG, Metric};

use crate::commands::gateway::Path;
use crate::commands::{IgnoredReply, State, Why};
use crate::drops::{Direction, DropOutcome, DropReason, FilterCause};
use crate::flow::Reason;
use crate::flow::quota::NodeCounters;
use crate::ingress::Unknown;
use crate::outcome::FaultCode;

/// In front of every name on `/metrics`.
pub const PREFIX: &str = "causeway_";

/// What a metric's value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from 0 at the start of the process.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It is a distribution.
    Histogram,
}

impl Kind {
    /// The name in the Prometheus text format and in listings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What a metric's value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Nothing: a level or a flag.
    None,
}

impl Unit {
    /// The unit's name in CloudWatch and in listings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Seconds => "Seconds",
            Self::Bytes => "Bytes",
            Self::None => "None",
        }
    }
}

/// Who tells a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emitter {
    /// The program itself: on `/metrics`, and to CloudWatch with `metrics_exporter: emf`.
    Worker,
    /// The function that keeps the tables tidy; to CloudWatch only.
    Housekeeping,
    /// The function that sends dead letters again; to CloudWatch only.
    Redrive,
}

impl Emitter {
    /// The name in listings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Housekeeping => "housekeeping",
            Self::Redrive => "redrive",
        }
    }
}

/// A label. Its values come from the configuration or from a closed set: no message can add one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// A route's id.
    Route,
    /// A session's id.
    Session,
    /// A sender's id.
    Sender,
    /// Why a message was dropped.
    DropReason,
    /// The way of a message, or of a sender: from a source, or to a destination.
    Direction,
    /// What is left of a message that was dropped.
    DropOutcome,
    /// Why a message was taken out of the stream.
    FilterCause,
    /// A fault's code.
    FaultCode,
    /// A fault's code, or `NONE`.
    SendCode,
    /// How an entry's send ended.
    SendOutcome,
    /// How an append ended.
    AppendResult,
    /// The program's version.
    Version,
    /// Why a session changed hands.
    FailoverCause,
    /// Whether the successor stood by.
    FailoverStart,
    /// A receiver's id.
    Receiver,
    /// How a post ended.
    PostResult,
    /// Why nobody is known to own a session.
    UnknownOwner,
    /// What a draw from the bridge's budget brought.
    DrawResult,
    /// Why a call to its store failed.
    DrawFailure,
    /// Which kind of limit made a message wait.
    LimitReason,
    /// Whether something was still under way.
    Forced,
    /// The reason in an acknowledgement.
    PeerCode,
    /// Where a command stands.
    CommandState,
    /// By which subscription a reply came.
    ReplyPath,
    /// What a reply changed.
    ReplyResult,
    /// Why a message on the topics of replies is none.
    IgnoredReply,
    /// Whether somebody waits for what was told.
    Awaited,
}

/// A reply that counts, as [`Label::ReplyResult`] has it.
pub const REPLY_COUNTS: &str = "counts";

impl Label {
    /// The label's name on `/metrics`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Session => "session",
            Self::Sender => "sender",
            Self::DropReason | Self::FilterCause => "reason",
            Self::Direction => "direction",
            Self::FaultCode | Self::SendCode => "code",
            Self::SendOutcome | Self::DropOutcome => "outcome",
            Self::AppendResult => "result",
            Self::Version => "version",
            Self::FailoverCause => "cause",
            Self::FailoverStart => "start",
            Self::Receiver => "receiver",
            Self::PostResult => "result",
            Self::UnknownOwner | Self::LimitReason => "reason",
            Self::DrawResult => "result",
            Self::DrawFailure => "cause",
            Self::Forced => "forced",
            Self::PeerCode => "code",
            Self::CommandState => "state",
            Self::ReplyPath => "path",
            Self::ReplyResult => "result",
            Self::IgnoredReply => "reason",
            Self::Awaited => "awaited",
        }
    }

    /// The dimension's name in CloudWatch.
    #[must_use]
    pub const fn dimension(self) -> &'static str {
        match self {
            Self::Route => "Route",
            Self::Session => "Session",
            Self::Sender => "Sender",
            Self::DropReason | Self::FilterCause => "Reason",
            Self::Direction => "Direction",
            Self::FaultCode | Self::SendCode => "Code",
            Self::SendOutcome | Self::DropOutcome => "Outcome",
            Self::AppendResult => "Result",
            Self::Version => "Version",
            Self::FailoverCause => "Cause",
            Self::FailoverStart => "Start",
            Self::Receiver => "Receiver",
            Self::PostResult => "Result",
            Self::UnknownOwner | Self::LimitReason => "Reason",
            Self::DrawResult => "Result",
            Self::DrawFailure => "Cause",
            Self::Forced => "Forced",
            Self::PeerCode => "Code",
            Self::CommandState => "State",
            Self::ReplyPath => "Path",
            Self::ReplyResult => "Result",
            Self::IgnoredReply => "Reason",
            Self::Awaited => "Awaited",
        }
    }

    /// The closed set of its values; `None` where they are ids of the configuration, or the one version.
    #[must_use]
    pub fn values(self) -> Option<Vec<&'static str>> {
        let codes = || FaultCode::ALL.iter().map(|code| code.as_str());
        match self {
            Self::Route | Self::Session | Self::Sender | Self::Receiver | Self::Version => None,
            Self::DropReason => Some(DropReason::ALL.iter().map(|reason| reason.as_str()).collect()),
            Self::Direction => Some(Direction::ALL.iter().map(|direction| direction.as_str()).collect()),
            Self::DropOutcome => Some(DropOutcome::ALL.iter().map(|outcome| outcome.as_str()).collect()),
            Self::FilterCause => Some(FilterCause::ALL.iter().map(|cause| cause.as_str()).collect()),
            Self::FaultCode => Some(codes().collect()),
            Self::SendCode => Some(core::iter::once("NONE").chain(codes()).collect()),
            Self::SendOutcome => Some(vec!["done", "not_done", "unknown"]),
            Self::AppendResult => Some(AppendResult::ALL.iter().map(|result| result.as_str()).collect()),
            Self::FailoverCause => Some(FailoverCause::ALL.iter().map(|cause| cause.as_str()).collect()),
            Self::FailoverStart => Some(FailoverStart::ALL.iter().map(|start| start.as_str()).collect()),
            Self::PostResult => Some(PostResult::ALL.iter().map(|result| result.as_str()).collect()),
            Self::Forced | Self::Awaited => Some(vec!["false", "true"]),
            Self::CommandState => Some(State::ALL.iter().map(|state| state.as_str()).collect()),
            Self::ReplyPath => Some(Path::ALL.iter().map(|path| path.as_str()).collect()),
            Self::ReplyResult => Some(core::iter::once(REPLY_COUNTS).chain(Why::ALL.iter().map(|why| why.as_str())).collect()),
            Self::IgnoredReply => Some(IgnoredReply::ALL.iter().map(|why| why.as_str()).collect()),
            Self::PeerCode => Some(PEER_CODES.iter().map(|(_, name)| *name).collect()),
            Self::UnknownOwner => Some(Unknown::ALL.iter().map(|why| why.as_str()).collect()),
            Self::DrawResult => Some(NodeCounters::DRAW_RESULTS.to_vec()),
            Self::DrawFailure => Some(NodeCounters::FAILURES.to_vec()),
            Self::LimitReason => Some(Reason::ALL.iter().map(|reason| reason.name()).collect()),
        }
    }
}

/// The reasons that a broker may give in a PUBACK, and how they are written.
pub const PEER_CODES: [(u8, &str); 9] = [
    (0x00, "0x00"),
    (0x10, "0x10"),
    (0x80, "0x80"),
    (0x83, "0x83"),
    (0x87, "0x87"),
    (0x90, "0x90"),
    (0x91, "0x91"),
    (0x97, "0x97"),
    (0x99, "0x99"),
];

/// How an append of a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendResult {
    /// It is durable.
    Stored,
    /// It certainly is not; it is tried again.
    NotDone,
    /// No answer; it is tried again at the same slot.
    Unknown,
    /// Another owner's row stands there.
    Fenced,
}

impl AppendResult {
    /// Every result.
    pub const ALL: &'static [Self] = &[Self::Stored, Self::NotDone, Self::Unknown, Self::Fenced];

    /// The label's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::NotDone => "not_done",
            Self::Unknown => "unknown",
            Self::Fenced => "fenced",
        }
    }
}

/// How a post ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostResult {
    /// It stands in the mailbox.
    Accepted,
    /// It was accepted before.
    Repeated,
    /// Every route that it came by filters it out, and keeps nothing of it.
    Filtered,
    /// The owner has it.
    Forwarded,
    /// The caller has to change something.
    Refused,
    /// The caller has to come again.
    Unavailable,
}

impl PostResult {
    /// Every result.
    pub const ALL: &'static [Self] = &[Self::Accepted, Self::Repeated, Self::Filtered, Self::Forwarded, Self::Refused, Self::Unavailable];

    /// The label's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Repeated => "repeated",
            Self::Filtered => "filtered",
            Self::Forwarded => "forwarded",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Why a session changed hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailoverCause {
    /// Its owner let the lease expire: it died, hung, or lost its way to the store.
    Crash,
    /// Its owner gave the lease back: it was told to stop, or could not use the log.
    Release,
    /// Its owner gave the lease back because it had lost its way to the broker.
    BrokerPath,
}

impl FailoverCause {
    /// Every cause.
    pub const ALL: &'static [Self] = &[Self::Crash, Self::Release, Self::BrokerPath];

    /// The label's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Release => "release",
            Self::BrokerPath => "broker_path",
        }
    }

    /// Reads a value back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cause| cause.as_str() == text)
    }
}

/// Whether the successor stood by when the session lost its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailoverStart {
    /// It ran before.
    Warm,
    /// It was started after.
    Cold,
}

impl FailoverStart {
    /// Both.
    pub const ALL: &'static [Self] = &[Self::Warm, Self::Cold];

    /// The label's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// One declaration.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name on `/metrics`, without [`PREFIX`].
    pub name: &'static str,
    /// The name in CloudWatch.
    pub cloudwatch: &'static str,
    /// Counter, gauge or histogram.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// Its labels, in order.
    pub labels: &'static [Label],
    /// What it means.
    pub help: &'static str,
    /// Who tells it.
    pub emitter: Emitter,
}
