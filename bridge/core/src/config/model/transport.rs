//! Connections and their ends: `sessions`, `receivers`, `senders`, `bindings`.

use super::super::endpoint::BrokerUrl;
use super::super::values::{Id, Secret, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// An MQTT broker.
    Mqtt,
    /// Amazon SQS.
    Sqs,
    /// Posts to this program's own transport port; for receivers only.
    Http,
}

/// A connection to an MQTT broker.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Its name; also the partition of its outbox and the name of its lease. Never rename one that holds messages.
    pub id: Id,
    /// `mqtt`.
    pub transport: Transport,
    /// `ephemeral`: the broker keeps nothing. `persistent`: the broker keeps what is not acknowledged. `exclusive`: the same, with one owner among all replicas.
    #[serde(default)]
    pub session_mode: SessionMode,
    /// How the broker is reached.
    pub options: SessionOptions,
    /// What is known of its subscriptions when it connects for the first time: `seeded`, what `causeway baseline` told; `auto`, nothing needs to be told
    /// where the broker reports the session as new.
    #[serde(default)]
    pub baseline: Baseline,
    /// What a filter means that the broker refuses. False: the session goes on without it, at a degraded level, and asks again with growing pauses.
    /// True: the connection is closed and tried again until every filter is granted.
    #[serde(default)]
    pub strict_subscriptions: bool,
    /// Into how many independently ordered logs the session's outbox is divided, by ordering key: the topic. Another number takes effect as soon as
    /// nothing waits in any of them; what waits is sent from where it stands.
    #[serde(default = "one")]
    pub lanes: u32,
}

const fn one() -> u32 {
    1
}

/// What is known of a session's subscriptions when it connects for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Somebody told, once.
    #[default]
    Seeded,
    /// A session that the broker reports as new has none.
    Auto,
}

/// What the broker keeps, and how many replicas may be connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// Nothing is kept.
    #[default]
    Ephemeral,
    /// The broker keeps subscriptions and what is not acknowledged.
    Persistent,
    /// Persistent, and owned by one replica at a time.
    Exclusive,
}

impl SessionMode {
    /// Whether the broker keeps the session while nobody is connected.
    #[must_use]
    pub const fn is_durable(self) -> bool {
        matches!(self, Self::Persistent | Self::Exclusive)
    }

    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeral",
            Self::Persistent => "persistent",
            Self::Exclusive => "exclusive",
        }
    }
}

/// How the broker is reached.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionOptions {
    /// The MQTT connection.
    pub session: MqttSession,
}

/// The MQTT connection.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MqttSession {
    /// The broker's address. The scheme decides about TLS.
    #[serde(default)]
    pub broker_url: Option<BrokerUrl>,
    /// Several addresses of one broker, tried in turn; only for ephemeral sessions. Instead of `broker_url`.
    #[serde(default)]
    pub broker_urls: Vec<BrokerUrl>,
    /// The client identifier. The same on every replica of an exclusive session.
    pub client_id: String,
    /// Makes the identifier of each replica its own: `hostname`, or `nonce` for a random one (ephemeral sessions only).
    #[serde(default)]
    pub client_id_suffix: Option<ClientIdSuffix>,
    /// Says that each replica's client identifier is its own and outlives a restart, so that a persistent session may carry `client_id_suffix: hostname`, or run clustered with an identifier from the replica's environment.
    #[serde(default)]
    pub assert_stable_client_identity: bool,
    /// Keep-alive in seconds; 0 for none.
    #[serde(default = "keep_alive")]
    pub keep_alive: u16,
    /// How long a first connection may take, TLS and login included.
    #[serde(default = "half_a_minute")]
    pub connect_timeout: Span,
    /// The same for a reconnection.
    #[serde(default = "half_a_minute")]
    pub reconnect_timeout: Span,
    /// How long subscribing may take after a connection, and how long an owner may take to open its log before it steps down. Cannot be switched off.
    #[serde(default = "half_a_minute")]
    pub reconcile_timeout: Span,
    /// The pause before the first reconnection; it doubles, with jitter.
    #[serde(default = "ten_seconds")]
    pub reconnect_delay: Span,
    /// The longest such pause.
    #[serde(default = "two_minutes")]
    pub reconnect_max_delay: Span,
    /// Whether the broker is to forget what it kept. Never true for durable sessions.
    #[serde(default)]
    pub clean_start: bool,
    /// How many seconds the broker keeps the session while nobody is connected. 0: a day for durable sessions, nothing for ephemeral ones.
    #[serde(default)]
    pub session_expiry_interval: u32,
    /// How many messages the broker may send ahead of acknowledgements. 0: 500.
    #[serde(default)]
    pub receive_maximum: u16,
    /// The largest payload that is accepted, in bytes. The largest packet is 128 KiB more, for topic and properties.
    #[serde(default = "quarter_mebi")]
    pub max_payload_bytes: u32,
    /// How long a message that no receiver asked for is held back after a connection. Part of the failover budget.
    #[serde(default = "half_a_minute")]
    pub unmatched_grace: Span,
    /// Whether the broker holds back what this client published itself. Never for `$share` filters.
    #[serde(default)]
    pub no_local: bool,
    /// User name.
    #[serde(default)]
    pub username: Option<String>,
    /// Password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Where user name and password are read from, as `{"username": "…", "password": "…"}`: `file:///PATH`, `env://VARIABLE`, `ssm:///PARAMETER`, `secretsmanager://NAME`. Read again every five minutes; the next connection uses what stands there then.
    #[serde(default)]
    pub credentials_uri: Option<String>,
    /// Allows user name and password on an address without TLS, where everybody on the way can read them.
    #[serde(default)]
    pub allow_plaintext_credentials: bool,
    /// What the broker publishes when this client vanishes.
    #[serde(default)]
    pub will: Option<Will>,
    /// How the broker's certificate is verified. It always is.
    #[serde(default)]
    pub tls: Tls,
    /// The MQTT version.
    #[serde(default)]
    pub protocol_version: ProtocolVersion,
    /// Where messages without an id of their own get one: `random`, or `content_hash` (MQTT 3.1.1 only).
    #[serde(default)]
    pub message_id: MessageIdSource,
}

const fn keep_alive() -> u16 {
    30
}
const fn half_a_minute() -> Span {
    Span::secs(30)
}
const fn ten_seconds() -> Span {
    Span::secs(10)
}
const fn two_minutes() -> Span {
    Span::secs(120)
}
const fn quarter_mebi() -> u32 {
    262_144
}

/// What makes the client identifier of each replica its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientIdSuffix {
    /// The host name.
    Hostname,
    /// A random text for each start.
    Nonce,
}

/// The MQTT version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProtocolVersion {
    /// MQTT 5.
    #[default]
    #[serde(rename = "v5")]
    V5,
    /// MQTT 3.1.1, without what it lacks.
    #[serde(rename = "v3.1.1")]
    V311,
}

/// Where messages without an id of their own get one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageIdSource {
    /// A new one for each.
    #[default]
    Random,
    /// Computed from client, broker, topic and payload.
    ContentHash,
}

/// What the broker publishes when this client vanishes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Will {
    /// The topic.
    pub topic: String,
    /// The payload.
    #[serde(default)]
    pub payload: String,
    /// The quality of service, 0 to 2.
    #[serde(default)]
    #[schemars(range(max = 2))]
    pub qos: u8,
    /// Whether the broker keeps it for later subscribers.
    #[serde(default)]
    pub retain: bool,
}

/// How the broker's certificate is verified, and which one is shown to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Says what the address says too: true for `tls://`, false for `tcp://`. Left out: whatever the address says.
    pub enable: Option<bool>,
    /// A file of certificate authorities (PEM) to trust instead of the system's.
    pub ca_cert_file: Option<String>,
    /// The same as text, such as `${BROKER_CA}`.
    pub ca_cert_pem: Option<Secret>,
    /// The client's certificate chain (PEM); with `key_file`.
    pub cert_file: Option<String>,
    /// The client's private key (PEM); with `cert_file`.
    pub key_file: Option<String>,
    /// The client's certificate chain as text; with `key_pem`.
    pub cert_pem: Option<Secret>,
    /// The client's private key as text; with `cert_pem`.
    pub key_pem: Option<Secret>,
}

/// Where messages come from: a session's topics, a queue, or whoever posts them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Receiver {
    /// Its name.
    pub id: Id,
    /// `sqs` or `http`, for a receiver without a session. What is posted to `/transport/http/receivers/ID/messages` on `http.transport_addr` is answered with 202 once the outbox keeps it; any replica may be asked.
    #[serde(default)]
    pub transport: Option<Transport>,
    /// The session that it receives from, for MQTT.
    #[serde(default)]
    pub session_id: Option<Id>,
    /// What it subscribes to, for MQTT.
    #[serde(default)]
    pub topics: Vec<Topic>,
    /// Options of its transport.
    #[serde(default)]
    pub options: ReceiverOptions,
}

/// A subscription.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// The topic filter; `$share/GROUP/FILTER` for a subscription that replicas share.
    pub topic: String,
    /// The quality of service, 0 to 2; 2 is received as 1.
    #[serde(default)]
    #[schemars(range(max = 2))]
    pub qos: u8,
    /// How it is looked after.
    #[serde(default)]
    pub options: TopicOptions,
}

/// How a subscription is looked after.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TopicOptions {
    /// Details.
    pub subscription: SubscriptionTuning,
}

/// Details of a subscription.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubscriptionTuning {
    /// How often a subscription that was granted less than it asked for is asked again; at least 1m, 0s for never.
    pub qos_recheck_interval: Span,
}

impl Default for SubscriptionTuning {
    fn default() -> Self {
        Self { qos_recheck_interval: Span::secs(3600) }
    }
}

/// What becomes of a message that the broker kept for later subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Retained {
    /// It goes on like any other, marked as retained.
    #[default]
    Forward,
    /// It is acknowledged, counted and dropped.
    Skip,
}

/// Options of a receiver: `retained` of one of an MQTT session, `token`, `max_body_bytes` and `fail_open` of one that is posted to, all others of one of a queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiverOptions {
    /// MQTT: what becomes of messages that the broker kept for later subscribers, which it sends with every new subscription, and for ephemeral sessions with every connection. `forward`: each copy goes on, marked as retained. `skip`: they are acknowledged and dropped, counted with the reason `retained`; what is published while the session subscribes is no such message, whatever its publisher asked for.
    pub retained: Retained,
    /// The queue's URL. This or `queue_name`.
    pub queue_url: Option<String>,
    /// The queue's name. This or `queue_url`.
    pub queue_name: Option<String>,
    /// The AWS region. Left out: from the environment.
    pub region: Option<String>,
    /// Another address of the service. Left out: from the environment (`AWS_ENDPOINT_URL`).
    pub endpoint: Option<String>,
    /// A profile of the AWS configuration files, whose credentials are used, and whose region where neither `region` nor the queue's URL says one. Left out: the usual AWS chain.
    pub profile: Option<String>,
    /// The most messages in one answer, 1 to 10; always 1 on FIFO queues.
    #[schemars(range(min = 1, max = 10))]
    pub max_messages: u32,
    /// How many seconds a poll waits for messages, 1 to 20.
    #[schemars(range(min = 1, max = 20))]
    pub wait_time_seconds: u32,
    /// How many seconds a received message stays hidden from others, up to 43200.
    #[schemars(range(max = 43200))]
    pub visibility_timeout: u32,
    /// Whether that time is extended while a message is in work.
    pub auto_extend: bool,
    /// Whether an SNS notification is taken out of its wrapping.
    pub sns_unwrap: bool,
    /// How long finding the queue may take at the start.
    pub init_timeout: Span,
    /// The first pause after a failed poll; it doubles up to 30s.
    pub poll_backoff: Span,
    /// SQS: refused. Credentials come from the usual AWS chain, or from `profile`.
    pub credentials_uri: Option<String>,
    /// After how many receives a message counts as poison; 0 for never.
    pub poison_max_receives: u32,
    /// Whether poison is dropped where the queue has no redrive policy.
    pub poison_drop_without_dlq: bool,
    /// HTTP, required: what callers show as a bearer token or as `X-API-Key`: at least 16 characters, the same on every replica, from the environment; or where it is kept, as in `credentials_uri` of a session.
    pub token: Option<Secret>,
    /// HTTP: the largest body, in bytes, up to 1 MiB. What the outbox cannot keep in one row is refused too (DynamoDB: 400 KB after compression).
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_body_bytes: u32,
    /// HTTP, for routes of an exclusive session: whether a post is taken by whoever gets it where the owner is unknown or does not answer. It waits in the mailbox for the next owner then. False: it is refused with 502 or 503, and the caller posts it again.
    pub fail_open: bool,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self {
            retained: Retained::Forward,
            queue_url: None,
            queue_name: None,
            region: None,
            endpoint: None,
            profile: None,
            max_messages: 10,
            wait_time_seconds: 20,
            visibility_timeout: 30,
            auto_extend: true,
            sns_unwrap: false,
            init_timeout: Span::secs(30),
            poll_backoff: Span::secs(1),
            credentials_uri: None,
            poison_max_receives: 0,
            poison_drop_without_dlq: false,
            token: None,
            max_body_bytes: 1_048_576,
            fail_open: false,
        }
    }
}

/// A client of destinations: on a session, or on its own.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sender {
    /// Its name.
    pub id: Id,
    /// `sqs`, for a sender without a session.
    #[serde(default)]
    pub transport: Option<Transport>,
    /// For MQTT: the session whose broker and login it uses. It publishes on a connection of its own, whose client identifier is the session's with `-out-` and a random text.
    #[serde(default)]
    pub session_id: Option<Id>,
    /// Options of the transport.
    #[serde(default)]
    pub options: SenderOptions,
}

/// Options of a sender. Each belongs to one transport, as its description says; `timeout` to both.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SenderOptions {
    /// SQS: the queue's URL; required.
    pub queue_url: Option<String>,
    /// SQS: the AWS region. Left out: from the environment.
    pub region: Option<String>,
    /// SQS: how many seconds a message is delayed, up to 900. Not on FIFO queues. Left out: as the queue says.
    #[schemars(range(max = 900))]
    pub delay_seconds: Option<u32>,
    /// SQS: the most messages in one request, 1 to 10. Left out: 10.
    #[schemars(range(min = 1, max = 10))]
    pub batch_size: Option<u32>,
    /// How long one request may take. Left out: 30s.
    pub timeout: Option<Span>,
    /// SQS FIFO: the group of every message.
    pub message_group_id: Option<String>,
    /// SQS FIFO: takes the group from the ordering key.
    pub fifo: Option<bool>,
    /// SQS FIFO: whether a message is sent only after the one before it in its group was accepted. `false` is quicker where groups are few, and changes
    /// the order of a group when SQS accepts a batch in part. Left out: true.
    pub strict_order: Option<bool>,
    /// SQS: the largest message, attributes included, in bytes. Left out: 1048576.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_message_bytes: Option<u32>,
    /// SQS: refused. Credentials come from the usual AWS chain.
    pub credentials_uri: Option<String>,
    /// MQTT: the topic of messages that the address of their binding does not fit: they do not have a header that it names, or what it comes to is no topic. Left out: such messages are dead-lettered, or treated as `on_permanent_failure` says.
    pub default_topic: Option<String>,
    /// MQTT: the quality of service, 0 to 2; 2 is published as 1. With 0 the broker confirms nothing, and a lost connection loses messages. Left out: 1.
    #[schemars(range(max = 2))]
    pub qos: Option<u8>,
    /// MQTT: whether the broker keeps the message for later subscribers. Left out: false.
    pub retain: Option<bool>,
    /// MQTT: the pause after the broker said that a quota is exceeded. Left out: 500ms.
    pub throttle_retry_after: Option<Span>,
}

/// A named destination.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Its name.
    pub id: Id,
    /// The sender that reaches it.
    pub sender_id: Id,
    /// The session in whose outbox its messages wait, under that one's lease. It can only be the session that feeds the routes of this binding, as where it is left out: nobody else writes into a log.
    #[serde(default)]
    pub session_id: Option<Id>,
    /// The topic or queue, for MQTT the topic to publish to; `{header}` is replaced by a header of the message, and a message without that header goes to the sender's `default_topic`, else it is dead-lettered as `ADDRESS_TEMPLATE`.
    pub address: String,
}
