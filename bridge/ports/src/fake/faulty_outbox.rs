//! An outbox whose network fails as the test says.

use super::Shared;
use crate::{LogRecord, Outbox, Page, Put, StoreUsage};
use async_trait::async_trait;
use causeway_core::identity::{LogName, Slot};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::rows::{Head, Row, RowMeta};
use core::time::Duration;
use std::collections::HashMap;

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
    /// [`Outbox::register`].
    Register,
    /// [`Outbox::list_logs`].
    ListLogs,
    /// [`Outbox::probe`].
    Probe,
    /// [`Outbox::create`].
    Create,
}

/// What happens to a call. A read that does not get its answer is an error, however it got lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Refused: it certainly takes no effect.
    Refuse(Fault),
    /// The request gets lost: it takes no effect, and nobody knows.
    LoseRequest(Fault),
    /// The answer gets lost: it took effect, and nobody knows.
    LoseAnswer(Fault),
    /// Nobody knows, and it takes effect only with [`FaultyOutbox::apply_late`]: a request that the store applies after its caller gave up.
    ApplyLate(Fault),
    /// It takes effect after this long by tokio's clock.
    Delay(Duration),
    /// It waits for [`FaultyOutbox::release`], then takes effect.
    Hold,
}

/// An outbox between which and its caller things go wrong. Without an injection it is the outbox inside.
#[derive(Debug)]
pub struct FaultyOutbox<O> {
    inner: O,
    shared: Shared<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    calls: HashMap<OutboxCall, u64>,
    late: Vec<Late>,
    held: usize,
    releases: u64,
}

#[derive(Debug)]
struct Rule {
    call: OutboxCall,
    skip: u64,
    times: u64,
    injection: Injection,
}

/// A write that is still under way.
#[derive(Clone, Debug)]
enum Late {
    Put(LogName, Slot, Row),
    PutHead(LogName, Head),
    Delete(LogName, Vec<Slot>),
    Register(LogRecord),
}

impl<O: Outbox> FaultyOutbox<O> {
    /// Puts itself before `inner`.
    pub fn new(inner: O) -> Self {
        Self { inner, shared: Shared::new(State::default()) }
    }

    /// The outbox inside, whose network never fails.
    pub const fn inner(&self) -> &O {
        &self.inner
    }

    /// The next call of this kind.
    pub fn inject_next(&self, call: OutboxCall, injection: Injection) {
        self.inject(call, 0, 1, injection);
    }

    /// `times` calls of this kind, after `skip` more that work. Where several injections meet a call, the first given has it; each counts all calls
    /// of its kind that reach it.
    pub fn inject(&self, call: OutboxCall, skip: u64, times: u64, injection: Injection) {
        self.shared.change(|state| state.rules.push(Rule { call, skip, times, injection }));
    }

    /// Forgets every injection.
    pub fn heal(&self) {
        self.shared.change(|state| state.rules.clear());
    }

    /// How many calls of this kind were made, whatever became of them.
    #[must_use]
    pub fn calls(&self, call: OutboxCall) -> u64 {
        self.shared.look().calls.get(&call).copied().unwrap_or_default()
    }

    /// Waits until at least `count` calls of this kind were made.
    pub async fn calls_at_least(&self, call: OutboxCall, count: u64) {
        self.shared.wait_for(|state| (state.calls.get(&call).copied().unwrap_or_default() >= count).then_some(())).await;
    }

    /// Waits until at least `count` calls are held.
    pub async fn held_at_least(&self, count: usize) {
        self.shared.wait_for(|state| (state.held >= count).then_some(())).await;
    }

    /// Lets the held calls go on.
    pub fn release(&self) {
        self.shared.change(|state| state.releases += 1);
    }

    /// Lets the writes that are still under way take effect, in the order in which they were made; answers how many there were.
    pub async fn apply_late(&self) -> usize {
        let late = self.shared.change(|state| std::mem::take(&mut state.late));
        for write in &late {
            // Nobody waits for the answers.
            match write {
                Late::Put(log, slot, row) => drop(self.inner.put(log, *slot, row).await),
                Late::PutHead(log, head) => drop(self.inner.put_head(log, head).await),
                Late::Delete(log, slots) => drop(self.inner.delete(log, slots).await),
                Late::Register(record) => drop(self.inner.register(record).await),
            }
        }
        late.len()
    }

    /// Counts the call and takes the injection that meets it.
    fn meet(&self, call: OutboxCall) -> Option<Injection> {
        self.shared.change(|state| {
            *state.calls.entry(call).or_default() += 1;
            for rule in state.rules.iter_mut().filter(|rule| rule.call == call && rule.times > 0) {
                if rule.skip == 0 {
                    rule.times -= 1;
                    return Some(rule.injection.clone());
                }
                rule.skip -= 1;
            }
            None
        })
    }

    async fn pause(&self, injection: &Injection) {
        match injection {
            Injection::Delay(delay) => tokio::time::sleep(*delay).await,
            Injection::Hold => {
                let held = Held::enter(&self.shared);
                self.shared.wait_for(|state| (state.releases > held.releases).then_some(())).await;
            }
            Injection::Refuse(_) | Injection::LoseRequest(_) | Injection::LoseAnswer(_) | Injection::ApplyLate(_) => {}
        }
    }

    async fn read<T>(&self, call: OutboxCall, answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        match self.meet(call) {
            None => answer.await,
            Some(Injection::Refuse(fault) | Injection::LoseRequest(fault) | Injection::LoseAnswer(fault) | Injection::ApplyLate(fault)) => {
                Err(fault)
            }
            Some(pause @ (Injection::Delay(_) | Injection::Hold)) => {
                self.pause(&pause).await;
                answer.await
            }
        }
    }

    async fn write<T>(&self, call: OutboxCall, late: impl FnOnce() -> Late, answer: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        match self.meet(call) {
            None => answer.await,
            Some(Injection::Refuse(fault)) => Outcome::NotDone(fault),
            Some(Injection::LoseRequest(fault)) => Outcome::Unknown(fault),
            Some(Injection::LoseAnswer(fault)) => {
                drop(answer.await);
                Outcome::Unknown(fault)
            }
            Some(Injection::ApplyLate(fault)) => {
                let late = late();
                self.shared.change(|state| state.late.push(late));
                Outcome::Unknown(fault)
            }
            Some(pause @ (Injection::Delay(_) | Injection::Hold)) => {
                self.pause(&pause).await;
                answer.await
            }
        }
    }
}

/// Counted as held for as long as it lives, so that a call that is dropped counts no more.
struct Held<'a> {
    shared: &'a Shared<State>,
    releases: u64,
}

impl<'a> Held<'a> {
    fn enter(shared: &'a Shared<State>) -> Self {
        let releases = shared.change(|state| {
            state.held += 1;
            state.releases
        });
        Self { shared, releases }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.change(|state| state.held -= 1);
    }
}

#[async_trait]
impl<O: Outbox> Outbox for FaultyOutbox<O> {
    async fn read_tail(&self, log: &LogName) -> Result<Option<RowMeta>, Fault> {
        self.read(OutboxCall::ReadTail, self.inner.read_tail(log)).await
    }

    async fn read_head(&self, log: &LogName) -> Result<Option<Head>, Fault> {
        self.read(OutboxCall::ReadHead, self.inner.read_head(log)).await
    }

    async fn put(&self, log: &LogName, slot: Slot, row: &Row) -> Outcome<Put> {
        self.write(OutboxCall::Put, || Late::Put(log.clone(), slot, row.clone()), self.inner.put(log, slot, row)).await
    }

    async fn put_head(&self, log: &LogName, head: &Head) -> Outcome<bool> {
        self.write(OutboxCall::PutHead, || Late::PutHead(log.clone(), head.clone()), self.inner.put_head(log, head)).await
    }

    async fn read_page(&self, log: &LogName, after: Slot, up_to: Slot) -> Result<Page, Fault> {
        self.read(OutboxCall::ReadPage, self.inner.read_page(log, after, up_to)).await
    }

    async fn delete(&self, log: &LogName, slots: &[Slot]) -> Outcome<()> {
        self.write(OutboxCall::Delete, || Late::Delete(log.clone(), slots.to_vec()), self.inner.delete(log, slots)).await
    }

    async fn register(&self, record: &LogRecord) -> Outcome<bool> {
        self.write(OutboxCall::Register, || Late::Register(record.clone()), self.inner.register(record)).await
    }

    async fn list_logs(&self) -> Result<Vec<LogRecord>, Fault> {
        self.read(OutboxCall::ListLogs, self.inner.list_logs()).await
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.read(OutboxCall::Probe, self.inner.probe()).await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.read(OutboxCall::Create, self.inner.create()).await
    }

    fn usage(&self) -> StoreUsage {
        self.inner.usage()
    }
}
