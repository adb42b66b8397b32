//! Looking at dead letters, deleting them and putting them back, for the command line and the admin interface alike.

use crate::wiring::StoreSet;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::identity::EntryId;
use causeway_core::outcome::{Fault, FaultClass, FaultCode, Outcome};
use causeway_core::redrive::Request;
use causeway_core::units::UnixMillis;
use causeway_duties::redrive::{Counts, Ports, Report, guarantee};
use causeway_ports::{Clock, DeadLetterFilter, DeadLetterPage, DeadLetters};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use thiserror::Error;

/// Letters that are read at once, to be deleted one by one.
const DELETED_AT_ONCE: usize = 200;

/// A condition that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {message}")]
pub struct InvalidCondition {
    /// The field of [`Conditions`].
    pub field: &'static str,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// Which letters, as people write it. All given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Conditions {
    /// Of this route.
    pub route_id: Option<String>,
    /// Of this category: permanent, rejected, expired, poison.
    pub category: Option<String>,
    /// With this error code.
    pub error_code: Option<String>,
    /// In this state: dead, redriven, parked.
    pub state: Option<String>,
    /// What failed at or after this: a time, or so long ago.
    pub since: Option<String>,
    /// What failed before this.
    pub before: Option<String>,
}

impl Conditions {
    /// Whether none is given: every letter is meant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What the store is asked for. Ages count from `now`.
    ///
    /// # Errors
    /// The first condition that means nothing.
    pub fn filter(&self, now: UnixMillis) -> Result<DeadLetterFilter, InvalidCondition> {
        let refuse = |field, message: String| Err(InvalidCondition { field, message });
        let classes = [FaultClass::Transient, FaultClass::Permanent, FaultClass::Rejected, FaultClass::Expired, FaultClass::Poison];
        if self.category.as_deref().is_some_and(|name| !classes.iter().any(|class| class.as_str() == name)) {
            return refuse("category", "one of permanent, rejected, expired, poison".to_owned());
        }
        if self.error_code.as_deref().is_some_and(|code| FaultCode::parse(code).is_none()) {
            let known: Vec<&str> = FaultCode::ALL.iter().map(|code| code.as_str()).collect();
            return refuse("error_code", format!("one of {}", known.join(", ")));
        }
        let state = match self.state.as_deref().map(DeadLetterState::parse) {
            None => None,
            Some(Some(state)) => Some(state),
            Some(None) => return refuse("state", "one of dead, redriven, parked".to_owned()),
        };
        let moment = |field, text: &Option<String>| text.as_deref().map(|text| moment(field, text, now)).transpose();
        let (since, before) = (moment("since", &self.since)?, moment("before", &self.before)?);
        if since.zip(before).is_some_and(|(since, before)| since >= before) {
            return refuse("before", "no dead letter can meet both: `since` is not before `before`".to_owned());
        }
        let (route, category, error_code) = (self.route_id.clone(), self.category.clone(), self.error_code.clone());
        Ok(DeadLetterFilter { route, category, error_code, since, before, state })
    }
}

/// A time, or how long before `now`.
fn moment(field: &'static str, text: &str, now: UnixMillis) -> Result<UnixMillis, InvalidCondition> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(UnixMillis(now.0.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))));
    }
    let message = "write a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h";
    let at = humantime::parse_rfc3339_weak(text).map_err(|_| InvalidCondition { field, message: message.to_owned() })?;
    Ok(UnixMillis(u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)))
}

/// At most `limit` letters, oldest first, from where the last listing ended. The continuation is `None` where no further letter is meant.
///
/// # Errors
/// Where the store cannot be read.
pub async fn list(
    store: &dyn DeadLetters,
    filter: &DeadLetterFilter,
    limit: usize,
    continuation: Option<String>,
) -> Result<DeadLetterPage, Fault> {
    let mut found = DeadLetterPage { letters: Vec::new(), continuation };
    loop {
        let page = store.list(filter, limit - found.letters.len(), found.continuation.as_deref()).await?;
        found.letters.extend(page.letters);
        found.continuation = page.continuation;
        if found.continuation.is_none() || found.letters.len() >= limit {
            break;
        }
    }
    // A page that is just full may be the last one.
    if let Some(at) = &found.continuation
        && !has_more(store, filter, at).await?
    {
        found.continuation = None;
    }
    Ok(found)
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

/// How many letters are dead, by category: at most `most` are counted.
///
/// # Errors
/// Where the store cannot be read.
pub async fn count(store: &dyn DeadLetters, most: usize) -> Result<(BTreeMap<String, u64>, bool), Fault> {
    let filter = DeadLetterFilter { state: Some(DeadLetterState::Dead), ..DeadLetterFilter::default() };
    let (mut counts, mut seen, mut continuation) = (BTreeMap::new(), 0, None);
    loop {
        let page = store.list(&filter, DELETED_AT_ONCE.min(most - seen), continuation.as_deref()).await?;
        seen += page.letters.len();
        for letter in page.letters {
            *counts.entry(letter.category.as_str().to_owned()).or_insert(0) += 1;
        }
        continuation = page.continuation;
        if continuation.is_none() || seen >= most {
            return Ok((counts, continuation.is_none()));
        }
    }
}

/// Which letters are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doomed {
    /// These, in whatever state.
    Named(Vec<EntryId>),
    /// Every one that the filter means, but for tombstones: they keep a replay of the first death from raising the letter again.
    Meant(DeadLetterFilter),
}

/// What a deletion came to, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// Nothing was deleted.
    pub dry_run: bool,
    /// Letters that the request means.
    pub matched: u64,
    /// Letters that are gone.
    pub deleted: u64,
    /// What is named and does not exist.
    pub missing: Vec<EntryId>,
}

/// Deletes, or tells what would be deleted where `deleted.dry_run` says so. What was done stands in `deleted`, also where it ended halfway.
///
/// # Errors
/// Where the store cannot be read or written.
pub async fn delete(store: &dyn DeadLetters, doomed: &Doomed, deleted: &mut Deleted) -> Result<(), Fault> {
    let yes = !deleted.dry_run;
    match doomed {
        Doomed::Named(ids) => {
            for id in ids {
                let there = if yes { gone(store, *id).await? } else { store.get(*id).await?.is_some() };
                deleted.matched += u64::from(there);
                deleted.deleted += u64::from(there && yes);
                if !there {
                    deleted.missing.push(*id);
                }
            }
            Ok(())
        }
        Doomed::Meant(filter) => {
            let mut continuation = None;
            loop {
                let page = store.list(filter, DELETED_AT_ONCE, continuation.as_deref()).await?;
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
    }
}

/// Deletes one; answers whether there was one.
async fn gone(store: &dyn DeadLetters, id: EntryId) -> Result<bool, Fault> {
    match store.delete(id).await {
        Outcome::Done(there) => Ok(there),
        Outcome::NotDone(fault) | Outcome::Unknown(fault) => Err(fault),
    }
}

/// What a redrive calls, of what is open; what is missing for it, where something is.
///
/// # Errors
/// The section of the configuration that is missing, and why it matters.
pub fn redrive_ports(
    stores: &StoreSet,
    sinks: &[(String, Arc<dyn causeway_ports::Sink>)],
    clock: Arc<dyn Clock>,
) -> Result<Ports, &'static str> {
    let letters = stores.dead_letters.clone().ok_or("stores.dlq is not configured")?;
    let redrives = stores.redrives.clone().ok_or("stores.outbox is not configured: there is nothing to put back into")?;
    Ok(Ports { letters, redrives, sinks: sinks.iter().cloned().collect(), clock })
}

/// What a redrive came to, for programs.
#[must_use]
pub fn redriven(request: &Request, report: &Report) -> Value {
    let (tally, counts) = (&report.tally, Counts::of(request, &report.tally));
    json!({
        "request_id": request.request_id, "mode": request.mode.as_str(), "guarantee": guarantee(request.mode), "dry_run": request.dry_run,
        "matched": counts.matched, "redriven": counts.redriven, "skipped": counts.skipped, "parked": counts.parked, "failed": counts.failed,
        "would_redrive": counts.would_redrive, "would_park": counts.would_park,
        "errors": tally.errors, "continuation": report.continuation, "complete": report.continuation.is_none(),
    })
}

/// A moment as people and programs read it: `2026-01-31T12:00:00.000Z`.
#[must_use]
pub fn time(at: UnixMillis) -> String {
    // Later than the year 9999 is a damaged row, not a time.
    const LAST: u64 = 253_402_300_799_999;
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(at.0.min(LAST))).to_string()
}

/// A letter as it is shown. The payload only where one letter was asked for.
#[must_use]
pub fn view(letter: &DeadLetter, with_payload: bool) -> Value {
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
        "redriven_at": letter.redriven.as_ref().map(|redriven| time(redriven.at)),
        "redriven_by": letter.redriven.as_ref().map(|redriven| &redriven.request),
        "failed_at": time(letter.failed_at),
        "received_at": time(letter.received_at),
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
        let since = |text: &str| Conditions { since: Some(text.to_owned()), ..Conditions::default() }.filter(now);
        assert_eq!(since("2h").unwrap().since, Some(UnixMillis(1_700_000_000_000 - 7_200_000)));
        assert_eq!(since("2023-11-14T22:13:20Z").unwrap().since, Some(now));
        assert_eq!(since("yesterday").unwrap_err().field, "since");
        let never = Conditions { since: Some("1h".to_owned()), before: Some("2h".to_owned()), ..Conditions::default() };
        assert_eq!(never.filter(now).unwrap_err().field, "before", "nothing can be meant, which is a slip and no answer");
    }

    #[test]
    fn conditions_that_no_letter_could_meet_are_refused() {
        type Set = fn(&mut Conditions);
        let cases: [(&str, Set); 4] = [
            ("category", |conditions| conditions.category = Some("bad".to_owned())),
            ("error_code", |conditions| conditions.error_code = Some("NONE_SUCH".to_owned())),
            ("state", |conditions| conditions.state = Some("asleep".to_owned())),
            ("before", |conditions| conditions.before = Some(String::new())),
        ];
        for (field, set) in cases {
            let mut conditions = Conditions::default();
            set(&mut conditions);
            assert!(!conditions.is_empty());
            assert_eq!(conditions.filter(UnixMillis(0)).unwrap_err().field, field);
        }
    }
}
