//! Rules of `drops`.

use super::Check;
use crate::config::values::Span;

pub(super) fn check(check: &mut Check<'_>) {
    let ledger = &check.config.drops.ledger;
    check.positive("drops.ledger.retention", ledger.retention);
    check.range("drops.ledger.max_rows", u64::from(ledger.max_rows), 1, 1_000_000);
    check.positive("drops.ledger.flush_interval", ledger.flush_interval);
    if ledger.flush_interval > Span::secs(3_600) {
        check.error(
            "E_LEDGER_FLUSH",
            "drops.ledger.flush_interval",
            &[],
            format!("{} is too long: a worker that is killed forgets what was dropped since", ledger.flush_interval),
            "write 1h or less; 10s costs nothing where nothing is dropped",
        );
    }
    if !ledger.enabled && check.is_set("stores.ledger") {
        check.error(
            "E_LEDGER_OFF",
            "stores.ledger",
            &["drops.ledger.enabled"],
            "`drops: {ledger: {enabled: false}}` keeps no ledger, and nothing would be written there",
            "remove one of the two",
        );
    }
}
