//! What an owner needs to know.

use crate::config::model as config;
use crate::config::{Id, Span};
use crate::dead_letter::Destination;
use crate::dispatch::Dispatch;
use crate::drain::breaker::BreakerOptions;
use crate::drain::retry::Backoff;
use crate::drain::{BatchLimits, OrderKey, Pacing, SendLimit};
use crate::flow::quota::NodeOptions;
use crate::flow::sender::SenderOptions;
use crate::flow::{Limit, StoreBound};
use crate::hold::Order;
use crate::identity::Epoch;
use crate::log::writer::SegmentOptions;
use crate::message::Entry;
use crate::worker::depth::DepthLimit;
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// What becomes of a message that will not be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is kept in the dead-letter store.
    DeadLetter,
    /// It is dropped and counted.
    Drop,
}

/// A route's rules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Entries being sent at once.
    pub max_in_flight: usize,
    /// Attempts after which an entry may count as poison; 0: never.
    pub max_replay_attempts: u32,
    /// How long an entry must have been tried, besides, to count as poison.
    pub replay_budget: Duration,
    /// For entries past their expiry.
    pub on_expired: Fate,
    /// For entries that the destination refuses for good.
    pub on_permanent_failure: Fate,
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// How long one send may take.
    pub send_timeout: Duration,
}

impl From<&config::Policy> for Policy {
    fn from(policy: &config::Policy) -> Self {
        let backoff = &policy.backoff;
        let fate = |on: config::OnFailure| match on {
            config::OnFailure::Dlq => Fate::DeadLetter,
            config::OnFailure::Drop => Fate::Drop,
        };
        Self {
            max_in_flight: policy.max_in_flight as usize,
            max_replay_attempts: policy.max_replay_attempts,
            replay_budget: policy.replay_budget.get(),
            on_expired: fate(policy.on_expired),
            on_permanent_failure: fate(policy.on_permanent_failure),
            backoff: Backoff {
                initial: backoff.initial_interval.get(),
                max: backoff.max_interval.get(),
                multiplier: backoff.multiplier,
                jitter: backoff.jitter,
            },
            send_timeout: policy.send_timeout.get(),
        }
    }
}

impl BreakerOptions {
    /// The circuit breaker of a route, if it names one.
    #[must_use]
    pub fn of(config: &config::Config, route: &config::Route) -> Option<Self> {
        let named = |id: &Id| config.processors.iter().find(|processor| processor.id == *id);
        let breaker = route.processors.iter().filter_map(named).find(|named| named.kind == config::ProcessorKind::CircuitBreaker)?;
        let options = &breaker.options;
        Some(Self {
            failures: options.failure_threshold.unwrap_or(5),
            successes: options.success_threshold.unwrap_or(2),
            reset: options.reset_timeout.map_or(Duration::from_secs(30), Span::get),
            probes: options.half_open_probes.unwrap_or(1) as usize,
        })
    }
}

/// The pause where nothing is configured, and the shortest and the longest one of `adaptive_backoff` where it does not say.
const DRAIN_INTERVAL: Duration = Duration::from_secs(1);
const DRAIN_MIN_INTERVAL: Duration = Duration::from_millis(100);
const DRAIN_MAX_INTERVAL: Duration = Duration::from_secs(30);

impl From<&config::RouteSession> for Pacing {
    fn from(block: &config::RouteSession) -> Self {
        let fixed = |interval: Option<Span>| {
            let interval = interval.map_or(DRAIN_INTERVAL, Span::get);
            (interval, interval, 1.0)
        };
        let (shortest, longest, multiplier) = match &block.drain_strategy {
            None => fixed(block.drain_interval),
            Some(strategy) => match strategy.kind {
                config::DrainStrategyKind::FixedPoll => fixed(strategy.interval),
                config::DrainStrategyKind::AdaptiveBackoff => (
                    strategy.min_interval.map_or(DRAIN_MIN_INTERVAL, Span::get),
                    strategy.max_interval.map_or(DRAIN_MAX_INTERVAL, Span::get),
                    strategy.multiplier.unwrap_or(2.0),
                ),
            },
        };
        Self {
            shortest,
            longest,
            multiplier,
            first: block.drain_batch_size as usize,
            most: block.drain_max_batch_size as usize,
            max_sends: block.drain_max_concurrency as usize,
        }
    }
}

impl Default for Policy {
    /// That of a route that says nothing about it.
    fn default() -> Self {
        Self::from(&config::Policy::default())
    }
}

impl From<&config::OutboxOptions> for SegmentOptions {
    fn from(options: &config::OutboxOptions) -> Self {
        Self {
            max_messages: options.segment_max_messages as usize,
            max_bytes: options.segment_max_bytes as usize,
            linger: options.segment_linger.get(),
            ..Self::default()
        }
    }
}

/// Entries that an owner keeps in memory, roughly. Enough to keep every sender busy through a slow second; the rest of a backlog stays in the log.
pub const MEMORY_ENTRIES: usize = 2_000;
/// What those entries may weigh, roughly, in bytes.
pub const MEMORY_BYTES: usize = 16 * 1024 * 1024;

/// Measures what an entry takes of a batch's bytes.
pub type SizeOf = Arc<dyn Fn(&Entry) -> usize + Send + Sync>;

/// Tells what an entry must not overtake on its way to its destination; `None` where it keeps no order.
pub type KeyOf = Arc<dyn Fn(&Entry) -> Option<OrderKey> + Send + Sync>;

/// How a message gets from its source to its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Through the log: the source is told once the log has it. `shared_outbox`.
    Logged,
    /// In no log: the source holds it until the destination has accepted it. `direct_hold`.
    Held {
        /// How long it is tried with growing pauses.
        retry_budget: Duration,
    },
    /// Past the log while the destination keeps up, else through it. `spill_outbox`.
    Spilled {
        /// How long a message may be held before the log is to have it as well.
        after: Duration,
    },
}

impl Delivery {
    /// As a route's configuration says.
    #[must_use]
    pub const fn of(mode: config::DeliveryMode, policy: &config::Policy) -> Self {
        match mode {
            config::DeliveryMode::SharedOutbox => Self::Logged,
            config::DeliveryMode::DirectHold => Self::Held { retry_budget: policy.send_retry_budget.get() },
            config::DeliveryMode::SpillOutbox => Self::Spilled { after: policy.spill_after.get() },
        }
    }
}

/// One leg: a route to one of its bindings. It has a pace, a line and an account of its own.
#[derive(Clone)]
pub struct LegOptions {
    /// The route's id.
    pub route: Arc<str>,
    /// The receiver that the route takes messages from.
    pub receiver: Arc<str>,
    /// The binding, and what a dead letter tells of it.
    pub destination: Destination,
    /// How its messages get to their destination.
    pub delivery: Delivery,
    /// The route's rules. What they bound, such as `max_in_flight`, each of its legs has for itself.
    pub policy: Policy,
    /// How many of its entries may wait in the log; `None`: as many as come.
    pub depth: Option<DepthLimit>,
    /// How it takes up what is to be tried again and what former owners left; `None`: as it comes.
    pub pacing: Option<Pacing>,
    /// When it leaves its destination alone; `None`: never.
    pub breaker: Option<BreakerOptions>,
    /// Limits on what it sends: what one of them does not admit yet waits, and others pass it.
    pub send_limits: Vec<SendLimit>,
    /// When it pauses, and how it comes back.
    pub sender: SenderOptions,
    /// The destination's limits.
    pub limits: BatchLimits,
    /// Measures entries for the destination.
    pub size_of: SizeOf,
    /// What the destination keeps in order.
    pub key_of: KeyOf,
}

impl fmt::Debug for LegOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LegOptions")
            .field("route", &self.route)
            .field("binding", &self.destination.binding)
            .field("receiver", &self.receiver)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Where nothing else is said: every route sends to the binding of its first leg.
#[must_use]
pub fn to_first_legs(legs: &[LegOptions]) -> Arc<Dispatch> {
    Arc::new(Dispatch::to_first(legs.iter().map(|leg| (&*leg.route, &*leg.receiver, leg.destination.binding.as_str()))))
}

/// For how long a limit may hold the acknowledgement of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckHold {
    /// So long.
    pub most: Duration,
    /// What is done then.
    pub then: AckHoldAction,
}

impl From<&config::Inbound> for AckHold {
    fn from(inbound: &config::Inbound) -> Self {
        let then = match inbound.ack_hold_action {
            config::AckHoldAction::Park => AckHoldAction::Park,
            config::AckHoldAction::Disconnect => AckHoldAction::Reconnect,
        };
        Self { most: inbound.ack_hold_max.get(), then }
    }
}

/// What is done with a message that was held for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckHoldAction {
    /// It is kept in the log and acknowledged, and sent when the limits that held it would have admitted it. Where the log is not to have it, it stays held.
    Park,
    /// The connection is ended, and the source brings it again.
    Reconnect,
}

/// Everything that an owner needs to know.
#[derive(Clone, Debug)]
pub struct OwnerOptions {
    /// The owner's name in its anchors, for people.
    pub owner: String,
    /// The legs that its session feeds; those of one route stand together, in the order of its bindings.
    pub legs: Vec<LegOptions>,
    /// Which of them a message goes by.
    pub dispatch: Arc<Dispatch>,
    /// The epoch that a lease gave it; without a lease it takes one above the log's last.
    pub epoch: Option<Epoch>,
    /// How the source takes acknowledgements.
    pub acknowledge: Order,
    /// For how long a limit may hold what comes, and what is done then; `None`: as long as it says.
    pub ack_hold: Option<AckHold>,
    /// Limits that hold or drop what comes. Those that let it in and send it later are the legs'.
    pub limits: Vec<Limit>,
    /// The budget of the whole bridge that what comes is charged to.
    pub quota: Option<NodeOptions>,
    /// How much of one key may stand in the log; `None`: as much as comes.
    pub store: Option<StoreBound>,
    /// How many lanes the log shall have; 0: there is no log, and every route's messages are held. While the registry tells another number, that one holds: it changes once every lane is drained.
    pub lanes: u32,
    /// How often the mailbox is read; `None`: this owner moves no mail.
    pub mailbox_poll: Option<Duration>,
    /// It takes nothing in; it drains what another owner left, closes every lane for good, and ends ([`End::Retired`](super::End::Retired)).
    pub retire_when_drained: bool,
    /// How segments are formed.
    pub segment: SegmentOptions,
    /// How long a ready entry may wait for company under load.
    pub send_linger: Duration,
    /// Entries that may be settled ahead of an older one that is not.
    pub max_settled_ahead: usize,
    /// For how long settled rows of the log are kept, so that people can look back; zero: they are deleted as soon as it is worth a request.
    pub keep_settled: Duration,
    /// Entries in memory at most, roughly: the rest stays in the log.
    pub memory_entries: usize,
    /// Bytes of entries in memory at most, roughly.
    pub memory_bytes: usize,
    /// 128 random bits: the base of the entry ids.
    pub entry_id_base: u128,
    /// 128 random bits: the base of the row ids.
    pub row_id_base: u128,
    /// Random bits that seed the jitter.
    pub jitter_seed: u64,
}

impl OwnerOptions {
    /// Whether there is a log.
    #[must_use]
    pub const fn has_log(&self) -> bool {
        self.lanes > 0
    }
}
