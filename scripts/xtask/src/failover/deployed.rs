//! `failover --ecs`: the same proof for a deployed stack. ECS stops the owner's task, and the lease row tells who follows.
//!
//! Nothing is believed of the processes themselves: the owner's task, and the standbys, are looked up at ECS, and both ends of every time are of this
//! machine's clock.

use super::examine::{self, Asked, Owner, Refusal};
use super::{percentile, round};
use crate::terminal::{note, result, stop_requested};
use anyhow::{Context as _, Result, bail, ensure};
use causeway_aws::{AwsClients, AwsOptions, DynamoLeases, EcsTasks};
use causeway_core::lease::row::LeaseRow;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_ports::{Leases as _, Tasks as _};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::AsyncBufReadExt as _;
use tokio::time::Instant;

/// How often the lease row is read while a successor is waited for: the resolution of the times.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a session may be without full service before we give up.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long ECS gets to put another task in the place of the stopped one, between two runs.
const REPLACED_WITHIN: Duration = Duration::from_secs(900);
/// How often it is asked meanwhile.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// What ECS notes at the task, for who wonders.
const REASON: &str = "causeway failover proof (scripts/failover --ecs)";

/// The deployed stack.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "A deployed stack")]
pub struct Target {
    /// Stop the owner's task in this ECS cluster, by name or ARN, instead of a process of this machine.
    #[arg(long, value_name = "CLUSTER", requires_all = ["lease_table", "session"])]
    pub ecs: Option<String>,
    /// The DynamoDB table of the leases.
    #[arg(long, value_name = "TABLE", requires = "ecs")]
    pub lease_table: Option<String>,
    /// The session.
    #[arg(long, value_name = "ID", requires = "ecs")]
    pub session: Option<String>,
    /// Refuse where the owner's task is not one of this ECS service.
    #[arg(long, value_name = "NAME", requires = "ecs")]
    pub service: Option<String>,
    /// The region. Left out: the one of the environment or the profile.
    #[arg(long, requires = "ecs")]
    pub region: Option<String>,
    /// Where ECS and DynamoDB are, if not at AWS. AWS_ENDPOINT_URL_ECS and AWS_ENDPOINT_URL_DYNAMODB name them one by one.
    #[arg(long, value_name = "URL", requires = "ecs", value_parser = http_address)]
    pub endpoint_url: Option<String>,
    /// The most that a failover may take, in seconds. A longer one makes the exit code 1.
    #[arg(long, value_name = "SECONDS", requires = "ecs", conflicts_with = "config", value_parser = seconds)]
    pub budget_seconds: Option<f64>,
    /// The configuration's files: the most is what the program computes from them. Their variables are taken from the environment.
    #[arg(short, long, value_name = "FILE", requires = "ecs")]
    pub config: Vec<PathBuf>,
    /// Stop tasks without asking.
    #[arg(long, requires = "ecs")]
    pub yes: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(seconds),
        _ => Err("write a number of seconds above 0".to_owned()),
    }
}

fn http_address(text: &str) -> Result<String, String> {
    let host = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    match host {
        Some(host) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err("write an address that begins with http:// or https://".to_owned()),
    }
}

/// One failover.
#[derive(Clone, Debug, Serialize)]
struct Run {
    task: String,
    from: String,
    to: String,
    from_version: u64,
    to_version: u64,
    /// From the call to ECS until the row named another owner, in seconds.
    owner_seconds: f64,
    /// Until it said full service.
    full_seconds: f64,
    /// The same without the wait for the renewal that said so: from the successor's own clock. `None`: the row does not tell.
    told_seconds: Option<f64>,
}

/// Percentiles of one of these times.
#[derive(Clone, Debug, Serialize)]
struct Times {
    what: &'static str,
    samples: usize,
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

impl Times {
    fn new(what: &'static str, seconds: impl Iterator<Item = f64>) -> Self {
        let mut seconds: Vec<f64> = seconds.collect();
        seconds.sort_by(f64::total_cmp);
        let at = |percent| percentile(&seconds, percent);
        Self { what, samples: seconds.len(), p50: at(50), p95: at(95), p99: at(99), max: at(100) }
    }

    fn row(&self, budget: Option<f64>) -> String {
        let Self { what, samples, p50, p95, p99, max } = self;
        let budget = budget.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}"));
        format!("{what:<24} {samples:>7} {p50:>8.2} {p95:>8.2} {p99:>8.2} {max:>8.2} {budget:>8}")
    }
}

#[derive(Clone, Debug, Serialize)]
struct Table {
    ok: bool,
    cluster: String,
    lease_table: String,
    session: String,
    lease_ttl_seconds: u64,
    /// The most that it may take. `None`: nobody said.
    budget: Option<f64>,
    times: Vec<Times>,
    runs: Vec<Run>,
}

/// Measures. `true`: no time was over the budget.
///
/// # Errors
/// A [`Refusal`], what AWS refuses, or nobody takes over.
pub async fn run(cluster: &str, target: &Target, runs: u32, json: bool) -> Result<bool> {
    let stack = Stack::open(cluster, target).await?;
    let table = tokio::select! {
        table = stack.measure(target, runs) => table?,
        () = stop_requested() => bail!("interrupted; a task whose stop was asked for is replaced by ECS all the same"),
    };
    let text = std::iter::once("from StopTask to         samples      p50      p95      p99      max   budget".to_owned())
        .chain(table.times.iter().map(|times| times.row(table.budget)))
        .collect::<Vec<_>>()
        .join("\n");
    let title = format!("Seconds; session {} of cluster {}, lease TTL {} s", table.session, table.cluster, table.lease_ttl_seconds);
    if json {
        note(&format!("{title}\n{text}"));
        result(&serde_json::to_string(&table)?);
    } else {
        result(&format!("{title}\n{text}"));
    }
    Ok(table.ok)
}

/// The stack, as AWS shows it.
struct Stack {
    asked: Asked,
    leases: DynamoLeases,
    tasks: EcsTasks,
    bar: ProgressBar,
}

impl Stack {
    async fn open(cluster: &str, target: &Target) -> Result<Self> {
        let (Some(table), Some(session)) = (&target.lease_table, &target.session) else {
            bail!("--lease-table and --session are needed");
        };
        let clients = AwsClients::load(&AwsOptions { region: target.region.clone(), ..AwsOptions::default() }).await;
        let endpoint = target.endpoint_url.as_deref();
        let (dynamodb, ecs) = (clients.dynamodb_at(endpoint)?, clients.ecs_at(endpoint)?);
        clients.credentials().await?;
        let asked = Asked {
            cluster: cluster.to_owned(),
            region: clients.region().map(str::to_owned),
            table: table.clone(),
            session: session.clone(),
            service: target.service.clone(),
        };
        let style = ProgressStyle::with_template("{spinner} {elapsed}  {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        Ok(Self { leases: DynamoLeases::new(dynamodb, table), tasks: EcsTasks::new(ecs, cluster), asked, bar })
    }

    async fn measure(&self, target: &Target, runs: u32) -> Result<Table> {
        let budget = budget(target).await?;
        let (mut done, mut ttl): (Vec<Run>, u64) = (Vec::new(), 0);
        for number in 1..=runs {
            let (owner, standbys) = if number == 1 { self.look().await? } else { self.settled().await? };
            ttl = owner.row.tuple.ttl().as_secs();
            self.confirm(&owner, &standbys, target.yes).await?;
            let run = self.once(&owner).await?;
            self.say(&format!("run {number} of {runs}: {} gives full service after {:.2} s", run.to, run.full_seconds));
            done.push(run);
        }
        self.bar.finish_and_clear();
        let full = Times::new("full service in the row", done.iter().map(|run| run.full_seconds));
        let ok = budget.is_none_or(|budget| full.max <= budget);
        let told: Vec<f64> = done.iter().filter_map(|run| run.told_seconds).collect();
        let mut times = vec![Times::new("another owner", done.iter().map(|run| run.owner_seconds))];
        times.extend((!told.is_empty()).then(|| Times::new("full service, as told", told.into_iter())));
        times.push(full);
        let Asked { cluster, table, session, .. } = self.asked.clone();
        Ok(Table { ok, cluster, lease_table: table, session, lease_ttl_seconds: ttl, budget, times, runs: done })
    }

    /// Who owns the session and who stands by, or why no task may be stopped now.
    async fn look(&self) -> Result<(Owner, Vec<String>)> {
        let raw = self.leases.read(&self.key()).await.map_err(|fault| self.of_table(fault))?;
        let known = if raw.is_none() { self.leases.list().await.unwrap_or_default() } else { Vec::new() };
        let owner = examine::owner(&self.asked, raw, &known)?;
        let members = self.leases.members_of_all_bridges().await.map_err(|fault| self.of_table(fault))?;
        let others = examine::others(&self.asked, &owner, &members);
        let arns: Vec<String> =
            std::iter::once(owner.task.clone()).chain(others.iter().filter_map(|member| member.facts.task_arn.clone())).collect();
        let described = self.tasks.describe(&arns).await.map_err(|fault| self.of_cluster(fault))?;
        let of_service = match &self.asked.service {
            Some(service) => Some(self.tasks.list(Some(service)).await.map_err(|fault| self.of_cluster(fault))?),
            None => None,
        };
        let standbys = examine::standbys(&self.asked, &owner, &others, &described, of_service.as_deref())?;
        Ok((owner, standbys))
    }

    /// The same after a failover, once ECS has put another task in the place of the stopped one.
    async fn settled(&self) -> Result<(Owner, Vec<String>)> {
        let deadline = Instant::now() + REPLACED_WITHIN;
        loop {
            let refusal = match self.look().await {
                Err(fault) if fault.downcast_ref::<Refusal>().is_some_and(Refusal::passes) => fault,
                other => return other,
            };
            ensure!(Instant::now() < deadline, "the stack has not recovered after {REPLACED_WITHIN:?}: {refusal}");
            self.bar.set_message(format!("waiting for a standby: {refusal}"));
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn confirm(&self, owner: &Owner, standbys: &[String], yes: bool) -> Result<()> {
        let Owner { row, task } = owner;
        let what = format!(
            "the owner of session {} is {} (version {}), task {task}; {} stands by",
            self.asked.session,
            row.tuple.owner,
            row.tuple.version,
            standbys.join(", ")
        );
        self.say(&what);
        if yes {
            return Ok(());
        }
        ensure!(std::io::stdin().is_terminal(), Refusal::NotConfirmed);
        self.bar.suspend(|| note("Stop this task? Type yes:"));
        let mut answer = String::new();
        tokio::io::BufReader::new(tokio::io::stdin()).read_line(&mut answer).await.context("cannot read the answer")?;
        ensure!(answer.trim() == "yes", Refusal::NotConfirmed);
        Ok(())
    }

    async fn once(&self, owner: &Owner) -> Result<Run> {
        let since = Instant::now();
        match self.tasks.stop(&owner.task, REASON).await {
            Outcome::Done(_) => {}
            Outcome::NotDone(fault) => return Err(self.of_cluster(fault)),
            // The answer got lost: the task tells whether it is to stop.
            Outcome::Unknown(fault) => {
                let described = self.tasks.describe(std::slice::from_ref(&owner.task)).await.map_err(|fault| self.of_cluster(fault))?;
                ensure!(described.tasks.iter().any(|task| task.desired_status == "STOPPED"), "the task was not stopped: {fault}");
            }
        }
        self.say(&format!("ECS stops {}", owner.task));
        self.successor(owner, since).await
    }

    async fn successor(&self, owner: &Owner, since: Instant) -> Result<Run> {
        let former = &owner.row;
        let mut taken_over = None;
        loop {
            let (read, now) = (self.leases.read(&self.key()).await, Instant::now());
            let waited = now.duration_since(since);
            let state = match read.map(|raw| raw.map(LeaseRow::try_from)) {
                Ok(Some(Ok(row))) => {
                    if examine::is_taken_over(former, &row) && taken_over.is_none() {
                        taken_over = Some(waited);
                        self.say(&format!(
                            "{} owns the session after {:.2} s (version {})",
                            row.tuple.owner,
                            waited.as_secs_f64(),
                            row.tuple.version
                        ));
                    }
                    if examine::has_succeeded(former, &row) {
                        return Ok(ended(owner, &row, taken_over.unwrap_or(waited), waited));
                    }
                    told(former, &row)
                }
                Ok(Some(Err(corrupt))) => bail!(Refusal::Corrupt(corrupt.to_string())),
                Ok(None) => bail!("the lease row is gone: somebody deleted it, which nothing in the product does"),
                // Nobody's fault as long as it passes: the session does not depend on this look.
                Err(fault) => format!("the lease row cannot be read: {fault}"),
            };
            ensure!(waited < PATIENCE, "no successor is at full service after {PATIENCE:?}: {state}");
            self.bar.set_message(format!("{:.0} s: {state}", waited.as_secs_f64()));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn key(&self) -> String {
        format!("LEASE#{}", self.asked.session)
    }

    /// Once for who reads along and once for a log: the bar is not drawn where nobody looks.
    fn say(&self, what: &str) {
        self.bar.suspend(|| note(what));
    }

    fn of_table(&self, fault: Fault) -> anyhow::Error {
        let hint = match fault.code {
            FaultCode::NotFound => {
                Some(format!("is `{}` the name of the lease table, and {} its region?", self.asked.table, self.region()))
            }
            FaultCode::NotAuthorized => Some("reading the lease table takes dynamodb:GetItem and dynamodb:Scan".to_owned()),
            _ => None,
        };
        explained(fault, hint)
    }

    fn of_cluster(&self, fault: Fault) -> anyhow::Error {
        let hint = match fault.code {
            FaultCode::NotFound => {
                Some(format!("is `{}` the cluster's name, {} its region, and the service's name right?", self.asked.cluster, self.region()))
            }
            FaultCode::NotAuthorized => Some("this takes ecs:DescribeTasks and ecs:StopTask, and ecs:ListTasks with --service".to_owned()),
            _ => None,
        };
        explained(fault, hint)
    }

    fn region(&self) -> &str {
        self.asked.region.as_deref().unwrap_or("?")
    }
}

fn explained(fault: Fault, hint: Option<String>) -> anyhow::Error {
    match hint {
        Some(hint) => anyhow::anyhow!("{fault}; {hint}"),
        None => fault.into(),
    }
}

fn told(former: &LeaseRow, row: &LeaseRow) -> String {
    let tuple = &row.tuple;
    if tuple.is_released() {
        "nobody owns the session".to_owned()
    } else if examine::is_taken_over(former, row) {
        format!("{} owns the session and says `{}`", tuple.owner, row.facts.service_level.as_deref().unwrap_or("nothing yet"))
    } else {
        format!("{} still owns the session", tuple.owner)
    }
}

fn ended(owner: &Owner, row: &LeaseRow, taken_over: Duration, full: Duration) -> Run {
    // Two readings of the successor's own clock.
    let told = row.facts.service_level_since.map(|since| taken_over + since.since(row.acquired_at)).map(|told| told.min(full));
    Run {
        task: owner.task.clone(),
        from: owner.row.tuple.owner.clone(),
        to: row.tuple.owner.clone(),
        from_version: owner.row.tuple.version,
        to_version: row.tuple.version,
        owner_seconds: round(taken_over.as_secs_f64()),
        full_seconds: round(full.as_secs_f64()),
        told_seconds: told.map(|told| round(told.as_secs_f64())),
    }
}

/// The most that a failover after the owner's end may take, in seconds, if anybody says.
async fn budget(target: &Target) -> Result<Option<f64>> {
    if target.config.is_empty() {
        return Ok(target.budget_seconds);
    }
    let binary = crate::worker::binary().await?;
    let output = tokio::process::Command::new(&binary).arg("budget").args(&target.config).arg("--json").output().await;
    let output = output.with_context(|| format!("cannot start {}", binary.display()))?;
    let budgets: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let session = budgets
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| Some(one["session_id"].as_str().unwrap_or_default()) == target.session.as_deref());
    let seconds = session.and_then(|session| session["owner_death"].as_f64());
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    seconds.map(Some).with_context(|| {
        format!("the configuration has no budget for session {}: {complaint}", target.session.as_deref().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_and_an_address_that_mean_nothing_are_refused_before_anything_is_stopped() {
        for text in ["NaN", "inf", "-5", "0", "1e400", "abc", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(seconds("1.5"), Ok(1.5));
        for text in ["", "nonsense", "ftp://localhost", "http://"] {
            assert!(http_address(text).is_err(), "{text}");
        }
        assert!(http_address("http://127.0.0.1:4566").is_ok());
    }
}
