//! A backlog that a former process left in the log: written into the store as a worker writes it, since publishing it would take minutes.

use crate::Run;
use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use causeway_core::identity::{Id128, IdSequence, LogName};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::Outcome;
use causeway_core::rows::{CODEC_POSTCARD_ZSTD, Row, Segment, pack};
use causeway_core::units::UnixMillis;
use causeway_local::sqlite::{OpenMode, SqliteStore};
use causeway_ports::{Clock as _, Outbox as _, Put, SystemClock};
use std::ops::Range;
use std::sync::Arc;
use xtask::ledger::payload::Plan;
use xtask::stack::Store;
use xtask::worker::SESSION;

/// Entries of a segment.
const ENTRIES: usize = 200;

impl Run {
    /// Puts messages of the plan into the log, behind what stands there. No worker may run, and the store is a file.
    ///
    /// # Errors
    /// One runs, or the store refuses.
    pub async fn leave_in_the_log(&mut self, numbers: Range<u64>) -> Result<()> {
        ensure!(self.worker.is_none() && self.rig.store() == Store::Sqlite, "this is for files that nobody has open");
        let store =
            SqliteStore::open(self.rig.settings.dir.join("outbox.db"), OpenMode::ReadWrite).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let outbox = store.outbox();
        let log = LogName::new("telemetry-bridge", SESSION, 0)?;
        let tail = outbox.read_tail(&log).await.map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let tail = tail.context("no worker has opened the log yet")?;
        let now = SystemClock.wall();
        let (mut ids, mut slot) = (IdSequence::new(u128::from(now.0) << 64), tail.slot);
        let numbers: Vec<u64> = numbers.collect();
        for numbers in numbers.chunks(ENTRIES) {
            let entries: Vec<Arc<Entry>> = numbers.iter().map(|number| Arc::new(entry(&self.plan, *number, ids.take(), now))).collect();
            let segment = Segment {
                epoch: tail.epoch,
                segment_id: ids.take(),
                count: u32::try_from(entries.len())?,
                codec: CODEC_POSTCARD_ZSTD,
                body: pack(&entries)?,
                created_at: now,
                earliest_expiry: None,
                drained: tail.drained,
            };
            slot = slot.next();
            match outbox.put(&log, slot, &Row::Segment(segment)).await {
                Outcome::Done(Put::Stored) => {}
                Outcome::Done(Put::Occupied(_)) => bail!("slot {} is taken: somebody writes", slot.0),
                Outcome::NotDone(fault) | Outcome::Unknown(fault) => bail!("slot {}: {fault}", slot.0),
            }
        }
        self.published.acknowledged.extend(numbers);
        Ok(())
    }
}

fn entry(plan: &Plan, number: u64, id: Id128, now: UnixMillis) -> Entry {
    Entry {
        id,
        route: "ingest".into(),
        binding: "to-sqs".into(),
        address: None,
        refusal: None,
        source: "telemetry-in".into(),
        received_at: now,
        expires_at: None,
        message: Message { topic: plan.topic(number), payload: Bytes::from(plan.payload(number, 1)), qos: 1, ..Message::default() },
        redrive: None,
    }
}
