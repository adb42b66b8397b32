//! Drives the decisions of [`Gateway`] with a store, a publisher, a source of replies and the clocks.
//!
//! One task owns the gateway. Calls to the store and to the broker run beside it, and come back to it as events: nothing that waits holds up a reply or a
//! caller.

use super::api::{CommandDesk, CommandLimits, Order};
use super::counters::CommandCounters;
use super::envelope::envelope;
use async_trait::async_trait;
use bytes::Bytes;
use causeway_core::commands::gateway::{Answer, Ask, Effect, Event, Gateway, GatewayOptions, Observation, Path, Refusal, Request};
use causeway_core::commands::{Arrival, Command, CommandResult, Correlation, ReplyReader, WaiterId};
use causeway_core::identity::Id128;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::source_id::ContentDigest;
use causeway_ports::{Clock, Commands, Delivery, OrphanAnswer, Publication, Publisher, Source, SourceEvent};
use core::time::Duration;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

/// The receiver of the subscription that is this instance's own.
pub const DIRECT_RECEIVER: &str = "commands-direct";
/// The receiver of the subscriptions that all instances share.
pub const SHARED_RECEIVER: &str = "commands-shared";
/// The receiver of what instances tell each other.
pub const NOTIFY_RECEIVER: &str = "commands-notify";

/// Calls that the engine has not taken up; whoever has more waits.
const CALLS: usize = 256;
/// Ends of calls to the store and the broker that it has not taken up.
const ENDS: usize = 1_024;

/// What an engine needs to know.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// What the decisions depend on.
    pub gateway: GatewayOptions,
    /// How replies are read; its topics are those that are published to.
    pub reader: ReplyReader,
    /// The quality of service of commands: 0 or 1.
    pub qos: u8,
    /// The bounds of what callers may ask.
    pub limits: CommandLimits,
}

/// The outside.
#[derive(Clone)]
pub struct EnginePorts {
    /// Where commands are kept.
    pub store: Arc<dyn Commands>,
    /// Where they are published.
    pub publisher: Arc<dyn Publisher>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

/// The gateway of commands of this instance.
#[derive(Clone)]
pub struct CommandGateway {
    inner: Arc<Inner>,
}

impl core::fmt::Debug for CommandGateway {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CommandGateway").field("limits", &self.inner.limits).finish_non_exhaustive()
    }
}

struct Inner {
    calls: mpsc::Sender<Call>,
    store: Arc<dyn Commands>,
    limits: CommandLimits,
    counters: Arc<CommandCounters>,
    next_waiter: AtomicU64,
    task: Mutex<Option<JoinHandle<()>>>,
}

enum Call {
    Give { ask: Ask, answer: oneshot::Sender<Answer> },
    Cancel { waiter: WaiterId, id: Id128, answer: oneshot::Sender<Answer> },
    Gone { waiter: WaiterId, id: Id128 },
    Stop { within: Duration },
}

/// Tells the engine of a caller who went away before the answer.
struct Caller {
    calls: mpsc::Sender<Call>,
    waiter: WaiterId,
    id: Id128,
    answered: bool,
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.answered {
            // An engine that has ended has nobody waiting, and in one that is this busy the waiter stays until its patience ends.
            let _ = self.calls.try_send(Call::Gone { waiter: self.waiter, id: self.id });
        }
    }
}

impl CommandGateway {
    /// Starts the engine. `source` is subscribed to the reply topics under the receivers of this module. Needs a Tokio runtime.
    #[must_use]
    pub fn start(options: EngineOptions, ports: EnginePorts, source: Box<dyn Source>) -> Self {
        let (calls, receiver) = mpsc::channel(CALLS);
        let counters = Arc::new(CommandCounters::default());
        let (limits, store) = (options.limits, Arc::clone(&ports.store));
        let engine = Engine::new(options, ports, source, Arc::clone(&counters));
        let task = Mutex::new(Some(tokio::spawn(engine.run(receiver))));
        Self { inner: Arc::new(Inner { calls, store, limits, counters, next_waiter: AtomicU64::new(1), task }) }
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counters(&self) -> &CommandCounters {
        &self.inner.counters
    }

    /// Tells everybody who waits, takes nothing new, lets what is under way end, for `within` at most, and closes the source.
    pub async fn stop(&self, within: Duration) {
        // It may have ended by itself.
        let _ = self.inner.calls.send(Call::Stop { within }).await;
        if let Some(task) = self.inner.task.lock().await.take()
            && let Err(error) = task.await
        {
            warn!(%error, "the gateway of commands did not end by itself");
        }
    }

    fn next_waiter(&self) -> WaiterId {
        WaiterId(self.inner.next_waiter.fetch_add(1, Ordering::Relaxed))
    }

    async fn call(&self, waiter: WaiterId, id: Id128, call: impl FnOnce(oneshot::Sender<Answer>) -> Call) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let mut caller = Caller { calls: self.inner.calls.clone(), waiter, id, answered: false };
        let answer = match self.inner.calls.send(call(sender)).await {
            Ok(()) => receiver.await.ok(),
            Err(_) => None,
        };
        caller.answered = true;
        answer.unwrap_or(Answer::Refused(Refusal::Stopping))
    }
}

#[async_trait]
impl CommandDesk for CommandGateway {
    async fn give(&self, order: Order) -> Answer {
        let mut bytes = [0; 16];
        if let Err(error) = getrandom::fill(&mut bytes) {
            let fault = Fault::new(FaultCode::Unavailable, format!("no random number for the command's name: {error}"));
            return Answer::Refused(Refusal::Store(fault));
        }
        let (id, waiter, limits) = (Id128(u128::from_be_bytes(bytes)), self.next_waiter(), &self.inner.limits);
        let timeout = order.timeout.unwrap_or(limits.default_timeout).clamp(limits.min_timeout, limits.max_timeout);
        let patience = order.patience.map(|patience| patience.min(limits.sync_wait_max));
        let digest = digest_of(&order, timeout);
        let Order { target, payload, content_type, properties, key, .. } = order;
        let request = Arc::new(Request { target, payload, content_type, properties });
        let ask = Ask { waiter, id, request, digest, key, timeout, patience };
        self.call(waiter, id, |answer| Call::Give { ask, answer }).await
    }

    async fn cancel(&self, id: Id128) -> Answer {
        let waiter = self.next_waiter();
        self.call(waiter, id, |answer| Call::Cancel { waiter, id, answer }).await
    }

    async fn read(&self, id: Id128) -> Result<Option<Command>, Fault> {
        self.inner.store.read(id).await
    }

    async fn result(&self, id: Id128) -> Result<Option<CommandResult>, Fault> {
        self.inner.store.result(id).await
    }

    fn limits(&self) -> &CommandLimits {
        &self.inner.limits
    }
}

/// A digest of what a command says. Each field is preceded by its length, so that no two commands run together into one.
fn digest_of(order: &Order, timeout: Duration) -> ContentDigest {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    field(order.target.as_bytes());
    field(&order.payload);
    field(&[u8::from(order.content_type.is_some())]);
    field(order.content_type.as_deref().unwrap_or_default().as_bytes());
    field(&timeout.as_millis().to_be_bytes());
    for (name, value) in &order.properties {
        field(name.as_bytes());
        field(value.as_bytes());
    }
    hash.finalize().into()
}

struct Engine {
    gateway: Gateway,
    options: EngineOptions,
    ports: EnginePorts,
    source: Box<dyn Source>,
    source_ended: bool,
    counters: Arc<CommandCounters>,
    waiting: HashMap<WaiterId, oneshot::Sender<Answer>>,
    ended: mpsc::Sender<Event>,
    ends: mpsc::Receiver<Event>,
    closing_time: Duration,
    finished: bool,
}

/// What wakes the engine.
enum Woken {
    Call(Option<Call>),
    Source(SourceEvent),
    Event(Event),
}

impl Engine {
    fn new(options: EngineOptions, ports: EnginePorts, source: Box<dyn Source>, counters: Arc<CommandCounters>) -> Self {
        let (ended, ends) = mpsc::channel(ENDS);
        Self {
            gateway: Gateway::new(options.gateway.clone()),
            options,
            ports,
            source,
            source_ended: false,
            counters,
            waiting: HashMap::new(),
            ended,
            ends,
            closing_time: Duration::ZERO,
            finished: false,
        }
    }

    async fn run(mut self, mut calls: mpsc::Receiver<Call>) {
        let mut callers_left = true;
        while !self.finished {
            let pause = self.gateway.wake_at().map(|at| at.since(self.ports.clock.now()));
            let tick = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => core::future::pending().await,
                }
            };
            let woken = tokio::select! {
                call = calls.recv(), if callers_left => Woken::Call(call),
                event = self.source.next(), if !self.source_ended => Woken::Source(event),
                Some(event) = self.ends.recv() => Woken::Event(event),
                () = tick => Woken::Event(Event::Tick),
            };
            match woken {
                Woken::Call(Some(call)) => self.called(call),
                // Nobody can call any more.
                Woken::Call(None) => {
                    callers_left = false;
                    self.called(Call::Stop { within: Duration::ZERO });
                }
                Woken::Source(event) => self.arrived(event),
                Woken::Event(event) => self.apply(event),
            }
            self.counters.set_gauges(self.gateway.pending(), self.gateway.waiting());
        }
        // Whoever still asks is told at once that nobody is here.
        drop((calls, core::mem::take(&mut self.waiting)));
        self.source.close(self.closing_time).await;
    }

    fn called(&mut self, call: Call) {
        match call {
            Call::Give { ask, answer } => {
                self.waiting.insert(ask.waiter, answer);
                self.apply(Event::Asked(ask));
            }
            Call::Cancel { waiter, id, answer } => {
                self.waiting.insert(waiter, answer);
                self.apply(Event::Cancelled { waiter, id });
            }
            Call::Gone { waiter, id } => {
                self.waiting.remove(&waiter);
                self.apply(Event::Gone { waiter, id });
            }
            Call::Stop { within } => {
                self.closing_time = within;
                self.apply(Event::Stop { until: self.ports.clock.now().plus(within) });
            }
        }
    }

    fn arrived(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Delivery(delivery) => self.delivered(&delivery),
            SourceEvent::Disconnected { connection, fault, .. } => {
                debug!(code = fault.code.as_str(), "the connection for replies to commands is gone");
                self.apply(Event::Listening(false));
                self.apply(Event::Disconnected { connection });
            }
            SourceEvent::Subscribed { refused, .. } => {
                let reader = &self.options.reader;
                let own = reader.topics.direct_filter(&reader.instance);
                self.apply(Event::Listening(refused.iter().all(|(filter, _)| *filter != own)));
                for (filter, fault) in refused {
                    warn!(filter, code = fault.code.as_str(), detail = %fault.detail, "replies to commands cannot be subscribed to");
                }
            }
            SourceEvent::Connected { .. } => {}
            SourceEvent::Closed => self.source_ended = true,
        }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        let path = match &*delivery.receiver {
            DIRECT_RECEIVER => Some(Path::Direct),
            SHARED_RECEIVER => Some(Path::Shared),
            _ => None,
        };
        match self.options.reader.read(delivery.id, path, &delivery.message) {
            Arrival::Reply(reply) => self.apply(Event::Replied(*reply)),
            Arrival::Notified(id) => {
                self.apply(Event::Ignored { delivery: delivery.id });
                self.apply(Event::Notified { id });
            }
            Arrival::Ignored(why) => {
                self.counters.ignored(why);
                debug!(reason = why.as_str(), "a message on the topics of replies does not count");
                self.apply(Event::Ignored { delivery: delivery.id });
            }
        }
    }

    fn apply(&mut self, event: Event) {
        let (now, wall) = (self.ports.clock.now(), self.ports.clock.wall());
        for effect in self.gateway.apply(now, wall, event) {
            self.carry_out(effect);
        }
    }

    /// Runs a call beside the engine; its end comes back as an event.
    fn beside(&self, call: impl Future<Output = Event> + Send + 'static) {
        let ended = self.ended.clone();
        tokio::spawn(async move {
            // An engine that has ended needs no answer.
            let _ = ended.send(call.await).await;
        });
    }

    fn carry_out(&mut self, effect: Effect) {
        let store = Arc::clone(&self.ports.store);
        match effect {
            Effect::Create { command, key, digest } => self.beside(async move {
                let outcome = store.create(&command, key.as_deref(), &digest).await;
                Event::Created { id: command.id, outcome }
            }),
            Effect::Read { id } => self.beside(async move { Event::Read { id, outcome: store.read(id).await } }),
            Effect::Write { command, result } => self.beside(async move {
                let outcome = store.write(&command, result.as_ref()).await;
                Event::Written { id: command.id, outcome }
            }),
            Effect::KeepOrphan { id, reply } => {
                let orphan = OrphanAnswer { id, by: reply.by, came_at: self.ports.clock.wall() };
                self.beside(async move { Event::OrphanKept { id, outcome: store.keep_orphan(&orphan).await } });
            }
            Effect::Publish { id, request, expiry_seconds } => self.publish(id, &request, expiry_seconds),
            Effect::Notify { id } => self.notify(id),
            Effect::Answer { waiter, answer } => {
                if let Some(waiting) = self.waiting.remove(&waiter) {
                    // The caller may have gone in this moment.
                    let _ = waiting.send(answer);
                }
            }
            Effect::Acknowledge(delivery) => self.source.acknowledge(delivery),
            Effect::Observe(observation) => {
                if let Observation::StoreFault(fault) = &observation {
                    warn!(code = fault.code.as_str(), detail = %fault.detail, "a call to the store of commands failed");
                }
                self.counters.observe(&observation);
            }
            Effect::Finished => self.finished = true,
        }
    }

    fn publish(&self, id: Id128, request: &Request, expiry_seconds: u32) {
        let reader = &self.options.reader;
        let response_topic = reader.topics.reply(&reader.instance, &request.target);
        let (payload, content_type) = match reader.correlation {
            Correlation::Property => (request.payload.clone(), request.content_type.clone()),
            Correlation::Payload => (envelope(id, &response_topic, expiry_seconds, &request.payload), Some("application/json".to_owned())),
        };
        let publication = Publication {
            topic: reader.topics.request(&request.target),
            payload,
            qos: self.options.qos,
            expiry_seconds: Some(expiry_seconds),
            response_topic: Some(response_topic),
            correlation_data: Some(name_of(id)),
            content_type,
            user: request.properties.clone(),
        };
        let (publisher, counters) = (Arc::clone(&self.ports.publisher), Arc::clone(&self.counters));
        self.beside(async move {
            let outcome = publisher.publish(publication).await.map(|answer| answer.no_subscriber);
            if let Outcome::NotDone(fault) | Outcome::Unknown(fault) = &outcome {
                counters.publish_fault();
                warn!(code = fault.code.as_str(), detail = %fault.detail, "a command could not be published");
            }
            Event::Published { id, outcome }
        });
    }

    /// Nobody waits for this: whoever is not told looks at the row.
    fn notify(&self, id: Id128) {
        let publication =
            Publication { topic: self.options.reader.broadcast_topic.clone(), payload: name_of(id), ..Publication::default() };
        let (publisher, counters) = (Arc::clone(&self.ports.publisher), Arc::clone(&self.counters));
        tokio::spawn(async move {
            if publisher.publish(publication).await.done().is_none() {
                counters.publish_fault();
            }
        });
    }
}

fn name_of(id: Id128) -> Bytes {
    Bytes::copy_from_slice(&id.0.to_be_bytes())
}
