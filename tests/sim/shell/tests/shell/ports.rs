//! What stands between a host and the stores that all hosts share: a ledger that sees every effect begin, and knows whose the lease is.

use async_trait::async_trait;
use causeway_core::drain::OrderKey;
use causeway_core::identity::{DeliveryId, LogName, Slot};
use causeway_core::lease::row::RawLease;
use causeway_core::lease::{LeaseAnswer, LeaseWrite};
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Head, Row, RowMeta, unpack};
use causeway_local::memory::{MemoryLeases, MemoryOutbox};
use causeway_ports::fake::{FakeBroker, FakeSink, FakeSource, FaultyLeases, FaultyOutbox};
use causeway_ports::{
    ConnectionEpoch, ConnectionGate, Delivery, Leases, LogRecord, MemberRecord, Outbox, Page, Put, Registration, Sink, SinkLimits, Source,
    SourceCounters, SourceEvent, StoreUsage,
};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is true of a run, whatever the hosts believe.
#[derive(Debug, Default)]
pub struct Truth {
    /// Whom the lease row names.
    pub holder: String,
    /// How often that changed.
    pub holders: u64,
    /// Messages that stand in the log, or stood there.
    pub durable: BTreeSet<u64>,
    pub acknowledged: BTreeSet<u64>,
    pub acts: u64,
    pub refused_puts: u64,
    pub violations: Vec<String>,
    /// A hash over every call, its host and its moment, in order.
    pub trace: u64,
}

/// The shared stores, and the ledger.
#[derive(Debug)]
pub struct Shared {
    pub leases: FaultyLeases<MemoryLeases>,
    pub outbox: FaultyOutbox<MemoryOutbox>,
    pub sink: FakeSink,
    pub broker: FakeBroker,
    began: tokio::time::Instant,
    truth: Mutex<Truth>,
}

pub const LEASE: &str = "LEASE#s";

impl Shared {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            leases: FaultyLeases::new(MemoryLeases::new()),
            outbox: FaultyOutbox::new(MemoryOutbox::new()),
            sink: FakeSink::default(),
            broker: FakeBroker::new(),
            began: tokio::time::Instant::now(),
            truth: Mutex::default(),
        })
    }

    pub fn truth<T>(&self, look: impl FnOnce(&mut Truth) -> T) -> T {
        look(&mut self.truth.lock().unwrap())
    }

    pub fn violated(&self, what: String) {
        self.truth(|truth| truth.violations.push(what));
    }

    /// Adds a call of a host to the trace.
    fn note(&self, host: &str, what: &str) {
        let at = self.began.elapsed();
        self.truth(|truth| {
            let mut hash = DefaultHasher::new();
            (truth.trace, at, host, what).hash(&mut hash);
            truth.trace = hash.finish();
        });
    }

    /// An effect begins on a host: then the lease has to be its own.
    fn acts(&self, host: &str, what: &str) {
        self.note(host, what);
        self.truth(|truth| {
            truth.acts += 1;
            if truth.holder != host {
                let violation = format!("{host} begins to {what}, and the lease is with `{}`", truth.holder);
                truth.violations.push(violation);
            }
        });
    }

    async fn look_at_lease(&self) {
        let row = self.leases.inner().read(LEASE).await.unwrap();
        let holder = row.and_then(|row| row.owner).unwrap_or_default();
        self.truth(|truth| {
            if truth.holder != holder {
                truth.holders += u64::from(!holder.is_empty());
                truth.holder = holder;
            }
        });
    }
}

pub fn number_of(payload: &[u8]) -> u64 {
    std::str::from_utf8(payload).unwrap().parse().unwrap()
}

/// A host's view of what is shared.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Leases for Host {
    async fn read(&self, key: &str) -> Result<Option<RawLease>, Fault> {
        self.shared.note(&self.name, "look at the lease");
        self.shared.leases.read(key).await
    }
    async fn write(&self, key: &str, write: &LeaseWrite) -> Outcome<LeaseAnswer> {
        self.shared.note(&self.name, "write the lease");
        let outcome = self.shared.leases.write(key, write).await;
        self.shared.look_at_lease().await;
        outcome
    }
    async fn list(&self) -> Result<Vec<(String, RawLease)>, Fault> {
        self.shared.leases.list().await
    }
    async fn put_member(&self, member: &MemberRecord) -> Outcome<()> {
        self.shared.leases.put_member(member).await
    }
    async fn remove_member(&self, bridge: &str, owner: &str) -> Outcome<()> {
        self.shared.leases.remove_member(bridge, owner).await
    }
    async fn list_members(&self, bridge: &str) -> Result<Vec<MemberRecord>, Fault> {
        self.shared.leases.list_members(bridge).await
    }
    async fn probe(&self) -> Result<(), Fault> {
        self.shared.leases.probe().await
    }
    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.shared.leases.create().await
    }
}

#[async_trait]
impl Outbox for Host {
    async fn read_tail(&self, log: &LogName) -> Result<Option<RowMeta>, Fault> {
        self.shared.outbox.read_tail(log).await
    }
    async fn read_head(&self, log: &LogName) -> Result<Option<Head>, Fault> {
        self.shared.outbox.read_head(log).await
    }
    async fn put(&self, log: &LogName, slot: Slot, row: &Row) -> Outcome<Put> {
        self.shared.acts(&self.name, "put a row");
        let outcome = self.shared.outbox.put(log, slot, row).await;
        // Whatever became of the answer: what stands there is what counts.
        let page = self.shared.outbox.inner().read_page(log, Slot(slot.0 - 1), slot).await.unwrap();
        if let (Row::Segment(segment), Some((_, standing))) = (row, page.rows.first())
            && standing.id() == row.id()
        {
            let numbers = unpack(segment).unwrap().into_iter().map(|entry| number_of(&entry.message.payload));
            self.shared.truth(|truth| truth.durable.extend(numbers));
        }
        if matches!(outcome, Outcome::Done(Put::Occupied(_))) {
            self.shared.truth(|truth| truth.refused_puts += 1);
        }
        outcome
    }
    async fn put_head(&self, log: &LogName, head: &Head) -> Outcome<bool> {
        self.shared.acts(&self.name, "write the head");
        self.shared.outbox.put_head(log, head).await
    }
    async fn read_page(&self, log: &LogName, after: Slot, up_to: Slot) -> Result<Page, Fault> {
        self.shared.outbox.read_page(log, after, up_to).await
    }
    async fn delete(&self, log: &LogName, slots: &[Slot]) -> Outcome<()> {
        self.shared.acts(&self.name, "delete");
        self.shared.outbox.delete(log, slots).await
    }
    async fn read_record(&self, log: &LogName) -> Result<Option<LogRecord>, Fault> {
        self.shared.outbox.read_record(log).await
    }
    async fn replace_record(&self, record: &LogRecord, replaces: Option<Registration>) -> Outcome<bool> {
        self.shared.outbox.replace_record(record, replaces).await
    }
    async fn list_logs(&self) -> Result<Vec<LogRecord>, Fault> {
        self.shared.outbox.list_logs().await
    }
    async fn probe(&self) -> Result<(), Fault> {
        self.shared.outbox.probe().await
    }
    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.shared.outbox.create().await
    }
    fn usage(&self) -> StoreUsage {
        self.shared.outbox.usage()
    }
}

#[async_trait]
impl Sink for Host {
    fn limits(&self) -> SinkLimits {
        self.shared.sink.limits()
    }
    fn size_of(&self, entry: &Entry) -> usize {
        self.shared.sink.size_of(entry)
    }
    fn key_of(&self, entry: &Entry) -> Option<OrderKey> {
        self.shared.sink.key_of(entry)
    }
    async fn send(&self, batch: &[Arc<Entry>], timeout: Duration) -> Vec<Outcome<()>> {
        self.shared.acts(&self.name, "send");
        self.shared.sink.send(batch, timeout).await
    }
    async fn probe(&self) -> Result<(), Fault> {
        self.shared.sink.probe().await
    }
    fn requests(&self) -> u64 {
        self.shared.sink.requests()
    }
}

/// A source as the real one is: it asks the gate before it connects, and connects again when somebody took its session.
pub struct GatedSource {
    host: Host,
    gate: Option<Arc<dyn ConnectionGate>>,
    inner: Option<FakeSource>,
    /// Names the connections of this source, over all that are below it.
    epoch: u64,
    below: ConnectionEpoch,
    delivered: BTreeMap<u64, u64>,
    closed: bool,
}

impl GatedSource {
    pub fn new(host: Host, gate: Option<Arc<dyn ConnectionGate>>) -> Self {
        Self { host, gate, inner: None, epoch: 0, below: ConnectionEpoch(0), delivered: BTreeMap::new(), closed: false }
    }
}

#[async_trait]
impl Source for GatedSource {
    async fn next(&mut self) -> SourceEvent {
        if self.closed {
            return SourceEvent::Closed;
        }
        loop {
            let Some(inner) = &mut self.inner else {
                if let Some(gate) = &self.gate {
                    while gate.before_connect(self.epoch > 0).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                }
                self.inner = Some(self.host.shared.broker.source());
                continue;
            };
            match inner.next().await {
                SourceEvent::Closed => {
                    self.inner = None;
                    let fault = Fault::new(FaultCode::ConnectionLost, "somebody else connected");
                    let connection = ConnectionEpoch(self.epoch);
                    return SourceEvent::Disconnected { connection, fault, retry_in: Duration::ZERO };
                }
                SourceEvent::Connected { connection, session_present } => {
                    self.epoch += 1;
                    self.below = connection;
                    self.delivered.clear();
                    return SourceEvent::Connected { connection: ConnectionEpoch(self.epoch), session_present };
                }
                SourceEvent::Subscribed { granted, refused, .. } => {
                    return SourceEvent::Subscribed { connection: ConnectionEpoch(self.epoch), granted, refused };
                }
                SourceEvent::Delivery(delivery) => {
                    self.delivered.insert(delivery.id.ordinal, number_of(&delivery.message.payload));
                    let id = DeliveryId { connection: ConnectionEpoch(self.epoch), ..delivery.id };
                    return SourceEvent::Delivery(Delivery { id, ..delivery });
                }
                SourceEvent::Disconnected { fault, retry_in, .. } => {
                    return SourceEvent::Disconnected { connection: ConnectionEpoch(self.epoch), fault, retry_in };
                }
            }
        }
    }

    fn acknowledge(&mut self, up_to: DeliveryId) {
        self.host.shared.acts(&self.host.name, "acknowledge");
        if up_to.connection != ConnectionEpoch(self.epoch) {
            return;
        }
        let done: Vec<u64> = self.delivered.range(..=up_to.ordinal).map(|(_, number)| *number).collect();
        self.host.shared.truth(|truth| {
            for number in done {
                if !truth.durable.contains(&number) {
                    truth.violations.push(format!("message {number} is acknowledged and not durable"));
                }
                truth.acknowledged.insert(number);
            }
        });
        if let Some(inner) = &mut self.inner {
            inner.acknowledge(DeliveryId { connection: self.below, ..up_to });
        }
    }

    fn pause(&mut self, paused: bool) {
        if let Some(inner) = &mut self.inner {
            inner.pause(paused);
        }
    }

    async fn close(&mut self, deadline: Duration) {
        self.closed = true;
        if let Some(mut inner) = self.inner.take() {
            inner.close(deadline).await;
        }
    }

    fn counters(&self) -> SourceCounters {
        self.inner.as_ref().map(|inner| inner.counters()).unwrap_or_default()
    }
}
