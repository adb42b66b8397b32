//! Carries effects out: each becomes a task that ends with an event. No task outlives its [`Dispatch`].

use crate::levels::ServiceLevel;
use crate::members::is_fresh;
use crate::parts::{MailboxParts, QuotaParts, SessionParts};
use crate::returning::{Returned, Returning};
use causeway_core::dead_letter::DeadLetter;
use causeway_core::drain::{BatchId, ParkId};
use causeway_core::flow::quota::{QuotaAnswer, QuotaCall, QuotaReply};
use causeway_core::flow::sender::SenderLink;
use causeway_core::identity::{LaneId, LogName};
use causeway_core::log::{Answer, Call};
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::worker::Event;
use causeway_ports::{Clock, DeadLetters, LogRecord, Outbox, Sink};
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use futures_util::FutureExt;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

/// How long a send may take.
#[derive(Clone, Copy, Debug)]
pub struct SendBound {
    /// The adapter ends it by then.
    pub timeout: Duration,
    /// An adapter that did not is given up by then, and the entries are sent again (`stale_claim_duration`).
    pub given_up_after: Duration,
}

/// A store call without an answer for so long has an unknown outcome.
const STORE_TIMEOUT: Duration = Duration::from_secs(15);

/// The tasks of one session.
pub struct Dispatch {
    tasks: JoinSet<Event>,
    log: LogName,
    outbox: Option<Arc<dyn Outbox>>,
    mailbox: Option<MailboxParts>,
    dead_letters: Option<Arc<dyn DeadLetters>>,
    quota: Option<QuotaParts>,
    clock: Arc<dyn Clock>,
    /// When it was asked last how many draw from the budget.
    counted_at: Option<tokio::time::Instant>,
}

/// What could not be put back is tried again after so long.
const PUT_BACK_AGAIN: Duration = Duration::from_secs(30);

impl Dispatch {
    /// Tasks that call the session's stores.
    #[must_use]
    pub fn new(parts: &SessionParts) -> Self {
        Self {
            tasks: JoinSet::new(),
            log: parts.log.clone(),
            outbox: parts.outbox.clone(),
            mailbox: parts.mailbox.clone(),
            dead_letters: parts.dead_letters.clone(),
            quota: parts.quota.clone(),
            clock: Arc::clone(&parts.clock),
            counted_at: None,
        }
    }

    /// The next event of a task that ended; never, while there is none. Cancel-safe.
    pub async fn next(&mut self) -> Event {
        match self.tasks.join_next().await {
            Some(Ok(event)) => event,
            // Panics are turned into outcomes inside the tasks, and nobody aborts one but the drop of this set.
            Some(Err(_)) => Event::Tick,
            None => core::future::pending().await,
        }
    }

    /// Calls the log's store.
    pub fn call(&mut self, lane: LaneId, call: Call) {
        let (outbox, mailbox, log) = (self.outbox.clone(), self.mailbox.clone(), self.log.in_lane(lane));
        self.tasks.spawn(async move {
            let Some(outbox) = outbox else { return Event::Log { lane, answer: unanswered(&call, no_outbox()) } };
            let calling = answer(outbox.as_ref(), mailbox.as_ref(), &log, &call);
            let answer = bounded(calling).await.unwrap_or_else(|fault| unanswered(&call, fault));
            Event::Log { lane, answer }
        });
    }

    /// Reads the mailbox.
    pub fn read_mail(&mut self, limit: usize) {
        let mailbox = self.mailbox.clone();
        self.tasks.spawn(async move {
            let Some(MailboxParts { store, name, .. }) = mailbox else { return Event::MailRead(Err(no_mailbox())) };
            Event::MailRead(bounded(store.read_mail(&name, limit)).await.and_then(|answer| answer))
        });
    }

    /// Calls the store of the bridge's budget, and looks now and then how many draw from it.
    pub fn quota(&mut self, call: QuotaCall) {
        let Some(quota) = self.quota.clone() else { return };
        if self.counted_at.is_none_or(|at| at.elapsed() >= quota.members.as_ref().map_or(Duration::MAX, |(_, _, interval)| *interval)) {
            self.counted_at = Some(tokio::time::Instant::now());
            let (quota, clock) = (quota.clone(), Arc::clone(&self.clock));
            self.tasks.spawn(async move { nodes(&quota, clock.as_ref()).await });
        }
        self.tasks.spawn(async move {
            let doing = AssertUnwindSafe(tokio::time::timeout(quota.options.draw_timeout, quota_reply(&quota, call))).catch_unwind();
            let fault = match doing.await {
                Ok(Ok(reply)) => return Event::Quota(reply),
                Ok(Err(_)) => Fault::new(FaultCode::Timeout, "no answer within draw_timeout"),
                Err(_) => broken(),
            };
            Event::Quota(match call {
                QuotaCall::Draw(_) => QuotaReply::Drawn(Outcome::Unknown(fault)),
                QuotaCall::Return(_) => QuotaReply::Returned(Outcome::Unknown(fault)),
                QuotaCall::Look => QuotaReply::Looked(Outcome::Unknown(fault)),
            })
        });
    }

    /// Sends a batch.
    pub fn send(
        &mut self,
        batch: BatchId,
        sink: Arc<dyn Sink>,
        entries: Vec<Arc<Entry>>,
        bound: SendBound,
        observe: impl FnOnce(Duration, &[Outcome<()>]) + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            let began = tokio::time::Instant::now();
            let doing = AssertUnwindSafe(tokio::time::timeout(bound.given_up_after, sink.send(&entries, bound.timeout))).catch_unwind();
            let late = || Fault::new(FaultCode::Timeout, format!("no answer within {} s", bound.given_up_after.as_secs()));
            let outcomes = match doing.await {
                Ok(Ok(outcomes)) => outcomes,
                Ok(Err(_)) => vec![Outcome::Unknown(late()); entries.len()],
                Err(_) => vec![Outcome::Unknown(broken()); entries.len()],
            };
            observe(began.elapsed(), &outcomes);
            Event::Sent { batch, outcomes }
        });
    }

    /// Waits for the next change of the connection under a leg's sender.
    pub fn watch_link(&mut self, leg: usize, mut link: watch::Receiver<SenderLink>) {
        self.tasks.spawn(async move {
            if link.changed().await.is_err() {
                // The adapter is gone; it tells nothing any more.
                core::future::pending::<()>().await;
            }
            let link = *link.borrow_and_update();
            Event::SenderLink { leg, link }
        });
    }

    /// Puts back what died of subscriptions that are there again; tried again while it does not work.
    pub fn put_back(&mut self, returning: Returning) {
        self.tasks.spawn(async move {
            loop {
                match returning.put_back().await {
                    Ok(Returned { redriven: 0, left: 0 }) => return Event::Tick,
                    Ok(Returned { redriven, left }) => {
                        info!(redriven, left, "dead letters of subscriptions that are there again were put back");
                        // Their mail may lie in this session's mailbox.
                        return Event::MailHint;
                    }
                    Err(fault) => {
                        warn!(code = fault.code.as_str(), detail = %fault.detail, "dead letters of subscriptions that are there again cannot be put back now; it is tried again");
                        tokio::time::sleep(PUT_BACK_AGAIN).await;
                    }
                }
            }
        });
    }

    /// Writes a dead letter.
    pub fn park(&mut self, park: ParkId, letter: Box<DeadLetter>) {
        let store = self.dead_letters.clone();
        self.tasks.spawn(async move {
            let Some(store) = store else {
                let fault = Fault::new(FaultCode::InvalidConfig, "there is no store for dead letters: set `stores.dlq`");
                return Event::Parked { park, outcome: Outcome::NotDone(fault) };
            };
            let outcome = bounded(store.park(&letter)).await.unwrap_or_else(Outcome::Unknown);
            Event::Parked { park, outcome }
        });
    }
}

async fn quota_reply(quota: &QuotaParts, call: QuotaCall) -> QuotaReply {
    match call {
        QuotaCall::Draw(request) => QuotaReply::Drawn(quota.store.draw(&quota.name, request).await),
        QuotaCall::Return(write) => {
            let written = quota.store.write(&quota.name, &write).await;
            QuotaReply::Returned(written.map(|answer| matches!(answer, QuotaAnswer::Written(_))))
        }
        QuotaCall::Look => QuotaReply::Looked(match quota.store.read(&quota.name).await {
            Ok(row) => Outcome::Done(row),
            Err(fault) => Outcome::NotDone(fault),
        }),
    }
}

/// How many draw from the budget: every session that a member gives any service to.
async fn nodes(quota: &QuotaParts, clock: &dyn Clock) -> Event {
    let Some((leases, bridge, interval)) = &quota.members else { return Event::QuotaNodes(1) };
    match bounded(leases.list_members(bridge)).await {
        Ok(Ok(members)) => {
            let now = clock.wall();
            let living = members.iter().filter(|member| is_fresh(member.written_at, now, *interval));
            let serving = living.flat_map(|member| member.sessions.values()).filter(|level| *level != ServiceLevel::None.as_str());
            Event::QuotaNodes(u32::try_from(serving.count()).unwrap_or(u32::MAX))
        }
        Ok(Err(fault)) | Err(fault) => {
            debug!(%fault, "nobody knows how many draw from the budget; what was known last counts");
            Event::Tick
        }
    }
}

/// What a store answered in time.
async fn bounded<T>(call: impl Future<Output = T>) -> Result<T, Fault> {
    match AssertUnwindSafe(tokio::time::timeout(STORE_TIMEOUT, call)).catch_unwind().await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Fault::new(FaultCode::Timeout, format!("no answer within {} s", STORE_TIMEOUT.as_secs()))),
        Err(_) => Err(broken()),
    }
}

fn broken() -> Fault {
    Fault::new(FaultCode::ProtocolError, "the adapter panicked; this is a defect, please report it with the log")
}

fn no_outbox() -> Fault {
    Fault::new(FaultCode::InvalidConfig, "this session has no outbox")
}

fn no_mailbox() -> Fault {
    Fault::new(FaultCode::InvalidConfig, "this session has no mailbox")
}

async fn answer(outbox: &dyn Outbox, mailbox: Option<&MailboxParts>, log: &LogName, call: &Call) -> Answer {
    match call {
        Call::ReadTail => Answer::Tail(outbox.read_tail(log).await),
        Call::ReadHead => Answer::Head(outbox.read_head(log).await),
        // The partition's record: kept under the name of lane 0, which is what the owner says.
        Call::ReadRecord => Answer::Record(outbox.read_record(log).await.map(|record| record.map(|record| record.registration()))),
        Call::Register { record, replaces } => {
            Answer::Registered(outbox.replace_record(&LogRecord::new(log.clone(), *record), *replaces).await)
        }
        Call::MoveMail { slot, row, ids } => Answer::Moved(match mailbox {
            Some(mailbox) => mailbox.store.move_mail(log, *slot, row, &mailbox.name, ids).await,
            None => Outcome::NotDone(no_mailbox()),
        }),
        Call::Put { slot, row } => Answer::Put(outbox.put(log, *slot, row).await),
        Call::ReadPage { purpose, after, up_to } => Answer::Page { purpose: *purpose, page: outbox.read_page(log, *after, *up_to).await },
        Call::PutHead { head } => Answer::HeadPut(outbox.put_head(log, head).await),
        Call::Delete { slots } => Answer::Deleted(outbox.delete(log, slots).await),
    }
}

fn unanswered(call: &Call, fault: Fault) -> Answer {
    match call {
        Call::ReadTail => Answer::Tail(Err(fault)),
        Call::ReadHead => Answer::Head(Err(fault)),
        Call::ReadRecord => Answer::Record(Err(fault)),
        Call::Register { .. } => Answer::Registered(Outcome::Unknown(fault)),
        Call::MoveMail { .. } => Answer::Moved(Outcome::Unknown(fault)),
        Call::Put { .. } => Answer::Put(Outcome::Unknown(fault)),
        Call::ReadPage { purpose, .. } => Answer::Page { purpose: *purpose, page: Err(fault) },
        Call::PutHead { .. } => Answer::HeadPut(Outcome::Unknown(fault)),
        Call::Delete { .. } => Answer::Deleted(Outcome::Unknown(fault)),
    }
}
