//! Workers that compete for a lease and write a log under it: every state, and every step that may follow.

use crate::automaton::{Automaton, Input, Output};
use crate::log::{Log, Mutant, Told};
use crate::named::Named;
use causeway_core::drain::BatchId;
use causeway_core::drain::retry::Jitter;
use causeway_core::identity::Epoch;
use causeway_core::lease::holder::{Holder, Upkeep, Why};
use causeway_core::lease::row::{LeaseRow, OwnerFacts, Tuple};
use causeway_core::lease::standby::{Candidate, Standby};
use causeway_core::lease::{Condition, Held, LeaseWrite};
use causeway_core::log::writer::WriterEnd;
use causeway_core::log::{Answer, Call};
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::End;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What is modelled.
#[derive(Clone, Debug)]
pub struct Composed {
    pub workers: usize,
    /// The lease's time, in ticks of a second.
    pub ttl: u64,
    /// Time ends here.
    pub horizon: u64,
    /// Messages that wait at the broker.
    pub messages: u8,
    /// At first nobody owns the lease, or the first worker does; and then its log may be open.
    pub begins: Begins,
    /// The clock of the first worker stands still, so that it never finds its lease expired: what must hold then is what the log's conditions guarantee.
    pub a_clock_stands_still: bool,
    /// Calls that may be given up although they still take effect.
    pub give_ups: u8,
    /// Of the calls only those that put a row into the log are given up.
    pub only_puts_are_given_up: bool,
    /// Workers that may crash. They do not come back.
    pub crashes: u8,
    /// How often the lease table may be put back to what it was at first, while everybody runs.
    pub restores: u8,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    Released,
    Held,
    Open,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Standby(Standby),
    Holder(Holder),
    Releasing,
    Crashed,
}

#[allow(clippy::large_enum_variant, reason = "states are copied whole anyway")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseRequest {
    Read,
    Write(LeaseWrite),
    /// The version goes above the log's epoch.
    Raise(LeaseWrite),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseReply {
    Row(Option<LeaseRow>),
    Written { raised: Option<LeaseRow> },
    Refused(Option<LeaseRow>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseCall {
    Asked(LeaseRequest),
    Answered(LeaseReply),
}

/// What an owner asked for: of its log, or of the destination.
#[derive(Clone, Debug)]
pub enum Wanted {
    Log(Call),
    Send(BatchId, Vec<Arc<Entry>>),
}

#[derive(Clone, Debug)]
pub enum Got {
    Log(Answer),
    Sent(BatchId, Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flight {
    Asked(Named<Wanted>),
    Answered(Named<Got>),
}

/// The owner of a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tenure {
    /// Counts the owners of the whole run, and names this one.
    pub term: u64,
    pub owner: Automaton,
    pub flights: Vec<Flight>,
    pub told: Named<Told>,
    /// What its connection delivered, and how much of that was acknowledged.
    pub delivered: Vec<u8>,
    pub acknowledged: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    pub role: Role,
    pub lease_call: Option<LeaseCall>,
    pub tenure: Option<Tenure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sight {
    Nothing,
    TakenOver,
    LateRequestApplied,
    Refused,
    Fenced,
    Raised,
    DeliveredByASuccessor,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u64,
    pub row: Option<LeaseRow>,
    pub workers: Vec<Worker>,
    pub log: Named<Log>,
    pub waiting: VecDeque<u8>,
    pub connected: Option<u8>,
    /// Requests whose callers gave them up or are gone, with the name of the owner.
    pub late: Vec<(u64, Named<Wanted>)>,
    pub late_writes: Vec<LeaseWrite>,
    pub terms: u64,
    pub sight: Sight,
    pub give_ups: u8,
    pub crashes: u8,
    pub restores: u8,
}

const fn at(second: u64) -> Instant {
    Instant::from_nanos(second * 1_000_000_000)
}

pub fn no_answer() -> Fault {
    Fault::new(FaultCode::Timeout, "no answer")
}

pub const WALL: UnixMillis = UnixMillis(1);

impl Composed {
    pub fn standby(&self, worker: usize) -> Standby {
        let ttl = Duration::from_secs(self.ttl);
        Standby::new(Candidate { key: "k".to_owned(), owner: format!("w{worker}"), ttl, facts: OwnerFacts::default() })
    }

    fn first_row(&self) -> LeaseRow {
        let renewed_at = UnixMillis(1);
        let tuple = if self.begins == Begins::Released {
            Tuple { owner: String::new(), version: 1, renewed_at, expires_at: UnixMillis(0) }
        } else {
            Tuple { owner: "w0".to_owned(), version: 1, renewed_at, expires_at: renewed_at.plus(Duration::from_secs(self.ttl)) }
        };
        LeaseRow { tuple, acquired_at: renewed_at, evidence: None, facts: OwnerFacts::default() }
    }

    /// A clock of a worker.
    pub const fn now(&self, state: &State, worker: usize) -> Instant {
        if self.a_clock_stands_still && worker == 0 { at(0) } else { at(state.now) }
    }

    pub fn may_act(&self, state: &State, worker: usize) -> bool {
        matches!(&state.workers[worker].role, Role::Holder(holder) if holder.may_act(self.now(state, worker)))
    }

    pub fn initial(&self) -> State {
        let nobody = |worker| Worker { role: Role::Standby(self.standby(worker)), lease_call: None, tenure: None };
        let mut state = State {
            now: 0,
            row: Some(self.first_row()),
            workers: (0..self.workers).map(nobody).collect(),
            log: Named::new(Log::default()),
            waiting: (1..=self.messages).collect(),
            connected: None,
            late: Vec::new(),
            late_writes: Vec::new(),
            terms: 0,
            sight: Sight::Nothing,
            give_ups: self.give_ups,
            crashes: self.crashes,
            restores: self.restores,
        };
        if self.begins != Begins::Released {
            let held = Held { row: self.first_row(), deadline: at(self.ttl) };
            self.begin_term(&mut state, 0, held);
        }
        while self.begins == Begins::Open && state.connected.is_none() {
            self.flight_arrives(&mut state, 0, 0);
            self.flight_returns(&mut state, 0, 0);
        }
        state
    }

    pub fn begin_term(&self, state: &mut State, worker: usize, held: Held) {
        let version = held.row.tuple.version;
        let upkeep = Upkeep {
            ttl: Duration::from_secs(self.ttl),
            // Renewals are the lease's model's; here an owner falls silent by not being asked.
            renew_interval: Duration::from_secs(1_000),
            jitter: Duration::ZERO,
            max_fails: 1,
            guard: Duration::ZERO,
        };
        self.end_term(state, worker);
        state.workers[worker].role = Role::Holder(Holder::new(upkeep, held, self.now(state, worker), Jitter::new(0)));
        state.terms += 1;
        let term = state.terms;
        let (owner, outputs) = Automaton::born(term, Epoch(version), self.may_act(state, worker));
        let told = Named::new(Told::default());
        state.workers[worker].tenure = Some(Tenure { term, owner, flights: Vec::new(), told, delivered: Vec::new(), acknowledged: 0 });
        self.carry_out(state, worker, &outputs);
    }

    /// What was asked for may still happen; nobody waits for the answers.
    pub fn end_term(&self, state: &mut State, worker: usize) {
        let Some(tenure) = state.workers[worker].tenure.take() else { return };
        let asked = tenure.flights.into_iter().filter_map(|flight| match flight {
            Flight::Asked(wanted) => Some((tenure.term, wanted)),
            Flight::Answered(_) => None,
        });
        state.late.extend(asked);
        state.late.sort_by_key(|(term, wanted)| (*term, wanted.digest()));
        self.disconnect(state, worker, &tenure.delivered, tenure.acknowledged);
    }

    fn disconnect(&self, state: &mut State, worker: usize, delivered: &[u8], acknowledged: usize) {
        if state.connected == Some(worker as u8) {
            state.connected = None;
            for message in delivered[acknowledged..].iter().rev() {
                state.waiting.push_front(*message);
            }
        }
    }

    /// Tells the owner something.
    pub fn tell(&self, state: &mut State, worker: usize, input: Input) {
        let may_act = self.may_act(state, worker);
        let Some(tenure) = &mut state.workers[worker].tenure else { return };
        let (owner, outputs) = tenure.owner.told(may_act, input);
        tenure.owner = owner;
        self.carry_out(state, worker, &outputs);
    }

    pub fn carry_out(&self, state: &mut State, worker: usize, outputs: &[Output]) {
        for output in outputs {
            match output {
                Output::Log(call) => self.launch(state, worker, Wanted::Log(call.clone())),
                Output::Send { batch, entries } => self.launch(state, worker, Wanted::Send(*batch, entries.clone())),
                Output::Acknowledge(up_to) => self.acknowledge(state, worker, usize::try_from(*up_to).unwrap()),
                Output::Opened => self.connect(state, worker),
                Output::Close => {
                    let Some(tenure) = &state.workers[worker].tenure else { return };
                    let (delivered, acknowledged) = (tenure.delivered.clone(), tenure.acknowledged);
                    self.disconnect(state, worker, &delivered, acknowledged);
                }
                Output::Finished(end) => self.owner_ended(state, worker, end),
            }
        }
    }

    fn launch(&self, state: &mut State, worker: usize, wanted: Wanted) {
        let Some(tenure) = &mut state.workers[worker].tenure else { return };
        tenure.flights.push(Flight::Asked(Named::new(wanted)));
    }

    /// The newer connection ends the older one, which is not told: nothing may depend on that.
    fn connect(&self, state: &mut State, worker: usize) {
        if let Some(older) = state.connected.map(usize::from)
            && let Some(tenure) = &state.workers[older].tenure
        {
            let (delivered, acknowledged) = (tenure.delivered.clone(), tenure.acknowledged);
            self.disconnect(state, older, &delivered, acknowledged);
        }
        state.connected = Some(worker as u8);
    }

    fn acknowledge(&self, state: &mut State, worker: usize, up_to: usize) {
        let connected = state.connected == Some(worker as u8);
        let Some(tenure) = &mut state.workers[worker].tenure else { return };
        if !connected {
            return;
        }
        let messages = tenure.delivered[tenure.acknowledged..up_to].to_vec();
        tenure.acknowledged = up_to;
        let mut log = Log::clone(&state.log);
        log.acknowledged.extend(messages);
        log.check_promises();
        state.log = Named::new(log);
    }

    fn owner_ended(&self, state: &mut State, worker: usize, end: &End) {
        let Role::Holder(holder) = &mut state.workers[worker].role else { return };
        match end {
            End::Ended(WriterEnd::EpochTooLow { found }) => {
                let mut row = holder.row().clone();
                let condition = Condition::Held { owner: row.tuple.owner.clone(), version: row.tuple.version };
                row.tuple.version = found.0 + 1;
                state.workers[worker].lease_call = Some(LeaseCall::Asked(LeaseRequest::Raise(LeaseWrite { condition, row })));
            }
            End::Ended(WriterEnd::Fenced { .. }) => {
                state.sight = Sight::Fenced;
                self.step_down(state, worker, None);
            }
            End::Stopped { .. } | End::Retired | End::Ended(WriterEnd::Unusable(_)) | End::Unreadable(_) => {
                panic!("an owner ended: {end:?}")
            }
        }
    }

    pub fn step_down(&self, state: &mut State, worker: usize, why: Option<&Why>) {
        self.end_term(state, worker);
        let Role::Holder(holder) = &mut state.workers[worker].role else { return };
        let release = holder.release();
        if matches!(why, Some(Why::Lost | Why::Corrupt)) {
            state.workers[worker].role = Role::Standby(self.standby(worker));
        } else {
            state.workers[worker].role = Role::Releasing;
            state.workers[worker].lease_call = Some(LeaseCall::Asked(LeaseRequest::Write(release)));
        }
    }
}
