//! A member of a bridge: it waits for a session's lease, owns the session while it holds it, and hands it over.
//!
//! [`Member`] composes the standby, the holder and the owner. It is to the lease what the owner is to the log: one event in, effects out, no I/O.
//! Each time it wins the lease a new *term* begins, with an owner of its own; what comes back from an earlier term is not listened to.

mod handover;

pub use handover::{Handover, LeaseCounters};

use crate::drain::retry::Jitter;
use crate::identity::Epoch;
use crate::lease::holder::{self, Holder, Upkeep, Why};
use crate::lease::row::{CorruptLease, LeaseRow, OwnerFacts, RawLease};
use crate::lease::standby::{self, Candidate, Standby};
use crate::lease::{Condition, Held, LeaseAnswer, LeaseWrite};
use crate::log::writer::WriterEnd;
use crate::metrics::FailoverCause;
use crate::outcome::{Fault, Outcome};
use crate::units::{Instant, UnixMillis};
use crate::worker::counters::RouteCounters;
use crate::worker::options::OwnerOptions;
use crate::worker::{self, End, Owner};
use core::time::Duration;
use handover::Sighting;

/// Polls are spread by a quarter of their interval each way, so that members do not look in step.
const POLL_SPREAD: f64 = 0.25;

/// What a member needs to know.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// Itself.
    pub candidate: Candidate,
    /// How it keeps the lease.
    pub upkeep: Upkeep,
    /// How often it looks at the lease while it waits.
    pub poll_interval: Duration,
    /// It looks one interval later than the others: the last one to take over (the control role).
    pub looks_late: bool,
    /// How long it settles what is in flight before it gives the lease back.
    pub step_down_grace: Duration,
    /// How long it stays out after it stepped down.
    pub hold_off: Duration,
    /// How long it stays out after it lost its way to the broker: long enough for another to win.
    pub broker_hold_off: Duration,
    /// After how long without its broker it steps down; `None`: never.
    pub broker_health_step_down: Option<Duration>,
    /// How long an owner may take to open its log. Then it steps down: nothing is consumed meanwhile, and another may reach the store. It is one of the
    /// four `reconcile_timeout` in the activation term of the failover budget.
    pub opening_timeout: Duration,
    /// The owner that each term gets. Its epoch is the lease's version.
    pub owner: OwnerOptions,
}

/// A term of ownership within this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// Time went by.
    Tick,
    /// The lease row was read.
    LeaseRead(Result<Option<RawLease>, Fault>),
    /// A write of the lease row was answered.
    LeaseWritten(Outcome<LeaseAnswer>),
    /// Something happened to the owner of a term.
    Owner {
        /// The term.
        term: Term,
        /// What.
        event: worker::Event,
    },
    /// The source of the present term is connected and subscribed as it should be.
    Converged,
    /// The source lost its broker.
    BrokerLost,
    /// Somebody says that the lease is free. Only a reason to look.
    Hint,
    /// Hand over and end.
    Shutdown {
        /// No send begins after this.
        drain_until: Instant,
    },
}

/// Something to do. In order: an effect begins after those before it have begun, and after a `CloseSource` before it has ended.
#[allow(clippy::large_enum_variant, reason = "moved into a list and out of it: a box for the large ones would cost more than the copies")]
#[derive(Debug)]
pub enum Effect {
    /// Read the lease row, consistently; the answer comes back as [`Event::LeaseRead`].
    ReadLease,
    /// Write the lease row under its condition; the answer comes back as [`Event::LeaseWritten`].
    WriteLease(LeaseWrite),
    /// An effect of the term's owner.
    Owner {
        /// The term.
        term: Term,
        /// What to do.
        effect: worker::Effect,
    },
    /// Nothing to do: the member's part changed.
    Became(Part),
    /// It is over.
    Finished(Result<(), Fault>),
}

/// The part that a member plays.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// It waits for the lease.
    Standby,
    /// It cannot tell who owns the lease.
    Blind(Fault),
    /// The row cannot be believed.
    Stuck(CorruptLease),
    /// It owns the session.
    Owner {
        /// The term.
        term: Term,
        /// The lease's version, which is the log's epoch.
        version: u64,
    },
    /// It hands over.
    SteppingDown(Reason),
    /// It stays out for a while.
    HoldingOff(Duration),
}

/// Why a member steps down.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The lease is not its own any more, or nobody can tell.
    Lease(Why),
    /// Another owner writes the log.
    Fenced,
    /// It lost its way to the broker.
    BrokerPath,
    /// It was told to stop.
    Shutdown,
    /// The log cannot be used.
    Log(Fault),
    /// The log was not open in time.
    OpeningTimeout,
}

impl Reason {
    /// What the successor is told of it, if the lease can be given back at all.
    #[must_use]
    pub const fn cause(&self) -> FailoverCause {
        match self {
            Self::Lease(_) => FailoverCause::Crash,
            Self::BrokerPath => FailoverCause::BrokerPath,
            Self::Fenced | Self::Shutdown | Self::Log(_) | Self::OpeningTimeout => FailoverCause::Release,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Standby,
    Renew,
    OwnRead,
    Release,
    Raise(u64),
}

/// What follows once the lease was given back.
#[derive(Clone, Debug)]
enum Then {
    HoldOff(Duration),
    End(Result<(), Fault>),
}

#[derive(Debug)]
struct Tenure {
    term: Term,
    began: Instant,
    holder: Holder,
    owner: Owner,
    leaving: Option<Then>,
    /// Why it leaves, and since when there was reason to, by the wall clock.
    left: Option<(FailoverCause, UnixMillis)>,
    converged_once: bool,
    broker_lost_at: Option<Instant>,
    /// The log's epoch that the lease's version has to be raised above.
    raise_above: Option<Epoch>,
}

#[allow(clippy::large_enum_variant, reason = "there is one, and it stays where it is")]
#[derive(Debug)]
enum State {
    Standby { standby: Standby, next_poll: Instant },
    Owner(Box<Tenure>),
    Releasing { write: Option<LeaseWrite>, then: Then },
    HoldingOff { until: Instant },
    Finished,
}

/// A member of a bridge, for one session.
#[derive(Debug)]
pub struct Member {
    options: MemberOptions,
    jitter: Jitter,
    state: State,
    call: Option<Call>,
    terms: u64,
    part: Part,
    stopping: bool,
    /// When it took its first event, by the wall clock.
    born: Option<UnixMillis>,
    /// The wall clock at the event that is being taken.
    wall: UnixMillis,
    sighting: Option<Sighting>,
    /// The version of the last lease that it gave back itself.
    gave_back: Option<u64>,
    handover: Option<Handover>,
    counters: LeaseCounters,
    /// What the owners of earlier terms counted, for each route and last for entries whose route is gone.
    past: Vec<RouteCounters>,
    effects: Vec<Effect>,
}

impl Member {
    /// A member that looks at the lease at once, or one interval later if it looks late.
    #[must_use]
    pub fn new(options: MemberOptions, now: Instant) -> Self {
        let jitter = Jitter::new(options.owner.jitter_seed);
        let next_poll = if options.looks_late { now.plus(options.poll_interval) } else { now };
        let standby = Standby::new(options.candidate.clone());
        Self {
            jitter,
            state: State::Standby { standby, next_poll },
            call: None,
            terms: 0,
            part: Part::Standby,
            stopping: false,
            born: None,
            wall: UnixMillis::default(),
            sighting: None,
            gave_back: None,
            handover: None,
            counters: LeaseCounters::default(),
            past: vec![RouteCounters::default(); options.owner.routes.len() + 1],
            effects: Vec::new(),
            options,
        }
    }

    /// A member that holds the lease already: somebody else waited for it under the same name. Its first event begins its first term.
    #[must_use]
    pub fn holding(options: MemberOptions, held: Held, now: Instant) -> Self {
        let mut member = Self::new(options, now);
        member.begin_term(now, held);
        member
    }

    /// What the owners of earlier terms counted, for each route and last for entries whose route is gone.
    #[must_use]
    pub fn past_counters(&self) -> &[RouteCounters] {
        &self.past
    }

    /// How it came by the lease that it holds; `None` where it holds none, or nobody had it before.
    #[must_use]
    pub const fn handover(&self) -> Option<&Handover> {
        self.handover.as_ref()
    }

    /// What it counted about its leases.
    #[must_use]
    pub const fn lease_counters(&self) -> LeaseCounters {
        self.counters
    }

    /// Ends the term, if one runs: its owner's counters are kept.
    fn go(&mut self, state: State) {
        if let State::Owner(tenure) = &self.state {
            for (past, closed) in self.past.iter_mut().zip(tenure.owner.closing_counters()) {
                past.add(&closed);
            }
        }
        self.state = state;
    }

    /// The part that it plays.
    #[must_use]
    pub const fn part(&self) -> &Part {
        &self.part
    }

    /// The present term and its owner, if it owns the session.
    #[must_use]
    pub fn owner(&self) -> Option<(Term, &Owner)> {
        match &self.state {
            State::Owner(tenure) => Some((tenure.term, &tenure.owner)),
            State::Standby { .. } | State::Releasing { .. } | State::HoldingOff { .. } | State::Finished => None,
        }
    }

    /// Whether it may act for the session now.
    #[must_use]
    pub fn may_act(&self, now: Instant) -> bool {
        matches!(&self.state, State::Owner(tenure) if tenure.holder.may_act(now))
    }

    /// Whether it can take in another message now.
    #[must_use]
    pub fn wants_input(&self, now: Instant) -> bool {
        matches!(&self.state, State::Owner(tenure) if tenure.leaving.is_none() && tenure.holder.may_act(now) && tenure.owner.wants_input())
    }

    /// What the row shall tell of this owner from the next renewal on.
    pub fn tell(&mut self, facts: OwnerFacts) {
        self.options.candidate.facts = facts.clone();
        if let State::Owner(tenure) = &mut self.state {
            tenure.holder.tell(facts);
        }
    }

    /// When to come back with [`Event::Tick`] although nothing happened.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            State::Standby { next_poll, .. } => self.call.is_none().then_some(*next_poll),
            State::HoldingOff { until } => Some(*until),
            State::Owner(tenure) => {
                // Once it leaves there is nothing more to do about its broker.
                let patience = self.options.broker_health_step_down.filter(|_| tenure.leaving.is_none());
                let broker = tenure.broker_lost_at.zip(patience).map(|(since, limit)| since.plus(limit));
                let lease = if self.call.is_none() { Some(tenure.holder.next()) } else { Some(tenure.holder.deadline()) };
                let guard = tenure.holder.acts_until();
                let opening = tenure.began.plus(self.options.opening_timeout);
                let opening = Some(opening).filter(|at| *at > now && !tenure.owner.is_open());
                [broker, lease, opening, Some(guard).filter(|at| *at > now), tenure.owner.wake_at(now)].into_iter().flatten().min()
            }
            State::Releasing { .. } | State::Finished => None,
        }
    }

    /// Takes one event; returns what to do.
    pub fn apply(&mut self, now: Instant, wall: UnixMillis, event: Event) -> Vec<Effect> {
        // An owner that took an event has settled already.
        let owner_settled = matches!(event, Event::Owner { .. });
        self.born.get_or_insert(wall);
        self.wall = wall;
        match event {
            Event::Tick => {}
            Event::LeaseRead(answer) => self.lease_read(now, wall, answer),
            Event::LeaseWritten(outcome) => self.lease_written(now, outcome),
            Event::Owner { term, event } => self.owner_event(now, wall, term, event),
            Event::Converged => {
                if let State::Owner(tenure) = &mut self.state {
                    tenure.converged_once = true;
                    tenure.broker_lost_at = None;
                }
            }
            Event::BrokerLost => {
                if let State::Owner(tenure) = &mut self.state
                    && tenure.converged_once
                {
                    tenure.broker_lost_at.get_or_insert(now);
                }
            }
            Event::Hint => {
                let late = if self.options.looks_late { self.options.poll_interval } else { Duration::ZERO };
                if let State::Standby { next_poll, .. } = &mut self.state {
                    *next_poll = (*next_poll).min(now.plus(late));
                }
            }
            Event::Shutdown { drain_until } => self.shutdown(now, wall, drain_until),
        }
        self.settle(now, wall, owner_settled);
        core::mem::take(&mut self.effects)
    }

    fn become_part(&mut self, part: Part) {
        if self.part != part {
            self.part = part.clone();
            self.effects.push(Effect::Became(part));
        }
    }

    fn next_poll(&mut self, now: Instant) -> Instant {
        let factor = 1.0 - POLL_SPREAD + 2.0 * POLL_SPREAD * self.jitter.fraction();
        now.plus(self.options.poll_interval.mul_f64(factor).max(Duration::from_millis(1)))
    }

    fn lease_read(&mut self, now: Instant, wall: UnixMillis, answer: Result<Option<RawLease>, Fault>) {
        match self.call.take() {
            Some(Call::Standby) => {
                if let State::Standby { standby, .. } = &mut self.state {
                    if let Ok(Some(raw)) = &answer
                        && let Ok(row) = LeaseRow::try_from(raw.clone())
                        && row.tuple.owner != self.options.candidate.owner
                    {
                        self.sighting = Some(Sighting::update(self.sighting.take(), row, now));
                    }
                    let step = standby.read(now, wall, answer);
                    self.standby_step(now, step);
                }
            }
            Some(Call::OwnRead) => {
                if let State::Owner(tenure) = &mut self.state
                    && let Some(why) = tenure.holder.read(now, answer)
                {
                    self.leave_at_once(Reason::Lease(why));
                }
            }
            Some(Call::Renew | Call::Release | Call::Raise(_)) | None => {}
        }
    }

    fn lease_written(&mut self, now: Instant, outcome: Outcome<LeaseAnswer>) {
        match self.call.take() {
            Some(Call::Standby) => {
                if let State::Standby { standby, .. } = &mut self.state {
                    let step = standby.written(now, outcome);
                    self.standby_step(now, step);
                }
            }
            Some(Call::Renew) => {
                if matches!(outcome, Outcome::NotDone(_) | Outcome::Unknown(_)) {
                    self.counters.renew_failures += 1;
                }
                if let State::Owner(tenure) = &mut self.state
                    && let Some(why) = tenure.holder.renewed(now, outcome)
                {
                    self.leave_at_once(Reason::Lease(why));
                }
            }
            Some(Call::Raise(version)) => self.raised(now, version, outcome),
            Some(Call::Release) => {
                // Given back, or not: then it expires. Either way it is over.
                if let State::Releasing { then, .. } = &self.state {
                    let then = then.clone();
                    self.follow(now, then);
                }
            }
            Some(Call::OwnRead) | None => {}
        }
    }

    fn standby_step(&mut self, now: Instant, step: standby::Step) {
        if self.stopping {
            return match step {
                standby::Step::Won(held) => {
                    let write = Holder::new(self.options.upkeep, held, now, Jitter::new(0)).release();
                    self.go(State::Releasing { write: Some(write), then: Then::End(Ok(())) });
                }
                standby::Step::Write(_)
                | standby::Step::Read
                | standby::Step::Wait
                | standby::Step::Corrupt(_)
                | standby::Step::Failed(_) => {
                    self.end(Ok(()));
                }
            };
        }
        match step {
            standby::Step::Write(write) => {
                self.call = Some(Call::Standby);
                self.effects.push(Effect::WriteLease(write));
                return;
            }
            standby::Step::Won(held) => {
                self.note_handover();
                return self.begin_term(now, held);
            }
            standby::Step::Read | standby::Step::Wait => self.become_part(Part::Standby),
            standby::Step::Corrupt(corrupt) => self.become_part(Part::Stuck(corrupt)),
            standby::Step::Failed(fault) => self.become_part(Part::Blind(fault)),
        }
        let at = self.next_poll(now);
        if let State::Standby { next_poll, .. } = &mut self.state {
            *next_poll = at;
        }
    }

    /// How it came by the lease that it has just won. What it saw of the former owner is over with that.
    fn note_handover(&mut self) {
        let sighting = self.sighting.take();
        let own = sighting.as_ref().and_then(Sighting::released_version).is_some_and(|version| self.gave_back == Some(version));
        self.counters.transfers += u64::from(sighting.is_some() && !own);
        self.handover = sighting.as_ref().map(|sighting| Handover::of(sighting, self.born.unwrap_or_default()));
    }

    fn begin_term(&mut self, now: Instant, held: Held) {
        self.terms += 1;
        let term = Term(self.terms);
        let version = held.row.tuple.version;
        let holder = Holder::new(self.options.upkeep, held, now, Jitter::new(self.options.owner.jitter_seed ^ version));
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
        let mut options = self.options.owner.clone();
        options.epoch = Some(Epoch(holder.version()));
        options.entry_id_base = options.entry_id_base.wrapping_add(place);
        options.row_id_base = options.row_id_base.wrapping_add(place);
        let mut owner = Owner::new(options);
        owner.act_until(holder.acts_until());
        owner
    }

    fn owner_event(&mut self, now: Instant, wall: UnixMillis, term: Term, event: worker::Event) {
        let State::Owner(tenure) = &mut self.state else { return };
        if tenure.term != term {
            return;
        }
        tenure.owner.act_until(tenure.holder.acts_until());
        let effects = tenure.owner.apply(now, wall, event);
        self.pass_on(term, effects);
    }

    fn pass_on(&mut self, term: Term, effects: Vec<worker::Effect>) {
        for effect in effects {
            match effect {
                worker::Effect::Finished(end) => self.owner_ended(end),
                effect @ (worker::Effect::Log { .. }
                | worker::Effect::ReadMail { .. }
                | worker::Effect::Acknowledge(_)
                | worker::Effect::Send { .. }
                | worker::Effect::Park { .. }
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

    fn raised(&mut self, now: Instant, version: u64, outcome: Outcome<LeaseAnswer>) {
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

    fn shutdown(&mut self, now: Instant, wall: UnixMillis, drain_until: Instant) {
        self.stopping = true;
        match &mut self.state {
            // A claim that is under way may win the lease: whoever leaves without waiting for it leaves a lease behind that nobody gives back.
            State::Standby { .. } if self.call.is_some() => {}
            State::Standby { .. } | State::HoldingOff { .. } => self.end(Ok(())),
            State::Owner(_) => self.leave(now, wall, Reason::Shutdown, drain_until, Then::End(Ok(()))),
            State::Releasing { then, .. } => {
                if let Then::HoldOff(_) = then {
                    *then = Then::End(Ok(()));
                }
            }
            State::Finished => {}
        }
    }

    /// Steps down in order: close the source, settle what is in flight, give the lease back.
    fn leave(&mut self, now: Instant, wall: UnixMillis, reason: Reason, drain_until: Instant, then: Then) {
        let State::Owner(tenure) = &mut self.state else { return };
        let term = tenure.term;
        tenure.leaving = Some(then);
        // A way to the broker that is lost was lost before anybody gave it up.
        let since = tenure.broker_lost_at.filter(|_| reason == Reason::BrokerPath).map_or(Duration::ZERO, |lost| now.since(lost));
        let since = UnixMillis(wall.0.saturating_sub(u64::try_from(since.as_millis()).unwrap_or(0)));
        tenure.left = Some((reason.cause(), since));
        self.counters.broker_step_downs += u64::from(reason == Reason::BrokerPath);
        if tenure.raise_above.is_some() || matches!(self.call, Some(Call::Raise(_))) {
            // Its owner ended at a log that is ahead of the lease: nothing is open, nothing has to be settled.
            return self.leave_at_once(reason);
        }
        let effects = tenure.owner.apply(now, wall, worker::Event::Shutdown { drain_until });
        self.become_part(Part::SteppingDown(reason));
        self.pass_on(term, effects);
    }

    /// Stops acting at once: the lease is gone, or may be.
    fn leave_at_once(&mut self, reason: Reason) {
        let then = self.next();
        self.give_back(reason, then);
    }

    /// What follows once the lease is given back: what a step-down under way has planned, whatever else makes it end sooner.
    fn next(&mut self) -> Then {
        let planned = match &mut self.state {
            State::Owner(tenure) => tenure.leaving.take(),
            State::Standby { .. } | State::Releasing { .. } | State::HoldingOff { .. } | State::Finished => None,
        };
        planned.unwrap_or(if self.stopping { Then::End(Ok(())) } else { Then::HoldOff(self.options.hold_off) })
    }

    /// Why it is leaving already.
    fn leaving_reason(&self) -> Reason {
        match &self.part {
            Part::SteppingDown(reason) => reason.clone(),
            Part::Standby | Part::Blind(_) | Part::Stuck(_) | Part::Owner { .. } | Part::HoldingOff(_) => Reason::Shutdown,
        }
    }

    /// The write that gives the lease back and says why.
    fn release(&mut self, reason: &Reason) -> Option<LeaseWrite> {
        let State::Owner(tenure) = &mut self.state else { return None };
        let (cause, since) = tenure.left.unwrap_or((reason.cause(), self.wall));
        let mut write = tenure.holder.release();
        write.row.facts.left_because = Some(cause.as_str().to_owned());
        write.row.facts.left_since = Some(since);
        self.gave_back = Some(write.row.tuple.version);
        Some(write)
    }

    fn give_back(&mut self, reason: Reason, then: Then) {
        let State::Owner(tenure) = &mut self.state else { return };
        let term = tenure.term;
        self.counters.expiries += u64::from(matches!(reason, Reason::Lease(_)));
        // A row that is somebody else's, or that cannot be believed, is not touched. The condition would refuse it anyway.
        let keep_off = matches!(reason, Reason::Lease(Why::Lost | Why::Corrupt));
        let write = if keep_off { None } else { self.release(&reason) };
        self.become_part(Part::SteppingDown(reason));
        self.effects.push(Effect::Owner { term, effect: worker::Effect::CloseSource });
        self.go(State::Releasing { write, then });
    }

    fn follow(&mut self, now: Instant, then: Then) {
        match then {
            Then::End(result) => self.end(result),
            Then::HoldOff(pause) => {
                self.go(State::HoldingOff { until: now.plus(pause) });
                self.become_part(Part::HoldingOff(pause));
            }
        }
    }

    fn end(&mut self, result: Result<(), Fault>) {
        self.go(State::Finished);
        self.effects.push(Effect::Finished(result));
    }

    fn settle(&mut self, now: Instant, wall: UnixMillis, owner_settled: bool) {
        match &mut self.state {
            State::HoldingOff { until } if now >= *until => {
                self.go(State::Standby { standby: Standby::new(self.options.candidate.clone()), next_poll: now });
                self.become_part(Part::Standby);
                self.settle(now, wall, owner_settled);
            }
            State::Standby { standby, next_poll } if now >= *next_poll && self.call.is_none() => {
                let _ = standby.poll();
                self.call = Some(Call::Standby);
                self.effects.push(Effect::ReadLease);
            }
            State::Releasing { write, then } if self.call.is_none() => match write.take() {
                Some(write) => {
                    self.call = Some(Call::Release);
                    self.effects.push(Effect::WriteLease(write));
                }
                None => {
                    let then = then.clone();
                    self.follow(now, then);
                }
            },
            State::Owner(_) => self.keep(now, wall, owner_settled),
            State::HoldingOff { .. } | State::Standby { .. } | State::Releasing { .. } | State::Finished => {}
        }
    }

    /// Keeps the lease, and lets the owner go on under it.
    fn keep(&mut self, now: Instant, wall: UnixMillis, owner_settled: bool) {
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

#[cfg(test)]
mod tests;
