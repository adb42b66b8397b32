//! What a store's calls cost: here only their number, as nobody bills for a local disk.

use causeway_ports::StoreUsage;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the calls to an outbox since its start.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    writes: AtomicU64,
    reads: AtomicU64,
}

impl Calls {
    /// Counts a call that writes, whatever becomes of it.
    pub(crate) fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that reads rows of a log.
    pub(crate) fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters now.
    pub(crate) fn usage(&self) -> StoreUsage {
        StoreUsage {
            write_calls: self.writes.load(Ordering::Relaxed),
            read_calls: self.reads.load(Ordering::Relaxed),
            write_units: None,
            read_units: None,
        }
    }
}
