//! Waiting for the lease, and what the answers about it lead to.

use super::handover::{Handover, Sighting};
use super::{Call, Effect, Member, MemberOptions, Part, Reason, State, Then};
use crate::drain::retry::Jitter;
use crate::lease::LeaseAnswer;
use crate::lease::holder::Holder;
use crate::lease::row::{LeaseRow, RawLease};
use crate::lease::standby::{self, Standby};
use crate::lease::testimony::Testimony;
use crate::outcome::{Fault, Outcome};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// Polls are spread by a quarter of their interval each way, so that members do not look in step.
const POLL_SPREAD: f64 = 0.25;

/// One that waits as `options` say.
pub(super) fn standby(options: &MemberOptions) -> Standby {
    let standby = Standby::new(options.candidate.clone());
    // By then each of the others has looked.
    let patience = options.poll_interval.mul_f64(1.0 + POLL_SPREAD);
    if options.looks_late { standby.patient(patience) } else { standby }
}

impl Member {
    fn next_poll(&mut self, now: Instant) -> Instant {
        let factor = 1.0 - POLL_SPREAD + 2.0 * POLL_SPREAD * self.jitter.fraction();
        now.plus(self.options.poll_interval.mul_f64(factor).max(Duration::from_millis(1)))
    }

    pub(super) fn lease_read(&mut self, now: Instant, wall: UnixMillis, answer: Result<Option<RawLease>, Fault>) {
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
            Some(Call::Task | Call::Renew | Call::Release | Call::Raise(_)) | None => {}
        }
    }

    pub(super) fn task_told(&mut self, now: Instant, wall: UnixMillis, told: Option<&Testimony>) {
        if self.call != Some(Call::Task) {
            return;
        }
        self.call = None;
        if let State::Standby { standby, .. } = &mut self.state {
            let step = standby.told(now, wall, told);
            self.standby_step(now, step);
        }
    }

    pub(super) fn lease_written(&mut self, now: Instant, outcome: Outcome<LeaseAnswer>) {
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
            Some(Call::Task | Call::OwnRead) | None => {}
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
        let looked = matches!(step, standby::Step::Wait);
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
        let ask_at = if looked { self.ask_at(now) } else { None };
        if let State::Standby { next_poll, standby } = &mut self.state {
            *next_poll = ask_at.map_or(at, |ask_at| at.min(ask_at));
            if ask_at.is_some_and(|ask_at| ask_at <= now)
                && let Some(task) = standby.suspect()
            {
                (self.call, self.asked_at, self.hinted) = (Some(Call::Task), Some(now), false);
                self.effects.push(Effect::AskAboutTask(task));
            }
        }
    }

    /// When to ask the orchestrator about the owner that was just looked at: once it is overdue, or somebody gave a reason, and not too often. `None`:
    /// there is nobody to ask, or about.
    fn ask_at(&mut self, now: Instant) -> Option<Instant> {
        let questions = self.options.questions?;
        let State::Standby { standby, .. } = &self.state else { return None };
        let late = if self.options.looks_late { questions.poll } else { Duration::ZERO };
        let overdue_at = standby.overdue_at(now, questions.overdue_after.saturating_add(late));
        self.hinted &= overdue_at.is_some();
        let wanted_at = if self.hinted { now } else { overdue_at? };
        Some(self.asked_at.map_or(wanted_at, |asked_at| wanted_at.max(asked_at.plus(questions.poll))))
    }

    /// How it came by the lease that it has just won. What it saw of the former owner is over with that.
    fn note_handover(&mut self) {
        let sighting = self.sighting.take();
        let own = sighting.as_ref().and_then(Sighting::released_version).is_some_and(|version| self.gave_back == Some(version));
        self.counters.transfers += u64::from(sighting.is_some() && !own);
        self.handover = sighting.as_ref().map(|sighting| Handover::of(sighting, self.born.unwrap_or_default()));
    }
}
