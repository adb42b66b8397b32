//! Reads the queue empty, as an application would, and enters every message into the ledger.

use super::{Ledger, Receipt};
use crate::stack::aws::explain;
use anyhow::{Result, bail};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName};
use base64::Engine as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The message attribute that names the topic.
const TOPIC: &str = "causeway.topic";
/// The message attribute that says how the body is encoded.
const ENCODING: &str = "causeway.encoding";

/// Consumers at work.
#[derive(Debug)]
pub struct Consumer {
    ledger: Arc<Mutex<Ledger>>,
    shared: Arc<Shared>,
    tasks: JoinSet<Result<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    unique: AtomicU64,
    /// Milliseconds after `started` at which something last arrived.
    last_arrival: AtomicU64,
    started: Instant,
}

impl Consumer {
    /// Starts `count` of them on one queue.
    #[must_use]
    pub fn start(client: &Client, queue_url: &str, count: usize, ledger: Ledger) -> Self {
        let ledger = Arc::new(Mutex::new(ledger));
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            unique: AtomicU64::new(0),
            last_arrival: AtomicU64::new(0),
            started: Instant::now(),
        });
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            tasks.spawn(consume(client.clone(), queue_url.to_owned(), Arc::clone(&ledger), Arc::clone(&shared)));
        }
        Self { ledger, shared, tasks }
    }

    /// How many different messages arrived so far.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.shared.unique.load(Ordering::Relaxed)
    }

    /// How long nothing has arrived.
    #[must_use]
    pub fn idle(&self) -> Duration {
        let now = self.shared.started.elapsed();
        now.saturating_sub(Duration::from_millis(self.shared.last_arrival.load(Ordering::Relaxed)))
    }

    /// Whether every one of these messages arrived.
    pub async fn has_all(&self, indices: impl IntoIterator<Item = u64>) -> bool {
        let ledger = self.ledger.lock().await;
        indices.into_iter().all(|index| ledger.has(index))
    }

    /// Stops reading and hands over the ledger.
    ///
    /// # Errors
    /// A consumer failed.
    pub async fn finish(mut self) -> Result<Ledger> {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        match Arc::try_unwrap(self.ledger) {
            Ok(ledger) => Ok(ledger.into_inner()),
            Err(_) => bail!("the ledger is still in use"),
        }
    }
}

async fn consume(client: Client, queue_url: String, ledger: Arc<Mutex<Ledger>>, shared: Arc<Shared>) -> Result<()> {
    let mut failures = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let received = client
            .receive_message()
            .queue_url(&queue_url)
            .max_number_of_messages(10)
            .wait_time_seconds(1)
            .visibility_timeout(60)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
            .send()
            .await;
        let messages = match received {
            Ok(received) => received.messages.unwrap_or_default(),
            Err(fault) if failures < 20 => {
                failures += 1;
                let _ = fault;
                tokio::time::sleep(Duration::from_millis(250)).await;
                continue;
            }
            Err(fault) => bail!("cannot receive from {queue_url}: {}", explain(&fault)),
        };
        failures = 0;
        if messages.is_empty() {
            continue;
        }
        shared.last_arrival.store(u64::try_from(shared.started.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        {
            let mut ledger = ledger.lock().await;
            for message in &messages {
                ledger.receive(&receipt(message));
            }
            shared.unique.store(ledger.unique(), Ordering::Relaxed);
        }
        delete(&client, &queue_url, &messages).await;
    }
    Ok(())
}

/// What could not be deleted comes again, and the ledger recognises it.
async fn delete(client: &Client, queue_url: &str, messages: &[Message]) {
    let entries = messages.iter().enumerate().filter_map(|(number, message)| {
        DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(message.receipt_handle()?).build().ok()
    });
    let _ = client.delete_message_batch().queue_url(queue_url).set_entries(Some(entries.collect())).send().await;
}

fn receipt(message: &Message) -> Receipt {
    let attribute = |name: &str| message.message_attributes().and_then(|all| all.get(name)).and_then(|value| value.string_value());
    let body = message.body().unwrap_or_default();
    let payload = if attribute(ENCODING) == Some("base64") {
        base64::engine::general_purpose::STANDARD.decode(body).unwrap_or_default()
    } else {
        body.as_bytes().to_vec()
    };
    let sent = message.attributes().and_then(|all| all.get(&MessageSystemAttributeName::SentTimestamp));
    Receipt {
        queue_message_id: message.message_id().unwrap_or_default().to_owned(),
        payload,
        topic: attribute(TOPIC).map(str::to_owned),
        sent_at_ms: sent.and_then(|sent| sent.parse().ok()).unwrap_or_default(),
    }
}
