//! The table of metrics.

use super::{Definition, Emitter, Kind, Label, Unit};

macro_rules! catalog {
    ($($emitter:ident { $($id:ident = $kind:ident $unit:ident [$($label:ident),*] $name:literal $cloudwatch:literal $help:literal;)* })*) => {
        /// Names a metric in code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Metric { $($(#[doc = $help] $id,)*)* }

        /// Every metric, in the order of [`Metric`].
        pub const CATALOG: &[Definition] = &[$($(Definition {
            name: $name,
            cloudwatch: $cloudwatch,
            kind: Kind::$kind,
            unit: Unit::$unit,
            labels: &[$(Label::$label),*],
            help: $help,
            emitter: Emitter::$emitter,
        },)*)*];
    };
}

catalog! {
    Worker {
        MessagesReceived = Counter Count [Route] "messages_received_total" "MessagesReceived"
            "Messages received from the source. Conservation: received + mailed + recovered = delivered + dead-lettered + dropped + expired + filtered + returned + handed over + in the outbox + in flight.";
        MessagesMailed = Counter Count [Route] "messages_mailed_total" "MessagesMailed"
            "Messages that came by the mailbox of the route's log and not from its source: posted to a receiver, put in by hand, or put back from the dead letters.";
        MessagesRecovered = Counter Count [Route] "messages_recovered_total" "MessagesRecovered"
            "Entries of former owners that were read back from the log.";
        MessagesDelivered = Counter Count [Route] "messages_delivered_total" "MessagesDelivered"
            "Messages that the destination accepted.";
        DlqEntries = Counter Count [Route, FaultCode] "dlq_entries_total" "DLQEntries"
            "Messages that were kept as dead letters, by the fault's code. Any increase wants a look.";
        DlqDeleted = Counter Count [] "dlq_deleted_total" "DLQDeleted"
            "Dead letters that were deleted because they were older than stores.dlq.options.retention. DynamoDB deletes those by itself, uncounted.";
        MessagesDropped = Counter Count [Route, DropReason] "messages_dropped_total" "MessagesDropped"
            "Messages of which nothing is left, by reason; those that expired are counted by messages_expired_total.";
        DroppedMessages = Counter Count [DropReason, Direction, Route, DropOutcome] "dropped_messages_total" "DroppedMessages"
            "Messages that were not delivered, by reason, direction and outcome: lost, or kept as dead letters. Each is counted as it is in messages_dropped_total, messages_expired_total or dlq_entries_total too; what is not known to belong to a route has the route -. What is counted by session alone, without a route, in mqtt_qos0_dropped_total and mqtt_ingress_poison_dropped_total is here too. What is held or waits is not here. CloudWatch gets what has occurred.";
        MessagesFiltered = Counter Count [Route, FilterCause] "messages_filtered_total" "MessagesFiltered"
            "Messages that the configuration takes out of the stream: filtered out by a processor (on_filtered: drop), or kept by the broker and skipped (retained: skip). No loss.";
        MessagesExpired = Counter Count [Route] "messages_expired_total" "MessagesExpired"
            "Messages that expired before they were sent, on routes that drop those.";
        MessagesReturned = Counter Count [Route] "messages_returned_total" "MessagesReturned"
            "Messages whose connection ended before they were persisted: never acknowledged, the broker sends them again. What came with quality of service 0 is lost by that, and counted so (session_lost).";
        MessagesHandedOver = Counter Count [Route] "messages_handed_over_total" "MessagesHandedOver"
            "Messages left in the log, or never acknowledged, when this process's ownership ended: the next owner or the broker brings them again, but for what came with quality of service 0 and is not in the log, which is lost.";
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
        CircuitBreakerState = Gauge None [Route] "circuit_breaker_state" "CircuitBreakerState"
            "What the route's circuit breaker lets through: 0 everything, or it has none, 1 probes, 2 nothing.";
        CircuitBreakerOpened = Counter Count [Route] "circuit_breaker_opened_total" "CircuitBreakerOpened"
            "Times that the route's circuit breaker opened.";
        OutboxFull = Counter Count [Route] "outbox_full_total" "OutboxFull"
            "Times that as many messages of a route as max_outbox_depth waited in the outbox: nothing is taken in for its session until there is room.";
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
        MqttPublished = Counter Count [Sender] "mqtt_published_total" "MQTTPublished"
            "Messages that were published to the broker of a sender's session, by all senders of that session together.";
        PausedSenders = Gauge Count [Direction] "paused_senders" "PausedSenders"
            "Egress: senders that send nothing for now, because what they were given piles up before their connection or their destination asked for less. Ingress: queues that are asked for nothing because no destination of theirs takes anything.";
        PendingBytes = Gauge Bytes [Sender] "pending_bytes" "PendingBytes"
            "Bytes that the connection under a sender was given and has not written. At most flow.outbound.high_water_bytes and one message.";
        InFlight = Gauge Count [Direction] "inflight" "InFlight"
            "Egress: messages handed to destinations and not answered. Ingress: messages received and not acknowledged.";
        Resumes = Counter Count [Route, Forced] "resume_total" "Resumes"
            "Times that a sender of a route went on after a pause; forced: although something of it was still under way.";
        Throttled = Counter Count [Route] "throttled_total" "Throttled"
            "Attempts that a destination answered by asking for less. They count neither as retries nor towards a poison message.";
        PeerAcks = Counter Count [Sender, PeerCode] "peer_ack_total" "PeerAcks"
            "Acknowledgements of published messages by their reason, of all senders of a session together.";
        NoMatchingSubscribers = Counter Count [Sender] "no_matching_subscribers_total" "NoMatchingSubscribers"
            "Published messages that the broker accepted and had nobody for, of all senders of a session together.";
        Connected = Gauge None [Session] "connected" "MQTTConnected"
            "1 while the session is connected to its broker.";
        SubscriptionsWanted = Gauge Count [Session] "subscriptions_wanted" "SubscriptionsWanted"
            "Filters that the configuration wants.";
        SubscriptionsActive = Gauge Count [Session] "subscriptions_active" "SubscriptionsActive"
            "Filters that the broker granted on the current connection.";
        ServiceLevel = Gauge None [Session] "service_level" "ServiceLevel"
            "0 none, 1 degraded, 2 full.";
        ReadinessLevel = Gauge None [Session] "readiness_level" "ReadinessLevel"
            "0 down, 1 live, 2 running, 3 connected, 4 subscribed, 5 full. A session without the lease is capped at subscribed.";
        FailureToFull = Histogram Seconds [Session, FailoverCause, FailoverStart] "failure_to_full_seconds" "FailureToFullDuration"
            "Time from the former owner's failure or release to this one's full service, told by the successor.";
        BrokerHealthStepDowns = Counter Count [Session] "broker_health_step_downs_total" "BrokerHealthStepDown"
            "Leases given back because the owner had been without its broker for broker_health_step_down.";
        LeaseHeld = Gauge None [Session] "lease_held" "LeaseHeld"
            "1 while this process holds the session's lease. The sum over a bridge's workers is 1, and 0 for a moment at a failover; of a session that is not owned exclusively each process holds one of its own.";
        LeaseTransfers = Counter Count [Session] "lease_transfers_total" "LeaseTransfers"
            "Leases that this process took over from another owner, released ones too.";
        LeaseExpiries = Counter Count [Session] "lease_expiries_total" "LeaseExpiries"
            "Leases of this process that it lost, or had to let go because they could not be renewed in time.";
        LeaseRenewFailures = Counter Count [Session] "lease_renew_failures_total" "LeaseRenewFailures"
            "Renewals that failed or had no answer. A lease is let go after max_renew_fails of them in a row.";
        FleetWorkers = Gauge Count [] "fleet_workers" "FleetWorkers"
            "Processes of the role worker that live, as the control process counts them: by their rows, and by what ECS says of their tasks where it is asked.";
        AzSpread = Gauge Count [] "az_spread" "AzSpread"
            "Availability zones that those workers run in, told by the control process; 0 where no worker knows its own.";
        UnseenTasks = Gauge Count [] "fleet_unseen_tasks" "FleetUnseenTasks"
            "Tasks of the members' ECS services that are to run and have never told of themselves, told by the control process where it may list tasks: they start, or fail before they write their row.";
        WarmStandby = Gauge None [Session] "warm_standby_available" "WarmStandbyAvailable"
            "1 while a worker lives that could take the session over, told by the control process, which does not count itself.";
        LeaseHolders = Gauge Count [Session] "lease_holders" "LeaseHolders"
            "Processes that have the session: whom the lease row names and gives signs of life, and whoever tells that it serves besides. Told by the control process; 1 where all is well.";
        FleetFailover = Histogram Seconds [Session, FailoverCause] "fleet_failure_to_full_seconds" "FleetFailureToFullDuration"
            "Time from a failure to a successor's full service, seen from outside by the control process: from the end of the owner's task or its last renewal, by the wall clocks of several hosts.";
        HttpPosts = Counter Count [Receiver, PostResult] "http_posts_total" "HTTPPosts"
            "Messages posted to a receiver, by what became of them: accepted, repeated (the id was accepted before) and filtered (no route keeps anything of it) by this process, forwarded to the owner; refused for what they are, or unavailable: the caller comes again.";
        RouteOwnerUnknown = Counter Count [Receiver, UnknownOwner] "route_owner_unknown_total" "RouteOwnerUnknown"
            "Posts that found no owner of their session, by reason: lease_expired and lease_unowned pass with a failover.";
        AdoptedLogs = Counter Count [Session] "logs_adopted_total" "LogsAdopted"
            "Logs of processes that are gone which this one drained and closed: of sessions that are not owned exclusively.";
        AdmissionPaused = Gauge None [Session] "admission_paused" "AdmissionPaused"
            "1 while admission is held back: memory, the log, the outbox of a route (max_outbox_depth) or of a key (flow.store) is full, a limit holds, or the budget (flow.quota) is spent.";
        HeldMessages = Gauge Count [Session] "held_messages" "HeldMessages"
            "Messages that came and wait, unacknowledged, until a limit admits the first of them.";
        Held = Counter Count [Session, LimitReason] "held_total" "Held"
            "Times that a message had to wait, unacknowledged, with everything that came after it, by the kind of limit.";
        AckHold = Gauge Seconds [Session] "ack_hold_seconds" "AckHold"
            "For how long the oldest message that waits for a limit has been unacknowledged; 0 where none waits.";
        ParkedMessages = Gauge Count [Session] "parked_messages" "ParkedMessages"
            "Messages that came and wait until a limit of what is sent admits them, among those in memory; others pass them.";
        Parked = Counter Count [Session, LimitReason] "parked_total" "Parked"
            "Messages that had to wait until a limit of what is sent admitted them, for each destination, by the kind of limit.";
        LimitKeyMissing = Counter Count [Session] "limit_key_missing_total" "LimitKeyMissing"
            "Messages that lacked what a limit that holds or drops takes its key from: they share one budget.";
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
        QuotaTokensLocal = Gauge Count [Session] "quota_tokens_local" "QuotaTokensLocal"
            "Tokens of the bridge's budget that the session has at hand.";
        QuotaCharged = Counter Count [Session] "quota_charged_total" "QuotaCharged"
            "Tokens charged: one for each message, and one for each of its destinations.";
        QuotaUnmetered = Counter Count [Session] "quota_unmetered_total" "QuotaUnmetered"
            "Tokens admitted without a budget, while its store was away and outage_policy says fail_open.";
        QuotaReturned = Counter Count [Session] "quota_returned_total" "QuotaReturned"
            "Tokens given back because nobody waited for them.";
        QuotaDraws = Counter Count [Session, DrawResult] "quota_draws_total" "QuotaDraws"
            "Draws from the bridge's budget, by what they brought: all that was asked for, less, nothing, or no answer.";
        QuotaDegraded = Gauge Count [Session] "quota_degraded" "QuotaDegraded"
            "1 while the store of the bridge's budget cannot be asked.";
        QuotaFailures = Counter Count [Session, DrawFailure] "quota_degraded_total" "QuotaFailures"
            "Calls to the store of the bridge's budget that failed: refused, or without an answer in time.";
        QuotaReached = Gauge Count [Session] "quota_reached" "QuotaReached"
            "1 while the notice stands that the bridge's budget is spent: until somebody acknowledges it, or its time is over.";
        SessionResumeLost = Counter Count [Session] "mqtt_session_resume_lost_total" "SessionResumeLost"
            "Connections that found the broker without the session it should have kept: messages may be lost there.";
        MqttPoison = Counter Count [Session] "mqtt_ingress_poison_dropped_total" "MQTTIngressPoisonDropped"
            "Packets that were malformed or over the maximum packet size.";
        MqttWindowOverruns = Counter Count [Session] "mqtt_receive_window_overruns_total" "MQTTReceiveWindowOverruns"
            "Deliveries beyond the announced Receive Maximum.";
        MqttReusedIds = Counter Count [Session] "mqtt_reused_ids_total" "MQTTReusedIds"
            "Messages whose publisher gave them an id that it had given to another message lately. They are carried like any other.";
        SubscriptionsRefused = Counter Count [Session] "mqtt_subscriptions_refused_total" "MQTTSubscriptionsRefused"
            "Refusals of filters by the broker, repeated ones too.";
        SubscriptionsQuarantined = Gauge Count [Session] "mqtt_subscriptions_quarantined" "MQTTSubscriptionsQuarantined"
            "Filters that the broker refuses and that are tried again with growing pauses. The rest of the session goes on.";
        MqttUnmatchedHeld = Gauge Count [Session] "mqtt_unmatched_held" "MQTTUnmatchedHeld"
            "Messages that no receiver asks for, held back unacknowledged for unmatched_grace after connecting.";
        MqttQos0Dropped = Counter Count [Session] "mqtt_qos0_dropped_total" "MQTTQoS0Dropped"
            "Messages of quality of service 0 that found no room.";
        CommandsAccepted = Counter Count [] "commands_accepted_total" "CommandsAccepted"
            "Commands to devices that were recorded here.";
        CommandsEnded = Counter Count [CommandState] "commands_ended_total" "CommandsEnded"
            "Commands that were given here and ended, by their state; each counts once, by the state that it had when its callers were told.";
        CommandsPending = Gauge Count [] "commands_pending" "CommandsPending"
            "Commands that were given here and are not over.";
        CommandsWaiting = Gauge Count [] "commands_waiting" "CommandsWaiting"
            "Callers whose request waits for the end of a command.";
        CommandReplies = Counter Count [ReplyPath, ReplyResult] "command_replies_total" "CommandReplies"
            "Replies of devices, by the subscription that brought them and by what they changed. Each reply comes by both, so that half of them say what is known. not_the_target: somebody answers for another device.";
        CommandRepliesLate = Counter Count [] "command_replies_late_total" "CommandRepliesLate"
            "Replies that counted although their command had timed out.";
        CommandRepliesIgnored = Counter Count [IgnoredReply] "command_replies_ignored_total" "CommandRepliesIgnored"
            "Messages on the topics of replies that are none.";
        CommandOrphans = Counter Count [] "command_orphans_total" "CommandOrphans"
            "Replies that name a command of which no row is known.";
        CommandNotices = Counter Count [Awaited] "command_notices_total" "CommandNotices"
            "Notices of other replicas that a command is over, by whether somebody waits for it here.";
        CommandConflicts = Counter Count [] "command_conflicts_total" "CommandConflicts"
            "Writes that another replica was faster with; each is decided anew.";
        CommandStoreFaults = Counter Count [] "command_store_faults_total" "CommandStoreFaults"
            "Calls to stores.commands that failed; each is tried again.";
        CommandPublishFaults = Counter Count [] "command_publish_faults_total" "CommandPublishFaults"
            "Commands and notices that could not be published; a command is tried again until its time is over.";
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

    Housekeeping {
        OutboxPending = Gauge Count [] "outbox_pending" "OutboxPending"
            "Entries in all logs of the outbox that are not settled, owned or not.";
        OutboxPendingOldestAge = Gauge Seconds [] "outbox_pending_oldest_age_seconds" "OutboxPendingOldestAge"
            "Age of the oldest of them; 0 where there is none.";
        LogsWithoutOwner = Gauge Count [] "logs_without_owner" "LogsWithoutOwner"
            "Logs with unsettled entries that nobody owns.";
        DlqDepth = Gauge Count [] "dlq_depth" "DLQDepth"
            "Dead letters that are kept.";
        DlqOldestAge = Gauge Seconds [] "dlq_oldest_age_seconds" "DLQOldestAge"
            "Age of the oldest of them; 0 where there is none.";
        HousekeepingExpiredToDlq = Counter Count [] "housekeeping_expired_to_dlq_total" "HousekeepingExpiredToDlq"
            "Expired entries of logs without an owner that became dead letters.";
        HousekeepingOrphansToDlq = Counter Count [] "housekeeping_orphans_to_dlq_total" "HousekeepingOrphansToDlq"
            "Entries of logs that no configuration names any more that became dead letters.";
        HousekeepingAnchorsPruned = Counter Count [] "housekeeping_anchors_pruned_total" "HousekeepingAnchorsPruned"
            "Anchors below the head that were deleted.";
        HousekeepingConflicts = Counter Count [] "housekeeping_conflicts_total" "HousekeepingConflicts"
            "Writes that gave way to a live owner. No fault.";
        HousekeepingErrors = Counter Count [] "housekeeping_errors_total" "HousekeepingErrors"
            "Items that a run could not treat; the next run tries again.";
        HousekeepingTruncated = Counter Count [] "housekeeping_truncated_total" "HousekeepingTruncated"
            "Runs that ended at their bound of items or time, with work left.";
        HousekeepingRunDuration = Histogram Seconds [] "housekeeping_run_seconds" "HousekeepingRunDuration"
            "How long a run took.";
    }

    Redrive {
        RedriveMatched = Counter Count [] "redrive_matched_total" "RedriveMatched"
            "Dead letters that a redrive's filter matched.";
        RedriveSucceeded = Counter Count [] "redrive_succeeded_total" "RedriveSucceeded"
            "Dead letters that were put back on their way.";
        RedriveSkipped = Counter Count [] "redrive_skipped_total" "RedriveSkipped"
            "Dead letters that had been redriven, changed or deleted meanwhile.";
        RedriveParked = Counter Count [] "redrive_parked_total" "RedriveParked"
            "Dead letters left where they are, because they had been redriven max_redrives times.";
        RedriveFailed = Counter Count [] "redrive_failed_total" "RedriveFailed"
            "Dead letters that could not be redriven; they stay.";
        RedriveRunDuration = Histogram Seconds [] "redrive_run_seconds" "RedriveRunDuration"
            "How long a run took.";
    }
}

impl Metric {
    /// Its declaration.
    #[must_use]
    pub const fn definition(self) -> &'static Definition {
        &CATALOG[self as usize]
    }
}
