//! A destination with the sender's own limits on top.

use async_trait::async_trait;
use causeway_core::drain::OrderKey;
use causeway_core::flow::sender::SenderLink;
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, Outcome};
use causeway_ports::{Sink, SinkLimits};
use core::time::Duration;
use std::sync::Arc;
use tokio::sync::watch;

/// Lets fewer entries into a batch and gives up earlier than the destination itself would.
pub(super) struct CappedSink {
    inner: Arc<dyn Sink>,
    entries: usize,
    timeout: Duration,
}

impl CappedSink {
    /// At most `entries` a batch, at most `timeout` a send.
    pub(super) fn new(inner: Arc<dyn Sink>, entries: usize, timeout: Duration) -> Self {
        Self { inner, entries: entries.max(1), timeout }
    }
}

#[async_trait]
impl Sink for CappedSink {
    fn limits(&self) -> SinkLimits {
        let limits = self.inner.limits();
        SinkLimits { batch_entries: limits.batch_entries.min(self.entries), ..limits }
    }

    fn size_of(&self, entry: &Entry) -> usize {
        self.inner.size_of(entry)
    }

    fn key_of(&self, entry: &Entry) -> Option<OrderKey> {
        self.inner.key_of(entry)
    }

    async fn send(&self, batch: &[Arc<Entry>], timeout: Duration) -> Vec<Outcome<()>> {
        self.inner.send(batch, timeout.min(self.timeout)).await
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.inner.probe().await
    }

    fn requests(&self) -> u64 {
        self.inner.requests()
    }

    fn link(&self) -> Option<watch::Receiver<SenderLink>> {
        self.inner.link()
    }

    fn answers(&self) -> Vec<(u8, u64)> {
        self.inner.answers()
    }

    fn at(&self, address: &str) -> Option<Arc<dyn Sink>> {
        let inner = self.inner.at(address)?;
        Some(Arc::new(Self { inner, entries: self.entries, timeout: self.timeout }))
    }
}
