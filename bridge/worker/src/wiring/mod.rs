//! From the configuration to running parts: the only place that names adapters.

mod capped;
mod lease;
mod publishing;
mod receivers;
mod source;
mod stores;
mod subscriptions;

pub use receivers::{probe as probe_receiver, queue_options};
pub use source::source_options;
pub use stores::{Purpose, StorePart, StoreSet};
pub use subscriptions::storage_identity;

use crate::adoption::{Adoptable, Adoption};
use crate::hints::HintBoard;
use crate::parts::{LegParts, LogKind, MailboxParts, NamedSinks, RandomBits, SessionParts};
use crate::status::{LeaseStatus, SessionRole, SessionStatus, StatusBoard};
use crate::telemetry::Metrics;
use capped::CappedSink;
use causeway_aws::{AwsClients, AwsOptions, SqsOptions, SqsSink};
use causeway_core::adoption::Adopter;
use causeway_core::config::model::{OutboxOptions, Receiver, Route, Session, SessionMode};
use causeway_core::config::{Config, Id, Secret, SqsSenderSettings, StoreBackend};
use causeway_core::dead_letter::Destination;
use causeway_core::dispatch::Dispatch;
use causeway_core::drain::Pacing;
use causeway_core::hold::Order;
use causeway_core::identity::{LogName, partition_of_process};
use causeway_core::lease::row::OwnerFacts;
use causeway_core::mailbox::MailboxName;
use causeway_core::outcome::Fault;
use causeway_core::worker::options::Delivery;
use causeway_ports::{Clock, Sink};
use publishing::Publishers;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A part that cannot be built: the configuration is unusable as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{part}: {code}: {detail}")]
pub struct WiringError {
    /// The part, by its place in the configuration, such as `stores.outbox`.
    pub part: String,
    /// A stable code.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub detail: String,
}

impl WiringError {
    /// An error of `part`.
    pub fn new(part: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Self {
        Self { part: part.into(), code, detail: detail.into() }
    }

    /// What a fault means for `part`.
    pub fn of(part: impl Into<String>, fault: &Fault) -> Self {
        Self::new(part, fault.code.as_str(), fault.detail.clone())
    }

    /// For a setting that `check` knows and this release does not carry out.
    pub fn not_built(part: impl Into<String>, what: &str) -> Self {
        Self::new(part, "E_NOT_BUILT", format!("this release does not do {what} yet: leave it out"))
    }
}

/// Whether anything in the configuration is reached through AWS.
#[must_use]
pub fn needs_aws(config: &Config) -> bool {
    let in_dynamodb = |backend: Option<StoreBackend>| matches!(backend, Some(StoreBackend::Dynamodb { .. }));
    in_dynamodb(config.stores.outbox_backend())
        || in_dynamodb(config.stores.dlq_backend())
        || in_dynamodb(config.stores.lease_backend())
        || in_dynamodb(config.stores.subscription_backend())
        || config.senders.iter().any(|sender| sender.sqs().is_some())
        || config.receivers.iter().any(Receiver::is_queue)
}

/// AWS clients, where anything needs them.
pub async fn aws(config: &Config) -> Option<AwsClients> {
    if needs_aws(config) { Some(AwsClients::load(&AwsOptions::default()).await) } else { None }
}

/// The destinations by sender id, in the order of the configuration; those of MQTT without a topic yet, which bindings name. Needs a Tokio runtime.
///
/// # Errors
/// Every sender that cannot be built.
pub fn sinks(config: &Config, aws: Option<&AwsClients>) -> Result<NamedSinks, Vec<WiringError>> {
    let (mut built, mut errors) = (Vec::new(), Vec::new());
    let mut publishers = Publishers::default();
    for (index, sender) in config.senders.iter().enumerate() {
        let part = format!("senders[{index}] ({})", sender.id);
        if sender.options.credentials_uri.is_some() {
            errors.push(WiringError::not_built(format!("{part}.options.credentials_uri"), "credentials of a sender's own"));
            continue;
        }
        let sink = match (sender.sqs(), sender.mqtt(), aws) {
            (Some(settings), _, Some(clients)) => sqs_sink(clients, settings).map_err(|fault| WiringError::of(part, &fault)),
            (None, Some(settings), _) => publishers.sink(config, sender, &settings, &part),
            (Some(_), _, None) | (None, None, _) => Err(WiringError::new(part, "E_REFERENCE", "it names neither a queue nor a session")),
        };
        match sink {
            Ok(sink) => built.push((sender.id.to_string(), sink)),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(built) } else { Err(errors) }
}

fn sqs_sink(clients: &AwsClients, settings: SqsSenderSettings) -> Result<Arc<dyn Sink>, Fault> {
    let (batch_size, timeout) = (settings.batch_size as usize, settings.timeout);
    let sink = SqsSink::new(clients, SqsOptions::from(settings))?;
    Ok(Arc::new(CappedSink::new(Arc::new(sink), batch_size, timeout)))
}

/// What every session of the process shares.
#[derive(Clone)]
pub struct Shared {
    /// This process's name.
    pub instance_id: String,
    /// This process as an owner: its name and a number that no other process has, `instance_id#<boot nonce>`.
    pub owner: String,
    /// That number.
    pub nonce: u64,
    /// Whether it takes over only after the others had their chance (the control role).
    pub looks_late: bool,
    /// What leases and the member's row tell of it.
    pub facts: OwnerFacts,
    /// Where hints for its sessions come in.
    pub hints: HintBoard,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Where observations go.
    pub metrics: Metrics,
    /// Where the status is published.
    pub status: StatusBoard,
    /// Ends everything.
    pub stop: CancellationToken,
}

/// The owner loops' parts, one for each session and each queue that feeds a route, in the order of the configuration. Each is published as not open yet.
///
/// # Errors
/// Every part that cannot be built.
pub fn sessions(
    config: &Config,
    stores: &StoreSet,
    sinks: &[(String, Arc<dyn Sink>)],
    aws: Option<&AwsClients>,
    shared: &Shared,
) -> Result<Vec<SessionParts>, Vec<WiringError>> {
    let (mut built, mut errors) = (Vec::new(), Vec::new());
    for (index, session) in config.sessions.iter().enumerate() {
        let routes: Vec<&Route> =
            config.routes.iter().filter(|route| config.source_session(route).is_some_and(|feeds| feeds.id == session.id)).collect();
        if routes.is_empty() {
            continue;
        }
        match session_parts(config, index, session, &routes, stores, sinks, shared) {
            Ok(parts) => built.push(parts),
            Err(error) => errors.push(error),
        }
    }
    for (index, receiver) in config.receivers.iter().enumerate().filter(|(_, receiver)| receiver.is_queue()) {
        let routes: Vec<&Route> = config.routes.iter().filter(|route| route.receiver_id == receiver.id).collect();
        if routes.is_empty() {
            continue;
        }
        match receivers::receiver_parts(config, index, receiver, &routes, stores, sinks, aws, shared) {
            Ok(parts) => built.push(parts),
            Err(error) => errors.push(error),
        }
    }
    if built.is_empty() && errors.is_empty() {
        errors.push(WiringError::new("routes", "E_NO_ROUTE", "no route is fed by a session or a queue: there is nothing to run"));
    }
    if errors.is_empty() { Ok(built) } else { Err(errors) }
}

fn session_parts(
    config: &Config,
    index: usize,
    session: &Session,
    routes: &[&Route],
    stores: &StoreSet,
    sinks: &[(String, Arc<dyn Sink>)],
    shared: &Shared,
) -> Result<SessionParts, WiringError> {
    let part = format!("sessions[{index}] ({})", session.id);
    let outbox = stores.outbox.clone();
    if outbox.is_none() && routes.iter().any(|route| route.delivery_mode.needs_outbox()) {
        return Err(WiringError::new("stores.outbox", "E_MISSING", "routes need an outbox: configure one"));
    }
    let of_process = config.has_logs_of_processes(session);
    let partition = if of_process { partition_of_process(&session.id, shared.nonce) } else { session.id.to_string() };
    let log = LogName::new(&config.bridge.id, &partition, 0).map_err(|error| WiringError::new(part.as_str(), "E_ID", error.to_string()))?;
    let limits = config.stores.outbox.as_ref().map_or_else(OutboxOptions::default, |store| store.options.clone());
    let name =
        MailboxName::new(&config.bridge.id, &session.id).map_err(|error| WiringError::new(part.as_str(), "E_ID", error.to_string()))?;
    let mailbox = stores.mailbox.clone().map(|store| MailboxParts { store, name, poll: limits.mailbox_poll.get() });
    let options = source_options(config, session, &part)?;
    let dispatch = Dispatch::compile(config, routes.iter().copied())
        .map_err(|error| WiringError::new(part.as_str(), "E_DISPATCH", error.to_string()))?;
    let legs: Vec<Vec<LegParts>> = routes.iter().map(|route| leg_parts(config, route, &session.id, sinks)).collect::<Result<_, _>>()?;
    let status = SessionStatus {
        id: session.id.to_string(),
        broker: options.broker_url.to_string(),
        role: SessionRole::Standby,
        subscriptions_wanted: options.subscriptions.len(),
        lease: (of_process || session.session_mode == SessionMode::Exclusive).then(LeaseStatus::default),
        ..SessionStatus::default()
    };
    // From here on the loop owes signs of life.
    shared.status.publish(status, Vec::new());
    Ok(SessionParts {
        session: session.id.to_string(),
        owner: shared.owner.clone(),
        broker: options.broker_url.to_string(),
        subscriptions_wanted: options.subscriptions.len(),
        lease: lease::lease_parts(config, session, &part, &log, stores, shared)?,
        kind: if of_process { LogKind::OfProcess(watch::Sender::default().subscribe()) } else { LogKind::OfSession },
        log,
        legs: legs.into_iter().flatten().collect(),
        dispatch: Arc::new(dispatch),
        outbox,
        acknowledge: Order::OfArrival,
        lanes: session.lanes,
        mailbox,
        limits,
        stale_claim: config.stale_claim(),
        dead_letters: stores.dead_letters.clone(),
        start_source: source::starter(options.clone()),
        subscriptions: subscriptions::subscription_parts(session, stores, &options),
        random: Arc::new(RandomBits::of_the_system),
        clock: Arc::clone(&shared.clock),
        metrics: shared.metrics.clone(),
        status: shared.status.clone(),
        stop: shared.stop.clone(),
        drain_ceiling: config.bridge.drain_ceiling(),
    })
}

/// What takes care of the logs that other processes leave behind, where `sessions` have such logs. Connects them with what it will tell.
#[must_use]
pub fn adoption(config: &Config, sessions: &mut [SessionParts], shared: &Shared) -> Option<Adoption> {
    let mut adoption = Adoption { sessions: Vec::new(), adopter: Adopter::default(), jitter_seed: shared.nonce, stop: shared.stop.clone() };
    adoption.adopter.bridge = config.bridge.id.to_string();
    adoption.adopter.turn = shared.nonce;
    for parts in sessions.iter_mut().filter(|parts| matches!(parts.kind, LogKind::OfProcess(_))) {
        let report = watch::Sender::default();
        parts.kind = LogKind::OfProcess(report.subscribe());
        adoption.adopter.sessions.insert(parts.session.clone());
        adoption.adopter.own.insert(parts.log.partition().to_owned());
        adoption.sessions.push(Adoptable { parts: parts.clone(), report });
    }
    (!adoption.sessions.is_empty()).then_some(adoption)
}

/// Whether other processes may own a session of this one, or share its work: then it is a member of a bridge.
#[must_use]
pub fn is_member(config: &Config) -> bool {
    config.bridge.is_clustered() || config.sessions.iter().any(|session| session.session_mode == SessionMode::Exclusive)
}

/// The token of hints, where there are any: a member has a token, and leases to tell of.
#[must_use]
pub fn hint_token(config: &Config) -> Option<&Secret> {
    let exclusive = config.sessions.iter().any(|session| session.session_mode == SessionMode::Exclusive);
    config.http.hint_token.as_ref().filter(|_| exclusive)
}

/// A route to each of its bindings, in their order.
fn leg_parts(config: &Config, route: &Route, session: &str, sinks: &[(String, Arc<dyn Sink>)]) -> Result<Vec<LegParts>, WiringError> {
    let part = format!("routes ({})", route.id);
    let missing = |what: &str| WiringError::new(part.as_str(), "E_REFERENCE", format!("{what} does not exist"));
    let leg = |id: &Id| {
        let binding = config.binding(id).ok_or_else(|| missing("a binding of it"))?;
        let sink = sinks.iter().find(|(id, _)| *id == *binding.sender_id).ok_or_else(|| missing("the sender of a binding of it"))?;
        Ok(LegParts {
            route: route.id.to_string(),
            receiver: route.receiver_id.to_string(),
            destination: Destination { binding: binding.id.to_string(), address: binding.address.clone(), session: session.to_owned() },
            sink: sink.1.at(&binding.address).unwrap_or_else(|| Arc::clone(&sink.1)),
            delivery: Delivery::of(route.delivery_mode, &route.policy),
            pacing: route.session.as_ref().map(Pacing::from),
            policy: route.policy.clone(),
        })
    };
    if route.bindings.is_empty() {
        return Err(missing("its binding"));
    }
    route.bindings.iter().map(leg).collect()
}

/// What `/topology` shows of the configuration: ids and kinds, no addresses with secrets, no options.
#[must_use]
pub fn topology(config: &Config) -> Value {
    let kind = |backend: Option<StoreBackend>| match backend {
        Some(StoreBackend::Memory) => json!({ "type": "memory" }),
        Some(StoreBackend::Sqlite { path }) => json!({ "type": "sqlite", "path": path }),
        Some(StoreBackend::Dynamodb { table }) => json!({ "type": "dynamodb", "table": table }),
        None => Value::Null,
    };
    let senders: BTreeMap<&str, Option<String>> =
        config.senders.iter().map(|sender| (&*sender.id, sender.sqs().map(|sqs| sqs.queue_url))).collect();
    json!({
        "version": config.version,
        "deployment_mode": config.bridge.mode(),
        "stores": { "outbox": kind(config.stores.outbox_backend()), "dlq": kind(config.stores.dlq_backend()) },
        "sessions": config.sessions.iter().map(|session| json!({
            "id": session.id, "transport": session.transport, "session_mode": session.session_mode,
            "broker": session.options.session.urls().iter().map(ToString::to_string).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "receivers": config.receivers.iter().map(|receiver| json!({
            "id": receiver.id, "session_id": receiver.session_id, "topics": receiver.topics.iter().map(|topic| &topic.topic).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "senders": config.senders.iter().map(|sender| json!({ "id": sender.id, "queue_url": senders.get(&*sender.id) })).collect::<Vec<_>>(),
        "bindings": config.bindings.iter().map(|binding| json!({ "id": binding.id, "sender_id": binding.sender_id, "address": binding.address })).collect::<Vec<_>>(),
        "routes": config.routes.iter().map(|route| json!({
            "id": route.id, "receiver_id": route.receiver_id, "delivery_mode": route.delivery_mode, "bindings": route.bindings,
        })).collect::<Vec<_>>(),
    })
}
