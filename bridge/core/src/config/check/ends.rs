//! Rules of `receivers`, `senders` and `bindings`.

use super::Check;
use super::bridge::is_http_url;
use crate::config::model::{Receiver, Sender, SessionMode, Topic, Transport};
use crate::config::values::Span;
use crate::dispatch::{Address, is_topic};
use std::collections::BTreeMap;

pub(super) fn check(check: &mut Check<'_>) {
    let config = check.config;
    check.names("receivers", config.receivers.iter().map(|receiver| receiver.id.as_str()));
    check.names("senders", config.senders.iter().map(|sender| sender.id.as_str()));
    check.names("bindings", config.bindings.iter().map(|binding| binding.id.as_str()));
    let mut taken = BTreeMap::new();
    for (index, receiver) in config.receivers.iter().enumerate() {
        let at = format!("receivers[{index}]");
        origin(check, &at, receiver.transport, receiver.session_id.as_deref());
        match &receiver.session_id {
            Some(session_id) => {
                mqtt_receiver(check, &at, receiver);
                if let Some(other) = taken.insert(session_id.as_str(), receiver.id.as_str()) {
                    check.error(
                        "E_RECEIVER_PER_SESSION",
                        &format!("{at}.session_id"),
                        &[],
                        format!("receiver \"{other}\" already receives from this session: acknowledgements of one session have one order"),
                        "list all topics under one receiver, or add a session",
                    );
                }
            }
            None if receiver.is_queue() => sqs_receiver(check, &at, receiver),
            None if receiver.is_http() => http_receiver(check, &at, receiver),
            None => {}
        }
    }
    for (index, sender) in config.senders.iter().enumerate() {
        let at = format!("senders[{index}]");
        origin(check, &at, sender.transport, sender.session_id.as_deref());
        if sender.transport == Some(Transport::Http) {
            check.error(
                "E_HTTP_SENDER",
                &format!("{at}.transport"),
                &[],
                "there are no HTTP senders: `http` is for receivers",
                "write `transport: sqs`, or the `session_id` of an MQTT session",
            );
        }
        sender_options(check, &at, sender);
    }
    for (index, binding) in config.bindings.iter().enumerate() {
        let at = format!("bindings[{index}]");
        check.reference(
            &format!("{at}.sender_id"),
            "sender_id",
            &binding.sender_id,
            "senders",
            config.sender(&binding.sender_id).is_some(),
        );
        if let Some(session_id) = &binding.session_id {
            check.reference(&format!("{at}.session_id"), "session_id", session_id, "sessions", config.session(session_id).is_some());
        }
        if binding.address.is_empty() {
            check.error(
                "E_REQUIRED",
                &format!("{at}.address"),
                &[],
                format!("{at}.address is required"),
                "write the topic, or the queue's name",
            );
        } else if Address::parse(&binding.address).is_none() {
            check.error(
                "E_ADDRESS_TEMPLATE",
                &format!("{at}.address"),
                &[],
                "a placeholder is not closed, nested, or empty",
                "write `{header}`",
            );
        }
    }
}

/// Exactly one of transport and session.
fn origin(check: &mut Check<'_>, at: &str, transport: Option<Transport>, session_id: Option<&str>) {
    let (transport_at, session_at) = (format!("{at}.transport"), format!("{at}.session_id"));
    match (transport, session_id) {
        (None, None) => check.error(
            "E_TRANSPORT_OR_SESSION",
            at,
            &[&transport_at, &session_at],
            "exactly one of transport and session_id is required",
            "write `transport: sqs` (a receiver: or `http`), or the `session_id` of an MQTT session",
        ),
        (Some(_), Some(_)) => check.error(
            "E_TRANSPORT_OR_SESSION",
            &transport_at,
            &[&session_at],
            "exactly one of transport and session_id is required, not both",
            "remove one of the two",
        ),
        (Some(Transport::Mqtt), None) => check.error(
            "E_TRANSPORT_OR_SESSION",
            &transport_at,
            &[],
            "MQTT needs a session",
            "write the `session_id` of an MQTT session instead",
        ),
        (Some(Transport::Sqs | Transport::Http), None) => {}
        (None, Some(id)) => {
            let exists = check.config.session(id).is_some();
            check.reference(&session_at, "session_id", id, "sessions", exists);
        }
    }
}

fn mqtt_receiver(check: &mut Check<'_>, at: &str, receiver: &Receiver) {
    let topics_at = format!("{at}.topics");
    if receiver.topics.is_empty() {
        check.error(
            "E_TOPICS_REQUIRED",
            &topics_at,
            &[],
            format!("{topics_at} is required: a receiver of a session must subscribe to something"),
            "add `topics: [{topic: telemetry/#, qos: 1}]`",
        );
    }
    foreign_options(check, at, &[&QUEUED, &POSTED], "MQTT receivers");
    for (index, topic) in receiver.topics.iter().enumerate() {
        subscription(check, &format!("{topics_at}[{index}]"), receiver, topic);
        overlap(check, &format!("{topics_at}[{index}].topic"), &receiver.topics[..index], topic);
        if receiver.topics[..index].iter().any(|other| other.topic == topic.topic) {
            check.error(
                "E_TOPIC_TWICE",
                &format!("{topics_at}[{index}].topic"),
                &[],
                format!("\"{}\" is subscribed twice", topic.topic),
                "keep one of the two",
            );
        }
    }
}

fn subscription(check: &mut Check<'_>, at: &str, receiver: &Receiver, topic: &Topic) {
    let topic_at = format!("{at}.topic");
    check.range(&format!("{at}.qos"), u64::from(topic.qos), 0, 2);
    let recheck = topic.options.subscription.qos_recheck_interval;
    if !recheck.is_zero() && recheck < Span::secs(60) {
        check.error(
            "E_QOS_RECHECK",
            &format!("{at}.options.subscription.qos_recheck_interval"),
            &[],
            "qos_recheck_interval is below 1m",
            "write 1m or more, or 0s for never",
        );
    }
    let shared = topic.topic.starts_with("$share/");
    let filter = if shared { share_filter(&topic.topic) } else { Some(topic.topic.as_str()) };
    let Some(filter) = filter else {
        check.error(
            "E_SHARE_TOPIC",
            &topic_at,
            &[],
            format!("malformed $share/ topic \"{}\"", topic.topic),
            "write `$share/GROUP/FILTER`, the group without `/`, `+` and `#`",
        );
        return;
    };
    if !is_filter(filter) {
        check.error(
            "E_TOPIC_FILTER",
            &topic_at,
            &[],
            format!("\"{}\" is not a topic filter", topic.topic),
            "`+` stands for a whole level, `#` for the rest and comes last, and a filter is not empty",
        );
    }
    let session = receiver.session_id.as_deref().and_then(|id| check.config.sessions.iter().position(|session| session.id.as_str() == id));
    let Some(session_index) = session else { return };
    let session = &check.config.sessions[session_index];
    let session_at = format!("sessions[{session_index}]");
    if shared && session.options.session.no_local {
        check.error(
            "E_NO_LOCAL",
            &topic_at,
            &[&format!("{session_at}.options.session.no_local")],
            "no_local is a protocol error on $share/ filters",
            "remove no_local, or the `$share/` prefix",
        );
    }
    if check.config.bridge.is_clustered() && !shared && session.session_mode != SessionMode::Exclusive {
        check.error(
            "E_SHARE_OR_EXCLUSIVE",
            &topic_at,
            &["bridge.deployment_mode", "bridge.cluster.endpoints", &format!("{session_at}.session_mode"), &format!("{at}.session_id")],
            format!("clustered MQTT receiver requires $share/ topic prefix or exclusive session to prevent N-fold message duplication; got \"{}\"", topic.topic),
            format!("write `$share/GROUP/{}`, or `session_mode: exclusive`", topic.topic),
        );
    }
}

/// Brokers may deliver a message once for each filter that matches it, and then nothing tells the copies from two messages.
fn overlap(check: &mut Check<'_>, at: &str, earlier: &[Topic], topic: &Topic) {
    let inner = |topic: &'_ str| if topic.starts_with("$share/") { share_filter(topic).map(str::to_owned) } else { Some(topic.to_owned()) };
    let Some(filter) = inner(&topic.topic).filter(|filter| is_filter(filter)) else { return };
    let other = earlier.iter().find(|other| {
        other.topic != topic.topic && inner(&other.topic).is_some_and(|other| is_filter(&other) && overlaps(&filter, &other))
    });
    if let Some(other) = other {
        check.warning(
            "W_TOPIC_OVERLAP",
            at,
            &[],
            format!("\"{}\" and \"{}\" match the same topics: a broker may deliver such a message once for each", topic.topic, other.topic),
            "keep the wider one, or expect copies; they have an id each",
        );
    }
}

/// Whether there is a topic that both filters match.
fn overlaps(one: &str, other: &str) -> bool {
    let hidden = |a: &str, b: &str| a.starts_with('$') && b.starts_with(['+', '#']);
    if hidden(one, other) || hidden(other, one) {
        return false;
    }
    let (mut ones, mut others) = (one.split('/'), other.split('/'));
    loop {
        match (ones.next(), others.next()) {
            // `#` stands for the level above it too, and for any number of levels below.
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some(a), Some(b)) if a == b || a == "+" || b == "+" => {}
            _ => return false,
        }
    }
}

/// The filter behind `$share/GROUP/`.
fn share_filter(topic: &str) -> Option<&str> {
    let (group, filter) = topic.strip_prefix("$share/")?.split_once('/')?;
    (!group.is_empty() && !group.contains(['+', '#']) && !filter.is_empty()).then_some(filter)
}

fn is_filter(filter: &str) -> bool {
    let levels: Vec<&str> = filter.split('/').collect();
    let last = levels.len() - 1;
    let level_is_right = |(index, level): (usize, &&str)| match *level {
        "+" => true,
        "#" => index == last,
        level => !level.contains(['+', '#', '\0']),
    };
    !filter.is_empty() && filter.len() <= 65_535 && levels.iter().enumerate().all(level_is_right)
}

/// Options of receivers of an MQTT session, of those that are posted to, and of those of a queue.
const SUBSCRIBED: [&str; 1] = ["retained"];
const POSTED: [&str; 3] = ["token", "max_body_bytes", "fail_open"];
const QUEUED: [&str; 15] = [
    "queue_url",
    "queue_name",
    "region",
    "endpoint",
    "profile",
    "max_messages",
    "wait_time_seconds",
    "visibility_timeout",
    "auto_extend",
    "sns_unwrap",
    "init_timeout",
    "poll_backoff",
    "credentials_uri",
    "poison_max_receives",
    "poison_drop_without_dlq",
];

/// Options that belong to other transports.
fn foreign_options(check: &mut Check<'_>, at: &str, foreign: &[&[&str]], whose: &str) {
    for field in foreign.iter().copied().flatten() {
        let path = format!("{at}.options.{field}");
        if check.is_set(&path) {
            check.error(
                "E_OPTION_TRANSPORT",
                &path,
                &[&format!("{at}.transport"), &format!("{at}.session_id")],
                format!("`{field}` has no meaning for {whose}"),
                "remove it",
            );
        }
    }
}

/// What belongs to receivers of an MQTT session.
fn without_session(check: &mut Check<'_>, at: &str, receiver: &Receiver) {
    if !receiver.topics.is_empty() {
        check.error(
            "E_OPTION_TRANSPORT",
            &format!("{at}.topics"),
            &[],
            "topics are for receivers of an MQTT session",
            "remove them, or write a `session_id` instead of `transport`",
        );
    }
}

fn http_receiver(check: &mut Check<'_>, at: &str, receiver: &Receiver) {
    without_session(check, at, receiver);
    foreign_options(check, at, &[&SUBSCRIBED, &QUEUED], "HTTP receivers");
    let options = &receiver.options;
    let option = |name: &str| format!("{at}.options.{name}");
    match &options.token {
        None => check.error(
            "E_HTTP_TOKEN",
            &option("token"),
            &[&format!("{at}.options")],
            format!("{} is required: without it everybody could post", option("token")),
            "add `token: ${CAUSEWAY_POST_TOKEN}`, the same on every replica; make one with `openssl rand -hex 24`",
        ),
        Some(token) => check.key(&option("token"), token),
    }
    check.range(&option("max_body_bytes"), u64::from(options.max_body_bytes), 1, 1_048_576);
    let routes = check.config.routes.iter().filter(|route| route.receiver_id == receiver.id);
    let sessions: std::collections::BTreeSet<Option<&str>> =
        routes.map(|route| route.session.as_ref().map(|block| block.session_id.as_str())).collect();
    if sessions.len() > 1 {
        check.error(
            "E_HTTP_SESSION",
            at,
            &["routes"],
            "its routes belong to several sessions: what is posted has one owner",
            "name the same session in the `session` block of each of its routes, or in none; or add a receiver",
        );
    }
    if options.fail_open && !sessions.iter().any(Option::is_some) {
        check.error(
            "E_OPTION_TRANSPORT",
            &option("fail_open"),
            &["routes"],
            "`fail_open` has no meaning without an owner: every replica takes what is posted to it",
            "remove it, or name an exclusive session in the routes' `session` block",
        );
    }
}

fn sqs_receiver(check: &mut Check<'_>, at: &str, receiver: &Receiver) {
    let options = &receiver.options;
    let option = |name: &str| format!("{at}.options.{name}");
    without_session(check, at, receiver);
    foreign_options(check, at, &[&SUBSCRIBED, &POSTED], "SQS receivers");
    match (&options.queue_url, &options.queue_name) {
        (None, None) => check.error(
            "E_QUEUE_REQUIRED",
            &option("queue_url"),
            &[&option("queue_name")],
            "queue_url or queue_name is required",
            "add `queue_url: https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE`",
        ),
        (Some(_), Some(_)) => check.error(
            "E_QUEUE_BOTH",
            &option("queue_name"),
            &[&option("queue_url")],
            "queue_url and queue_name are mutually exclusive",
            "keep one of the two",
        ),
        (Some(url), None) => queue_url(check, &option("queue_url"), url),
        (None, Some(_)) => {}
    }
    check.range(&option("max_messages"), u64::from(options.max_messages), 1, 10);
    check.range(&option("wait_time_seconds"), u64::from(options.wait_time_seconds), 1, 20);
    check.range(&option("visibility_timeout"), u64::from(options.visibility_timeout), 0, 43_200);
    check.positive(&option("init_timeout"), options.init_timeout);
    check.positive(&option("poll_backoff"), options.poll_backoff);
    if options.credentials_uri.is_some() {
        aws_credentials(check, &option("credentials_uri"), "set `profile` where it needs others than the rest");
    }
}

/// A queue is no broker: who may use it, AWS says, and its credentials are renewed where they come from.
fn aws_credentials(check: &mut Check<'_>, path: &str, remedy: &str) {
    check.error(
        "E_AWS_CREDENTIALS",
        path,
        &[],
        "credentials for SQS come from the AWS chain (environment, profile, the role of the task or the host), and from no place of the configuration",
        format!("remove it; {remedy}"),
    );
}

fn queue_url(check: &mut Check<'_>, path: &str, url: &str) {
    if !is_http_url(url) {
        check.error("E_QUEUE_URL", path, &[], "not the URL of a queue", "write `https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE`");
    }
}

fn sender_options(check: &mut Check<'_>, at: &str, sender: &Sender) {
    const SQS: [&str; 9] = [
        "queue_url",
        "region",
        "delay_seconds",
        "batch_size",
        "message_group_id",
        "fifo",
        "strict_order",
        "max_message_bytes",
        "credentials_uri",
    ];
    const MQTT: [&str; 4] = ["default_topic", "qos", "retain", "throttle_retry_after"];
    let (foreign, name): (&[&str], &str) = match (sender.transport, &sender.session_id) {
        (Some(Transport::Sqs), None) => (&MQTT, "SQS senders"),
        (None, Some(_)) => (&SQS, "MQTT senders"),
        _ => return,
    };
    let option = |name: &str| format!("{at}.options.{name}");
    foreign_options(check, at, &[foreign], name);
    let options = &sender.options;
    if let Some(timeout) = options.timeout {
        check.positive(&option("timeout"), timeout);
    }
    if let Some(qos) = options.qos {
        check.range(&option("qos"), u64::from(qos), 0, 2);
    }
    if options.default_topic.as_deref().is_some_and(|topic| !is_topic(topic)) {
        check.error(
            "E_DEFAULT_TOPIC",
            &option("default_topic"),
            &[],
            "nothing can be published to it",
            "write a topic without `+`, `#` and U+0000, of at most 65535 bytes",
        );
    }
    if sender.transport == Some(Transport::Sqs) {
        sqs_sender(check, at, sender);
    }
}

fn fifo_group(check: &mut Check<'_>, option: &dyn Fn(&str) -> String, group: &str, of_key: bool) {
    let path = option("message_group_id");
    if of_key {
        check.error(
            "E_FIFO_GROUP",
            &path,
            &[&option("fifo")],
            "`fifo: true` takes the group from the ordering key, and `message_group_id` gives every message the same",
            "remove one of the two",
        );
    }
    if !(1..=128).contains(&group.len()) || !group.bytes().all(|byte| byte.is_ascii_graphic()) {
        check.error(
            "E_FIFO_GROUP",
            &path,
            &[],
            "SQS takes 1 to 128 letters, digits and marks of ASCII for a group, without spaces",
            "shorten it, or replace what SQS refuses",
        );
    }
}

fn sqs_sender(check: &mut Check<'_>, at: &str, sender: &Sender) {
    let options = &sender.options;
    let option = |name: &str| format!("{at}.options.{name}");
    for (name, value, least, most) in [
        ("delay_seconds", options.delay_seconds, 0, 900),
        ("batch_size", options.batch_size, 1, 10),
        ("max_message_bytes", options.max_message_bytes, 1, 1_048_576),
    ] {
        if let Some(value) = value {
            check.range(&option(name), u64::from(value), least, most);
        }
    }
    if options.credentials_uri.is_some() {
        aws_credentials(check, &option("credentials_uri"), "set `AWS_PROFILE`, or give the process a role");
    }
    let Some(url) = &options.queue_url else {
        check.error(
            "E_QUEUE_REQUIRED",
            &option("queue_url"),
            &[&format!("{at}.options")],
            format!("{} is required", option("queue_url")),
            "add `queue_url: https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE`",
        );
        return;
    };
    queue_url(check, &option("queue_url"), url);
    let is_fifo = url.ends_with(".fifo");
    let has_group = options.message_group_id.is_some() || options.fifo == Some(true);
    if is_fifo && !has_group {
        check.error(
            "E_FIFO_GROUP",
            &option("queue_url"),
            &[&option("fifo"), &option("message_group_id")],
            "a FIFO queue needs a group for every message",
            "add `message_group_id`, or `fifo: true` to take it from the ordering key",
        );
    }
    if let Some(group) = options.message_group_id.as_ref().filter(|_| is_fifo) {
        fifo_group(check, &option, group, options.fifo == Some(true));
    }
    if !is_fifo && (has_group || options.strict_order.is_some()) {
        let path = option(match (options.fifo, &options.message_group_id) {
            (Some(_), _) => "fifo",
            (None, Some(_)) => "message_group_id",
            (None, None) => "strict_order",
        });
        check.error(
            "E_FIFO_QUEUE",
            &path,
            &[&option("queue_url")],
            "the queue is not FIFO: its name does not end in `.fifo`",
            "remove it, or name a FIFO queue",
        );
    }
    if is_fifo && options.delay_seconds.is_some() {
        check.error(
            "E_FIFO_DELAY",
            &option("delay_seconds"),
            &[&option("queue_url")],
            "messages of a FIFO queue cannot be delayed one by one",
            "remove it; set the delay on the queue",
        );
    }
}
