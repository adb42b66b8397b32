//! The ledger of drops in this process's memory: what is told of this process alone, until it ends.

use super::locked;
use async_trait::async_trait;
use causeway_core::drops::ledger::{LedgerCount, LedgerKey, LedgerLimits, LedgerRow};
use causeway_core::outcome::{Fault, Outcome};
use causeway_ports::{DropLedger, LedgerBatch, LedgerPage};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A ledger in memory.
#[derive(Debug, Default)]
pub struct MemoryDropLedger {
    rows: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    rows: BTreeMap<String, (LedgerKey, LedgerCount)>,
    last_batch: Option<u128>,
}

impl MemoryDropLedger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl DropLedger for MemoryDropLedger {
    async fn add(&self, batch: &LedgerBatch) -> Outcome<()> {
        let mut kept = locked(&self.rows);
        if kept.last_batch.replace(batch.id) == Some(batch.id) {
            return Outcome::Done(());
        }
        for LedgerRow { key, count } in &batch.rows {
            kept.rows.entry(key.name()).and_modify(|(_, known)| known.add(count)).or_insert_with(|| (key.clone(), count.clone()));
        }
        Outcome::Done(())
    }

    async fn list(&self, limit: usize) -> Result<LedgerPage, Fault> {
        let rows: Vec<LedgerRow> =
            locked(&self.rows).rows.values().map(|(key, count)| LedgerRow { key: key.clone(), count: count.clone() }).collect();
        let complete = rows.len() <= limit;
        Ok(LedgerPage::newest(rows, limit, complete))
    }

    async fn prune(&self, limits: LedgerLimits) -> Outcome<usize> {
        let mut kept = locked(&self.rows);
        let doomed = limits.doomed(kept.rows.iter().map(|(name, (_, count))| (count.last, name.clone())).collect());
        for name in &doomed {
            kept.rows.remove(name);
        }
        Outcome::Done(doomed.len())
    }

    async fn probe(&self) -> Result<(), Fault> {
        Ok(())
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn DropLedger>, ()) {
        (Arc::new(MemoryDropLedger::new()), ())
    }
    causeway_ports::drop_ledger_conformance!(fresh);
}
