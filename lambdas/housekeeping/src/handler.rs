//! From an event to an answer.

use crate::Parts;
use causeway_core::housekeeping::Request;
use causeway_core::metrics::Metric;
use causeway_duties::housekeeping::{Bridge, Report, run};
use causeway_lambda::{FunctionError, Invocation, random};
use serde_json::{Value, json};

/// Carries out a sweep. The scheduler's event is the same as anybody's.
///
/// # Errors
/// A bad event, or a store without which nothing could be done: then the scheduler's retry and its dead-letter queue have a meaning.
pub async fn handle(event: &Value, invocation: &Invocation, parts: &Parts) -> Result<Value, FunctionError> {
    let request = Request::parse(event, parts.routes.bridge())?;
    let bridge =
        Bridge { routes: parts.routes.clone(), lease_ttl: parts.lease_ttl.clone(), keep_settled: parts.keep_settled, random: random()? };
    let report = run(&request, &bridge, &parts.ports, invocation.deadline).await?;
    emit(&request, &report, invocation, parts);
    Ok(json!({
        "request_id": invocation.request_id,
        "op": "sweep",
        "dry_run": request.dry_run,
        "swept": report.swept,
        "gauges": report.gauges,
        "errors": report.errors,
        "truncated": report.continuation.is_some(),
        "continuation": report.continuation,
        "duration_ms": u64::try_from(invocation.elapsed().as_millis()).unwrap_or(u64::MAX),
    }))
}

fn emit(request: &Request, report: &Report, invocation: &Invocation, parts: &Parts) {
    let (swept, gauges) = (&report.swept, &report.gauges);
    let mut values: Vec<(Metric, f64)> = Vec::new();
    let known = [
        (Metric::OutboxPending, gauges.outbox_pending),
        (Metric::OutboxPendingOldestAge, gauges.outbox_oldest_age_s),
        (Metric::LogsWithoutOwner, gauges.logs_without_owner),
        (Metric::DlqDepth, gauges.dlq_depth),
        (Metric::DlqOldestAge, gauges.dlq_oldest_age_s),
    ];
    values.extend(known.iter().filter_map(|(metric, value)| Some((*metric, (*value)? as f64))));
    if !request.dry_run {
        let counts = [
            (Metric::HousekeepingExpiredToDlq, swept.expired_to_dlq),
            (Metric::HousekeepingOrphansToDlq, swept.orphans_to_dlq),
            (Metric::HousekeepingAnchorsPruned, swept.anchors_pruned),
            (Metric::HousekeepingConflicts, swept.conflicts),
            (Metric::HousekeepingErrors, report.errors.len() as u64),
            (Metric::HousekeepingTruncated, u64::from(report.continuation.is_some())),
        ];
        values.extend(counts.iter().map(|(metric, count)| (*metric, *count as f64)));
        values.push((Metric::HousekeepingRunDuration, invocation.elapsed().as_secs_f64()));
    }
    if !values.is_empty() {
        parts.metrics.emit(&values, parts.ports.clock.wall());
    }
}
