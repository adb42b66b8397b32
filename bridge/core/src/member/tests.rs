#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
use super::*;
use crate::dead_letter::Destination;
use crate::drain::BatchLimits;
use crate::drain::retry::Backoff;
use crate::hold::Order;
use crate::identity::{ConnectionEpoch, DeliveryId, Epoch, Id128, LaneId, Slot};
use crate::lease::holder::{Upkeep, Why};
use crate::lease::row::{LeaseRow, RawLease, Tuple};
use crate::lease::standby::Candidate;
use crate::lease::testimony::{Questions, Testimony, cluster_of};
use crate::lease::{Condition, LeaseAnswer};
use crate::log::writer::SegmentOptions;
use crate::log::{Answer, Call as LogCall, Put};
use crate::message::Message;
use crate::outcome::{FaultCode, Outcome};
use crate::rows::RowMeta;
use crate::worker;
use crate::worker::options::{Delivery, Fate, LegOptions, OwnerOptions, Policy, to_first_legs};
use std::sync::Arc;

const TTL: Duration = Duration::from_secs(10);
const HOLD_OFF: Duration = Duration::from_secs(3);
const OPENING_TIMEOUT: Duration = Duration::from_secs(25);
const BROKER_HOLD_OFF: Duration = Duration::from_secs(20);

fn at(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

fn options() -> (MemberOptions, OwnerOptions) {
    let policy = Policy {
        max_in_flight: 10,
        max_replay_attempts: 0,
        replay_budget: Duration::ZERO,
        on_expired: Fate::DeadLetter,
        on_permanent_failure: Fate::DeadLetter,
        backoff: Backoff::default(),
        send_timeout: Duration::from_secs(5),
    };
    let route = LegOptions {
        route: "r".into(),
        receiver: "in".into(),
        destination: Destination { binding: "b".to_owned(), ..Destination::default() },
        delivery: Delivery::Logged,
        depth: None,
        breaker: None,
        send_limits: Vec::new(),
        sender: Default::default(),
        pacing: None,
        policy,
        limits: BatchLimits { entries: 10, bytes: 262_144, entry_bytes: 200_000 },
        size_of: Arc::new(|_| 100),
        key_of: Arc::new(|_| None),
    };
    let owner = OwnerOptions {
        owner: "me#1".to_owned(),
        dispatch: to_first_legs(core::slice::from_ref(&route)),
        legs: vec![route],
        epoch: None,
        acknowledge: Order::OfArrival,
        limits: Vec::new(),
        ack_hold: None,
        quota: None,
        store: None,
        lanes: 1,
        mailbox_poll: None,
        retire_when_drained: false,
        segment: SegmentOptions::default(),
        send_linger: Duration::from_millis(10),
        max_settled_ahead: 100,
        keep_settled: core::time::Duration::ZERO,
        memory_entries: 100,
        memory_bytes: 1 << 20,
        entry_id_base: 1,
        row_id_base: 1,
        jitter_seed: 7,
    };
    let upkeep = Upkeep {
        ttl: TTL,
        renew_interval: Duration::from_secs(1),
        jitter: Duration::ZERO,
        max_fails: 3,
        guard: Duration::from_millis(100),
    };
    let member = MemberOptions {
        candidate: Candidate { key: "LEASE#s".to_owned(), owner: "me#1".to_owned(), ttl: TTL, facts: OwnerFacts::default() },
        upkeep,
        poll_interval: Duration::from_secs(1),
        questions: None,
        looks_late: false,
        step_down_grace: Duration::from_secs(30),
        hold_off: HOLD_OFF,
        broker_hold_off: BROKER_HOLD_OFF,
        broker_health_step_down: Some(Duration::from_secs(2)),
        opening_timeout: OPENING_TIMEOUT,
    };
    (member, owner)
}

/// A member and everything that it asked for and was not answered.
struct Rig {
    member: Member,
    now: Instant,
    writes: Vec<LeaseWrite>,
    reads: usize,
    /// Tasks that the orchestrator was asked about.
    asked: Vec<String>,
    calls: Vec<LogCall>,
    closed: bool,
    finished: Option<Result<(), Fault>>,
}

impl Rig {
    fn new() -> Self {
        let now = at(1.0);
        let (options, owner) = options();
        Self::of(options, owner, now)
    }

    fn of(options: MemberOptions, owner: OwnerOptions, now: Instant) -> Self {
        let member = Member::new(options, owner, now);
        let mut rig =
            Self { member, now, writes: Vec::new(), reads: 0, asked: Vec::new(), calls: Vec::new(), closed: false, finished: None };
        rig.event(Event::Tick);
        rig
    }

    /// A member that has just won a lease that did not exist; its owner reads the log's tail.
    fn owner() -> Self {
        let mut rig = Self::new();
        rig.lease_read(Ok(None));
        rig.lease_written(Outcome::Done(LeaseAnswer::Written));
        assert!(matches!(rig.member.part(), Part::Owner { version: 1, .. }));
        assert!(matches!(rig.calls.as_slice(), [LogCall::ReadRecord]));
        rig.answer(Answer::Record(Ok(None)));
        assert!(matches!(rig.calls.as_slice(), [LogCall::ReadTail]));
        rig
    }

    fn event(&mut self, event: Event) {
        for effect in self.member.apply(self.now, UnixMillis(5_000), event) {
            match effect {
                Effect::ReadLease => self.reads += 1,
                Effect::WriteLease(write) => self.writes.push(write),
                Effect::AskAboutTask(task) => self.asked.push(task),
                Effect::Owner { effect: worker::Effect::Log { call, .. }, .. } => self.calls.push(call),
                Effect::Owner { effect: worker::Effect::CloseSource, .. } => self.closed = true,
                Effect::Owner { .. } | Effect::Became(_) => {}
                Effect::Finished(result) => self.finished = Some(result),
            }
        }
    }

    fn pass(&mut self, seconds: f64) {
        self.now = self.now.plus(Duration::from_secs_f64(seconds));
        self.event(Event::Tick);
    }

    /// Wakes whenever the member wants to, and answers its renewals, until `end` or until it is no owner any more.
    fn keep_the_lease_until(&mut self, end: Instant) {
        while self.now < end && matches!(self.member.part(), Part::Owner { .. }) {
            self.now = self.member.wake_at(self.now).unwrap().min(end);
            self.event(Event::Tick);
            if matches!(self.member.part(), Part::Owner { .. }) && !self.writes.is_empty() {
                self.lease_written(Outcome::Done(LeaseAnswer::Written));
            }
        }
    }

    fn lease_read(&mut self, answer: Result<Option<RawLease>, Fault>) {
        assert_eq!(core::mem::take(&mut self.reads), 1, "it asked for the row");
        self.event(Event::LeaseRead(answer));
    }

    /// Answers the one write that is under way; returns it.
    fn lease_written(&mut self, outcome: Outcome<LeaseAnswer>) -> LeaseWrite {
        assert_eq!(self.writes.len(), 1, "one write is under way");
        let write = self.writes.remove(0);
        self.event(Event::LeaseWritten(outcome));
        write
    }

    fn owner_event(&mut self, event: worker::Event) {
        let term = self.member.owner().unwrap().0;
        self.event(Event::Owner { term, event });
    }

    fn answer(&mut self, answer: Answer) {
        self.calls.clear();
        self.owner_event(worker::Event::Log { lane: LaneId(0), answer });
    }

    /// Answers what opening the log asks.
    fn open(&mut self) {
        self.answer(Answer::Tail(Ok(None)));
        self.answer(Answer::Registered(Outcome::Done(true)));
        let [LogCall::Put { slot, row }] = self.calls.as_slice() else { panic!("{:?}", self.calls) };
        let anchor = row.meta(*slot);
        self.answer(Answer::Put(Outcome::Done(Put::Stored)));
        self.answer(Answer::Tail(Ok(Some(anchor))));
        self.answer(Answer::Head(Ok(None)));
    }

    /// Something that an owner which stops has to wait for.
    fn deliver(&mut self) {
        let delivery = DeliveryId { connection: ConnectionEpoch(1), ordinal: 1 };
        self.owner_event(worker::Event::Delivered { delivery, receiver: "in".into(), message: Message::default() });
    }

    fn shut_down(&mut self) {
        let drain_until = self.now.plus(Duration::from_secs(30));
        self.event(Event::Shutdown { drain_until });
    }
}

fn tail_of_epoch(epoch: u64) -> RowMeta {
    RowMeta { slot: Slot(4), epoch: Epoch(epoch), id: Id128(99), drained: Slot(0) }
}

fn late() -> Fault {
    Fault::new(FaultCode::Timeout, "no answer")
}

#[test]
fn a_log_that_is_ahead_raises_the_lease_although_a_renewal_is_under_way() {
    let mut rig = Rig::owner();
    rig.pass(1.1);
    assert_eq!(rig.writes.len(), 1, "it renews");
    rig.answer(Answer::Tail(Ok(Some(tail_of_epoch(9)))));
    let renewal = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    assert_eq!(renewal.row.tuple.version, 1);
    let raise = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    assert_eq!((raise.condition, raise.row.tuple.version), (Condition::Held { owner: "me#1".into(), version: 1 }, 10));
    assert!(matches!(rig.member.part(), Part::Owner { version: 10, .. }));
}

#[test]
fn a_lease_that_could_not_be_raised_is_given_back() {
    let mut rig = Rig::owner();
    rig.answer(Answer::Tail(Ok(Some(tail_of_epoch(9)))));
    rig.lease_written(Outcome::NotDone(late()));
    let release = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    assert!(release.row.tuple.is_released());
    assert_eq!(*rig.member.part(), Part::HoldingOff(HOLD_OFF));
}

#[test]
fn told_to_stop_while_its_log_is_ahead_it_gives_the_lease_back_and_ends() {
    for raise_is_under_way in [false, true] {
        let mut rig = Rig::owner();
        if !raise_is_under_way {
            rig.pass(1.1);
        }
        rig.answer(Answer::Tail(Ok(Some(tail_of_epoch(9)))));
        rig.shut_down();
        let under_way = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
        let release = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
        assert!(release.row.tuple.is_released());
        assert_eq!(release.condition, Condition::Held { owner: "me#1".into(), version: under_way.row.tuple.version });
        assert_eq!(rig.finished, Some(Ok(())));
    }
}

#[test]
fn told_to_stop_before_its_log_is_open_it_gives_the_lease_back_at_once() {
    let mut rig = Rig::owner();
    rig.shut_down();
    assert!(rig.lease_written(Outcome::Done(LeaseAnswer::Written)).row.tuple.is_released());
    assert_eq!(rig.finished, Some(Ok(())));
}

#[test]
fn a_log_that_does_not_open_in_time_is_left_to_others_for_the_hold_off() {
    let mut rig = Rig::owner();
    let due = rig.now.plus(OPENING_TIMEOUT);
    rig.keep_the_lease_until(due);
    assert_eq!(rig.now, due, "it wakes for it, and acts as an owner before");
    assert_eq!(rig.member.part(), &Part::SteppingDown(Reason::OpeningTimeout));
    assert!(rig.closed);
    rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    assert_eq!(rig.member.part(), &Part::HoldingOff(HOLD_OFF));
}

#[test]
fn a_log_that_opened_in_time_is_not_given_up_later() {
    let mut rig = Rig::owner();
    rig.open();
    rig.keep_the_lease_until(rig.now.plus(OPENING_TIMEOUT * 2));
    assert!(matches!(rig.member.part(), Part::Owner { .. }));
}

#[test]
fn fenced_while_it_stops_it_ends_and_does_not_compete_again() {
    let mut rig = Rig::owner();
    rig.open();
    rig.deliver();
    rig.shut_down();
    rig.answer(Answer::Put(Outcome::Done(Put::Occupied(tail_of_epoch(9)))));
    assert!(rig.closed);
    rig.lease_written(Outcome::Done(LeaseAnswer::Refused(None)));
    assert_eq!(rig.finished, Some(Ok(())));
}

#[test]
fn having_stepped_down_for_its_broker_it_is_not_woken_for_it_again() {
    let mut rig = Rig::owner();
    rig.event(Event::Converged);
    rig.event(Event::BrokerLost);
    rig.open();
    rig.deliver();
    rig.pass(2.0);
    assert_eq!(*rig.member.part(), Part::SteppingDown(Reason::BrokerPath));
    assert!(rig.member.wake_at(rig.now).unwrap() > rig.now);
}

#[test]
fn asked_to_step_down_it_gives_the_lease_back_and_stays_out_until_another_could_win() {
    let mut rig = Rig::owner();
    assert!(rig.member.acts_until().unwrap() > rig.now);
    rig.event(Event::StepDown);
    assert_eq!(*rig.member.part(), Part::SteppingDown(Reason::Asked));
    let release = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    assert!(release.row.tuple.is_released());
    assert_eq!(release.row.facts.left_because.as_deref(), Some("release"));
    assert_eq!((rig.member.part(), rig.member.acts_until()), (&Part::HoldingOff(BROKER_HOLD_OFF), None));
    assert_eq!(rig.finished, None);
}

#[test]
fn asked_to_step_down_it_settles_what_is_in_flight_first() {
    let mut rig = Rig::owner();
    rig.open();
    rig.deliver();
    rig.event(Event::StepDown);
    assert!(!rig.closed && rig.writes.is_empty(), "what came has to be durable before the source is told to go");
    assert_eq!(*rig.member.part(), Part::SteppingDown(Reason::Asked));
    rig.event(Event::StepDown);
    rig.answer(Answer::Put(Outcome::Done(Put::Stored)));
    assert!(rig.closed && rig.writes.is_empty(), "what is stored is sent before the lease is given back");
}

#[test]
fn a_standby_has_nothing_to_step_down_from() {
    let mut rig = Rig::new();
    rig.event(Event::StepDown);
    assert_eq!((rig.member.part(), rig.reads, rig.writes.len()), (&Part::Standby, 1, 0));
}

#[test]
fn a_step_down_for_the_broker_that_outlives_the_lease_stays_out_as_long_as_planned() {
    let mut rig = Rig::owner();
    rig.event(Event::Converged);
    rig.event(Event::BrokerLost);
    rig.open();
    rig.deliver();
    rig.pass(2.0);
    rig.pass(10.0);
    // The renewal that was under way; then the lease is given back.
    rig.lease_written(Outcome::Unknown(late()));
    rig.lease_written(Outcome::Unknown(late()));
    assert_eq!(*rig.member.part(), Part::HoldingOff(BROKER_HOLD_OFF));
}

#[test]
fn told_to_stop_while_it_claims_it_gives_back_what_it_won() {
    let mut rig = Rig::new();
    rig.lease_read(Ok(None));
    rig.shut_down();
    assert_eq!(rig.finished, None, "the claim may still win");
    let claim = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    let release = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    assert_eq!(release.condition, Condition::Held { owner: "me#1".into(), version: claim.row.tuple.version });
    assert!(release.row.tuple.is_released());
    assert_eq!(rig.finished, Some(Ok(())));
    assert!(!rig.member.may_act(rig.now));
}

#[test]
fn told_to_stop_while_it_looks_it_claims_nothing() {
    let mut rig = Rig::new();
    rig.shut_down();
    rig.lease_read(Ok(None));
    assert!(rig.writes.is_empty());
    assert_eq!(rig.finished, Some(Ok(())));
}

#[test]
fn what_a_former_term_waited_for_is_not_listened_to() {
    let mut rig = Rig::owner();
    let first = rig.member.owner().unwrap().0;
    rig.answer(Answer::Tail(Ok(Some(tail_of_epoch(9)))));
    rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    let calls = rig.calls.len();
    rig.event(Event::Owner { term: first, event: worker::Event::Log { lane: LaneId(0), answer: Answer::Tail(Ok(None)) } });
    assert_eq!(rig.calls.len(), calls);
}

#[test]
fn past_its_deadline_it_acts_no_more_whatever_is_under_way() {
    let mut rig = Rig::owner();
    rig.pass(1.1);
    assert!(rig.member.may_act(rig.now));
    rig.pass(8.85);
    assert!(!rig.member.may_act(rig.now), "the guard");
    assert!(!rig.member.wants_input(rig.now));
    rig.pass(0.1);
    assert!(rig.closed);
    assert!(matches!(rig.member.part(), Part::SteppingDown(Reason::Lease(Why::Expired))));
    let renewal: LeaseRow = rig.lease_written(Outcome::Done(LeaseAnswer::Written)).row;
    let release = rig.lease_written(Outcome::Done(LeaseAnswer::Written)).row;
    assert!(release.tuple.renewed_at > renewal.tuple.renewed_at);
}

const TASK: &str = "arn:aws:ecs:eu-west-1:111122223333:task/plant/0123abc";

fn testimony(last_status: &str) -> Option<Testimony> {
    let cluster = cluster_of(TASK).unwrap();
    Some(Testimony { task: TASK.to_owned(), cluster, launch_type: Some("FARGATE".to_owned()), last_status: last_status.to_owned() })
}

/// A member that asks the orchestrator once an owner is overdue for two seconds, and every second at most.
fn asks(looks_late: bool) -> Rig {
    let (options, owner) = options();
    let questions = Some(Questions { overdue_after: Duration::from_secs(2), poll: Duration::from_secs(1) });
    let mut rig = Rig::of(MemberOptions { questions, looks_late, ..options }, owner, at(1.0));
    rig.pass(if looks_late { 1.0 } else { 0.0 });
    rig
}

fn runs_as(renewed_at: u64) -> RawLease {
    RawLease { facts: OwnerFacts { task_arn: Some(TASK.to_owned()), ..OwnerFacts::default() }, ..others("a#1", renewed_at) }
}

impl Rig {
    /// Goes on to when it wants to be woken, and answers its looks at the row and what it writes of them, for so many seconds.
    fn watch(&mut self, row: &RawLease, seconds: f64) {
        let end = self.now.plus(Duration::from_secs_f64(seconds));
        let mut row = row.clone();
        while let Some(wake) = self.member.wake_at(self.now).filter(|wake| *wake <= end) {
            self.now = wake.max(self.now);
            self.event(Event::Tick);
            if core::mem::take(&mut self.reads) > 0 {
                let writes = self.writes.len();
                self.event(Event::LeaseRead(Ok(Some(row.clone()))));
                if let Some(write) = self.writes.get(writes).filter(|write| write.row.evidence.is_some()) {
                    row = RawLease::from(&write.row);
                    self.event(Event::LeaseWritten(Outcome::Done(LeaseAnswer::Written)));
                }
            }
        }
        self.now = end;
    }
}

#[test]
fn an_owner_that_is_overdue_is_asked_about_and_replaced_once_its_task_has_stopped() {
    let mut rig = asks(false);
    rig.lease_read(Ok(Some(runs_as(100))));
    rig.watch(&runs_as(100), 1.9);
    assert!(rig.asked.is_empty(), "not overdue yet");
    rig.watch(&runs_as(100), 0.1);
    assert_eq!(rig.asked, [TASK], "at the very moment that it is overdue");
    rig.event(Event::TaskTold(testimony("RUNNING")));
    rig.watch(&runs_as(100), 0.9);
    assert_eq!(rig.asked.len(), 1, "not more often than every second");
    rig.watch(&runs_as(100), 0.1);
    assert_eq!(rig.asked.len(), 2);
    assert!(rig.writes.iter().all(|write| write.row.evidence.is_some()), "nothing was claimed");
    rig.event(Event::TaskTold(testimony("STOPPED")));
    let claim = rig.writes.pop().unwrap();
    assert_eq!((claim.row.tuple.owner.as_str(), claim.row.tuple.version), ("me#1", 5));
    assert!(matches!(claim.condition, Condition::Exactly { .. }));
    rig.event(Event::LeaseWritten(Outcome::Done(LeaseAnswer::Written)));
    assert!(matches!(rig.member.part(), Part::Owner { version: 5, .. }));
    assert_eq!(rig.member.handover().unwrap().from.as_deref(), Some("a#1"));
}

#[test]
fn nobody_is_asked_about_an_owner_that_renews_and_an_answer_that_tells_nothing_changes_nothing() {
    let mut rig = asks(false);
    rig.lease_read(Ok(Some(runs_as(100))));
    for renewal in 1..20 {
        rig.watch(&runs_as(100 + renewal), 1.0);
    }
    assert!(rig.asked.is_empty());
    rig.watch(&runs_as(119), 2.1);
    assert_eq!(rig.asked.len(), 1);
    rig.event(Event::TaskTold(None));
    rig.event(Event::TaskTold(testimony("STOPPED")));
    assert!(rig.writes.iter().all(|write| write.row.evidence.is_some()), "an answer that nobody waits for counts for nothing");
    assert_eq!(rig.member.part(), &Part::Standby);
}

#[test]
fn a_hint_is_a_reason_to_ask_but_not_too_often() {
    let mut rig = asks(false);
    rig.lease_read(Ok(Some(runs_as(100))));
    rig.event(Event::Hint);
    rig.lease_read(Ok(Some(runs_as(100))));
    assert_eq!(rig.asked.len(), 1, "long before it is overdue");
    rig.event(Event::TaskTold(testimony("RUNNING")));
    for _ in 0..5 {
        rig.event(Event::Hint);
        if core::mem::take(&mut rig.reads) > 0 {
            rig.event(Event::LeaseRead(Ok(Some(runs_as(100)))));
        }
    }
    assert_eq!(rig.asked.len(), 1, "whoever sends hints cannot make it ask more often");
    rig.watch(&runs_as(100), 1.0);
    assert_eq!(rig.asked.len(), 2, "the hint is not forgotten");
}

#[test]
fn who_looks_late_asks_late_and_who_stops_claims_nothing() {
    let mut rig = asks(true);
    rig.lease_read(Ok(Some(runs_as(100))));
    rig.watch(&runs_as(100), 2.5);
    assert!(rig.asked.is_empty(), "the others ask first");
    rig.watch(&runs_as(100), 0.5);
    assert_eq!(rig.asked.len(), 1);
    rig.event(Event::Shutdown { drain_until: rig.now.plus(Duration::from_secs(1)) });
    assert_eq!(rig.finished, None, "an answer is awaited");
    rig.event(Event::TaskTold(testimony("STOPPED")));
    assert!(rig.writes.iter().all(|write| write.row.evidence.is_some()));
    assert_eq!(rig.finished, Some(Ok(())));
}

fn others(owner: &str, renewed_at: u64) -> RawLease {
    let expires_at = if owner.is_empty() { 0 } else { renewed_at + 10_000 };
    let tuple = Tuple { owner: owner.into(), version: 4, renewed_at: UnixMillis(renewed_at), expires_at: UnixMillis(expires_at) };
    RawLease::from(&LeaseRow { tuple, acquired_at: UnixMillis(1), evidence: None, facts: OwnerFacts::default() })
}

#[test]
fn a_stop_tells_the_successor_that_it_was_a_release_and_since_when() {
    let mut rig = Rig::owner();
    let until = rig.now.plus(Duration::from_secs(5));
    rig.event(Event::Shutdown { drain_until: until });
    rig.pass(6.0);
    let write = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    assert!(write.row.tuple.is_released());
    assert_eq!((write.row.facts.left_because.as_deref(), write.row.facts.left_since), (Some("release"), Some(UnixMillis(5_000))));
}

#[test]
fn a_lost_broker_tells_the_successor_so() {
    let mut rig = Rig::owner();
    rig.event(Event::Converged);
    rig.event(Event::BrokerLost);
    rig.pass(0.5);
    assert_eq!(rig.member.lease_counters().broker_step_downs, 0);
    rig.pass(2.0);
    rig.writes.clear();
    rig.pass(40.0);
    assert_eq!(rig.member.lease_counters().broker_step_downs, 1);
}

#[test]
fn who_takes_over_knows_from_whom_and_a_new_lease_from_nobody() {
    let rig = Rig::owner();
    assert_eq!((rig.member.handover(), rig.member.lease_counters()), (None, LeaseCounters::default()));

    let mut rig = Rig::new();
    rig.lease_read(Ok(Some(others("a#1", 100))));
    rig.pass(2.0);
    rig.lease_read(Ok(Some(others("", 200))));
    rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    let handover = rig.member.handover().unwrap();
    assert_eq!((handover.cause.as_str(), handover.start.as_str()), ("release", "warm"));
    assert_eq!(handover.until(rig.now.plus(Duration::from_secs(3)), UnixMillis(0)), Duration::from_secs(3));
    assert_eq!(rig.member.lease_counters().transfers, 1);
}

#[test]
fn ones_own_lease_taken_again_is_no_transfer() {
    let mut rig = Rig::owner();
    rig.pass(1.5);
    let unanswered = || Outcome::Unknown(Fault::new(FaultCode::Timeout, "no answer"));
    rig.lease_written(unanswered());
    assert_eq!(rig.member.lease_counters().renew_failures, 1);
    rig.pass(20.0);
    let write = rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    assert_eq!(write.row.facts.left_because.as_deref(), Some("crash"), "it lost its way to the store");
    rig.pass(4.0);
    rig.lease_read(Ok(Some(RawLease::from(&write.row))));
    rig.lease_written(Outcome::Done(LeaseAnswer::Written));
    let counters = rig.member.lease_counters();
    assert_eq!((counters.transfers, counters.expiries), (0, 1));
    assert!(rig.member.handover().is_some(), "the session was without service all the same");
}

#[test]
fn a_hint_makes_a_member_that_waits_look_at_once_and_does_nothing_else() {
    let mut rig = Rig::new();
    rig.lease_read(Ok(Some(others("a#1", 100))));
    assert_eq!(rig.reads, 0);
    rig.event(Event::Hint);
    assert_eq!(rig.reads, 1, "long before its next poll");
    rig.event(Event::Hint);
    assert_eq!(rig.reads, 1, "one look at a time");
    rig.lease_read(Ok(Some(others("a#1", 200))));
    assert!(rig.writes.is_empty(), "the row decides");

    let mut owner = Rig::owner();
    owner.event(Event::Hint);
    assert_eq!((owner.reads, owner.writes.len()), (0, 0));
}
