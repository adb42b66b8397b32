//! Where every message is: the conservation law.

use crate::drain::breaker::Circuit;
use crate::flow::sender::{Resumed, SenderPhase};
use crate::units::Instant;

/// What a leg counted since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegCounters {
    /// Taken in from the source.
    pub received: u64,
    /// Moved in from the mailbox.
    pub mailed: u64,
    /// Taken up from what former owners left in the log.
    pub recovered: u64,
    /// Accepted by the destination.
    pub delivered: u64,
    /// Dead-lettered.
    pub dead_lettered: u64,
    /// Given up before they were durable, because their connection ended: the source brings them again.
    pub returned: u64,
    /// Dropped past their expiry, as the policy wants.
    pub expired: u64,
    /// Dropped because they were refused for good, as the policy wants.
    pub dropped: u64,
    /// Filtered out by a processor, as the policy wants.
    pub filtered: u64,
    /// Skipped because the broker had kept them, as the receiver wants.
    pub retained: u64,
    /// Dropped because the limit of their key did not admit them, as that limit says.
    pub key_limit: u64,
    /// The same, by the limit of their route or of all that comes by a source.
    pub route_limit: u64,
    /// Dropped because the budget of the whole bridge was spent, as that says.
    pub quota_exhausted: u64,
    /// Lost with their connection, before they were durable or delivered: they came with quality of service 0, which no broker repeats.
    pub session_lost: u64,
    /// Left in the log, or not durable and not acknowledged, when the owner ended: the next owner or the source brings them again.
    pub handed_over: u64,
    /// In the log and not in memory: appended by this process and to be read back.
    pub unloaded: u64,
}

impl LegCounters {
    /// What came in and has not gone out: the entries that are here, in the log or in memory.
    #[must_use]
    pub const fn present(&self) -> u64 {
        let came = self.received + self.mailed + self.recovered;
        came.saturating_sub(self.gone())
    }

    /// What went out, or is not this owner's any more.
    const fn gone(&self) -> u64 {
        self.delivered
            + self.dead_lettered
            + self.expired
            + self.dropped
            + self.filtered
            + self.retained
            + self.key_limit
            + self.route_limit
            + self.quota_exhausted
            + self.session_lost
            + self.returned
            + self.handed_over
    }

    /// Adds what a later owner of this process counted.
    pub const fn add(&mut self, later: &Self) {
        self.received += later.received;
        self.mailed += later.mailed;
        self.recovered += later.recovered;
        self.delivered += later.delivered;
        self.dead_lettered += later.dead_lettered;
        self.returned += later.returned;
        self.expired += later.expired;
        self.dropped += later.dropped;
        self.filtered += later.filtered;
        self.retained += later.retained;
        self.key_limit += later.key_limit;
        self.route_limit += later.route_limit;
        self.quota_exhausted += later.quota_exhausted;
        self.session_lost += later.session_lost;
        self.handed_over += later.handed_over;
        self.unloaded += later.unloaded;
    }
}

/// A leg's counters, what it holds now, and what its circuit breaker lets through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegStatus {
    /// The counters.
    pub counters: LegCounters,
    /// Entries not durable yet, and those that the source holds until their destination accepted them; none in flight.
    pub pending: u64,
    /// Durable entries that are not in flight.
    pub in_outbox: u64,
    /// Entries being sent or dead-lettered.
    pub in_flight: u64,
    /// The circuit breaker.
    pub circuit: Circuit,
    /// The sender.
    pub sender: SenderStatus,
}

/// What the sender of a leg does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStatus {
    /// What it does.
    pub phase: SenderPhase,
    /// Since when; `None`: since the start.
    pub since: Option<Instant>,
    /// Entries under way at most, for now.
    pub window: usize,
    /// Entries under way.
    pub in_flight: usize,
    /// Bytes under way.
    pub unacked_bytes: usize,
    /// Times that it came back from a pause.
    pub resumed: Resumed,
    /// Times that the destination asked for less.
    pub throttles: u64,
}

impl LegStatus {
    /// The counters of an owner that ends now: what it still holds is handed over.
    #[must_use]
    pub fn closed(self) -> LegCounters {
        let handed_over = self.pending + self.in_outbox + self.in_flight;
        LegCounters { handed_over, unloaded: 0, ..self.counters }
    }

    /// What came in less what went out and what is still here: zero, or messages were lost or invented.
    #[must_use]
    pub fn imbalance(&self) -> i64 {
        let counters = &self.counters;
        let came = counters.received + counters.mailed + counters.recovered;
        came.cast_signed() - (counters.gone() + self.pending + self.in_outbox + self.in_flight).cast_signed()
    }
}
