//! Tasks that ask to be left alone: the owner's alone, and no more once a newer revision is there, which gets the session.

use crate::exclusive::{TWO, shared};
use causeway_e2e::{Run, Setup};
use std::time::Duration;
use tokio::time::Instant;
use xtask::cluster::Cluster;
use xtask::fleet::Fleet;
use xtask::worker::Role;

const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until the tasks of these members, and of no others, are protected.
async fn protected(fleet: &Fleet, cluster: &Cluster, names: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let is_protected = |launch| fleet.ecs().is_protected(Fleet::task_of(launch).unwrap());
        let now: Vec<&str> = cluster.members.iter().filter(|member| is_protected(&member.launch)).map(|member| member.name()).collect();
        if now == names {
            return;
        }
        assert!(Instant::now() < deadline, "protected: {now:?}, expected {names:?}\n{}", cluster.log_tails());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until a member that `is_it` owns the session.
async fn holds(cluster: &mut Cluster, is_it: impl Fn(usize) -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !is_it(cluster.holder().await.unwrap().member) {
        assert!(Instant::now() < deadline, "{what}\n{}", cluster.log_tails());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owners_task_alone_is_protected_and_a_newer_revision_gets_the_session_without_a_signal() {
    let mut run = Run::start(&Setup { stopped_after: Some(1), ..shared(TWO, 2_000) }).await.unwrap();
    let former = run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..2_000, 50);
    let mut newer = run.rig.launches(&[("worker-3", Role::Worker)]).unwrap().remove(0);
    let (fleet, cluster) = run.fleet().unwrap();
    let owner = cluster.members[former.member].name().to_owned();
    protected(fleet, cluster, &[&owner]).await;
    // A deployment: a task of the next revision starts, and nobody is told to stop.
    fleet.ecs().revise();
    fleet.join(&mut newer);
    let index = cluster.join(&newer).unwrap();
    holds(cluster, |member| member == index, "the newer revision never gets the session").await;
    protected(fleet, cluster, &["worker-3"]).await;
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.duplicates), (2_000, 2_000, 0, 0));
}

/// A deployment fails and is rolled back: the service goes on with the revision before, whose tasks started first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_rollback_the_former_revision_gets_the_session_back_from_the_one_that_failed() {
    let mut run = Run::start(&Setup { stopped_after: Some(1), ..shared(TWO, 2_000) }).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..2_000, 50);
    let mut newer = run.rig.launches(&[("worker-3", Role::Worker)]).unwrap().remove(0);
    let (fleet, cluster) = run.fleet().unwrap();
    fleet.ecs().revise();
    fleet.join(&mut newer);
    let index = cluster.join(&newer).unwrap();
    holds(cluster, |member| member == index, "the newer revision never gets the session").await;
    protected(fleet, cluster, &["worker-3"]).await;
    fleet.ecs().roll_back();
    holds(cluster, |member| member != index, "the revision that the service goes on with never gets the session back").await;
    let owner = cluster.holder().await.unwrap().member;
    let owner = cluster.members[owner].name().to_owned();
    protected(fleet, cluster, &[&owner]).await;
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.duplicates), (2_000, 2_000, 0, 0));
}
