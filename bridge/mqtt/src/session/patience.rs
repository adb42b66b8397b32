//! When patience ends: with a silent broker, a consumer that takes nothing, and answers that do not come.

use super::{Cause, End, STALL_WITHOUT_KEEP_ALIVE, Session};
use crate::unsubscriptions::Unsubscriptions;
use causeway_core::outcome::FaultCode;
use core::time::Duration;
use tokio::time::Instant;

impl Session {
    /// When [`Self::on_time`] has to be called at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let timers = &self.timers;
        let silence = timers.keep_alive.filter(|_| timers.stalled.is_none() && !self.full).map(|keep_alive| {
            let end = timers.incoming + keep_alive * 5 / 2;
            if timers.probed { end } else { end.min(self.probe_at(keep_alive)) }
        });
        let stall = timers.stalled.map(|since| since + self.stall_limit());
        let grace = (!self.held.is_empty()).then_some(timers.grace_until);
        [silence, stall, self.ping_at(), self.pause_end(), timers.answers_due, timers.ask_again, timers.recheck, grace]
            .into_iter()
            .flatten()
            .min()
    }

    /// A moment at which the broker should be made to answer: the client pings only where it wrote nothing for a while, and not at all where the
    /// broker turned keep-alive off or messages stream in without a pause.
    fn probe_at(&self, keep_alive: Duration) -> Instant {
        (self.timers.incoming + keep_alive * 3 / 2).min(self.timers.outgoing + keep_alive * 5 / 4)
    }

    fn stall_limit(&self) -> Duration {
        self.timers.keep_alive.map_or(STALL_WITHOUT_KEEP_ALIVE, |keep_alive| keep_alive / 2)
    }

    /// Who let the deadline for the subscriptions pass.
    const fn overdue(&self) -> &'static str {
        if self.admitted { "the broker did not answer the subscriptions in time" } else { "nobody said in time what to unsubscribe" }
    }

    pub(super) fn expect_answers(&mut self, asked: bool, now: Instant) {
        if asked {
            self.reported = false;
            self.timers.answers_due = Some(now + self.reconcile_timeout);
        }
    }

    /// Time has passed.
    pub(crate) fn on_time(&mut self, now: Instant) -> Result<(), End> {
        if self.timers.stalled.is_some_and(|since| now >= since + self.stall_limit()) {
            return Err(End::new(Cause::Full, FaultCode::Throttled, "more arrived than the consumer took; the rest stays with the broker"));
        }
        if now >= self.timers.grace_until {
            self.end_grace();
        }
        if self.timers.answers_due.is_some_and(|due| now >= due) {
            if let Some(fault) = self.discarded.take() {
                return Err(End { cause: Cause::Lost, fault });
            }
            return Err(End::new(Cause::Lost, FaultCode::Timeout, self.overdue()));
        }
        if self.timers.ask_again.is_some_and(|due| now >= due) {
            self.timers.ask_again = None;
            let asked = self.subscriptions.retry_refused();
            self.expect_answers(asked, now);
        }
        if self.timers.recheck.is_some_and(|due| now >= due) {
            self.timers.recheck = None;
            let asked = self.subscriptions.retry_lowered();
            self.expect_answers(asked, now);
        }
        let Some(keep_alive) = self.timers.keep_alive.filter(|_| self.timers.stalled.is_none() && !self.full) else {
            return Ok(());
        };
        if now >= self.timers.incoming + keep_alive * 5 / 2 {
            return Err(End::new(Cause::Lost, FaultCode::Timeout, "the broker has been silent for two and a half times the keep-alive"));
        }
        if !self.timers.probed && now >= self.probe_at(keep_alive) {
            // Where the client takes no more requests it has enough to write, which makes the broker answer as well.
            if self.client.try_unsubscribe(Unsubscriptions::probe_filter()).is_ok() {
                self.unsubscriptions.probe_queued();
            }
            self.timers.probed = true;
        }
        Ok(())
    }
}
