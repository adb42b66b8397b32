//! Redrives on stores in memory, with the failures that a test injects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use async_trait::async_trait;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::identity::Slot;
use causeway_core::mailbox::{Mail, MailboxName};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::redrive::Request;
use causeway_core::units::Instant;
use causeway_duties::Store;
use causeway_duties::redrive::{Counts, Ports, Report, run};
use causeway_local::memory::{MemoryDeadLetters, MemoryOutbox, MemoryRedrives};
use causeway_ports::fake::FakeSink;
use causeway_ports::{DeadLetterFilter, DeadLetters, Mailbox, Moved, Outbox, PutBack, Redrives, Sink, SinkLimits};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{BRIDGE, RealClock, letter, log, routes, segment};

/// Lets each call through until one is met that ends the run as a killed process would: before it, or after it without its answer.
#[derive(Clone)]
struct Dying {
    inner: Arc<dyn Redrives>,
    /// Calls until the end; two for each, before and after.
    left: Arc<AtomicU32>,
}

impl Dying {
    fn point(&self) -> Option<Fault> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1))).unwrap();
        (left <= 1).then(|| Fault::new(FaultCode::NotAuthorized, "killed here"))
    }
}

#[async_trait]
impl Redrives for Dying {
    async fn put_back(&self, letter: &DeadLetter, mailbox: &MailboxName, mail: &Mail, request: &str) -> Outcome<PutBack> {
        if let Some(fault) = self.point() {
            return Outcome::NotDone(fault);
        }
        let outcome = self.inner.put_back(letter, mailbox, mail, request).await;
        self.point().map_or(outcome, Outcome::NotDone)
    }

    async fn mark_redriven(&self, letter: &DeadLetter, request: &str) -> Outcome<PutBack> {
        if let Some(fault) = self.point() {
            return Outcome::NotDone(fault);
        }
        self.inner.mark_redriven(letter, request).await
    }

    async fn set_aside(&self, letter: &DeadLetter) -> Outcome<PutBack> {
        self.inner.set_aside(letter).await
    }
}

struct World {
    letters: Arc<MemoryDeadLetters>,
    outbox: Arc<MemoryOutbox>,
    sink: Arc<FakeSink>,
    ports: Ports,
}

async fn world(letters: impl IntoIterator<Item = DeadLetter>) -> World {
    let (store, outbox) = (Arc::new(MemoryDeadLetters::new()), Arc::new(MemoryOutbox::new()));
    for letter in letters {
        assert!(matches!(store.park(&letter).await, Outcome::Done(())));
    }
    let redrives = Arc::new(MemoryRedrives::new(Arc::clone(&store), Arc::clone(&outbox)));
    let sink = Arc::new(FakeSink::new(SinkLimits { batch_entries: 10, batch_bytes: 1 << 20, entry_bytes: 1 << 20 }));
    let sinks = [("sender".to_owned(), Arc::clone(&sink) as Arc<dyn Sink>)].into();
    let ports = Ports { letters: Arc::clone(&store) as Arc<dyn DeadLetters>, redrives, sinks, clock: Arc::new(RealClock) };
    World { letters: store, outbox, sink, ports }
}

impl World {
    async fn run(&self, event: &Value) -> Report {
        let request = Request::parse(event, "op-1").unwrap_or_else(|refusal| panic!("{refusal}"));
        run(&request, &routes(), &self.ports, far(), &|_| {}).await.unwrap()
    }

    async fn in_state(&self, state: DeadLetterState) -> usize {
        let filter = DeadLetterFilter { state: Some(state), ..DeadLetterFilter::default() };
        self.letters.list(&filter, 100_000, None).await.unwrap().letters.len()
    }

    /// Moves all mail into the log, as its owner does, and counts it.
    async fn mail(&self) -> usize {
        let (mailbox, mut moved) = (MailboxName::new(BRIDGE, "s").unwrap(), 0);
        for slot in 1.. {
            let mail = self.outbox.read_mail(&mailbox, 99).await.unwrap();
            if mail.is_empty() {
                break;
            }
            let ids: Vec<String> = mail.iter().map(|mail| mail.id.clone()).collect();
            let slot = Slot(self.outbox.read_tail(&log("s")).await.unwrap().map_or(slot, |tail| tail.slot.0 + 1));
            let entries: Vec<_> = mail.into_iter().map(|mail| mail.entry).collect();
            let outcome = self.outbox.move_mail(&log("s"), slot, &segment(&entries, u128::from(slot.0)), &mailbox, &ids).await;
            assert_eq!(outcome, Outcome::Done(Moved::Stored));
            moved += ids.len();
        }
        moved
    }
}

fn far() -> Instant {
    Instant::from_nanos(u64::MAX)
}

fn counts(report: &Report) -> (u64, u64, u64, u64, u64) {
    let tally = &report.tally;
    (tally.matched(), tally.redriven, tally.skipped, tally.parked, tally.failed)
}

#[tokio::test]
async fn a_dry_run_tells_what_would_be_and_changes_nothing() {
    let mut often = letter(3, "r");
    often.redrive_count = 3;
    let world = world([letter(1, "r"), letter(2, "direct"), often]).await;
    let report = world.run(&json!({"all": true})).await;
    assert_eq!(counts(&report), (3, 1, 1, 1, 0));
    let request = |event| Request::parse(&event, "op").unwrap();
    let told = Counts::of(&request(json!({"all": true})), &report.tally);
    assert_eq!(
        told,
        Counts { matched: 3, skipped: 1, would_redrive: 1, would_park: 1, ..Counts::default() },
        "nothing of it is told as done"
    );
    let told = Counts::of(&request(json!({"all": true, "dry_run": false})), &report.tally);
    assert_eq!(told, Counts { matched: 3, skipped: 1, redriven: 1, parked: 1, ..Counts::default() });
    assert_eq!((world.in_state(DeadLetterState::Dead).await, world.mail().await), (3, 0));
    let report = world.run(&json!({"all": true, "dry_run": false})).await;
    assert_eq!(counts(&report), (3, 1, 1, 1, 0), "and then it is so");
    assert_eq!((world.in_state(DeadLetterState::Dead).await, world.in_state(DeadLetterState::Parked).await, world.mail().await), (1, 1, 1));
}

#[tokio::test]
async fn a_filter_that_matches_nothing_is_a_complete_answer() {
    let world = world([letter(1, "r")]).await;
    let report = world.run(&json!({"filter": {"route_id": "other"}, "dry_run": false})).await;
    assert_eq!((counts(&report), report.continuation), ((0, 0, 0, 0, 0), None));
    let missing = format!("{:032x}", 77);
    let report = world.run(&json!({"filter": {"ids": [missing]}, "dry_run": false})).await;
    assert_eq!(counts(&report), (1, 0, 1, 0, 0));
    assert_eq!(report.tally.errors[0].code, "not_found");
}

#[tokio::test]
async fn a_limit_is_kept_and_its_continuation_goes_on_behind_what_was_skipped() {
    let world = world((1..=30).map(|id| letter(id, if id % 3 == 0 { "direct" } else { "r" }))).await;
    let mut event = json!({"all": true, "dry_run": false, "limit": 7, "rate_per_second": 500});
    let (mut matched, mut redriven, mut rounds) = (0, 0, 0);
    loop {
        let report = world.run(&event).await;
        assert!(report.tally.matched() <= 7);
        (matched, redriven, rounds) = (matched + report.tally.matched(), redriven + report.tally.redriven, rounds + 1);
        let Some(at) = report.continuation else { break };
        event["continuation"] = json!(at);
    }
    assert_eq!((matched, redriven, world.mail().await), (30, 20, 20));
    assert!(rounds >= 5);
}

#[tokio::test]
async fn concurrent_redrives_put_each_letter_back_once_and_their_counts_add_up() {
    let world = world((1..=200).map(|id| letter(id, "r"))).await;
    let runs = (0..8).map(|nth| {
        let event = json!({"all": true, "dry_run": false, "limit": 200, "rate_per_second": 500, "request_id": format!("op-{nth}")});
        let world = &world;
        async move { world.run(&event).await }
    });
    let reports = futures_util::future::join_all(runs).await;
    assert_eq!(reports.iter().map(|report| report.tally.redriven).sum::<u64>(), 200);
    assert!(reports.iter().all(|report| report.tally.failed == 0));
    assert_eq!((world.mail().await, world.in_state(DeadLetterState::Redriven).await), (200, 200));
}

/// Whatever call the process is killed before or after, a rerun leaves one piece of mail and one tombstone for each letter.
#[tokio::test]
async fn killed_between_any_two_calls_a_rerun_brings_it_to_the_same_end() {
    for dies_after in 1..=24 {
        let mut world = world((1..=10).map(|id| letter(id, "r"))).await;
        let whole = Arc::clone(&world.ports.redrives);
        world.ports.redrives = Arc::new(Dying { inner: Arc::clone(&whole), left: Arc::new(AtomicU32::new(dies_after)) });
        let event = json!({"all": true, "dry_run": false, "rate_per_second": 500, "request_id": "op-a"});
        let request = Request::parse(&event, "x").unwrap();
        drop(run(&request, &routes(), &world.ports, far(), &|_| {}).await);
        world.ports.redrives = whole;
        let report = world.run(&json!({"all": true, "dry_run": false, "rate_per_second": 500, "request_id": "op-b"})).await;
        assert_eq!(report.tally.failed, 0);
        assert_eq!((world.mail().await, world.in_state(DeadLetterState::Redriven).await), (10, 10), "killed after {dies_after}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_an_error_that_names_it() {
    let mut world = world([letter(1, "r")]).await;
    world.ports.redrives = Arc::new(Dying { inner: Arc::clone(&world.ports.redrives), left: Arc::new(AtomicU32::new(1)) });
    let request = Request::parse(&json!({"all": true, "dry_run": false}), "op").unwrap();
    let error = run(&request, &routes(), &world.ports, far(), &|_| {}).await.unwrap_err();
    assert_eq!(error.store, Store::Outbox);
    assert_eq!(world.in_state(DeadLetterState::Dead).await, 1, "nothing changed");
}

#[tokio::test]
async fn past_its_deadline_nothing_begins_and_the_answer_says_where_to_go_on() {
    let world = world([letter(1, "r")]).await;
    let request = Request::parse(&json!({"all": true, "dry_run": false}), "op").unwrap();
    let report = run(&request, &routes(), &world.ports, world.ports.clock.now(), &|_| {}).await.unwrap();
    assert!(report.continuation.is_some());
    assert_eq!((counts(&report), world.mail().await), ((0, 0, 0, 0, 0), 0));
}

#[tokio::test]
async fn the_rate_is_kept() {
    let world = world((1..=20).map(|id| letter(id, "r"))).await;
    let began = std::time::Instant::now();
    let report = world.run(&json!({"all": true, "dry_run": false, "rate_per_second": 10})).await;
    assert_eq!(report.tally.redriven, 20);
    assert!(began.elapsed().as_secs_f64() >= 1.8, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_route_without_an_outbox_is_sent_first_and_marked_then() {
    let world = world([letter(1, "direct"), letter(2, "r")]).await;
    let report = world.run(&json!({"all": true, "dry_run": false, "mode": "queue"})).await;
    assert_eq!(counts(&report), (2, 1, 1, 0, 0));
    let delivered = world.sink.accepted();
    assert_eq!(delivered.len(), 1);
    assert_eq!((delivered[0].id, delivered[0].redrives()), (letter(1, "direct").id, 1), "with its own id, by which a repeat is recognised");
    assert_eq!(world.in_state(DeadLetterState::Redriven).await, 1);
}

#[tokio::test]
async fn what_goes_to_a_broker_goes_through_the_outbox_and_past_it_is_refused_by_name() {
    let world = world([letter(1, "to-broker"), letter(2, "direct-to-broker"), letter(3, "direct")]).await;
    let report = world.run(&json!({"all": true, "dry_run": false})).await;
    assert_eq!(counts(&report), (3, 1, 2, 0, 0), "the owner publishes what is put back into its mailbox");
    let mail = world.outbox.read_mail(&MailboxName::new(BRIDGE, "s").unwrap(), 99).await.unwrap();
    assert_eq!(mail.iter().map(|mail| (mail.entry.id, mail.entry.redrives())).collect::<Vec<_>>(), [(letter(1, "to-broker").id, 1)]);
    for dry_run in [true, false] {
        let report = world.run(&json!({"all": true, "dry_run": dry_run, "mode": "queue"})).await;
        assert_eq!(counts(&report), (2, 1, 1, 0, 0), "nobody is kept from the queue's");
        let error = &report.tally.errors[0];
        assert_eq!((error.id.clone(), error.code), (letter(2, "r").id.to_string(), "out_of_reach"));
        assert!(error.message.contains("`direct-to-broker`") && error.message.contains("dlq redrive --mode queue"), "{}", error.message);
    }
    assert_eq!((world.sink.accepted().len(), world.in_state(DeadLetterState::Dead).await), (1, 1), "it stays dead");
}

/// Five messages of two ordered groups lie dead; consumers must see all five again, each in its group, each group in its order, nothing of them
/// changed: what a queue's own dead-letter queue is known to get wrong.
#[tokio::test]
async fn ordered_groups_come_back_whole_and_in_order() {
    let dead: Vec<DeadLetter> = (1..=5).map(|id| letter(id, "r")).collect();
    let world = world(dead.clone()).await;
    let report = world.run(&json!({"all": true, "dry_run": false})).await;
    assert_eq!(report.tally.redriven, 5);
    let mail = world.outbox.read_mail(&MailboxName::new(BRIDGE, "s").unwrap(), 100).await.unwrap();
    assert_eq!(
        mail.iter().map(|mail| mail.entry.message.clone()).collect::<Vec<_>>(),
        dead.iter().map(|dead| dead.message.clone()).collect::<Vec<_>>()
    );
    for group in ["g1", "g2"] {
        let of_group = |user: &[(String, String)]| user.iter().any(|(name, value)| name == "group" && value == group);
        let before: Vec<_> = dead.iter().filter(|dead| of_group(&dead.message.properties.user)).map(|dead| dead.id).collect();
        let after: Vec<_> = mail.iter().filter(|mail| of_group(&mail.entry.message.properties.user)).map(|mail| mail.entry.id).collect();
        assert_eq!(after, before, "{group}");
    }
}
