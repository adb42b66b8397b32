//! Rules of `flow.outbound`.

use super::{Check, pairs};
use crate::config::model::Transport;
use core::time::Duration;

const AT: &str = "flow.outbound";
/// A message is hidden anew no sooner than this after it was received.
const SOONEST: Duration = Duration::from_secs(1);

pub(super) fn check(check: &mut Check<'_>) {
    let outbound = &check.config.flow.outbound;
    if !outbound.pace.is_empty() {
        pairs(check, "flow.outbound.pace", &outbound.pace);
    }
    check.range(&format!("{AT}.max_in_flight"), u64::from(outbound.max_in_flight.unwrap_or(1)), 1, 65_535);
    let largest = check.config.largest_payload();
    let room = format!("write at least the largest max_payload_bytes of a session, {largest}");
    let unacked_at = format!("{AT}.max_unacked_bytes");
    if check.is_set(&unacked_at) && outbound.max_unacked_bytes < largest.max(1) {
        check.error("E_RANGE", &unacked_at, &["sessions"], "a single message may be larger", room.as_str());
    }
    let (high_at, low_at) = (format!("{AT}.high_water_bytes"), format!("{AT}.low_water_bytes"));
    if outbound.high_water_bytes.is_some_and(|high| high < largest.max(2)) {
        check.error("E_WATERMARK", &high_at, &["sessions"], "a single message may be larger", room.as_str());
    }
    let flow = check.config.sender_flow();
    if outbound.low_water_bytes == Some(0) || flow.low_water >= flow.high_water {
        let at = if outbound.low_water_bytes.is_some() { &low_at } else { &high_at };
        check.error(
            "E_WATERMARK",
            at,
            &[&high_at, &low_at],
            "low_water_bytes must be above 0 and below high_water_bytes",
            "leave it out for half of high_water_bytes",
        );
    }
    let (base_at, max_at) = (format!("{AT}.resume.base"), format!("{AT}.resume.max"));
    check.positive(&base_at, outbound.resume.base);
    if outbound.resume.base > outbound.resume.max {
        check.error("E_BACKOFF", &max_at, &[&base_at], "max must be >= base", "raise it, or lower base");
    }
    check.range(&format!("{AT}.resume.max_retries"), u64::from(outbound.resume.max_retries), 0, 100);
    if let Some(extend) = outbound.visibility_extend {
        visibility_extend(check, extend.get());
    }
}

/// No message is hidden anew before it was received.
fn visibility_extend(check: &mut Check<'_>, extend: Duration) {
    let path = format!("{AT}.visibility_extend");
    if extend.is_zero() {
        check.error("E_POSITIVE", &path, &[], "must be a positive duration", "write a duration above zero, such as `30s`");
        return;
    }
    let queues =
        check.config.receivers.iter().filter(|receiver| receiver.transport == Some(Transport::Sqs) && receiver.options.auto_extend);
    let Some(shortest) = queues.map(|receiver| u64::from(receiver.options.visibility_timeout)).min() else { return };
    if extend + SOONEST > Duration::from_secs(shortest) {
        check.error(
            "E_VISIBILITY_EXTEND",
            &path,
            &["receivers"],
            format!("must be at least a second below the visibility_timeout of every queue that is received from, the shortest of which is {shortest}s"),
            "lower it, raise visibility_timeout, or leave it out for two thirds of that",
        );
    }
}
