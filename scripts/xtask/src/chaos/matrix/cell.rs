//! One cell: one delivery mode over one store before one kind of queue, and one harm while messages flow.

use crate::ledger::consumer::Consumer;
use crate::ledger::payload::Plan;
use crate::ledger::publisher::{Progress, Published, Publisher};
use crate::ledger::{Account, Exposure, Ledger};
use crate::metrics;
use crate::proxy::{Fault, Proxy, Rule};
use crate::rig::{Rig, drain};
use crate::stack::{Stack, StackOptions, Store};
use crate::worker::{DeliveryMode, Worker, exposure_terms};
use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long the queue may stay silent while messages are missing.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a process gets to do what a cell waits for.
const REACHED_WITHIN: Duration = Duration::from_secs(300);
const SEND: &str = "SendMessageBatch";

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Harm {
    /// SIGKILL, twice, and started again.
    Kill,
    /// SQS does not answer, then answers nothing but that it is unavailable.
    QueueAway,
    /// Half of the batches have entries refused that may be tried again.
    PartialFailures,
    /// Three of ten calls are throttled, at SQS and at the store.
    Throttling,
}

impl Harm {
    pub(super) const ALL: [Self; 4] = [Self::Kill, Self::QueueAway, Self::PartialFailures, Self::Throttling];

    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::QueueAway => "SQS away",
            Self::PartialFailures => "partial failures",
            Self::Throttling => "throttling 30 %",
        }
    }
}

/// Which cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub mode: DeliveryMode,
    /// `None`: there is no outbox.
    pub store: Option<Store>,
    pub fifo: bool,
    pub harm: Harm,
}

impl Cell {
    /// Every one that there is.
    pub(super) fn all() -> Vec<Self> {
        let stored = [Some(Store::Sqlite), Some(Store::Dynamodb)];
        let modes: [(DeliveryMode, &[Option<Store>]); 3] =
            [(DeliveryMode::SharedOutbox, &stored), (DeliveryMode::DirectHold, &[None]), (DeliveryMode::SpillOutbox, &stored)];
        let mut cells = Vec::new();
        for (mode, stores) in modes {
            for store in stores {
                for fifo in [false, true] {
                    cells.extend(Harm::ALL.map(|harm| Self { mode, store: *store, fifo, harm }));
                }
            }
        }
        cells
    }

    const fn store_name(self) -> &'static str {
        match self.store {
            None => "-",
            Some(Store::Sqlite) => "SQLite",
            Some(Store::Dynamodb) => "DynamoDB",
        }
    }

    const fn queue_name(self) -> &'static str {
        if self.fifo { "FIFO" } else { "standard" }
    }

    /// All four words, for people and for a choice of cells.
    pub(super) fn name(self) -> String {
        format!("{}, {}, {}, {}", self.mode.name(), self.store_name(), self.queue_name(), self.harm.name())
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scale {
    /// Messages of a cell.
    pub messages: u64,
    /// Messages a second.
    pub rate: u64,
    /// How long SQS is away.
    pub outage: Duration,
    /// Cells at a time.
    pub at_once: usize,
}

impl Scale {
    /// What `scripts/chaos --matrix` plays.
    pub const FULL: Self = Self { messages: 7_500, rate: 100, outage: Duration::from_secs(60), at_once: 6 };
    /// What `scripts/test` plays.
    pub const SHORT: Self = Self { messages: 600, rate: 100, outage: Duration::from_secs(4), at_once: 5 };
}

/// What became of a cell.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    mode: &'static str,
    store: &'static str,
    queue: &'static str,
    harm: &'static str,
    pub ok: bool,
    pub published: u64,
    pub lost: u64,
    corrupted: u64,
    duplicates: u64,
    bound: u64,
    /// First sends after a later one of the same key. A standard queue promises none of its order.
    out_of_order: u64,
    /// Calls that were refused or not answered, or processes killed.
    hits: u64,
    seconds: f64,
    /// Everything that is wrong.
    pub faults: Vec<String>,
}

impl Outcome {
    /// What stands above the columns.
    pub(super) const HEADINGS: [&'static str; 11] =
        ["mode", "store", "queue", "harm", "hits", "published", "lost", "changed", "duplicates (bound)", "out of order", "result"];

    pub(super) fn columns(&self) -> [String; 11] {
        let order = if self.queue == "FIFO" { self.out_of_order.to_string() } else { format!("({})", self.out_of_order) };
        [
            self.mode.to_owned(),
            self.store.to_owned(),
            self.queue.to_owned(),
            self.harm.to_owned(),
            self.hits.to_string(),
            self.published.to_string(),
            self.lost.to_string(),
            self.corrupted.to_string(),
            format!("{} ({})", self.duplicates, self.bound),
            order,
            if self.ok { "ok" } else { "FAILED" }.to_owned(),
        ]
    }

    fn new(cell: Cell, seconds: f64, played: Result<Settled>) -> Self {
        let mut outcome = Self {
            mode: cell.mode.name(),
            store: cell.store_name(),
            queue: cell.queue_name(),
            harm: cell.harm.name(),
            ok: false,
            published: 0,
            lost: 0,
            corrupted: 0,
            duplicates: 0,
            bound: 0,
            out_of_order: 0,
            hits: 0,
            seconds: (seconds * 10.0).round() / 10.0,
            faults: Vec::new(),
        };
        match played {
            Err(fault) => outcome.faults.push(format!("{fault:#}")),
            Ok(Settled { account, expected, hits, faults }) => {
                outcome.faults = account.faults();
                outcome.faults.extend(faults);
                if account.published != expected {
                    outcome.faults.push(format!("{} of {expected} messages were published", account.published));
                }
                if cell.fifo && account.order_violations > 0 {
                    outcome.faults.push(format!("{} messages overtook others of their group", account.order_violations));
                }
                if hits == 0 {
                    outcome.faults.push("the harm hit nothing".to_owned());
                }
                (outcome.published, outcome.lost, outcome.corrupted) = (account.published, account.lost, account.corrupted);
                (outcome.duplicates, outcome.bound) = (account.duplicates, account.duplicate_bound);
                (outcome.out_of_order, outcome.hits) = (account.order_violations, hits);
            }
        }
        outcome.ok = outcome.faults.is_empty();
        outcome
    }
}

/// Where a cell is played.
pub(super) struct Place<'a> {
    /// The stack whose AWS services all cells share.
    pub stack: &'a Stack,
    pub binary: PathBuf,
    /// A folder of its own.
    pub dir: PathBuf,
    pub number: usize,
}

/// Plays a cell.
pub(super) async fn play(cell: Cell, scale: Scale, place: Place<'_>) -> Outcome {
    let started = Instant::now();
    let dir = place.dir.clone();
    let played = match Bench::start(cell, scale, place).await {
        Ok(bench) => bench.play(cell.harm).await,
        Err(fault) => Err(fault),
    };
    let mut outcome = Outcome::new(cell, started.elapsed().as_secs_f64(), played);
    if !outcome.ok {
        outcome.faults.push(format!("the end of the worker's log:\n{}", log_tail(&dir)));
    }
    outcome
}

fn log_tail(dir: &Path) -> String {
    let text = std::fs::read(dir.join("worker.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

/// What a bench leaves.
struct Settled {
    account: Account,
    expected: u64,
    hits: u64,
    faults: Vec<String>,
}

/// A broker, a queue, tables or files, a worker and traffic, for one cell alone.
struct Bench {
    rig: Rig,
    scale: Scale,
    worker: Worker,
    consumer: Consumer,
    progress: Progress,
    publishing: JoinHandle<Result<Published>>,
    exposures: Vec<Exposure>,
    kills: u64,
    faults: Vec<String>,
}

impl Bench {
    async fn start(cell: Cell, scale: Scale, place: Place<'_>) -> Result<Self> {
        let Place { stack, binary, dir, number } = place;
        let store = cell.store.unwrap_or(Store::Sqlite);
        let queue = format!("matrix-{number}{}", if cell.fifo { ".fifo" } else { "" });
        let stack = stack.beside(&dir, &queue).await?;
        let rig = Rig::on(stack, &StackOptions::bound(&dir, store), Some(std::net::Ipv4Addr::LOCALHOST), binary, |settings| {
            settings.delivery_mode = cell.mode;
            settings.fifo = cell.fifo;
            settings.tables = format!("matrix-{number}");
        })
        .await?;
        if store == Store::Dynamodb {
            rig.launch.create_stores().await?;
        }
        let worker = rig.worker().await?;
        let plan = Plan::new(scale.messages, 250);
        let consumer = Consumer::start(&rig.stack.aws.sqs, &rig.stack.queue_url, 2, Ledger::new(plan.clone()));
        let progress = Progress::default();
        let publisher = Publisher { numbers: 0..plan.messages, plan, broker_port: rig.stack.broker.port(), rate: scale.rate };
        let watched = progress.clone();
        let publishing = tokio::spawn(async move { publisher.run(&watched).await });
        Ok(Self { rig, scale, worker, consumer, progress, publishing, exposures: Vec::new(), kills: 0, faults: Vec::new() })
    }

    async fn play(mut self, harm: Harm) -> Result<Settled> {
        match harm {
            Harm::Kill => {
                for third in [1, 2] {
                    self.published(self.scale.messages * third / 3).await?;
                    self.kill().await?;
                }
            }
            Harm::QueueAway => {
                self.published(self.scale.messages / 10).await?;
                self.away().await?;
            }
            Harm::PartialFailures => {
                let refusals = Fault::RefuseEntries { count: 3, code: "InternalError".to_owned(), sender_fault: false };
                self.sqs()?.inject(Rule::always(refusals).of(SEND).percent(50));
            }
            Harm::Throttling => {
                let throttled = |code: &str| Rule::always(Fault::FailBefore { status: 400, code: code.to_owned() }).percent(30);
                self.sqs()?.inject(throttled("com.amazonaws.sqs#ThrottlingException"));
                self.store()?.inject(throttled("com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"));
            }
        }
        self.published(self.scale.messages).await?;
        self.sqs()?.heal();
        self.store()?.heal();
        self.settle().await
    }

    /// Nothing reaches the queue: half of the time nobody answers, then somebody refuses. What is published meanwhile must wait, or SQS was not away.
    async fn away(&mut self) -> Result<()> {
        let sqs = self.sqs()?;
        sqs.inject(Rule::always(Fault::ResetBefore));
        tokio::time::sleep(self.scale.outage / 2).await;
        sqs.supersede(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
        tokio::time::sleep(self.scale.outage / 2).await;
        ensure!(self.consumer.unique() < self.progress.acknowledged(), "all that was published arrived while SQS was away");
        sqs.heal();
        Ok(())
    }

    async fn kill(&mut self) -> Result<()> {
        let before = self.worker.metrics().await.ok();
        self.worker.process.kill().await?;
        self.kills += 1;
        let terms = exposure_terms(&self.rig.settings, before.as_ref());
        self.exposures.push(Exposure { cause: "the worker was killed".to_owned(), terms });
        self.worker = self.rig.worker().await?;
        Ok(())
    }

    async fn published(&mut self, count: u64) -> Result<()> {
        let deadline = Instant::now() + REACHED_WITHIN;
        while self.progress.acknowledged() < count {
            self.worker.process.expect_running()?;
            ensure!(!self.publishing.is_finished() || self.progress.acknowledged() >= count, "the publisher ended early");
            ensure!(Instant::now() < deadline, "{} of {count} messages are published", self.progress.acknowledged());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Drains, stops the worker cleanly, and settles the account.
    async fn settle(mut self) -> Result<Settled> {
        let hits = self.kills + self.sqs()?.injected() + self.store()?.injected();
        let published = self.publishing.await.context("the publisher failed")??;
        drain(&self.consumer, &published, PATIENCE, || self.worker.process.expect_running()).await?;
        self.faults.extend(imbalance(&self.worker).await?);
        let status = self.worker.stop().await?;
        if !status.success() {
            self.faults.push(format!("a clean stop ended with {status}"));
        }
        // What a clean stop were to repeat would arrive now.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let account = self.consumer.finish().await?.settle(&published, &self.exposures);
        Ok(Settled { account, expected: self.scale.messages, hits, faults: self.faults })
    }

    fn sqs(&self) -> Result<&Proxy> {
        self.rig.proxies.as_ref().map(|proxies| &proxies.sqs).context("no proxies")
    }

    fn store(&self) -> Result<&Proxy> {
        self.rig.proxies.as_ref().map(|proxies| &proxies.dynamodb).context("no proxies")
    }
}

/// Whether the worker's own sums add up: received is settled, dropped for a reason, or waiting.
async fn imbalance(worker: &Worker) -> Result<Option<String>> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let sum = worker.metrics().await?.get(metrics::CONSERVATION_IMBALANCE).context("the worker does not tell its imbalance")?;
        if sum == 0.0 {
            return Ok(None);
        }
        if Instant::now() > deadline {
            return Ok(Some(format!("the worker's own sums do not add up by {sum}")));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn the_cells_are_every_mode_over_every_store_it_has_before_both_queues_under_every_harm() {
        let cells = Cell::all();
        assert_eq!(cells.len(), (2 + 1 + 2) * 2 * 4);
        let names: std::collections::BTreeSet<String> = cells.iter().map(|cell| cell.name()).collect();
        assert_eq!(names.len(), cells.len());
        assert!(cells.iter().all(|cell| (cell.mode == DeliveryMode::DirectHold) == cell.store.is_none()));
    }

    #[test]
    fn a_cell_fails_for_each_promise_that_was_broken() {
        let cell = Cell { mode: DeliveryMode::SpillOutbox, store: Some(Store::Sqlite), fifo: true, harm: Harm::Kill };
        let account = Ledger::new(Plan::new(10, 250)).settle(&Published::default(), &[]);
        let settled = |account: Account, hits| Ok(Settled { account, expected: 0, hits, faults: Vec::new() });
        assert!(Outcome::new(cell, 1.0, settled(account.clone(), 1)).ok);
        assert!(!Outcome::new(cell, 1.0, settled(account.clone(), 0)).ok, "a harm that hit nothing proves nothing");
        for broken in [
            Account { lost: 1, ..account.clone() },
            Account { corrupted: 1, ..account.clone() },
            Account { duplicates: 1, ..account.clone() },
            Account { published: 1, ..account.clone() },
            Account { order_violations: 1, ..account.clone() },
        ] {
            assert!(!Outcome::new(cell, 1.0, settled(broken.clone(), 1)).ok, "{broken:?}");
        }
        let standard = Cell { fifo: false, ..cell };
        assert!(Outcome::new(standard, 1.0, settled(Account { order_violations: 1, ..account }, 1)).ok, "it promises no order");
        assert!(!Outcome::new(cell, 1.0, Err(anyhow::anyhow!("no broker"))).ok);
    }
}
