//! What the end-to-end tests have in common: a run of real processes with a publisher at one end and consumers at the other.

mod backlog;
pub mod browser;
pub mod log;
pub mod runbook;
pub mod wire;

use anyhow::{Context as _, Result, bail, ensure};
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wire::Tap;
use xtask::cluster::Cluster;
use xtask::fleet::Fleet;
use xtask::ledger::consumer::Consumer;
use xtask::ledger::payload::Plan;
use xtask::ledger::publisher::{Progress, Published, Publisher};
use xtask::ledger::{Account, Exposure, Ledger};
use xtask::metrics::Snapshot;
use xtask::proxy::Proxy;
use xtask::rig::{Rig, drain};
use xtask::stack::aws::explain;
use xtask::stack::{StackOptions, Store};
use xtask::worker::{DeliveryMode, Role, Settings, Worker, exposure_terms};

/// How long the queue may stay silent while messages are missing, before the test gives up and the ledger says what is lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells a layer of the configuration where the second queue is.
const RELAY_QUEUE_URL: &str = "CAUSEWAY_RELAY_QUEUE_URL";

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the worker keeps its outbox.
    pub store: Store,
    /// How many messages the plan holds.
    pub messages: u64,
    /// Bytes of a payload.
    pub size: usize,
    /// Whether the broker keeps its state over a restart.
    pub broker_persistence: bool,
    /// Whether proxies stand between the worker and its services.
    pub proxies: bool,
    /// Processes that share the session. Empty: one worker has it to itself.
    pub members: &'static [(&'static str, Role)],
    /// Whether they are tasks of a cluster, which tells after so many seconds that one has stopped. Their leases last for long then.
    pub stopped_after: Option<u16>,
    /// Whether they share a subscription instead, each with a log of its own.
    pub shared_subscription: bool,
    /// `stores.dlq.options.retention`, in seconds.
    pub dlq_retention: Option<u64>,
    /// Lanes of the session's log.
    pub lanes: u32,
    /// When the source is acknowledged.
    pub delivery_mode: DeliveryMode,
    /// After how many milliseconds a message that is only held goes into the outbox, where it does.
    pub spill_after_ms: u32,
    /// Whether the queue is a FIFO queue.
    pub fifo: bool,
    /// Sends at a time. `None`: as many as the program has by default.
    pub max_in_flight: Option<u32>,
    /// A file on top of the configuration, for ways that messages take beside the usual one; `${CAUSEWAY_RELAY_QUEUE_URL}` stands for a second queue there.
    pub layer: Option<&'static str>,
    /// Whether messages arrive with the topic that they were published to.
    pub keeps_topics: bool,
    /// How many topics the messages go to.
    pub topics: u64,
    /// Whether noise fills the payloads, which packs badly.
    pub noise: bool,
    /// Whether a tap is on the wire between workers and broker. It reads MQTT 5.
    pub tap: bool,
    /// What the broker's listener for workers is, where it is not the plain one of publishers.
    pub listener: Option<Listener>,
}

impl Setup {
    /// A run without proxies over a broker that keeps its state.
    #[must_use]
    pub fn new(store: Store, messages: u64) -> Self {
        Self {
            store,
            messages,
            size: 250,
            broker_persistence: true,
            proxies: false,
            members: &[],
            stopped_after: None,
            shared_subscription: false,
            dlq_retention: None,
            lanes: 1,
            delivery_mode: DeliveryMode::default(),
            spill_after_ms: 250,
            fifo: false,
            max_in_flight: None,
            layer: None,
            keeps_topics: true,
            topics: 50,
            noise: true,
            tap: false,
            listener: None,
        }
    }
}

/// A listener of the broker.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The scheme of its address.
    pub scheme: &'static str,
    /// The path of its address.
    pub path: &'static str,
    /// What it is: lines of mosquitto's configuration.
    pub kind: String,
}

/// A run.
#[derive(Debug)]
pub struct Run {
    /// Stack and launch.
    pub rig: Rig,
    /// The consumers.
    pub consumer: Consumer,
    /// The tap on the wire to the broker, where one is wanted.
    pub tap: Option<Tap>,
    /// How far the publisher is.
    pub progress: Progress,
    /// Whatever may have caused repetitions so far.
    pub exposures: Vec<Exposure>,
    plan: Plan,
    worker: Option<Worker>,
    cluster: Option<Cluster>,
    fleet: Option<Fleet>,
    publishing: Option<JoinHandle<Result<Published>>>,
    published: Published,
    // Dropped last: the processes write into it.
    _dir: TempDir,
}

impl Run {
    /// Starts everything, the worker included.
    ///
    /// # Errors
    /// A part does not start.
    pub async fn start(setup: &Setup) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("causeway-e2e-").tempdir()?;
        let options = StackOptions {
            broker_persistence: setup.broker_persistence,
            second_listener: setup.listener.as_ref().map(|listener| listener.kind.clone()),
            ..StackOptions::bound(dir.path(), setup.store)
        };
        let binary = xtask::worker::binary().await?;
        let shared = !setup.members.is_empty();
        let mut rig = Rig::start_with(&options, setup.proxies, binary, |settings| {
            settings.exclusive = shared;
            settings.asks_ecs = setup.stopped_after.is_some();
            settings.shared_subscription = setup.shared_subscription;
            settings.dlq_retention = setup.dlq_retention;
            settings.lanes = setup.lanes;
            settings.delivery_mode = setup.delivery_mode;
            settings.spill_after_ms = setup.spill_after_ms;
            settings.max_in_flight = setup.max_in_flight.unwrap_or(settings.max_in_flight);
        })
        .await?;
        if setup.fifo {
            use_fifo_queue(&mut rig).await?;
        }
        let tap = if setup.tap { Some(Tap::start(rig.stack.broker.port()).await?) } else { None };
        if let Some(tap) = &tap {
            rig.reach_broker_at(&tap.url())?;
        }
        if let (Some(listener), Some(port)) = (&setup.listener, rig.stack.broker.second_port()) {
            rig.reach_broker_at(&format!("{}://localhost:{port}{}", listener.scheme, listener.path))?;
        }
        if let Some(layer) = setup.layer {
            let path = dir.path().join("layer.yaml");
            std::fs::write(&path, layer).context("cannot write the layer")?;
            rig.launch.layers.push(path);
            let relay = rig.stack.aws.create_queue("relay").await?;
            rig.launch.environment.insert(RELAY_QUEUE_URL.to_owned(), relay);
        }
        let plan = Plan { devices: setup.topics, noise: setup.noise, ..Plan::new(setup.messages, setup.size) };
        let ledger = Ledger::new(plan.clone());
        let ledger = if setup.keeps_topics { ledger } else { ledger.of_any_topic() };
        let consumer = Consumer::start(&rig.stack.aws.sqs, &rig.settings.queue_url, 4, ledger);
        let mut run = Self {
            rig,
            consumer,
            tap,
            progress: Progress::default(),
            exposures: Vec::new(),
            plan,
            worker: None,
            cluster: None,
            fleet: None,
            publishing: None,
            published: Published::default(),
            _dir: dir,
        };
        if let Some(after) = setup.stopped_after {
            let mut launches = run.rig.launches(setup.members)?;
            run.fleet = Some(Fleet::start(after, &mut launches).await?);
            run.cluster = Some(Cluster::start(&launches, &run.rig.stack.aws.dynamodb)?);
        } else if shared {
            run.cluster = Some(run.rig.cluster(setup.members)?);
        } else {
            run.start_worker().await?;
        }
        Ok(run)
    }

    /// What is published.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the processes are tasks of, and the processes.
    ///
    /// # Errors
    /// They are no tasks.
    pub fn fleet(&mut self) -> Result<(&Fleet, &mut Cluster)> {
        self.fleet.as_ref().zip(self.cluster.as_mut()).context("the processes are no tasks")
    }

    /// Stops all processes that share the session with SIGTERM, the owner last.
    ///
    /// # Errors
    /// One does not end with 0.
    pub async fn stop_members(&mut self) -> Result<()> {
        let mut cluster = self.cluster.take().context("one worker has the session to itself")?;
        let owner = cluster.holder().await?.member;
        for (name, status) in cluster.stop(owner).await? {
            ensure!(status.success(), "a clean stop of {name} ended with {status}\n{}", cluster.log_tails());
        }
        Ok(())
    }

    /// Starts processes that share the session, after all others are gone.
    ///
    /// # Errors
    /// Some run, or one cannot be started.
    pub fn start_members(&mut self, members: &[(&str, Role)]) -> Result<()> {
        ensure!(self.cluster.is_none() && self.worker.is_none(), "processes run already");
        self.cluster = Some(self.rig.cluster(members)?);
        Ok(())
    }

    /// Copies every row of every table into new tables, whose names begin with `prefix`, and configures those.
    ///
    /// # Errors
    /// DynamoDB refuses, or the program does not make the tables.
    pub async fn restore_tables(&mut self, prefix: &str) -> Result<()> {
        let former = std::mem::replace(&mut self.rig.settings.tables, prefix.to_owned());
        self.write_configuration()?;
        self.rig.launch.create_stores().await?;
        for role in ["outbox", "dlq", "leases", "managed-subscriptions"] {
            copy_rows(&self.rig.stack.aws.dynamodb, &format!("{former}-{role}"), &format!("{prefix}-{role}")).await?;
        }
        Ok(())
    }

    fn write_configuration(&self) -> Result<()> {
        std::fs::write(&self.rig.launch.config, self.rig.settings.render()).context("cannot write the worker's configuration")
    }

    /// The processes that share the session.
    ///
    /// # Errors
    /// The run was set up with one worker.
    pub fn cluster(&mut self) -> Result<&mut Cluster> {
        self.cluster.as_mut().context("one worker has the session to itself")
    }

    /// Notes what the end or the pause of a member may repeat, after the metrics that it reported last.
    pub fn expose_member(&mut self, cause: &str, reported: &Snapshot) {
        self.expose(cause, exposure_terms(&self.rig.settings, Some(reported)));
    }

    /// The worker that runs.
    ///
    /// # Errors
    /// None runs.
    pub fn worker(&mut self) -> Result<&mut Worker> {
        self.worker.as_mut().context("no worker runs")
    }

    /// Its metrics.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn metrics(&self) -> Result<Snapshot> {
        self.worker.as_ref().context("no worker runs")?.metrics().await
    }

    /// The proxy in front of SQS.
    ///
    /// # Errors
    /// The run was set up without.
    pub fn sqs(&self) -> Result<&Proxy> {
        self.rig.proxies.as_ref().map(|proxies| &proxies.sqs).context("no proxies")
    }

    /// The proxy in front of DynamoDB.
    ///
    /// # Errors
    /// The run was set up without.
    pub fn dynamodb(&self) -> Result<&Proxy> {
        self.rig.proxies.as_ref().map(|proxies| &proxies.dynamodb).context("no proxies")
    }

    /// Starts publishing the messages `numbers` in the background.
    pub fn publish(&mut self, numbers: std::ops::Range<u64>, rate: u64) {
        let publisher = Publisher { plan: self.plan.clone(), broker_port: self.rig.stack.broker.port(), numbers, rate };
        let progress = self.progress.clone();
        self.publishing = Some(tokio::spawn(async move { publisher.run(&progress).await }));
    }

    /// Waits until the publisher is through with what it was given.
    ///
    /// # Errors
    /// It failed.
    pub async fn publishing_done(&mut self) -> Result<()> {
        if let Some(publishing) = self.publishing.take() {
            self.published.merge(publishing.await.context("the publisher failed")??);
        }
        Ok(())
    }

    /// Waits until so many messages were acknowledged by the broker, in all.
    ///
    /// # Errors
    /// The publisher ended before.
    pub async fn published(&mut self, count: u64) -> Result<()> {
        while self.progress.acknowledged() < count {
            if self.publishing.as_ref().is_none_or(JoinHandle::is_finished) {
                self.publishing_done().await?;
                ensure!(self.progress.acknowledged() >= count, "the publisher is through after {} messages", self.progress.acknowledged());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Waits until so many different messages arrived at the other end.
    ///
    /// # Errors
    /// Nothing arrives any more.
    pub async fn delivered(&self, count: u64) -> Result<()> {
        self.delivered_with_patience(count, PATIENCE).await
    }

    /// The same where nothing may arrive for longer than usual: until the lease of a dead process has run out, say.
    ///
    /// # Errors
    /// Nothing has arrived for longer than `patience`.
    pub async fn delivered_with_patience(&self, count: u64, patience: Duration) -> Result<()> {
        let started = Instant::now();
        while self.consumer.unique() < count {
            if self.consumer.idle().min(started.elapsed()) > patience {
                bail!("{} of {count} messages arrived; the end of the worker's log:\n{}", self.consumer.unique(), self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Waits until a metric of the worker is at least `value`.
    ///
    /// # Errors
    /// It is not.
    pub async fn metric_reaches(&self, name: &str, value: f64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = self.metrics().await.ok().and_then(|metrics| metrics.get(name)).unwrap_or(0.0);
            if now >= value {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{name} is {now}, not {value}; the end of the worker's log:\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Kills the worker with SIGKILL and notes what that may repeat.
    ///
    /// # Errors
    /// None runs.
    pub async fn kill(&mut self) -> Result<()> {
        let mut worker = self.worker.take().context("no worker runs")?;
        let before = worker.metrics().await.ok();
        worker.process.kill().await?;
        self.expose("the worker was killed", exposure_terms(&self.rig.settings, before.as_ref()));
        Ok(())
    }

    /// Stops the worker with SIGTERM, which repeats nothing.
    ///
    /// # Errors
    /// None runs, or it does not end with 0.
    pub async fn stop(&mut self) -> Result<()> {
        let mut worker = self.worker.take().context("no worker runs")?;
        let status = worker.stop().await?;
        ensure!(status.success(), "a clean stop ended with {status}; the end of the log:\n{}", worker.process.log_tail(30));
        Ok(())
    }

    /// Starts a worker and waits until it has subscribed.
    ///
    /// # Errors
    /// One runs, or it does not become ready.
    pub async fn start_worker(&mut self) -> Result<()> {
        ensure!(self.worker.is_none(), "a worker runs already");
        self.worker = Some(self.rig.worker().await?);
        Ok(())
    }

    /// Configures another number of lanes. A process takes it up when it starts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn configure_lanes(&mut self, lanes: u32) -> Result<()> {
        self.rig.settings.lanes = lanes;
        self.write_configuration()
    }

    /// How many lanes the registry tells of.
    ///
    /// # Errors
    /// The program cannot read the store.
    pub async fn registered_lanes(&self) -> Result<u64> {
        let config = self.rig.launch.config.to_string_lossy();
        let told = self.rig.launch.run(&["outbox", "list", "--json", "-c", &*config]).await?;
        let told: serde_json::Value = serde_json::from_str(&told)?;
        let logs = told["logs"].as_array().context("no logs")?;
        let lanes = logs.first().and_then(|log| log["lanes"].as_u64()).context("no lanes")?;
        ensure!(logs.len() as u64 == lanes, "{lanes} lanes are registered, and {} told of", logs.len());
        Ok(lanes)
    }

    /// Waits until the registry tells of so many lanes. A change that finds messages under way may be put off for a minute.
    ///
    /// # Errors
    /// It does not.
    pub async fn lanes_become(&self, lanes: u64) -> Result<()> {
        let deadline = Instant::now() + 3 * PATIENCE;
        loop {
            let now = self.registered_lanes().await?;
            if now == lanes {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{now} lanes are registered, not {lanes}; the end of the worker's log:\n{}",
                self.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Notes that these messages were handed to the bridge by another way than its broker, and accepted.
    pub fn posted(&mut self, numbers: std::ops::Range<u64>) {
        self.published.acknowledged.extend(numbers);
    }

    /// Notes that something may have repeated messages.
    pub fn expose(&mut self, cause: &str, terms: Vec<(String, u64)>) {
        self.exposures.push(Exposure { cause: cause.to_owned(), terms });
    }

    /// Waits until everything is delivered, stops the worker cleanly and settles the account.
    ///
    /// # Errors
    /// A process failed.
    pub async fn finish(self) -> Result<Account> {
        let (account, log) = self.settle().await?;
        let faults = account.faults();
        ensure!(faults.is_empty(), "{}\n{account:#?}\nthe end of the worker's log:\n{log}", faults.join("; "));
        Ok(account)
    }

    /// The same without a judgement: for a broker that may forget what it had handed to a process. Gives the ends of the logs too.
    ///
    /// # Errors
    /// A process failed.
    pub async fn settle(mut self) -> Result<(Account, String)> {
        self.publishing_done().await?;
        if let Some(mut cluster) = self.cluster.take() {
            drain(&self.consumer, &self.published, PATIENCE, || cluster.expect_running()).await?;
            // Where each has a log of its own nobody takes over from the last one.
            let active = if self.rig.settings.shared_subscription { 0 } else { cluster.holder().await?.member };
            for (name, status) in cluster.stop(active).await? {
                ensure!(status.success(), "a clean stop of {name} ended with {status}\n{}", cluster.log_tails());
            }
        } else {
            let mut worker = self.worker.take().context("no worker runs")?;
            drain(&self.consumer, &self.published, PATIENCE, || worker.process.expect_running()).await?;
            self.worker = Some(worker);
            self.stop().await?;
        }
        // What a clean stop were to repeat would arrive now.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let log = self.log_tail();
        let account = self.consumer.finish().await?.settle(&self.published, &self.exposures);
        Ok((account, log))
    }

    /// The default limits, for terms of an exposure.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.rig.settings
    }

    fn log_tail(&self) -> String {
        let dir = &self.rig.launch.dir;
        let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("worker") && name.ends_with(".log")).collect();
        names.sort_unstable();
        let tail = |name: &String| {
            let text = std::fs::read(dir.join(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            format!("{name}:\n{}\n", lines[lines.len().saturating_sub(40)..].join("\n"))
        };
        names.iter().map(tail).collect()
    }
}

/// Configures a FIFO queue, which is made now, in the place of the one that the template has.
///
/// # Errors
/// It cannot be made.
pub async fn use_fifo_queue(rig: &mut Rig) -> Result<()> {
    rig.settings.queue_url = rig.stack.aws.create_queue("in-order.fifo").await?;
    rig.settings.fifo = true;
    std::fs::write(&rig.launch.config, rig.settings.render()).context("cannot write the worker's configuration")
}

async fn copy_rows(dynamodb: &aws_sdk_dynamodb::Client, from: &str, to: &str) -> Result<()> {
    let mut start = None;
    loop {
        let page = dynamodb.scan().table_name(from).consistent_read(true).set_exclusive_start_key(start).send().await;
        let page = page.map_err(|fault| anyhow::anyhow!("cannot read {from}: {}", explain(&fault)))?;
        for item in page.items.unwrap_or_default() {
            let put = dynamodb.put_item().table_name(to).set_item(Some(item)).send().await;
            put.map_err(|fault| anyhow::anyhow!("cannot write {to}: {}", explain(&fault)))?;
        }
        start = page.last_evaluated_key;
        if start.is_none() {
            return Ok(());
        }
    }
}
