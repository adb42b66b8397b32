//! The deployed bridge at work: its containers as local processes, in their roles, with exactly the environment that their task definitions give them.

use crate::cloud::Cloud;
use crate::stack::{Container, Made};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use causeway_aws::DynamoDeadLetters;
use causeway_core::dead_letter::{DeadLetter, Destination};
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::DeadLetters as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use xtask::ledger::consumer::Consumer;
use xtask::ledger::payload::Plan;
use xtask::ledger::publisher::{Progress, Published, Publisher};
use xtask::ledger::{Account, Ledger};
use xtask::stack::broker::Broker;
use xtask::stack::ports::free_port;
use xtask::stack::process::Lifetime;
use xtask::worker::{Launch, Role, Worker, binary};

/// Messages that are published.
const PUBLISHED: u64 = 300;
/// Dead letters that are put back: the rest of the plan.
const LETTERS: u64 = 25;
/// How long messages get to arrive.
const PATIENCE: Duration = Duration::from_secs(60);

/// Worker, control and consumers.
pub struct Bridge {
    plan: Plan,
    published: Published,
    consumer: Consumer,
    workers: Vec<Worker>,
    broker_port: u16,
    letters: DynamoDeadLetters,
    session: String,
    route: String,
    binding: String,
    receiver: String,
}

impl Bridge {
    /// Starts a worker and control.
    ///
    /// # Errors
    /// One does not become ready.
    pub async fn start(cloud: &Cloud, made: &Made, dir: &Path, broker: &Broker, enforced: bool) -> Result<Self> {
        let program = binary().await?;
        let mut workers = Vec::new();
        for (name, role) in [("worker", Role::Worker), ("control", Role::Control)] {
            let service = made.one("AWS::ECS::Service", name)?;
            let container = Container::of(cloud, made, service, enforced).await?;
            ensure!(container.command == ["run", "--role", name], "{name} runs {:?}", container.command);
            let somebody = if enforced { cloud.in_role(&container.role).await? } else { cloud.clone() };
            let launch = launch(&container, &somebody, &program, dir, name, role)?;
            let mut worker = launch.start()?;
            // Only one of them connects: what comes second stands by.
            worker.ready(if workers.is_empty() { "full" } else { "live" }).await.with_context(|| format!("{name} is not ready"))?;
            workers.push(worker);
        }
        let sdk = cloud.sdk().await;
        let dlq = made.of("AWS::DynamoDB::Table").into_iter().chain(made.of("AWS::DynamoDB::GlobalTable"));
        let dlq = dlq.map(|table| table.physical.clone()).find(|name| name.ends_with("-dlq")).context("no table of dead letters")?;
        let queue = made.of("AWS::SQS::Queue").into_iter().find(|queue| queue.physical.ends_with("/telemetry")).context("no queue")?;
        let plan = Plan::new(PUBLISHED + LETTERS, 250);
        let consumer = Consumer::start(&aws_sdk_sqs::Client::new(&sdk), &queue.physical, 2, Ledger::new(plan.clone()));
        Ok(Self {
            plan,
            published: Published::default(),
            consumer,
            workers,
            broker_port: broker.port(),
            letters: DynamoDeadLetters::new(aws_sdk_dynamodb::Client::new(&sdk), dlq),
            session: "broker".to_owned(),
            route: "telemetry-to-queue".to_owned(),
            binding: "to-queue".to_owned(),
            receiver: "telemetry".to_owned(),
        })
    }

    /// Publishes, and waits until everything arrived. Answers how many messages that were.
    ///
    /// # Errors
    /// Something is missing.
    pub async fn publish(&mut self) -> Result<u64> {
        let publisher = Publisher { plan: self.plan.clone(), broker_port: self.broker_port, numbers: 0..PUBLISHED, rate: 0 };
        self.published.merge(publisher.run(&Progress::default()).await?);
        self.arrive(PUBLISHED).await?;
        Ok(PUBLISHED)
    }

    async fn arrive(&mut self, count: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.consumer.unique() < count {
            for worker in &mut self.workers {
                worker.process.expect_running()?;
            }
            ensure!(Instant::now() < deadline, "{} of {count} messages arrived within {PATIENCE:?}", self.consumer.unique());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Seeds dead letters, lets the deployed function put them back, and waits until they arrived. Answers how many.
    ///
    /// # Errors
    /// The function refuses, or a letter does not arrive.
    pub async fn redrive(&mut self, cloud: &Cloud, made: &Made) -> Result<u64> {
        for number in PUBLISHED..PUBLISHED + LETTERS {
            let outcome = self.letters.park(&self.letter(number)).await;
            ensure!(matches!(outcome, Outcome::Done(())), "a dead letter could not be written: {outcome:?}");
            self.published.acknowledged.insert(number);
        }
        let function = &made.one("AWS::Lambda::Function", "Redrive")?.physical;
        let filter = json!({ "route_id": self.route });
        let dry = invoke(cloud, function, &json!({ "filter": filter })).await?;
        ensure!(dry["dry_run"] == true && dry["matched"] == LETTERS && dry["failed"] == 0, "the dry run answered {dry}");
        let real = invoke(cloud, function, &json!({ "filter": filter, "dry_run": false, "request_id": "deploy-local" })).await?;
        ensure!(real["redriven"] == LETTERS && real["failed"] == 0 && real["complete"] == true, "the redrive answered {real}");
        let again = invoke(cloud, function, &json!({ "filter": filter, "dry_run": false })).await?;
        ensure!(again["redriven"] == 0, "a second redrive found something to do: {again}");
        self.arrive(PUBLISHED + LETTERS).await?;
        Ok(LETTERS)
    }

    fn letter(&self, number: u64) -> DeadLetter {
        let message =
            Message { topic: self.plan.topic(number), payload: Bytes::from(self.plan.payload(number, 1)), qos: 1, ..Message::default() };
        let now = UnixMillis(self.plan.started_ms + number);
        let entry = Entry {
            id: Id128(u128::from(number) << 64 | u128::from(self.plan.started_ms)),
            route: self.route.as_str().into(),
            source: self.receiver.as_str().into(),
            received_at: now,
            expires_at: None,
            message,
            redrive: None,
        };
        let destination = Destination { binding: self.binding.clone(), address: "telemetry".to_owned(), session: self.session.clone() };
        DeadLetter::new(&entry, &destination, &Fault::new(FaultCode::NotAuthorized, "the queue's policy refused it"), 5, now)
    }

    /// Stops everything and settles the account.
    ///
    /// # Errors
    /// A process does not stop cleanly.
    pub async fn finish(mut self) -> Result<Account> {
        for worker in &mut self.workers {
            let status = worker.stop().await?;
            ensure!(status.success(), "a process ended with {status}");
        }
        let ledger = self.consumer.finish().await?;
        Ok(ledger.settle(&self.published, &[]))
    }
}

/// The container as a local process. Ports differ: on a task each has its own address.
fn launch(container: &Container, somebody: &Cloud, program: &Path, dir: &Path, name: &str, role: Role) -> Result<Launch> {
    let mut environment: BTreeMap<String, String> = container.environment.clone();
    environment.extend(somebody.environment());
    let document = environment.remove("CAUSEWAY_CONFIG_INLINE").context("the container has no configuration")?;
    let monitor = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    ensure!(document.contains("\nhttp:\n") && !document.contains("_addr:"), "the configuration chooses its ports itself");
    // Tasks have a host each; here both share one.
    let ports = format!("\nhttp:\n  monitor_addr: {monitor}\n  transport_addr: 127.0.0.1:0\n");
    let config = dir.join(format!("{name}.yaml"));
    std::fs::write(&config, document.replacen("\nhttp:\n", &ports, 1)).context("cannot write the configuration")?;
    Ok(Launch {
        binary: program.to_owned(),
        config,
        environment,
        monitor,
        prefix: Vec::new(),
        dir: dir.to_owned(),
        lifetime: Lifetime::Bound,
        name: name.to_owned(),
        role,
    })
}

/// Invokes a function and gives its answer.
async fn invoke(cloud: &Cloud, function: &str, event: &Value) -> Result<Value> {
    let answer = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
    let (event, path) = (event.to_string(), answer.path().to_string_lossy().into_owned());
    let arguments = ["lambda", "invoke", "--function-name", function, "--payload", &event, &path];
    let status = cloud.aws(&arguments).await?;
    let text = std::fs::read_to_string(answer.path()).context("the function answered nothing")?;
    ensure!(status["FunctionError"].is_null(), "the function refused {event}: {text}");
    serde_json::from_str(&text).with_context(|| format!("the function answered {text}"))
}
