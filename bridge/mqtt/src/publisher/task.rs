//! The task that owns the publisher's connection: makes it when there is something to publish, keeps it, and lets it go when the publisher is gone.

use super::answer::Answer;
use super::packet::{MAX_PACKET, Packet};
use super::pending::Pending;
use super::{Job, PublisherOptions, Shared, late};
use crate::backoff::Backoff;
use crate::connection::{self, Attempt, Opened};
use crate::fault;
use crate::options::{Protocol, SourceOptions};
use crate::renewal::renew;
use crate::session::{Cause, End};
use causeway_core::flow::sender::SenderLink;
use causeway_core::outcome::{Fault, FaultCode};
use core::future::Future;
use core::pin::{Pin, pin};
use core::time::Duration;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rumqttc::{
    AsyncClient, ClientError, ConnAck, DisconnectReasonCode, Event, EventLoop, Outgoing, PublishNotice, PublishNoticeError, PublishOptions,
    PublishResult, QoS,
};
use rustls::ClientConfig;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

/// A broker of MQTT 3.1.1 that closes the connection within so long of a message has had too much.
const HUNG_UP_OVER_A_MESSAGE: Duration = Duration::from_secs(1);
/// How long the goodbye may take.
const GOODBYE: Duration = Duration::from_millis(500);

/// What a broker said about what it takes.
#[derive(Clone, Copy, Debug)]
struct Terms {
    window: usize,
    max_packet: usize,
    at_least_once: bool,
    retained: bool,
}

impl Terms {
    fn of(connack: &ConnAck, window: u16) -> Self {
        let said = connack.properties.as_ref();
        Self {
            window: usize::from(said.and_then(|p| p.receive_max).unwrap_or(u16::MAX).min(window).max(1)),
            max_packet: said.and_then(|p| p.max_packet_size).map_or(MAX_PACKET, |bytes| bytes as usize),
            at_least_once: said.and_then(|p| p.max_qos) != Some(0),
            retained: said.and_then(|p| p.retain_available) != Some(0),
        }
    }

    /// What the broker would end the connection over.
    fn admit(&self, packet: &Packet) -> Result<(), Fault> {
        let refuse = |code, detail: String| Err(Fault::new(code, detail));
        if packet.size > self.max_packet {
            return refuse(FaultCode::PayloadTooLarge, format!("a packet of {} bytes; the broker takes {}", packet.size, self.max_packet));
        }
        if packet.qos != QoS::AtMostOnce && !self.at_least_once {
            return refuse(
                FaultCode::InvalidConfig,
                "the broker takes quality of service 0 only: write `qos: 0`, and accept the loss".into(),
            );
        }
        if packet.retain && !self.retained {
            return refuse(FaultCode::InvalidConfig, "the broker keeps no messages: write `retain: false`".into());
        }
        Ok(())
    }
}

/// A message that the connection has.
type Flight = Pin<Box<dyn Future<Output = (oneshot::Sender<Answer>, Landing)> + Send>>;

/// How its time with the connection ended.
enum Landing {
    Answered(Answer),
    /// The connection is gone.
    Lost,
    /// The broker owes an answer for too long.
    Late,
}

pub(super) struct Task {
    options: PublisherOptions,
    tls: Option<Arc<ClientConfig>>,
    jobs: mpsc::Receiver<Job>,
    shared: Arc<Shared>,
    backoff: Backoff,
    /// Until when no connection is tried, and why.
    pause: Option<(Instant, Fault)>,
    /// So many messages are published one at a time: the broker ended a connection over one of several, and does not say which.
    suspects: usize,
    /// Which of the addresses is tried next, counted without end.
    address: usize,
    has_connected: bool,
    /// What the connection was given and has not written.
    pending: Pending,
    /// When something was last written to the connection.
    written_at: Option<Instant>,
    /// The reason in the DISCONNECT that ended the connection.
    told: Option<DisconnectReasonCode>,
}

impl Task {
    pub(super) fn new(
        options: PublisherOptions,
        tls: Option<Arc<ClientConfig>>,
        jobs: mpsc::Receiver<Job>,
        shared: Arc<Shared>,
        seed: u64,
    ) -> Self {
        let SourceOptions { reconnect_delay, reconnect_max_delay, .. } = options.connection;
        Self {
            options,
            tls,
            jobs,
            shared,
            backoff: Backoff::new(reconnect_delay, reconnect_max_delay, seed),
            pause: None,
            suspects: 0,
            address: 0,
            has_connected: false,
            pending: Pending::default(),
            written_at: None,
            told: None,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(job) = self.jobs.recv().await {
            let now = Instant::now();
            if let Some((until, fault)) = self.pause.as_ref().filter(|(until, _)| *until > now) {
                let mut fault = fault.clone();
                fault.retry_after = Some(fault.retry_after.unwrap_or_default().max(until.duration_since(now)));
                job.refuse(fault);
                continue;
            }
            self.told = None;
            renew(&mut self.options.connection, &mut self.tls);
            let connection = SourceOptions { session_expiry: 0, will: None, ..self.options.connection.clone() };
            let url = connection.url_at(self.address);
            let attempt = Attempt {
                options: &connection,
                url,
                limit: connection.connect_limit(self.has_connected),
                tls: self.tls.clone(),
                clean_start: true,
                outgoing_window: self.options.window.max(1),
            };
            match connection::open(&attempt).await {
                Ok(opened) => {
                    self.has_connected = true;
                    let Some(end) = self.serve(opened, job).await else { return };
                    tracing::warn!(code = end.fault.code.as_str(), detail = %end.fault.detail, broker = %url, "the connection for publishing ended");
                    self.heed(&end);
                    self.wait_after(end.fault);
                }
                Err(end) => {
                    tracing::warn!(code = end.fault.code.as_str(), detail = %end.fault.detail, broker = %url, "no connection for publishing");
                    job.refuse(end.fault.clone());
                    self.tell(|link| link.up = Some(false));
                    self.wait_after(end.fault);
                }
            }
        }
    }

    /// The next of the configured addresses is tried after a pause; where a broker points elsewhere it is not followed.
    fn wait_after(&mut self, fault: Fault) {
        self.address = self.address.wrapping_add(1);
        let least = if self.told == Some(DisconnectReasonCode::SessionTakenOver) {
            // Whoever has the client id now is not fought for it.
            self.options.connection.reconnect_max_delay
        } else {
            Duration::ZERO
        };
        self.pause = Some((Instant::now() + self.backoff.next().max(least), fault));
    }

    fn tell(&self, change: impl FnOnce(&mut SenderLink)) {
        self.shared.tell(self.options.marks, change);
    }

    /// The connection is gone; what its end says of how much the broker takes is told along.
    fn heed(&mut self, end: &End) {
        use DisconnectReasonCode as R;
        if self.told == Some(R::ReceiveMaximumExceeded) {
            // This client counts what it sends, so that can only be a defect of one of the two.
            self.options.window = (self.options.window / 2).max(1);
            tracing::error!(
                window = self.options.window,
                "the broker says that more was published than it takes ahead of acknowledgements: a defect; from now on it is half as much"
            );
        }
        let asked = matches!(self.told, Some(R::ServerBusy | R::MessageRateTooHigh | R::QuotaExceeded | R::ConnectionRateExceeded));
        // A broker of MQTT 3.1.1 has no other way to say that it is too much.
        let hung_up = self.options.connection.protocol == Protocol::V311
            && end.cause == Cause::HungUp
            && self.written_at.is_some_and(|at| at.elapsed() <= HUNG_UP_OVER_A_MESSAGE);
        self.tell(|link| {
            link.up = Some(false);
            link.pending_bytes = 0;
            link.throttles += u64::from(asked || hung_up);
        });
    }

    /// Publishes on a connection until it ends; `None` where the publisher is gone.
    async fn serve(&mut self, opened: Opened, first: Job) -> Option<End> {
        let Opened { client, mut event_loop, socket, connack } = opened;
        let terms = Terms::of(&connack, self.options.window);
        self.shared.max_packet.store(terms.max_packet, Ordering::Relaxed);
        tracing::debug!(window = terms.window, "connected for publishing");
        (self.pending, self.written_at, self.told) = (Pending::default(), None, None);
        let window = connack.properties.as_ref().and_then(|properties| properties.receive_max);
        self.tell(|link| {
            *link = SenderLink { up: Some(true), session_present: connack.session_present, window, pending_bytes: 0, ..*link };
        });
        let mut flights: FuturesUnordered<Flight> = FuturesUnordered::new();
        self.publish(&client, &terms, first, &mut flights);
        let end = self.drive(&client, &mut event_loop, &terms, &mut flights).await;
        if end.is_none() && client.try_disconnect_now().is_ok() {
            let _ = timeout(GOODBYE, event_loop.poll()).await;
        }
        connection::let_go(event_loop, &socket, end.is_none()).await;
        self.land_all(flights, end.as_ref()).await;
        end
    }

    /// Drives the connection. The client's future stays pinned while messages are fed in: dropping it half-way could lose a write.
    async fn drive(
        &mut self,
        client: &AsyncClient,
        event_loop: &mut EventLoop,
        terms: &Terms,
        flights: &mut FuturesUnordered<Flight>,
    ) -> Option<End> {
        loop {
            let polled = {
                let mut poll = pin!(event_loop.poll());
                loop {
                    let window = if self.suspects > 0 { 1 } else { terms.window };
                    let takes_more = flights.len() < window && self.pending.has_room(self.options.marks.high);
                    tokio::select! {
                        biased;
                        Some((answer, landing)) = flights.next() => if let Err(end) = self.landed(answer, landing) { return Some(end) },
                        polled = &mut poll => break polled,
                        job = self.jobs.recv(), if takes_more => match job {
                            Some(job) => self.publish(client, terms, job, flights),
                            None => return None,
                        },
                    }
                }
            };
            match polled {
                Ok(Event::Outgoing(Outgoing::Publish(_))) => {
                    self.shared.published.fetch_add(1, Ordering::Relaxed);
                    self.written_at = Some(Instant::now());
                    self.pending.written();
                    self.tell(|link| link.pending_bytes = self.pending.bytes());
                }
                Ok(_) => {}
                Err(error) => {
                    self.told = fault::told(&error);
                    return Some(fault::classify(&error, false));
                }
            }
        }
    }

    fn publish(&mut self, client: &AsyncClient, terms: &Terms, job: Job, flights: &mut FuturesUnordered<Flight>) {
        if let Err(fault) = terms.admit(&job.packet) {
            return job.refuse(fault);
        }
        let Some(Job { packet, deadline, answer, .. }) = job.hand_over() else { return };
        let Packet { topic, payload, qos, retain, mut properties, expires_at, size } = packet;
        if let Some(at) = expires_at {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let _ = answer.send(Answer::Unsent(Fault::new(FaultCode::Timeout, "it expired before there was a connection for it")));
                return;
            }
            properties.message_expiry_interval = Some(u32::try_from(left.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX));
        }
        let manner = PublishOptions::new(qos).retain(retain).properties(properties);
        match client.try_publish_tracked(topic, payload, manner) {
            Ok(notice) => {
                self.pending.given(size as u64);
                self.tell(|link| link.pending_bytes = self.pending.bytes());
                flights.push(Box::pin(landing(notice, deadline, answer)));
            }
            Err(error) => {
                let code = if matches!(error, ClientError::InvalidRequest(_)) { FaultCode::InvalidPayload } else { FaultCode::Unavailable };
                let _ = answer.send(Answer::Unsent(Fault::new(code, "the client does not take the message")));
            }
        }
    }

    /// A message's time with the connection ended. An answer that does not come ends the connection: nobody knows what else it swallows.
    fn landed(&mut self, answer: oneshot::Sender<Answer>, landing: Landing) -> Result<(), End> {
        match landing {
            Landing::Answered(told) => {
                self.backoff.reset();
                self.shared.count(&told);
                self.suspects = self.suspects.saturating_sub(1);
                let _ = answer.send(told);
                Ok(())
            }
            Landing::Late => {
                let _ = answer.send(Answer::Unanswered(late()));
                Err(End::new(Cause::Lost, FaultCode::Timeout, "the broker did not acknowledge a message in time"))
            }
            Landing::Lost => {
                let fault = Fault::new(FaultCode::ConnectionLost, "the connection ended before the broker acknowledged the message");
                let _ = answer.send(Answer::Unanswered(fault.clone()));
                Err(End { cause: Cause::Lost, fault })
            }
        }
    }

    /// Tells everybody whose message the connection had that it is gone. Its client is gone too, so no answer can come any more.
    async fn land_all(&mut self, mut flights: FuturesUnordered<Flight>, end: Option<&End>) {
        let closing = End::closing();
        let end = end.unwrap_or(&closing);
        let blamed = blames_a_message(end);
        let alone = flights.len() == 1;
        if blamed {
            self.suspects = if alone { 0 } else { flights.len() };
        }
        while let Some((answer, landing)) = flights.next().await {
            let _ = answer.send(match landing {
                Landing::Answered(told) => told,
                Landing::Lost | Landing::Late if blamed && alone => {
                    let detail = format!("the broker ends the connection over this message: {}", end.fault.detail);
                    Answer::Unsent(Fault::new(FaultCode::Refused, detail))
                }
                Landing::Lost | Landing::Late => Answer::Unanswered(end.fault.clone()),
            });
        }
    }
}

/// Whether the connection ended because of something that was published on it: the broker said so, or gave an answer that means nothing in MQTT, as
/// some do for messages that are larger than they take.
const fn blames_a_message(end: &End) -> bool {
    matches!(end.cause, Cause::Poison)
        || matches!(end.fault.code, FaultCode::ProtocolError | FaultCode::PayloadTooLarge | FaultCode::InvalidPayload)
}

async fn landing(notice: PublishNotice, deadline: Instant, answer: oneshot::Sender<Answer>) -> (oneshot::Sender<Answer>, Landing) {
    let landing = match timeout_at(deadline, notice.wait_async()).await {
        Ok(Ok(PublishResult::Qos1(ack))) => Landing::Answered(Answer::Acknowledged(ack.reason)),
        Ok(Ok(PublishResult::Qos0Flushed)) => Landing::Answered(Answer::Written),
        Ok(Err(PublishNoticeError::V5PubAck(reason))) => Landing::Answered(Answer::Acknowledged(reason)),
        // Nothing is published with quality of service 2.
        Ok(Ok(PublishResult::Qos2Completed(_) | PublishResult::Qos2PubRecRejected(_)) | Err(_)) => Landing::Lost,
        Err(_) => Landing::Late,
    };
    (answer, landing)
}
