//! What must hold at every moment, and at the end.

use crate::faults::{CONNECT_TIMEOUT, S, SOURCE_BACKOFF};
use crate::worker::{DRAIN_TIMEOUT, SEND_BACKOFF, broker_hold_off, hold_off};
use crate::world::World;
use causeway_core::worker::options::Delivery;

/// What a schedule of one fault is measured by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch {
    /// The version that the owner held when the fault struck.
    pub version: u64,
    /// The connection's end was noticed at the owner, or the fault struck.
    pub from: Option<u64>,
    /// Only the loss of the broker starts it.
    pub waits_for_loss: bool,
    pub took: Option<u64>,
    /// Messages that might arrive again if the owner crashed at that moment.
    pub announced: u64,
}

impl World {
    pub(crate) fn check_belief(&mut self) {
        let acting: Vec<usize> = (0..self.workers.len()).filter(|nth| self.workers[*nth].may_act(self.now)).collect();
        if acting.len() > 1 && !self.knobs.lawless {
            self.fail(format!("S4: {acting:?} may act at once"));
        }
    }

    /// Whether somebody else than the source has the message: the log, or where the source holds it the queue, a dead letter, or the mail that the
    /// letter became.
    pub(crate) fn may_be_forgotten(&self, message: u64) -> bool {
        let among_letters = || self.stores.has_letter(message) || self.stores.letterbox.posted().any(|posted| posted == message);
        let past_the_log = self.knobs.delivery != Delivery::Logged && (self.queue.has(message) || among_letters());
        past_the_log || self.stores.was_stored(message)
    }

    /// Within which time after the faults ended everything has to be in order.
    #[must_use]
    pub fn convergence_bound(&self) -> u64 {
        let budget = self.knobs.terms().sum().expect("a budget that adds up");
        let nanos = |span: core::time::Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        // A paused owner wakes up, or a step-down under way ends; then somebody takes over; then the slowest retry of each kind; then the backlog, a
        // segment or a batch at a time.
        let step_down = nanos(DRAIN_TIMEOUT).max(self.knobs.cadence.step_down_grace.unsigned_abs())
            + 5 * S
            + 2 * self.knobs.cadence.renew_call_timeout.unsigned_abs();
        let out = nanos(hold_off(&self.knobs)).max(nanos(broker_hold_off(&self.knobs)));
        let retries = 5 * S + 32 * S + nanos(SEND_BACKOFF) + 2 * (SOURCE_BACKOFF + CONNECT_TIMEOUT);
        let backlog = (self.knobs.messages + self.knobs.redrives.len() as u64 + 5) * 6 * self.knobs.latency;
        // The longest pause of a sender that was told to send less, and of one that waits for what is under way.
        let sender = 11 * S + 36 * S;
        let mailbox = 5 * self.knobs.mailbox_poll.unwrap_or(0);
        let all = step_down
            + out
            + budget.owner_death.unsigned_abs()
            + budget.broker_path.unwrap_or(0).unsigned_abs()
            + retries
            + backlog
            + sender
            + mailbox;
        // By the slowest clock.
        all + all / 1_000_000 * (2 * self.knobs.rate_ppm)
    }

    pub(crate) fn has_converged(&mut self) -> bool {
        let Some(healed_at) = self.healed_at else { return false };
        self.check_that_the_stopped_are_gone(healed_at);
        let all_published = self.published == self.knobs.messages + 5;
        let missing: Vec<u64> = (1..=self.published)
            .filter(|message| !self.queue.has(*message) && !self.stores.has_letter(*message) && !self.broker.forgotten().contains(message))
            .collect();
        let (unsettled, mail) = (self.stores.unsettled(), self.undelivered_mail());
        let owners = (0..self.workers.len()).filter(|nth| self.workers[*nth].may_act(self.now)).count();
        if all_published
            && missing.is_empty()
            && unsettled.is_empty()
            && mail == 0
            && self.stores.letterbox.is_empty()
            && self.broker.waiting() == 0
            && self.account_is_settled()
            && owners == 1
            && !self.anybody_stops()
        {
            return true;
        }
        if self.now > healed_at + self.convergence_bound() {
            let lost = missing.iter().filter(|message| self.stores.was_stored(**message) && !unsettled.contains(message)).count();
            let parts: Vec<String> = self.workers.iter().map(|worker| format!("{:?}", worker.part)).collect();
            self.fail(format!(
                "L2: not converged: {} messages missing, {lost} of them lost; {mail} of mail undelivered; {} at the broker, {} unsettled, {owners} owners, parts {parts:?}, \
                 subscribed {:?}",
                missing.len(),
                self.broker.waiting(),
                unsettled.len(),
                self.broker.filters()
            ));
        }
        false
    }

    pub(crate) fn anybody_stops(&self) -> bool {
        self.workers.iter().any(|worker| worker.member.is_some() && worker.told_to_stop == worker.life)
    }

    /// A worker that was told to stop ends, whatever happened to it meanwhile.
    pub(crate) fn check_that_the_stopped_are_gone(&mut self, healed_at: u64) {
        let call = self.knobs.cadence.renew_call_timeout.unsigned_abs();
        // The drain, the close of the source, the call under way, the release, and the same again by the slowest clock.
        let bound = 2 * (u64::try_from(DRAIN_TIMEOUT.as_nanos()).unwrap_or(u64::MAX) + 5 * S + 4 * call.max(2 * S));
        if self.now < healed_at + bound {
            return;
        }
        let stays = self
            .workers
            .iter()
            .find(|worker| worker.member.is_some() && worker.told_to_stop == worker.life)
            .map(|worker| worker.part.clone());
        if let Some(part) = stays {
            self.fail(format!("L3: a worker that was told to stop is still there, as {part:?}"));
        }
    }

    /// The connection's end reached an owner.
    pub(crate) fn broker_loss_noticed(&mut self) {
        if self.watch.waits_for_loss && self.watch.from.is_none() {
            self.watch.from = Some(self.now);
        }
    }

    /// An owner is connected and subscribed.
    pub(crate) fn full_service(&mut self, worker: usize) {
        if let (Some(from), Some(version)) = (self.watch.from, self.workers[worker].held)
            && version > self.watch.version
        {
            self.watch.took.get_or_insert(self.now - from);
        }
    }
}
