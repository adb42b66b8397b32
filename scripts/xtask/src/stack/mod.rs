//! The local stack: broker, store and queue, each a process of its own.

pub mod aws;
pub mod broker;
pub mod ecs;
pub mod emulators;
pub mod ports;
pub mod process;
pub mod template;

use anyhow::Result;
use aws::Aws;
use broker::{Broker, SecondListener, Ways};
use emulators::Emulator;
use process::{Lifetime, Spawned};
use std::path::{Path, PathBuf};

/// The root of this clone.
#[must_use]
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Where the outbox and the dead letters are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// A file beside the worker.
    Sqlite,
    /// DynamoDB, or what stands for it.
    Dynamodb,
}

/// Which ports the parts would like to have. `None`: any free one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ports {
    /// The broker's.
    pub broker: Option<u16>,
    /// MiniStack's.
    pub aws: Option<u16>,
    /// DynamoDB Local's.
    pub dynamodb: Option<u16>,
}

/// What to start.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// Where files, logs and state go.
    pub dir: PathBuf,
    /// Whether a DynamoDB is needed.
    pub store: Store,
    /// Whether the broker keeps its state over a restart.
    pub broker_persistence: bool,
    /// What the broker's second listener is, if it has one: the lines of mosquitto's configuration for it.
    pub second_listener: Option<String>,
    /// Use these AWS services instead of local ones.
    pub aws_endpoint: Option<String>,
    /// How long the parts live.
    pub lifetime: Lifetime,
    /// The ports to prefer.
    pub ports: Ports,
}

impl StackOptions {
    /// Everything local, on free ports, as long as its handle lives.
    #[must_use]
    pub fn bound(dir: &Path, store: Store) -> Self {
        let dir = dir.to_owned();
        Self {
            dir,
            store,
            broker_persistence: true,
            second_listener: None,
            aws_endpoint: None,
            lifetime: Lifetime::Bound,
            ports: Ports::default(),
        }
    }
}

/// A running stack. Its parts end with it, unless they are released.
#[derive(Debug)]
pub struct Stack {
    /// The broker.
    pub broker: Broker,
    /// The AWS services.
    pub aws: Aws,
    /// The address of the queue that messages go to.
    pub queue_url: String,
    /// What serves DynamoDB, for people.
    pub store_name: &'static str,
    emulators: Vec<Emulator>,
}

impl Stack {
    /// Starts all parts and creates the queues, and the tables where a DynamoDB is needed, from the template of the deployment.
    ///
    /// # Errors
    /// A part is missing or does not start.
    pub async fn start(options: &StackOptions) -> Result<Self> {
        let dir = &options.dir;
        let port = |wanted: Option<u16>| wanted.map_or_else(ports::free_port, ports::port_or_free);
        let second = |kind: &String| Ok::<_, anyhow::Error>(SecondListener { port: ports::free_port()?, kind: kind.clone() });
        let ways = Ways { port: port(options.ports.broker)?, second: options.second_listener.as_ref().map(second).transpose()? };
        let broker = Broker::start(&dir.join("broker"), ways, options.broker_persistence, options.lifetime).await?;
        let mut emulators = Vec::new();
        let (endpoint, dynamodb, store_name) = if let Some(url) = &options.aws_endpoint {
            (url.clone(), url.clone(), "the given AWS endpoint")
        } else {
            let ministack = Emulator::ministack(&dir.join("aws"), port(options.ports.aws)?, options.lifetime).await?;
            let endpoint = ministack.endpoint().to_owned();
            emulators.push(ministack);
            match emulators::dynamodb_local_home().filter(|_| options.store == Store::Dynamodb) {
                None => (endpoint.clone(), endpoint, "MiniStack"),
                Some(home) => {
                    let local =
                        Emulator::dynamodb_local(&home, &dir.join("dynamodb"), port(options.ports.dynamodb)?, options.lifetime).await?;
                    let dynamodb = local.endpoint().to_owned();
                    emulators.push(local);
                    (endpoint, dynamodb, "Amazon DynamoDB Local")
                }
            }
        };
        let aws = Aws::new(&endpoint, &dynamodb).await;
        let template = template::local()?;
        let queue_url = template.create_queues(&aws).await?;
        if options.store == Store::Dynamodb {
            template.create_tables(&aws).await?;
        }
        Ok(Self { broker, aws, queue_url, store_name, emulators })
    }

    /// Another one on the AWS services of this one, which it must not outlive: a broker and a queue of its own. Tables are for whoever needs some to make.
    ///
    /// # Errors
    /// The broker does not start, or the queue cannot be made.
    pub async fn beside(&self, dir: &Path, queue: &str) -> Result<Self> {
        let broker = Broker::start(&dir.join("broker"), Ways { port: ports::free_port()?, second: None }, true, Lifetime::Bound).await?;
        let queue_url = self.aws.create_queue(queue).await?;
        Ok(Self { broker, aws: self.aws.clone(), queue_url, store_name: self.store_name, emulators: Vec::new() })
    }

    /// Lets all parts live on without their handles.
    pub fn release(&mut self) {
        self.broker.release();
        self.emulators.iter_mut().for_each(Emulator::release);
    }

    /// Every process that belongs to it.
    pub fn processes(&self) -> impl Iterator<Item = &Spawned> {
        std::iter::once(self.broker.process()).chain(self.emulators.iter().map(Emulator::process))
    }
}
