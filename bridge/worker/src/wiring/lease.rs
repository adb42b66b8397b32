//! What a session under a lease needs.

use super::{Shared, StoreSet, WiringError, hint_token};
use crate::hints::Hinter;
use crate::parts::LeaseParts;
use causeway_core::config::model::{Session, SessionMode};
use causeway_core::config::{Config, SessionTiming, StepDown};
use causeway_core::identity::{LogName, lease_of};
use causeway_core::lease::holder::Upkeep;
use causeway_core::lease::standby::Candidate;
use causeway_core::member::MemberOptions;
use causeway_core::timing::Nanos;
use causeway_ports::Leases;
use core::time::Duration;
use std::sync::Arc;

/// Nothing begins in the last twentieth of a lease, or its last second: a request needs time to arrive.
const GUARD_SHARE: u32 = 20;
const GUARD_LONGEST: Duration = Duration::from_secs(1);

/// Who claims a lease, and how.
pub(super) struct Claim<'a> {
    /// The session, or what stands in its place.
    pub(super) name: &'a str,
    /// Whether one process of all may have it; else each has one of its own.
    pub(super) exclusive: bool,
    /// How it is kept.
    pub(super) timing: SessionTiming,
    /// How long an owner may take to open its log before it steps down.
    pub(super) opening_timeout: Duration,
}

/// The lease of `log`: that of an exclusive session, or of a process that has a log of its own; `None` where there is one candidate.
///
/// # Errors
/// Where the store is missing or the timing cannot be resolved; `check` refuses both before.
pub(super) fn lease_parts(
    config: &Config,
    session: &Session,
    part: &str,
    log: &LogName,
    stores: &StoreSet,
    shared: &Shared,
) -> Result<Option<LeaseParts>, WiringError> {
    let exclusive = session.session_mode == SessionMode::Exclusive;
    if !exclusive && !config.has_logs_of_processes(session) {
        return Ok(None);
    }
    let timing = config.session_timing(session).map_err(|error| WiringError::new(part, "E_CADENCE", error.to_string()))?;
    let claim = Claim { name: &session.id, exclusive, timing, opening_timeout: session.mqtt().reconcile_timeout };
    lease_of_claim(config, &claim, log, stores, shared).map(Some)
}

/// The lease of `log` for whoever claims it.
///
/// # Errors
/// Where the store is missing.
pub(super) fn lease_of_claim(
    config: &Config,
    claim: &Claim<'_>,
    log: &LogName,
    stores: &StoreSet,
    shared: &Shared,
) -> Result<LeaseParts, WiringError> {
    let leases = stores
        .leases
        .clone()
        .ok_or_else(|| WiringError::new("stores.lease", "E_MISSING", "what several processes run needs a lease store"))?;
    let (timing, exclusive) = (claim.timing, claim.exclusive);
    let cadence = timing.cadence;
    let (ttl, poll, call) = (span(cadence.lease_ttl), span(cadence.acquire_poll_interval), span(cadence.renew_call_timeout));
    let longest_poll = poll.mul_f64(1.25);
    let member = MemberOptions {
        candidate: Candidate { key: lease_of(log), owner: shared.owner.clone(), ttl, facts: shared.facts.clone() },
        upkeep: Upkeep {
            ttl,
            renew_interval: span(cadence.renew_interval),
            jitter: span(cadence.lease_renew_jitter),
            max_fails: cadence.max_renew_fails,
            guard: (ttl / GUARD_SHARE).min(GUARD_LONGEST),
        },
        poll_interval: poll,
        looks_late: exclusive && shared.looks_late,
        step_down_grace: span(cadence.step_down_grace),
        hold_off: longest_poll,
        // Two polls of another member, and the calls that each may need to win.
        broker_hold_off: longest_poll * 2 + call * 4,
        // Without its broker it may go on draining: nobody else could connect for it.
        broker_health_step_down: match timing.step_down.filter(|_| exclusive) {
            Some(StepDown::After(after)) => Some(after.get()),
            Some(StepDown::Off) | None => None,
        },
        opening_timeout: claim.opening_timeout,
    };
    Ok(LeaseParts {
        leases: Arc::clone(&leases),
        hinted: shared.hints.listen(claim.name),
        // Nobody waits for the lease of a process's own log.
        hinter: if exclusive { hinter(config, &leases, shared)? } else { None },
        call_timeout: call,
        member,
    })
}

fn hinter(config: &Config, leases: &Arc<dyn Leases>, shared: &Shared) -> Result<Option<Hinter>, WiringError> {
    let Some(token) = hint_token(config) else { return Ok(None) };
    let hinter = Hinter::new(Arc::clone(leases), &config.bridge.id, &shared.owner, token.clone());
    hinter.map(Some).map_err(|error| WiringError::new("http.hint_token", "E_HTTP_CLIENT", error.to_string()))
}

fn span(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos.unsigned_abs())
}
