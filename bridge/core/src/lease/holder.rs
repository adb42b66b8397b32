//! One that holds a lease.

use super::row::{LeaseRow, OwnerFacts, RawLease, Tuple};
use super::{Condition, Held, LeaseAnswer, LeaseWrite};
use crate::drain::retry::Jitter;
use crate::outcome::{Fault, Outcome};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// How a holder keeps its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Upkeep {
    /// How long the lease holds.
    pub ttl: Duration,
    /// From one renewal to the next.
    pub renew_interval: Duration,
    /// The range of the random shift of a renewal, half of it each way.
    pub jitter: Duration,
    /// Renewals that may fail in a row before the row is read.
    pub max_fails: u32,
    /// Nothing begins later than this before the deadline.
    pub guard: Duration,
}

/// What to do next.
#[allow(clippy::large_enum_variant, reason = "a few a second at most, each handed on once: a box would cost more than the copy")]
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing before this moment.
    Until(Instant),
    /// Renew.
    Renew(LeaseWrite),
    /// Read the row, consistently: after too many failures only the row itself tells.
    Read,
    /// Stop acting at once.
    StepDown(Why),
}

/// Why a holder steps down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The deadline passed without a renewal.
    Expired,
    /// The row belongs to somebody else, or to nobody.
    Lost,
    /// The row cannot be believed.
    Corrupt,
    /// Renewals failed too often, and the row does not say that the lease is still held.
    Failing(Fault),
}

/// One that holds a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    upkeep: Upkeep,
    row: LeaseRow,
    deadline: Instant,
    renew_at: Instant,
    fails: u32,
    sent: Option<(LeaseRow, Instant)>,
    /// Every renewal that was sent and not answered, or answered with "unknown": any of them may stand in the row.
    unanswered: Vec<(Tuple, Instant)>,
    /// The newest `renewed_at` that was ever sent: no two renewals are alike, or the one would be taken for the other.
    newest: UnixMillis,
    jitter: Jitter,
    released: bool,
}

impl Holder {
    /// Holds what a standby won.
    #[must_use]
    pub fn new(upkeep: Upkeep, held: Held, now: Instant, jitter: Jitter) -> Self {
        let mut holder = Self {
            upkeep,
            newest: held.row.tuple.renewed_at,
            row: held.row,
            deadline: held.deadline,
            renew_at: now,
            fails: 0,
            sent: None,
            unanswered: Vec::new(),
            jitter,
            released: false,
        };
        holder.schedule(now);
        holder
    }

    /// The fencing version.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.row.tuple.version
    }

    /// Until when it may act, without the guard.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// No effect may begin at or after this: the deadline less the guard.
    #[must_use]
    pub fn acts_until(&self) -> Instant {
        if self.released {
            return Instant::default();
        }
        Instant::from_nanos(self.deadline.as_nanos().saturating_sub(u64::try_from(self.upkeep.guard.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The row as this holder knows it.
    #[must_use]
    pub const fn row(&self) -> &LeaseRow {
        &self.row
    }

    /// When to be asked again, while no call is under way.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.renew_at.min(self.deadline)
    }

    /// Whether an effect may begin now.
    #[must_use]
    pub fn may_act(&self, now: Instant) -> bool {
        now < self.acts_until()
    }

    /// What to do now. Not to be asked while a renewal or a read is under way.
    pub fn poll(&mut self, now: Instant, wall: UnixMillis) -> Step {
        if now >= self.deadline {
            return Step::StepDown(Why::Expired);
        }
        if now < self.renew_at {
            return Step::Until(self.renew_at.min(self.deadline));
        }
        if self.fails >= self.upkeep.max_fails {
            return Step::Read;
        }
        let renewed_at = UnixMillis(wall.0.max(self.newest.0 + 1));
        self.newest = renewed_at;
        let tuple = Tuple { renewed_at, expires_at: renewed_at.plus(self.upkeep.ttl), ..self.row.tuple.clone() };
        let row = LeaseRow { tuple, evidence: None, ..self.row.clone() };
        self.sent = Some((row.clone(), now));
        let condition = Condition::Held { owner: self.row.tuple.owner.clone(), version: self.row.tuple.version };
        Step::Renew(LeaseWrite { condition, row })
    }

    /// Tells the holder what to say of itself from the next renewal on.
    pub fn tell(&mut self, facts: OwnerFacts) {
        self.row.facts = facts;
    }

    /// Takes the answer to [`Step::Renew`].
    pub fn renewed(&mut self, now: Instant, outcome: Outcome<LeaseAnswer>) -> Option<Why> {
        let (row, at) = self.sent.take()?;
        match outcome {
            Outcome::Done(LeaseAnswer::Written) => {
                self.keep(row.tuple, at, now);
                None
            }
            Outcome::Done(LeaseAnswer::Refused(current)) => self.refused(now, current, &row.tuple, at),
            Outcome::NotDone(_) => {
                self.failed(now);
                None
            }
            Outcome::Unknown(_) => {
                self.unanswered.push((row.tuple, at));
                self.failed(now);
                None
            }
        }
    }

    /// A refusal with a row in which this owner stands with its version cannot be: the condition would have held. It says that the row changed between.
    fn refused(&mut self, now: Instant, current: Option<RawLease>, sent: &Tuple, at: Instant) -> Option<Why> {
        match current.map(LeaseRow::try_from) {
            None => Some(Why::Lost),
            Some(Err(_)) => Some(Why::Corrupt),
            Some(Ok(row)) if row.tuple == *sent => {
                self.keep(row.tuple, at, now);
                None
            }
            Some(Ok(_)) => Some(Why::Lost),
        }
    }

    /// Takes the answer to [`Step::Read`].
    pub fn read(&mut self, now: Instant, answer: Result<Option<RawLease>, Fault>) -> Option<Why> {
        let raw = match answer {
            Ok(raw) => raw,
            Err(fault) => return Some(Why::Failing(fault)),
        };
        let row = match raw.map(LeaseRow::try_from) {
            None => return Some(Why::Lost),
            Some(Err(_)) => return Some(Why::Corrupt),
            Some(Ok(row)) => row,
        };
        if row.tuple.owner != self.row.tuple.owner || row.tuple.version != self.row.tuple.version {
            return Some(Why::Lost);
        }
        // A renewal whose answer was lost, if one stands there, counts from before it was sent.
        if let Some((tuple, at)) = self.unanswered.iter().find(|(tuple, _)| *tuple == row.tuple).cloned() {
            self.keep(tuple, at, now);
        }
        self.fails = self.upkeep.max_fails.saturating_sub(1);
        self.renew_at = now;
        None
    }

    fn keep(&mut self, tuple: Tuple, sent_at: Instant, now: Instant) {
        // Whole milliseconds, as the row has it: observers count by the row.
        self.deadline = self.deadline.max(sent_at.plus(tuple.ttl()));
        self.row.tuple = tuple;
        self.fails = 0;
        self.unanswered.clear();
        self.schedule(now);
    }

    fn failed(&mut self, now: Instant) {
        self.fails += 1;
        self.schedule(now);
    }

    fn schedule(&mut self, now: Instant) {
        let low = self.upkeep.renew_interval.saturating_sub(self.upkeep.jitter / 2);
        let shift = if self.upkeep.jitter.is_zero() { Duration::ZERO } else { self.upkeep.jitter.mul_f64(self.jitter.fraction()) };
        self.renew_at = now.plus((low + shift).max(Duration::from_millis(1))).min(self.deadline);
    }

    /// The write that gives the lease back. Nothing may act any more from here on.
    pub fn release(&mut self) -> LeaseWrite {
        self.released = true;
        let renewed_at = UnixMillis(self.newest.0 + 1);
        let tuple = Tuple { owner: String::new(), version: self.row.tuple.version, renewed_at, expires_at: UnixMillis(0) };
        let row = LeaseRow { tuple, evidence: None, facts: OwnerFacts::default(), ..self.row.clone() };
        let condition = Condition::Held { owner: self.row.tuple.owner.clone(), version: self.row.tuple.version };
        LeaseWrite { condition, row }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::outcome::FaultCode;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(10);

    fn ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn held(at: Instant) -> Held {
        let tuple = Tuple { owner: "a#1".into(), version: 7, renewed_at: UnixMillis(100), expires_at: UnixMillis(10_100) };
        Held { row: LeaseRow { tuple, acquired_at: UnixMillis(100), evidence: None, facts: OwnerFacts::default() }, deadline: at.plus(TTL) }
    }

    fn holder(max_fails: u32) -> Holder {
        let second = Duration::from_secs(1);
        let upkeep = Upkeep { ttl: TTL, renew_interval: second, jitter: second / 2, max_fails, guard: second / 10 };
        Holder::new(upkeep, held(ms(0)), ms(0), Jitter::new(3))
    }

    fn raw(row: &LeaseRow) -> RawLease {
        let wide = |number: u64| Some(i128::from(number));
        RawLease {
            owner: Some(row.tuple.owner.clone()),
            version: wide(row.tuple.version),
            acquired_at: wide(row.acquired_at.0),
            renewed_at: wide(row.tuple.renewed_at.0),
            expires_at: wide(row.tuple.expires_at.0),
            ..RawLease::default()
        }
    }

    fn no_answer() -> Fault {
        Fault::new(FaultCode::Timeout, "no answer")
    }

    #[test]
    fn a_renewal_whose_answer_was_lost_is_recognised_and_counts_from_before_it_was_sent() {
        let mut one = holder(1);
        let Step::Renew(write) = one.poll(ms(2_000), UnixMillis(50)) else { panic!("no renewal") };
        assert_eq!(one.renewed(ms(3_000), Outcome::Unknown(no_answer())), None);
        assert_eq!(one.poll(ms(5_000), UnixMillis(50)), Step::Read);
        assert_eq!(one.read(ms(5_100), Ok(Some(raw(&write.row)))), None);
        assert_eq!(one.deadline(), ms(12_000));
    }

    #[test]
    fn a_renewal_that_is_still_on_its_way_is_not_taken_for_a_later_one() {
        let mut one = holder(2);
        let renew = |one: &mut Holder, at| {
            let Step::Renew(write) = one.poll(ms(at), UnixMillis(50)) else { panic!("no renewal") };
            assert_eq!(one.renewed(ms(at + 100), Outcome::Unknown(no_answer())), None);
            write.row
        };
        let (first, second) = (renew(&mut one, 2_000), renew(&mut one, 4_000));
        assert_eq!(one.poll(ms(5_500), UnixMillis(50)), Step::Read);
        // The first one stands there; the second one may still arrive.
        assert_eq!(one.read(ms(5_600), Ok(Some(raw(&first)))), None);
        let third = renew(&mut one, 7_000);
        assert!(first.tuple != second.tuple && second.tuple != third.tuple && first.tuple != third.tuple);
    }

    #[test]
    fn a_row_that_nobody_renewed_keeps_the_old_deadline() {
        let mut one = holder(1);
        assert!(matches!(one.poll(ms(2_000), UnixMillis(50)), Step::Renew(_)));
        assert_eq!(one.renewed(ms(3_000), Outcome::Unknown(no_answer())), None);
        assert_eq!(one.poll(ms(5_000), UnixMillis(50)), Step::Read);
        assert_eq!(one.read(ms(5_100), Ok(Some(raw(&held(ms(0)).row)))), None);
        assert_eq!(one.deadline(), ms(10_000));
        assert!(matches!(one.poll(ms(5_100), UnixMillis(50)), Step::Renew(_)), "and tries again at once");
    }

    #[test]
    fn what_is_somebody_elses_gone_or_not_to_be_believed_ends_it() {
        let mut other = held(ms(0)).row;
        other.tuple.version = 8;
        let corrupt = RawLease { expires_at: None, ..raw(&other) };
        for (answer, why) in [
            (Ok(None), Why::Lost),
            (Ok(Some(raw(&other))), Why::Lost),
            (Ok(Some(corrupt)), Why::Corrupt),
            (Err(no_answer()), Why::Failing(no_answer())),
        ] {
            assert_eq!(holder(1).read(ms(5_000), answer), Some(why));
        }
    }

    proptest! {
        /// Against an oracle that knows what the row truly holds: the deadline is never later than the row allows, and no two renewals are alike, even
        /// where the wall clock goes backwards.
        #[test]
        fn never_acts_longer_than_the_row_allows(max_fails in 1u32..4, steps in proptest::collection::vec((0u64..2_500, 0u8..5, 0u64..1_500, 0u64..2_000), 1..80)) {
            let mut one = holder(max_fails);
            let mut row = held(ms(0)).row;
            // What the row holds was sent then.
            let (mut now, mut sent_at, mut newest) = (0_u64, 0_u64, UnixMillis(100));
            let mut late: Option<(LeaseRow, u64)> = None;
            for (pause, what, latency, wall) in steps {
                now += pause;
                match one.poll(ms(now), UnixMillis(wall)) {
                    Step::Until(at) => prop_assert!(at > ms(now) && at <= one.deadline()),
                    Step::StepDown(why) => {
                        prop_assert_eq!(why, Why::Expired);
                        prop_assert!(ms(now) >= one.deadline() && !one.may_act(ms(now)));
                        return Ok(());
                    }
                    Step::Read => {
                        now += latency;
                        prop_assert_eq!(one.read(ms(now), Ok(Some(raw(&row)))), None);
                    }
                    Step::Renew(write) => {
                        prop_assert!(write.row.tuple.renewed_at > newest, "renewed_at goes on");
                        newest = write.row.tuple.renewed_at;
                        let asked = now;
                        // One that was given up earlier arrives now, before this one.
                        if let Some((older, at)) = late.take() {
                            (row, sent_at) = (older, at);
                        }
                        now += latency;
                        let outcome = match what {
                            0 | 1 => {
                                (row, sent_at) = (write.row, asked);
                                Outcome::Done(LeaseAnswer::Written)
                            }
                            2 => {
                                (row, sent_at) = (write.row, asked);
                                Outcome::Unknown(no_answer())
                            }
                            3 => {
                                late = Some((write.row, asked));
                                Outcome::Unknown(no_answer())
                            }
                            _ => Outcome::NotDone(no_answer()),
                        };
                        prop_assert_eq!(one.renewed(ms(now), outcome), None);
                    }
                }
                prop_assert!(one.deadline() <= ms(sent_at).plus(TTL), "acts until {:?}, the row was sent at {sent_at} ms", one.deadline());
            }
        }
    }
}
