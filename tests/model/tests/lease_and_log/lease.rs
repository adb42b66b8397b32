//! The lease: polls, requests to its row, and their answers.

use crate::protocol::{Composed, LeaseCall, LeaseReply, LeaseRequest, Role, Says, State, WALL, at, no_answer};
use crate::seen::Sight;
use causeway_core::lease::holder::{self, Why};
use causeway_core::lease::row::{LeaseRow, RawLease};
use causeway_core::lease::testimony::Testimony;
use causeway_core::lease::{Condition, Held, LeaseAnswer, LeaseWrite, standby};
use causeway_core::outcome::{Fault, Outcome};
use causeway_sim::reference::{LeaseRule, holds};

impl Composed {
    /// Sends a request; `at_once` it takes effect and is answered before anything else happens.
    pub fn ask(&self, state: &mut State, worker: usize, request: LeaseRequest) {
        // When it was sent makes a difference only where a rule is left out.
        let sent = if self.leaves_out(LeaseRule::ObserversCountFromTheAnswer) { state.now } else { 0 };
        state.workers[worker].lease_call = Some((LeaseCall::Asked(request), sent));
        if self.at_once {
            self.lease_arrives(state, worker);
            self.lease_returns(state, worker);
        }
    }

    pub fn poll(&self, state: &mut State, worker: usize) {
        let now = self.now(state, worker);
        match &mut state.workers[worker].role {
            Role::Standby(standby) => {
                let _ = standby.poll();
                self.ask(state, worker, LeaseRequest::Read);
            }
            Role::Holder(holder) => match holder.poll(now, WALL) {
                holder::Step::Until(_) => {}
                holder::Step::Renew(write) => self.ask(state, worker, LeaseRequest::Write(write)),
                holder::Step::Read => self.ask(state, worker, LeaseRequest::Read),
                holder::Step::StepDown(why) => self.step_down(state, worker, Some(&why)),
            },
            Role::Releasing | Role::Crashed => {}
        }
    }

    pub fn ask_about_the_owner(&self, state: &mut State, worker: usize) {
        if let Role::Standby(standby) = &mut state.workers[worker].role
            && let Some(task) = standby.suspect()
        {
            self.ask(state, worker, LeaseRequest::Task(task));
        }
    }

    pub fn lease_arrives(&self, state: &mut State, worker: usize) {
        let Some((LeaseCall::Asked(request), sent)) = state.workers[worker].lease_call.take() else { return };
        let reply = match request {
            LeaseRequest::Read => LeaseReply::Row(state.row.clone()),
            LeaseRequest::Task(task) => LeaseReply::Task(self.testify(state, task)),
            LeaseRequest::Write(write) => self.write(state, write, false),
            LeaseRequest::Raise(write) => self.write(state, write, true),
        };
        state.workers[worker].lease_call = Some((LeaseCall::Answered(reply), sent));
    }

    pub fn write(&self, state: &mut State, write: LeaseWrite, raises: bool) -> LeaseReply {
        let new = &write.row.tuple;
        let claims = !new.is_released() && state.row.as_ref().is_none_or(|row| row.tuple.owner != new.owner);
        let takes = claims && matches!(write.condition, Condition::Exactly { .. }) && write.row.evidence.is_none();
        let unconditional = takes && self.leaves_out(LeaseRule::ClaimsAreConditional);
        if !holds(&write.condition, state.row.as_ref()) && !unconditional {
            return LeaseReply::Refused(state.row.clone());
        }
        if let Some(old) = state.row.as_ref().filter(|old| old.tuple != *new) {
            if old.tuple.is_released() && claims {
                self.seen.note(Sight::TakenAfterRelease);
            } else if claims {
                let early = state.now < state.changed + self.ttl;
                self.seen.note(if early && self.testimony != Says::Nothing { Sight::TakenByTestimony } else { Sight::TakenByExpiry });
                let proven = match self.testimony {
                    Says::Nothing => false,
                    Says::TheTruth => self.is_over(state, &old.tuple.owner),
                    Says::AllHaveStopped => true,
                };
                if early && !proven && self.restores == 0 {
                    state.broken = Some("taken over early");
                }
            }
            let own = old.tuple.owner == new.owner || new.is_released();
            let follows = if own { new.version >= old.tuple.version } else { new.version > old.tuple.version };
            if !follows {
                state.broken = Some("a version is given twice");
            }
            state.changed = state.now;
        }
        state.row = Some(write.row.clone());
        LeaseReply::Written { raised: raises.then_some(write.row) }
    }

    pub fn lease_returns(&self, state: &mut State, worker: usize) {
        let Some((LeaseCall::Answered(reply), sent)) = state.workers[worker].lease_call.take() else { return };
        match reply {
            LeaseReply::Row(row) => self.row_read(state, worker, Ok(row), sent),
            LeaseReply::Task(told) => self.task_told(state, worker, Some(told)),
            LeaseReply::Written { raised: Some(row) } => {
                self.seen.note(Sight::Raised);
                if let Role::Holder(holder) = &state.workers[worker].role {
                    let held = Held { row, deadline: holder.deadline() };
                    self.begin_term(state, worker, held);
                }
            }
            LeaseReply::Written { raised: None } => self.written(state, worker, Outcome::Done(LeaseAnswer::Written)),
            LeaseReply::Refused(row) => {
                let refused = LeaseAnswer::Refused(row.as_ref().map(RawLease::from));
                self.written(state, worker, Outcome::Done(refused));
            }
        }
    }

    fn task_told(&self, state: &mut State, worker: usize, told: Option<Testimony>) {
        let now = self.now(state, worker);
        let Role::Standby(standby) = &mut state.workers[worker].role else { return };
        let mut step = standby.told(now, WALL, told.as_ref());
        if let (standby::Step::Write(write), Some(row)) = (&mut step, &state.row)
            && self.leaves_out(LeaseRule::RowsAreReadBeforeTheQuestion)
        {
            // What the mutant claims: the row as it is now, which it read after it had asked.
            write.condition = Condition::Exactly { tuple: row.tuple.clone(), evidence: row.evidence.clone() };
            write.row.tuple.version = row.tuple.version + 1;
        }
        self.standby_step(state, worker, step);
    }

    fn row_read(&self, state: &mut State, worker: usize, row: Result<Option<LeaseRow>, Fault>, sent: u64) {
        let now = self.now(state, worker);
        let answer = row.as_ref().map(|row| row.as_ref().map(RawLease::from)).map_err(Fault::clone);
        match &mut state.workers[worker].role {
            Role::Standby(standby) => {
                let counted = if self.leaves_out(LeaseRule::ObserversCountFromTheAnswer) { at(sent) } else { now };
                let step = standby.read(counted, WALL, answer);
                if matches!(step, standby::Step::Won(_)) {
                    self.seen.note(Sight::OwnClaimRecognised);
                }
                let step = self.sum(state, worker, row.ok().flatten(), step);
                self.standby_step(state, worker, step);
            }
            Role::Holder(holder) => {
                let before = holder.deadline();
                let why = holder.read(now, answer);
                let later = holder.deadline() > before;
                if later && core::mem::take(&mut state.workers[worker].doubts) {
                    self.seen.note(Sight::OwnRenewalRecognised);
                }
                if let Some(why) = why {
                    self.step_down(state, worker, Some(&why));
                }
            }
            Role::Releasing | Role::Crashed => {}
        }
    }

    /// What the mutant that sums writes instead: the standing evidence and the time since this observer looked last.
    fn sum(&self, state: &mut State, worker: usize, row: Option<LeaseRow>, step: standby::Step) -> standby::Step {
        let Some(row) = row.filter(|_| self.leaves_out(LeaseRule::EvidenceIsNotSummed)) else { return step };
        let now = state.now;
        let last = state.workers[worker].last_read.replace((row.tuple.clone(), now));
        let mine = last.filter(|(tuple, _)| *tuple == row.tuple).map_or(0, |(_, when)| now - when);
        match step {
            standby::Step::Write(mut write) => {
                if let (Some(standing), Some(evidence)) = (&row.evidence, &mut write.row.evidence)
                    && standing.fingerprint == evidence.fingerprint
                {
                    evidence.elapsed_ns = standing.elapsed_ns + mine * 1_000_000_000;
                }
                standby::Step::Write(write)
            }
            other => other,
        }
    }

    fn written(&self, state: &mut State, worker: usize, outcome: Outcome<LeaseAnswer>) {
        let now = self.now(state, worker);
        let life = state.workers[worker].life;
        match &mut state.workers[worker].role {
            Role::Standby(standby) => {
                let step = standby.written(now, outcome);
                self.standby_step(state, worker, step);
            }
            Role::Holder(holder) => {
                let kept = matches!(outcome, Outcome::Done(LeaseAnswer::Written));
                let why = holder.renewed(now, outcome);
                if kept && self.leaves_out(LeaseRule::OwnersStampBeforeSending) {
                    let held = Held { row: holder.row().clone(), deadline: at(state.now + self.ttl) };
                    state.workers[worker].role = self.hold(state, worker, held);
                } else if let Some(why) = why {
                    self.step_down(state, worker, Some(&why));
                }
            }
            Role::Releasing => state.workers[worker].role = Role::Standby(self.standby(worker, life)),
            Role::Crashed => {}
        }
    }

    fn standby_step(&self, state: &mut State, worker: usize, step: standby::Step) {
        match step {
            standby::Step::Write(write) => self.ask(state, worker, LeaseRequest::Write(write)),
            standby::Step::Won(mut held) => {
                if self.leaves_out(LeaseRule::OwnersStampBeforeSending) {
                    held.deadline = at(state.now + self.ttl);
                }
                self.begin_term(state, worker, held);
            }
            standby::Step::Corrupt(_) => state.broken = Some("the row is corrupt"),
            standby::Step::Read | standby::Step::Wait | standby::Step::Failed(_) => {}
        }
    }

    /// The worker gives its call up: the request may still arrive, an answer is lost.
    pub fn lease_is_given_up(&self, state: &mut State, worker: usize) {
        let Some((call, sent)) = state.workers[worker].lease_call.take() else { return };
        match call {
            LeaseCall::Asked(LeaseRequest::Read) | LeaseCall::Answered(LeaseReply::Row(_)) => {
                return self.row_read(state, worker, Err(no_answer()), sent);
            }
            LeaseCall::Asked(LeaseRequest::Task(_)) | LeaseCall::Answered(LeaseReply::Task(_)) => {
                return self.task_told(state, worker, None);
            }
            LeaseCall::Asked(LeaseRequest::Raise(write)) => {
                state.late_writes.push(write);
                // A raise of unknown outcome: the row tells later, to whoever reads it then.
                return self.step_down(state, worker, Some(&Why::Failing(no_answer())));
            }
            LeaseCall::Answered(LeaseReply::Written { raised: Some(_) }) => {
                return self.step_down(state, worker, Some(&Why::Failing(no_answer())));
            }
            LeaseCall::Asked(LeaseRequest::Write(write)) => {
                state.late_writes.push(write);
                state.late_writes.sort_by_key(|write| (write.row.tuple.owner.clone(), write.row.tuple.version, write.row.tuple.renewed_at));
            }
            LeaseCall::Answered(LeaseReply::Written { .. } | LeaseReply::Refused(_)) => {}
        }
        if matches!(state.workers[worker].role, Role::Holder(_)) {
            state.workers[worker].doubts = true;
        }
        self.written(state, worker, Outcome::Unknown(no_answer()));
    }
}
