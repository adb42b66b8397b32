//! The source: one task that connects again and again, and the handle that the worker holds.

use crate::backoff::{Backoff, Rivalry, STABLE_AFTER};
use crate::connection::{self, Attempt, NOTHING_TO_PUBLISH, Opened};
use crate::gate::{self, Inquiry};
use crate::loose::Loose;
use crate::options::{MqttConfigError, SourceOptions};
use crate::renewal::renew;
use crate::session::{Cause, End, Item, SLACK, Session, Shared, Surroundings, Welcome, count};
use crate::subscriptions::Terms;
use crate::tls;
use async_trait::async_trait;
use causeway_core::outcome::Fault;
use causeway_ports::{ConnectionEpoch, Delivery, DeliveryId, Source, SourceCounters, SourceEvent};
use core::future::Future;
use core::time::Duration;
use rumqttc::ConnAck;
use rustls::ClientConfig;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The failover budget counts two times of grace.
const GRACES: u32 = 2;

/// What the handle wants of the task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Control {
    /// Everything up to here is done with.
    pub(crate) acknowledged: DeliveryId,
    /// End this connection, and make another.
    pub(crate) reconnect: Option<ConnectionEpoch>,
    /// Stay out of the groups of shared subscriptions.
    pub(crate) unshared: bool,
    /// Close, and be through with it by then.
    pub(crate) closing: Option<Instant>,
}

/// Starts a source. `seed` spreads the pauses between attempts; give every process another one. Needs a Tokio runtime.
///
/// # Errors
/// What [`SourceOptions::validate`] finds.
pub fn start(options: SourceOptions, seed: u64) -> Result<MqttSource, MqttConfigError> {
    options.validate()?;
    let tls = if options.uses_tls() { Some(tls::client_config(&options.tls)?) } else { None };
    let (events, receiver) = mpsc::channel(usize::from(options.receive_maximum) + SLACK + options.loose.messages);
    let loose = Arc::new(Loose::new(options.loose));
    let (control, wanted) = watch::channel(Control::default());
    let shared = Arc::new(Shared::default());
    let task = Task {
        backoff: Backoff::new(options.reconnect_delay, options.reconnect_max_delay, seed),
        rivalry: Rivalry::new(options.takeover_delay, options.takeover_max_delay, seed.rotate_left(32)),
        penalty: Duration::ZERO,
        outside: Surroundings { events, loose: Arc::clone(&loose), shared: Arc::clone(&shared) },
        options,
        tls,
        control: wanted,
        address: 0,
        epoch: ConnectionEpoch(0),
        kept: false,
        graces: GRACES,
    };
    Ok(MqttSource {
        events: receiver,
        loose,
        control,
        shared,
        task: Some(tokio::spawn(task.run())),
        paused: false,
        held: None,
        closed: false,
    })
}

/// The task that owns everything MQTT.
struct Task {
    options: SourceOptions,
    tls: Option<Arc<ClientConfig>>,
    backoff: Backoff,
    rivalry: Rivalry,
    /// What the next pause must not be shorter than.
    penalty: Duration,
    outside: Surroundings,
    control: watch::Receiver<Control>,
    /// Which of the addresses is tried next, counted without end.
    address: usize,
    epoch: ConnectionEpoch,
    /// Whether the broker keeps the session of the current connection when it ends: asked for, and not declined in the CONNACK.
    kept: bool,
    /// How many connections may still hold messages back, as long as each ends before its time of grace does.
    graces: u32,
}

impl Task {
    async fn run(mut self) {
        loop {
            let end = self.connect_and_run().await;
            connection::count_end(&end, &self.outside.shared);
            if end.cause == Cause::Closing || self.pause_after(end).await.is_none() {
                return;
            }
        }
    }

    /// Asks the gate, if there is one. `None` where the source is to close.
    async fn ask_to_connect(&mut self) -> Option<Result<(), Fault>> {
        let Some(gate) = &self.options.gate else { return Some(Ok(())) };
        unless_closing(&mut self.control, gate::before_connect(&**gate, self.epoch.0 > 0, self.options.connect_limit(self.epoch.0 > 0)))
            .await
    }

    async fn connect_and_run(&mut self) -> End {
        match self.ask_to_connect().await {
            Some(Ok(())) => {}
            Some(Err(fault)) => return End { cause: Cause::Lost, fault },
            None => return End::closing(),
        }
        renew(&mut self.options, &mut self.tls);
        let clean_start = self.options.clean_start && self.epoch.0 == 0;
        let url = self.options.url_at(self.address);
        let attempt = Attempt {
            options: &self.options,
            url,
            limit: self.options.connect_limit(self.epoch.0 > 0),
            tls: self.tls.clone(),
            clean_start,
            outgoing_window: NOTHING_TO_PUBLISH,
        };
        let opened = match unless_closing(&mut self.control, connection::open(&attempt)).await {
            Some(Ok(opened)) => opened,
            Some(Err(end)) => {
                self.address = self.address.wrapping_add(1);
                count(&self.outside.shared.connect_failures);
                return end;
            }
            None => return End::closing(),
        };
        let Opened { client, mut event_loop, socket, connack } = opened;
        let (since, session_present) = (Instant::now(), connack.session_present);
        self.kept = keeps_session(&connack, &self.options);
        self.note_connected(session_present);
        let welcome = Welcome {
            session_present,
            grace: if self.graces > 0 { self.options.unmatched_grace } else { Duration::ZERO },
            keep_alive: connection::watched_keep_alive(&event_loop, &self.options),
            kept: self.kept,
            terms: terms(&connack, self.kept, self.options.no_local),
        };
        let inquiry = Inquiry::new(self.options.gate.clone(), session_present, self.options.reconcile_timeout);
        let mut session = Session::new(client, self.epoch, &self.options, inquiry, welcome, &self.outside);
        session.report(SourceEvent::Connected { connection: self.epoch, session_present });
        let mut end = connection::run(&mut event_loop, &mut session, &self.outside.events, &mut self.control).await;
        self.graces = if session.holds_back() { self.graces.saturating_sub(1) } else { GRACES };
        // At once, before anything waits for the consumer.
        self.note_disconnected();
        connection::let_go(event_loop, &socket, end.cause == Cause::Closing || session.has_left()).await;
        let lasted = since.elapsed();
        self.note_rivalry(&mut end, lasted);
        if lasted >= STABLE_AFTER || (session.made_progress() && end.cause != Cause::Poison) {
            self.backoff.reset();
        }
        if end.cause == Cause::Poison && !self.kept {
            count(&self.outside.shared.poison_lost);
        }
        if end.cause == Cause::Full && self.kept {
            self.outside.shared.resumed_at.store(self.epoch.0 + 1, Ordering::Relaxed);
        }
        session.end();
        while let Some(item) = session.next_waiting() {
            if end.cause == Cause::Closing || self.hand_over(item).await.is_none() {
                return End::closing();
            }
        }
        end
    }

    fn note_connected(&mut self, session_present: bool) {
        let shared = &self.outside.shared;
        let first = self.epoch.0 == 0;
        self.epoch.0 += 1;
        shared.connection.store(self.epoch.0, Ordering::Relaxed);
        shared.connected.store(true, Ordering::Relaxed);
        if !first {
            count(&shared.reconnects);
        }
        let fresh_is_fine = first && (self.options.first_connection_expected_new || self.options.clean_start);
        if self.options.is_durable() && session_present {
            shared.resumed_at.store(self.epoch.0, Ordering::Relaxed);
        } else if self.options.is_durable() && !fresh_is_fine {
            count(&shared.sessions_lost);
            tracing::warn!(connection = self.epoch.0, "the broker no longer has this client's session; messages may be lost");
        }
        tracing::debug!(connection = self.epoch.0, session_present, broker = %self.options.url_at(self.address), "connected");
    }

    fn note_disconnected(&self) {
        let shared = &self.outside.shared;
        shared.connected.store(false, Ordering::Relaxed);
        shared.subscribed.store(false, Ordering::Relaxed);
        shared.unacknowledged.store(0, Ordering::Relaxed);
        shared.reading_paused.store(false, Ordering::Relaxed);
        shared.quarantined.store(0, Ordering::Relaxed);
        shared.unmatched_held.store(0, Ordering::Relaxed);
    }

    /// Lengthens the next pause where another client seems to use this client id, and says so. One hang-up happens to everybody, so what it may mean is
    /// said from the second one in a row.
    fn note_rivalry(&mut self, end: &mut End, lasted: Duration) {
        let Some(penalty) = self.rivalry.ended(end.cause, lasted) else { return };
        self.penalty = penalty;
        let (times, client_id) = (self.rivalry.suspicions(), &self.options.client_id);
        if end.cause == Cause::HungUp && times > 1 {
            end.fault.detail.push_str(
                " again, soon after the login: probably another client connects with this client_id; or the broker does not allow what this one asks for",
            );
        }
        if times > 1 {
            tracing::error!(%client_id, times, "another client probably connects with this client_id; each process needs its own, or a lease");
        }
    }

    /// Reports the end and waits before the next attempt. `None` where the source is to close.
    async fn pause_after(&mut self, end: End) -> Option<()> {
        let retry_in = self.backoff.next().max(core::mem::take(&mut self.penalty));
        // Whoever takes the events says it aloud.
        tracing::debug!(connection = self.epoch.0, fault = %end.fault, ?retry_in, "not connected");
        self.hand_over(SourceEvent::Disconnected { connection: self.epoch, fault: end.fault, retry_in }.into()).await?;
        unless_closing(&mut self.control, sleep(retry_in)).await?;
        if end.cause == Cause::Full {
            // The consumer stood still; connecting before it has taken everything would only fill the buffer again.
            let events = &self.outside.events;
            unless_closing(&mut self.control, events.reserve_many(events.max_capacity())).await?.ok()?;
        }
        Some(())
    }

    async fn hand_over(&mut self, item: Item) -> Option<()> {
        unless_closing(&mut self.control, self.outside.events.send(item)).await?.ok()
    }
}

fn terms(connack: &ConnAck, durable: bool, no_local: bool) -> Terms {
    let identifiers = connack.properties.as_ref().and_then(|properties| properties.subscription_identifiers_available) != Some(0);
    Terms { durable, identifiers, no_local }
}

fn keeps_session(connack: &ConnAck, options: &SourceOptions) -> bool {
    let granted = connack.properties.as_ref().and_then(|properties| properties.session_expiry_interval).unwrap_or(options.session_expiry);
    if granted < options.session_expiry {
        tracing::warn!(granted, asked = options.session_expiry, "the broker keeps the session for fewer seconds than asked for");
    }
    granted > 0
}

/// The result of `work`, or `None` as soon as the handle wants to close or is gone.
async fn unless_closing<T>(control: &mut watch::Receiver<Control>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = control.wait_for(|wanted| wanted.closing.is_some()) => None,
        result = work => Some(result),
    }
}

/// What a health check wants to know, at any moment, whoever waits for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// Whether a connection stands.
    pub connected: bool,
    /// Whether every filter was granted on it.
    pub subscribed: bool,
    /// The connection, or the last one; 0 before the first.
    pub connection: ConnectionEpoch,
}

/// Reads the status of a source from elsewhere.
#[derive(Clone, Debug)]
pub struct StatusHandle(Arc<Shared>);

impl StatusHandle {
    /// The status now.
    #[must_use]
    pub fn get(&self) -> ConnectionStatus {
        ConnectionStatus {
            connected: self.0.connected.load(Ordering::Relaxed),
            subscribed: self.0.subscribed.load(Ordering::Relaxed),
            connection: ConnectionEpoch(self.0.connection.load(Ordering::Relaxed)),
        }
    }

    /// The counters now.
    #[must_use]
    pub fn counters(&self) -> SourceCounters {
        let shared = &self.0;
        let read = |counter: &core::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        SourceCounters {
            received: read(&shared.received),
            acknowledged: read(&shared.acknowledged),
            unacknowledged: read(&shared.unacknowledged),
            unacknowledged_peak: read(&shared.unacknowledged_peak),
            reconnects: read(&shared.reconnects),
            connect_failures: read(&shared.connect_failures),
            sessions_lost: read(&shared.sessions_lost),
            poison_packets: read(&shared.poison_packets),
            poison_lost: read(&shared.poison_lost),
            poison_dropped: 0,
            window_overruns: read(&shared.window_overruns),
            reused_ids: read(&shared.reused_ids),
            dropped_qos0: read(&shared.dropped_qos0),
            refusals: read(&shared.refusals),
            quarantined: read(&shared.quarantined),
            unmatched_held: read(&shared.unmatched_held),
            reading_paused: shared.reading_paused.load(Ordering::Relaxed),
        }
    }
}

/// The worker's end of a source. Dropping it ends the connection at once; the broker keeps the session.
///
/// Events come in order: no delivery of a connection follows its `Disconnected`. While paused, [`Source::next`] still reports what precedes the first
/// delivery that is held back, and [`StatusHandle`] tells the rest.
#[derive(Debug)]
pub struct MqttSource {
    events: mpsc::Receiver<Item>,
    loose: Arc<Loose>,
    control: watch::Sender<Control>,
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
    paused: bool,
    held: Option<Item>,
    closed: bool,
}

impl MqttSource {
    /// A handle that reads status and counters.
    #[must_use]
    pub fn status(&self) -> StatusHandle {
        StatusHandle(Arc::clone(&self.shared))
    }

    /// Whether `item` is a delivery that certainly comes again by a later connection.
    fn comes_again(&self, item: &Item) -> bool {
        match item {
            Item::Event(SourceEvent::Delivery(delivery)) => {
                delivery.message.qos > 0 && delivery.id.connection.0 < self.shared.resumed_at.load(Ordering::Relaxed)
            }
            Item::Event(_) | Item::Loose(_) => false,
        }
    }
}

#[async_trait]
impl Source for MqttSource {
    async fn next(&mut self) -> SourceEvent {
        loop {
            if self.closed {
                return SourceEvent::Closed;
            }
            if self.paused && self.held.is_some() {
                core::future::pending::<()>().await;
            }
            let item = match self.held.take() {
                Some(item) => item,
                None => match self.events.recv().await {
                    Some(item) => item,
                    None => return SourceEvent::Closed,
                },
            };
            if self.comes_again(&item) {
                continue;
            }
            let is_delivery = matches!(item, Item::Loose(_) | Item::Event(SourceEvent::Delivery(_)));
            if is_delivery && self.paused {
                self.held = Some(item);
                continue;
            }
            let event = match item {
                Item::Event(event) => event,
                Item::Loose(id) => match self.loose.take() {
                    Some((receiver, message)) => SourceEvent::Delivery(Delivery { id, receiver, message }),
                    None => continue,
                },
            };
            if is_delivery {
                count(&self.shared.received);
            }
            return event;
        }
    }

    fn acknowledge(&mut self, up_to: DeliveryId) {
        self.control.send_if_modified(|wanted| {
            let further = up_to > wanted.acknowledged;
            if further {
                wanted.acknowledged = up_to;
            }
            further
        });
    }

    fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    fn reconnect(&mut self) {
        let connection = ConnectionEpoch(self.shared.connection.load(Ordering::Relaxed));
        self.control.send_if_modified(|control| control.reconnect.replace(connection) != Some(connection));
    }

    fn share(&mut self, wanted: bool) {
        self.control.send_if_modified(|control| core::mem::replace(&mut control.unshared, !wanted) == wanted);
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
        self.status().counters()
    }
}

impl Drop for MqttSource {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
