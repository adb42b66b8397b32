//! An SQS queue and its consumer, for the contract of sinks.

use super::clients;
use super::emulator::{Emulator, free_port};
use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};
use causeway_aws::sqs::source::{SOURCE_MESSAGE_ID, message};
use causeway_aws::{Fifo, Group, SqsOptions, SqsSink};
use causeway_ports::Sink;
use causeway_ports::conformance::sink::{Arrived, Destination};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long a message may take to arrive.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct QueueUnderTest {
    client: Client,
    url: String,
    sink: SqsSink,
    astray: SqsOptions,
    arrived: Mutex<Vec<Arrived>>,
}

impl QueueUnderTest {
    /// A queue of this name; a FIFO queue where it ends in `.fifo`.
    pub async fn new(emulator: &Emulator, name: &str) -> Self {
        let client = clients(&emulator.endpoint).sqs(None).unwrap();
        let is_fifo = name.ends_with(".fifo");
        let request = client.create_queue().queue_name(name);
        let request = if is_fifo { request.attributes(QueueAttributeName::FifoQueue, "true") } else { request };
        let url = request.send().await.unwrap().queue_url.unwrap();
        let fifo = is_fifo.then_some(Fifo { group: Group::OfOrderingKey, strict_order: true });
        let options = SqsOptions { fifo, ..SqsOptions::new(&url) };
        let sink = SqsSink::new(&clients(&emulator.endpoint), options.clone()).unwrap();
        Self { client, url, sink, astray: options, arrived: Mutex::default() }
    }

    async fn receive(&self) -> Vec<Arrived> {
        let request = self.client.receive_message().queue_url(&self.url).max_number_of_messages(10).wait_time_seconds(1);
        let request = request.message_attribute_names("All").message_system_attribute_names(MessageSystemAttributeName::All);
        let mut all = Vec::new();
        for received in request.send().await.unwrap().messages.unwrap_or_default() {
            let handle = received.receipt_handle().unwrap();
            self.client.delete_message().queue_url(&self.url).receipt_handle(handle).send().await.unwrap();
            let id = received.message_attributes().unwrap()["causeway.message_id"].string_value().unwrap().to_owned();
            let mut message = message(&received, false);
            message.properties.user.retain(|(name, _)| name != SOURCE_MESSAGE_ID);
            all.push(Arrived { id, payload: message.payload, properties: message.properties });
        }
        all
    }
}

#[async_trait]
impl Destination for QueueUnderTest {
    fn sink(&self) -> &dyn Sink {
        &self.sink
    }

    fn astray(&self) -> Box<dyn Sink> {
        let nowhere = format!("http://127.0.0.1:{}", free_port());
        Box::new(SqsSink::new(&clients(&nowhere), self.astray.clone()).unwrap())
    }

    async fn arrived(&self, count: usize) -> Vec<Arrived> {
        let mut arrived = self.arrived.lock().await;
        let deadline = Instant::now() + PATIENCE;
        while arrived.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} messages arrived", arrived.len());
            arrived.extend(self.receive().await);
        }
        arrived.clone()
    }
}
