//! What the admin interface and the status page act on and look at.

use super::{AdminPlan, ProcessPlan, Shared, StoreSet, WiringError, secret_token};
use crate::dead_letters::redrive_ports;
use crate::fleet::{Fleet, FleetReader};
use crate::http::admin::{Desk, NamedKey};
use crate::ingress::Ingress;
use crate::secrets::SecretBoard;
use causeway_core::config::{Config, Secret};
use causeway_core::redrive::Routes;
use causeway_ports::{Mailbox, Sink};
use std::sync::Arc;

/// What the admin interface acts on.
///
/// # Errors
/// A route that cannot be had.
pub fn desk(
    config: &Config,
    stores: &StoreSet,
    sinks: &[(String, Arc<dyn Sink>)],
    shared: &Shared,
    fleet: Fleet,
) -> Result<Desk, WiringError> {
    let routes = Routes::of(&config.bridge.id, config).map_err(|error| WiringError::new("bridge.id", "E_ID", error.to_string()))?;
    let mailbox = stores.mailbox.clone().map(|store| store as Arc<dyn Mailbox>);
    Ok(Desk {
        routes,
        letters: stores.dead_letters.clone(),
        redrive: redrive_ports(stores, sinks, Arc::clone(&shared.clock)),
        ingress: Ingress::of(config, mailbox, Arc::clone(&shared.clock))?,
        step_downs: shared.step_downs.clone(),
        quota_seen: shared.quota_seen.clone(),
        status: shared.status.clone(),
        fleet,
        clock: Arc::clone(&shared.clock),
    })
}

/// The bridge as its lease table tells it, and who looks; none where this process shares nothing.
#[must_use]
pub fn fleet(stores: &StoreSet, process: &ProcessPlan, shared: &Shared) -> (Fleet, Option<FleetReader>) {
    match stores.leases.clone().zip(process.member_interval) {
        Some((leases, interval)) => {
            let (fleet, reader) = Fleet::watch(leases, &process.bridge, interval, Arc::clone(&shared.clock));
            (fleet, Some(reader))
        }
        None => (Fleet::default(), None),
    }
}

impl AdminPlan {
    /// The keys, as the listener keeps them.
    ///
    /// # Errors
    /// One that is kept elsewhere and was not read, or is no key.
    pub fn named_keys(&self, secrets: &SecretBoard) -> Result<Vec<NamedKey>, WiringError> {
        let named =
            |(name, key): &(String, Secret)| Ok(NamedKey::kept(name, secret_token(&format!("the admin key {name}"), key, secrets)?));
        self.keys.iter().map(named).collect()
    }
}
