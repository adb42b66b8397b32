//! Every metric of the program, declared once: name, kind, unit, labels, meaning. Exports, documentation and alarms are made from it.

use crate::status::DropReason;
use causeway_core::outcome::FaultCode;

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
}

impl Label {
    /// The label's name on `/metrics`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Session => "session",
            Self::Sender => "sender",
            Self::DropReason => "reason",
            Self::FaultCode | Self::SendCode => "code",
            Self::SendOutcome => "outcome",
            Self::AppendResult => "result",
            Self::Version => "version",
        }
    }

    /// The dimension's name in CloudWatch.
    #[must_use]
    pub const fn dimension(self) -> &'static str {
        match self {
            Self::Route => "Route",
            Self::Session => "Session",
            Self::Sender => "Sender",
            Self::DropReason => "Reason",
            Self::FaultCode | Self::SendCode => "Code",
            Self::SendOutcome => "Outcome",
            Self::AppendResult => "Result",
            Self::Version => "Version",
        }
    }

    /// The closed set of its values; `None` where they are ids of the configuration, or the one version.
    #[must_use]
    pub fn values(self) -> Option<Vec<&'static str>> {
        let codes = || FaultCode::ALL.iter().map(|code| code.as_str());
        match self {
            Self::Route | Self::Session | Self::Sender | Self::Version => None,
            Self::DropReason => Some(DropReason::ALL.iter().map(|reason| reason.as_str()).collect()),
            Self::FaultCode => Some(codes().collect()),
            Self::SendCode => Some(core::iter::once("NONE").chain(codes()).collect()),
            Self::SendOutcome => Some(vec!["done", "not_done", "unknown"]),
            Self::AppendResult => Some(AppendResult::ALL.iter().map(|result| result.as_str()).collect()),
        }
    }
}

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
}

macro_rules! catalog {
    ($($id:ident = $kind:ident $unit:ident [$($label:ident),*] $name:literal $cloudwatch:literal $help:literal;)*) => {
        /// Names a metric in code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Metric { $(#[doc = $help] $id,)* }

        /// Every metric, in the order of [`Metric`].
        pub const CATALOG: &[Definition] = &[$(Definition {
            name: $name,
            cloudwatch: $cloudwatch,
            kind: Kind::$kind,
            unit: Unit::$unit,
            labels: &[$(Label::$label),*],
            help: $help,
        },)*];
    };
}

catalog! {
    MessagesReceived = Counter Count [Route] "messages_received_total" "MessagesReceived"
        "Messages received from the source. Conservation: received + recovered = delivered + dead-lettered + dropped + expired + returned + handed over + in the outbox + in flight.";
    MessagesRecovered = Counter Count [Route] "messages_recovered_total" "MessagesRecovered"
        "Entries of former owners that were read back from the log.";
    MessagesDelivered = Counter Count [Route] "messages_delivered_total" "MessagesDelivered"
        "Messages that the destination accepted.";
    DlqEntries = Counter Count [Route, FaultCode] "dlq_entries_total" "DLQEntries"
        "Messages that were kept as dead letters, by the fault's code. Any increase wants a look.";
    MessagesDropped = Counter Count [Route, DropReason] "messages_dropped_total" "MessagesDropped"
        "Messages that were dropped on purpose, by reason.";
    MessagesExpired = Counter Count [Route] "messages_expired_total" "MessagesExpired"
        "Messages that expired before they were sent, on routes that drop those.";
    MessagesReturned = Counter Count [Route] "messages_returned_total" "MessagesReturned"
        "Messages whose connection ended before they were persisted: never acknowledged, the broker sends them again.";
    MessagesHandedOver = Counter Count [Route] "messages_handed_over_total" "MessagesHandedOver"
        "Messages left in the log, or never acknowledged, when this process's ownership ended: the next owner or the broker brings them again.";
    RouteInOutbox = Gauge Count [Route] "route_in_outbox" "RouteInOutbox"
        "Messages persisted, not settled and not being sent.";
    RouteInFlight = Gauge Count [Route] "route_in_flight" "RouteInFlight"
        "Messages received and not persisted yet, or being sent.";
    ConservationImbalance = Gauge Count [Route] "conservation_imbalance" "ConservationImbalance"
        "Messages that came in and are not accounted for. Anything but 0 is a defect.";
    AppendLatency = Histogram Seconds [Session] "append_seconds" "OutboxPersistLatency"
        "Time from the start of an append to the store's answer.";
    Appends = Counter Count [Session, AppendResult] "appends_total" "OutboxAppends"
        "Appends to the log, by result.";
    SegmentEntries = Histogram Count [Session] "segment_entries" "OutboxSegmentEntries"
        "Entries in one persisted segment.";
    SegmentBytes = Histogram Bytes [Session] "segment_bytes" "OutboxSegmentBytes"
        "Packed size of one persisted segment.";
    SendLatency = Histogram Seconds [Route] "send_seconds" "SendLatency"
        "Time from the start of a batch's send to the destination's answer.";
    SendBatchEntries = Histogram Count [Route] "send_batch_entries" "SendBatchEntries"
        "Entries in one batch handed to the destination.";
    SendResults = Counter Count [Route, SendOutcome, SendCode] "send_results_total" "SendResults"
        "Ends of single entries' sends: done, certainly not done, or unknown, with the fault's code.";
    SendRetries = Counter Count [Route] "send_retries_total" "SendRetries"
        "Attempts to send an entry after its first.";
    DispatchDelay = Histogram Seconds [Route] "dispatch_delay_seconds" "OutboxDispatchDelay"
        "Time from an entry being persisted to its first send.";
    DeliveryLatency = Histogram Seconds [Route] "delivery_seconds" "DeliveryE2ELatency"
        "Time from receiving a message to the destination accepting it, by this host's wall clock.";
    OutboxDepth = Gauge Count [Session] "outbox_depth" "OutboxDepth"
        "Entries in the log that are not settled.";
    OutboxBytes = Gauge Bytes [Session] "outbox_memory_bytes" "OutboxMemory"
        "Memory that the unsettled entries occupy.";
    OutboxOldestAge = Gauge Seconds [Session] "outbox_oldest_age_seconds" "OutboxOldestAge"
        "Age of the oldest unsettled entry; 0 where there is none.";
    DuplicateExposure = Gauge Count [Session] "duplicate_exposure" "DuplicateExposure"
        "Messages that could be delivered twice if the process died now.";
    DuplicateExposurePeak = Gauge Count [Session] "duplicate_exposure_peak" "DuplicateExposurePeak"
        "The largest duplicate exposure since the start: the bound of duplicates after a crash.";
    RecoveredEntries = Gauge Count [Session] "recovered_entries" "OutboxRecoveredEntries"
        "Entries of former owners that opening the log found.";
    RecoverySeconds = Gauge Seconds [Session] "recovery_seconds" "OutboxRecoveryDuration"
        "How long opening the log and reading it back took.";
    Epoch = Gauge None [Session] "epoch" "OwnerEpoch"
        "The owner's fencing epoch. It grows with every takeover and restart.";
    StoreWriteUnits = Counter Count [] "store_write_units_total" "StoreWriteUnits"
        "Write units that the outbox store charged; absent where it does not count them.";
    StoreReadUnits = Counter Count [] "store_read_units_total" "StoreReadUnits"
        "Read units that the outbox store charged; absent where it does not count them.";
    StoreWriteCalls = Counter Count [] "store_write_calls_total" "StoreWriteCalls"
        "Calls that wrote to the outbox store.";
    StoreReadCalls = Counter Count [] "store_read_calls_total" "StoreReadCalls"
        "Calls that read rows of a log: constant in steady state.";
    SqsRequests = Counter Count [Sender] "sqs_requests_total" "SQSRequests"
        "Requests made to SQS.";
    Connected = Gauge None [Session] "connected" "MQTTConnected"
        "1 while the session is connected to its broker.";
    SubscriptionsWanted = Gauge Count [Session] "subscriptions_wanted" "SubscriptionsWanted"
        "Filters that the configuration wants.";
    SubscriptionsActive = Gauge Count [Session] "subscriptions_active" "SubscriptionsActive"
        "Filters that the broker granted on the current connection.";
    ServiceLevel = Gauge None [Session] "service_level" "ServiceLevel"
        "0 down, 1 live, 2 running, 3 connected, 4 subscribed, 5 full.";
    AdmissionPaused = Gauge None [Session] "admission_paused" "AdmissionPaused"
        "1 while admission is held back because memory or the log is full.";
    MqttReceived = Counter Count [Session] "mqtt_received_total" "MQTTReceived"
        "Messages that the source handed over.";
    MqttAcknowledged = Counter Count [Session] "mqtt_acknowledged_total" "MQTTAcknowledged"
        "Acknowledgements written to the broker.";
    MqttUnacknowledged = Gauge Count [Session] "mqtt_unacknowledged" "MQTTUnsettled"
        "Messages handed over and not acknowledged.";
    MqttUnacknowledgedPeak = Gauge Count [Session] "mqtt_unacknowledged_peak" "MQTTUnsettledPeak"
        "The most messages that were unacknowledged on one connection.";
    MqttReconnects = Counter Count [Session] "mqtt_reconnects_total" "MQTTReconnects"
        "Connections after the first.";
    MqttConnectFailures = Counter Count [Session] "mqtt_connect_failures_total" "MQTTConnectFailures"
        "Attempts that did not lead to a connection.";
    SessionResumeLost = Counter Count [Session] "mqtt_session_resume_lost_total" "SessionResumeLost"
        "Connections that found the broker without the session it should have kept: messages may be lost there.";
    MqttPoison = Counter Count [Session] "mqtt_ingress_poison_dropped_total" "MQTTIngressPoisonDropped"
        "Packets that were malformed or over the maximum packet size.";
    MqttWindowOverruns = Counter Count [Session] "mqtt_receive_window_overruns_total" "MQTTReceiveWindowOverruns"
        "Deliveries beyond the announced Receive Maximum.";
    MqttQos0Dropped = Counter Count [Session] "mqtt_qos0_dropped_total" "MQTTQoS0Dropped"
        "Messages of quality of service 0 that found no room.";
    Live = Gauge None [] "live" "Live"
        "1 while every owner loop, source and drain makes progress.";
    Uptime = Gauge Seconds [] "uptime_seconds" "Uptime"
        "Time since the process started.";
    ResidentBytes = Gauge Bytes [] "process_resident_bytes" "ProcessResidentMemory"
        "Memory of the process now.";
    ResidentPeakBytes = Gauge Bytes [] "process_resident_peak_bytes" "ProcessResidentMemoryPeak"
        "The most memory that the process had.";
    BuildInfo = Gauge None [Version] "build_info" "BuildInfo"
        "Always 1; the label tells the version.";
}

impl Metric {
    /// Its declaration.
    #[must_use]
    pub const fn definition(self) -> &'static Definition {
        &CATALOG[self as usize]
    }
}
