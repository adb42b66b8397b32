//! When a call to the store that failed is made again.

use crate::outcome::Fault;
use crate::units::Instant;
use core::time::Duration;

/// The pause before a store call is made again: doubles from the first to the last.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_secs(5);

/// Pauses that grow with every failure in a row, unless the store named one itself.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    failures: u32,
    retry_at: Option<Instant>,
    fault: Option<Fault>,
}

impl Patience {
    /// Whether the next call may be made.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|at| now >= at)
    }

    /// When the next call may be made, if it has to wait.
    #[must_use]
    pub const fn wake_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// The last fault, until a call succeeds.
    #[must_use]
    pub const fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The next call is made now.
    pub const fn called(&mut self) {
        self.retry_at = None;
    }

    /// A call succeeded.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// A call failed.
    pub fn failed(&mut self, now: Instant, fault: Fault) {
        let pause = FIRST.saturating_mul(1 << self.failures.min(10)).min(LAST);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now.plus(fault.retry_after.unwrap_or(pause)));
        self.fault = Some(fault);
    }
}
