//! Takes care of the logs that processes leave behind: watches their leases, drains one at a time, closes it for good.
//!
//! A session that is not owned exclusively has a log in each process, under a lease that only this process wants while it lives. Here is who wants
//! it afterwards: the other processes, and at a clean stop the process itself once more.

use crate::parts::{Adopted, Adopting, LogKind, SessionParts};
use crate::run::{RunError, SessionEnd, run_session};
use causeway_core::adoption::Adopter;
use causeway_core::drain::retry::Jitter;
use causeway_core::identity::{LogName, lease_of, session_of};
use causeway_core::lease::Held;
use causeway_core::lease::standby::{Candidate, Standby, Step};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::Instant;
use causeway_ports::{Clock, Outbox};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, info, warn};

/// How long a clean stop may spend on closing its own log, which is empty by then. Another process does it later if need be.
const RETIRE_WITHIN: Duration = Duration::from_secs(3);
/// Looks are this far apart, in shares of the lease's time: more than a healthy owner lets pass between two renewals, so that nobody who waits writes
/// a row whose owner is well.
const LOOK_EVERY: f64 = 0.5;
/// Looks are spread by a quarter of their interval each way, so that processes do not look in step.
const SPREAD: f64 = 0.25;
/// A log that could not be drained is left alone for so many leases' time.
const LEAVE_ALONE: u32 = 10;

/// A session whose logs are adopted here: what an owner of one needs, and what is told about it.
pub struct Adoptable {
    /// The parts of the process's own owner. Their log, and all that concerns the source, is replaced or left out.
    pub parts: SessionParts,
    /// Tells the session's loop what was adopted.
    pub report: watch::Sender<Adopted>,
}

impl core::fmt::Debug for Adoptable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Adoptable").field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// The adopter of one process.
#[derive(Debug)]
pub struct Adoption {
    /// Its sessions that are not owned exclusively.
    pub sessions: Vec<Adoptable>,
    /// What it knows of itself.
    pub adopter: Adopter,
    /// Random bits that seed the jitter.
    pub jitter_seed: u64,
    /// Ends it.
    pub stop: CancellationToken,
}

impl Adoption {
    /// Looks and adopts until it is told to stop.
    pub async fn run(mut self) {
        let Some(first) = self.sessions.first().map(|session| session.parts.clone()) else { return };
        let Some(outbox) = first.outbox.clone() else { return };
        let ttls = self.sessions.iter().filter_map(|session| session.parts.lease.as_ref().map(|lease| lease.member.upkeep.ttl));
        let Some(ttl) = ttls.min() else { return };
        let mut jitter = Jitter::new(self.jitter_seed);
        let mut watched: BTreeMap<LogName, Standby> = BTreeMap::new();
        let mut left_alone: BTreeMap<LogName, Instant> = BTreeMap::new();
        loop {
            let usual = ttl.mul_f64(LOOK_EVERY * (1.0 - SPREAD + 2.0 * SPREAD * jitter.fraction()));
            // An owner that was not heard of between two looks is looked at again as soon as its lease's time is over, not half of that later. Once:
            // the store may be away then, or somebody else faster.
            let asleep_at = first.clock.now();
            let coming = |at: &Instant| *at > asleep_at;
            let claimable_at = watched.values().filter_map(|standby| standby.claimable_at(asleep_at)).filter(coming).min();
            let pause = claimable_at.map_or(usual, |at| usual.min(at.since(asleep_at)));
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let now = first.clock.now();
            left_alone.retain(|_, until| now < *until);
            let candidates = match self.candidates(outbox.as_ref()).await {
                Ok(candidates) => candidates,
                Err(fault) => {
                    warn!(code = fault.code.as_str(), detail = %fault.detail, "the registered logs cannot be listed; looking again");
                    continue;
                }
            };
            watched.retain(|log, _| candidates.contains(log));
            for log in candidates {
                if left_alone.contains_key(&log) {
                    continue;
                }
                if self.stop.is_cancelled() {
                    return;
                }
                if !self.look(&log, &mut watched).await {
                    left_alone.insert(log, first.clock.now().plus(ttl * LEAVE_ALONE));
                }
            }
        }
    }

    async fn candidates(&self, outbox: &dyn Outbox) -> Result<Vec<LogName>, Fault> {
        let records = outbox.list_logs().await?;
        Ok(self.adopter.candidates(records.iter().map(|record| (&record.log, record.state))))
    }

    /// Looks at the lease of one log, and adopts the log if that wins it. Answers whether the log may be looked at again soon.
    async fn look(&mut self, log: &LogName, watched: &mut BTreeMap<LogName, Standby>) -> bool {
        let session = session_of(log.partition()).0;
        let Some(adoptable) = self.sessions.iter_mut().find(|own| own.parts.session == session) else { return true };
        let Some(parts) = parts_over(log, &adoptable.parts, self.stop.clone()) else { return true };
        let Some(lease) = &parts.lease else { return true };
        let standby = watched.entry(log.clone()).or_insert_with(|| Standby::new(lease.member.candidate.clone()));
        let held = match poll(standby, &parts).await {
            Ok(Some(held)) => held,
            Ok(None) => return true,
            Err(fault) => {
                warn!(%log, code = fault.code.as_str(), detail = %fault.detail, "the lease of a log cannot be looked at; looking again");
                return true;
            }
        };
        watched.remove(log);
        adopt(log, parts, held, &adoptable.report).await
    }
}

/// Drains a log whose lease is held and closes it. Answers whether the log may be looked at again soon.
async fn adopt(log: &LogName, parts: SessionParts, held: Held, report: &watch::Sender<Adopted>) -> bool {
    let stop = parts.stop.clone();
    info!(%log, version = held.row.tuple.version, "adopting a log that a process left behind");
    report.send_modify(|told| told.current = Some(log.to_string()));
    let before = report.borrow().clone();
    let end = drain(parts, Adopting { held, before, report: report.clone() }).await;
    report.send_modify(|told| told.current = None);
    match end {
        Ok(SessionEnd::Clean) if !stop.is_cancelled() => {
            report.send_modify(|told| told.logs += 1);
            info!(%log, "adopted: everything in it is settled, and it is closed for good");
            true
        }
        Ok(SessionEnd::Clean | SessionEnd::DeadlinePassed | SessionEnd::HandedOver) => {
            info!(%log, "not drained to its end; another process goes on with it");
            true
        }
        Err(fault) => {
            error!(%log, %fault, "a log that a process left behind cannot be drained; it is tried again later");
            false
        }
    }
}

/// Runs an owner without a source over the log until it is retired.
async fn drain(mut parts: SessionParts, adopting: Adopting) -> Result<SessionEnd, RunError> {
    let span = tracing::info_span!("adoption", log = %parts.log);
    parts.kind = LogKind::Adopted(Box::new(adopting));
    run_session(parts).instrument(span).await
}

/// The parts of an owner of another log of the same session; `None` where the session has no lease.
fn parts_over(log: &LogName, parts: &SessionParts, stop: CancellationToken) -> Option<SessionParts> {
    let mut parts = parts.clone();
    let lease = parts.lease.as_mut()?;
    lease.member.candidate = Candidate { key: lease_of(log), ..lease.member.candidate.clone() };
    // Nobody waits to be told, and nobody tells it.
    lease.hinter = None;
    lease.hinted = Arc::default();
    lease.member.broker_health_step_down = None;
    parts.log = log.clone();
    // Mail goes to the process's own log.
    parts.mailbox = None;
    parts.subscriptions = None;
    parts.stop = stop;
    Some(parts)
}

/// One look at the lease of `parts`; answers the lease if that won it.
async fn poll(standby: &mut Standby, parts: &SessionParts) -> Result<Option<Held>, Fault> {
    let Some(lease) = &parts.lease else { return Ok(None) };
    let late = || Fault::new(FaultCode::Timeout, format!("the lease store did not answer within {} ms", lease.call_timeout.as_millis()));
    let (clock, key): (&dyn Clock, &str) = (parts.clock.as_ref(), &lease.member.candidate.key);
    let mut step = standby.poll();
    loop {
        step = match step {
            Step::Read => {
                let answer = tokio::time::timeout(lease.call_timeout, lease.leases.read(key)).await;
                standby.read(clock.now(), clock.wall(), answer.unwrap_or_else(|_| Err(late())))
            }
            Step::Write(write) => {
                let answer = tokio::time::timeout(lease.call_timeout, lease.leases.write(key, &write)).await;
                standby.written(clock.now(), answer.unwrap_or_else(|_| Outcome::Unknown(late())))
            }
            Step::Wait => return Ok(None),
            Step::Won(held) => return Ok(Some(held)),
            Step::Failed(fault) => return Err(fault),
            Step::Corrupt(corrupt) => {
                error!(log = %parts.log, %corrupt, "nobody can adopt this log until its lease row is repaired");
                return Ok(None);
            }
        };
    }
}

/// Runs a session to its end. Where the process has a log of its own and a stop left nothing in it, the log is closed for good.
///
/// # Errors
/// See [`run_session`].
pub async fn run_and_retire(parts: SessionParts) -> Result<SessionEnd, RunError> {
    if !matches!(parts.kind, LogKind::OfProcess(_)) {
        return run_session(parts).await;
    }
    let own = parts.clone();
    let end = run_session(parts).await?;
    if end == SessionEnd::Clean && own.stop.is_cancelled() {
        retire(own).await;
    }
    Ok(end)
}

async fn retire(own: SessionParts) {
    // The program's own stop came already; this one ends the little that is left to do.
    let (log, enough) = (own.log.clone(), CancellationToken::new());
    let Some(parts) = parts_over(&log, &own, enough.clone()) else { return };
    let retiring = async {
        let mut standby = Standby::new(parts.lease.as_ref()?.member.candidate.clone());
        // Somebody else may have been faster: then it is theirs.
        let held = poll(&mut standby, &parts).await.ok()??;
        let adopting = Adopting { held, before: Adopted::default(), report: watch::Sender::default() };
        drain(parts, adopting).await.ok()
    };
    tokio::pin!(retiring);
    let ended = tokio::select! {
        ended = &mut retiring => ended,
        () = tokio::time::sleep(RETIRE_WITHIN) => {
            enough.cancel();
            retiring.await
        }
    };
    if ended != Some(SessionEnd::Clean) || enough.is_cancelled() {
        info!(%log, "the log stays open; another process closes it");
    }
}
