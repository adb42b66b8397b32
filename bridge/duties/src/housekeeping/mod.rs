//! Carrying out a run of housekeeping: survey every log, remove garbage, sweep what nobody owns, tidy the other tables, tell.

mod commands;
mod logs;
mod report;

pub use commands::KeptCommands;
pub use report::{Gauges, Report, Swept};

use crate::{Store, StoreFault};
use async_trait::async_trait;
use causeway_core::housekeeping::{At, Request};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::redrive::Routes;
use causeway_core::units::{Instant, UnixMillis};
use causeway_ports::{Clock, DeadLetters, Leases, LogRecord, Outbox};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the dead letters amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Letters that are dead or parked; tombstones are none.
    pub letters: u64,
    /// When the oldest of them failed.
    pub oldest: Option<UnixMillis>,
}

/// What came of one call of [`Chores::prune_ledger`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Rows that were deleted, or would be.
    pub deleted: u64,
    /// Rows that somebody changed meanwhile.
    pub conflicts: u64,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
}

/// What only housekeeping does to the tables. Implemented beside the function, on the tables themselves.
#[async_trait]
pub trait Chores: Send + Sync {
    /// Counts the dead letters, exactly; gives up at `deadline`.
    async fn dead_letters(&self, deadline: Instant) -> Result<Option<Depth>, Fault>;

    /// Deletes some rows of the ledger of drops whose retention ended before `now`, each only if that is still so.
    async fn prune_ledger(&self, now: UnixMillis, after: Option<&str>, limit: usize, dry_run: bool) -> Result<Pruned, Fault>;

    /// Removes all that is left of a retired log, the record of it last, if it still is retired under the record's epoch.
    async fn remove_log(&self, record: &LogRecord) -> Outcome<bool>;
}

/// What housekeeping calls.
#[derive(Clone)]
pub struct Ports {
    /// Logs.
    pub outbox: Arc<dyn Outbox>,
    /// Leases and members; `None` where the bridge has none: then nothing above a head is touched.
    pub leases: Option<Arc<dyn Leases>>,
    /// Dead letters.
    pub letters: Arc<dyn DeadLetters>,
    /// Commands; `None` where the bridge has none.
    pub commands: Option<KeptCommands>,
    /// The rest.
    pub chores: Arc<dyn Chores>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

impl core::fmt::Debug for Ports {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

/// What housekeeping knows.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// Routes and sessions, if a configuration is at hand.
    pub routes: Routes,
    /// How long the lease of each session holds, where a configuration tells.
    pub lease_ttl: BTreeMap<String, Duration>,
    /// For how long the workers keep settled segments, where a configuration tells.
    pub keep_settled: Duration,
    /// 128 random bits of this run.
    pub random: u128,
}

/// Carries out a run that begins nothing at or after `deadline`.
///
/// # Errors
/// Where nothing could be done, because a store cannot be used. What fails later is part of the report.
pub async fn run(request: &Request, bridge: &Bridge, ports: &Ports, deadline: Instant) -> Result<Report, StoreFault> {
    let mut run = Run { request, bridge, ports, deadline, left: request.max_items, report: Report::default() };
    let stopped = match run.resume_logs() {
        Some(from) => run.logs(from).await?,
        None => None,
    };
    let at = match stopped {
        Some(at) => Some(at),
        None => run.tables().await,
    };
    run.report.continuation = at.map(|at| request.continuation(&at));
    Ok(run.report)
}

struct Run<'a> {
    request: &'a Request,
    bridge: &'a Bridge,
    ports: &'a Ports,
    deadline: Instant,
    /// Items that may still be treated.
    left: u64,
    report: Report,
}

impl Run<'_> {
    /// The log to begin with, by name; `None`: the logs are done.
    fn resume_logs(&self) -> Option<String> {
        match &self.request.resume {
            None => Some(String::new()),
            Some(At::Log(name)) => Some(name.clone()),
            Some(At::Commands(_) | At::Ledger(_)) => None,
        }
    }

    fn may_go_on(&self) -> bool {
        self.left > 0 && self.ports.clock.now() < self.deadline
    }

    fn take(&mut self, items: u64) {
        self.left = self.left.saturating_sub(items);
    }

    /// The part of the remaining time that ends so much of it from now.
    fn share(&self, part: u32, of: u32) -> Instant {
        let now = self.ports.clock.now();
        now.plus(self.deadline.since(now) * part / of)
    }

    fn error(&mut self, id: impl Into<String>, fault: &Fault) {
        self.report.error(id, fault);
    }

    /// The tables beside the logs. A fault in one of them does not keep the other from being tidied.
    async fn tables(&mut self) -> Option<At> {
        let (commands, ledger) = match &self.request.resume {
            Some(At::Ledger(key)) => (None, key.clone()),
            Some(At::Commands(key)) => (Some(key.clone()), String::new()),
            Some(At::Log(_)) | None => (Some(String::new()), String::new()),
        };
        if let Some(from) = commands
            && let Some(at) = self.commands(&from).await
        {
            return Some(at);
        }
        self.ledger(ledger).await
    }

    async fn ledger(&mut self, mut after: String) -> Option<At> {
        loop {
            if !self.may_go_on() {
                return Some(At::Ledger(after));
            }
            let limit = usize::try_from(self.left).unwrap_or(usize::MAX);
            let from = Some(after.as_str()).filter(|key| !key.is_empty());
            match self.ports.chores.prune_ledger(self.ports.clock.wall(), from, limit, self.request.dry_run).await {
                Ok(pruned) => {
                    self.take(pruned.deleted);
                    self.report.swept.conflicts += pruned.conflicts;
                    self.report.swept.ledger_pruned += pruned.deleted;
                    after = pruned.next?;
                }
                Err(fault) => {
                    self.error("ledger", &fault);
                    return None;
                }
            }
        }
    }
}

fn outbox_fault(fault: Fault) -> StoreFault {
    StoreFault { store: Store::Outbox, fault }
}
