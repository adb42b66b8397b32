//! Publishing: a destination on an MQTT broker.
//!
//! A publisher has a connection of its own, made when there is something to publish. It does not use the source's: a source that is held back reads
//! nothing, and without reading there are no acknowledgements, so what is to be published could never make room for what is to be received. The
//! connection has no session at the broker: what is not acknowledged is in the bridge's outbox, or with its source, and is published again.

mod answer;
mod packet;
mod pending;
mod single;
mod task;

pub use packet::{CAUSATION_ID, MESSAGE_ID, REDRIVE_ATTEMPT};
pub use single::SinglePublisher;

use crate::options::{MqttConfigError, SourceOptions};
use crate::probe;
use crate::tls;
use answer::Answer;
use async_trait::async_trait;
use causeway_core::drain::OrderKey;
use causeway_core::flow::sender::SenderLink;
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::worker::ordering_key;
use causeway_ports::{Clock, Sink, SinkLimits};
use core::hash::{Hash as _, Hasher as _};
use core::time::Duration;
use packet::{MAX_PACKET, Manner, Packet};
use rumqttc::QoS;
use std::collections::BTreeMap;
use std::hash::DefaultHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use task::Task;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// Messages that wait for the connection; whoever has more waits.
const QUEUE: usize = 64;
/// Messages in one batch.
const BATCH_ENTRIES: usize = 64;
/// Bytes in one batch.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// How the broker is reached, and how much is entrusted to it at a time.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    /// Broker, client id, TLS, login, keep-alive, timeouts and pauses. What concerns wills, sessions and subscriptions is not used. The client id must be
    /// this publisher's alone.
    pub connection: SourceOptions,
    /// Messages without an acknowledgement at most; a broker may announce that it takes fewer.
    pub window: u16,
    /// When it takes no more for a connection that does not get rid of what it was given.
    pub marks: Marks,
}

/// Bytes that the connection was given and has not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Above this nothing more is taken: at most one packet beyond it waits.
    pub high: u64,
    /// Once there are fewer than this, whoever looks at the link is told.
    pub low: u64,
}

impl Default for Marks {
    fn default() -> Self {
        Self { high: 1_310_720, low: 655_360 }
    }
}

impl Marks {
    /// Whether a mark lies between two amounts.
    const fn lie_between(self, before: u64, after: u64) -> bool {
        (before > self.high) != (after > self.high) || (before < self.low) != (after < self.low)
    }
}

/// A connection that messages are published on, for any number of [`MqttSink`]s.
#[derive(Debug)]
pub struct MqttPublisher {
    options: PublisherOptions,
    jobs: mpsc::Sender<Job>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What the task tells.
#[derive(Debug)]
pub(crate) struct Shared {
    published: AtomicU64,
    /// The largest packet that the broker takes, as far as it is known.
    max_packet: AtomicUsize,
    link: watch::Sender<SenderLink>,
    /// Acknowledgements by their reason.
    answers: Mutex<BTreeMap<u8, u64>>,
}

impl Shared {
    fn new() -> Self {
        Self {
            published: AtomicU64::new(0),
            max_packet: AtomicUsize::new(MAX_PACKET),
            link: watch::Sender::default(),
            answers: Mutex::default(),
        }
    }

    /// Tells of the connection. Whoever looks is woken where something else than the bytes changed, or those passed one of `marks`.
    fn tell(&self, marks: Marks, change: impl FnOnce(&mut SenderLink)) {
        self.link.send_if_modified(|link| {
            let before = *link;
            change(link);
            let others = SenderLink { pending_bytes: before.pending_bytes, ..*link };
            others != before || marks.lie_between(before.pending_bytes, link.pending_bytes)
        });
    }

    fn count(&self, answer: &Answer) {
        if let Answer::Acknowledged(reason) = answer {
            *self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry(*reason as u8).or_default() += 1;
        }
    }
}

/// A message on its way to the broker.
#[derive(Debug)]
pub(crate) struct Job {
    packet: Packet,
    deadline: Instant,
    /// Set before it is looked whether anybody still waits for the answer; read after nobody waits any more. So one of the two sides always notices.
    handed: Arc<AtomicBool>,
    answer: oneshot::Sender<Answer>,
}

/// The other end of a job.
struct Waiting {
    deadline: Instant,
    handed: Arc<AtomicBool>,
    answer: oneshot::Receiver<Answer>,
}

impl MqttPublisher {
    /// Starts a publisher, which connects once there is something to publish. `seed` spreads the pauses between attempts. Needs a Tokio runtime.
    ///
    /// # Errors
    /// What [`SourceOptions::validate`] finds.
    pub fn start(options: PublisherOptions, seed: u64) -> Result<Self, MqttConfigError> {
        options.connection.validate()?;
        let connection = &options.connection;
        let tls = if connection.uses_tls() { Some(tls::client_config(&connection.tls)?) } else { None };
        let (jobs, queue) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared::new());
        let task = tokio::spawn(Task::new(options.clone(), tls, queue, Arc::clone(&shared), seed).run());
        Ok(Self { options, jobs, shared, task })
    }

    async fn submit(&self, packet: Packet, deadline: Instant) -> Result<Waiting, Answer> {
        let (answer, waiting) = oneshot::channel();
        let handed = Arc::new(AtomicBool::new(false));
        let job = Job { packet, deadline, handed: Arc::clone(&handed), answer };
        match timeout_at(deadline, self.jobs.send(job)).await {
            Ok(Ok(())) => Ok(Waiting { deadline, handed, answer: waiting }),
            Ok(Err(_)) => Err(Answer::Unsent(Fault::new(FaultCode::Unavailable, "the publisher has ended"))),
            Err(_) => Err(Answer::Unsent(late())),
        }
    }

    async fn probe(&self) -> Result<(), Fault> {
        let report = probe::probe(&self.options.connection).await?;
        self.shared.max_packet.store(report.max_packet_bytes.map_or(MAX_PACKET, |bytes| bytes as usize), Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for MqttPublisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Waiting {
    async fn answer(mut self) -> Answer {
        if let Ok(answer) = timeout_at(self.deadline, &mut self.answer).await {
            return answer.unwrap_or_else(|_| self.unanswered(Fault::new(FaultCode::ConnectionLost, "the publisher has ended")));
        }
        self.answer.close();
        match self.answer.try_recv() {
            Ok(answer) => answer,
            Err(_) => self.unanswered(late()),
        }
    }

    fn unanswered(&self, fault: Fault) -> Answer {
        if self.handed.load(Ordering::SeqCst) { Answer::Unanswered(fault) } else { Answer::Unsent(fault) }
    }
}

impl Job {
    /// The job, if it may still be handed to a connection: from then on nobody is told that it was not.
    fn hand_over(self) -> Option<Self> {
        if Instant::now() >= self.deadline {
            self.refuse(late());
            return None;
        }
        self.handed.store(true, Ordering::SeqCst);
        (!self.answer.is_closed()).then_some(self)
    }

    fn refuse(self, fault: Fault) {
        // Nobody waits where the send was given up.
        let _ = self.answer.send(Answer::Unsent(fault));
    }
}

fn late() -> Fault {
    Fault::new(FaultCode::Timeout, "the broker did not acknowledge the message in time")
}

/// How a sink publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttSinkOptions {
    /// The topic that is published to; see [`Sink::at`]. An empty one refuses everything.
    pub topic: String,
    /// The quality of service, 0 or 1. What is published with 0 may be lost, and nobody is told.
    pub qos: u8,
    /// Whether the broker keeps each message for later subscribers.
    pub retain: bool,
    /// The pause after the broker said that a quota is exceeded.
    pub throttle_retry_after: Duration,
}

/// Topics of a broker as a destination.
pub struct MqttSink {
    publisher: Arc<MqttPublisher>,
    options: MqttSinkOptions,
    clock: Arc<dyn Clock>,
}

impl core::fmt::Debug for MqttSink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MqttSink").field("publisher", &self.publisher).field("options", &self.options).finish_non_exhaustive()
    }
}

impl MqttSink {
    /// A sink that publishes on `publisher`'s connection.
    #[must_use]
    pub fn new(publisher: Arc<MqttPublisher>, options: MqttSinkOptions, clock: Arc<dyn Clock>) -> Self {
        Self { publisher, options, clock }
    }

    /// What the binding's address came to for this entry, where that differs from one to the next.
    fn topic_of<'e>(&'e self, entry: &'e Entry) -> &'e str {
        entry.address.as_deref().unwrap_or(&self.options.topic)
    }

    fn packet(&self, entry: &Entry) -> Result<Packet, Fault> {
        let qos = if self.options.qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
        packet::packet(entry, self.topic_of(entry), Manner { qos, retain: self.options.retain }, self.clock.wall())
    }
}

#[async_trait]
impl Sink for MqttSink {
    fn limits(&self) -> SinkLimits {
        let most = self.publisher.shared.max_packet.load(Ordering::Relaxed);
        SinkLimits { batch_entries: BATCH_ENTRIES, batch_bytes: BATCH_BYTES.max(most), entry_bytes: most }
    }

    fn size_of(&self, entry: &Entry) -> usize {
        packet::size(entry, self.topic_of(entry))
    }

    /// MQTT keeps the order of what is published to a topic, and so does the bridge. An entry without a topic of its own has no place in any order.
    fn key_of(&self, entry: &Entry) -> Option<OrderKey> {
        let key = ordering_key(entry);
        (!key.is_empty()).then(|| {
            // Only compared within one process.
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            OrderKey(hasher.finish())
        })
    }

    async fn send(&self, batch: &[Arc<Entry>], timeout: Duration) -> Vec<Outcome<()>> {
        let deadline = Instant::now() + timeout;
        let mut submitted = Vec::with_capacity(batch.len());
        for entry in batch {
            submitted.push(match self.packet(entry) {
                Ok(packet) => self.publisher.submit(packet, deadline).await,
                Err(fault) => Err(Answer::Unsent(fault)),
            });
        }
        let mut outcomes = Vec::with_capacity(batch.len());
        for one in submitted {
            let answer = match one {
                Ok(waiting) => waiting.answer().await,
                Err(answer) => answer,
            };
            outcomes.push(answer.outcome(self.options.throttle_retry_after));
        }
        outcomes
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.publisher.probe().await
    }

    fn requests(&self) -> u64 {
        self.publisher.shared.published.load(Ordering::Relaxed)
    }

    fn link(&self) -> Option<watch::Receiver<SenderLink>> {
        Some(self.publisher.shared.link.subscribe())
    }

    fn answers(&self) -> Vec<(u8, u64)> {
        let answers = self.publisher.shared.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().map(|(code, count)| (*code, *count)).collect()
    }

    /// The topic `address`.
    fn at(&self, address: &str) -> Option<Arc<dyn Sink>> {
        let options = MqttSinkOptions { topic: address.to_owned(), ..self.options.clone() };
        Some(Arc::new(Self { publisher: Arc::clone(&self.publisher), options, clock: Arc::clone(&self.clock) }))
    }
}
