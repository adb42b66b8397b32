//! Rules of `bridge` and `http`.

use super::Check;
use crate::config::model::{DeploymentMode, Evidence, Receiver, Transport};
use crate::config::secret_place::SecretPlace;
use crate::config::values::{MIN_KEY_CHARS, Secret, Span};
use crate::proxies;

impl Check<'_> {
    /// A key that somebody shows to this program. What is kept elsewhere is looked at when it was read.
    pub(super) fn key(&mut self, path: &str, key: &Secret) {
        if SecretPlace::of(key).is_some() {
            return;
        }
        // Taken for the key itself, it would let in whoever reads the configuration. The address of a page is nobody's idea of a place for secrets.
        if key.reveal().split_once("://").is_some_and(|(scheme, _)| !matches!(scheme, "http" | "https")) {
            self.error(
                "E_CREDENTIALS_URI",
                path,
                &[],
                "it looks like a place, and is none that secrets are read from",
                "write `file:///PATH`, `env://NAME`, `ssm:///NAME` or `secretsmanager://NAME#FIELD`; a key of its own has no `://`",
            );
        } else if key.reveal().chars().count() < MIN_KEY_CHARS {
            self.error(
                "E_API_KEY",
                path,
                &[],
                format!("the key has fewer than {MIN_KEY_CHARS} characters"),
                "make one with `openssl rand -hex 24`, and take it from the environment",
            );
        }
    }
}

pub(super) fn check(check: &mut Check<'_>) {
    process(check);
    endpoints(check);
    http(check);
}

fn process(check: &mut Check<'_>) {
    let bridge = &check.config.bridge;
    if bridge.id.is_empty() {
        check.error("E_REQUIRED", "bridge.id", &[], "bridge.id is required", "add `bridge: {id: NAME}`, the name that all replicas share");
    }
    check.positive("bridge.shutdown_timeout", bridge.shutdown_timeout);
    if bridge.drain_timeout.is_some_and(|drain| drain >= bridge.shutdown_timeout) {
        check.error(
            "E_DRAIN_TIMEOUT",
            "bridge.drain_timeout",
            &["bridge.shutdown_timeout"],
            format!("drain_timeout must be below shutdown_timeout ({})", bridge.shutdown_timeout),
            "write less than shutdown_timeout, leaving a few seconds for releasing leases and closing",
        );
    }
    if bridge.max_drain_timeout < bridge.per_record_drain_timeout {
        check.error(
            "E_MAX_DRAIN_TIMEOUT",
            "bridge.max_drain_timeout",
            &["bridge.per_record_drain_timeout"],
            format!("max_drain_timeout must be >= per_record_drain_timeout ({})", bridge.per_record_drain_timeout),
            "raise max_drain_timeout, or lower per_record_drain_timeout",
        );
    }
    let sessions = check.config.sessions.iter().filter(|session| session.transport == Transport::Mqtt).count();
    if let Some(limit) = bridge.max_mqtt_sessions.filter(|limit| sessions > usize::try_from(*limit).unwrap_or(usize::MAX)) {
        check.error(
            "E_MAX_MQTT_SESSIONS",
            "bridge.max_mqtt_sessions",
            &["sessions"],
            format!("bridge.max_mqtt_sessions: the configuration uses {sessions} MQTT sessions, more than the limit of {limit}"),
            "raise the limit, or remove sessions",
        );
    }
    if !bridge.cluster.takeover_evidence.contains(&Evidence::Ttl) {
        check.error(
            "E_TAKEOVER_EVIDENCE",
            "bridge.cluster.takeover_evidence",
            &[],
            "without `ttl` nobody would take over from an owner whose task is not known to have stopped",
            "write `[ttl]`, or `[ttl, ecs_stopped]`",
        );
    }
    check.positive("bridge.cluster.evidence_poll", bridge.cluster.evidence_poll);
    if bridge.cluster.member_interval < Span::secs(1) {
        check.error("E_MEMBER_INTERVAL", "bridge.cluster.member_interval", &[], "below a second", "write `30s`, or at least `1s`");
    }
}

/// The map says where this replica is reached, by capability; a list of peers looks alike and is refused.
fn endpoints(check: &mut Check<'_>) {
    let bridge = &check.config.bridge;
    let path = "bridge.cluster.endpoints";
    if bridge.cluster.endpoints.is_empty() {
        return;
    }
    if bridge.deployment_mode == Some(DeploymentMode::Standalone) {
        check.error(
            "E_ENDPOINTS_STANDALONE",
            path,
            &["bridge.deployment_mode"],
            "endpoints imply clustered, but deployment_mode is standalone",
            "write `deployment_mode: clustered`, or remove the endpoints",
        );
    }
    let unknown = bridge.cluster.endpoints.keys().find(|capability| capability.as_str() != "http");
    if !bridge.cluster.endpoints.contains_key("http") || unknown.is_some() {
        let found = unknown.map_or(String::new(), |name| format!("; got \"{name}\""));
        check.error(
            "E_ENDPOINTS",
            path,
            &[],
            format!("cluster.endpoints must carry `http`, and nothing but capabilities: it is not a map of peers{found}"),
            "write this replica's own address: `endpoints: {http: \"http://10.0.1.12:8082\"}`",
        );
    }
    if let Some(url) = bridge.cluster.endpoints.get("http")
        && !is_http_url(url)
    {
        check.error("E_ENDPOINT_URL", "bridge.cluster.endpoints.http", &[], "not a full URL", "write `http://HOST:8082`");
    }
}

pub(super) fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace))
}

/// What a browser sends as `Origin`: scheme, host and port, as it writes them.
fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._:[]".contains(c)))
}

/// The log tells by its name who did something: two keys of one name would hide one another.
fn admin_key_names(check: &mut Check<'_>) {
    let http = &check.config.http;
    let mut taken: Vec<&str> = if http.admin_api_key.is_some() { vec!["admin"] } else { Vec::new() };
    for (index, named) in http.admin_keys.iter().enumerate() {
        if taken.contains(&named.name.as_str()) {
            check.error(
                "E_ADMIN_KEY_NAME",
                &format!("http.admin_keys[{index}].name"),
                &[],
                format!("another key is named `{}`", named.name),
                "give each key a name of its own (`admin` is the name of admin_api_key)",
            );
        }
        taken.push(&named.name);
    }
}

fn http(check: &mut Check<'_>) {
    let http = &check.config.http;
    let one = |path: &str, key: &Option<Secret>| key.clone().map(|key| (path.to_owned(), key));
    let mut keys: Vec<(String, Secret)> = [
        one("http.admin_api_key", &http.admin_api_key),
        one("http.monitor_api_key", &http.monitor_api_key),
        one("http.hint_token", &http.hint_token),
    ]
    .into_iter()
    .flatten()
    .collect();
    keys.extend(http.admin_keys.iter().enumerate().map(|(index, named)| (format!("http.admin_keys[{index}].key"), named.key.clone())));
    for (path, key) in keys {
        check.key(&path, &key);
    }
    admin_key_names(check);
    if !http.has_admin() && check.is_set("http.admin_addr") {
        check.error(
            "E_ADMIN_KEY_REQUIRED",
            "http.admin_addr",
            &["http.admin_api_key", "http.admin_keys"],
            "admin_api_key or admin_keys is required for the admin interface",
            "add `admin_api_key: ${ADMIN_API_KEY}`, or remove admin_addr",
        );
    }
    let is_posted_to = check.config.receivers.iter().any(Receiver::is_http) || check.config.commands.enabled;
    if http.hint_token.is_none() && !is_posted_to && check.is_set("http.transport_addr") {
        check.warning(
            "W_TRANSPORT_UNUSED",
            "http.transport_addr",
            &["http.hint_token", "receivers", "commands.enabled"],
            "nothing listens there: no receiver has `transport: http`, no commands are taken, and without hint_token no hints are taken",
            "add `hint_token: ${CAUSEWAY_HINT_TOKEN}`, the same on every replica, or remove transport_addr",
        );
    }
    if http.cors_origins.iter().any(|origin| origin.contains('*')) {
        check.error(
            "E_CORS_ORIGIN",
            "http.cors_origins",
            &[],
            "`*` would let every web page call these interfaces",
            "name the origins, such as `https://ops.example.com`",
        );
    } else if let Some(origin) = http.cors_origins.iter().find(|origin| !is_origin(origin)) {
        check.error(
            "E_CORS_ORIGIN",
            "http.cors_origins",
            &[],
            format!("`{origin}` is not an origin, and no browser would ever send it"),
            "write scheme, host and port alone, in lower case and without a slash at the end, such as `https://ops.example.com`",
        );
    }
    if let Some(wrong) = http.trusted_proxies.iter().find(|network| proxies::network(network).is_none()) {
        check.error(
            "E_TRUSTED_PROXY",
            "http.trusted_proxies",
            &[],
            format!("`{wrong}` is no network of proxies: anybody in it may say where a request comes from"),
            "name the networks of the load balancer, such as `10.0.0.0/16`, or single addresses, those of IPv4 as such",
        );
    }
    if http.tls_cert_file.is_some() != http.tls_key_file.is_some() {
        let path = if http.tls_cert_file.is_some() { "http.tls_cert_file" } else { "http.tls_key_file" };
        check.error(
            "E_HTTP_TLS",
            path,
            &["http.tls_cert_file", "http.tls_key_file"],
            "tls_cert_file and tls_key_file go together",
            "give both, or neither",
        );
    }
    let listeners = [
        ("http.admin_addr", http.admin_addr, http.has_admin()),
        ("http.monitor_addr", http.monitor_addr, true),
        ("http.transport_addr", http.transport_addr, http.hint_token.is_some() || is_posted_to),
    ];
    for (index, (path, address, used)) in listeners.iter().enumerate() {
        let taken =
            listeners[..index].iter().find(|(_, other, other_used)| *used && *other_used && other == address && address.get().port() != 0);
        if let Some((other, ..)) = taken {
            check.error("E_LISTEN_TWICE", path, &[other], format!("{address} is taken by {other}"), "give each listener its own port");
        }
    }
}
