//! Dead letters to try a redrive on, made the way they come about, and the end of their way.

use crate::ledger::payload::Plan;
use crate::ledger::publisher::{Progress, Publisher};
use crate::stack::aws::{Aws, explain};
use crate::stack::ports;
use crate::worker::Launch;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use aws_sdk_sqs::types::Message;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;

/// How long the letters may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// The queue that is there only until the worker has started.
const DOOMED: &str = "doomed-queue";
/// Bytes of a message.
const SIZE: usize = 250;
/// Letters that are made at once at most: one page of the program's listing.
pub const MOST: u64 = 1_000;

/// Publishes `count` messages to a worker whose queue was deleted after it started, and waits until each of them is a dead letter. Gives how many letters
/// are dead then, earlier ones included.
///
/// # Errors
/// The worker does not start, because another one of the same stack runs for example, or the letters do not come about.
pub async fn make(launch: &Launch, aws: &Aws, broker_port: u16, count: u64) -> Result<u64> {
    ensure!((1..=MOST).contains(&count), "between 1 and {MOST} dead letters are made at once, not {count}");
    let before = dead(launch).await?;
    ensure!(before + count <= MOST, "there are {before} dead letters already: put them back, or delete them, before more are made");
    let layer = launch.dir.join("doomed-queue.yaml");
    let monitor = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free_port()?));
    // A worker does not start on a queue that is not there.
    let queue_url = aws.create_queue(DOOMED).await?;
    std::fs::write(&layer, doomed_queue(&queue_url, monitor)).with_context(|| format!("cannot write {}", layer.display()))?;
    let doomed = Launch { layers: vec![layer], monitor, name: DOOMED.to_owned(), ..launch.clone() };
    let mut worker = doomed.start()?;
    worker.ready("subscribed").await?;
    let deleted = aws.sqs.delete_queue().queue_url(&queue_url).send().await;
    deleted.map_err(|fault| anyhow!("cannot delete {queue_url}: {}", explain(&fault)))?;
    let publisher = Publisher { plan: Plan::new(count, SIZE), broker_port, numbers: 0..count, rate: 0 };
    let published = publisher.run(&Progress::default()).await?;
    ensure!(published.acknowledged.len() as u64 == count, "the broker took {} of {count} messages", published.acknowledged.len());
    let deadline = Instant::now() + PATIENCE;
    let now = loop {
        worker.process.expect_running()?;
        let now = dead(launch).await?;
        if now >= before + count {
            break now;
        }
        if Instant::now() > deadline {
            bail!(
                "{} of {count} messages are dead letters after {PATIENCE:?}; the worker said:\n{}",
                now - before,
                worker.process.log_tail(20)
            );
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    };
    let status = worker.stop().await?;
    ensure!(status.success(), "the worker ended with {status}:\n{}", worker.process.log_tail(20));
    Ok(now)
}

/// What makes the queue of a configuration another one, and a worker soon sure that it is gone for good.
fn doomed_queue(queue_url: &str, monitor: SocketAddr) -> String {
    format!(
        "# A queue that is deleted once the worker runs, and tried for a second: what is sent there becomes a dead letter.\n\
         senders:\n  - id: sqs-out\n    options: {{queue_url: \"{queue_url}\"}}\n\
         routes:\n  - id: ingest\n    policy: {{max_replay_attempts: 2, replay_budget: 1s}}\n\
         http: {{monitor_addr: \"{monitor}\"}}\n"
    )
}

/// How many letters are dead.
async fn dead(launch: &Launch) -> Result<u64> {
    let config = launch.config.to_string_lossy();
    let limit = MOST.to_string();
    let told = launch.run(&["dlq", "list", "--state", "dead", "--limit", &limit, "--json", "-c", &config]).await?;
    let told: Value = serde_json::from_str(&told).context("`causeway dlq list --json` did not print JSON")?;
    Ok(told["letters"].as_array().map_or(0, Vec::len) as u64)
}

/// A message as it arrived in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The id that the bridge gave it, the same over repeats and redrives.
    pub message_id: String,
    /// How often it was put back.
    pub redrives: u64,
    /// Its payload.
    pub body: String,
}

/// Runs a worker for as long as something arrives, and takes from the queue what does.
///
/// # Errors
/// The worker does not start, or the queue does not answer.
pub async fn deliver(launch: &Launch, sqs: &aws_sdk_sqs::Client, queue_url: &str, silence: Duration) -> Result<Vec<Arrived>> {
    let mut worker = launch.start()?;
    worker.ready("subscribed").await?;
    let mut arrived = Vec::new();
    let mut last = Instant::now();
    while last.elapsed() < silence {
        worker.process.expect_running()?;
        let messages = take(sqs, queue_url).await?;
        if !messages.is_empty() {
            last = Instant::now();
        }
        arrived.extend(messages.iter().map(read));
    }
    let status = worker.stop().await?;
    ensure!(status.success(), "the worker ended with {status}:\n{}", worker.process.log_tail(20));
    Ok(arrived)
}

async fn take(sqs: &aws_sdk_sqs::Client, queue_url: &str) -> Result<Vec<Message>> {
    let request = sqs.receive_message().queue_url(queue_url).max_number_of_messages(10).wait_time_seconds(1).message_attribute_names("All");
    let messages = request.send().await.map_err(|fault| anyhow!("cannot receive from {queue_url}: {}", explain(&fault)))?;
    let messages = messages.messages.unwrap_or_default();
    for handle in messages.iter().filter_map(Message::receipt_handle) {
        let deleted = sqs.delete_message().queue_url(queue_url).receipt_handle(handle).send().await;
        deleted.map_err(|fault| anyhow!("cannot delete from {queue_url}: {}", explain(&fault)))?;
    }
    Ok(messages)
}

fn read(message: &Message) -> Arrived {
    let attribute = |name: &str| message.message_attributes().and_then(|all| all.get(name)).and_then(|value| value.string_value());
    Arrived {
        message_id: attribute("causeway.message_id").unwrap_or_default().to_owned(),
        redrives: attribute("causeway.redrive_attempt").and_then(|count| count.parse().ok()).unwrap_or(0),
        body: message.body().unwrap_or_default().to_owned(),
    }
}
