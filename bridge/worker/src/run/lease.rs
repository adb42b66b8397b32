//! Calls to the lease store and to the orchestrator, and the gate that a source asks before it connects and before it subscribes.

use super::engine::Event;
use crate::hints::Hinter;
use crate::parts::{LeaseParts, SessionParts, SubscriptionParts};
use async_trait::async_trait;
use causeway_core::lease::row::LeaseRow;
use causeway_core::lease::testimony::Testimony;
use causeway_core::lease::{LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::subscriptions::{Generation, UnknownHistory, may_connect, plan};
use causeway_ports::{ConnectionGate, Leases, Tasks};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

/// The lease store of one session, and who runs the tasks of its owners. At most one call is under way.
pub(super) struct LeaseCalls {
    leases: Arc<dyn Leases>,
    key: String,
    timeout: Duration,
    session: String,
    hinter: Option<Hinter>,
    orchestrator: Option<Arc<dyn Tasks>>,
    tasks: JoinSet<Event>,
}

impl LeaseCalls {
    pub(super) fn new(parts: &LeaseParts, session: &str) -> Self {
        Self {
            leases: Arc::clone(&parts.leases),
            key: parts.member.candidate.key.clone(),
            timeout: parts.call_timeout,
            session: session.to_owned(),
            hinter: parts.hinter.clone(),
            orchestrator: parts.tasks.clone(),
            tasks: JoinSet::new(),
        }
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
            Event::LeaseRead(answer.unwrap_or_else(|_| Err(late("lease", timeout))))
        });
    }

    /// Asks what became of a task. Whatever is no answer about this very task counts as none.
    pub(super) fn ask_about(&mut self, task: String) {
        let (orchestrator, timeout) = (self.orchestrator.clone(), self.timeout);
        self.tasks.spawn(async move {
            let Some(orchestrator) = orchestrator else { return Event::TaskTold(None) };
            let asked = [task];
            let answer = tokio::time::timeout(timeout, orchestrator.describe(&asked)).await;
            let [task] = asked;
            match answer.unwrap_or_else(|_| Err(no_answer("orchestrator", timeout))) {
                Ok(described) => {
                    let told = described.tasks.iter().find(|record| record.arn == task).map(Testimony::from);
                    if told.as_ref().is_some_and(|told| told.proves_the_end_of(&task)) {
                        warn!(%task, "the owner's task has stopped: taking over without waiting for the lease to run out");
                    } else {
                        let status = told.as_ref().map_or("not known", |told| told.last_status.as_str());
                        info!(%task, status, "the owner is overdue; its task is not known to have stopped");
                    }
                    Event::TaskTold(told)
                }
                Err(fault) => {
                    warn!(%task, code = fault.code.as_str(), detail = %fault.detail, "what became of the owner's task is not told; the lease's time counts");
                    Event::TaskTold(None)
                }
            }
        });
    }

    /// Writes the row. Where that gives the lease back, the other members are told before the answer is: afterwards this process may be gone.
    pub(super) fn write(&mut self, write: LeaseWrite) {
        let (leases, key, timeout) = (Arc::clone(&self.leases), self.key.clone(), self.timeout);
        let hinter = self.hinter.clone().filter(|_| write.row.tuple.is_released());
        let session = self.session.clone();
        self.tasks.spawn(async move {
            let answer = tokio::time::timeout(timeout, leases.write(&key, &write)).await;
            if let (Some(hinter), Ok(Outcome::Done(LeaseAnswer::Written))) = (hinter, &answer) {
                hinter.tell(&session).await;
            }
            Event::LeaseWritten(answer.unwrap_or_else(|_| Outcome::Unknown(late("lease", timeout))))
        });
    }
}

fn late(store: &str, timeout: Duration) -> Fault {
    no_answer(&format!("{store} store"), timeout)
}

fn no_answer(whose: &str, timeout: Duration) -> Fault {
    Fault::new(FaultCode::Timeout, format!("the {whose} did not answer within {} ms", timeout.as_millis()))
}

/// Which lease this process holds: owner and version.
pub(super) type HeldLease = Option<(String, u64)>;

/// Lets a source connect only while the lease row names this owner and this version, and keeps account of what it subscribes.
///
/// A broker that ends a connection does not reliably tell why. It may be that another worker connected with the same client id because it owns the
/// session now; whoever reconnects blindly then throws the rightful owner out.
pub(super) struct SessionGate {
    lease: Option<HeldLeaseCheck>,
    subscriptions: Option<SubscriptionParts>,
    /// The generation that the account's row had when this process remembered last: what others remembered since is not its to forget.
    generation: Mutex<Generation>,
}

struct HeldLeaseCheck {
    leases: Arc<dyn Leases>,
    key: String,
    timeout: Duration,
    held: watch::Receiver<HeldLease>,
}

impl SessionGate {
    /// The gate of a session; `None` where there is nothing to ask.
    pub(super) fn of(parts: &SessionParts, held: watch::Receiver<HeldLease>) -> Option<Arc<dyn ConnectionGate>> {
        if parts.lease.is_none() && parts.subscriptions.is_none() {
            return None;
        }
        let lease = parts.lease.as_ref().map(|lease| HeldLeaseCheck {
            leases: Arc::clone(&lease.leases),
            key: lease.member.candidate.key.clone(),
            timeout: lease.call_timeout,
            held,
        });
        Some(Arc::new(Self { lease, subscriptions: parts.subscriptions.clone(), generation: Mutex::default() }))
    }
}

impl HeldLeaseCheck {
    async fn check(&self, reconnect: bool) -> Result<(), Fault> {
        let not_ours = || Fault::new(FaultCode::Unavailable, "the lease is not held by this process; not connecting");
        let (owner, version) = self.held.borrow().clone().ok_or_else(not_ours)?;
        if !reconnect {
            return Ok(());
        }
        let row = tokio::time::timeout(self.timeout, self.leases.read(&self.key)).await.map_err(|_| late("lease", self.timeout))??;
        let row = row.and_then(|raw| LeaseRow::try_from(raw).ok()).ok_or_else(not_ours)?;
        if row.tuple.owner == owner && row.tuple.version == version { Ok(()) } else { Err(not_ours()) }
    }
}

impl SubscriptionParts {
    async fn call<T>(&self, call: impl Future<Output = T>) -> Result<T, Fault> {
        tokio::time::timeout(self.call_timeout, call).await.map_err(|_| late("subscription", self.call_timeout))
    }

    async fn history(&self) -> Result<Option<BTreeSet<String>>, Fault> {
        self.call(self.store.load(&self.identity)).await?
    }

    /// Brings the account up to date before anything is subscribed; answers what is to be unsubscribed, and the generation under which it is to be forgotten.
    async fn settle(&self, session_present: bool) -> Result<(BTreeSet<String>, Generation), Fault> {
        let history = self.history().await?;
        let plan = plan(history.as_ref(), &self.desired, session_present, self.baseline_auto).map_err(unknown)?;
        if plan.seed {
            certain(self.call(self.store.seed(&self.identity, &BTreeSet::new())).await?)?;
        }
        let generation = certain(self.call(self.store.remember(&self.identity, &plan.remember)).await?)?
            .ok_or_else(|| Fault::new(FaultCode::Unavailable, "the account of this session's subscriptions vanished; looking again"))?;
        Ok((plan.unsubscribe, generation))
    }
}

fn unknown(history: UnknownHistory) -> Fault {
    Fault::new(FaultCode::InvalidConfig, format!("{}: {history}", history.code()))
}

/// What certainly took effect. Both writes may be repeated, so an unknown outcome is one that is tried again.
fn certain<T>(outcome: Outcome<T>) -> Result<T, Fault> {
    match outcome {
        Outcome::Done(value) => Ok(value),
        Outcome::NotDone(fault) | Outcome::Unknown(fault) => Err(fault),
    }
}

#[async_trait]
impl ConnectionGate for SessionGate {
    async fn before_connect(&self, reconnect: bool) -> Result<(), Fault> {
        if let Some(lease) = &self.lease {
            lease.check(reconnect).await?;
        }
        if let Some(subscriptions) = &self.subscriptions {
            may_connect(subscriptions.history().await?.as_ref(), subscriptions.baseline_auto).map_err(unknown)?;
        }
        Ok(())
    }

    async fn before_subscribe(&self, session_present: bool) -> Result<BTreeSet<String>, Fault> {
        let Some(subscriptions) = &self.subscriptions else { return Ok(BTreeSet::new()) };
        let (unsubscribe, generation) = subscriptions.settle(session_present).await?;
        *self.generation.lock().unwrap_or_else(PoisonError::into_inner) = generation;
        Ok(unsubscribe)
    }

    async fn unsubscribed(&self, filter: &str) {
        let Some(subscriptions) = &self.subscriptions else { return };
        // An owner that was paused may come to this long after another one subscribed to the filter again: then it is not this one's to forget. Where the
        // request itself comes late, the generation tells.
        if let Some(lease) = &self.lease
            && lease.check(true).await.is_err()
        {
            return;
        }
        let generation = *self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        let forgetting = subscriptions.store.forget(&subscriptions.identity, filter, generation);
        // What is not forgotten is unsubscribed again at the next connection, and forgotten then.
        match subscriptions.call(forgetting).await.and_then(certain) {
            Ok(true) => {}
            Ok(false) => info!(%filter, "an unsubscribed filter is not forgotten: another process has subscribed since"),
            Err(fault) => {
                warn!(%filter, code = fault.code.as_str(), detail = %fault.detail, "an unsubscribed filter could not be forgotten")
            }
        }
    }
}
