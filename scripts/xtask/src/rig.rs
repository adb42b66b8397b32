//! A stack with a configured worker, ready to be started and hurt: what the demo and the end-to-end tests have in common.

use crate::cluster::Cluster;
use crate::ledger::consumer::Consumer;
use crate::ledger::publisher::Published;
use crate::network::{Ground, Network, Services};
use crate::proxy::Proxy;
use crate::stack::{Stack, StackOptions, Store, ports};
use crate::worker::{self, Launch, Role, Settings, Worker};
use anyhow::{Context as _, Result, bail};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;

/// How long the queue must stay silent until no more repetitions are expected.
const SILENCE: Duration = Duration::from_secs(3);

/// Proxies between the worker and its services.
#[derive(Debug)]
pub struct Proxies {
    /// In front of SQS.
    pub sqs: Proxy,
    /// In front of DynamoDB.
    pub dynamodb: Proxy,
}

/// A stack and a worker's launch.
#[derive(Debug)]
pub struct Rig {
    /// The stack.
    pub stack: Stack,
    /// What the worker's configuration was made from.
    pub settings: Settings,
    /// How to start the worker.
    pub launch: Launch,
    /// The proxies, where they are wanted.
    pub proxies: Option<Proxies>,
}

impl Rig {
    /// Starts the stack with its tables, or creates the files of SQLite, and writes the configuration.
    ///
    /// # Errors
    /// A part is missing or does not start.
    pub async fn start(options: &StackOptions, with_proxies: bool) -> Result<Self> {
        let binary = worker::binary().await?;
        Self::start_with(options, with_proxies, binary, |_| {}).await
    }

    /// The same with a given program, and a last word on the settings.
    ///
    /// # Errors
    /// A part is missing or does not start.
    pub async fn start_with(
        options: &StackOptions,
        with_proxies: bool,
        binary: std::path::PathBuf,
        adjust: impl FnOnce(&mut Settings),
    ) -> Result<Self> {
        Self::start_on(options, with_proxies.then_some(Ipv4Addr::LOCALHOST), binary, adjust).await
    }

    /// The same with the proxies, where there are any, on an address of the host.
    ///
    /// # Errors
    /// A part is missing or does not start.
    pub async fn start_on(
        options: &StackOptions,
        proxies: Option<Ipv4Addr>,
        binary: std::path::PathBuf,
        adjust: impl FnOnce(&mut Settings),
    ) -> Result<Self> {
        Self::on(Stack::start(options).await?, options, proxies, binary, adjust).await
    }

    /// The same on a stack that runs already.
    ///
    /// # Errors
    /// A proxy finds no port, or a file cannot be written.
    pub async fn on(
        stack: Stack,
        options: &StackOptions,
        proxies: Option<Ipv4Addr>,
        binary: std::path::PathBuf,
        adjust: impl FnOnce(&mut Settings),
    ) -> Result<Self> {
        std::fs::create_dir_all(&options.dir).with_context(|| format!("cannot create {}", options.dir.display()))?;
        let mut environment = stack.aws.environment();
        let proxies = if let Some(address) = proxies {
            let proxies = Proxies {
                sqs: Proxy::start_on(address, &stack.aws.endpoint).await?,
                dynamodb: Proxy::start_on(address, &stack.aws.dynamodb_endpoint).await?,
            };
            environment.insert("AWS_ENDPOINT_URL_SQS".to_owned(), proxies.sqs.endpoint());
            environment.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), proxies.dynamodb.endpoint());
            Some(proxies)
        } else {
            None
        };
        let monitor_port = ports::free_port()?;
        let mut settings = Settings::new(options.store, &options.dir, &stack.broker.url(), &stack.queue_url, monitor_port);
        adjust(&mut settings);
        environment.insert(worker::BROKER_URL.to_owned(), stack.broker.url());
        let config = options.dir.join("causeway.yaml");
        std::fs::write(&config, settings.render()).context("cannot write the worker's configuration")?;
        let launch = Launch {
            binary,
            config,
            layers: Vec::new(),
            environment,
            monitor: SocketAddr::from((Ipv4Addr::LOCALHOST, settings.monitor_port)),
            prefix: Vec::new(),
            dir: options.dir.clone(),
            lifetime: options.lifetime,
            name: "worker".to_owned(),
            role: Role::Worker,
        };
        if options.store == Store::Sqlite {
            launch.create_stores().await?;
        }
        Ok(Self { stack, settings, launch, proxies })
    }

    /// Lets workers that start from now on reach the broker at another address.
    ///
    /// # Errors
    /// The configuration cannot be written.
    pub fn reach_broker_at(&mut self, url: &str) -> Result<()> {
        url.clone_into(&mut self.settings.broker_url);
        self.launch.environment.insert(worker::BROKER_URL.to_owned(), url.to_owned());
        std::fs::write(&self.launch.config, self.settings.render()).context("cannot write the worker's configuration")
    }

    /// Starts a worker and waits until it has subscribed.
    ///
    /// # Errors
    /// It ends, or is not ready in time.
    pub async fn worker(&self) -> Result<Worker> {
        let mut worker = self.launch.start()?;
        worker.ready("subscribed").await?;
        Ok(worker)
    }

    /// Starts processes with these names and roles at once, on one exclusive session.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn cluster(&self, members: &[(&str, Role)]) -> Result<Cluster> {
        let mut cluster = Cluster::start(&self.launches(members)?, &self.stack.aws.dynamodb)?;
        cluster.leases = format!("{}-leases", self.settings.tables);
        Ok(cluster)
    }

    /// The launches of processes with these names and roles.
    ///
    /// # Errors
    /// No port is free.
    pub fn launches(&self, members: &[(&str, Role)]) -> Result<Vec<Launch>> {
        members.iter().map(|(name, role)| self.launch.another(name, *role)).collect()
    }

    /// A network between the proxies and the processes with these names.
    ///
    /// # Errors
    /// The rig has no proxies on it, or the network cannot be made.
    pub async fn network(&self, ground: Ground, names: &[&str]) -> Result<Network> {
        let proxies = self.proxies.as_ref().context("a network needs proxies")?;
        let services = Services { broker: self.stack.broker.port(), store: proxies.dynamodb.port(), queue: proxies.sqs.port() };
        Network::lay(ground, services, names).await
    }

    /// Which store the outbox is in.
    #[must_use]
    pub fn store(&self) -> Store {
        self.settings.store
    }
}

/// Waits until everything that was published has arrived and the queue has fallen silent, or until nothing arrives for `patience`.
///
/// # Errors
/// Those of `alive`, which tells whether a worker ended.
pub async fn drain(consumer: &Consumer, published: &Published, patience: Duration, mut alive: impl FnMut() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    loop {
        alive()?;
        let quiet = consumer.idle().min(started.elapsed());
        if quiet >= SILENCE && consumer.has_all(published.acknowledged.iter().copied()).await {
            return Ok(());
        }
        if quiet > patience {
            // The ledger says what is missing, which is more use than an error here.
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(1_800) {
            bail!("messages still arrive half an hour after the last one was published");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
