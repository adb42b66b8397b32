//! A log of several lanes: opened, fenced and drained together, and changed in number only when nothing waits.

use crate::exclusive::{ACKNOWLEDGED, TWO, shared};
use causeway_core::identity::LaneId;
use causeway_core::rows::Row;
use causeway_e2e::log::{Waiting, last_row, outbox, waiting};
use causeway_e2e::{Run, Setup};
use std::collections::{BTreeMap, BTreeSet};
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

const LANES: u32 = 3;

/// How many rows each lane has had, as the program tells it.
async fn tails(run: &Run) -> Vec<u64> {
    let config = run.rig.launch.config.to_string_lossy().into_owned();
    let told = run.rig.launch.run(&["outbox", "stat", "--json", "-c", &config]).await.unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    told["logs"].as_array().unwrap().iter().map(|log| log["tail"].as_u64().unwrap()).collect()
}

/// Every lane holds an anchor of each owner, and a good number of segments.
async fn all_lanes_are_used(run: &Run) {
    let tails = tails(run).await;
    assert_eq!(tails.len(), LANES as usize, "{tails:?}");
    assert!(tails.iter().all(|tail| *tail >= 10), "the topics are spread over the lanes: {tails:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_with_three_lanes_loses_nothing_on_sqlite() {
    let mut run = Run::start(&Setup { lanes: LANES, ..Setup::new(Store::Sqlite, 9_000) }).await.unwrap();
    run.publish(0..9_000, 1_500);
    for at in [3_000, 6_000] {
        run.published(at).await.unwrap();
        run.kill().await.unwrap();
        run.start_worker().await.unwrap();
    }
    run.publishing_done().await.unwrap();
    all_lanes_are_used(&run).await;
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (9_000, 9_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound, "{account:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_an_owner_of_three_lanes_loses_nothing() {
    let mut run = Run::start(&Setup { lanes: LANES, ..shared(TWO, 5_000) }).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..5_000, 500);
    run.published(2_000).await.unwrap();
    let cluster = run.cluster().unwrap();
    let former = cluster.holder().await.unwrap();
    let owner = &mut cluster.members[former.member].worker;
    let reported = owner.metrics().await.unwrap();
    owner.process.kill().await.unwrap();
    let successor = cluster.successor(&former.lease).await.unwrap();
    assert_ne!(successor.member, former.member);
    cluster.start_again(former.member).await.unwrap();
    run.expose_member("the owner was killed", &reported);
    run.publishing_done().await.unwrap();
    all_lanes_are_used(&run).await;
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (5_000, 5_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound, "{account:#?}");
}

/// The queue is away: everything up to `count` waits in the log, in `lanes` lanes, each topic in the lane that is its own, in the order of arrival.
async fn all_wait_in_order(run: &Run, count: u64, lanes: u32) {
    // Lanes that should not hold anything are looked at too.
    let waiting = waiting(outbox(&run.rig).unwrap().as_ref(), LANES).await.unwrap();
    let indices: BTreeSet<u64> = waiting.iter().map(|entry| entry.index).collect();
    assert_eq!(indices, (0..count).collect(), "each waits");
    assert_eq!(waiting.len() as u64, count, "and once");
    let used: BTreeSet<u32> = waiting.iter().map(|entry| entry.lane).collect();
    assert_eq!(used, (0..lanes).collect());
    let mut last: BTreeMap<&str, &Waiting> = BTreeMap::new();
    for entry in &waiting {
        assert_eq!(LaneId(entry.lane), LaneId::of(entry.topic.as_bytes(), lanes), "{entry:?}");
        if let Some(before) = last.insert(&entry.topic, entry) {
            assert!(before.lane == entry.lane && before.index < entry.index, "{before:?} before {entry:?}");
        }
    }
}

/// Which lanes are closed for good.
async fn closed(run: &Run) -> Vec<bool> {
    let outbox = outbox(&run.rig).unwrap();
    let mut closed = Vec::new();
    for lane in 0..LANES {
        closed.push(matches!(last_row(outbox.as_ref(), LaneId(lane)).await.unwrap(), Some(Row::Anchor(anchor)) if anchor.retired));
    }
    closed
}

/// Another number of lanes is configured while messages wait for a queue that is away. They are sent in the lanes in which they stand.
async fn changed_with_a_backlog(store: Store, from: u32, to: u32) {
    let mut run = Run::start(&Setup { proxies: true, lanes: from, ..Setup::new(store, 2_500) }).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    run.publish(0..1_000, 0);
    run.publishing_done().await.unwrap();
    run.metric_reaches(ACKNOWLEDGED, 1_000.0).await.unwrap();
    all_wait_in_order(&run, 1_000, from).await;
    run.stop().await.unwrap();

    run.configure_lanes(to).unwrap();
    run.start_worker().await.unwrap();
    run.publish(1_000..1_500, 0);
    run.publishing_done().await.unwrap();
    run.metric_reaches(ACKNOWLEDGED, 500.0).await.unwrap();
    all_wait_in_order(&run, 1_500, from).await;
    assert_eq!(run.registered_lanes().await.unwrap(), u64::from(from), "messages wait");
    assert_eq!(run.consumer.unique(), 0);

    run.sqs().unwrap().heal();
    run.delivered(1_500).await.unwrap();
    run.lanes_become(u64::from(to)).await.unwrap();
    let gone: Vec<bool> = (0..LANES).map(|lane| to <= lane && lane < from).collect();
    assert_eq!(closed(&run).await, gone, "lanes that go away are closed for good, and no others");

    run.publish(1_500..2_500, 1_000);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (2_500, 2_500, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_lanes_wait_for_the_backlog_on_sqlite() {
    changed_with_a_backlog(Store::Sqlite, LANES, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_lanes_wait_for_the_backlog_on_dynamodb() {
    changed_with_a_backlog(Store::Dynamodb, LANES, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_lanes_wait_for_the_backlog_on_sqlite() {
    changed_with_a_backlog(Store::Sqlite, 1, LANES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_lanes_wait_for_the_backlog_on_dynamodb() {
    changed_with_a_backlog(Store::Dynamodb, 1, LANES).await;
}

/// Closed lanes stand behind the open ones, and are opened again behind the anchor that closed them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_come_and_go_while_messages_flow() {
    let mut run = Run::start(&Setup { lanes: LANES, ..Setup::new(Store::Sqlite, 6_000) }).await.unwrap();
    run.publish(0..6_000, 500);
    for (at, lanes) in [(1_000, 1), (2_500, LANES), (4_000, 2)] {
        run.published(at).await.unwrap();
        run.stop().await.unwrap();
        run.configure_lanes(lanes).unwrap();
        run.start_worker().await.unwrap();
        run.lanes_become(u64::from(lanes)).await.unwrap();
    }
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (6_000, 6_000, 0, 0));
}
