//! The process itself: what it is made of besides stores, destinations and owner loops.

use super::posts::{self, PostPlan};
use super::{hint_token, is_member};
use crate::telemetry::logs::LogFormat;
use causeway_core::config::model::{self, MetricsExporter};
use causeway_core::config::{Config, Secret};
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
    /// Where hints and posts come in, if any do.
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
            transport_addr: (hint_token.is_some() || !posts.is_empty()).then(|| http.transport_addr.get()),
            hint_token,
            posts,
            endpoints: bridge.cluster.endpoints.clone(),
            member_interval: is_member(config).then(|| bridge.cluster.member_interval.get()),
            embedded_metrics: bridge.metrics_exporter == MetricsExporter::Emf,
            shutdown_timeout: bridge.shutdown_timeout.get(),
        }
    }
}
