//! Budgets in this process's memory: where a bridge is one process, all who draw are in it. A new process begins with a whole budget.

use super::locked;
use async_trait::async_trait;
use causeway_core::flow::quota::{QuotaAnswer, QuotaRow, QuotaWrite};
use causeway_core::outcome::{Fault, Outcome};
use causeway_ports::Quota;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Budgets in memory.
#[derive(Debug, Default)]
pub struct MemoryQuota {
    rows: Mutex<BTreeMap<String, QuotaRow>>,
}

impl MemoryQuota {
    /// Nobody drew yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Quota for MemoryQuota {
    async fn read(&self, name: &str) -> Result<Option<QuotaRow>, Fault> {
        Ok(locked(&self.rows).get(name).copied())
    }

    async fn write(&self, name: &str, write: &QuotaWrite) -> Outcome<QuotaAnswer> {
        let mut rows = locked(&self.rows);
        Outcome::Done(match write.on(rows.get(name).copied()) {
            Ok(row) => {
                rows.insert(name.to_owned(), row);
                QuotaAnswer::Written(row.tat)
            }
            Err(row) => QuotaAnswer::Refused(row),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use causeway_ports::conformance::quota;
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn Quota>, ()) {
        (Arc::new(MemoryQuota::new()), ())
    }
    causeway_ports::quota_conformance!(fresh);

    /// A store that looks first and writes then, whatever stands there by then.
    struct TwoSteps(MemoryQuota);

    #[async_trait]
    impl Quota for TwoSteps {
        async fn read(&self, name: &str) -> Result<Option<QuotaRow>, Fault> {
            self.0.read(name).await
        }

        async fn write(&self, name: &str, write: &QuotaWrite) -> Outcome<QuotaAnswer> {
            let seen = self.0.read(name).await.unwrap();
            tokio::task::yield_now().await;
            Outcome::Done(match write.on(seen) {
                Ok(row) => {
                    locked(&self.0.rows).insert(name.to_owned(), row);
                    QuotaAnswer::Written(row.tat)
                }
                Err(row) => QuotaAnswer::Refused(row),
            })
        }
    }

    /// The suite can fail.
    #[tokio::test]
    #[should_panic(expected = "tokens of 100")]
    async fn a_store_that_looks_first_breaks_the_contract() {
        quota::run("of_many_who_draw_at_once_nobody_gets_what_another_has", Arc::new(TwoSteps(MemoryQuota::new()))).await;
    }
}
