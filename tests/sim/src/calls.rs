//! Requests to the stores and to the destination: they take effect when they arrive, whoever still waits for the answer.

use crate::event::{AccountCall, Event, Reply, Request};
use crate::faults::{Link, MS, Testimony, Way};
use crate::seen::Sight;
use crate::store::Caller;
use crate::worker::{Awaited, task_of};
use crate::world::World;
use causeway_core::lease::testimony::{self, cluster_of};
use causeway_core::log::{Answer, Call};
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault as CallFault, FaultCode, Outcome};
use std::sync::Arc;

impl World {
    pub(crate) fn latency(&mut self) -> u64 {
        if self.healed_at.is_none() && self.rng.chance(self.knobs.tails) {
            return self.rng.between(MS, self.knobs.tail);
        }
        self.rng.between(MS, self.knobs.latency)
    }

    /// Sends a request; its answer comes back as an event, or it is given up after `timeout`.
    pub(crate) fn call(&mut self, worker: usize, link: Link, awaited: Awaited, request: Request, timeout: u64) {
        self.calls += 1;
        let (call, life) = (self.calls, self.workers[worker].life);
        self.workers[worker].calls.insert(call, awaited);
        self.at(self.now + timeout, Event::GivenUp { worker, life, call });
        let lost = self.healed_at.is_none() && self.rng.chance(self.knobs.lost_requests);
        if lost || self.workers[worker].cut(self.now, link, Way::Out).is_some() {
            return;
        }
        let at = self.now + self.latency();
        self.at(at, Event::Arrive { worker, life, call, request });
    }

    pub(crate) fn arrive(&mut self, worker: usize, life: u64, call: u64, request: Request) {
        let waits = self.workers[worker].life == life && self.workers[worker].calls.contains_key(&call);
        if !waits {
            self.seen.note(Sight::AppliedAfterGivenUp);
        }
        let link = match request {
            Request::Send(_) => Link::Queue,
            Request::LeaseRead | Request::LeaseWrite(_) => Link::Lease,
            Request::Task(_) => Link::Orchestrator,
            Request::Log { .. } | Request::ReadMail(_) | Request::Park(_) | Request::Account(_) => Link::Store,
        };
        let throttled =
            link != Link::Queue && (self.now < self.throttled_until || self.healed_at.is_none() && self.rng.chance(self.knobs.throttled));
        let reply = if throttled { refusal(&request) } else { self.carry_out((worker, life), &request) };
        let Some(reply) = reply else { return };
        self.note(&[2, self.now, worker as u64, call]);
        let lost = self.healed_at.is_none() && self.rng.chance(self.knobs.lost_answers);
        if lost || self.workers[worker].cut(self.now, link, Way::Back).is_some() {
            return;
        }
        let at = self.now + self.latency();
        self.at(at, Event::Answered { worker, life, call, reply });
    }

    pub(crate) fn carry_out(&mut self, caller: Caller, request: &Request) -> Option<Reply> {
        let done = match request {
            Request::LeaseRead => Ok(Reply::LeaseRead(Ok(self.stores.read_lease()))),
            Request::LeaseWrite(write) => {
                let owner_is_gone = self.stores.lease().is_some_and(|row| !self.lives(&row.tuple.owner));
                let proven = match self.knobs.testimony {
                    Testimony::Unasked => None,
                    Testimony::True | Testimony::False => Some(owner_is_gone),
                };
                self.stores.write_lease(self.now, write, proven, &mut self.seen).map(|answer| Reply::LeaseWritten(Outcome::Done(answer)))
            }
            Request::Task(task) => Ok(Reply::Task(self.testify(task))),
            Request::Log { lane, call, doubted } => self.stores.call(caller, *lane, call, *doubted, &mut self.seen).map(Reply::Log),
            Request::ReadMail(limit) => Ok(Reply::Mail(Ok(self.stores.letterbox.read(*limit)))),
            Request::Send(entries) => Ok(Reply::Sent(self.take_batch(entries))),
            Request::Park(letter) => {
                self.stores.park(letter);
                self.seen.note(Sight::Parked);
                Ok(Reply::Parked(Outcome::Done(())))
            }
            Request::Account(call) => Ok(self.stores.account(call)),
        };
        done.map_err(|violation| self.fail(violation)).ok()
    }

    /// Whether that life of a worker goes on.
    fn lives(&self, name: &str) -> bool {
        self.workers.iter().any(|worker| worker.member.is_some() && worker.name == name)
    }

    /// What is said of a task: the truth, or that it has stopped.
    fn testify(&mut self, task: &str) -> Option<testimony::Testimony> {
        let lives = self.workers.iter().any(|worker| worker.member.is_some() && task_of(&worker.name) == task);
        let lies = self.knobs.testimony == Testimony::False && self.healed_at.is_none() && self.rng.chance(0.5);
        let last_status = if lives && !lies { "RUNNING" } else { "STOPPED" }.to_owned();
        Some(testimony::Testimony {
            task: task.to_owned(),
            cluster: cluster_of(task)?,
            launch_type: Some("FARGATE".to_owned()),
            last_status,
        })
    }

    pub(crate) fn take_batch(&mut self, entries: &[Arc<Entry>]) -> Vec<Outcome<()>> {
        let mut outcomes = Vec::with_capacity(entries.len());
        for entry in entries {
            let number = crate::store::number_of(entry);
            // What is put back goes through, some of it only when it is put back again.
            let poison =
                self.knobs.poison_every > 0 && number.is_multiple_of(self.knobs.poison_every) && u64::from(entry.redrives()) <= number % 2;
            outcomes.push(if poison {
                Outcome::NotDone(CallFault::new(FaultCode::InvalidPayload, "poison"))
            } else if self.healed_at.is_none() && self.rng.chance(self.knobs.refused) {
                // Now and then it asks for less, and its sender pauses; else it is only this message.
                let code = if number.is_multiple_of(8) { FaultCode::Throttled } else { FaultCode::Unavailable };
                Outcome::NotDone(CallFault::new(code, "not now"))
            } else {
                self.check_order_of_topic(entry);
                if self.queue.take(entry) {
                    self.seen.note(Sight::EntrySentAgain);
                }
                Outcome::Done(())
            });
        }
        let taken = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(()))).count();
        if taken > 0 && taken < entries.len() {
            self.seen.note(Sight::PartialBatch);
        }
        outcomes
    }
}

impl World {
    /// On a queue that orders by topic a message arrives first after all that came before it: but for those that end as dead letters, and those that
    /// the broker forgot, whose last send may come late.
    fn check_order_of_topic(&mut self, entry: &Entry) {
        let number = crate::store::number_of(entry);
        let poison = self.knobs.poison_every > 0 && number.is_multiple_of(self.knobs.poison_every);
        if !self.knobs.keyed || poison || entry.redrives() > 0 || self.broker.forgotten().contains(&number) {
            return;
        }
        if let Some(later) = self.queue.later_of_its_topic(number) {
            self.fail(format!("S10: message {number} arrives for the first time after {later} of its topic"));
        }
    }
}

/// The answer of a store that refuses.
fn refusal(request: &Request) -> Option<Reply> {
    let fault = CallFault::new(FaultCode::Throttled, "too many requests");
    Some(match request {
        Request::LeaseRead => Reply::LeaseRead(Err(fault)),
        Request::LeaseWrite(_) => Reply::LeaseWritten(Outcome::NotDone(fault)),
        Request::Task(_) => Reply::Task(None),
        Request::Log { call, .. } => Reply::Log(failed(call, fault, false)),
        Request::ReadMail(_) => Reply::Mail(Err(fault)),
        Request::Send(entries) => Reply::Sent(vec![Outcome::NotDone(fault); entries.len()]),
        Request::Park(_) => Reply::Parked(Outcome::NotDone(fault)),
        Request::Account(AccountCall::Load) => Reply::Filters(Err(fault)),
        Request::Account(AccountCall::Remember(_)) => Reply::Remembered(Outcome::NotDone(fault)),
        Request::Account(_) => Reply::AccountWritten(Outcome::NotDone(fault)),
    })
}

/// The answer to a call to the log that failed, or whose outcome nobody knows.
pub(crate) fn failed(call: &Call, fault: CallFault, unknown: bool) -> Answer {
    fn outcome<T>(fault: CallFault, unknown: bool) -> Outcome<T> {
        if unknown { Outcome::Unknown(fault) } else { Outcome::NotDone(fault) }
    }
    match call {
        Call::ReadTail => Answer::Tail(Err(fault)),
        Call::ReadHead => Answer::Head(Err(fault)),
        Call::ReadRecord => Answer::Record(Err(fault)),
        Call::Register { .. } => Answer::Registered(outcome(fault, unknown)),
        Call::MoveMail { .. } => Answer::Moved(outcome(fault, unknown)),
        Call::Put { .. } => Answer::Put(outcome(fault, unknown)),
        Call::ReadPage { purpose, .. } => Answer::Page { purpose: *purpose, page: Err(fault) },
        Call::PutHead { .. } => Answer::HeadPut(outcome(fault, unknown)),
        Call::Delete { .. } => Answer::Deleted(outcome(fault, unknown)),
    }
}
