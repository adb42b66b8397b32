//! What owners ask of the log and of the destination, and the answers.

use crate::automaton::{Input, number_of};
use crate::named::Named;
use crate::protocol::{Composed, Flight, Got, State, Wanted, no_answer};
use crate::seen::Sight;
use causeway_core::log::{Answer, Call, Put};
use causeway_core::outcome::Outcome;
use causeway_sim::reference::Told;

impl Composed {
    pub fn flight_arrives(&self, state: &mut State, worker: usize, nth: usize) {
        let Some(tenure) = &state.workers[worker].tenure else { return };
        let (term, mut told) = (tenure.term, *tenure.told);
        let Flight::Asked(wanted) = tenure.flights[nth].clone() else { return };
        let got = self.happens(state, term, &wanted, true, &mut told);
        if let Some(tenure) = &mut state.workers[worker].tenure {
            tenure.flights[nth] = Flight::Answered(Named::new(got));
            tenure.told = Named::new(told);
        }
    }

    /// What was wanted takes effect, whoever still waits for the answer.
    pub fn happens(&self, state: &mut State, term: u64, wanted: &Wanted, waits: bool, told: &mut Told) -> Got {
        match wanted {
            Wanted::Log(call) => {
                let answer = state.log.call(call, term, waits, told, self.log_rule());
                if matches!(answer, Answer::Put(Outcome::Done(Put::Occupied(_)))) {
                    self.seen.note(Sight::PutRefused);
                }
                Got::Log(answer)
            }
            Wanted::Send(batch, entries) => {
                let messages: Vec<u8> = entries.iter().map(|entry| number_of(entry)).collect();
                if term > 1 && messages.iter().any(|message| state.log.acknowledged().contains(message)) {
                    self.seen.note(Sight::DeliveredByASuccessor);
                }
                state.log.deliver(&messages);
                if state.log.delivered().len() == usize::from(self.log.unwrap_or(0)) {
                    self.seen.note(Sight::EverythingArrived);
                }
                Got::Sent(*batch, messages)
            }
        }
    }

    pub fn flight_returns(&self, state: &mut State, worker: usize, nth: usize) {
        let Some(tenure) = &mut state.workers[worker].tenure else { return };
        let Flight::Answered(got) = tenure.flights.remove(nth) else { return };
        if matches!(*got, Got::Sent(..)) {
            state.log.settled(self.log_rule());
        }
        self.tell(state, worker, got.digest(), || match &*got {
            Got::Log(answer) => Input::Log(answer.clone()),
            Got::Sent(batch, messages) => Input::Sent { batch: *batch, entries: messages.len() },
        });
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
        let got = Named::new(Got::Log(answer.clone()));
        self.tell(state, worker, got.digest(), || Input::Log(answer));
    }
}
