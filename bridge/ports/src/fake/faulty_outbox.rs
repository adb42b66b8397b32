//! An outbox whose network fails as the test says.

use super::injector::{Injection, Injector, injections};
use crate::{LogRecord, Outbox, Page, Put, Registration, StoreUsage};
use async_trait::async_trait;
use causeway_core::identity::{LogName, Slot};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::rows::{Head, Row, RowMeta};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutboxCall {
    /// [`Outbox::read_tail`].
    ReadTail,
    /// [`Outbox::read_head`].
    ReadHead,
    /// [`Outbox::put`].
    Put,
    /// [`Outbox::put_head`].
    PutHead,
    /// [`Outbox::read_page`].
    ReadPage,
    /// [`Outbox::delete`].
    Delete,
    /// [`Outbox::read_record`].
    ReadRecord,
    /// [`Outbox::replace_record`].
    ReplaceRecord,
    /// [`Outbox::list_logs`].
    ListLogs,
    /// [`Outbox::probe`].
    Probe,
    /// [`Outbox::create`].
    Create,
}

/// An outbox between which and its caller things go wrong. Without an injection it is the outbox inside.
#[derive(Debug)]
pub struct FaultyOutbox<O> {
    inner: O,
    injector: Injector<OutboxCall, Late>,
}

/// A write that is still under way.
#[derive(Clone, Debug)]
enum Late {
    Put(LogName, Slot, Row),
    PutHead(LogName, Head),
    Delete(LogName, Vec<Slot>),
    ReplaceRecord(LogRecord, Option<Registration>),
}

injections!(FaultyOutbox, Outbox, OutboxCall);

impl<O: Outbox> FaultyOutbox<O> {
    /// Lets the writes that are still under way take effect, in the order in which they were made; answers how many there were.
    pub async fn apply_late(&self) -> usize {
        let late = self.injector.take_late();
        for write in &late {
            // Nobody waits for the answers.
            match write {
                Late::Put(log, slot, row) => drop(self.inner.put(log, *slot, row).await),
                Late::PutHead(log, head) => drop(self.inner.put_head(log, head).await),
                Late::Delete(log, slots) => drop(self.inner.delete(log, slots).await),
                Late::ReplaceRecord(record, replaces) => drop(self.inner.replace_record(record, *replaces).await),
            }
        }
        late.len()
    }
}

#[async_trait]
impl<O: Outbox> Outbox for FaultyOutbox<O> {
    async fn read_tail(&self, log: &LogName) -> Result<Option<RowMeta>, Fault> {
        self.injector.read(OutboxCall::ReadTail, self.inner.read_tail(log)).await
    }

    async fn read_head(&self, log: &LogName) -> Result<Option<Head>, Fault> {
        self.injector.read(OutboxCall::ReadHead, self.inner.read_head(log)).await
    }

    async fn put(&self, log: &LogName, slot: Slot, row: &Row) -> Outcome<Put> {
        self.injector.write(OutboxCall::Put, || Late::Put(log.clone(), slot, row.clone()), self.inner.put(log, slot, row)).await
    }

    async fn put_head(&self, log: &LogName, head: &Head) -> Outcome<bool> {
        self.injector.write(OutboxCall::PutHead, || Late::PutHead(log.clone(), head.clone()), self.inner.put_head(log, head)).await
    }

    async fn read_page(&self, log: &LogName, after: Slot, up_to: Slot) -> Result<Page, Fault> {
        self.injector.read(OutboxCall::ReadPage, self.inner.read_page(log, after, up_to)).await
    }

    async fn delete(&self, log: &LogName, slots: &[Slot]) -> Outcome<()> {
        self.injector.write(OutboxCall::Delete, || Late::Delete(log.clone(), slots.to_vec()), self.inner.delete(log, slots)).await
    }

    async fn read_record(&self, log: &LogName) -> Result<Option<LogRecord>, Fault> {
        self.injector.read(OutboxCall::ReadRecord, self.inner.read_record(log)).await
    }

    async fn replace_record(&self, record: &LogRecord, replaces: Option<Registration>) -> Outcome<bool> {
        let late = || Late::ReplaceRecord(record.clone(), replaces);
        self.injector.write(OutboxCall::ReplaceRecord, late, self.inner.replace_record(record, replaces)).await
    }

    async fn list_logs(&self) -> Result<Vec<LogRecord>, Fault> {
        self.injector.read(OutboxCall::ListLogs, self.inner.list_logs()).await
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.injector.read(OutboxCall::Probe, self.inner.probe()).await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.injector.read(OutboxCall::Create, self.inner.create()).await
    }

    fn usage(&self) -> StoreUsage {
        self.inner.usage()
    }
}
