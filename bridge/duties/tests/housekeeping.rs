//! Housekeeping on stores in memory: beside a live owner, and on what nobody owns.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use async_trait::async_trait;
use bytes::Bytes;
use causeway_core::dead_letter::Destination;
use causeway_core::drain::BatchLimits;
use causeway_core::drain::retry::Backoff;
use causeway_core::hold::Order;
use causeway_core::housekeeping::Request;
use causeway_core::identity::{ConnectionEpoch, DeliveryId, Epoch, Id128, LaneId, LogName, Slot, partition_of_process};
use causeway_core::lease::row::{LeaseRow, OwnerFacts, Tuple};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::log::{Answer, Call};
use causeway_core::message::Message;
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::rows::Head;
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::options::{Delivery, Fate, LegOptions, OwnerOptions, Policy, to_first_legs};
use causeway_core::worker::{Effect, Event, Owner};
use causeway_duties::housekeeping::{Bridge, Chores, Depth, Ports, Pruned, Report, run};
use causeway_local::memory::{MemoryDeadLetters, MemoryLeases, MemoryOutbox};
use causeway_ports::fake::FakeClock;
use causeway_ports::{Clock, DeadLetterFilter, DeadLetters, Leases, LogRecord, LogState, MemberRecord, Outbox};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use support::{BRIDGE, anchor, entry, log, routes, segment};

struct NoTables;

#[async_trait]
impl Chores for NoTables {
    async fn dead_letters(&self, _: Instant) -> Result<Option<Depth>, Fault> {
        Ok(Some(Depth { letters: 2, oldest: None }))
    }
    async fn prune_ledger(&self, _: UnixMillis, _: Option<&str>, _: usize, _: bool) -> Result<Pruned, Fault> {
        Ok(Pruned::default())
    }
    async fn remove_log(&self, _: &LogRecord) -> Outcome<bool> {
        Outcome::Done(true)
    }
}

struct World {
    outbox: Arc<MemoryOutbox>,
    letters: Arc<MemoryDeadLetters>,
    leases: Arc<MemoryLeases>,
    clock: Arc<FakeClock>,
    ports: Ports,
}

fn world() -> World {
    let (outbox, letters) = (Arc::new(MemoryOutbox::new()), Arc::new(MemoryDeadLetters::new()));
    let (leases, clock) = (Arc::new(MemoryLeases::new()), Arc::new(FakeClock::new()));
    let ports = Ports {
        outbox: Arc::clone(&outbox) as Arc<dyn Outbox>,
        leases: Some(Arc::clone(&leases) as Arc<dyn Leases>),
        letters: Arc::clone(&letters) as Arc<dyn DeadLetters>,
        commands: None,
        chores: Arc::new(NoTables),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
    };
    World { outbox, letters, leases, clock, ports }
}

impl World {
    async fn sweep(&self, event: &Value) -> Report {
        self.sweep_keeping(event, Duration::ZERO).await
    }

    async fn sweep_keeping(&self, event: &Value, keep_settled: Duration) -> Report {
        let request = Request::parse(event, BRIDGE).unwrap();
        let bridge = Bridge { routes: routes(), lease_ttl: BTreeMap::new(), keep_settled, random: 1 << 100 };
        run(&request, &bridge, &self.ports, Instant::from_nanos(u64::MAX)).await.unwrap()
    }

    /// The lease of session `s`, released so many minutes ago.
    async fn released(&self, session: &str, minutes: u64) {
        let at = UnixMillis(self.clock.wall().0 - minutes * 60_000);
        let tuple = Tuple { owner: String::new(), version: 1, renewed_at: at, expires_at: UnixMillis(0) };
        let row = LeaseRow { tuple, acquired_at: at, evidence: None, facts: OwnerFacts::default() };
        let outcome = self.leases.write(&format!("LEASE#{session}"), &LeaseWrite { condition: Condition::Absent, row }).await;
        assert_eq!(outcome, Outcome::Done(LeaseAnswer::Written));
    }

    /// A log with these segments, 5 entries each, every `expired`-th of which expired.
    async fn log_of(&self, session: &str, segments: u64, expired: u128) {
        self.record_of(session, 1, LogState::Open).await;
        self.lane_of(&log(session), segments, expired).await;
    }

    async fn record_of(&self, session: &str, lanes: u32, state: LogState) {
        let record = LogRecord { log: log(session), epoch: Epoch(1), lanes, state };
        assert!(matches!(self.outbox.replace_record(&record, None).await, Outcome::Done(true)));
    }

    async fn lane_of(&self, log: &LogName, segments: u64, expired: u128) {
        self.outbox.put(log, Slot(1), &anchor(1, UnixMillis(1), 0, false)).await.done().unwrap();
        for slot in 2..segments + 2 {
            let entries: Vec<_> = (0..5)
                .map(|index| {
                    let id = (u128::from(log.lane().0) << 64) + u128::from(slot) * 5 + index;
                    entry(id, "r", (id % expired == 0).then_some(UnixMillis(10)))
                })
                .collect();
            self.outbox.put(log, Slot(slot), &segment(&entries, 1_000 + u128::from(slot))).await.done().unwrap();
        }
    }

    async fn dead(&self) -> Vec<Id128> {
        let page = self.letters.list(&DeadLetterFilter::default(), 1_000_000, None).await.unwrap();
        page.letters.iter().map(|letter| letter.id).collect()
    }

    async fn rows(&self, session: &str) -> usize {
        self.rows_of(&log(session)).await
    }

    async fn rows_of(&self, log: &LogName) -> usize {
        let (mut after, mut rows) = (Slot(0), 0);
        loop {
            let page = self.outbox.read_page(log, after, Slot(u64::MAX - 1)).await.unwrap();
            rows += page.rows.len();
            match page.next_after {
                Some(next) => after = next,
                None => return rows,
            }
        }
    }
}

fn sweep() -> Value {
    json!({"op": "sweep"})
}

#[tokio::test]
async fn what_expired_where_nobody_owns_the_log_becomes_a_dead_letter_and_the_rest_stays() {
    let world = world();
    world.log_of("s", 40, 2).await;
    world.released("s", 11).await;
    let dry = world.sweep(&json!({"op": "sweep", "dry_run": true})).await;
    assert_eq!((dry.swept.expired_to_dlq, world.dead().await.len()), (100, 0));
    assert_eq!((dry.gauges.outbox_pending, dry.gauges.logs_without_owner, dry.gauges.dlq_depth), (Some(200), Some(1), Some(2)));
    let report = world.sweep(&sweep()).await;
    assert_eq!((report.swept.expired_to_dlq, report.swept.conflicts, &report.errors, &report.continuation), (100, 0, &Vec::new(), &None));
    assert_eq!(world.dead().await.len(), 100);
    let again = world.sweep(&sweep()).await;
    assert_eq!(
        (again.swept.expired_to_dlq, again.gauges.outbox_pending),
        (0, Some(100)),
        "settled for good, and what is fresh waits for its owner"
    );
    let lease = LeaseRow::try_from(world.leases.read("LEASE#s").await.unwrap().unwrap()).unwrap();
    assert!(lease.tuple.is_released() && lease.tuple.version == 2);
}

/// No row is written after the last ones that tells when they were settled: that nobody has owned the log for that long does.
#[tokio::test]
async fn the_last_settled_rows_of_a_log_without_owner_go_once_they_were_kept_for_their_time() {
    let world = world();
    world.log_of("s", 4, 1_000_000).await;
    let head = Head { epoch: Epoch(1), revision: 1, drained: Slot(5), settled_ahead: Vec::new(), attempts: Vec::new() };
    assert_eq!(world.outbox.put_head(&log("s"), &head).await, Outcome::Done(true));
    let hour = Duration::from_secs(3_600);
    world.released("s", 60).await;
    assert_eq!(world.sweep_keeping(&sweep(), hour).await.swept.segments_deleted, 0, "a moment longer than the time itself");
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(world.sweep_keeping(&sweep(), hour * 2).await.swept.segments_deleted, 0);
    assert_eq!(world.sweep_keeping(&sweep(), hour).await.swept.segments_deleted, 3, "the last row marks the log's position");
    assert_eq!(world.sweep_keeping(&sweep(), hour).await.swept.segments_deleted, 0);
}

#[tokio::test]
async fn a_log_that_no_configuration_names_goes_to_the_dead_letters_whole() {
    let world = world();
    world.log_of("gone", 20, 1_000_000).await;
    world.released("gone", 60).await;
    let report = world.sweep(&sweep()).await;
    assert_eq!((report.swept.orphans_to_dlq, report.swept.expired_to_dlq), (100, 0));
    let again = world.sweep(&sweep()).await;
    assert_eq!((again.gauges.outbox_pending, again.swept.orphans_to_dlq), (Some(0), 0));
}

#[tokio::test]
async fn a_log_is_left_alone_while_its_lease_is_young_or_a_member_lives() {
    let world = world();
    world.log_of("s", 4, 1).await;
    let before = world.rows("s").await;
    assert_eq!(world.sweep(&sweep()).await.swept.expired_to_dlq, 0, "never had a lease: nobody can tell whether its owner lives");
    world.released("s", 11).await;
    let member =
        MemberRecord { bridge: BRIDGE.to_owned(), owner: "w#1".to_owned(), written_at: world.clock.wall(), ..MemberRecord::default() };
    assert!(matches!(world.leases.put_member(&member).await, Outcome::Done(())));
    assert_eq!(world.sweep(&sweep()).await.swept.expired_to_dlq, 0);
    assert_eq!(world.rows("s").await, before, "not even an anchor");
    assert!(matches!(world.leases.remove_member(BRIDGE, "w#1").await, Outcome::Done(())));
    assert_eq!(world.sweep(&sweep()).await.swept.expired_to_dlq, 20);
}

#[tokio::test]
async fn a_long_log_is_swept_in_parts_each_beginning_where_the_last_one_stopped() {
    let world = world();
    world.log_of("gone", 200, 1_000_000).await;
    world.released("gone", 60).await;
    let mut event = json!({"op": "sweep", "max_items": 150});
    let (mut moved, mut rounds) = (0, 0);
    loop {
        let report = world.sweep(&event).await;
        assert!(report.errors.is_empty(), "{report:?}");
        moved += report.swept.orphans_to_dlq;
        rounds += 1;
        assert!(rounds < 50);
        let Some(at) = report.continuation else { break };
        event["continuation"] = json!(at);
    }
    assert_eq!((moved, world.dead().await.len()), (1_000, 1_000));
    assert!(rounds > 5, "{rounds}");
}

#[tokio::test]
async fn garbage_and_old_anchors_go_without_a_lease_and_the_tail_stays() {
    let world = world();
    world.log_of("s", 10, 1).await;
    let head = Head { epoch: Epoch(1), drained: Slot(8), ..Head::default() };
    assert!(matches!(world.outbox.put_head(&log("s"), &head).await, Outcome::Done(true)));
    let report = world.sweep(&sweep()).await;
    assert_eq!((report.swept.segments_deleted, report.swept.anchors_pruned), (7, 1), "the anchor is of 1970");
    assert_eq!(report.gauges.outbox_pending, Some(15));
    assert_eq!(world.rows("s").await, 3);
    let all = Head { revision: 1, drained: Slot(11), ..head };
    assert!(matches!(world.outbox.put_head(&log("s"), &all).await, Outcome::Done(true)));
    world.sweep(&sweep()).await;
    assert_eq!(world.rows("s").await, 1, "the tail marks the log's position");
}

/// Two lanes of a log that nobody owns are swept under one lease; each keeps its place.
#[tokio::test]
async fn every_lane_of_a_log_is_looked_at_and_swept() {
    let world = world();
    let lanes = [0, 1].map(|lane| log("s").in_lane(LaneId(lane)));
    world.record_of("s", 2, LogState::Open).await;
    world.lane_of(&lanes[0], 10, 2).await;
    world.lane_of(&lanes[1], 20, 2).await;
    world.released("s", 11).await;
    let dry = world.sweep(&json!({"op": "sweep", "dry_run": true})).await;
    assert_eq!((dry.swept.expired_to_dlq, dry.gauges.outbox_pending, dry.gauges.logs_without_owner), (75, Some(150), Some(1)));
    let report = world.sweep(&sweep()).await;
    assert_eq!((report.swept.expired_to_dlq, report.swept.conflicts, &report.errors, &report.continuation), (75, 0, &Vec::new(), &None));
    assert_eq!(world.dead().await.len(), 75);
    for lane in &lanes {
        let tail = world.outbox.read_tail(lane).await.unwrap().unwrap();
        assert_eq!(tail.epoch, Epoch(2), "{lane} was opened under the lease");
    }
    let again = world.sweep(&sweep()).await;
    assert_eq!((again.swept.expired_to_dlq, again.gauges.outbox_pending), (0, Some(75)));
    let lease = LeaseRow::try_from(world.leases.read("LEASE#s").await.unwrap().unwrap()).unwrap();
    assert_eq!((lease.tuple.is_released(), lease.tuple.version), (true, 2), "taken once for both lanes");
}

#[tokio::test]
async fn garbage_of_every_lane_goes_and_a_log_is_removed_only_when_all_its_lanes_are_old() {
    let world = world();
    let lanes = [0, 1].map(|lane| log("s").in_lane(LaneId(lane)));
    world.record_of("s", 2, LogState::Retired).await;
    for lane in &lanes {
        world.lane_of(lane, 10, 1_000).await;
        let head = Head { epoch: Epoch(1), drained: Slot(11), ..Head::default() };
        assert!(matches!(world.outbox.put_head(lane, &head).await, Outcome::Done(true)));
    }
    world.outbox.put(&lanes[0], Slot(12), &anchor(2, UnixMillis(1), 11, true)).await.done().unwrap();
    world.outbox.put(&lanes[1], Slot(12), &anchor(2, world.clock.wall(), 11, true)).await.done().unwrap();
    let report = world.sweep(&sweep()).await;
    assert_eq!((report.swept.segments_deleted, report.swept.anchors_pruned, report.swept.logs_removed), (20, 2, 0), "lane 1 closed lately");
    assert_eq!((world.rows_of(&lanes[0]).await, world.rows_of(&lanes[1]).await), (1, 1));
    world.clock.advance(Duration::from_secs(31 * 24 * 3_600));
    assert_eq!(world.sweep(&sweep()).await.swept.logs_removed, 1);
}

/// The log of one process has a lease of its own, whatever its session's lease says.
#[tokio::test]
async fn the_log_of_one_process_is_swept_under_its_own_lease() {
    let world = world();
    let partition = partition_of_process("s", 7);
    world.log_of(&partition, 4, 1).await;
    world.released("s", 60).await;
    assert_eq!(world.sweep(&sweep()).await.swept.expired_to_dlq, 0, "the lease of the session is another");
    world.released(&format!("log:{partition}"), 60).await;
    assert_eq!(world.sweep(&sweep()).await.swept.expired_to_dlq, 20);
}

fn owner_options() -> OwnerOptions {
    let second = Duration::from_secs(1);
    let policy = Policy {
        max_in_flight: 4,
        max_replay_attempts: 0,
        replay_budget: second,
        on_expired: Fate::DeadLetter,
        on_permanent_failure: Fate::DeadLetter,
        backoff: Backoff { initial: second, max: second, multiplier: 2.0, jitter: 0.0 },
        send_timeout: second,
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
        limits: BatchLimits { entries: 10, bytes: 1 << 20, entry_bytes: 1 << 20 },
        size_of: Arc::new(|entry| entry.message.payload.len()),
        key_of: Arc::new(|_| None),
    };
    OwnerOptions {
        owner: "w#1".to_owned(),
        dispatch: to_first_legs(core::slice::from_ref(&route)),
        legs: vec![route],
        epoch: Some(Epoch(2)),
        acknowledge: Order::OfArrival,
        limits: Vec::new(),
        ack_hold: None,
        quota: None,
        store: None,
        lanes: 1,
        mailbox_poll: None,
        retire_when_drained: false,
        segment: causeway_core::log::writer::SegmentOptions::default(),
        send_linger: Duration::ZERO,
        max_settled_ahead: 10_000,
        keep_settled: Duration::ZERO,
        memory_entries: 100,
        memory_bytes: 1 << 20,
        entry_id_base: 1 << 90,
        row_id_base: 1 << 80,
        jitter_seed: 1,
    }
}

/// A live owner takes, sends and settles while housekeeping runs again and again: nothing is sent twice, nothing is lost, nobody is fenced.
#[tokio::test]
async fn beside_a_live_owner_under_load_no_entry_is_touched() {
    let world = world();
    let (mut owner, mut waiting) = (Owner::new(owner_options()), VecDeque::from([Event::Tick]));
    let record = LogRecord { log: log("s"), epoch: Epoch(2), lanes: 1, state: LogState::Open };
    // The row of an owner that renewed a moment ago.
    let now = world.clock.wall();
    let tuple = Tuple { owner: "w#1".into(), version: 2, renewed_at: now, expires_at: now.plus(Duration::from_secs(3_600)) };
    let row = LeaseRow { tuple, acquired_at: now, evidence: None, facts: OwnerFacts::default() };
    assert!(matches!(
        world.leases.write("LEASE#s", &LeaseWrite { condition: Condition::Absent, row }).await,
        Outcome::Done(LeaseAnswer::Written)
    ));
    let (mut sent, mut given, mut deleted) = (BTreeMap::<Id128, u32>::new(), 0_u64, 0);
    for round in 0..40_000_u64 {
        if given < 3_000 && owner.wants_input() && round % 3 == 0 {
            given += 1;
            let message = Message { topic: "t".into(), payload: Bytes::from(given.to_string()), ..Message::default() };
            waiting.push_back(Event::Delivered {
                delivery: DeliveryId { connection: ConnectionEpoch(1), ordinal: given },
                receiver: "in".into(),
                message,
            });
        }
        if round % 97 == 0 {
            let report = world.sweep(&json!({"op": "sweep", "max_items": 1_000_000})).await;
            assert!(report.errors.is_empty() && report.swept.expired_to_dlq + report.swept.orphans_to_dlq == 0, "{report:?}");
            deleted += report.swept.segments_deleted;
        }
        world.clock.advance(Duration::from_millis(1));
        let event = waiting.pop_front().unwrap_or(Event::Tick);
        for effect in owner.apply(world.clock.now(), world.clock.wall(), event) {
            match effect {
                Effect::Log { lane, call } => waiting.push_back(Event::Log { lane, answer: answer(&world.outbox, &record, &call).await }),
                Effect::Send { batch, entries, .. } => {
                    entries.iter().for_each(|entry| *sent.entry(entry.id).or_default() += 1);
                    waiting.push_back(Event::Sent { batch, outcomes: entries.iter().map(|_| Outcome::Done(())).collect() });
                }
                Effect::Park { .. } => panic!("nothing dies"),
                Effect::Finished(end) => panic!("{end:?}"),
                Effect::Acknowledge(_)
                | Effect::CloseSource
                | Effect::Observe(_)
                | Effect::ReadMail { .. }
                | Effect::Quota(_)
                | Effect::Reconnect => {}
            }
        }
        if given == 3_000 && owner.unsettled() == 0 && waiting.is_empty() {
            break;
        }
    }
    assert_eq!((given, sent.len(), sent.values().max().copied()), (3_000, 3_000, Some(1)));
    assert_eq!(world.dead().await.len(), 0);
    assert!(deleted > 0, "housekeeping found garbage to delete");
}

async fn answer(outbox: &MemoryOutbox, record: &LogRecord, call: &Call) -> Answer {
    let log = &record.log;
    match call {
        Call::ReadTail => Answer::Tail(outbox.read_tail(log).await),
        Call::ReadHead => Answer::Head(outbox.read_head(log).await),
        Call::ReadRecord => Answer::Record(outbox.read_record(log).await.map(|record| record.map(|record| record.registration()))),
        Call::Register { record, replaces } => {
            Answer::Registered(outbox.replace_record(&LogRecord::new(log.clone(), *record), *replaces).await)
        }
        Call::MoveMail { .. } => panic!("no mail is moved here"),
        Call::Put { slot, row } => Answer::Put(outbox.put(log, *slot, row).await),
        Call::ReadPage { purpose, after, up_to } => Answer::Page { purpose: *purpose, page: outbox.read_page(log, *after, *up_to).await },
        Call::PutHead { head } => Answer::HeadPut(outbox.put_head(log, head).await),
        Call::Delete { slots } => Answer::Deleted(outbox.delete(log, slots).await),
    }
}
