//! The worst case from failure detection to a successor at full service, and whether it meets an objective.
//!
//! Outside of both sums: a lease release that the store refuses, a store that fails, the time until the transport notices that a connection is dead, and
//! contention in which no replica ever finishes. They are an operator's error budget, not arithmetic.

use super::cadence::Cadence;
use super::{MILLI, Nanos, SECOND};
use serde::Serialize;
use thiserror::Error;

/// The largest start-up allowance: 10 minutes.
pub const MAX_STARTUP_ALLOWANCE: Nanos = 600 * SECOND;

/// How long a new owner's transport takes at most from the lease to full service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// The transport says so.
    Known(Nanos),
    /// Nobody knows: nothing can be promised.
    Unknown,
}

/// What an MQTT session's activation is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MqttActivation {
    /// How long a connection may take.
    pub connect_timeout: Nanos,
    /// How long subscribing may take.
    pub reconcile_timeout: Nanos,
    /// How long a message that no receiver asked for is held back.
    pub unmatched_grace: Nanos,
}

impl MqttActivation {
    /// `2·connect + 4·reconcile + 2·unmatched_grace`; unknown where a part is not positive (a grace may be zero) or the sum overflows.
    #[must_use]
    pub fn bound(&self) -> Activation {
        if self.connect_timeout <= 0 || self.reconcile_timeout <= 0 || self.unmatched_grace < 0 {
            return Activation::Unknown;
        }
        let sum = || {
            let connect = self.connect_timeout.checked_mul(2)?;
            let reconcile = self.reconcile_timeout.checked_mul(4)?;
            connect.checked_add(reconcile)?.checked_add(self.unmatched_grace.checked_mul(2)?)
        };
        sum().map_or(Activation::Unknown, Activation::Known)
    }
}

/// Everything that the sums are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetTerms {
    /// The lease's timing.
    pub cadence: Cadence,
    /// The successor's way to full service.
    pub activation: Activation,
    /// What starting a replacement adds.
    pub startup_allowance: Nanos,
    /// After how long without a broker the owner lets go; `None` where it never does.
    pub broker_health_step_down: Option<Nanos>,
}

/// The sums, with their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// The shortest pause between two looks at the lease.
    pub min_poll: Nanos,
    /// The longest.
    pub max_poll: Nanos,
    /// How many calls to the lease store a takeover may need.
    pub calls: i64,
    /// The successor's way to full service.
    pub activation: Nanos,
    /// What starting a replacement adds.
    pub startup_allowance: Nanos,
    /// The owner's process, machine, or way to the lease store is gone.
    pub owner_death: Nanos,
    /// The owner alone lost its way to the broker. `None` where it then keeps the lease.
    pub broker_path: Option<Nanos>,
}

/// Why nothing can be promised, or not what was asked for.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BudgetError {
    /// A part that must be positive is not, or one that may be zero is negative.
    #[error("{term} is not a positive duration")]
    Term {
        /// The part.
        term: &'static str,
    },
    /// The transport's part is not known.
    #[error("declared failover_slo requires known transport timing")]
    UnknownActivation,
    /// Beyond 64-bit nanoseconds.
    #[error("the failover budget overflows")]
    Overflow,
    /// An objective without a decision about broker outages.
    #[error("failover_slo is declared while broker_health_step_down is left out")]
    StepDownUndecided,
    /// More than ten minutes.
    #[error("startup_allowance is above 10m")]
    AllowanceTooLong,
    /// A sum above the objective, by as little as a nanosecond.
    #[error("failover budget exceeds declared failover_slo")]
    Exceeded {
        /// Which sum: `owner_death` or `broker_path`.
        path: &'static str,
        /// The sum.
        budget: Nanos,
        /// The objective.
        objective: Nanos,
    },
}

impl BudgetTerms {
    /// Adds everything up.
    ///
    /// # Errors
    /// Where a part is missing, not positive, or the sum overflows: then nothing can be promised.
    pub fn sum(&self) -> Result<Budget, BudgetError> {
        let cadence = &self.cadence;
        let activation = match self.activation {
            Activation::Known(nanos) => nanos,
            Activation::Unknown => return Err(BudgetError::UnknownActivation),
        };
        let required = [
            ("lease_ttl", cadence.lease_ttl),
            ("acquire_poll_interval", cadence.acquire_poll_interval),
            ("renew_call_timeout", cadence.renew_call_timeout),
            ("activation", activation),
        ];
        if let Some((term, _)) = required.into_iter().find(|(_, value)| *value <= 0) {
            return Err(BudgetError::Term { term });
        }
        if self.startup_allowance < 0 {
            return Err(BudgetError::Term { term: "startup_allowance" });
        }
        if self.startup_allowance > MAX_STARTUP_ALLOWANCE {
            return Err(BudgetError::AllowanceTooLong);
        }
        let poll = cadence.acquire_poll_interval;
        let min_poll = (poll - (poll / 2) / 2).max(MILLI);
        let max_poll = add(&[poll, ceil_div(poll, 4)])?.max(MILLI);
        let calls = add(&[1, ceil_div(cadence.lease_ttl, min_poll)])?;
        let tail = [times(max_poll, 2)?, activation, self.startup_allowance];
        let owner_death = add(&[cadence.lease_ttl, add(&tail)?, times(cadence.renew_call_timeout, calls)?])?;
        let broker_path = self.broker_health_step_down.map(|after| self.broker_path(after, add(&tail)?)).transpose()?;
        Ok(Budget { min_poll, max_poll, calls, activation, startup_allowance: self.startup_allowance, owner_death, broker_path })
    }

    fn broker_path(&self, after: Nanos, tail: Nanos) -> Result<Nanos, BudgetError> {
        let cadence = &self.cadence;
        for (term, value, least) in [
            ("broker_health_step_down", after, 1),
            ("renew_interval", cadence.renew_interval, 1),
            ("lease_renew_jitter", cadence.lease_renew_jitter, 0),
            ("step_down_grace", cadence.step_down_grace, 0),
        ] {
            if value < least {
                return Err(BudgetError::Term { term });
            }
        }
        add(&[
            after,
            cadence.renew_interval,
            cadence.lease_renew_jitter / 2,
            times((5 * SECOND).min(cadence.step_down_grace), 2)?,
            cadence.step_down_grace,
            times(cadence.renew_call_timeout, 4)?,
            tail,
        ])
    }
}

impl Budget {
    /// Whether both sums meet the objective; the exact boundary does.
    ///
    /// # Errors
    /// [`BudgetError::Exceeded`] for the first sum above it, and [`BudgetError::Term`] where it is not positive.
    pub fn admit(&self, objective: Nanos) -> Result<(), BudgetError> {
        if objective <= 0 {
            return Err(BudgetError::Term { term: "failover_slo" });
        }
        for (path, budget) in [("owner_death", Some(self.owner_death)), ("broker_path", self.broker_path)] {
            if let Some(budget) = budget.filter(|budget| *budget > objective) {
                return Err(BudgetError::Exceeded { path, budget, objective });
            }
        }
        Ok(())
    }
}

/// Quotient of positive numbers, rounded up.
const fn ceil_div(dividend: Nanos, divisor: Nanos) -> Nanos {
    dividend / divisor + if dividend % divisor == 0 { 0 } else { 1 }
}

fn times(nanos: Nanos, factor: i64) -> Result<Nanos, BudgetError> {
    nanos.checked_mul(factor).ok_or(BudgetError::Overflow)
}

fn add(terms: &[Nanos]) -> Result<Nanos, BudgetError> {
    terms.iter().try_fold(0_i64, |sum, term| sum.checked_add(*term)).ok_or(BudgetError::Overflow)
}
