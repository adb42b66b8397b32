//! The duties of the control role beside standing by: it looks at the accounts of subscriptions once, and watches what the bridge promises.
//!
//! What is seen is judged in `core/fleet`. One process at a time watches, under a lease of its own: where ECS starts a second control task, metrics are not told twice.

mod services;
mod singleton;

use crate::hints::Hinter;
use crate::parts::SubscriptionParts;
use crate::status::StatusBoard;
use crate::telemetry::Metrics;
use causeway_core::fleet::{FailoverView, FleetView, Look, Member, Task, Watcher};
use causeway_core::lease::row::LeaseRow;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::{Clock, Leases, MemberRecord, Tasks};
use core::time::Duration;
use services::Services;
pub use singleton::Singleton;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// One call to a store, or to ECS, takes no longer.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Giving the lease back takes no longer: the process is about to be gone.
const FAREWELL: Duration = Duration::from_millis(1_500);

/// A session that is watched.
#[derive(Clone)]
pub struct WatchedSession {
    /// Its id.
    pub id: String,
    /// The key of its lease.
    pub key: String,
    /// Tells those that wait for it that its owner is gone; `None`: they find out by themselves.
    pub hinter: Option<Hinter>,
    /// The account of its subscriptions, where there is one.
    pub subscriptions: Option<SubscriptionParts>,
}

/// How it went with the questions to ECS.
#[derive(Debug, Default)]
struct Asking {
    /// It did not answer last time.
    is_silent: bool,
    /// It did not list tasks last time.
    lists_nothing: bool,
    services: Services,
}

/// One that watches.
pub struct Control {
    /// Where leases and members are kept.
    pub leases: Arc<dyn Leases>,
    /// Who runs the tasks, where that can be asked.
    pub tasks: Option<Arc<dyn Tasks>>,
    /// The bridge.
    pub bridge: String,
    /// The sessions that one process at a time owns.
    pub sessions: Vec<WatchedSession>,
    /// How often it looks.
    pub every: Duration,
    /// A member's row that is older tells of a process that is gone.
    pub stale_after: Duration,
    /// Sees to it that nobody else watches.
    pub singleton: Singleton,
    /// Where what it sees is told.
    pub status: StatusBoard,
    /// Where it is counted.
    pub metrics: Metrics,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

impl core::fmt::Debug for Control {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Control").field("bridge", &self.bridge).field("every", &self.every).finish_non_exhaustive()
    }
}

impl Control {
    /// Watches until `quit`.
    pub async fn run(mut self, quit: CancellationToken) {
        self.check_accounts().await;
        let mut watcher = Watcher::new(self.stale_after);
        let (mut failing, mut asking) = (false, Asking::default());
        loop {
            if self.singleton.turn().await {
                note(self.watch(&mut watcher, &mut asking).await, &mut failing);
            } else {
                // Whoever watches tells; what this process saw before is not kept up to date any more.
                watcher = Watcher::new(self.stale_after);
                self.status.publish_fleet(None);
            }
            tokio::select! {
                () = tokio::time::sleep(self.every) => {}
                () = quit.cancelled() => break,
            }
        }
        self.status.publish_fleet(None);
        if tokio::time::timeout(FAREWELL, self.singleton.give_back()).await.is_err() {
            info!("the lease of the watch could not be given back in time; it runs out");
        }
    }

    /// Says which sessions nobody will be able to connect, because nobody knows what they have subscribed to.
    async fn check_accounts(&self) {
        for session in &self.sessions {
            let Some(account) = session.subscriptions.as_ref().filter(|account| !account.baseline_auto) else { continue };
            match bounded(account.store.load(&account.identity)).await {
                Ok(Some(_)) => {}
                Ok(None) => error!(
                    session = %session.id,
                    "nobody can connect this session: what it has subscribed to is not known; run `causeway baseline --session {} --empty`, or name its filters",
                    session.id
                ),
                Err(fault) => {
                    warn!(session = %session.id, code = fault.code.as_str(), detail = %fault.detail, "the account of subscriptions cannot be looked at");
                }
            }
        }
    }

    /// One look, and what follows from it.
    async fn watch(&self, watcher: &mut Watcher, asking: &mut Asking) -> Result<(), Fault> {
        let mut look = self.look().await?;
        if let Some(tasks) = &self.tasks {
            let asked: Vec<String> = watcher.tasks(&look).into_iter().collect();
            let described = if asked.is_empty() { Ok(Vec::new()) } else { bounded(tasks.describe(&asked)).await.map(|told| told.tasks) };
            let told = match described {
                Ok(told) => {
                    asking.is_silent = false;
                    told
                }
                Err(fault) => {
                    if !core::mem::replace(&mut asking.is_silent, true) {
                        warn!(code = fault.code.as_str(), detail = %fault.detail, "ECS cannot be asked; members are counted by their rows alone");
                    }
                    Vec::new()
                }
            };
            asking.services.learn(&told);
            look.listed = self.listed(&**tasks, asking).await;
            look.tasks =
                told.into_iter().map(|task| (task.arn.clone(), Task { is_up: task.is_up(), stopped_at: task.stopped_at })).collect();
        }
        let (view, changed) = watcher.see(self.clock.now(), self.clock.wall(), &look);
        self.tell(view, &changed);
        for id in look.owners_that_stopped() {
            if let Some(hinter) = self.sessions.iter().find(|session| session.id == id).and_then(|session| session.hinter.as_ref()) {
                hinter.tell(&id).await;
            }
        }
        Ok(())
    }

    /// The tasks of the bridge's services.
    async fn listed(&self, tasks: &dyn Tasks, asking: &mut Asking) -> Option<BTreeSet<String>> {
        match asking.services.tasks(tasks, self.clock.now()).await {
            Ok(listed) => {
                if listed.is_some() {
                    asking.lists_nothing = false;
                }
                listed
            }
            Err(fault) => {
                if !core::mem::replace(&mut asking.lists_nothing, true) {
                    warn!(code = fault.code.as_str(), detail = %fault.detail, "ECS does not list the tasks of the services; one that never tells of itself is not seen");
                }
                None
            }
        }
    }

    async fn look(&self) -> Result<Look, Fault> {
        let members = bounded(self.leases.list_members(&self.bridge)).await?.into_iter().map(member).collect();
        let mut leases = BTreeMap::new();
        for session in &self.sessions {
            let row = bounded(self.leases.read(&session.key)).await?;
            leases.insert(session.id.clone(), row.and_then(|raw| LeaseRow::try_from(raw).ok()));
        }
        Ok(Look { members, leases, tasks: BTreeMap::new(), listed: None })
    }

    fn tell(&self, view: FleetView, changed: &[(String, FailoverView)]) {
        for (session, failover) in changed {
            self.metrics.observe_watched_failover(session, failover.cause, failover.seconds);
            info!(
                %session,
                from = %failover.from,
                to = %failover.to,
                cause = failover.cause.as_str(),
                seconds = failover.seconds,
                "the session is at full service with another owner"
            );
        }
        self.status.publish_fleet(Some(view));
    }
}

fn member(record: MemberRecord) -> Member {
    let MemberRecord { owner, role, facts, sessions, written_at, .. } = record;
    Member { owner, role, az: facts.az, task: facts.task_arn, sessions, written_at }
}

async fn bounded<T>(call: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let late = || Fault::new(FaultCode::Timeout, format!("no answer within {} ms", CALL_TIMEOUT.as_millis()));
    tokio::time::timeout(CALL_TIMEOUT, call).await.unwrap_or_else(|_| Err(late()))
}

/// Says it when looking begins to fail and when it works again.
fn note(looked: Result<(), Fault>, failing: &mut bool) {
    match (looked, *failing) {
        (Ok(()), true) => {
            *failing = false;
            info!("the bridge is watched again");
        }
        (Err(fault), false) => {
            *failing = true;
            warn!(code = fault.code.as_str(), detail = %fault.detail, "leases and members cannot be read; the bridge is not watched meanwhile");
        }
        (Ok(()), false) | (Err(_), true) => {}
    }
}
