//! The states of the lease's protocol, and every step that may follow.

use causeway_core::drain::retry::Jitter;
use causeway_core::lease::holder::{self, Holder, Upkeep, Why};
use causeway_core::lease::row::{LeaseRow, OwnerFacts, RawLease, Tuple};
use causeway_core::lease::standby::{self, Candidate, Standby};
use causeway_core::lease::{Condition, Held, LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::{Instant, UnixMillis};
use std::time::Duration;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A claim is written whatever the row says by then.
    UnconditionalTakeover,
    /// An observer's interval begins before its read was sent.
    ObserverCountsFromBeforeRead,
    /// An owner's deadline counts from the answer of its write.
    OwnerStampsAfterAnswer,
    /// Each observer adds its own interval to what others observed.
    EvidenceIsSummed,
}

/// What is modelled.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Workers.
    pub workers: usize,
    /// The lease's time, in ticks of a second.
    pub ttl: u64,
    /// Time ends here.
    pub horizon: u64,
    /// Calls that may be given up although they still take effect.
    pub give_ups: u8,
    /// Workers that may crash.
    pub crashes: u8,
    /// Leases that may be given back.
    pub releases: u8,
    /// The row belongs to somebody who is gone; otherwise to the first worker.
    pub owner_is_gone: bool,
    /// Requests take effect and are answered at once.
    pub at_once: bool,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// What a worker is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It waits for the lease.
    Standby(Standby),
    /// It holds it.
    Holder(Holder),
    /// It gives it back.
    Releasing,
}

/// A request on its way.
#[allow(clippy::large_enum_variant, reason = "states are copied whole anyway")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Read the row.
    Read,
    /// Write it.
    Write(LeaseWrite),
}

/// An answer on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The row.
    Row(Option<LeaseRow>),
    /// It was written.
    Written,
    /// The condition did not hold.
    Refused(Option<LeaseRow>),
}

/// Where a call is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// The request is on its way.
    Asked(Request),
    /// The answer is.
    Answered(Answer),
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    /// What it is.
    pub role: Role,
    /// The call that it waits for, and when it was sent.
    pub call: Option<(Call, u64)>,
    /// Its life; part of its name.
    pub life: u8,
    /// For the mutant that sums: the last row it read, and when.
    pub last_read: Option<(Tuple, u64)>,
    /// One of its renewals was given up.
    pub doubts: bool,
}

/// What the last step brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sight {
    /// Nothing of note.
    Nothing,
    /// The lease of an owner that fell silent was taken.
    TakenByExpiry,
    /// A lease that was given back was taken.
    TakenAfterRelease,
    /// A renewal of unknown outcome was recognised.
    OwnRenewalRecognised,
    /// A claim of unknown outcome was recognised.
    OwnClaimRecognised,
    /// A request took effect that its sender had given up.
    LateRequestApplied,
    /// An owner stepped down.
    SteppedDown,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Seconds.
    pub now: u64,
    /// The row.
    pub row: Option<LeaseRow>,
    /// When its tuple changed last.
    pub changed: u64,
    /// The workers.
    pub workers: Vec<Worker>,
    /// Writes that were given up and may still arrive.
    pub late: Vec<(u8, LeaseWrite)>,
    /// What the last step brought about.
    pub sight: Sight,
    /// A rule of the row that was broken.
    pub broken: Option<&'static str>,
    pub give_ups: u8,
    pub crashes: u8,
    pub releases: u8,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A second passes. No worker is forced to do anything meanwhile: each may be paused, at any point, for any time.
    Second,
    /// A worker looks at the lease, or renews it.
    Poll(u8),
    /// Its request arrives.
    Arrive(u8),
    /// The answer arrives.
    Answer(u8),
    /// The worker gives the call up. The request may still arrive; an answer is lost.
    GiveUp(u8),
    /// A request that was given up arrives.
    Late(u8),
    /// A worker crashes and starts again, with another name and no memory.
    Crash(u8),
    /// A worker gives the lease back.
    Release(u8),
}

pub const fn at(second: u64) -> Instant {
    Instant::from_nanos(second * 1_000_000_000)
}

fn raw(row: LeaseRow) -> RawLease {
    let wide = |number: u64| Some(i128::from(number));
    RawLease {
        owner: Some(row.tuple.owner),
        version: wide(row.tuple.version),
        acquired_at: wide(row.acquired_at.0),
        renewed_at: wide(row.tuple.renewed_at.0),
        expires_at: wide(row.tuple.expires_at.0),
        fingerprint: row.evidence.as_ref().map(|evidence| evidence.fingerprint.clone()),
        elapsed_ns: row.evidence.as_ref().and_then(|evidence| wide(evidence.elapsed_ns)),
        generation: row.evidence.as_ref().and_then(|evidence| wide(evidence.generation)),
        facts: row.facts,
    }
}

fn no_answer() -> Fault {
    Fault::new(FaultCode::Timeout, "no answer")
}

/// The wall clock never moves: nothing may depend on it.
const WALL: UnixMillis = UnixMillis(1);

impl Lease {
    fn upkeep(&self) -> Upkeep {
        Upkeep {
            ttl: Duration::from_secs(self.ttl),
            renew_interval: Duration::from_secs(1),
            jitter: Duration::ZERO,
            max_fails: 1,
            guard: Duration::ZERO,
        }
    }

    pub fn standby(&self, worker: usize, life: u8) -> Standby {
        let owner = format!("w{worker}#{life}");
        Standby::new(Candidate { key: "k".to_owned(), owner, ttl: Duration::from_secs(self.ttl), facts: OwnerFacts::default() })
    }

    fn hold(&self, held: Held, now: u64) -> Role {
        Role::Holder(Holder::new(self.upkeep(), held, at(now), Jitter::new(0)))
    }

    /// Sends a request; `at_once` it takes effect and is answered before anything else happens.
    fn ask(&self, state: &mut State, worker: usize, request: Request) {
        state.workers[worker].call = Some((Call::Asked(request), state.now));
        if self.at_once {
            self.arrive(state, worker);
            self.answer(state, worker);
        }
    }

    pub fn poll(&self, state: &mut State, worker: usize) {
        let now = state.now;
        match &mut state.workers[worker].role {
            Role::Standby(standby) => {
                let _ = standby.poll();
                self.ask(state, worker, Request::Read);
            }
            Role::Holder(holder) => match holder.poll(at(now), WALL) {
                holder::Step::Until(_) => {}
                holder::Step::Renew(write) => self.ask(state, worker, Request::Write(write)),
                holder::Step::Read => self.ask(state, worker, Request::Read),
                holder::Step::StepDown(why) => self.step_down(state, worker, Some(&why)),
            },
            Role::Releasing => {}
        }
    }

    pub fn step_down(&self, state: &mut State, worker: usize, why: Option<&Why>) {
        state.sight = Sight::SteppedDown;
        let life = state.workers[worker].life;
        let Role::Holder(holder) = &mut state.workers[worker].role else { return };
        let release = holder.release();
        if matches!(why, Some(Why::Lost | Why::Corrupt)) {
            state.workers[worker].role = Role::Standby(self.standby(worker, life));
        } else {
            state.workers[worker].role = Role::Releasing;
            self.ask(state, worker, Request::Write(release));
        }
    }

    pub fn arrive(&self, state: &mut State, worker: usize) {
        let Some((Call::Asked(request), sent)) = state.workers[worker].call.take() else { return };
        let answer = match request {
            Request::Read => Answer::Row(state.row.clone()),
            Request::Write(write) => self.write(state, write),
        };
        state.workers[worker].call = Some((Call::Answered(answer), sent));
    }

    pub fn write(&self, state: &mut State, write: LeaseWrite) -> Answer {
        let claims = !write.row.tuple.is_released() && state.row.as_ref().is_none_or(|row| row.tuple.owner != write.row.tuple.owner);
        let holds = match (&write.condition, &state.row) {
            (Condition::Absent, row) => row.is_none(),
            (Condition::Exactly { tuple, evidence }, Some(row)) => row.tuple == *tuple && row.evidence == *evidence,
            (Condition::Held { owner, version }, Some(row)) => row.tuple.owner == *owner && row.tuple.version == *version,
            (Condition::Exactly { .. } | Condition::Held { .. }, None) => false,
        };
        let takes = claims && matches!(write.condition, Condition::Exactly { .. }) && write.row.evidence.is_none();
        let unconditional = self.mutant == Some(Mutant::UnconditionalTakeover) && takes;
        if !holds && !unconditional {
            return Answer::Refused(state.row.clone());
        }
        if let Some(old) = state.row.as_ref().filter(|old| old.tuple != write.row.tuple) {
            let new = &write.row.tuple;
            if old.tuple.is_released() && claims {
                state.sight = Sight::TakenAfterRelease;
            } else if claims {
                state.sight = Sight::TakenByExpiry;
                if state.now < state.changed + self.ttl {
                    state.broken = Some("taken over early");
                }
            }
            let own = old.tuple.owner == new.owner || new.is_released();
            let version = if own { new.version >= old.tuple.version } else { new.version > old.tuple.version };
            if !version {
                state.broken = Some("a version is given twice");
            }
        }
        if state.row.as_ref().is_none_or(|row| row.tuple != write.row.tuple) {
            state.changed = state.now;
        }
        state.row = Some(write.row);
        Answer::Written
    }

    pub fn answer(&self, state: &mut State, worker: usize) {
        let Some((Call::Answered(answer), sent)) = state.workers[worker].call.take() else { return };
        match answer {
            Answer::Row(row) => self.row_read(state, worker, Ok(row), sent),
            Answer::Written => self.written(state, worker, Outcome::Done(LeaseAnswer::Written)),
            Answer::Refused(row) => self.written(state, worker, Outcome::Done(LeaseAnswer::Refused(row.map(raw)))),
        }
    }

    fn row_read(&self, state: &mut State, worker: usize, row: Result<Option<LeaseRow>, Fault>, sent: u64) {
        let now = state.now;
        let answer = row.clone().map(|row| row.map(raw));
        match &mut state.workers[worker].role {
            Role::Standby(standby) => {
                let counted = if self.mutant == Some(Mutant::ObserverCountsFromBeforeRead) { sent } else { now };
                let step = standby.read(at(counted), WALL, answer);
                if matches!(step, standby::Step::Won(_)) {
                    state.sight = Sight::OwnClaimRecognised;
                }
                let step = self.sum(state, worker, row.ok().flatten(), step);
                self.standby_step(state, worker, step);
            }
            Role::Holder(holder) => {
                let before = holder.deadline();
                let why = holder.read(at(now), answer);
                if holder.deadline() > before && state.workers[worker].doubts {
                    state.sight = Sight::OwnRenewalRecognised;
                    state.workers[worker].doubts = false;
                }
                if let Some(why) = why {
                    self.step_down(state, worker, Some(&why));
                }
            }
            Role::Releasing => {}
        }
    }

    /// What the mutant that sums writes instead: the standing evidence and the time since this observer looked last.
    fn sum(&self, state: &mut State, worker: usize, row: Option<LeaseRow>, step: standby::Step) -> standby::Step {
        if self.mutant != Some(Mutant::EvidenceIsSummed) {
            return step;
        }
        let now = state.now;
        let Some(row) = row else { return step };
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
        let now = state.now;
        let life = state.workers[worker].life;
        match &mut state.workers[worker].role {
            Role::Standby(standby) => {
                let step = standby.written(at(now), outcome);
                self.standby_step(state, worker, step);
            }
            Role::Holder(holder) => {
                let kept = matches!(outcome, Outcome::Done(LeaseAnswer::Written));
                let why = holder.renewed(at(now), outcome);
                if kept && self.mutant == Some(Mutant::OwnerStampsAfterAnswer) {
                    let held = Held { row: holder.row().clone(), deadline: at(now + self.ttl) };
                    state.workers[worker].role = self.hold(held, now);
                } else if let Some(why) = why {
                    self.step_down(state, worker, Some(&why));
                }
            }
            Role::Releasing => state.workers[worker].role = Role::Standby(self.standby(worker, life)),
        }
    }

    fn standby_step(&self, state: &mut State, worker: usize, step: standby::Step) {
        match step {
            standby::Step::Write(write) => self.ask(state, worker, Request::Write(write)),
            standby::Step::Won(mut held) => {
                if self.mutant == Some(Mutant::OwnerStampsAfterAnswer) {
                    held.deadline = at(state.now + self.ttl);
                }
                state.workers[worker].role = self.hold(held, state.now);
                state.workers[worker].doubts = false;
            }
            standby::Step::Corrupt(_) => state.broken = Some("the row is corrupt"),
            standby::Step::Read | standby::Step::Wait | standby::Step::Failed(_) => {}
        }
    }

    pub fn give_up(&self, state: &mut State, worker: usize) {
        let Some((call, sent)) = state.workers[worker].call.take() else { return };
        state.give_ups -= 1;
        let reads = matches!(call, Call::Asked(Request::Read) | Call::Answered(Answer::Row(_)));
        if let Call::Asked(Request::Write(write)) = call {
            state.late.push((u8::try_from(worker).unwrap_or(0), write));
            state.late.sort_by_key(|(worker, write)| (*worker, write.row.tuple.version, write.row.tuple.renewed_at));
        }
        if matches!(state.workers[worker].role, Role::Holder(_)) && !reads {
            state.workers[worker].doubts = true;
        }
        if reads {
            self.row_read(state, worker, Err(no_answer()), sent);
        } else {
            self.written(state, worker, Outcome::Unknown(no_answer()));
        }
    }

    pub fn initial(&self) -> State {
        let owner = if self.owner_is_gone { "gone#0" } else { "w0#0" };
        let ttl = Duration::from_secs(self.ttl);
        let tuple = Tuple { owner: owner.to_owned(), version: 1, renewed_at: UnixMillis(1), expires_at: UnixMillis(1).plus(ttl) };
        let row = LeaseRow { tuple, acquired_at: UnixMillis(1), evidence: None, facts: OwnerFacts::default() };
        let workers = (0..self.workers)
            .map(|worker| {
                let owns = worker == 0 && !self.owner_is_gone;
                let held = Held { row: row.clone(), deadline: at(self.ttl) };
                let role = if owns { self.hold(held, 0) } else { Role::Standby(self.standby(worker, 0)) };
                Worker { role, call: None, life: 0, last_read: None, doubts: false }
            })
            .collect();
        State {
            now: 0,
            row: Some(row),
            changed: 0,
            workers,
            late: Vec::new(),
            sight: Sight::Nothing,
            broken: None,
            give_ups: self.give_ups,
            crashes: self.crashes,
            releases: self.releases,
        }
    }
}
