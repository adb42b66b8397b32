//! Three workers under load, what a scenario does to them, and the account at the end.

use super::Options;
use super::outcome::Outcome;
use super::scenario::Scenario;
use crate::cluster::{Cluster, HandOver, Lease};
use crate::ledger::consumer::Consumer;
use crate::ledger::payload::Plan;
use crate::ledger::publisher::{Progress, Published, Publisher};
use crate::ledger::{Account, Ledger};
use crate::metrics;
use crate::network::{Ground, Link, Network};
use crate::proxy::Proxy;
use crate::random::Random;
use crate::rig::{Rig, drain};
use crate::stack::{StackOptions, Store};
use crate::worker::{Role, SESSION};
use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const MEMBERS: [(&str, Role); 3] = [("worker-1", Role::Worker), ("worker-2", Role::Worker), ("worker-3", Role::Worker)];
pub(super) const NAMES: [&str; 3] = [MEMBERS[0].0, MEMBERS[1].0, MEMBERS[2].0];
/// After how many seconds without a broker an owner gives the session up.
const STEP_DOWN: u16 = 3;
const KEEP_ALIVE: u16 = 4;
/// How long the queue may stay silent while messages are missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stack, a network, and three workers that share a session.
#[derive(Debug)]
pub(super) struct Field {
    pub cluster: Cluster,
    pub network: Network,
    pub rig: Rig,
    terms: Terms,
}

/// What the program computes for the configuration, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub owner_death: f64,
    pub broker_path: f64,
    pub call_timeout: f64,
    pub renew_interval: f64,
}

impl Field {
    pub(super) async fn start(binary: PathBuf, options: &StackOptions) -> Result<Self> {
        let ground = Ground::find().await;
        let rig = Rig::start_on(options, Some(ground.address()), binary, |settings| {
            settings.exclusive = true;
            settings.logins = true;
            settings.keep_alive = KEEP_ALIVE;
            settings.broker_health_step_down = Some(STEP_DOWN);
        })
        .await?;
        ensure!(options.store == Store::Dynamodb, "a session is shared through DynamoDB");
        let network = rig.network(ground, &NAMES).await?;
        let launches = rig.launches(&MEMBERS)?.into_iter().enumerate().map(|(number, launch)| launch.over(network.link(number)));
        let mut cluster = Cluster::start(&launches.collect::<Vec<_>>(), &rig.stack.aws.dynamodb)?;
        cluster.holder().await?;
        let terms = Self::terms(&rig).await?;
        Ok(Self { cluster, network, rig, terms })
    }

    async fn terms(rig: &Rig) -> Result<Terms> {
        let text = rig.launch.run(&["budget", &rig.launch.config.to_string_lossy(), "--json"]).await?;
        let all: serde_json::Value = serde_json::from_str(&text).context("the budget is not JSON")?;
        let session = all.as_array().into_iter().flatten().find(|one| one["session_id"] == SESSION).context("there is no budget")?;
        let number = |value: &serde_json::Value| value.as_f64().context("the budget lacks a term");
        Ok(Terms {
            owner_death: number(&session["owner_death"])?,
            broker_path: number(&session["broker_path"])? + rig.settings.broker_silence(),
            call_timeout: number(&session["terms"]["renew_call_timeout"])?,
            renew_interval: number(&session["terms"]["renew_interval"])?,
        })
    }

    fn proxies(&self) -> Result<(&Proxy, &Proxy)> {
        self.rig.proxies.as_ref().map(|proxies| (&proxies.dynamodb, &proxies.sqs)).context("no proxies")
    }

    /// Ends all faults, starts whoever is gone, and waits for an owner at full service.
    async fn restore(&mut self) -> Result<HandOver> {
        let (store, queue) = self.proxies()?;
        store.heal();
        queue.heal();
        self.network.heal().await?;
        for member in 0..self.cluster.members.len() {
            if self.cluster.members[member].worker.process.exited()?.is_some() {
                self.cluster.start_again(member).await?;
            }
        }
        self.cluster.holder().await
    }

    /// The largest exposure that anybody reports who answers.
    async fn peak(&self) -> u64 {
        let mut peak = 0;
        for member in &self.cluster.members {
            let reported = tokio::time::timeout(Duration::from_secs(2), member.worker.metrics()).await;
            let value = reported.ok().and_then(Result::ok).and_then(|metrics| metrics.get(metrics::DUPLICATE_EXPOSURE_PEAK));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of messages, not negative")]
            let value = value.unwrap_or(0.0).max(0.0) as u64;
            peak = peak.max(value);
        }
        peak
    }
}

/// One scenario at work.
pub(super) struct Stage<'a> {
    pub field: &'a mut Field,
    pub random: Random,
    pub terms: Terms,
    pub short: bool,
    pub notes: Vec<String>,
    /// Times from a fault to full service, with the computed worst case.
    failovers: Vec<(f64, f64)>,
    /// Hand-overs that repeat nothing.
    clean: u64,
    /// What the former owner reported before each of the others that were waited for.
    exposures: Vec<u64>,
    /// Whether the broker was to forget.
    pub broker_forgets: bool,
    peak: u64,
    /// Connections to the broker before.
    connections: u64,
    first: Lease,
    scenario: Scenario,
    seed: u64,
    started: Instant,
    traffic: Option<Traffic>,
    rate: u64,
    bar: ProgressBar,
}

struct Traffic {
    consumer: Consumer,
    progress: Progress,
    publishing: JoinHandle<Result<Published>>,
    since: Instant,
}

impl<'a> Stage<'a> {
    pub(super) async fn open(
        field: &'a mut Field,
        scenario: Scenario,
        seed: u64,
        mut random: Random,
        options: &Options,
        bar: ProgressBar,
    ) -> Result<Self> {
        bar.set_message(format!("{}: waiting for an owner at full service", scenario.name()));
        let first = field.restore().await?.lease;
        let (store, queue) = field.proxies()?;
        store.seed(random.next());
        queue.seed(random.next());
        field.network.witness().forget();
        let (terms, connections) = (field.terms, field.network.witness().connections());
        let mut stage = Self {
            field,
            random,
            terms,
            short: options.short,
            notes: Vec::new(),
            failovers: Vec::new(),
            clean: 0,
            exposures: Vec::new(),
            broker_forgets: false,
            peak: 0,
            connections,
            first,
            scenario,
            seed,
            started: Instant::now(),
            traffic: None,
            rate: options.rate,
            bar,
        };
        if scenario.has_traffic() {
            stage.traffic = Some(stage.start_traffic());
            stage.say("messages flow");
            let pause = stage.draw_ms(1_000, 2_000);
            stage.wait(pause).await;
        }
        Ok(stage)
    }

    fn start_traffic(&self) -> Traffic {
        let rig = &self.field.rig;
        let plan = Plan::new(u64::MAX >> 16, 250);
        let consumer = Consumer::start(&rig.stack.aws.sqs, &rig.stack.queue_url, 4, Ledger::new(plan.clone()));
        let progress = Progress::default();
        let publisher = Publisher { numbers: 0..plan.messages, plan, broker_port: rig.stack.broker.port(), rate: self.rate };
        let watched = progress.clone();
        let publishing = tokio::spawn(async move { publisher.run(&watched).await });
        Traffic { consumer, progress, publishing, since: Instant::now() }
    }

    pub(super) fn say(&self, what: &str) {
        self.bar.set_message(format!("{}: {what}", self.scenario.name()));
    }

    pub(super) fn note(&mut self, what: String) {
        self.notes.push(what);
    }

    /// A time between these, which the seed decides.
    pub(super) fn draw_ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.random.between(least, most))
    }

    pub(super) async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    pub(super) fn store(&self) -> Result<&Proxy> {
        self.field.proxies().map(|(store, _)| store)
    }

    pub(super) fn queue(&self) -> Result<&Proxy> {
        self.field.proxies().map(|(_, queue)| queue)
    }

    pub(super) fn link(&self, member: usize) -> Result<&Link> {
        let name = self.field.cluster.members[member].name();
        let number = NAMES.iter().position(|one| *one == name).with_context(|| format!("{name} has no link"))?;
        Ok(self.field.network.link(number))
    }

    /// The owner, held against the lease row. What it reports to repeat, should it go now, is noted.
    pub(super) async fn owner(&mut self) -> Result<HandOver> {
        let owner = self.field.cluster.holder().await?;
        self.peak = self.field.peak().await;
        Ok(owner)
    }

    /// Waits for the successor, and notes how long it took.
    pub(super) async fn successor(&mut self, former: &HandOver, since: Instant, budget: f64) -> Result<HandOver> {
        self.say("waiting for the successor");
        let successor = self.field.cluster.successor(&former.lease).await?;
        self.failovers.push((successor.at.duration_since(since).as_secs_f64(), budget));
        self.exposures.push(self.peak);
        Ok(successor)
    }

    /// The hand-over that was just waited for must repeat nothing.
    pub(super) fn clean_hand_over(&mut self) {
        self.exposures.pop();
        self.clean += 1;
    }

    /// Ends the scenario: heals, drains, and settles the account.
    pub(super) async fn close(mut self, played: Result<()>) -> Outcome {
        let mut outcome = Outcome { name: self.scenario.name(), seed: self.seed, ..Outcome::default() };
        if let Err(fault) = played {
            outcome.faults.push(format!("{fault:#}"));
        }
        if let Err(fault) = self.settle(&mut outcome).await {
            outcome.faults.push(format!("{fault:#}"));
        }
        outcome.seconds = self.started.elapsed().as_secs_f64();
        outcome.failovers = self.failovers.iter().map(|(seconds, _)| (seconds * 1_000.0).round() / 1_000.0).collect();
        outcome.budget = self.failovers.iter().copied().max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, budget)| budget);
        for (seconds, budget) in self.failovers.iter().filter(|(seconds, budget)| seconds > budget) {
            outcome.faults.push(format!("a failover took {seconds:.2} s, over the computed worst case of {budget:.2} s"));
        }
        outcome.notes = self.notes;
        outcome.ok = outcome.faults.is_empty();
        outcome
    }

    async fn settle(&mut self, outcome: &mut Outcome) -> Result<()> {
        self.say("healing");
        self.field.restore().await?;
        let settled = match self.traffic.take() {
            Some(traffic) => Some(self.drain(traffic, outcome).await?),
            None => None,
        };
        // Read last: draining may see another hand-over, if late.
        let last = self.field.cluster.holder().await?.lease;
        outcome.hand_overs = last.version.saturating_sub(self.first.version);
        outcome.bound = self.bound(outcome.hand_overs).await;
        if let Some(account) = settled {
            outcome.corrupted = account.corrupted;
            outcome.duplicates = account.duplicates;
            if account.corrupted > 0 {
                outcome.faults.push(format!("{} messages were changed on the way", account.corrupted));
            }
        }
        if outcome.lost > 0 {
            outcome.faults.push(format!("{} messages were lost", outcome.lost));
        }
        if outcome.lost_by_broker > 0 && !self.broker_forgets {
            outcome.faults.push(format!("{} messages never left a broker that keeps them", outcome.lost_by_broker));
        }
        if outcome.duplicates > outcome.bound {
            outcome.faults.push(format!("{} duplicates are more than the bound of {}", outcome.duplicates, outcome.bound));
        }
        self.one_owner(&last).await
    }

    /// The most duplicates that hand-overs and broken connections explain. What a worker reports is up to a second old: one more append, batch of
    /// sends and window of the broker can have come since. A connection that breaks under an owner that stays makes the broker repeat its window.
    async fn bound(&mut self, hand_overs: u64) -> u64 {
        let limits = &self.field.rig.settings;
        let window = u64::from(limits.receive_maximum);
        let since = u64::from(limits.segment_max_messages) + u64::from(limits.max_in_flight) + window;
        let foreseen: u64 = self.exposures.iter().map(|peak| peak + since).sum();
        let unforeseen = hand_overs.saturating_sub(self.clean + self.exposures.len() as u64);
        let connections = self.field.network.witness().connections() - self.connections;
        let broken = connections.saturating_sub(hand_overs);
        if broken > 0 {
            self.note(format!("{broken} connections to the broker made anew"));
        }
        foreseen + unforeseen * (self.peak.max(self.field.peak().await) + since) + broken * window
    }

    /// Waits until everything has arrived, and enters what has not.
    async fn drain(&mut self, traffic: Traffic, outcome: &mut Outcome) -> Result<Account> {
        self.say("draining");
        traffic.progress.stop();
        let published = traffic.publishing.await.context("the publisher failed")??;
        let published_for = traffic.since.elapsed().as_secs_f64();
        let patience = if self.broker_forgets { Duration::from_secs(15) } else { PATIENCE };
        drain(&traffic.consumer, &published, patience, || self.field.cluster.expect_running()).await?;
        let ledger = traffic.consumer.finish().await?;
        let (lost, by_broker): (Vec<u64>, Vec<u64>) =
            ledger.missing(&published).into_iter().partition(|index| self.field.network.witness().acknowledged(*index));
        outcome.lost = lost.len() as u64;
        outcome.lost_by_broker = by_broker.len() as u64;
        let account = ledger.settle(&published, &[]);
        outcome.published = account.published;
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let rate = account.published as f64 / published_for.max(0.001);
        outcome.rate = rate;
        #[expect(clippy::cast_precision_loss, reason = "a rate is far below 2^52")]
        if rate < self.rate as f64 * 0.9 {
            self.note(format!("{rate:.0} messages a second were published, not {}", self.rate));
        }
        Ok(account)
    }

    async fn one_owner(&mut self, lease: &Lease) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            self.field.cluster.expect_running()?;
            let mut owners = Vec::new();
            for member in &self.field.cluster.members {
                match member.worker.is_owner().await {
                    Some(true) => owners.push(member.name().to_owned()),
                    Some(false) => {}
                    None => owners.push(format!("{}?", member.name())),
                }
            }
            if owners == [lease.name()] {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the lease row names {}, and these say that they own the session: {owners:?}", lease.owner);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
