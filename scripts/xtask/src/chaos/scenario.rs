//! The faults, one at a time.

use super::stage::{NAMES, Stage};
use crate::cluster::HandOver;
use crate::network::{Peer, Way};
use crate::proxy::{Fault, Rule};
use crate::worker::{LEASE_TTL, Launch};
use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

const TTL: Duration = Duration::from_secs(LEASE_TTL);
/// How long a process gets to stop by itself.
const STOP: Duration = Duration::from_secs(60);
/// What the store answers to a write whose condition does not hold.
const CONDITION_FAILED: &str = "ConditionalCheckFailedException";
/// How long nothing happens in [`Scenario::Idle`].
const IDLE: Duration = Duration::from_secs(600);
/// How often a process may write its member row, in seconds.
const MEMBER_INTERVAL: u64 = 30;

/// What happens to three workers and their services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Scenario {
    /// SIGKILL to the owner.
    KillOwner,
    /// SIGTERM to the owner.
    SigtermOwner,
    /// SIGSTOP to the owner for twice the lease TTL, then SIGCONT.
    PauseOwner,
    /// The same while SQS is slow, so that sends are in flight.
    PauseSending,
    /// Only the owner loses its way to the store.
    CutStore,
    /// Only the owner loses its way to the broker.
    CutBroker,
    /// Three of ten answers of the store are lost after the call took effect.
    AnswersLost,
    /// The store answers about as slowly as a renewal may take.
    SlowStore,
    /// The store answers nothing but that there were too many calls.
    Throttled,
    /// The broker restarts and keeps its state.
    BrokerRestarts,
    /// The wall clock of one worker, the owner, steps by an hour.
    ClockStep,
    /// All three are killed and started again at once.
    StartAtOnce,
    /// Every worker is replaced in turn, ten times.
    RollingRestart,
    /// The broker is killed and has forgotten everything when it comes back.
    BrokerForgets,
    /// Nothing happens for ten minutes.
    Idle,
}

impl Scenario {
    /// In this order: the last ones leave a stage that others cannot use, or take long.
    pub(super) const ALL: [Self; 15] = [
        Self::KillOwner,
        Self::SigtermOwner,
        Self::PauseOwner,
        Self::PauseSending,
        Self::CutStore,
        Self::CutBroker,
        Self::AnswersLost,
        Self::SlowStore,
        Self::Throttled,
        Self::BrokerRestarts,
        Self::ClockStep,
        Self::StartAtOnce,
        Self::RollingRestart,
        Self::Idle,
        Self::BrokerForgets,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::KillOwner => "kill_owner",
            Self::SigtermOwner => "sigterm_owner",
            Self::PauseOwner => "pause_owner",
            Self::PauseSending => "pause_sending",
            Self::CutStore => "cut_store",
            Self::CutBroker => "cut_broker",
            Self::AnswersLost => "answers_lost",
            Self::SlowStore => "slow_store",
            Self::Throttled => "throttled",
            Self::BrokerRestarts => "broker_restarts",
            Self::ClockStep => "clock_step",
            Self::StartAtOnce => "start_at_once",
            Self::RollingRestart => "rolling_restart",
            Self::BrokerForgets => "broker_forgets",
            Self::Idle => "idle",
        }
    }

    /// Whether it belongs to the short form.
    pub(super) const fn is_short(self) -> bool {
        matches!(
            self,
            Self::KillOwner
                | Self::SigtermOwner
                | Self::PauseSending
                | Self::CutStore
                | Self::CutBroker
                | Self::AnswersLost
                | Self::BrokerForgets
        )
    }

    pub(super) const fn has_traffic(self) -> bool {
        !matches!(self, Self::Idle)
    }

    /// Whether the next scenario needs another stack.
    pub(super) const fn leaves_ruins(self) -> bool {
        matches!(self, Self::BrokerForgets)
    }

    pub(super) async fn play(self, stage: &mut Stage<'_>) -> Result<()> {
        match self {
            Self::KillOwner => kill_owner(stage).await,
            Self::SigtermOwner => sigterm_owner(stage).await,
            Self::PauseOwner => pause(stage).await,
            Self::PauseSending => {
                let delay = stage.draw_ms(300, 1_500);
                stage.queue()?.inject(Rule::always(Fault::Delay(delay)).of("SendMessageBatch"));
                stage.note(format!("sends take {} ms", delay.as_millis()));
                stage.wait(Duration::from_secs(2)).await;
                pause(stage).await
            }
            Self::CutStore => cut(stage, Peer::Store).await,
            Self::CutBroker => cut(stage, Peer::Broker).await,
            Self::AnswersLost => store_fault(stage, Rule::always(Fault::DropAnswer).percent(30), (6_000, 6_001), (10_000, 25_000)).await,
            Self::SlowStore => {
                let timeout = Duration::from_secs_f64(stage.terms.call_timeout);
                let fault = Fault::DelayBetween(timeout.mul_f64(0.7), timeout.mul_f64(1.3));
                store_fault(stage, Rule::always(fault), (6_000, 6_001), (10_000, 25_000)).await
            }
            Self::Throttled => {
                let fault = Fault::FailBefore { status: 400, code: "ThrottlingException".to_owned() };
                store_fault(stage, Rule::always(fault), (3_000, 6_000), (3_000, 15_000)).await
            }
            Self::BrokerRestarts => broker_restarts(stage).await,
            Self::BrokerForgets => broker_forgets(stage).await,
            Self::ClockStep => clock_step(stage).await,
            Self::StartAtOnce => start_at_once(stage).await,
            Self::RollingRestart => rolling_restart(stage).await,
            Self::Idle => idle(stage).await,
        }
    }
}

/// Sends a signal to a member.
fn signal(stage: &Stage<'_>, member: usize, signal: Signal) {
    stage.field.cluster.members[member].worker.process.signal(signal);
}

/// Waits for a member's end, and starts it again.
async fn again(stage: &mut Stage<'_>, member: usize, clean: bool) -> Result<()> {
    let cluster = &mut stage.field.cluster;
    let status = cluster.members[member].worker.process.wait(STOP).await?;
    ensure!(status.success() || !clean, "{} did not stop cleanly: {status}", cluster.members[member].name());
    cluster.start_again(member).await
}

async fn kill_owner(stage: &mut Stage<'_>) -> Result<()> {
    for _ in 0..if stage.short { 1 } else { 2 } {
        let owner = stage.owner().await?;
        stage.say("SIGKILL to the owner");
        let since = Instant::now();
        signal(stage, owner.member, Signal::KILL);
        stage.successor(&owner, since, stage.terms.owner_death).await?;
        again(stage, owner.member, false).await?;
        let pause = stage.draw_ms(500, 2_500);
        stage.wait(pause).await;
    }
    Ok(())
}

async fn sigterm_owner(stage: &mut Stage<'_>) -> Result<()> {
    for _ in 0..if stage.short { 2 } else { 4 } {
        let owner = stage.owner().await?;
        stage.say("SIGTERM to the owner");
        let since = Instant::now();
        signal(stage, owner.member, Signal::TERM);
        stage.successor(&owner, since, stage.terms.owner_death).await?;
        stage.clean_hand_over();
        again(stage, owner.member, true).await?;
        let pause = stage.draw_ms(500, 2_500);
        stage.wait(pause).await;
    }
    Ok(())
}

async fn pause(stage: &mut Stage<'_>) -> Result<()> {
    let owner = stage.owner().await?;
    stage.say("SIGSTOP to the owner");
    let since = Instant::now();
    signal(stage, owner.member, Signal::STOP);
    let successor = stage.successor(&owner, since, stage.terms.owner_death).await;
    // A scenario that fails here must not leave a process that never ends.
    tokio::time::sleep_until(since + 2 * TTL).await;
    signal(stage, owner.member, Signal::CONT);
    let successor = successor?;
    stage.say("the former owner wakes up");
    stands_by(stage, &owner, &successor).await
}

/// The former owner knows that it is none, and nobody but the successor is.
async fn stands_by(stage: &mut Stage<'_>, former: &HandOver, successor: &HandOver) -> Result<()> {
    stage.field.cluster.members[former.member].worker.stands_by().await?;
    let lease = stage.field.cluster.lease().await?.context("the lease row is gone")?;
    ensure!(lease == successor.lease, "the lease went from {:?} to {lease:?} when its former owner came back", successor.lease);
    Ok(())
}

async fn cut(stage: &mut Stage<'_>, peer: Peer) -> Result<()> {
    let way = [Way::Both, Way::Out, Way::Back][usize::try_from(stage.random.below(3)).unwrap_or_default()];
    stage.note(format!(
        "cut: {}",
        match way {
            Way::Both => "both ways",
            Way::Out => "from the owner",
            Way::Back => "to the owner",
        }
    ));
    let owner = stage.owner().await?;
    stage.say("the owner's way is cut");
    let since = Instant::now();
    stage.link(owner.member)?.cut(peer, way).await?;
    let budget = if peer == Peer::Broker { stage.terms.broker_path } else { stage.terms.owner_death };
    let successor = stage.successor(&owner, since, budget).await?;
    let pause = stage.draw_ms(0, 4_000);
    stage.wait(pause).await;
    stage.link(owner.member)?.heal().await?;
    stage.say("healed");
    stands_by(stage, &owner, &successor).await
}

/// The same fault for every call to the store, for a time drawn between two bounds: those of the short form, or those of the long one.
async fn store_fault(stage: &mut Stage<'_>, rule: Rule, short: (u64, u64), long: (u64, u64)) -> Result<()> {
    stage.owner().await?;
    let (least, most) = if stage.short { short } else { long };
    let time = stage.draw_ms(least, most);
    stage.say(&format!("the store misbehaves for {:.1} s", time.as_secs_f64()));
    let before = stage.store()?.injected();
    stage.store()?.inject(rule);
    stage.wait(time).await;
    let hit = stage.store()?.injected() - before;
    stage.store()?.heal();
    stage.note(format!("{:.1} s, {hit} calls hit", time.as_secs_f64()));
    ensure!(hit > 0, "no call met the fault");
    stage.owner().await.map(drop)
}

async fn broker_restarts(stage: &mut Stage<'_>) -> Result<()> {
    for _ in 0..2 {
        stage.owner().await?;
        let away = stage.draw_ms(0, 2_000);
        stage.say("the broker restarts");
        stage.note(format!("away for {:.1} s", away.as_secs_f64()));
        stage.field.rig.stack.broker.stop().await?;
        stage.wait(away).await;
        stage.field.rig.stack.broker.start_again().await?;
        stage.owner().await?;
        stage.wait(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// The owner is paused for a moment first, so that the broker holds messages that nobody has seen.
async fn broker_forgets(stage: &mut Stage<'_>) -> Result<()> {
    stage.broker_forgets = true;
    let owner = stage.owner().await?;
    let pause = stage.draw_ms(400, 1_200);
    stage.note(format!("killed with what came in {:.1} s", pause.as_secs_f64()));
    signal(stage, owner.member, Signal::STOP);
    stage.wait(pause).await;
    stage.say("the broker is killed");
    let killed = stage.field.rig.stack.broker.kill().await;
    signal(stage, owner.member, Signal::CONT);
    killed?;
    stage.field.rig.stack.broker.set_persistence(false)?;
    stage.field.rig.stack.broker.start_again().await?;
    stage.owner().await?;
    stage.wait(Duration::from_secs(2)).await;
    Ok(())
}

async fn start_at_once(stage: &mut Stage<'_>) -> Result<()> {
    let owner = stage.owner().await?;
    stage.say("all are killed");
    let since = Instant::now();
    for member in 0..NAMES.len() {
        signal(stage, member, Signal::KILL);
    }
    for member in 0..NAMES.len() {
        stage.field.cluster.members[member].worker.process.wait(STOP).await?;
    }
    let connections = stage.field.network.witness().connections();
    for member in &mut stage.field.cluster.members {
        member.worker = member.launch.start()?;
    }
    stage.say("all start at once");
    let next = stage.field.cluster.holder().await?;
    ensure!(next.lease.version > owner.lease.version, "the lease went from {:?} to {:?}", owner.lease, next.lease);
    stage.note(format!("an owner after {:.1} s", next.at.duration_since(since).as_secs_f64()));
    stage.wait(TTL).await;
    let connections = stage.field.network.witness().connections() - connections;
    ensure!(connections == 1, "{connections} connections to the broker were opened, and one owner needs one");
    Ok(())
}

async fn rolling_restart(stage: &mut Stage<'_>) -> Result<()> {
    for round in 1..=10 {
        stage.say(&format!("round {round} of 10"));
        let owner = stage.owner().await?;
        // Standbys first: whoever takes over is a new process then.
        let mut order: Vec<usize> = (0..NAMES.len()).collect();
        order.sort_by_key(|member| *member == owner.member);
        for member in order {
            let since = Instant::now();
            signal(stage, member, Signal::TERM);
            if member == owner.member {
                stage.successor(&owner, since, stage.terms.owner_death).await?;
                stage.clean_hand_over();
            }
            again(stage, member, true).await?;
        }
    }
    Ok(())
}

async fn idle(stage: &mut Stage<'_>) -> Result<()> {
    let first = stage.owner().await?;
    stage.wait(2 * TTL).await;
    let count = |stage: &Stage<'_>| -> Result<(u64, u64)> { Ok((stage.store()?.refused(CONDITION_FAILED), stage.store()?.writes())) };
    let before = count(stage)?;
    let since = Instant::now();
    while since.elapsed() < IDLE {
        stage.say(&format!("nothing happens, for {} s more", (IDLE.saturating_sub(since.elapsed())).as_secs()));
        stage.wait(Duration::from_secs(5)).await;
    }
    let after = count(stage)?;
    let (refused, writes) = (after.0 - before.0, after.1 - before.1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of renewals")]
    let renewals = (IDLE.as_secs_f64() / stage.terms.renew_interval).ceil() as u64;
    let members = NAMES.len() as u64 * (IDLE.as_secs() / MEMBER_INTERVAL + 1);
    let bound = renewals + renewals / 8 + members + 10;
    stage.note(format!("{refused} writes refused, {writes} made; at most {bound} expected"));
    ensure!(refused == 0, "{refused} conditional writes were refused while nothing happened");
    ensure!(writes <= bound, "{writes} writes while nothing happened, and {bound} would do");
    let last = stage.field.cluster.holder().await?;
    ensure!(last.lease == first.lease, "the lease went from {:?} to {:?} while nothing happened", first.lease, last.lease);
    Ok(())
}

/// Lets one worker's wall clock be stepped while it runs; its other clocks stay what they are.
struct SteppedClock {
    file: PathBuf,
    library: PathBuf,
}

impl SteppedClock {
    /// `None`: libfaketime is not installed.
    fn find(dir: &Path) -> Option<Self> {
        let places = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
        let library = places.into_iter().find(|library| library.exists())?;
        Some(Self { file: dir.join("clock"), library })
    }

    fn step(&self, seconds: i64) -> Result<()> {
        // Read by the library at every look at the clock: it must never see half a file.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n")).and_then(|()| std::fs::rename(&new, &self.file)).context("cannot step the clock")
    }

    fn launch(&self, launch: &Launch) -> Launch {
        let mut launch = launch.clone();
        let variables = [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        launch.environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        launch
    }
}

/// The system's clock belongs to everybody on the machine, and namespaces hold no wall clock: one process sees another one through libfaketime.
async fn clock_step(stage: &mut Stage<'_>) -> Result<()> {
    let Some(clock) = SteppedClock::find(&stage.field.rig.launch.dir) else {
        stage.note("skipped: libfaketime is not installed".to_owned());
        return Ok(());
    };
    clock.step(0)?;
    let hour = if stage.random.below(2) == 0 { 3_600 } else { -3_600 };
    stage.note(format!("by {hour:+} s and back"));
    let owner = become_owner_under(stage, &clock).await?;
    for seconds in [hour, 0] {
        stage.say(&format!("its clock steps to {seconds:+} s"));
        clock.step(seconds)?;
        stage.wait(2 * TTL).await;
        let now = stage.owner().await?;
        ensure!(now.lease == owner.lease, "the lease went from {:?} to {:?} when the owner's clock stepped", owner.lease, now.lease);
    }
    // Its last renewal is an hour off for everybody else.
    clock.step(hour)?;
    stage.wait(TTL).await;
    let owner = stage.owner().await?;
    let since = Instant::now();
    signal(stage, owner.member, Signal::KILL);
    stage.successor(&owner, since, stage.terms.owner_death).await?;
    let member = &mut stage.field.cluster.members[owner.member];
    for name in ["LD_PRELOAD", "FAKETIME_TIMESTAMP_FILE"] {
        member.launch.environment.remove(name);
    }
    again(stage, owner.member, false).await
}

/// Replaces a standby by one under `clock`, and lets it take over.
async fn become_owner_under(stage: &mut Stage<'_>, clock: &SteppedClock) -> Result<HandOver> {
    let first = stage.owner().await?;
    let stepped = (first.member + 1) % NAMES.len();
    signal(stage, stepped, Signal::TERM);
    let member = &mut stage.field.cluster.members[stepped];
    member.worker.process.wait(STOP).await?;
    member.launch = clock.launch(&member.launch);
    member.worker = member.launch.start()?;
    member.worker.ready("live").await?;
    loop {
        let owner = stage.owner().await?;
        if owner.member == stepped {
            return Ok(owner);
        }
        let since = Instant::now();
        signal(stage, owner.member, Signal::TERM);
        stage.successor(&owner, since, stage.terms.owner_death).await?;
        stage.clean_hand_over();
        again(stage, owner.member, true).await?;
    }
}
