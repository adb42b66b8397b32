//! Rules of `routes`, without their leases.

use super::Check;
use crate::config::model::{
    AckAfter, DeliveryMode, DispatchMode, Literal, OnFailure, Operator, Policy, Receiver, Resolver, ResolverKind, Route, SessionMode,
    Transport,
};
use crate::dispatch::{self, Address};
use crate::timing::SECOND;
use core::time::Duration;
use std::collections::BTreeSet;

/// How long a source may be held before an MQTT session is taken to be stuck.
const SETTLEMENT_RECOVERY: Duration = Duration::from_secs(240);
/// The longest that one processor may take.
const PROCESSOR_TIMEOUT: Duration = Duration::from_secs(30);
/// Two writes of a dead letter, and the pause between them.
const DLQ_WRITE: Duration = Duration::from_millis(10_500);

pub(super) fn check(check: &mut Check<'_>) {
    let config = check.config;
    check.names("routes", config.routes.iter().map(|route| route.id.as_str()));
    for (index, route) in config.routes.iter().enumerate() {
        let at = format!("routes[{index}]");
        check.reference(
            &format!("{at}.receiver_id"),
            "receiver_id",
            &route.receiver_id,
            "receivers",
            config.receiver(&route.receiver_id).is_some(),
        );
        bindings(check, &at, route);
        if let Some(resolver) = &route.resolver {
            resolve(check, &at, route, resolver);
        }
        policy(check, &format!("{at}.policy"), &route.policy);
        delivery(check, &at, route);
        failures(check, &at, route);
        source(check, &at, route);
        outboxes(check, route);
    }
    unused(check);
}

fn bindings(check: &mut Check<'_>, at: &str, route: &Route) {
    let path = format!("{at}.bindings");
    if route.bindings.is_empty() {
        check.error("E_BINDING_REQUIRED", &path, &[], format!("{path}: at least one binding is required"), "add `bindings: [NAME]`");
    }
    for (index, id) in route.bindings.iter().enumerate() {
        let exists = check.config.binding(id).is_some();
        check.reference(&format!("{path}[{index}]"), "binding", id, "bindings", exists);
        if route.bindings[..index].contains(id) {
            check.error(
                "E_DUPLICATE_ID",
                &format!("{path}[{index}]"),
                &[],
                format!("bindings: duplicate id \"{id}\""),
                "name each binding once",
            );
        }
    }
    let all = route.resolver.as_ref().is_some_and(|resolver| resolver.kind == ResolverKind::All);
    let mode_at = format!("{at}.delivery_mode");
    if route.dispatch_mode == DispatchMode::FanOut && !route.delivery_mode.needs_outbox() {
        check.error(
            "E_FAN_OUT",
            &format!("{at}.dispatch_mode"),
            &[&mode_at],
            "fan_out needs an outbox: with direct_hold one refused binding would send all others the message again",
            "write `delivery_mode: shared_outbox`",
        );
    }
    if all && route.dispatch_mode == DispatchMode::Single && route.bindings.len() > 1 {
        check.error(
            "E_FAN_OUT",
            &format!("{at}.resolver.type"),
            &[&format!("{at}.dispatch_mode")],
            "resolver `all` picks several bindings, and dispatch_mode single sends to one",
            "write `dispatch_mode: fan_out`",
        );
    }
}

fn resolve(check: &mut Check<'_>, at: &str, route: &Route, resolver: &Resolver) {
    let path = format!("{at}.resolver");
    let known = |check: &mut Check<'_>, at: &str, id: &str| {
        if !route.bindings.iter().any(|binding| binding.as_str() == id) {
            check.error(
                "E_RESOLVER_BINDING",
                at,
                &[],
                format!("binding \"{id}\" is not among the route's bindings"),
                "name one of the route's bindings, or add it there",
            );
        }
    };
    if let Some(id) = &resolver.default_binding {
        known(check, &format!("{path}.default_binding"), id);
    }
    for (value, id) in &resolver.header_map {
        known(check, &format!("{path}.header_map.{value}"), id);
    }
    for (index, rule) in resolver.rules.iter().enumerate() {
        known(check, &format!("{path}.rules[{index}].binding"), &rule.binding);
    }
    let map = resolver.kind == ResolverKind::HeaderMap;
    let reads = format!("{path}.type");
    if map && resolver.header_key.as_deref().is_none_or(str::is_empty) {
        check.error(
            "E_RESOLVER_HEADER",
            &format!("{path}.header_key"),
            &[&reads],
            "header_key is required for header_map",
            "add `header_key: NAME`",
        );
    }
    if map && resolver.header_map.is_empty() {
        check.error(
            "E_RESOLVER_MAP",
            &format!("{path}.header_map"),
            &[&reads],
            "header_map is empty",
            "add a binding for each value of the header",
        );
    }
    if resolver.kind == ResolverKind::Rules && resolver.rules.is_empty() && resolver.default_binding.is_none() {
        check.error(
            "E_RESOLVER_RULES",
            &path,
            &[&reads],
            "needs at least one rule or a default_binding",
            "add `rules`, or `default_binding`",
        );
    }
    for (name, used, kind) in [
        ("header_key", resolver.header_key.is_some(), ResolverKind::HeaderMap),
        ("header_map", !resolver.header_map.is_empty(), ResolverKind::HeaderMap),
        ("rules", !resolver.rules.is_empty(), ResolverKind::Rules),
    ] {
        if used && resolver.kind != kind {
            check.error(
                "E_RESOLVER_OPTION",
                &format!("{path}.{name}"),
                &[&reads],
                format!("`{name}` has no meaning for this type of resolver"),
                "remove it, or change `type`",
            );
        }
    }
    for (index, rule) in resolver.rules.iter().enumerate() {
        let at = format!("{path}.rules[{index}]");
        condition(check, &at, &rule.field, rule.operator, rule.value.as_ref(), &rule.values);
    }
}

/// What is looked at, how, and with what it is compared.
pub(super) fn condition(check: &mut Check<'_>, at: &str, field: &str, operator: Operator, value: Option<&Literal>, values: &[Literal]) {
    let fits = match operator {
        Operator::Exists => value.is_none() && values.is_empty(),
        Operator::In => value.is_none() && !values.is_empty(),
        _ => value.is_some() && values.is_empty(),
    };
    if !fits {
        check.error(
            "E_RESOLVER_OPERAND",
            at,
            &[&format!("{at}.operator"), &format!("{at}.value"), &format!("{at}.values")],
            "the operator and what it compares with do not fit",
            "`exists` takes nothing, `in` takes `values`, every other takes `value`",
        );
    }
    super::processor::field(check, &format!("{at}.field"), field);
    let expression = value.filter(|_| operator == Operator::Regex);
    if let Some(Err(error)) = expression.map(|value| dispatch::regex(&value.0)) {
        let remedy = "mend or shorten it; the syntax is that of Rust's `regex`, without look-around and back-references";
        check.error("E_RESOLVER_REGEX", &format!("{at}.value"), &[], error.to_string(), remedy);
    }
}

fn policy(check: &mut Check<'_>, at: &str, policy: &Policy) {
    check.range(&format!("{at}.max_in_flight"), u64::from(policy.max_in_flight), 1, 65_535);
    check.range(&format!("{at}.max_outbox_depth"), policy.max_outbox_depth.unwrap_or(1), 1, u64::MAX);
    check.positive(&format!("{at}.send_timeout"), policy.send_timeout);
    check.positive(&format!("{at}.depth_cache_ttl"), policy.depth_cache_ttl);
    check.positive(&format!("{at}.spill_after"), policy.spill_after);
    let (backoff, at) = (&policy.backoff, format!("{at}.backoff"));
    check.positive(&format!("{at}.initial_interval"), backoff.initial_interval);
    if backoff.max_interval < backoff.initial_interval {
        check.error(
            "E_BACKOFF",
            &format!("{at}.max_interval"),
            &[&format!("{at}.initial_interval")],
            "max_interval must be >= initial_interval",
            "raise it, or lower initial_interval",
        );
    }
    if backoff.multiplier < 1.0 {
        check.error(
            "E_BACKOFF",
            &format!("{at}.multiplier"),
            &[],
            "multiplier must be >= 1",
            "write 2.0, or 1.0 for pauses that do not grow",
        );
    }
    if !(0.0..=1.0).contains(&backoff.jitter) {
        check.error("E_BACKOFF", &format!("{at}.jitter"), &[], "jitter must be from 0 to 1", "write 0.2");
    }
}

fn delivery(check: &mut Check<'_>, at: &str, route: &Route) {
    let (mode_at, ack_at) = (format!("{at}.delivery_mode"), format!("{at}.policy.ack_after"));
    let mode = route.delivery_mode;
    let reason = match (mode, route.policy.ack_after) {
        (DeliveryMode::SharedOutbox, Some(AckAfter::TargetAccept)) => {
            Some("ack_after: target_accept contradicts shared_outbox, which acknowledges once the outbox keeps the message")
        }
        (DeliveryMode::DirectHold, Some(AckAfter::OutboxPersist)) => {
            Some("ack_after: outbox_persist contradicts direct_hold, which uses no outbox")
        }
        (DeliveryMode::SpillOutbox, Some(_)) => {
            Some("ack_after has no meaning for spill_outbox, which acknowledges after whichever comes first")
        }
        _ => None,
    };
    if let Some(reason) = reason {
        check.error("E_ACK_AFTER", &ack_at, &[&mode_at], reason, "remove ack_after, or change delivery_mode");
    }
    if mode.needs_outbox() && check.config.stores.outbox.is_none() {
        check.error(
            "E_OUTBOX_REQUIRED",
            &mode_at,
            &["stores.outbox"],
            format!("{} requires stores.outbox to be configured", mode.as_str()),
            "add `stores: {outbox: {type: sqlite, options: {path: …}}}`, or dynamodb",
        );
    }
    posted(check, at, route);
    logs_of_processes(check, &mode_at, route);
    for (name, belongs) in [("spill_after", DeliveryMode::SpillOutbox), ("send_retry_budget", DeliveryMode::DirectHold)] {
        let path = format!("{at}.policy.{name}");
        if mode != belongs && check.is_set(&path) {
            check.error(
                "E_POLICY_MODE",
                &path,
                &[&mode_at],
                format!("`{name}` has no meaning for {}", mode.as_str()),
                format!("remove it, or write `delivery_mode: {}`", belongs.as_str()),
            );
        }
    }
    for name in ["max_outbox_depth", "depth_cache_ttl"] {
        let path = format!("{at}.policy.{name}");
        if !mode.needs_outbox() && check.is_set(&path) {
            check.error(
                "E_POLICY_MODE",
                &path,
                &[&mode_at],
                format!("`{name}` has no meaning for {}, which has no outbox", mode.as_str()),
                "remove it: the source keeps what is not delivered",
            );
        }
    }
    if mode == DeliveryMode::DirectHold {
        direct_hold(check, at, route);
    }
}

/// A post is answered with "accepted" once the outbox keeps it, and only the owner of an exclusive session tells who sends it.
fn posted(check: &mut Check<'_>, at: &str, route: &Route) {
    let config = check.config;
    if !config.receiver(&route.receiver_id).is_some_and(Receiver::is_http) {
        return;
    }
    if route.delivery_mode != DeliveryMode::SharedOutbox {
        check.error(
            "E_HTTP_DELIVERY",
            &format!("{at}.delivery_mode"),
            &[&format!("{at}.receiver_id"), "receivers"],
            "what is posted is answered once the outbox keeps it: nobody holds it until the destination accepts",
            "write `delivery_mode: shared_outbox`",
        );
    }
    let Some(session) = config.carrier(route) else { return };
    let feeds = |other: &Route| config.source_session(other).is_some_and(|feeder| feeder.id == session.id);
    if session.session_mode != SessionMode::Exclusive || !config.routes.iter().any(feeds) {
        check.error(
            "E_HTTP_SESSION",
            &format!("{at}.session.session_id"),
            &["sessions", "receivers", "routes"],
            format!("session \"{}\" is not exclusive, or feeds no route: it has no owner that could send what is posted", session.id),
            "name an exclusive session that feeds another route, or remove the `session` block: then every replica sends what is posted",
        );
    }
}

/// A queue has no session that one process could own: in a clustered bridge each process keeps what it received in a log of its own, which nothing but a
/// lease fences, and which nobody takes over without one when its process is gone. What a session asks for is a rule of sessions.
fn logs_of_processes(check: &mut Check<'_>, mode_at: &str, route: &Route) {
    let config = check.config;
    let alone =
        config.receiver(&route.receiver_id).is_some_and(|receiver| receiver.session_id.is_none()) && config.carrier(route).is_none();
    let logged = route.delivery_mode.needs_outbox() && config.stores.outbox.is_some();
    if alone && logged && config.bridge.is_clustered() && config.stores.lease.is_none() {
        check.error(
            "E_LEASE_REQUIRED",
            mode_at,
            &["stores.lease", "bridge.deployment_mode", "bridge.cluster.endpoints", "receivers"],
            format!(
                "{} without a session requires stores.lease in a clustered bridge: each process has a log of its own, which another one takes over by its lease",
                route.delivery_mode.as_str()
            ),
            "add `stores: {lease: {type: dynamodb}}`, or write `delivery_mode: direct_hold`",
        );
    }
}

/// The messages of a route wait in the outbox of what feeds it, under that one's lease: nobody else writes into a log.
fn outboxes(check: &mut Check<'_>, route: &Route) {
    let config = check.config;
    for (index, binding) in config.bindings.iter().enumerate().filter(|(_, binding)| route.bindings.contains(&binding.id)) {
        let Some(session) = binding.session_id.as_ref().filter(|id| config.session(id).is_some()) else { continue };
        let Some(receiver) = config.receiver(&route.receiver_id) else { continue };
        // What is posted waits with the session that the route names.
        let named = route.session.as_ref().map(|block| &block.session_id).filter(|_| receiver.is_http());
        let feeds = named.or(receiver.session_id.as_ref());
        let (why, remedy) = if !route.delivery_mode.needs_outbox() {
            (
                format!("route \"{}\" has no outbox: {} holds its messages at the source", route.id, route.delivery_mode.as_str()),
                "remove it".to_owned(),
            )
        } else if let Some(feeds) = feeds.filter(|feeds| *feeds != session) {
            (
                format!(
                    "messages of route \"{}\" wait in the outbox of session \"{feeds}\", which carries them, under its lease",
                    route.id
                ),
                format!("remove it, or write `session_id: {feeds}`"),
            )
        } else if feeds.is_none() {
            (
                format!("messages of route \"{}\" wait in an outbox of its receiver, which belongs to no session", route.id),
                "remove it".to_owned(),
            )
        } else {
            continue;
        };
        check.error("E_BINDING_SESSION", &format!("bindings[{index}].session_id"), &["routes", "receivers", "sessions"], why, remedy);
    }
}

/// Nothing fences a direct send, so it cannot be handed from one owner to the next.
fn direct_hold(check: &mut Check<'_>, at: &str, route: &Route) {
    let config = check.config;
    let mode_at = format!("{at}.delivery_mode");
    for id in &route.bindings {
        let target = config.binding(id).and_then(|binding| config.sender(&binding.sender_id)?.session_id.as_ref());
        if let Some(session) = target.and_then(|id| config.session(id)).filter(|session| session.session_mode == SessionMode::Exclusive) {
            check.error(
                "E_DIRECT_HOLD_LEASE",
                &mode_at,
                &["sessions", "bindings", "senders"],
                format!("direct_hold cannot send through exclusive session \"{}\": only its owner is connected", session.id),
                "write `delivery_mode: shared_outbox`",
            );
        }
    }
    if config.source_session(route).is_some_and(|session| session.session_mode == SessionMode::Exclusive) {
        check.warning(
            "W_UNFENCED",
            &mode_at,
            &["sessions"],
            "direct_hold carries no fence: a former owner's last sends may arrive after the successor's first",
            "write `delivery_mode: shared_outbox` where that matters",
        );
    }
}

fn failures(check: &mut Check<'_>, at: &str, route: &Route) {
    if check.config.stores.dlq.is_some() {
        return;
    }
    let policy = &route.policy;
    for (name, on) in
        [("on_expired", policy.on_expired), ("on_permanent_failure", policy.on_permanent_failure), ("on_filtered", policy.on_filtered)]
    {
        if on == OnFailure::Dlq {
            check.error(
                "E_DLQ_REQUIRED",
                &format!("{at}.policy.{name}"),
                &["stores.dlq"],
                format!("{name}: dlq requires stores.dlq to be configured"),
                format!("add `stores: {{dlq: {{type: …}}}}`, or write `{name}: drop` and lose such messages"),
            );
        }
    }
}

/// What the source must be able to do.
fn source(check: &mut Check<'_>, at: &str, route: &Route) {
    let Some((index, receiver)) = check.config.receivers.iter().enumerate().find(|(_, receiver)| receiver.id == route.receiver_id) else {
        return;
    };
    let receiver_at = format!("receivers[{index}]");
    if receiver.transport == Some(Transport::Sqs) && receiver.session_id.is_none() {
        visibility(check, at, route, receiver);
        return;
    }
    let Some(session) = check.config.source_session(route) else {
        return;
    };
    let mode_at = format!("{at}.delivery_mode");
    if !route.policy.allow_retry_drop {
        for (topic_index, _) in receiver.topics.iter().enumerate().filter(|(_, topic)| topic.qos == 0) {
            check.error(
                "E_QOS_ZERO",
                &format!("{receiver_at}.topics[{topic_index}].qos"),
                &[&format!("{receiver_at}.topics[{topic_index}]")],
                "reliable MQTT route invalid: qos=0: the broker never sends such a message again",
                "write `qos: 1`, or accept the loss with `allow_retry_drop: true` in the route's policy",
            );
        }
        if route.delivery_mode != DeliveryMode::SharedOutbox && !session.session_mode.is_durable() {
            check.error(
                "E_SOURCE_REDELIVERS",
                &mode_at,
                &["sessions"],
                format!(
                    "{} needs a source that redelivers, and the broker forgets ephemeral session \"{}\" with its connection",
                    route.delivery_mode.as_str(),
                    session.id
                ),
                "write `session_mode: persistent`, or `delivery_mode: shared_outbox`",
            );
        }
    }
    let held = route.policy.send_retry_budget.get() + route.policy.send_timeout.get();
    if route.delivery_mode == DeliveryMode::DirectHold && held > SETTLEMENT_RECOVERY {
        check.error(
            "E_SEND_RETRY_BUDGET",
            &format!("{at}.policy.send_retry_budget"),
            &[&format!("{at}.policy.send_timeout"), &mode_at],
            format!("send_retry_budget + send_timeout ({}s) exceeds the source's settlement-recovery wait of 240s", held.as_secs_f64()),
            "lower one of the two",
        );
    }
    for id in &route.bindings {
        let Some(binding) = check.config.binding(id) else {
            continue;
        };
        let Some(sender) = check.config.sender(&binding.sender_id).filter(|sender| sender.session_id.as_ref() == Some(&session.id)) else {
            continue;
        };
        let is_met = |address: &str| receiver.topics.iter().any(|topic| is_met(&topic.topic, address));
        // The default topic is for what the address does not fit, and a plain one fits everything.
        let templated = Address::parse(&binding.address).is_some_and(|address| address.has_placeholders());
        let otherwise = sender.options.default_topic.as_deref().filter(|_| templated);
        let publishes = if is_met(&binding.address) {
            format!("binding \"{id}\" publishes")
        } else if otherwise.is_some_and(is_met) {
            format!("what does not fit the address of binding \"{id}\" is published by its sender's default_topic")
        } else {
            continue;
        };
        check.warning(
            "W_LOOP",
            &format!("{at}.bindings"),
            &["senders", "bindings"],
            format!("{publishes} to a topic that the same session subscribes to: messages would go round in circles"),
            "publish to another topic",
        );
    }
}

/// Whether a subscription to `filter` gets what is published to `topic`. A level with a placeholder is met by wildcards alone.
fn is_met(filter: &str, topic: &str) -> bool {
    let filter = filter.strip_prefix("$share/").and_then(|rest| rest.split_once('/')).map_or(filter, |(_, filter)| filter);
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        if wanted == "#" {
            return true;
        }
        if levels.next().is_none_or(|level| wanted != "+" && wanted != level) {
            return false;
        }
    }
    levels.next().is_none()
}

/// How long a message stays hidden must cover what may be done with it.
fn visibility(check: &mut Check<'_>, at: &str, route: &Route, receiver: &Receiver) {
    let policy = &route.policy;
    if receiver.options.auto_extend || policy.send_timeout.as_nanos() / SECOND == 0 {
        return;
    }
    let visible = Duration::from_secs(u64::from(receiver.options.visibility_timeout));
    let path = format!("{at}.policy.send_timeout");
    let processors = u32::try_from(route.processors.len()).unwrap_or(u32::MAX);
    let worst = PROCESSOR_TIMEOUT * processors + policy.send_retry_budget.get() + policy.send_timeout.get() + DLQ_WRITE;
    if route.delivery_mode == DeliveryMode::DirectHold && worst > visible {
        check.error("E_VISIBILITY", &path, &["receivers"], format!("worst-case pipeline time ({}s) exceeds source VisibilityTimeout ({}s); source may redeliver mid-pipeline causing duplicate processing", worst.as_secs_f64(), visible.as_secs()), "raise visibility_timeout, write `auto_extend: true`, or lower send_timeout and send_retry_budget");
    } else if policy.send_timeout.get() * 2 >= visible {
        check.error(
            "E_VISIBILITY",
            &path,
            &["receivers"],
            format!("without auto_extend send_timeout must be below half of visibility_timeout ({}s)", visible.as_secs()),
            "raise visibility_timeout, write `auto_extend: true`, or lower send_timeout",
        );
    }
}

/// What stands there and is reached by nothing.
fn unused(check: &mut Check<'_>) {
    let config = check.config;
    let routed: BTreeSet<&str> = config.routes.iter().map(|route| route.receiver_id.as_str()).collect();
    let bound: BTreeSet<&str> = config.routes.iter().flat_map(|route| &route.bindings).map(|id| id.as_str()).collect();
    for (index, receiver) in config.receivers.iter().enumerate().filter(|(_, receiver)| !routed.contains(receiver.id.as_str())) {
        check.warning(
            "W_UNUSED",
            &format!("receivers[{index}]"),
            &["routes"],
            format!("no route takes messages from receiver \"{}\": it is not started", receiver.id),
            "add a route, or remove it",
        );
    }
    for (index, binding) in config.bindings.iter().enumerate().filter(|(_, binding)| !bound.contains(binding.id.as_str())) {
        check.warning(
            "W_UNUSED",
            &format!("bindings[{index}]"),
            &["routes"],
            format!("no route sends to binding \"{}\"", binding.id),
            "name it in a route, or remove it",
        );
    }
    for (index, sender) in config.senders.iter().enumerate().filter(|(_, sender)| sender.options.default_topic.is_some()) {
        let addresses = config.bindings.iter().filter(|binding| binding.sender_id == sender.id);
        let mut addresses = addresses.filter_map(|binding| Address::parse(&binding.address));
        if !addresses.any(|address| address.has_placeholders()) {
            check.warning(
                "W_DEFAULT_TOPIC",
                &format!("senders[{index}].options.default_topic"),
                &["bindings"],
                format!("no binding of sender \"{}\" has a placeholder in its address: nothing ever goes to default_topic", sender.id),
                "remove it, or write an address with a `{header}` in it",
            );
        }
    }
    if config.routes.is_empty() {
        check.warning("W_NO_ROUTES", "routes", &[], "no route: nothing will be moved", "add a route from a receiver to a binding");
    }
}

#[cfg(test)]
mod tests {
    use super::is_met;

    #[test]
    fn a_filter_meets_what_its_wildcards_cover() {
        for (filter, topic, met) in [
            ("a/b", "a/b", true),
            ("a/+", "a/b", true),
            ("a/#", "a/b/c", true),
            ("a/#", "a", true),
            ("$share/g/a/#", "a/{device}", true),
            ("a/+/c", "a/{device}/c", true),
            ("a/b", "a/{device}", false),
            ("a/+", "a/b/c", false),
            ("a/b/c", "a/b", false),
            ("b/#", "a/b", false),
        ] {
            assert_eq!(is_met(filter, topic), met, "{filter} {topic}");
        }
    }
}
