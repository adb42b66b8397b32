//! `causeway drops list`: the ledger of what was not delivered.

use super::error::CliError;
use super::output::{self, Table};
use super::{ConfigArgs, load};
use crate::wiring::{self, Purpose, StoreSet};
use clap::{Args, Subcommand};
use serde_json::json;
use std::process::ExitCode;

/// Commands on the ledger of drops.
#[derive(Debug, Subcommand)]
pub enum DropsCommand {
    /// List what was not delivered: whose, why, by which topic, how often; the newest first
    List(ListArgs),
}

/// Arguments of `drops list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// At most so many rows
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Prints the ledger.
///
/// # Errors
/// Where there is none, or it cannot be read.
pub async fn execute(command: DropsCommand) -> Result<ExitCode, CliError> {
    let DropsCommand::List(args) = command;
    let loaded = load::load(&args.config)?;
    let config = &loaded.config;
    let aws = wiring::aws(config).await;
    let ledger = StoreSet::open_ledger(config, aws.as_ref(), Purpose::Look)?.ok_or_else(|| {
        CliError::unusable("stores.ledger is not configured: the ledger is in each worker's memory, see /api/v1/monitor/drops there")
    })?;
    let page = ledger.list(args.limit as usize).await.map_err(|fault| CliError::fault(format!("stores.ledger: {fault}")))?;
    if args.json {
        return output::json(&json!({ "rows": page.rows, "complete": page.complete }));
    }
    let mut table = Table::new(&["LAST", "REASON", "DIRECTION", "LOST", "DEAD-LETTERED", "KEY", "TOPIC", "ROUTE", "DETAIL"]);
    for row in &page.rows {
        table.row(vec![
            output::time(row.count.last),
            row.key.reason.as_str().to_owned(),
            row.key.direction.as_str().to_owned(),
            row.count.lost.to_string(),
            row.count.dead_lettered.to_string(),
            row.key.key.clone(),
            row.key.topic.clone(),
            row.count.route.clone(),
            row.count.detail.clone(),
        ]);
    }
    if page.rows.is_empty() {
        return output::line("nothing was dropped");
    }
    let more = if page.complete { "" } else { "\nthere are more: --limit" };
    output::line(&format!("{}{more}", table.render()))
}
