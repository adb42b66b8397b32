//! What the program around a member does: it feeds events in one by one, carries effects out in order, and keeps the connection.

use crate::Mutant;
use crate::calls::failed;
use crate::event::{AccountCall, Event, Reply, Request};
use crate::faults::{Link, MS, S};
use crate::reference::LeaseRule;
use crate::seen::Sight;
use crate::worker::Awaited;
use crate::world::World;
use causeway_core::lease::holder::Why;
use causeway_core::lease::row::LeaseRow;
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::log::Answer;
use causeway_core::log::Call;
use causeway_core::member::{self, Effect, Part, Reason};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::Instant;
use causeway_core::worker::options::Delivery;
use causeway_core::worker::{self as owner, Observation};

/// How long a batch may take.
const SEND_TIMEOUT: u64 = 5 * S;

impl World {
    /// Something reaches a worker. While it sleeps it waits.
    pub(crate) fn at_worker(&mut self, worker: usize, event: Event) {
        if self.workers[worker].asleep_until > self.now {
            self.workers[worker].backlog.push_back(event);
            return;
        }
        let was_late = self.woke_up_too_late(worker, &event);
        self.take(worker, event);
        self.go_on(worker);
        while self.workers[worker].asleep_until <= self.now && self.violation().is_none() {
            let Some(event) = self.workers[worker].backlog.pop_front() else { break };
            self.take(worker, event);
            self.go_on(worker);
        }
        if was_late && self.workers[worker].held.is_none() {
            self.seen.note(Sight::WokeUpTooLate);
        }
    }

    fn woke_up_too_late(&self, worker: usize, event: &Event) -> bool {
        matches!(event, Event::Resume { .. }) && self.workers[worker].held.is_some() && !self.workers[worker].may_act(self.now)
    }

    fn take(&mut self, worker: usize, event: Event) {
        match event {
            Event::Tick { nth, .. } => {
                if self.workers[worker].tick.0 == nth {
                    self.workers[worker].tick.1 = None;
                    self.feed(worker, member::Event::Tick);
                    self.check_for_spinning(worker);
                }
            }
            Event::Hint { .. } => self.feed(worker, member::Event::Hint),
            Event::MailHint { .. } => {
                let term = self.workers[worker].term;
                self.feed_owner(worker, term, owner::Event::MailHint);
            }
            Event::Answered { call, reply, .. } => self.answered(worker, call, reply),
            Event::GivenUp { call, .. } => self.given_up(worker, call),
            Event::FromBroker { connection, packet, .. } => self.packet_came(worker, connection, packet),
            Event::SourceTimer { source, timer, .. } => self.source_timer(worker, source, timer),
            Event::Resume { .. }
            | Event::Start { .. }
            | Event::Arrive { .. }
            | Event::AtBroker { .. }
            | Event::Publish
            | Event::Redrive(_)
            | Event::PutBack(_)
            | Event::Strike(_)
            | Event::Heal
            | Event::Check => {}
        }
    }

    /// A member must not ask to be woken for what it then does not do.
    fn check_for_spinning(&mut self, worker: usize) {
        let subject = &self.workers[worker];
        let local = subject.local(self.now);
        if let Some(member) = &subject.member
            && let Some(wake) = member.wake_at(local)
            && wake <= local
        {
            let part = subject.part.clone();
            self.fail(format!("S7: worker {worker} as {part:?} wants to be woken for a moment that has passed: it would spin"));
        }
    }

    pub(crate) fn feed(&mut self, worker: usize, event: member::Event) {
        let local = self.workers[worker].local(self.now);
        self.feed_at(worker, local, event);
    }

    fn feed_at(&mut self, worker: usize, local: Instant, event: member::Event) {
        let subject = &mut self.workers[worker];
        let wall = subject.wall(self.now);
        let Some(member) = &mut subject.member else { return };
        let effects = member.apply(local, wall, event);
        let count = effects.len() as u64;
        subject.effects.extend(effects);
        self.note(&[5, self.now, worker as u64, count]);
    }

    /// Carries out what is to be carried out, hands over what the source has, and sees to it that the worker is woken.
    pub(crate) fn go_on(&mut self, worker: usize) {
        loop {
            self.carry_out_effects(worker);
            if self.workers[worker].asleep_until > self.now || self.workers[worker].member.is_none() {
                return;
            }
            if !self.hand_over(worker) {
                break;
            }
        }
        self.check_owner(worker);
        let subject = &mut self.workers[worker];
        let local = subject.local(self.now);
        let wake = subject.member.as_ref().and_then(|member| member.wake_at(local));
        if let Some(wake) = wake.filter(|wake| subject.tick.1 != Some(*wake)) {
            subject.tick = (subject.tick.0 + 1, Some(wake));
            let (life, nth) = (subject.life, subject.tick.0);
            let at = subject.true_time(wake).max(self.now);
            self.at(at, Event::Tick { worker, life, nth });
        }
    }

    pub(crate) fn carry_out_effects(&mut self, worker: usize) {
        while self.workers[worker].asleep_until <= self.now {
            if self.workers[worker].effects.is_empty() {
                return;
            }
            if self.is_faulty() && self.rng.chance(self.knobs.stalls) {
                let span = self.rng.between(MS, self.knobs.stall);
                self.pause(worker, span);
                return;
            }
            let Some(effect) = self.workers[worker].effects.pop_front() else { return };
            self.carry_out_effect(worker, effect);
        }
    }

    fn carry_out_effect(&mut self, worker: usize, effect: Effect) {
        let timeout = self.knobs.cadence.renew_call_timeout.unsigned_abs();
        let asked = self.workers[worker].local(self.now);
        match effect {
            Effect::ReadLease => self.call(worker, Link::Lease, Awaited::LeaseRead { asked }, Request::LeaseRead, timeout),
            Effect::WriteLease(mut write) => {
                self.sum(worker, &mut write);
                let renews = matches!(write.condition, Condition::Held { .. }) && !write.row.tuple.is_released();
                let renewal = renews.then_some(write.row.tuple.renewed_at);
                self.call(worker, Link::Lease, Awaited::LeaseWrite { asked, renewal }, Request::LeaseWrite(write), timeout);
            }
            Effect::AskAboutTask(task) => self.call(worker, Link::Orchestrator, Awaited::Task, Request::Task(task), timeout),
            Effect::Owner { term, effect } if term == self.workers[worker].term => self.carry_out_for_owner(worker, effect),
            Effect::Owner { .. } => {}
            Effect::Became(part) => self.became(worker, part),
            Effect::Finished(result) => self.finished(worker, result),
        }
    }

    /// What the mutant that sums writes instead: the standing evidence and the time since this observer looked last.
    fn sum(&self, worker: usize, write: &mut LeaseWrite) {
        if self.mutant == Some(Mutant::Lease(LeaseRule::EvidenceIsNotSummed))
            && let (Condition::Exactly { evidence: Some(standing), .. }, Some(evidence)) = (&write.condition, &mut write.row.evidence)
            && standing.fingerprint == evidence.fingerprint
        {
            let mine = u64::try_from(self.workers[worker].watched.as_nanos()).unwrap_or(u64::MAX);
            evidence.elapsed_ns = standing.elapsed_ns.saturating_add(mine);
        }
    }

    fn carry_out_for_owner(&mut self, worker: usize, effect: owner::Effect) {
        let term = self.workers[worker].term;
        let timeout = self.knobs.cadence.renew_call_timeout.unsigned_abs().max(2 * S);
        match effect {
            owner::Effect::Log { lane, call } => {
                let doubted = matches!(&call, Call::Put { row, .. } | Call::MoveMail { row, .. } if self.workers[worker].doubtful_puts.contains(&row.id()));
                self.call(
                    worker,
                    Link::Store,
                    Awaited::Log { term, lane, call: call.clone() },
                    Request::Log { lane, call, doubted },
                    timeout,
                );
            }
            owner::Effect::Acknowledge(delivery) => self.acknowledge(worker, delivery),
            owner::Effect::Send { batch, entries, .. } => {
                self.check_order(worker, &entries);
                let awaited = Awaited::Send { term, batch, entries: entries.iter().map(|entry| entry.id).collect() };
                self.call(worker, Link::Queue, awaited, Request::Send(entries), SEND_TIMEOUT);
            }
            owner::Effect::Park { park, letter } => {
                self.call(worker, Link::Store, Awaited::Park { term, park }, Request::Park(letter), timeout);
            }
            owner::Effect::CloseSource => self.close_source(worker),
            owner::Effect::Observe(Observation::Opened { .. }) => self.start_source(worker),
            owner::Effect::Observe(Observation::Recovered { entries }) => {
                if entries > 0 {
                    self.seen.note(Sight::Recovered);
                }
            }
            owner::Effect::ReadMail { limit } => self.call(worker, Link::Store, Awaited::Mail { term }, Request::ReadMail(limit), timeout),
            owner::Effect::Observe(_) | owner::Effect::Finished(_) | owner::Effect::Quota(_) | owner::Effect::Reconnect => {}
        }
    }

    fn became(&mut self, worker: usize, part: Part) {
        let subject = &mut self.workers[worker];
        let before = core::mem::replace(&mut subject.part, part.clone());
        subject.held = None;
        match part {
            Part::Owner { term, version } => {
                if matches!(before, Part::Owner { .. }) {
                    self.seen.note(Sight::LeaseRaised);
                }
                subject.term = term;
                subject.held = Some(version);
                // The tasks of the term before end with it.
                subject.calls.retain(|_, awaited| {
                    matches!(awaited, Awaited::LeaseRead { .. } | Awaited::LeaseWrite { .. } | Awaited::Task | Awaited::Gate { .. })
                });
                subject.sent.clear();
                subject.furthest.clear();
                subject.doubtful_puts.clear();
                subject.doubtful_renewals.clear();
            }
            Part::SteppingDown(Reason::BrokerPath) => self.seen.note(Sight::BrokerPathStepDown),
            Part::SteppingDown(Reason::Fenced) => self.seen.note(Sight::Fenced),
            Part::SteppingDown(Reason::Lease(Why::Corrupt)) | Part::Stuck(_) => self.fail("the lease row is corrupt".to_owned()),
            Part::SteppingDown(Reason::Lease(_) | Reason::Asked | Reason::Shutdown | Reason::Log(_) | Reason::OpeningTimeout)
            | Part::Standby
            | Part::Blind(_)
            | Part::HoldingOff(_) => {}
        }
    }

    fn finished(&mut self, worker: usize, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.fail(format!("worker {worker} ended with {fault}"));
        }
        // The others are told that the lease is free.
        for other in (0..self.workers.len()).filter(|other| *other != worker) {
            let life = self.workers[other].life;
            let at = self.now + self.rng.between(MS, 50 * MS);
            self.at(at, Event::Hint { worker: other, life });
        }
        self.drop_connection(worker, false);
        let subject = &mut self.workers[worker];
        subject.forget();
        subject.life += 1;
        if let Some(down) = subject.down {
            let at = self.now + down;
            self.at(at, Event::Start { worker });
        }
    }

    // Answers.

    fn answered(&mut self, worker: usize, call: u64, reply: Reply) {
        let Some(awaited) = self.workers[worker].calls.remove(&call) else { return };
        match (awaited, reply) {
            (Awaited::LeaseRead { asked }, Reply::LeaseRead(answer)) => {
                let recognised = self.recognises_renewal(worker, answer.as_ref().ok().and_then(Option::as_ref));
                let was_owner = self.workers[worker].held.is_some();
                let early = self.mutant == Some(Mutant::Lease(LeaseRule::ObserversCountFromTheAnswer)) && !was_owner;
                let tuple = answer.as_ref().ok().and_then(|raw| LeaseRow::try_from(raw.clone()?).ok()).map(|row| row.tuple);
                let looked_at = self.workers[worker].local(self.now);
                self.workers[worker].looked_at(tuple, looked_at);
                let local = if early { asked } else { self.workers[worker].local(self.now) };
                self.feed_at(worker, local, member::Event::LeaseRead(answer));
                let owns = matches!(self.workers[worker].member.as_ref().map(member::Member::part), Some(Part::Owner { .. }));
                if owns && !was_owner {
                    self.seen.note(Sight::OwnClaimRecognised);
                } else if owns && recognised {
                    self.seen.note(Sight::OwnRenewalRecognised);
                }
            }
            (Awaited::LeaseWrite { asked, .. }, Reply::LeaseWritten(outcome)) => {
                if self.mutant == Some(Mutant::Lease(LeaseRule::OwnersStampBeforeSending))
                    && matches!(outcome, Outcome::Done(LeaseAnswer::Written))
                {
                    // Its clock stood still while it waited: what it stamped before the call counts from now.
                    let waited = self.workers[worker].local(self.now).since(asked);
                    self.workers[worker].set_back(waited);
                }
                self.feed(worker, member::Event::LeaseWritten(outcome));
            }
            (Awaited::Task, Reply::Task(told)) => self.feed(worker, member::Event::TaskTold(told)),
            (Awaited::Gate { source }, Reply::LeaseRead(answer)) => self.gate_answered(worker, source, answer.ok().flatten()),
            (Awaited::Account { connection, call }, reply) => self.account_answered(worker, connection, &call, reply),
            (Awaited::Log { term, lane, .. }, Reply::Log(answer)) => self.feed_owner(worker, term, owner::Event::Log { lane, answer }),
            (Awaited::Send { term, batch, entries }, Reply::Sent(outcomes)) => {
                let arrived = entries.iter().zip(&outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Done(())));
                self.stores.settled(&arrived.map(|(entry, _)| *entry).collect::<Vec<_>>());
                self.feed_owner(worker, term, owner::Event::Sent { batch, outcomes })
            }
            (Awaited::Mail { term }, Reply::Mail(answer)) => self.feed_owner(worker, term, owner::Event::MailRead(answer)),
            (Awaited::Park { term, park }, Reply::Parked(outcome)) => self.feed_owner(worker, term, owner::Event::Parked { park, outcome }),
            (awaited, reply) => panic!("{reply:?} answers {awaited:?}"),
        }
    }

    pub(crate) fn feed_owner(&mut self, worker: usize, term: member::Term, event: owner::Event) {
        self.feed(worker, member::Event::Owner { term, event });
    }

    /// Whether an owner's read shows a renewal of its own whose answer it never got.
    fn recognises_renewal(&self, worker: usize, raw: Option<&causeway_core::lease::row::RawLease>) -> bool {
        let subject = &self.workers[worker];
        let Some(row) = raw.and_then(|raw| LeaseRow::try_from(raw.clone()).ok()) else { return false };
        subject.held == Some(row.tuple.version)
            && row.tuple.owner == subject.name
            && subject.doubtful_renewals.contains(&row.tuple.renewed_at)
    }

    fn given_up(&mut self, worker: usize, call: u64) {
        let Some(awaited) = self.workers[worker].calls.remove(&call) else { return };
        let fault = Fault::new(FaultCode::Timeout, "no answer");
        match awaited {
            Awaited::LeaseRead { .. } => self.feed(worker, member::Event::LeaseRead(Err(fault))),
            Awaited::LeaseWrite { renewal, .. } => {
                self.workers[worker].doubtful_renewals.extend(renewal);
                self.feed(worker, member::Event::LeaseWritten(Outcome::Unknown(fault)));
            }
            Awaited::Task => self.feed(worker, member::Event::TaskTold(None)),
            Awaited::Gate { source } => self.gate_answered(worker, source, None),
            Awaited::Account { connection, call } => {
                let reply = match call {
                    AccountCall::Load => Reply::Filters(Err(fault)),
                    AccountCall::Remember(_) => Reply::Remembered(Outcome::Unknown(fault)),
                    AccountCall::Seed | AccountCall::Forget(..) => Reply::AccountWritten(Outcome::Unknown(fault)),
                };
                self.account_answered(worker, connection, &call, reply);
            }
            Awaited::Log { term, lane, call } => {
                if let Call::Put { row, .. } | Call::MoveMail { row, .. } = &call {
                    self.workers[worker].doubtful_puts.insert(row.id());
                }
                let answer: Answer = failed(&call, fault, true);
                self.feed_owner(worker, term, owner::Event::Log { lane, answer });
            }
            Awaited::Mail { term } => self.feed_owner(worker, term, owner::Event::MailRead(Err(fault))),
            Awaited::Send { term, batch, entries } => {
                let taken_for_done = matches!(self.mutant, Some(Mutant::HeldUnknownIsDone | Mutant::SpilledUnknownIsDone));
                let outcome = if taken_for_done { Outcome::Done(()) } else { Outcome::Unknown(fault) };
                self.feed_owner(worker, term, owner::Event::Sent { batch, outcomes: vec![outcome; entries.len()] });
            }
            Awaited::Park { term, park } => self.feed_owner(worker, term, owner::Event::Parked { park, outcome: Outcome::Unknown(fault) }),
        }
    }

    // What must hold within a worker.

    fn check_order(&mut self, worker: usize, entries: &[std::sync::Arc<causeway_core::message::Entry>]) {
        for entry in entries {
            let place = self.stores.place_of(entry);
            let again = !self.workers[worker].sent.insert((entry.id, entry.redrives()));
            let Some(place) = place else {
                if self.knobs.delivery == Delivery::Logged {
                    return self.fail(format!("S5: entry {} is sent and was never durable", entry.id));
                }
                self.direct.insert(entry.id);
                continue;
            };
            if self.direct.remove(&entry.id) {
                self.seen.note(Sight::Spilled);
            }
            // What waits for one of its topic lets others pass.
            if again || self.knobs.keyed {
                continue;
            }
            let subject = &mut self.workers[worker];
            let furthest = subject.furthest.insert(place.lane, place.position);
            if let Some(furthest) = furthest.filter(|furthest| place.position < *furthest) {
                return self.fail(format!("S5: {place:?} is sent for the first time after {furthest:?}"));
            }
        }
    }

    fn check_owner(&mut self, worker: usize) {
        let subject = &self.workers[worker];
        let Some((_, owner)) = subject.member.as_ref().and_then(member::Member::owner) else { return };
        if !self.events().is_multiple_of(16) {
            return;
        }
        let status = owner.status(subject.wall(self.now));
        let imbalance: Vec<i64> = status.legs.iter().map(owner::counters::LegStatus::imbalance).collect();
        if imbalance.iter().any(|of_route| *of_route != 0) {
            self.fail(format!("S7: messages were lost or invented in memory: {imbalance:?}"));
        }
        // A segment at most 12 entries; a page may overfill a lane's memory by one segment; parks are bounded by 16.
        let lanes = status.lanes.len().max(1);
        if status.in_memory > 45 + 12 * lanes || status.pending > 5 * 12 * lanes || status.in_flight > 25 + 16 {
            self.fail(format!("S7: {} in memory, {} pending, {} in flight", status.in_memory, status.pending, status.in_flight));
        }
    }
}
