//! The program under test: found or built, configured, started, watched, killed.

use crate::metrics::{self, Snapshot};
use crate::network::Link;
use crate::stack::process::{self, Lifetime, Spawned};
use crate::stack::{Store, ports};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Command;

/// How long a worker gets to become ready; a debug build on a busy machine needs it.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long a worker gets to stop: more than `shutdown_timeout` of the configuration that is deployed.
const STOP_WITHIN: Duration = Duration::from_secs(120);

/// The worker's program: `CAUSEWAY_BIN` if set, else built now, with the profile that `CAUSEWAY_PROFILE` names (default `dev`).
///
/// # Errors
/// It is missing or cannot be built.
pub async fn binary() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("CAUSEWAY_BIN").map(PathBuf::from) {
        if !given.exists() {
            bail!("CAUSEWAY_BIN names {}, which does not exist", given.display());
        }
        return Ok(given);
    }
    let profile = std::env::var("CAUSEWAY_PROFILE").unwrap_or_else(|_| "dev".to_owned());
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(crate::stack::repository());
    command.args([
        "build",
        "--quiet",
        // With the features of the whole workspace, as the tests are built: else every crate below would be built for this program alone.
        "--workspace",
        "--bin",
        "causeway",
        "--message-format=json-render-diagnostics",
        "--profile",
        &profile,
    ]);
    command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::inherit());
    let output = command.output().await.context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the worker does not build");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "causeway")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo built the worker and does not say where")
}

/// What a process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It moves messages.
    #[default]
    Worker,
    /// It stands by, and looks one poll later than workers do.
    Control,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Control => "control",
        }
    }
}

/// When the source is acknowledged: `routes[].delivery_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryMode {
    /// Once the outbox has the message.
    #[default]
    SharedOutbox,
    /// Once the queue has it. There is no outbox at all then.
    DirectHold,
    /// Once the queue has it, and where that takes too long once the outbox has it.
    SpillOutbox,
}

impl DeliveryMode {
    /// As the configuration calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SharedOutbox => "shared_outbox",
            Self::DirectHold => "direct_hold",
            Self::SpillOutbox => "spill_outbox",
        }
    }
}

/// The session of the configuration.
pub const SESSION: &str = "mqtt-conn";
/// The client id that every worker connects with.
pub const CLIENT_ID: &str = "telemetry-bridge";
/// How long an unrenewed lease lasts, in seconds, where several workers share one session.
pub const LEASE_TTL: u64 = 5;
/// The same where it is not waited for when ECS says that the owner's task has stopped: the default of clustered bridges.
pub const LONG_LEASE_TTL: u64 = 45;
/// How often such a lease is renewed and looked at, so that a renewal is soon missed.
const OFTEN: &str = "      renew_interval: 1s\n      renew_call_timeout: 500ms\n      acquire_poll_interval: 1s\n";
/// The environment variables that tell the workers of one configuration apart.
const INSTANCE: &str = "CAUSEWAY_INSTANCE";
const MONITOR_ADDRESS: &str = "CAUSEWAY_MONITOR_ADDRESS";
const TRANSPORT_ADDRESS: &str = "CAUSEWAY_TRANSPORT_ADDRESS";
const HINT_TOKEN: &str = "CAUSEWAY_HINT_TOKEN";
/// The key of every local worker's admin interface.
pub const ADMIN_KEY: &str = "known-to-every-local-worker";
/// The broker's address, where workers reach it by ways of their own.
pub const BROKER_URL: &str = "CAUSEWAY_BROKER_URL";

/// What the names of the tables begin with, unless they are copies.
pub const TABLES: &str = "causeway";

/// What a worker's configuration depends on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where outbox and dead letters are kept.
    pub store: Store,
    /// The folder of the SQLite files.
    pub dir: PathBuf,
    /// The broker.
    pub broker_url: String,
    /// The queue.
    pub queue_url: String,
    /// `senders[].options.fifo`.
    pub fifo: bool,
    /// The port of monitor and metrics.
    pub monitor_port: u16,
    /// `routes[].policy.max_in_flight`.
    pub max_in_flight: u32,
    /// `sessions[].options.session.receive_maximum`.
    pub receive_maximum: u16,
    /// `sessions[].lanes`.
    pub lanes: u32,
    /// What the names of the tables begin with.
    pub tables: String,
    /// `routes[].delivery_mode`.
    pub delivery_mode: DeliveryMode,
    /// `routes[].policy.spill_after`, in milliseconds, where it spills.
    pub spill_after_ms: u32,
    /// `stores.outbox.options.segment_max_messages`.
    pub segment_max_messages: u32,
    /// Whether several workers share the session, of which one owns it at a time. Needs DynamoDB.
    pub exclusive: bool,
    /// Whether they share a subscription instead: all of them are connected at once, and each has a log of its own. Where several workers run.
    pub shared_subscription: bool,
    /// `stores.dlq.options.retention`, in seconds. `None`: dead letters are kept for good.
    pub dlq_retention: Option<u64>,
    /// Whether workers log in to the broker with their names, by which a network tells them apart.
    pub logins: bool,
    /// `sessions[].options.session.keep_alive`, in seconds.
    pub keep_alive: u16,
    /// `routes[].session.broker_health_step_down`, in seconds. `None`: off.
    pub broker_health_step_down: Option<u16>,
    /// Whether an owner whose task has stopped is replaced without waiting for its lease, which then lasts [`LONG_LEASE_TTL`].
    pub asks_ecs: bool,
}

impl Settings {
    /// Settings with the limits that the program has as defaults.
    #[must_use]
    pub fn new(store: Store, dir: &Path, broker_url: &str, queue_url: &str, monitor_port: u16) -> Self {
        Self {
            store,
            dir: dir.to_owned(),
            broker_url: broker_url.to_owned(),
            queue_url: queue_url.to_owned(),
            fifo: false,
            monitor_port,
            max_in_flight: 100,
            receive_maximum: 192,
            lanes: 1,
            tables: TABLES.to_owned(),
            delivery_mode: DeliveryMode::default(),
            spill_after_ms: 250,
            segment_max_messages: 200,
            exclusive: false,
            shared_subscription: false,
            dlq_retention: None,
            logins: false,
            keep_alive: 30,
            broker_health_step_down: None,
            asks_ecs: false,
        }
    }

    /// How long an unrenewed lease lasts, in seconds.
    #[must_use]
    pub const fn lease_ttl(&self) -> u64 {
        if self.asks_ecs { LONG_LEASE_TTL } else { LEASE_TTL }
    }

    /// The longest that a worker needs to notice that its broker has fallen silent, in seconds: two and a half times the keep-alive.
    #[must_use]
    pub fn broker_silence(&self) -> f64 {
        f64::from(self.keep_alive) * 2.5
    }

    /// The configuration file.
    #[must_use]
    pub fn render(&self) -> String {
        let store = |role: &str| match self.store {
            Store::Sqlite => format!("type: sqlite\n    options:\n      path: {}", self.dir.join(format!("{role}.db")).display()),
            Store::Dynamodb => {
                format!("type: dynamodb\n    options:\n      table_name: {}-{role}", self.tables)
            }
        };
        let when_exclusive = |text: &str| if self.exclusive { text.to_owned() } else { String::new() };
        let (deployment, session_mode) = if self.exclusive {
            let cluster = if self.asks_ecs { "\n  cluster:\n    takeover_evidence: [ttl, ecs_stopped]\n    evidence_poll: 1s" } else { "" };
            (format!("deployment_mode: clustered\n  instance_id: ${{{INSTANCE}}}{cluster}"), "session_mode: exclusive\n    baseline: auto")
        } else {
            ("deployment_mode: standalone".to_owned(), "session_mode: persistent")
        };
        let shared_store =
            |name: &str, role: &str| format!("  {name}:\n    type: dynamodb\n    options:\n      table_name: {}-{role}\n", self.tables);
        let shared_stores =
            when_exclusive(&(shared_store("lease", "leases") + &shared_store("managed_subscriptions", "managed-subscriptions")));
        let route_session = when_exclusive(&format!(
            "    session:\n      session_id: {SESSION}\n      sender_id: sqs-out\n      lease_ttl: {}s\n{}      broker_health_step_down: {}\n",
            self.lease_ttl(),
            if self.asks_ecs { OFTEN } else { "" },
            self.broker_health_step_down.map_or_else(|| "off".to_owned(), |seconds| format!("{seconds}s"))
        ));
        // Several processes read the same file: the environment tells them apart.
        let monitor = if self.exclusive { format!("${{{MONITOR_ADDRESS}}}") } else { format!("127.0.0.1:{}", self.monitor_port) };
        let retention = self.dlq_retention.map(|seconds| format!("\n      retention: {seconds}s")).unwrap_or_default();
        let login = if self.logins {
            format!("\n        username: ${{{INSTANCE}}}\n        allow_plaintext_credentials: true")
        } else {
            String::new()
        };
        let broker_url = if self.exclusive { format!("${{{BROKER_URL}}}") } else { self.broker_url.clone() };
        let segments = format!("\n      segment_max_messages: {}", self.segment_max_messages);
        let outbox = format!("\n  outbox:\n    {}{segments}", store("outbox"));
        let (outbox, of_mode) = match self.delivery_mode {
            DeliveryMode::SharedOutbox => (outbox, "\n      ack_after: outbox_persist".to_owned()),
            DeliveryMode::DirectHold => (String::new(), String::new()),
            DeliveryMode::SpillOutbox => (outbox, format!("\n      spill_after: {}ms", self.spill_after_ms)),
        };
        let template = include_str!("worker.yaml");
        let (template, session_mode) = if self.shared_subscription {
            let template = template
                .replace("\"telemetry/#\"", "\"$share/workers/telemetry/#\"")
                .replace("clean_start: false", "clean_start: true")
                .replace("        session_expiry_interval: 3600\n", "");
            (template, "session_mode: ephemeral")
        } else {
            (template.to_owned(), session_mode)
        };
        template
            .replace("{{deployment}}", &deployment)
            .replace("{{session_mode}}", session_mode)
            .replace("{{lanes}}", &self.lanes.to_string())
            .replace("{{shared_stores}}", &shared_stores)
            .replace("{{route_session}}", &route_session)
            .replace("{{outbox}}", &outbox)
            .replace("{{delivery_mode}}", self.delivery_mode.name())
            .replace("{{of_mode}}", &of_mode)
            .replace("{{dlq}}", &(store("dlq") + &retention))
            .replace("{{broker_url}}", &broker_url)
            .replace("{{queue_url}}", &self.queue_url)
            .replace("{{fifo}}", if self.fifo { "\n      fifo: true" } else { "" })
            .replace("{{region}}", crate::stack::emulators::REGION)
            .replace("{{monitor}}", &monitor)
            .replace(
                "{{hints}}",
                &when_exclusive(&format!("\n  transport_addr: ${{{TRANSPORT_ADDRESS}}}\n  hint_token: ${{{HINT_TOKEN}}}")),
            )
            .replace("{{admin_key}}", ADMIN_KEY)
            .replace("{{login}}", &login)
            .replace("{{keep_alive}}", &self.keep_alive.to_string())
            .replace("{{max_in_flight}}", &self.max_in_flight.to_string())
            .replace("{{receive_maximum}}", &self.receive_maximum.to_string())
    }

    /// What a crash may repeat, from the limits alone: the larger of what the worker reports and this is never wrong, only generous.
    #[must_use]
    pub fn exposure_terms(&self) -> Vec<(String, u64)> {
        vec![
            ("sends in flight (max_in_flight)".to_owned(), u64::from(self.max_in_flight)),
            (
                "settled and not yet persisted (2 × segment_max_messages, in each lane)".to_owned(),
                2 * u64::from(self.segment_max_messages) * u64::from(self.lanes),
            ),
            ("unacknowledged towards the broker (receive_maximum)".to_owned(), u64::from(self.receive_maximum)),
        ]
    }
}

/// How to start a worker, any number of times.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub binary: PathBuf,
    /// Its configuration file.
    pub config: PathBuf,
    /// Files on top of it.
    pub layers: Vec<PathBuf>,
    /// What its environment holds beyond the path.
    pub environment: BTreeMap<String, String>,
    /// Where its monitor listens.
    pub monitor: SocketAddr,
    /// What stands before its command line, for example what puts it into a network namespace.
    pub prefix: Vec<String>,
    /// The folder for its log.
    pub dir: PathBuf,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// What it is called, where several run; also names its log.
    pub name: String,
    /// What it does.
    pub role: Role,
}

impl Launch {
    /// The launch of another worker with the same configuration: a name, a port and a log of its own.
    ///
    /// # Errors
    /// No port is free.
    pub fn another(&self, name: &str, role: Role) -> Result<Self> {
        let mut environment = self.environment.clone();
        environment.insert(crate::proxy::CALLER.to_owned(), name.to_owned());
        let monitor = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free_port()?));
        Ok(Self { name: name.to_owned(), role, monitor, environment, ..self.clone() })
    }

    /// The same worker at the end of a link.
    #[must_use]
    pub fn over(mut self, link: &Link) -> Self {
        self.prefix = link.prefix();
        self.monitor.set_ip(link.listens_on().into());
        self.environment.extend(link.environment());
        self
    }

    /// What tells this worker from the others of its configuration, under the name of `instance`.
    fn own_environment(&self, instance: &str) -> [(&'static str, String); 4] {
        [
            (INSTANCE, instance.to_owned()),
            (MONITOR_ADDRESS, self.monitor.to_string()),
            // Any free port: where hints are taken stands in the member's row.
            (TRANSPORT_ADDRESS, SocketAddr::new(self.monitor.ip(), 0).to_string()),
            (HINT_TOKEN, "known-to-every-local-worker".to_owned()),
        ]
    }

    /// What a person exports to use the program's other commands on this worker's configuration.
    #[must_use]
    pub fn desk_environment(&self) -> BTreeMap<String, String> {
        let own = self.own_environment("desk").map(|(name, value)| (name.to_owned(), value));
        self.environment.clone().into_iter().chain(own).collect()
    }

    /// `causeway ARGS` with the worker's environment, which holds nothing of ours but the path.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let words: Vec<&std::ffi::OsStr> = self.prefix.iter().map(std::ffi::OsStr::new).chain([self.binary.as_os_str()]).collect();
        let mut command = process::command(words[0], self.lifetime);
        command.args(&words[1..]).args(arguments).env_clear().envs(&self.environment).current_dir(&self.dir);
        command.envs(self.own_environment(&self.name));
        for name in ["PATH", "HOME", "RUST_BACKTRACE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }

    /// Runs one command to its end and gives what it printed.
    ///
    /// # Errors
    /// It cannot be started, or does not end with 0.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output().await.with_context(|| format!("cannot start {}", self.binary.display()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if !output.status.success() {
            bail!("`causeway {}` ended with {}:\n{}\n{}", arguments.join(" "), output.status, text(&output.stdout), text(&output.stderr));
        }
        Ok(text(&output.stdout))
    }

    /// Creates the files of SQLite. Tables come from the template of the deployment.
    ///
    /// # Errors
    /// The program reports one.
    pub async fn create_stores(&self) -> Result<()> {
        self.run(&["stores", "create", "-c", &self.config.to_string_lossy()]).await.map(drop)
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self) -> Result<Worker> {
        let mut command = self.command(&["run", "-c", &self.config.to_string_lossy(), "--role", self.role.name()]);
        for layer in &self.layers {
            command.arg("-c").arg(layer);
        }
        let process = Spawned::start(&self.name, command, &self.dir.join(format!("{}.log", self.name)), self.lifetime)?;
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
        Ok(Worker { process, client, monitor: format!("http://{}", self.monitor) })
    }
}

/// A worker that runs.
#[derive(Debug)]
pub struct Worker {
    /// The process.
    pub process: Spawned,
    client: reqwest::Client,
    monitor: String,
}

impl Worker {
    /// Waits until it answers ready at `level`.
    ///
    /// # Errors
    /// It ends, or is not ready in time.
    pub async fn ready(&mut self, level: &str) -> Result<()> {
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        loop {
            self.process.expect_running()?;
            if self.is_ready(level).await {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                bail!("the worker is not {level} after {READY_WITHIN:?}; the end of its log:\n{}", self.process.log_tail(30));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether it answers ready at `level` now.
    pub async fn is_ready(&self, level: &str) -> bool {
        let url = format!("{}/api/v1/monitor/ready?level={level}", self.monitor);
        self.client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success())
    }

    /// Whether it says of itself that it owns the session. `None`: it does not answer.
    pub async fn is_owner(&self) -> Option<bool> {
        Some(self.session().await?["has_lease"] == true)
    }

    /// Whether it says of itself that it owns the session and is at full service with it.
    pub async fn is_owner_at_full_service(&self) -> bool {
        self.session().await.is_some_and(|session| session["has_lease"] == true && session["ready"] == true)
    }

    /// Whether it says of itself that it gives full service with this session.
    pub async fn serves(&self, session: &str) -> bool {
        self.named(session).await.is_some_and(|told| told["has_lease"] != false && told["ready"] == true)
    }

    /// What its status page shows of the session with the broker. `None`: it does not answer.
    pub async fn shown(&self) -> Option<serde_json::Value> {
        let answer = self.client.get(format!("{}/api/v1/monitor/status", self.monitor)).send().await.ok()?;
        let status: serde_json::Value = answer.json().await.ok()?;
        status["bridge"]["sessions"].as_array()?.iter().find(|told| told["id"] == SESSION).cloned()
    }

    /// What it tells of the session with the broker; it may have others besides.
    async fn session(&self) -> Option<serde_json::Value> {
        self.named(SESSION).await
    }

    async fn named(&self, session: &str) -> Option<serde_json::Value> {
        let answer = self.client.get(format!("{}/api/v1/monitor/deephealth", self.monitor)).send().await.ok()?;
        let health: serde_json::Value = answer.json().await.ok()?;
        health["sessions"].as_array()?.iter().find(|told| told["session_id"] == session).cloned()
    }

    /// Waits until it says of itself that it does not own the session.
    ///
    /// # Errors
    /// It ends, or still says that it does after a minute.
    pub async fn stands_by(&mut self) -> Result<()> {
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        while self.is_owner().await != Some(false) {
            self.process.expect_running()?;
            if tokio::time::Instant::now() > deadline {
                bail!("it takes itself for the owner after {READY_WITHIN:?}; the end of its log:\n{}", self.process.log_tail(30));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// What it shows of the bridge.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn topology(&self) -> Result<serde_json::Value> {
        let answer =
            self.client.get(format!("{}/api/v1/monitor/topology", self.monitor)).send().await.context("the monitor does not answer")?;
        answer.json().await.context("the topology is not JSON")
    }

    /// Reads its metrics.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn metrics(&self) -> Result<Snapshot> {
        Ok(Snapshot::parse(&self.metrics_text().await?))
    }

    /// The same as it answers them.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn metrics_text(&self) -> Result<String> {
        for path in ["/metrics", "/api/v1/monitor/metrics"] {
            let answer = self.client.get(format!("{}{path}", self.monitor)).send().await.context("the worker's metrics do not answer")?;
            if answer.status().is_success() {
                return Ok(answer.text().await?);
            }
        }
        bail!("the worker serves no metrics")
    }

    /// Where its monitor listens.
    #[must_use]
    pub fn monitor(&self) -> &str {
        &self.monitor
    }

    /// Stops it as an orchestrator would, with SIGTERM.
    ///
    /// # Errors
    /// It does not stop.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.process.terminate(STOP_WITHIN).await
    }
}

/// What a crash at this moment may repeat: what the worker reports, where it does, else what its limits allow.
#[must_use]
pub fn exposure_terms(settings: &Settings, reported: Option<&Snapshot>) -> Vec<(String, u64)> {
    let peak = reported.and_then(|snapshot| snapshot.get(metrics::DUPLICATE_EXPOSURE_PEAK)).filter(|peak| *peak >= 0.0);
    match peak {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of messages, not negative")]
        Some(peak) => {
            // The report is up to a second older than the crash. One more append, batch of sends and window of the broker can add to it since.
            let limits = [settings.segment_max_messages, settings.max_in_flight, u32::from(settings.receive_maximum)];
            let since = limits.into_iter().map(u64::from).sum();
            vec![("reported peak of the exposure".to_owned(), peak as u64), ("since that report".to_owned(), since)]
        }
        None => settings.exposure_terms(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn every_placeholder_of_the_template_is_filled() {
        for store in [Store::Sqlite, Store::Dynamodb] {
            let text = Settings::new(store, Path::new("/tmp/x"), "mqtt://127.0.0.1:1", "http://127.0.0.1:2/0/q", 3).render();
            assert!(!text.contains("{{"), "{text}");
            assert!(text.contains("monitor_addr: 127.0.0.1:3"), "{text}");
        }
        let shared = Settings {
            exclusive: true,
            ..Settings::new(Store::Dynamodb, Path::new("/tmp/x"), "mqtt://127.0.0.1:1", "http://127.0.0.1:2/0/q", 3)
        };
        let text = shared.render();
        assert!(!text.contains("{{"), "{text}");
        assert!(text.contains("monitor_addr: ${CAUSEWAY_MONITOR_ADDRESS}"), "{text}");
        assert!(text.contains("session_mode: exclusive"), "{text}");
        let text = Settings { shared_subscription: true, ..shared }.render();
        assert!(!text.contains("{{") && text.contains("session_mode: ephemeral") && text.contains("$share/workers/telemetry/#"), "{text}");
    }

    #[test]
    fn the_bound_prefers_what_the_worker_reports() {
        let settings = Settings::new(Store::Sqlite, Path::new("/tmp/x"), "", "", 3);
        let sum = |terms: Vec<(String, u64)>| terms.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(sum(exposure_terms(&settings, None)), 100 + 400 + 192);
        let reported = Snapshot::parse("causeway_duplicate_exposure_peak{session=\"a\"} 40");
        assert_eq!(sum(exposure_terms(&settings, Some(&reported))), 40 + 492);
    }
}
