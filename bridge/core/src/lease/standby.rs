//! One that waits for a lease.

use super::row::{CorruptLease, Evidence, LeaseRow, OwnerFacts, RawLease, Tuple};
use super::testimony::Testimony;
use super::{Condition, Held, LeaseAnswer, LeaseWrite};
use crate::outcome::{Fault, Outcome};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// What one that waits knows of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The lease's key; part of every fingerprint.
    pub key: String,
    /// Its owner name, `instance_id#<boot nonce>`.
    pub owner: String,
    /// How long the lease shall hold.
    pub ttl: Duration,
    /// What to tell of itself once it owns the lease.
    pub facts: OwnerFacts,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read the row, consistently.
    Read,
    /// Write the row, if it still is as it was read.
    Write(LeaseWrite),
    /// Look again at the next poll.
    Wait,
    /// The lease is held.
    Won(Held),
    /// The row cannot be believed: nobody acts until somebody repaired it.
    Corrupt(CorruptLease),
    /// The store could not be asked.
    Failed(Fault),
}

/// The tuple that is being watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Watch {
    /// The row that it stands in, as it was read last, or written since.
    row: LeaseRow,
    /// After the first read that returned it.
    since: Instant,
    /// Evidence that a read or a write of ours confirmed, and when that was answered.
    baseline: Option<(Evidence, Instant)>,
}

impl Watch {
    /// For how long the tuple is certainly unchanged. Intervals of several observers overlap, so they are never added up: the longest counts.
    fn unchanged_for(&self, now: Instant) -> Duration {
        let inherited = self
            .baseline
            .as_ref()
            .map_or(Duration::ZERO, |(evidence, since)| Duration::from_nanos(evidence.elapsed_ns).saturating_add(now.since(*since)));
        inherited.max(now.since(self.since))
    }
}

/// A write that was sent.
#[allow(clippy::large_enum_variant, reason = "there is one at most, and it stays where it is")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Sent {
    Claim { row: LeaseRow, at: Instant },
    Observation { evidence: Evidence },
}

/// One that waits for a lease. Ask it at every poll, and carry out what it answers until it answers [`Step::Wait`] or better.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Standby {
    candidate: Candidate,
    watch: Option<Watch>,
    sent: Option<Sent>,
    /// Claims of unknown outcome, each with the moment before it was sent: any of them may stand in the row, or still arrive there.
    unanswered: Vec<(LeaseRow, Instant)>,
    /// The row whose owner's task is being asked about.
    suspected: Option<LeaseRow>,
    /// How much longer than the others it waits.
    patience: Duration,
}

impl Standby {
    /// Starts without any picture of the row.
    #[must_use]
    pub const fn new(candidate: Candidate) -> Self {
        Self { candidate, watch: None, sent: None, unanswered: Vec::new(), suspected: None, patience: Duration::ZERO }
    }

    /// The same, but it leaves a lease that is over, or was given back, to the others for so long.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The next poll begins.
    #[must_use]
    pub fn poll(&mut self) -> Step {
        Step::Read
    }

    /// Takes the answer to [`Step::Read`]; `now` is read after it came.
    pub fn read(&mut self, now: Instant, wall: UnixMillis, answer: Result<Option<RawLease>, Fault>) -> Step {
        let raw = match answer {
            Ok(raw) => raw,
            Err(fault) => return Step::Failed(fault),
        };
        self.sent = None;
        self.suspected = None;
        let row = match raw.map(LeaseRow::try_from).transpose() {
            Ok(row) => row,
            Err(corrupt) => {
                self.watch = None;
                return Step::Corrupt(corrupt);
            }
        };
        let Some(row) = row else { return self.claim(now, wall, Condition::Absent, 1, UnixMillis(0)) };
        if let Some((_, at)) = self.unanswered.iter().find(|(mine, _)| mine.tuple == row.tuple) {
            let deadline = at.plus(row.tuple.ttl());
            if now < deadline {
                // The write whose answer was lost took effect.
                self.unanswered.clear();
                return Step::Won(Held { deadline, row });
            }
        }
        // A claim is conditional on the tuple before it. Once the version is reached it cannot take effect any more.
        self.unanswered.retain(|(mine, _)| mine.tuple.version > row.tuple.version);
        self.judge(now, wall, row)
    }

    /// Takes the answer to [`Step::Write`]; `now` is read after it came.
    pub fn written(&mut self, now: Instant, outcome: Outcome<LeaseAnswer>) -> Step {
        match (outcome, self.sent.clone()) {
            (Outcome::Done(LeaseAnswer::Written), Some(Sent::Claim { row, at })) => {
                self.sent = None;
                self.watch = None;
                self.unanswered.clear();
                Step::Won(Held { deadline: at.plus(row.tuple.ttl()), row })
            }
            (Outcome::Done(LeaseAnswer::Written), Some(Sent::Observation { evidence })) => {
                self.sent = None;
                if let Some(watch) = &mut self.watch {
                    watch.row.evidence = Some(evidence.clone());
                    watch.baseline = Some((evidence, now));
                }
                Step::Wait
            }
            // Somebody else was faster. What they wrote is read at the next poll.
            (Outcome::Done(LeaseAnswer::Refused(_)) | Outcome::Done(LeaseAnswer::Written), _) => {
                self.sent = None;
                Step::Wait
            }
            (Outcome::NotDone(fault), _) => {
                self.sent = None;
                Step::Failed(fault)
            }
            // It may have taken effect, or will: a later read tells.
            (Outcome::Unknown(fault), sent) => {
                self.sent = None;
                if let Some(Sent::Claim { row, at }) = sent {
                    self.unanswered.push((row, at));
                }
                Step::Failed(fault)
            }
        }
    }

    /// When the owner is overdue if it is not heard of: that long after the last sign of it. `None` where nobody is watched whose task is known.
    #[must_use]
    pub fn overdue_at(&self, now: Instant, overdue_after: Duration) -> Option<Instant> {
        let watch = self.watch.as_ref().filter(|watch| watch.row.facts.task_arn.is_some())?;
        Some(now.plus(overdue_after.saturating_sub(watch.unchanged_for(now))))
    }

    /// When the lease's time is over for the owner that is watched, if nothing is heard of it until then: the first look that may claim its lease. `None`
    /// where nobody is watched.
    #[must_use]
    pub fn claimable_at(&self, now: Instant) -> Option<Instant> {
        let watch = self.watch.as_ref()?;
        let needed = watch.row.tuple.ttl().saturating_add(self.patience);
        Some(now.plus(needed.saturating_sub(watch.unchanged_for(now))))
    }

    /// The task to ask the orchestrator about. It is the one that the row names which was read before; what is answered counts for that row alone.
    pub fn suspect(&mut self) -> Option<String> {
        let row = &self.watch.as_ref()?.row;
        let task = row.facts.task_arn.clone()?;
        self.suspected = Some(row.clone());
        Some(task)
    }

    /// Takes what the orchestrator said of the task that [`Standby::suspect`] named; `None` where it said nothing, or nothing that can be used. Proof of its
    /// end is as good as the lease's time: the row is claimed, exactly as it was read before the question.
    pub fn told(&mut self, now: Instant, wall: UnixMillis, testimony: Option<&Testimony>) -> Step {
        let Some(row) = self.suspected.take() else { return Step::Wait };
        let ended = row.facts.task_arn.as_ref().is_some_and(|task| testimony.is_some_and(|told| told.proves_the_end_of(task)));
        if !ended {
            return Step::Wait;
        }
        let (version, renewed_at) = (row.tuple.version + 1, row.tuple.renewed_at);
        self.claim(now, wall, Condition::Exactly { tuple: row.tuple, evidence: row.evidence }, version, renewed_at)
    }

    fn judge(&mut self, now: Instant, wall: UnixMillis, row: LeaseRow) -> Step {
        let exactly = Condition::Exactly { tuple: row.tuple.clone(), evidence: row.evidence.clone() };
        if row.tuple.is_housekeeping() || row.tuple.owner == self.candidate.owner || row.tuple.is_released() && self.patience.is_zero() {
            // Released: nobody to wait for. Housekeeping: it sends nothing, and the log itself fences what it may still write. Our own name: this
            // process held it and lost track of it; nobody else has this boot nonce.
            self.watch = None;
            return self.claim(now, wall, exactly, row.tuple.version + 1, row.tuple.renewed_at);
        }
        let elapsed = self.observe(now, &row);
        if row.tuple.is_released() && elapsed < self.patience {
            return Step::Wait;
        }
        let ttl = row.tuple.ttl();
        if row.tuple.is_released() || elapsed >= ttl + self.patience {
            return self.claim(now, wall, exactly, row.tuple.version + 1, row.tuple.renewed_at);
        }
        // A healthy owner renews well within a quarter of its lease's time, so that its row is never written by one that waits.
        if elapsed < ttl / 4 {
            return Step::Wait;
        }
        // Evidence is written only where it says clearly more than what stands there. Otherwise two observers would replace each other's for ever, and
        // each replacement starts the other's count anew.
        let fingerprint = row.tuple.fingerprint(&self.candidate.key);
        let standing = row.evidence.as_ref().filter(|evidence| evidence.fingerprint == fingerprint);
        if standing.is_some_and(|evidence| elapsed < Duration::from_nanos(evidence.elapsed_ns) + ttl / 8) {
            return Step::Wait;
        }
        let evidence = Evidence {
            fingerprint,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX - 1),
            generation: row.evidence.as_ref().map_or(0, |evidence| evidence.generation).saturating_add(1),
        };
        self.sent = Some(Sent::Observation { evidence: evidence.clone() });
        Step::Write(LeaseWrite { condition: exactly, row: LeaseRow { evidence: Some(evidence), ..row } })
    }

    /// For how long the tuple is certainly unchanged, if it is unchanged when a write conditional on it takes effect.
    fn observe(&mut self, now: Instant, row: &LeaseRow) -> Duration {
        let known = row.evidence.as_ref().filter(|evidence| evidence.fingerprint == row.tuple.fingerprint(&self.candidate.key));
        let watch = match &mut self.watch {
            Some(watch) if watch.row.tuple == row.tuple => {
                watch.row = row.clone();
                watch
            }
            other => other.insert(Watch { row: row.clone(), since: now, baseline: None }),
        };
        match known {
            None => watch.baseline = None,
            Some(evidence) if watch.baseline.as_ref().is_some_and(|(baseline, _)| baseline == evidence) => {}
            Some(evidence) => watch.baseline = Some((evidence.clone(), now)),
        }
        watch.unchanged_for(now)
    }

    fn claim(&mut self, now: Instant, wall: UnixMillis, condition: Condition, version: u64, renewed_before: UnixMillis) -> Step {
        // No two claims are alike, even where this host's clock is behind: a deadline counts from before the very claim that stands in the row.
        let claimed = self.unanswered.iter().map(|(row, _)| row.tuple.renewed_at);
        let newest = claimed.chain([renewed_before]).max().unwrap_or_default();
        let renewed_at = UnixMillis(wall.0.max(newest.0 + 1));
        let row = LeaseRow {
            tuple: Tuple { owner: self.candidate.owner.clone(), version, renewed_at, expires_at: renewed_at.plus(self.candidate.ttl) },
            acquired_at: renewed_at,
            evidence: None,
            facts: self.candidate.facts.clone(),
        };
        self.sent = Some(Sent::Claim { row: row.clone(), at: now });
        Step::Write(LeaseWrite { condition, row })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::outcome::FaultCode;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(45);

    fn at(seconds: f64) -> Instant {
        Instant::from_nanos((seconds * 1e9) as u64)
    }

    fn standby(owner: &str) -> Standby {
        Standby::new(Candidate { key: "LEASE#s".into(), owner: owner.into(), ttl: TTL, facts: OwnerFacts::default() })
    }

    fn raw(row: &LeaseRow) -> RawLease {
        RawLease::from(row)
    }

    fn owned(by: &str) -> LeaseRow {
        let tuple = Tuple { owner: by.into(), version: 7, renewed_at: UnixMillis(1_000), expires_at: UnixMillis(46_000) };
        LeaseRow { tuple, acquired_at: UnixMillis(500), evidence: None, facts: OwnerFacts::default() }
    }

    /// A store with one row, and no owner that renews: polls of the given observers until one wins; when it did.
    fn takeover(observers: usize, poll_seconds: f64, replace_every: Option<usize>) -> f64 {
        let mut row = owned("dead#1");
        let mut standbys: Vec<Standby> = (0..observers).map(|nth| standby(&format!("w{nth}#a"))).collect();
        for round in 0..10_000_usize {
            for (nth, one) in standbys.iter_mut().enumerate() {
                let now = at(round as f64 * poll_seconds + nth as f64 * poll_seconds / observers as f64);
                if replace_every.is_some_and(|every| round % every == 0) {
                    *one = standby(&format!("w{nth}#{round}"));
                }
                assert_eq!(one.poll(), Step::Read);
                match one.read(now, UnixMillis(9), Ok(Some(raw(&row)))) {
                    Step::Wait => {}
                    Step::Write(write) => {
                        assert_eq!(write.condition, Condition::Exactly { tuple: row.tuple.clone(), evidence: row.evidence.clone() });
                        row = write.row;
                        if let Step::Won(held) = one.written(now, Outcome::Done(LeaseAnswer::Written)) {
                            assert_eq!(held.row.tuple.version, 8);
                            return now.since(at(0.0)).as_secs_f64();
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        panic!("nobody ever won");
    }

    #[test]
    fn however_many_observe_none_takes_over_before_the_time_is_up_nor_much_later() {
        for observers in [1, 2, 3, 9] {
            let when = takeover(observers, 5.0, None);
            assert!((45.0..=50.0).contains(&when), "{observers} observers took over after {when} s");
        }
    }

    #[test]
    fn observers_that_are_replaced_inherit_what_was_confirmed() {
        let when = takeover(2, 5.0, Some(4));
        assert!((45.0..=70.0).contains(&when), "took over after {when} s");
    }

    #[test]
    fn a_released_row_is_taken_at_once_and_the_version_goes_on() {
        let mut one = standby("b#1");
        let released = LeaseRow { tuple: Tuple { owner: String::new(), expires_at: UnixMillis(0), ..owned("a#1").tuple }, ..owned("a#1") };
        let Step::Write(write) = one.read(at(3.0), UnixMillis(10), Ok(Some(raw(&released)))) else { panic!("no write") };
        assert_eq!(write.row.tuple.version, 8);
        assert!(write.row.tuple.renewed_at > released.tuple.renewed_at, "renewed_at goes on even where this host's clock is behind");
        let Step::Won(held) = one.written(at(4.0), Outcome::Done(LeaseAnswer::Written)) else { panic!("not won") };
        assert_eq!(held.deadline, at(3.0).plus(TTL), "counts from before the write was sent");
    }

    #[test]
    fn a_patient_one_leaves_what_is_over_or_given_back_to_the_others_first() {
        let patient = || standby("control#1").patient(Duration::from_secs(6));
        let released = LeaseRow { tuple: Tuple { owner: String::new(), expires_at: UnixMillis(0), ..owned("a#1").tuple }, ..owned("a#1") };
        let mut one = patient();
        assert_eq!(one.read(at(3.0), UnixMillis(10), Ok(Some(raw(&released)))), Step::Wait);
        assert_eq!(one.read(at(8.9), UnixMillis(10), Ok(Some(raw(&released)))), Step::Wait);
        assert!(matches!(one.read(at(9.0), UnixMillis(10), Ok(Some(raw(&released)))), Step::Write(write) if write.row.tuple.version == 8));

        let mut one = patient();
        let mut row = owned("a#1");
        for second in (0..51).step_by(5) {
            match one.read(at(f64::from(second)), UnixMillis(10), Ok(Some(raw(&row)))) {
                Step::Write(write) => {
                    row = write.row;
                    assert_eq!(row.tuple, owned("a#1").tuple, "after {second} s it only says what it saw");
                    assert_eq!(one.written(at(f64::from(second)), Outcome::Done(LeaseAnswer::Written)), Step::Wait);
                }
                other => assert_eq!(other, Step::Wait),
            }
        }
        assert!(matches!(one.read(at(51.0), UnixMillis(10), Ok(Some(raw(&row)))), Step::Write(write) if write.row.tuple.version == 8));
        assert!(
            matches!(patient().read(at(0.0), UnixMillis(10), Ok(None)), Step::Write(_)),
            "where nobody ever was there is nobody to leave it to"
        );
    }

    #[test]
    fn housekeeping_is_preempted_at_once_and_on_its_exact_tuple() {
        let mut one = standby("b#1");
        let kept = owned(&format!("{}7", super::super::row::HOUSEKEEPING));
        let Step::Write(write) = one.read(at(3.0), UnixMillis(10), Ok(Some(raw(&kept)))) else { panic!("no write") };
        assert_eq!(write.row.tuple.version, 8);
        assert_eq!(write.condition, Condition::Exactly { tuple: kept.tuple, evidence: None });
        assert!(
            matches!(standby("b#1").read(at(3.0), UnixMillis(10), Ok(Some(raw(&owned("housekeeping#7"))))), Step::Wait),
            "an instance of that name is none"
        );
    }

    #[test]
    fn a_claim_whose_answer_was_lost_is_recognised() {
        let mut one = standby("b#1");
        let Step::Write(write) = one.read(at(0.0), UnixMillis(10), Ok(None)) else { panic!("no write") };
        let lost = Outcome::Unknown(Fault::new(FaultCode::Timeout, "no answer"));
        assert!(matches!(one.written(at(1.0), lost), Step::Failed(_)));
        let Step::Won(held) = one.read(at(5.0), UnixMillis(10), Ok(Some(raw(&write.row)))) else { panic!("not won") };
        assert_eq!(held.deadline, at(0.0).plus(TTL));
    }

    #[test]
    fn of_two_claims_without_answer_the_one_that_stands_in_the_row_counts_from_before_it_was_sent() {
        // This host's clock is behind that of the former owner: without care both claims would be the same row.
        let mut one = standby("b#1");
        let lost = || Outcome::Unknown(Fault::new(FaultCode::Timeout, "no answer"));
        let old = LeaseRow { tuple: Tuple { owner: String::new(), expires_at: UnixMillis(0), ..owned("a#1").tuple }, ..owned("a#1") };
        let Step::Write(first) = one.read(at(0.0), UnixMillis(10), Ok(Some(raw(&old)))) else { panic!("no claim") };
        assert!(matches!(one.written(at(3.0), lost()), Step::Failed(_)));
        let Step::Write(second) = one.read(at(5.0), UnixMillis(10), Ok(Some(raw(&old)))) else { panic!("no second claim") };
        assert_ne!(first.row.tuple, second.row.tuple);
        assert!(matches!(one.written(at(8.0), lost()), Step::Failed(_)));
        for (row, deadline) in [(&first.row, at(45.0)), (&second.row, at(50.0))] {
            let Step::Won(held) = one.clone().read(at(9.0), UnixMillis(10), Ok(Some(raw(row)))) else { panic!("not won") };
            assert_eq!(held.deadline, deadline);
        }
        // Found only after its time is over, it is worth nothing: the next version is claimed.
        let Step::Write(third) = one.read(at(51.0), UnixMillis(10), Ok(Some(raw(&second.row)))) else { panic!("no claim") };
        assert_eq!(third.row.tuple.version, second.row.tuple.version + 1);
    }

    #[test]
    fn a_deadline_is_never_later_than_the_row_says() {
        let mut one = Standby::new(Candidate { ttl: Duration::from_micros(5_000_900), ..standby("b#1").candidate });
        let Step::Write(write) = one.read(at(0.0), UnixMillis(10), Ok(None)) else { panic!("no write") };
        let Step::Won(held) = one.written(at(1.0), Outcome::Done(LeaseAnswer::Written)) else { panic!("not won") };
        assert_eq!((held.deadline, write.row.tuple.ttl()), (at(5.0), Duration::from_secs(5)));
    }

    fn running_as(task: Option<&str>) -> LeaseRow {
        LeaseRow { facts: OwnerFacts { task_arn: task.map(str::to_owned), ..OwnerFacts::default() }, ..owned("a#1") }
    }

    const TASK: &str = "arn:aws:ecs:eu-west-1:111122223333:task/plant/0123abc";

    fn stopped(task: &str) -> Testimony {
        let cluster = super::super::testimony::cluster_of(task).unwrap();
        Testimony { task: task.to_owned(), cluster, launch_type: Some("FARGATE".to_owned()), last_status: "STOPPED".to_owned() }
    }

    #[test]
    fn the_end_of_the_owners_task_is_as_good_as_the_leases_time() {
        let mut one = standby("b#1");
        let row = running_as(Some(TASK));
        assert_eq!(one.read(at(3.0), UnixMillis(10), Ok(Some(raw(&row)))), Step::Wait);
        assert_eq!(one.overdue_at(at(4.0), Duration::from_secs(13)), Some(at(16.0)));
        assert_eq!(one.suspect().as_deref(), Some(TASK));
        let Step::Write(write) = one.told(at(5.0), UnixMillis(10), Some(&stopped(TASK))) else { panic!("no claim") };
        assert_eq!(write.condition, Condition::Exactly { tuple: row.tuple.clone(), evidence: None });
        assert_eq!(write.row.tuple.version, row.tuple.version + 1);
        let Step::Won(held) = one.written(at(6.0), Outcome::Done(LeaseAnswer::Written)) else { panic!("not won") };
        assert_eq!(held.deadline, at(5.0).plus(TTL));
    }

    #[test]
    fn an_answer_counts_for_the_row_that_was_read_before_the_question_and_only_once() {
        let (mut one, row) = (standby("b#1"), running_as(Some(TASK)));
        one.read(at(3.0), UnixMillis(10), Ok(Some(raw(&row))));
        assert_eq!(one.told(at(4.0), UnixMillis(10), Some(&stopped(TASK))), Step::Wait, "nobody asked");
        one.suspect();
        let other = "arn:aws:ecs:eu-west-1:111122223333:task/plant/0456def";
        assert_eq!(one.told(at(4.0), UnixMillis(10), Some(&stopped(other))), Step::Wait);
        assert_eq!(one.told(at(4.0), UnixMillis(10), Some(&stopped(TASK))), Step::Wait, "that question was answered");
        one.suspect();
        assert_eq!(one.told(at(4.0), UnixMillis(10), None), Step::Wait);
        one.suspect();
        one.read(at(5.0), UnixMillis(10), Ok(Some(raw(&row))));
        assert_eq!(one.told(at(6.0), UnixMillis(10), Some(&stopped(TASK))), Step::Wait, "the row was read again since");
    }

    #[test]
    fn nobody_is_asked_about_who_does_not_name_its_task() {
        let mut one = standby("b#1");
        one.read(at(3.0), UnixMillis(10), Ok(Some(raw(&running_as(None)))));
        assert_eq!((one.overdue_at(at(99.0), Duration::ZERO), one.suspect()), (None, None));
        let released =
            LeaseRow { tuple: Tuple { owner: String::new(), expires_at: UnixMillis(0), ..owned("a#1").tuple }, ..running_as(Some(TASK)) };
        assert!(matches!(one.read(at(4.0), UnixMillis(10), Ok(Some(raw(&released)))), Step::Write(_)));
        assert_eq!((one.overdue_at(at(99.0), Duration::ZERO), one.suspect()), (None, None));
    }

    #[test]
    fn what_other_observers_confirmed_makes_an_owner_overdue_too() {
        let mut one = standby("b#1");
        let mut row = running_as(Some(TASK));
        row.evidence = Some(Evidence { fingerprint: row.tuple.fingerprint("LEASE#s"), elapsed_ns: 12_000_000_000, generation: 1 });
        one.read(at(3.0), UnixMillis(10), Ok(Some(raw(&row))));
        assert_eq!(one.overdue_at(at(3.0), Duration::from_secs(13)), Some(at(4.0)));
        assert_eq!(one.overdue_at(at(9.0), Duration::from_secs(13)), Some(at(9.0)));
    }

    #[test]
    fn the_look_that_may_claim_comes_a_lease_time_after_the_last_sign_of_the_owner() {
        let mut one = standby("b#1");
        assert_eq!(one.claimable_at(at(1.0)), None, "nobody is watched");
        let row = owned("a#1");
        one.read(at(3.0), UnixMillis(10), Ok(Some(raw(&row))));
        assert_eq!(one.claimable_at(at(3.0)), Some(at(3.0).plus(TTL)));
        assert_eq!(one.claimable_at(at(5.0)), Some(at(3.0).plus(TTL)), "it does not move while nothing is heard");
        let claim = one.claimable_at(at(5.0)).unwrap();
        assert!(matches!(one.read(claim, UnixMillis(10), Ok(Some(raw(&row)))), Step::Write(write) if write.row.tuple.owner == "b#1"));
        let mut renewed = standby("b#1");
        renewed.read(at(3.0), UnixMillis(10), Ok(Some(raw(&row))));
        let mut later = row;
        later.tuple.renewed_at.0 += 1;
        later.tuple.expires_at.0 += 1;
        renewed.read(at(9.0), UnixMillis(10), Ok(Some(raw(&later))));
        assert_eq!(renewed.claimable_at(at(9.0)), Some(at(9.0).plus(TTL)), "it was heard of");
    }

    #[test]
    fn a_healthy_owner_is_never_written_to() {
        let mut one = standby("b#1");
        let mut row = owned("a#1");
        for poll in 0..200_u32 {
            if poll % 2 == 0 {
                row.tuple.renewed_at.0 += 10_000;
                row.tuple.expires_at.0 += 10_000;
            }
            assert_eq!(one.read(at(f64::from(poll) * 5.0), UnixMillis(9), Ok(Some(raw(&row)))), Step::Wait);
        }
    }

    proptest! {
        /// Against an oracle that knows when the row truly changed last: a live row is claimed only once it stood still for its whole time, whatever
        /// others observed, and at the first look from then on if this observer saw all of it.
        #[test]
        fn agrees_with_one_who_knows_when_the_row_changed(steps in proptest::collection::vec((0u64..12_000, 0u8..8, 0.0f64..=1.0, any::<bool>()), 1..120)) {
            let ms = |millis: u64| Instant::from_nanos(millis * 1_000_000);
            let mut one = standby("b#1");
            let mut row = owned("a#1");
            let (mut now, mut changed, mut first_seen) = (1_000_u64, 1_000_u64, None);
            for (pause, what, share, read_is_slow) in steps {
                now += pause;
                match what {
                    0 => {
                        row.tuple.renewed_at.0 += 1 + pause;
                        row.tuple.expires_at.0 += 1 + pause;
                        row.evidence = None;
                        (changed, first_seen) = (now, None);
                    }
                    // Another observer tells what is true, or less.
                    1 => {
                        let elapsed_ns = ((now - changed) as f64 * share) as u64 * 1_000_000;
                        let generation = row.evidence.as_ref().map_or(0, |evidence| evidence.generation) + 1;
                        row.evidence = Some(Evidence { fingerprint: row.tuple.fingerprint("LEASE#s"), elapsed_ns, generation });
                    }
                    _ => {
                        let seen = row.clone();
                        now += if read_is_slow { 2_500 } else { 20 };
                        let step = one.read(ms(now), UnixMillis(9), Ok(Some(raw(&seen))));
                        let since = *first_seen.get_or_insert(now);
                        let claims = matches!(&step, Step::Write(write) if write.row.tuple.owner == "b#1");
                        prop_assert!(!claims || now - changed >= 45_000, "claimed after {} ms", now - changed);
                        prop_assert!(claims || now - since < 45_000, "waits although it saw {} ms", now - since);
                        if let Step::Write(write) = step {
                            prop_assert_eq!(&write.condition, &Condition::Exactly { tuple: row.tuple.clone(), evidence: row.evidence.clone() });
                            // A claim is refused here, so that the observer goes on; an observation is written, or its answer is lost.
                            let outcome = match (claims, share > 0.7) {
                                (true, _) => Outcome::Done(LeaseAnswer::Refused(None)),
                                (false, lost) => {
                                    let told = write.row.evidence.as_ref().unwrap().elapsed_ns;
                                    prop_assert!(told <= (now - changed) * 1_000_000);
                                    row = write.row;
                                    if lost { Outcome::Unknown(Fault::new(FaultCode::Timeout, "no answer")) } else { Outcome::Done(LeaseAnswer::Written) }
                                }
                            };
                            one.written(ms(now), outcome);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_corrupt_row_stops_everybody() {
        let mut one = standby("b#1");
        let corrupt = RawLease { expires_at: None, ..raw(&owned("a#1")) };
        for poll in 0..40_u32 {
            assert!(matches!(one.read(at(f64::from(poll) * 5.0), UnixMillis(9), Ok(Some(corrupt.clone()))), Step::Corrupt(_)));
        }
    }
}
