//! The process itself: what it is made of besides stores, destinations and owner loops.

use super::posts::{self, PostPlan};
use super::{hint_token, is_member};
use crate::http::tls::TlsFiles;
use crate::telemetry::logs::LogFormat;
use causeway_core::config::model::{self, MetricsExporter};
use causeway_core::config::{Config, Secret};
use causeway_core::proxies::Proxies;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

/// What the process itself is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPlan {
    /// The bridge's id.
    pub bridge: String,
    /// The configured name of this replica, if it has one.
    pub instance_name: Option<String>,
    /// Whether several replicas share the work.
    pub clustered: bool,
    /// The form of log lines.
    pub log_format: LogFormat,
    /// How much is logged.
    pub log_level: &'static str,
    /// Where the monitor listens.
    pub monitor_addr: SocketAddr,
    /// What its detailed pages ask for.
    pub monitor_key: Option<Secret>,
    /// The admin interface, if any key opens it.
    pub admin: Option<AdminPlan>,
    /// Other web origins whose pages may call the monitor and the admin interface.
    pub origins: Vec<String>,
    /// The proxies whose word on where a request comes from is taken.
    pub proxies: Proxies,
    /// The certificate of both, if they speak TLS.
    pub tls: Option<TlsFiles>,
    /// Where hints, posts and commands come in, if any do.
    pub transport_addr: Option<SocketAddr>,
    /// By what hints are recognised, if any are taken.
    pub hint_token: Option<Secret>,
    /// The receivers that messages are posted to.
    pub posts: Vec<PostPlan>,
    /// Where others reach this replica, by capability, as far as that is configured.
    pub endpoints: BTreeMap<String, String>,
    /// How often it writes its row among the members, if it is one.
    pub member_interval: Option<Duration>,
    /// Whether metrics leave as embedded metric format.
    pub embedded_metrics: bool,
    /// How long a stop may take in all.
    pub shutdown_timeout: Duration,
}

/// Where the admin interface listens, and who is let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPlan {
    /// Where.
    pub addr: SocketAddr,
    /// The keys, each with the name that the log tells.
    pub keys: Vec<(String, Secret)>,
}

impl AdminPlan {
    fn of(http: &model::Http) -> Option<Self> {
        let mut keys: Vec<(String, Secret)> = http.admin_api_key.iter().map(|key| ("admin".to_owned(), key.clone())).collect();
        keys.extend(http.admin_keys.iter().map(|named| (named.name.to_string(), named.key.clone())));
        (!keys.is_empty()).then(|| Self { addr: http.admin_addr.get(), keys })
    }
}

impl ProcessPlan {
    /// What `config` says.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let (bridge, http) = (&config.bridge, &config.http);
        let (hint_token, posts) = (hint_token(config).cloned(), posts::plan(config));
        Self {
            bridge: bridge.id.to_string(),
            instance_name: bridge.instance_name().map(str::to_owned),
            clustered: bridge.is_clustered(),
            log_format: match bridge.log_format {
                model::LogFormat::Json => LogFormat::Json,
                model::LogFormat::Human => LogFormat::Human,
            },
            log_level: bridge.log_level.as_str(),
            monitor_addr: http.monitor_addr.get(),
            monitor_key: http.monitor_api_key.clone(),
            admin: AdminPlan::of(http),
            origins: http.cors_origins.clone(),
            proxies: Proxies::of(http.trusted_proxies.iter().map(String::as_str)),
            tls: tls_files(http),
            transport_addr: (hint_token.is_some() || !posts.is_empty() || config.commands.enabled).then(|| http.transport_addr.get()),
            hint_token,
            posts,
            endpoints: bridge.cluster.endpoints.clone(),
            member_interval: is_member(config).then(|| bridge.cluster.member_interval.get()),
            embedded_metrics: bridge.metrics_exporter == MetricsExporter::Emf,
            shutdown_timeout: bridge.shutdown_timeout.get(),
        }
    }
}

/// The certificate of the listeners, if they have one.
#[must_use]
pub fn tls_files(http: &model::Http) -> Option<TlsFiles> {
    let (cert, key) = http.tls_cert_file.as_ref().zip(http.tls_key_file.as_ref())?;
    Some(TlsFiles { cert: cert.into(), key: key.into() })
}
