//! `causeway outbox list --settled`: what is settled and still stands in the logs, because it is kept for a time.

use super::super::error::CliError;
use super::super::output::{self, Table};
use super::{ConfigArgs, told};
use crate::cli::load;
use crate::wiring::{self, Purpose, StoreSet};
use causeway_core::identity::{LogName, Slot};
use causeway_core::log::Call;
use causeway_core::log::loader::Loader;
use causeway_core::outcome::Fault;
use causeway_core::units::{Instant, UnixMillis};
use causeway_ports::{Clock as _, Outbox, SystemClock};
use serde::Serialize;
use std::collections::VecDeque;
use std::process::ExitCode;

/// A message that is settled: it was accepted by its destination, dead-lettered, or dropped as its route's policy says.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct SettledEntry {
    log: String,
    slot: u64,
    id: String,
    route: String,
    binding: String,
    topic: String,
    payload_bytes: usize,
    received_at: UnixMillis,
}

/// Prints the last `limit` settled messages of each lane.
pub(super) async fn execute(config: &ConfigArgs, limit: usize, json: bool) -> Result<ExitCode, CliError> {
    let config = load::load(config)?.config;
    let aws = wiring::aws(&config).await;
    let outbox = StoreSet::open_outbox(&config.stores, aws.as_ref(), Purpose::Look)?
        .ok_or_else(|| CliError::unusable("stores.outbox is not configured"))?;
    let mut entries = Vec::new();
    for record in outbox.list_logs().await.map_err(told)?.iter().filter(|record| record.log.bridge() == &*config.bridge.id) {
        for log in record.of_lanes() {
            entries.extend(of_lane(outbox.as_ref(), &log, limit).await.map_err(told)?);
        }
    }
    if json {
        return output::json(&serde_json::json!({ "bridge": config.bridge.id, "settled": entries }));
    }
    if entries.is_empty() {
        return output::line(
            "nothing that is settled is kept: `stores.outbox.options.retention` (SQLite) and `compaction_grace` (DynamoDB) say for how long it would be",
        );
    }
    let now = SystemClock.wall();
    let mut table = Table::new(&["LOG", "SLOT", "ID", "ROUTE", "BINDING", "TOPIC", "BYTES", "RECEIVED"]);
    for entry in entries {
        table.row(vec![
            entry.log,
            entry.slot.to_string(),
            entry.id,
            entry.route,
            entry.binding,
            entry.topic,
            entry.payload_bytes.to_string(),
            output::ago(now.since(entry.received_at)),
        ]);
    }
    output::line(&table.render())
}

/// The last `limit` messages at or below the head, in the order of the log.
pub(super) async fn of_lane(outbox: &dyn Outbox, log: &LogName, limit: usize) -> Result<Vec<SettledEntry>, Fault> {
    let tail = outbox.read_tail(log).await?;
    let head = outbox.read_head(log).await?.unwrap_or_default();
    let drained = head.drained.max(tail.map_or(Slot::HEAD, |row| row.drained));
    let (mut loader, mut entries) = (Loader::new(Slot::HEAD, None, 0), VecDeque::new());
    loop {
        while let Some(loaded) = loader.take_next()? {
            entries.extend(loaded.entries.iter().map(|entry| SettledEntry {
                log: log.to_string(),
                slot: loaded.slot.0,
                id: entry.id.to_string(),
                route: entry.route.to_string(),
                binding: entry.binding.to_string(),
                topic: entry.message.topic.clone(),
                payload_bytes: entry.message.payload.len(),
                received_at: entry.received_at,
            }));
            let excess = entries.len().saturating_sub(limit);
            entries.drain(..excess);
        }
        // Nothing is tried again, so the time does not matter.
        let Some(Call::ReadPage { after, up_to, .. }) = loader.poll(Instant::default(), drained, true) else { break };
        let page = outbox.read_page(log, after, up_to).await?;
        drop(loader.answer(Instant::default(), Ok(page)));
    }
    Ok(entries.into())
}
