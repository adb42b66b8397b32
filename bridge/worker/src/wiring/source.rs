//! MQTT sources.

use super::WiringError;
use crate::parts::StartSource;
use crate::secrets::SecretBoard;
use async_trait::async_trait;
use causeway_core::config::Span;
use causeway_core::config::model::{ClientIdSuffix, Inbound, MessageIdSource, ProtocolVersion, Qos0OnFull, Session, SessionMode};
use causeway_core::config::{ClientCertificate, Config, Credentials, Login, MqttSettings, NoLogin, SecretPlace, TlsSettings, TrustAnchors};
use causeway_mqtt::{
    BrokerUrl, CaSource, ClientIdentity, LooseBuffer, OnFull, Protocol, Renewal, Secret, Shown, SourceOptions, Subscription, TlsOptions,
    Will,
};
use causeway_ports::{DeliveryId, Source, SourceCounters, SourceEvent};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

/// What a connection to a broker is built from.
#[derive(Clone, Debug)]
pub struct MqttPlan {
    /// The connection.
    pub options: SourceOptions,
    /// Whether the client identifier gets random digits of its own behind it.
    pub random_suffix: bool,
    /// Where its login is kept, if the configuration does not hold it.
    pub login: Option<SecretPlace>,
    /// Certificates that stand in files, which may be renewed there.
    pub files: Option<TlsSettings>,
}

impl MqttPlan {
    /// The options with the client identifier that this process connects as, and with what it shows the broker.
    ///
    /// # Errors
    /// Where the operating system has no random bits, or what is kept in `secrets` is no login.
    pub fn named(self, part: &str, secrets: &SecretBoard) -> Result<SourceOptions, WiringError> {
        let Self { mut options, random_suffix, login, files } = self;
        if random_suffix {
            let nonce = getrandom::u32()
                .map_err(|error| WiringError::new(part, "E_RANDOM", format!("the operating system has no random bits: {error}")))?;
            options.client_id = format!("{}-{nonce:08x}", options.client_id);
        }
        if let Some(place) = &login {
            let field = || format!("{part}.options.session.credentials_uri");
            let refused = |error: String| WiringError::new(field(), "E_CREDENTIALS_URI", format!("{place}: {error}"));
            let text = secrets.get(place).ok_or_else(|| refused("it was not read".to_owned()))?;
            options.credentials = Some(credentials(&text).map_err(|error| refused(error.to_string()))?);
            options.validate().map_err(|error| WiringError::new(part, error.code(), error.to_string()))?;
        }
        if login.is_some() || files.is_some() {
            let (secrets, part, connected) = (secrets.clone(), part.to_owned(), AtomicBool::new(false));
            options.renewal = Some(Renewal::new(move || {
                // Not before the first: it was read a moment ago.
                if connected.swap(true, Ordering::Relaxed) && login.is_some() {
                    secrets.refresh();
                }
                shown(&part, &secrets, login.as_ref(), files.as_ref())
            }));
        }
        Ok(options)
    }
}

fn credentials(text: &causeway_core::config::Secret) -> Result<causeway_mqtt::Credentials, NoLogin> {
    let Login { username, password } = Login::parse(text)?;
    Ok(causeway_mqtt::Credentials { username, password: Secret::new(password.as_ref().map_or("", |secret| secret.reveal())) })
}

/// What a client shows now. What cannot be had stays what it was, and is told.
fn shown(part: &str, secrets: &SecretBoard, login: Option<&SecretPlace>, files: Option<&TlsSettings>) -> Shown {
    let login = login.and_then(|place| Some((place, credentials(&secrets.get(place)?))));
    let credentials = login.and_then(|(place, login)| match login {
        Ok(login) => Some(login),
        Err(error) => {
            tracing::warn!(part, %place, %error, "the login that is kept there cannot be used; the former one is");
            None
        }
    });
    let tls = files.and_then(|settings| match tls_options(settings, "tls") {
        Ok(tls) => Some(tls),
        Err(error) => {
            tracing::warn!(part, %error, "certificates cannot be read again; the former ones are used");
            None
        }
    });
    Shown { credentials, tls }
}

/// What the source of `session` needs to know; `part` names the session in messages. Reads the certificates that the configuration names.
///
/// # Errors
/// The first thing that makes no sense.
pub fn source_options(config: &Config, session: &Session, part: &str, secrets: &SecretBoard) -> Result<SourceOptions, WiringError> {
    mqtt_plan(config, session, part)?.named(part, secrets)
}

fn loose_buffer(inbound: &Inbound) -> LooseBuffer {
    LooseBuffer {
        messages: inbound.qos0_buffer_messages as usize,
        on_full: match inbound.qos0_on_full {
            Qos0OnFull::DropNewest => OnFull::DropNewest,
            Qos0OnFull::DropOldest => OnFull::DropOldest,
            Qos0OnFull::PauseSocket => OnFull::PauseSocket,
        },
        pause_max: inbound.socket_pause_max.map(Span::get),
    }
}

/// The same, but for what is drawn at random.
///
/// # Errors
/// The first thing that makes no sense.
pub(super) fn mqtt_plan(config: &Config, session: &Session, part: &str) -> Result<MqttPlan, WiringError> {
    let settings = session.mqtt();
    let field = |name: &str| format!("{part}.options.session.{name}");
    let login = if let Credentials::Kept(place) = &settings.credentials { Some(place.clone()) } else { None };
    let (broker_url, other_urls) = addresses(&settings, &field)?;
    let mut options = SourceOptions::new(broker_url, lasting_client_id(session, &settings));
    options.other_urls = other_urls;
    options.protocol = match session.options.session.protocol_version {
        ProtocolVersion::V5 => Protocol::V5,
        ProtocolVersion::V311 => Protocol::V311,
    };
    options.clean_start = settings.clean_start;
    options.session_expiry = settings.session_expiry_seconds;
    options.keep_alive = settings.keep_alive.unwrap_or_default();
    options.receive_maximum = settings.receive_maximum;
    options.max_buffered_bytes = usize::try_from(config.flow.inbound.max_buffered_bytes).unwrap_or(usize::MAX);
    options.loose = loose_buffer(&config.flow.inbound);
    options.tcp_receive_buffer = config.flow.inbound.tcp_receive_buffer_kib * 1_024;
    options.max_packet_bytes = settings.max_packet_bytes;
    options.connect_timeout = settings.connect_timeout;
    options.reconnect_timeout = settings.reconnect_timeout;
    options.reconcile_timeout = settings.reconcile_timeout;
    options.unmatched_grace = session.options.session.unmatched_grace.get();
    options.strict_subscriptions = session.strict_subscriptions;
    options.reconnect_delay = settings.reconnect_delay;
    options.reconnect_max_delay = settings.reconnect_max_delay;
    options.allow_plaintext_credentials = settings.allow_plaintext_credentials;
    if let Credentials::Login { username, password } = &settings.credentials {
        let password = Secret::new(password.as_ref().map_or("", |secret| secret.reveal()));
        options.credentials = Some(causeway_mqtt::Credentials { username: username.clone(), password });
    }
    let encrypted = settings.broker.urls.iter().any(causeway_core::config::BrokerUrl::is_tls);
    if encrypted {
        options.tls = tls_options(&settings.broker.tls, &field("tls"))?;
    }
    let in_files = matches!(settings.broker.tls.trust, TrustAnchors::File(_))
        || matches!(settings.broker.tls.client, Some(ClientCertificate::Files { .. }));
    let files = Some(settings.broker.tls.clone()).filter(|_| encrypted && in_files);
    options.will =
        settings.will.map(|will| Will { topic: will.topic, payload: will.payload.into_bytes(), qos: will.qos, retain: will.retain });
    options.no_local = settings.no_local;
    options.content_hash = (session.options.session.message_id == MessageIdSource::ContentHash)
        .then(|| settings.broker.urls.first().map(ToString::to_string))
        .flatten();
    options.subscriptions = subscriptions(config, session);
    options.validate().map_err(|error| WiringError::new(part, error.code(), error.to_string()))?;
    Ok(MqttPlan { options, random_suffix: has_random_suffix(session, config.bridge.is_clustered()), login, files })
}

/// The first address, and those that are tried after it.
fn addresses(settings: &MqttSettings, field: &dyn Fn(&str) -> String) -> Result<(BrokerUrl, Vec<BrokerUrl>), WiringError> {
    let mut urls = settings.broker.urls.iter().map(|url| {
        BrokerUrl::parse(&url.to_string()).map_err(|error| WiringError::new(field("broker_url"), error.code(), error.to_string()))
    });
    let first = urls.next().ok_or_else(|| WiringError::new(field("broker_url"), "E_BROKER_URL", "there is none"))??;
    Ok((first, urls.collect::<Result<_, _>>()?))
}

/// Whether the broker knows each start of this process by another name.
fn has_random_suffix(session: &Session, clustered: bool) -> bool {
    match session.options.session.client_id_suffix {
        // Replicas that share their work connect at the same time, and a broker lets one client of a name in. What an ephemeral session leaves
        // behind nobody comes back for, so that any name will do.
        None => clustered && session.session_mode == SessionMode::Ephemeral,
        Some(ClientIdSuffix::Nonce) => true,
        Some(ClientIdSuffix::Hostname) => false,
    }
}

/// The client identifier without what is new at every start.
pub(super) fn lasting_client_id(session: &Session, settings: &MqttSettings) -> String {
    match session.options.session.client_id_suffix {
        Some(ClientIdSuffix::Hostname) => format!("{}-{}", settings.client_id, crate::instance::host_name()),
        None | Some(ClientIdSuffix::Nonce) => settings.client_id.clone(),
    }
}

/// The filters of the receivers that routes take from, in the order of the configuration.
fn subscriptions(config: &Config, session: &Session) -> Vec<Subscription> {
    let routed = |id: &str| config.routes.iter().any(|route| *route.receiver_id == *id);
    let receivers = config.receivers.iter().filter(|receiver| receiver.session_id.as_ref() == Some(&session.id) && routed(&receiver.id));
    receivers
        .flat_map(|receiver| {
            let id: Arc<str> = Arc::from(receiver.id.as_str());
            receiver.topics.iter().map(move |topic| Subscription {
                qos_recheck: topic.options.subscription.qos_recheck_interval.get(),
                ..Subscription::new(topic.topic.clone(), topic.qos, Arc::clone(&id))
            })
        })
        .collect()
}

fn tls_options(settings: &TlsSettings, field: &str) -> Result<TlsOptions, WiringError> {
    let read = |name: &str, path: &Path| {
        std::fs::read(path)
            .map_err(|error| WiringError::new(format!("{field}.{name}"), "E_FILE", format!("{} cannot be read: {error}", path.display())))
    };
    let ca = match &settings.trust {
        TrustAnchors::System => CaSource::SystemRoots,
        TrustAnchors::File(path) => CaSource::Pem(read("ca_cert_file", path)?),
        TrustAnchors::Pem(pem) => CaSource::Pem(pem.reveal().as_bytes().to_vec()),
    };
    let client = match &settings.client {
        None => None,
        Some(ClientCertificate::Files { certificate, key }) => {
            Some(ClientIdentity { cert_pem: read("cert_file", certificate)?, key_pem: read("key_file", key)? })
        }
        Some(ClientCertificate::Pem { certificate, key }) => {
            Some(ClientIdentity { cert_pem: certificate.reveal().as_bytes().to_vec(), key_pem: key.reveal().as_bytes().to_vec() })
        }
    };
    Ok(TlsOptions { ca, client })
}

/// Connects a source with `options`, once somebody asks for it.
pub(super) fn starter(options: SourceOptions) -> StartSource {
    Arc::new(move |gate| {
        // Without random bits the pauses between attempts are those of every other process: unkind to the broker, not wrong.
        let seed = getrandom::u64().unwrap_or_default();
        match causeway_mqtt::start(SourceOptions { gate, ..options.clone() }, seed) {
            Ok(source) => Box::new(source) as Box<dyn Source>,
            Err(error) => {
                tracing::error!(code = error.code(), %error, "the source cannot start");
                Box::new(Ended)
            }
        }
    })
}

/// A source that could not start.
pub(super) struct Ended;

#[async_trait]
impl Source for Ended {
    async fn next(&mut self) -> SourceEvent {
        SourceEvent::Closed
    }

    fn acknowledge(&mut self, _: DeliveryId) {}

    fn pause(&mut self, _: bool) {}

    async fn close(&mut self, _: Duration) {}

    fn counters(&self) -> SourceCounters {
        SourceCounters::default()
    }
}
