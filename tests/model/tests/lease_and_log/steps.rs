//! The steps that may follow a state, and what must hold in every state.

use crate::automaton::Input;
use crate::protocol::{Composed, Flight, LeaseCall, LeaseReply, Role, Says, State, Wanted};
use crate::seen::Sight;
use causeway_core::log::Call;
use causeway_sim::reference::Told;
use stateright::{Model, Property};
use std::time::Duration;

/// A step. No worker is ever forced to take one: every pause is among the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A second passes.
    Second,
    /// A worker looks at the lease.
    Poll(u8),
    /// A worker asks the orchestrator about the owner that it saw last.
    Ask(u8),
    /// Its request to the lease arrives.
    LeaseArrives(u8),
    /// The answer reaches it.
    LeaseReturns(u8),
    /// It gives the call up.
    LeaseGivenUp(u8),
    /// A write of the lease that was given up arrives.
    LateLease(u8),
    /// A request of its owner arrives.
    Arrives(u8, u8),
    /// Its answer reaches the owner.
    Returns(u8, u8),
    /// The owner gives the call up.
    GivenUp(u8, u8),
    /// A request that nobody waits for arrives.
    Late(u8),
    /// The broker delivers a message.
    Deliver(u8),
    /// The owner looks at what is due.
    Tick(u8),
    /// A worker crashes.
    Crash(u8),
    /// A worker gives the lease back.
    Release(u8),
    /// The lease table is put back.
    Restore,
}

impl Composed {
    fn steps_of(&self, state: &State, nth: u8, steps: &mut Vec<Step>) {
        let worker = &state.workers[usize::from(nth)];
        match (&worker.lease_call, &worker.role) {
            (Some((call, _)), _) => {
                steps.push(if matches!(call, LeaseCall::Asked(_)) { Step::LeaseArrives(nth) } else { Step::LeaseReturns(nth) });
                if state.give_ups > 0 && !self.only_puts_are_given_up {
                    steps.push(Step::LeaseGivenUp(nth));
                }
            }
            (None, Role::Standby(standby)) => {
                steps.push(Step::Poll(nth));
                if standby.overdue_at(self.now(state, nth.into()), Duration::ZERO).is_some() {
                    steps.push(Step::Ask(nth));
                }
            }
            (None, Role::Holder(holder)) => {
                if holder.next() <= self.now(state, nth.into()) {
                    steps.push(Step::Poll(nth));
                }
                if state.releases > 0 {
                    steps.push(Step::Release(nth));
                }
            }
            (None, Role::Releasing | Role::Crashed) => {}
        }
        if let Some(tenure) = &worker.tenure {
            for (index, flight) in (0_u8..).zip(&tenure.flights) {
                match flight {
                    Flight::Asked(wanted) => {
                        steps.push(Step::Arrives(nth, index));
                        let may = match &**wanted {
                            Wanted::Log(Call::Put { .. }) => true,
                            Wanted::Log(_) => !self.only_puts_are_given_up,
                            Wanted::Send(..) => false,
                        };
                        if may && state.give_ups > 0 {
                            steps.push(Step::GivenUp(nth, index));
                        }
                    }
                    Flight::Answered(_) => steps.push(Step::Returns(nth, index)),
                }
            }
            let takes = tenure.owner.wants_input && self.may_act(state, nth.into());
            if takes && state.connected == Some(nth) && !state.waiting.is_empty() {
                steps.push(Step::Deliver(nth));
            }
            steps.push(Step::Tick(nth));
        }
        if state.crashes > 0 && worker.role != Role::Crashed {
            steps.push(Step::Crash(nth));
        }
    }

    fn deliver(&self, state: &mut State, worker: usize) {
        let Some(message) = state.waiting.pop_front() else { return };
        let Some(tenure) = &mut state.workers[worker].tenure else { return };
        tenure.delivered.push(message);
        let ordinal = tenure.delivered.len() as u64;
        // Names no digest of an answer can have, in practice.
        let name = 1_000 * ordinal + u64::from(message);
        self.tell(state, worker, name, || Input::Deliver { ordinal, message });
    }
}

impl Model for Composed {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.log.broken().is_some() || state.broken.is_some() {
            return;
        }
        if state.now < self.horizon {
            steps.push(Step::Second);
        }
        for nth in 0..self.workers {
            self.steps_of(state, nth as u8, steps);
        }
        steps.extend((0..state.late.len()).map(|nth| Step::Late(nth as u8)));
        steps.extend((0..state.late_writes.len()).map(|nth| Step::LateLease(nth as u8)));
        if state.restores > 0 {
            steps.push(Step::Restore);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Second => state.now += 1,
            Step::Poll(worker) => self.poll(&mut state, worker.into()),
            Step::Ask(worker) => self.ask_about_the_owner(&mut state, worker.into()),
            Step::LeaseArrives(worker) => self.lease_arrives(&mut state, worker.into()),
            Step::LeaseReturns(worker) => self.lease_returns(&mut state, worker.into()),
            Step::LeaseGivenUp(worker) => {
                state.give_ups -= 1;
                self.lease_is_given_up(&mut state, worker.into());
            }
            Step::LateLease(nth) => {
                let write = state.late_writes.remove(nth.into());
                if matches!(self.write(&mut state, write, false), LeaseReply::Written { .. }) {
                    self.seen.note(Sight::LateRequestApplied);
                }
            }
            Step::Arrives(worker, nth) => self.flight_arrives(&mut state, worker.into(), nth.into()),
            Step::Returns(worker, nth) => self.flight_returns(&mut state, worker.into(), nth.into()),
            Step::GivenUp(worker, nth) => {
                state.give_ups -= 1;
                self.flight_is_given_up(&mut state, worker.into(), nth.into());
            }
            Step::Late(nth) => {
                let (term, wanted) = state.late.remove(nth.into());
                self.happens(&mut state, term, &wanted, false, &mut Told::default());
                self.seen.note(Sight::LateRequestApplied);
            }
            Step::Deliver(worker) => self.deliver(&mut state, worker.into()),
            Step::Tick(worker) => self.tell(&mut state, worker.into(), 0, || Input::Tick),
            Step::Crash(worker) => {
                state.crashes -= 1;
                self.crash(&mut state, worker.into());
            }
            Step::Release(worker) => {
                state.releases -= 1;
                self.step_down(&mut state, worker.into(), None);
            }
            Step::Restore => {
                state.restores -= 1;
                state.row = self.initial().row;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("never two that may act", |model: &Self, state: &State| {
                // With clocks that stand still, a lease table that is put back under its owners, or an orchestrator that lies nobody promises that.
                let acting = (0..model.workers).filter(|worker| model.may_act(state, *worker)).count();
                acting <= 1 || model.a_clock_stands_still || model.restores > 0 || model.testimony == Says::AllHaveStopped
            }),
            Property::always("no rule of the log is broken", |_, state: &State| state.log.broken().is_none()),
            Property::always("no rule of the row is broken", |_, state: &State| state.broken.is_none()),
        ]
    }
}
