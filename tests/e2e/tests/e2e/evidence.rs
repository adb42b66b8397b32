//! Owners that are tasks of ECS: one whose task has stopped is replaced without waiting for its lease, and a wrong answer about it loses nothing.

use crate::exclusive::{TWO, becomes_standby, shared};
use causeway_e2e::{Run, Setup};
use rustix::process::Signal;
use std::time::Duration;
use xtask::worker::LONG_LEASE_TTL;

/// ECS tells so many seconds later that a task has stopped.
const STOPPED_AFTER: u16 = 1;

fn tasks(messages: u64) -> Setup {
    Setup { stopped_after: Some(STOPPED_AFTER), ..shared(TWO, messages) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_killed_is_replaced_long_before_its_lease_runs_out_and_nothing_is_lost() {
    let mut run = Run::start(&tasks(3_000)).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..3_000, 200);
    run.published(500).await.unwrap();
    for published in [800, 1_800] {
        run.published(published).await.unwrap();
        let (fleet, cluster) = run.fleet().unwrap();
        let former = cluster.holder().await.unwrap();
        let reported = cluster.members[former.member].worker.metrics().await.unwrap();
        let killed = tokio::time::Instant::now();
        cluster.members[former.member].worker.process.kill().await.unwrap();
        fleet.has_lost(&cluster.members[former.member].launch).unwrap();
        let successor = cluster.successor(&former.lease).await.unwrap();
        let took = successor.at.duration_since(killed);
        // The lease was renewed at most a few seconds before the kill.
        assert!(took < Duration::from_secs(LONG_LEASE_TTL - 10), "the lease was waited for: {took:?}\n{}", cluster.log_tails());
        fleet.replace(&mut cluster.members[former.member].launch);
        cluster.start_again(former.member).await.unwrap();
        run.expose_member("the owner was killed", &reported);
    }
    assert_eq!(run.fleet().unwrap().0.ecs().called(), crate::control::recorded("worker"));
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound);
}

/// ECS says that the owner's task has stopped while its process only pauses. When it goes on it holds its lease by its own clock: the log refuses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_lives_and_is_said_to_have_stopped_loses_nothing() {
    let mut run = Run::start(&tasks(3_000)).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..3_000, 200);
    run.published(800).await.unwrap();
    let (fleet, cluster) = run.fleet().unwrap();
    let former = cluster.holder().await.unwrap();
    let reported = cluster.members[former.member].worker.metrics().await.unwrap();
    let paused = tokio::time::Instant::now();
    cluster.members[former.member].worker.process.signal(Signal::STOP);
    fleet.has_lost(&cluster.members[former.member].launch).unwrap();
    let successor = cluster.successor(&former.lease).await.unwrap();
    let took = successor.at.duration_since(paused);
    assert!(took < Duration::from_secs(LONG_LEASE_TTL - 10), "the lease was waited for: {took:?}\n{}", cluster.log_tails());
    cluster.members[former.member].worker.process.signal(Signal::CONT);
    assert!(becomes_standby(cluster, former.member).await, "it still takes itself for the owner\n{}", cluster.log_tails());
    assert_eq!(cluster.lease().await.unwrap().unwrap(), successor.lease);
    run.expose_member("the owner was paused", &reported);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound);
}
