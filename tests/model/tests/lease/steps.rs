//! Which steps may follow a state, and what must hold in every state.

use crate::protocol::{Answer, Call, Lease, Request, Role, Sight, State, Step, Worker, at};
use stateright::{Model, Property};

impl State {
    /// The workers that believe that they may act.
    pub fn acting(&self) -> usize {
        let acts = |worker: &&Worker| matches!(&worker.role, Role::Holder(holder) if holder.may_act(at(self.now)));
        self.workers.iter().filter(acts).count()
    }
}

impl Model for Lease {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        if state.now < self.horizon {
            steps.push(Step::Second);
        }
        for (nth, worker) in (0_u8..).zip(&state.workers) {
            match &worker.call {
                None => {
                    let due = match &worker.role {
                        Role::Standby(_) => true,
                        Role::Holder(holder) => holder.next() <= at(state.now),
                        Role::Releasing => false,
                    };
                    if due {
                        steps.push(Step::Poll(nth));
                    }
                    if state.releases > 0 && matches!(worker.role, Role::Holder(_)) {
                        steps.push(Step::Release(nth));
                    }
                }
                Some((call, _)) => {
                    steps.push(if matches!(call, Call::Asked(_)) { Step::Arrive(nth) } else { Step::Answer(nth) });
                    if state.give_ups > 0 {
                        steps.push(Step::GiveUp(nth));
                    }
                }
            }
            if state.crashes > 0 {
                steps.push(Step::Crash(nth));
            }
        }
        steps.extend((0_u8..).zip(&state.late).map(|(nth, _)| Step::Late(nth)));
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        state.sight = Sight::Nothing;
        match step {
            Step::Second => state.now += 1,
            Step::Poll(worker) => self.poll(&mut state, worker.into()),
            Step::Arrive(worker) => self.arrive(&mut state, worker.into()),
            Step::Answer(worker) => self.answer(&mut state, worker.into()),
            Step::GiveUp(worker) => self.give_up(&mut state, worker.into()),
            Step::Late(nth) => {
                let (_, write) = state.late.remove(nth.into());
                if self.write(&mut state, write) == Answer::Written && state.sight == Sight::Nothing {
                    state.sight = Sight::LateRequestApplied;
                }
            }
            Step::Crash(nth) => {
                let worker = usize::from(nth);
                state.crashes -= 1;
                let life = state.workers[worker].life + 1;
                if let Some((Call::Asked(Request::Write(write)), _)) = state.workers[worker].call.take() {
                    state.late.push((nth, write));
                }
                state.workers[worker] =
                    Worker { role: Role::Standby(self.standby(worker, life)), call: None, life, last_read: None, doubts: false };
            }
            Step::Release(worker) => {
                state.releases -= 1;
                self.step_down(&mut state, worker.into(), None);
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("never two that may act", |_, state: &State| state.acting() <= 1),
            Property::always("no rule of the row is broken", |_, state: &State| state.broken.is_none()),
            Property::sometimes("taken by expiry", |_, state: &State| state.sight == Sight::TakenByExpiry),
            Property::sometimes("taken after release", |_, state: &State| state.sight == Sight::TakenAfterRelease),
            Property::sometimes("own renewal recognised", |_, state: &State| state.sight == Sight::OwnRenewalRecognised),
            Property::sometimes("own claim recognised", |_, state: &State| state.sight == Sight::OwnClaimRecognised),
            Property::sometimes("late request applied", |_, state: &State| state.sight == Sight::LateRequestApplied),
            Property::sometimes("stepped down", |_, state: &State| state.sight == Sight::SteppedDown),
        ]
    }
}
