//! Members of one bridge over one lease row, against one who sees everything: events in any order, requests and answers that are late or lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_core::lease::holder::Upkeep;
use causeway_core::lease::row::{LeaseRow, OwnerFacts, RawLease};
use causeway_core::lease::standby::Candidate;
use causeway_core::lease::testimony::{Questions, Testimony, cluster_of};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::log::writer::SegmentOptions;
use causeway_core::member::{Effect, Event, Member, MemberOptions, Part, Term};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker;
use causeway_core::worker::options::OwnerOptions;
use core::time::Duration;
use proptest::prelude::*;

const TTL: Duration = Duration::from_secs(10);

fn task_of(owner: &str) -> String {
    format!("arn:aws:ecs:eu-west-1:111122223333:task/plant/{owner}")
}

fn options(owner: &str) -> (MemberOptions, OwnerOptions) {
    let facts = OwnerFacts { task_arn: Some(task_of(owner)), ..OwnerFacts::default() };
    let member = MemberOptions {
        candidate: Candidate { key: "LEASE#s".to_owned(), owner: owner.to_owned(), ttl: TTL, facts },
        upkeep: Upkeep {
            ttl: TTL,
            renew_interval: Duration::from_secs(2),
            jitter: Duration::from_millis(500),
            max_fails: 3,
            guard: Duration::from_millis(100),
        },
        poll_interval: Duration::from_secs(2),
        questions: Some(Questions { overdue_after: Duration::from_millis(1_500), poll: Duration::from_millis(500) }),
        looks_late: false,
        step_down_grace: Duration::from_secs(1),
        hold_off: Duration::from_secs(3),
        broker_hold_off: Duration::from_secs(12),
        broker_health_step_down: Some(Duration::from_secs(5)),
        opening_timeout: Duration::from_secs(30),
    };
    let owner = OwnerOptions {
        owner: owner.to_owned(),
        legs: Vec::new(),
        dispatch: std::sync::Arc::default(),
        epoch: None,
        acknowledge: causeway_core::hold::Order::OfArrival,
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
        keep_settled: Duration::ZERO,
        memory_entries: 100,
        memory_bytes: 1 << 20,
        entry_id_base: 1,
        row_id_base: 1,
        jitter_seed: 7,
    };
    (member, owner)
}

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a test makes few of them")]
enum Request {
    Read,
    Task(String),
    Write(LeaseWrite),
}

#[derive(Clone, Debug)]
enum Reply {
    Read(Option<LeaseRow>),
    Task(Option<Testimony>),
    Written(LeaseAnswer),
}

/// Where the one call is that a member may have under way.
#[derive(Clone, Debug)]
enum Call {
    Asked(Request),
    Answered(Reply),
}

struct Seen {
    member: Member,
    call: Option<Call>,
    /// The term that it told of last, and whether it still owns the session by its own account.
    term: Term,
    owns: bool,
    finished: bool,
    stopping: bool,
}

struct World {
    now: u64,
    row: Option<LeaseRow>,
    late: Vec<LeaseWrite>,
    members: Vec<Seen>,
    /// Who was given which version.
    versions: Vec<(u64, usize)>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Tick(usize),
    Arrive(usize),
    Answer(usize),
    GiveUp(usize),
    Late,
    Converged(usize),
    BrokerLost(usize),
    Hint(usize),
    Shutdown(usize),
    Opened(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0_usize..3;
    prop_oneof![
        4 => (1_u64..3_000).prop_map(Step::Pass),
        6 => who.clone().prop_map(Step::Tick),
        6 => who.clone().prop_map(Step::Arrive),
        6 => who.clone().prop_map(Step::Answer),
        1 => who.clone().prop_map(Step::GiveUp),
        1 => Just(Step::Late),
        1 => who.clone().prop_map(Step::Converged),
        1 => who.clone().prop_map(Step::BrokerLost),
        1 => who.clone().prop_map(Step::Hint),
        1 => who.clone().prop_map(Step::Opened),
        1 => who.prop_map(Step::Shutdown),
    ]
}

impl World {
    fn new() -> Self {
        let members = (0..3).map(|nth| {
            let (options, owner) = options(&format!("m{nth}#1"));
            let member = Member::new(options, owner, Instant::from_nanos(0));
            Seen { member, call: None, term: Term(0), owns: false, finished: false, stopping: false }
        });
        Self { now: 0, row: None, late: Vec::new(), members: members.collect(), versions: Vec::new() }
    }

    const fn instant(&self) -> Instant {
        Instant::from_nanos(self.now * 1_000_000)
    }

    fn write(&mut self, write: &LeaseWrite) -> LeaseAnswer {
        let holds = match (&write.condition, &self.row) {
            (Condition::Absent, row) => row.is_none(),
            (Condition::Exactly { tuple, evidence }, Some(row)) => row.tuple == *tuple && row.evidence == *evidence,
            (Condition::Held { owner, version }, Some(row)) => row.tuple.owner == *owner && row.tuple.version == *version,
            (Condition::Exactly { .. } | Condition::Held { .. }, None) => false,
        };
        if !holds {
            return LeaseAnswer::Refused(self.row.as_ref().map(RawLease::from));
        }
        if let Some(old) = &self.row {
            assert!(write.row.tuple.version >= old.tuple.version, "a version goes back");
        }
        self.row = Some(write.row.clone());
        LeaseAnswer::Written
    }

    /// What the orchestrator says: the task of a member that has ended has stopped.
    fn testimony(&self, task: String) -> Option<Testimony> {
        let nth = (0..3).find(|nth| task_of(&format!("m{nth}#1")) == task)?;
        let last_status = if self.members[nth].finished { "STOPPED" } else { "RUNNING" }.to_owned();
        Some(Testimony { cluster: cluster_of(&task)?, task, launch_type: Some("FARGATE".to_owned()), last_status })
    }

    fn feed(&mut self, nth: usize, event: Event) {
        let now = self.instant();
        let was_finished = self.members[nth].finished;
        let effects = self.members[nth].member.apply(now, UnixMillis(1 + self.now), event);
        assert!(!was_finished || effects.is_empty(), "m{nth} does something after its end: {effects:?}");
        for effect in effects {
            self.carry_out(nth, effect);
        }
        let seen = &self.members[nth];
        assert!(!seen.finished || seen.member.wake_at(now).is_none(), "m{nth} wants to be woken after its end");
        assert!(seen.owns || !seen.member.may_act(now), "m{nth} may act and never said that it owns the session");
    }

    fn carry_out(&mut self, nth: usize, effect: Effect) {
        let seen = &mut self.members[nth];
        assert!(!seen.finished, "m{nth}: an effect follows the end: {effect:?}");
        match effect {
            Effect::ReadLease | Effect::WriteLease(_) | Effect::AskAboutTask(_) => {
                assert!(seen.call.is_none(), "m{nth} makes two calls at once");
                seen.call = Some(Call::Asked(match effect {
                    Effect::WriteLease(write) => Request::Write(write),
                    Effect::AskAboutTask(task) => Request::Task(task),
                    _ => Request::Read,
                }));
            }
            Effect::Owner { term, effect } => {
                assert_eq!(term, seen.term, "m{nth}: an effect of a term that is not the present one");
                let closes = matches!(effect, worker::Effect::CloseSource | worker::Effect::Observe(_));
                assert!(seen.owns || closes, "m{nth}: an owner acts after the step-down: {effect:?}");
            }
            Effect::Became(Part::Owner { term, version }) => {
                assert!(term > seen.term, "m{nth}: a term comes again");
                (seen.term, seen.owns) = (term, true);
                let taken = self.versions.iter().find(|(given, whose)| *given == version && *whose != nth);
                assert_eq!(taken, None, "version {version} is given twice");
                self.versions.push((version, nth));
            }
            // While it steps down in order it still settles what is in flight, under the lease.
            Effect::Became(Part::SteppingDown(_)) => {}
            Effect::Became(_) => seen.owns = false,
            Effect::Finished(_) => {
                assert!(seen.stopping, "m{nth} ends and nobody told it to");
                (seen.finished, seen.owns) = (true, false);
            }
        }
    }

    fn take(&mut self, step: Step) {
        let fault = || Fault::new(FaultCode::Timeout, "no answer");
        match step {
            Step::Pass(millis) => self.now += millis,
            Step::Tick(nth) => self.feed(nth, Event::Tick),
            Step::Hint(nth) => self.feed(nth, Event::Hint),
            Step::Converged(nth) => self.feed(nth, Event::Converged),
            Step::BrokerLost(nth) => self.feed(nth, Event::BrokerLost),
            Step::Opened(nth) => {
                // An owner of another term is told something: nobody listens.
                let other = Term(self.members[nth].term.0 + 7);
                self.feed(nth, Event::Owner { term: other, event: worker::Event::Tick });
            }
            Step::Shutdown(nth) => {
                self.members[nth].stopping = true;
                let drain_until = self.instant().plus(Duration::from_secs(1));
                self.feed(nth, Event::Shutdown { drain_until });
            }
            Step::Arrive(nth) => {
                let Some(Call::Asked(request)) = self.members[nth].call.clone() else { return };
                let reply = match request {
                    Request::Read => Reply::Read(self.row.clone()),
                    Request::Task(task) => Reply::Task(self.testimony(task)),
                    Request::Write(write) => Reply::Written(self.write(&write)),
                };
                self.members[nth].call = Some(Call::Answered(reply));
            }
            Step::Answer(nth) => {
                let Some(Call::Answered(reply)) = self.members[nth].call.clone() else { return };
                self.members[nth].call = None;
                match reply {
                    Reply::Read(row) => self.feed(nth, Event::LeaseRead(Ok(row.as_ref().map(RawLease::from)))),
                    Reply::Task(told) => self.feed(nth, Event::TaskTold(told)),
                    Reply::Written(answer) => self.feed(nth, Event::LeaseWritten(Outcome::Done(answer))),
                }
            }
            Step::GiveUp(nth) => match self.members[nth].call.take() {
                None => {}
                Some(Call::Asked(Request::Read) | Call::Answered(Reply::Read(_))) => self.feed(nth, Event::LeaseRead(Err(fault()))),
                Some(Call::Asked(Request::Task(_)) | Call::Answered(Reply::Task(_))) => self.feed(nth, Event::TaskTold(None)),
                Some(Call::Asked(Request::Write(write))) => {
                    self.late.push(write);
                    self.feed(nth, Event::LeaseWritten(Outcome::Unknown(fault())));
                }
                Some(Call::Answered(Reply::Written(_))) => self.feed(nth, Event::LeaseWritten(Outcome::Unknown(fault()))),
            },
            Step::Late => {
                if !self.late.is_empty() {
                    let write = self.late.remove(0);
                    self.write(&write);
                }
            }
        }
        let acting: Vec<usize> = (0..3).filter(|nth| self.members[*nth].member.may_act(self.instant())).collect();
        assert!(acting.len() <= 1, "{acting:?} may act at once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_comes_in_whatever_order_one_at_most_acts_and_everybody_ends_who_shall(steps in proptest::collection::vec(step(), 1..400)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        // Everybody is told to stop, and answered at once: then everybody ends.
        for nth in 0..3 {
            world.take(Step::Shutdown(nth));
        }
        for _ in 0..60 {
            for nth in 0..3 {
                for step in [Step::Arrive(nth), Step::Answer(nth), Step::Tick(nth)] {
                    world.take(step);
                }
            }
            world.take(Step::Pass(500));
        }
        for (nth, seen) in world.members.iter().enumerate() {
            prop_assert!(seen.finished, "m{} was told to stop and is still there", nth);
        }
    }
}
