//! For every field: a configuration in which it matters, another value, and where that shows.

use super::Shows::{self, In, Refused};
use super::view::Part::{Budget, Commands, Messages, Owners, Process, Senders, Shown, Stores};

/// One field.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its path; `[]` stands for any element.
    pub field: &'static str,
    /// Where it matters: layers, the later ones on top.
    pub base: &'static [&'static str],
    /// How the two configurations come about.
    pub change: Change,
    /// Fields that cannot but change with it, or that it contradicts.
    pub along: &'static [&'static str],
    /// Where the other value shows.
    pub shows: Shows,
}

/// How two configurations that differ in one field come about.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// By two values of it; the first may be left out. JSON, or else texts.
    Values { element: &'static str, first: Option<&'static str>, second: &'static str },
    /// By another name, wherever it stands.
    Names { from: &'static str, to: &'static str },
}

/// A limit by key.
const LIMIT: &str = r#"{"key":"topic","pairs":"10:1","enabled":true}"#;

const fn row(field: &'static str, base: &'static [&'static str], change: Change, shows: Shows) -> Row {
    Row { field, base, change, along: &[], shows }
}

/// A value instead of none, or of the one that the base has.
const fn set(field: &'static str, base: &'static [&'static str], second: &'static str, shows: Shows) -> Row {
    row(field, base, Change::Values { element: "", first: None, second }, shows)
}

/// One value instead of another.
const fn turn(field: &'static str, base: &'static [&'static str], first: &'static str, second: &'static str, shows: Shows) -> Row {
    row(field, base, Change::Values { element: "", first: Some(first), second }, shows)
}

/// The same in the one element of a list without ids, of which `element` is the rest.
const fn within(
    field: &'static str,
    base: &'static [&'static str],
    element: &'static str,
    first: Option<&'static str>,
    second: &'static str,
    shows: Shows,
) -> Row {
    row(field, base, Change::Values { element, first, second }, shows)
}

/// Another name, wherever it stands.
const fn rename(field: &'static str, base: &'static [&'static str], from: &'static str, to: &'static str, shows: Shows) -> Row {
    row(field, base, Change::Names { from, to }, shows)
}

impl Row {
    const fn along(mut self, fields: &'static [&'static str]) -> Self {
        self.along = fields;
        self
    }
}

const ADMIN: &str = "http: { admin_api_key: 0123456789abcdef }";
const LISTENER_TLS: &str = "http: { tls_cert_file: '{dir}/one.pem', tls_key_file: '{dir}/one.key' }";

const ONE: &str = r#"
version: 1
bridge: { id: the-bridge }
stores:
  outbox: { type: sqlite, options: { path: /tmp/one.db } }
  dlq: { type: sqlite, options: { path: /tmp/one.db } }
sessions:
  - { id: the-session, transport: mqtt, session_mode: persistent, options: { session: { broker_url: "tcp://one.example.com:1883", client_id: client } } }
receivers:
  - { id: the-receiver, session_id: the-session, topics: [{ topic: "a/#", qos: 1 }] }
senders:
  - { id: the-sender, transport: sqs, options: { queue_url: "https://sqs.eu-west-1.amazonaws.com/1/one" } }
bindings:
  - { id: the-binding, sender_id: the-sender, address: one }
  - { id: other-binding, sender_id: the-sender, address: two }
routes:
  - { id: the-route, receiver_id: the-receiver, delivery_mode: shared_outbox, bindings: [the-binding, other-binding] }
"#;

const MEMORY: &str = r"
stores:
  lease: { type: memory, options: { acknowledge_single_replica: true } }
  outbox: { type: memory, options: { path: null, acknowledge_volatile: true } }
  dlq: { type: memory, options: { path: null, acknowledge_volatile: true } }
";

const DYNAMODB: &str = r"
stores:
  lease: { type: dynamodb }
  outbox: { type: dynamodb, options: { path: null } }
  dlq: { type: dynamodb, options: { path: null } }
  managed_subscriptions: { type: dynamodb }
  ledger: { type: dynamodb }
";

const CLUSTER: &str = r"
bridge: { deployment_mode: clustered }
sessions: [{ id: the-session, session_mode: exclusive }]
routes: [{ id: the-route, session: { session_id: the-session, sender_id: the-sender } }]
";

const SHARED: &str = r#"
bridge: { deployment_mode: clustered }
sessions: [{ id: the-session, session_mode: persistent, options: { session: { assert_stable_client_identity: true } } }]
receivers: [{ id: the-receiver, topics: [{ topic: "$share/group/one/#", qos: 1 }] }]
"#;

const HISTORY: &str = "stores: { managed_subscriptions: { type: sqlite, options: { path: /tmp/two.db } } }";

const LEDGER: &str = "stores: { ledger: { type: sqlite, options: { path: /tmp/two.db } } }";

const COMMANDS: &str = "
stores: { commands: { type: dynamodb, options: { table_name: the-commands } } }
commands: { enabled: true, session_id: the-session, token: 0123456789abcdef }
";
const COMMANDS_ELSEWHERE: &str = "commands: { load_balancer_idle_timeout: 2m }";
const COMMANDS_UNSURE: &str = "commands: { qos: 0, allow_qos0: true }";
const COMMANDED: &[&str] = &[ONE, COMMANDS];

const DROPS_OLDEST: &str = "flow: { store: { on_full: drop_oldest } }";

const EPHEMERAL: &str = "sessions: [{ id: the-session, session_mode: ephemeral }]";

const SEVERAL_URLS: &str = "sessions: [{ id: the-session, options: { session: { broker_url: null } } }]";

const LOGIN: &str =
    "sessions: [{ id: the-session, options: { session: { username: one, password: first, allow_plaintext_credentials: true } } }]";

const WILL: &str = "sessions: [{ id: the-session, options: { session: { will: { topic: gone/one, payload: gone } } } }]";

const TLS: &str = r#"sessions: [{ id: the-session, options: { session: { broker_url: "tls://one.example.com:8883", tls: { ca_cert_file: "{dir}/one.pem" } } } }]"#;

const CERTIFICATE: &str =
    r#"sessions: [{ id: the-session, options: { session: { tls: { cert_file: "{dir}/one.pem", key_file: "{dir}/one.key" } } } }]"#;

const TLS_TEXT: &str = r#"sessions: [{ id: the-session, options: { session: { broker_url: "tls://one.example.com:8883", tls: { ca_cert_pem: {text:one.pem} } } } }]"#;

const CERTIFICATE_TEXT: &str =
    "sessions: [{ id: the-session, options: { session: { tls: { cert_pem: {text:one.pem}, key_pem: {text:one.key} } } } }]";

const OTHER_SESSION: &str = r#"
sessions:
  - { id: other-session, transport: mqtt, session_mode: persistent, options: { session: { broker_url: "tcp://two.example.com:1883", client_id: other } } }
"#;

const QUEUE: &str = r#"
receivers:
  - { id: the-receiver, session_id: null, topics: null, transport: sqs, options: { queue_url: "https://sqs.eu-west-1.amazonaws.com/1/in" } }
"#;

const NAMED_QUEUE: &str = "receivers: [{ id: the-receiver, options: { queue_url: null, queue_name: in } }]";

const POSTED: &str =
    "receivers: [{ id: the-receiver, session_id: null, topics: null, transport: http, options: { token: 0123456789abcdef } }]";

const OWNED: &str = r#"
receivers:
  - { id: the-receiver, session_id: null, topics: null, transport: http, options: { token: 0123456789abcdef } }
  - { id: other-receiver, session_id: the-session, topics: [{ topic: "a/#", qos: 1 }] }
routes:
  - { id: other-route, receiver_id: other-receiver, delivery_mode: shared_outbox, bindings: [the-binding], session: { session_id: the-session, sender_id: the-sender } }
"#;

const FIFO: &str = r#"
senders: [{ id: the-sender, options: { queue_url: "https://sqs.eu-west-1.amazonaws.com/1/one.fifo", message_group_id: g } }]
"#;

const OTHER_SENDER: &str = r#"
senders: [{ id: other-sender, transport: sqs, options: { queue_url: "https://sqs.eu-west-1.amazonaws.com/1/two" } }]
"#;

const PUBLISH: &str = "senders: [{ id: the-sender, transport: null, session_id: other-session, options: { queue_url: null } }]";

const OTHER_RECEIVER: &str = r#"
receivers: [{ id: other-receiver, session_id: other-session, topics: [{ topic: "a/#", qos: 1 }] }]
"#;

const HELD: &str = "routes: [{ id: the-route, delivery_mode: direct_hold }]";
const SPILLED: &str = "routes: [{ id: the-route, delivery_mode: spill_outbox }]";
const FAN_OUT: &str = "routes: [{ id: the-route, dispatch_mode: fan_out }]";

const BY_HEADER: &str = "routes: [{ id: the-route, resolver: { type: header_map, header_key: kind, header_map: { x: other-binding }, default_binding: the-binding } }]";
const BY_RULE: &str = "routes: [{ id: the-route, resolver: { type: rules, default_binding: the-binding } }]";
const RULE: &str = r#"{"field":"subject","operator":"eq","value":"a/b","binding":"other-binding"}"#;

const FILTER: &str = "
processors: [{ id: the-processor, type: filter, options: { action: drop, conditions: [{ field: subject, operator: eq, value: a/b }] } }]
routes: [{ id: the-route, processors: [the-processor] }]
";
const CONDITION: &str = r#"{"field":"subject","operator":"eq","value":"a/b"}"#;
const SENDS_ASIDE: &str = "processors: [{ id: the-processor, options: { action: route, binding: other-binding } }]";

const TRANSFORM: &str = "
processors: [{ id: the-processor, type: transform, options: { mappings: [{ from: $.n, to: $.copied }] } }]
routes: [{ id: the-route, processors: [the-processor] }]
";
const MAPPING: &str = r#"{"from":"$.n","to":"$.copied"}"#;

const BREAKER: &str = "
processors: [{ id: the-processor, type: circuit_breaker }]
routes: [{ id: the-route, processors: [the-processor] }]
";

const TENANT: &str = "
processors: [{ id: the-processor, type: tenant, options: { from: header.site, default_tenant: nobody } }]
routes: [{ id: the-route, processors: [the-processor] }]
";

const OBJECTIVE: &str = "
sessions: [{ id: the-session, options: { session: { connect_timeout: 5s, reconnect_timeout: 5s, reconcile_timeout: 5s, unmatched_grace: 0s } } }]
routes: [{ id: the-route, session: { broker_health_step_down: 30s, failover_slo: 300s } }]
";

const HINTS: &str = "http: { hint_token: 0123456789abcdef }";

const QUOTA: &str = "
flow: { quota: { enabled: true } }
";

const ALONE: &[&str] = &[ONE];
const ON_DYNAMODB: &[&str] = &[ONE, DYNAMODB];
const CLUSTERED: &[&str] = &[ONE, DYNAMODB, CLUSTER];
const ASKS_ECS: &[&str] = &[ONE, DYNAMODB, CLUSTER, "bridge: { cluster: { takeover_evidence: [ttl, ecs_stopped] } }"];
const FROM_QUEUE: &[&str] = &[ONE, QUEUE];
/// An address that not every message fits.
const ADDRESSED: &str = "bindings: [{ id: the-binding, address: 'out/{site}' }]";
const TO_BROKER: &[&str] = &[ONE, OTHER_SESSION, PUBLISH];
const BOUNDED: &str = "routes: [{ id: the-route, policy: { max_outbox_depth: 500 } }]";
/// Rounds of retries and recovery after a fixed pause, and after one that grows.
const FIXED_ROUNDS: &[&str] =
    &[ONE, DYNAMODB, CLUSTER, "routes: [{ id: the-route, session: { drain_strategy: { type: fixed_poll, interval: 3s } } }]"];
const ADAPTIVE_ROUNDS: &[&str] = &[
    ONE,
    DYNAMODB,
    CLUSTER,
    "routes: [{ id: the-route, session: { drain_strategy: { type: adaptive_backoff, min_interval: 1s, max_interval: 10s, multiplier: 4 } } }]",
];

pub const ROWS: &[Row] = &[
    set("version", ALONE, "2", In(Shown)),
    // The process.
    rename("bridge.id", ALONE, "the-bridge", "another", In(Owners)),
    set("bridge.instance_id", ALONE, "here", In(Process)),
    set("bridge.deployment_mode", &[ONE, DYNAMODB, "sessions: [{ id: the-session, session_mode: exclusive }]"], "clustered", In(Process)),
    set("bridge.shutdown_timeout", ALONE, "45s", In(Process)),
    set("bridge.drain_timeout", ALONE, "7s", In(Owners)),
    set("bridge.per_record_drain_timeout", ALONE, "2s", In(Owners)),
    set("bridge.max_drain_timeout", ALONE, "12s", In(Owners)),
    set("bridge.log_level", ALONE, "debug", In(Process)),
    set("bridge.log_format", ALONE, "human", In(Process)),
    set("bridge.metrics_exporter", ALONE, "emf", In(Process)),
    turn("bridge.max_mqtt_sessions", ALONE, "1", "0", Refused("E_MAX_MQTT_SESSIONS")),
    set("bridge.cluster.endpoints", CLUSTERED, r#"{"http":"http://here:8082"}"#, In(Process)),
    set("bridge.cluster.takeover_evidence", CLUSTERED, r#"["ttl","ecs_stopped"]"#, In(Owners)),
    set("bridge.cluster.evidence_poll", ASKS_ECS, "3s", In(Owners)),
    set("bridge.cluster.member_interval", CLUSTERED, "10s", In(Process)),
    // The stores.
    rename(
        "stores.lease.type",
        &[ONE, MEMORY],
        "type: memory, options: { acknowledge_single_replica: true }",
        "type: dynamodb",
        In(Stores),
    )
    .along(&["stores.lease.options.acknowledge_single_replica"]),
    set("stores.lease.options.table_name", ON_DYNAMODB, "other-table", In(Stores)),
    set("stores.lease.options.acknowledge_single_replica", &[ONE, MEMORY], "false", Refused("E_STORE_ACKNOWLEDGE"))
        .along(&["stores.lease.type"]),
    rename(
        "stores.outbox.type",
        ON_DYNAMODB,
        "outbox: { type: dynamodb, options: { path: null } }",
        "outbox: { type: sqlite }",
        In(Stores),
    )
    .along(&["stores.outbox.options.path"]),
    set("stores.outbox.options.table_name", ON_DYNAMODB, "other-table", In(Stores)),
    set("stores.outbox.options.path", ALONE, "/tmp/two.db", In(Stores)),
    set("stores.outbox.options.acknowledge_volatile", &[ONE, MEMORY], "false", Refused("E_STORE_ACKNOWLEDGE"))
        .along(&["stores.outbox.type"]),
    set("stores.outbox.options.stale_claim_duration", ALONE, "200s", In(Owners)),
    set("stores.outbox.options.retention", ALONE, "2h", In(Owners)),
    set("stores.outbox.options.compaction_grace", ON_DYNAMODB, "2h", In(Owners)),
    set("stores.outbox.options.segment_max_messages", ALONE, "50", In(Owners)),
    set("stores.outbox.options.segment_max_bytes", ALONE, "65536", In(Owners)),
    set("stores.outbox.options.segment_linger", ALONE, "20ms", In(Owners)),
    set("stores.outbox.options.send_linger", ALONE, "20ms", In(Owners)),
    set("stores.outbox.options.max_settled_ahead", ALONE, "500", In(Owners)),
    set("stores.outbox.options.mailbox_poll", ALONE, "5s", In(Owners)),
    rename("stores.dlq.type", ON_DYNAMODB, "dlq: { type: dynamodb, options: { path: null } }", "dlq: { type: sqlite }", In(Stores))
        .along(&["stores.dlq.options.path"]),
    set("stores.dlq.options.table_name", ON_DYNAMODB, "other-table", In(Stores)),
    set("stores.dlq.options.path", ALONE, "/tmp/two.db", In(Stores)),
    set("stores.dlq.options.acknowledge_volatile", &[ONE, MEMORY], "false", Refused("E_STORE_ACKNOWLEDGE")).along(&["stores.dlq.type"]),
    set("stores.dlq.options.retention", ON_DYNAMODB, "30d", In(Stores)),
    set("stores.dlq.options.max_scan_pages", ON_DYNAMODB, "7", In(Stores)),
    set("stores.dlq.auto_redrive_window", ALONE, "2d", In(Owners)),
    rename(
        "stores.managed_subscriptions.type",
        ON_DYNAMODB,
        "managed_subscriptions: { type: dynamodb }",
        "managed_subscriptions: { type: sqlite, options: { path: /tmp/two.db } }",
        In(Stores),
    )
    .along(&["stores.managed_subscriptions.options.path"]),
    set("stores.managed_subscriptions.options.table_name", ON_DYNAMODB, "other-table", In(Stores)),
    set("stores.managed_subscriptions.options.path", &[ONE, HISTORY], "/tmp/three.db", In(Stores)),
    rename(
        "stores.ledger.type",
        ON_DYNAMODB,
        "ledger: { type: dynamodb }",
        "ledger: { type: sqlite, options: { path: /tmp/two.db } }",
        In(Stores),
    )
    .along(&["stores.ledger.options.path"]),
    set("stores.ledger.options.table_name", ON_DYNAMODB, "other-table", In(Stores)),
    set("stores.ledger.options.path", &[ONE, LEDGER], "/tmp/three.db", In(Stores)),
    set("flow.store.max_messages_per_key", ALONE, "7", In(Owners)),
    set("flow.store.max_bytes_per_key", ALONE, "5000", In(Owners)),
    set("flow.store.on_full", ALONE, "dead_letter_oldest", In(Owners)),
    turn("flow.store.allow_loss", &[ONE, DROPS_OLDEST], "true", "false", Refused("E_ALLOW_LOSS")).along(&["flow.store.on_full"]),
    set("flow.store.message_ttl", ALONE, "1d", In(Messages)),
    set("flow.store.max_message_ttl", ALONE, "8d", In(Messages)),
    // Commands.
    rename(
        "stores.commands.type",
        COMMANDED,
        "commands: { type: dynamodb, options: { table_name: the-commands } }",
        "commands: { type: memory }",
        In(Stores),
    )
    .along(&["stores.commands.options.table_name"]),
    set("stores.commands.options.table_name", COMMANDED, "other-table", In(Stores)),
    set("commands.enabled", COMMANDED, "false", In(Commands)),
    set("commands.session_id", &[ONE, OTHER_SESSION, COMMANDS], "other-session", In(Commands)),
    set("commands.token", COMMANDED, "fedcba9876543210", In(Commands)),
    set("commands.prefix", COMMANDED, "other", In(Commands)),
    set("commands.request_topic", COMMANDED, "to/{target}", In(Commands)),
    set("commands.reply_topic", COMMANDED, "from/{target}/{instance_id}", In(Commands)),
    set("commands.legacy_reply_filter", COMMANDED, "old/{target}/response", In(Commands)),
    set("commands.reply_share_group", COMMANDED, "other-group", In(Commands)),
    set("commands.broadcast_topic", COMMANDED, "told/to/all", In(Commands)),
    set("commands.timeout", COMMANDED, "20s", In(Commands)),
    set("commands.sync_wait_max", COMMANDED, "20s", In(Commands)),
    turn("commands.load_balancer_idle_timeout", &[ONE, COMMANDS, COMMANDS_ELSEWHERE], "2m", "20s", Refused("E_SYNC_WAIT"))
        .along(&["commands.sync_wait_max"]),
    set("commands.late_result_window", COMMANDED, "2h", In(Commands)),
    set("commands.retention", COMMANDED, "1d", In(Stores)),
    set("commands.orphan_ttl", COMMANDED, "5m", In(Stores)),
    set("commands.max_request_bytes", COMMANDED, "5000", In(Commands)),
    set("commands.inline_response_bytes", COMMANDED, "1000", Refused("E_NO_BLOB_STORE")).along(&["commands.max_response_bytes"]),
    set("commands.max_response_bytes", COMMANDED, "5000", In(Commands)),
    turn("commands.qos", &[ONE, COMMANDS, COMMANDS_UNSURE], "0", "1", In(Commands)),
    turn("commands.allow_qos0", &[ONE, COMMANDS, COMMANDS_UNSURE], "true", "false", Refused("E_CMD_QOS")).along(&["commands.qos"]),
    set("commands.correlation", COMMANDED, "payload", In(Commands)),
    set("commands.max_pending_per_target", COMMANDED, "7", In(Commands)),
    set("commands.ordered", COMMANDED, "true", In(Commands)),
    set("commands.replay", COMMANDED, "true", In(Commands)),
    set("commands.fail_without_subscriber", COMMANDED, "true", In(Commands)),
    // What is told of drops.
    set("drops.ledger.enabled", ALONE, "false", In(Stores)),
    set("drops.ledger.retention", ALONE, "1d", In(Stores)),
    set("drops.ledger.max_rows", ALONE, "5000", In(Stores)),
    set("drops.ledger.flush_interval", ALONE, "1s", In(Stores)),
    // Sessions.
    rename("sessions[].id", ALONE, "the-session", "another", In(Owners)).along(&["receivers[].session_id"]),
    set("sessions[].transport", ALONE, "sqs", Refused("E_SESSION_TRANSPORT")),
    set("sessions[].session_mode", ALONE, "ephemeral", In(Owners)),
    set("sessions[].options.session.broker_url", ALONE, "tcp://two.example.com:1883", In(Owners)),
    turn(
        "sessions[].options.session.broker_urls",
        &[ONE, EPHEMERAL, SEVERAL_URLS],
        r#"["tcp://one.example.com:1883"]"#,
        r#"["tcp://one.example.com:1883","tcp://two.example.com:1883"]"#,
        In(Owners),
    ),
    set("sessions[].options.session.client_id", ALONE, "another", In(Owners)),
    set("sessions[].options.session.client_id_suffix", &[ONE, EPHEMERAL], "nonce", In(Owners)),
    turn(
        "sessions[].options.session.assert_stable_client_identity",
        &[ONE, "sessions: [{ id: the-session, options: { session: { client_id_suffix: hostname } } }]"],
        "true",
        "false",
        Refused("E_CLIENT_ID_HOSTNAME"),
    )
    .along(&["sessions[].options.session.client_id_suffix"]),
    set("sessions[].options.session.keep_alive", ALONE, "7", In(Owners)),
    set("sessions[].options.session.connect_timeout", ALONE, "7s", In(Owners)),
    set("sessions[].options.session.reconnect_timeout", ALONE, "7s", In(Owners)),
    set("sessions[].options.session.reconcile_timeout", ALONE, "7s", In(Owners)),
    set("sessions[].options.session.reconnect_delay", ALONE, "7s", In(Owners)),
    set("sessions[].options.session.reconnect_max_delay", ALONE, "77s", In(Owners)),
    set("sessions[].options.session.clean_start", ALONE, "true", Refused("E_CLEAN_START")),
    set("sessions[].options.session.session_expiry_interval", ALONE, "7200", In(Owners)),
    set("sessions[].options.session.receive_maximum", ALONE, "77", In(Owners)),
    set("sessions[].options.session.max_payload_bytes", ALONE, "7000", In(Owners)),
    set("sessions[].options.session.unmatched_grace", ALONE, "7s", In(Owners)),
    set("sessions[].options.session.no_local", ALONE, "true", In(Owners)),
    set("sessions[].options.session.username", &[ONE, LOGIN], "two", In(Owners)),
    set("sessions[].options.session.password", &[ONE, LOGIN], "second", In(Owners)),
    set("sessions[].options.session.credentials_uri", &[ONE, TLS], "file:///etc/login", In(Owners)),
    set("sessions[].options.session.allow_plaintext_credentials", &[ONE, LOGIN], "false", Refused("E_PLAINTEXT_CREDENTIALS"))
        .along(&["sessions[].options.session.broker_url", "sessions[].options.session.username"]),
    set("sessions[].options.session.will.topic", &[ONE, WILL], "gone/two", In(Owners)),
    set("sessions[].options.session.will.payload", &[ONE, WILL], "lost", In(Owners)),
    set("sessions[].options.session.will.qos", &[ONE, WILL], "1", In(Owners)),
    set("sessions[].options.session.will.retain", &[ONE, WILL], "true", In(Owners)),
    set("sessions[].options.session.tls.enable", ALONE, "true", Refused("E_TLS_ENABLE")),
    set("sessions[].options.session.tls.ca_cert_file", &[ONE, TLS], "{dir}/two.pem", In(Owners)),
    set("sessions[].options.session.tls.ca_cert_pem", &[ONE, TLS_TEXT], "{text:two.pem}", In(Owners)),
    set("sessions[].options.session.tls.cert_file", &[ONE, TLS, CERTIFICATE], "{dir}/two.pem", In(Owners)),
    set("sessions[].options.session.tls.key_file", &[ONE, TLS, CERTIFICATE], "{dir}/two.key", In(Owners)),
    set("sessions[].options.session.tls.cert_pem", &[ONE, TLS, CERTIFICATE_TEXT], "{text:two.pem}", In(Owners)),
    set("sessions[].options.session.tls.key_pem", &[ONE, TLS, CERTIFICATE_TEXT], "{text:two.key}", In(Owners)),
    set("sessions[].options.session.tls.insecure_skip_verify", &[ONE, TLS], "true", Refused("E_TLS_VERIFICATION")),
    set("sessions[].options.session.protocol_version", &[ONE, EPHEMERAL], "v3.1.1", In(Owners)),
    set(
        "sessions[].options.session.message_id",
        &[ONE, EPHEMERAL, "sessions: [{ id: the-session, options: { session: { protocol_version: v3.1.1 } } }]"],
        "content_hash",
        In(Owners),
    ),
    set("sessions[].baseline", &[ONE, HISTORY], "auto", In(Owners)),
    set("sessions[].strict_subscriptions", ALONE, "true", In(Owners)),
    set("sessions[].lanes", ALONE, "4", In(Owners)),
    // Receivers.
    rename("receivers[].id", ALONE, "the-receiver", "another", In(Owners)).along(&["routes[].receiver_id"]),
    set("receivers[].transport", ALONE, "sqs", Refused("E_TRANSPORT_OR_SESSION")),
    set("receivers[].session_id", &[ONE, OTHER_SESSION], "other-session", In(Owners)),
    within("receivers[].topics[].topic", ALONE, r#"{"qos":1}"#, Some("a/#"), "b/#", In(Owners)),
    within(
        "receivers[].topics[].qos",
        &[ONE, "routes: [{ id: the-route, policy: { allow_retry_drop: true } }]"],
        r#"{"topic":"a/#"}"#,
        Some("1"),
        "0",
        In(Owners),
    ),
    within("receivers[].topics[].options.subscription.qos_recheck_interval", ALONE, r#"{"topic":"a/#","qos":1}"#, None, "10m", In(Owners)),
    set("receivers[].options.retained", ALONE, "skip", In(Messages)),
    set("receivers[].options.queue_url", FROM_QUEUE, "https://sqs.eu-west-1.amazonaws.com/1/other", In(Owners)),
    set("receivers[].options.queue_name", &[ONE, QUEUE, NAMED_QUEUE], "other", In(Owners)),
    set("receivers[].options.region", FROM_QUEUE, "eu-north-1", In(Owners)),
    set("receivers[].options.endpoint", FROM_QUEUE, "http://127.0.0.1:4566", In(Owners)),
    set("receivers[].options.profile", FROM_QUEUE, "other", In(Owners)),
    set("receivers[].options.max_messages", FROM_QUEUE, "3", In(Owners)),
    set("receivers[].options.wait_time_seconds", FROM_QUEUE, "3", In(Owners)),
    set("receivers[].options.visibility_timeout", FROM_QUEUE, "300", In(Owners)),
    turn(
        "receivers[].options.auto_extend",
        &[ONE, QUEUE, "routes: [{ id: the-route, policy: { send_timeout: 7s } }]"],
        "true",
        "false",
        In(Owners),
    ),
    set("receivers[].options.sns_unwrap", FROM_QUEUE, "true", In(Owners)),
    set("receivers[].options.init_timeout", FROM_QUEUE, "7s", In(Owners)),
    set("receivers[].options.poll_backoff", FROM_QUEUE, "7s", In(Owners)),
    set("receivers[].options.credentials_uri", FROM_QUEUE, "file:///etc/login", Refused("E_AWS_CREDENTIALS")),
    set("receivers[].options.poison_max_receives", FROM_QUEUE, "7", In(Owners)),
    set("receivers[].options.poison_drop_without_dlq", FROM_QUEUE, "true", In(Owners)),
    set("receivers[].options.token", &[ONE, POSTED], "fedcba9876543210", In(Process)),
    set("receivers[].options.max_body_bytes", &[ONE, POSTED], "70000", In(Process)),
    set("receivers[].options.fail_open", &[ONE, DYNAMODB, CLUSTER, OWNED], "true", In(Process)),
    // Senders.
    rename("senders[].id", ALONE, "the-sender", "another", In(Senders)).along(&["bindings[].sender_id"]),
    set("senders[].transport", TO_BROKER, "sqs", Refused("E_TRANSPORT_OR_SESSION")),
    set("senders[].session_id", TO_BROKER, "the-session", In(Senders)),
    set("senders[].options.queue_url", ALONE, "https://sqs.eu-west-1.amazonaws.com/1/other", In(Senders)),
    set("senders[].options.region", ALONE, "eu-north-1", In(Senders)),
    set("senders[].options.delay_seconds", ALONE, "7", In(Senders)),
    set("senders[].options.batch_size", ALONE, "7", In(Senders)),
    set("senders[].options.timeout", ALONE, "7s", In(Senders)),
    set("senders[].options.message_group_id", &[ONE, FIFO], "other", In(Senders)),
    rename("senders[].options.fifo", &[ONE, FIFO], "message_group_id: g", "fifo: true", In(Senders))
        .along(&["senders[].options.message_group_id"]),
    set("senders[].options.strict_order", &[ONE, FIFO], "false", In(Senders)),
    set("senders[].options.max_message_bytes", ALONE, "7000", In(Senders)),
    set("senders[].options.credentials_uri", ALONE, "file:///etc/login", Refused("E_AWS_CREDENTIALS")),
    set("senders[].options.default_topic", &[ONE, OTHER_SESSION, PUBLISH, ADDRESSED], "out", In(Messages)),
    set("senders[].options.qos", TO_BROKER, "0", In(Senders)),
    set("senders[].options.retain", TO_BROKER, "true", In(Senders)),
    set("senders[].options.throttle_retry_after", TO_BROKER, "7s", In(Senders)),
    // Bindings.
    rename("bindings[].id", ALONE, "the-binding", "another", In(Owners)).along(&["routes[].bindings[]"]),
    set("bindings[].sender_id", &[ONE, OTHER_SENDER], "other-sender", In(Owners)),
    set("bindings[].session_id", &[ONE, OTHER_SESSION], "other-session", Refused("E_BINDING_SESSION")),
    set("bindings[].address", ALONE, "another", In(Owners)),
    // Processors.
    rename("processors[].id", &[ONE, FILTER], "{ id: the-processor,", "{ id: another,", Refused("E_DANGLING"))
        .along(&["routes[].processors"]),
    set("processors[].type", &[ONE, FILTER], "transform", Refused("E_PROCESSOR_OPTION")).along(&["processors[].options"]),
    set("processors[].options.action", &[ONE, FILTER], "pass", In(Messages)),
    set("processors[].options.invert", &[ONE, FILTER], "true", In(Messages)),
    within("processors[].options.conditions[].field", &[ONE, FILTER], CONDITION, None, "header.kind", In(Messages)),
    within("processors[].options.conditions[].operator", &[ONE, FILTER], CONDITION, None, "ne", In(Messages)),
    within("processors[].options.conditions[].value", &[ONE, FILTER], CONDITION, None, "a/c", In(Messages)),
    within(
        "processors[].options.conditions[].values",
        &[ONE, FILTER],
        r#"{"field":"subject","operator":"in"}"#,
        Some(r#"["a/b"]"#),
        r#"["a/b","a/c"]"#,
        In(Messages),
    ),
    set(
        "processors[].options.binding",
        &[
            ONE,
            FILTER,
            SENDS_ASIDE,
            "bindings: [{ id: third, sender_id: the-sender, address: three }]",
            "routes: [{ id: the-route, bindings: [the-binding, other-binding, third] }]",
        ],
        "third",
        In(Messages),
    ),
    within("processors[].options.mappings[].from", &[ONE, TRANSFORM], MAPPING, Some("$.n"), "$.kind", In(Messages)),
    within("processors[].options.mappings[].to", &[ONE, TRANSFORM], MAPPING, Some("$.copied"), "header.copied", In(Messages)),
    within("processors[].options.mappings[].type", &[ONE, TRANSFORM], MAPPING, None, "int", In(Messages)),
    set("processors[].options.from", &[ONE, TENANT], "header.kind", In(Messages)),
    set("processors[].options.default_tenant", &[ONE, TENANT], "somebody", In(Messages)),
    set("processors[].options.failure_threshold", &[ONE, BREAKER], "7", In(Owners)),
    set("processors[].options.success_threshold", &[ONE, BREAKER], "7", In(Owners)),
    set("processors[].options.reset_timeout", &[ONE, BREAKER], "7s", In(Owners)),
    set("processors[].options.half_open_probes", &[ONE, BREAKER], "7", In(Owners)),
    // Flow control.
    within("flow.limits[].enabled", ALONE, r#"{"key":"topic","pairs":"10:1"}"#, Some("true"), "false", In(Owners)),
    within("flow.limits[].scope", ALONE, r#"{"pairs":"10:1","on_exceed":"hold","enabled":true}"#, Some("route"), "connection", In(Owners)),
    within("flow.limits[].key", ALONE, r#"{"pairs":"10:1","enabled":true}"#, Some("topic"), "topic_level:2", In(Owners)),
    within("flow.limits[].pairs", ALONE, r#"{"key":"topic","enabled":true}"#, Some("10:1"), "20:1", In(Owners)),
    within("flow.limits[].mode", ALONE, LIMIT, None, "token_bucket", In(Owners)),
    within("flow.limits[].on_exceed", ALONE, LIMIT, None, "hold", In(Owners)),
    within("flow.limits[].max_keys", ALONE, LIMIT, None, "7", In(Owners)),
    within("flow.limits[].overflow_key", ALONE, LIMIT, None, "others", In(Owners)),
    within(
        "flow.limits[].allow_loss",
        ALONE,
        r#"{"key":"topic","pairs":"10:1","on_exceed":"drop","enabled":true}"#,
        Some("true"),
        "false",
        Refused("E_LIMIT_LOSS"),
    )
    .along(&["flow.limits[].on_exceed"]),
    set("flow.inbound.unshare_after", &[ONE, DYNAMODB, SHARED], "15s", In(Owners)),
    set("flow.inbound.max_buffered_bytes", ALONE, "1000000", In(Owners)),
    set("flow.inbound.ack_hold_max", ALONE, "10s", In(Owners)),
    set("flow.inbound.ack_hold_action", ALONE, "disconnect", In(Owners)),
    set("flow.inbound.qos0_buffer_messages", ALONE, "7", In(Owners)),
    set("flow.inbound.qos0_on_full", ALONE, "drop_oldest", In(Owners)),
    set("flow.inbound.socket_pause_max", &[ONE, "flow: { inbound: { qos0_on_full: pause_socket } }"], "2s", In(Owners)),
    set("flow.inbound.tcp_receive_buffer_kib", ALONE, "64", In(Owners)),
    turn("flow.quota.enabled", ALONE, "true", "false", In(Owners)),
    set("flow.quota.name", &[ONE, QUOTA], "shared", In(Owners)),
    set("flow.quota.rate", &[ONE, QUOTA], "100:1", In(Owners)),
    set("flow.quota.burst", &[ONE, QUOTA], "500", In(Owners)),
    set("flow.quota.block_size", &[ONE, QUOTA], "7", In(Owners)),
    set("flow.quota.lease_return", &[ONE, QUOTA], "2s", In(Owners)),
    set("flow.quota.draw_timeout", &[ONE, QUOTA], "200ms", In(Owners)),
    set("flow.quota.dry_backoff", &[ONE, QUOTA], "20ms", In(Owners)),
    set("flow.quota.probe_interval", &[ONE, QUOTA], "3s", In(Owners)),
    set("flow.quota.book_ahead", &[ONE, QUOTA], "0s", In(Owners)),
    set("flow.quota.outage_policy", &[ONE, QUOTA], "fail_closed", In(Owners)),
    set("flow.quota.outage_grace", &[ONE, QUOTA, "flow: { quota: { outage_policy: fail_open } }"], "10s", In(Owners)),
    set("flow.quota.on_exhausted", &[ONE, QUOTA], "park", In(Owners)),
    turn("flow.quota.allow_loss", &[ONE, QUOTA, "flow: { quota: { on_exhausted: drop } }"], "true", "false", Refused("E_QUOTA_LOSS"))
        .along(&["flow.quota.on_exhausted"]),
    set("flow.quota.notice", &[ONE, QUOTA], "1m", In(Owners)),
    set("flow.outbound.pace", ALONE, "100:1", In(Owners)),
    // Routes.
    rename("routes[].id", ALONE, "the-route", "another", In(Owners)),
    set("routes[].receiver_id", &[ONE, OTHER_SESSION, OTHER_RECEIVER], "other-receiver", In(Owners)),
    set("routes[].delivery_mode", ALONE, "direct_hold", In(Owners)),
    set("routes[].dispatch_mode", ALONE, "fan_out", In(Messages)),
    set("routes[].trust_bridge_headers", ALONE, "true", In(Messages)),
    set("routes[].policy.max_in_flight", ALONE, "7", In(Owners)),
    turn("routes[].policy.ack_after", ALONE, "outbox_persist", "target_accept", Refused("E_ACK_AFTER")),
    set("routes[].policy.max_replay_attempts", ALONE, "7", In(Owners)),
    set("routes[].policy.replay_budget", ALONE, "7m", In(Owners)),
    set("routes[].policy.send_retry_budget", &[ONE, HELD], "7s", In(Owners)),
    set("routes[].policy.max_outbox_depth", ALONE, "7000", In(Owners)),
    set("routes[].policy.on_expired", ALONE, "drop", In(Owners)),
    set("routes[].policy.on_permanent_failure", ALONE, "drop", In(Owners)),
    set("routes[].policy.on_filtered", &[ONE, FILTER], "dlq", In(Messages)),
    set("routes[].policy.send_timeout", ALONE, "7s", In(Owners)),
    set("routes[].policy.depth_cache_ttl", &[ONE, BOUNDED], "7s", In(Owners)),
    within(
        "routes[].policy.allow_retry_drop",
        &[ONE, r#"receivers: [{ id: the-receiver, topics: [{ topic: "a/#", qos: 0 }] }]"#],
        "",
        Some("true"),
        "false",
        Refused("E_QOS_ZERO"),
    )
    .along(&["receivers[].topics[].qos"]),
    set("routes[].policy.spill_after", &[ONE, SPILLED], "70ms", In(Owners)),
    set("routes[].policy.backoff.initial_interval", ALONE, "700ms", In(Owners)),
    set("routes[].policy.backoff.max_interval", ALONE, "7s", In(Owners)),
    set("routes[].policy.backoff.multiplier", ALONE, "7", In(Owners)),
    set("routes[].policy.backoff.jitter", ALONE, "0.7", In(Owners)),
    set("routes[].policy.allow_unfenced", ALONE, "true", Refused("E_UNFENCED")),
    set("routes[].bindings", ALONE, r#"["other-binding"]"#, In(Messages)),
    set("routes[].processors", &[ONE, FILTER], "[]", In(Messages)),
    turn("routes[].resolver.type", &[ONE, FAN_OUT], "static", "all", In(Messages)),
    set("routes[].resolver.default_binding", &[ONE, BY_HEADER], "other-binding", In(Messages)),
    set("routes[].resolver.header_key", &[ONE, BY_HEADER], "site", In(Messages)),
    set("routes[].resolver.header_map", &[ONE, BY_HEADER], r#"{"y":"other-binding"}"#, In(Messages)),
    within(
        "routes[].resolver.rules[].field",
        &[ONE, BY_RULE],
        r#"{"operator":"eq","value":"x","binding":"other-binding"}"#,
        Some("header.kind"),
        "header.site",
        In(Messages),
    ),
    within("routes[].resolver.rules[].operator", &[ONE, BY_RULE], RULE, Some("eq"), "ne", In(Messages)),
    within("routes[].resolver.rules[].value", &[ONE, BY_RULE], RULE, Some("a/b"), "a/c", In(Messages)),
    within(
        "routes[].resolver.rules[].values",
        &[ONE, BY_RULE],
        r#"{"field":"subject","operator":"in","binding":"other-binding"}"#,
        Some(r#"["a/b"]"#),
        r#"["a/b","a/c"]"#,
        In(Messages),
    ),
    within("routes[].resolver.rules[].binding", &[ONE, BY_RULE], RULE, Some("other-binding"), "the-binding", In(Messages)),
    set("routes[].session.session_id", CLUSTERED, "nowhere", Refused("E_DANGLING")),
    set("routes[].session.sender_id", &[ONE, DYNAMODB, CLUSTER, OTHER_SENDER], "other-sender", Refused("E_SESSION_SENDER")),
    set("routes[].session.lease_ttl", CLUSTERED, "120s", In(Owners)),
    turn("routes[].session.renew_interval", CLUSTERED, "9s", "8s", In(Owners)),
    set("routes[].session.lease_renew_jitter", CLUSTERED, "700ms", In(Owners)),
    set("routes[].session.max_renew_fails", CLUSTERED, "2", In(Owners)),
    set("routes[].session.renew_call_timeout", CLUSTERED, "1500ms", In(Owners)),
    set("routes[].session.acquire_poll_interval", CLUSTERED, "3s", In(Owners)),
    set("routes[].session.step_down_grace", CLUSTERED, "4s", In(Owners)),
    turn("routes[].session.connect_after_lease", CLUSTERED, "true", "false", Refused("E_CONNECT_AFTER_LEASE")),
    turn("routes[].session.broker_health_step_down", CLUSTERED, "30s", "40s", In(Owners)),
    set("routes[].session.failover_slo", &[ONE, DYNAMODB, CLUSTER, OBJECTIVE], "1s", Refused("E_FAILOVER_SLO")),
    set("routes[].session.startup_allowance", CLUSTERED, "30s", In(Budget)),
    set("routes[].session.drain_interval", CLUSTERED, "2s", In(Owners)),
    rename("routes[].session.drain_strategy.type", FIXED_ROUNDS, "fixed_poll, interval: 3s", "adaptive_backoff", In(Owners))
        .along(&["routes[].session.drain_strategy.interval"]),
    rename("routes[].session.drain_strategy.interval", FIXED_ROUNDS, "interval: 3s", "interval: 2s", In(Owners)),
    rename("routes[].session.drain_strategy.min_interval", ADAPTIVE_ROUNDS, "min_interval: 1s", "min_interval: 2s", In(Owners)),
    rename("routes[].session.drain_strategy.max_interval", ADAPTIVE_ROUNDS, "max_interval: 10s", "max_interval: 20s", In(Owners)),
    rename("routes[].session.drain_strategy.multiplier", ADAPTIVE_ROUNDS, "multiplier: 4", "multiplier: 3", In(Owners)),
    set("routes[].session.drain_batch_size", CLUSTERED, "50", In(Owners)),
    set("routes[].session.drain_max_batch_size", CLUSTERED, "200", In(Owners)),
    set("routes[].session.drain_max_concurrency", CLUSTERED, "5", In(Owners)),
    // Flow control.
    set("flow.outbound.max_in_flight", ALONE, "7", In(Owners)),
    set("flow.outbound.max_unacked_bytes", ALONE, "700000", In(Owners)),
    set("flow.outbound.high_water_bytes", TO_BROKER, "700000", In(Senders)),
    set("flow.outbound.low_water_bytes", TO_BROKER, "700", In(Senders)),
    set("flow.outbound.resume.base", ALONE, "2s", In(Owners)),
    set("flow.outbound.resume.max", ALONE, "7s", In(Owners)),
    set("flow.outbound.resume.max_retries", ALONE, "7", In(Owners)),
    set("flow.outbound.resume.jitter", ALONE, "7s", In(Owners)),
    set("flow.outbound.resume.slow_start", ALONE, "false", In(Owners)),
    set("flow.outbound.pause_receiver", FROM_QUEUE, "false", In(Owners)),
    set("flow.outbound.visibility_extend", FROM_QUEUE, "7s", In(Owners)),
    // The listeners.
    turn("http.admin_addr", &[ONE, ADMIN], ":9080", ":9070", In(Process)),
    set("http.monitor_addr", ALONE, ":9081", In(Process)),
    set("http.transport_addr", &[ONE, DYNAMODB, CLUSTER, HINTS], ":9082", In(Process)),
    set("http.hint_token", &[ONE, DYNAMODB, CLUSTER, HINTS], "fedcba9876543210", In(Process)),
    turn("http.admin_api_key", ALONE, "0123456789abcdef", "fedcba9876543210", In(Process)),
    within("http.admin_keys[].name", &[ONE], r#"{"key":"0123456789abcdef"}"#, Some("one"), "two", In(Process)),
    within("http.admin_keys[].key", &[ONE], r#"{"name":"one"}"#, Some("0123456789abcdef"), "fedcba9876543210", In(Process)),
    turn("http.monitor_api_key", ALONE, "0123456789abcdef", "fedcba9876543210", In(Process)),
    set("http.trusted_proxies", ALONE, r#"["10.0.0.0/16"]"#, In(Process)),
    set("http.cors_origins", ALONE, r#"["https://ops.example.com"]"#, In(Process)),
    turn("http.tls_cert_file", &[ONE, LISTENER_TLS], "{dir}/one.pem", "{dir}/two.pem", In(Process)),
    turn("http.tls_key_file", &[ONE, LISTENER_TLS], "{dir}/one.key", "{dir}/two.key", In(Process)),
];
