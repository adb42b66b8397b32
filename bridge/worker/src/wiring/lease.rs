//! What a log under a lease needs.

use super::{Shared, StoreSet, WiringError, hint_token, secret_token};
use crate::hints::Hinter;
use crate::parts::LeaseParts;
use causeway_core::config::model::{Cluster, Evidence};
use causeway_core::config::{Config, SessionTiming, StepDown};
use causeway_core::identity::{LogName, lease_of};
use causeway_core::lease::holder::Upkeep;
use causeway_core::lease::row::OwnerFacts;
use causeway_core::lease::standby::Candidate;
use causeway_core::lease::testimony::Questions;
use causeway_core::member::MemberOptions;
use causeway_core::timing::Nanos;
use causeway_ports::Leases;
use core::time::Duration;
use std::sync::Arc;

/// ECS is asked about a task no more often.
const LEAST_POLL: Duration = Duration::from_secs(1);

/// Nothing begins in the last twentieth of a lease, or its last second: a request needs time to arrive.
const GUARD_SHARE: u32 = 20;
const GUARD_LONGEST: Duration = Duration::from_secs(1);

/// What competing for a lease is built from.
#[derive(Clone, Debug)]
pub struct LeasePlan {
    /// The session, or what stands in its place.
    pub name: String,
    /// Whether one process of all may have it; else each has one of its own.
    pub exclusive: bool,
    /// How long one call to the lease store may take.
    pub call_timeout: Duration,
    /// How it is competed for and kept. Which process that is, is filled in by [`LeasePlan::parts`].
    pub member: MemberOptions,
}

impl LeasePlan {
    /// The lease of `log`, which `name` claims. `opening_timeout`: how long an owner may take to open its log before it steps down.
    pub(super) fn new(
        name: &str,
        exclusive: bool,
        cluster: &Cluster,
        timing: SessionTiming,
        opening_timeout: Duration,
        log: &LogName,
    ) -> Self {
        let cadence = timing.cadence;
        let (ttl, poll, call) = (span(cadence.lease_ttl), span(cadence.acquire_poll_interval), span(cadence.renew_call_timeout));
        let longest_poll = poll.mul_f64(1.25);
        let asks = exclusive && cluster.takeover_evidence.contains(&Evidence::EcsStopped);
        let member = MemberOptions {
            candidate: Candidate { key: lease_of(log), owner: String::new(), ttl, facts: OwnerFacts::default() },
            upkeep: Upkeep {
                ttl,
                renew_interval: span(cadence.renew_interval),
                jitter: span(cadence.lease_renew_jitter),
                max_fails: cadence.max_renew_fails,
                guard: (ttl / GUARD_SHARE).min(GUARD_LONGEST),
            },
            poll_interval: poll,
            // A healthy owner's next renewal is written by then, however its moment is spread and however long the call takes.
            questions: asks.then(|| Questions {
                overdue_after: span(cadence.renew_interval) + span(cadence.lease_renew_jitter) / 2 + call,
                // ECS would refuse whoever asks more often, and tell nothing then.
                poll: cluster.evidence_poll.get().max(LEAST_POLL),
            }),
            looks_late: false,
            step_down_grace: span(cadence.step_down_grace),
            hold_off: longest_poll,
            // Two polls of another member, and the calls that each may need to win.
            broker_hold_off: longest_poll * 2 + call * 4,
            // Without its broker it may go on draining: nobody else could connect for it.
            broker_health_step_down: match timing.step_down.filter(|_| exclusive) {
                Some(StepDown::After(after)) => Some(after.get()),
                Some(StepDown::Off) | None => None,
            },
            opening_timeout,
        };
        Self { name: name.to_owned(), exclusive, call_timeout: call, member }
    }

    /// This process as a candidate.
    ///
    /// # Errors
    /// Where the store is missing; `check` refuses that before.
    pub(super) fn parts(self, config: &Config, stores: &StoreSet, shared: &Shared) -> Result<LeaseParts, WiringError> {
        let Self { name, exclusive, call_timeout, mut member } = self;
        let leases = stores
            .leases
            .clone()
            .ok_or_else(|| WiringError::new("stores.lease", "E_MISSING", "what several processes run needs a lease store"))?;
        member.candidate.owner.clone_from(&shared.owner);
        member.candidate.facts = shared.facts.clone();
        member.looks_late = exclusive && shared.looks_late;
        if shared.tasks.is_none() {
            member.questions = None;
        }
        Ok(LeaseParts {
            leases: Arc::clone(&leases),
            hinted: shared.hints.listen(&name),
            // A log of a process's own is nobody else's to take.
            asked: if exclusive { shared.step_downs.listen(&name) } else { Arc::default() },
            // Nobody waits for the lease of a process's own log.
            hinter: if exclusive { hinter(config, &leases, shared)? } else { None },
            tasks: shared.tasks.clone(),
            call_timeout,
            member,
        })
    }
}

fn hinter(config: &Config, leases: &Arc<dyn Leases>, shared: &Shared) -> Result<Option<Hinter>, WiringError> {
    let Some(token) = hint_token(config) else { return Ok(None) };
    let hinter =
        Hinter::new(Arc::clone(leases), &config.bridge.id, &shared.owner, secret_token("http.hint_token", token, &shared.secrets)?);
    hinter.map(Some).map_err(|error| WiringError::new("http.hint_token", "E_HTTP_CLIENT", error.to_string()))
}

fn span(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos.unsigned_abs())
}
