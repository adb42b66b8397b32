//! The budget that the configuration says.

use super::node::{NodeOptions, OnExhausted, OutagePolicy};
use super::row::Terms;
use crate::config::model::{QuotaExhausted, QuotaOptions, QuotaOutage};
use crate::flow::Pairs;

/// The terms of the budget, and the tokens of a draw; `None` where its rate is not one pair.
#[must_use]
pub fn terms_of(options: &QuotaOptions) -> Option<(Terms, u64)> {
    let pairs = Pairs::parse(&options.rate).ok()?;
    let [pair] = pairs.as_slice() else { return None };
    let burst = options.burst.unwrap_or_else(|| u64::from(pair.count));
    let terms = Terms { count: pair.count, period_ms: u64::from(pair.seconds) * 1_000, burst };
    let block = if options.block_size > 0 { options.block_size } else { (pairs.sustained() / 10).max(1) };
    Some((terms, block))
}

/// How each node draws; `None` where there is no budget.
#[must_use]
pub fn node_options(options: &QuotaOptions) -> Option<NodeOptions> {
    let (terms, block) = terms_of(options).filter(|_| options.enabled)?;
    Some(NodeOptions {
        terms,
        block,
        lease_return: Some(options.lease_return.get()).filter(|every| !every.is_zero()),
        dry_backoff: options.dry_backoff.get(),
        draw_timeout: options.draw_timeout.get(),
        probe_interval: options.probe_interval.get(),
        book_ahead: options.book_ahead.get(),
        outage: match options.outage_policy {
            QuotaOutage::LocalShare => OutagePolicy::LocalShare,
            QuotaOutage::FailOpen => OutagePolicy::FailOpen { grace: options.outage_grace.get() },
            QuotaOutage::FailClosed => OutagePolicy::FailClosed,
        },
        on_exhausted: match options.on_exhausted {
            QuotaExhausted::Hold => OnExhausted::Hold,
            QuotaExhausted::Park => OnExhausted::Park,
            QuotaExhausted::Drop => OnExhausted::Drop,
        },
        notice: options.notice.get(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Q15: "1000:1,50000:60" is refused here by `check`, as a budget has one pair; "1000" on both ways.
    #[test]
    fn q_15_sustained_rate_and_block() {
        let of = |rate: &str| terms_of(&QuotaOptions { rate: rate.to_owned(), ..QuotaOptions::default() });
        assert_eq!(of("50000:60").unwrap().1, 83);
        assert_eq!(of("1000:1").unwrap(), (Terms { count: 1_000, period_ms: 1_000, burst: 1_000 }, 100));
        assert_eq!(of("5:600").unwrap().1, 1);
        assert_eq!((of("1000:1,50000:60"), of("1000")), (None, None));
        assert_eq!(node_options(&QuotaOptions::default()), None, "there is none unless it is enabled");
    }
}
