//! Rules of `sessions`.

use super::Check;
use crate::config::BrokerUrl;
use crate::config::model::{ClientIdSuffix, MessageIdSource, MqttSession, ProtocolVersion, Session, SessionMode, Transport};
use crate::config::secret_place::{PLACES, SecretPlace};

pub(super) fn check(check: &mut Check<'_>) {
    let config = check.config;
    check.names("sessions", config.sessions.iter().map(|session| session.id.as_str()));
    for (index, session) in config.sessions.iter().enumerate() {
        let at = format!("sessions[{index}]");
        if session.transport != Transport::Mqtt {
            check.error(
                "E_SESSION_TRANSPORT",
                &format!("{at}.transport"),
                &[],
                "only MQTT has sessions",
                "write `transport: mqtt`; an SQS receiver or sender stands without a session",
            );
        }
        check.range(&format!("{at}.lanes"), u64::from(session.lanes), 1, 64);
        let options = format!("{at}.options.session");
        broker(check, &options, session);
        identity(check, &at, &options, session);
        timeouts(check, &options, &session.options.session);
        credentials(check, &options, &session.options.session);
        tls(check, &options, &session.options.session);
        protocol(check, &at, &options, session);
        stores(check, &at, session);
    }
    shared_clients(check);
}

fn broker(check: &mut Check<'_>, at: &str, session: &Session) {
    let options = &session.options.session;
    let (one, many) = (format!("{at}.broker_url"), format!("{at}.broker_urls"));
    match (options.broker_url.is_some(), options.broker_urls.len()) {
        (false, 0) => check.error("E_BROKER_REQUIRED", &one, &[&many], format!("{one} is required"), "add `broker_url: tls://HOST:8883`"),
        (true, 1..) => {
            check.error("E_BROKER_BOTH", &many, &[&one], "broker_url and broker_urls are mutually exclusive", "keep one of the two")
        }
        (false, 2..) if session.session_mode.is_durable() => check.error(
            "E_BROKER_SINGLE",
            &many,
            &[],
            "a durable session must use exactly one broker address: another broker would know nothing of what this one keeps",
            "write one `broker_url`, or `session_mode: ephemeral`",
        ),
        _ => {}
    }
    if options.urls().iter().any(|url| !url.is_tls() && !is_local(url)) {
        let path = if options.broker_url.is_some() { &one } else { &many };
        check.warning(
            "W_PLAINTEXT",
            path,
            &[],
            "messages travel unencrypted to another machine",
            "write `tls://HOST:8883` where the broker can do it",
        );
    }
}

fn is_local(url: &BrokerUrl) -> bool {
    matches!(url.host.as_str(), "localhost" | "::1") || url.host.starts_with("127.")
}

fn identity(check: &mut Check<'_>, session_at: &str, at: &str, session: &Session) {
    let options = &session.options.session;
    let (mode_at, client, suffix) = (format!("{session_at}.session_mode"), format!("{at}.client_id"), format!("{at}.client_id_suffix"));
    if options.client_id.is_empty() {
        check.error(
            "E_REQUIRED",
            &client,
            &[],
            format!("{client} is required"),
            "give the connection a name that no other client of the broker has",
        );
    } else if options.client_id.len() > 65_535 || options.client_id.contains('\0') {
        check.error("E_CLIENT_ID", &client, &[], "not usable as a client identifier", "use at most 65535 bytes, without U+0000");
    }
    let nowhere_else = "remove it";
    match (session.session_mode, options.client_id_suffix) {
        (SessionMode::Exclusive, Some(_)) => check.error(
            "E_CLIENT_ID_SUFFIX",
            &suffix,
            &[&mode_at],
            "client_id_suffix is refused on exclusive sessions: every replica must have the same client_id, or what the broker keeps for a dead owner is stranded",
            nowhere_else,
        ),
        (SessionMode::Persistent, Some(ClientIdSuffix::Nonce)) => check.error(
            "E_CLIENT_ID_NONCE",
            &suffix,
            &[&mode_at],
            "client_id_suffix: nonce is for ephemeral sessions only: after a restart nobody would fetch what the broker kept",
            "remove it, or write `session_mode: ephemeral`",
        ),
        (SessionMode::Persistent, Some(ClientIdSuffix::Hostname)) if !options.assert_stable_client_identity => check.error(
            "E_CLIENT_ID_HOSTNAME",
            &suffix,
            &[&mode_at, &format!("{at}.assert_stable_client_identity")],
            "client_id_suffix: hostname on a persistent session needs host names that outlive a restart",
            "add `assert_stable_client_identity: true` if they do, or remove the suffix",
        ),
        _ => {}
    }
    // Replicas connect at the same time. Which client_id is each replica's own, and outlives a restart, only an operator can vouch for.
    let vouched = options.assert_stable_client_identity || options.client_id_suffix.is_some();
    if session.session_mode == SessionMode::Persistent && check.config.bridge.is_clustered() && !vouched {
        check.error(
            "E_CLIENT_ID_STABLE",
            &mode_at,
            &[
                &format!("{at}.assert_stable_client_identity"),
                &suffix,
                "bridge.deployment_mode",
                "bridge.cluster.endpoints",
            ],
            "replicas of a persistent session need a client_id of each one's own that outlives a restart: with one for all they would disconnect each other, with a new one at each start nobody would fetch what the broker kept",
            "give each its own (`client_id: bridge-${REPLICA}`, or `client_id_suffix: hostname`) and add `assert_stable_client_identity: true`, or write `session_mode: exclusive` or `ephemeral`",
        );
    }
    if options.clean_start && session.session_mode.is_durable() {
        check.error(
            "E_CLEAN_START",
            &format!("{at}.clean_start"),
            &[&mode_at],
            format!("clean_start would throw away what the broker keeps for this {} session", session.session_mode.as_str()),
            "write `clean_start: false`, or `session_mode: ephemeral`",
        );
    }
    if options.session_expiry_interval > 0 && !session.session_mode.is_durable() {
        check.error(
            "E_SESSION_EXPIRY",
            &format!("{at}.session_expiry_interval"),
            &[&mode_at],
            "an ephemeral session ends with its connection",
            "remove it, or write `session_mode: persistent`",
        );
    }
}

fn timeouts(check: &mut Check<'_>, at: &str, options: &MqttSession) {
    for (name, span) in [
        ("connect_timeout", options.connect_timeout),
        ("reconnect_timeout", options.reconnect_timeout),
        ("reconcile_timeout", options.reconcile_timeout),
        ("reconnect_delay", options.reconnect_delay),
    ] {
        check.positive(&format!("{at}.{name}"), span);
    }
    if options.reconnect_max_delay < options.reconnect_delay {
        check.error(
            "E_RECONNECT_DELAY",
            &format!("{at}.reconnect_max_delay"),
            &[&format!("{at}.reconnect_delay")],
            "reconnect_max_delay must be >= reconnect_delay",
            "raise it, or lower reconnect_delay",
        );
    }
    // 256 MiB, less a byte, is the largest MQTT packet.
    check.range(&format!("{at}.max_payload_bytes"), u64::from(options.max_payload_bytes), 1, 268_000_000);
    if let Some(will) = &options.will {
        check.range(&format!("{at}.will.qos"), u64::from(will.qos), 0, 2);
        if will.topic.is_empty() || will.topic.contains(['+', '#', '\0']) {
            check.error(
                "E_TOPIC",
                &format!("{at}.will.topic"),
                &[],
                "not a topic that can be published to",
                "write a topic without `+` and `#`",
            );
        }
    }
}

fn credentials(check: &mut Check<'_>, at: &str, options: &MqttSession) {
    let uri_at = format!("{at}.credentials_uri");
    let login = options.username.is_some() || options.password.is_some();
    if let Some(uri) = &options.credentials_uri {
        if login {
            check.error(
                "E_CREDENTIALS_BOTH",
                &uri_at,
                &[],
                "credentials_uri and username or password are mutually exclusive",
                "keep one of the two",
            );
        }
        credentials_uri(check, &uri_at, uri);
    }
    if (login || options.credentials_uri.is_some())
        && !options.allow_plaintext_credentials
        && options.urls().iter().any(|url| !url.is_tls())
    {
        let fields = [format!("{at}.username"), format!("{at}.password"), uri_at];
        let path = fields.iter().find(|path| check.is_set(path)).cloned().unwrap_or_else(|| at.to_owned());
        check.error(
            "E_PLAINTEXT_CREDENTIALS",
            &path,
            &[&format!("{at}.allow_plaintext_credentials")],
            "credentials on an address without TLS: everybody on the way could read them",
            "write `tls://` in broker_url, or `allow_plaintext_credentials: true` if nobody is on the way",
        );
    }
}

/// Where credentials are read from.
fn credentials_uri(check: &mut Check<'_>, path: &str, uri: &str) {
    if SecretPlace::parse(uri).is_none() {
        check.error("E_CREDENTIALS_URI", path, &[], "not a place that credentials are read from", format!("write {PLACES}"));
    }
}

fn tls(check: &mut Check<'_>, at: &str, options: &MqttSession) {
    let (tls, enable) = (&options.tls, format!("{at}.tls.enable"));
    let urls = options.urls();
    let url_fields = [format!("{at}.broker_url"), format!("{at}.broker_urls")];
    let reads: Vec<&str> = url_fields.iter().map(String::as_str).collect();
    let encrypted = urls.iter().any(BrokerUrl::is_tls);
    match tls.enable {
        Some(true) if urls.iter().any(|url| !url.is_tls()) => check.error(
            "E_TLS_ENABLE",
            &enable,
            &reads,
            "tls.enable is true, but the address is not encrypted: its scheme decides",
            "write `tls://` in broker_url, or remove tls.enable",
        ),
        Some(false) if encrypted => check.error(
            "E_TLS_ENABLE",
            &enable,
            &reads,
            "tls.enable is false, but the address says TLS: its scheme decides",
            "remove tls.enable, or write `tcp://` in broker_url",
        ),
        _ => {}
    }
    for name in ["ca_cert_file", "ca_cert_pem", "cert_file", "key_file", "cert_pem", "key_pem"] {
        let path = format!("{at}.tls.{name}");
        if !encrypted && !urls.is_empty() && check.is_set(&path) {
            check.error(
                "E_TLS_PLAINTEXT",
                &path,
                &reads,
                "has no effect: the address is not encrypted",
                "write `tls://` in broker_url, or remove it",
            );
        }
    }
    let pairs = [
        ("ca_cert_file", tls.ca_cert_file.is_some(), "ca_cert_pem", tls.ca_cert_pem.is_some()),
        ("cert_file", tls.cert_file.is_some(), "cert_pem", tls.cert_pem.is_some()),
    ];
    for (file, has_file, pem, has_pem) in pairs {
        if has_file && has_pem {
            check.error(
                "E_TLS_BOTH",
                &format!("{at}.tls.{pem}"),
                &[&format!("{at}.tls.{file}")],
                format!("{file} and {pem} are mutually exclusive"),
                "keep one of the two",
            );
        }
    }
    let pairs = [
        ("cert_file", tls.cert_file.is_some(), "key_file", tls.key_file.is_some()),
        ("cert_pem", tls.cert_pem.is_some(), "key_pem", tls.key_pem.is_some()),
    ];
    for (cert, has_cert, key, has_key) in pairs {
        if has_cert != has_key {
            let path = format!("{at}.tls.{}", if has_cert { cert } else { key });
            check.error(
                "E_TLS_PAIR",
                &path,
                &[&format!("{at}.tls.{cert}"), &format!("{at}.tls.{key}")],
                format!("{cert} and {key} go together"),
                "give both, or neither",
            );
        }
    }
}

fn protocol(check: &mut Check<'_>, session_at: &str, at: &str, session: &Session) {
    let options = &session.options.session;
    let version = format!("{at}.protocol_version");
    if options.protocol_version == ProtocolVersion::V5 {
        if options.message_id == MessageIdSource::ContentHash {
            check.error(
                "E_CONTENT_HASH",
                &format!("{at}.message_id"),
                &[&version],
                "content_hash is for MQTT 3.1.1 only: MQTT 5 carries ids of its own",
                "remove it",
            );
        }
        return;
    }
    check.warning(
        "W_V311",
        &version,
        &[],
        "MQTT 3.1.1 has no message expiry, user properties, content type or correlation data, no reasons for refusals and no subscription identifiers (of filters that overlap, the first one decides); the broker alone decides for how long it keeps a session, how much it sends ahead, and that retained messages come again with every connection; a message above max_payload_bytes ends the connection, and a session that could not be accounted for when it began has to be named by `baseline`",
        "write `protocol_version: v5` where the broker can do it",
    );
    let lacks = [
        ("no_local", options.no_local),
        ("session_expiry_interval", options.session_expiry_interval > 0),
        ("password", options.password.is_some() && options.username.is_none()),
    ];
    for (name, used) in lacks {
        if used {
            let what = if name == "password" {
                "MQTT 3.1.1 knows no password without a user name".to_owned()
            } else {
                format!("MQTT 3.1.1 knows no {name}")
            };
            check.error(
                "E_V311",
                &format!("{at}.{name}"),
                &[&version, &format!("{at}.username"), session_at],
                what,
                "remove it, or write `protocol_version: v5`",
            );
        }
    }
}

/// What a session's mode asks of the stores.
fn stores(check: &mut Check<'_>, at: &str, session: &Session) {
    let (config, mode_at) = (check.config, format!("{at}.session_mode"));
    let exclusive = session.session_mode == SessionMode::Exclusive;
    let of_processes = config.has_logs_of_processes(session);
    if (exclusive || of_processes) && config.stores.lease.is_none() {
        let what = if exclusive { "exclusive" } else { "clustered" };
        check.error(
            "E_LEASE_REQUIRED",
            &mode_at,
            &["stores.lease", "bridge.deployment_mode", "bridge.cluster.endpoints"],
            format!("{what} session \"{}\" requires stores.lease to be configured", session.id),
            "add `stores: {lease: {type: dynamodb}}`",
        );
    }
    let subscribes =
        config.receivers.iter().any(|receiver| receiver.session_id.as_ref() == Some(&session.id) && !receiver.topics.is_empty());
    if !session.session_mode.is_durable() || !subscribes || config.stores.managed_subscriptions.is_some() {
        return;
    }
    let reads = ["stores.managed_subscriptions", "bridge.deployment_mode", "bridge.cluster.endpoints"];
    let what = format!(
        "{} session \"{}\" with desired subscriptions requires stores.managed_subscriptions to be configured",
        session.session_mode.as_str(),
        session.id
    );
    if exclusive || config.bridge.is_clustered() {
        check.error("E_SUBSCRIPTIONS_REQUIRED", &mode_at, &reads, what, "add `stores: {managed_subscriptions: {type: dynamodb}}`");
    } else {
        check.warning(
            "W_SUBSCRIPTIONS",
            &mode_at,
            &reads,
            format!("{what}; without it a filter that is removed here stays installed on the broker"),
            "after removing a filter, unsubscribe it on the broker by hand",
        );
    }
}

/// Two sessions of one client at one broker would throw each other out for ever.
fn shared_clients(check: &mut Check<'_>) {
    let config = check.config;
    for (index, session) in config.sessions.iter().enumerate() {
        let same = config.sessions[..index].iter().find(|other| {
            let (a, b) = (&session.options.session, &other.options.session);
            !a.client_id.is_empty()
                && a.client_id == b.client_id
                && a.urls()
                    .iter()
                    .any(|url| b.urls().iter().any(|other| (url.host.as_str(), url.port) == (other.host.as_str(), other.port)))
        });
        if let Some(other) = same {
            check.error(
                "E_CLIENT_ID_SHARED",
                &format!("sessions[{index}].options.session.client_id"),
                &[],
                format!("session \"{}\" has the same client_id at the same broker: the two would disconnect each other", other.id),
                "give each session its own client_id",
            );
        }
    }
}
