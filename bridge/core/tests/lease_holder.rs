//! One that holds a lease, against one who sees the row: whatever becomes of its renewals, it never acts a moment longer than nobody else can have taken
//! the lease.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_core::drain::retry::Jitter;
use causeway_core::lease::holder::{Holder, Step, Upkeep, Why};
use causeway_core::lease::row::{LeaseRow, OwnerFacts, RawLease, Tuple};
use causeway_core::lease::{Condition, Held, LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::{Instant, UnixMillis};
use core::time::Duration;
use proptest::prelude::*;

const TTL: u64 = 10_000;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It takes effect and is answered, after these delays in milliseconds.
    Answered(u64, u64),
    /// It takes effect, and the answer is lost.
    AnswerLost(u64),
    /// It is lost.
    Lost,
    /// It takes effect long after it was given up.
    Late(u64),
    /// It is refused.
    Refused,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => (0u64..2_000, 0u64..2_000).prop_map(|(out, back)| Fate::Answered(out, back)),
        1 => (0u64..2_000).prop_map(Fate::AnswerLost),
        1 => Just(Fate::Lost),
        1 => (1u64..9_000).prop_map(Fate::Late),
        1 => Just(Fate::Refused),
    ]
}

/// The row, and when its tuple changed last: what the holder cannot see.
struct Truth {
    row: LeaseRow,
    changed: u64,
    now: u64,
    late: Vec<(u64, LeaseWrite)>,
    /// Whether a rival takes the lease as soon as nobody forbids it.
    rival: bool,
}

impl Truth {
    fn apply(&mut self, write: &LeaseWrite) -> LeaseAnswer {
        let holds = match &write.condition {
            Condition::Held { owner, version } => self.row.tuple.owner == *owner && self.row.tuple.version == *version,
            Condition::Absent | Condition::Exactly { .. } => false,
        };
        if !holds {
            return LeaseAnswer::Refused(Some(RawLease::from(&self.row)));
        }
        if self.row.tuple != write.row.tuple {
            self.changed = self.now;
        }
        self.row = write.row.clone();
        LeaseAnswer::Written
    }

    /// Time goes on: late requests arrive, and the rival takes what it may.
    fn go_to(&mut self, now: u64) {
        while let Some(next) = self.late.iter().map(|(when, _)| *when).filter(|when| *when <= now).min() {
            let nth = self.late.iter().position(|(when, _)| *when == next).unwrap();
            let (_, write) = self.late.remove(nth);
            self.rival_until(next);
            self.now = next;
            self.apply(&write);
        }
        self.rival_until(now);
        self.now = now;
    }

    fn rival_until(&mut self, now: u64) {
        let since = self.changed + TTL;
        if self.rival && self.row.tuple.owner == "me#1" && now >= since {
            let old = self.row.tuple.clone();
            let renewed_at = UnixMillis(old.renewed_at.0 + 1);
            let tuple = Tuple {
                owner: "rival#1".into(),
                version: old.version + 1,
                renewed_at,
                expires_at: renewed_at.plus(Duration::from_millis(TTL)),
            };
            self.row = LeaseRow { tuple, acquired_at: renewed_at, evidence: None, facts: OwnerFacts::default() };
            self.changed = since;
        }
    }

    /// Carries the request out; answers with what reaches the holder, if anything does.
    fn carry_out(&mut self, write: &LeaseWrite, fate: Fate) -> Outcome<LeaseAnswer> {
        let unknown = || Outcome::Unknown(Fault::new(FaultCode::Timeout, "no answer"));
        match fate {
            Fate::Answered(out, back) => {
                self.go_to(self.now + out);
                let answer = self.apply(write);
                self.go_to(self.now + back);
                Outcome::Done(answer)
            }
            Fate::AnswerLost(out) => {
                self.go_to(self.now + out);
                self.apply(write);
                self.go_to(self.now + 2_000);
                unknown()
            }
            Fate::Lost => {
                self.go_to(self.now + 2_000);
                unknown()
            }
            Fate::Late(after) => {
                self.late.push((self.now + 2_000 + after, write.clone()));
                self.go_to(self.now + 2_000);
                unknown()
            }
            Fate::Refused => Outcome::NotDone(Fault::new(FaultCode::Throttled, "too many requests")),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_holder_acts_only_while_nobody_else_can_have_the_lease(
        fates in proptest::collection::vec((fate(), 0u64..4_000, any::<bool>()), 1..60),
        jitter in 0u64..1_000,
        wall_goes in any::<bool>(),
        rival in any::<bool>(),
    ) {
        let renewed_at = UnixMillis(5_000);
        let tuple = Tuple { owner: "me#1".into(), version: 3, renewed_at, expires_at: renewed_at.plus(Duration::from_millis(TTL)) };
        let row = LeaseRow { tuple, acquired_at: renewed_at, evidence: None, facts: OwnerFacts::default() };
        let mut truth = Truth { row: row.clone(), changed: 1_000, now: 1_000, late: Vec::new(), rival };
        let upkeep = Upkeep {
            ttl: Duration::from_millis(TTL),
            renew_interval: Duration::from_millis(2_000),
            jitter: Duration::from_millis(jitter),
            max_fails: 3,
            guard: Duration::from_millis(100),
        };
        // It was sent a second before it took effect.
        let mut holder = Holder::new(upkeep, Held { row, deadline: at(TTL) }, at(1_000), Jitter::new(jitter));
        let mut newest = renewed_at;
        // The oracle: until when it may act at least, as a renewal says that was answered.
        let mut sure_until = TTL;
        for (fate, pause, reads_fail) in fates {
            truth.go_to(truth.now + pause);
            let before = truth.now;
            let wall = UnixMillis(if wall_goes { 5_000 + before } else { 1 });
            let why = match holder.poll(at(before), wall) {
                Step::Until(_) => None,
                Step::Renew(write) => {
                    prop_assert!(write.row.tuple.renewed_at > newest, "renewed_at goes on");
                    prop_assert_eq!(write.row.tuple.version, 3);
                    newest = write.row.tuple.renewed_at;
                    let outcome = truth.carry_out(&write, fate);
                    if matches!(outcome, Outcome::Done(LeaseAnswer::Written)) {
                        sure_until = before + TTL;
                    }
                    holder.renewed(at(truth.now), outcome)
                }
                Step::Read => {
                    let answer = if reads_fail { Err(Fault::new(FaultCode::Timeout, "no answer")) } else { Ok(Some(RawLease::from(&truth.row))) };
                    holder.read(at(truth.now), answer)
                }
                Step::StepDown(why) => {
                    prop_assert_eq!(&why, &Why::Expired);
                    prop_assert!(before >= sure_until, "it steps down before its time is up");
                    Some(why)
                }
            };
            if holder.may_act(at(truth.now)) && why.is_none() {
                prop_assert_eq!(&truth.row.tuple.owner, "me#1", "it acts, and the lease is somebody else's");
                prop_assert!(truth.now < truth.changed + TTL, "it acts when another may take over");
            } else if why.is_none() {
                prop_assert!(truth.now + 100 >= sure_until, "it may act by what it was told, and does not");
            }
            if let Some(why) = why {
                let foreign = truth.row.tuple.owner != "me#1";
                prop_assert!(!matches!(why, Why::Lost) || foreign, "it gives up what is its own: {:?}", why);
                prop_assert!(!matches!(why, Why::Corrupt));
                // What it gives back is exactly its own.
                let release = holder.release();
                let written = truth.apply(&release);
                prop_assert_eq!(written == LeaseAnswer::Written, !foreign);
                prop_assert!(!holder.may_act(at(truth.now)), "it acts after it gave the lease back");
                break;
            }
        }
    }
}
