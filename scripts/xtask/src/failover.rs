//! `failover`: takes the session from its owner again and again, and measures how long it is without full service.

pub mod deployed;
mod examine;

use crate::cluster::Cluster;
use crate::fleet::Fleet;
use crate::ledger::Ledger;
use crate::ledger::consumer::Consumer;
use crate::ledger::payload::Plan;
use crate::ledger::publisher::{Progress, Publisher};
use crate::network::{Ground, Network, Peer, Way};
use crate::rig::Rig;
use crate::stack::{StackOptions, Store};
use crate::terminal::{note, result, stop_requested};
use crate::worker::{LEASE_TTL, LONG_LEASE_TTL, Launch, Role, SESSION};

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::Signal;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// What the help adds.
pub const EXPLANATION: &str = "The clock runs from the signal, or the cut, until the successor answers that it is at full service and the \
lease row names it. After a cut, the owner first has to notice: the broker's silence for two and a half keep-alives (2 s here). That time is \
added to the computed budget, which begins where the loss is known.

With --stopped-after the workers are tasks of what stands for ECS, their leases last for 45 s, and ECS says so many seconds after a crash that the owner's task \
has stopped: the successor need not wait for the lease.

With --ecs the session is one of a deployed stack: ECS is asked to stop the owner's task, and the clock runs from that call until the lease row \
names another owner, under a higher version, at full service. An owner writes its level of service with its next renewal, so that the time is long by \
up to one renewal, and never short. docs/deploy.md says what it may do and how to read it.";

/// Why the owner goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Cause {
    /// SIGKILL: nobody is told, and the lease runs out.
    Crash,
    /// SIGTERM: the owner settles what is in flight, and releases the lease.
    Release,
    /// The owner, and nobody else, loses its way to the broker.
    BrokerPath,
}

impl Cause {
    const ALL: [Self; 3] = [Self::Crash, Self::Release, Self::BrokerPath];

    const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Release => "release",
            Self::BrokerPath => "broker_path",
        }
    }
}

/// What its successor is when that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// A process that runs and waits.
    Warm,
    /// A process that is started only then.
    Cold,
}

impl Start {
    const ALL: [Self; 2] = [Self::Warm, Self::Cold];

    const fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many times for each cell. Left out: 10, and 1 with --ecs.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub runs: Option<u32>,
    /// Why the owner goes. Left out: each in turn.
    #[arg(long, value_enum, conflicts_with = "ecs")]
    pub cause: Option<Cause>,
    /// Whether the successor runs already. Left out: first warm, then cold.
    #[arg(long, value_enum, conflicts_with = "ecs")]
    pub start: Option<Start>,
    /// After how many seconds ECS reports the owner's task as stopped, when it crashed. Leases last for 45 s then, and only warm crashes are measured.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(..=60), conflicts_with_all = ["ecs", "cause", "start"])]
    pub stopped_after: Option<u16>,
    /// Messages a second that flow meanwhile; 0 for none.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=5_000), conflicts_with = "ecs")]
    pub rate: u64,
    /// Print one JSON object on the last line of standard output.
    #[arg(long)]
    pub json: bool,
    /// The other form.
    #[command(flatten)]
    pub deployed: deployed::Target,
}

impl Options {
    fn runs(&self) -> u32 {
        self.runs.unwrap_or(10)
    }
}

/// The times of one cell, in seconds from the signal or the cut until the successor was at full service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    cause: Cause,
    start: Start,
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
    fn new(cause: Cause, start: Start, budget: f64, mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let at = |percent| percentile(&seconds, percent);
        Self { cause, start, samples: seconds.len(), p50: at(50), p95: at(95), p99: at(99), max: at(100), budget, seconds }
    }

    fn row(&self) -> String {
        let Self { samples, p50, p95, p99, max, budget, .. } = self;
        let (cause, start) = (self.cause.name(), self.start.name());
        format!("{cause:<12} {start:<6} {samples:>7} {p50:>8.2} {p95:>8.2} {p99:>8.2} {max:>8.2} {budget:>8.2}")
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
    store: &'static str,
    /// What the cut of `broker_path` is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<String>,
    cells: Vec<Cell>,
}

/// Who shares the session, where the successor is warm. Where it is cold, the first two take turns.
const MEMBERS: [(&str, Role); 3] = [("worker-1", Role::Worker), ("worker-2", Role::Worker), ("control", Role::Control)];
const NAMES: [&str; 3] = [MEMBERS[0].0, MEMBERS[1].0, MEMBERS[2].0];
/// How long a process gets to stop by itself.
const STOP: Duration = Duration::from_secs(45);
/// After how many seconds without a broker the owner gives the session up, where that is the cause.
const STEP_DOWN: u16 = 2;
/// The keep-alive there, in seconds.
const KEEP_ALIVE: u16 = 2;

/// Measures. `true`: no time was over the budget.
///
/// # Errors
/// A part does not start, nobody takes over, or the lease row contradicts what monitors say.
pub async fn run(options: &Options) -> Result<bool> {
    if let Some(cluster) = &options.deployed.ecs {
        return deployed::run(cluster, &options.deployed, options.runs.unwrap_or(1), options.json).await;
    }
    let dir = tempfile::Builder::new().prefix("causeway-failover-").tempdir().context("cannot create a temporary folder")?;
    let table = tokio::select! {
        table = measure(options, dir.path()) => table?,
        () = stop_requested() => bail!("interrupted"),
    };
    let text = std::iter::once("cause        start  samples      p50      p95      p99      max   budget".to_owned())
        .chain(table.cells.iter().map(Cell::row))
        .chain(table.network.iter().map(|network| format!("broker_path cuts: {network}")))
        .collect::<Vec<_>>()
        .join("\n");
    let title = format!(
        "Seconds until the successor was at full service; lease TTL {} s, {} messages a second, {}{}",
        table.lease_ttl_seconds,
        options.rate,
        table.store,
        options.stopped_after.map(|after| format!("; ECS says {after} s after the crash that the task has stopped")).unwrap_or_default()
    );
    if options.json {
        note(&format!("{title}\n{text}"));
        result(&serde_json::to_string(&table)?);
    } else {
        result(&format!("{title}\n{text}"));
    }
    Ok(table.cells.iter().all(|cell| cell.max <= cell.budget))
}

async fn measure(options: &Options, dir: &Path) -> Result<Table> {
    note("building the worker");
    let binary = crate::worker::binary().await?;
    let (cause, start) = match options.stopped_after {
        Some(_) => (Some(Cause::Crash), Some(Start::Warm)),
        None => (options.cause, options.start),
    };
    let causes: Vec<Cause> = Cause::ALL.into_iter().filter(|one| cause.is_none_or(|only| only == *one)).collect();
    let starts: Vec<Start> = Start::ALL.into_iter().filter(|one| start.is_none_or(|only| only == *one)).collect();
    let bar = bar(causes.len() * starts.len() * options.runs() as usize);
    let lease_ttl_seconds = if options.stopped_after.is_some() { LONG_LEASE_TTL } else { LEASE_TTL };
    let mut table = Table { lease_ttl_seconds, messages_per_second: options.rate, store: "", network: None, cells: Vec::new() };
    // Two configurations: only where the broker's path is cut does the owner give up without it.
    for cut in [false, true] {
        let causes: Vec<Cause> = causes.iter().copied().filter(|cause| (*cause == Cause::BrokerPath) == cut).collect();
        if causes.is_empty() {
            continue;
        }
        bar.set_message("starting broker, queue and store");
        let place = dir.join(if cut { "cut" } else { "plain" });
        let bench = Bench::start(&place, binary.clone(), cut, options, bar.clone()).await?;
        table.store = bench.rig.stack.store_name;
        table.network = bench.network.as_ref().map(Network::describe).or(table.network);
        for start in &starts {
            for cause in &causes {
                table.cells.push(bench.cell(*cause, *start, options.runs()).await?);
            }
        }
        bench.end().await?;
    }
    bar.finish_and_clear();
    Ok(table)
}

/// A stack with traffic, on which sessions change hands.
struct Bench {
    rig: Rig,
    network: Option<Network>,
    /// What the workers are tasks of, if of anything.
    fleet: Option<Fleet>,
    launches: Vec<Launch>,
    budgets: serde_json::Value,
    publishing: Option<tokio::task::JoinHandle<Result<crate::ledger::publisher::Published>>>,
    // Reads the queue empty.
    _consumer: Consumer,
    bar: ProgressBar,
}

impl Bench {
    async fn start(dir: &Path, binary: std::path::PathBuf, cut: bool, of: &Options, bar: ProgressBar) -> Result<Self> {
        let rate = of.rate;
        let ground = if cut { Some(Ground::find().await) } else { None };
        let rig = Rig::start_on(&StackOptions::bound(dir, Store::Dynamodb), ground.as_ref().map(Ground::address), binary, |settings| {
            settings.exclusive = true;
            settings.logins = cut;
            settings.asks_ecs = of.stopped_after.is_some();
            if cut {
                settings.broker_health_step_down = Some(STEP_DOWN);
                settings.keep_alive = KEEP_ALIVE;
            }
        })
        .await?;
        let network = match ground {
            Some(ground) => Some(rig.network(ground, &NAMES).await?),
            None => None,
        };
        let mut launches = rig.launches(&MEMBERS)?;
        if let Some(network) = &network {
            launches = launches.into_iter().enumerate().map(|(number, launch)| launch.over(network.link(number))).collect();
        }
        let fleet = match of.stopped_after {
            Some(after) => Some(Fleet::start(after, &mut launches).await?),
            None => None,
        };
        let text = rig.launch.run(&["budget", &rig.launch.config.to_string_lossy(), "--json"]).await?;
        let budgets = serde_json::from_str(&text).context("the budget is not JSON")?;
        let plan = Plan::new(u64::MAX >> 16, 250);
        let consumer = Consumer::start(&rig.stack.aws.sqs, &rig.stack.queue_url, 2, Ledger::new(plan.clone()));
        let publishing = (rate > 0).then(|| {
            let publisher = Publisher { numbers: 0..plan.messages, plan, broker_port: rig.stack.broker.port(), rate };
            tokio::spawn(async move { publisher.run(&Progress::default()).await })
        });
        Ok(Self { rig, network, fleet, launches, budgets, publishing, _consumer: consumer, bar })
    }

    async fn end(self) -> Result<()> {
        if let Some(publishing) = self.publishing {
            ensure!(!publishing.is_finished(), "the publisher ended: {publishing:?}");
            publishing.abort();
        }
        Ok(())
    }

    /// The worst case that the program computes for this configuration, in seconds, and the time until a silent broker is noticed.
    fn budget(&self, cause: Cause) -> Result<f64> {
        let sessions = self.budgets.as_array().into_iter().flatten();
        let session = sessions.into_iter().find(|one| one["session_id"] == SESSION).context("the program computes no budget")?;
        let (sum, noticed) = match cause {
            Cause::Crash | Cause::Release => (&session["owner_death"], 0.0),
            Cause::BrokerPath => (&session["broker_path"], self.rig.settings.broker_silence()),
        };
        Ok(sum.as_f64().with_context(|| format!("the program computes no budget for {}", cause.name()))? + noticed)
    }

    async fn cell(&self, cause: Cause, start: Start, runs: u32) -> Result<Cell> {
        self.bar.set_message(format!("{}, {}: starting the workers", cause.name(), start.name()));
        let launches = match start {
            Start::Warm => &self.launches[..],
            Start::Cold => &self.launches[..1],
        };
        let mut cluster = Cluster::start(launches, &self.rig.stack.aws.dynamodb)?;
        cluster.holder().await?;
        let mut seconds = Vec::new();
        for run in 0..runs {
            // Spread over the renewals: the moment of the signal decides how old the lease already is.
            tokio::time::sleep(Duration::from_millis(1_500 + u64::from(run) * 618 % 1_000)).await;
            seconds.push(round(self.once(&mut cluster, cause, start).await?.as_secs_f64()));
            self.bar.inc(1);
        }
        let active = cluster.holder().await?.member;
        cluster.stop(active).await?;
        Ok(Cell::new(cause, start, self.budget(cause)?, seconds))
    }

    /// Takes the session from its owner, waits for the successor, and restores the state from before, with roles changed.
    async fn once(&self, cluster: &mut Cluster, cause: Cause, start: Start) -> Result<Duration> {
        let former = cluster.holder().await?;
        let owner = &cluster.members[former.member];
        ensure!(owner.worker.is_owner().await == Some(true), "the lease row names {} and its monitor disagrees", former.lease.owner);
        let name = owner.name().to_owned();
        let say = |what: &str| self.bar.set_message(format!("{}, {}: {what}", cause.name(), start.name()));
        say(&format!("{name} {}", if cause == Cause::BrokerPath { "loses the broker" } else { "is stopped" }));
        let since = Instant::now();
        match cause {
            Cause::Crash => {
                owner.worker.process.signal(Signal::KILL);
                if let Some(fleet) = &self.fleet {
                    fleet.has_lost(&owner.launch)?;
                }
            }
            Cause::Release => owner.worker.process.signal(Signal::TERM),
            Cause::BrokerPath => self.link(&name)?.cut(Peer::Broker, Way::Both).await?,
        }
        if start == Start::Cold {
            let other = self.launches.iter().find(|launch| launch.name != name).context("there is no other worker")?;
            cluster.join(other)?;
        }
        let successor = cluster.successor(&former.lease).await?;
        let took = successor.at.duration_since(since);
        say(&format!("{} took over after {:.2} s", cluster.members[successor.member].name(), took.as_secs_f64()));
        self.restore(cluster, &name, cause, start).await?;
        Ok(took)
    }

    /// Warm: the former owner stands by again. Cold: it is gone.
    async fn restore(&self, cluster: &mut Cluster, name: &str, cause: Cause, start: Start) -> Result<()> {
        let index = cluster.named(name).context("the former owner is no member")?;
        let member = &mut cluster.members[index];
        if cause == Cause::BrokerPath {
            member.worker.process.expect_running()?;
            self.link(name)?.heal().await?;
            if start == Start::Warm {
                return member.worker.stands_by().await;
            }
            member.worker.process.signal(Signal::TERM);
        }
        let status = member.worker.process.wait(STOP).await?;
        ensure!(cause == Cause::Crash || status.success(), "{name} did not stop cleanly: {status}");
        match start {
            Start::Warm => {
                if let Some(fleet) = &self.fleet {
                    fleet.replace(&mut member.launch);
                }
                cluster.start_again(index).await
            }
            Start::Cold => {
                cluster.members.remove(index);
                Ok(())
            }
        }
    }

    fn link(&self, name: &str) -> Result<&crate::network::Link> {
        let number = NAMES.iter().position(|one| *one == name).with_context(|| format!("{name} has no link"))?;
        Ok(self.network.as_ref().context("no network was laid")?.link(number))
    }
}

fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn bar(length: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed}  {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(length as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let cell = Cell::new(Cause::Crash, Start::Warm, 9.0, vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((cell.samples, cell.p50, cell.p95, cell.p99, cell.max), (4, 2.0, 4.0, 4.0, 4.0));
        let many = Cell::new(Cause::Release, Start::Cold, 9.0, (1..=100).map(f64::from).collect());
        assert_eq!((many.p50, many.p95, many.p99, many.max), (50.0, 95.0, 99.0, 100.0));
    }
}
