//! A node's own share of the budget, while nobody can see the row.

use super::row::Terms;
use crate::units::Instant;

/// A bucket that begins empty, so that what the row gave just before is not given a second time, and is filled at the rate divided by the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    terms: Terms,
    nodes: u32,
    at: Instant,
    /// Tokens, in nanoseconds of the period times the nodes.
    level: u128,
}

impl Share {
    /// Empty at `now`. Without nodes it stays empty.
    pub(super) const fn new(terms: Terms, nodes: u32, now: Instant) -> Self {
        Self { terms, nodes, at: now, level: 0 }
    }

    fn token(&self) -> u128 {
        u128::from(self.terms.period_ms) * 1_000_000 * u128::from(self.nodes)
    }

    /// The share of the burst, rounded up, and a charge of `cost` at least: else one that is wider than the share never came.
    fn cap(&self, cost: u64) -> u128 {
        self.token().saturating_mul(u128::from(self.terms.burst.div_ceil(u64::from(self.nodes.max(1))).max(cost)))
    }

    /// Takes `tokens` of a charge of `cost`, if they are there.
    pub(super) fn take(&mut self, now: Instant, tokens: u64, cost: u64) -> bool {
        if self.nodes == 0 {
            return false;
        }
        let grown = now.since(self.at).as_nanos().saturating_mul(u128::from(self.terms.count));
        self.level = self.level.saturating_add(grown).min(self.cap(cost));
        self.at = self.at.max(now);
        let wanted = self.token().saturating_mul(u128::from(tokens));
        let there = self.level >= wanted;
        if there {
            self.level -= wanted;
        }
        there
    }

    /// When `tokens` are there, if nothing is taken before.
    pub(super) fn ready_at(&self, tokens: u64) -> Option<Instant> {
        if self.nodes == 0 {
            return None;
        }
        let missing = self.token().saturating_mul(u128::from(tokens)).saturating_sub(self.level);
        let nanos = missing.div_ceil(u128::from(self.terms.count.max(1)));
        Some(self.at.plus(core::time::Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))))
    }
}
