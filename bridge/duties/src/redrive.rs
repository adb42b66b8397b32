//! Carrying out a redrive: list, plan, act at the set rate, tell.

use crate::{Store, StoreFault};
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultClass, FaultCode, Outcome};
use causeway_core::redrive::{Action, Bucket, End, Mode, Reason, Request, Routes, Tally, plan};
use causeway_core::units::Instant;
use causeway_ports::{Clock, DeadLetterFilter, DeadLetters, PutBack, Redrives, Sink};
use core::time::Duration;
use futures_util::StreamExt as _;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Letters in memory at most: a letter may have a mebibyte.
const PAGE: usize = 25;
/// Letters acted on side by side.
const SIDE_BY_SIDE: usize = 8;
/// How often an action is tried.
const ATTEMPTS: u32 = 5;
/// The pause before the second attempt; it doubles from one to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one send may take.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// What a redrive calls.
#[derive(Clone)]
pub struct Ports {
    /// The letters.
    pub letters: Arc<dyn DeadLetters>,
    /// Their way back.
    pub redrives: Arc<dyn Redrives>,
    /// Destinations by the sender's id, for routes without an outbox. Letters for another one are left as [`Reason::OutOfReach`], in a dry run too.
    pub sinks: BTreeMap<String, Arc<dyn Sink>>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

impl core::fmt::Debug for Ports {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

/// What came of a redrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The counts.
    pub tally: Tally,
    /// Where to go on; `None`: every letter that is meant was seen.
    pub continuation: Option<String>,
}

/// The counts of an answer. What a dry run would do is not counted as done: `matched` is the sum of all the others, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Letters that the request meant.
    pub matched: u64,
    /// Put back.
    pub redriven: u64,
    /// Left, each for a reason of its own.
    pub skipped: u64,
    /// Set aside.
    pub parked: u64,
    /// Left, because something does not work.
    pub failed: u64,
    /// A dry run: would be put back.
    pub would_redrive: u64,
    /// A dry run: would be set aside.
    pub would_park: u64,
}

impl Counts {
    /// What `tally` says of `request`.
    #[must_use]
    pub const fn of(request: &Request, tally: &Tally) -> Self {
        let (done, dry) = if request.dry_run { (0, 1) } else { (1, 0) };
        Self {
            matched: tally.matched(),
            redriven: tally.redriven * done,
            skipped: tally.skipped,
            parked: tally.parked * done,
            failed: tally.failed,
            would_redrive: tally.redriven * dry,
            would_park: tally.parked * dry,
        }
    }
}

/// Carries out `request` until it is done, its limit is reached, or `deadline` comes. `progress` hears of every page.
///
/// # Errors
/// Where nothing could be done, because a store cannot be used. What fails later is part of the report.
pub async fn run(
    request: &Request,
    routes: &Routes,
    ports: &Ports,
    deadline: Instant,
    progress: &(dyn Fn(&Tally) + Sync),
) -> Result<Report, StoreFault> {
    let run = Run { request, ports, deadline };
    let mut bucket = Bucket::new(request.rate, ports.clock.now());
    let mut tally = Tally::default();
    let mut at = request.resume.clone();
    loop {
        let room = usize::try_from(u64::from(request.limit).saturating_sub(tally.matched())).unwrap_or(usize::MAX);
        if room == 0 || ports.clock.now() >= deadline {
            return Ok(Report { tally, continuation: Some(request.continuation(at.as_deref().unwrap_or_default())) });
        }
        // A page takes a second at most, so that a slow run does not overstay its time by much.
        let page_size = room.min(PAGE).min((request.rate as usize).max(1));
        let page = match run.list(at.as_deref(), page_size).await {
            Ok(page) => page,
            Err(fault) if tally.matched() == 0 => return Err(StoreFault { store: Store::DeadLetters, fault }),
            Err(fault) => return Ok(broken_off(request, tally, at.as_deref(), &fault)),
        };
        let before = tally.matched();
        for missing in page.missing {
            tally.count(missing, End::Skipped(Reason::NotFound, "there is no such dead letter".to_owned()));
        }
        let actions = plan(&page.letters, request, routes, ports.clock.wall());
        let ended = run.carry_out(actions, &mut bucket, &mut tally).await;
        progress(&tally);
        if let Some(broken) = ended {
            if let (Broken::Store(fault), 0, 0) = (broken, before, tally.redriven + tally.parked) {
                return Err(fault);
            }
            return Ok(Report { tally, continuation: Some(request.continuation(at.as_deref().unwrap_or_default())) });
        }
        match page.next {
            None => return Ok(Report { tally, continuation: None }),
            next => at = next,
        }
    }
}

fn broken_off(request: &Request, mut tally: Tally, at: Option<&str>, fault: &Fault) -> Report {
    tally.errors.push(causeway_core::redrive::ItemError {
        id: "dlq".to_owned(),
        code: reason_of(fault).as_str(),
        message: format!("the dead letters could not be read further: {fault}"),
    });
    Report { tally, continuation: Some(request.continuation(at.unwrap_or_default())) }
}

struct Listed {
    letters: Vec<DeadLetter>,
    missing: Vec<causeway_core::identity::EntryId>,
    next: Option<String>,
}

#[derive(Clone, Copy)]
struct Run<'a> {
    request: &'a Request,
    ports: &'a Ports,
    deadline: Instant,
}

/// Why a page was not brought to its end.
enum Broken {
    /// The time is up.
    Time,
    /// A fault that the next letter would meet too.
    Store(StoreFault),
}

/// How one action ended, and the fault that the next letter would meet too, if there was one.
struct Ended {
    id: causeway_core::identity::EntryId,
    end: End,
    broken: Option<StoreFault>,
}

impl<'a> Run<'a> {
    /// The letters after `at`, oldest first.
    async fn list(self, at: Option<&str>, limit: usize) -> Result<Listed, Fault> {
        let filter = &self.request.filter;
        if !filter.ids.is_empty() {
            return self.by_ids(at, limit).await;
        }
        let filter = DeadLetterFilter {
            route: filter.route.clone(),
            category: filter.category.clone(),
            error_code: filter.error_code.clone(),
            since: filter.since,
            before: filter.before,
            state: Some(DeadLetterState::Dead),
        };
        let page = self.ports.letters.list(&filter, limit, at.filter(|at| !at.is_empty())).await?;
        Ok(Listed { letters: page.letters, missing: Vec::new(), next: page.continuation })
    }

    async fn by_ids(self, at: Option<&str>, limit: usize) -> Result<Listed, Fault> {
        let ids = &self.request.filter.ids;
        let from = at.and_then(|at| at.parse::<usize>().ok()).unwrap_or(0).min(ids.len());
        let to = from.saturating_add(limit).min(ids.len());
        let (mut letters, mut missing) = (Vec::new(), Vec::new());
        for id in ids.get(from..to).unwrap_or_default() {
            match self.ports.letters.get(*id).await? {
                Some(letter) => letters.push(letter),
                None => missing.push(*id),
            }
        }
        Ok(Listed { letters, missing, next: (to < ids.len()).then(|| to.to_string()) })
    }

    /// Acts on a page; answers what ended it early, if something did. What was not begun is not counted.
    async fn carry_out(self, actions: Vec<Action>, bucket: &mut Bucket, tally: &mut Tally) -> Option<Broken> {
        let mut waiting = actions.into_iter();
        let mut under_way = futures_util::stream::FuturesUnordered::new();
        let mut broken = None;
        loop {
            while broken.is_none() && under_way.len() < SIDE_BY_SIDE {
                let Some(action) = waiting.next() else { break };
                if self.ports.clock.now() >= self.deadline {
                    broken = Some(Broken::Time);
                    break;
                }
                let wait = if self.request.dry_run || matches!(action, Action::Skip { .. }) {
                    Duration::ZERO
                } else {
                    bucket.take(self.ports.clock.now())
                };
                under_way.push(self.act(action, wait));
            }
            let Some(ended) = under_way.next().await else { break };
            tally.count(ended.id, ended.end);
            if broken.is_none() {
                broken = ended.broken.map(Broken::Store);
            }
        }
        broken
    }

    fn act(self, action: Action, wait: Duration) -> impl Future<Output = Ended> + use<'a> {
        let Self { request, ports, deadline } = self;
        async move {
            let id = action.id();
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let ended = |end| Ended { id, end, broken: None };
            if let Some(message) = out_of_reach(&action, ports) {
                return ended(End::Skipped(Reason::OutOfReach, message));
            }
            if request.dry_run {
                return ended(match action {
                    Action::Skip { reason, message, .. } => End::Skipped(reason, message),
                    Action::SetAside { .. } => End::Parked,
                    Action::PutBack { .. } | Action::Send { .. } => End::Redriven,
                });
            }
            let attempt = Attempts { clock: &*ports.clock, deadline };
            let (store, outcome, done) = match &action {
                Action::Skip { reason, message, .. } => return ended(End::Skipped(*reason, message.clone())),
                Action::SetAside { letter } => {
                    (Store::DeadLetters, attempt.until_known(|| ports.redrives.set_aside(letter)).await, End::Parked)
                }
                Action::PutBack { letter, mailbox, mail } => {
                    let put_back = || ports.redrives.put_back(letter, mailbox, mail, &request.request_id);
                    (Store::Outbox, attempt.until_known(put_back).await, End::Redriven)
                }
                Action::Send { letter, sender, entry } => {
                    let Some(sink) = ports.sinks.get(sender) else {
                        return ended(End::Skipped(Reason::OutOfReach, String::new()));
                    };
                    let sink = sink.at(&letter.address).unwrap_or_else(|| Arc::clone(sink));
                    if let Err(fault) = send(sink.as_ref(), entry, &attempt).await {
                        return failed(id, Store::Queue, fault);
                    }
                    // It is sent: whoever else put it back meanwhile, this one did too.
                    match attempt.until_known(|| ports.redrives.mark_redriven(letter, &request.request_id)).await {
                        Ok(PutBack::Done | PutBack::Conflict) => return ended(End::Redriven),
                        Err(fault) => {
                            let detail =
                                format!("it was sent, and its letter could not be marked: it may be sent again ({})", fault.detail);
                            return failed(id, Store::DeadLetters, Fault { detail, ..fault });
                        }
                    }
                }
            };
            match outcome {
                Ok(PutBack::Done) => ended(done),
                Ok(PutBack::Conflict) => {
                    ended(End::Skipped(Reason::Conflict, "somebody put it back, set it aside or deleted it meanwhile".to_owned()))
                }
                Err(fault) => failed(id, store, fault),
            }
        }
    }
}

/// Why nobody here could send what `action` would send, if that is so.
fn out_of_reach(action: &Action, ports: &Ports) -> Option<String> {
    let Action::Send { letter, sender, .. } = action else { return None };
    (!ports.sinks.contains_key(sender)).then(|| {
        format!(
            "route `{}` sends past the outbox through `{sender}`, an MQTT broker's sender, which is not connected here: \
             `causeway dlq redrive --mode queue --yes` sends it from where that broker is reached",
            letter.route
        )
    })
}

fn failed(id: causeway_core::identity::EntryId, store: Store, fault: Fault) -> Ended {
    let reason = reason_of(&fault);
    // A message that is refused for itself says nothing about the next one.
    let about_the_letter = fault.code.class() == FaultClass::Rejected;
    let end = End::Failed(reason, fault.to_string());
    Ended { id, end, broken: (!about_the_letter).then_some(StoreFault { store, fault }) }
}

/// The code that an answer gives a fault.
#[must_use]
pub fn reason_of(fault: &Fault) -> Reason {
    match fault.code {
        FaultCode::Throttled => Reason::Throttled,
        FaultCode::PayloadTooLarge => Reason::PayloadTooLarge,
        _ => Reason::Internal,
    }
}

async fn send(sink: &dyn Sink, entry: &Arc<Entry>, attempts: &Attempts<'_>) -> Result<(), Fault> {
    let batch = [Arc::clone(entry)];
    let once = || async {
        let outcome = sink.send(&batch, SEND_TIMEOUT).await.into_iter().next();
        outcome.unwrap_or_else(|| Outcome::Unknown(Fault::new(FaultCode::ProtocolError, "no outcome for this message")))
    };
    attempts.until_known(once).await
}

/// Tries again what may be tried again: a redrive is the same however often it is asked for.
struct Attempts<'a> {
    clock: &'a dyn Clock,
    deadline: Instant,
}

impl Attempts<'_> {
    async fn until_known<T, F: Future<Output = Outcome<T>>>(&self, mut once: impl FnMut() -> F) -> Result<T, Fault> {
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            let (fault, again) = match once().await {
                Outcome::Done(value) => return Ok(value),
                Outcome::Unknown(fault) => (fault, true),
                Outcome::NotDone(fault) => {
                    let again = fault.is_transient();
                    (fault, again)
                }
            };
            if !again || attempt >= ATTEMPTS || self.clock.now() >= self.deadline {
                return Err(fault);
            }
            attempt += 1;
            tokio::time::sleep(fault.retry_after.unwrap_or(pause).min(Duration::from_secs(5))).await;
            pause = pause.saturating_mul(2);
        }
    }
}

/// What an answer says about how often a message may arrive.
#[must_use]
pub const fn guarantee(mode: Mode) -> &'static str {
    match mode {
        Mode::Outbox => "exactly_once_into_the_outbox",
        Mode::Queue | Mode::Sqs => "at_least_once",
    }
}
