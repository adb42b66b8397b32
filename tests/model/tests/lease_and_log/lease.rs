//! The lease: polls, requests to its row, and their answers.

use crate::protocol::{Composed, LeaseCall, LeaseReply, LeaseRequest, Role, Sight, State, WALL, no_answer};
use causeway_core::lease::holder::{self, Why};
use causeway_core::lease::row::RawLease;
use causeway_core::lease::{Condition, Held, LeaseAnswer, LeaseWrite, standby};
use causeway_core::outcome::Outcome;

impl Composed {
    pub fn poll(&self, state: &mut State, worker: usize) {
        let now = self.now(state, worker);
        match &mut state.workers[worker].role {
            Role::Standby(standby) => {
                let _ = standby.poll();
                state.workers[worker].lease_call = Some(LeaseCall::Asked(LeaseRequest::Read));
            }
            Role::Holder(holder) => {
                if let holder::Step::StepDown(why) = holder.poll(now, WALL) {
                    self.step_down(state, worker, Some(&why));
                }
            }
            Role::Releasing | Role::Crashed => {}
        }
    }

    pub fn lease_arrives(&self, state: &mut State, worker: usize) {
        let Some(LeaseCall::Asked(request)) = state.workers[worker].lease_call.take() else { return };
        let reply = match request {
            LeaseRequest::Read => LeaseReply::Row(state.row.clone()),
            LeaseRequest::Write(write) => self.write(state, write, false),
            LeaseRequest::Raise(write) => self.write(state, write, true),
        };
        state.workers[worker].lease_call = Some(LeaseCall::Answered(reply));
    }

    pub fn write(&self, state: &mut State, write: LeaseWrite, raises: bool) -> LeaseReply {
        let holds = match (&write.condition, &state.row) {
            (Condition::Absent, row) => row.is_none(),
            (Condition::Exactly { tuple, evidence }, Some(row)) => row.tuple == *tuple && row.evidence == *evidence,
            (Condition::Held { owner, version }, Some(row)) => row.tuple.owner == *owner && row.tuple.version == *version,
            (Condition::Exactly { .. } | Condition::Held { .. }, None) => false,
        };
        if !holds {
            return LeaseReply::Refused(state.row.clone());
        }
        state.row = Some(write.row.clone());
        LeaseReply::Written { raised: raises.then_some(write.row) }
    }

    pub fn lease_returns(&self, state: &mut State, worker: usize) {
        let Some(LeaseCall::Answered(reply)) = state.workers[worker].lease_call.take() else { return };
        let now = self.now(state, worker);
        let step = match (&mut state.workers[worker].role, reply) {
            (Role::Standby(standby), LeaseReply::Row(row)) => standby.read(now, WALL, Ok(row.as_ref().map(RawLease::from))),
            (Role::Standby(standby), LeaseReply::Written { .. }) => standby.written(now, Outcome::Done(LeaseAnswer::Written)),
            (Role::Standby(standby), LeaseReply::Refused(row)) => {
                standby.written(now, Outcome::Done(LeaseAnswer::Refused(row.as_ref().map(RawLease::from))))
            }
            (Role::Holder(holder), LeaseReply::Written { raised: Some(row) }) => {
                state.sight = Sight::Raised;
                let held = Held { row, deadline: holder.deadline() };
                return self.begin_term(state, worker, held);
            }
            (Role::Holder(_), LeaseReply::Refused(_)) => return self.step_down(state, worker, Some(&Why::Lost)),
            (Role::Releasing, _) => {
                state.workers[worker].role = Role::Standby(self.standby(worker));
                return;
            }
            (Role::Holder(_) | Role::Crashed, _) => return,
        };
        self.standby_step(state, worker, step);
    }

    fn standby_step(&self, state: &mut State, worker: usize, step: standby::Step) {
        match step {
            standby::Step::Write(write) => state.workers[worker].lease_call = Some(LeaseCall::Asked(LeaseRequest::Write(write))),
            standby::Step::Won(held) => {
                state.sight = Sight::TakenOver;
                self.begin_term(state, worker, held);
            }
            standby::Step::Corrupt(corrupt) => panic!("{corrupt}"),
            standby::Step::Read | standby::Step::Wait | standby::Step::Failed(_) => {}
        }
    }

    pub fn lease_is_given_up(&self, state: &mut State, worker: usize) {
        let Some(call) = state.workers[worker].lease_call.take() else { return };
        let now = self.now(state, worker);
        let reads = matches!(call, LeaseCall::Asked(LeaseRequest::Read) | LeaseCall::Answered(LeaseReply::Row(_)));
        if let LeaseCall::Asked(LeaseRequest::Write(write) | LeaseRequest::Raise(write)) = call {
            state.late_writes.push(write);
        }
        match &mut state.workers[worker].role {
            Role::Standby(standby) if reads => {
                let step = standby.read(now, WALL, Err(no_answer()));
                self.standby_step(state, worker, step);
            }
            Role::Standby(standby) => {
                let step = standby.written(now, Outcome::Unknown(no_answer()));
                self.standby_step(state, worker, step);
            }
            // A raise of unknown outcome: the row tells later, to whoever reads it then.
            Role::Holder(_) => self.step_down(state, worker, Some(&Why::Failing(no_answer()))),
            Role::Releasing => state.workers[worker].role = Role::Standby(self.standby(worker)),
            Role::Crashed => {}
        }
    }
}
