//! Stores in this process's memory: for tests and demonstrations. What they hold ends with the process.

mod leases;
mod managed_subscriptions;

pub use leases::MemoryLeases;
pub use managed_subscriptions::MemoryManagedSubscriptions;

use async_trait::async_trait;
use causeway_core::dead_letter::DeadLetter;
use causeway_core::identity::{EntryId, LogName, Slot};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Head, Row, RowMeta};
use causeway_core::units::UnixMillis;
use causeway_ports::{DeadLetterFilter, DeadLetterPage, DeadLetters, LogRecord, Outbox, Page, Put, StoreUsage};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::calls::Calls;
use crate::paging::{Cursor, PAGE_BYTES, row_bytes};

/// An outbox in memory.
#[derive(Debug, Default)]
pub struct MemoryOutbox {
    state: Mutex<Logs>,
    calls: Calls,
}

#[derive(Debug, Default)]
struct Logs {
    logs: HashMap<LogName, Log>,
    registry: BTreeMap<LogName, LogRecord>,
}

#[derive(Debug, Default)]
struct Log {
    head: Option<Head>,
    rows: BTreeMap<Slot, Row>,
}

/// A panic elsewhere leaves no half-made change behind: every change under these locks is one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryOutbox {
    /// An empty outbox.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Outbox for MemoryOutbox {
    async fn read_tail(&self, log: &LogName) -> Result<Option<RowMeta>, Fault> {
        self.calls.read();
        let state = locked(&self.state);
        Ok(state.logs.get(log).and_then(|log| log.rows.last_key_value()).map(|(slot, row)| row.meta(*slot)))
    }

    async fn read_head(&self, log: &LogName) -> Result<Option<Head>, Fault> {
        self.calls.read();
        Ok(locked(&self.state).logs.get(log).and_then(|log| log.head.clone()))
    }

    async fn put(&self, log: &LogName, slot: Slot, row: &Row) -> Outcome<Put> {
        self.calls.wrote();
        if slot == Slot::HEAD {
            return Outcome::NotDone(head_slot());
        }
        let mut state = locked(&self.state);
        let rows = &mut state.logs.entry(log.clone()).or_default().rows;
        let standing = rows.entry(slot).or_insert_with(|| row.clone());
        Outcome::Done(if standing.id() == row.id() { Put::Stored } else { Put::Occupied(standing.meta(slot)) })
    }

    async fn put_head(&self, log: &LogName, head: &Head) -> Outcome<bool> {
        self.calls.wrote();
        let mut state = locked(&self.state);
        let standing = &mut state.logs.entry(log.clone()).or_default().head;
        let forward = standing.as_ref().is_none_or(|standing| head.may_replace(standing));
        if forward {
            *standing = Some(head.clone());
        }
        Outcome::Done(forward)
    }

    async fn read_page(&self, log: &LogName, after: Slot, up_to: Slot) -> Result<Page, Fault> {
        self.calls.read();
        let state = locked(&self.state);
        let mut page = Page::default();
        let Some(log) = state.logs.get(log).filter(|_| after < up_to) else {
            return Ok(page);
        };
        let mut bytes = 0;
        for (slot, row) in log.rows.range((Bound::Excluded(after), Bound::Included(up_to))) {
            if bytes >= PAGE_BYTES {
                page.next_after = page.rows.last().map(|(slot, _)| *slot);
                break;
            }
            bytes += row_bytes(row);
            page.rows.push((*slot, row.clone()));
        }
        Ok(page)
    }

    async fn delete(&self, log: &LogName, slots: &[Slot]) -> Outcome<()> {
        if slots.is_empty() {
            return Outcome::Done(());
        }
        self.calls.wrote();
        if let Some(log) = locked(&self.state).logs.get_mut(log) {
            for slot in slots {
                log.rows.remove(slot);
            }
        }
        Outcome::Done(())
    }

    async fn register(&self, record: &LogRecord) -> Outcome<bool> {
        self.calls.wrote();
        let mut state = locked(&self.state);
        let accepted = state.registry.get(&record.log).is_none_or(|standing| record.epoch >= standing.epoch);
        if accepted {
            state.registry.insert(record.log.clone(), record.clone());
        }
        Outcome::Done(accepted)
    }

    async fn list_logs(&self) -> Result<Vec<LogRecord>, Fault> {
        Ok(locked(&self.state).registry.values().cloned().collect())
    }

    async fn probe(&self) -> Result<(), Fault> {
        Ok(())
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    fn usage(&self) -> StoreUsage {
        self.calls.usage()
    }
}

/// Slot 0 cannot be put to: the caller has a fault, and overwriting the head row would lose the log's position.
pub(crate) fn head_slot() -> Fault {
    Fault::new(FaultCode::InvalidConfig, "slot 0 belongs to the head row; rows are put at slot 1 and above")
}

/// Dead letters in memory.
#[derive(Debug, Default)]
pub struct MemoryDeadLetters {
    state: Mutex<Letters>,
}

#[derive(Debug, Default)]
struct Letters {
    by_age: BTreeMap<(UnixMillis, EntryId), DeadLetter>,
    failed_at: HashMap<EntryId, UnixMillis>,
}

impl MemoryDeadLetters {
    /// No letters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl DeadLetters for MemoryDeadLetters {
    async fn park(&self, letter: &DeadLetter) -> Outcome<()> {
        let Letters { by_age, failed_at } = &mut *locked(&self.state);
        if let Entry::Vacant(vacant) = failed_at.entry(letter.id) {
            vacant.insert(letter.failed_at);
            by_age.insert((letter.failed_at, letter.id), letter.clone());
        }
        Outcome::Done(())
    }

    async fn get(&self, id: EntryId) -> Result<Option<DeadLetter>, Fault> {
        let state = locked(&self.state);
        Ok(state.failed_at.get(&id).and_then(|failed_at| state.by_age.get(&(*failed_at, id))).cloned())
    }

    async fn list(&self, filter: &DeadLetterFilter, limit: usize, continuation: Option<&str>) -> Result<DeadLetterPage, Fault> {
        let after = match continuation.map(Cursor::parse).transpose()? {
            Some(cursor) => Bound::Excluded((cursor.failed_at, cursor.id)),
            None => Bound::Unbounded,
        };
        let state = locked(&self.state);
        let mut page = DeadLetterPage::default();
        for letter in state.by_age.range((after, Bound::Unbounded)).map(|(_, letter)| letter).filter(|letter| filter.matches(letter)) {
            if page.letters.len() >= limit {
                page.continuation = page.letters.last().map(|last| Cursor::after(last).to_string());
                break;
            }
            page.letters.push(letter.clone());
        }
        Ok(page)
    }

    async fn delete(&self, id: EntryId) -> Outcome<bool> {
        let mut state = locked(&self.state);
        let Some(failed_at) = state.failed_at.remove(&id) else {
            return Outcome::Done(false);
        };
        state.by_age.remove(&(failed_at, id));
        Outcome::Done(true)
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
    mod outbox {
        use std::sync::Arc;

        async fn fresh() -> (Arc<dyn causeway_ports::Outbox>, ()) {
            (Arc::new(super::super::MemoryOutbox::new()), ())
        }
        causeway_ports::outbox_conformance!(fresh);
    }

    mod dead_letters {
        use std::sync::Arc;

        async fn fresh() -> (Arc<dyn causeway_ports::DeadLetters>, ()) {
            (Arc::new(super::super::MemoryDeadLetters::new()), ())
        }
        causeway_ports::dead_letters_conformance!(fresh);
    }
}
