//! Retries and recovery in rounds.
//!
//! What is fed by a source goes out as it comes. What failed before, and what former owners left, comes from a heap that may be large while the
//! destination is in trouble: a leg takes it up in rounds. A round takes so many entries and no more. Where all of them came to an end the next one
//! follows at once, so that a healthy destination is never waited for; else the next one begins after a pause, which grows while nothing is accepted.

use crate::units::Instant;
use core::time::Duration;

/// The share of a pause by which it is shifted at random, either way.
const SPREAD: f64 = 0.25;

/// How a leg paces its rounds, and how many sends it has under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// The pause from one round to the next while some of what is sent is accepted.
    pub shortest: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// By what the pause grows with every round of which nothing was accepted, at least 1.
    pub multiplier: f64,
    /// Entries of the first round.
    pub first: usize,
    /// Entries of a round at most.
    pub most: usize,
    /// Sends under way at most, those of rounds and all others.
    pub max_sends: usize,
}

/// What became of an entry of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The destination accepted it.
    Accepted,
    /// It is to be tried again.
    PutOff,
    /// It came to another end: it expired, was refused for good, or its source brings it again.
    Ended,
}

/// Names a round of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundId(u64);

/// The last round that began.
#[derive(Clone, Debug)]
struct Round {
    id: RoundId,
    began: Instant,
    /// Where in its range the pause after it lies, 0 to 1.
    spread: f64,
    /// It took as many as it could.
    full: bool,
    /// Entries of which nothing is known yet.
    open: usize,
    accepted: bool,
    put_off: bool,
    judged: bool,
}

/// The rounds of one leg.
#[derive(Clone, Debug)]
pub struct Rounds {
    pacing: Pacing,
    size: usize,
    /// Rounds in a row of which nothing was accepted.
    fruitless: u32,
    last: Option<Round>,
    next_id: u64,
}

impl Rounds {
    /// None has begun.
    #[must_use]
    pub const fn new(pacing: Pacing) -> Self {
        Self { pacing, size: pacing.first, fruitless: 0, last: None, next_id: 0 }
    }

    /// When the next round may begin; `None`: at once.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        let last = self.last.as_ref().filter(|last| last.open > 0 || last.put_off)?;
        let exponent = i32::try_from(self.fruitless).unwrap_or(i32::MAX);
        let full = (self.pacing.shortest.as_secs_f64() * self.pacing.multiplier.powi(exponent)).min(self.pacing.longest.as_secs_f64());
        Some(last.began.plus(Duration::from_secs_f64(full * (1.0 - SPREAD + 2.0 * SPREAD * last.spread))))
    }

    /// Begins a round where one is due; tells its name and how many of the `available` entries it takes. `spread`, drawn from 0 to 1, shifts the pause
    /// after it.
    pub fn begin(&mut self, now: Instant, spread: f64, available: usize) -> Option<(RoundId, usize)> {
        if available == 0 || self.due_at().is_some_and(|at| now < at) {
            return None;
        }
        // Of a round that is still under way when its pause is over counts what is known.
        self.judge();
        let count = self.size.min(available);
        let id = RoundId(self.next_id);
        self.next_id += 1;
        let full = count == self.size;
        self.last = Some(Round { id, began: now, spread, full, open: count, accepted: false, put_off: false, judged: false });
        Some((id, count))
    }

    /// Notes what became of an entry of a round.
    pub fn answered(&mut self, id: RoundId, answer: Answer) {
        let Some(last) = self.last.as_mut().filter(|last| last.id == id) else { return };
        last.open = last.open.saturating_sub(1);
        last.accepted |= answer == Answer::Accepted;
        last.put_off |= answer == Answer::PutOff;
        if last.open == 0 {
            self.judge();
        }
    }

    /// The destination accepted something, of a round or not: it is there, and nothing has to wait for long.
    pub const fn accepted(&mut self) {
        self.fruitless = 0;
    }

    /// What follows from the last round: more at a time while rounds are full, fewer and later while nothing of them is accepted.
    fn judge(&mut self) {
        let Some(last) = self.last.as_mut().filter(|last| !last.judged && (last.accepted || last.put_off)) else { return };
        last.judged = true;
        if last.accepted {
            self.fruitless = 0;
            if last.full {
                self.size = self.size.saturating_mul(2).min(self.pacing.most);
            }
        } else {
            self.fruitless = self.fruitless.saturating_add(1);
            self.size = (self.size / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const fn pacing() -> Pacing {
        Pacing {
            shortest: Duration::from_millis(500),
            longest: Duration::from_secs(10),
            multiplier: 1.5,
            first: 10,
            most: 60,
            max_sends: 10,
        }
    }

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// A whole round of which every entry has the same answer; tells how many it took.
    fn round(rounds: &mut Rounds, now: Instant, available: usize, answer: Answer) -> usize {
        let (id, count) = rounds.begin(now, 0.5, available).expect("a round is due");
        (0..count).for_each(|_| rounds.answered(id, answer));
        count
    }

    #[test]
    fn while_everything_is_accepted_rounds_follow_at_once_and_double_up_to_the_most() {
        let mut rounds = Rounds::new(pacing());
        let taken: Vec<usize> = (0..5).map(|_| round(&mut rounds, at(0), 1_000, Answer::Accepted)).collect();
        assert_eq!(taken, [10, 20, 40, 60, 60]);
        assert_eq!(round(&mut rounds, at(0), 3, Answer::Accepted), 3);
        assert_eq!(round(&mut rounds, at(0), 1_000, Answer::Ended), 60, "a round that was not full says nothing about its size");
        assert_eq!(rounds.due_at(), None);
    }

    #[test]
    fn while_nothing_is_accepted_rounds_get_smaller_and_rarer() {
        let mut rounds = Rounds::new(pacing());
        let (mut now, mut seen) = (at(0), Vec::new());
        for _ in 0..10 {
            let count = round(&mut rounds, now, 1_000, Answer::PutOff);
            let next = rounds.due_at().unwrap();
            assert!(rounds.begin(Instant::from_nanos(next.as_nanos() - 1), 0.5, 1_000).is_none(), "not before its time");
            seen.push((count, next.since(now).as_millis()));
            now = next;
        }
        let expected =
            [(10, 750), (5, 1_125), (2, 1_687), (1, 2_531), (1, 3_796), (1, 5_695), (1, 8_542), (1, 10_000), (1, 10_000), (1, 10_000)];
        assert_eq!(seen, expected);
        rounds.accepted();
        assert_eq!(rounds.due_at().unwrap().since(now).as_millis(), 0, "what is accepted beside the rounds ends a long pause");
    }

    #[test]
    fn a_round_of_which_some_are_put_off_is_followed_after_the_shortest_pause() {
        let mut rounds = Rounds::new(pacing());
        let (id, count) = rounds.begin(at(0), 0.5, 1_000).unwrap();
        (1..count).for_each(|_| rounds.answered(id, Answer::Accepted));
        rounds.answered(id, Answer::PutOff);
        assert_eq!(rounds.due_at(), Some(at(500)));
        assert_eq!(rounds.begin(at(500), 0.5, 1_000).unwrap().1, 20);
    }

    #[test]
    fn a_round_that_is_not_answered_holds_up_the_next_for_a_pause_and_not_for_good() {
        let mut rounds = Rounds::new(pacing());
        let (first, _) = rounds.begin(at(0), 0.5, 1_000).unwrap();
        assert!(rounds.begin(at(499), 0.5, 1_000).is_none());
        let (_, count) = rounds.begin(at(500), 0.5, 1_000).unwrap();
        assert_eq!(count, 10, "nothing is known of the first one");
        rounds.answered(first, Answer::PutOff);
        assert_eq!(rounds.due_at(), Some(at(1_000)), "a late answer belongs to a round that is over");
    }

    #[test]
    fn a_fixed_pause_never_grows() {
        let mut rounds = Rounds::new(Pacing { longest: pacing().shortest, multiplier: 1.0, ..pacing() });
        for nth in 0..20 {
            round(&mut rounds, at(nth * 500), 1_000, Answer::PutOff);
            assert_eq!(rounds.due_at(), Some(at((nth + 1) * 500)));
        }
    }

    proptest! {
        /// Whatever the answers: a round takes one entry at least and the most at most, and a pause lies within a quarter of the configured range.
        #[test]
        fn rounds_keep_their_bounds(steps in proptest::collection::vec((0_usize..200, 0_u8..3, any::<bool>(), 0.0_f64..1.0), 1..60)) {
            let mut rounds = Rounds::new(pacing());
            let mut now = at(0);
            for (available, answer, answered, spread) in steps {
                let Some((id, count)) = rounds.begin(now, spread, available) else {
                    prop_assert!(available == 0, "a round begins once it is due");
                    continue;
                };
                prop_assert!((1..=60).contains(&count) && count <= available);
                let answer = [Answer::Accepted, Answer::PutOff, Answer::Ended][usize::from(answer)];
                if answered {
                    (0..count).for_each(|_| rounds.answered(id, answer));
                }
                let pause = rounds.due_at().map(|at| at.since(now));
                prop_assert_eq!(pause.is_none(), answered && answer != Answer::PutOff);
                if let Some(pause) = pause {
                    prop_assert!(pause >= Duration::from_millis(375) && pause <= Duration::from_millis(12_500), "{:?}", pause);
                    now = now.plus(pause);
                }
            }
        }
    }
}
