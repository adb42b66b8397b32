//! Rules of `routes[].session`: the lease's cadence, the failover objective, the drain.

use super::Check;
use crate::config::model::{DrainStrategy, DrainStrategyKind, Route, RouteSession, SessionMode, StoreKind};
use crate::config::values::Span;
use crate::timing::budget::MAX_STARTUP_ALLOWANCE;
use crate::timing::cadence::MIN_LEASE_TTL;
use crate::timing::{BudgetError, CadenceError};

pub(super) fn check(check: &mut Check<'_>) {
    let config = check.config;
    for (index, route) in config.routes.iter().enumerate() {
        let at = format!("routes[{index}].session");
        let Some(block) = &route.session else {
            continue;
        };
        check.reference(
            &format!("{at}.session_id"),
            "session_id",
            &block.session_id,
            "sessions",
            config.session(&block.session_id).is_some(),
        );
        check.reference(&format!("{at}.sender_id"), "sender_id", &block.sender_id, "senders", config.sender(&block.sender_id).is_some());
        if agrees(check, index, &at, block) {
            cadence(check, &at, block);
        }
        objective(check, &at, block);
        drain(check, &at, block);
        connect_after_lease(check, &at, block);
        sender(check, &at, route, block);
    }
    let exclusive = config.sessions.iter().any(|session| session.session_mode == SessionMode::Exclusive);
    if exclusive && !config.bridge.is_clustered() && config.stores.lease.as_ref().is_some_and(|lease| lease.kind == StoreKind::Memory) {
        check.warning(
            "W_SPLIT_BRAIN",
            "stores.lease.type",
            &["bridge.deployment_mode", "sessions"],
            "SPLIT-BRAIN RISK: a lease in memory protects nothing from a second process",
            "run one process only, or write `type: dynamodb`",
        );
    }
}

/// The inputs of a lease that all routes of a session must agree on, as they were written.
fn lease_inputs(block: &RouteSession) -> [(&'static str, String); 11] {
    let span = |span: Option<Span>| span.map_or("left out".to_owned(), |span| span.to_string());
    [
        ("lease_ttl", span(block.lease_ttl)),
        ("renew_interval", span(block.renew_interval)),
        ("lease_renew_jitter", span(block.lease_renew_jitter)),
        ("max_renew_fails", block.max_renew_fails.to_string()),
        ("renew_call_timeout", span(block.renew_call_timeout)),
        ("acquire_poll_interval", span(block.acquire_poll_interval)),
        ("step_down_grace", span(block.step_down_grace)),
        ("connect_after_lease", block.connect_after_lease.to_string()),
        ("broker_health_step_down", format!("{:?}", block.broker_health_step_down)),
        ("failover_slo", span(block.failover_slo)),
        ("startup_allowance", block.startup_allowance.to_string()),
    ]
}

/// Whether this block is the first of its session; a later one that says something else is reported.
fn agrees(check: &mut Check<'_>, index: usize, at: &str, block: &RouteSession) -> bool {
    let earlier =
        check.config.routes[..index].iter().find(|route| route.session.as_ref().is_some_and(|other| other.session_id == block.session_id));
    let Some((route, other)) = earlier.and_then(|route| Some((route, route.session.as_ref()?))) else {
        return true;
    };
    for ((name, mine), (_, theirs)) in lease_inputs(block).into_iter().zip(lease_inputs(other)) {
        if mine != theirs {
            check.error(
                "E_LEASE_DIVERGENCE",
                &format!("{at}.{name}"),
                &["routes"],
                format!("route \"{}\" says something else about the lease of session \"{}\"", route.id, block.session_id),
                format!("write the same {name} on every route of a session"),
            );
        }
    }
    false
}

fn cadence(check: &mut Check<'_>, at: &str, block: &RouteSession) {
    let Some(session) = check.config.session(&block.session_id) else {
        return;
    };
    let names = [
        "lease_ttl",
        "renew_interval",
        "lease_renew_jitter",
        "max_renew_fails",
        "renew_call_timeout",
        "acquire_poll_interval",
        "step_down_grace",
    ];
    let fields: Vec<String> = names.iter().map(|name| format!("{at}.{name}")).collect();
    let mut reads: Vec<&str> = fields.iter().map(String::as_str).collect();
    reads.push("bridge.deployment_mode");
    let (ttl_at, fails) = (format!("{at}.lease_ttl"), block.max_renew_fails);
    match check.config.session_timing(session) {
        Ok(timing) => {
            if block.step_down_grace.is_some_and(|grace| grace.as_nanos() >= timing.cadence.lease_ttl) {
                check.warning(
                    "W_STEP_DOWN_GRACE",
                    &format!("{at}.step_down_grace"),
                    &reads,
                    format!("not below lease_ttl: {} is used instead", Span::from_nanos(timing.cadence.step_down_grace)),
                    "write less than lease_ttl",
                );
            }
        }
        Err(CadenceError::TtlTooShort) => check.error(
            "E_LEASE_TTL",
            &ttl_at,
            &reads,
            "lease_ttl is below 5s",
            format!("write {} or more", Span::from_nanos(MIN_LEASE_TTL)),
        ),
        Err(CadenceError::NotPositive { field }) => {
            check.error("E_POSITIVE", &format!("{at}.{field}"), &reads, "must be a positive duration", "write a duration above zero")
        }
        Err(CadenceError::TooFrequent { field }) => check.error(
            "E_LEASE_CADENCE_MIN",
            &format!("{at}.{field}"),
            &reads,
            format!("{field} is below the minimum lease cadence=250ms"),
            "raise it, raise lease_ttl, or lower max_renew_fails",
        ),
        Err(CadenceError::NoRoom | CadenceError::Overflow) => {
            let ttl = block.lease_ttl.map_or("its default".to_owned(), |ttl| ttl.to_string());
            check.error(
                "E_LEASE_CADENCE",
                &ttl_at,
                &reads,
                format!("LeaseTTL={ttl} with MaxRenewFails={fails} leaves no room for the renew cadence: (renew_interval + lease_renew_jitter/2 + renew_call_timeout) * max_renew_fails must be below lease_ttl"),
                "raise lease_ttl, lower max_renew_fails, or shorten renew_interval and renew_call_timeout",
            );
        }
    }
}

/// An objective is admitted only if both sums meet it.
fn objective(check: &mut Check<'_>, at: &str, block: &RouteSession) {
    let (slo_at, allowance_at, step_at) =
        (format!("{at}.failover_slo"), format!("{at}.startup_allowance"), format!("{at}.broker_health_step_down"));
    if block.startup_allowance.as_nanos() > MAX_STARTUP_ALLOWANCE {
        check.error("E_STARTUP_ALLOWANCE", &allowance_at, &[], "startup_allowance is above 10m", "write 10m or less");
        return;
    }
    let Some(slo) = block.failover_slo else {
        return;
    };
    if slo.is_zero() {
        check.positive(&slo_at, slo);
        return;
    }
    if block.broker_health_step_down.is_none() {
        check.error(
            "E_STEP_DOWN_UNDECIDED",
            &slo_at,
            &[&step_at],
            "a declared failover_slo requires a decision: broker_health_step_down \"\" must be a positive duration or \"off\"",
            "add `broker_health_step_down: off`, or a duration such as `90s`",
        );
        return;
    }
    let Some(timing) = check.config.session(&block.session_id).and_then(|session| check.config.session_timing(session).ok()) else {
        return;
    };
    let reads = [at, "sessions", "bridge.deployment_mode"];
    match timing.admit() {
        Some(Err(BudgetError::Exceeded { path, budget, objective })) => check.error(
            "E_FAILOVER_SLO",
            &slo_at,
            &reads,
            format!("failover budget={} exceeds declared failover_slo={} ({path})", Span::from_nanos(budget), Span::from_nanos(objective)),
            "raise failover_slo, or shorten lease_ttl or the session's connect_timeout, reconcile_timeout and unmatched_grace; `causeway budget` shows every term",
        ),
        Some(Err(BudgetError::UnknownActivation)) => check.error("E_FAILOVER_TIMING", &slo_at, &reads, "declared failover_slo requires known transport timing: connect_timeout and reconcile_timeout of the session", "write positive durations there"),
        Some(Err(error)) => check.error("E_FAILOVER_BUDGET", &slo_at, &reads, error.to_string(), "write shorter, positive durations"),
        Some(Ok(())) | None => {}
    }
}

fn drain(check: &mut Check<'_>, at: &str, block: &RouteSession) {
    let (interval_at, strategy_at) = (format!("{at}.drain_interval"), format!("{at}.drain_strategy"));
    if block.drain_interval.is_some() && block.drain_strategy.is_some() {
        check.error(
            "E_DRAIN_BOTH",
            &interval_at,
            &[&strategy_at],
            "session.drain_strategy and session.drain_interval are mutually exclusive",
            "keep one of the two",
        );
    }
    if let Some(interval) = block.drain_interval {
        check.positive(&interval_at, interval);
    }
    for (name, value) in [
        ("drain_batch_size", block.drain_batch_size),
        ("drain_max_batch_size", block.drain_max_batch_size),
        ("drain_max_concurrency", block.drain_max_concurrency),
    ] {
        check.range(&format!("{at}.{name}"), u64::from(value), 1, 10_000);
    }
    if block.drain_max_batch_size < block.drain_batch_size {
        check.error(
            "E_DRAIN_BATCH",
            &format!("{at}.drain_max_batch_size"),
            &[&format!("{at}.drain_batch_size")],
            "drain_max_batch_size must be >= drain_batch_size",
            "raise it, or lower drain_batch_size",
        );
    }
    if let Some(strategy) = &block.drain_strategy {
        drain_strategy(check, &strategy_at, strategy);
    }
}

fn drain_strategy(check: &mut Check<'_>, at: &str, strategy: &DrainStrategy) {
    let fixed = strategy.kind == DrainStrategyKind::FixedPoll;
    let type_at = format!("{at}.type");
    for (name, set, belongs_to_fixed) in [
        ("interval", strategy.interval.is_some(), true),
        ("min_interval", strategy.min_interval.is_some(), false),
        ("max_interval", strategy.max_interval.is_some(), false),
        ("multiplier", strategy.multiplier.is_some(), false),
    ] {
        if set && belongs_to_fixed != fixed {
            check.error(
                "E_DRAIN_OPTION",
                &format!("{at}.{name}"),
                &[&type_at],
                format!("`{name}` has no meaning for this type of drain_strategy"),
                "remove it, or change `type`",
            );
        }
    }
    for (name, span) in [("interval", strategy.interval), ("min_interval", strategy.min_interval)] {
        if let Some(span) = span {
            check.positive(&format!("{at}.{name}"), span);
        }
    }
    if strategy.multiplier.is_some_and(|multiplier| multiplier <= 1.0) {
        check.error("E_DRAIN_MULTIPLIER", &format!("{at}.multiplier"), &[], "multiplier must be > 1.0", "write 1.5 or 2.0");
    }
    let (least, most) = (strategy.min_interval.unwrap_or(Span::millis(100)), strategy.max_interval.unwrap_or(Span::secs(30)));
    if most < least {
        let path = format!("{at}.{}", if strategy.max_interval.is_some() { "max_interval" } else { "min_interval" });
        check.error(
            "E_DRAIN_INTERVALS",
            &path,
            &[&format!("{at}.min_interval"), &format!("{at}.max_interval")],
            "max_interval must be >= min_interval",
            "raise max_interval, or lower min_interval",
        );
    }
}

/// A replica that waits must not connect with the owner's client_id: it would throw the owner out. A session that is not exclusive has no lease to wait for.
fn connect_after_lease(check: &mut Check<'_>, at: &str, block: &RouteSession) {
    if block.connect_after_lease {
        return;
    }
    let Some(session) = check.config.session(&block.session_id) else { return };
    let why = if session.session_mode == SessionMode::Exclusive {
        "an exclusive session connects after its lease is won: a waiting replica with the same client_id would disconnect the owner"
    } else {
        "only an exclusive session has a lease that a connection could come before"
    };
    check.error("E_CONNECT_AFTER_LEASE", &format!("{at}.connect_after_lease"), &["sessions"], why, "remove it, or write true");
}

/// Each message leaves by the sender of the binding that it was resolved to, so what drains a session is one of those.
fn sender(check: &mut Check<'_>, at: &str, route: &Route, block: &RouteSession) {
    let config = check.config;
    let bound: Option<Vec<&str>> =
        route.bindings.iter().map(|id| config.sender(&config.binding(id)?.sender_id).map(|sender| sender.id.as_str())).collect();
    // Where one of them does not exist, that is the fault.
    let (Some(bound), true) = (bound, config.sender(&block.sender_id).is_some()) else { return };
    if let Some(first) = bound.first().filter(|_| !bound.contains(&block.sender_id.as_str())) {
        check.error(
            "E_SESSION_SENDER",
            &format!("{at}.sender_id"),
            &["bindings", "senders", &format!("{}.bindings", at.trim_end_matches(".session"))],
            format!(
                "no binding of route \"{}\" has sender \"{}\": each message leaves by the sender of its binding",
                route.id, block.sender_id
            ),
            format!("write `sender_id: {first}`, or add a binding with that sender to the route"),
        );
    }
}
