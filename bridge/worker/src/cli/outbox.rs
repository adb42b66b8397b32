//! `causeway outbox stat`, `list` and `rebase`: what waits in the logs, read from the store and not from a worker, and the move after a restore.

mod rebase;
mod settled;

use super::error::CliError;
use super::output::{self, Table};
use super::{ConfigArgs, load};
use crate::wiring::{self, Purpose, StoreSet};
use causeway_core::identity::{LaneId, LogName, Slot};
use causeway_core::mailbox::{MAX_MOVE_ROWS, MailboxName};
use causeway_core::outcome::Fault;
use causeway_core::rows::{Head, Row};
use causeway_core::units::UnixMillis;
use causeway_ports::{Clock as _, LogRecord, LogState, LogStore, Outbox, SystemClock};
use clap::Subcommand;
use serde::Serialize;
use std::process::ExitCode;

/// Commands on the outbox.
#[derive(Debug, Subcommand)]
pub enum OutboxCommand {
    /// Count what waits in each lane of each log
    Stat {
        #[allow(missing_docs, reason = "clap shows what ConfigArgs says")]
        #[command(flatten)]
        config: ConfigArgs,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List the logs of the registry, and where each lane stands
    List {
        #[allow(missing_docs, reason = "clap shows what ConfigArgs says")]
        #[command(flatten)]
        config: ConfigArgs,
        /// The messages that are settled and still kept, instead
        #[arg(long)]
        settled: bool,
        /// With `--settled`: the last so many of each lane
        #[arg(long, requires = "settled", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// After a table was restored: move every log on, and raise every lease. Stop every worker first
    Rebase(rebase::RebaseArgs),
}

/// What stands in one lane of a log.
#[derive(Debug, Serialize)]
struct LogStat {
    log: String,
    state: &'static str,
    lanes: u32,
    epoch: u64,
    owner: Option<String>,
    tail: u64,
    drained: u64,
    segments: u64,
    entries: u64,
    bytes: u64,
    oldest_created_at: Option<UnixMillis>,
    /// What others left for the log and its owner did not move into it yet, counted up to [`MOST_MAIL`]. Lane 0 tells it for all lanes.
    mail: u64,
}

/// Mail is counted so far: one page of it.
const MOST_MAIL: usize = MAX_MOVE_ROWS;

/// Prints the figures of every log of the configured bridge, or moves them on.
///
/// # Errors
/// Where the store cannot be read, or a worker still runs.
pub async fn execute(command: OutboxCommand) -> Result<ExitCode, CliError> {
    match command {
        OutboxCommand::Stat { config, json } => show(&config, json, &FIGURES).await,
        OutboxCommand::List { config, settled: true, limit, json } => settled::execute(&config, limit as usize, json).await,
        OutboxCommand::List { config, json, .. } => show(&config, json, &PLACES).await,
        OutboxCommand::Rebase(args) => rebase::execute(args).await,
    }
}

/// A column: its head, and its cell for a log at a moment.
type Column = (&'static str, fn(&LogStat, UnixMillis) -> String);

/// What `stat` tells: how much waits.
const FIGURES: [Column; 11] = [
    LOG,
    STATE,
    EPOCH,
    ("OWNER", |stat, _| stat.owner.clone().unwrap_or_else(|| "-".to_owned())),
    TAIL,
    ("DRAINED", |stat, _| stat.drained.to_string()),
    SEGMENTS,
    ("ENTRIES", |stat, _| stat.entries.to_string()),
    ("BYTES", |stat, _| stat.bytes.to_string()),
    ("MAIL", |stat, _| if stat.mail < MOST_MAIL as u64 { stat.mail.to_string() } else { format!("{MOST_MAIL} or more") }),
    OLDEST,
];

/// What `list` tells: which logs there are, and where each stands.
const PLACES: [Column; 8] = [
    LOG,
    ("LANES", |stat, _| stat.lanes.to_string()),
    EPOCH,
    STATE,
    ("HEAD", |stat, _| stat.drained.to_string()),
    TAIL,
    ("WAITING", |stat, _| stat.segments.to_string()),
    OLDEST,
];

const LOG: Column = ("LOG", |stat, _| stat.log.clone());
const STATE: Column = ("STATE", |stat, _| stat.state.to_owned());
const EPOCH: Column = ("EPOCH", |stat, _| stat.epoch.to_string());
const TAIL: Column = ("TAIL", |stat, _| stat.tail.to_string());
const SEGMENTS: Column = ("SEGMENTS", |stat, _| stat.segments.to_string());
const OLDEST: Column = ("OLDEST", |stat, now| stat.oldest_created_at.map_or_else(|| "-".to_owned(), |at| output::ago(now.since(at))));

async fn show(config: &ConfigArgs, json: bool, columns: &[Column]) -> Result<ExitCode, CliError> {
    let config = load::load(config)?.config;
    let aws = wiring::aws(&config).await;
    let outbox = StoreSet::open_outbox(&config.stores, aws.as_ref(), Purpose::Look)?
        .ok_or_else(|| CliError::unusable("stores.outbox is not configured"))?;
    let stats = stats(outbox.as_ref(), &config.bridge.id).await.map_err(told)?;
    if json {
        let total: u64 = stats.iter().map(|stat| stat.entries).sum();
        let mail: u64 = stats.iter().map(|stat| stat.mail).sum();
        return output::json(&serde_json::json!({ "bridge": config.bridge.id, "entries": total, "mail": mail, "logs": stats }));
    }
    let now = SystemClock.wall();
    let mut table = Table::new(&columns.iter().map(|(head, _)| *head).collect::<Vec<_>>());
    for stat in &stats {
        table.row(columns.iter().map(|(_, cell)| cell(stat, now)).collect());
    }
    if stats.is_empty() {
        output::line("no log is registered yet: a worker registers its logs when it starts")
    } else {
        output::line(&table.render())
    }
}

fn told(fault: Fault) -> CliError {
    CliError::fault(format!("stores.outbox: {fault}"))
}

/// Reads every lane of every log of the bridge.
async fn stats(outbox: &dyn LogStore, bridge: &str) -> Result<Vec<LogStat>, Fault> {
    let mut stats = Vec::new();
    for record in outbox.list_logs().await?.iter().filter(|record| record.log.bridge() == bridge) {
        for log in record.of_lanes() {
            stats.push(LogStat { mail: mail(outbox, &log).await?, ..stat(outbox, record, &log).await? });
        }
    }
    Ok(stats)
}

/// The mail of a session's log, told with its lane 0. A log that a process made for itself is no mailbox's: mail goes to the session.
async fn mail(mailbox: &dyn LogStore, log: &LogName) -> Result<u64, Fault> {
    match MailboxName::new(log.bridge(), log.partition()) {
        Ok(name) if log.lane() == LaneId(0) => Ok(mailbox.read_mail(&name, MOST_MAIL).await?.len() as u64),
        Ok(_) | Err(_) => Ok(0),
    }
}

/// Reads a lane from its head to its tail. Entries are counted, not unpacked; a running owner goes on meanwhile, so figures are of the moment.
async fn stat(outbox: &dyn Outbox, record: &LogRecord, log: &LogName) -> Result<LogStat, Fault> {
    let tail = outbox.read_tail(log).await?;
    let head = outbox.read_head(log).await?.unwrap_or_default();
    let drained = head.drained.max(tail.map_or(Slot::HEAD, |row| row.drained));
    let mut stat = LogStat {
        log: log.to_string(),
        state: match record.state {
            LogState::Open => "open",
            LogState::Retired => "retired",
        },
        lanes: record.lanes,
        epoch: tail.map_or(record.epoch.0, |row| row.epoch.0),
        owner: None,
        tail: tail.map_or(0, |row| row.slot.0),
        drained: drained.0,
        segments: 0,
        entries: 0,
        bytes: 0,
        oldest_created_at: None,
        mail: 0,
    };
    if let Some(tail) = tail {
        count(outbox, log, drained, tail.slot, &head, &mut stat).await?;
    }
    Ok(stat)
}

async fn count(outbox: &dyn Outbox, log: &LogName, drained: Slot, tail: Slot, head: &Head, stat: &mut LogStat) -> Result<(), Fault> {
    let mut after = Some(drained);
    let mut last_is_unsettled = false;
    while let Some(from) = after {
        let page = outbox.read_page(log, from, tail).await?;
        for (slot, row) in &page.rows {
            match row {
                Row::Anchor(anchor) => stat.owner = Some(anchor.owner.clone()),
                // A further part of the segment before it.
                Row::Segment(segment) if segment.count == 0 => {
                    stat.bytes += if last_is_unsettled { segment.body.len() as u64 } else { 0 };
                }
                Row::Segment(segment) => {
                    let unsettled = u64::from(segment.count).saturating_sub(settled_in(head, *slot, segment.count));
                    last_is_unsettled = unsettled > 0;
                    if last_is_unsettled {
                        stat.segments += 1;
                        stat.entries += unsettled;
                        stat.bytes += segment.body.len() as u64;
                        stat.oldest_created_at =
                            Some(stat.oldest_created_at.map_or(segment.created_at, |oldest| oldest.min(segment.created_at)));
                    }
                }
            }
        }
        after = page.next_after;
    }
    Ok(())
}

/// How many of the `count` entries of `slot` the head row knows as settled.
fn settled_in(head: &Head, slot: Slot, count: u32) -> u64 {
    head.settled_ahead
        .iter()
        .filter(|range| range.from.slot <= slot && slot <= range.to.slot)
        .map(|range| {
            let first = if range.from.slot == slot { range.from.index } else { 0 };
            // A range that reaches to the end of a slot may say so with the highest index there is.
            let end = if range.to.slot == slot { range.to.index.saturating_add(1).min(count) } else { count };
            u64::from(end.saturating_sub(first))
        })
        .sum()
}

#[cfg(test)]
mod tests;
