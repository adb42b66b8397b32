//! What a source needs to know, and which combinations make no sense.

mod broker_url;
mod security;

pub use broker_url::BrokerUrl;
pub use security::{CaSource, ClientIdentity, Credentials, Secret, TlsOptions};

use crate::filter::{self, FilterError};
use crate::renewal::Renewal;
use crate::tls;
use causeway_ports::ConnectionGate;
use core::fmt;
use core::time::Duration;
use std::collections::HashSet;
use std::sync::Arc;

/// Why the options are unusable. Each has a stable code for the program's own reports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MqttConfigError {
    /// The broker's URL cannot be read.
    #[error("broker URL `{url}`: {reason}; write it like mqtt://host:1883 or mqtts://host:8883")]
    BrokerUrl {
        /// The URL, without what stood before an `@`.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A user name and password would travel unencrypted.
    #[error("credentials are refused on the plaintext URL {0}; use mqtts://, or set allow_plaintext_credentials")]
    PlaintextCredentials(String),
    /// TLS material for a connection that does not use TLS.
    #[error("TLS certificates are given but {0} does not use TLS; use mqtts://")]
    TlsWithoutTls(String),
    /// A certificate or key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// A setting is out of its range.
    #[error("{setting}: {reason}")]
    OutOfRange {
        /// The setting's name.
        setting: &'static str,
        /// What is wrong with its value.
        reason: &'static str,
    },
    /// A topic filter that no broker may accept.
    #[error("topic filter `{filter}`: {reason}")]
    Filter {
        /// The filter.
        filter: String,
        /// What is wrong with it.
        reason: FilterError,
    },
    /// The same filter twice: a broker keeps one subscription per filter, so the second receiver would get nothing.
    #[error("topic filter `{0}` is subscribed twice; a broker keeps one subscription per filter")]
    DuplicateFilter(String),
}

impl MqttConfigError {
    /// The code that stands in reports.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BrokerUrl { .. } => "E_BROKER_URL",
            Self::PlaintextCredentials(_) => "E_PLAINTEXT_CREDENTIALS",
            Self::TlsWithoutTls(_) => "E_TLS_WITHOUT_TLS",
            Self::Tls(_) => "E_TLS",
            Self::OutOfRange { .. } => "E_MQTT_RANGE",
            Self::Filter { .. } => "E_TOPIC_FILTER",
            Self::DuplicateFilter(_) => "E_DUPLICATE_FILTER",
        }
    }
}

/// A topic filter that a receiver wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The filter, with `$share/group/` where it is shared.
    pub filter: String,
    /// The highest quality of service wanted. 2 is subscribed as 1: what was published with 2 then arrives with 1.
    pub qos: u8,
    /// Whose deliveries they are.
    pub receiver: Arc<str>,
    /// How long after the broker granted less than `qos` it is asked again on the same connection. Zero: not before the next connection.
    pub qos_recheck: Duration,
}

impl Subscription {
    /// A subscription that is checked every hour where the broker grants less.
    pub fn new(filter: impl Into<String>, qos: u8, receiver: impl Into<Arc<str>>) -> Self {
        Self { filter: filter.into(), qos, receiver: receiver.into(), qos_recheck: Duration::from_secs(3_600) }
    }
}

/// The version of MQTT that the broker is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT 5.
    #[default]
    V5,
    /// MQTT 3.1.1. A session that is to outlive its connection is kept for as long as the broker likes, and messages come without properties.
    V311,
}

/// What the broker publishes when this client vanishes without a goodbye.
#[derive(Clone, PartialEq, Eq)]
pub struct Will {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// The quality of service.
    pub qos: u8,
    /// Whether the broker keeps it for later subscribers.
    pub retain: bool,
}

impl fmt::Debug for Will {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Will").field("topic", &self.topic).field("qos", &self.qos).field("retain", &self.retain).finish_non_exhaustive()
    }
}

/// What becomes of messages of quality of service 0 that the consumer does not take: no window bounds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LooseBuffer {
    /// So many wait at most.
    pub messages: usize,
    /// What is done with one more.
    pub on_full: OnFull,
    /// How long the socket is not read at most, where that is what is done; `None`: half of the keep-alive.
    pub pause_max: Option<Duration>,
}

impl Default for LooseBuffer {
    fn default() -> Self {
        Self { messages: 1_000, on_full: OnFull::DropNewest, pause_max: None }
    }
}

/// What is done with a message for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It is dropped.
    DropNewest,
    /// The oldest one is dropped.
    DropOldest,
    /// The socket is not read until there is room, or for as long as the broker's patience allows; then it is dropped.
    PauseSocket,
}

/// Everything that a source needs to know.
#[derive(Clone)]
pub struct SourceOptions {
    /// The broker.
    pub broker_url: BrokerUrl,
    /// Further addresses of it. The next one is tried whenever a connection could not be made, `broker_url` again after the last. Only where the
    /// session ends with the connection: another broker knows nothing of what this one keeps.
    pub other_urls: Vec<BrokerUrl>,
    /// What is spoken to it.
    pub protocol: Protocol,
    /// The client id; the broker keeps one session per id.
    pub client_id: String,
    /// Discards an earlier session at the first connection of this process. Later connections resume.
    pub clean_start: bool,
    /// How many seconds the broker keeps the session while this client is away. 0 keeps nothing: what was not acknowledged at a disconnect is lost.
    pub session_expiry: u32,
    /// The longest silence before a ping; whole seconds, rounded up. Zero turns pings and the watch over a silent broker off.
    pub keep_alive: Duration,
    /// How many deliveries the broker may send without an acknowledgement.
    pub receive_maximum: u16,
    /// Bytes that the consumer may have and not be done with; nothing more is read while it has them, but for what one read brings.
    pub max_buffered_bytes: usize,
    /// What becomes of messages of quality of service 0 that the consumer does not take.
    pub loose: LooseBuffer,
    /// The receive buffer of the connection, in bytes; 0: as the operating system has it.
    pub tcp_receive_buffer: u32,
    /// The largest packet that the broker may send, in bytes. Larger messages are dropped by the broker, which tells nobody.
    pub max_packet_bytes: u32,
    /// For name, TCP, TLS and login together. Also what the gate may take to answer before a connection.
    pub connect_timeout: Duration,
    /// The same once a connection of this source has stood.
    pub reconnect_timeout: Duration,
    /// From the login to the last answer: what the gate takes to say what to unsubscribe, and the broker to answer.
    pub reconcile_timeout: Duration,
    /// For so long after a login, what no receiver asked for is held back unacknowledged; then the first receiver gets it. Acknowledgements leave in
    /// order, so those of later messages wait too. Where connections end sooner, two in a row may hold messages back.
    pub unmatched_grace: Duration,
    /// Whether a refused filter ends the connection. Otherwise it is quarantined: the rest goes on, and it is asked for again with growing pauses.
    pub strict_subscriptions: bool,
    /// The first pause before another attempt; doubled up to `reconnect_max_delay`, each drawn from its upper half.
    pub reconnect_delay: Duration,
    /// The longest pause before another attempt, unless another client with this client id takes the session over.
    pub reconnect_max_delay: Duration,
    /// The shortest pause after a takeover by another client, or what looks like one: the broker hangs up within 5 s of the login. The first one costs
    /// nothing; after that the pause doubles up to `takeover_max_delay`, until a connection lasts 30 s. The longer pause of the two kinds holds.
    pub takeover_delay: Duration,
    /// The longest pause after a takeover.
    pub takeover_max_delay: Duration,
    /// User name and password.
    pub credentials: Option<Credentials>,
    /// Whether they may travel unencrypted.
    pub allow_plaintext_credentials: bool,
    /// TLS material; used where the URL says TLS.
    pub tls: TlsOptions,
    /// What the broker publishes when this client vanishes. An orderly goodbye withdraws it.
    pub will: Option<Will>,
    /// Asks the broker not to send what this client published itself. Not asked for shared filters, where MQTT forbids it.
    pub no_local: bool,
    /// For MQTT 3.1.1: gives every message an id that is computed from the client id, this text (the broker's address), topic and payload, as the user
    /// property `mqtt.message-id`.
    pub content_hash: Option<String>,
    /// The filters, in order: the first that matches decides where the broker does not.
    pub subscriptions: Vec<Subscription>,
    /// Whether the broker may be without a session for this client at the first connection. `false` counts that as a lost session: say so when an
    /// earlier process is known to have had one.
    pub first_connection_expected_new: bool,
    /// Asked before every connection, and before anything is subscribed on it. `None`: both are always allowed, and nothing is unsubscribed.
    pub gate: Option<Arc<dyn ConnectionGate>>,
    /// Asked before every connection what this client shows now. `None`: always `credentials` and `tls`.
    pub renewal: Option<Renewal>,
}

impl fmt::Debug for SourceOptions {
    /// Everything but what a gate holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceOptions")
            .field("broker_url", &self.broker_url)
            .field("other_urls", &self.other_urls)
            .field("protocol", &self.protocol)
            .field("client_id", &self.client_id)
            .field("clean_start", &self.clean_start)
            .field("session_expiry", &self.session_expiry)
            .field("keep_alive", &self.keep_alive)
            .field("receive_maximum", &self.receive_maximum)
            .field("max_buffered_bytes", &self.max_buffered_bytes)
            .field("loose", &self.loose)
            .field("tcp_receive_buffer", &self.tcp_receive_buffer)
            .field("max_packet_bytes", &self.max_packet_bytes)
            .field("connect_timeout", &self.connect_timeout)
            .field("reconnect_timeout", &self.reconnect_timeout)
            .field("reconcile_timeout", &self.reconcile_timeout)
            .field("unmatched_grace", &self.unmatched_grace)
            .field("strict_subscriptions", &self.strict_subscriptions)
            .field("reconnect_delay", &self.reconnect_delay)
            .field("reconnect_max_delay", &self.reconnect_max_delay)
            .field("takeover_delay", &self.takeover_delay)
            .field("takeover_max_delay", &self.takeover_max_delay)
            .field("credentials", &self.credentials)
            .field("allow_plaintext_credentials", &self.allow_plaintext_credentials)
            .field("tls", &self.tls)
            .field("will", &self.will)
            .field("no_local", &self.no_local)
            .field("content_hash", &self.content_hash)
            .field("subscriptions", &self.subscriptions)
            .field("first_connection_expected_new", &self.first_connection_expected_new)
            .field("gate", &self.gate.as_ref().map(|_| "***"))
            .field("renewal", &self.renewal)
            .finish()
    }
}

impl SourceOptions {
    /// Options with the documented defaults and no subscriptions.
    #[must_use]
    pub fn new(broker_url: BrokerUrl, client_id: impl Into<String>) -> Self {
        Self {
            broker_url,
            other_urls: Vec::new(),
            protocol: Protocol::V5,
            client_id: client_id.into(),
            clean_start: false,
            session_expiry: 86_400,
            keep_alive: Duration::from_secs(30),
            receive_maximum: 500,
            max_buffered_bytes: 16 * 1024 * 1024,
            loose: LooseBuffer::default(),
            tcp_receive_buffer: 0,
            max_packet_bytes: 262_144 + 131_072,
            connect_timeout: Duration::from_secs(30),
            reconnect_timeout: Duration::from_secs(30),
            reconcile_timeout: Duration::from_secs(30),
            unmatched_grace: Duration::from_secs(30),
            strict_subscriptions: false,
            reconnect_delay: Duration::from_secs(10),
            reconnect_max_delay: Duration::from_secs(120),
            takeover_delay: Duration::from_secs(1),
            takeover_max_delay: Duration::from_secs(64),
            credentials: None,
            allow_plaintext_credentials: false,
            tls: TlsOptions::default(),
            will: None,
            no_local: false,
            content_hash: None,
            subscriptions: Vec::new(),
            first_connection_expected_new: true,
            gate: None,
            renewal: None,
        }
    }

    /// Checks everything that can be checked without a connection.
    ///
    /// # Errors
    /// The first fault found.
    pub fn validate(&self) -> Result<(), MqttConfigError> {
        self.validate_ranges()?;
        self.validate_security()?;
        self.validate_protocol()?;
        let mut seen = HashSet::new();
        for subscription in &self.subscriptions {
            filter::validate(&subscription.filter)
                .map_err(|reason| MqttConfigError::Filter { filter: subscription.filter.clone(), reason })?;
            require(subscription.qos <= 2, "qos", "must be 0, 1 or 2")?;
            if !seen.insert(subscription.filter.as_str()) {
                return Err(MqttConfigError::DuplicateFilter(subscription.filter.clone()));
            }
        }
        Ok(())
    }

    fn validate_ranges(&self) -> Result<(), MqttConfigError> {
        let id = &self.client_id;
        require(!id.is_empty(), "client_id", "must not be empty: a session belongs to a client id")?;
        require(
            id.len() <= 65_535 && !id.chars().any(char::is_control),
            "client_id",
            "must be at most 65535 bytes without control characters",
        )?;
        require(self.keep_alive <= Duration::from_secs(65_535), "keep_alive", "must be at most 65535s")?;
        require(self.receive_maximum >= 1, "receive_maximum", "must be at least 1")?;
        require(self.max_packet_bytes >= 1_024, "max_packet_bytes", "must be at least 1024")?;
        require(!self.connect_timeout.is_zero(), "connect_timeout", "must be longer than zero")?;
        require(!self.reconnect_timeout.is_zero(), "reconnect_timeout", "must be longer than zero")?;
        require(!self.reconcile_timeout.is_zero(), "reconcile_timeout", "must be longer than zero")?;
        require(!self.reconnect_delay.is_zero(), "reconnect_delay", "must be longer than zero")?;
        require(self.reconnect_max_delay >= self.reconnect_delay, "reconnect_max_delay", "must not be shorter than reconnect_delay")?;
        require(!self.takeover_delay.is_zero(), "takeover_delay", "must be longer than zero")?;
        require(self.takeover_max_delay >= self.takeover_delay, "takeover_max_delay", "must not be shorter than takeover_delay")
    }

    fn validate_security(&self) -> Result<(), MqttConfigError> {
        if let Some(credentials) = &self.credentials {
            require(credentials.username.len() <= 65_535, "username", "must be at most 65535 bytes")?;
            require(credentials.password.expose().len() <= 65_535, "password", "must be at most 65535 bytes")?;
        }
        let plaintext = self.urls().find(|url| !url.uses_tls());
        match plaintext {
            Some(url) if self.credentials.is_some() && !self.allow_plaintext_credentials => {
                return Err(MqttConfigError::PlaintextCredentials(url.to_string()));
            }
            _ => {}
        }
        if self.uses_tls() {
            tls::client_config(&self.tls).map(|_| ())
        } else if self.tls != TlsOptions::default() {
            Err(MqttConfigError::TlsWithoutTls(self.broker_url.to_string()))
        } else {
            Ok(())
        }
    }

    fn validate_protocol(&self) -> Result<(), MqttConfigError> {
        if let Some(will) = &self.will {
            let topic = !will.topic.is_empty() && will.topic.len() <= 65_535 && !will.topic.contains(['+', '#', '\0']);
            require(topic, "will", "its topic cannot be published to")?;
            require(will.payload.len() <= 65_535, "will", "its payload must be at most 65535 bytes")?;
            require(will.qos <= 2, "will", "its quality of service must be 0, 1 or 2")?;
        }
        require(self.other_urls.is_empty() || !self.is_durable(), "broker_urls", "a session that is kept has one broker")?;
        if self.protocol == Protocol::V5 {
            require(self.content_hash.is_none(), "message_id", "content_hash is for MQTT 3.1.1 only")?;
        } else {
            require(!self.no_local, "no_local", "MQTT 3.1.1 knows none")?;
            require(!(self.clean_start && self.is_durable()), "clean_start", "MQTT 3.1.1 cannot begin anew a session that it keeps")?;
        }
        Ok(())
    }

    /// Every address, in the order in which they are tried.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &BrokerUrl> {
        core::iter::once(&self.broker_url).chain(&self.other_urls)
    }

    /// The address of the `nth` try: all in turn.
    pub(crate) fn url_at(&self, nth: usize) -> &BrokerUrl {
        self.urls().nth(nth % (1 + self.other_urls.len())).unwrap_or(&self.broker_url)
    }

    /// How long a connection may take to stand; `again` where one has stood before.
    pub(crate) const fn connect_limit(&self, again: bool) -> Duration {
        if again { self.reconnect_timeout } else { self.connect_timeout }
    }

    /// Whether TLS is spoken at any of the addresses.
    pub(crate) fn uses_tls(&self) -> bool {
        self.urls().any(BrokerUrl::uses_tls)
    }

    /// Whether the broker keeps the session while this client is away.
    pub(crate) const fn is_durable(&self) -> bool {
        self.session_expiry > 0
    }

    /// The keep-alive as it travels: whole seconds.
    pub(crate) fn keep_alive_seconds(&self) -> u16 {
        let rounded = self.keep_alive.as_secs() + u64::from(self.keep_alive.subsec_nanos() > 0);
        u16::try_from(rounded).unwrap_or(u16::MAX)
    }
}

const fn require(holds: bool, setting: &'static str, reason: &'static str) -> Result<(), MqttConfigError> {
    if holds { Ok(()) } else { Err(MqttConfigError::OutOfRange { setting, reason }) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn options() -> SourceOptions {
        let mut options = SourceOptions::new(BrokerUrl::parse("mqtt://localhost").unwrap(), "c");
        options.subscriptions.push(Subscription::new("a/#", 1, "r"));
        options
    }

    #[test]
    fn credentials_on_plaintext_need_permission() {
        let mut options = options();
        options.credentials = Some(Credentials { username: "u".into(), password: Secret::new("hunter2") });
        assert_eq!(options.validate().unwrap_err().code(), "E_PLAINTEXT_CREDENTIALS");
        assert!(!format!("{options:?}").contains("hunter2"));
        options.allow_plaintext_credentials = true;
        assert_eq!(options.validate(), Ok(()));
    }

    #[test]
    fn every_range_is_checked() {
        type Change = fn(&mut SourceOptions);
        let changes: [(&str, Change); 18] = [
            ("E_MQTT_RANGE", |o| o.client_id.clear()),
            ("E_MQTT_RANGE", |o| o.receive_maximum = 0),
            ("E_MQTT_RANGE", |o| o.max_packet_bytes = 1_023),
            ("E_MQTT_RANGE", |o| o.connect_timeout = Duration::ZERO),
            ("E_MQTT_RANGE", |o| o.reconnect_timeout = Duration::ZERO),
            ("E_MQTT_RANGE", |o| o.will = Some(Will { topic: "a/#".into(), payload: Vec::new(), qos: 0, retain: false })),
            ("E_MQTT_RANGE", |o| o.other_urls.push(o.broker_url.clone())),
            ("E_MQTT_RANGE", |o| (o.protocol, o.no_local) = (Protocol::V311, true)),
            ("E_MQTT_RANGE", |o| (o.protocol, o.clean_start) = (Protocol::V311, true)),
            ("E_MQTT_RANGE", |o| o.reconcile_timeout = Duration::ZERO),
            ("E_MQTT_RANGE", |o| o.reconnect_delay = Duration::ZERO),
            ("E_MQTT_RANGE", |o| o.reconnect_max_delay = Duration::from_secs(1)),
            ("E_MQTT_RANGE", |o| o.takeover_delay = Duration::ZERO),
            ("E_MQTT_RANGE", |o| o.takeover_max_delay = Duration::from_millis(1)),
            ("E_MQTT_RANGE", |o| o.subscriptions[0].qos = 3),
            ("E_TOPIC_FILTER", |o| o.subscriptions[0].filter = "a/#/b".into()),
            ("E_DUPLICATE_FILTER", |o| o.subscriptions.push(o.subscriptions[0].clone())),
            ("E_TLS_WITHOUT_TLS", |o| o.tls.ca = CaSource::Pem(Vec::new())),
        ];
        assert_eq!(options().validate(), Ok(()));
        for (code, change) in changes {
            let mut changed = options();
            change(&mut changed);
            assert_eq!(changed.validate().unwrap_err().code(), code);
        }
    }
}
