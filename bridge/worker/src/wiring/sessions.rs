//! Sessions that feed routes.

use super::lease::LeasePlan;
use super::owner::{OwnerPlan, SourcePlan, log_name};
use super::source::MqttPlan;
use super::subscriptions::SubscriptionPlan;
use super::{WiringError, source};
use crate::parts::SharePlan;
use causeway_core::config::Config;
use causeway_core::config::model::{Route, Session, SessionMode};
use causeway_core::hold::Order;
use causeway_core::identity::partition_of_process;

/// What the owner loop of a session is built from.
///
/// # Errors
/// What cannot be had.
pub(super) fn plan(config: &Config, index: usize, session: &Session, routes: &[&Route], nonce: u64) -> Result<OwnerPlan, WiringError> {
    let part = format!("sessions[{index}] ({})", session.id);
    let of_process = config.has_logs_of_processes(session);
    let partition = if of_process { partition_of_process(&session.id, nonce) } else { session.id.to_string() };
    let log = log_name(config, &partition, &part)?;
    let exclusive = session.session_mode == SessionMode::Exclusive;
    let lease = if exclusive || of_process {
        let timing = config.session_timing(session).map_err(|error| WiringError::new(part.as_str(), "E_CADENCE", error.to_string()))?;
        let cluster = &config.bridge.cluster;
        Some(LeasePlan::new(&session.id, exclusive, cluster, timing, session.mqtt().reconcile_timeout, &log))
    } else {
        None
    };
    let connection = source::mqtt_plan(config, session, &part)?;
    Ok(OwnerPlan {
        broker: connection.options.broker_url.to_string(),
        subscriptions_wanted: connection.options.subscriptions.len(),
        lease,
        of_process,
        log,
        acknowledge: Order::OfArrival,
        lanes: session.lanes,
        subscriptions: SubscriptionPlan::of(session, &connection.options),
        share: share_of(config, of_process, &connection),
        source: SourcePlan::Mqtt(Box::new(connection)),
        returns: config.stores.dlq.as_ref().map(|dlq| dlq.auto_redrive_window.get()).filter(|window| !window.is_zero()),
        ..OwnerPlan::of_routes(config, part, session.id.to_string(), routes)?
    })
}

/// How the session leaves the groups of its shared subscriptions, where other processes are in them.
fn share_of(config: &Config, of_process: bool, connection: &MqttPlan) -> Option<SharePlan> {
    let unshare_after = config.flow.inbound.unshare_after?.get();
    let options = &connection.options;
    let in_groups = options.subscriptions.iter().any(|one| causeway_mqtt::filter::shared(&one.filter).is_some());
    (of_process && in_groups).then(|| SharePlan {
        unshare_after,
        member_interval: config.bridge.cluster.member_interval.get(),
        receive_maximum: options.receive_maximum,
    })
}
