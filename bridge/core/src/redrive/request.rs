//! What a redrive is asked for.

use super::continuation;
use super::fields::{Fields, InvalidEvent};
use crate::dead_letter::DeadLetter;
use crate::identity::EntryId;
use crate::outcome::{FaultClass, FaultCode};
use crate::units::UnixMillis;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::UNIX_EPOCH;

/// Letters that one request puts back unless it says otherwise.
pub const DEFAULT_LIMIT: u64 = 100;
/// Letters that one request puts back at most.
pub const MAX_LIMIT: u64 = 10_000;
/// Letters a second unless the request says otherwise.
pub const DEFAULT_RATE: u64 = 50;
/// Letters a second at most.
pub const MAX_RATE: u64 = 500;
/// Redrives after which a letter is set aside unless the request says otherwise.
pub const DEFAULT_MAX_REDRIVES: u64 = 3;

/// Where letters are put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Into the outbox of their route, through its mailbox: each exactly once, whatever is retried.
    #[default]
    Outbox,
    /// Straight to the queue, for routes without an outbox: at least once.
    Queue,
    /// No dead letters of the bridge, but a queue's own: SQS moves them.
    Sqs,
}

impl Mode {
    /// The name in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Queue => "queue",
            Self::Sqs => "sqs",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Outbox, Self::Queue, Self::Sqs].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// Which letters are meant. All given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// These alone; empty: not restricted.
    pub ids: Vec<EntryId>,
    /// Of this route.
    pub route: Option<String>,
    /// Of this category.
    pub category: Option<String>,
    /// With this error code.
    pub error_code: Option<String>,
    /// Failed at or after.
    pub since: Option<UnixMillis>,
    /// Failed before.
    pub before: Option<UnixMillis>,
}

impl Filter {
    /// Whether it restricts nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether `letter` is meant, its state aside.
    #[must_use]
    pub fn means(&self, letter: &DeadLetter) -> bool {
        (self.ids.is_empty() || self.ids.contains(&letter.id))
            && self.route.as_ref().is_none_or(|route| *route == letter.route)
            && self.category.as_ref().is_none_or(|category| category == letter.category.as_str())
            && self.error_code.as_ref().is_none_or(|code| *code == letter.error_code)
            && self.since.is_none_or(|since| letter.failed_at >= since)
            && self.before.is_none_or(|before| letter.failed_at < before)
    }

    /// What a continuation is bound to.
    #[must_use]
    pub fn fingerprint(&self, mode: Mode) -> String {
        let ids: Vec<String> = self.ids.iter().map(ToString::to_string).collect();
        let time = |at: Option<UnixMillis>| at.map(|at| at.0.to_string()).unwrap_or_default();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let parts = [
            mode.as_str().to_owned(),
            ids.join(","),
            text(&self.route),
            text(&self.category),
            text(&self.error_code),
            time(self.since),
            time(self.before),
        ];
        continuation::bound_to(&parts.each_ref().map(String::as_str))
    }
}

/// A redrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which letters.
    pub filter: Filter,
    /// Only tell what would be done.
    pub dry_run: bool,
    /// Letters at most.
    pub limit: u32,
    /// Letters a second at most.
    pub rate: u32,
    /// Letters that were put back so often already are set aside.
    pub max_redrives: u32,
    /// Where to.
    pub mode: Mode,
    /// Put back what expired, too, and without its expiry: it would die of it again.
    pub include_expired: bool,
    /// Where the last run stopped: the store's own continuation, or the index into [`Filter::ids`].
    pub resume: Option<String>,
    /// Names the redrive: kept with every message that it puts back.
    pub request_id: String,
    /// With [`Mode::Sqs`]: the dead-letter queue, by URL or ARN.
    pub queue: Option<String>,
    /// With [`Mode::Sqs`]: the ARN to move to; left out: the queues that the messages came from.
    pub destination: Option<String>,
}

impl Request {
    /// Reads an event. `fallback_id` names the redrive where the event does not.
    ///
    /// # Errors
    /// The first field that is wrong, unknown or missing.
    pub fn parse(event: &Value, fallback_id: &str) -> Result<Self, InvalidEvent> {
        let mut fields = Fields::of_event(event)?;
        let filter = match fields.object("filter")? {
            Some(fields) => parse_filter(fields)?,
            None => Filter::default(),
        };
        let all = fields.flag("all", false)?;
        let mode = match fields.text("mode")? {
            None => Mode::default(),
            Some(name) => Mode::parse(name).ok_or_else(|| InvalidEvent::new("mode", "one of outbox, queue, sqs is expected"))?,
        };
        let request = Self {
            dry_run: fields.flag("dry_run", true)?,
            limit: small(fields.number("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)?),
            rate: small(fields.number("rate_per_second", DEFAULT_RATE, 1, MAX_RATE)?),
            max_redrives: small(fields.number("max_redrives", DEFAULT_MAX_REDRIVES, 1, 1_000)?),
            include_expired: fields.flag("include_expired", false)?,
            request_id: parse_request_id(fields.text("request_id")?, fallback_id)?,
            queue: fields.text("queue")?.map(str::to_owned),
            destination: fields.text("destination")?.map(str::to_owned),
            resume: match fields.text("continuation")? {
                Some(text) => Some(continuation::read(text, &filter.fingerprint(mode))?.to_owned()),
                None => None,
            },
            mode,
            filter,
        };
        if request.mode == Mode::Sqs {
            fields.refuse(&["limit", "max_redrives", "include_expired"], "SQS moves a dead-letter queue as a whole: leave it out")?;
        }
        fields.finish()?;
        request.check(all)?;
        Ok(request)
    }

    /// Refuses what does not fit together.
    fn check(&self, all: bool) -> Result<(), InvalidEvent> {
        let refuse = |field: &str, message: &str| Err(InvalidEvent::new(field, message));
        if self.mode == Mode::Sqs {
            return match (&self.queue, self.filter.is_empty() && !all, &self.resume) {
                (None, _, _) => refuse("queue", "with mode sqs, the URL or ARN of the dead-letter queue is needed"),
                (_, false, _) => refuse("filter", "SQS moves a dead-letter queue as a whole: leave filter and all out"),
                (_, _, Some(_)) => refuse("continuation", "SQS moves a dead-letter queue as a whole: leave it out"),
                (Some(_), true, None) => Ok(()),
            };
        }
        match (&self.queue, &self.destination) {
            (Some(_), _) => return refuse("queue", "only with mode sqs"),
            (_, Some(_)) => return refuse("destination", "only with mode sqs"),
            (None, None) => {}
        }
        if self.filter.is_empty() && !all {
            return refuse("filter", "say which dead letters: `filter` with a condition or with `ids`, or `all: true`");
        }
        if !self.filter.is_empty() && all {
            return refuse("all", "either a filter or all, not both");
        }
        // The empty one is that of a run which ended before its first page did.
        let Some(at) = self.resume.as_deref().filter(|at| !at.is_empty()) else { return Ok(()) };
        let fits = if self.filter.ids.is_empty() {
            // As every store writes it: when a letter failed, and its id.
            at.split_once('#').is_some_and(|(failed_at, id)| failed_at.parse::<u64>().is_ok() && id.parse::<EntryId>().is_ok())
        } else {
            at.parse::<usize>().is_ok_and(|at| at < self.filter.ids.len())
        };
        if !fits {
            return refuse("continuation", "it does not point to a letter: begin without one");
        }
        Ok(())
    }

    /// The continuation that goes on at `at`.
    #[must_use]
    pub fn continuation(&self, at: &str) -> String {
        continuation::write(&self.filter.fingerprint(self.mode), at)
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn parse_request_id(text: Option<&str>, fallback: &str) -> Result<String, InvalidEvent> {
    let id = text.unwrap_or(fallback);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
    if id.is_empty() || id.len() > 128 || !id.bytes().all(plain) {
        return Err(InvalidEvent::new("request_id", "1 to 128 letters, digits and - _ . : / @ are expected"));
    }
    Ok(id.to_owned())
}

fn parse_filter(mut fields: Fields<'_>) -> Result<Filter, InvalidEvent> {
    let (mut ids, mut seen) = (Vec::new(), BTreeSet::new());
    if fields.is_empty_list("ids") {
        return Err(InvalidEvent::new("filter.ids", "the list is empty: name letters, or leave it out"));
    }
    for id in fields.texts("ids")? {
        let id: EntryId = id.parse().map_err(|_| InvalidEvent::new("filter.ids", "ids are 32 hexadecimal digits"))?;
        if seen.insert(id) {
            ids.push(id);
        }
    }
    if ids.len() as u64 > MAX_LIMIT {
        return Err(InvalidEvent::new("filter.ids", format!("{MAX_LIMIT} ids at most")));
    }
    let classes = [FaultClass::Transient, FaultClass::Permanent, FaultClass::Rejected, FaultClass::Expired, FaultClass::Poison];
    let category = fields.text("category")?;
    if category.is_some_and(|name| !classes.iter().any(|class| class.as_str() == name)) {
        let known = classes.map(FaultClass::as_str).join(", ");
        return Err(InvalidEvent::new("filter.category", format!("one of {known} is expected")));
    }
    let error_code = fields.text("error_code")?;
    if error_code.is_some_and(|code| FaultCode::parse(code).is_none()) {
        let known: Vec<&str> = FaultCode::ALL.iter().map(|code| code.as_str()).collect();
        return Err(InvalidEvent::new("filter.error_code", format!("one of {} is expected", known.join(", "))));
    }
    let route = fields.text("route_id")?;
    let since = parse_time("filter.since", fields.any("since"))?;
    let before = parse_time("filter.before", fields.any("before"))?;
    fields.finish()?;
    if let (Some(since), Some(before)) = (since, before)
        && since >= before
    {
        return Err(InvalidEvent::new("filter.before", "it must be later than filter.since"));
    }
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(Filter { ids, route: owned(route), category: owned(category), error_code: owned(error_code), since, before })
}

/// A time: milliseconds since 1970 (0 counts as left out), or text such as `2026-01-31T12:00:00Z`.
fn parse_time(field: &str, value: Option<&Value>) -> Result<Option<UnixMillis>, InvalidEvent> {
    let wrong = || InvalidEvent::new(field, "a time such as \"2026-01-31T12:00:00Z\", or milliseconds since 1970, is expected");
    match value {
        None => Ok(None),
        Some(Value::String(text)) => {
            let at = humantime::parse_rfc3339_weak(text).map_err(|_| wrong())?;
            let since = at.duration_since(UNIX_EPOCH).map_err(|_| wrong())?;
            Ok(Some(UnixMillis(u64::try_from(since.as_millis()).map_err(|_| wrong())?)))
        }
        Some(value) => match value.as_u64() {
            Some(0) => Ok(None),
            // Failure times have 14 digits in every store; what is longer is a mistake, such as nanoseconds.
            Some(millis) if millis < 100_000_000_000_000 => Ok(Some(UnixMillis(millis))),
            Some(_) | None => Err(wrong()),
        },
    }
}
