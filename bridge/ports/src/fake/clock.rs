//! A clock that moves only when it is told to.

use crate::Clock;
use causeway_core::units::{Instant, UnixMillis};
use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};

/// The clocks of a host, moved by hand. Starts at one second after boot, on 14 November 2023.
#[derive(Debug)]
pub struct FakeClock {
    nanos: AtomicU64,
    wall: AtomicU64,
}

impl Default for FakeClock {
    fn default() -> Self {
        Self { nanos: AtomicU64::new(1_000_000_000), wall: AtomicU64::new(1_700_000_000_000) }
    }
}

impl FakeClock {
    /// A clock at its start.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Time passes: both clocks move.
    pub fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::SeqCst);
        self.wall.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Somebody sets the wall clock, forward or back; the boot clock does not notice.
    pub fn set_wall(&self, to: UnixMillis) {
        self.wall.store(to.0, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn wall(&self) -> UnixMillis {
        UnixMillis(self.wall.load(Ordering::SeqCst))
    }
}
