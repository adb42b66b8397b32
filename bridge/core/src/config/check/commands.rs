//! Rules of `commands`.

use super::Check;
use crate::commands::{TopicError, Topics};
use crate::config::model::{CommandCorrelation, Commands, ProtocolVersion};
use crate::config::values::Span;

/// The parts of a configuration that a rule may name as read.
const TEMPLATES: [&str; 4] = ["commands.prefix", "commands.request_topic", "commands.reply_topic", "commands.legacy_reply_filter"];

/// How far below the load balancer's idle timeout an open request must end.
const IDLE_RESERVE: Span = Span::secs(5);

/// The largest row of a result: a DynamoDB item holds 400 KB, keys and attributes included.
const MAX_INLINE_BYTES: u64 = 358_400;

/// The largest payload that an MQTT packet can hold.
const MAX_MQTT_BYTES: u64 = 268_435_455;

pub(super) fn check(check: &mut Check<'_>) {
    let commands = &check.config.commands;
    times(check, commands);
    sizes(check, commands);
    topics(check, commands);
    if let Some(token) = &commands.token {
        check.key("commands.token", token);
    }
    if commands.qos > 1 || (commands.qos == 0 && !commands.allow_qos0) {
        check.error(
            "E_CMD_QOS",
            "commands.qos",
            &["commands.allow_qos0"],
            "commands are published with quality of service 1; with 0 one may be lost without anybody being told",
            "write `qos: 1`, or `qos: 0` with `allow_qos0: true`",
        );
    }
    check.range("commands.max_pending_per_target", u64::from(commands.max_pending_per_target), 1, 10_000);
    if commands.enabled {
        required(check, commands);
    }
}

fn between(check: &mut Check<'_>, path: &str, value: Span, least: Span, most: Span) {
    if value < least || value > most {
        check.error("E_RANGE", path, &[], "out of range", format!("write a duration from {least} to {most}"));
    }
}

fn times(check: &mut Check<'_>, commands: &Commands) {
    between(check, "commands.timeout", commands.timeout, Span::millis(100), Span::secs(43_200));
    between(check, "commands.late_result_window", commands.late_result_window, Span::ZERO, Span::secs(7 * 86_400));
    between(check, "commands.orphan_ttl", commands.orphan_ttl, Span::secs(60), Span::secs(86_400));
    check.positive("commands.retention", commands.retention);
    if commands.retention < commands.late_result_window {
        check.error(
            "E_CMD_RETENTION",
            "commands.retention",
            &["commands.late_result_window"],
            format!(
                "{} is below late_result_window ({}): a late result would find no command",
                commands.retention, commands.late_result_window
            ),
            "raise it, or lower late_result_window",
        );
    }
    let most = commands.load_balancer_idle_timeout.as_nanos().saturating_sub(IDLE_RESERVE.as_nanos());
    if commands.sync_wait_max.as_nanos() >= most {
        check.error(
            "E_SYNC_WAIT",
            "commands.sync_wait_max",
            &["commands.load_balancer_idle_timeout"],
            format!("{} is not below load_balancer_idle_timeout minus {IDLE_RESERVE}: the load balancer would close the connection of a caller that waits", commands.sync_wait_max),
            "lower it, or raise load_balancer_idle_timeout with that of the load balancer",
        );
    }
}

fn sizes(check: &mut Check<'_>, commands: &Commands) {
    check.range("commands.max_request_bytes", u64::from(commands.max_request_bytes), 1, MAX_MQTT_BYTES);
    check.range("commands.inline_response_bytes", u64::from(commands.inline_response_bytes), 1, MAX_INLINE_BYTES);
    check.range("commands.max_response_bytes", u64::from(commands.max_response_bytes), 1, MAX_MQTT_BYTES);
    if commands.max_response_bytes > commands.inline_response_bytes {
        check.error(
            "E_NO_BLOB_STORE",
            "commands.max_response_bytes",
            &["commands.inline_response_bytes"],
            format!(
                "{} bytes do not fit inline_response_bytes ({}), and there is no store for larger results",
                commands.max_response_bytes, commands.inline_response_bytes
            ),
            "lower it, or raise inline_response_bytes up to 358400",
        );
    }
}

fn topics(check: &mut Check<'_>, commands: &Commands) {
    if commands.reply_share_group.contains(['/', '+', '#']) || commands.reply_share_group.contains(char::is_control) {
        check.error(
            "E_CMD_SHARE_GROUP",
            "commands.reply_share_group",
            &[],
            "not usable as the name of a share group",
            "use a name without `/`, `+`, `#` and control characters, or leave it empty",
        );
    } else if commands.enabled && commands.reply_share_group.is_empty() {
        check.warning(
            "W_CMD_REPLIES_DIRECT",
            "commands.reply_share_group",
            &[],
            "replies go to the replica that sent the command alone, and are lost with it",
            "name a group, such as `bridge-reply`",
        );
    }
    let mut usable = true;
    for (path, template, sample) in [
        ("commands.request_topic", Some(&commands.request_topic), Sample::Request),
        ("commands.reply_topic", Some(&commands.reply_topic), Sample::Reply),
        ("commands.legacy_reply_filter", commands.legacy_reply_filter.as_ref(), Sample::Legacy),
    ] {
        let Some(template) = template else { continue };
        if let Err(error) = sample.try_topics(&commands.filled(template)) {
            usable = false;
            topic_error(check, path, &error);
        }
    }
    let broadcast = commands.broadcast();
    if broadcast.contains(['+', '#']) {
        topic_error(check, "commands.broadcast_topic", &TopicError::Wildcard(broadcast));
    } else if broadcast.is_empty() || broadcast.len() > 1_024 || broadcast.starts_with('$') || broadcast.contains(char::is_control) {
        topic_error(check, "commands.broadcast_topic", &TopicError::Unusable(broadcast));
    } else if usable && is_open_to_devices(commands, &broadcast) {
        check.error(
            "E_CMD_BROADCAST",
            "commands.broadcast_topic",
            &TEMPLATES,
            format!("`{broadcast}` is one of the topics of commands and replies: a device could announce results to all replicas"),
            "write a topic that none of these templates covers, such as `{prefix}/reply-notify`",
        );
    }
}

/// Which template stands alone, so that its error is told at its own place.
#[derive(Clone, Copy)]
enum Sample {
    Request,
    Reply,
    Legacy,
}

impl Sample {
    fn try_topics(self, template: &str) -> Result<Topics, TopicError> {
        let (request, reply) = ("q/{target}", "r/{instance_id}/{target}");
        match self {
            Self::Request => Topics::new(template, reply, None, ""),
            Self::Reply => Topics::new(request, template, None, ""),
            Self::Legacy => Topics::new(request, reply, Some(template), ""),
        }
    }
}

fn topic_error(check: &mut Check<'_>, path: &str, error: &TopicError) {
    let code = match error {
        TopicError::Wildcard(_) => "E_TOPIC_WILDCARD",
        TopicError::Placeholder { .. } => "E_CMD_PLACEHOLDER",
        TopicError::Unusable(_) => "E_CMD_TOPIC",
    };
    check.error(code, path, &["commands.prefix"], error.to_string(), "see the default of this field");
}

/// Whether a topic has the shape of one that commands or replies use. The broker lets devices write to some of these.
fn is_open_to_devices(commands: &Commands, topic: &str) -> bool {
    let covers = |template: &str| {
        let filled = commands.filled(template);
        let (mut expected, mut levels) = (filled.split('/'), topic.split('/'));
        loop {
            match (expected.next(), levels.next()) {
                (None, None) => return true,
                (Some(wanted), Some(level)) if wanted == level || matches!(wanted, "{target}" | "{instance_id}") => {}
                _ => return false,
            }
        }
    };
    covers(&commands.request_topic) || covers(&commands.reply_topic) || commands.legacy_reply_filter.as_deref().is_some_and(covers)
}

fn required(check: &mut Check<'_>, commands: &Commands) {
    if commands.token.is_none() {
        check.error(
            "E_CMD_TOKEN",
            "commands.token",
            &[],
            "commands.token is required: without it everybody could give commands",
            "add `token: ${CAUSEWAY_COMMAND_TOKEN}`, the same on every replica; make one with `openssl rand -hex 24`",
        );
    }
    if check.config.stores.commands.is_none() {
        check.error(
            "E_CMD_TABLE",
            "stores.commands",
            &[],
            "stores.commands is required: a command is written down before it is published",
            "add `commands: {type: dynamodb, options: {table_name: causeway-commands}}` under `stores`",
        );
    }
    session(check, commands);
}

fn session(check: &mut Check<'_>, commands: &Commands) {
    let path = "commands.session_id";
    let Some(id) = commands.session_id.as_ref().filter(|id| !id.is_empty()) else {
        check.error(
            "E_CMD_SESSION",
            path,
            &[],
            "commands.session_id is required: it names the broker of the devices",
            "name one of sessions",
        );
        return;
    };
    let found = check.config.commands_session();
    check.reference(path, "session", id, "sessions", found.is_some());
    let Some(session) = found else { return };
    if commands.correlation == CommandCorrelation::Property && session.options.session.protocol_version != ProtocolVersion::V5 {
        check.error(
            "E_CMD_SESSION",
            path,
            &["commands.correlation", "sessions"],
            format!("session \"{id}\" does not use MQTT 5, and has no correlation data"),
            "write `correlation: payload`, or use a session with MQTT 5",
        );
    }
}
