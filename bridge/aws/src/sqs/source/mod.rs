//! Receiving from an SQS queue.
//!
//! A message is held from its receipt on: SQS hides it from others, for longer and longer while it is in work. It is deleted once the bridge
//! acknowledges it, which it does when another place keeps the message. What is not acknowledged shows again by itself, here or in another process.

mod calls;
mod decode;
mod holding;

pub use decode::{SOURCE_MESSAGE_ID, message};

use crate::client::AwsClients;
use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName};
use calls::Found;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::{ConnectionEpoch, Delivery, DeliveryId, Source, SourceCounters, SourceEvent};
use core::time::Duration;
use holding::{Answer, Holding, MAX_CALL_ENTRIES};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Messages that are held at a time; SQS itself stops at 120,000 for a queue, and at 20,000 for one that is FIFO.
const HELD_AT_MOST: usize = 500;
/// Calls that delete, at a time.
const DELETES_AT_ONCE: usize = 4;
/// The longest pause after a poll that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long to wait at least for what may have become due.
const SHORT_WAIT: Duration = Duration::from_millis(50);
/// Messages are never hidden anew more often than this.
const SHORTEST_TICK: Duration = Duration::from_secs(1);
/// The only connection: a queue knows none.
const CONNECTION: ConnectionEpoch = ConnectionEpoch(1);

/// Which queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queue {
    /// By its URL.
    Url(String),
    /// By its name, in the account of the credentials.
    Name(String),
}

impl Queue {
    fn is_fifo(&self) -> bool {
        let (Self::Url(text) | Self::Name(text)) = self;
        text.ends_with(".fifo")
    }
}

/// What is received, and how.
#[derive(Clone, Debug)]
pub struct SqsSourceOptions {
    /// The receiver's name; each delivery carries it.
    pub receiver: Arc<str>,
    /// The queue.
    pub queue: Queue,
    /// Its region; `None`: the one in the URL, else the one of the environment.
    pub region: Option<String>,
    /// The profile of the shared files whose credentials, and region where none is named, it uses; `None`: the usual chain.
    pub profile: Option<String>,
    /// Another address of the service.
    pub endpoint: Option<String>,
    /// The most messages in one answer, 1 to 10; from a FIFO queue it is always one, so that no message of a group waits for another's deletion here.
    pub max_messages: u32,
    /// How long a poll waits for messages; whole seconds, at most 20.
    pub wait_time: Duration,
    /// How long a message stays hidden; whole seconds.
    pub visibility_timeout: Duration,
    /// Whether that is renewed while a message is in work.
    pub auto_extend: bool,
    /// How long before its end that is done; `None`: two thirds of it.
    pub extend_before: Option<Duration>,
    /// Whether a notification of SNS is taken out of its wrapping.
    pub sns_unwrap: bool,
    /// How long one attempt to find the queue may take.
    pub init_timeout: Duration,
    /// The pause after a failed poll; it doubles.
    pub poll_backoff: Duration,
    /// After how many receives a message is poison; 0: never.
    pub poison_max_receives: u32,
    /// Whether poison is deleted where the queue has no dead-letter queue that SQS moves it to.
    pub poison_drop_without_dlq: bool,
}

impl SqsSourceOptions {
    /// The queue with the documented defaults.
    #[must_use]
    pub fn new(receiver: &str, queue: Queue) -> Self {
        Self {
            receiver: receiver.into(),
            queue,
            region: None,
            profile: None,
            endpoint: None,
            max_messages: 10,
            wait_time: Duration::from_secs(20),
            visibility_timeout: Duration::from_secs(30),
            auto_extend: true,
            extend_before: None,
            sns_unwrap: false,
            init_timeout: Duration::from_secs(30),
            poll_backoff: Duration::from_secs(1),
            poison_max_receives: 0,
            poison_drop_without_dlq: false,
        }
    }

    fn most(&self) -> usize {
        if self.queue.is_fifo() { 1 } else { (self.max_messages as usize).clamp(1, MAX_CALL_ENTRIES) }
    }

    fn tick(&self) -> Option<Duration> {
        let wanted =
            self.extend_before.and_then(|before| self.visibility_timeout.checked_sub(before)).filter(|tick| *tick >= SHORTEST_TICK);
        self.auto_extend.then(|| wanted.unwrap_or((self.visibility_timeout / 3).max(SHORTEST_TICK)))
    }

    fn client(&self, clients: &AwsClients) -> Result<Client, Fault> {
        let region = self.region.as_deref().or(match &self.queue {
            Queue::Url(url) => super::region_in_url(url),
            Queue::Name(_) => None,
        });
        clients.sqs_of(self.profile.as_deref(), region, self.endpoint.as_deref())
    }

    /// Where the client's calls go, where that is not the queue's own host.
    fn dialled(&self, clients: &AwsClients) -> Option<String> {
        clients.sqs_endpoint(self.profile.as_deref(), self.endpoint.as_deref())
    }
}

/// Whether the queue is there and may be looked at, for a check before the start.
///
/// # Errors
/// What stands in the way.
pub async fn probe(clients: &AwsClients, options: &SqsSourceOptions) -> Result<(), Fault> {
    let (client, endpoint) = (options.client(clients)?, options.dialled(clients));
    let found = timeout(options.init_timeout, calls::find(&client, &options.queue)).await.unwrap_or_else(|_| Err(no_queue_in_time()));
    found.map(drop).map_err(|fault| super::dialled(fault, endpoint.as_deref()))
}

fn no_queue_in_time() -> Fault {
    Fault::new(FaultCode::Timeout, "the queue was not found within init_timeout")
}

/// What the handle wants of the task.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    paused: bool,
    closing: Option<Instant>,
}

#[derive(Debug, Default)]
struct Shared {
    received: AtomicU64,
    deleted: AtomicU64,
    held: AtomicU64,
    held_peak: AtomicU64,
    failures: AtomicU64,
    poison: AtomicU64,
    poison_dropped: AtomicU64,
    /// Deliveries that the consumer is done with and the task has not been told of.
    acknowledged: Mutex<Vec<u64>>,
    wake: Notify,
}

/// A queue as a source. Dropping it gives nothing back: what is held shows again after `visibility_timeout`.
#[derive(Debug)]
pub struct SqsSource {
    events: mpsc::Receiver<SourceEvent>,
    control: watch::Sender<Control>,
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
    closed: bool,
}

impl SqsSource {
    /// Starts receiving. Needs a Tokio runtime.
    ///
    /// # Errors
    /// `INVALID_CONFIG` where there is no region.
    pub fn start(clients: &AwsClients, options: SqsSourceOptions) -> Result<Self, Fault> {
        let (client, endpoint) = (options.client(clients)?, options.dialled(clients));
        let (events, receiver) = mpsc::channel(HELD_AT_MOST);
        let (control, wanted) = watch::channel(Control::default());
        let shared = Arc::new(Shared::default());
        let task =
            Task { client, endpoint, holding: Holding::new(options.tick()), options, events, control: wanted, shared: Arc::clone(&shared) };
        Ok(Self { events: receiver, control, shared, task: Some(tokio::spawn(task.run())), closed: false })
    }
}

#[async_trait]
impl Source for SqsSource {
    async fn next(&mut self) -> SourceEvent {
        if self.closed {
            return SourceEvent::Closed;
        }
        let event = self.events.recv().await.unwrap_or(SourceEvent::Closed);
        if matches!(event, SourceEvent::Delivery(_)) {
            self.shared.received.fetch_add(1, Ordering::Relaxed);
        }
        event
    }

    /// That delivery and no other: a queue takes them in any order.
    fn acknowledge(&mut self, delivery: DeliveryId) {
        if delivery.connection == CONNECTION {
            // No longer than what is held: each delivery is acknowledged once.
            self.shared.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push(delivery.ordinal);
            self.shared.wake.notify_one();
        }
    }

    fn pause(&mut self, paused: bool) {
        self.control.send_modify(|wanted| wanted.paused = paused);
    }

    async fn close(&mut self, deadline: Duration) {
        self.closed = true;
        self.control.send_modify(|wanted| wanted.closing = Some(Instant::now() + deadline));
        self.events.close();
        if let Some(mut task) = self.task.take()
            && timeout(deadline + Duration::from_secs(1), &mut task).await.is_err()
        {
            task.abort();
        }
    }

    fn counters(&self) -> SourceCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SourceCounters {
            received: read(&self.shared.received),
            acknowledged: read(&self.shared.deleted),
            unacknowledged: read(&self.shared.held),
            unacknowledged_peak: read(&self.shared.held_peak),
            connect_failures: read(&self.shared.failures),
            poison_packets: read(&self.shared.poison),
            poison_dropped: read(&self.shared.poison_dropped),
            ..SourceCounters::default()
        }
    }
}

impl Drop for SqsSource {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The end of a call.
enum Done {
    Polled(Result<Vec<Received>, Fault>),
    Deleted(Vec<(u64, Answer)>),
    Hidden { asked: Instant, answers: Vec<(u64, Answer)> },
}

struct Task {
    client: Client,
    /// Where its calls go, where that is not the queue's own host.
    endpoint: Option<String>,
    options: SqsSourceOptions,
    holding: Holding,
    events: mpsc::Sender<SourceEvent>,
    control: watch::Receiver<Control>,
    shared: Arc<Shared>,
}

/// What is under way.
#[derive(Debug, Default)]
struct Underway {
    polling: bool,
    hiding: bool,
    deletes: usize,
    /// No poll before this.
    not_before: Option<Instant>,
    failures: u32,
}

impl Task {
    async fn run(mut self) {
        let Some(queue) = self.find().await else { return };
        if self.options.poison_max_receives > 0 && !queue.has_redrive_policy && !self.options.poison_drop_without_dlq {
            tracing::warn!(receiver = %self.options.receiver, "the queue has no dead-letter queue: poison_max_receives has no effect; give it a redrive policy, or set poison_drop_without_dlq");
        }
        let mut calls: JoinSet<Done> = JoinSet::new();
        let mut underway = Underway::default();
        while self.closing().is_none() {
            self.start_calls(&queue, &mut calls, &mut underway);
            let wake = [self.holding.wake_at(), underway.not_before].into_iter().flatten().filter(|at| *at > Instant::now()).min();
            let alarm = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => core::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.control.changed() => if changed.is_err() { return },
                () = self.shared.wake.notified() => {}
                Some(done) = calls.join_next() => if let Ok(done) = done && self.apply(&queue, done, &mut underway).await.is_none() { return },
                () = alarm => {}
                // The consumer takes what waits for it, and there is room to poll again.
                () = has_room(&self.events), if !underway.polling && self.holding.len() < HELD_AT_MOST && self.events.capacity() < self.options.most() => {}
            }
            self.note();
        }
        self.finish(&queue, calls).await;
    }

    fn closing(&self) -> Option<Instant> {
        self.control.borrow().closing
    }

    /// Finds the queue, however long that takes; `None` where the source is to close.
    async fn find(&mut self) -> Option<Found> {
        let mut failures = 0;
        loop {
            let mut control = self.control.clone();
            let found = tokio::select! {
                _ = control.wait_for(|wanted| wanted.closing.is_some()) => return None,
                found = timeout(self.options.init_timeout, calls::find(&self.client, &self.options.queue)) => found.unwrap_or_else(|_| Err(no_queue_in_time())),
            };
            match found {
                Ok(found) => {
                    self.events.send(SourceEvent::Connected { connection: CONNECTION, session_present: true }).await.ok()?;
                    self.events.send(SourceEvent::Subscribed { connection: CONNECTION, granted: 1, refused: Vec::new() }).await.ok()?;
                    return Some(found);
                }
                Err(fault) => {
                    let fault = super::dialled(fault, self.endpoint.as_deref());
                    let retry_in = self.pause(failures);
                    failures += 1;
                    self.shared.failures.fetch_add(1, Ordering::Relaxed);
                    self.events.send(SourceEvent::Disconnected { connection: ConnectionEpoch(0), fault, retry_in }).await.ok()?;
                    let mut control = self.control.clone();
                    tokio::select! {
                        _ = control.wait_for(|wanted| wanted.closing.is_some()) => return None,
                        () = tokio::time::sleep(retry_in) => {}
                    }
                }
            }
        }
    }

    /// The pause after so many failures before.
    fn pause(&self, failures: u32) -> Duration {
        self.options.poll_backoff.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(LONGEST_PAUSE)
    }

    fn start_calls(&mut self, queue: &Found, calls: &mut JoinSet<Done>, underway: &mut Underway) {
        let (now, wanted) = (Instant::now(), *self.control.borrow_and_update());
        let acknowledged = core::mem::take(&mut *self.shared.acknowledged.lock().unwrap_or_else(PoisonError::into_inner));
        for ordinal in acknowledged {
            self.holding.settle(ordinal);
        }
        while underway.deletes < DELETES_AT_ONCE {
            let batch = self.holding.due_deletes(now);
            if batch.is_empty() {
                break;
            }
            underway.deletes += 1;
            let (client, url) = (self.client.clone(), queue.url.clone());
            calls.spawn(async move { Done::Deleted(calls::delete(client, url, batch).await) });
        }
        if !underway.hiding {
            let batch = self.holding.due_extensions(now, self.options.visibility_timeout);
            if !batch.is_empty() {
                underway.hiding = true;
                let (client, url) = (self.client.clone(), queue.url.clone());
                calls.spawn(async move { Done::Hidden { asked: now, answers: calls::hide(client, url, batch).await } });
            }
        }
        underway.not_before = underway.not_before.filter(|at| *at > now);
        let most = self.options.most();
        let room = self.holding.len() < HELD_AT_MOST && self.events.capacity() >= most;
        if !underway.polling && underway.not_before.is_none() && room && !wanted.paused {
            underway.polling = true;
            let (client, url, options) = (self.client.clone(), queue.url.clone(), self.options.clone());
            let most = i32::try_from(most).unwrap_or(1);
            calls.spawn(async move { Done::Polled(calls::receive(client, url, options, most).await) });
        }
    }

    /// Takes in how a call ended; `None` where nobody takes events any more.
    async fn apply(&mut self, queue: &Found, done: Done, underway: &mut Underway) -> Option<()> {
        match done {
            Done::Polled(answer) => {
                underway.polling = false;
                match answer {
                    Ok(messages) => {
                        if underway.failures > 0 {
                            tracing::info!(receiver = %self.options.receiver, "the queue answers again");
                        }
                        underway.failures = 0;
                        for received in messages {
                            self.take(queue, &received).await?;
                        }
                    }
                    Err(fault) => {
                        let pause = self.pause(underway.failures).max(fault.retry_after.unwrap_or_default());
                        underway.failures = underway.failures.saturating_add(1);
                        underway.not_before = Some(Instant::now() + pause);
                        self.shared.failures.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(receiver = %self.options.receiver, code = fault.code.as_str(), detail = %fault.detail, pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX), "the queue cannot be polled");
                    }
                }
            }
            Done::Deleted(answers) => {
                underway.deletes -= 1;
                answers.into_iter().for_each(|(ordinal, answer)| self.holding.deleted_answer(Instant::now(), ordinal, answer));
            }
            Done::Hidden { asked, answers } => {
                underway.hiding = false;
                answers.into_iter().for_each(|(ordinal, answer)| self.holding.extended_answer(Instant::now(), asked, ordinal, answer));
            }
        }
        Some(())
    }

    /// Hands a message over. SQS has hidden it since it answered, a moment ago.
    async fn take(&mut self, queue: &Found, received: &Received) -> Option<()> {
        let Some(receipt) = received.receipt_handle() else { return Some(()) };
        if self.is_poison(received) {
            self.shared.poison.fetch_add(1, Ordering::Relaxed);
            if queue.has_redrive_policy {
                // SQS moves it once it counts enough receives itself.
                tracing::warn!(receiver = %self.options.receiver, id = received.message_id(), "received too often: left to the queue's redrive policy");
                return Some(());
            }
            if self.options.poison_drop_without_dlq {
                self.shared.poison_dropped.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(receiver = %self.options.receiver, id = received.message_id(), "received too often: dropped, as poison_drop_without_dlq says");
                let ordinal = self.holding.take(receipt.to_owned(), Instant::now());
                self.holding.settle(ordinal);
                return Some(());
            }
        }
        let message = decode::message(received, self.options.sns_unwrap);
        let id = DeliveryId { connection: CONNECTION, ordinal: self.holding.take(receipt.to_owned(), Instant::now()) };
        self.events.send(SourceEvent::Delivery(Delivery { id, receiver: Arc::clone(&self.options.receiver), message })).await.ok()
    }

    fn is_poison(&self, received: &Received) -> bool {
        let count = received.attributes().and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount));
        let count = count.and_then(|count| count.parse::<u32>().ok()).unwrap_or(1);
        self.options.poison_max_receives > 0 && count > self.options.poison_max_receives
    }

    fn note(&self) {
        let held = self.holding.len() as u64;
        self.shared.held.store(held, Ordering::Relaxed);
        self.shared.held_peak.fetch_max(held, Ordering::Relaxed);
        self.shared.deleted.store(self.holding.deleted(), Ordering::Relaxed);
    }

    /// Deletes what is acknowledged, then shows the rest to others, both by the deadline.
    async fn finish(mut self, queue: &Found, calls: JoinSet<Done>) {
        let Some(deadline) = self.closing() else { return };
        let mut calls = calls;
        let mut underway = Underway { polling: true, hiding: true, deletes: 0, ..Underway::default() };
        let deleting = async {
            loop {
                self.start_calls(queue, &mut calls, &mut underway);
                if self.holding.is_settled() {
                    return;
                }
                let alarm = self.holding.wake_at().unwrap_or(deadline).max(Instant::now() + SHORT_WAIT);
                tokio::select! {
                    Some(done) = calls.join_next() => match done {
                        Ok(Done::Deleted(answers)) => {
                            underway.deletes = underway.deletes.saturating_sub(1);
                            answers.into_iter().for_each(|(ordinal, answer)| self.holding.deleted_answer(Instant::now(), ordinal, answer));
                        }
                        // Nobody takes them any more: they are shown again below.
                        Ok(Done::Polled(Ok(messages))) => {
                            for receipt in messages.into_iter().filter_map(|message| message.receipt_handle) {
                                self.holding.take(receipt, Instant::now());
                            }
                        }
                        Ok(Done::Polled(Err(_)) | Done::Hidden { .. }) | Err(_) => {}
                    },
                    () = sleep_until(alarm) => {}
                }
            }
        };
        let in_time = timeout_at(deadline, deleting).await.is_ok();
        self.note();
        if !in_time {
            return;
        }
        let unfinished = self.holding.unfinished();
        for batch in unfinished.chunks(MAX_CALL_ENTRIES) {
            let batch = batch.iter().map(|(ordinal, receipt)| (*ordinal, receipt.clone(), Duration::ZERO)).collect();
            let showing = calls::hide(self.client.clone(), queue.url.clone(), batch);
            if timeout_at(deadline, showing).await.is_err() {
                return;
            }
        }
    }
}

/// Waits until the consumer has taken something.
async fn has_room(events: &mpsc::Sender<SourceEvent>) {
    // A permit that is dropped goes back.
    drop(events.reserve_many(MAX_CALL_ENTRIES).await);
}
