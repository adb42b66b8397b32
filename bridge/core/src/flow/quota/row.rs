//! One number in one row: the moment at which the budget would be whole again ("theoretical arrival time" of the generic cell rate algorithm), in
//! milliseconds times the count, so that everything stays in integers.
//!
//! A draw moves it forward, what is given back moves it backward. Every write has a condition, so that nobody needs to read before and nobody
//! compares and swaps: two writers at a time both count.

use crate::units::UnixMillis;
use core::time::Duration;

/// What a budget is: so many tokens in so much time, and how many may be saved up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Tokens in each period, 1 or more.
    pub count: u32,
    /// Milliseconds, 1 or more.
    pub period_ms: u64,
    /// Tokens of a whole budget, 1 or more.
    pub burst: u64,
}

/// What a row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRow {
    /// When the budget would be whole again, in milliseconds times [`Terms::count`].
    pub tat: i128,
    /// The terms that `tat` is counted in.
    pub terms: Terms,
    /// How often the terms changed.
    pub revision: u64,
}

/// A write to the row, with the condition under which it takes effect. A condition that does not hold changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaWrite {
    /// Adds to `tat` if it is from `low` to `high` and the terms are these.
    Busy {
        /// The terms.
        terms: Terms,
        /// What is added.
        add: i128,
        /// The least that `tat` may be: now.
        low: i128,
        /// The most.
        high: i128,
    },
    /// Sets `tat` if there is no row, or it is below `below` and the terms are these.
    Idle {
        /// The terms.
        terms: Terms,
        /// What `tat` must be below: now.
        below: i128,
        /// What is set.
        tat: i128,
    },
    /// Replaces a row of other terms, if it is still exactly `seen`; its revision counts up.
    Replace {
        /// The row as it was seen.
        seen: QuotaRow,
        /// The new terms.
        terms: Terms,
        /// The new `tat`.
        tat: i128,
    },
    /// Takes from `tat` if the terms are these.
    Return {
        /// The terms.
        terms: Terms,
        /// What is taken.
        subtract: i128,
    },
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaAnswer {
    /// It took effect; `tat` as it is now.
    Written(i128),
    /// Its condition does not hold; the row that stands there.
    Refused(Option<QuotaRow>),
}

impl QuotaWrite {
    /// What this write does to `row`: what a store must do in one step.
    ///
    /// # Errors
    /// What stands there instead of what the write names.
    pub fn on(&self, row: Option<QuotaRow>) -> Result<QuotaRow, Option<QuotaRow>> {
        match (*self, row) {
            (Self::Busy { terms, add, low, high }, Some(row)) if row.terms == terms && row.tat >= low && row.tat <= high => {
                Ok(QuotaRow { tat: row.tat.saturating_add(add), ..row })
            }
            (Self::Idle { terms, tat, .. }, None) => Ok(QuotaRow { tat, terms, revision: 1 }),
            (Self::Idle { terms, below, tat }, Some(row)) if row.terms == terms && row.tat < below => Ok(QuotaRow { tat, ..row }),
            (Self::Replace { seen, terms, tat }, Some(row)) if row == seen => {
                Ok(QuotaRow { tat, terms, revision: row.revision.saturating_add(1) })
            }
            (Self::Return { terms, subtract }, Some(row)) if row.terms == terms => {
                Ok(QuotaRow { tat: row.tat.saturating_sub(subtract), ..row })
            }
            (_, row) => Err(row),
        }
    }
}

impl Terms {
    /// `millis` as `tat` counts it.
    #[must_use]
    pub fn scaled(&self, at: UnixMillis) -> i128 {
        i128::from(at.0) * i128::from(self.count)
    }

    /// `tokens` as `tat` counts them.
    #[must_use]
    pub fn worth(&self, tokens: u64) -> i128 {
        i128::from(tokens).saturating_mul(i128::from(self.period_ms))
    }

    /// The tokens that a row has at `at`.
    #[must_use]
    pub fn available(&self, tat: i128, at: UnixMillis) -> u64 {
        let now = self.scaled(at);
        let left = now.saturating_add(self.worth(self.burst)).saturating_sub(tat.max(now));
        u64::try_from(left.max(0) / i128::from(self.period_ms.max(1))).unwrap_or(u64::MAX)
    }

    /// How long after `at` the budget was not overdrawn any more, if nobody draws.
    fn wait(&self, tat: i128, at: UnixMillis) -> Duration {
        let over = tat.saturating_sub(self.worth(self.burst)).saturating_sub(self.scaled(at)).max(0);
        let count = i128::from(self.count.max(1));
        let millis = over / count + i128::from(over % count != 0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// What gives `tokens` back.
    #[must_use]
    pub fn give_back(self, tokens: u64) -> QuotaWrite {
        QuotaWrite::Return { terms: self, subtract: self.worth(tokens) }
    }
}

/// What a draw brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Tokens, 0 where the budget was spent.
    pub tokens: u64,
    /// How long after the draw's `at` they may be spent.
    pub wait: Duration,
    /// The row's `tat` after it, for the next draw's guess.
    pub tat: Option<i128>,
}

/// A draw that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawRequest {
    /// The budget.
    pub terms: Terms,
    /// Tokens that are asked for.
    pub tokens: u64,
    /// The wall clock before the first write was sent.
    pub at: UnixMillis,
    /// How far ahead tokens may be taken that the budget does not have yet.
    pub ahead: Duration,
    /// The row's `tat` as it was last seen, which says what to try first. A wrong guess costs a write and nothing else.
    pub seen: Option<i128>,
}

/// A draw under way: at most a first write, one for new terms or a wrong guess, and one with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    request: DrawRequest,
    asked: u64,
    refusals: u32,
}

/// Writes of one draw, at most.
const MAX_WRITES: u32 = 3;

impl Draw {
    /// The draw, and its first write.
    #[must_use]
    pub fn new(request: DrawRequest) -> (Self, QuotaWrite) {
        let asked = request.tokens.min(request.terms.burst);
        let draw = Self { request, asked, refusals: 0 };
        let write = match request.seen {
            Some(tat) if tat >= request.terms.scaled(request.at) => draw.busy(),
            _ => draw.idle(),
        };
        (draw, write)
    }

    fn horizon(&self) -> i128 {
        let millis = i128::try_from(self.request.ahead.as_millis()).unwrap_or(i128::MAX);
        self.request.terms.worth(self.request.terms.burst).saturating_add(millis.saturating_mul(i128::from(self.request.terms.count)))
    }

    fn busy(&self) -> QuotaWrite {
        let DrawRequest { terms, at, .. } = self.request;
        let add = terms.worth(self.asked);
        let low = terms.scaled(at);
        QuotaWrite::Busy { terms, add, low, high: low.saturating_add(self.horizon()).saturating_sub(add) }
    }

    fn idle(&self) -> QuotaWrite {
        let DrawRequest { terms, at, .. } = self.request;
        let below = terms.scaled(at);
        QuotaWrite::Idle { terms, below, tat: below.saturating_add(terms.worth(self.asked)) }
    }

    /// What to write after a condition did not hold, or what the draw brought: nothing.
    pub fn refused(&mut self, row: Option<QuotaRow>) -> Result<QuotaWrite, Drawn> {
        self.refusals += 1;
        let DrawRequest { terms, at, .. } = self.request;
        let nothing = Drawn { tat: row.map(|row| row.tat), ..Drawn::default() };
        if self.refusals >= MAX_WRITES {
            return Err(nothing);
        }
        let Some(row) = row else { return Ok(self.idle()) };
        let now = terms.scaled(at);
        // A row of other terms keeps the moment at which it is whole again.
        let tat = if row.terms == terms { row.tat } else { converted(&row, &terms) };
        let there = terms.available(tat, at);
        let with_ahead = now.saturating_add(self.horizon()).saturating_sub(tat.max(now)).max(0) / i128::from(terms.period_ms.max(1));
        let within = u64::try_from(with_ahead).unwrap_or(u64::MAX);
        // All that is asked for, where it comes within the horizon; else what is there.
        self.asked = if within >= self.asked { self.asked } else { self.asked.min(there) };
        if self.asked == 0 {
            return Err(nothing);
        }
        Ok(if row.terms != terms {
            QuotaWrite::Replace { seen: row, terms, tat: tat.max(now).saturating_add(terms.worth(self.asked)) }
        } else if row.tat < now {
            self.idle()
        } else {
            self.busy()
        })
    }

    /// What the draw brought, after a write took effect that left `tat`.
    #[must_use]
    pub fn written(&self, tat: i128) -> Drawn {
        Drawn { tokens: self.asked, wait: self.request.terms.wait(tat, self.request.at), tat: Some(tat) }
    }
}

/// The `tat` of a row in other terms, rounded up.
fn converted(row: &QuotaRow, terms: &Terms) -> i128 {
    let count = i128::from(row.terms.count.max(1));
    let millis = row.tat.max(0) / count + i128::from(row.tat.max(0) % count != 0);
    millis.saturating_mul(i128::from(terms.count))
}
