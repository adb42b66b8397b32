//! A look at the broker for `causeway doctor`: one connection under a throw-away client id.

use crate::connection::{self, Attempt};
use crate::options::SourceOptions;
use crate::tls;
use causeway_core::outcome::{Fault, FaultCode};

/// What the broker said about itself. Where it said nothing, the value is what MQTT 5 then means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// The keep-alive, in seconds, that the broker insists on.
    pub server_keep_alive: Option<u16>,
    /// How many seconds it keeps a session, if it changed what was asked for.
    pub session_expiry: Option<u32>,
    /// The largest packet that it takes, in bytes.
    pub max_packet_bytes: Option<u32>,
    /// The highest quality of service that it supports.
    pub max_qos: u8,
    /// Whether it supports `$share/`.
    pub shared_subscriptions: bool,
    /// Whether it supports `+` and `#`.
    pub wildcard_subscriptions: bool,
    /// Whether it supports subscription identifiers.
    pub subscription_identifiers: bool,
    /// Whether it keeps retained messages.
    pub retained_messages: bool,
}

/// Connects with the client id `ID-doctor`, a clean start and no session, and disconnects. Subscribes to nothing.
///
/// # Errors
/// Why there was no connection, for people: the name, the port, TLS, the login.
pub async fn probe(options: &SourceOptions) -> Result<ProbeReport, Fault> {
    options.validate().map_err(|error| Fault::new(FaultCode::InvalidConfig, error.to_string()))?;
    let tls = if options.uses_tls() {
        Some(tls::client_config(&options.tls).map_err(|error| Fault::new(FaultCode::InvalidConfig, error.to_string()))?)
    } else {
        None
    };
    let mut throw_away = options.clone();
    throw_away.client_id.push_str("-doctor");
    throw_away.session_expiry = 0;
    // Nobody vanishes when the look is over.
    throw_away.will = None;
    let opened = connection::open(&Attempt {
        options: &throw_away,
        url: &throw_away.broker_url,
        limit: throw_away.connect_timeout,
        tls,
        clean_start: true,
        outgoing_window: connection::NOTHING_TO_PUBLISH,
    })
    .await
    .map_err(|end| end.fault)?;
    let mut event_loop = opened.event_loop;
    if opened.client.try_disconnect_now().is_ok() {
        // Whether the goodbye gets through changes nothing about the report.
        let _ = tokio::time::timeout(throw_away.connect_timeout, event_loop.poll()).await;
    }
    connection::let_go(event_loop, &opened.socket, true).await;
    let said = opened.connack.properties.as_ref();
    let supported = |flag: Option<u8>| flag != Some(0);
    Ok(ProbeReport {
        server_keep_alive: said.and_then(|p| p.server_keep_alive),
        session_expiry: said.and_then(|p| p.session_expiry_interval),
        max_packet_bytes: said.and_then(|p| p.max_packet_size),
        max_qos: said.and_then(|p| p.max_qos).unwrap_or(2),
        shared_subscriptions: supported(said.and_then(|p| p.shared_subscription_available)),
        wildcard_subscriptions: supported(said.and_then(|p| p.wildcard_subscription_available)),
        subscription_identifiers: supported(said.and_then(|p| p.subscription_identifiers_available)),
        retained_messages: supported(said.and_then(|p| p.retain_available)),
    })
}
