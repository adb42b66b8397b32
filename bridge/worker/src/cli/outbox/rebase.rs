//! `causeway outbox rebase`: after a table was restored, every log goes on above whatever it held, and under epochs that nobody had.

use super::told;
use crate::cli::error::CliError;
use crate::cli::output::{self, Table};
use crate::cli::{ConfigArgs, load};
use crate::members::is_fresh;
use crate::wiring::{self, Purpose, StoreSet};
use causeway_core::config::Config;
use causeway_core::identity::{Id128, LaneId, lease_of};
use causeway_core::lease::LeaseAnswer;
use causeway_core::lease::row::{LeaseRow, Tuple};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::rebase::{self, DEFAULT_STEP, FoundLease, FoundLog, Moved, Plan, Raised};
use causeway_ports::{Clock as _, Leases, Outbox, Put, SystemClock};
use clap::Args;
use core::time::Duration;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Leases are looked at for so many times the time that they hold: an owner renews its lease several times in one.
const OBSERVED_TTLS: u32 = 2;

/// Arguments of `outbox rebase`.
#[derive(Debug, Args)]
pub struct RebaseArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Move every log on by so many slots: more than it can have used since the restore point
    #[arg(long, default_value_t = DEFAULT_STEP, value_parser = clap::value_parser!(u64).range(1..))]
    by: u64,
    /// Do it; without it the command only tells what it would do
    #[arg(long)]
    yes: bool,
    /// Do it although a worker seems to run: what that worker has acknowledged may be lost
    #[arg(long)]
    force: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Moves every log of the bridge on.
///
/// # Errors
/// Where a worker runs, a store cannot be used, or a row is not what it was a moment ago.
pub async fn execute(args: RebaseArgs) -> Result<ExitCode, CliError> {
    let config = load::load(&args.config)?.config;
    let aws = wiring::aws(&config).await;
    // A SQLite file is locked by whoever changes it: a running worker is found by that alone.
    let purpose = if args.yes { Purpose::Change } else { Purpose::Look };
    let outbox = StoreSet::open_outbox(&config.stores, aws.as_ref(), purpose)?
        .ok_or_else(|| CliError::unusable("stores.outbox is not configured"))?;
    let leases = StoreSet::open_leases(&config.stores, aws.as_ref(), purpose)?;
    let outbox: &dyn Outbox = outbox.as_ref();
    if let (true, Some(leases)) = (args.yes, &leases) {
        let names = found_logs(outbox, &config.bridge.id).await?;
        let alive = signs_of_life(leases.as_ref(), &config, &names).await?;
        if !alive.is_empty() && !args.force {
            return Err(CliError::fault(format!(
                "a worker seems to run ({}): stop every worker of bridge `{}`, control included, and repeat",
                alive.join("; "),
                config.bridge.id
            )));
        }
        for sign in &alive {
            tracing::warn!(%sign, "a worker seems to run; its messages may be lost");
        }
    }
    let logs = found_logs(outbox, &config.bridge.id).await?;
    let found = match &leases {
        Some(leases) => found_leases(leases.as_ref(), &config, &logs).await?,
        None => Vec::new(),
    };
    let owner = format!("outbox-rebase#{:016x}", random()?.0 >> 64);
    let ids = logs.iter().map(|_| random()).collect::<Result<Vec<_>, _>>()?;
    let mut ids = ids.into_iter();
    let plan = rebase::plan(&logs, &found, args.by, &owner, SystemClock.wall(), || ids.next().unwrap_or_default())
        .map_err(|error| CliError::fault(error.to_string()))?;
    if args.yes {
        carry_out(&plan, outbox, leases.as_deref()).await?;
    }
    told_plan(&plan, args.yes, args.json)
}

fn random() -> Result<Id128, CliError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| CliError::fault(format!("the system gives no random numbers: {error}")))?;
    Ok(Id128(u128::from_be_bytes(bytes)))
}

pub(super) async fn found_logs(outbox: &dyn Outbox, bridge: &str) -> Result<Vec<FoundLog>, CliError> {
    let mut logs = Vec::new();
    for record in outbox.list_logs().await.map_err(told)? {
        if record.log.bridge() != bridge {
            continue;
        }
        for lane in 0.. {
            let log = record.log.in_lane(LaneId(lane));
            let tail = outbox.read_tail(&log).await.map_err(told)?;
            let head = outbox.read_head(&log).await.map_err(told)?;
            // Lanes that were closed stand behind those that are registered. They may be opened again, and were used before too.
            if lane >= record.lanes && tail.is_none() && head.is_none() {
                break;
            }
            logs.push(FoundLog { log, registered: record.epoch, tail, head });
        }
    }
    Ok(logs)
}

fn leases_fault(fault: Fault) -> CliError {
    CliError::fault(format!("stores.lease: {fault}"))
}

/// The keys of the leases of this bridge: of its sessions, and of the partitions of its logs.
fn keys(config: &Config, logs: &[FoundLog]) -> BTreeSet<String> {
    let of_sessions = config.sessions.iter().map(|session| format!("LEASE#{}", session.id));
    of_sessions.chain(logs.iter().map(|found| lease_of(&found.log))).collect()
}

async fn found_leases(leases: &dyn Leases, config: &Config, logs: &[FoundLog]) -> Result<Vec<FoundLease>, CliError> {
    let keys = keys(config, logs);
    let listed = leases.list().await.map_err(leases_fault)?;
    let of_bridge = listed.into_iter().filter(|(key, _)| keys.contains(key));
    let read = |(key, raw)| match LeaseRow::try_from(raw) {
        Ok(row) => Ok(FoundLease { key, row }),
        Err(corrupt) => Err(CliError::fault(format!("{key}: {corrupt}; see `causeway lease repair`"))),
    };
    of_bridge.map(read).collect()
}

/// What tells of a running worker: a lease that is renewed while it is looked at, or a member that told of itself lately.
async fn signs_of_life(leases: &dyn Leases, config: &Config, logs: &[FoundLog]) -> Result<Vec<String>, CliError> {
    let now = SystemClock.wall();
    let interval = config.bridge.cluster.member_interval.get();
    let members = leases.list_members(&config.bridge.id).await.map_err(leases_fault)?;
    let fresh = members.into_iter().filter(|member| is_fresh(member.written_at, now, interval));
    let mut signs: Vec<String> = fresh.map(|member| format!("member {} told of itself lately", member.owner)).collect();
    let held = |found: &FoundLease| !found.row.tuple.is_released();
    let before: Vec<FoundLease> = found_leases(leases, config, logs).await?.into_iter().filter(held).collect();
    let Some(longest) = before.iter().map(|found| found.row.tuple.ttl()).max() else { return Ok(signs) };
    observe(longest * OBSERVED_TTLS).await;
    let after = found_leases(leases, config, logs).await?;
    let of = |key: &str| -> Option<Tuple> { after.iter().find(|found| found.key == key).map(|found| found.row.tuple.clone()) };
    signs.extend(
        before
            .iter()
            .filter(|found| of(&found.key).as_ref() != Some(&found.row.tuple))
            .map(|found| format!("lease {} of {} changed while it was looked at", found.key, found.row.tuple.owner)),
    );
    Ok(signs)
}

async fn observe(time: Duration) {
    let bar = bar(time.as_secs().max(1), "looking whether a lease is renewed");
    for _ in 0..time.as_secs().max(1) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bar.inc(1);
    }
    bar.finish_and_clear();
}

fn bar(length: u64, message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length).with_message(message);
    match ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The anchors first: an owner that finds one above its own epoch raises its lease by itself.
pub(super) async fn carry_out(plan: &Plan, outbox: &dyn Outbox, leases: Option<&dyn Leases>) -> Result<(), CliError> {
    let bar = bar((plan.logs.len() + plan.leases.len()) as u64, "moving on");
    for moved in &plan.logs {
        match outbox.put(&moved.log, moved.slot, &moved.row()).await {
            Outcome::Done(Put::Stored) => bar.inc(1),
            Outcome::Done(Put::Occupied(standing)) => {
                return Err(CliError::fault(format!(
                    "{}: a row of epoch {} came to slot {}: a worker runs",
                    moved.log, standing.epoch, moved.slot
                )));
            }
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => return Err(told(fault)),
        }
    }
    for raised in leases.iter().flat_map(|_| &plan.leases) {
        let Some(leases) = leases else { break };
        match leases.write(&raised.key, &raised.write).await {
            Outcome::Done(LeaseAnswer::Written) => bar.inc(1),
            Outcome::Done(LeaseAnswer::Refused(_)) => {
                return Err(CliError::fault(format!("{} changed meanwhile: a worker runs; stop it and repeat", raised.key)));
            }
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => return Err(leases_fault(fault)),
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn told_plan(plan: &Plan, done: bool, json: bool) -> Result<ExitCode, CliError> {
    if json {
        return output::json(&json!({
            "dry_run": !done,
            "epoch": plan.epoch.0,
            "logs": plan.logs.iter().map(log_view).collect::<Vec<_>>(),
            "leases": plan.leases.iter().map(lease_view).collect::<Vec<_>>(),
        }));
    }
    let mut table = Table::new(&["WHAT", "FROM", "TO", "HEAD"]);
    for moved in &plan.logs {
        let drained = moved.anchor.drained.to_string();
        table.row(vec![moved.log.to_string(), format!("slot {}", moved.tail), format!("slot {}", moved.slot), drained]);
    }
    for raised in &plan.leases {
        let to = raised.write.row.tuple.version;
        table.row(vec![raised.key.clone(), format!("version {}", raised.from), format!("version {to}"), "-".to_owned()]);
    }
    let end = if done {
        "moved on; start the workers again. What was accepted after the restore point is gone."
    } else {
        "nothing was changed; stop every worker, then say --yes"
    };
    output::line(&format!("{}\n{end}", table.render()))
}

fn log_view(moved: &Moved) -> Value {
    json!({ "log": moved.log.as_str(), "tail": moved.tail, "anchor": moved.slot, "drained": moved.anchor.drained })
}

fn lease_view(raised: &Raised) -> Value {
    let tuple = &raised.write.row.tuple;
    json!({ "lease": raised.key, "from": raised.from, "to": tuple.version, "released": tuple.is_released() })
}
