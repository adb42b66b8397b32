//! How often a lease is renewed and looked at, derived from how long it lasts.

use super::{MILLI, Nanos, SECOND};
use serde::Serialize;
use thiserror::Error;

/// The shortest lease.
pub const MIN_LEASE_TTL: Nanos = 5 * SECOND;

/// The shortest interval between renewals, or between looks at a lease.
pub const MIN_INTERVAL: Nanos = 250 * MILLI;

/// The values that hold where nothing is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// 360s, the rest derived.
    Standalone,
    /// 45s renewed every 10s, for several replicas. Holds in clustered mode where neither the lease's duration nor its renewal is configured.
    ClusteredHa,
}

/// What is configured about a lease; `None` for what is to be derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CadenceInput {
    /// Whether several replicas compete.
    pub clustered: bool,
    /// How long a lease holds.
    pub lease_ttl: Option<Nanos>,
    /// The interval between renewals.
    pub renew_interval: Option<Nanos>,
    /// The range of the random shift of a renewal.
    pub lease_renew_jitter: Option<Nanos>,
    /// How long one call to the lease store may take.
    pub renew_call_timeout: Option<Nanos>,
    /// How often one that waits looks at the lease.
    pub acquire_poll_interval: Option<Nanos>,
    /// How long an owner that steps down goes on settling.
    pub step_down_grace: Option<Nanos>,
    /// How many renewals may fail in a row; 3 where nothing is configured. 0 counts as 1.
    pub max_renew_fails: Option<u32>,
}

/// A lease's resolved timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cadence {
    /// Which defaults held.
    pub profile: Profile,
    /// How long a lease holds.
    pub lease_ttl: Nanos,
    /// The interval between renewals.
    pub renew_interval: Nanos,
    /// The range of the random shift of a renewal.
    pub lease_renew_jitter: Nanos,
    /// How long one call to the lease store may take.
    pub renew_call_timeout: Nanos,
    /// How often one that waits looks at the lease.
    pub acquire_poll_interval: Nanos,
    /// How long an owner that steps down goes on settling; below `lease_ttl`.
    pub step_down_grace: Nanos,
    /// How many renewals may fail in a row.
    pub max_renew_fails: u32,
}

/// Why a cadence is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CadenceError {
    /// Below [`MIN_LEASE_TTL`].
    #[error("lease_ttl is below the minimum of 5s")]
    TtlTooShort,
    /// A configured span that is negative, or a call that may take no time.
    #[error("{field} must be a positive duration")]
    NotPositive {
        /// The field.
        field: &'static str,
    },
    /// Below [`MIN_INTERVAL`].
    #[error("{field} is below the minimum lease cadence=250ms")]
    TooFrequent {
        /// The field.
        field: &'static str,
    },
    /// Renewals that fail in a row would outlast the lease.
    #[error(
        "LeaseTTL with MaxRenewFails leaves no room for the renew cadence: (renew_interval + lease_renew_jitter/2 + renew_call_timeout) * max_renew_fails must be below lease_ttl"
    )]
    NoRoom,
    /// Beyond 64-bit nanoseconds.
    #[error("the lease's timing overflows")]
    Overflow,
}

impl CadenceInput {
    /// The defaults that hold.
    #[must_use]
    pub const fn profile(&self) -> Profile {
        if self.clustered && self.lease_ttl.is_none() && self.renew_interval.is_none() { Profile::ClusteredHa } else { Profile::Standalone }
    }

    /// Resolves what is not configured and refuses what is unsafe.
    ///
    /// # Errors
    /// See [`CadenceError`].
    pub fn resolve(&self) -> Result<Cadence, CadenceError> {
        let profile = self.profile();
        let max_renew_fails = self.max_renew_fails.unwrap_or(3).max(1);
        let mut wanted = *self;
        if profile == Profile::ClusteredHa {
            wanted.lease_ttl = Some(45 * SECOND);
            wanted.renew_interval = Some(10 * SECOND);
            wanted.lease_renew_jitter = self.lease_renew_jitter.or(Some(SECOND));
            wanted.renew_call_timeout = self.renew_call_timeout.or(Some(3 * SECOND));
            wanted.acquire_poll_interval = self.acquire_poll_interval.or(Some(5 * SECOND));
            wanted.step_down_grace = self.step_down_grace.or(Some(5 * SECOND));
        }
        let lease_ttl = wanted.lease_ttl.unwrap_or(360 * SECOND);
        if lease_ttl < MIN_LEASE_TTL {
            return Err(CadenceError::TtlTooShort);
        }
        let renew_interval = match wanted.renew_interval {
            Some(interval) => interval,
            None => derived_renewal(lease_ttl, max_renew_fails)?,
        };
        let derived_jitter = wanted.renew_interval.is_none() && wanted.lease_renew_jitter.is_none();
        let jitter = wanted.lease_renew_jitter.unwrap_or(if derived_jitter { renew_interval / 4 } else { 0 });
        let call = wanted.renew_call_timeout.unwrap_or((renew_interval / 2).clamp(SECOND, 5 * SECOND));
        let poll = wanted.acquire_poll_interval.unwrap_or(renew_interval.min(lease_ttl / 4).min(5 * SECOND));
        let grace = wanted.step_down_grace.unwrap_or(15 * SECOND);
        for (field, value, least) in [("lease_renew_jitter", jitter, 0), ("renew_call_timeout", call, 1), ("step_down_grace", grace, 0)] {
            if value < least {
                return Err(CadenceError::NotPositive { field });
            }
        }
        for (field, value) in [("renew_interval", renew_interval), ("acquire_poll_interval", poll)] {
            if value < MIN_INTERVAL {
                return Err(CadenceError::TooFrequent { field });
            }
        }
        Ok(Cadence {
            profile,
            lease_ttl,
            renew_interval,
            lease_renew_jitter: fit(lease_ttl, renew_interval, jitter, call, max_renew_fails, derived_jitter)?,
            renew_call_timeout: call,
            acquire_poll_interval: poll,
            step_down_grace: if grace >= lease_ttl { lease_ttl / 2 } else { grace },
            max_renew_fails,
        })
    }
}

/// `(per − reserve)·8/9` with `per = ttl·3/(fails·4)` and `reserve = min(5s, per/2)`.
fn derived_renewal(ttl: Nanos, fails: u32) -> Result<Nanos, CadenceError> {
    let per = ttl.checked_mul(3).ok_or(CadenceError::Overflow)? / (i64::from(fails) * 4);
    let reserve = (per / 2).min(5 * SECOND);
    Ok((per - reserve).checked_mul(8).ok_or(CadenceError::Overflow)? / 9)
}

/// The jitter with which all renewals that may fail in a row end before the lease does. Only a derived jitter is ever shortened.
fn fit(ttl: Nanos, renew: Nanos, jitter: Nanos, call: Nanos, fails: u32, derived_jitter: bool) -> Result<Nanos, CadenceError> {
    let fails = i64::from(fails);
    let once = renew.checked_add(call).ok_or(CadenceError::Overflow)?;
    let span = once.checked_add(jitter / 2).and_then(|once| once.checked_mul(fails)).ok_or(CadenceError::Overflow)?;
    if span < ttl {
        return Ok(jitter);
    }
    let room = (ttl / 10 * 9) / fails - once;
    if derived_jitter && room >= 0 { Ok(room * 2) } else { Err(CadenceError::NoRoom) }
}
