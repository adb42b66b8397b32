//! Rules of `flow.limits`.

use super::{Check, pairs};
use crate::config::model::{FlowLimit, LimitAction, LimitMode, LimitScope};
use crate::flow::LimitKey;

/// A quarter of the memory that a worker has where nothing else is said, in bytes: 512 MiB.
const MEMORY: u64 = 128 * 1024 * 1024;
/// What one admission of a window takes, in bytes.
const ADMISSION: u64 = 8;

pub(super) fn check(check: &mut Check<'_>) {
    let config = check.config;
    for (index, limit) in config.flow.limits.iter().enumerate() {
        let at = format!("flow.limits[{index}]");
        let field = |name: &str| format!("{at}.{name}");
        key(check, &at, limit);
        check.range(&field("max_keys"), u64::from(limit.max_keys), 1, 10_000_000);
        if limit.overflow_key.is_empty() {
            check.error("E_REQUIRED", &field("overflow_key"), &[], "an empty key is none", "write a name that no key has, or leave it out");
        }
        if let Some(pairs) = pairs(check, &field("pairs"), &limit.pairs) {
            let most = u64::from(limit.max_keys).saturating_mul(u64::from(pairs.largest_count())).saturating_mul(ADMISSION);
            if limit.enabled && limit.mode == LimitMode::StrictWindow && limit.scope == LimitScope::Key && most > MEMORY {
                let message = format!(
                    "with every key at its limit this takes {} MiB of memory: {} keys times {} admissions",
                    most / (1024 * 1024),
                    limit.max_keys,
                    pairs.largest_count()
                );
                check.warning(
                    "W_LIMIT_MEMORY",
                    &field("max_keys"),
                    &[&field("pairs")],
                    message,
                    "lower max_keys, or write `mode: token_bucket`",
                );
            }
        }
        action(check, &at, limit);
    }
}

fn key(check: &mut Check<'_>, at: &str, limit: &FlowLimit) {
    let path = format!("{at}.key");
    let scope_at = format!("{at}.scope");
    let remedy = "write `topic`, `topic_level:N` or `user_property:NAME`; who published a message a subscriber never learns";
    match (limit.scope, limit.key.as_deref()) {
        (LimitScope::Key, None) => check.error("E_LIMIT_KEY", &path, &[&scope_at], "a limit by key needs a key", remedy),
        (LimitScope::Key, Some(key)) => match LimitKey::parse(key) {
            Ok(LimitKey::Topic | LimitKey::TopicLevel(_) | LimitKey::UserProperty(_)) => {}
            Ok(LimitKey::Route | LimitKey::Connection) => {
                check.error("E_LIMIT_KEY", &path, &[&scope_at], "the route is no key of a message", "write `scope: route` and no key");
            }
            Err(error) => check.error("E_LIMIT_KEY", &path, &[&scope_at], error.to_string(), remedy),
        },
        (LimitScope::Route | LimitScope::Connection, Some(_)) => {
            check.error(
                "E_LIMIT_KEY",
                &path,
                &[&scope_at],
                "a limit of a route or a connection has no key",
                "remove it, or write `scope: key`",
            );
        }
        (LimitScope::Route | LimitScope::Connection, None) => {}
    }
}

fn action(check: &mut Check<'_>, at: &str, limit: &FlowLimit) {
    let path = format!("{at}.on_exceed");
    let config = check.config;
    match limit.action() {
        LimitAction::Park if config.stores.outbox.is_none() => check.error(
            "E_NO_OUTBOX",
            &path,
            &["stores.outbox", &format!("{at}.scope")],
            "what is parked is kept in the outbox, and there is none",
            "configure `stores.outbox`, or write `on_exceed: hold`",
        ),
        LimitAction::Drop if !limit.allow_loss => {
            if config.receivers.iter().any(super::repeats) {
                check.error(
                    "E_LIMIT_LOSS",
                    &path,
                    &[&format!("{at}.allow_loss"), "receivers"],
                    "messages come that their source would repeat, and they would be acknowledged and dropped",
                    "write `on_exceed: park` or `hold`, or permit it with `allow_loss: true`",
                );
            }
        }
        LimitAction::Park | LimitAction::Hold | LimitAction::Drop => {}
    }
}
