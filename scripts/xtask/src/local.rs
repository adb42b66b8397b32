//! `local`: the stack alone, running in the background until it is taken down.

use crate::dead_letters;
use crate::rig::Rig;
use crate::stack::aws::Aws;
use crate::stack::process::{Lifetime, Spawned, end_by_id, start_ticks};
use crate::stack::{Ports, StackOptions, Store, repository};
use crate::terminal::{note, result};
use crate::worker::{Launch, Role};
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The ports that the parts have by default.
const BROKER: u16 = 1883;
const AWS: u16 = 4566;
const DYNAMODB: u16 = 8000;
/// Where the worker of the configuration shows its monitor.
const MONITOR: u16 = 8081;
/// What the stack does not run by itself.
const NOT_RUNNING: &str = "the local stack does not run: scripts/local up";
/// How long nothing may arrive until everything has: longer than an owner waits between two looks at its mailbox.
const SILENCE: Duration = Duration::from_secs(6);

/// What to do with the local stack.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Start it, create queues and tables from the deployment's template, and print the environment to export.
    Up {
        /// Use a running LocalStack, or any other endpoint, instead of starting AWS services.
        #[arg(long, value_name = "URL")]
        aws_endpoint: Option<String>,
    },
    /// Stop it, and a demo that was left running.
    Down,
    /// Say what runs.
    Status,
    /// Make dead letters: messages whose queue is gone.
    DeadLetters {
        /// How many.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=dead_letters::MOST))]
        count: u64,
    },
    /// Run a worker until nothing arrives in the queue any more, and print what arrived.
    Deliver,
}

/// A process that runs in the background.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Process {
    name: String,
    pid: u32,
    started: u64,
    log: PathBuf,
}

impl Process {
    fn runs(&self) -> bool {
        start_ticks(self.pid) == Some(self.started)
    }
}

/// What runs in the background, as the next invocation needs to know it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    processes: Vec<Process>,
    environment: BTreeMap<String, String>,
}

impl State {
    /// The state of these processes.
    pub fn of<'a>(processes: impl Iterator<Item = &'a Spawned>, environment: BTreeMap<String, String>) -> Self {
        let processes = processes.filter_map(|process| {
            let pid = process.pid()?;
            Some(Process { name: process.name().to_owned(), pid, started: start_ticks(pid)?, log: process.log().to_owned() })
        });
        Self { processes: processes.collect(), environment }
    }

    /// Writes it into `dir`, and beside it the environment for a shell ([`env_file`]).
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let path = file(dir);
        std::fs::write(&path, serde_json::to_vec_pretty(self)?).with_context(|| format!("cannot write {}", path.display()))?;
        std::fs::write(env_file(dir), self.exports()).context("cannot write the environment")
    }

    fn load(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file(dir)).ok()?).ok()
    }

    fn exports(&self) -> String {
        self.environment.iter().map(|(name, value)| format!("export {name}={value}\n")).collect()
    }
}

/// The environment of the stack that runs in the background, if one runs.
#[must_use]
pub fn environment() -> Option<BTreeMap<String, String>> {
    let state = State::load(&home())?;
    state.processes.iter().all(Process::runs).then_some(state.environment)
}

fn file(dir: &Path) -> PathBuf {
    dir.join("state.json")
}

fn home() -> PathBuf {
    repository().join(".local")
}

/// Runs one action. `true`: what was asked for is so.
///
/// # Errors
/// A part does not start, or the state cannot be kept.
pub async fn run(action: &Action) -> Result<bool> {
    match action {
        Action::Up { aws_endpoint } => up(aws_endpoint.as_deref()).await.map(|()| true),
        Action::Down => down().await.map(|()| true),
        Action::Status => Ok(status()),
        Action::DeadLetters { count } => make_dead_letters(*count).await.map(|()| true),
        Action::Deliver => deliver().await.map(|()| true),
    }
}

async fn up(aws_endpoint: Option<&str>) -> Result<()> {
    let dir = home();
    if let Some(state) = State::load(&dir) {
        if state.processes.iter().all(Process::runs) {
            note("already running; export this:");
            result(state.exports().trim_end());
            return Ok(());
        }
        note("parts of an earlier stack are gone; starting anew");
        down_in(&dir).await?;
    }
    let options = StackOptions {
        aws_endpoint: aws_endpoint.map(str::to_owned),
        lifetime: Lifetime::Detached,
        ports: Ports { broker: Some(BROKER), aws: Some(AWS), dynamodb: Some(DYNAMODB) },
        ..StackOptions::bound(&dir, Store::Dynamodb)
    };
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let state = start(&options, &dir).await?;
    note(&format!(
        "running; with the environment below, which is also in {}, a worker is started by\n  {} run -c {}",
        env_file(&dir).display(),
        program(&dir).display(),
        config(&dir).display()
    ));
    result(state.exports().trim_end());
    Ok(())
}

fn config(dir: &Path) -> PathBuf {
    dir.join("causeway.yaml")
}

/// A name for the program that does not depend on where it is built.
fn program(dir: &Path) -> PathBuf {
    dir.join("causeway")
}

/// The configuration of the stack that runs in the background.
///
/// # Errors
/// It cannot be read.
pub fn configuration() -> Result<String> {
    let path = config(&home());
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// How a worker is started on the stack that runs in the background, and the stack's services.
async fn at_hand() -> Result<(Launch, Aws, BTreeMap<String, String>)> {
    let environment = environment().context(NOT_RUNNING)?;
    let endpoint = |name: &str| environment.get(name).with_context(|| format!("the local stack does not tell {name}: {RENEW}"));
    let aws = Aws::new(endpoint("AWS_ENDPOINT_URL")?, endpoint("AWS_ENDPOINT_URL_DYNAMODB")?).await;
    let dir = home();
    let monitor = SocketAddr::from((Ipv4Addr::LOCALHOST, MONITOR));
    // Two would take the log from each other, and what one received here the other's failure would swallow.
    let running = tokio::net::TcpStream::connect(monitor).await.is_ok();
    ensure!(!running, "a worker runs already, its monitor answers on {monitor}: stop it, then run this again");
    let launch = Launch {
        binary: crate::worker::binary().await?,
        config: config(&dir),
        layers: Vec::new(),
        environment: environment.clone(),
        monitor,
        prefix: Vec::new(),
        dir,
        lifetime: Lifetime::Bound,
        name: "worker".to_owned(),
        role: Role::Worker,
    };
    Ok((launch, aws, environment))
}

const RENEW: &str = "scripts/local down, then scripts/local up";

fn queue_of(environment: &BTreeMap<String, String>) -> Result<&str> {
    environment.get("CAUSEWAY_QUEUE_URL").map(String::as_str).with_context(|| format!("the local stack has no queue: {RENEW}"))
}

async fn make_dead_letters(count: u64) -> Result<()> {
    let (launch, aws, environment) = at_hand().await?;
    let broker = environment.get("CAUSEWAY_BROKER_URL").map(|url| port_of(url)).unwrap_or_default();
    ensure!(broker != 0, "the local stack has no broker: {RENEW}");
    note(&format!("a worker sends {count} messages to a queue that is deleted under it"));
    let dead = dead_letters::make(&launch, &aws, broker, count).await?;
    note(&format!("{dead} dead letters; {} dlq list -c {} shows them", program(&launch.dir).display(), launch.config.display()));
    Ok(())
}

async fn deliver() -> Result<()> {
    let (launch, aws, environment) = at_hand().await?;
    note("a worker delivers what waits");
    let arrived = dead_letters::deliver(&launch, &aws.sqs, queue_of(&environment)?, SILENCE).await?;
    for message in &arrived {
        let head: String = message.body.chars().take(60).collect();
        result(&format!("{}  redrives {}  {head}", message.message_id, message.redrives));
    }
    note(&format!("{} messages arrived", arrived.len()));
    Ok(())
}

/// Where a shell finds what to export.
#[must_use]
pub fn env_file(dir: &Path) -> PathBuf {
    dir.join("env")
}

async fn start(options: &StackOptions, dir: &Path) -> Result<State> {
    let binary = crate::worker::binary().await?;
    let name = program(dir);
    let _ = std::fs::remove_file(&name);
    std::os::unix::fs::symlink(&binary, &name).with_context(|| format!("cannot make {}", name.display()))?;
    let mut rig = Rig::start_with(options, false, binary, |settings| settings.monitor_port = MONITOR).await?;
    for (wanted, actual, name) in [(BROKER, rig.stack.broker.port(), "broker"), (AWS, port_of(&rig.stack.aws.endpoint), "AWS services")] {
        if wanted != actual && (name == "broker" || options.aws_endpoint.is_none()) {
            note(&format!("port {wanted} is taken: the {name} got {actual}"));
        }
    }
    let mut environment = rig.launch.environment.clone();
    // The second name of each is the one that the configurations of `causeway init` read.
    for name in ["CAUSEWAY_BROKER_URL", "BROKER_URL"] {
        environment.insert(name.to_owned(), rig.stack.broker.url());
    }
    for name in ["CAUSEWAY_QUEUE_URL", "QUEUE_URL"] {
        environment.insert(name.to_owned(), rig.stack.queue_url.clone());
    }
    let state = State::of(rig.stack.processes(), environment);
    state.save(dir)?;
    rig.stack.release();
    Ok(state)
}

fn port_of(url: &str) -> u16 {
    url.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default()
}

async fn down() -> Result<()> {
    let ended = down_in(&home()).await? + down_in(&home().join("demo")).await?;
    note(&if ended == 0 { "nothing was running".to_owned() } else { format!("stopped {ended} processes") });
    Ok(())
}

/// Ends what runs in the background according to the state in `dir`. Gives the number of processes that it ended.
///
/// # Errors
/// The state cannot be removed.
pub async fn down_in(dir: &Path) -> Result<usize> {
    let Some(state) = State::load(dir) else {
        return Ok(0);
    };
    let running: Vec<&Process> = state.processes.iter().filter(|process| process.runs()).collect();
    // The worker was started last, and goes first.
    for process in running.iter().rev() {
        end_by_id(process.pid, process.started, Duration::from_secs(20)).await;
    }
    // What an emulator or a broker kept belongs to the stack that is gone. Logs and files of a worker stay for those who want to look.
    for gone in ["broker", "aws", "dynamodb"] {
        let _ = std::fs::remove_dir_all(dir.join(gone));
    }
    let _ = std::fs::remove_file(env_file(dir));
    std::fs::remove_file(file(dir)).with_context(|| format!("cannot remove {}", file(dir).display()))?;
    Ok(running.len())
}

fn status() -> bool {
    let mut complete = None;
    for (name, dir) in [("local stack", home()), ("demo", home().join("demo"))] {
        let Some(state) = State::load(&dir) else {
            continue;
        };
        result(&format!("{name}:"));
        for process in &state.processes {
            let runs = process.runs();
            complete = Some(complete.unwrap_or(true) && runs);
            let word = if runs { "runs" } else { "is gone" };
            result(&format!("  {:<16} {word:<8} pid {:<8} log {}", process.name, process.pid, process.log.display()));
        }
        state.environment.iter().filter(|(name, _)| name.ends_with("_URL")).for_each(|(name, value)| result(&format!("  {name}={value}")));
    }
    if complete.is_none() {
        result("nothing runs");
    }
    complete.unwrap_or(false)
}
