//! What decides: an owner alone, or a member that competes for a lease and has an owner while it holds it.

use crate::parts::{LogKind, SessionParts};
use causeway_core::lease::LeaseAnswer;
use causeway_core::lease::row::{OwnerFacts, RawLease};
use causeway_core::lease::testimony::Testimony;
use causeway_core::member::{self, Handover, LeaseCounters, Member, Term};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::counters::LegCounters;
use causeway_core::worker::options::OwnerOptions;
use causeway_core::worker::{self, Owner};

/// What decides.
pub(super) enum Engine {
    /// The only candidate: it owns the session from the start.
    Alone(Box<Owner>),
    /// One of several.
    Member(Box<Member>),
}

/// What the loop tells the engine.
pub(super) enum Event {
    /// Something that an owner of this term waits for.
    Owner(Term, worker::Event),
    /// The lease row was read.
    LeaseRead(Result<Option<RawLease>, Fault>),
    /// A write of the lease row was answered.
    LeaseWritten(Outcome<LeaseAnswer>),
    /// The orchestrator was asked about a task.
    TaskTold(Option<Testimony>),
    /// The source is connected and subscribed.
    Converged,
    /// The source lost its broker.
    BrokerLost,
    /// Somebody says that the lease is free.
    Hint,
    /// An operator wants another process to own the session.
    StepDown,
    /// Time went by.
    Tick,
    /// Stop.
    Shutdown { drain_until: Instant },
}

impl Engine {
    pub(super) fn new(parts: &SessionParts, options: OwnerOptions, now: Instant) -> Self {
        match (&parts.lease, &parts.kind) {
            (None, _) => Self::Alone(Box::new(Owner::new(options))),
            (Some(lease), LogKind::Adopted(adopting)) => {
                Self::Member(Box::new(Member::holding(lease.member.clone(), options, adopting.held.clone(), now)))
            }
            (Some(lease), LogKind::OfSession | LogKind::OfProcess(_)) => {
                Self::Member(Box::new(Member::new(lease.member.clone(), options, now)))
            }
        }
    }

    /// The owner and its term, while there is one.
    pub(super) fn owner(&self) -> Option<(Term, &Owner)> {
        match self {
            Self::Alone(owner) => Some((Term(0), owner)),
            Self::Member(member) => member.owner(),
        }
    }

    /// What earlier owners of this process counted.
    pub(super) fn past(&self, leg: usize) -> LegCounters {
        match self {
            Self::Alone(_) => LegCounters::default(),
            Self::Member(member) => member.past_counters().get(leg).cloned().unwrap_or_default(),
        }
    }

    /// How it came by the lease that it holds, if somebody had it before.
    pub(super) fn handover(&self) -> Option<&Handover> {
        match self {
            Self::Alone(_) => None,
            Self::Member(member) => member.handover(),
        }
    }

    /// Until when it may act under the lease that it holds.
    pub(super) fn acts_until(&self) -> Option<Instant> {
        match self {
            Self::Alone(_) => None,
            Self::Member(member) => member.acts_until(),
        }
    }

    /// What it counted about its lease.
    pub(super) fn lease_counters(&self) -> LeaseCounters {
        match self {
            Self::Alone(_) => LeaseCounters::default(),
            Self::Member(member) => member.lease_counters(),
        }
    }

    /// Tells what the lease row shall say of this owner.
    pub(super) fn tell(&mut self, facts: OwnerFacts) {
        match self {
            Self::Alone(_) => {}
            Self::Member(member) => member.tell(facts),
        }
    }

    pub(super) fn wants_input(&self, now: Instant) -> bool {
        match self {
            Self::Alone(owner) => owner.wants_input(),
            Self::Member(member) => member.wants_input(now),
        }
    }

    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Alone(owner) => owner.wake_at(now),
            Self::Member(member) => member.wake_at(now),
        }
    }

    pub(super) fn apply(&mut self, now: Instant, wall: UnixMillis, event: Event) -> Vec<member::Effect> {
        match self {
            Self::Alone(owner) => {
                let event = match event {
                    Event::Owner(_, event) => event,
                    Event::Shutdown { drain_until } => worker::Event::Shutdown { drain_until },
                    Event::Tick => worker::Event::Tick,
                    // There is no lease, and nobody to hand over to.
                    Event::LeaseRead(_)
                    | Event::LeaseWritten(_)
                    | Event::TaskTold(_)
                    | Event::Converged
                    | Event::BrokerLost
                    | Event::Hint
                    | Event::StepDown => return Vec::new(),
                };
                let effects = owner.apply(now, wall, event);
                effects.into_iter().map(|effect| member::Effect::Owner { term: Term(0), effect }).collect()
            }
            Self::Member(member) => {
                let event = match event {
                    Event::Owner(term, event) => member::Event::Owner { term, event },
                    Event::LeaseRead(answer) => member::Event::LeaseRead(answer),
                    Event::LeaseWritten(outcome) => member::Event::LeaseWritten(outcome),
                    Event::TaskTold(told) => member::Event::TaskTold(told),
                    Event::Converged => member::Event::Converged,
                    Event::BrokerLost => member::Event::BrokerLost,
                    Event::Hint => member::Event::Hint,
                    Event::StepDown => member::Event::StepDown,
                    Event::Tick => member::Event::Tick,
                    Event::Shutdown { drain_until } => member::Event::Shutdown { drain_until },
                };
                member.apply(now, wall, event)
            }
        }
    }
}
