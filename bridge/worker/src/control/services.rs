//! The tasks of the services that a bridge's processes are tasks of: some of them may never have told of themselves.

use super::bounded;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::protection::service_of;
use causeway_core::units::Instant;
use causeway_ports::{TaskRecord, Tasks};
use core::time::Duration;
use std::collections::BTreeSet;

/// How often tasks are listed. All of the account's calls that read a cluster share one limit.
const EVERY: Duration = Duration::from_secs(15);

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Services {
    /// Of every task that was described: a service all of whose processes are gone is listed as before.
    names: BTreeSet<String>,
    listed: Option<BTreeSet<String>>,
    next: Instant,
}

impl Services {
    /// Learns which services there are.
    pub(super) fn learn(&mut self, told: &[TaskRecord]) {
        self.names.extend(told.iter().filter_map(|task| service_of(task.group.as_deref()?)).map(str::to_owned));
    }

    /// Their tasks, listed anew where that is due. `None`: there is none, or nobody lists them.
    ///
    /// # Errors
    /// The answer of one that does not list them, once for each time that it was asked.
    pub(super) async fn tasks(&mut self, orchestrator: &dyn Tasks, now: Instant) -> Result<Option<BTreeSet<String>>, Fault> {
        if self.names.is_empty() || now < self.next {
            return Ok(self.listed.clone());
        }
        self.next = now.plus(EVERY);
        // What is not listed to the end is not known.
        self.listed = None;
        let (mut listed, mut gone) = (BTreeSet::new(), BTreeSet::new());
        for service in &self.names {
            match bounded(orchestrator.list(Some(service))).await {
                Ok(tasks) => listed.extend(tasks),
                // Whoever deletes a service leaves its stopped tasks behind, which were described.
                Err(fault) if fault.code == FaultCode::NotFound => {
                    gone.insert(service.clone());
                }
                Err(fault) => return Err(fault),
            }
        }
        self.names.retain(|service| !gone.contains(service));
        self.listed = (!self.names.is_empty()).then_some(listed);
        Ok(self.listed.clone())
    }
}
