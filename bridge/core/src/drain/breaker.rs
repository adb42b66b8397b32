//! A circuit breaker: a destination that takes nothing is left alone for a while, then tried with little.

use crate::units::Instant;
use core::time::Duration;
use serde::Serialize;

/// How a circuit breaker decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerOptions {
    /// So many sends in a row that fail open it.
    pub failures: u32,
    /// So many probes in a row that are accepted close it.
    pub successes: u32,
    /// How long nothing is sent once it is open.
    pub reset: Duration,
    /// Entries under way at most while it is half open.
    pub probes: usize,
}

/// What a circuit breaker lets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Circuit {
    /// Everything.
    #[default]
    Closed,
    /// Probes.
    HalfOpen,
    /// Nothing.
    Open,
}

/// What became of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// The destination accepted something.
    Accepted,
    /// It accepted nothing, and that may pass, or concerns every message.
    Failed,
    /// It refused what it was sent, which says nothing of anything else.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen { successes: u32 },
}

/// The circuit breaker of one leg.
#[derive(Clone, Debug)]
pub struct Breaker {
    options: BreakerOptions,
    state: State,
}

impl Breaker {
    /// Closed.
    #[must_use]
    pub const fn new(options: BreakerOptions) -> Self {
        Self { options, state: State::Closed { failures: 0 } }
    }

    /// What it lets through.
    #[must_use]
    pub const fn circuit(&self) -> Circuit {
        match self.state {
            State::Closed { .. } => Circuit::Closed,
            State::Open { .. } => Circuit::Open,
            State::HalfOpen { .. } => Circuit::HalfOpen,
        }
    }

    /// How many entries may be under way; `None`: it bounds nothing.
    #[must_use]
    pub fn most(&self, now: Instant) -> Option<usize> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { until } if now < until => Some(0),
            State::Open { .. } | State::HalfOpen { .. } => Some(self.options.probes),
        }
    }

    /// When it lets probes through, where it is open.
    #[must_use]
    pub const fn opens_at(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed { .. } | State::HalfOpen { .. } => None,
        }
    }

    /// A send begins, which it let through.
    pub const fn began(&mut self) {
        if let State::Open { .. } = self.state {
            self.state = State::HalfOpen { successes: 0 };
        }
    }

    /// A send ended; tells whether it is open from now on.
    pub fn ended(&mut self, now: Instant, end: SendEnd) -> bool {
        let before = self.state;
        self.state = match (self.state, end) {
            // It says nothing, or it was begun before the circuit opened.
            (state, SendEnd::Refused) | (state @ State::Open { .. }, _) => state,
            (State::Closed { .. }, SendEnd::Accepted) => State::Closed { failures: 0 },
            (State::Closed { failures }, SendEnd::Failed) if failures + 1 < self.options.failures => {
                State::Closed { failures: failures + 1 }
            }
            (State::Closed { .. } | State::HalfOpen { .. }, SendEnd::Failed) => State::Open { until: now.plus(self.options.reset) },
            (State::HalfOpen { successes }, SendEnd::Accepted) if successes + 1 < self.options.successes => {
                State::HalfOpen { successes: successes + 1 }
            }
            (State::HalfOpen { .. }, SendEnd::Accepted) => State::Closed { failures: 0 },
        };
        before != self.state && self.circuit() == Circuit::Open
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const OPTIONS: BreakerOptions = BreakerOptions { failures: 5, successes: 2, reset: Duration::from_secs(30), probes: 1 };

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_after_probes_in_a_row() {
        let mut breaker = Breaker::new(OPTIONS);
        for end in [SendEnd::Failed; 4].into_iter().chain([SendEnd::Refused, SendEnd::Accepted]).chain([SendEnd::Failed; 4]) {
            assert!(!breaker.ended(at(0), end) && breaker.most(at(0)).is_none());
        }
        assert!(breaker.ended(at(10), SendEnd::Failed));
        assert_eq!((breaker.most(at(39)), breaker.opens_at(), breaker.circuit()), (Some(0), Some(at(40)), Circuit::Open));
        assert!(!breaker.ended(at(20), SendEnd::Failed) && !breaker.ended(at(20), SendEnd::Accepted), "begun before");
        assert_eq!((breaker.most(at(40)), breaker.opens_at()), (Some(1), Some(at(40))));
        breaker.began();
        assert!(breaker.ended(at(41), SendEnd::Failed), "one failure opens it again");
        assert_eq!(breaker.opens_at(), Some(at(71)));
        breaker.began();
        for end in [SendEnd::Accepted, SendEnd::Refused] {
            assert!(!breaker.ended(at(72), end));
            assert_eq!((breaker.most(at(72)), breaker.circuit()), (Some(1), Circuit::HalfOpen));
        }
        assert!(!breaker.ended(at(72), SendEnd::Accepted));
        assert_eq!((breaker.most(at(72)), breaker.circuit()), (None, Circuit::Closed));
    }

    proptest! {
        /// Whatever happens: it is open for as long as configured and no longer, and it opens after as many failures as configured and no fewer.
        #[test]
        fn it_keeps_its_numbers(failures in 1_u32..6, successes in 1_u32..4, probes in 1_usize..3, ends in proptest::collection::vec((0_u8..3, 0_u64..20), 0..200)) {
            let options = BreakerOptions { failures, successes, reset: Duration::from_secs(30), probes };
            let mut breaker = Breaker::new(options);
            let (mut now, mut failed, mut accepted) = (0, 0, 0);
            for (end, pause) in ends {
                now += pause;
                let most = breaker.most(at(now));
                if most == Some(0) {
                    prop_assert!(breaker.opens_at().unwrap() > at(now));
                    continue;
                }
                let probing = most.is_some();
                prop_assert!(!probing || most == Some(probes));
                if breaker.circuit() == Circuit::Open {
                    accepted = 0;
                }
                breaker.began();
                let end = [SendEnd::Accepted, SendEnd::Failed, SendEnd::Refused][usize::from(end)];
                match end {
                    SendEnd::Accepted => (failed, accepted) = (0, accepted + 1),
                    SendEnd::Failed => failed += 1,
                    SendEnd::Refused => {}
                }
                let opened = breaker.ended(at(now), end);
                prop_assert_eq!(opened, end == SendEnd::Failed && (probing || failed >= failures));
                if opened {
                    (failed, accepted) = (0, 0);
                    prop_assert_eq!(breaker.opens_at(), Some(at(now + 30)));
                } else if probing {
                    prop_assert_eq!(breaker.circuit() == Circuit::Closed, accepted >= successes);
                }
            }
        }
    }
}
