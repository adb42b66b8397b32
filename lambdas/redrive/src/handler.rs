//! From an event to an answer.

use crate::{Parts, queue_move};
use causeway_core::metrics::Metric;
use causeway_core::redrive::{Mode, Request};
use causeway_duties::redrive::{self, Counts, Report, guarantee};
use causeway_lambda::{FunctionError, Invocation};
use serde_json::{Value, json};

/// Carries out the event: a redrive, or a batch of SQS messages with a redrive in each body.
///
/// # Errors
/// A bad event, or a store without which nothing could be done.
pub async fn handle(event: &Value, invocation: &Invocation, parts: &Parts) -> Result<Value, FunctionError> {
    match event.get("Records") {
        Some(records) => from_queue(records, invocation, parts).await,
        None => one(event, &invocation.request_id, invocation, parts).await.map(|(answer, _)| answer),
    }
}

/// One redrive: its answer, and whether it was brought to the end that it asked for.
async fn one(event: &Value, fallback_id: &str, invocation: &Invocation, parts: &Parts) -> Result<(Value, bool), FunctionError> {
    let request = Request::parse(event, fallback_id)?;
    if request.mode == Mode::Sqs {
        let moved = queue_move::run(&parts.sqs, &request).await?;
        return Ok((answer(&request, &Report::default(), invocation, Some(moved)), true));
    }
    let report = redrive::run(&request, &parts.routes, &parts.ports, invocation.deadline, &|_| {}).await?;
    emit(&request, &report, invocation, parts);
    let out_of_time = report.continuation.is_some() && report.tally.matched() < u64::from(request.limit);
    let whole = !out_of_time && report.tally.failed == 0;
    Ok((answer(&request, &report, invocation, None), whole))
}

fn answer(request: &Request, report: &Report, invocation: &Invocation, moved: Option<Value>) -> Value {
    let counts = Counts::of(request, &report.tally);
    let mut answer = json!({
        "request_id": request.request_id,
        "mode": request.mode.as_str(),
        "guarantee": guarantee(request.mode),
        "dry_run": request.dry_run,
        "matched": counts.matched,
        "redriven": counts.redriven,
        "skipped": counts.skipped,
        "parked": counts.parked,
        "failed": counts.failed,
        "would_redrive": counts.would_redrive,
        "would_park": counts.would_park,
        "errors": report.tally.errors,
        "continuation": report.continuation,
        "complete": report.continuation.is_none(),
        "duration_ms": u64::try_from(invocation.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    if let (Some(fields), Some(moved)) = (answer.as_object_mut(), moved) {
        fields.insert("move".to_owned(), moved);
    }
    answer
}

fn emit(request: &Request, report: &Report, invocation: &Invocation, parts: &Parts) {
    if request.dry_run {
        return;
    }
    let tally = &report.tally;
    let counts = [
        (Metric::RedriveMatched, tally.matched()),
        (Metric::RedriveSucceeded, tally.redriven),
        (Metric::RedriveSkipped, tally.skipped),
        (Metric::RedriveParked, tally.parked),
        (Metric::RedriveFailed, tally.failed),
    ];
    let mut values: Vec<(Metric, f64)> = counts.iter().map(|(metric, count)| (*metric, *count as f64)).collect();
    values.push((Metric::RedriveRunDuration, invocation.elapsed().as_secs_f64()));
    parts.metrics.emit(&values, parts.ports.clock.wall());
}

/// The messages of a queue, each with a redrive in its body. What was not brought to its end comes again: a redrive may be repeated. A FIFO queue
/// stops at the first of those, or its order would be lost.
async fn from_queue(records: &Value, invocation: &Invocation, parts: &Parts) -> Result<Value, FunctionError> {
    let malformed = |message: &str| FunctionError::new("invalid_request", "Records", message);
    let records = records.as_array().ok_or_else(|| malformed("a list is expected"))?;
    fn field<'r>(record: &'r Value, name: &str) -> Option<&'r str> {
        record.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }
    // A blank identifier in the answer would fail the whole batch in silence. All are looked at before anything is done.
    let ids = records.iter().map(|record| field(record, "messageId").ok_or_else(|| malformed("every record needs a messageId")));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let mut failures = Vec::new();
    let mut stopped = false;
    for (record, id) in records.iter().zip(ids) {
        let fifo = field(record, "eventSourceARN").is_some_and(|arn| arn.ends_with(".fifo"));
        let body = field(record, "body");
        let done = !stopped && parts.ports.clock.now() < invocation.deadline && from_record(id, body, invocation, parts).await;
        if !done {
            failures.push(json!({ "itemIdentifier": id }));
            stopped |= fifo;
        }
    }
    Ok(json!({ "batchItemFailures": failures }))
}

async fn from_record(id: &str, body: Option<&str>, invocation: &Invocation, parts: &Parts) -> bool {
    let event = match serde_json::from_str(body.unwrap_or_default()) {
        Ok(event) => event,
        Err(error) => {
            tracing::error!(message_id = id, %error, "the message's body is not JSON");
            return false;
        }
    };
    match one(&event, id, invocation, parts).await {
        Ok((answer, whole)) => {
            tracing::info!(message_id = id, matched = %answer["matched"], redriven = %answer["redriven"], whole, "redrive from a queue");
            whole
        }
        Err(error) => {
            tracing::error!(message_id = id, code = error.code, field = error.field, "{}", error.message);
            false
        }
    }
}
