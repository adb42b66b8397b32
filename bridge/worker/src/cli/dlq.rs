//! `causeway dlq list`, `dlq show` and `dlq delete`.

use super::error::{CliError, exit};
use super::output::{self, Table};
use super::{ConfigArgs, load};
use crate::dead_letters::{self, Conditions, Deleted, Doomed, InvalidCondition, view};
use crate::http::admin;
use crate::wiring::{self, Purpose, StoreSet, WiringError};
use causeway_core::config::Config;
use causeway_core::identity::EntryId;
use causeway_core::outcome::Fault;
use causeway_ports::{Clock as _, DeadLetterFilter, DeadLetters, SystemClock};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;

/// Commands on dead letters.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, oldest first
    List(ListArgs),
    /// Put dead letters back on their way
    Redrive(Box<super::redrive::RedriveArgs>),
    /// Show one dead letter, its payload included
    Show {
        #[allow(missing_docs, reason = "clap shows what ConfigArgs says")]
        #[command(flatten)]
        config: ConfigArgs,
        /// Its id: 32 hexadecimal digits
        #[arg(long)]
        id: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete dead letters for good: what was parked too, not what was put back
    Delete(DeleteArgs),
}

/// Arguments of `dlq delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    which: Which,
    /// Delete; without it the command only tells what it would delete
    #[arg(long)]
    yes: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Which letters are deleted.
#[derive(Debug, Args)]
struct Which {
    /// The letters of these ids, in whatever state: 32 hexadecimal digits each
    #[arg(long, num_args = 1.., conflicts_with_all = ["all", "route", "category", "code", "state", "since", "before"])]
    id: Vec<String>,
    #[command(flatten)]
    conditions: ConditionArgs,
    /// Every letter
    #[arg(long, conflicts_with_all = ["route", "category", "code", "state", "since", "before"])]
    all: bool,
}

/// Which letters are meant: those that meet every condition that is given.
#[derive(Debug, Args)]
struct ConditionArgs {
    /// Only of this route
    #[arg(long)]
    route: Option<String>,
    /// Only of this category: permanent, rejected, expired, poison
    #[arg(long)]
    category: Option<String>,
    /// Only with this error code, such as PAYLOAD_TOO_LARGE
    #[arg(long)]
    code: Option<String>,
    /// Only in this state: dead, redriven, parked
    #[arg(long)]
    state: Option<String>,
    /// Only what failed at or after this: a time such as 2026-01-31T12:00:00Z, or so long ago, such as 2h
    #[arg(long)]
    since: Option<String>,
    /// Only what failed before this
    #[arg(long)]
    before: Option<String>,
}

impl ConditionArgs {
    fn conditions(&self) -> Conditions {
        Conditions {
            route_id: self.route.clone(),
            category: self.category.clone(),
            error_code: self.code.clone(),
            state: self.state.clone(),
            since: self.since.clone(),
            before: self.before.clone(),
        }
    }

    fn filter(&self) -> Result<DeadLetterFilter, CliError> {
        self.conditions().filter(SystemClock.wall()).map_err(|InvalidCondition { field, message }| {
            let flag = match field {
                "error_code" => "code",
                "route_id" => "route",
                field => field,
            };
            CliError::unusable(format!("--{flag}: {message}"))
        })
    }
}

/// Arguments of `dlq list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    conditions: ConditionArgs,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Where the last listing ended
    #[arg(long)]
    continuation: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Looks.
///
/// # Errors
/// Where the store cannot be read, or there is no such letter.
pub async fn execute(command: DlqCommand) -> Result<ExitCode, CliError> {
    match command {
        DlqCommand::List(args) => list(args).await,
        DlqCommand::Redrive(args) => super::redrive::execute(*args).await,
        DlqCommand::Show { config, id, json } => show(&config, &id, json).await,
        DlqCommand::Delete(args) => delete(args).await,
    }
}

async fn open(config: &ConfigArgs, purpose: Purpose) -> Result<Arc<dyn DeadLetters>, CliError> {
    let config = load::load(config)?.config;
    let aws = wiring::aws(&config).await;
    let store = StoreSet::open_dead_letters(&config.stores, aws.as_ref(), purpose)
        .map_err(|error| beside_a_worker(error, &config, "dlq/delete"))?;
    store.ok_or_else(|| CliError::unusable("stores.dlq is not configured"))
}

/// What a store says that another process writes to.
pub(super) const STORE_LOCKED: &str = "STORE_LOCKED";

/// Where a running worker has the file, the way to change it is that worker's own: its `operation`.
pub(super) fn beside_a_worker(error: WiringError, config: &Config, operation: &str) -> CliError {
    if error.code != STORE_LOCKED {
        return error.into();
    }
    let address = config.http.admin_addr.get();
    let way = if config.http.has_admin() {
        format!(
            "or let the running worker do it: POST {}/{operation} at http.admin_addr ({address}), with a key of the admin interface",
            admin::PREFIX
        )
    } else {
        "or set `http.admin_api_key`, and the running worker does it through its admin interface".to_owned()
    };
    CliError::unusable(format!("{error}; {way}"))
}

fn told(fault: Fault) -> CliError {
    CliError::fault(format!("stores.dlq: {fault}"))
}

async fn list(args: ListArgs) -> Result<ExitCode, CliError> {
    let filter = args.conditions.filter()?;
    let store = open(&args.config, Purpose::Look).await?;
    let page = dead_letters::list(&*store, &filter, args.limit as usize, args.continuation.clone()).await.map_err(told)?;
    let (letters, continuation) = (page.letters, page.continuation);
    if args.json {
        let letters: Vec<Value> = letters.iter().map(|letter| view(letter, false)).collect();
        return output::json(&json!({ "letters": letters, "continuation": continuation }));
    }
    if letters.is_empty() {
        return output::line("no dead letters");
    }
    let mut table = Table::new(&["ID", "FAILED AT", "ROUTE", "CATEGORY", "CODE", "STATE", "ATTEMPTS", "REDRIVES", "TOPIC", "LAST ERROR"]);
    for letter in &letters {
        table.row(vec![
            letter.id.to_string(),
            output::time(letter.failed_at),
            letter.route.clone(),
            letter.category.as_str().to_owned(),
            letter.error_code.clone(),
            letter.state.as_str().to_owned(),
            letter.attempts.to_string(),
            letter.redrive_count.to_string(),
            letter.message.topic.clone(),
            letter.last_error.clone(),
        ]);
    }
    let more = continuation.map(|at| format!("\nthere are more: --continuation {at}")).unwrap_or_default();
    output::line(&format!("{}{more}", table.render()))
}

async fn show(config: &ConfigArgs, id: &str, json: bool) -> Result<ExitCode, CliError> {
    let id = parsed(id)?;
    let letter = open(config, Purpose::Look)
        .await?
        .get(id)
        .await
        .map_err(told)?
        .ok_or_else(|| CliError::fault(format!("there is no dead letter {id}")))?;
    let view = view(&letter, true);
    if json {
        return output::json(&view);
    }
    let mut table = Table::new(&["FIELD", "VALUE"]);
    for (name, value) in view.as_object().into_iter().flatten() {
        table.row(vec![name.clone(), value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)]);
    }
    output::line(&table.render())
}

fn parsed(id: &str) -> Result<EntryId, CliError> {
    id.parse().map_err(|error| CliError::unusable(format!("--id {id}: {error}")))
}

async fn delete(args: DeleteArgs) -> Result<ExitCode, CliError> {
    let ids = args.which.id.iter().map(|id| parsed(id)).collect::<Result<Vec<_>, _>>()?;
    let conditions = &args.which.conditions;
    if ids.is_empty() && conditions.conditions().is_empty() && !args.which.all {
        return Err(CliError::unusable("say which: --id, --route, --category, --code, --state, --since, --before, or --all"));
    }
    let doomed = if ids.is_empty() { Doomed::Meant(conditions.filter()?) } else { Doomed::Named(ids) };
    let store = open(&args.config, if args.yes { Purpose::Change } else { Purpose::Look }).await?;
    let mut deleted = Deleted { dry_run: !args.yes, ..Deleted::default() };
    let result = dead_letters::delete(&*store, &doomed, &mut deleted).await;
    // What was done is told, also where it ended halfway.
    let shown = if args.json { output::json(&json!(deleted)) } else { output::line(&text(&deleted)) };
    result.map_err(told)?;
    shown.map(|code| if deleted.missing.is_empty() { code } else { ExitCode::from(exit::FAULT) })
}

fn text(deleted: &Deleted) -> String {
    let letters = |count: u64| if count == 1 { "1 dead letter".to_owned() } else { format!("{count} dead letters") };
    let mut text = if deleted.dry_run {
        format!("{} would be deleted; say --yes to do it", letters(deleted.matched))
    } else {
        format!("{} deleted", letters(deleted.deleted))
    };
    for id in &deleted.missing {
        text.push_str(&format!("\nthere is no dead letter {id}"));
    }
    text
}
