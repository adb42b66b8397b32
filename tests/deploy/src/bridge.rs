//! The deployed bridge at work: its containers as local processes, in their roles, with exactly the environment that their task definitions give them.

use crate::cloud::Cloud;
use crate::operations;
use crate::stack::{Container, Made};
use anyhow::{Context as _, Result, ensure};
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use bytes::Bytes;
use causeway_aws::DynamoDeadLetters;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState, Destination};
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::DeadLetters as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
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
/// Messages that somebody puts into the queue that the bridge receives from.
const ORDERED: u64 = 20;
/// Messages in each of the queues' own dead-letter queues.
const DEAD_IN_QUEUE: u64 = 3;
/// Messages that are published while each process in turn is the owner; one more comes from the queue.
const IN_TURN: u64 = 20;
/// Messages before the turns: published, ordered, put back, moved back by SQS.
const BEFORE_TURNS: u64 = PUBLISHED + ORDERED + LETTERS + 2 * DEAD_IN_QUEUE;
/// The messages of the plan.
const ALL: u64 = BEFORE_TURNS + 2 * (IN_TURN + 1);
/// The exclusive session.
const SESSION: &str = "broker";
/// What takes a role a permission away, for a while.
const DENIAL: &str = "for-a-while";
/// Bytes of a message that SQS could take and the queue then does not. As a dead letter it stands in parts; on its way to a log it is compressed.
const TOO_LARGE: usize = 600_000;
/// What the queue takes from then on.
const QUEUE_LIMIT: &str = "262144";
/// How long messages get to arrive.
const PATIENCE: Duration = Duration::from_secs(180);

/// Worker, control and consumers.
pub struct Bridge {
    plan: Plan,
    published: Published,
    consumer: Consumer,
    workers: Vec<Worker>,
    broker_port: u16,
    letters: DynamoDeadLetters,
    queue: String,
    orders: String,
    sqs: aws_sdk_sqs::Client,
    dynamodb: aws_sdk_dynamodb::Client,
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
        let mut workers = Vec::new();
        for (name, role) in [("worker", Role::Worker), ("control", Role::Control)] {
            let mut worker = process(cloud, made, dir, (name, role), enforced).await?;
            // Only one of them connects: what comes second stands by. Both receive from the queue.
            worker.ready("full").await.with_context(|| format!("{name} is not ready"))?;
            if workers.is_empty() {
                serves(&mut worker).await.with_context(|| format!("{name} is not the owner"))?;
            }
            workers.push(worker);
        }
        let sdk = cloud.sdk().await;
        let dlq = made.table("-dlq")?;
        let queue = |name: &str| {
            let found = made.of("AWS::SQS::Queue").into_iter().find(|queue| queue.physical.ends_with(name));
            found.map(|queue| queue.physical.clone()).with_context(|| format!("no queue {name}"))
        };
        let (queue, orders) = (queue("/telemetry")?, queue("/orders")?);
        let plan = Plan::new(ALL, 250);
        let (sqs, dynamodb) = (aws_sdk_sqs::Client::new(&sdk), aws_sdk_dynamodb::Client::new(&sdk));
        let consumer = Consumer::start(&sqs, &queue, 2, Ledger::new(plan.clone()));
        Ok(Self {
            plan,
            published: Published::default(),
            consumer,
            workers,
            broker_port: broker.port(),
            letters: DynamoDeadLetters::new(dynamodb.clone(), dlq),
            queue,
            orders,
            sqs,
            dynamodb,
            route: "telemetry-to-queue".to_owned(),
            binding: "to-queue".to_owned(),
            receiver: "telemetry".to_owned(),
        })
    }

    /// Publishes, puts messages into the queue that the bridge receives from, and waits until everything arrived. Answers how many messages that were.
    ///
    /// # Errors
    /// Something is missing.
    pub async fn publish(&mut self) -> Result<u64> {
        self.publish_some(0..PUBLISHED).await?;
        let orders = self.orders.clone();
        self.send_some(&orders, PUBLISHED..PUBLISHED + ORDERED).await?;
        self.arrive(PUBLISHED + ORDERED).await?;
        Ok(PUBLISHED + ORDERED)
    }

    /// Sends messages of the plan to a queue, as another bridge would.
    async fn send_some(&mut self, queue: &str, numbers: Range<u64>) -> Result<()> {
        for number in numbers {
            let topic = MessageAttributeValue::builder().data_type("String").string_value(self.plan.topic(number)).build()?;
            let body = String::from_utf8(self.plan.payload(number, 1)).context("a payload is text")?;
            let send = self.sqs.send_message().queue_url(queue).message_body(body).message_attributes("causeway.topic", topic).send().await;
            send.map_err(|fault| anyhow::anyhow!("{}", DisplayErrorContext(&fault)))?;
            self.published.acknowledged.insert(number);
        }
        Ok(())
    }

    async fn publish_some(&mut self, numbers: Range<u64>) -> Result<()> {
        let count = self.consumer.unique() + (numbers.end - numbers.start);
        let publisher = Publisher { plan: self.plan.clone(), broker_port: self.broker_port, numbers, rate: 0 };
        self.published.merge(publisher.run(&Progress::default()).await?);
        self.arrive(count).await
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
        let begin = PUBLISHED + ORDERED;
        for number in begin..begin + LETTERS {
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
        let begin = begin + LETTERS;
        self.arrive(begin).await?;
        for (turn, queue) in (0..).zip([self.queue.clone(), self.orders.clone()]) {
            let begin = begin + turn * DEAD_IN_QUEUE;
            self.move_back(cloud, function, &queue, begin..begin + DEAD_IN_QUEUE).await?;
        }
        Ok(LETTERS + 2 * DEAD_IN_QUEUE)
    }

    /// Lets SQS move what is in a queue's own dead-letter queue back, and waits until it arrived.
    async fn move_back(&mut self, cloud: &Cloud, function: &str, queue: &str, numbers: Range<u64>) -> Result<()> {
        let dead = format!("{queue}-dlq");
        self.send_some(&dead, numbers.clone()).await?;
        let would = invoke(cloud, function, &json!({ "mode": "sqs", "queue": dead })).await?;
        ensure!(would["move"]["status"] == "would_start", "the dry run answered {would}");
        let moved = invoke(cloud, function, &json!({ "mode": "sqs", "queue": dead, "dry_run": false })).await?;
        ensure!(moved["move"]["status"] == "started", "the move answered {moved}");
        self.arrive(numbers.end).await
    }

    /// Lets control and then a worker be the owner, alone and from a session that is new: each has to do everything that an owner does.
    ///
    /// # Errors
    /// Something does not arrive, or is refused.
    pub async fn each_as_owner(&mut self, cloud: &Cloud, made: &Made, dir: &Path) -> Result<()> {
        let function = &made.one("AWS::Lambda::Function", "Redrive")?.physical;
        self.stop().await?;
        let limit = self.sqs.set_queue_attributes().queue_url(&self.queue).attributes(QueueAttributeName::MaximumMessageSize, QUEUE_LIMIT);
        limit.send().await.map_err(|fault| anyhow::anyhow!("{}", DisplayErrorContext(&fault)))?;
        for (turn, (name, role)) in (0..).zip([("control", Role::Control), ("worker", Role::Worker)]) {
            let begin = BEFORE_TURNS + turn * (IN_TURN + 1);
            self.forget_session(made, dir).await?;
            let mut owner = process(cloud, made, dir, (name, role), true).await?;
            serves(&mut owner).await.with_context(|| format!("{name} is not the owner"))?;
            self.workers.push(owner);
            self.publish_some(begin..begin + IN_TURN).await?;
            self.hold(cloud, made, dir, name, begin + IN_TURN).await?;
            // Into the log, refused by the queue's limit, and back among the dead letters.
            let large = self.large_letter(turn);
            self.park(&large).await?;
            let put = invoke(cloud, function, &json!({ "filter": { "ids": [large.id.to_string()] }, "dry_run": false })).await?;
            ensure!(put["redriven"] == 1, "the redrive of a large letter answered {put}");
            self.dies_again(&large).await?;
            self.stop().await?;
        }
        let mut often = self.letter(BEFORE_TURNS);
        often.redrive_count = 1;
        self.park(&often).await?;
        let all = invoke(cloud, function, &json!({ "all": true })).await?;
        ensure!(all["dry_run"] == true && all["matched"] == 3, "a dry run over everything answered {all}");
        let event = json!({ "filter": { "ids": [often.id.to_string()] }, "dry_run": false, "max_redrives": 1 });
        let aside = invoke(cloud, function, &event).await?;
        ensure!(aside["parked"] == 1, "a letter that was put back often was not set aside: {aside}");
        Ok(())
    }

    /// Lets a process receive a message that its role may not send for a while: it hides the message anew and again, and sends it in the end.
    async fn hold(&mut self, cloud: &Cloud, made: &Made, dir: &Path, name: &str, number: u64) -> Result<()> {
        let role = &made.one("AWS::IAM::Role", &format!("{name}taskrole"))?.physical;
        let denial = json!({ "Version": "2012-10-17", "Statement": [{ "Effect": "Deny", "Action": "sqs:SendMessage", "Resource": "*" }] });
        let denial = denial.to_string();
        let of_role = ["--role-name", role, "--policy-name", DENIAL];
        cloud.aws(&[&["iam", "put-role-policy"], &of_role[..], &["--policy-document", &denial]].concat()).await?;
        let orders = self.orders.clone();
        self.send_some(&orders, number..number + 1).await?;
        let deadline = Instant::now() + PATIENCE;
        while !operations::has_called(&dir.join("aws"), made, (name, "queue/source", "ChangeMessageVisibility"))? {
            ensure!(Instant::now() < deadline, "{name} did not hide a held message anew within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        cloud.aws(&[&["iam", "delete-role-policy"], &of_role[..]].concat()).await?;
        self.arrive(number + 1).await
    }

    async fn park(&self, letter: &DeadLetter) -> Result<()> {
        let outcome = self.letters.park(letter).await;
        ensure!(matches!(outcome, Outcome::Done(())), "a dead letter could not be written: {outcome:?}");
        Ok(())
    }

    /// A client id that the broker does not know, and an account of its subscriptions that nobody keeps.
    async fn forget_session(&self, made: &Made, dir: &Path) -> Result<()> {
        let config = std::fs::read_to_string(dir.join("worker.yaml")).context("cannot read the configuration")?;
        let line = config.lines().find_map(|line| line.trim().strip_prefix("client_id:")).context("the session has no client_id")?;
        let mut command = tokio::process::Command::new("mosquitto_pub");
        command.args(["-V", "5", "-h", "127.0.0.1", "-p", &self.broker_port.to_string(), "-i", line.trim().trim_matches('"')]);
        let status = command.args(["-t", "nobody/listens", "-n"]).status().await.context("cannot run mosquitto_pub")?;
        ensure!(status.success(), "mosquitto_pub ended with {status}");
        let table = made.table("-managed-subscriptions")?;
        let rows =
            self.dynamodb.scan().table_name(&table).send().await.map_err(|fault| anyhow::anyhow!("{}", DisplayErrorContext(&fault)))?;
        for mut row in rows.items.unwrap_or_default() {
            row.retain(|name, _| name == "storage_identity");
            let gone = self.dynamodb.delete_item().table_name(&table).set_key(Some(row)).send().await;
            gone.map_err(|fault| anyhow::anyhow!("{}", DisplayErrorContext(&fault)))?;
        }
        Ok(())
    }

    async fn dies_again(&mut self, letter: &DeadLetter) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.letters.get(letter.id).await.map_err(|fault| anyhow::anyhow!("{fault}"))?;
            if found.is_some_and(|found| found.state == DeadLetterState::Dead && found.redrive_count == 1) {
                return Ok(());
            }
            for worker in &mut self.workers {
                worker.process.expect_running()?;
            }
            ensure!(Instant::now() < deadline, "the large letter did not come back within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn stop(&mut self) -> Result<()> {
        for mut worker in self.workers.drain(..) {
            let status = worker.stop().await?;
            ensure!(status.success(), "a process ended with {status}");
        }
        Ok(())
    }

    fn large_letter(&self, nth: u64) -> DeadLetter {
        let mut letter = self.letter(0);
        letter.id = Id128(u128::MAX - u128::from(nth));
        letter.message.payload = Bytes::from("x".repeat(TOO_LARGE));
        letter
    }

    fn letter(&self, number: u64) -> DeadLetter {
        let message =
            Message { topic: self.plan.topic(number), payload: Bytes::from(self.plan.payload(number, 1)), qos: 1, ..Message::default() };
        let now = UnixMillis(self.plan.started_ms + number);
        let entry = Entry {
            id: Id128(u128::from(number) << 64 | u128::from(self.plan.started_ms)),
            route: self.route.as_str().into(),
            binding: self.binding.as_str().into(),
            address: None,
            refusal: None,
            source: self.receiver.as_str().into(),
            received_at: now,
            expires_at: None,
            message,
            redrive: None,
        };
        let destination = Destination {
            binding: self.binding.clone(),
            address: "telemetry".to_owned(),
            session: SESSION.to_owned(),
            ..Destination::default()
        };
        DeadLetter::new(&entry, &destination, &Fault::new(FaultCode::NotAuthorized, "the queue's policy refused it"), 5, now)
    }

    /// Stops everything and settles the account.
    ///
    /// # Errors
    /// A process does not stop cleanly.
    pub async fn finish(mut self) -> Result<Account> {
        self.stop().await?;
        let ledger = self.consumer.finish().await?;
        Ok(ledger.settle(&self.published, &[]))
    }
}

/// Waits until a process owns the exclusive session, and everything of it works. That it serves the queue says nothing of that.
async fn serves(worker: &mut Worker) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !worker.serves(SESSION).await {
        worker.process.expect_running()?;
        ensure!(Instant::now() < deadline, "session {SESSION} is not served after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Starts what a service's container runs, in its role.
async fn process(cloud: &Cloud, made: &Made, dir: &Path, (name, role): (&str, Role), enforced: bool) -> Result<Worker> {
    let service = made.one("AWS::ECS::Service", name)?;
    let container = Container::of(cloud, made, service, enforced).await?;
    ensure!(container.command == ["run", "--role", name], "{name} runs {:?}", container.command);
    let somebody = if enforced { cloud.in_role(&container.role).await? } else { cloud.clone() };
    launch(&container, &somebody, &binary().await?, dir, name, role)?.start()
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
        layers: Vec::new(),
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
///
/// # Errors
/// It refuses.
pub async fn invoke(cloud: &Cloud, function: &str, event: &Value) -> Result<Value> {
    let answer = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
    let (event, path) = (event.to_string(), answer.path().to_string_lossy().into_owned());
    let arguments = ["lambda", "invoke", "--function-name", function, "--payload", &event, &path];
    let status = cloud.aws(&arguments).await?;
    let text = std::fs::read_to_string(answer.path()).context("the function answered nothing")?;
    ensure!(status["FunctionError"].is_null(), "the function refused {event}: {text}");
    serde_json::from_str(&text).with_context(|| format!("the function answered {text}"))
}
