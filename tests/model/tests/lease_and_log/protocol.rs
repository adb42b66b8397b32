//! Workers that compete for a lease and write a log under it: every state, and what a worker's owner brings about.

use crate::automaton::{Automaton, Input, Output};
use crate::log::Log;
use crate::named::Named;
use crate::seen::{Seen, Sight};
use causeway_core::drain::BatchId;
use causeway_core::drain::retry::Jitter;
use causeway_core::identity::Epoch;
use causeway_core::lease::holder::{Holder, Upkeep, Why};
use causeway_core::lease::row::{LeaseRow, OwnerFacts, Tuple};
use causeway_core::lease::standby::{Candidate, Standby};
use causeway_core::lease::testimony::{Testimony, cluster_of};
use causeway_core::lease::{Condition, Held, LeaseWrite};
use causeway_core::log::writer::WriterEnd;
use causeway_core::log::{Answer, Call};
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::End;
use causeway_sim::reference::{LeaseRule, LogRule, Told};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Log(LogRule),
    Lease(LeaseRule),
}

/// What is modelled.
#[derive(Clone, Debug)]
pub struct Composed {
    pub workers: usize,
    /// The lease's time, in ticks of a second.
    pub ttl: u64,
    /// Time ends here.
    pub horizon: u64,
    pub begins: Begins,
    /// Messages that wait at the broker of a log that is written under the lease; `None`: the lease alone.
    pub log: Option<u8>,
    /// Owners renew every second. Else an owner falls silent by not being asked.
    pub renews: bool,
    /// Requests to the lease take effect and are answered at once.
    pub at_once: bool,
    /// The clock of the first worker stands still, so that it never finds its lease expired: what must hold then is what the log's conditions guarantee.
    pub a_clock_stands_still: bool,
    /// Calls that may be given up although they still take effect.
    pub give_ups: u8,
    /// Of the calls only those that put a row into the log are given up.
    pub only_puts_are_given_up: bool,
    /// Workers that may crash.
    pub crashes: u8,
    /// They start again, with another name and no memory.
    pub come_back: bool,
    /// Leases that may be given back.
    pub releases: u8,
    /// How often the lease table may be put back to what it was at first, while everybody runs.
    pub restores: u8,
    /// What the orchestrator says of tasks, if anybody asks.
    pub testimony: Says,
    /// The rule that is left out.
    pub without: Option<Without>,
    /// What was seen while exploring.
    pub seen: Arc<Seen>,
}

/// What the orchestrator says of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// Nobody asks.
    Nothing,
    /// Who has ended has stopped; who lives is to stop, and runs.
    TheTruth,
    /// Everybody has stopped.
    AllHaveStopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// Nobody owns the lease.
    Released,
    /// Somebody does who is gone.
    OfNobodyHere,
    /// The first worker does.
    Held,
    /// The first worker does, and its log is open.
    Open,
}

#[allow(clippy::large_enum_variant, reason = "states are copied whole anyway")]
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
    /// What became of a task.
    Task(String),
    Write(LeaseWrite),
    /// The version goes above the log's epoch.
    Raise(LeaseWrite),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseReply {
    Row(Option<LeaseRow>),
    Task(Testimony),
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
    /// The call to the lease that it waits for; and when it was sent, where that makes a difference.
    pub lease_call: Option<(LeaseCall, u64)>,
    /// Its life; part of its name.
    pub life: u8,
    /// For the mutant that sums: the last row it read, and when.
    pub last_read: Option<(Tuple, u64)>,
    /// One of its renewals was given up.
    pub doubts: bool,
    pub tenure: Option<Tenure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u64,
    pub row: Option<LeaseRow>,
    /// When its tuple changed last.
    pub changed: u64,
    pub workers: Vec<Worker>,
    pub log: Log,
    pub waiting: VecDeque<u8>,
    pub connected: Option<u8>,
    /// Requests whose callers gave them up or are gone, with the name of the owner.
    pub late: Vec<(u64, Named<Wanted>)>,
    pub late_writes: Vec<LeaseWrite>,
    pub terms: u64,
    /// A rule of the lease's row that was broken.
    pub broken: Option<&'static str>,
    pub give_ups: u8,
    pub crashes: u8,
    pub releases: u8,
    pub restores: u8,
}

pub const fn at(second: u64) -> Instant {
    Instant::from_nanos(second * 1_000_000_000)
}

pub fn no_answer() -> Fault {
    Fault::new(FaultCode::Timeout, "no answer")
}

/// The wall clock never moves: nothing may depend on it.
pub const WALL: UnixMillis = UnixMillis(1);

impl Composed {
    pub fn leaves_out(&self, rule: LeaseRule) -> bool {
        self.without == Some(Without::Lease(rule))
    }

    pub const fn log_rule(&self) -> Option<LogRule> {
        if let Some(Without::Log(rule)) = self.without { Some(rule) } else { None }
    }

    pub fn standby(&self, worker: usize, life: u8) -> Standby {
        let owner = format!("w{worker}#{life}");
        let facts = self.facts_of(&owner);
        Standby::new(Candidate { key: "k".to_owned(), owner, ttl: Duration::from_secs(self.ttl), facts })
    }

    /// Each life of a worker is a task of its own.
    fn facts_of(&self, owner: &str) -> OwnerFacts {
        let task = (self.testimony != Says::Nothing).then(|| format!("arn:aws:ecs:r:1:task/c/{owner}"));
        OwnerFacts { task_arn: task, ..OwnerFacts::default() }
    }

    /// Whether that life of a worker is over; that of whom nobody knows is.
    pub fn is_over(&self, state: &State, owner: &str) -> bool {
        let lives = |(nth, worker): (usize, &Worker)| owner == format!("w{nth}#{}", worker.life) && worker.role != Role::Crashed;
        !state.workers.iter().enumerate().any(lives)
    }

    /// What the orchestrator says of a task.
    pub fn testify(&self, state: &State, task: String) -> Testimony {
        let owner = task.rsplit('/').next().unwrap_or_default();
        let counts_what_is_to_be = self.leaves_out(LeaseRule::OnlyStoppedCounts);
        let stopped = self.testimony == Says::AllHaveStopped || counts_what_is_to_be || self.is_over(state, owner);
        let last_status = if stopped { "STOPPED" } else { "RUNNING" }.to_owned();
        Testimony { cluster: cluster_of(&task).unwrap(), task, launch_type: Some("FARGATE".to_owned()), last_status }
    }

    fn first_row(&self) -> LeaseRow {
        let renewed_at = UnixMillis(1);
        let tuple = if self.begins == Begins::Released {
            Tuple { owner: String::new(), version: 1, renewed_at, expires_at: UnixMillis(0) }
        } else {
            let owner = if self.begins == Begins::OfNobodyHere { "gone#0" } else { "w0#0" };
            Tuple { owner: owner.to_owned(), version: 1, renewed_at, expires_at: renewed_at.plus(Duration::from_secs(self.ttl)) }
        };
        let facts = self.facts_of(&tuple.owner);
        LeaseRow { tuple, acquired_at: renewed_at, evidence: None, facts }
    }

    /// A clock of a worker.
    pub const fn now(&self, state: &State, worker: usize) -> Instant {
        if self.a_clock_stands_still && worker == 0 { at(0) } else { at(state.now) }
    }

    pub fn may_act(&self, state: &State, worker: usize) -> bool {
        matches!(&state.workers[worker].role, Role::Holder(holder) if holder.may_act(self.now(state, worker)))
    }

    pub fn initial(&self) -> State {
        let nobody = |worker| Worker {
            role: Role::Standby(self.standby(worker, 0)),
            lease_call: None,
            life: 0,
            last_read: None,
            doubts: false,
            tenure: None,
        };
        let mut state = State {
            now: 0,
            row: Some(self.first_row()),
            changed: 0,
            workers: (0..self.workers).map(nobody).collect(),
            log: Log::default(),
            waiting: (1..=self.log.unwrap_or(0)).collect(),
            connected: None,
            late: Vec::new(),
            late_writes: Vec::new(),
            terms: 0,
            broken: None,
            give_ups: self.give_ups,
            crashes: self.crashes,
            releases: self.releases,
            restores: self.restores,
        };
        if matches!(self.begins, Begins::Held | Begins::Open) {
            let held = Held { row: self.first_row(), deadline: at(self.ttl) };
            self.begin_term(&mut state, 0, held);
        }
        while self.begins == Begins::Open && state.connected.is_none() {
            self.flight_arrives(&mut state, 0, 0);
            self.flight_returns(&mut state, 0, 0);
        }
        state
    }

    pub fn hold(&self, state: &State, worker: usize, held: Held) -> Role {
        let upkeep = Upkeep {
            ttl: Duration::from_secs(self.ttl),
            renew_interval: Duration::from_secs(if self.renews { 1 } else { 1_000 }),
            jitter: Duration::ZERO,
            max_fails: 1,
            guard: Duration::ZERO,
        };
        Role::Holder(Holder::new(upkeep, held, self.now(state, worker), Jitter::new(0)))
    }

    pub fn begin_term(&self, state: &mut State, worker: usize, held: Held) {
        let version = held.row.tuple.version;
        self.end_term(state, worker);
        state.workers[worker].role = self.hold(state, worker, held);
        state.workers[worker].doubts = false;
        if self.log.is_none() {
            return;
        }
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
    pub fn tell(&self, state: &mut State, worker: usize, name: u64, input: impl FnOnce() -> Input) {
        let may_act = self.may_act(state, worker);
        let Some(tenure) = &mut state.workers[worker].tenure else { return };
        let (owner, outputs) = tenure.owner.told(may_act, name, input);
        tenure.owner = owner;
        self.carry_out(state, worker, &outputs);
    }

    pub fn carry_out(&self, state: &mut State, worker: usize, outputs: &[Output]) {
        for output in outputs {
            match output {
                Output::Wants(wanted) => {
                    let Some(tenure) = &mut state.workers[worker].tenure else { return };
                    tenure.flights.push(Flight::Asked(wanted.clone()));
                }
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
        state.log.acknowledge(messages);
    }

    fn owner_ended(&self, state: &mut State, worker: usize, end: &End) {
        let Role::Holder(holder) = &mut state.workers[worker].role else { return };
        match end {
            End::Ended(WriterEnd::EpochTooLow { found }) => {
                let mut row = holder.row().clone();
                let condition = Condition::Held { owner: row.tuple.owner.clone(), version: row.tuple.version };
                row.tuple.version = found.0 + 1;
                state.workers[worker].lease_call = Some((LeaseCall::Asked(LeaseRequest::Raise(LeaseWrite { condition, row })), 0));
            }
            End::Ended(WriterEnd::Fenced { .. }) => {
                self.seen.note(Sight::Fenced);
                self.step_down(state, worker, None);
            }
            End::Stopped { .. } | End::Retired | End::Ended(WriterEnd::Unusable(_)) | End::Unreadable(_) => {
                panic!("an owner ended: {end:?}")
            }
        }
    }

    pub fn step_down(&self, state: &mut State, worker: usize, why: Option<&Why>) {
        self.seen.note(Sight::SteppedDown);
        self.end_term(state, worker);
        let life = state.workers[worker].life;
        let Role::Holder(holder) = &mut state.workers[worker].role else { return };
        let release = holder.release();
        if matches!(why, Some(Why::Lost | Why::Corrupt)) {
            state.workers[worker].role = Role::Standby(self.standby(worker, life));
        } else {
            state.workers[worker].role = Role::Releasing;
            self.ask(state, worker, LeaseRequest::Write(release));
        }
    }

    /// The worker is gone, with all that it knew; what it asked for may still happen.
    pub fn crash(&self, state: &mut State, worker: usize) {
        self.end_term(state, worker);
        let subject = &mut state.workers[worker];
        if let Some((LeaseCall::Asked(LeaseRequest::Write(write) | LeaseRequest::Raise(write)), _)) = subject.lease_call.take() {
            state.late_writes.push(write);
        }
        (subject.last_read, subject.doubts) = (None, false);
        if self.come_back {
            subject.life += 1;
            subject.role = Role::Standby(self.standby(worker, subject.life));
        } else {
            subject.role = Role::Crashed;
        }
    }
}
