//! The notice that the budget is spent: raised once, until somebody acknowledges it or its time is over.

use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// Whether the notice stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notice {
    raised: Option<(Instant, UnixMillis)>,
    acknowledged: bool,
}

impl Notice {
    /// A charge had to wait because the budget is spent. Answers whether that raised the notice: while it stands, and once acknowledged until its time
    /// is over, it is not raised again.
    pub(super) fn reached(&mut self, now: Instant, wall: UnixMillis, lasts: Duration) -> bool {
        if self.raised.is_some_and(|(at, _)| now.since(at) < lasts) {
            return false;
        }
        *self = Self { raised: Some((now, wall)), acknowledged: false };
        true
    }

    /// Somebody has seen it. Answers whether it stood.
    pub(super) fn acknowledge(&mut self, now: Instant, lasts: Duration) -> bool {
        let stood = self.standing(now, lasts).is_some();
        self.acknowledged = true;
        stood
    }

    /// Since when it stands, if it does.
    pub(super) fn standing(&self, now: Instant, lasts: Duration) -> Option<UnixMillis> {
        self.raised.filter(|(at, _)| !self.acknowledged && now.since(*at) < lasts).map(|(_, wall)| wall)
    }
}
