//! One command: its states, and what may follow which.

use crate::identity::Id128;
use crate::source_id::ContentDigest;
use crate::units::UnixMillis;
use bytes::Bytes;
use core::time::Duration;

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It is recorded, and nobody is known to have it.
    Created,
    /// The broker has it.
    Published,
    /// The target says that it works on it.
    InProgress,
    /// The target carried it out.
    Succeeded,
    /// The target could not carry it out, or it can never reach the target.
    Failed,
    /// The target refused it.
    Rejected,
    /// No answer came in time. Not the end: a late answer still counts.
    TimedOut,
    /// Whoever gave it took it back before it was published.
    Cancelled,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Created, Self::Published, Self::InProgress, Self::Succeeded, Self::Failed, Self::Rejected, Self::TimedOut, Self::Cancelled];

    /// Its name in rows and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Published => "published",
            Self::InProgress => "in_progress",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether an answer is still waited for.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Created | Self::Published | Self::InProgress)
    }

    /// Whether nothing changes it any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Rejected | Self::Cancelled)
    }

    /// Whether whoever waits is answered: it is final, or timed out.
    #[must_use]
    pub const fn is_over(self) -> bool {
        !self.is_open()
    }
}

/// What a target answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is done.
    Succeeded,
    /// It could not be done.
    Failed,
    /// The target does not do that.
    Rejected,
}

impl Verdict {
    const fn state(self) -> State {
        match self {
            Self::Succeeded => State::Succeeded,
            Self::Failed => State::Failed,
            Self::Rejected => State::Rejected,
        }
    }
}

/// What a target answers with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandResult {
    /// The payload, byte for byte. An empty one is a result like any other.
    pub payload: Bytes,
    /// Its content type.
    pub content_type: Option<String>,
    /// Why it failed or was refused, in the target's words.
    pub reason: Option<String>,
}

/// A command as its row tells it. The bodies stand beside it: nothing here depends on them but for their digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// 128 random bits: the name of the command, and its correlation data.
    pub id: Id128,
    /// The row's version: every write counts it up, and names the one that it replaces.
    pub version: u64,
    /// Whom it is for.
    pub target: String,
    /// The instance that took it.
    pub instance: String,
    /// Where it stands.
    pub state: State,
    /// When it was taken.
    pub created_at: UnixMillis,
    /// When no answer is waited for any more.
    pub expires_at: UnixMillis,
    /// When the broker had it for the first time.
    pub published_at: Option<UnixMillis>,
    /// How often it was published.
    pub publishes: u32,
    /// The broker had nobody to give it to.
    pub no_subscriber: bool,
    /// A digest of the answer that ended it.
    pub answer: Option<ContentDigest>,
    /// The answer came after it had been said that none came.
    pub late: bool,
}

/// Something that happened to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'e> {
    /// The broker took it.
    Published {
        /// It had nobody to give it to.
        no_subscriber: bool,
    },
    /// The broker refused it for good.
    Refused,
    /// The target works on it.
    Progress {
        /// Who says so: as the topic of the reply tells.
        by: &'e str,
    },
    /// The target answered.
    Answered {
        /// Who says so: as the topic of the reply tells.
        by: &'e str,
        /// What it says.
        verdict: Verdict,
        /// A digest of the answer.
        answer: ContentDigest,
    },
    /// Somebody looked whether its time is over.
    Overdue,
    /// Whoever gave it takes it back.
    Cancelled,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// This is to be written in the place of the version before it.
    Write(Box<Command>),
    /// Nothing.
    Nothing(Why),
}

/// Why nothing follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It says what is known.
    Known,
    /// The same answer came before.
    SameAnswer,
    /// Another answer came before.
    OtherAnswer,
    /// The answer came after the late window.
    TooLate,
    /// The answer is not the target's.
    NotTheTarget,
    /// Its time is not over.
    NotDue,
    /// It is with the broker or the target, and cannot be taken back.
    OnItsWay,
    /// It came to an end before.
    Ended,
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Known, Self::SameAnswer, Self::OtherAnswer, Self::TooLate, Self::NotTheTarget, Self::NotDue, Self::OnItsWay, Self::Ended];

    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::SameAnswer => "same_answer",
            Self::OtherAnswer => "other_answer",
            Self::TooLate => "too_late",
            Self::NotTheTarget => "not_the_target",
            Self::NotDue => "not_due",
            Self::OnItsWay => "on_its_way",
            Self::Ended => "ended",
        }
    }
}

/// What housekeeping does about a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Its time is over: this is to be written in the place of the version before it.
    Write(Box<Command>),
    /// It is to be forgotten.
    Delete,
    /// Nothing.
    Leave,
}

/// What the configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// For how long after `expires_at` an answer still counts.
    pub late_window: Duration,
    /// A command that the broker has nobody for has failed.
    pub no_subscriber_fails: bool,
}

impl Command {
    /// One that was just taken.
    #[must_use]
    pub fn new(id: Id128, target: &str, instance: &str, now: UnixMillis, timeout: Duration) -> Self {
        Self {
            id,
            version: 1,
            target: target.to_owned(),
            instance: instance.to_owned(),
            state: State::Created,
            created_at: now,
            expires_at: now.plus(timeout),
            published_at: None,
            publishes: 0,
            no_subscriber: false,
            answer: None,
            late: false,
        }
    }

    /// What follows from `event`.
    #[must_use]
    pub fn on(&self, event: &Event<'_>, now: UnixMillis, rules: &Rules) -> Step {
        match *event {
            Event::Published { no_subscriber } => self.published(no_subscriber, now, rules),
            Event::Refused if self.state.is_open() => self.to(State::Failed, |_| {}),
            Event::Progress { by } | Event::Answered { by, .. } if by != self.target => Step::Nothing(Why::NotTheTarget),
            Event::Progress { .. } => match self.state {
                State::Created | State::Published => self.to(State::InProgress, |_| {}),
                State::InProgress => Step::Nothing(Why::Known),
                _ => Step::Nothing(Why::Ended),
            },
            Event::Answered { verdict, answer, .. } => self.answered(verdict, answer, now, rules),
            Event::Overdue if !self.state.is_open() => Step::Nothing(Why::Ended),
            Event::Overdue if now < self.expires_at => Step::Nothing(Why::NotDue),
            Event::Overdue => self.to(State::TimedOut, |_| {}),
            Event::Cancelled => match self.state {
                State::Created => self.to(State::Cancelled, |_| {}),
                State::Published | State::InProgress => Step::Nothing(Why::OnItsWay),
                _ => Step::Nothing(Why::Ended),
            },
            Event::Refused => Step::Nothing(Why::Ended),
        }
    }

    /// The broker's answer may come after the target's, or after the end of the time: it is noted and changes nothing else.
    fn published(&self, no_subscriber: bool, now: UnixMillis, rules: &Rules) -> Step {
        let state = match self.state {
            State::Created if no_subscriber && rules.no_subscriber_fails => State::Failed,
            State::Created => State::Published,
            other => other,
        };
        self.to(state, |next| {
            next.published_at.get_or_insert(now);
            next.publishes += 1;
            next.no_subscriber = no_subscriber;
        })
    }

    fn answered(&self, verdict: Verdict, answer: ContentDigest, now: UnixMillis, rules: &Rules) -> Step {
        if self.state.is_final() {
            return Step::Nothing(match self.answer {
                Some(known) if known == answer => Why::SameAnswer,
                Some(_) => Why::OtherAnswer,
                None => Why::Ended,
            });
        }
        if now > self.expires_at.plus(rules.late_window) {
            return Step::Nothing(Why::TooLate);
        }
        let late = self.state == State::TimedOut;
        self.to(verdict.state(), |next| {
            next.answer = Some(answer);
            next.late = late;
        })
    }

    /// When housekeeping looks at it: while it is open at the end of its time, else when it is to be forgotten.
    #[must_use]
    pub fn due_at(&self, retention: Duration) -> UnixMillis {
        if self.state.is_open() { self.expires_at } else { self.forget_at(retention) }
    }

    /// When it is forgotten.
    #[must_use]
    pub fn forget_at(&self, retention: Duration) -> UnixMillis {
        self.expires_at.plus(retention)
    }

    /// What housekeeping does about it.
    #[must_use]
    pub fn sweep(&self, now: UnixMillis, retention: Duration, rules: &Rules) -> Sweep {
        match self.on(&Event::Overdue, now, rules) {
            Step::Write(next) => Sweep::Write(next),
            Step::Nothing(_) if !self.state.is_open() && now >= self.forget_at(retention) => Sweep::Delete,
            Step::Nothing(_) => Sweep::Leave,
        }
    }

    fn to(&self, state: State, change: impl FnOnce(&mut Self)) -> Step {
        let mut next = Self { state, version: self.version + 1, ..self.clone() };
        change(&mut next);
        Step::Write(Box::new(next))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const RULES: Rules = Rules { late_window: Duration::from_secs(3_600), no_subscriber_fails: false };
    const A: ContentDigest = [1; 32];
    const B: ContentDigest = [2; 32];

    fn command() -> Command {
        Command::new(Id128(7), "pump-1", "worker-1", UnixMillis(0), Duration::from_secs(10))
    }

    fn written(step: Step) -> Command {
        let Step::Write(next) = step else { panic!("{step:?}") };
        *next
    }

    fn published() -> Command {
        written(command().on(&Event::Published { no_subscriber: false }, UnixMillis(1), &RULES))
    }

    const fn answer(answer: ContentDigest) -> Event<'static> {
        Event::Answered { by: "pump-1", verdict: Verdict::Succeeded, answer }
    }

    #[test]
    fn rr1_an_answer_within_the_time_is_not_late() {
        let done = written(published().on(&answer(A), UnixMillis(9_999), &RULES));
        assert_eq!((done.state, done.late, done.answer), (State::Succeeded, false, Some(A)));
    }

    #[test]
    fn rr1_an_answer_at_the_end_of_the_time_is_late_if_that_was_said_before() {
        let now = UnixMillis(10_000);
        assert!(!written(published().on(&answer(A), now, &RULES)).late);
        let over = written(published().on(&Event::Overdue, now, &RULES));
        assert_eq!(over.state, State::TimedOut);
        let done = written(over.on(&answer(A), now, &RULES));
        assert_eq!((done.state, done.late), (State::Succeeded, true));
        assert_eq!(published().on(&Event::Overdue, UnixMillis(9_999), &RULES), Step::Nothing(Why::NotDue));
    }

    #[test]
    fn rr1_an_answer_past_the_late_window_is_discarded() {
        let over = written(published().on(&Event::Overdue, UnixMillis(10_000), &RULES));
        assert!(matches!(over.on(&answer(A), UnixMillis(3_610_000), &RULES), Step::Write(_)));
        for command in [over, published()] {
            assert_eq!(command.on(&answer(A), UnixMillis(3_610_001), &RULES), Step::Nothing(Why::TooLate));
        }
    }

    #[test]
    fn rr2_the_first_answer_stands() {
        let done = written(published().on(&answer(A), UnixMillis(5), &RULES));
        assert_eq!(done.on(&answer(A), UnixMillis(6), &RULES), Step::Nothing(Why::SameAnswer));
        assert_eq!(done.on(&answer(B), UnixMillis(6), &RULES), Step::Nothing(Why::OtherAnswer));
    }

    #[test]
    fn rr4_an_answer_of_another_target_changes_nothing() {
        let spoofed = Event::Answered { by: "pump-2", verdict: Verdict::Succeeded, answer: A };
        assert_eq!(published().on(&spoofed, UnixMillis(5), &RULES), Step::Nothing(Why::NotTheTarget));
        assert_eq!(published().on(&Event::Progress { by: "pump-2" }, UnixMillis(5), &RULES), Step::Nothing(Why::NotTheTarget));
    }

    #[test]
    fn the_brokers_answer_may_come_after_the_targets() {
        let done = written(command().on(&answer(A), UnixMillis(5), &RULES));
        let noted = written(done.on(&Event::Published { no_subscriber: false }, UnixMillis(6), &RULES));
        assert_eq!((noted.state, noted.published_at, noted.answer), (State::Succeeded, Some(UnixMillis(6)), Some(A)));
    }

    #[test]
    fn nobody_there_fails_where_that_is_wanted() {
        let nobody = Event::Published { no_subscriber: true };
        let waits = written(command().on(&nobody, UnixMillis(1), &RULES));
        assert_eq!((waits.state, waits.no_subscriber), (State::Published, true));
        let failed = written(command().on(&nobody, UnixMillis(1), &Rules { no_subscriber_fails: true, ..RULES }));
        assert_eq!(failed.state, State::Failed);
    }

    #[test]
    fn what_is_on_its_way_is_not_taken_back() {
        assert_eq!(written(command().on(&Event::Cancelled, UnixMillis(1), &RULES)).state, State::Cancelled);
        assert_eq!(published().on(&Event::Cancelled, UnixMillis(1), &RULES), Step::Nothing(Why::OnItsWay));
    }

    #[test]
    fn what_is_overdue_is_ended_and_what_is_old_is_forgotten() {
        let retention = Duration::from_secs(7_200);
        let open = published();
        assert_eq!((open.due_at(retention), open.sweep(UnixMillis(9_999), retention, &RULES)), (UnixMillis(10_000), Sweep::Leave));
        let Sweep::Write(over) = open.sweep(UnixMillis(10_000), retention, &RULES) else { panic!() };
        assert_eq!((over.state, over.due_at(retention)), (State::TimedOut, UnixMillis(7_210_000)));
        assert_eq!(over.sweep(UnixMillis(7_209_999), retention, &RULES), Sweep::Leave);
        assert_eq!(over.sweep(UnixMillis(7_210_000), retention, &RULES), Sweep::Delete);
    }

    #[test]
    fn names_are_read_back() {
        for state in State::ALL {
            assert_eq!(State::named(state.as_str()), Some(state));
        }
        assert_eq!(State::named("done"), None);
    }

    fn events() -> impl Strategy<Value = Event<'static>> {
        let by = prop_oneof![9 => Just("pump-1"), 1 => Just("pump-2")];
        prop_oneof![
            any::<bool>().prop_map(|no_subscriber| Event::Published { no_subscriber }),
            Just(Event::Refused),
            by.clone().prop_map(|by| Event::Progress { by }),
            (by, prop_oneof![Just(Verdict::Succeeded), Just(Verdict::Failed), Just(Verdict::Rejected)], prop_oneof![Just(A), Just(B)])
                .prop_map(|(by, verdict, answer)| Event::Answered { by, verdict, answer }),
            Just(Event::Overdue),
            Just(Event::Cancelled),
        ]
    }

    proptest! {
        /// P18. Several instances decide from rows of any age; only the write that names the standing version takes effect.
        #[test]
        fn p18_a_command_comes_to_one_end(
            steps in prop::collection::vec((events(), 0_usize..4, 0_u64..5_000), 1..60),
            no_subscriber_fails in any::<bool>(),
        ) {
            let rules = Rules { no_subscriber_fails, ..RULES };
            let mut seen = vec![command(); 4];
            let mut row = command();
            let (mut now, mut ended, mut answers) = (0, None, 0);
            for (event, instance, passes) in steps {
                now += passes;
                let at = UnixMillis(now);
                if let Step::Write(next) = seen[instance].on(&event, at, &rules)
                    && next.version == row.version + 1 {
                    prop_assert_eq!(&next.target, &row.target);
                    if row.state.is_final() {
                        prop_assert_eq!((next.state, next.answer, next.late), (row.state, row.answer, row.late));
                    }
                    answers += u32::from(next.answer.is_some() && row.answer.is_none());
                    prop_assert!(!next.late || row.state == State::TimedOut || row.late);
                    row = *next;
                }
                seen[instance] = row.clone();
                if row.state.is_final() {
                    prop_assert_eq!(*ended.get_or_insert(row.state), row.state);
                }
                prop_assert!(answers <= 1);
                prop_assert!(row.state != State::TimedOut || at >= row.expires_at);
            }
        }

        #[test]
        fn r16_the_time_of_a_command_is_its_timeout(created in 0_u64..u64::MAX / 2, timeout in 100_u64..=43_200_000) {
            let command = Command::new(Id128(1), "t", "i", UnixMillis(created), Duration::from_millis(timeout));
            prop_assert_eq!(command.expires_at.since(command.created_at), Duration::from_millis(timeout));
        }
    }
}
