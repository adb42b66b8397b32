//! Calls to the lease store, and the gate that a source under a lease asks before it connects.

use super::engine::Event;
use crate::parts::LeaseParts;
use async_trait::async_trait;
use causeway_core::lease::LeaseWrite;
use causeway_core::lease::row::LeaseRow;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_ports::{ConnectionGate, Leases};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The lease store of one session. At most one call is under way.
pub(super) struct LeaseCalls {
    leases: Arc<dyn Leases>,
    key: String,
    timeout: Duration,
    tasks: JoinSet<Event>,
}

impl LeaseCalls {
    pub(super) fn new(parts: &LeaseParts) -> Self {
        Self { leases: Arc::clone(&parts.leases), key: parts.candidate.key.clone(), timeout: parts.call_timeout, tasks: JoinSet::new() }
    }

    /// The answer of the call that is under way; never, while there is none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Event {
        match self.tasks.join_next().await {
            Some(Ok(event)) => event,
            // A panic in an adapter: nobody knows whether the write took effect.
            Some(Err(_)) => {
                Event::LeaseWritten(Outcome::Unknown(Fault::new(FaultCode::ProtocolError, "the lease store's adapter panicked")))
            }
            None => core::future::pending().await,
        }
    }

    pub(super) fn read(&mut self) {
        let (leases, key, timeout) = (Arc::clone(&self.leases), self.key.clone(), self.timeout);
        self.tasks.spawn(async move {
            let answer = tokio::time::timeout(timeout, leases.read(&key)).await;
            Event::LeaseRead(answer.unwrap_or_else(|_| Err(late(timeout))))
        });
    }

    pub(super) fn write(&mut self, write: LeaseWrite) {
        let (leases, key, timeout) = (Arc::clone(&self.leases), self.key.clone(), self.timeout);
        self.tasks.spawn(async move {
            let answer = tokio::time::timeout(timeout, leases.write(&key, &write)).await;
            Event::LeaseWritten(answer.unwrap_or_else(|_| Outcome::Unknown(late(timeout))))
        });
    }
}

fn late(timeout: Duration) -> Fault {
    Fault::new(FaultCode::Timeout, format!("the lease store did not answer within {} ms", timeout.as_millis()))
}

/// Which lease this process holds: owner and version.
pub(super) type HeldLease = Option<(String, u64)>;

/// Lets a source connect only while the lease row names this owner and this version.
///
/// A broker that ends a connection does not reliably tell why. It may be that another worker connected with the same client id because it owns the
/// session now; whoever reconnects blindly then throws the rightful owner out.
pub(super) struct LeaseGate {
    leases: Arc<dyn Leases>,
    key: String,
    timeout: Duration,
    held: watch::Receiver<HeldLease>,
}

impl LeaseGate {
    pub(super) fn new(parts: &LeaseParts, held: watch::Receiver<HeldLease>) -> Self {
        Self { leases: Arc::clone(&parts.leases), key: parts.candidate.key.clone(), timeout: parts.call_timeout, held }
    }
}

#[async_trait]
impl ConnectionGate for LeaseGate {
    async fn before_connect(&self, reconnect: bool) -> Result<(), Fault> {
        let not_ours = || Fault::new(FaultCode::Unavailable, "the lease is not held by this process; not connecting");
        let (owner, version) = self.held.borrow().clone().ok_or_else(not_ours)?;
        if !reconnect {
            return Ok(());
        }
        let row = tokio::time::timeout(self.timeout, self.leases.read(&self.key)).await.map_err(|_| late(self.timeout))??;
        let row = row.and_then(|raw| LeaseRow::try_from(raw).ok()).ok_or_else(not_ours)?;
        if row.tuple.owner == owner && row.tuple.version == version { Ok(()) } else { Err(not_ours()) }
    }

    async fn before_subscribe(&self, _session_present: bool) -> Result<BTreeSet<String>, Fault> {
        Ok(BTreeSet::new())
    }

    async fn unsubscribed(&self, _filter: &str) {}
}
