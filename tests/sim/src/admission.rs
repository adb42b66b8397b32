//! Settings as somebody might write them, most of them bad: the timing check must refuse what its rule forbids, and nothing else.

use crate::faults::Knobs;
use crate::rng::Rng;
use causeway_core::timing::{CadenceInput, SECOND};

/// A millisecond.
const MILLI: i64 = SECOND / 1_000;

/// Settings that are all given, so that the rule is plain.
#[derive(Clone, Copy, Debug)]
struct Settings {
    ttl: i64,
    renew: i64,
    jitter: i64,
    call: i64,
    poll: i64,
    grace: i64,
    fails: u32,
}

impl Settings {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            ttl: rng.pick(&[3, 5, 6, 8, 12, 20, 45]) * SECOND,
            renew: rng.pick(&[100, 249, 250, 500, 1_000, 2_000, 4_000, 10_000]) * MILLI,
            jitter: rng.pick(&[-1, 0, 0, 200, 1_000]) * MILLI,
            call: rng.pick(&[0, 200, 500, 1_000, 3_000]) * MILLI,
            poll: rng.pick(&[100, 250, 500, 1_000, 5_000]) * MILLI,
            grace: rng.pick(&[-1, 0, 1, 5, 60]) * SECOND,
            fails: rng.pick(&[1, 2, 3, 5]),
        }
    }

    const fn input(&self) -> CadenceInput {
        CadenceInput {
            clustered: true,
            lease_ttl: Some(self.ttl),
            renew_interval: Some(self.renew),
            lease_renew_jitter: Some(self.jitter),
            renew_call_timeout: Some(self.call),
            acquire_poll_interval: Some(self.poll),
            step_down_grace: Some(self.grace),
            max_renew_fails: Some(self.fails),
        }
    }

    /// The rule, written down a second time.
    const fn is_admissible(&self) -> bool {
        let all_failing = (self.renew + self.jitter / 2 + self.call) * self.fails as i64;
        let not_too_often = self.renew >= 250 * MILLI && self.poll >= 250 * MILLI;
        let positive = self.jitter >= 0 && self.call > 0 && self.grace >= 0;
        self.ttl >= 5 * SECOND && not_too_often && positive && all_failing < self.ttl
    }
}

/// Draws settings until some are admissible, and has each refused that is not.
pub fn draw(rng: &mut Rng) -> Knobs {
    let (mut refused, mut misjudged) = (0, None);
    loop {
        let settings = Settings::draw(rng);
        match (settings.input().resolve(), settings.is_admissible()) {
            (Ok(cadence), true) => {
                if cadence.step_down_grace >= cadence.lease_ttl {
                    misjudged = Some(format!("{settings:?} may settle for longer than the lease holds: {cadence:?}"));
                }
                let mut knobs = Knobs::with(cadence, rng);
                let budget = knobs.terms().sum().expect("a budget that adds up");
                let longest = budget.owner_death.max(budget.broker_path.unwrap_or(0));
                if budget.admit(longest).is_err() || budget.admit(longest - 1).is_ok() || budget.admit(0).is_ok() {
                    misjudged = Some(format!("{settings:?}: an objective is admitted that the budget exceeds, or refused that it meets"));
                }
                (knobs.settings_refused, knobs.misjudged) = (refused, misjudged);
                return knobs;
            }
            (Err(_), false) => refused += 1,
            (Ok(_), false) => misjudged = Some(format!("{settings:?} are not refused")),
            (Err(error), true) => misjudged = Some(format!("{settings:?} are refused: {error}")),
        }
    }
}
