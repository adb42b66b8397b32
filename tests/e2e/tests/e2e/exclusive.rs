//! Several workers that share one session: one owner at a time, and nothing lost when it goes.

use causeway_e2e::{Run, Setup};
use rustix::process::Signal;
use std::time::Duration;
use xtask::cluster::{Cluster, HandOver};
use xtask::stack::Store;
use xtask::worker::{CLIENT_ID, LEASE_TTL, Role};

/// Acknowledgements that a worker wrote to the broker.
pub const ACKNOWLEDGED: &str = "causeway_mqtt_acknowledged_total";
/// Appends that a worker tried, whatever came of them.
pub const APPENDS: &str = "causeway_appends_total";
/// What the store answers to a write whose condition does not hold.
const CONDITION_FAILED: &str = "ConditionalCheckFailedException";

pub const TTL: Duration = Duration::from_secs(LEASE_TTL);

pub const TWO: &[(&str, Role)] = &[("worker-1", Role::Worker), ("worker-2", Role::Worker)];
const THREE: &[(&str, Role)] = &[("worker-1", Role::Worker), ("worker-2", Role::Worker), ("worker-3", Role::Worker)];

pub fn shared(members: &'static [(&'static str, Role)], messages: u64) -> Setup {
    Setup { members, ..Setup::new(Store::Dynamodb, messages) }
}

/// How often a client with the workers' id has connected to the broker.
fn connections(run: &Run) -> usize {
    let log = std::fs::read_to_string(run.rig.stack.broker.process().log()).unwrap();
    log.lines().filter(|line| line.contains("New client connected") && line.contains(&format!(" as {CLIENT_ID} "))).count()
}

/// How many say of themselves that they own the session.
async fn owners(cluster: &Cluster) -> Vec<&str> {
    let mut owners = Vec::new();
    for member in &cluster.members {
        if member.worker.is_owner().await.unwrap() {
            owners.push(member.name());
        }
    }
    owners
}

/// A counter of one member.
pub async fn counter(cluster: &Cluster, member: usize, name: &str) -> f64 {
    cluster.members[member].worker.metrics().await.unwrap().get(name).unwrap_or(0.0)
}

/// Writes that are refused are billed like others and look like errors: workers that wait must not try what cannot succeed, and nobody must write
/// more than it takes to renew the lease. `scripts/chaos --only idle` watches for ten minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_that_start_at_once_one_becomes_the_owner_and_idle_ones_have_no_write_refused() {
    let mut run = Run::start(&Setup { proxies: true, ..shared(THREE, 500) }).await.unwrap();
    let first = run.cluster().unwrap().holder().await.unwrap();
    // Whoever were to take the lease over without need would do so within this.
    tokio::time::sleep(TTL + TTL / 2).await;
    let cluster = run.cluster().unwrap();
    assert_eq!(owners(cluster).await, [first.lease.name()]);
    assert_eq!(cluster.lease().await.unwrap().unwrap(), first.lease);
    assert_eq!(connections(&run), 1, "standbys must not connect");

    let count = |run: &Run| {
        let store = run.dynamodb().unwrap();
        (store.calls("GetItem"), store.calls("PutItem") + store.calls("UpdateItem"), store.refused(CONDITION_FAILED))
    };
    let (before, writes) = (count(&run), run.dynamodb().unwrap().writes());
    let watched = std::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let after = count(&run);
    assert!(after.0 >= before.0 + 20, "two standbys look at the lease: {before:?} {after:?}");
    assert!(after.1 >= before.1 + 10, "the owner renews it: {before:?} {after:?}");
    assert_eq!(after.2, before.2, "nobody writes what is not his");
    // With a lease of five seconds the owner renews less than twice a second, and each process may note once that it lives.
    let written = run.dynamodb().unwrap().writes() - writes;
    // A busy machine may have watched for longer than it meant to.
    assert!(written <= 2 * watched.elapsed().as_secs() + 3 + 10, "{written} in {:?}: {before:?} {after:?}", watched.elapsed());
    assert_eq!(run.cluster().unwrap().lease().await.unwrap().unwrap(), first.lease);
    assert_eq!(connections(&run), 1);

    run.publish(0..500, 0);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.lost), (500, 500, 0));
}

/// Two with one client id never throw each other off: a minute on the wire to the broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_start_at_once_one_at_a_time_is_connected_and_a_standby_never_tries() {
    let mut run = Run::start(&Setup { tap: true, ..shared(TWO, 600) }).await.unwrap();
    let first = run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..600, 10);
    tokio::time::sleep(Duration::from_secs(60)).await;
    run.publishing_done().await.unwrap();
    run.delivered(600).await.unwrap();
    let last = run.cluster().unwrap().lease().await.unwrap().unwrap();
    let (logins, most) = run.tap.as_ref().unwrap().logins(CLIENT_ID);
    assert_eq!(most, 1, "connections at a time");
    // A machine that stands still for longer than the lease lasts lets it change hands: each owner logs in once.
    let owners = 1 + usize::try_from(last.version - first.lease.version).unwrap();
    assert_eq!(logins, owners, "{:?} and {last:?}", first.lease);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (600, 600, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_owner_loses_nothing() {
    let mut run = Run::start(&shared(TWO, 3_000)).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..3_000, 500);
    run.published(1_200).await.unwrap();
    let cluster = run.cluster().unwrap();
    let former = cluster.holder().await.unwrap();
    let owner = &mut cluster.members[former.member].worker;
    let reported = owner.metrics().await.unwrap();
    owner.process.kill().await.unwrap();
    let successor = cluster.successor(&former.lease).await.unwrap();
    assert_ne!(successor.member, former.member);
    cluster.start_again(former.member).await.unwrap();
    run.expose_member("the owner was killed", &reported);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_of_the_owner_loses_and_repeats_nothing() {
    let mut run = Run::start(&shared(TWO, 3_000)).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..3_000, 500);
    for at in [1_000, 2_000] {
        run.published(at).await.unwrap();
        let cluster = run.cluster().unwrap();
        let former = cluster.holder().await.unwrap();
        cluster.members[former.member].worker.process.signal(Signal::TERM);
        cluster.successor(&former.lease).await.unwrap();
        let status = cluster.members[former.member].worker.process.wait(Duration::from_secs(60)).await.unwrap();
        assert!(status.success(), "{status}");
        cluster.start_again(former.member).await.unwrap();
    }
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.duplicates, account.lost), (3_000, 3_000, 0, 0));
}

/// The broker has sent it messages that it has not read, and its clients of the store believe that the lease is theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_wakes_up_after_a_pause_acknowledges_and_appends_nothing() {
    let mut run = Run::start(&shared(TWO, 3_000)).await.unwrap();
    let former = run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..1_000, 500);
    run.publishing_done().await.unwrap();
    run.delivered(1_000).await.unwrap();
    let paused = former.member;
    let reported = settled(run.cluster().unwrap(), paused, 1_000.0).await;
    run.cluster().unwrap().members[paused].worker.process.signal(Signal::STOP);
    run.publish(1_000..3_000, 500);
    let stopped_at = tokio::time::Instant::now();
    let successor = run.cluster().unwrap().successor(&former.lease).await.unwrap();
    tokio::time::sleep_until(stopped_at + 2 * TTL).await;

    let cluster = run.cluster().unwrap();
    cluster.members[paused].worker.process.signal(Signal::CONT);
    assert!(becomes_standby(cluster, paused).await, "it still takes itself for the owner\n{}", cluster.log_tails());
    run.publishing_done().await.unwrap();
    run.delivered(3_000).await.unwrap();

    let cluster = run.cluster().unwrap();
    let now = (counter(cluster, paused, ACKNOWLEDGED).await, counter(cluster, paused, APPENDS).await);
    assert_eq!(now, (reported.get(ACKNOWLEDGED).unwrap(), reported.get(APPENDS).unwrap()), "{}", cluster.log_tails());
    assert_eq!(cluster.lease().await.unwrap().unwrap(), successor.lease);

    // The one that was paused is the only one left to take over: it competes again, in the same process.
    let HandOver { member, lease, .. } = successor;
    cluster.members[member].worker.process.signal(Signal::TERM);
    assert_eq!(cluster.successor(&lease).await.unwrap().member, paused);
    cluster.members[member].worker.process.wait(Duration::from_secs(60)).await.unwrap();
    cluster.start_again(member).await.unwrap();

    run.expose_member("the owner was paused", &reported);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound);
}

/// Waits until a member has acknowledged exactly so many, and gives its metrics.
pub async fn settled(cluster: &Cluster, member: usize, acknowledged: f64) -> xtask::metrics::Snapshot {
    for _ in 0..600 {
        let metrics = cluster.members[member].worker.metrics().await.unwrap();
        if metrics.get(ACKNOWLEDGED) == Some(acknowledged) {
            return metrics;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it never acknowledges {acknowledged}\n{}", cluster.log_tails());
}

/// Waits until a member answers that it does not own the session.
pub async fn becomes_standby(cluster: &Cluster, member: usize) -> bool {
    for _ in 0..300 {
        if cluster.members[member].worker.is_owner().await == Some(false) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}
