//! `causeway dlq list` and `dlq show`.

use super::error::CliError;
use super::output::{self, Table};
use super::{ConfigArgs, load};
use crate::clock::SystemClock;
use crate::wiring::{self, Purpose, StoreSet};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::identity::EntryId;
use causeway_core::outcome::{Fault, FaultClass, FaultCode};
use causeway_core::units::UnixMillis;
use causeway_ports::{Clock as _, DeadLetterFilter, DeadLetters};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Commands on dead letters.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, oldest first
    List(ListArgs),
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
        DlqCommand::Show { config, id, json } => show(&config, &id, json).await,
    }
}

async fn open(config: &ConfigArgs) -> Result<Arc<dyn DeadLetters>, CliError> {
    let config = load::load(config)?.config;
    let aws = wiring::aws(&config).await;
    StoreSet::open_dead_letters(&config.stores, aws.as_ref(), Purpose::Look)?
        .ok_or_else(|| CliError::unusable("stores.dlq is not configured"))
}

fn told(fault: Fault) -> CliError {
    CliError::fault(format!("stores.dlq: {fault}"))
}

async fn list(args: ListArgs) -> Result<ExitCode, CliError> {
    let filter = filter(&args, SystemClock.wall())?;
    let store = open(&args.config).await?;
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
    let id: EntryId = id.parse().map_err(|error| CliError::unusable(format!("--id {id}: {error}")))?;
    let letter =
        open(config).await?.get(id).await.map_err(told)?.ok_or_else(|| CliError::fault(format!("there is no dead letter {id}")))?;
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
        "failed_at": output::time(letter.failed_at),
        "received_at": output::time(letter.received_at),
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
        "payload_bytes": message.payload.len(),
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
