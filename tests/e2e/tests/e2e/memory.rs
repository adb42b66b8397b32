//! A backlog that must not live in memory.

use causeway_e2e::{Run, Setup};
use xtask::metrics::{CONSERVATION_IMBALANCE, OUTBOX_PENDING};
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

/// The most memory that the worker may ever have held, in KiB.
const LIMIT_KIB: u64 = 80 * 1024;

/// The peak of a process's resident memory, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_waits_in_the_broker_and_the_outbox() {
    let mut run = Run::start(&Setup { proxies: true, ..Setup::new(Store::Sqlite, 50_000) }).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    run.publish(0..50_000, 0);
    run.publishing_done().await.unwrap();
    run.metric_reaches("causeway_outbox_depth", 1_000.0).await.unwrap();
    assert_eq!(run.consumer.unique(), 0);
    run.sqs().unwrap().heal();
    run.delivered(50_000).await.unwrap();
    let pid = run.worker().unwrap().process.pid().unwrap();
    let peak = peak_kib(pid);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (50_000, 50_000, 0, 0));
    assert!(peak <= LIMIT_KIB, "the worker held {peak} KiB, more than {LIMIT_KIB}");
}

/// What a worker finds at its start, and what it takes in on top of that while the queue refuses everything.
#[allow(clippy::print_stdout, reason = "the figures are kept in docs/VERIFICATION.md")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_thousand_messages_wait_in_the_log_and_not_in_memory() {
    const WAITING: u64 = 200_000;
    const MORE: u64 = 2_000;
    let mut run = Run::start(&Setup { proxies: true, ..Setup::new(Store::Sqlite, WAITING + MORE) }).await.unwrap();
    run.stop().await.unwrap();
    run.leave_in_the_log(0..WAITING).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    run.start_worker().await.unwrap();
    let pid = run.worker().unwrap().process.pid().unwrap();
    run.metric_reaches(OUTBOX_PENDING, WAITING as f64).await.unwrap();
    run.publish(WAITING..WAITING + MORE, 0);
    run.publishing_done().await.unwrap();
    run.metric_reaches("causeway_mqtt_acknowledged_total", MORE as f64).await.unwrap();
    assert_eq!(run.consumer.unique(), 0);
    let waiting = peak_kib(pid);
    run.sqs().unwrap().heal();
    // Counted by the worker: the local queue gets slower the more it holds, and is what takes the time in a backlog of this size.
    run.metric_reaches("causeway_messages_delivered_total", 4_000.0).await.unwrap();
    let draining = peak_kib(pid);
    let metrics = run.metrics().await.unwrap();
    assert_eq!(metrics.get(CONSERVATION_IMBALANCE), Some(0.0));
    assert!(draining <= LIMIT_KIB, "the worker held {waiting} KiB, then {draining} KiB, more than {LIMIT_KIB}");
    println!("VmHWM: {waiting} KiB with {WAITING} waiting, {draining} KiB once 4,000 of them were delivered");
    run.kill().await.unwrap();
}
