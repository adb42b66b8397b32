//! A member of a bridge: it waits for a session's lease, owns the session while it holds it, and hands it over.
//!
//! [`Member`] composes the standby, the holder and the owner. It is to the lease what the owner is to the log: one event in, effects out, no I/O.
//! Each time it wins the lease a new *term* begins, with an owner of its own; what comes back from an earlier term is not listened to.

mod events;
mod handover;
mod leaving;
mod tenure;
mod waiting;

pub use events::{Effect, Event, MemberOptions, Part, Reason, Term};
pub use handover::{Handover, LeaseCounters};

use crate::drain::retry::Jitter;
use crate::lease::row::OwnerFacts;
use crate::lease::standby::Standby;
use crate::lease::{Held, LeaseWrite};
use crate::outcome::Fault;
use crate::units::{Instant, UnixMillis};
use crate::worker::Owner;
use crate::worker::counters::LegCounters;
use crate::worker::options::OwnerOptions;
use core::time::Duration;
use handover::Sighting;
use tenure::Tenure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Standby,
    Task,
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
    /// The owner that each term gets. Its epoch is the lease's version.
    owner: OwnerOptions,
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
    /// When the orchestrator was asked last.
    asked_at: Option<Instant>,
    /// Somebody gave a reason to ask it.
    hinted: bool,
    /// The version of the last lease that it gave back itself.
    gave_back: Option<u64>,
    handover: Option<Handover>,
    counters: LeaseCounters,
    /// What the owners of earlier terms counted, for each leg and last for entries whose leg is gone.
    past: Vec<LegCounters>,
    effects: Vec<Effect>,
}

impl Member {
    /// A member that looks at the lease at once, or one interval later if it looks late. Each of its terms gets an owner like `owner`.
    #[must_use]
    pub fn new(options: MemberOptions, owner: OwnerOptions, now: Instant) -> Self {
        let jitter = Jitter::new(owner.jitter_seed);
        let next_poll = if options.looks_late { now.plus(options.poll_interval) } else { now };
        let standby = waiting::standby(&options);
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
            asked_at: None,
            hinted: false,
            gave_back: None,
            handover: None,
            counters: LeaseCounters::default(),
            past: vec![LegCounters::default(); owner.legs.len() + 1],
            effects: Vec::new(),
            options,
            owner,
        }
    }

    /// A member that holds the lease already: somebody else waited for it under the same name. Its first event begins its first term.
    #[must_use]
    pub fn holding(options: MemberOptions, owner: OwnerOptions, held: Held, now: Instant) -> Self {
        let mut member = Self::new(options, owner, now);
        member.begin_term(now, held);
        member
    }

    /// What the owners of earlier terms counted, for each leg and last for entries whose leg is gone.
    #[must_use]
    pub fn past_counters(&self) -> &[LegCounters] {
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

    /// Until when it may act under the lease that it holds, unless it renews it; `None` where it holds none.
    #[must_use]
    pub fn acts_until(&self) -> Option<Instant> {
        match &self.state {
            State::Owner(tenure) => Some(tenure.holder.acts_until()),
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
            Event::TaskTold(told) => self.task_told(now, wall, told.as_ref()),
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
                if let State::Standby { next_poll, .. } = &mut self.state {
                    *next_poll = (*next_poll).min(now);
                    self.hinted = true;
                }
            }
            Event::StepDown => self.step_down(now, wall),
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

    fn settle(&mut self, now: Instant, wall: UnixMillis, owner_settled: bool) {
        match &mut self.state {
            State::HoldingOff { until } if now >= *until => {
                self.go(State::Standby { standby: waiting::standby(&self.options), next_poll: now });
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
}

#[cfg(test)]
mod tests;
