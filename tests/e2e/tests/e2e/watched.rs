//! A worker whose queue is read as a whole: for tests that look at every message that arrives.

use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName};
use causeway_core::dead_letter::DeadLetter;
use causeway_e2e::use_fifo_queue;
use causeway_local::sqlite::{OpenMode, SqliteStore};
use causeway_ports::{DeadLetterFilter, DeadLetters as _};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use xtask::rig::Rig;
use xtask::stack::{StackOptions, Store};
use xtask::worker::Worker;

const PATIENCE: Duration = Duration::from_secs(60);

/// A stack without consumers of its own, so that what arrives can be looked at whole, and a worker.
pub struct Watched {
    pub rig: Rig,
    pub worker: Worker,
    // Dropped last: the processes write into it.
    _dir: TempDir,
}

impl Watched {
    /// `layer`: a file on top of the configuration.
    pub async fn start(store: Store, fifo: bool, layer: &str) -> Self {
        Self::start_after(store, fifo, layer, async |_| {}).await
    }

    /// The same with something that happens before there is a worker.
    pub async fn start_after(store: Store, fifo: bool, layer: &str, before: impl AsyncFnOnce(&Rig)) -> Self {
        let dir = tempfile::Builder::new().prefix("causeway-e2e-").tempdir().unwrap();
        let mut rig = Rig::start(&StackOptions::bound(dir.path(), store), true).await.unwrap();
        if fifo {
            use_fifo_queue(&mut rig).await.unwrap();
        }
        let path = dir.path().join("layer.yaml");
        std::fs::write(&path, layer).unwrap();
        rig.launch.layers.push(path);
        before(&rig).await;
        let worker = rig.worker().await.unwrap();
        Self { rig, worker, _dir: dir }
    }

    pub async fn stop_and_start_again(&mut self, meanwhile: impl AsyncFnOnce(&Rig)) {
        assert!(self.worker.stop().await.unwrap().success(), "{}", self.worker.process.log_tail(20));
        meanwhile(&self.rig).await;
        self.worker = self.rig.worker().await.unwrap();
    }

    pub async fn kill_and_start_again(&mut self, meanwhile: impl FnOnce(&Rig)) {
        self.worker.process.kill().await.unwrap();
        meanwhile(&self.rig);
        self.worker = self.rig.worker().await.unwrap();
    }

    /// Publishes with quality of service 1; mosquitto's own client waits for the acknowledgement.
    pub async fn publish(&self, topic: &str, payload: &[u8], properties: &[(&str, &str)]) {
        let mut command = client(&self.rig, topic);
        command.arg(if payload.is_empty() { "-n" } else { "-s" });
        for (name, value) in properties {
            command.args(["-D", "publish", "user-property", *name, *value]);
        }
        feed(command, payload).await;
    }

    /// Publishes numbers, one message each, over one connection.
    pub async fn publish_numbers(&self, topic: &str, numbers: std::ops::Range<u64>) {
        publish_numbers(&self.rig, topic, numbers).await;
    }

    /// What arrives in the queue until there are `count`.
    pub async fn arrivals(&self, count: usize) -> Vec<Received> {
        let (mut arrived, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while arrived.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} arrived: {}", arrived.len(), self.worker.process.log_tail(20));
            arrived.extend(self.receive().await);
        }
        arrived
    }

    /// What arrives within a few seconds in which nothing is expected.
    pub async fn stragglers(&self) -> Vec<Received> {
        let (mut arrived, until) = (Vec::new(), Instant::now() + Duration::from_secs(4));
        while Instant::now() < until {
            arrived.extend(self.receive().await);
        }
        arrived
    }

    async fn receive(&self) -> Vec<Received> {
        let (sqs, url) = (&self.rig.stack.aws.sqs, &self.rig.settings.queue_url);
        let receive = sqs.receive_message().queue_url(url).max_number_of_messages(10).wait_time_seconds(1);
        let receive = receive.message_attribute_names("All").message_system_attribute_names(MessageSystemAttributeName::All);
        let messages = receive.send().await.unwrap().messages.unwrap_or_default();
        for message in &messages {
            sqs.delete_message().queue_url(url).receipt_handle(message.receipt_handle().unwrap()).send().await.unwrap();
        }
        messages
    }

    pub async fn metric(&self, name: &str) -> f64 {
        self.worker.metrics().await.unwrap().get(name).unwrap_or(0.0)
    }

    pub async fn letters(&self) -> Vec<DeadLetter> {
        let store = SqliteStore::open(self.rig.settings.dir.join("dlq.db"), OpenMode::ReadOnly).unwrap().dead_letters();
        store.list(&DeadLetterFilter::default(), 100, None).await.unwrap().letters
    }
}

/// mosquitto's own client, publishing with quality of service 1.
fn client(rig: &Rig, topic: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new("mosquitto_pub");
    command.args(["-V", "5", "-h", "127.0.0.1", "-p", &rig.stack.broker.port().to_string(), "-q", "1", "-t", topic]);
    command
}

/// Publishes numbers, one message each, over one connection.
pub async fn publish_numbers(rig: &Rig, topic: &str, numbers: std::ops::Range<u64>) {
    let mut command = client(rig, topic);
    command.arg("-l");
    feed(command, numbers.map(|number| format!("{number}\n")).collect::<String>().as_bytes()).await;
}

/// Publishes a message that the broker keeps for later subscribers.
pub async fn publish_retained(rig: &Rig, topic: &str, payload: &str) {
    let mut command = client(rig, topic);
    command.args(["-r", "-s"]);
    feed(command, payload.as_bytes()).await;
}

async fn feed(mut command: tokio::process::Command, input: &[u8]) {
    let mut child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).await.unwrap();
    assert!(child.wait().await.unwrap().success());
}

pub fn attribute<'m>(message: &'m Received, name: &str) -> Option<&'m str> {
    message.message_attributes()?.get(name)?.string_value()
}

/// Polls until `reached`, for as long as anybody could need.
pub async fn until(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached().await {
        assert!(Instant::now() < deadline, "{what} does not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
