//! What may go wrong in a run. Each seed draws which faults exist at all, and how often they strike: a run in which everything goes wrong at once
//! hides what one fault alone would show.

use crate::admission;
use crate::broker::FILTER;
use crate::rng::Rng;
use causeway_core::timing::{BudgetTerms, Cadence, CadenceInput, MqttActivation, SECOND};
use causeway_core::worker::options::Delivery;
use std::collections::BTreeSet;

/// A millisecond, in nanoseconds.
pub const MS: u64 = 1_000_000;
/// A second, in nanoseconds.
pub const S: u64 = 1_000 * MS;

/// What a worker talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The stores, all of them.
    Store,
    /// The lease table alone.
    Lease,
    /// The broker.
    Broker,
    /// The destination.
    Queue,
    /// Whoever runs the tasks.
    Orchestrator,
}

/// Which way a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Requests are lost.
    Out,
    /// Answers are lost.
    Back,
    /// Both.
    Both,
}

/// A fault that strikes at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A worker's process is gone, and started again after `down` nanoseconds (never if `None`). `silently`: its connections die with its host.
    Crash {
        /// The worker, by index, or the owner.
        whom: Whom,
        /// How long it stays down.
        down: Option<u64>,
        /// Nobody is told.
        silently: bool,
    },
    /// A worker does nothing for a while; its clock goes on.
    Pause {
        /// Whom.
        whom: Whom,
        /// How long.
        span: u64,
    },
    /// A worker is told to stop; it is started again after `down` nanoseconds.
    Stop {
        /// Whom.
        whom: Whom,
        /// How long it stays down.
        down: Option<u64>,
    },
    /// A link is cut for a while.
    Cut {
        /// Whose.
        whom: Whom,
        /// Which.
        link: Link,
        /// Which way.
        way: Way,
        /// How long.
        span: u64,
    },
    /// The broker restarts.
    BrokerRestart {
        /// Whether it remembers the session.
        keeps_session: bool,
    },
    /// The stores refuse everything for a while.
    Throttle {
        /// How long.
        span: u64,
    },
    /// A worker's wall clock is stepped, by milliseconds.
    WallStep {
        /// Whom.
        whom: Whom,
        /// By how much.
        by: i64,
    },
    /// An older copy of the lease table alone is put back. The log is ahead of it then.
    Restore {
        /// Everybody is stopped before, the hard way, and starts again. Otherwise they do not notice.
        stops: bool,
    },
}

/// What whoever runs the tasks says of those that have an owner's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Testimony {
    /// Nobody asks.
    #[default]
    Unasked,
    /// The truth.
    True,
    /// Now and then that a task has stopped which runs.
    False,
}

/// Whom a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// A worker, by index.
    Nth(usize),
    /// Whoever may act then.
    Owner,
    /// The first that runs and may not act then.
    Standby,
}

/// A cadence, and everything else that a run draws.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// The lease's timing.
    pub cadence: Cadence,
    /// No effect begins later than this before the deadline.
    pub guard: u64,
    /// Workers.
    pub workers: usize,
    /// The last worker looks late.
    pub last_looks_late: bool,
    /// A clock's rate may be wrong by so much, in parts per million.
    pub rate_ppm: u64,
    /// Clocks are wrong by more than anybody allowed for. Then two may believe at once that they own the session, and take over early; what must hold
    /// all the same is everything that the log's conditions guarantee.
    pub lawless: bool,
    /// What is said of owners' tasks. Where that is false a takeover may be early: the world is lawless then.
    pub testimony: Testimony,
    /// The longest ordinary latency.
    pub latency: u64,
    /// The share of requests that take much longer.
    pub tails: f64,
    /// The longest latency of those: past every timeout.
    pub tail: u64,
    /// The share of requests that never arrive.
    pub lost_requests: f64,
    /// The share of answers that never arrive.
    pub lost_answers: f64,
    /// The share of requests that the stores refuse.
    pub throttled: f64,
    /// The share of effects before which a worker stalls.
    pub stalls: f64,
    /// The longest stall.
    pub stall: u64,
    /// The share of entries that the destination refuses for now.
    pub refused: f64,
    /// One in so many messages is refused for good; 0: none.
    pub poison_every: u64,
    /// How long a broker waits for a silent client.
    pub keep_alive: u64,
    /// The broker's window.
    pub window: usize,
    /// Lanes of the log.
    pub lanes: u32,
    /// When the source is told.
    pub delivery: Delivery,
    /// The queue orders by topic: of one topic nothing arrives before what came before it.
    pub keyed: bool,
    /// Retries and recovery go in rounds.
    pub paced: bool,
    /// Owners do not know that it does: a rule that is left out.
    pub keys_ignored: bool,
    /// Messages published.
    pub messages: u64,
    /// When faults end.
    pub chaos_ends: u64,
    /// After how long without its broker an owner steps down.
    pub broker_step_down: Option<u64>,
    /// Nobody was ever subscribed, and nobody knows of it; otherwise the broker has a session, and the account tells what it has subscribed.
    pub new_session: bool,
    /// Workers do not all have the same filters: their configuration is being changed.
    pub filters_change: bool,
    /// Letters that were dead before the run began.
    pub letters: u64,
    /// How often an owner looks for mail; `None`: nobody has a mailbox.
    pub mailbox_poll: Option<u64>,
    /// When somebody puts a letter back, and which.
    pub redrives: Vec<(u64, usize)>,
    /// What strikes when.
    pub schedule: Vec<(u64, Fault)>,
    /// Settings that were drawn first and that the timing check refused, as it should.
    pub settings_refused: u64,
    /// Settings that it took or refused although it should not.
    pub misjudged: Option<String>,
}

/// How long a connection may take.
pub const CONNECT_TIMEOUT: u64 = 2 * S;
/// How long subscribing may take.
pub const RECONCILE_TIMEOUT: u64 = S;
/// The longest pause before a source tries again.
pub const SOURCE_BACKOFF: u64 = 2 * S;

impl Knobs {
    /// Everything as it should be, with a cadence drawn by `rng`.
    #[must_use]
    pub fn calm(rng: &mut Rng) -> Self {
        let inputs = [
            CadenceInput { clustered: true, ..CadenceInput::default() },
            CadenceInput { lease_ttl: Some(5 * SECOND), step_down_grace: Some(SECOND), ..CadenceInput::default() },
            CadenceInput { lease_ttl: Some(10 * SECOND), step_down_grace: Some(2 * SECOND), ..CadenceInput::default() },
            CadenceInput { lease_ttl: Some(20 * SECOND), ..CadenceInput::default() },
            CadenceInput {
                lease_ttl: Some(15 * SECOND),
                renew_interval: Some(2 * SECOND),
                renew_call_timeout: Some(SECOND),
                acquire_poll_interval: Some(2 * SECOND),
                step_down_grace: Some(5 * SECOND),
                ..CadenceInput::default()
            },
        ];
        let cadence = rng.pick(&inputs).resolve().expect("a cadence that holds");
        Self::with(cadence, rng)
    }

    /// Everything as it should be, with this cadence.
    pub(crate) fn with(cadence: Cadence, rng: &mut Rng) -> Self {
        let ttl = cadence.lease_ttl.unsigned_abs();
        Self {
            cadence,
            guard: ttl / rng.between(20, 200),
            workers: 2 + rng.index(2),
            last_looks_late: rng.chance(0.3),
            rate_ppm: rng.pick(&[0, 50, 500]),
            lawless: false,
            testimony: Testimony::Unasked,
            latency: rng.between(2, 60) * MS,
            tails: 0.0,
            tail: 3 * cadence.renew_call_timeout.unsigned_abs(),
            lost_requests: 0.0,
            lost_answers: 0.0,
            throttled: 0.0,
            stalls: 0.0,
            stall: 0,
            refused: 0.0,
            poison_every: 0,
            keep_alive: rng.between(1, 5) * S,
            window: 1 + rng.index(20),
            lanes: 1,
            delivery: Delivery::Logged,
            keyed: false,
            paced: false,
            keys_ignored: false,
            messages: rng.between(20, 60),
            chaos_ends: ttl * 3,
            broker_step_down: rng.chance(0.6).then(|| rng.between(1, 10) * S),
            new_session: false,
            filters_change: false,
            letters: 0,
            mailbox_poll: None,
            redrives: Vec::new(),
            schedule: Vec::new(),
            settings_refused: 0,
            misjudged: None,
        }
    }

    /// The same with another way to the queue, which orders by topic then.
    #[must_use]
    pub fn by(self, delivery: Delivery) -> Self {
        Self { delivery, keyed: true, ..self }
    }

    /// What is known at first of what the session has subscribed.
    #[must_use]
    pub fn known_filters(&self) -> Option<BTreeSet<String>> {
        (!self.new_session).then(|| BTreeSet::from([FILTER.to_owned()]))
    }

    /// The filters of a worker that starts.
    #[must_use]
    pub fn draw_filters(&self, rng: &mut Rng) -> BTreeSet<String> {
        let others = ["x", "y"].into_iter().filter(|_| self.filters_change && rng.chance(0.5));
        others.chain([FILTER]).map(str::to_owned).collect()
    }

    /// What `seed` draws.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Self {
        let mut knobs = if rng.chance(0.3) { admission::draw(rng) } else { Self::calm(rng) };
        let ttl = knobs.ttl();
        if rng.chance(0.4) {
            knobs.tails = rng.fraction() * 0.1;
            knobs.tail = if rng.chance(0.5) { knobs.tail } else { 2 * ttl };
        }
        if rng.chance(0.4) {
            knobs.lost_answers = rng.fraction() * 0.15;
        }
        if rng.chance(0.3) {
            knobs.lost_requests = rng.fraction() * 0.1;
        }
        if rng.chance(0.2) {
            knobs.throttled = rng.fraction() * 0.3;
        }
        if rng.chance(0.3) {
            knobs.stalls = rng.fraction() * 0.01;
            knobs.stall = rng.between(MS, 2 * ttl);
        }
        if rng.chance(0.4) {
            knobs.refused = rng.fraction() * 0.4;
        }
        if rng.chance(0.4) {
            knobs.poison_every = rng.between(5, 20);
        }
        knobs.new_session = rng.chance(0.2);
        knobs.filters_change = rng.chance(0.3);
        knobs.chaos_ends = ttl * rng.between(3, 7);
        knobs.schedule = knobs.draw_schedule(rng);
        if rng.chance(0.3) {
            knobs.make_lawless(rng);
        }
        knobs
    }

    /// A world whose clocks nobody should trust, and whose owners sleep.
    #[must_use]
    pub fn draw_lawless(rng: &mut Rng) -> Self {
        let mut knobs = Self::draw(rng);
        knobs.make_lawless(rng);
        knobs
    }

    /// A lawless world in which an owner that cannot renew goes on appending, at great speed, while the one that took over waits for slow answers.
    #[must_use]
    pub fn draw_crowded(rng: &mut Rng) -> Self {
        let mut knobs = Self::calm(rng);
        let input = CadenceInput { lease_ttl: Some(5 * SECOND), step_down_grace: Some(SECOND), ..CadenceInput::default() };
        knobs.cadence = input.resolve().expect("a cadence that holds");
        knobs.guard = 25 * MS;
        knobs.lawless = true;
        knobs.rate_ppm = 400_000;
        knobs.workers = 3;
        knobs.latency = 3 * MS;
        knobs.tails = 0.2;
        knobs.tail = 1_800 * MS;
        knobs.window = 20;
        knobs.chaos_ends = 8 * knobs.ttl();
        knobs.messages = 300;
        for nth in 1..4 {
            let cut = Fault::Cut { whom: Whom::Owner, link: Link::Lease, way: Way::Both, span: 2 * knobs.ttl() };
            knobs.schedule.push((nth * 2 * knobs.ttl() - rng.between(0, S), cut));
        }
        knobs
    }

    /// A world in which the lease table is put back under its owners, again and again.
    #[must_use]
    pub fn draw_restored(rng: &mut Rng) -> Self {
        let mut knobs = Self::draw_lawless(rng);
        for _ in 0..6 {
            knobs.schedule.push((rng.between(knobs.ttl() / 4, knobs.chaos_ends), Fault::Restore { stops: rng.chance(0.3) }));
        }
        knobs
    }

    fn make_lawless(&mut self, rng: &mut Rng) {
        self.lawless = true;
        self.rate_ppm = 400_000;
        self.stalls = 0.01 + rng.fraction() * 0.02;
        self.stall = self.ttl() * 3 / 2;
        for _ in 0..3 {
            let span = self.ttl() / 2 + rng.between(0, self.ttl());
            self.schedule.push((rng.between(self.ttl(), self.chaos_ends), Fault::Pause { whom: Whom::Owner, span }));
            let cut = Fault::Cut { whom: Whom::Owner, link: Link::Store, way: Way::Out, span };
            self.schedule.push((rng.between(self.ttl(), self.chaos_ends), cut));
        }
        if rng.chance(0.3) {
            self.schedule.push((rng.between(self.ttl(), self.chaos_ends), Fault::Restore { stops: false }));
        }
    }

    /// A world in which one call is over at once and the next takes as long as it may, and owners fall silent now and then: here a moment that is stamped on the wrong side of
    /// a call makes a difference.
    #[must_use]
    pub fn draw_slow(rng: &mut Rng) -> Self {
        let mut knobs = Self::calm(rng);
        let input = CadenceInput { lease_ttl: Some(5 * SECOND), step_down_grace: Some(SECOND), ..CadenceInput::default() };
        knobs.cadence = input.resolve().expect("a cadence that holds");
        knobs.guard = 25 * MS;
        knobs.workers = 3;
        knobs.rate_ppm = 0;
        knobs.latency = 20 * MS;
        knobs.tails = 0.3;
        knobs.tail = 950 * MS;
        knobs.keep_alive = 5 * S;
        knobs.chaos_ends = 15 * knobs.ttl();
        for _ in 0..8 {
            let at = rng.between(knobs.ttl(), knobs.chaos_ends);
            let (whom, span) = (Whom::Owner, rng.between(4 * S, 8 * S));
            let fault = match rng.index(3) {
                0 => Fault::Pause { whom, span },
                1 => Fault::Cut { whom, link: Link::Store, way: Way::Out, span },
                _ => Fault::Crash { whom, down: Some(S), silently: true },
            };
            knobs.schedule.push((at, fault));
        }
        knobs
    }

    /// The lease's time to live, in nanoseconds.
    #[must_use]
    pub const fn ttl(&self) -> u64 {
        self.cadence.lease_ttl.unsigned_abs()
    }

    fn draw_schedule(&self, rng: &mut Rng) -> Vec<(u64, Fault)> {
        let ttl = self.ttl();
        let mut schedule = Vec::new();
        let kinds: Vec<usize> = (0..8).filter(|_| rng.chance(0.35)).collect();
        for kind in kinds {
            let times = if kind == 7 { 1 } else { 1 + rng.index(4) };
            for _ in 0..times {
                let at = rng.between(ttl / 4, self.chaos_ends);
                let whom = if rng.chance(0.6) { Whom::Owner } else { Whom::Nth(rng.index(self.workers)) };
                let down = Some(rng.between(MS * 100, ttl * 2));
                let fault = match kind {
                    0 => Fault::Crash { whom, down, silently: rng.chance(0.5) },
                    1 => Fault::Pause { whom, span: rng.between(ttl / 50, ttl * 5 / 2) },
                    2 => Fault::Stop { whom, down },
                    3 => self.draw_cut(rng, whom),
                    4 => Fault::BrokerRestart { keeps_session: rng.chance(0.8) },
                    5 => Fault::Throttle { span: rng.between(MS * 100, ttl) },
                    6 => Fault::WallStep { whom, by: rng.pick(&[-315_000_000_000, -3_600_000, -1_500, 700, 3_600_000]) },
                    _ => Fault::Restore { stops: true },
                };
                schedule.push((at, fault));
            }
        }
        schedule
    }

    fn draw_cut(&self, rng: &mut Rng, whom: Whom) -> Fault {
        let link = rng.pick(&[Link::Store, Link::Store, Link::Lease, Link::Broker, Link::Broker, Link::Queue]);
        Fault::Cut { whom, link, way: rng.pick(&[Way::Out, Way::Back, Way::Both]), span: rng.between(MS * 200, self.ttl() * 2) }
    }

    /// The computed budget of this run's settings.
    #[must_use]
    pub fn terms(&self) -> BudgetTerms {
        let nanos = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let activation =
            MqttActivation { connect_timeout: nanos(CONNECT_TIMEOUT), reconcile_timeout: nanos(RECONCILE_TIMEOUT), unmatched_grace: 0 };
        BudgetTerms {
            cadence: self.cadence,
            activation: activation.bound(),
            startup_allowance: 0,
            broker_health_step_down: self.broker_step_down.map(nanos),
        }
    }
}
