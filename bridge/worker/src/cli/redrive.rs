//! `causeway dlq redrive`: the same plan as the function's, from the desk.

use super::dlq::{STORE_LOCKED, beside_a_worker};
use super::error::CliError;
use super::output::{self, Table};
use super::{ConfigArgs, load};
use crate::dead_letters::{redrive_ports, redriven};
use crate::wiring::{self, Purpose, StoreSet};
use causeway_core::config::Config;
use causeway_core::redrive::{Request, Routes, Tally};
use causeway_core::units::Instant;
use causeway_duties::redrive::{Ports, Report, run};
use causeway_ports::SystemClock;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

/// Arguments of `dlq redrive`.
#[derive(Debug, Args)]
#[command(after_help = "Without --yes it only tells what it would do.")]
pub struct RedriveArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only these: 32 hexadecimal digits each
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,
    /// Only of this route
    #[arg(long)]
    route: Option<String>,
    /// Only of this category: permanent, rejected, expired, poison
    #[arg(long)]
    category: Option<String>,
    /// Only with this error code, such as PAYLOAD_TOO_LARGE
    #[arg(long)]
    code: Option<String>,
    /// Only what failed at or after this time, such as 2026-01-31T12:00:00Z
    #[arg(long)]
    since: Option<String>,
    /// Only what failed before this time
    #[arg(long)]
    before: Option<String>,
    /// Every dead letter
    #[arg(long)]
    all: bool,
    /// At most so many: 1 to 10000
    #[arg(long, default_value_t = causeway_core::redrive::DEFAULT_LIMIT)]
    limit: u64,
    /// At most so many a second: 1 to 500
    #[arg(long, default_value_t = causeway_core::redrive::DEFAULT_RATE)]
    rate: u64,
    /// Letters that were put back so often already are set aside
    #[arg(long, default_value_t = causeway_core::redrive::DEFAULT_MAX_REDRIVES)]
    max_redrives: u64,
    /// Put back what expired too, without its expiry
    #[arg(long)]
    include_expired: bool,
    /// `outbox`, or `queue` for routes without an outbox
    #[arg(long, default_value = "outbox", value_parser = ["outbox", "queue"])]
    mode: String,
    /// Where the last redrive with the same filter ended
    #[arg(long)]
    continuation: Option<String>,
    /// Do it
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Only tell what would be done; so it is without --yes
    #[arg(long)]
    dry_run: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl RedriveArgs {
    /// The event that the function would be given. One way to read it, and one set of refusals.
    fn event(&self) -> Value {
        let mut filter = Map::new();
        let texts = [
            ("route_id", &self.route),
            ("category", &self.category),
            ("error_code", &self.code),
            ("since", &self.since),
            ("before", &self.before),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                filter.insert(name.to_owned(), json!(text));
            }
        }
        if !self.ids.is_empty() {
            filter.insert("ids".to_owned(), json!(self.ids));
        }
        json!({
            "filter": filter, "all": self.all, "dry_run": !self.yes, "limit": self.limit, "rate_per_second": self.rate,
            "max_redrives": self.max_redrives, "include_expired": self.include_expired, "mode": self.mode, "continuation": self.continuation,
        })
    }
}

/// Redrives.
///
/// # Errors
/// Where the request makes no sense, or a store cannot be used.
pub async fn execute(args: RedriveArgs) -> Result<ExitCode, CliError> {
    let mut nonce = [0; 8];
    getrandom::fill(&mut nonce).map_err(|error| CliError::fault(format!("no random bits: {error}")))?;
    let request = Request::parse(&args.event(), &format!("desk-{:016x}", u64::from_be_bytes(nonce)))
        .map_err(|refusal| CliError::unusable(refusal.to_string()))?;
    let config = load::load(&args.config)?.config;
    let routes = Routes::of(&config.bridge.id, &config).map_err(|error| CliError::unusable(format!("bridge.id: {error}")))?;
    let ports = ports(&config, if request.dry_run { Purpose::Look } else { Purpose::Change }).await?;
    let bar = bar(&request);
    let told = |tally: &Tally| bar.set_position(tally.matched());
    let report = run(&request, &routes, &ports, Instant::from_nanos(u64::MAX), &told).await;
    bar.finish_and_clear();
    let report = report.map_err(|fault| CliError::fault(format!("stores.{fault}")))?;
    if args.json {
        output::json(&redriven(&request, &report))?;
    } else {
        output::line(&text(&request, &report))?;
    }
    Ok(if report.tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn ports(config: &Config, purpose: Purpose) -> Result<Ports, CliError> {
    let aws = wiring::aws(config).await;
    let stores = StoreSet::open(&config.stores, aws.as_ref(), purpose).map_err(|errors| {
        let locked = errors.iter().find(|error| error.code == STORE_LOCKED).cloned();
        locked.map_or_else(|| CliError::all_unusable(&errors), |locked| beside_a_worker(locked, config, "dlq/redrive"))
    })?;
    let (secrets, _) = wiring::keep_secrets(config, aws.as_ref(), 0).await.map_err(|errors| CliError::all_unusable(&errors))?;
    let sinks = wiring::sinks(config, aws.as_ref(), &secrets).map_err(|errors| CliError::all_unusable(&errors))?;
    redrive_ports(&stores, &sinks, Arc::new(SystemClock)).map_err(CliError::unusable)
}

/// A bar for people; nothing where nobody looks.
fn bar(request: &Request) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::from(request.limit));
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} letters, {per_sec}, {elapsed}") {
        bar.set_style(style);
    }
    bar
}

fn text(request: &Request, report: &Report) -> String {
    let tally = &report.tally;
    let (would, how) = if request.dry_run { ("would be ", " (dry run: --yes does it)") } else { ("", "") };
    let mut text = format!(
        "{} matched: {} {would}redriven, {} {would}skipped, {} {would}parked, {} failed{how}",
        tally.matched(),
        tally.redriven,
        tally.skipped,
        tally.parked,
        tally.failed
    );
    if !tally.errors.is_empty() {
        let mut table = Table::new(&["ID", "CODE", "WHY"]);
        for error in &tally.errors {
            table.row(vec![error.id.clone(), error.code.to_owned(), error.message.clone()]);
        }
        text = format!("{text}\n{}", table.render());
    }
    match &report.continuation {
        Some(at) => format!("{text}\nthere may be more: --continuation '{at}'"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RedriveArgs,
    }

    fn event(line: &[&str]) -> Value {
        Line::try_parse_from([&["x", "-c", "f"], line].concat()).unwrap_or_else(|error| panic!("{error}")).args.event()
    }

    #[test]
    fn only_yes_changes_anything() {
        let parsed = |line: &[&str]| Request::parse(&event(line), "desk-1").unwrap();
        assert!(parsed(&["--all"]).dry_run && parsed(&["--all", "--dry-run"]).dry_run);
        assert!(!parsed(&["--all", "--yes"]).dry_run);
        assert!(Line::try_parse_from(["x", "-c", "f", "--all", "--yes", "--dry-run"]).is_err());
    }

    #[test]
    fn the_desk_refuses_what_the_function_refuses() {
        let field = |line: &[&str]| Request::parse(&event(line), "desk-1").expect_err("refused").field;
        assert_eq!(field(&[]), "filter");
        assert_eq!(field(&["--route", "r", "--since", "yesterday"]), "filter.since");
        assert_eq!(field(&["--all", "--limit", "0"]), "limit");
        assert_eq!(field(&["--id", "7"]), "filter.ids");
    }
}
