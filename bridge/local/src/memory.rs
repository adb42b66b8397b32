//! Stores in this process's memory: for tests and demonstrations. What they hold ends with the process.

mod commands;
mod drop_ledger;
mod leases;
mod managed_subscriptions;
mod quota;
mod redrives;

pub use commands::MemoryCommands;
pub use drop_ledger::MemoryDropLedger;
pub use leases::MemoryLeases;
pub use managed_subscriptions::MemoryManagedSubscriptions;
pub use quota::MemoryQuota;
pub use redrives::MemoryRedrives;
pub(crate) use redrives::wall;

use async_trait::async_trait;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::identity::{EntryId, LogName, Slot};
use causeway_core::mailbox::{MAX_MOVE_BYTES, MAX_MOVE_ROWS, check_move};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Head, Row, RowMeta};
use causeway_core::units::UnixMillis;
use causeway_ports::{
    DeadLetterFilter, DeadLetterPage, DeadLetters, LogRecord, Mail, Mailbox, MailboxName, Moved, OldLetters, Outbox, Page, Put,
    Registration, StoreUsage,
};
use std::collections::{BTreeMap, HashMap, btree_map};
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
    mail: HashMap<MailboxName, BTreeMap<String, Mail>>,
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

    async fn read_record(&self, log: &LogName) -> Result<Option<LogRecord>, Fault> {
        Ok(locked(&self.state).registry.get(log).cloned())
    }

    async fn replace_record(&self, record: &LogRecord, replaces: Option<Registration>) -> Outcome<bool> {
        self.calls.wrote();
        let mut state = locked(&self.state);
        let accepted = state.registry.get(&record.log).map(LogRecord::registration) == replaces;
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

#[async_trait]
impl Mailbox for MemoryOutbox {
    async fn post(&self, mailbox: &MailboxName, mail: &Mail) -> Outcome<bool> {
        self.calls.wrote();
        // Nothing is packed here, and yet what no other store takes is refused.
        if let Err(fault) = mail.pack() {
            return Outcome::NotDone(fault);
        }
        Outcome::Done(locked(&self.state).post(mailbox, mail))
    }

    async fn read_mail(&self, mailbox: &MailboxName, limit: usize) -> Result<Vec<Mail>, Fault> {
        self.calls.read();
        let state = locked(&self.state);
        let standing = state.mail.get(mailbox).into_iter().flat_map(BTreeMap::values);
        let (mut found, mut bytes) = (Vec::new(), 0);
        for mail in standing.take(limit.min(MAX_MOVE_ROWS)) {
            bytes += mail.entry.message.weight();
            if bytes > MAX_MOVE_BYTES && !found.is_empty() {
                break;
            }
            found.push(mail.clone());
        }
        Ok(found)
    }

    async fn move_mail(&self, log: &LogName, slot: Slot, segment: &Row, mailbox: &MailboxName, mail: &[String]) -> Outcome<Moved> {
        self.calls.wrote();
        if let Err(fault) = check_move(slot, mail) {
            return Outcome::NotDone(fault);
        }
        let Logs { logs, mail: boxes, .. } = &mut *locked(&self.state);
        let rows = &mut logs.entry(log.clone()).or_default().rows;
        if let Some(standing) = rows.get(&slot) {
            return Outcome::Done(if standing.id() == segment.id() { Moved::Stored } else { Moved::Occupied(standing.meta(slot)) });
        }
        let standing = boxes.entry(mailbox.clone()).or_default();
        if !mail.iter().all(|id| standing.contains_key(id)) {
            return Outcome::Done(Moved::MailGone);
        }
        standing.retain(|id, _| !mail.contains(id));
        rows.insert(slot, segment.clone());
        Outcome::Done(Moved::Stored)
    }
}

impl Logs {
    /// Answers whether it was put.
    fn post(&mut self, mailbox: &MailboxName, mail: &Mail) -> bool {
        let standing = self.mail.entry(mailbox.clone()).or_default().entry(mail.id.clone());
        if let btree_map::Entry::Vacant(vacant) = standing {
            vacant.insert(mail.clone());
            return true;
        }
        false
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

impl Letters {
    fn get_mut(&mut self, id: EntryId) -> Option<&mut DeadLetter> {
        let failed_at = self.failed_at.get(&id)?;
        self.by_age.get_mut(&(*failed_at, id))
    }
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
        if let Some(standing) = failed_at.get(&letter.id).copied() {
            if !by_age.get(&(standing, letter.id)).is_some_and(|standing| standing.may_be_replaced_by(letter)) {
                return Outcome::Done(());
            }
            by_age.remove(&(standing, letter.id));
        }
        failed_at.insert(letter.id, letter.failed_at);
        by_age.insert((letter.failed_at, letter.id), letter.clone());
        Outcome::Done(())
    }

    async fn get(&self, id: EntryId) -> Result<Option<DeadLetter>, Fault> {
        Ok(locked(&self.state).get_mut(id).cloned())
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

#[async_trait]
impl OldLetters for MemoryDeadLetters {
    async fn delete_old(&self, failed_before: UnixMillis, limit: usize) -> Outcome<usize> {
        let Letters { by_age, failed_at } = &mut *locked(&self.state);
        let old = by_age.iter().take_while(|((at, _), _)| *at < failed_before);
        let old: Vec<_> = old.filter(|(_, letter)| letter.state != DeadLetterState::Redriven).map(|(key, _)| *key).take(limit).collect();
        for key in &old {
            by_age.remove(key);
            failed_at.remove(&key.1);
        }
        Outcome::Done(old.len())
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

    mod mailbox {
        use std::sync::Arc;

        async fn fresh() -> (Arc<dyn causeway_ports::LogStore>, ()) {
            (Arc::new(super::super::MemoryOutbox::new()), ())
        }
        causeway_ports::mailbox_conformance!(fresh);
    }

    mod dead_letters {
        use std::sync::Arc;

        async fn fresh() -> (Arc<dyn causeway_ports::DeadLetters>, ()) {
            (Arc::new(super::super::MemoryDeadLetters::new()), ())
        }
        causeway_ports::dead_letters_conformance!(fresh);
    }
}
