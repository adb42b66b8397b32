//! The settings that the program is wired from: what was written, with every default that depends on something else filled in.

use super::endpoint::BrokerUrl;
use super::model::{
    Binding, Config, LeaseStore, MqttSession, OnFailure, Receiver, Route, RouteSession, Sender, Session, SessionMode, StoreKind, Stores,
    Transport, Will,
};
use super::secret_place::SecretPlace;
use super::values::{Id, Secret, Span, StepDown};
use crate::flow::sender::{ResumeOptions, SenderOptions};
use crate::timing::{Activation, Budget, BudgetError, BudgetTerms, Cadence, CadenceError, CadenceInput, MqttActivation, Nanos};
use core::time::Duration;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Bytes by which an MQTT packet may exceed its payload: topic and properties.
const PACKET_METADATA_BYTES: u32 = 128 * 1024;

/// Where a store keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreBackend {
    /// In the process.
    Memory,
    /// In a SQLite file.
    Sqlite {
        /// The file.
        path: PathBuf,
    },
    /// In a DynamoDB table.
    Dynamodb {
        /// The table.
        table: String,
    },
}

/// Where leases are kept.
pub type LeaseBackend = StoreBackend;

/// How a session reaches its broker.
#[derive(Clone, Debug)]
pub struct MqttSettings {
    /// The broker, by address and encryption.
    pub broker: Broker,
    /// The client identifier, without a suffix.
    pub client_id: String,
    /// What the broker keeps.
    pub mode: SessionMode,
    /// Keep-alive; `None` for none.
    pub keep_alive: Option<Duration>,
    /// How long a first connection may take.
    pub connect_timeout: Duration,
    /// How long a reconnection may take.
    pub reconnect_timeout: Duration,
    /// How long subscribing may take.
    pub reconcile_timeout: Duration,
    /// The pause before the first reconnection.
    pub reconnect_delay: Duration,
    /// The longest such pause.
    pub reconnect_max_delay: Duration,
    /// Whether the broker is to forget what it kept.
    pub clean_start: bool,
    /// How many seconds the broker keeps the session.
    pub session_expiry_seconds: u32,
    /// How many messages the broker may send ahead of acknowledgements, at least 1.
    pub receive_maximum: u16,
    /// The largest payload, in bytes.
    pub max_payload_bytes: u32,
    /// The largest packet, in bytes.
    pub max_packet_bytes: u32,
    /// How the client logs in.
    pub credentials: Credentials,
    /// Whether credentials may go over an unencrypted connection.
    pub allow_plaintext_credentials: bool,
    /// Whether the broker holds back what this client published itself.
    pub no_local: bool,
    /// What the broker publishes when this client vanishes.
    pub will: Option<Will>,
}

/// A broker's addresses, and how they are encrypted.
#[derive(Clone, Debug)]
pub struct Broker {
    /// The addresses, tried in turn; one for durable sessions.
    pub urls: Vec<BrokerUrl>,
    /// How certificates are verified, for addresses with TLS.
    pub tls: TlsSettings,
}

/// How certificates are verified, and which one is shown. There is no way to verify nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Who is trusted.
    pub trust: TrustAnchors,
    /// The client's own certificate.
    pub client: Option<ClientCertificate>,
}

/// Which certificate authorities are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustAnchors {
    /// The system's.
    System,
    /// Those of a PEM file.
    File(PathBuf),
    /// Those of a PEM text.
    Pem(Secret),
}

/// A certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// Both in PEM files.
    Files {
        /// The chain.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// Both as PEM texts.
    Pem {
        /// The chain.
        certificate: Secret,
        /// The private key.
        key: Secret,
    },
}

/// How a client logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Not at all.
    None,
    /// As configured.
    Login {
        /// User name; empty for none.
        username: String,
        /// Password.
        password: Option<Secret>,
    },
    /// As a login says that is kept elsewhere.
    Kept(SecretPlace),
}

/// How an SQS sender sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsSenderSettings {
    /// The queue.
    pub queue_url: String,
    /// The region; `None` for the SDK's chain.
    pub region: Option<String>,
    /// The most messages in one request.
    pub batch_size: u32,
    /// How many seconds each message is delayed; `None` for the queue's own setting.
    pub delay_seconds: Option<u32>,
    /// How long one request may take.
    pub timeout: Duration,
    /// The largest message, in bytes.
    pub max_message_bytes: u32,
    /// For a FIFO queue: how it is sent to.
    pub fifo: Option<FifoSettings>,
}

/// How an MQTT sender publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttSenderSettings {
    /// The session whose broker, login and client id it uses.
    pub session: Id,
    /// The quality of service, 0 or 1.
    pub qos: u8,
    /// Whether the broker keeps each message for later subscribers.
    pub retain: bool,
    /// How long one message may take.
    pub timeout: Duration,
    /// The pause after the broker said that a quota is exceeded.
    pub throttle_retry_after: Duration,
}

/// How a FIFO queue is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FifoSettings {
    /// The group of every message; `None`: that of its ordering key.
    pub group: Option<String>,
    /// Whether a message is sent only after the one before it in its group was accepted.
    pub strict_order: bool,
}

/// A session's lease timing, and what its failover is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTiming {
    /// The lease's cadence.
    pub cadence: Cadence,
    /// The transport's way to full service.
    pub activation: Activation,
    /// What starting a replacement adds.
    pub startup_allowance: Nanos,
    /// What was decided about broker outages; `None` where nothing was.
    pub step_down: Option<StepDown>,
    /// The declared objective.
    pub objective: Option<Nanos>,
}

/// A session's failover budget, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionBudget {
    /// The session.
    pub session_id: String,
    /// Its timing; an error where no cadence can be resolved.
    pub timing: Result<SessionTiming, CadenceError>,
    /// The sums; an error where nothing can be promised. `None` without a timing.
    pub budget: Option<Result<Budget, BudgetError>>,
    /// Whether the objective is met. `None` without an objective or a budget.
    pub admitted: Option<Result<(), BudgetError>>,
}

impl Config {
    /// The session of this id.
    #[must_use]
    pub fn session(&self, id: &str) -> Option<&Session> {
        self.sessions.iter().find(|session| session.id.as_str() == id)
    }

    /// The receiver of this id.
    #[must_use]
    pub fn receiver(&self, id: &str) -> Option<&Receiver> {
        self.receivers.iter().find(|receiver| receiver.id.as_str() == id)
    }

    /// The sender of this id.
    #[must_use]
    pub fn sender(&self, id: &str) -> Option<&Sender> {
        self.senders.iter().find(|sender| sender.id.as_str() == id)
    }

    /// The binding of this id.
    #[must_use]
    pub fn binding(&self, id: &str) -> Option<&Binding> {
        self.bindings.iter().find(|binding| binding.id.as_str() == id)
    }

    /// The session that feeds a route; `None` for one that is fed from a queue.
    #[must_use]
    pub fn source_session(&self, route: &Route) -> Option<&Session> {
        self.session(self.receiver(&route.receiver_id)?.session_id.as_deref()?)
    }

    /// The session whose owner carries a route's messages: the one that feeds it, or the one that a route of an HTTP receiver names; `None` where there
    /// is none, and the receiver has an owner loop of its own.
    #[must_use]
    pub fn carrier(&self, route: &Route) -> Option<&Session> {
        let receiver = self.receiver(&route.receiver_id)?;
        if receiver.is_http() { self.session(&route.session.as_ref()?.session_id) } else { self.session(receiver.session_id.as_deref()?) }
    }

    /// The name under which a route's messages are kept, told and counted: that of the session that carries them, else the receiver's own.
    #[must_use]
    pub fn carrier_name(&self, route: &Route) -> Option<String> {
        let receiver = self.receiver(&route.receiver_id)?;
        Some(self.carrier(route).map_or_else(|| receiver.source_name(), |session| session.id.to_string()))
    }

    /// Every place outside the configuration that it takes a secret from.
    #[must_use]
    pub fn secret_places(&self) -> BTreeSet<SecretPlace> {
        self.login_places().into_iter().chain(self.key_places()).collect()
    }

    /// The fields that name a place outside the configuration, and the places.
    #[must_use]
    pub fn secret_fields(&self) -> Vec<(String, SecretPlace)> {
        let logins = self.sessions.iter().enumerate().filter_map(|(index, session)| {
            let place = SecretPlace::parse(session.options.session.credentials_uri.as_deref()?)?;
            Some((format!("sessions[{index}].options.session.credentials_uri"), place))
        });
        let posts = self
            .receivers
            .iter()
            .enumerate()
            .map(|(index, receiver)| (format!("receivers[{index}].options.token"), receiver.options.token.as_ref()));
        let named = self.http.admin_keys.iter().enumerate();
        let named = named.map(|(index, named)| (format!("http.admin_keys[{index}].key"), Some(&named.key)));
        let keys = [
            ("http.hint_token", &self.http.hint_token),
            ("http.monitor_api_key", &self.http.monitor_api_key),
            ("http.admin_api_key", &self.http.admin_api_key),
            ("commands.token", &self.commands.token),
        ];
        let keys = keys.into_iter().map(|(field, key)| (field.to_owned(), key.as_ref()));
        logins.chain(posts.chain(named).chain(keys).filter_map(|(field, key)| Some((field, SecretPlace::of(key?)?)))).collect()
    }

    /// The places outside the configuration where logins to brokers stand.
    #[must_use]
    pub fn login_places(&self) -> BTreeSet<SecretPlace> {
        let uris = self.sessions.iter().filter_map(|session| session.options.session.credentials_uri.as_deref());
        uris.filter_map(SecretPlace::parse).collect()
    }

    /// The places outside the configuration where keys and tokens stand.
    #[must_use]
    pub fn key_places(&self) -> BTreeSet<SecretPlace> {
        let posts = self.receivers.iter().filter_map(|receiver| receiver.options.token.as_ref());
        let keys = [&self.http.hint_token, &self.http.monitor_api_key, &self.http.admin_api_key];
        let named = self.http.admin_keys.iter().map(|named| &named.key);
        posts.chain(named).chain(keys.into_iter().flatten()).filter_map(SecretPlace::of).collect()
    }

    /// The block of the first route that speaks about this session's lease. All of them say the same.
    #[must_use]
    pub fn session_block(&self, session_id: &str) -> Option<&RouteSession> {
        self.routes.iter().filter_map(|route| route.session.as_ref()).find(|block| block.session_id.as_str() == session_id)
    }

    /// Whether each process has a log of its own for this session, because several run it at the same time. Without an outbox there are no logs.
    #[must_use]
    pub fn has_logs_of_processes(&self, session: &Session) -> bool {
        self.stores.outbox.is_some() && self.bridge.is_clustered() && session.session_mode != SessionMode::Exclusive
    }

    /// The timing of a session's lease.
    ///
    /// # Errors
    /// Where the configured intervals leave no room for one another.
    pub fn session_timing(&self, session: &Session) -> Result<SessionTiming, CadenceError> {
        let block = self.session_block(&session.id);
        let nanos = |pick: fn(&RouteSession) -> Option<Span>| block.and_then(pick).map(Span::as_nanos);
        let cadence = CadenceInput {
            clustered: self.bridge.is_clustered(),
            lease_ttl: nanos(|b| b.lease_ttl),
            renew_interval: nanos(|b| b.renew_interval),
            lease_renew_jitter: nanos(|b| b.lease_renew_jitter),
            renew_call_timeout: nanos(|b| b.renew_call_timeout),
            acquire_poll_interval: nanos(|b| b.acquire_poll_interval),
            step_down_grace: nanos(|b| b.step_down_grace),
            max_renew_fails: block.map(|b| b.max_renew_fails),
        }
        .resolve()?;
        Ok(SessionTiming {
            cadence,
            activation: session.options.session.activation(),
            startup_allowance: block.map_or(0, |b| b.startup_allowance.as_nanos()),
            step_down: block.and_then(|b| b.broker_health_step_down),
            objective: block.and_then(|b| b.failover_slo).map(Span::as_nanos),
        })
    }

    /// The timing of the leases of logs that each process has for itself, where no session says otherwise.
    ///
    /// # Errors
    /// Never with the defaults of this release.
    pub fn process_timing(&self) -> Result<SessionTiming, CadenceError> {
        let cadence = CadenceInput {
            clustered: self.bridge.is_clustered(),
            lease_ttl: None,
            renew_interval: None,
            lease_renew_jitter: None,
            renew_call_timeout: None,
            acquire_poll_interval: None,
            step_down_grace: None,
            max_renew_fails: None,
        }
        .resolve()?;
        Ok(SessionTiming { cadence, activation: Activation::Unknown, startup_allowance: 0, step_down: None, objective: None })
    }

    /// The failover budget of every exclusive session, in the order of the configuration.
    #[must_use]
    pub fn budgets(&self) -> Vec<SessionBudget> {
        self.sessions
            .iter()
            .filter(|session| session.session_mode == SessionMode::Exclusive)
            .map(|session| self.budget_of(session))
            .collect()
    }

    fn budget_of(&self, session: &Session) -> SessionBudget {
        let timing = self.session_timing(session);
        let budget = timing.as_ref().ok().map(SessionTiming::budget);
        let admitted = timing.as_ref().ok().and_then(SessionTiming::admit);
        SessionBudget { session_id: session.id.to_string(), timing, budget, admitted }
    }

    /// The largest `send_timeout` of all routes.
    #[must_use]
    pub fn largest_send_timeout(&self) -> Duration {
        self.routes.iter().map(|route| route.policy.send_timeout.get()).max().unwrap_or_default()
    }

    /// After how long a message handed to a send that never ended is taken up again; above every `send_timeout`.
    #[must_use]
    pub fn stale_claim(&self) -> Duration {
        let written = self.stores.outbox.as_ref().and_then(|outbox| outbox.options.stale_claim_duration).map(Span::get);
        written.unwrap_or_else(|| {
            let graces =
                self.sessions.iter().filter_map(|session| self.session_timing(session).ok()).map(|timing| timing.cadence.step_down_grace);
            let grace = Duration::from_nanos(graces.max().unwrap_or(15 * crate::timing::SECOND).unsigned_abs());
            (grace + (grace * 2).max(Duration::from_secs(15))).max(self.largest_send_timeout() + Duration::from_secs(5))
        })
    }

    /// Whether any policy keeps what cannot be delivered.
    #[must_use]
    pub fn needs_dlq(&self) -> bool {
        self.routes
            .iter()
            .any(|route| [route.policy.on_expired, route.policy.on_permanent_failure, route.policy.on_filtered].contains(&OnFailure::Dlq))
    }
}

impl SessionTiming {
    /// The parts of the failover budget.
    #[must_use]
    pub fn terms(&self) -> BudgetTerms {
        let broker_health_step_down = match self.step_down {
            Some(StepDown::After(span)) => Some(span.as_nanos()),
            Some(StepDown::Off) | None => None,
        };
        BudgetTerms {
            cadence: self.cadence,
            activation: self.activation,
            startup_allowance: self.startup_allowance,
            broker_health_step_down,
        }
    }

    /// The failover budget.
    ///
    /// # Errors
    /// Where nothing can be promised.
    pub fn budget(&self) -> Result<Budget, BudgetError> {
        self.terms().sum()
    }

    /// Whether the declared objective holds; `None` where none was declared.
    #[must_use]
    pub fn admit(&self) -> Option<Result<(), BudgetError>> {
        let objective = self.objective?;
        if self.step_down.is_none() {
            return Some(Err(BudgetError::StepDownUndecided));
        }
        Some(self.budget().and_then(|budget| budget.admit(objective)))
    }
}

impl MqttSession {
    /// The broker's addresses, whichever way they were written.
    #[must_use]
    pub fn urls(&self) -> Vec<BrokerUrl> {
        self.broker_url.iter().chain(&self.broker_urls).cloned().collect()
    }

    /// How long the way from a connection to full service may take.
    #[must_use]
    pub fn activation(&self) -> Activation {
        MqttActivation {
            connect_timeout: self.connect_timeout.as_nanos(),
            reconcile_timeout: self.reconcile_timeout.as_nanos(),
            unmatched_grace: self.unmatched_grace.as_nanos(),
        }
        .bound()
    }

    fn credentials(&self) -> Credentials {
        match (&self.credentials_uri, &self.username, &self.password) {
            (Some(uri), _, _) => SecretPlace::parse(uri).map_or(Credentials::None, Credentials::Kept),
            (None, None, None) => Credentials::None,
            (None, username, password) => Credentials::Login { username: username.clone().unwrap_or_default(), password: password.clone() },
        }
    }

    fn tls_settings(&self) -> TlsSettings {
        let tls = &self.tls;
        let trust = match (&tls.ca_cert_file, &tls.ca_cert_pem) {
            (Some(file), _) => TrustAnchors::File(PathBuf::from(file)),
            (None, Some(pem)) => TrustAnchors::Pem(pem.clone()),
            (None, None) => TrustAnchors::System,
        };
        let client = match (&tls.cert_file, &tls.key_file, &tls.cert_pem, &tls.key_pem) {
            (Some(certificate), Some(key), _, _) => {
                Some(ClientCertificate::Files { certificate: PathBuf::from(certificate), key: PathBuf::from(key) })
            }
            (_, _, Some(certificate), Some(key)) => Some(ClientCertificate::Pem { certificate: certificate.clone(), key: key.clone() }),
            _ => None,
        };
        TlsSettings { trust, client }
    }
}

impl Session {
    /// How the session reaches its broker.
    #[must_use]
    pub fn mqtt(&self) -> MqttSettings {
        let written = &self.options.session;
        let session_expiry_seconds = match (written.session_expiry_interval, self.session_mode.is_durable()) {
            (0, true) => 86_400,
            (seconds, true) => seconds,
            (_, false) => 0,
        };
        MqttSettings {
            broker: Broker { urls: written.urls(), tls: written.tls_settings() },
            client_id: written.client_id.clone(),
            mode: self.session_mode,
            keep_alive: (written.keep_alive > 0).then(|| Duration::from_secs(u64::from(written.keep_alive))),
            connect_timeout: written.connect_timeout.get(),
            reconnect_timeout: written.reconnect_timeout.get(),
            reconcile_timeout: written.reconcile_timeout.get(),
            reconnect_delay: written.reconnect_delay.get(),
            reconnect_max_delay: written.reconnect_max_delay.get(),
            clean_start: !self.session_mode.is_durable(),
            session_expiry_seconds,
            receive_maximum: if written.receive_maximum == 0 { 500 } else { written.receive_maximum },
            max_payload_bytes: written.max_payload_bytes,
            max_packet_bytes: written.max_payload_bytes.saturating_add(PACKET_METADATA_BYTES),
            credentials: written.credentials(),
            allow_plaintext_credentials: written.allow_plaintext_credentials,
            no_local: written.no_local,
            will: written.will.clone(),
        }
    }
}

/// Bytes that an MQTT connection was given and has not written above which its senders pause, where nothing else is said.
const HIGH_WATER_BYTES: u64 = 1_310_720;

impl Config {
    /// The largest payload that a session takes in, in bytes.
    #[must_use]
    pub fn largest_payload(&self) -> u64 {
        self.sessions.iter().map(|session| u64::from(session.options.session.max_payload_bytes)).max().unwrap_or(0)
    }

    /// When senders pause, and how they come back.
    #[must_use]
    pub fn sender_flow(&self) -> SenderOptions {
        let (written, largest) = (&self.flow.outbound, self.largest_payload());
        let high_water = written.high_water_bytes.unwrap_or(HIGH_WATER_BYTES).max(largest);
        let bytes = written.max_unacked_bytes.max(largest);
        SenderOptions {
            max_in_flight: written.max_in_flight.map_or(usize::MAX, |most| most as usize),
            max_unacked_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            high_water,
            low_water: written.low_water_bytes.unwrap_or(high_water / 2),
            resume: ResumeOptions {
                base: written.resume.base.get(),
                max: written.resume.max.get(),
                max_retries: written.resume.max_retries,
                jitter: written.resume.jitter.get(),
                slow_start: written.resume.slow_start,
            },
        }
    }
}

impl Sender {
    /// How the sender sends to SQS; `None` where it sends elsewhere or names no queue.
    #[must_use]
    pub fn sqs(&self) -> Option<SqsSenderSettings> {
        let options = &self.options;
        Some(SqsSenderSettings {
            queue_url: options.queue_url.clone().filter(|_| self.transport == Some(Transport::Sqs))?,
            region: options.region.clone(),
            batch_size: options.batch_size.unwrap_or(10),
            delay_seconds: options.delay_seconds,
            timeout: options.timeout.map_or(Duration::from_secs(30), Span::get),
            max_message_bytes: options.max_message_bytes.unwrap_or(1_048_576),
            fifo: (options.fifo == Some(true) || options.message_group_id.is_some())
                .then(|| FifoSettings { group: options.message_group_id.clone(), strict_order: options.strict_order.unwrap_or(true) }),
        })
    }
}

impl Receiver {
    /// Whether it takes from a queue rather than from a session.
    #[must_use]
    pub fn is_queue(&self) -> bool {
        self.transport == Some(Transport::Sqs) && self.session_id.is_none()
    }

    /// Whether messages are posted to it.
    #[must_use]
    pub fn is_http(&self) -> bool {
        self.transport == Some(Transport::Http) && self.session_id.is_none()
    }

    /// The name under which what it receives is kept, told and counted, where no route says otherwise: that of its session, or `sqs:` or `http:` and
    /// its own.
    #[must_use]
    pub fn source_name(&self) -> String {
        let scheme = if self.is_http() { "http" } else { "sqs" };
        self.session_id.as_ref().map_or_else(|| format!("{scheme}:{}", self.id), ToString::to_string)
    }
}

impl Sender {
    /// How the sender publishes to MQTT; `None` where it sends elsewhere.
    #[must_use]
    pub fn mqtt(&self) -> Option<MqttSenderSettings> {
        let options = &self.options;
        Some(MqttSenderSettings {
            session: self.session_id.clone()?,
            qos: options.qos.unwrap_or(1).min(1),
            retain: options.retain.unwrap_or(false),
            timeout: options.timeout.map_or(Duration::from_secs(30), Span::get),
            throttle_retry_after: options.throttle_retry_after.map_or(Duration::from_millis(500), Span::get),
        })
    }
}

impl Stores {
    /// Where waiting messages are kept.
    #[must_use]
    pub fn outbox_backend(&self) -> Option<StoreBackend> {
        let store = self.outbox.as_ref()?;
        Some(backend(store.kind, store.options.path.as_deref(), store.options.table_name.as_deref(), "causeway-outbox"))
    }

    /// Where dead letters are kept.
    #[must_use]
    pub fn dlq_backend(&self) -> Option<StoreBackend> {
        let store = self.dlq.as_ref()?;
        Some(backend(store.kind, store.options.path.as_deref(), store.options.table_name.as_deref(), "causeway-dlq"))
    }

    /// Where leases are kept.
    #[must_use]
    pub fn lease_backend(&self) -> Option<LeaseBackend> {
        self.lease.as_ref().map(LeaseStore::backend)
    }

    /// Where the ledger of drops is kept; `None`: in memory.
    #[must_use]
    pub fn ledger_backend(&self) -> Option<StoreBackend> {
        let store = self.ledger.as_ref()?;
        Some(backend(store.kind, store.options.path.as_deref(), store.options.table_name.as_deref(), "causeway-ledger"))
    }

    /// Where subscription histories are kept.
    #[must_use]
    pub fn subscription_backend(&self) -> Option<StoreBackend> {
        let store = self.managed_subscriptions.as_ref()?;
        Some(backend(store.kind, store.options.path.as_deref(), store.options.table_name.as_deref(), "causeway-managed-subscriptions"))
    }
}

impl LeaseStore {
    fn backend(&self) -> LeaseBackend {
        backend(self.kind, None, self.options.table_name.as_deref(), "causeway-leases")
    }
}

fn backend(kind: StoreKind, path: Option<&str>, table: Option<&str>, default_table: &str) -> StoreBackend {
    match kind {
        StoreKind::Memory => StoreBackend::Memory,
        StoreKind::Sqlite => StoreBackend::Sqlite { path: PathBuf::from(path.unwrap_or_default()) },
        StoreKind::Dynamodb => StoreBackend::Dynamodb { table: table.unwrap_or(default_table).to_owned() },
    }
}
