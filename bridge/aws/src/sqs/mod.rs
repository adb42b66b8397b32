//! Sending to an SQS queue, and receiving from one.

mod answer;
pub mod attributes;
pub mod encode;
pub mod fifo;
pub mod source;

use crate::client::AwsClients;
use crate::fault::{CallFault, Effect, classify};
use async_trait::async_trait;
use attributes::{Attribute, Value};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};
use causeway_core::config::{FifoSettings, SqsSenderSettings};
use causeway_core::drain::OrderKey;
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_ports::{Sink, SinkLimits};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use encode::Encoded;
use fifo::{Fifo, Group, is_valid_group};
use std::sync::Arc;

/// Entries that SQS takes in one call.
pub const MAX_BATCH_ENTRIES: usize = 10;
/// Bytes that SQS takes in one message and in one call, attributes included.
pub const MAX_MESSAGE_BYTES: usize = 1_048_576;
/// The longest delay of a message in seconds.
const MAX_DELAY_SECONDS: u32 = 900;

/// How long a queue may take to answer whether it is there.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Which queue, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsOptions {
    /// The queue's URL.
    pub queue_url: String,
    /// The queue's region; `None` takes the one in the URL, and else the one of the environment.
    pub region: Option<String>,
    /// How long SQS keeps a message back, in seconds, at most 900; `None` leaves it to the queue.
    pub delay_seconds: Option<u32>,
    /// Bytes of one message, attributes included; at most what SQS takes.
    pub max_message_bytes: usize,
    /// For a FIFO queue: how it is sent to.
    pub fifo: Option<Fifo>,
}

impl SqsOptions {
    /// The queue at `queue_url`, everything else as usual.
    #[must_use]
    pub fn new(queue_url: impl Into<String>) -> Self {
        Self { queue_url: queue_url.into(), region: None, delay_seconds: None, max_message_bytes: MAX_MESSAGE_BYTES, fifo: None }
    }

    fn check(&self) -> Result<(), Fault> {
        let refuse = |text: String| Err(Fault::new(FaultCode::InvalidConfig, text));
        let url = &self.queue_url;
        if !(url.starts_with("https://") || url.starts_with("http://")) {
            return refuse(format!("queue_url `{url}` is not a URL: it looks like https://sqs.REGION.amazonaws.com/ACCOUNT/NAME"));
        }
        match (&self.fifo, self.is_fifo()) {
            (None, true) => return refuse(format!("queue `{url}` is a FIFO queue: say which group its messages belong to")),
            (Some(_), false) => return refuse(format!("queue `{url}` is not a FIFO queue: the name of one ends in `.fifo`")),
            (Some(Fifo { group: Group::Fixed(group), .. }), true) if !is_valid_group(group) => {
                return refuse(format!("message_group_id `{group}`: 1 to 128 letters, digits and marks of ASCII"));
            }
            (Some(_), true) if self.delay_seconds.is_some() => {
                return refuse("delay_seconds: messages of a FIFO queue cannot be delayed one by one".to_owned());
            }
            (Some(_), true) | (None, false) => {}
        }
        if let Some(delay) = self.delay_seconds.filter(|&delay| delay > MAX_DELAY_SECONDS) {
            return refuse(format!("delay_seconds {delay}: SQS delays a message by {MAX_DELAY_SECONDS} s at most"));
        }
        if self.max_message_bytes == 0 || self.max_message_bytes > MAX_MESSAGE_BYTES {
            return refuse(format!("max_message_bytes {}: between 1 and {MAX_MESSAGE_BYTES}", self.max_message_bytes));
        }
        Ok(())
    }

    fn is_fifo(&self) -> bool {
        self.queue_url.split('?').next().is_some_and(|url| url.ends_with(".fifo"))
    }
}

impl From<SqsSenderSettings> for SqsOptions {
    fn from(settings: SqsSenderSettings) -> Self {
        let fifo =
            |fifo: FifoSettings| Fifo { group: fifo.group.map_or(Group::OfOrderingKey, Group::Fixed), strict_order: fifo.strict_order };
        Self {
            queue_url: settings.queue_url,
            region: settings.region,
            delay_seconds: settings.delay_seconds,
            max_message_bytes: settings.max_message_bytes as usize,
            fifo: settings.fifo.map(fifo),
        }
    }
}

/// The region that the URL of a queue names: `https://sqs.<region>.amazonaws.com/…`.
fn region_in_url(url: &str) -> Option<&str> {
    let host = url.split_once("://")?.1.split(['/', ':']).next()?;
    let (region, rest) = host.strip_prefix("sqs.")?.split_once('.')?;
    rest.starts_with("amazonaws.com").then_some(region)
}

/// A fault of a connection names the address that was dialled: a queue's URL does not say it where an endpoint is set.
fn dialled(mut fault: Fault, endpoint: Option<&str>) -> Fault {
    let of_the_way = matches!(fault.code, FaultCode::Unavailable | FaultCode::Timeout | FaultCode::ConnectionLost);
    if let Some(endpoint) = endpoint.filter(|_| of_the_way) {
        fault.detail.push_str(&format!(" (asked at {endpoint}, which is set as the endpoint)"));
    }
    fault
}

/// An SQS queue as a destination.
#[derive(Debug)]
pub struct SqsSink {
    client: Client,
    options: SqsOptions,
    /// Where calls go, where that is not the host of the queue's URL.
    endpoint: Option<String>,
    requests: AtomicU64,
    /// The queue's own limit, once [`Sink::probe`] has seen it.
    queue_limit: AtomicUsize,
}

impl SqsSink {
    /// A sink for `options.queue_url`. Nothing is sent yet.
    ///
    /// # Errors
    /// `INVALID_CONFIG` where an option is out of its range or does not fit the kind of queue, or there is no region.
    pub fn new(clients: &AwsClients, options: SqsOptions) -> Result<Self, Fault> {
        options.check()?;
        let client = clients.sqs(options.region.as_deref().or_else(|| region_in_url(&options.queue_url)))?;
        let endpoint = clients.sqs_endpoint(None, None);
        Ok(Self { client, options, endpoint, requests: AtomicU64::new(0), queue_limit: AtomicUsize::new(MAX_MESSAGE_BYTES) })
    }

    fn entry_bytes(&self) -> usize {
        self.options.max_message_bytes.min(self.queue_limit.load(Ordering::Relaxed))
    }

    /// Sends the entries of `group` (indexes into `encoded`), halving the batch where SQS refuses it as a whole because of its content.
    async fn send_group(&self, batch: &[Arc<Entry>], encoded: &[Encoded<'_>], group: &[usize], outcomes: &mut [Option<Outcome<()>>]) {
        let mut waiting = vec![group];
        while let Some(group) = waiting.pop() {
            match self.call(batch, encoded, group).await {
                Ok(answers) => {
                    for (&index, outcome) in group.iter().zip(answers) {
                        set(outcomes, index, outcome);
                    }
                }
                Err(fault) if group.len() > 1 && answer::is_about_entries(&fault) => {
                    let (first, second) = group.split_at(group.len() / 2);
                    waiting.extend([second, first]);
                }
                Err(fault) => {
                    for &index in group {
                        set(outcomes, index, fault.clone().outcome());
                    }
                }
            }
        }
    }

    /// One SendMessageBatch.
    async fn call(&self, batch: &[Arc<Entry>], encoded: &[Encoded<'_>], group: &[usize]) -> Result<Vec<Outcome<()>>, CallFault> {
        const CALL: &str = "SendMessageBatch";
        let entries = group.iter().enumerate();
        let entries = entries.filter_map(|(id, &index)| Some(self.request_entry(id, batch.get(index)?, encoded.get(index)?)));
        let entries = entries
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| CallFault { fault: Fault::new(FaultCode::InvalidConfig, format!("{CALL}: {error}")), effect: Effect::None })?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let request = self.client.send_message_batch().queue_url(&self.options.queue_url).set_entries(Some(entries));
        match request.send().await {
            Ok(answer) => Ok(answer::outcomes(CALL, group.len(), &answer)),
            Err(error) => {
                let failed = classify(CALL, &error);
                Err(CallFault { fault: dialled(failed.fault, self.endpoint.as_deref()), effect: failed.effect })
            }
        }
    }

    fn request_entry(&self, id: usize, of: &Entry, encoded: &Encoded<'_>) -> Result<SendMessageBatchRequestEntry, BuildError> {
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(answer::id(id))
            .message_body(encoded.body.as_ref())
            // Checked when the options were read: it is at most 900.
            .set_delay_seconds(self.options.delay_seconds.and_then(|delay| i32::try_from(delay).ok()));
        for attribute in &encoded.attributes {
            entry = entry.message_attributes(attribute.name.as_ref(), attribute_value(attribute)?);
        }
        if let Some(fifo) = &self.options.fifo {
            // What is sent again within five minutes, by whomever, is the same message to SQS.
            entry = entry.message_group_id(fifo.group_of(of)).message_deduplication_id(fifo::deduplication_id(of));
        }
        entry.build()
    }
}

fn attribute_value(attribute: &Attribute<'_>) -> Result<MessageAttributeValue, BuildError> {
    let value = MessageAttributeValue::builder().data_type(attribute.data_type());
    match &attribute.value {
        Value::Text(text) => value.string_value(text.as_ref()),
        Value::Json(text) => value.string_value(text.as_str()),
        Value::Binary(bytes) => value.binary_value(Blob::new(*bytes)),
    }
    .build()
}

fn set(outcomes: &mut [Option<Outcome<()>>], index: usize, outcome: Outcome<()>) {
    if let Some(place) = outcomes.get_mut(index) {
        *place = Some(outcome);
    }
}

/// Groups the entries in their order, within the limits of a call. The core keeps them too; a batch beyond them costs another call
/// instead of a refusal.
fn groups(encoded: &[Encoded<'_>], entry_bytes: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    for (index, entry) in encoded.iter().enumerate().filter(|(_, entry)| entry.size <= entry_bytes) {
        match groups.last_mut() {
            Some(group) if group.len() < MAX_BATCH_ENTRIES && bytes + entry.size <= MAX_MESSAGE_BYTES => group.push(index),
            _ => {
                groups.push(vec![index]);
                bytes = 0;
            }
        }
        bytes += entry.size;
    }
    groups
}

#[async_trait]
impl Sink for SqsSink {
    fn limits(&self) -> SinkLimits {
        SinkLimits { batch_entries: MAX_BATCH_ENTRIES, batch_bytes: MAX_MESSAGE_BYTES, entry_bytes: self.entry_bytes() }
    }

    fn size_of(&self, entry: &Entry) -> usize {
        encode::size_of(entry)
    }

    fn key_of(&self, entry: &Entry) -> Option<OrderKey> {
        self.options.fifo.as_ref()?.key_of(entry)
    }

    async fn send(&self, batch: &[Arc<Entry>], timeout: Duration) -> Vec<Outcome<()>> {
        let encoded: Vec<_> = batch.iter().map(|entry| encode::encode(entry)).collect();
        let limit = self.entry_bytes();
        let mut outcomes: Vec<Option<Outcome<()>>> = encoded
            .iter()
            .map(|entry| {
                let detail = || format!("{} bytes with attributes: the queue takes {limit}", entry.size);
                (entry.size > limit).then(|| Outcome::NotDone(Fault::new(FaultCode::PayloadTooLarge, detail())))
            })
            .collect();
        // Which of the groups was under way when the time ran out is no longer known afterwards: count those that began.
        let mut begun = 0;
        let work = async {
            for group in groups(&encoded, limit) {
                begun = group.last().map_or(begun, |last| last + 1);
                self.send_group(batch, &encoded, &group, &mut outcomes).await;
            }
        };
        let _ = tokio::time::timeout(timeout, work).await;
        let late = Fault::new(FaultCode::Timeout, format!("SendMessageBatch: no answer within {timeout:?}"));
        let missing = |index| {
            if index < begun { Outcome::Unknown(late.clone()) } else { Outcome::NotDone(late.clone()) }
        };
        outcomes.into_iter().enumerate().map(|(index, outcome)| outcome.unwrap_or_else(|| missing(index))).collect()
    }

    async fn probe(&self) -> Result<(), Fault> {
        let queue = &self.options.queue_url;
        // `FifoQueue` by name is refused by standard queues, so all attributes are asked for.
        let request = self.client.get_queue_attributes().queue_url(queue).attribute_names(QueueAttributeName::All);
        let call = format!("GetQueueAttributes of `{queue}`");
        let Ok(answer) = tokio::time::timeout(PROBE_TIMEOUT, request.send()).await else {
            return Err(Fault::new(FaultCode::Timeout, format!("{call}: no answer within {PROBE_TIMEOUT:?}")));
        };
        let answer = answer.map_err(|error| {
            let mut fault = dialled(classify(&call, &error).fault, self.endpoint.as_deref());
            if fault.code == FaultCode::NotFound {
                fault.detail =
                    format!("queue `{queue}` does not exist, or not in this region and account: create it, or correct `queue_url`");
            }
            fault
        })?;
        let attribute = |name| answer.attributes().and_then(|all| all.get(&name)).map(String::as_str);
        if (attribute(QueueAttributeName::FifoQueue) == Some("true")) != self.options.fifo.is_some() {
            return Err(Fault::new(
                FaultCode::InvalidConfig,
                format!("queue `{queue}`: its name and its kind do not agree on whether it is FIFO"),
            ));
        }
        if let Some(limit) = attribute(QueueAttributeName::MaximumMessageSize).and_then(|text| text.parse::<usize>().ok()) {
            self.queue_limit.store(limit.min(MAX_MESSAGE_BYTES), Ordering::Relaxed);
        }
        Ok(())
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn sized(size: usize) -> Encoded<'static> {
        Encoded { body: "x".into(), attributes: Vec::new(), size }
    }

    #[test]
    fn groups_keep_count_and_bytes_and_order() {
        let ones: Vec<_> = (0..23).map(|_| sized(1)).collect();
        assert_eq!(groups(&ones, 10).iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 3]);
        let half = MAX_MESSAGE_BYTES / 2;
        let large = [sized(half), sized(half), sized(1), sized(MAX_MESSAGE_BYTES + 1), sized(MAX_MESSAGE_BYTES)];
        assert_eq!(groups(&large, MAX_MESSAGE_BYTES), [vec![0, 1], vec![2], vec![4]]);
    }

    #[test]
    fn the_region_is_read_from_the_url() {
        for (url, region) in [
            ("https://sqs.eu-central-1.amazonaws.com/123/q", Some("eu-central-1")),
            ("https://sqs.cn-north-1.amazonaws.com.cn/123/q", Some("cn-north-1")),
            ("http://127.0.0.1:4566/000000000000/q", None),
            ("http://sqs.us-east-1.localhost.localstack.cloud:4566/000000000000/q", None),
        ] {
            assert_eq!(region_in_url(url), region, "{url}");
        }
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let good = SqsOptions::new("https://sqs.eu-west-1.amazonaws.com/1/q");
        assert!(good.check().is_ok());
        let fifo = Some(Fifo { group: Group::OfOrderingKey, strict_order: true });
        let group = |name: &str| Some(Fifo { group: Group::Fixed(name.to_owned()), strict_order: true });
        assert!(SqsOptions { fifo: fifo.clone(), ..SqsOptions::new("https://sqs.eu-west-1.amazonaws.com/1/q.fifo") }.check().is_ok());
        for bad in [
            SqsOptions::new("my-queue"),
            SqsOptions::new("https://sqs.eu-west-1.amazonaws.com/1/q.fifo"),
            SqsOptions { fifo: fifo.clone(), ..good.clone() },
            SqsOptions { fifo: group("with space"), ..SqsOptions::new("https://sqs.eu-west-1.amazonaws.com/1/q.fifo") },
            SqsOptions { fifo: group(""), ..SqsOptions::new("https://sqs.eu-west-1.amazonaws.com/1/q.fifo") },
            SqsOptions { fifo: fifo.clone(), delay_seconds: Some(1), ..SqsOptions::new("https://sqs.eu-west-1.amazonaws.com/1/q.fifo") },
            SqsOptions { delay_seconds: Some(901), ..good.clone() },
            SqsOptions { max_message_bytes: MAX_MESSAGE_BYTES + 1, ..good.clone() },
            SqsOptions { max_message_bytes: 0, ..good.clone() },
        ] {
            assert_eq!(bad.check().unwrap_err().code, FaultCode::InvalidConfig, "{bad:?}");
        }
    }
}
