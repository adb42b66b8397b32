//! `chaos`: one fault after the other against real processes under load, and a ledger that decides.
//!
//! Everything a scenario draws comes from a seed, so that it can be repeated: which way a cut goes, how long a fault lasts, which worker it
//! hits. What the processes make of it still depends on the machine.

pub mod matrix;
mod outcome;
mod scenario;
mod stage;

use crate::random::Random;
use crate::stack::StackOptions;
use crate::terminal::{note, result, stop_requested};
use crate::worker::LEASE_TTL;
use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use outcome::Outcome;
use scenario::Scenario;
use serde::Serialize;
use stage::{Field, Stage};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// What to do.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// For how long: rounds through all scenarios are begun until then, at least one.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub minutes: u64,
    /// Draws everything that is drawn. Left out: another one each time. The next round has the next one.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Only this scenario, once for each round.
    #[arg(long, value_enum)]
    pub only: Option<Scenario>,
    /// One round of the most important scenarios, each as short as can be; of the matrix every cell, with fewer messages.
    #[arg(long, conflicts_with = "minutes")]
    pub short: bool,
    /// Instead of scenarios: every delivery mode over every store, before standard and FIFO queues, with kills, an absence of SQS, partial failures and
    /// throttling.
    #[arg(long, conflicts_with_all = ["minutes", "seed", "only", "rate"])]
    pub matrix: bool,
    /// Only the cells of the matrix that have this in their names, such as `spill_outbox, SQLite` or `FIFO, kill`.
    #[arg(long, value_name = "TEXT", requires = "matrix")]
    pub cells: Option<String>,
    /// Print the matrix as a table for a page.
    #[arg(long, requires = "matrix", conflicts_with = "json")]
    pub markdown: bool,
    /// Messages a second.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=5_000))]
    pub rate: u64,
    /// Print one JSON object on the last line of standard output.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Table {
    ok: bool,
    seed: u64,
    lease_ttl_seconds: u64,
    messages_per_second: u64,
    network: String,
    store: &'static str,
    seconds: f64,
    outcomes: Vec<Outcome>,
}

/// From how many minutes on a round contains ten minutes of idleness.
const WITH_IDLENESS: u64 = 25;

/// Runs it. `true`: everything was kept.
///
/// # Errors
/// The stack cannot be started.
pub async fn run(options: &Options) -> Result<bool> {
    if options.matrix {
        return matrix::run(options).await;
    }
    let dir = tempfile::Builder::new().prefix("causeway-chaos-").tempdir().context("cannot create a temporary folder")?;
    let table = tokio::select! {
        table = rounds(options, dir.path()) => table?,
        () = stop_requested() => bail!("interrupted"),
    };
    let failed = table.outcomes.iter().filter(|outcome| !outcome.ok).count();
    let ending = format!(
        "{} scenarios, {failed} FAILED; lost {} of {} messages; seed {}; {}",
        table.outcomes.len(),
        table.outcomes.iter().map(|outcome| outcome.lost).sum::<u64>(),
        table.outcomes.iter().map(|outcome| outcome.published).sum::<u64>(),
        table.seed,
        table.network
    );
    if options.json {
        note(&ending);
        result(&serde_json::to_string(&table)?);
    } else {
        result(&ending);
    }
    if failed > 0 {
        let kept = dir.keep();
        note(&format!("the logs of all processes are in {}", kept.display()));
    }
    Ok(table.ok)
}

async fn rounds(options: &Options, dir: &Path) -> Result<Table> {
    let started = Instant::now();
    note("building the worker");
    let binary = crate::worker::binary().await?;
    let seed = options.seed.unwrap_or_else(|| u64::from(std::process::id()) * 1_000 + Plan::now() % 1_000_000);
    note(&format!("seed {seed}: `scripts/chaos --seed {seed}` draws the same again"));
    let plan = Plan { options, started };
    let mut stages = Stages { dir: dir.to_owned(), binary, field: None, count: 0, bar: bar() };
    let mut table = Table {
        ok: true,
        seed,
        lease_ttl_seconds: LEASE_TTL,
        messages_per_second: options.rate,
        network: String::new(),
        store: "",
        seconds: 0.0,
        outcomes: Vec::new(),
    };
    let say = |line: &str| if options.json { note(line) } else { result(line) };
    say(&Outcome::heading());
    for round in 0.. {
        for scenario in plan.scenarios() {
            let seed = seed.wrapping_add(round);
            let outcome = stages.play(scenario, seed, options).await?;
            if let Some(field) = &stages.field {
                (table.network, table.store) = (field.network.describe(), field.rig.stack.store_name);
            }
            stages.bar.suspend(|| say(&outcome.row()));
            table.ok &= outcome.ok;
            table.outcomes.push(outcome);
        }
        if plan.is_over() {
            break;
        }
    }
    stages.bar.finish_and_clear();
    table.seconds = started.elapsed().as_secs_f64().round();
    Ok(table)
}

/// What is played, and for how long.
struct Plan<'a> {
    options: &'a Options,
    started: Instant,
}

impl Plan<'_> {
    fn now() -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or_default()
    }

    fn scenarios(&self) -> Vec<Scenario> {
        if let Some(only) = self.options.only {
            return vec![only];
        }
        let all = Scenario::ALL.into_iter();
        if self.options.short {
            return all.filter(|scenario| scenario.is_short()).collect();
        }
        all.filter(|scenario| *scenario != Scenario::Idle || self.options.minutes >= WITH_IDLENESS).collect()
    }

    fn is_over(&self) -> bool {
        self.options.short || self.started.elapsed() >= Duration::from_secs(self.options.minutes * 60)
    }
}

/// Where scenarios are played, one after the other, until one leaves ruins.
struct Stages {
    dir: PathBuf,
    binary: PathBuf,
    field: Option<Field>,
    count: u32,
    bar: ProgressBar,
}

impl Stages {
    async fn play(&mut self, scenario: Scenario, seed: u64, options: &Options) -> Result<Outcome> {
        let name = scenario.name();
        let mut field = match self.field.take() {
            Some(field) => field,
            None => {
                self.bar.set_message(format!("{name}: starting broker, queue, store and three workers"));
                self.count += 1;
                let dir = self.dir.join(self.count.to_string());
                Field::start(self.binary.clone(), &StackOptions::bound(&dir, crate::stack::Store::Dynamodb)).await?
            }
        };
        let random = Random::named(seed, name);
        let mut stage = Stage::open(&mut field, scenario, seed, random, options, self.bar.clone()).await?;
        let played = scenario.play(&mut stage).await;
        let outcome = stage.close(played).await;
        // Ruins are left for looking at; the next scenario gets a stage of its own.
        if outcome.ok && !scenario.leaves_ruins() {
            self.field = Some(field);
        } else if !outcome.ok {
            self.bar.suspend(|| outcome.faults.iter().for_each(|fault| note(&format!("  {fault}"))));
            self.bar.suspend(|| note(&field.cluster.log_tails()));
        }
        Ok(outcome)
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed}  {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
