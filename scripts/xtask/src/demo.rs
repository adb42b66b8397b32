//! `demo`: telemetry through real processes, a worker killed in the middle, and the ledger.

use crate::ledger::consumer::Consumer;
use crate::ledger::payload::Plan;
use crate::ledger::publisher::{Progress, Published, Publisher};
use crate::ledger::report::Report;
use crate::ledger::{Exposure, Ledger};
use crate::local;
use crate::metrics::{self, Snapshot};
use crate::rig::{Rig, drain};
use crate::stack::process::Lifetime;
use crate::stack::{StackOptions, Store};
use crate::terminal::{note, result, stop_requested};
use crate::worker::{Worker, exposure_terms};
use anyhow::{Context as _, Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What the demo does.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many messages to publish.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub messages: u64,
    /// Messages a second; 0 is as fast as possible.
    #[arg(long, default_value_t = 1000)]
    pub rate: u64,
    /// Where the worker keeps its outbox.
    #[arg(long, value_enum, default_value = "sqlite")]
    pub store: Store,
    /// Bytes of a payload.
    #[arg(long, default_value_t = 250)]
    pub size: usize,
    /// Let the worker live.
    #[arg(long)]
    pub no_kill: bool,
    /// Leave everything running at the end and print where it listens; `scripts/local down` ends it.
    #[arg(long)]
    pub keep: bool,
    /// Print the ledger as one JSON object on the last line of standard output, and everything else on standard error.
    #[arg(long)]
    pub json: bool,
    /// Use a running LocalStack, or any other endpoint, instead of starting AWS services.
    #[arg(long, value_name = "URL")]
    pub aws_endpoint: Option<String>,
}

/// How many tasks read the queue.
const CONSUMERS: usize = 4;
/// How long the queue may stay silent while messages are still missing: longer than any back-off of the worker.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the demo. `true`: nothing was lost, changed, or repeated beyond the bound.
///
/// # Errors
/// A part does not start, or ends by itself.
pub async fn run(options: &Options) -> Result<bool> {
    let scratch = tempfile::Builder::new().prefix("causeway-demo-").tempdir().context("cannot create a temporary folder")?;
    let kept = crate::stack::repository().join(".local/demo");
    let dir = if options.keep {
        local::down_in(&kept).await?;
        std::fs::create_dir_all(&kept).with_context(|| format!("cannot create {}", kept.display()))?;
        kept.as_path()
    } else {
        scratch.path()
    };
    let report = tokio::select! {
        report = play(options, dir) => report?,
        () = stop_requested() => bail!("interrupted"),
    };
    if options.json {
        note(&report.table());
        report.faults().iter().for_each(|fault| note(&format!("FAULT: {fault}")));
        result(&report.json());
    } else {
        result(&report.table());
        report.faults().iter().for_each(|fault| result(&format!("FAULT: {fault}")));
    }
    Ok(report.faults().is_empty())
}

async fn play(options: &Options, dir: &Path) -> Result<Report> {
    note("building the worker");
    let binary = crate::worker::binary().await?;
    let stack = StackOptions {
        aws_endpoint: options.aws_endpoint.clone(),
        lifetime: if options.keep { Lifetime::Detached } else { Lifetime::Bound },
        ..StackOptions::bound(dir, options.store)
    };
    note("starting broker, queue and store");
    let mut rig = Rig::start_with(&stack, false, binary, |_| {}).await?;
    let worker = rig.worker().await?;
    note(&format!("publishing {} messages of {} bytes", options.messages, options.size));
    let show = Show::start(&rig, options);
    let (mut report, mut worker) = show.play(worker, options, &rig).await?;
    if options.keep {
        keep(&mut rig, &mut worker, dir)?;
        return Ok(report);
    }
    let status = worker.stop().await?;
    if !status.success() {
        report.notes.push(format!("the worker did not stop cleanly: {status}"));
    }
    Ok(report)
}

fn keep(rig: &mut Rig, worker: &mut Worker, dir: &Path) -> Result<()> {
    let processes = rig.stack.processes().chain(std::iter::once(&worker.process));
    local::State::of(processes, rig.launch.environment.clone()).save(dir)?;
    rig.stack.release();
    worker.process.release();
    note("still running (scripts/local down ends it):");
    note(&format!("  worker   http://127.0.0.1:{}", rig.launch.monitor_port));
    note(&format!("  broker   {}", rig.stack.broker.url()));
    note(&format!("  queue    {}", rig.stack.queue_url));
    note(&format!("  store    {} ({})", rig.stack.aws.dynamodb_endpoint, rig.stack.store_name));
    note(&format!("  logs     {}", dir.display()));
    Ok(())
}

/// Publisher and consumers at work, and what was seen of the workers.
struct Show {
    consumer: Consumer,
    publishing: JoinHandle<Result<Published>>,
    progress: Progress,
    bars: Bars,
    started: Instant,
    /// Sums of the workers that are gone.
    gone: Snapshot,
    exposures: Vec<Exposure>,
    steady_reads: Option<u64>,
    restart: Option<Duration>,
}

impl Show {
    fn start(rig: &Rig, options: &Options) -> Self {
        let plan = Plan::new(options.messages, options.size);
        let consumer = Consumer::start(&rig.stack.aws.sqs, &rig.stack.queue_url, CONSUMERS, Ledger::new(plan.clone()));
        let progress = Progress::default();
        let publisher = Publisher { plan, broker_port: rig.stack.broker.port(), numbers: 0..options.messages, rate: options.rate };
        let watched = progress.clone();
        let publishing = tokio::spawn(async move { publisher.run(&watched).await });
        let bars = Bars::new(options.messages);
        Self {
            consumer,
            publishing,
            progress,
            bars,
            started: Instant::now(),
            gone: Snapshot::default(),
            exposures: Vec::new(),
            steady_reads: None,
            restart: None,
        }
    }

    async fn play(mut self, mut worker: Worker, options: &Options, rig: &Rig) -> Result<(Report, Worker)> {
        self.watch_until(&mut worker, options.messages / 5).await?;
        let steady_from = worker.metrics().await?;
        let steady_to = if options.no_kill { options.messages } else { options.messages / 2 };
        self.watch_until(&mut worker, steady_to).await?;
        let steady_end = worker.metrics().await?;
        self.steady_reads = difference(&steady_from, &steady_end, metrics::STORE_READ_CALLS);
        if !options.no_kill {
            worker = self.kill_and_restart(worker, rig, steady_end).await?;
        }
        self.watch_until(&mut worker, options.messages).await?;
        let publishing = std::mem::replace(&mut self.publishing, tokio::spawn(async { bail!("taken") }));
        let published = publishing.await.context("the publisher failed")??;
        let (consumer, bars) = (&self.consumer, &self.bars);
        let progress = &self.progress;
        tokio::select! {
            drained = drain(consumer, &published, &mut worker, PATIENCE) => drained?,
            () = bars.follow(progress, consumer) => {}
        }
        self.bars.finish();
        let seconds = self.started.elapsed().as_secs_f64();
        let last = worker.metrics().await?;
        self.gone.add(&last);
        let ledger = self.consumer.finish().await?;
        let account = ledger.settle(&published, &self.exposures);
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let per_message = |value: Option<f64>| value.map(|value| round(value / (account.published.max(1) as f64)));
        let units = self.gone.get(metrics::STORE_WRITE_UNITS).filter(|_| rig.store() == Store::Dynamodb);
        let report = Report {
            failover_seconds: None,
            restart_seconds: self.restart.map(|took| round(took.as_secs_f64())),
            write_units_per_message: per_message(units),
            sqs_requests_per_message: per_message(self.gone.get(metrics::SQS_REQUESTS)),
            log_reads_in_steady_state: self.steady_reads,
            kills: u32::try_from(self.exposures.len()).unwrap_or(u32::MAX),
            store: if rig.store() == Store::Sqlite { "SQLite".to_owned() } else { rig.stack.store_name.to_owned() },
            rate: options.rate,
            seconds: round(seconds),
            notes: Vec::new(),
            account,
        };
        Ok((report, worker))
    }

    /// Returns when so many messages are published. Fails where the worker or the publisher does before.
    async fn watch_until(&mut self, worker: &mut Worker, count: u64) -> Result<()> {
        while self.progress.acknowledged() < count {
            worker.process.expect_running()?;
            if self.publishing.is_finished() {
                return Ok(());
            }
            self.bars.update(&self.progress, &self.consumer);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn kill_and_restart(&mut self, mut worker: Worker, rig: &Rig, before: Snapshot) -> Result<Worker> {
        self.bars.say(&format!("killing the worker after {} messages", self.progress.acknowledged()));
        worker.process.kill().await?;
        let killed = Instant::now();
        self.exposures.push(Exposure { cause: "a worker was killed".to_owned(), terms: exposure_terms(&rig.settings, Some(&before)) });
        self.gone.add(&before);
        let mut successor = rig.launch.start()?;
        let (progress, consumer, bars) = (&self.progress, &self.consumer, &self.bars);
        tokio::select! {
            ready = successor.ready("subscribed") => ready?,
            () = bars.follow(progress, consumer) => {}
        }
        self.restart = Some(killed.elapsed());
        Ok(successor)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a difference of counters, not negative")]
fn difference(from: &Snapshot, to: &Snapshot, name: &str) -> Option<u64> {
    Some((to.get(name)? - from.get(name).unwrap_or(0.0)).max(0.0) as u64)
}

fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// Two progress bars on standard error, where that is a terminal.
struct Bars {
    all: MultiProgress,
    published: ProgressBar,
    delivered: ProgressBar,
}

impl Bars {
    fn new(messages: u64) -> Self {
        let all = MultiProgress::new();
        let style =
            ProgressStyle::with_template("{prefix:>10} [{bar:40}] {pos}/{len}  {per_sec}").unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = |name: &'static str| all.add(ProgressBar::new(messages).with_style(style.clone()).with_prefix(name));
        let (published, delivered) = (bar("published"), bar("delivered"));
        Self { all, published, delivered }
    }

    fn update(&self, progress: &Progress, consumer: &Consumer) {
        self.published.set_position(progress.acknowledged());
        self.delivered.set_position(consumer.unique());
    }

    /// Keeps the bars moving for as long as it is polled.
    async fn follow(&self, progress: &Progress, consumer: &Consumer) {
        loop {
            self.update(progress, consumer);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn say(&self, line: &str) {
        self.all.suspend(|| note(line));
    }

    fn finish(&self) {
        self.published.finish();
        self.delivered.finish();
    }
}
