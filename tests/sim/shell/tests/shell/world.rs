//! One seed: hosts that come and go, what goes wrong between them and their stores, and what must hold at the end.

use crate::ports::{GatedSource, Host, LEASE, Shared, number_of};
use causeway_core::config::model::Bridge;
use causeway_core::dead_letter::Destination;
use causeway_core::dispatch::Dispatch;
use causeway_core::hold::Order;
use causeway_core::identity::LogName;
use causeway_core::lease::holder::Upkeep;
use causeway_core::lease::row::OwnerFacts;
use causeway_core::lease::standby::Candidate;
use causeway_core::member::MemberOptions;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::options::{Delivery, Policy};
use causeway_ports::Clock;
use causeway_ports::fake::{Injection, LeaseCall, OutboxCall};
use causeway_sim::rng::Rng;
use causeway_worker::parts::{LeaseParts, LegParts, LogKind, LogLimits, RandomBits, SessionParts};
use causeway_worker::run::{RunError, SessionEnd, run_session};
use causeway_worker::status::StatusBoard;
use causeway_worker::telemetry::Metrics;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long the lease holds.
pub const TTL: Duration = Duration::from_secs(5);
/// How long a call to the lease store may take.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// How often one that waits looks at the lease.
pub const POLL: Duration = Duration::from_secs(1);
/// After how long without its broker an owner steps down.
pub const BROKER_STEP_DOWN: Duration = Duration::from_secs(2);
/// How long an owner that steps down settles what is in flight.
pub const GRACE: Duration = Duration::from_secs(1);
/// Messages of a seed.
const MESSAGES: u64 = 60;
/// Everything has to arrive within this once nothing goes wrong any more: of the runtime's time, which costs nothing.
const CONVERGENCE: Duration = Duration::from_secs(300);

/// The clocks of a host: they follow the runtime's, each from another beginning.
struct HostClock {
    began: tokio::time::Instant,
    /// How fast it goes, in percent.
    pace: u64,
    boot: u64,
    wall: u64,
}

impl Clock for HostClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.boot + u64::try_from(self.began.elapsed().as_nanos()).unwrap() * self.pace / 100)
    }

    fn wall(&self) -> UnixMillis {
        UnixMillis(self.wall + u64::try_from(self.began.elapsed().as_millis()).unwrap())
    }
}

/// A host, from its start to its end.
pub struct Running {
    name: String,
    task: JoinHandle<Result<SessionEnd, RunError>>,
    stop: CancellationToken,
    asleep: watch::Sender<bool>,
}

/// What a seed came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Played {
    pub violations: Vec<String>,
    pub holders: u64,
    pub acts: u64,
    pub refused_puts: u64,
    pub acknowledged: usize,
    pub repeated: usize,
    pub crashes: u64,
    pub pauses: u64,
    pub stops: u64,
    pub lost: u64,
    pub disconnects: u64,
    pub trace: u64,
}

/// Hosts, and what they share.
pub struct World {
    rng: Rng,
    pub shared: Arc<Shared>,
    pub hosts: Vec<Option<Running>>,
    lives: u64,
    /// How fast the clock of every other host goes, in percent.
    pub pace: u64,
    began: tokio::time::Instant,
    /// Messages that were published or will be.
    messages: u64,
    played: Played,
}

/// Runs the future except while the host sleeps: then it is not polled, whatever time it gets.
async fn with_sleep<T>(work: impl Future<Output = T>, mut asleep: watch::Receiver<bool>) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            falls = asleep.wait_for(|asleep| *asleep) => { let _ = falls; }
            done = &mut work => return done,
        }
        if asleep.wait_for(|asleep| !*asleep).await.is_err() {
            return work.await;
        }
    }
}

/// Plays a seed on the present runtime, whose time has to be paused.
///
/// With a `pace` other than 100 percent every other host has a clock that no lease allows for.
pub async fn play(seed: u64, pace: u64) -> Played {
    let mut rng = Rng::new(seed);
    let hosts = 2 + rng.index(2);
    let mut world = World::new(rng, hosts, MESSAGES, pace);
    let publisher = tokio::spawn(publish(Arc::clone(&world.shared), Rng::new(seed ^ 0xBEEF)));
    for _ in 0..14 {
        let pause = Duration::from_millis(world.rng.between(10, 6_000));
        tokio::time::sleep(pause).await;
        world.go_wrong().await;
    }
    publisher.await.unwrap();
    world.heal().await;
    world.end().await
}

async fn publish(shared: Arc<Shared>, mut rng: Rng) {
    for number in 1..=MESSAGES {
        tokio::time::sleep(Duration::from_millis(rng.between(0, 1_200))).await;
        shared.broker.publish_text("in", "t", &number.to_string());
    }
}

impl World {
    /// So many hosts that begin at once, and `messages` messages to come.
    pub fn new(rng: Rng, hosts: usize, messages: u64, pace: u64) -> Self {
        let (shared, began) = (Shared::new(), tokio::time::Instant::now());
        let mut world = Self { rng, shared, hosts: Vec::new(), lives: 0, pace, began, messages, played: Played::default() };
        for _ in 0..hosts {
            let running = world.start();
            world.hosts.push(Some(running));
        }
        world
    }

    /// Waits until the lease is with a host other than `before`; answers which one that is.
    pub async fn holder_after(&self, before: &str) -> usize {
        loop {
            let holder = self.shared.truth(|truth| truth.holder.clone());
            let of_holder = |host: &Option<Running>| host.as_ref().is_some_and(|running| running.name == holder);
            if let Some(nth) = self.hosts.iter().position(of_holder).filter(|_| holder != before) {
                return nth;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The host's name in this life.
    pub fn name_of(&self, nth: usize) -> String {
        self.hosts[nth].as_ref().map(|running| running.name.clone()).unwrap_or_default()
    }

    /// Publishes these messages at once.
    pub fn publish(&mut self, numbers: core::ops::RangeInclusive<u64>) {
        for number in numbers {
            self.shared.broker.publish_text("in", "t", &number.to_string());
        }
    }

    /// Waits until the destination has so many different messages.
    pub async fn arrived(&self, count: usize) {
        while self.distinct().len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn distinct(&self) -> BTreeSet<u64> {
        self.shared.sink.accepted().iter().map(|entry| number_of(&entry.message.payload)).collect()
    }

    /// The host does nothing for a while, and its clock goes on.
    pub fn sleep(&mut self, nth: usize, span: Duration) {
        if let Some(running) = &self.hosts[nth] {
            self.played.pauses += 1;
            let asleep = running.asleep.clone();
            asleep.send_replace(true);
            tokio::spawn(async move {
                tokio::time::sleep(span).await;
                asleep.send_replace(false);
            });
        }
    }

    fn start(&mut self) -> Running {
        self.lives += 1;
        let name = format!("h{}", self.lives);
        let host = Host { name: name.clone(), shared: Arc::clone(&self.shared) };
        let clock = Arc::new(HostClock {
            began: self.began,
            pace: if self.lives.is_multiple_of(2) { self.pace } else { 100 },
            boot: 1_000_000_000_000 + self.rng.between(0, 1_000_000_000_000_000),
            wall: 1_700_000_000_000 + self.rng.between(0, 100_000_000),
        });
        let (stop, asleep) = (CancellationToken::new(), watch::Sender::new(false));
        let bits = Mutex::new(Rng::new(self.rng.bits()));
        let parts = parts(&host, clock, bits, stop.clone());
        let task = tokio::spawn(with_sleep(run_session(parts), asleep.subscribe()));
        Running { name, task, stop, asleep }
    }

    async fn go_wrong(&mut self) {
        let nth = self.rng.index(self.hosts.len());
        let lost = || Fault::new(FaultCode::Timeout, "no answer");
        match self.rng.index(11) {
            0 => self.crash(nth),
            1 | 2 => {
                let span = Duration::from_millis(self.rng.between(100, 12_500));
                self.sleep(nth, span);
            }
            3 => {
                if let Some(running) = self.hosts[nth].take() {
                    self.played.stops += 1;
                    running.stop.cancel();
                    running.asleep.send_replace(false);
                    self.ended(tokio::time::timeout(CONVERGENCE, running.task).await);
                }
            }
            4 => {
                self.played.disconnects += 1;
                self.shared.broker.disconnect();
                tokio::time::sleep(Duration::from_millis(self.rng.between(10, 3_000))).await;
                self.shared.broker.reconnect(true);
            }
            5 => drop(self.shared.outbox.apply_late().await),
            kind => {
                self.played.lost += 1;
                let times = 1 + self.rng.index(6) as u64;
                let injection = match kind {
                    6 => Injection::LoseAnswer(lost()),
                    7 => Injection::LoseRequest(lost()),
                    8 => Injection::Refuse(Fault::new(FaultCode::Throttled, "too many requests")),
                    9 => Injection::ApplyLate(lost()),
                    // Some so late that another host owns the session by then.
                    _ => {
                        let longest = if self.rng.chance(0.5) { 1_500 } else { 15_000 };
                        Injection::Delay(Duration::from_millis(self.rng.between(10, longest)))
                    }
                };
                if self.rng.chance(0.5) {
                    let call = self.rng.pick(&[LeaseCall::Read, LeaseCall::Write, LeaseCall::Write]);
                    self.shared.leases.inject(call, self.rng.index(3) as u64, times, injection);
                } else {
                    let call =
                        self.rng.pick(&[OutboxCall::Put, OutboxCall::Put, OutboxCall::PutHead, OutboxCall::ReadTail, OutboxCall::Delete]);
                    self.shared.outbox.inject(call, self.rng.index(3) as u64, times, injection);
                }
            }
        }
        if self.hosts.iter().any(Option::is_none) && self.rng.chance(0.7) {
            self.start_the_missing();
        }
    }

    fn start_the_missing(&mut self) {
        for nth in 0..self.hosts.len() {
            if self.hosts[nth].is_none() {
                let running = self.start();
                self.hosts[nth] = Some(running);
            }
        }
    }

    /// The process is gone: what it was doing is dropped wherever it is.
    pub fn crash(&mut self, nth: usize) {
        if let Some(running) = self.hosts[nth].take() {
            self.played.crashes += 1;
            running.task.abort();
        }
    }

    fn ended(&mut self, end: Result<Result<Result<SessionEnd, RunError>, tokio::task::JoinError>, tokio::time::error::Elapsed>) {
        match end {
            Ok(Ok(Ok(SessionEnd::Clean | SessionEnd::DeadlinePassed | SessionEnd::HandedOver))) => {}
            Ok(Ok(Err(error))) => self.shared.violated(format!("a host ended: {error}")),
            Ok(Err(error)) => self.shared.violated(format!("a host panicked: {error}")),
            Err(_) => self.shared.violated("a host that was told to stop is still there".to_owned()),
        }
    }

    /// Nothing goes wrong any more; then everything has to arrive.
    pub async fn heal(&mut self) {
        self.shared.leases.heal();
        self.shared.outbox.heal();
        self.shared.broker.reconnect(true);
        self.start_the_missing();
        for running in self.hosts.iter().flatten() {
            running.asleep.send_replace(false);
        }
        let all_arrived = async {
            while self.distinct().len() as u64 != self.messages || self.shared.broker.held() > 0 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        if tokio::time::timeout(CONVERGENCE, all_arrived).await.is_err() {
            let arrived = self.distinct();
            let lost = self.shared.truth(|truth| truth.acknowledged.difference(&arrived).copied().collect::<Vec<u64>>());
            self.shared.violated(format!(
                "{} of {} arrived, {} wait at the broker; acknowledged and lost: {lost:?}",
                arrived.len(),
                self.messages,
                self.shared.broker.held()
            ));
        }
    }

    /// Stops every host; answers what the run came to.
    pub async fn end(mut self) -> Played {
        for nth in 0..self.hosts.len() {
            let Some(running) = self.hosts[nth].take() else { continue };
            if running.task.is_finished() {
                self.ended(Ok(running.task.await));
                self.shared.violated("a host ended that nobody had told to stop".to_owned());
                continue;
            }
            running.stop.cancel();
            self.ended(tokio::time::timeout(CONVERGENCE, running.task).await);
        }
        let repeated = self.shared.sink.accepted().len() - self.distinct().len();
        let played = &mut self.played;
        self.shared.truth(|truth| {
            played.violations = core::mem::take(&mut truth.violations);
            (played.holders, played.acts, played.refused_puts) = (truth.holders, truth.acts, truth.refused_puts);
            (played.acknowledged, played.trace) = (truth.acknowledged.len(), truth.trace);
        });
        played.repeated = repeated;
        self.played
    }
}

/// The bits that a host draws: the same for the same seed.
fn draw(bits: &Mutex<Rng>) -> RandomBits {
    let mut bits = bits.lock().unwrap();
    let mut wide = || u128::from(bits.bits()) << 64 | u128::from(bits.bits());
    let (entry_ids, row_ids) = (wide(), wide());
    RandomBits { entry_ids, row_ids, jitter: bits.bits() }
}

fn parts(host: &Host, clock: Arc<HostClock>, bits: Mutex<Rng>, stop: CancellationToken) -> SessionParts {
    let shared = Arc::new(host.clone());
    let name = host.name.clone();
    let source_of = host.clone();
    let upkeep = Upkeep {
        ttl: TTL,
        renew_interval: Duration::from_secs(1),
        jitter: Duration::from_millis(200),
        max_fails: 2,
        guard: Duration::from_millis(250),
    };
    SessionParts {
        session: "s".to_owned(),
        owner: name.clone(),
        broker: "fake".to_owned(),
        subscriptions_wanted: 1,
        log: LogName::new("b", "s", 0).unwrap(),
        kind: LogKind::OfSession,
        dispatch: Arc::new(Dispatch::to_first([("r", "in", "b")])),
        legs: vec![LegParts {
            route: "r".to_owned(),
            receiver: "in".to_owned(),
            destination: Destination { binding: "b".to_owned(), ..Destination::default() },
            sink: Arc::clone(&shared) as Arc<dyn causeway_ports::Sink>,
            delivery: Delivery::Logged,
            depth: None,
            breaker: None,
            sender: String::new(),
            flow: Default::default(),
            pacing: None,
            policy: Policy::default(),
            send_limits: Vec::new(),
        }],
        arrival_limits: Vec::new(),
        ack_hold: None,
        quota: None,
        outbox: Some(Arc::clone(&shared) as Arc<dyn causeway_ports::Outbox>),
        acknowledge: Order::OfArrival,
        lanes: 1,
        mailbox: None,
        limits: LogLimits::default(),
        stale_claim: Duration::from_secs(60),
        dead_letters: None,
        start_source: Arc::new(move |gate| Box::new(GatedSource::new(source_of.clone(), gate))),
        lease: Some(LeaseParts {
            leases: shared,
            hinted: Arc::default(),
            asked: Arc::default(),
            hinter: None,
            call_timeout: CALL_TIMEOUT,
            tasks: None,
            member: MemberOptions {
                candidate: Candidate { key: LEASE.to_owned(), owner: name.clone(), ttl: TTL, facts: OwnerFacts::default() },
                upkeep,
                poll_interval: POLL,
                questions: None,
                looks_late: false,
                step_down_grace: GRACE,
                hold_off: Duration::from_secs(2),
                broker_hold_off: Duration::from_secs(6),
                broker_health_step_down: Some(BROKER_STEP_DOWN),
                opening_timeout: Duration::from_secs(30),
            },
        }),
        subscriptions: None,
        share: None,
        returning: None,
        random: Arc::new(move || Ok(draw(&bits))),
        metrics: Metrics::default(),
        status: StatusBoard::new("b", &name, Arc::clone(&clock) as Arc<dyn Clock>),
        clock,
        stop,
        pause_source: false,
        drain_ceiling: Bridge::default().drain_ceiling(),
    }
}
