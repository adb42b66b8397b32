//! What owners ask of the log and of the destination, and the answers.

use crate::automaton::{Input, number_of};
use crate::log::{Log, Told};
use crate::named::Named;
use crate::protocol::{Composed, Flight, Got, LeaseCall, LeaseRequest, Role, Sight, State, Wanted, no_answer};
use causeway_core::log::{Answer, Call};
use causeway_core::outcome::Outcome;

impl Composed {
    pub fn flight_arrives(&self, state: &mut State, worker: usize, nth: usize) {
        let Some(tenure) = state.workers[worker].tenure.clone() else { return };
        let Flight::Asked(wanted) = tenure.flights[nth].clone() else { return };
        let mut told = Told::clone(&tenure.told);
        let got = self.happens(state, tenure.term, &wanted, true, &mut told);
        if let Some(tenure) = &mut state.workers[worker].tenure {
            tenure.flights[nth] = Flight::Answered(Named::new(got));
            tenure.told = Named::new(told);
        }
    }

    /// What was wanted takes effect, whoever still waits for the answer.
    pub fn happens(&self, state: &mut State, term: u64, wanted: &Wanted, waits: bool, told: &mut Told) -> Got {
        let mut log = Log::clone(&state.log);
        let got = match wanted {
            Wanted::Log(call) => Got::Log(log.call(call, &format!("o{term}"), waits, told, self.mutant)),
            Wanted::Send(batch, entries) => {
                let messages: Vec<u8> = entries.iter().map(|entry| number_of(entry)).collect();
                if term > 1 && messages.iter().any(|message| log.acknowledged.contains(message)) {
                    state.sight = Sight::DeliveredByASuccessor;
                }
                log.delivered.extend(&messages);
                Got::Sent(*batch, messages)
            }
        };
        if core::mem::take(&mut log.refused) {
            state.sight = Sight::Refused;
        }
        state.log = Named::new(log);
        got
    }

    pub fn flight_returns(&self, state: &mut State, worker: usize, nth: usize) {
        let Some(tenure) = &mut state.workers[worker].tenure else { return };
        let Flight::Answered(got) = tenure.flights.remove(nth) else { return };
        let input = match &*got {
            Got::Log(answer) => Input::Log(answer.clone()),
            Got::Sent(batch, messages) => {
                let mut log = Log::clone(&state.log);
                log.settled(self.mutant);
                state.log = Named::new(log);
                Input::Sent { batch: *batch, entries: messages.len() }
            }
        };
        self.tell(state, worker, input);
    }

    /// The owner gives up waiting for its log.
    pub fn flight_is_given_up(&self, state: &mut State, worker: usize, nth: usize) {
        let Some(tenure) = &mut state.workers[worker].tenure else { return };
        let term = tenure.term;
        let Flight::Asked(wanted) = tenure.flights.remove(nth) else { return };
        let Wanted::Log(call) = &*wanted else { return };
        let answer = match call {
            Call::ReadTail => Answer::Tail(Err(no_answer())),
            Call::ReadHead => Answer::Head(Err(no_answer())),
            Call::ReadRecord | Call::Register { .. } | Call::MoveMail { .. } => return,
            Call::Put { .. } => Answer::Put(Outcome::Unknown(no_answer())),
            Call::ReadPage { purpose, .. } => Answer::Page { purpose: *purpose, page: Err(no_answer()) },
            Call::PutHead { .. } => Answer::HeadPut(Outcome::Unknown(no_answer())),
            Call::Delete { .. } => Answer::Deleted(Outcome::Unknown(no_answer())),
        };
        state.late.push((term, wanted));
        state.late.sort_by_key(|(term, wanted)| (*term, wanted.digest()));
        self.tell(state, worker, Input::Log(answer));
    }

    pub fn crash(&self, state: &mut State, worker: usize) {
        self.end_term(state, worker);
        if let Some(LeaseCall::Asked(LeaseRequest::Write(write) | LeaseRequest::Raise(write))) = state.workers[worker].lease_call.take() {
            state.late_writes.push(write);
        }
        state.workers[worker].role = Role::Crashed;
    }
}
