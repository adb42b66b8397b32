//! Housekeeping of commands, on stores in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use async_trait::async_trait;
use causeway_core::commands::gateway::{Created, Written};
use causeway_core::commands::{Command, CommandResult, Event, Rules, State, Step, Verdict};
use causeway_core::housekeeping::Request;
use causeway_core::identity::Id128;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::source_id::ContentDigest;
use causeway_core::units::{Instant, UnixMillis};
use causeway_duties::housekeeping::{Bridge, Chores, Depth, KeptCommands, Ports, Pruned, Report, run};
use causeway_local::memory::{MemoryCommands, MemoryDeadLetters, MemoryOutbox};
use causeway_ports::fake::FakeClock;
use causeway_ports::{Clock, Commands, DUE_SHARDS, DuePage, LogRecord, OrphanAnswer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{BRIDGE, RealClock, routes};

const RETENTION: Duration = Duration::from_secs(3_600);
const ORPHANS_KEPT: Duration = Duration::from_secs(600);
const RULES: Rules = Rules { late_window: Duration::from_secs(60), no_subscriber_fails: false };

/// A ledger that tells how often it was tidied.
#[derive(Default)]
struct Ledger(AtomicU64);

#[async_trait]
impl Chores for Ledger {
    async fn dead_letters(&self, _: Instant) -> Result<Option<Depth>, Fault> {
        Ok(Some(Depth::default()))
    }
    async fn prune_ledger(&self, _: UnixMillis, _: Option<&str>, _: usize, _: bool) -> Result<Pruned, Fault> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Pruned::default())
    }
    async fn remove_log(&self, _: &LogRecord) -> Outcome<bool> {
        Outcome::Done(true)
    }
}

struct World {
    store: Arc<MemoryCommands>,
    ledger: Arc<Ledger>,
    clock: Arc<FakeClock>,
    ports: Ports,
}

fn world() -> World {
    let store = Arc::new(MemoryCommands::new(RETENTION, ORPHANS_KEPT));
    let (ledger, clock) = (Arc::new(Ledger::default()), Arc::new(FakeClock::new()));
    clock.set_wall(RealClock.wall());
    let ports = Ports {
        outbox: Arc::new(MemoryOutbox::new()),
        leases: None,
        letters: Arc::new(MemoryDeadLetters::new()),
        commands: Some(kept(Arc::clone(&store) as Arc<dyn Commands>)),
        chores: Arc::clone(&ledger) as Arc<dyn Chores>,
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
    };
    World { store, ledger, clock, ports }
}

fn kept(store: Arc<dyn Commands>) -> KeptCommands {
    KeptCommands { store, rules: RULES, retention: RETENTION }
}

fn sweep() -> Value {
    json!({"op": "sweep"})
}

impl World {
    async fn sweep(&self, event: &Value) -> Report {
        let request = Request::parse(event, BRIDGE).unwrap();
        let bridge = Bridge { routes: routes(), lease_ttl: BTreeMap::new(), keep_settled: Duration::ZERO, random: 1 << 100 };
        run(&request, &bridge, &self.ports, Instant::from_nanos(u64::MAX)).await.unwrap()
    }

    /// A command whose time of ten seconds began so long ago.
    async fn given(&self, id: u128, ago: Duration) -> Command {
        let began = UnixMillis(self.clock.wall().0 - u64::try_from(ago.as_millis()).unwrap());
        let command = Command::new(Id128(id), "pump-1", "worker-1", began, Duration::from_secs(10));
        assert!(matches!(self.store.create(&command, None, &[1; 32]).await, Outcome::Done(Created::New(_))));
        command
    }

    async fn answered(&self, command: &Command, after: Duration) -> Command {
        let event = Event::Answered { by: "pump-1", verdict: Verdict::Succeeded, answer: [7; 32] };
        let Step::Write(next) = command.on(&event, command.created_at.plus(after), &RULES) else { panic!("it does not count") };
        assert!(matches!(self.store.write(&next, Some(&CommandResult::default())).await, Outcome::Done(Written::Stands(_))));
        *next
    }

    async fn orphan(&self, id: u128, ago: Duration) {
        let came_at = UnixMillis(self.clock.wall().0 - u64::try_from(ago.as_millis()).unwrap());
        let orphan = OrphanAnswer { id: Id128(id), by: "pump-1".to_owned(), came_at };
        assert!(matches!(self.store.keep_orphan(&orphan).await, Outcome::Done(())));
    }

    async fn state(&self, id: u128) -> Option<State> {
        self.store.standing(Id128(id)).await.unwrap().map(|command| command.state)
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn what_is_overdue_is_timed_out_and_what_is_not_stays() {
    let world = world();
    for id in 0..60 {
        world.given(id, seconds(11)).await;
    }
    world.given(100, seconds(5)).await;
    let ended = world.given(101, seconds(20)).await;
    world.answered(&ended, seconds(3)).await;
    let report = world.sweep(&sweep()).await;
    assert_eq!((report.swept.commands_timed_out, report.swept.commands_deleted, report.swept.conflicts), (60, 0, 0), "{report:?}");
    assert_eq!((world.state(59).await, world.state(100).await), (Some(State::TimedOut), Some(State::Created)));
    assert_eq!(world.state(101).await, Some(State::Succeeded));
    assert_eq!(world.sweep(&sweep()).await.swept.commands_timed_out, 0, "once");
    world.clock.advance(seconds(5));
    assert_eq!(world.sweep(&sweep()).await.swept.commands_timed_out, 1);
}

/// R4: a timeout is not the end.
#[tokio::test]
async fn an_answer_after_the_sweep_still_counts_and_is_late() {
    let world = world();
    world.given(1, seconds(11)).await;
    world.sweep(&sweep()).await;
    let row = world.store.standing(Id128(1)).await.unwrap().unwrap();
    let done = world.answered(&row, seconds(30)).await;
    assert_eq!((done.state, done.late), (State::Succeeded, true));
    assert_eq!(world.sweep(&sweep()).await.swept, causeway_duties::housekeeping::Swept::default());
}

#[tokio::test]
async fn what_is_older_than_its_retention_is_deleted_even_if_nobody_ended_it_before() {
    let world = world();
    let ended = world.given(1, RETENTION + seconds(11)).await;
    world.answered(&ended, seconds(3)).await;
    world.given(2, RETENTION + seconds(11)).await;
    let kept = world.given(3, RETENTION).await;
    world.answered(&kept, seconds(3)).await;
    let dry = world.sweep(&json!({"op": "sweep", "dry_run": true})).await;
    assert_eq!((dry.swept.commands_timed_out, dry.swept.commands_deleted), (1, 2));
    assert_eq!((world.state(1).await, world.state(2).await), (Some(State::Succeeded), Some(State::Created)), "nothing was changed");
    let report = world.sweep(&sweep()).await;
    assert_eq!((report.swept.commands_timed_out, report.swept.commands_deleted, report.swept.conflicts), (1, 2, 0));
    assert_eq!((world.state(1).await, world.state(2).await, world.state(3).await), (None, None, Some(State::Succeeded)));
}

/// R6.
#[tokio::test]
async fn an_answer_to_nobody_goes_after_its_time_and_one_whose_command_came_is_told_apart() {
    let world = world();
    world.orphan(1, seconds(601)).await;
    world.orphan(2, seconds(300)).await;
    world.orphan(3, seconds(700)).await;
    world.given(3, seconds(5)).await;
    let dry = world.sweep(&json!({"op": "sweep", "dry_run": true})).await;
    assert_eq!((dry.swept.command_orphans_deleted, dry.swept.command_orphans_adopted), (1, 1));
    let report = world.sweep(&sweep()).await;
    assert_eq!((report.swept.command_orphans_deleted, report.swept.command_orphans_adopted), (1, 1));
    assert!(world.store.orphan(Id128(2)).await.unwrap().is_some());
    assert_eq!(world.state(3).await, Some(State::Created), "its own time is not over");
    let again = world.sweep(&sweep()).await.swept;
    assert_eq!((again.command_orphans_deleted, again.command_orphans_adopted), (0, 0));
}

#[tokio::test]
async fn a_run_stops_at_its_limit_and_the_next_one_goes_on() {
    let world = world();
    for id in 0..200 {
        world.given(id, seconds(11)).await;
    }
    let mut event = json!({"op": "sweep", "max_items": 30});
    let mut counts = Vec::new();
    loop {
        let report = world.sweep(&event).await;
        counts.push(report.swept.commands_timed_out);
        let Some(at) = report.continuation else { break };
        event["continuation"] = json!(at);
        assert!(counts.len() < 20);
    }
    assert_eq!((counts.iter().sum::<u64>(), counts.iter().all(|count| *count <= 30)), (200, true), "{counts:?}");
    assert_eq!(world.ledger.0.load(Ordering::SeqCst), 1, "the ledger comes after them");
}

/// A dry run sees more than one page although nothing that it looked at goes away.
#[tokio::test]
async fn a_dry_run_tells_of_everything_that_is_due_and_goes_on_like_any_other() {
    let world = world();
    for id in 0..100 {
        world.given(id * u128::from(DUE_SHARDS), seconds(11)).await;
    }
    let whole = world.sweep(&json!({"op": "sweep", "dry_run": true})).await;
    assert_eq!((whole.swept.commands_timed_out, &whole.continuation), (100, &None));
    let first = world.sweep(&json!({"op": "sweep", "dry_run": true, "max_items": 60})).await;
    let rest = world.sweep(&json!({"op": "sweep", "dry_run": true, "max_items": 60, "continuation": first.continuation})).await;
    assert_eq!((first.swept.commands_timed_out, rest.swept.commands_timed_out, rest.continuation), (60, 40, None));
}

#[tokio::test]
async fn after_its_deadline_a_run_begins_nothing() {
    let world = world();
    world.given(1, seconds(11)).await;
    let request = Request::parse(&sweep(), BRIDGE).unwrap();
    let bridge = Bridge { routes: routes(), lease_ttl: BTreeMap::new(), keep_settled: Duration::ZERO, random: 1 << 100 };
    let report = run(&request, &bridge, &world.ports, world.clock.now()).await.unwrap();
    assert_eq!((report.swept.commands_timed_out, report.continuation.is_some()), (0, true));
    assert_eq!(world.state(1).await, Some(State::Created));
}

/// Commands 1 and 2: the first is answered between the look at it and the write, the second cannot be read.
struct Disturbed(Arc<MemoryCommands>);

#[async_trait]
impl Commands for Disturbed {
    async fn create(&self, command: &Command, key: Option<&str>, digest: &ContentDigest) -> Outcome<Created> {
        self.0.create(command, key, digest).await
    }
    async fn read(&self, id: Id128) -> Result<Option<Command>, Fault> {
        self.0.read(id).await
    }
    async fn standing(&self, id: Id128) -> Result<Option<Command>, Fault> {
        if id == Id128(2) { Err(Fault::new(FaultCode::InvalidConfig, "it cannot be read")) } else { self.0.standing(id).await }
    }
    async fn write(&self, command: &Command, result: Option<&CommandResult>) -> Outcome<Written> {
        if command.id == Id128(1) {
            let row = self.0.standing(command.id).await.unwrap().unwrap();
            let event = Event::Answered { by: "pump-1", verdict: Verdict::Succeeded, answer: [7; 32] };
            let Step::Write(next) = row.on(&event, row.created_at, &RULES) else { panic!() };
            assert!(matches!(self.0.write(&next, Some(&CommandResult::default())).await, Outcome::Done(Written::Stands(_))));
        }
        self.0.write(command, result).await
    }
    async fn result(&self, id: Id128) -> Result<Option<CommandResult>, Fault> {
        self.0.result(id).await
    }
    async fn keep_orphan(&self, orphan: &OrphanAnswer) -> Outcome<()> {
        self.0.keep_orphan(orphan).await
    }
    async fn orphan(&self, id: Id128) -> Result<Option<OrphanAnswer>, Fault> {
        self.0.orphan(id).await
    }
    async fn due(&self, shard: u8, until: UnixMillis, after: Option<&str>, limit: usize) -> Result<DuePage, Fault> {
        if shard == 9 { Err(Fault::new(FaultCode::Unavailable, "not now")) } else { self.0.due(shard, until, after, limit).await }
    }
    async fn delete(&self, command: &Command) -> Outcome<bool> {
        self.0.delete(command).await
    }
    async fn delete_orphan(&self, id: Id128) -> Outcome<()> {
        self.0.delete_orphan(id).await
    }
    async fn probe(&self) -> Result<(), Fault> {
        self.0.probe().await
    }
    async fn create_tables(&self) -> Result<Vec<String>, Fault> {
        self.0.create_tables().await
    }
}

#[tokio::test]
async fn an_answer_wins_over_the_sweep_and_what_fails_is_told_and_keeps_nothing_else_from_being_done() {
    let mut world = world();
    for id in [1, 2, 3, 9] {
        world.given(id, seconds(11)).await;
    }
    world.ports.commands = Some(kept(Arc::new(Disturbed(Arc::clone(&world.store)))));
    let report = world.sweep(&sweep()).await;
    assert_eq!((report.swept.commands_timed_out, report.swept.conflicts), (1, 1));
    assert_eq!(world.state(1).await, Some(State::Succeeded));
    assert_eq!(world.state(3).await, Some(State::TimedOut));
    let told: Vec<&str> = report.errors.iter().map(|error| error.id.as_str()).collect();
    assert_eq!(told, [format!("commands/{}", Id128(2)).as_str(), "commands"]);
    assert_eq!(world.ledger.0.load(Ordering::SeqCst), 1, "the ledger is tidied all the same");
}
