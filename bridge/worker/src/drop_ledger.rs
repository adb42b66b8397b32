//! What was dropped, on its way into the ledger.

use causeway_core::drops::Dropped;
use causeway_core::drops::ledger::{LedgerBuffer, LedgerRow};
use causeway_core::units::UnixMillis;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was dropped since it was last taken out. Clones share it. Bounded, see [`LedgerBuffer`].
#[derive(Clone, Debug, Default)]
pub struct DropBook(Arc<Mutex<LedgerBuffer>>);

impl DropBook {
    fn buffer(&self) -> MutexGuard<'_, LedgerBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in `many` messages that were dropped alike.
    pub fn record(&self, at: UnixMillis, dropped: &Dropped, many: u64) {
        self.buffer().record(at, dropped, many);
    }

    /// Takes out all of it.
    #[must_use]
    pub fn take(&self) -> Vec<LedgerRow> {
        self.buffer().take()
    }

    /// Puts back what could not be written.
    pub fn restore(&self, rows: Vec<LedgerRow>) {
        self.buffer().restore(rows);
    }
}
