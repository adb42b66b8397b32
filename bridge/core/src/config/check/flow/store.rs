//! Rules of `flow.store`.

use crate::config::check::Check;
use crate::config::model::OnFull;
use crate::config::values::Span;

/// Longer is no time to live: it says that messages are kept for ever, which 0s says.
const LONGEST: Span = Span::secs(10 * 365 * 86_400);

pub(super) fn check(check: &mut Check<'_>) {
    let store = &check.config.flow.store;
    check.range("flow.store.max_messages_per_key", u64::from(store.max_messages_per_key.unwrap_or(1)), 1, 1_000_000);
    check.range("flow.store.max_bytes_per_key", store.max_bytes_per_key, 1024, 1 << 40);
    if store.on_full == OnFull::DropOldest && !store.allow_loss {
        check.error(
            "E_ALLOW_LOSS",
            "flow.store.on_full",
            &["flow.store.allow_loss"],
            "`drop_oldest` loses messages that were acknowledged, which `allow_loss: true` must acknowledge",
            "write `allow_loss: true` beside it, or `on_full: dead_letter_oldest`",
        );
    }
    if matches!(store.on_full, OnFull::DeadLetterOldest | OnFull::RejectNewest) && check.config.stores.dlq.is_none() {
        check.error(
            "E_DLQ_REQUIRED",
            "flow.store.on_full",
            &["stores.dlq"],
            "there is no store for the dead letters that it makes",
            "add `stores: {dlq: …}`, or write `on_full: hold`",
        );
    }
    for (name, span) in [("message_ttl", store.message_ttl), ("max_message_ttl", store.max_message_ttl)] {
        if span > LONGEST {
            let at = format!("flow.store.{name}");
            check.error("E_TTL", &at, &[], format!("{span} is longer than ten years"), "write 0s for no limit");
        }
    }
    if !store.max_message_ttl.is_zero() && store.message_ttl > store.max_message_ttl && check.is_set("flow.store.message_ttl") {
        check.error(
            "E_TTL",
            "flow.store.message_ttl",
            &["flow.store.max_message_ttl"],
            format!("message_ttl {} is above max_message_ttl {}, which cuts it", store.message_ttl, store.max_message_ttl),
            "lower it, or raise max_message_ttl",
        );
    }
}
