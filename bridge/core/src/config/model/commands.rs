//! Commands to devices, given over HTTP and answered over MQTT: `commands`.

use super::super::values::{Id, Secret, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Commands to devices, given over HTTP and answered over MQTT.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Commands {
    /// Whether commands are taken, at `http.transport_addr`. Needs `session_id`, `token` and `stores.commands`.
    pub enabled: bool,
    /// The MQTT session whose broker, encryption and login the gateway uses, over a connection of its own. Required where commands are taken.
    pub session_id: Option<Id>,
    /// What callers show as a bearer token: at least 16 characters, the same on every replica, from the environment; or where it is kept, as in `credentials_uri` of a session. Required where commands are taken.
    pub token: Option<Secret>,
    /// What `{prefix}` in the topics below stands for.
    pub prefix: String,
    /// Where a command is published. Has `{target}` once, as a whole level.
    pub request_topic: String,
    /// Where a device is asked to answer. Has `{instance_id}` and `{target}` once each, as whole levels.
    pub reply_topic: String,
    /// Where devices answer that do not heed the response topic of a command, such as `{prefix}/{target}/response`. Has `{target}` once, as a whole level. Left out: there are none.
    pub legacy_reply_filter: Option<String>,
    /// The group by which all replicas share replies, so that one survives the replica that sent the command. Empty: every replica hears its own replies alone.
    pub reply_share_group: String,
    /// Where replicas tell each other of a result. Devices must not be allowed to publish there.
    pub broadcast_topic: String,
    /// How long a device may take, where the caller does not say: 100ms to 12h.
    pub timeout: Span,
    /// The longest that a caller may wait for a result with its request open.
    pub sync_wait_max: Span,
    /// After how long without traffic the load balancer in front closes a connection; `sync_wait_max` stays 5s below it.
    pub load_balancer_idle_timeout: Span,
    /// How long after its timeout a command still takes a result: up to 7d.
    pub late_result_window: Span,
    /// How long a command and its result can be read; not below `late_result_window`.
    pub retention: Span,
    /// How long it is noted that a result came whose command is not known: 1m to 1d. The result itself is not kept.
    pub orphan_ttl: Span,
    /// The largest payload, content type and properties of a command together, in bytes.
    pub max_request_bytes: u32,
    /// The largest result that is kept in one row, in bytes, up to 358,400.
    pub inline_response_bytes: u32,
    /// The largest result, in bytes; what is larger fails the command. Not above `inline_response_bytes`.
    pub max_response_bytes: u32,
    /// The quality of service of commands. 0 needs `allow_qos0`.
    pub qos: u8,
    /// Must be true for `qos: 0`: a command may be lost on its way without anybody being told.
    pub allow_qos0: bool,
    /// Where a command's id stands.
    pub correlation: CommandCorrelation,
    /// The most commands that one target may have open at one replica: 1 to 10,000. More are refused.
    pub max_pending_per_target: u32,
    /// Whether a target gets one command after the other, each once the one before has ended.
    pub ordered: bool,
    /// Whether a repeated request with the same `Idempotency-Key` gets the running command; else it is refused while that runs.
    pub replay: bool,
    /// Whether a command fails at once where the broker says that nobody has subscribed to its topic.
    pub fail_without_subscriber: bool,
}

impl Default for Commands {
    fn default() -> Self {
        Self {
            enabled: false,
            session_id: None,
            token: None,
            prefix: "causeway".to_owned(),
            request_topic: "{prefix}/{target}/command".to_owned(),
            reply_topic: "{prefix}/reply/{instance_id}/{target}".to_owned(),
            legacy_reply_filter: None,
            reply_share_group: "bridge-reply".to_owned(),
            broadcast_topic: "{prefix}/reply-notify".to_owned(),
            timeout: Span::secs(10),
            sync_wait_max: Span::secs(25),
            load_balancer_idle_timeout: Span::secs(60),
            late_result_window: Span::secs(3_600),
            retention: Span::secs(7 * 86_400),
            orphan_ttl: Span::secs(600),
            max_request_bytes: 131_072,
            inline_response_bytes: 262_144,
            max_response_bytes: 262_144,
            qos: 1,
            allow_qos0: false,
            correlation: CommandCorrelation::Property,
            max_pending_per_target: 100,
            ordered: false,
            replay: false,
            fail_without_subscriber: false,
        }
    }
}

/// Where a command's id stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandCorrelation {
    /// In the correlation data of MQTT 5.
    #[default]
    Property,
    /// In the payload, a JSON object, for devices with MQTT 3.1.1.
    Payload,
}
