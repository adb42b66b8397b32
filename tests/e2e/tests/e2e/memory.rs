//! A backlog that must not live in memory.

use causeway_e2e::{Run, Setup};
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
