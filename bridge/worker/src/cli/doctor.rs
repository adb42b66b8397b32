//! `causeway doctor`: looks at everything that the configuration needs to reach, and says what to do where it cannot be reached.

use super::error::{CliError, exit};
use super::healthcheck::local;
use super::run::bounded;
use super::{ConfigArgs, load, output};
use crate::http::tls::ListenerTls;
use crate::http::{self, monitor::PREFIX};
use crate::secrets::SecretBoard;
use crate::wiring::{self, ProcessPlan, StorePart, WiringError};
use causeway_aws::AwsClients;
use causeway_core::config::model::Http;
use causeway_core::config::{Config, StoreBackend};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::units::UnixMillis;
use causeway_mqtt::{ProbeReport, SourceOptions};
use causeway_ports::{Clock as _, SystemClock};
use clap::Args;
use core::time::Duration;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// 2025-01-01: an earlier clock was never set.
const EARLIEST_TIME: UnixMillis = UnixMillis(1_735_689_600_000);
/// 2100-01-01.
const LATEST_TIME: UnixMillis = UnixMillis(4_102_444_800_000);

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    /// What.
    part: String,
    /// Whether it is well.
    ok: bool,
    /// What was found.
    detail: String,
    /// What to do; empty where it is well.
    remedy: String,
}

impl Finding {
    fn good(part: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { part: part.into(), ok: true, detail: detail.into(), remedy: String::new() }
    }

    fn bad(part: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { part: part.into(), ok: false, detail: detail.into(), remedy: remedy.into() }
    }

    fn of(part: impl Into<String>, fault: &Fault) -> Self {
        Self::bad(part, fault.to_string(), remedy(fault.code))
    }
}

impl From<WiringError> for Finding {
    fn from(error: WiringError) -> Self {
        let remedy = FaultCode::parse(error.code).map_or("change the configuration as told", remedy);
        Self::bad(error.part, format!("{}: {}", error.code, error.detail), remedy)
    }
}

/// `causeway stores create` makes no queues: they belong to whoever reads them.
const NO_QUEUE: &str = "create the queue (the CDK stack does; by hand `aws sqs create-queue`), or correct the name, account and region";

const PRIVATE: &str = "the store tells which subscriptions a session has: keep it in a folder of the worker's user alone";

/// What to do about a fault of this kind, in general; the fault's own text says more.
const fn remedy(code: FaultCode) -> &'static str {
    match code {
        FaultCode::Timeout | FaultCode::ConnectionLost | FaultCode::Unavailable => {
            "check the address, that it is up, and the network on the way (security groups, proxies)"
        }
        FaultCode::Throttled => "wait, or raise the limit there",
        FaultCode::NotAuthorized | FaultCode::TemporaryAuthFailure => {
            "check the credentials and what they permit (task role, user name, password)"
        }
        FaultCode::NotFound => "create it (`causeway stores create` for tables and files), or correct the name, account and region",
        FaultCode::StorageFull => "free some space",
        FaultCode::InvalidConfig | FaultCode::ProtocolError => "correct the setting, or what stands on the other side",
        FaultCode::InvalidPayload
        | FaultCode::PayloadTooLarge
        | FaultCode::Refused
        | FaultCode::AddressTemplate
        | FaultCode::NoBinding
        | FaultCode::HopLimit
        | FaultCode::MessageFiltered
        | FaultCode::SubscriptionRemoved
        | FaultCode::MessageExpired
        | FaultCode::PoisonMessage
        | FaultCode::Trimmed
        | FaultCode::StoreFull => "look at the message",
    }
}

/// Looks at everything. Exit code 1 where anything is wrong.
///
/// # Errors
/// An unusable configuration.
pub async fn execute(args: DoctorArgs) -> Result<ExitCode, CliError> {
    let loaded = load::load(&args.config)?;
    let config = &loaded.config;
    let mut findings = vec![Finding::good("configuration", format!("usable, {} warnings", loaded.warnings.len())), clocks()];
    findings.extend(ports(config).await);
    let aws = wiring::aws(config).await;
    if let Some(clients) = &aws {
        findings.push(credentials(clients).await);
    }
    for part in StorePart::ALL {
        findings.extend(store(part, config, aws.as_ref()).await);
    }
    let secrets = match wiring::keep_secrets(config, aws.as_ref(), 0).await {
        Ok((secrets, _)) => secrets,
        Err(errors) => {
            findings.extend(errors.into_iter().map(Finding::from));
            SecretBoard::default()
        }
    };
    findings.extend(queues(config, aws.as_ref(), &secrets).await);
    findings.extend(sources(config, aws.as_ref()).await);
    findings.extend(brokers(config, &secrets).await);
    let well = findings.iter().all(|finding| finding.ok);
    if args.json {
        output::json(&serde_json::json!({ "ok": well, "findings": findings }))?;
    } else {
        output::line(&findings.iter().map(shown).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(ExitCode::from(if well { 0 } else { exit::FAULT }))
}

fn shown(finding: &Finding) -> String {
    let clean: String = finding.detail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if finding.ok { format!("✓ {}: {clean}", finding.part) } else { format!("✗ {}: {clean}\n    → {}", finding.part, finding.remedy) }
}

fn clocks() -> Finding {
    let now = SystemClock.wall();
    let shown = output::time(now);
    if now < EARLIEST_TIME || now > LATEST_TIME {
        return Finding::bad("clock", format!("it says {shown}"), "set the clock (NTP): message expiry and AWS signatures depend on it");
    }
    Finding::good("clock", shown)
}

async fn ports(config: &Config) -> Vec<Finding> {
    let http = &config.http;
    let ours = is_ours(http).await;
    let mut listeners = vec![("http.monitor_addr", http.monitor_addr.get())];
    listeners.extend(http.has_admin().then(|| ("http.admin_addr", http.admin_addr.get())));
    listeners.extend(ProcessPlan::of(config).transport_addr.map(|address| ("http.transport_addr", address)));
    let mut findings = Vec::new();
    for (setting, addr) in listeners {
        findings.push(match http::bind(setting, addr).await {
            Ok(_) => Finding::good(setting, format!("{addr} is free")),
            Err(error) if ours => Finding::good(setting, format!("{}: a running worker", error.addr)),
            Err(error) => Finding::bad(setting, format!("{}: {}", error.addr, error.reason), "free the port or set another one"),
        });
    }
    if let Some(files) = wiring::tls_files(http) {
        findings.push(match ListenerTls::load(files) {
            Ok(_) => Finding::good("http.tls_cert_file", "certificate and key fit".to_owned()),
            Err(fault) => Finding::bad("http.tls_cert_file", fault.to_string(), "give a certificate chain and its own key, both as PEM"),
        });
    }
    findings
}

/// Whether a worker's monitor answers there.
async fn is_ours(http: &Http) -> bool {
    let Ok((client, base)) = local(http) else { return false };
    let Ok(client) = client.timeout(Duration::from_secs(2)).build() else { return false };
    let Ok(answer) = client.get(format!("{base}{PREFIX}/live")).send().await else { return false };
    answer.json::<serde_json::Value>().await.is_ok_and(|body| body["stalled"].is_array())
}

async fn credentials(clients: &AwsClients) -> Finding {
    let endpoint = std::env::var("AWS_ENDPOINT_URL").ok().filter(|url| !url.trim().is_empty());
    let endpoint = endpoint.map_or_else(|| "AWS".to_owned(), |url| format!("endpoint {url}"));
    match clients.credentials().await {
        Ok(()) => Finding::good("AWS credentials", format!("found; region {}, {endpoint}", clients.region().unwrap_or("not set"))),
        Err(fault) => Finding::of("AWS credentials", &fault),
    }
}

async fn store(part: StorePart, config: &Config, aws: Option<&AwsClients>) -> Option<Finding> {
    let name = part.name();
    if let Some(finding) = without_store(part, part.backend(&config.stores)?) {
        return Some(finding);
    }
    let mut unopened = None;
    let probe = async {
        match part.probe(&config.stores, aws).await {
            Ok(answer) => answer.unwrap_or(Ok(())),
            Err(error) => {
                unopened = Some(error);
                Ok(())
            }
        }
    };
    let answer = bounded(probe).await;
    Some(unopened.map_or_else(|| probed(name, answer), Finding::from))
}

/// What there is to say where there is nothing to open: memory, or a file that a worker makes when it starts.
fn without_store(part: StorePart, backend: StoreBackend) -> Option<Finding> {
    match backend {
        StoreBackend::Memory => Some(Finding::good(part.name(), "in memory: gone with the process")),
        StoreBackend::Sqlite { path } if !path.exists() => Some(unmade_file(part, &path)),
        StoreBackend::Sqlite { .. } | StoreBackend::Dynamodb { .. } => None,
    }
}

fn unmade_file(store: StorePart, path: &Path) -> Finding {
    let part = store.name();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = folder.display();
    if !folder.is_dir() {
        return Finding::bad(part, format!("the folder {shown} does not exist"), "run `causeway stores create`, or correct the path");
    }
    // What `run` would refuse once it opens the store.
    if store == StorePart::Subscriptions
        && let Err(error) = causeway_local::sqlite::folder_is_private(path)
    {
        return Finding::bad(part, error.to_string(), PRIVATE);
    }
    match rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::good(part, format!("{} is made at the first start", path.display())),
        Err(error) => Finding::bad(
            part,
            format!("the folder {shown} cannot be written: {error}"),
            "give this user write access, or choose another path",
        ),
    }
}

fn probed(part: impl Into<String>, result: Result<(), Fault>) -> Finding {
    match result {
        Ok(()) => Finding::good(part, "reachable, of the right shape"),
        Err(fault) => Finding::of(part, &fault),
    }
}

async fn queues(config: &Config, aws: Option<&AwsClients>, secrets: &SecretBoard) -> Vec<Finding> {
    let sinks = match wiring::sinks(config, aws, secrets) {
        Ok(sinks) => sinks,
        Err(errors) => return errors.into_iter().map(Finding::from).collect(),
    };
    let mut findings = Vec::new();
    for (id, sink) in sinks {
        findings.push(match bounded(sink.probe()).await {
            Ok(()) => Finding::good(format!("sender {id}"), "the destination is there"),
            Err(fault) if fault.code == FaultCode::NotFound => Finding::bad(format!("sender {id}"), fault.to_string(), NO_QUEUE),
            Err(fault) => Finding::of(format!("sender {id}"), &fault),
        });
    }
    findings
}

/// The queues that are received from.
async fn sources(config: &Config, aws: Option<&AwsClients>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, receiver) in config.receivers.iter().enumerate().filter(|(_, receiver)| receiver.is_queue()) {
        let part = format!("receiver {}", receiver.id);
        findings.push(match (wiring::queue_options(config, receiver, &format!("receivers[{index}]")), aws) {
            (Err(error), _) => error.into(),
            (Ok(options), Some(clients)) => match bounded(wiring::probe_receiver(clients, &options)).await {
                Ok(()) => Finding::good(part, "the queue is there and may be looked at"),
                Err(fault) if fault.code == FaultCode::NotFound => Finding::bad(part, fault.to_string(), NO_QUEUE),
                Err(fault) => Finding::of(part, &fault),
            },
            (Ok(_), None) => continue,
        });
    }
    findings
}

async fn brokers(config: &Config, secrets: &SecretBoard) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, session) in config.sessions.iter().enumerate() {
        let part = format!("session {}", session.id);
        findings.push(match wiring::source_options(config, session, &format!("sessions[{index}]"), secrets) {
            Err(error) => error.into(),
            Ok(options) => match causeway_mqtt::probe(&options).await {
                Err(fault) => Finding::of(part, &fault),
                Ok(report) => broker(part, &options, &report),
            },
        });
    }
    findings
}

/// Whether the broker can do what the session wants of it.
fn broker(part: String, options: &SourceOptions, report: &ProbeReport) -> Finding {
    let wants = |test: fn(&str) -> bool| options.subscriptions.iter().any(|subscription| test(&subscription.filter));
    let url = &options.broker_url;
    if wants(|filter| filter.starts_with("$share/")) && !report.shared_subscriptions {
        return Finding::bad(
            part,
            format!("{url} has no shared subscriptions"),
            "use an exclusive session with plain filters, or another broker",
        );
    }
    if wants(|filter| filter.contains(['+', '#'])) && !report.wildcard_subscriptions {
        return Finding::bad(part, format!("{url} has no wildcard subscriptions"), "name topics without `+` and `#`");
    }
    if report.max_qos == 0 && options.subscriptions.iter().any(|subscription| subscription.qos > 0) {
        return Finding::bad(
            part,
            format!("{url} supports quality of service 0 only"),
            "use a broker with quality of service 1: nothing else is redelivered",
        );
    }
    match report.session_expiry {
        Some(seconds) if seconds < options.session_expiry => Finding::bad(
            part,
            format!("{url} keeps a session for {seconds} s, not for the {} s asked for", options.session_expiry),
            "raise the broker's limit, or lower session_expiry_interval to what an outage may take",
        ),
        Some(_) | None => Finding::good(part, format!("{url} accepts the connection")),
    }
}
