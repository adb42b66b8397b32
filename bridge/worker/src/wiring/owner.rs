//! Owner loops: what each is made of, as the configuration says, and the making.
//!
//! A plan tells nothing but what the parts are given; it opens, reads and draws nothing but the certificates that the configuration names. What is built
//! from a plan has nothing else of the configuration, so that a field that is in no plan, and in no other part of [`super::Plan`], does nothing.

use super::lease::LeasePlan;
use super::source::MqttPlan;
use super::subscriptions::SubscriptionPlan;
use super::{Shared, StoreSet, WiringError, receivers, sessions, source};
use crate::http::PostSource;
use crate::parts::{LegParts, LogKind, LogLimits, MailboxParts, QuotaParts, RandomBits, SessionParts, ShareParts, SharePlan, StartSource};
use crate::returning::Returning;
use crate::secrets::SecretBoard;
use crate::status::{LeaseStatus, SessionRole, SessionStatus};
use causeway_aws::{AwsClients, SqsSourceOptions};
use causeway_core::config::model::{DrainCeiling, OutboxOptions, Route};
use causeway_core::config::{Config, Id};
use causeway_core::dead_letter::Destination;
use causeway_core::dispatch::Dispatch;
use causeway_core::drain::breaker::BreakerOptions;
use causeway_core::drain::{Pacing, SendLimit};
use causeway_core::flow::quota::NodeOptions;
use causeway_core::flow::sender::SenderOptions;
use causeway_core::flow::{self, Limit, StoreBound};
use causeway_core::hold::Order;
use causeway_core::identity::LogName;
use causeway_core::mailbox::MailboxName;
use causeway_core::redrive::Routes;
use causeway_core::worker::depth::DepthLimit;
use causeway_core::worker::options::{AckHold, Delivery, Policy};
use causeway_ports::{Quota, Sink, Source};
use core::time::Duration;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// What an owner loop is built from.
#[derive(Clone, Debug)]
pub struct OwnerPlan {
    /// The place of the session or receiver in the configuration, for messages.
    pub part: String,
    /// The session's id, or what stands in its place.
    pub name: String,
    /// The broker's or queue's address, for people.
    pub broker: String,
    /// How many filters the source will subscribe.
    pub subscriptions_wanted: usize,
    /// The log.
    pub log: LogName,
    /// Whether that log is this process's own.
    pub of_process: bool,
    /// Whether there is a log and a mailbox, where there is an outbox.
    pub logged: bool,
    /// Whether a route cannot do without an outbox.
    pub needs_outbox: bool,
    /// The lease that the log is owned under; `None` where this process is its only candidate.
    pub lease: Option<LeasePlan>,
    /// Its routes in the order of the configuration, each to every one of its bindings.
    pub legs: Vec<LegPlan>,
    /// Which of them a message goes by.
    pub dispatch: Arc<Dispatch>,
    /// How the source takes acknowledgements.
    pub acknowledge: Order,
    /// Limits that hold or drop what comes.
    pub arrival_limits: Vec<Limit>,
    /// For how long they may hold it.
    pub ack_hold: Option<AckHold>,
    /// The budget of the whole bridge that what comes is charged to.
    pub quota: Option<QuotaPlan>,
    /// How many lanes the log shall have.
    pub lanes: u32,
    /// The mailbox, and how often it is looked into.
    pub mailbox: (MailboxName, Duration),
    /// The log's limits and lingers.
    pub limits: LogLimits,
    /// After how long an entry handed to a send that never ended is taken up again.
    pub stale_claim: Duration,
    /// How long the loop may settle what is in flight once it shall stop.
    pub drain_ceiling: DrainCeiling,
    /// Whether the source is asked for nothing while none of the senders sends.
    pub pause_source: bool,
    /// The source.
    pub source: SourcePlan,
    /// The account of its subscriptions.
    pub subscriptions: Option<SubscriptionPlan>,
    /// How it leaves the groups of shared subscriptions; `None`: it never does.
    pub share: Option<SharePlan>,
    /// How far back what died of a removed subscription is put back; `None`: it is not.
    pub returns: Option<Duration>,
}

/// A route to one of its bindings.
#[derive(Clone, Debug)]
pub struct LegPlan {
    /// The route's id.
    pub route: String,
    /// The receiver whose deliveries the route takes.
    pub receiver: String,
    /// Where its entries are bound for.
    pub destination: Destination,
    /// The sender that takes them there.
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

/// What a part in the budget of the whole bridge is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaPlan {
    /// Its name.
    pub name: String,
    /// Tokens and seconds, as they were written.
    pub rate: String,
    /// How it is drawn from.
    pub options: NodeOptions,
    /// The bridge whose members draw from it, and how often each writes of itself, where there are others.
    pub members: Option<(String, Duration)>,
}

impl QuotaPlan {
    fn of(config: &Config) -> Option<Self> {
        let quota = &config.flow.quota;
        let options = flow::quota::node_options(quota)?;
        let member = (config.bridge.id.to_string(), config.bridge.cluster.member_interval.get());
        Some(Self {
            name: quota.name.clone().unwrap_or_else(|| config.bridge.id.to_string()),
            rate: quota.rate.clone(),
            options,
            members: super::is_member(config).then_some(member),
        })
    }

    fn parts(self, store: Arc<dyn Quota>, stores: &StoreSet, shared: &Shared) -> QuotaParts {
        let Self { name, rate, options, members } = self;
        let members = members.zip(stores.leases.clone()).map(|((bridge, interval), leases)| (leases, bridge, interval));
        QuotaParts { store, name, rate, options, members, seen: shared.quota_seen.subscribe() }
    }
}

/// What a source is built from.
#[derive(Clone, Debug)]
pub enum SourcePlan {
    /// Topics of a broker.
    Mqtt(Box<MqttPlan>),
    /// A queue.
    Sqs(Box<SqsSourceOptions>),
    /// Whoever posts.
    Http,
    /// None yet.
    Unknown,
}

/// What the owner loops are built from: one for each session, each queue and each receiver of posts that feeds a route, in the order of the configuration. `nonce` is a number
/// that no other process has.
///
/// # Errors
/// Every one that cannot be had.
pub fn plan(config: &Config, nonce: u64) -> Result<Vec<OwnerPlan>, Vec<WiringError>> {
    let mut planned = Vec::new();
    for (index, session) in config.sessions.iter().enumerate() {
        let routes = routes_of(config, |route| config.carrier(route).is_some_and(|carrier| carrier.id == session.id));
        if !routes.is_empty() {
            planned.push(sessions::plan(config, index, session, &routes, nonce));
        }
    }
    for (index, receiver) in config.receivers.iter().enumerate().filter(|(_, receiver)| receiver.session_id.is_none()) {
        let routes = routes_of(config, |route| route.receiver_id == receiver.id && config.carrier(route).is_none());
        if !routes.is_empty() {
            planned.push(receivers::plan(config, index, receiver, &routes, nonce));
        }
    }
    if planned.is_empty() {
        planned.push(Err(WiringError::new(
            "routes",
            "E_NO_ROUTE",
            "no route is fed by a session, a queue or posts: there is nothing to run",
        )));
    }
    let (mut plans, mut errors) = (Vec::new(), Vec::new());
    for plan in planned {
        match plan {
            Ok(plan) => plans.push(plan),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(plans) } else { Err(errors) }
}

fn routes_of(config: &Config, is_fed: impl Fn(&Route) -> bool) -> Vec<&Route> {
    config.routes.iter().filter(|route| is_fed(route)).collect()
}

/// The name of the log of `partition`.
pub(super) fn log_name(config: &Config, partition: &str, part: &str) -> Result<LogName, WiringError> {
    LogName::new(&config.bridge.id, partition, 0).map_err(|error| WiringError::new(part, "E_ID", error.to_string()))
}

impl OwnerPlan {
    /// What the routes say; of the rest, what is so wherever they take from. `name`: the session, or what stands in its place.
    pub(super) fn of_routes(config: &Config, part: String, name: String, routes: &[&Route]) -> Result<Self, WiringError> {
        let id = |error: causeway_core::identity::IdentityError| WiringError::new(part.as_str(), "E_ID", error.to_string());
        let options = config.stores.outbox.as_ref().map_or_else(OutboxOptions::default, |store| store.options.clone());
        let mailbox = MailboxName::new(&config.bridge.id, &name).map_err(id)?;
        let log = log_name(config, &name, &part)?;
        let dispatch = Dispatch::compile(config, routes.iter().copied())
            .map_err(|error| WiringError::new(part.as_str(), "E_DISPATCH", error.to_string()))?;
        let legs: Vec<Vec<LegPlan>> = routes.iter().map(|route| legs_of(config, route, &name)).collect::<Result<_, _>>()?;
        Ok(Self {
            part,
            name,
            broker: String::new(),
            subscriptions_wanted: 0,
            log,
            of_process: false,
            logged: true,
            needs_outbox: routes.iter().any(|route| route.delivery_mode.needs_outbox()),
            lease: None,
            legs: legs.into_iter().flatten().collect(),
            dispatch: Arc::new(dispatch),
            acknowledge: Order::OfArrival,
            arrival_limits: flow::arrival_limits(&config.flow),
            ack_hold: Some(AckHold::from(&config.flow.inbound)),
            quota: QuotaPlan::of(config),
            lanes: 1,
            mailbox: (mailbox, options.mailbox_poll.get()),
            limits: LogLimits { store: Some(StoreBound::from(&config.flow.store)), ..LogLimits::from(&options) },
            stale_claim: config.stale_claim(),
            drain_ceiling: config.bridge.drain_ceiling(),
            pause_source: false,
            source: SourcePlan::Unknown,
            subscriptions: None,
            share: None,
            returns: None,
        })
    }

    /// The owner loop's parts. It is published as not open yet.
    ///
    /// # Errors
    /// What cannot be built.
    pub(super) fn parts(
        self,
        config: &Config,
        stores: &StoreSet,
        sinks: &[(String, Arc<dyn Sink>)],
        aws: Option<&AwsClients>,
        shared: &Shared,
    ) -> Result<SessionParts, WiringError> {
        let returning = self.returning(config, stores, shared)?;
        let outbox = stores.outbox.clone().filter(|_| self.logged);
        if self.needs_outbox && outbox.is_none() {
            return Err(WiringError::new("stores.outbox", "E_MISSING", "routes need an outbox: configure one"));
        }
        let (name, poll) = self.mailbox;
        let mailbox =
            stores.mailbox.clone().filter(|_| self.logged).map(|store| MailboxParts { store, name, poll, mailed: Arc::new(Notify::new()) });
        let legs = self.legs.into_iter().map(|leg| leg.parts(sinks)).collect::<Result<Vec<_>, _>>()?;
        let has_lease = self.lease.is_some();
        let parts = SessionParts {
            session: self.name,
            owner: shared.owner.clone(),
            broker: self.broker,
            subscriptions_wanted: self.subscriptions_wanted,
            lease: self.lease.map(|lease| lease.parts(config, stores, shared)).transpose()?,
            kind: if self.of_process { LogKind::OfProcess(watch::Sender::default().subscribe()) } else { LogKind::OfSession },
            log: self.log,
            legs,
            dispatch: self.dispatch,
            outbox,
            acknowledge: self.acknowledge,
            arrival_limits: self.arrival_limits,
            ack_hold: self.ack_hold,
            quota: self.quota.zip(stores.quota.clone()).map(|(quota, store)| quota.parts(store, stores, shared)),
            lanes: self.lanes,
            mailbox,
            limits: self.limits,
            stale_claim: self.stale_claim,
            dead_letters: stores.dead_letters.clone(),
            start_source: self.source.starter(aws, &self.part, &shared.secrets)?,
            subscriptions: self.subscriptions.and_then(|account| account.parts(stores)),
            share: self.share.zip(stores.leases.clone()).map(|(plan, leases)| ShareParts {
                leases,
                bridge: config.bridge.id.to_string(),
                plan,
            }),
            returning,
            random: Arc::new(RandomBits::of_the_system),
            clock: Arc::clone(&shared.clock),
            metrics: shared.metrics.clone(),
            status: shared.status.clone(),
            stop: shared.stop.clone(),
            pause_source: self.pause_source,
            drain_ceiling: self.drain_ceiling,
        };
        let status = SessionStatus {
            id: parts.session.clone(),
            broker: parts.broker.clone(),
            role: SessionRole::Standby,
            subscriptions_wanted: parts.subscriptions_wanted,
            lease: has_lease.then(LeaseStatus::default),
            ..SessionStatus::default()
        };
        // From here on the loop owes signs of life.
        shared.status.publish(status, Vec::new());
        Ok(parts)
    }
}

impl OwnerPlan {
    /// What puts back what died of a removed subscription, where there are filters, letters, and a way back for them.
    fn returning(&self, config: &Config, stores: &StoreSet, shared: &Shared) -> Result<Option<Returning>, WiringError> {
        let (Some(window), SourcePlan::Mqtt(source)) = (self.returns, &self.source) else { return Ok(None) };
        let (Some(letters), Some(redrives)) = (&stores.dead_letters, &stores.redrives) else { return Ok(None) };
        let routes = Routes::of(&config.bridge.id, config).map_err(|error| WiringError::new("bridge.id", "E_ID", error.to_string()))?;
        Ok(Some(Returning {
            session: self.name.clone(),
            filters: source.options.subscriptions.iter().map(|one| one.filter.clone()).collect(),
            asks: causeway_mqtt::filter::matches,
            window,
            routes,
            letters: Arc::clone(letters),
            redrives: Arc::clone(redrives),
            clock: Arc::clone(&shared.clock),
            request_id: format!("returned-{:016x}", shared.nonce),
        }))
    }
}

impl LegPlan {
    fn parts(self, sinks: &[(String, Arc<dyn Sink>)]) -> Result<LegParts, WiringError> {
        let Self { route, receiver, destination, sender, flow, delivery, depth, breaker, send_limits, pacing, policy } = self;
        let missing = || WiringError::new(format!("routes ({route})"), "E_REFERENCE", "the sender of a binding of it does not exist");
        let (_, sink) = sinks.iter().find(|(id, _)| *id == sender).ok_or_else(missing)?;
        let sink = sink.at(&destination.address).unwrap_or_else(|| Arc::clone(sink));
        Ok(LegParts { route, receiver, destination, sink, sender, flow, delivery, depth, breaker, send_limits, pacing, policy })
    }
}

impl SourcePlan {
    fn starter(self, aws: Option<&AwsClients>, part: &str, secrets: &SecretBoard) -> Result<StartSource, WiringError> {
        let missing = |what: &str| WiringError::new(part, "E_REFERENCE", what.to_owned());
        match self {
            Self::Mqtt(plan) => Ok(source::starter(plan.named(part, secrets)?)),
            Self::Sqs(options) => Ok(receivers::starter(aws.cloned().ok_or_else(|| missing("there are no clients of AWS"))?, *options)),
            Self::Http => Ok(Arc::new(|_| Box::new(PostSource::default()) as Box<dyn Source>)),
            Self::Unknown => Err(missing("it has no source")),
        }
    }
}

/// A route to each of its bindings, in their order.
fn legs_of(config: &Config, route: &Route, session: &str) -> Result<Vec<LegPlan>, WiringError> {
    let missing = || WiringError::new(format!("routes ({})", route.id), "E_REFERENCE", "a binding of it does not exist");
    let of_broker = config.receiver(&route.receiver_id).is_some_and(|receiver| receiver.session_id.is_some());
    let leg = |id: &Id| {
        let binding = config.binding(id).ok_or_else(missing)?;
        let delivery = Delivery::of(route.delivery_mode, &route.policy);
        Ok(LegPlan {
            route: route.id.to_string(),
            receiver: route.receiver_id.to_string(),
            destination: Destination {
                bridge: config.bridge.id.to_string(),
                binding: binding.id.to_string(),
                address: binding.address.clone(),
                session: session.to_owned(),
            },
            sender: binding.sender_id.to_string(),
            flow: config.sender_flow(),
            delivery,
            depth: DepthLimit::of(delivery, &route.policy),
            breaker: BreakerOptions::of(config, route),
            send_limits: flow::send_limits(&config.flow, of_broker),
            pacing: route.session.as_ref().map(Pacing::from),
            policy: Policy::from(&route.policy),
        })
    };
    if route.bindings.is_empty() {
        return Err(missing());
    }
    route.bindings.iter().map(leg).collect()
}
