//! The source of a receiver that messages are posted to: there is nothing to connect to, and what is posted comes by the mailbox.

use async_trait::async_trait;
use causeway_ports::{ConnectionEpoch, DeliveryId, Source, SourceCounters, SourceEvent};
use core::time::Duration;

/// Is connected from the start, and delivers nothing.
#[derive(Debug, Default)]
pub struct PostSource {
    told: u8,
    closed: bool,
}

#[async_trait]
impl Source for PostSource {
    async fn next(&mut self) -> SourceEvent {
        let connection = ConnectionEpoch(1);
        self.told = self.told.saturating_add(1);
        match self.told {
            _ if self.closed => SourceEvent::Closed,
            1 => SourceEvent::Connected { connection, session_present: true },
            2 => SourceEvent::Subscribed { connection, granted: 0, refused: Vec::new() },
            _ => core::future::pending().await,
        }
    }

    fn acknowledge(&mut self, _: DeliveryId) {}

    fn pause(&mut self, _: bool) {}

    async fn close(&mut self, _: Duration) {
        self.closed = true;
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters::default()
    }
}
