//! The process itself: `bridge` and `http`.

use super::super::endpoint::ListenAddr;
use super::super::values::{Id, Secret, Span};
use core::time::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The process itself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["id"]))]
pub struct Bridge {
    /// The logical name that all replicas share.
    pub id: Id,
    /// The name of this replica, for people. Left out or empty: the ECS task id, else the host name.
    pub instance_id: Option<String>,
    /// `standalone`, or `clustered` where several replicas share the work. Left out: `standalone`, unless `cluster.endpoints` is given.
    pub deployment_mode: Option<DeploymentMode>,
    /// How long a stop may take in all. Give the orchestrator a little more.
    pub shutdown_timeout: Span,
    /// How long the last drain before a stop may take, however much waits; below `shutdown_timeout`. Left out: as long as what waits needs, see `per_record_drain_timeout` and `max_drain_timeout`.
    pub drain_timeout: Option<Span>,
    /// What one waiting message adds to the time that the last drain before a stop may take.
    pub per_record_drain_timeout: Span,
    /// The ceiling of that time.
    pub max_drain_timeout: Span,
    /// How much is logged.
    pub log_level: LogLevel,
    /// Log lines as JSON for machines, or `human`.
    pub log_format: LogFormat,
    /// How metrics leave besides `/metrics`: `prometheus` for nothing more, `emf` for CloudWatch embedded metric format on standard output.
    pub metrics_exporter: MetricsExporter,
    /// The largest number of MQTT sessions that this configuration may have. Left out: no limit.
    pub max_mqtt_sessions: Option<u32>,
    /// What concerns several replicas.
    pub cluster: Cluster,
}

impl Default for Bridge {
    fn default() -> Self {
        Self {
            id: Id::default(),
            instance_id: None,
            deployment_mode: None,
            shutdown_timeout: Span::secs(30),
            drain_timeout: None,
            per_record_drain_timeout: Span::secs(3),
            max_drain_timeout: Span::secs(10),
            log_level: LogLevel::Info,
            log_format: LogFormat::Json,
            metrics_exporter: MetricsExporter::Prometheus,
            max_mqtt_sessions: None,
            cluster: Cluster::default(),
        }
    }
}

impl Bridge {
    /// The deployment mode: as written, else clustered where endpoints are given.
    #[must_use]
    pub fn mode(&self) -> DeploymentMode {
        match self.deployment_mode {
            Some(mode) => mode,
            None if self.cluster.endpoints.is_empty() => DeploymentMode::Standalone,
            None => DeploymentMode::Clustered,
        }
    }

    /// Whether several replicas share the work.
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        self.mode() == DeploymentMode::Clustered
    }

    /// The configured name of this replica, if it is not empty.
    #[must_use]
    pub fn instance_name(&self) -> Option<&str> {
        self.instance_id.as_deref().filter(|name| !name.trim().is_empty())
    }

    /// How long the last drain before a stop may take.
    #[must_use]
    pub fn drain_ceiling(&self) -> DrainCeiling {
        // What is left of the stop's time belongs to closing connections and telemetry.
        let longest = self.shutdown_timeout.get() / 6 * 5;
        match self.drain_timeout {
            Some(fixed) => DrainCeiling { per_record: None, longest: fixed.get() },
            None => {
                DrainCeiling { per_record: Some(self.per_record_drain_timeout.get()), longest: self.max_drain_timeout.get().min(longest) }
            }
        }
    }
}

/// How long the last drain before a stop may take: what the waiting messages need, or a fixed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainCeiling {
    per_record: Option<Duration>,
    longest: Duration,
}

impl DrainCeiling {
    /// The ceiling with so many messages that are not settled.
    #[must_use]
    pub fn with(&self, unsettled: u64) -> Duration {
        let count = u32::try_from(unsettled.max(1)).unwrap_or(u32::MAX);
        self.per_record.map_or(self.longest, |each| each.saturating_mul(count).min(self.longest))
    }
}

/// What concerns several replicas.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// Where this replica is reached by others, by capability: `http: http://host:8082`. Not a list of peers. Left out: found out by itself.
    pub endpoints: BTreeMap<String, String>,
    /// What proves that an owner is gone: `ttl`, its lease unchanged for a full `lease_ttl`, which always has to be among them; `ecs_stopped`, ECS reporting
    /// its task on Fargate as stopped. Where a process is no task of ECS the latter is left out, with a warning.
    pub takeover_evidence: Vec<Evidence>,
    /// How often ECS is asked at most, while a renewal is overdue or after a hint.
    pub evidence_poll: Span,
    /// How often each process with an exclusive session, or of a clustered bridge, writes its row among the members although nothing changed.
    pub member_interval: Span,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            endpoints: BTreeMap::new(),
            takeover_evidence: vec![Evidence::Ttl],
            evidence_poll: Span::secs(2),
            member_interval: Span::secs(30),
        }
    }
}

/// What proves that an owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The lease stayed unchanged for its whole time to live.
    Ttl,
    /// ECS reports the owner's task as stopped.
    EcsStopped,
}

/// One process, or several that share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentMode {
    /// One process.
    Standalone,
    /// Several replicas.
    Clustered,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Every step.
    Debug,
    /// What an operator wants to know.
    Info,
    /// What deserves a look.
    #[serde(alias = "warning")]
    Warn,
    /// What went wrong.
    Error,
}

impl LogLevel {
    /// The name of the level.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Lines for people.
    Human,
}

/// How metrics leave the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MetricsExporter {
    /// On `/metrics` only.
    Prometheus,
    /// On `/metrics`, and as embedded metric format on standard output.
    Emf,
}

/// The program's own listeners.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Where the admin interface listens. It needs `admin_api_key` or `admin_keys`; without a key it is off.
    pub admin_addr: ListenAddr,
    /// Where health, readiness, metrics and the status page are served.
    pub monitor_addr: ListenAddr,
    /// Where messages of HTTP receivers and hints of other replicas come in. Opened only where there is a receiver with `transport: http`, or a `hint_token`.
    pub transport_addr: ListenAddr,
    /// By what replicas recognise each other's hints that a lease is free: at least 16 characters, the same on all, from the environment; or where it is kept, as in `credentials_uri` of a session. Left out:
    /// no hints are sent or taken, and a planned hand-over waits for the next look of a standby (`acquire_poll_interval`).
    pub hint_token: Option<Secret>,
    /// The key of the admin interface: at least 16 characters. What is done with it is logged under the name `admin`.
    pub admin_api_key: Option<Secret>,
    /// Further keys of the admin interface, each with a name of its own, which the log tells with everything that is done with the key.
    pub admin_keys: Vec<AdminKey>,
    /// The key of the detailed monitor pages, or where it is kept, as in `credentials_uri` of a session. Left out: they are open.
    pub monitor_api_key: Option<Secret>,
    /// Web origins that may call the admin interface and the monitor, such as `https://ops.example.com`. `*` is refused. The status page of this
    /// process, at its monitor's own address, may always.
    pub cors_origins: Vec<String>,
    /// Networks of the proxies and load balancers before the admin interface and the port of HTTP receivers, such as `10.0.0.0/16`. From these alone `X-Forwarded-For` is
    /// believed: the right-most address in it that is in none of them is the client's, by which wrong keys are counted and which the log tells. Left
    /// out: the other end of the connection is the client, so behind a load balancer all its clients are one.
    pub trusted_proxies: Vec<String>,
    /// Certificate chain (PEM) of the admin interface and the monitor, which then speak TLS alone; only together with `tls_key_file`. A changed file is
    /// used within seconds. The port between replicas stays plain: they know each other by address, which no certificate names.
    pub tls_cert_file: Option<String>,
    /// Private key (PEM) of the admin interface and the monitor; only together with `tls_cert_file`.
    pub tls_key_file: Option<String>,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            admin_addr: ListenAddr::port(8080),
            monitor_addr: ListenAddr::port(8081),
            transport_addr: ListenAddr::port(8082),
            hint_token: None,
            admin_api_key: None,
            admin_keys: Vec::new(),
            monitor_api_key: None,
            cors_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            tls_cert_file: None,
            tls_key_file: None,
        }
    }
}

impl Http {
    /// Whether any key opens the admin interface; without one it is off.
    #[must_use]
    pub fn has_admin(&self) -> bool {
        self.admin_api_key.is_some() || !self.admin_keys.is_empty()
    }
}

/// A key of the admin interface.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminKey {
    /// What the log calls whoever uses the key. `admin` is the name of `admin_api_key`.
    pub name: Id,
    /// The key: at least 16 characters, from the environment.
    pub key: Secret,
}
