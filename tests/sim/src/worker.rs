//! A worker as the world sees it: its clocks, its member, the calls it waits for, its connection.

use crate::broker::ConnectionId;
use crate::event::{AccountCall, Event};
use crate::faults::{Knobs, Link, Testimony, Way};
use crate::rng::Rng;
use crate::source::topic_of;
use crate::store::number_of;
use causeway_core::dead_letter::Destination;
use causeway_core::drain::retry::Backoff;
use causeway_core::drain::{BatchId, BatchLimits, OrderKey, Pacing, ParkId};
use causeway_core::hold::Order;
use causeway_core::identity::{EntryId, Id128, LaneId, Position};
use causeway_core::lease::holder::Upkeep;
use causeway_core::lease::row::{OwnerFacts, Tuple};
use causeway_core::lease::standby::Candidate;
use causeway_core::lease::testimony::Questions;
use causeway_core::log::Call;
use causeway_core::log::writer::SegmentOptions;
use causeway_core::member::{Effect, Member, MemberOptions, Part, Term};
use causeway_core::subscriptions::{Generation, Plan};
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::options::{Fate, LegOptions, OwnerOptions, Policy, to_first_legs};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How long an owner may take to open its log. Longer than any store here is slow: openings that take long are what late answers meet.
const OPENING_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a worker that is told to stop goes on sending.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest pause between two attempts to send.
pub const SEND_BACKOFF: Duration = Duration::from_secs(2);

/// What a call's answer is waited for.
#[derive(Clone, Debug)]
pub enum Awaited {
    /// The lease row.
    LeaseRead {
        /// When it was asked, on the worker's clock.
        asked: Instant,
    },
    /// A write of the lease row.
    LeaseWrite {
        /// When it was asked, on the worker's clock.
        asked: Instant,
        /// The `renewed_at` of a renewal.
        renewal: Option<UnixMillis>,
    },
    /// The lease row, before a source may reconnect.
    Gate {
        /// The source.
        source: u64,
    },
    /// The account of managed subscriptions, on a connection.
    Account {
        /// The connection.
        connection: ConnectionId,
        /// What was asked.
        call: AccountCall,
    },
    /// What became of a task.
    Task,
    /// The log.
    Log {
        /// The term.
        term: Term,
        /// Of which lane.
        lane: LaneId,
        /// What was asked.
        call: Call,
    },
    /// The mailbox.
    Mail {
        /// The term.
        term: Term,
    },
    /// A batch.
    Send {
        /// The term.
        term: Term,
        /// The batch.
        batch: BatchId,
        /// Its entries.
        entries: Vec<EntryId>,
    },
    /// A dead letter.
    Park {
        /// The term.
        term: Term,
        /// The letter.
        park: ParkId,
    },
}

/// What a source hands over when it is asked.
#[allow(missing_docs, reason = "`epoch` is the connection's number within the process")]
#[derive(Clone, Copy, Debug)]
pub enum Inbound {
    /// A message, on which connection, and its place there.
    Delivery { epoch: u64, ordinal: u64, message: u64 },
    /// The connection is subscribed.
    Subscribed,
    /// The connection ended.
    Disconnected { epoch: u64 },
}

/// What a source is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits for the broker to take the connection.
    Connecting(ConnectionId),
    /// It is connected.
    Connected(ConnectionId),
    /// It waits before the next attempt, or for the lease row.
    Apart,
}

/// A source: the worker's connection to the broker, over all its reconnections.
#[derive(Debug)]
pub struct Source {
    /// Names it within the worker.
    pub id: u64,
    /// What it is doing.
    pub phase: Phase,
    /// The connection's number within the process.
    pub epoch: u64,
    /// What the present connection delivered, by ordinal from 1.
    pub delivered: Vec<u64>,
    /// How many of those were acknowledged.
    pub acknowledged: usize,
    /// Whether the broker had a session when the present connection was made.
    pub session_present: bool,
    /// What to do yet before anything is subscribed.
    pub plan: Plan,
    /// The account's generation since this connection remembered.
    pub generation: Generation,
    /// What it would hand over.
    pub inbox: VecDeque<Inbound>,
    /// Only the newest timer counts.
    pub timer: u64,
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    /// Its life: events of an earlier one are dropped.
    pub life: u64,
    /// The filters of its configuration.
    pub desired: BTreeSet<String>,
    /// Its member, while the process lives.
    pub member: Option<Member>,
    /// Its owner name.
    pub name: String,
    /// The last part its member played.
    pub part: Part,
    /// The version that it holds, as its gate knows it.
    pub held: Option<u64>,
    /// The term that its calls belong to.
    pub term: Term,
    /// It does nothing before this true moment.
    pub asleep_until: u64,
    /// What came while it slept.
    pub backlog: VecDeque<Event>,
    /// Effects that it did not carry out yet.
    pub effects: VecDeque<Effect>,
    /// Calls under way.
    pub calls: BTreeMap<u64, Awaited>,
    /// Its source.
    pub source: Option<Source>,
    /// Connections of this life.
    pub connections: u64,
    /// Only the newest tick counts, and when it comes.
    pub tick: (u64, Option<Instant>),
    /// Cut links, until when.
    pub cuts: Vec<(Link, Way, u64)>,
    /// Renewals whose answer did not come.
    pub doubtful_renewals: BTreeSet<UnixMillis>,
    /// Puts whose answer did not come.
    pub doubtful_puts: BTreeSet<Id128>,
    /// The row that it read last, and when, for the mutant that sums.
    pub last_read: Option<(Tuple, Instant)>,
    /// For how long, by its last two looks, that row stood unchanged.
    pub watched: Duration,
    /// Entries that this term sent, and as which redrive.
    pub sent: BTreeSet<(EntryId, u32)>,
    /// The furthest place in each lane that this term sent from.
    pub furthest: BTreeMap<LaneId, Position>,
    /// The life that was told to stop.
    pub told_to_stop: u64,
    /// It starts again so long after it ended; `None`: never.
    pub down: Option<u64>,
    offset: i64,
    ppm: i64,
    wall: i64,
}

impl Worker {
    /// A worker that was not started yet.
    #[must_use]
    pub fn new(rng: &mut Rng, knobs: &Knobs) -> Self {
        // Within what is allowed any rate may be; beyond it one clock is slow and another is fast.
        let share = if knobs.lawless { rng.pick(&[-1.0, -0.5, 0.5, 1.0]) } else { rng.fraction() * 2.0 - 1.0 };
        let year = 31_536_000_000_000_000_i64;
        Self {
            life: 0,
            desired: BTreeSet::new(),
            member: None,
            name: String::new(),
            part: Part::Standby,
            held: None,
            term: Term(0),
            asleep_until: 0,
            backlog: VecDeque::new(),
            effects: VecDeque::new(),
            calls: BTreeMap::new(),
            source: None,
            connections: 0,
            tick: (0, None),
            cuts: Vec::new(),
            doubtful_renewals: BTreeSet::new(),
            doubtful_puts: BTreeSet::new(),
            last_read: None,
            watched: Duration::ZERO,
            sent: BTreeSet::new(),
            furthest: BTreeMap::new(),
            told_to_stop: 0,
            down: None,
            offset: 1_000_000_000_000 + (rng.fraction() * year as f64) as i64,
            ppm: (share * knobs.rate_ppm as f64) as i64,
            wall: 1_750_000_000_000 + ((rng.fraction() * 2.0 - 1.0) * if rng.chance(0.3) { 3e11 } else { 2_000.0 }) as i64,
        }
    }

    /// Its boot clock at a true moment.
    #[must_use]
    pub const fn local(&self, now: u64) -> Instant {
        let now = now.cast_signed();
        Instant::from_nanos((self.offset + now + now * self.ppm / 1_000_000).cast_unsigned())
    }

    /// The first true moment at which its boot clock reads `at` or more.
    #[must_use]
    pub fn true_time(&self, at: Instant) -> u64 {
        let wanted = i64::try_from(at.as_nanos()).unwrap_or(i64::MAX) - self.offset;
        let mut guess = (wanted as i128 * 1_000_000 / i128::from(1_000_000 + self.ppm)).max(0) as u64;
        while self.local(guess) < at {
            guess += 1;
        }
        guess
    }

    /// Its wall clock at a true moment.
    #[must_use]
    pub fn wall(&self, now: u64) -> UnixMillis {
        UnixMillis((self.wall + (now / 1_000_000).cast_signed()).max(1).cast_unsigned())
    }

    /// Steps the wall clock.
    pub const fn step_wall(&mut self, by: i64) {
        self.wall += by;
    }

    /// Sets the boot clock back.
    pub fn set_back(&mut self, by: Duration) {
        self.offset -= i64::try_from(by.as_nanos()).unwrap_or(0);
    }

    /// Whether `link` is cut that way now, and until when.
    #[must_use]
    pub fn cut(&self, now: u64, link: Link, way: Way) -> Option<u64> {
        let meant = |(of, which, until): &(Link, Way, u64)| {
            let cuts = *of == link || (*of == Link::Store && link == Link::Lease);
            (cuts && *until > now && (*which == way || *which == Way::Both || way == Way::Both)).then_some(*until)
        };
        self.cuts.iter().filter_map(meant).max()
    }

    /// Starts a new life.
    pub fn start(&mut self, nth: usize, now: u64, knobs: &Knobs, rng: &mut Rng) {
        self.life += 1;
        self.forget();
        self.name = format!("w{nth}#{}", self.life);
        self.desired = knobs.draw_filters(rng);
        let (options, owner) = member_options(self.name.clone(), nth, knobs, rng);
        self.member = Some(Member::new(options, owner, self.local(now)));
    }

    /// The process is gone, with everything that it knew.
    pub fn forget(&mut self) {
        self.member = None;
        self.part = Part::Standby;
        self.held = None;
        self.term = Term(0);
        self.asleep_until = 0;
        self.backlog.clear();
        self.effects.clear();
        self.calls.clear();
        self.source = None;
        self.connections = 0;
        self.tick = (self.tick.0 + 1, None);
        self.doubtful_renewals.clear();
        self.doubtful_puts.clear();
        self.last_read = None;
        self.watched = Duration::ZERO;
        self.sent.clear();
        self.furthest.clear();
    }

    /// It read the lease row: for the mutant that sums.
    pub fn looked_at(&mut self, tuple: Option<Tuple>, local: Instant) {
        let unchanged = self.last_read.as_ref().filter(|(last, _)| Some(last) == tuple.as_ref());
        self.watched = unchanged.map_or(Duration::ZERO, |(_, since)| local.since(*since));
        self.last_read = tuple.map(|tuple| (tuple, local));
    }

    /// Whether it may act at a true moment.
    #[must_use]
    pub fn may_act(&self, now: u64) -> bool {
        self.member.as_ref().is_some_and(|member| member.may_act(self.local(now)))
    }
}

/// Bits of a generator as wide ids.
fn wide(rng: &mut Rng) -> u128 {
    u128::from(rng.bits()) << 64 | u128::from(rng.bits())
}

/// How long a member stays out after a step-down.
#[must_use]
pub fn hold_off(knobs: &Knobs) -> Duration {
    Duration::from_nanos(knobs.cadence.acquire_poll_interval.unsigned_abs() * 2)
}

/// How long a member stays out after it lost its way to the broker.
#[must_use]
pub fn broker_hold_off(knobs: &Knobs) -> Duration {
    Duration::from_nanos(knobs.ttl())
}

/// The task that a life of a worker is.
#[must_use]
pub fn task_of(name: &str) -> String {
    format!("arn:aws:ecs:eu-west-1:111122223333:task/sim/{name}")
}

fn member_options(name: String, nth: usize, knobs: &Knobs, rng: &mut Rng) -> (MemberOptions, OwnerOptions) {
    let span = |nanos: i64| Duration::from_nanos(nanos.unsigned_abs());
    let cadence = &knobs.cadence;
    let ttl = span(cadence.lease_ttl);
    let facts = OwnerFacts { task_arn: (knobs.testimony != Testimony::Unasked).then(|| task_of(&name)), ..OwnerFacts::default() };
    let member = MemberOptions {
        candidate: Candidate { key: "LEASE#s".to_owned(), owner: name.clone(), ttl, facts },
        upkeep: Upkeep {
            ttl,
            renew_interval: span(cadence.renew_interval),
            jitter: span(cadence.lease_renew_jitter),
            max_fails: cadence.max_renew_fails,
            guard: Duration::from_nanos(knobs.guard),
        },
        poll_interval: span(cadence.acquire_poll_interval),
        questions: (knobs.testimony != Testimony::Unasked).then(|| Questions {
            overdue_after: span(cadence.renew_interval) + span(cadence.lease_renew_jitter) / 2 + span(cadence.renew_call_timeout),
            poll: Duration::from_secs(1),
        }),
        looks_late: knobs.last_looks_late && nth + 1 == knobs.workers,
        step_down_grace: span(cadence.step_down_grace),
        hold_off: hold_off(knobs),
        broker_hold_off: broker_hold_off(knobs),
        broker_health_step_down: knobs.broker_step_down.map(Duration::from_nanos),
        opening_timeout: OPENING_TIMEOUT,
    };
    (member, owner_options(name, ttl, knobs, rng))
}

/// Where everything is bound for.
pub(crate) fn destination() -> Destination {
    Destination { binding: "b".to_owned(), session: "s".to_owned(), ..Destination::default() }
}

fn owner_options(name: String, ttl: Duration, knobs: &Knobs, rng: &mut Rng) -> OwnerOptions {
    let policy = Policy {
        max_in_flight: 1 + rng.index(25),
        max_replay_attempts: 0,
        replay_budget: Duration::ZERO,
        on_expired: Fate::DeadLetter,
        on_permanent_failure: Fate::DeadLetter,
        backoff: Backoff { initial: Duration::from_millis(100), max: SEND_BACKOFF, multiplier: 2.0, jitter: 0.2 },
        send_timeout: Duration::from_secs(5),
    };
    let route = LegOptions {
        route: "r".into(),
        receiver: "in".into(),
        destination: destination(),
        delivery: knobs.delivery,
        depth: None,
        breaker: None,
        send_limits: Vec::new(),
        sender: Default::default(),
        pacing: knobs.paced.then(|| Pacing {
            shortest: Duration::from_millis(20),
            longest: Duration::from_millis(200),
            multiplier: 2.0,
            first: 2,
            most: 10,
            max_sends: 3,
        }),
        policy,
        limits: BatchLimits { entries: 10, bytes: 262_144, entry_bytes: 200_000 },
        size_of: Arc::new(|entry| number_of(entry).count_ones() as usize + 100),
        key_of: if knobs.keyed && !knobs.keys_ignored {
            Arc::new(|entry| Some(OrderKey(topic_of(number_of(entry)))))
        } else {
            Arc::new(|_| None)
        },
    };
    let mut options = OwnerOptions {
        owner: name,
        dispatch: to_first_legs(core::slice::from_ref(&route)),
        legs: vec![route],
        epoch: None,
        acknowledge: Order::OfArrival,
        limits: Vec::new(),
        ack_hold: None,
        quota: None,
        store: None,
        lanes: knobs.lanes,
        mailbox_poll: knobs.mailbox_poll.map(Duration::from_nanos),
        retire_when_drained: false,
        segment: SegmentOptions { max_messages: 1 + rng.index(12), doubt_after: ttl, ..SegmentOptions::default() },
        send_linger: Duration::from_millis(10),
        max_settled_ahead: 5 + rng.index(40),
        memory_entries: 5 + rng.index(40),
        memory_bytes: 16 * 1024 * 1024,
        entry_id_base: wide(rng),
        row_id_base: wide(rng),
        jitter_seed: rng.bits(),
        keep_settled: Duration::ZERO,
    };
    // Some keep what is settled for a while.
    if options.jitter_seed.is_multiple_of(3) {
        options.keep_settled = Duration::from_millis(200);
    }
    options
}
