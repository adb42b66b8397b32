//! `causeway dlq list`, `dlq show` and `dlq delete`.

use super::error::{CliError, exit};
use super::output::{self, Table};
use super::{ConfigArgs, load};
use crate::wiring::{self, Purpose, StoreSet};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::identity::EntryId;
use causeway_core::outcome::{Fault, FaultClass, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{Clock as _, DeadLetterFilter, DeadLetters, SystemClock};
use clap::{Args, Subcommand};
use core::fmt;
use serde::Serialize;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

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
#[group(required = true, multiple = false)]
struct Which {
    /// The letters of these ids, in whatever state: 32 hexadecimal digits each
    #[arg(long, num_args = 1..)]
    id: Vec<String>,
    /// Every letter of this route
    #[arg(long)]
    route: Option<String>,
    /// Every letter
    #[arg(long)]
    all: bool,
}

/// Arguments of `dlq list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    config: ConfigArgs,
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
    StoreSet::open_dead_letters(&config.stores, aws.as_ref(), purpose)?.ok_or_else(|| CliError::unusable("stores.dlq is not configured"))
}

fn told(fault: Fault) -> CliError {
    CliError::fault(format!("stores.dlq: {fault}"))
}

async fn list(args: ListArgs) -> Result<ExitCode, CliError> {
    let filter = filter(&args, SystemClock.wall())?;
    let store = open(&args.config, Purpose::Look).await?;
    let limit = args.limit as usize;
    let (mut letters, mut continuation) = (Vec::new(), args.continuation.clone());
    loop {
        let page = store.list(&filter, limit - letters.len(), continuation.as_deref()).await.map_err(told)?;
        letters.extend(page.letters);
        continuation = page.continuation;
        if continuation.is_none() || letters.len() >= limit {
            break;
        }
    }
    // A page that is just full may be the last one.
    if let Some(at) = &continuation
        && !has_more(&*store, &filter, at).await.map_err(told)?
    {
        continuation = None;
    }
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

/// Whether a letter stands behind `at`.
async fn has_more(store: &dyn DeadLetters, filter: &DeadLetterFilter, at: &str) -> Result<bool, Fault> {
    let mut at = Some(at.to_owned());
    while let Some(from) = at {
        let page = store.list(filter, 1, Some(&from)).await?;
        if !page.letters.is_empty() {
            return Ok(true);
        }
        at = page.continuation;
    }
    Ok(false)
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

/// Letters that are read at once, to be deleted one by one.
const DELETED_AT_ONCE: usize = 200;

/// What a deletion came to, or would.
#[derive(Debug, Default, Serialize)]
struct Deleted {
    dry_run: bool,
    matched: u64,
    deleted: u64,
    /// What is named and does not exist.
    missing: Vec<EntryId>,
}

async fn delete(args: DeleteArgs) -> Result<ExitCode, CliError> {
    let ids = args.which.id.iter().map(|id| parsed(id)).collect::<Result<Vec<_>, _>>()?;
    let store = open(&args.config, if args.yes { Purpose::Change } else { Purpose::Look }).await?;
    let mut deleted = Deleted { dry_run: !args.yes, ..Deleted::default() };
    let result = if ids.is_empty() {
        delete_all(&*store, args.which.route, args.yes, &mut deleted).await
    } else {
        delete_named(&*store, &ids, args.yes, &mut deleted).await
    };
    // What was done is told, also where it ended halfway.
    let shown = if args.json { output::json(&json!(deleted)) } else { output::line(&deleted.to_string()) };
    result?;
    shown.map(|code| if deleted.missing.is_empty() { code } else { ExitCode::from(exit::FAULT) })
}

impl fmt::Display for Deleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dry_run {
            write!(f, "{} dead letters would be deleted; say --yes to delete them", self.matched)?;
        } else {
            write!(f, "{} dead letters deleted", self.deleted)?;
        }
        self.missing.iter().try_for_each(|id| write!(f, "\nthere is no dead letter {id}"))
    }
}

async fn delete_named(store: &dyn DeadLetters, ids: &[EntryId], yes: bool, deleted: &mut Deleted) -> Result<(), CliError> {
    for id in ids {
        let there = if yes { gone(store, *id).await? } else { store.get(*id).await.map_err(told)?.is_some() };
        deleted.matched += u64::from(there);
        deleted.deleted += u64::from(there && yes);
        if !there {
            deleted.missing.push(*id);
        }
    }
    Ok(())
}

/// A tombstone is left alone: it keeps a replay of the first death from raising the letter again.
async fn delete_all(store: &dyn DeadLetters, route: Option<String>, yes: bool, deleted: &mut Deleted) -> Result<(), CliError> {
    let filter = DeadLetterFilter { route, ..DeadLetterFilter::default() };
    let mut continuation = None;
    loop {
        let page = store.list(&filter, DELETED_AT_ONCE, continuation.as_deref()).await.map_err(told)?;
        for letter in page.letters.iter().filter(|letter| letter.state != DeadLetterState::Redriven) {
            deleted.matched += 1;
            if yes {
                deleted.deleted += u64::from(gone(store, letter.id).await?);
            }
        }
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(());
        }
    }
}

/// Deletes one; answers whether there was one.
async fn gone(store: &dyn DeadLetters, id: EntryId) -> Result<bool, CliError> {
    match store.delete(id).await {
        Outcome::Done(there) => Ok(there),
        Outcome::NotDone(fault) | Outcome::Unknown(fault) => Err(told(fault)),
    }
}

fn filter(args: &ListArgs, now: UnixMillis) -> Result<DeadLetterFilter, CliError> {
    let classes = [FaultClass::Transient, FaultClass::Permanent, FaultClass::Rejected, FaultClass::Expired, FaultClass::Poison];
    if let Some(name) = args.category.as_deref().filter(|name| !classes.iter().any(|class| class.as_str() == *name)) {
        return Err(CliError::unusable(format!("--category {name}: one of permanent, rejected, expired, poison")));
    }
    if let Some(code) = args.code.as_deref().filter(|code| FaultCode::parse(code).is_none()) {
        let known: Vec<&str> = FaultCode::ALL.iter().map(|code| code.as_str()).collect();
        return Err(CliError::unusable(format!("--code {code}: one of {}", known.join(", "))));
    }
    let state = match args.state.as_deref() {
        None => None,
        Some(name) => {
            Some(DeadLetterState::parse(name).ok_or_else(|| CliError::unusable(format!("--state {name}: one of dead, redriven, parked")))?)
        }
    };
    let moment = |flag: &str, text: &Option<String>| text.as_deref().map(|text| moment(flag, text, now)).transpose();
    Ok(DeadLetterFilter {
        route: args.route.clone(),
        category: args.category.clone(),
        error_code: args.code.clone(),
        since: moment("--since", &args.since)?,
        before: moment("--before", &args.before)?,
        state,
    })
}

/// A time, or how long before `now`.
fn moment(flag: &str, text: &str, now: UnixMillis) -> Result<UnixMillis, CliError> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(UnixMillis(now.0.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))));
    }
    let at = humantime::parse_rfc3339_weak(text).map_err(|_| {
        CliError::unusable(format!("{flag} {text}: write a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h"))
    })?;
    Ok(UnixMillis(u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)))
}

/// A letter as it is shown. The payload only where one letter was asked for.
fn view(letter: &DeadLetter, with_payload: bool) -> Value {
    let message = &letter.message;
    let mut view = json!({
        "id": letter.id,
        "state": letter.state,
        "bridge_id": if letter.bridge.is_empty() { None } else { Some(&letter.bridge) },
        "route_id": letter.route,
        "binding_id": letter.binding,
        "session_id": letter.session,
        "source": letter.source,
        "address": letter.address,
        "category": letter.category.as_str(),
        "error_code": letter.error_code,
        "reason": letter.reason,
        "last_error": letter.last_error,
        "attempts": letter.attempts,
        "redrive_count": letter.redrive_count,
        "redriven_at": letter.redriven.as_ref().map(|redriven| output::time(redriven.at)),
        "redriven_by": letter.redriven.as_ref().map(|redriven| &redriven.request),
        "failed_at": output::time(letter.failed_at),
        "received_at": output::time(letter.received_at),
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
        "payload_bytes": message.payload.len() as u64 + letter.redriven.as_ref().map_or(0, |redriven| redriven.dropped_bytes),
    });
    let Some(fields) = view.as_object_mut().filter(|_| with_payload) else { return view };
    let properties = &message.properties;
    let (encoding, payload) = match core::str::from_utf8(&message.payload) {
        Ok(text) => ("text", text.to_owned()),
        Err(_) => ("base64", STANDARD.encode(&message.payload)),
    };
    let headers: Vec<Value> = properties.user.iter().map(|(name, value)| json!([name, value])).collect();
    for (name, value) in [
        ("content_type", json!(properties.content_type)),
        ("response_topic", json!(properties.response_topic)),
        ("correlation_data", json!(properties.correlation_data.as_ref().map(|data| STANDARD.encode(data)))),
        ("headers", json!(headers)),
        ("payload_encoding", json!(encoding)),
        ("payload", json!(payload)),
    ] {
        fields.insert(name.to_owned(), value);
    }
    view
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use bytes::Bytes;
    use causeway_core::dead_letter::Destination;
    use causeway_core::identity::Id128;
    use causeway_core::message::{Entry, Message};

    fn letter(payload: &'static [u8]) -> DeadLetter {
        let message = Message { topic: "a/b".to_owned(), payload: Bytes::from_static(payload), ..Message::default() };
        let entry = Entry {
            id: Id128(7),
            route: "r".into(),
            binding: "b".into(),
            address: None,
            refusal: None,
            source: "in".into(),
            received_at: UnixMillis(1),
            expires_at: None,
            redrive: None,
            message,
        };
        DeadLetter::new(&entry, &Destination::default(), &Fault::new(FaultCode::InvalidPayload, "no"), 1, UnixMillis(2))
    }

    #[test]
    fn payloads_are_text_or_base64_and_only_shown_when_asked_for() {
        assert!(view(&letter(b"hello"), false).get("payload").is_none());
        let text = view(&letter(b"hello"), true);
        assert_eq!((text["payload_encoding"].as_str(), text["payload"].as_str()), (Some("text"), Some("hello")));
        let binary = view(&letter(b"\xff\x00"), true);
        assert_eq!((binary["payload_encoding"].as_str(), binary["payload"].as_str()), (Some("base64"), Some("/wA=")));
    }

    #[test]
    fn moments_are_times_or_ages() {
        let now = UnixMillis(1_700_000_000_000);
        assert_eq!(moment("--since", "2h", now).unwrap(), UnixMillis(1_700_000_000_000 - 7_200_000));
        assert_eq!(moment("--since", "2023-11-14T22:13:20Z", now).unwrap(), now);
        assert_eq!(moment("--since", "yesterday", now).unwrap_err().code, 2);
    }
}
