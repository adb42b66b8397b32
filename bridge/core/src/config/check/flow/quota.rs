//! Rules of `flow.quota`.

use super::{Check, pairs};
use crate::config::model::{QuotaExhausted, QuotaOutage};
use crate::flow::{MAX_COUNT, quota};
use core::time::Duration;

const AT: &str = "flow.quota";

pub(super) fn check(check: &mut Check<'_>) {
    let config = check.config;
    let options = &config.flow.quota;
    if let Some(pairs) = pairs(check, "flow.quota.rate", &options.rate) {
        match pairs.as_slice() {
            // What nobody asked for is not held against the routes.
            [_] => {
                if options.enabled || ["rate", "burst", "block_size"].iter().any(|name| check.is_set(&format!("{AT}.{name}"))) {
                    budget(check);
                }
            }
            _ => check.error(
                "E_QUOTA_PAIRS",
                "flow.quota.rate",
                &[],
                "a budget has one pair",
                "write one, such as `1000:1`; further limits go to `flow.limits`",
            ),
        }
    }
    times(check);
    exhausted(check);
    if options.name.as_deref().is_some_and(|name| name.is_empty() || name.len() > 200) {
        check.error("E_RANGE", "flow.quota.name", &[], "out of range", "write a name of 1 to 200 bytes, or leave it out");
    }
    if options.enabled && config.bridge.is_clustered() && config.stores.lease.is_none() {
        check.error(
            "E_QUOTA_STORE",
            AT,
            &["stores.lease", "bridge.deployment_mode", "bridge.cluster"],
            "the processes of a clustered bridge share the budget in the store of leases, and there is none",
            "configure `stores.lease`",
        );
    }
}

fn budget(check: &mut Check<'_>) {
    let config = check.config;
    let Some((terms, block)) = quota::terms_of(&config.flow.quota) else { return };
    if let Some(burst) = config.flow.quota.burst {
        check.range("flow.quota.burst", burst, 1, u64::from(MAX_COUNT));
    }
    let widest = config.receivers.iter().map(|receiver| {
        let routes = config.routes.iter().filter(|route| route.receiver_id == receiver.id);
        routes.map(|route| route.bindings.len() as u64).sum::<u64>()
    });
    let cost = 1 + widest.max().unwrap_or(0);
    let reads = ["flow.quota.rate", "routes", "receivers"];
    if terms.burst < cost {
        check.error(
            "E_QUOTA_BURST",
            "flow.quota.burst",
            &reads,
            format!(
                "a message may cost {cost}, one and one for each destination, which is more than the burst: it could never be admitted"
            ),
            format!("write {cost} or more"),
        );
    }
    if block > terms.burst {
        check.error(
            "E_QUOTA_BLOCK",
            "flow.quota.block_size",
            &["flow.quota.burst", "flow.quota.rate"],
            "a block is larger than the burst: it could never be drawn",
            "lower block_size, or raise burst",
        );
    }
}

fn exhausted(check: &mut Check<'_>) {
    const ON_EXHAUSTED: &str = "flow.quota.on_exhausted";
    let (config, options) = (check.config, &check.config.flow.quota);
    match options.on_exhausted {
        QuotaExhausted::Park if config.stores.outbox.is_none() => check.error(
            "E_NO_OUTBOX",
            ON_EXHAUSTED,
            &["stores.outbox"],
            "what is parked is kept in the outbox, and there is none",
            "configure `stores.outbox`, or write `on_exhausted: hold`",
        ),
        QuotaExhausted::Drop if !options.allow_loss && config.receivers.iter().any(super::repeats) => check.error(
            "E_QUOTA_LOSS",
            ON_EXHAUSTED,
            &["flow.quota.allow_loss", "receivers"],
            "messages come that their source would repeat, and they would be acknowledged and dropped",
            "write `on_exhausted: park` or `hold`, or permit it with `allow_loss: true`",
        ),
        QuotaExhausted::Hold | QuotaExhausted::Park | QuotaExhausted::Drop => {}
    }
}

fn times(check: &mut Check<'_>) {
    let options = &check.config.flow.quota;
    for (path, span) in [
        ("flow.quota.draw_timeout", options.draw_timeout),
        ("flow.quota.dry_backoff", options.dry_backoff),
        ("flow.quota.probe_interval", options.probe_interval),
        ("flow.quota.notice", options.notice),
    ] {
        check.positive(path, span);
    }
    let (every, timeout) = (options.lease_return.get(), options.draw_timeout.get());
    if every.is_zero() {
        if options.enabled {
            check.warning(
                "W_QUOTA_RETURN",
                "flow.quota.lease_return",
                &[],
                "processes that take nothing in keep what they drew",
                "write a time such as `1s`",
            );
        }
    } else if every < Duration::from_millis(100) {
        check.error("E_QUOTA_RETURN", "flow.quota.lease_return", &[], "below 100ms", "write 100ms or more, or 0s for never");
    } else if timeout >= every {
        check.error(
            "E_QUOTA_TIMEOUT",
            "flow.quota.draw_timeout",
            &["flow.quota.lease_return"],
            "draw_timeout must be below lease_return",
            "lower draw_timeout, or raise lease_return",
        );
    }
    if options.outage_policy != QuotaOutage::FailOpen && check.is_set("flow.quota.outage_grace") {
        check.error(
            "E_QUOTA_GRACE",
            "flow.quota.outage_grace",
            &["flow.quota.outage_policy"],
            "a grace is what `outage_policy: fail_open` has",
            "remove it, or write `outage_policy: fail_open`",
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use crate::config::{Source, load};

    /// The codes of what is wrong with a route to so many bindings.
    fn codes(bindings: usize, quota: &str) -> Vec<&'static str> {
        let mut text = include_str!("../../../../../../tests/fixtures/valid/standalone_sqlite.yaml").to_owned();
        let (ids, more): (Vec<String>, Vec<String>) =
            (0..bindings).map(|at| (format!("to-{at}"), format!("  - {{ id: to-{at}, sender_id: queue, address: out }}\n"))).unzip();
        text = text.replace("bindings:\n  - id:", &format!("bindings:\n{}  - id:", more.concat()));
        text = text.replace("bindings: [to-queue]", &format!("bindings: [{}]", ids.join(", ")));
        assert!(text.contains("to-0, "), "the route has them");
        text.push_str(quota);
        match load(&[Source { name: "s", text: &text }], &|_| None) {
            Ok(_) => Vec::new(),
            Err(faults) => faults.iter().filter(|fault| fault.is_error()).map(|fault| fault.code).collect(),
        }
    }

    #[test]
    fn a_budget_that_nobody_asked_for_bounds_no_fan_out() {
        for quota in ["", "flow: { quota: { outage_policy: fail_closed } }\n"] {
            assert_eq!(codes(1_000, quota), Vec::<&str>::new(), "{quota}");
        }
        for quota in
            ["flow: { quota: { enabled: true } }\n", "flow: { quota: { rate: \"1000:1\" } }\n", "flow: { quota: { burst: 1000 } }\n"]
        {
            assert_eq!(codes(1_000, quota), ["E_QUOTA_BURST"], "{quota}");
            assert_eq!(codes(999, quota), Vec::<&str>::new(), "{quota}");
        }
    }
}
