//! Several processes that poll one mailbox of one store: each piece comes into the log once, whoever moves it, and whoever is fenced meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_core::config::model::Bridge;
use causeway_core::dead_letter::Destination;
use causeway_core::dispatch::Dispatch;
use causeway_core::hold::Order;
use causeway_core::identity::{Id128, LaneId, LogName, Slot};
use causeway_core::mailbox::{Mail, MailboxName};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::rows::{Row, unpack};
use causeway_core::units::UnixMillis;
use causeway_core::worker::options::{Delivery, Policy};
use causeway_local::memory::MemoryOutbox;
use causeway_local::sqlite::{OpenMode, SqliteStore};
use causeway_ports::SystemClock;
use causeway_ports::fake::{FakeBroker, FakeSink, SinkAnswer};
use causeway_ports::{LogStore, Mailbox, Outbox, Sink};
use causeway_worker::parts::{LegParts, LogKind, LogLimits, MailboxParts, RandomBits, SessionParts};
use causeway_worker::run::{RunError, SessionEnd, run_session};
use causeway_worker::status::StatusBoard;
use causeway_worker::telemetry::Metrics;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

const LANES: u32 = 2;
const ROUNDS: u64 = 6;

fn mailbox() -> MailboxName {
    MailboxName::new("b", "s").unwrap()
}

fn mail(number: u64) -> Mail {
    let message = Message { topic: format!("t/{}", number % 7), payload: number.to_string().into(), qos: 1, ..Message::default() };
    let entry = Entry {
        id: Id128(u128::from(number) + 1),
        route: "r".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "in".into(),
        received_at: UnixMillis(1_700_000_000_000),
        expires_at: None,
        message,
        redrive: None,
    };
    Mail { id: format!("{number:06}"), posted_at: UnixMillis(1_700_000_000_000), entry: Arc::new(entry) }
}

/// An owner loop without a lease: of two over one log the later one fences the earlier.
fn start<S: LogStore + 'static>(
    store: &Arc<S>,
    sink: &Arc<FakeSink>,
    nth: u64,
) -> (CancellationToken, JoinHandle<Result<SessionEnd, RunError>>) {
    let (broker, clock, stop) = (FakeBroker::new(), Arc::new(SystemClock), CancellationToken::new());
    broker.answer_subscriptions(1, vec![]);
    let owner = format!("w{nth}#{nth}");
    let parts = SessionParts {
        session: "s".to_owned(),
        owner: owner.clone(),
        broker: "fake".to_owned(),
        subscriptions_wanted: 1,
        log: LogName::new("b", "s", 0).unwrap(),
        kind: LogKind::OfSession,
        dispatch: Arc::new(Dispatch::to_first([("r", "in", "b")])),
        legs: vec![LegParts {
            route: "r".to_owned(),
            receiver: "in".to_owned(),
            destination: Destination { binding: "b".to_owned(), ..Destination::default() },
            sink: Arc::clone(sink) as Arc<dyn Sink>,
            delivery: Delivery::Logged,
            depth: None,
            breaker: None,
            send_limits: Vec::new(),
            sender: String::new(),
            flow: Default::default(),
            pacing: None,
            policy: Policy::default(),
        }],
        outbox: Some(Arc::clone(store) as Arc<dyn Outbox>),
        acknowledge: Order::OfArrival,
        arrival_limits: Vec::new(),
        ack_hold: None,
        quota: None,
        lanes: LANES,
        mailbox: Some(MailboxParts {
            store: Arc::clone(store) as Arc<dyn Mailbox>,
            name: mailbox(),
            poll: Duration::from_millis(5),
            mailed: Arc::default(),
        }),
        limits: LogLimits::default(),
        stale_claim: Duration::from_secs(60),
        dead_letters: None,
        start_source: Arc::new(move |_| Box::new(broker.source())),
        lease: None,
        subscriptions: None,
        share: None,
        status: StatusBoard::new("b", &owner, clock.clone()),
        clock,
        returning: None,
        random: Arc::new(RandomBits::of_the_system),
        metrics: Metrics::default(),
        stop: stop.clone(),
        pause_source: false,
        drain_ceiling: Bridge::default().drain_ceiling(),
    };
    (stop, tokio::spawn(run_session(parts)))
}

/// What stands in the log, by id, and how often.
async fn in_log(store: &dyn Outbox) -> BTreeMap<Id128, usize> {
    let mut found = BTreeMap::new();
    for lane in 0..LANES {
        let log = LogName::new("b", "s", 0).unwrap().in_lane(LaneId(lane));
        let mut after = Some(Slot(0));
        while let Some(from) = after {
            let page = store.read_page(&log, from, Slot(u64::MAX / 4)).await.unwrap();
            for (_, row) in &page.rows {
                let Row::Segment(segment) = row else { continue };
                for entry in unpack(segment).unwrap() {
                    *found.entry(entry.id).or_default() += 1;
                }
            }
            after = page.next_after;
        }
    }
    found
}

/// Waits until `count` different pieces stand in the log.
async fn moved(store: &dyn Outbox, count: usize) {
    for _ in 0..6_000 {
        if in_log(store).await.len() >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not {count} are moved within a minute");
}

/// Two leave mail all the time. In each round one owner moves it while the next one takes the log over from it.
async fn each_piece_is_moved_once<S: LogStore + 'static>(store: Arc<S>) {
    let sink = Arc::new(FakeSink::default());
    sink.answer_by(|_, _| SinkAnswer::Refuse(Fault::new(FaultCode::Unavailable, "away")));
    let (next, enough) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
    let mut posters = JoinSet::new();
    for _ in 0..2 {
        let (store, next, enough) = (Arc::clone(&store), Arc::clone(&next), enough.clone());
        posters.spawn(async move {
            while !enough.is_cancelled() {
                assert!(store.post(&mailbox(), &mail(next.fetch_add(1, Ordering::SeqCst))).await.done().unwrap());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }
    let mut owner = start(&store, &sink, 0);
    for round in 1..=ROUNDS {
        let so_far = in_log(store.as_ref()).await.len();
        moved(store.as_ref(), so_far + 20).await;
        let (_, former) = core::mem::replace(&mut owner, start(&store, &sink, round));
        // It finds out when it moves the next piece, at the latest.
        let end = tokio::time::timeout(Duration::from_secs(60), former).await.expect("of two one goes on");
        assert!(matches!(end.unwrap(), Err(RunError::Fenced { .. })));
    }
    enough.cancel();
    while let Some(end) = posters.join_next().await {
        end.unwrap();
    }
    let all = next.load(Ordering::SeqCst);
    moved(store.as_ref(), usize::try_from(all).unwrap()).await;
    let wanted: BTreeMap<Id128, usize> = (0..all).map(|number| (Id128(u128::from(number) + 1), 1)).collect();
    assert_eq!(in_log(store.as_ref()).await, wanted, "each stands in the log once");
    assert!(store.read_mail(&mailbox(), 99).await.unwrap().is_empty());

    assert!(sink.accepted().is_empty());
    sink.answer_by(|_, _| SinkAnswer::Accept);
    sink.accepted_at_least(usize::try_from(all).unwrap()).await;
    let (stop, running) = owner;
    stop.cancel();
    running.await.unwrap().unwrap();
    let mut accepted: BTreeMap<Id128, usize> = BTreeMap::new();
    for entry in sink.accepted() {
        *accepted.entry(entry.id).or_default() += 1;
    }
    assert_eq!(accepted, wanted, "and is sent once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_fence_each_other_move_each_piece_once_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("causeway.db"), OpenMode::ReadWrite).unwrap();
    each_piece_is_moved_once(Arc::new(store.outbox())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_fence_each_other_move_each_piece_once_in_memory() {
    each_piece_is_moved_once(Arc::new(MemoryOutbox::new())).await;
}
