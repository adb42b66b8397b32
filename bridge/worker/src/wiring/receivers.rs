//! Receivers that have no session: queues.

use super::lease::Claim;
use super::{Shared, StoreSet, WiringError, lease, leg_parts};
use crate::parts::{LegParts, LogKind, MailboxParts, RandomBits, SessionParts, StartSource};
use crate::status::{LeaseStatus, SessionRole, SessionStatus};
use causeway_aws::{AwsClients, Queue, SqsSource, SqsSourceOptions};
use causeway_core::config::Config;
use causeway_core::config::model::{OutboxOptions, Receiver, Route};
use causeway_core::dispatch::Dispatch;
use causeway_core::hold::Order;
use causeway_core::identity::{LogName, partition_of_process};
use causeway_core::mailbox::MailboxName;
use causeway_core::outcome::Fault;
use causeway_ports::{Sink, Source};
use core::time::Duration;
use std::sync::Arc;
use tokio::sync::watch;

/// How long an owner may take to open its log before it steps down.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);

/// What a source needs to know; `part` names the receiver in messages.
///
/// # Errors
/// What is not built.
pub fn queue_options(receiver: &Receiver, part: &str) -> Result<SqsSourceOptions, WiringError> {
    let written = &receiver.options;
    let refuse = |name: &str, what: &str| Err(WiringError::not_built(format!("{part}.options.{name}"), what));
    if written.profile.is_some() {
        return refuse("profile", "a profile of a receiver's own");
    }
    if written.credentials_uri.is_some() {
        return refuse("credentials_uri", "credentials of a receiver's own");
    }
    let queue = match (&written.queue_url, &written.queue_name) {
        (Some(url), _) => Queue::Url(url.clone()),
        (None, Some(name)) => Queue::Name(name.clone()),
        (None, None) => return Err(WiringError::new(part, "E_QUEUE_REQUIRED", "it names no queue")),
    };
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    Ok(SqsSourceOptions {
        region: written.region.clone(),
        endpoint: written.endpoint.clone(),
        max_messages: written.max_messages,
        wait_time: seconds(written.wait_time_seconds),
        visibility_timeout: seconds(written.visibility_timeout),
        auto_extend: written.auto_extend,
        sns_unwrap: written.sns_unwrap,
        init_timeout: written.init_timeout.get(),
        poll_backoff: written.poll_backoff.get(),
        poison_max_receives: written.poison_max_receives,
        poison_drop_without_dlq: written.poison_drop_without_dlq,
        ..SqsSourceOptions::new(&receiver.id, queue)
    })
}

/// The owner loop of a receiver. Every process has one: a queue gives each message to one of those that ask.
///
/// # Errors
/// What cannot be built.
#[allow(clippy::too_many_arguments, reason = "what sessions need, and the clients")]
pub(super) fn receiver_parts(
    config: &Config,
    index: usize,
    receiver: &Receiver,
    routes: &[&Route],
    stores: &StoreSet,
    sinks: &[(String, Arc<dyn Sink>)],
    aws: Option<&AwsClients>,
    shared: &Shared,
) -> Result<SessionParts, WiringError> {
    let part = format!("receivers[{index}] ({})", receiver.id);
    let name = receiver.source_name();
    if config.session(&name).is_some() {
        return Err(WiringError::new(
            part,
            "E_DUPLICATE_ID",
            format!("a session is named `{name}`, which is where this receiver keeps its log: rename one"),
        ));
    }
    // Where every route holds its messages at the queue there is nothing to keep, and nothing that another process could take over.
    let logged = routes.iter().any(|route| route.delivery_mode.needs_outbox());
    let outbox = stores.outbox.clone().filter(|_| logged);
    if logged && outbox.is_none() {
        return Err(WiringError::new("stores.outbox", "E_MISSING", "routes need an outbox: configure one"));
    }
    let of_process = logged && config.bridge.is_clustered();
    let partition = if of_process { partition_of_process(&name, shared.nonce) } else { name.clone() };
    let log = LogName::new(&config.bridge.id, &partition, 0).map_err(|error| WiringError::new(part.as_str(), "E_ID", error.to_string()))?;
    let lease = if of_process {
        let timing = config.process_timing().map_err(|error| WiringError::new(part.as_str(), "E_CADENCE", error.to_string()))?;
        Some(lease::lease_of_claim(
            config,
            &Claim { name: &name, exclusive: false, timing, opening_timeout: OPENING_TIMEOUT },
            &log,
            stores,
            shared,
        )?)
    } else {
        None
    };
    let limits = config.stores.outbox.as_ref().map_or_else(OutboxOptions::default, |store| store.options.clone());
    let mailbox = MailboxName::new(&config.bridge.id, &name).map_err(|error| WiringError::new(part.as_str(), "E_ID", error.to_string()))?;
    let mailbox =
        stores.mailbox.clone().filter(|_| logged).map(|store| MailboxParts { store, name: mailbox, poll: limits.mailbox_poll.get() });
    let options = queue_options(receiver, &part)?;
    let clients = aws.cloned().ok_or_else(|| WiringError::new(part.as_str(), "E_REFERENCE", "there are no clients of AWS"))?;
    let queue = match &options.queue {
        Queue::Url(text) | Queue::Name(text) => text.clone(),
    };
    let dispatch = Dispatch::compile(config, routes.iter().copied())
        .map_err(|error| WiringError::new(part.as_str(), "E_DISPATCH", error.to_string()))?;
    let legs: Vec<Vec<LegParts>> = routes.iter().map(|route| leg_parts(config, route, &name, sinks)).collect::<Result<_, _>>()?;
    let status = SessionStatus {
        id: name.clone(),
        broker: queue.clone(),
        role: SessionRole::Standby,
        subscriptions_wanted: 1,
        lease: lease.as_ref().map(|_| LeaseStatus::default()),
        ..SessionStatus::default()
    };
    // From here on the loop owes signs of life.
    shared.status.publish(status, Vec::new());
    Ok(SessionParts {
        session: name,
        owner: shared.owner.clone(),
        broker: queue,
        subscriptions_wanted: 1,
        lease,
        kind: if of_process { LogKind::OfProcess(watch::Sender::default().subscribe()) } else { LogKind::OfSession },
        log,
        legs: legs.into_iter().flatten().collect(),
        dispatch: Arc::new(dispatch),
        outbox,
        acknowledge: Order::Free,
        lanes: 1,
        mailbox,
        limits,
        stale_claim: config.stale_claim(),
        dead_letters: stores.dead_letters.clone(),
        start_source: starter(clients, options),
        subscriptions: None,
        random: Arc::new(RandomBits::of_the_system),
        clock: Arc::clone(&shared.clock),
        metrics: shared.metrics.clone(),
        status: shared.status.clone(),
        stop: shared.stop.clone(),
        drain_ceiling: config.bridge.drain_ceiling(),
    })
}

/// Starts a source once somebody asks for it. A queue has no session that another process could own, so there is nothing to ask a gate for.
fn starter(clients: AwsClients, options: SqsSourceOptions) -> StartSource {
    Arc::new(move |_| match SqsSource::start(&clients, options.clone()) {
        Ok(source) => Box::new(source) as Box<dyn Source>,
        Err(fault) => {
            tracing::error!(code = fault.code.as_str(), detail = %fault.detail, "the source cannot start");
            Box::new(super::source::Ended)
        }
    })
}

/// Whether the queue is there, for a look before the start and for `doctor`.
///
/// # Errors
/// What stands in the way.
pub async fn probe(clients: &AwsClients, options: &SqsSourceOptions) -> Result<(), Fault> {
    causeway_aws::probe_queue(clients, options).await
}
