//! What stands in a worker's log, read beside the program.

use anyhow::{Context as _, Result};
use causeway_aws::DynamoOutbox;
use causeway_core::identity::{EntryId, LaneId, LogName, Slot};
use causeway_core::log::parts::Assembly;
use causeway_core::rows::{Row, part, unpack};
use causeway_local::sqlite::{OpenMode, SqliteStore};
use causeway_ports::Outbox;
use xtask::ledger::payload::identify;
use xtask::rig::Rig;
use xtask::stack::Store;
use xtask::worker::SESSION;

/// The bridge of every rig.
pub const BRIDGE: &str = "telemetry-bridge";

/// An entry that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// In which lane.
    pub lane: u32,
    /// On which topic it came.
    pub topic: String,
    /// The number of its message.
    pub index: u64,
    /// Its id.
    pub id: EntryId,
}

/// The outbox of a rig, to look at.
///
/// # Errors
/// It cannot be opened.
pub fn outbox(rig: &Rig) -> Result<Box<dyn Outbox>> {
    Ok(match rig.store() {
        Store::Sqlite => Box::new(SqliteStore::open(rig.settings.dir.join("outbox.db"), OpenMode::ReadOnly)?.outbox()),
        Store::Dynamodb => Box::new(dynamodb_outbox(rig)),
    })
}

/// The same where it is in DynamoDB, to write to as well.
#[must_use]
pub fn dynamodb_outbox(rig: &Rig) -> DynamoOutbox {
    DynamoOutbox::new(rig.stack.aws.dynamodb.clone(), format!("{}-outbox", rig.settings.tables))
}

/// The log of the session in a lane.
///
/// # Errors
/// Never: the names are good ones.
pub fn lane_of_session(lane: u32) -> Result<LogName> {
    Ok(LogName::new(BRIDGE, SESSION, lane)?)
}

/// What stands above the head of each of the lanes up to `lanes`, in the order of the log. What the head row knows as settled ahead is not taken off.
///
/// # Errors
/// The store cannot be read.
pub async fn waiting(outbox: &dyn Outbox, lanes: u32) -> Result<Vec<Waiting>> {
    let mut waiting = Vec::new();
    for lane in 0..lanes {
        let log = lane_of_session(lane)?;
        let Some(tail) = outbox.read_tail(&log).await? else { continue };
        let head = outbox.read_head(&log).await?.unwrap_or_default();
        let mut after = Some(head.drained.max(tail.drained));
        let mut assembly = Assembly::default();
        while let Some(from) = after {
            let page = outbox.read_page(&log, from, tail.slot).await?;
            for (slot, row) in &page.rows {
                let Row::Segment(segment) = row else { continue };
                let whole = match part(segment)? {
                    None => Some(segment.clone()),
                    Some((part, piece)) => assembly.add(*slot, segment, part, piece).whole.map(|whole| whole.segment),
                };
                let Some(whole) = whole else { continue };
                for entry in unpack(&whole)? {
                    let index = identify(&entry.message.payload).context("a payload of none of the plan's messages")?.index;
                    waiting.push(Waiting { lane, topic: entry.message.topic, index, id: entry.id });
                }
            }
            after = page.next_after;
        }
    }
    Ok(waiting)
}

/// The row at the end of a lane.
///
/// # Errors
/// The store cannot be read.
pub async fn last_row(outbox: &dyn Outbox, lane: LaneId) -> Result<Option<Row>> {
    let log = lane_of_session(lane.0)?;
    let Some(tail) = outbox.read_tail(&log).await? else { return Ok(None) };
    let page = outbox.read_page(&log, Slot(tail.slot.0.saturating_sub(1)), tail.slot).await?;
    Ok(page.rows.into_iter().map(|(_, row)| row).next())
}
