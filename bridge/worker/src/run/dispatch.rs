//! Carries effects out: each becomes a task that ends with an event. No task outlives its [`Dispatch`].

use causeway_core::dead_letter::DeadLetter;
use causeway_core::drain::{BatchId, ParkId};
use causeway_core::identity::{LaneId, LogName};
use causeway_core::log::{Answer, Call};
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::worker::Event;
use causeway_ports::{DeadLetters, LogRecord, Outbox, Sink};
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use futures_util::FutureExt;
use std::sync::Arc;
use tokio::task::JoinSet;

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
    outbox: Arc<dyn Outbox>,
    dead_letters: Option<Arc<dyn DeadLetters>>,
}

impl Dispatch {
    /// Tasks that call these stores.
    #[must_use]
    pub fn new(log: LogName, outbox: Arc<dyn Outbox>, dead_letters: Option<Arc<dyn DeadLetters>>) -> Self {
        Self { tasks: JoinSet::new(), log, outbox, dead_letters }
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
        let (outbox, log) = (Arc::clone(&self.outbox), self.log.in_lane(lane));
        self.tasks.spawn(async move {
            let doing = AssertUnwindSafe(tokio::time::timeout(STORE_TIMEOUT, answer(outbox.as_ref(), &log, &call))).catch_unwind();
            let answer = match doing.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => unanswered(&call, Fault::new(FaultCode::Timeout, format!("no answer within {} s", STORE_TIMEOUT.as_secs()))),
                Err(_) => unanswered(&call, broken()),
            };
            Event::Log { lane, answer }
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

    /// Writes a dead letter.
    pub fn park(&mut self, park: ParkId, letter: Box<DeadLetter>) {
        let store = self.dead_letters.clone();
        self.tasks.spawn(async move {
            let Some(store) = store else {
                let fault = Fault::new(FaultCode::InvalidConfig, "there is no store for dead letters: set `stores.dlq`");
                return Event::Parked { park, outcome: Outcome::NotDone(fault) };
            };
            let doing = AssertUnwindSafe(tokio::time::timeout(STORE_TIMEOUT, store.park(&letter))).catch_unwind();
            let outcome = match doing.await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Outcome::Unknown(Fault::new(FaultCode::Timeout, format!("no answer within {} s", STORE_TIMEOUT.as_secs()))),
                Err(_) => Outcome::Unknown(broken()),
            };
            Event::Parked { park, outcome }
        });
    }
}

fn broken() -> Fault {
    Fault::new(FaultCode::ProtocolError, "the adapter panicked; this is a defect, please report it with the log")
}

fn no_mailbox() -> Fault {
    Fault::new(FaultCode::InvalidConfig, "this session has no mailbox")
}

async fn answer(outbox: &dyn Outbox, log: &LogName, call: &Call) -> Answer {
    match call {
        Call::ReadTail => Answer::Tail(outbox.read_tail(log).await),
        Call::ReadHead => Answer::Head(outbox.read_head(log).await),
        // The partition's record: kept under the name of lane 0, which is what the owner says.
        Call::ReadRecord => Answer::Record(outbox.read_record(log).await.map(|record| record.map(|record| record.registration()))),
        Call::Register { record, replaces } => {
            Answer::Registered(outbox.replace_record(&LogRecord::new(log.clone(), *record), *replaces).await)
        }
        Call::MoveMail { .. } => Answer::Moved(Outcome::NotDone(no_mailbox())),
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
