//! What an owner loop is made of. `wiring` builds it from the configuration; `run` consumes it.

use crate::hints::Hinter;
use crate::returning::Returning;
use crate::status::{RouteStatus, StatusBoard};
use crate::telemetry::Metrics;
use causeway_core::config::model::{DrainCeiling, OutboxOptions};
use causeway_core::dead_letter::Destination;
use causeway_core::dispatch::Dispatch;
use causeway_core::drain::breaker::BreakerOptions;
use causeway_core::drain::{Pacing, SendLimit};
use causeway_core::flow::quota::NodeOptions;
use causeway_core::flow::sender::SenderOptions;
use causeway_core::flow::{Limit, StoreBound};
use causeway_core::hold::Order;
use causeway_core::identity::LogName;
use causeway_core::lease::Held;
use causeway_core::log::writer::SegmentOptions;
use causeway_core::member::MemberOptions;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::worker::depth::DepthLimit;
use causeway_core::worker::options::{AckHold, Delivery, Policy};
use causeway_ports::{
    Clock, ConnectionGate, DeadLetters, Leases, Mailbox, MailboxName, ManagedSubscriptions, Outbox, Quota, Sink, Source, Tasks,
};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Connects a source that asks the gate, if there is one. Called once in each term of ownership, after the log's anchor is confirmed.
pub type StartSource = Arc<dyn Fn(Option<Arc<dyn ConnectionGate>>) -> Box<dyn Source> + Send + Sync>;

/// Draws the random bits of an owner loop that begins: other bits each time.
pub type DrawBits = Arc<dyn Fn() -> Result<RandomBits, Fault> + Send + Sync>;

/// The random bits of an owner loop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RandomBits {
    /// Where the ids of its entries begin. No other process may ever draw it: the destination tells entries apart by their ids.
    pub entry_ids: u128,
    /// Where the ids of its rows begin. No other process may ever draw it: an owner knows its own row by its id.
    pub row_ids: u128,
    /// Spreads its pauses.
    pub jitter: u64,
}

impl RandomBits {
    /// From the operating system.
    ///
    /// # Errors
    /// `UNAVAILABLE` where it has none.
    pub fn of_the_system() -> Result<Self, Fault> {
        let mut bytes = [0_u8; 40];
        getrandom::fill(&mut bytes)
            .map_err(|error| Fault::new(FaultCode::Unavailable, format!("the operating system has no random bits: {error}")))?;
        let (first, rest) = bytes.split_at(16);
        let (second, third) = rest.split_at(16);
        let wide = |part: &[u8]| part.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
        Ok(Self { entry_ids: wide(first), row_ids: wide(second), jitter: u64::try_from(wide(third)).unwrap_or(0) })
    }
}

impl core::fmt::Debug for RandomBits {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RandomBits")
    }
}

/// Destinations by the id of their sender.
pub type NamedSinks = Vec<(String, Arc<dyn Sink>)>;

/// Whose log an owner loop has.
#[derive(Clone, Default)]
pub enum LogKind {
    /// The session's: one process at a time owns it.
    #[default]
    OfSession,
    /// This process's own, because its session is not owned exclusively. What it adopts of others is told here.
    OfProcess(watch::Receiver<Adopted>),
    /// One that a process left behind: nothing is taken in, and once it is drained it is closed for good.
    Adopted(Box<Adopting>),
}

/// An adoption under way.
#[derive(Clone)]
pub struct Adopting {
    /// The log's lease.
    pub held: Held,
    /// What was adopted before.
    pub before: Adopted,
    /// Where to tell how far it is.
    pub report: watch::Sender<Adopted>,
}

/// What a process adopted of logs of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Logs that were drained and closed.
    pub logs: u64,
    /// The one that is being drained.
    pub current: Option<String>,
    /// The account of what was in them, for each route in the order of the configuration.
    pub routes: Vec<RouteStatus>,
}

/// Everything that one session's owner loop needs. The loop owns it and ends with it.
#[derive(Clone)]
pub struct SessionParts {
    /// The session's id; the status, logs and metrics carry it.
    pub session: String,
    /// This process's name, for the log's anchor and for people.
    pub owner: String,
    /// The broker's address for people, without user name and password.
    pub broker: String,
    /// How many filters the source will subscribe.
    pub subscriptions_wanted: usize,
    /// The log.
    pub log: LogName,
    /// Whose log that is.
    pub kind: LogKind,
    /// The legs that the session feeds: its routes in the order of the configuration, each to every one of its bindings.
    pub legs: Vec<LegParts>,
    /// Which of them a message goes by.
    pub dispatch: Arc<Dispatch>,
    /// The log's store; `None` where there is no log, because every route's messages are held by the source.
    pub outbox: Option<Arc<dyn Outbox>>,
    /// How the source takes acknowledgements.
    pub acknowledge: Order,
    /// Limits that hold or drop what comes.
    pub arrival_limits: Vec<Limit>,
    /// For how long they may hold it.
    pub ack_hold: Option<AckHold>,
    /// The budget of the whole bridge that what comes is charged to.
    pub quota: Option<QuotaParts>,
    /// How many lanes the log shall have.
    pub lanes: u32,
    /// Where others leave entries for this log; `None` where nobody can.
    pub mailbox: Option<MailboxParts>,
    /// The log's limits and lingers.
    pub limits: LogLimits,
    /// After how long an entry handed to a send that never ended is taken up again; above every `send_timeout`.
    pub stale_claim: Duration,
    /// Where dead letters go; `None` where the configuration has no store for them (then no route may ask for one).
    pub dead_letters: Option<Arc<dyn DeadLetters>>,
    /// Connects the source.
    pub start_source: StartSource,
    /// The lease that the session is owned under; `None` where this process is its only candidate.
    pub lease: Option<LeaseParts>,
    /// What is known of the broker session's subscriptions; `None` where nobody keeps account of them.
    pub subscriptions: Option<SubscriptionParts>,
    /// How it leaves the groups of shared subscriptions while it does not get on; `None`: it never does.
    pub share: Option<ShareParts>,
    /// Puts back what died of a removed subscription once that is there again; `None`: nothing does.
    pub returning: Option<Returning>,
    /// Where the loop's ids and the spread of its pauses come from.
    pub random: DrawBits,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Where observations go.
    pub metrics: Metrics,
    /// Where the status is published.
    pub status: StatusBoard,
    /// Cancelled when the program shall stop: stop admitting, settle what is in flight within `drain_ceiling`, disconnect, end.
    pub stop: CancellationToken,
    /// Whether the source is asked for nothing while none of the senders sends.
    pub pause_source: bool,
    /// How long the loop may settle what is in flight once it shall stop. The program is ended some seconds later.
    pub drain_ceiling: DrainCeiling,
}

impl core::fmt::Debug for SessionParts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SessionParts")
            .field("session", &self.session)
            .field("log", &self.log)
            .field("legs", &self.legs)
            .finish_non_exhaustive()
    }
}

/// How a log forms its segments and batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// How segments are formed.
    pub segment: SegmentOptions,
    /// How long a batch to a destination waits for more messages, under load.
    pub send_linger: Duration,
    /// How many messages may be settled ahead of one that is stuck.
    pub max_settled_ahead: usize,
    /// For how long rows of settled messages are kept.
    pub keep_settled: Duration,
    /// How much of one key may stand in the log; `None`: as much as comes.
    pub store: Option<StoreBound>,
}

impl From<&OutboxOptions> for LogLimits {
    fn from(options: &OutboxOptions) -> Self {
        Self {
            segment: SegmentOptions::from(options),
            send_linger: options.send_linger.get(),
            max_settled_ahead: options.max_settled_ahead as usize,
            keep_settled: options.keep_settled(),
            store: None,
        }
    }
}

impl Default for LogLimits {
    fn default() -> Self {
        Self::from(&OutboxOptions::default())
    }
}

/// A session's mailbox.
#[derive(Clone)]
pub struct MailboxParts {
    /// Where it is kept: the store that has the log.
    pub store: Arc<dyn Mailbox>,
    /// Its name there.
    pub name: MailboxName,
    /// How often it is looked into.
    pub poll: Duration,
    /// Woken where this process put something in: the owner looks at once.
    pub mailed: Arc<Notify>,
}

/// A session's part in the budget of the whole bridge.
#[derive(Clone)]
pub struct QuotaParts {
    /// Where the budget is kept.
    pub store: Arc<dyn Quota>,
    /// Its name there.
    pub name: String,
    /// Tokens and seconds, as they were written.
    pub rate: String,
    /// How it is drawn from.
    pub options: NodeOptions,
    /// The members of the bridge, and how often each writes of itself: how many draw from the budget. `None`: this process alone.
    pub members: Option<(Arc<dyn Leases>, String, Duration)>,
    /// Counted up where somebody has seen the notice that the budget is spent.
    pub seen: watch::Receiver<u64>,
}

/// What keeping account of a broker session's subscriptions needs.
#[derive(Clone)]
pub struct SubscriptionParts {
    /// Where the account is kept.
    pub store: Arc<dyn ManagedSubscriptions>,
    /// The session's name there.
    pub identity: String,
    /// The filters that the configuration wants.
    pub desired: BTreeSet<String>,
    /// Whether a session that the broker reports as new proves that it has none.
    pub baseline_auto: bool,
    /// How long one call may take.
    pub call_timeout: Duration,
}

/// What leaving the groups of shared subscriptions needs.
#[derive(Clone)]
pub struct ShareParts {
    /// Where the members of the bridge are kept.
    pub leases: Arc<dyn Leases>,
    /// The bridge.
    pub bridge: String,
    /// When and for how long, and how fresh what others wrote of themselves has to be.
    pub plan: SharePlan,
}

/// How a process leaves the groups of its shared subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharePlan {
    /// After it has not got on for so long.
    pub unshare_after: Duration,
    /// How often others write of themselves at least.
    pub member_interval: Duration,
    /// With so many messages that it did not acknowledge the broker gives it no more.
    pub receive_maximum: u16,
}

/// What competing for a session's lease needs.
#[derive(Clone)]
pub struct LeaseParts {
    /// Where the lease is kept.
    pub leases: Arc<dyn Leases>,
    /// Woken where another member says that the lease is free.
    pub hinted: Arc<Notify>,
    /// Woken where an operator wants another process to own the session.
    pub asked: Arc<Notify>,
    /// Tells the others when this one gave the lease back; `None`: they find out with their next look.
    pub hinter: Option<Hinter>,
    /// Who runs the tasks of owners, where that can be asked.
    pub tasks: Option<Arc<dyn Tasks>>,
    /// How long one call to the lease store may take.
    pub call_timeout: Duration,
    /// This process as a candidate, whose key names the lease, and how it keeps it.
    pub member: MemberOptions,
}

/// One leg of a session: a route to one of its bindings.
#[derive(Clone)]
pub struct LegParts {
    /// The route's id.
    pub route: String,
    /// The receiver whose deliveries the route takes ([`causeway_ports::Delivery::receiver`]).
    pub receiver: String,
    /// Where its entries are bound for, as dead letters tell it.
    pub destination: Destination,
    /// Where its entries are sent.
    pub sink: Arc<dyn Sink>,
    /// The id of the sender that takes them there.
    pub sender: String,
    /// When it pauses, and how it comes back.
    pub flow: SenderOptions,
    /// How its messages get there.
    pub delivery: Delivery,
    /// How many of its entries may wait in the log; `None`: as many as come.
    pub depth: Option<DepthLimit>,
    /// When the destination is left alone; `None`: never.
    pub breaker: Option<BreakerOptions>,
    /// Limits on what is sent.
    pub send_limits: Vec<SendLimit>,
    /// How retries and recovery are paced; `None`: they are not.
    pub pacing: Option<Pacing>,
    /// What to do with entries that do not go through.
    pub policy: Policy,
}

impl core::fmt::Debug for LegParts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LegParts")
            .field("route", &self.route)
            .field("binding", &self.destination.binding)
            .field("receiver", &self.receiver)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
