//! Stepping down: in order where there is time for it, at once where the lease is gone.

use super::{Call, Effect, Member, Part, Reason, State, Then};
use crate::lease::LeaseWrite;
use crate::lease::holder::Why;
use crate::outcome::Fault;
use crate::units::{Instant, UnixMillis};
use crate::worker;
use core::time::Duration;

impl Member {
    pub(super) fn shutdown(&mut self, now: Instant, wall: UnixMillis, drain_until: Instant) {
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

    /// Hands over because an operator said so. Where it owns nothing, or leaves already, there is nothing to hand over.
    pub(super) fn step_down(&mut self, now: Instant, wall: UnixMillis) {
        if matches!(&self.state, State::Owner(tenure) if tenure.leaving.is_none()) {
            let until = now.plus(self.options.step_down_grace);
            self.leave(now, wall, Reason::Asked, until, Then::HoldOff(self.options.broker_hold_off));
        }
    }

    /// Steps down in order: close the source, settle what is in flight, give the lease back.
    pub(super) fn leave(&mut self, now: Instant, wall: UnixMillis, reason: Reason, drain_until: Instant, then: Then) {
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
    pub(super) fn leave_at_once(&mut self, reason: Reason) {
        let then = self.next();
        self.give_back(reason, then);
    }

    /// What follows once the lease is given back: what a step-down under way has planned, whatever else makes it end sooner.
    pub(super) fn next(&mut self) -> Then {
        let planned = match &mut self.state {
            State::Owner(tenure) => tenure.leaving.take(),
            State::Standby { .. } | State::Releasing { .. } | State::HoldingOff { .. } | State::Finished => None,
        };
        planned.unwrap_or(if self.stopping { Then::End(Ok(())) } else { Then::HoldOff(self.options.hold_off) })
    }

    /// Why it is leaving already.
    pub(super) fn leaving_reason(&self) -> Reason {
        match &self.part {
            Part::SteppingDown(reason) => reason.clone(),
            Part::Standby | Part::Blind(_) | Part::Stuck(_) | Part::Owner { .. } | Part::HoldingOff(_) => Reason::Shutdown,
        }
    }

    /// The write that gives the lease back and says why.
    pub(super) fn release(&mut self, reason: &Reason) -> Option<LeaseWrite> {
        let State::Owner(tenure) = &mut self.state else { return None };
        let (cause, since) = tenure.left.unwrap_or((reason.cause(), self.wall));
        let mut write = tenure.holder.release();
        write.row.facts.left_because = Some(cause.as_str().to_owned());
        write.row.facts.left_since = Some(since);
        self.gave_back = Some(write.row.tuple.version);
        Some(write)
    }

    pub(super) fn give_back(&mut self, reason: Reason, then: Then) {
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

    pub(super) fn follow(&mut self, now: Instant, then: Then) {
        match then {
            Then::End(result) => self.end(result),
            Then::HoldOff(pause) => {
                self.go(State::HoldingOff { until: now.plus(pause) });
                self.become_part(Part::HoldingOff(pause));
            }
        }
    }

    pub(super) fn end(&mut self, result: Result<(), Fault>) {
        self.go(State::Finished);
        self.effects.push(Effect::Finished(result));
    }
}
