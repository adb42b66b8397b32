//! `demo`: telemetry through real processes, a worker killed in the middle, and the ledger.

use crate::cluster::Cluster;
use crate::ledger::consumer::Consumer;
use crate::ledger::payload::Plan;
use crate::ledger::publisher::{Progress, Published, Publisher};
use crate::ledger::report::{Report, Stall};
use crate::ledger::{Exposure, Ledger};
use crate::local;
use crate::metrics::{self, Snapshot};
use crate::proxy::{Fault, Rule};
use crate::rig::{Rig, drain};
use crate::stack::process::Lifetime;
use crate::stack::{StackOptions, Store};
use crate::terminal::{note, result, stop_requested};
use crate::worker::{Role, exposure_terms};
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
    /// Where the outbox is kept. With `dynamodb` two workers and a control process share the session, and when the active one is killed another
    /// takes over; with `sqlite` there is one worker, which is killed and started again.
    #[arg(long, value_enum, default_value = "dynamodb")]
    pub store: Store,
    /// Bytes of a payload.
    #[arg(long, default_value_t = 250)]
    pub size: usize,
    /// Let the worker live.
    #[arg(long)]
    pub no_kill: bool,
    /// Let the queue stand still for so many seconds in the second half, while messages go on coming. At most 1,000 wait in the outbox then; the rest waits
    /// with the broker. What holds is told every second, and shown by the status page.
    #[arg(long, value_name = "S", conflicts_with = "keep", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub stall_sqs: Option<u64>,
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

/// What bounds the outbox, so that a stall shows how the source is held back too.
const BOUNDED: &str = "routes: [{ id: ingest, policy: { max_outbox_depth: 1000 } }]\n";

/// Who shares the session. With a control process, the loss of any one leaves a standby.
const MEMBERS: [(&str, Role); 3] = [("worker-1", Role::Worker), ("worker-2", Role::Worker), ("control", Role::Control)];

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
    let (report, kept) = tokio::select! {
        played = play(options, dir) => played?,
        () = stop_requested() => bail!("interrupted"),
    };
    if options.json {
        note(&report.table());
        report.faults().iter().for_each(|fault| note(&format!("FAULT: {fault}")));
        kept.iter().for_each(|line| note(line));
        result(&report.json());
    } else {
        result(&report.table());
        report.faults().iter().for_each(|fault| result(&format!("FAULT: {fault}")));
        kept.iter().for_each(|line| result(line));
    }
    Ok(report.faults().is_empty())
}

/// The report, and where everything listens that is left running.
async fn play(options: &Options, dir: &Path) -> Result<(Report, Vec<String>)> {
    note("building the worker");
    let binary = crate::worker::binary().await?;
    let stack = StackOptions {
        aws_endpoint: options.aws_endpoint.clone(),
        lifetime: if options.keep { Lifetime::Detached } else { Lifetime::Bound },
        ..StackOptions::bound(dir, options.store)
    };
    note("starting broker, queue and store");
    let shared = options.store == Store::Dynamodb;
    let mut rig = Rig::start_with(&stack, options.stall_sqs.is_some(), binary, |settings| settings.exclusive = shared).await?;
    if options.stall_sqs.is_some() {
        let layer = dir.join("bounded.yaml");
        std::fs::write(&layer, BOUNDED).with_context(|| format!("cannot write {}", layer.display()))?;
        rig.launch.layers.push(layer);
    }
    let (mut cluster, active) = start(&rig).await?;
    note(&format!("publishing {} messages of {} bytes", options.messages, options.size));
    let show = Show::start(&rig, options);
    let (mut report, active) = show.play(&mut cluster, active, options, &rig).await?;
    if options.keep {
        let kept = keep(&mut rig, &mut cluster, dir)?;
        return Ok((report, kept));
    }
    for (name, status) in cluster.stop(active).await? {
        if !status.success() {
            report.notes.push(format!("{name} did not stop cleanly: {status}"));
        }
    }
    Ok((report, Vec::new()))
}

/// Starts the processes; the second of the answer is the active one.
async fn start(rig: &Rig) -> Result<(Cluster, usize)> {
    if rig.settings.exclusive {
        note("starting two workers and a control process");
        let mut cluster = rig.cluster(&MEMBERS)?;
        let active = cluster.holder().await?.member;
        note(&format!("{} is active", cluster.members[active].name()));
        return Ok((cluster, active));
    }
    note("starting the worker");
    let mut cluster = Cluster::alone(&rig.launch, &rig.stack.aws.dynamodb)?;
    cluster.members[0].worker.ready("subscribed").await?;
    Ok((cluster, 0))
}

fn keep(rig: &mut Rig, cluster: &mut Cluster, dir: &Path) -> Result<Vec<String>> {
    let processes = rig.stack.processes().chain(cluster.members.iter().map(|member| &member.worker.process));
    let desk = cluster.members.first().map_or_else(|| rig.launch.environment.clone(), |member| member.launch.desk_environment());
    local::State::of(processes, desk).save(dir)?;
    rig.stack.release();
    let mut lines = vec!["still running (scripts/local down ends it):".to_owned()];
    for member in &mut cluster.members {
        member.worker.process.release();
        lines.push(format!("  {:<8} status page {}/", member.launch.name, member.worker.monitor()));
    }
    lines.push(format!("  the page asks for the admin key where it shows dead letters: {}", crate::worker::ADMIN_KEY));
    lines.push(format!("  broker   {}", rig.stack.broker.url()));
    lines.push(format!("  queue    {}", rig.stack.queue_url));
    lines.push(format!("  store    {} ({})", rig.stack.aws.dynamodb_endpoint, rig.stack.store_name));
    lines.push(format!("  logs     {}", dir.display()));
    let (program, configuration) = (rig.launch.binary.display(), rig.launch.config.display());
    lines.push(format!("  look     . {}; {program} lease list -c {configuration}", local::env_file(dir).display()));
    Ok(lines)
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
    failover: Option<Duration>,
    stall: Option<Stall>,
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
            failover: None,
            stall: None,
        }
    }

    async fn play(mut self, cluster: &mut Cluster, mut active: usize, options: &Options, rig: &Rig) -> Result<(Report, usize)> {
        self.watch_until(cluster, options.messages / 5).await?;
        let steady_from = cluster.members[active].worker.metrics().await?;
        let steady_to = if options.no_kill && options.stall_sqs.is_none() { options.messages } else { options.messages / 2 };
        self.watch_until(cluster, steady_to).await?;
        let steady_end = cluster.members[active].worker.metrics().await?;
        self.steady_reads = difference(&steady_from, &steady_end, metrics::STORE_READ_CALLS);
        if !options.no_kill {
            active = self.kill(cluster, active, rig, steady_end).await?;
        }
        if let Some(seconds) = options.stall_sqs {
            self.stall(cluster, active, rig, Duration::from_secs(seconds)).await?;
        }
        self.watch_until(cluster, options.messages).await?;
        let publishing = std::mem::replace(&mut self.publishing, tokio::spawn(async { bail!("taken") }));
        let published = publishing.await.context("the publisher failed")??;
        let (consumer, bars) = (&self.consumer, &self.bars);
        let progress = &self.progress;
        tokio::select! {
            drained = drain(consumer, &published, PATIENCE, || cluster.expect_running()) => drained?,
            () = bars.follow(progress, consumer) => {}
        }
        self.bars.finish();
        let seconds = self.started.elapsed().as_secs_f64();
        for member in &cluster.members {
            self.gone.add(&member.worker.metrics().await?);
        }
        let ledger = self.consumer.finish().await?;
        let account = ledger.settle(&published, &self.exposures);
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let per_message = |value: Option<f64>| value.map(|value| round(value / (account.published.max(1) as f64)));
        let units = self.gone.get(metrics::STORE_WRITE_UNITS).filter(|_| rig.store() == Store::Dynamodb);
        let report = Report {
            failover_seconds: self.failover.map(|took| round(took.as_secs_f64())),
            restart_seconds: self.restart.map(|took| round(took.as_secs_f64())),
            write_units_per_message: per_message(units),
            sqs_requests_per_message: per_message(self.gone.get(metrics::SQS_REQUESTS)),
            log_reads_in_steady_state: self.steady_reads,
            kills: u32::try_from(self.exposures.len()).unwrap_or(u32::MAX),
            store: if rig.store() == Store::Sqlite { "SQLite".to_owned() } else { rig.stack.store_name.to_owned() },
            rate: options.rate,
            seconds: round(seconds),
            notes: Vec::new(),
            stall: self.stall,
            account,
        };
        Ok((report, active))
    }

    /// Returns when so many messages are published. Fails where a worker or the publisher does before.
    async fn watch_until(&mut self, cluster: &mut Cluster, count: u64) -> Result<()> {
        while self.progress.acknowledged() < count {
            cluster.expect_running()?;
            if self.publishing.is_finished() {
                return Ok(());
            }
            self.bars.update(&self.progress, &self.consumer);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Lets the queue stand still for so long, and tells what holds meanwhile and how it goes on.
    async fn stall(&mut self, cluster: &mut Cluster, active: usize, rig: &Rig, length: Duration) -> Result<()> {
        let sqs = &rig.proxies.as_ref().context("a stall needs a proxy")?.sqs;
        let page = cluster.members[active].worker.monitor().to_owned();
        self.bars.say(&format!("the queue stands still from here on for {} s; {page}/ shows what holds", length.as_secs()));
        let began = Instant::now();
        sqs.inject(Rule::always(Fault::Hang).of("SendMessageBatch"));
        let mut stall = Stall { seconds: round(length.as_secs_f64()), ..Stall::default() };
        let mut told = Duration::ZERO;
        while began.elapsed() < length {
            cluster.expect_running()?;
            let worker = &cluster.members[active].worker;
            let (seen, session) = (worker.metrics().await?, worker.shown().await);
            let paused = session.is_some_and(|session| session["paused"] == true);
            let (outbox, unacknowledged) = (count(&seen, metrics::OUTBOX_PENDING), count(&seen, metrics::UNACKNOWLEDGED));
            stall.most_in_outbox = stall.most_in_outbox.max(outbox);
            stall.most_unacknowledged = stall.most_unacknowledged.max(unacknowledged);
            if paused && stall.paused_after_seconds.is_none() {
                stall.paused_after_seconds = Some(round(began.elapsed().as_secs_f64()));
                self.bars.say("the outbox is full: nothing is taken in, and what comes waits with the broker");
            }
            if began.elapsed() >= told {
                told += Duration::from_secs(1);
                self.bars.say(&format!(
                    "  published {}, in the outbox {outbox}, unacknowledged {unacknowledged}, delivered {}",
                    self.progress.acknowledged(),
                    self.consumer.unique()
                ));
            }
            self.bars.update(&self.progress, &self.consumer);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (healed, before) = (Instant::now(), self.consumer.unique());
        sqs.heal();
        while self.consumer.unique() == before && healed.elapsed() < PATIENCE {
            cluster.expect_running()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stall.resumed_after_seconds = Some(round(healed.elapsed().as_secs_f64())).filter(|_| self.consumer.unique() > before);
        self.bars.say("the queue answers again");
        self.stall = Some(stall);
        Ok(())
    }

    /// Kills the active worker and waits until its successor is at full service, or, where there is none, until it is back itself. Gives who is
    /// active then.
    async fn kill(&mut self, cluster: &mut Cluster, active: usize, rig: &Rig, mut before: Snapshot) -> Result<usize> {
        let former = if rig.settings.exclusive { Some(cluster.holder().await?) } else { None };
        let active = former.as_ref().map_or(active, |former| former.member);
        let member = &mut cluster.members[active];
        if let Ok(latest) = member.worker.metrics().await {
            before = latest;
        }
        self.bars.say(&format!("killing {} after {} messages", member.name(), self.progress.acknowledged()));
        let killed = Instant::now();
        member.worker.process.kill().await?;
        self.exposures.push(Exposure { cause: "a worker was killed".to_owned(), terms: exposure_terms(&rig.settings, Some(&before)) });
        self.gone.add(&before);
        let (progress, consumer, bars) = (&self.progress, &self.consumer, &self.bars);
        let Some(former) = former else {
            tokio::select! {
                ready = async {
                    member.worker = member.launch.start()?;
                    member.worker.ready("subscribed").await
                } => ready?,
                () = bars.follow(progress, consumer) => {}
            }
            self.restart = Some(killed.elapsed());
            return Ok(active);
        };
        let successor = tokio::select! {
            successor = cluster.successor(&former.lease) => successor?,
            () = bars.follow(progress, consumer) => bail!("nobody took over"),
        };
        self.failover = Some(successor.at.duration_since(killed));
        self.bars.say(&format!("{} took over", cluster.members[successor.member].name()));
        // Back as a standby.
        cluster.start_again(active).await?;
        self.restart = Some(killed.elapsed());
        Ok(successor.member)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a gauge that counts, not negative")]
fn count(seen: &Snapshot, name: &str) -> u64 {
    seen.get(name).unwrap_or(0.0).max(0.0) as u64
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
