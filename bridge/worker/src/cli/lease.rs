//! `causeway lease list`, `show` and `repair`: who owns which session, as the lease table tells it.

use super::error::CliError;
use super::output::{self, Table};
use super::{ConfigArgs, load};
use crate::fleet::{lease_view, member_view};
use crate::members::is_fresh;
use crate::wiring::{self, Purpose, StoreSet};
use causeway_core::config::Config;
use causeway_core::lease::row::{CorruptLease, LeaseRow, OwnerFacts, RawLease, Tuple};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{Clock as _, Leases, SystemClock};
use clap::Subcommand;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;

/// Commands on leases.
#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// List the leases of the table and the members of the bridge
    List {
        #[allow(missing_docs, reason = "clap shows what ConfigArgs says")]
        #[command(flatten)]
        config: ConfigArgs,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one lease, every field
    Show {
        #[allow(missing_docs, reason = "clap shows what ConfigArgs says")]
        #[command(flatten)]
        config: ConfigArgs,
        /// The session
        #[arg(long)]
        session: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Release a lease whose row is older than `renewed_at`. Stop every worker of the bridge first
    Repair {
        #[allow(missing_docs, reason = "clap shows what ConfigArgs says")]
        #[command(flatten)]
        config: ConfigArgs,
        /// The session
        #[arg(long)]
        session: String,
        /// Says that every worker of the bridge is stopped
        #[arg(long)]
        all_workers_are_stopped: bool,
    },
}

/// Carries the command out.
///
/// # Errors
/// Where the store cannot be read, or the row cannot be repaired.
pub async fn execute(command: LeaseCommand) -> Result<ExitCode, CliError> {
    match command {
        LeaseCommand::List { config, json } => {
            let (config, leases) = open(&config).await?;
            list(&*leases, &config, json).await
        }
        LeaseCommand::Show { config, session, json } => {
            let (config, leases) = open(&config).await?;
            let key = key_of(&config, &session)?;
            let raw =
                leases.read(&key).await.map_err(told)?.ok_or_else(|| CliError::fault(format!("nobody ever owned session {session}")))?;
            show(&key, raw, json)
        }
        LeaseCommand::Repair { config, session, all_workers_are_stopped } => {
            let (config, leases) = open(&config).await?;
            let key = key_of(&config, &session)?;
            if !all_workers_are_stopped {
                return Err(CliError::unusable(
                    "a repair while a worker runs can make two owners: stop every worker, then say --all-workers-are-stopped",
                ));
            }
            repair(&*leases, &key).await
        }
    }
}

async fn open(args: &ConfigArgs) -> Result<(Config, Arc<dyn Leases>), CliError> {
    let config = load::load(args)?.config;
    let aws = wiring::aws(&config).await;
    let leases = StoreSet::open_leases(&config.stores, aws.as_ref(), Purpose::Look)?;
    let leases = leases.ok_or_else(|| CliError::unusable("stores.lease is not configured"))?;
    Ok((config, leases))
}

fn key_of(config: &Config, session: &str) -> Result<String, CliError> {
    let known = config.session(session).ok_or_else(|| CliError::unusable(format!("the configuration has no session `{session}`")))?;
    Ok(format!("LEASE#{}", known.id))
}

fn told(fault: Fault) -> CliError {
    CliError::fault(format!("stores.lease: {fault}"))
}

/// Leases, and the members of the bridge that may hold them.
async fn list(leases: &dyn Leases, config: &Config, json: bool) -> Result<ExitCode, CliError> {
    let rows = leases.list().await.map_err(told)?;
    let members = leases.list_members(&config.bridge.id).await.map_err(told)?;
    let (now, interval) = (SystemClock.wall(), config.bridge.cluster.member_interval.get());
    if json {
        let leases: Vec<Value> = rows.into_iter().map(|(key, raw)| lease_view(&key, raw)).collect();
        let members: Vec<Value> = members.iter().map(|member| member_view(member, is_fresh(member.written_at, now, interval))).collect();
        return output::json(&json!({ "leases": leases, "members": members }));
    }
    let mut table = Table::new(&["LEASE", "STATE", "OWNER", "VERSION", "RENEWED", "TTL", "LEVEL"]);
    for (key, raw) in rows {
        let facts = raw.facts.clone();
        table.row(match LeaseRow::try_from(raw) {
            Ok(row) => vec![
                key,
                if row.tuple.is_released() { "released" } else { "held" }.to_owned(),
                if row.tuple.is_released() { "-".to_owned() } else { row.tuple.owner.clone() },
                row.tuple.version.to_string(),
                output::ago(now.since(row.tuple.renewed_at)),
                if row.tuple.is_released() { "-".to_owned() } else { format!("{} s", row.tuple.ttl().as_secs()) },
                facts.service_level.unwrap_or_else(|| "-".to_owned()),
            ],
            Err(corrupt) => vec![key, corrupt.to_string()],
        });
    }
    output::line(&table.render())?;
    let mut table = Table::new(&["MEMBER", "ROLE", "STATE", "SEEN", "AZ", "ENDPOINT", "LEVELS"]);
    for member in &members {
        let levels: Vec<String> = member.sessions.iter().map(|(session, level)| format!("{session}={level}")).collect();
        let or_none = |text: Option<&String>| text.cloned().unwrap_or_else(|| "-".to_owned());
        table.row(vec![
            member.owner.clone(),
            member.role.clone(),
            if is_fresh(member.written_at, now, interval) { "fresh" } else { "stale" }.to_owned(),
            output::ago(now.since(member.written_at)),
            or_none(member.facts.az.as_ref()),
            or_none(member.facts.endpoints.get("http")),
            if levels.is_empty() { "-".to_owned() } else { levels.join(" ") },
        ]);
    }
    output::line(&format!("\n{}", table.render()))
}

fn show(key: &str, raw: RawLease, json: bool) -> Result<ExitCode, CliError> {
    let value = lease_view(key, raw);
    if json {
        return output::json(&value);
    }
    let fields = value.as_object().into_iter().flatten();
    let lines: Vec<String> = fields.map(|(name, value)| format!("{name:<22} {}", in_words(name, value))).collect();
    output::line(&lines.join("\n"))
}

/// A field for people: times as times, and what is not there as a dash.
fn in_words(name: &str, value: &Value) -> String {
    let is_time = name.ends_with("_at") || name.ends_with("_since");
    match (value, value.as_u64()) {
        (Value::Null, _) => "-".to_owned(),
        (Value::String(text), _) => text.clone(),
        (_, Some(0)) if is_time => "-".to_owned(),
        (_, Some(at)) if is_time => output::time(UnixMillis(at)),
        _ => value.to_string(),
    }
}

/// Turns a row of a release that did not know `renewed_at` into a released one with the same version. Other damage is left to people: who owns the
/// lease is exactly what such a row does not tell.
async fn repair(leases: &dyn Leases, key: &str) -> Result<ExitCode, CliError> {
    let raw = leases.read(key).await.map_err(told)?.ok_or_else(|| CliError::fault("there is no such row"))?;
    match LeaseRow::try_from(raw.clone()) {
        Ok(_) => return output::line("the row is valid; nothing to repair"),
        Err(CorruptLease::NeedsRepair) => {}
        Err(other) => return Err(CliError::fault(format!("{other}: restore the row by hand; keep its version, or raise it"))),
    }
    let owner = raw.owner.unwrap_or_default();
    let version = raw.version.and_then(|version| u64::try_from(version).ok()).filter(|version| *version > 0);
    let version = version
        .ok_or_else(|| CliError::fault("the row has no usable version: restore it by hand with a version above every epoch of its log"))?;
    let tuple = Tuple { owner: String::new(), version, renewed_at: SystemClock.wall().max(UnixMillis(1)), expires_at: UnixMillis(0) };
    let row = LeaseRow { acquired_at: tuple.renewed_at, tuple, evidence: None, facts: OwnerFacts::default() };
    let write = LeaseWrite { condition: Condition::Held { owner, version }, row };
    match leases.write(key, &write).await {
        Outcome::Done(LeaseAnswer::Written) => output::line(&format!("released at version {version}; start the workers again")),
        Outcome::Done(LeaseAnswer::Refused(_)) => Err(CliError::fault("the row changed meanwhile: a worker runs; stop it and repeat")),
        Outcome::NotDone(fault) | Outcome::Unknown(fault) => Err(told(fault)),
    }
}
