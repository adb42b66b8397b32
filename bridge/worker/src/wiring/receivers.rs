//! Receivers that have no session: queues, and those that messages are posted to.

use super::lease::LeasePlan;
use super::owner::{OwnerPlan, SourcePlan, log_name};
use super::{WiringError, source};
use crate::parts::StartSource;
use causeway_aws::{AwsClients, Queue, SqsSource, SqsSourceOptions};
use causeway_core::config::model::{Receiver, Route};
use causeway_core::config::{Config, Span};
use causeway_core::hold::Order;
use causeway_core::identity::partition_of_process;
use causeway_core::outcome::Fault;
use causeway_ports::Source;
use core::time::Duration;
use std::sync::Arc;

/// How long an owner may take to open its log before it steps down.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);

/// What a source needs to know; `part` names the receiver in messages.
///
/// # Errors
/// It names no queue.
pub fn queue_options(config: &Config, receiver: &Receiver, part: &str) -> Result<SqsSourceOptions, WiringError> {
    let written = &receiver.options;
    let queue = match (&written.queue_url, &written.queue_name) {
        (Some(url), _) => Queue::Url(url.clone()),
        (None, Some(name)) => Queue::Name(name.clone()),
        (None, None) => return Err(WiringError::new(part, "E_QUEUE_REQUIRED", "it names no queue")),
    };
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    Ok(SqsSourceOptions {
        region: written.region.clone(),
        profile: written.profile.clone(),
        endpoint: written.endpoint.clone(),
        max_messages: written.max_messages,
        wait_time: seconds(written.wait_time_seconds),
        visibility_timeout: seconds(written.visibility_timeout),
        auto_extend: written.auto_extend,
        extend_before: config.flow.outbound.visibility_extend.map(Span::get),
        sns_unwrap: written.sns_unwrap,
        init_timeout: written.init_timeout.get(),
        poll_backoff: written.poll_backoff.get(),
        poison_max_receives: written.poison_max_receives,
        poison_drop_without_dlq: written.poison_drop_without_dlq,
        ..SqsSourceOptions::new(&receiver.id, queue)
    })
}

/// What the owner loop of a receiver is built from. Every process has one: a queue gives each message to one of those that ask, and what is posted is
/// taken from the mailbox by one of them.
///
/// # Errors
/// What cannot be had.
pub(super) fn plan(config: &Config, index: usize, receiver: &Receiver, routes: &[&Route], nonce: u64) -> Result<OwnerPlan, WiringError> {
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
    let of_process = logged && config.bridge.is_clustered();
    let partition = if of_process { partition_of_process(&name, nonce) } else { name.clone() };
    let log = log_name(config, &partition, &part)?;
    let lease = if of_process {
        let timing = config.process_timing().map_err(|error| WiringError::new(part.as_str(), "E_CADENCE", error.to_string()))?;
        Some(LeasePlan::new(&name, false, &config.bridge.cluster, timing, OPENING_TIMEOUT, &log))
    } else {
        None
    };
    let pause_source = config.flow.outbound.pause_receiver && !receiver.is_http();
    let (broker, subscriptions_wanted, source) = if receiver.is_http() {
        (format!("{} of every replica", crate::http::posts::PATH.replace("{id}", &receiver.id)), 0, SourcePlan::Http)
    } else {
        let options = queue_options(config, receiver, &part)?;
        let queue = match &options.queue {
            Queue::Url(text) | Queue::Name(text) => text.clone(),
        };
        (queue, 1, SourcePlan::Sqs(Box::new(options)))
    };
    Ok(OwnerPlan {
        broker,
        subscriptions_wanted,
        lease,
        of_process,
        log,
        logged,
        acknowledge: Order::Free,
        lanes: 1,
        pause_source,
        source,
        subscriptions: None,
        ..OwnerPlan::of_routes(config, part, name, routes)?
    })
}

/// Starts a source once somebody asks for it. A queue has no session that another process could own, so there is nothing to ask a gate for.
pub(super) fn starter(clients: AwsClients, options: SqsSourceOptions) -> StartSource {
    Arc::new(move |_| match SqsSource::start(&clients, options.clone()) {
        Ok(source) => Box::new(source) as Box<dyn Source>,
        Err(fault) => {
            tracing::error!(code = fault.code.as_str(), detail = %fault.detail, "the source cannot start");
            Box::new(source::Ended)
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
