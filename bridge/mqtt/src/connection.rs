//! One connection's life: made from a fresh client, driven until it ends, never used again.

use crate::dial::{self, SocketHandle, Target};
use crate::fault;
use crate::options::{BrokerUrl, SourceOptions, Will};
use crate::session::{Cause, End, Session, count};
use crate::source::Control;
use causeway_core::outcome::FaultCode;
use core::future::Future;
use core::pin::{Pin, pin};
use core::time::Duration;
use rumqttc::{
    AckMode, AsyncClient, Broker, ConnAck, ConnectionError, Event, EventLoop, Incoming, LastWill, MqttOptions, PersistedAckMode,
    PersistedSession, QoS, SessionStore, SessionStoreError, SessionStoreKey,
};
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The window of a client that publishes nothing: a small one keeps the library's tables small.
pub(crate) const NOTHING_TO_PUBLISH: u16 = 16;
/// Requests (acknowledgements, subscriptions) that the client holds at most; more wait here, in order.
const REQUESTS: usize = 256;
/// How long the broker may take to close after a DISCONNECT.
const GOODBYE: Duration = Duration::from_millis(500);

/// A connection that stands.
pub(crate) struct Opened {
    pub(crate) client: AsyncClient,
    pub(crate) event_loop: EventLoop,
    pub(crate) socket: SocketHandle,
    pub(crate) connack: ConnAck,
}

/// How one attempt differs from another of the same source.
pub(crate) struct Attempt<'a> {
    pub(crate) options: &'a SourceOptions,
    pub(crate) url: &'a BrokerUrl,
    /// For all of it.
    pub(crate) limit: Duration,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) clean_start: bool,
    /// What it publishes ahead of acknowledgements at most.
    pub(crate) outgoing_window: u16,
}

/// Makes a connection. Covers the name, TCP, TLS, websockets and the login, within the attempt's limit.
pub(crate) async fn open(attempt: &Attempt<'_>) -> Result<Opened, End> {
    let socket = SocketHandle::default();
    let (client, mut event_loop) = AsyncClient::builder(client_options(attempt, &socket))
        .capacity(REQUESTS)
        .try_build()
        .map_err(|error| End::new(Cause::Lost, FaultCode::InvalidConfig, error.to_string()))?;
    match timeout(attempt.limit, event_loop.poll()).await {
        Ok(Ok(Event::Incoming(Incoming::ConnAck(connack)))) => {
            // The store served its purpose (see `Resumable`); from here on it would only cost.
            event_loop.options.clear_session_store();
            Ok(Opened { client, event_loop, socket, connack })
        }
        Ok(Ok(_)) => Err(End::new(Cause::Poison, FaultCode::ProtocolError, "the connection did not begin with a CONNACK")),
        Ok(Err(error)) => Err(fault::classify(&error, true)),
        Err(_) => Err(End::new(Cause::Lost, FaultCode::Timeout, "the broker did not complete the connection in time")),
    }
}

fn client_options(attempt: &Attempt<'_>, socket: &SocketHandle) -> MqttOptions {
    let options = attempt.options;
    let mut mqtt = MqttOptions::new(options.client_id.clone(), Broker::tcp(attempt.url.host(), attempt.url.port()));
    mqtt.set_keep_alive(options.keep_alive_seconds())
        .set_clean_start(attempt.clean_start)
        .set_session_expiry_interval(Some(options.session_expiry))
        .set_receive_maximum(Some(options.receive_maximum))
        .set_max_packet_size(Some(options.max_packet_bytes))
        .set_outgoing_inflight_upper_limit(attempt.outgoing_window)
        .set_ack_mode(AckMode::Manual)
        .set_connect_timeout(attempt.limit)
        // One packet at a time: an error then never throws away packets that were read before it.
        .set_read_batch_size(1);
    if let Some(credentials) = &options.credentials {
        mqtt.set_credentials(credentials.username.clone(), credentials.password.expose().to_owned());
    }
    if let Some(will) = &options.will {
        mqtt.set_last_will(last_will(will));
    }
    if !attempt.clean_start {
        mqtt.set_session_store(Resumable(PersistedSession {
            format_version: 1,
            client_id: options.client_id.clone(),
            clean_start: false,
            session_expiry_interval: Some(options.session_expiry),
            outgoing_inflight_upper_limit: Some(attempt.outgoing_window),
            ack_mode: PersistedAckMode::Manual,
            last_pkid: 0,
            last_puback: 0,
            replay: Vec::new(),
            incoming_qos2: Vec::new(),
        }));
    }
    let (target, socket) = (target(attempt), socket.clone());
    mqtt.set_socket_connector(move |_, _| {
        let (target, socket) = (target.clone(), socket.clone());
        async move { dial::connect(&target, &socket).await }
    });
    mqtt
}

fn target(attempt: &Attempt<'_>) -> Target {
    let options = attempt.options;
    Target {
        url: attempt.url.clone(),
        tls: attempt.tls.clone().filter(|_| attempt.url.uses_tls()),
        protocol: options.protocol,
        clean_session: attempt.clean_start || !options.is_durable(),
        max_packet_bytes: options.max_packet_bytes,
        receive_buffer: options.tcp_receive_buffer,
        limit: attempt.limit,
    }
}

fn last_will(will: &Will) -> LastWill {
    let qos = match will.qos {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        _ => QoS::ExactlyOnce,
    };
    LastWill::new(will.topic.clone(), will.payload.clone(), qos, will.retain, None)
}

type Stored<'a, T> = Pin<Box<dyn Future<Output = Result<T, SessionStoreError>> + Send + 'a>>;

/// The memory of a client that publishes nothing, which is empty. Without it the library takes a session that the broker kept for one that somebody
/// else left behind, and refuses either the connection or, if told to go on, every SUBSCRIBE on it.
#[derive(Debug)]
struct Resumable(PersistedSession);

impl SessionStore for Resumable {
    fn load<'a>(&'a self, _: &'a SessionStoreKey) -> Stored<'a, Option<PersistedSession>> {
        Box::pin(core::future::ready(Ok(Some(self.0.clone()))))
    }

    fn save<'a>(&'a self, _: &'a SessionStoreKey, _: &'a PersistedSession) -> Stored<'a, ()> {
        Box::pin(core::future::ready(Ok(())))
    }

    fn clear<'a>(&'a self, _: &'a SessionStoreKey) -> Stored<'a, ()> {
        Box::pin(core::future::ready(Ok(())))
    }
}

/// The keep-alive to watch the broker by: what the broker asked for, or ours where it turned its own off.
pub(crate) fn watched_keep_alive(event_loop: &EventLoop, options: &SourceOptions) -> Option<Duration> {
    let ours = Duration::from_secs(u64::from(options.keep_alive_seconds()));
    let agreed = event_loop.options.keep_alive();
    Some(if agreed.is_zero() { ours } else { agreed }).filter(|keep_alive| !keep_alive.is_zero())
}

/// Drives the connection until it ends. The client's future stays pinned while acknowledgements are fed in: dropping it half-way could lose a write.
pub(crate) async fn run(
    event_loop: &mut EventLoop,
    session: &mut Session,
    events: &mpsc::Sender<crate::session::Item>,
    control: &mut watch::Receiver<Control>,
) -> End {
    let mut alarm = pin!(sleep_until(far_future()));
    let mut closing_until = None;
    let loose = session.loose();
    loop {
        let polled = {
            let mut poll = pin!(event_loop.poll());
            loop {
                if follow(control, session, &mut closing_until) {
                    return End::new(Cause::Lost, FaultCode::Throttled, "what was held for too long is to come again by a new connection");
                }
                session.pump();
                arm(alarm.as_mut(), session, closing_until);
                tokio::select! {
                    biased;
                    changed = control.changed() => if changed.is_err() { return End::closing() },
                    answer = session.gate_answer(), if session.awaits_gate() => if let Err(end) = session.on_gate(answer) { return end },
                    permit = events.reserve(), if session.is_stalled() => match permit {
                        Ok(permit) => if let Some(item) = session.next_waiting() { permit.send(item) },
                        Err(_) => return End::closing(),
                    },
                    () = loose.taken(), if session.is_paused() => {}
                    polled = &mut poll, if session.may_poll() => break polled,
                    () = alarm.as_mut() => {
                        let now = Instant::now();
                        if closing_until.is_some_and(|until| now >= until) { return End::closing() }
                        if let Err(end) = session.on_time(now) { return end }
                    }
                }
            }
        };
        let outcome = match polled {
            Ok(event) => session.on_event(event),
            Err(ConnectionError::RequestsDone) => Err(End::closing()),
            Err(error) => Err(fault::classify(&error, false)),
        };
        if let Err(end) = outcome {
            return end;
        }
    }
}

/// Takes over what the handle wants: the watermark, its place in groups, and the wish to close. Whether the connection is to end now.
fn follow(control: &mut watch::Receiver<Control>, session: &mut Session, closing_until: &mut Option<Instant>) -> bool {
    let wanted = *control.borrow_and_update();
    session.acknowledge(wanted.acknowledged);
    session.share(!wanted.unshared);
    if wanted.closing.is_some() && closing_until.is_none() {
        *closing_until = wanted.closing;
        session.close();
    }
    wanted.reconnect == Some(session.epoch()) && session.comes_again()
}

/// Sets the alarm where it has to ring earlier, or rang. A deadline that moved on only makes it ring once too early, which costs less than setting it anew
/// for every packet.
fn arm(mut alarm: Pin<&mut Sleep>, session: &Session, closing_until: Option<Instant>) {
    let wanted = [session.deadline(), closing_until].into_iter().flatten().min().unwrap_or_else(far_future);
    if alarm.is_elapsed() || wanted < alarm.deadline() {
        alarm.as_mut().reset(wanted);
    }
}

fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}

/// Lets go of a connection. After a goodbye the socket is closed in order.
pub(crate) async fn let_go(event_loop: EventLoop, socket: &SocketHandle, goodbye: bool) {
    drop(event_loop);
    if goodbye { socket.finish(GOODBYE).await } else { socket.release() }
}

/// Counts what kind of end it was.
pub(crate) fn count_end(end: &End, shared: &crate::session::Shared) {
    if end.cause == Cause::Poison {
        count(&shared.poison_packets);
    }
}
