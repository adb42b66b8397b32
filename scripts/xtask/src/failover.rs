//! `failover`: stops the owner of a session again and again, and measures how long the session is without full service.

use crate::cluster::Cluster;
use crate::ledger::Ledger;
use crate::ledger::consumer::Consumer;
use crate::ledger::payload::Plan;
use crate::ledger::publisher::{Progress, Publisher};
use crate::rig::Rig;
use crate::stack::{StackOptions, Store};
use crate::terminal::{note, result, stop_requested};
use crate::worker::{LEASE_TTL, Role, SESSION};
use anyhow::{Context as _, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::Signal;
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

/// What the help adds.
pub const NOT_YET: &str = "Not measured yet, and therefore refused: --cause broker_path (the owner loses its broker), and a start that is cold \
                           (every successor here is a standby that already runs: warm).";

/// Why the owner goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// SIGKILL: nobody is told, and the lease runs out.
    Crash,
    /// SIGTERM: the owner settles what is in flight, and releases the lease.
    Release,
}

impl Cause {
    const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Release => "release",
        }
    }

    const fn signal(self) -> Signal {
        match self {
            Self::Crash => Signal::KILL,
            Self::Release => Signal::TERM,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many times for each cause.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub runs: u32,
    /// Why the owner goes. Left out: each in turn.
    #[arg(long, value_enum)]
    pub cause: Option<Cause>,
    /// Messages a second that flow meanwhile; 0 for none.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=5_000))]
    pub rate: u64,
    /// Print one JSON object on the last line of standard output.
    #[arg(long)]
    pub json: bool,
}

/// The times of one cause, in seconds from the signal until the successor was at full service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    cause: Cause,
    start: &'static str,
    samples: usize,
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
    /// What the program computes as the worst case.
    budget: f64,
    seconds: Vec<f64>,
}

impl Cell {
    fn new(cause: Cause, budget: f64, mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let at = |percent| percentile(&seconds, percent);
        Self { cause, start: "warm", samples: seconds.len(), p50: at(50), p95: at(95), p99: at(99), max: at(100), budget, seconds }
    }

    fn row(&self) -> String {
        let Self { samples, p50, p95, p99, max, budget, .. } = self;
        format!("{:<9} {:<6} {samples:>7} {p50:>8.2} {p95:>8.2} {p99:>8.2} {max:>8.2} {budget:>8.2}", self.cause.name(), self.start)
    }
}

/// The smallest value that `percent` of all values do not exceed; no value between two is made up.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

#[derive(Clone, Debug, Serialize)]
struct Table {
    lease_ttl_seconds: u64,
    messages_per_second: u64,
    members: Vec<&'static str>,
    store: &'static str,
    cells: Vec<Cell>,
}

/// Who shares the session.
const MEMBERS: [(&str, Role); 3] = [("worker-1", Role::Worker), ("worker-2", Role::Worker), ("control", Role::Control)];
/// How long a process gets to stop by itself.
const STOP: Duration = Duration::from_secs(45);

/// Measures. `true`: no time was over the budget.
///
/// # Errors
/// A part does not start, nobody takes over, or the lease row contradicts what monitors say.
pub async fn run(options: &Options) -> Result<bool> {
    let dir = tempfile::Builder::new().prefix("causeway-failover-").tempdir().context("cannot create a temporary folder")?;
    let table = tokio::select! {
        table = measure(options, dir.path()) => table?,
        () = stop_requested() => bail!("interrupted"),
    };
    let text = std::iter::once("cause     start  samples      p50      p95      p99      max   budget".to_owned())
        .chain(table.cells.iter().map(Cell::row))
        .collect::<Vec<_>>()
        .join("\n");
    let title = format!(
        "Seconds from the signal until the successor was at full service; lease TTL {LEASE_TTL} s, {} messages a second, {}",
        options.rate, table.store
    );
    if options.json {
        note(&format!("{title}\n{text}"));
        result(&serde_json::to_string(&table)?);
    } else {
        result(&format!("{title}\n{text}"));
    }
    Ok(table.cells.iter().all(|cell| cell.max <= cell.budget))
}

async fn measure(options: &Options, dir: &std::path::Path) -> Result<Table> {
    note("building the worker");
    let binary = crate::worker::binary().await?;
    note("starting broker, queue and store");
    let rig = Rig::start_with(&StackOptions::bound(dir, Store::Dynamodb), false, binary, |settings| settings.exclusive = true).await?;
    let budget = budget(&rig).await?;
    let mut cluster = rig.cluster(&MEMBERS)?;
    cluster.holder().await?;
    let plan = Plan::new(u64::MAX >> 16, 250);
    let consumer = Consumer::start(&rig.stack.aws.sqs, &rig.stack.queue_url, 2, Ledger::new(plan.clone()));
    let traffic = (options.rate > 0).then(|| {
        let publisher = Publisher { numbers: 0..plan.messages, plan, broker_port: rig.stack.broker.port(), rate: options.rate };
        tokio::spawn(async move { publisher.run(&Progress::default()).await })
    });
    let causes = options.cause.map_or_else(|| vec![Cause::Crash, Cause::Release], |cause| vec![cause]);
    let bar = bar(causes.len() * options.runs as usize);
    let mut cells = Vec::new();
    for cause in causes {
        let mut seconds = Vec::new();
        for run in 0..options.runs {
            if let Some(traffic) = traffic.as_ref().filter(|traffic| traffic.is_finished()) {
                bail!("the publisher ended: {traffic:?}");
            }
            bar.set_message(cause.name());
            // Spread over the renewals: the moment of the signal decides how old the lease already is.
            tokio::time::sleep(Duration::from_millis(1_500 + u64::from(run) * 618 % 1_000)).await;
            seconds.push(round(once(&mut cluster, cause).await?.as_secs_f64()));
            bar.inc(1);
        }
        cells.push(Cell::new(cause, budget, seconds));
    }
    bar.finish_and_clear();
    if let Some(traffic) = traffic {
        traffic.abort();
    }
    let active = cluster.holder().await?.member;
    cluster.stop(active).await?;
    drop(consumer);
    let members = MEMBERS.iter().map(|(name, _)| *name).collect();
    Ok(Table { lease_ttl_seconds: LEASE_TTL, messages_per_second: options.rate, members, store: rig.stack.store_name, cells })
}

/// Stops the owner, waits for its successor and starts the stopped one again.
async fn once(cluster: &mut Cluster, cause: Cause) -> Result<Duration> {
    let former = cluster.holder().await?;
    let owner = &mut cluster.members[former.member].worker;
    ensure!(owner.is_owner().await == Some(true), "the lease row names {} and its monitor disagrees", former.lease.owner);
    let since = Instant::now();
    owner.process.signal(cause.signal());
    let successor = cluster.successor(&former.lease).await?;
    let member = &mut cluster.members[former.member];
    let status = member.worker.process.wait(STOP).await?;
    ensure!(cause == Cause::Crash || status.success(), "{} did not stop cleanly: {status}", member.name());
    cluster.start_again(former.member).await?;
    Ok(successor.at.duration_since(since))
}

/// The worst case that the program computes for this configuration, in seconds.
async fn budget(rig: &Rig) -> Result<f64> {
    let text = rig.launch.run(&["budget", &rig.launch.config.to_string_lossy(), "--json"]).await?;
    let all: serde_json::Value = serde_json::from_str(&text).context("the budget is not JSON")?;
    let session = all.as_array().and_then(|all| all.iter().find(|one| one["session_id"] == SESSION));
    session.and_then(|session| session["owner_death"].as_f64()).context("the program computes no budget")
}

fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn bar(length: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:>8} [{bar:40}] {pos}/{len}  {elapsed}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length as u64).with_style(style)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let cell = Cell::new(Cause::Crash, 9.0, vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((cell.samples, cell.p50, cell.p95, cell.p99, cell.max), (4, 2.0, 4.0, 4.0, 4.0));
        let many = Cell::new(Cause::Release, 9.0, (1..=100).map(f64::from).collect());
        assert_eq!((many.p50, many.p95, many.p99, many.max), (50.0, 95.0, 99.0, 100.0));
    }
}
