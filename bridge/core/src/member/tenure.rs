//! A term: the lease is kept, and the owner goes on under it.

use super::{Call, Effect, Member, Part, Reason, State, Term, Then};
use crate::drain::retry::Jitter;
use crate::identity::Epoch;
use crate::lease::holder::{self, Holder, Why};
use crate::lease::{Condition, Held, LeaseAnswer, LeaseWrite};
use crate::log::writer::WriterEnd;
use crate::metrics::FailoverCause;
use crate::outcome::Outcome;
use crate::units::{Instant, UnixMillis};
use crate::worker::{self, End, Owner};

/// The lease that is held, and the owner under it.
#[derive(Debug)]
pub(super) struct Tenure {
    pub term: Term,
    pub began: Instant,
    pub holder: Holder,
    pub owner: Owner,
    pub leaving: Option<Then>,
    /// Why it leaves, and since when there was reason to, by the wall clock.
    pub left: Option<(FailoverCause, UnixMillis)>,
    pub converged_once: bool,
    pub broker_lost_at: Option<Instant>,
    /// The log's epoch that the lease's version has to be raised above.
    pub raise_above: Option<Epoch>,
}

impl Member {
    pub(super) fn begin_term(&mut self, now: Instant, held: Held) {
        self.terms += 1;
        let term = Term(self.terms);
        let version = held.row.tuple.version;
        let holder = Holder::new(self.options.upkeep, held, now, Jitter::new(self.owner.jitter_seed ^ version));
        let owner = self.new_owner(&holder);
        self.go(State::Owner(Box::new(Tenure {
            term,
            began: now,
            holder,
            owner,
            leaving: None,
            left: None,
            converged_once: false,
            broker_lost_at: None,
            raise_above: None,
        })));
        self.become_part(Part::Owner { term, version });
    }

    fn new_owner(&self, holder: &Holder) -> Owner {
        // Each term counts its ids from a place of its own.
        let place = u128::from(holder.version()) << 64;
        let mut options = self.owner.clone();
        options.epoch = Some(Epoch(holder.version()));
        options.entry_id_base = options.entry_id_base.wrapping_add(place);
        options.row_id_base = options.row_id_base.wrapping_add(place);
        let mut owner = Owner::new(options);
        owner.act_until(holder.acts_until());
        owner
    }

    pub(super) fn owner_event(&mut self, now: Instant, wall: UnixMillis, term: Term, event: worker::Event) {
        let State::Owner(tenure) = &mut self.state else { return };
        if tenure.term != term {
            return;
        }
        tenure.owner.act_until(tenure.holder.acts_until());
        let effects = tenure.owner.apply(now, wall, event);
        self.pass_on(term, effects);
    }

    pub(super) fn pass_on(&mut self, term: Term, effects: Vec<worker::Effect>) {
        for effect in effects {
            match effect {
                worker::Effect::Finished(end) => self.owner_ended(end),
                effect @ (worker::Effect::Log { .. }
                | worker::Effect::ReadMail { .. }
                | worker::Effect::Acknowledge(_)
                | worker::Effect::Send { .. }
                | worker::Effect::Park { .. }
                | worker::Effect::Reconnect
                | worker::Effect::Quota(_)
                | worker::Effect::CloseSource
                | worker::Effect::Observe(_)) => self.effects.push(Effect::Owner { term, effect }),
            }
        }
    }

    fn owner_ended(&mut self, end: End) {
        match end {
            End::Stopped { .. } => {
                let then = self.next();
                let reason = self.leaving_reason();
                let Some(write) = self.release(&reason) else { return };
                self.go(State::Releasing { write: Some(write), then });
            }
            // Nothing is left to own.
            End::Retired => self.give_back(Reason::Shutdown, Then::End(Ok(()))),
            End::Ended(WriterEnd::EpochTooLow { found }) => {
                let State::Owner(tenure) = &mut self.state else { return };
                if tenure.leaving.is_some() {
                    // Nothing was opened, so there is nothing to raise the lease for: it only has to be given back.
                    let reason = self.leaving_reason();
                    return self.leave_at_once(reason);
                }
                tenure.raise_above = Some(found);
            }
            End::Ended(WriterEnd::Fenced { .. }) => self.leave_at_once(Reason::Fenced),
            End::Ended(WriterEnd::Unusable(fault)) | End::Unreadable(fault) => {
                self.give_back(Reason::Log(fault.clone()), Then::End(Err(fault)));
            }
        }
    }

    /// The log is ahead of the lease: the lease's version goes above it, if the lease is still held.
    fn raise(&mut self) {
        let State::Owner(tenure) = &mut self.state else { return };
        // A renewal that is under way ends first.
        if self.call.is_some() {
            return;
        }
        let Some(found) = tenure.raise_above.take() else { return };
        let mut row = tenure.holder.row().clone();
        let condition = Condition::Held { owner: row.tuple.owner.clone(), version: row.tuple.version };
        row.tuple.version = found.0.saturating_add(1);
        self.call = Some(Call::Raise(row.tuple.version));
        self.effects.push(Effect::WriteLease(LeaseWrite { condition, row }));
    }

    pub(super) fn raised(&mut self, now: Instant, version: u64, outcome: Outcome<LeaseAnswer>) {
        let why = match outcome {
            Outcome::Done(LeaseAnswer::Written) => None,
            Outcome::Done(LeaseAnswer::Refused(_)) => Some(Why::Lost),
            // It may stand there or not; after the hold-off the row tells.
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => Some(Why::Failing(fault)),
        };
        let State::Owner(tenure) = &mut self.state else {
            // It stepped down meanwhile, and what it gives back is the raised lease.
            if let (State::Releasing { write: Some(write), .. }, None) = (&mut self.state, why) {
                if let Condition::Held { version: held, .. } = &mut write.condition {
                    *held = version;
                }
                write.row.tuple.version = version;
            }
            return;
        };
        if let Some(why) = why {
            self.leave_at_once(Reason::Lease(why));
            return;
        }
        let mut row = tenure.holder.row().clone();
        row.tuple.version = version;
        let held = Held { row, deadline: tenure.holder.deadline() };
        self.begin_term(now, held);
    }

    /// Keeps the lease, and lets the owner go on under it.
    pub(super) fn keep(&mut self, now: Instant, wall: UnixMillis, owner_settled: bool) {
        let State::Owner(tenure) = &mut self.state else { return };
        let overdue =
            tenure.broker_lost_at.zip(self.options.broker_health_step_down).is_some_and(|(since, limit)| now.since(since) >= limit);
        if overdue && tenure.leaving.is_none() {
            let until = now.plus(self.options.step_down_grace);
            self.leave(now, wall, Reason::BrokerPath, until, Then::HoldOff(self.options.broker_hold_off));
        }
        let State::Owner(tenure) = &mut self.state else { return self.settle(now, wall, owner_settled) };
        if now >= tenure.holder.deadline() {
            self.leave_at_once(Reason::Lease(Why::Expired));
            return self.settle(now, wall, owner_settled);
        }
        if tenure.leaving.is_none() && !tenure.owner.is_open() && now.since(tenure.began) >= self.options.opening_timeout {
            self.leave_at_once(Reason::OpeningTimeout);
            return self.settle(now, wall, owner_settled);
        }
        if tenure.raise_above.is_some() {
            return self.raise();
        }
        if self.call.is_none() {
            match tenure.holder.poll(now, wall) {
                holder::Step::Until(_) => {}
                holder::Step::Renew(write) => {
                    self.call = Some(Call::Renew);
                    self.effects.push(Effect::WriteLease(write));
                }
                holder::Step::Read => {
                    self.call = Some(Call::OwnRead);
                    self.effects.push(Effect::ReadLease);
                }
                holder::Step::StepDown(why) => {
                    self.leave_at_once(Reason::Lease(why));
                    return self.settle(now, wall, owner_settled);
                }
            }
        }
        let State::Owner(tenure) = &mut self.state else { return };
        if !owner_settled {
            let term = tenure.term;
            tenure.owner.act_until(tenure.holder.acts_until());
            let effects = tenure.owner.apply(now, wall, worker::Event::Tick);
            self.pass_on(term, effects);
        }
        if matches!(self.state, State::Releasing { .. }) {
            self.settle(now, wall, owner_settled);
        }
    }
}
