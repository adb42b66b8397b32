//! What is done with a post: kept here, passed on to the owner, or refused; and what the owner's answer means.

use super::locate::{Breaker, Place, Unknown};
use crate::units::Instant;
use core::time::Duration;

/// A post is passed on so often at most.
pub const MOST_ATTEMPTS: u32 = 3;
/// And takes no longer in all.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before the second attempt; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// No longer pause is believed, and told.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What callers are told to wait where nothing better is known: a successor needs about so long.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// A post that is not taken. Nothing of it is kept: the caller has it still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The HTTP status.
    pub status: u16,
    /// A stable code.
    pub code: &'static str,
    /// What is wrong and what to do, without secrets and payloads.
    pub detail: String,
    /// When to come again; `None`: not before something was changed.
    pub retry_after: Option<Duration>,
}

impl Refused {
    /// One that may pass.
    pub fn for_now(status: u16, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: Some(COME_AGAIN) }
    }

    /// One that does not pass by itself.
    pub fn for_good(status: u16, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None }
    }
}

/// What is done with a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes into the mailbox from here.
    Keep,
    /// The owner takes it.
    Forward {
        /// The owner.
        owner: String,
        /// The address of its transport port.
        url: String,
    },
    /// It is not taken.
    Refuse(Refused),
}

/// What is done with a post whose owner is at `place`. `forwarded`: another member sent it here. `fail_open`: where the owner cannot be told or reached, the
/// mailbox is as good.
#[must_use]
pub fn decide(place: &Place, forwarded: bool, fail_open: bool) -> Decision {
    match place {
        Place::Here => Decision::Keep,
        // Who sent it here took this process for the owner. Sending it on could go round in circles; whoever sent it looks again.
        Place::There { owner, .. } | Place::WithoutAddress { owner } if forwarded => {
            Decision::Refuse(Refused::for_now(508, "FORWARD_LOOP", format!("it was forwarded here, and the owner is {owner}")))
        }
        Place::There { owner, url } => Decision::Forward { owner: owner.clone(), url: url.clone() },
        Place::WithoutAddress { .. } | Place::Nowhere(_) if fail_open => Decision::Keep,
        Place::WithoutAddress { owner } => Decision::Refuse(Refused::for_now(
            502,
            "OWNER_WITHOUT_ENDPOINT",
            format!("target has no HTTP endpoint: the owner {owner} does not publish one; set bridge.cluster.endpoints on every replica"),
        )),
        Place::Nowhere(why) => Decision::Refuse(unknown_owner(*why)),
    }
}

fn unknown_owner(why: Unknown) -> Refused {
    let detail = match why {
        Unknown::LeaseExpired => "unknown owner: its lease expired, and a successor is not there yet",
        Unknown::LeaseUnowned => "unknown owner: nobody has the lease",
        Unknown::StoreUnavailable => "unknown owner: the lease store does not answer",
        Unknown::StoreBreakerOpen => "unknown owner: the lease store did not answer lately",
    };
    Refused::for_now(503, "UNKNOWN_OWNER", detail)
}

/// What came back from the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An answer.
    Status {
        /// Its HTTP status.
        status: u16,
        /// When it wants to be asked again, if it says so.
        retry_after: Option<Duration>,
    },
    /// None, or none in time. The post may have arrived.
    Silence,
}

impl Answer {
    /// Whether another attempt may end otherwise.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Silence => true,
            Self::Status { status, .. } => *status >= 500 || matches!(*status, 408 | 429),
        }
    }
}

/// What to do after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is the caller's answer.
    PassOn,
    /// Look for the owner and send it again, with the same id, after this pause.
    Again(Duration),
    /// It goes into the mailbox from here.
    Keep,
    /// It is not taken.
    Refuse(Refused),
}

/// The attempts to pass one post on.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    began: Instant,
    made: u32,
    fail_open: bool,
}

impl Attempt {
    /// The first begins now.
    #[must_use]
    pub const fn new(now: Instant, fail_open: bool) -> Self {
        Self { began: now, made: 0, fail_open }
    }

    /// How long the next attempt may take.
    #[must_use]
    pub fn left(&self, now: Instant) -> Duration {
        PATIENCE.saturating_sub(now.since(self.began))
    }

    /// One was answered.
    pub fn answered(&mut self, now: Instant, answer: &Answer) -> Next {
        if !answer.may_pass() {
            return Next::PassOn;
        }
        self.made = self.made.saturating_add(1);
        let wanted = match answer {
            Answer::Status { retry_after, .. } => retry_after.map(|pause| pause.min(LONGEST_PAUSE)),
            Answer::Silence => None,
        };
        let doubled = FIRST_PAUSE * 2_u32.saturating_pow(self.made.saturating_sub(1).min(8));
        let pause = wanted.map_or(doubled, |wanted| wanted.max(doubled));
        if self.made < MOST_ATTEMPTS && pause < self.left(now) {
            return Next::Again(pause);
        }
        if self.fail_open {
            return Next::Keep;
        }
        Next::Refuse(match answer {
            Answer::Silence => Refused::for_now(502, "OWNER_UNREACHABLE", "the owner did not answer: post it again with the same id"),
            Answer::Status { status, .. } => Refused {
                retry_after: Some(wanted.unwrap_or(COME_AGAIN)),
                ..Refused::for_now(
                    if matches!(status, 429 | 508) { *status } else { 503 },
                    "OWNER_BUSY",
                    format!("the owner answered with {status}"),
                )
            },
        })
    }
}

/// The last owner that posts were passed on to, left alone for a while where it does not answer.
#[derive(Clone, Debug, Default)]
pub struct Target {
    owner: String,
    breaker: Breaker,
}

impl Target {
    /// What is answered instead of trying `owner`, if it is to be left alone.
    #[must_use]
    pub fn refuses(&self, now: Instant, owner: &str) -> Option<Refused> {
        let wait = self.breaker.wait(now).filter(|_| self.owner == owner)?;
        let refused = Refused::for_now(503, "OWNER_UNREACHABLE", "the owner did not answer lately: post it again with the same id");
        Some(Refused { retry_after: Some(wait), ..refused })
    }

    /// `owner` was tried.
    pub fn tried(&mut self, now: Instant, owner: &str, answer: &Answer) {
        if self.owner != owner {
            *self = Self { owner: owner.to_owned(), breaker: Breaker::default() };
        }
        if *answer == Answer::Silence { self.breaker.failed(now) } else { self.breaker.worked() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Instant {
        Instant::default().plus(Duration::from_millis(millis))
    }

    fn there() -> Place {
        Place::There { owner: "two#2".to_owned(), url: "http://h".to_owned() }
    }

    fn status(decision: Decision) -> u16 {
        match decision {
            Decision::Keep => 202,
            Decision::Forward { .. } => 0,
            Decision::Refuse(refused) => refused.status,
        }
    }

    #[test]
    fn every_place_has_its_answer() {
        let lonely = Place::WithoutAddress { owner: "two#2".to_owned() };
        let nowhere = Place::Nowhere(Unknown::LeaseExpired);
        // The place; its answers closed, open, forwarded and closed, forwarded and open.
        for (place, answers) in [
            (Place::Here, [202, 202, 202, 202]),
            (there(), [0, 0, 508, 508]),
            (lonely, [502, 202, 508, 508]),
            (nowhere, [503, 202, 503, 202]),
        ] {
            let cases = [(false, false), (false, true), (true, false), (true, true)];
            let given = cases.map(|(forwarded, open)| status(decide(&place, forwarded, open)));
            assert_eq!(given, answers, "{place:?}");
        }
    }

    #[test]
    fn two_repeats_then_the_end() {
        let mut attempt = Attempt::new(at(0), false);
        assert_eq!(attempt.answered(at(5), &Answer::Silence), Next::Again(Duration::from_millis(100)));
        let busy = Answer::Status { status: 503, retry_after: None };
        assert_eq!(attempt.answered(at(110), &busy), Next::Again(Duration::from_millis(200)));
        let Next::Refuse(refused) = attempt.answered(at(320), &Answer::Silence) else { panic!("it goes on") };
        assert_eq!((refused.status, refused.retry_after), (502, Some(COME_AGAIN)));
        assert_eq!(Attempt::new(at(0), false).answered(at(1), &Answer::Status { status: 422, retry_after: None }), Next::PassOn);
    }

    #[test]
    fn what_the_owner_asks_for_is_kept_or_told() {
        let limited = |seconds| Answer::Status { status: 429, retry_after: Some(Duration::from_secs(seconds)) };
        assert_eq!(Attempt::new(at(0), false).answered(at(1), &limited(2)), Next::Again(Duration::from_secs(2)));
        for (asked, told) in [(20, 20), (600, 30)] {
            let Next::Refuse(refused) = Attempt::new(at(0), false).answered(at(1), &limited(asked)) else { panic!("it waits") };
            assert_eq!((refused.status, refused.retry_after), (429, Some(Duration::from_secs(told))));
        }
        assert_eq!(Attempt::new(at(0), true).answered(at(1), &limited(20)), Next::Keep, "the mailbox is as good");
    }

    #[test]
    fn an_owner_that_does_not_answer_is_left_alone_and_another_is_not() {
        let mut target = Target::default();
        for millis in 0..3 {
            assert_eq!(target.refuses(at(millis), "two#2"), None);
            target.tried(at(millis), "two#2", &Answer::Silence);
        }
        let refused = target.refuses(at(1_002), "two#2").unwrap();
        assert_eq!((refused.status, refused.retry_after), (503, Some(Duration::from_secs(4))));
        assert_eq!(target.refuses(at(1_002), "three#3"), None);
        target.tried(at(1_002), "three#3", &Answer::Status { status: 503, retry_after: None });
        assert_eq!(target.refuses(at(1_003), "three#3"), None, "an answer is an answer");
    }

    proptest! {
        /// However it is answered: at most three attempts, all within the patience, and never accepted for another reason than that it was.
        #[test]
        fn attempts_end(answers in proptest::collection::vec((prop_oneof![Just(0_u16), 200_u16..600], 0_u64..40, 0_u64..6_000), 1..10), open: bool) {
            let (mut now, mut attempt) = (0_u64, Attempt::new(at(0), open));
            let mut made = 0;
            for (status, wanted, took) in answers {
                made += 1;
                now += took;
                let answer = match status {
                    0 => Answer::Silence,
                    status => Answer::Status { status, retry_after: (wanted > 0).then(|| Duration::from_secs(wanted)) },
                };
                match attempt.answered(at(now), &answer) {
                    Next::Again(pause) => {
                        prop_assert!(made < MOST_ATTEMPTS && Duration::from_millis(now) + pause < PATIENCE);
                        now += u64::try_from(pause.as_millis()).unwrap();
                    }
                    Next::PassOn => { prop_assert!(!answer.may_pass()); break; }
                    Next::Keep => { prop_assert!(open); break; }
                    Next::Refuse(refused) => { prop_assert!(!open && refused.status >= 400 && refused.retry_after.is_some()); break; }
                }
            }
            prop_assert!(made <= MOST_ATTEMPTS);
        }
    }
}
