//! The lease when calls go wrong at the worst moment.

use crate::exclusive::{ACKNOWLEDGED, APPENDS, TTL, TWO, becomes_standby, counter, settled, shared};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use causeway_e2e::{Run, Setup};
use rustix::process::Signal;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use xtask::cluster::Lease;
use xtask::proxy::{Fault, Rule};
use xtask::worker::{Role, SESSION};

const SEND: &str = "SendMessageBatch";
const ONE: &[(&str, Role)] = &[("worker-1", Role::Worker)];

fn with_proxies(members: &'static [(&'static str, Role)], messages: u64) -> Setup {
    Setup { proxies: true, ..shared(members, messages) }
}

/// What a write to the session's lease row contains, and no other write does.
fn lease_key() -> String {
    format!("LEASE#{SESSION}")
}

/// The next write of the lease row.
fn next_renewal(fault: Fault) -> Rule {
    Rule::next("PutItem", 1, fault).containing(&lease_key())
}

async fn lease(run: &mut Run) -> Lease {
    run.cluster().unwrap().lease().await.unwrap().unwrap()
}

/// Waits until the store's proxy hit a call since `before`.
async fn hit(run: &Run, before: u64) {
    for _ in 0..12_000 {
        if run.dynamodb().unwrap().injected() > before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the lease is not renewed within a minute");
}

/// The store carried a renewal out, and its answer never came. The owner tries again, and finds its own claim in the row: that is no rival, so
/// it stays the owner under the same version, at full service, over the same connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_recognises_a_renewal_of_its_own_whose_answer_was_lost() {
    let mut run = Run::start(&with_proxies(TWO, 4_000)).await.unwrap();
    let owner = run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..4_000, 300);
    for renewals in 1..=3 {
        let before = run.dynamodb().unwrap().injected();
        run.dynamodb().unwrap().inject(next_renewal(Fault::DropAnswer));
        hit(&run, before).await;
        // Whoever were to step down, or to take over, would have done it after this.
        let until = Instant::now() + TTL;
        while Instant::now() < until {
            let worker = &run.cluster().unwrap().members[owner.member].worker;
            assert!(worker.is_ready("full").await, "after {renewals} lost answers");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(lease(&mut run).await, owner.lease);
    }
    let reconnects = counter(run.cluster().unwrap(), owner.member, "causeway_mqtt_reconnects_total").await;
    assert_eq!(reconnects, 0.0);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.lost), (4_000, 4_000, 0));
}

/// A renewal is under way when the owner is told to stop, either still on its way to the store or carried out and not answered. Whatever comes of
/// it afterwards, the released lease stays released, so that the next worker need not wait for it to run out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_under_way_when_the_lease_is_released_does_not_take_it_back() {
    let mut run = Run::start(&with_proxies(ONE, 10)).await.unwrap();
    let launch = run.cluster().unwrap().members[0].launch.clone();
    for fault in [Fault::DelayAnswer(Duration::from_secs(1)), Fault::Delay(Duration::from_secs(1))] {
        let owner = run.cluster().unwrap().holder().await.unwrap();
        let before = run.dynamodb().unwrap().injected();
        run.dynamodb().unwrap().inject(next_renewal(fault.clone()));
        hit(&run, before).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let worker = &mut run.cluster().unwrap().members[owner.member].worker;
        worker.process.signal(Signal::TERM);
        let status = worker.process.wait(Duration::from_secs(60)).await.unwrap();
        assert!(status.success(), "{fault:?}: {status}");
        let released = lease(&mut run).await;
        assert_eq!((released.owner.as_str(), released.version), ("", owner.lease.version), "{fault:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(lease(&mut run).await, released, "{fault:?}");

        let cluster = run.cluster().unwrap();
        cluster.members.clear();
        cluster.join(&launch).unwrap();
        assert!(cluster.holder().await.unwrap().lease.version > released.version, "{fault:?}");
    }
    run.publish(0..10, 0);
    assert_eq!(run.finish().await.unwrap().delivered, 10);
}

/// DynamoDB deletes by a number of seconds since 1970. A number of milliseconds lies tens of thousands of years ahead, and nothing would ever be
/// deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_to_expire_says_so_in_seconds_and_within_its_retention() {
    const RETENTION: u64 = 86_400;
    let mut run = Run::start(&Setup { dlq_retention: Some(RETENTION), ..with_proxies(ONE, 50) }).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    let refuse = Fault::RefuseEntries { count: 3, code: "InvalidMessageContents".to_owned(), sender_fault: true };
    run.sqs().unwrap().inject(Rule::next(SEND, 1, refuse));
    run.publish(0..50, 0);
    run.delivered(40).await.unwrap();
    let dynamodb = run.rig.stack.aws.dynamodb.clone();
    let mut expiring = Vec::new();
    for _ in 0..600 {
        expiring = expiries(&dynamodb).await;
        if !expiring.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(!expiring.is_empty(), "no item is to expire");
    for (table, value) in expiring {
        let AttributeValue::N(number) = &value else { panic!("{table}: {value:?} is no number") };
        assert!(number.len() == 10 && number.bytes().all(|byte| byte.is_ascii_digit()), "{table}: {number} is not in seconds");
        let expires: u64 = number.parse().unwrap();
        assert!((now..=now + RETENTION).contains(&expires), "{table}: {expires} is not within {RETENTION} s of {now}");
    }
}

/// The expiry of every item that has one, with its table.
async fn expiries(dynamodb: &Client) -> Vec<(String, AttributeValue)> {
    let mut found = Vec::new();
    for table in dynamodb.list_tables().send().await.unwrap().table_names.unwrap_or_default() {
        let described = dynamodb.describe_time_to_live().table_name(&table).send().await.unwrap();
        let Some(attribute) = described.time_to_live_description.and_then(|ttl| ttl.attribute_name) else {
            continue;
        };
        let items = dynamodb.scan().table_name(&table).consistent_read(true).send().await.unwrap().items.unwrap_or_default();
        found.extend(items.iter().filter_map(|item| Some((table.clone(), item.get(&attribute)?.clone()))));
    }
    found
}

/// No write of the lease row gets through, for three times as long as the lease holds. Its owner must not go on in the belief that it still is one,
/// and when writes get through again somebody must take over: a table without an owner whose workers all wait would stay like that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_writes_throttled_for_long_end_with_one_owner_that_delivers() {
    let mut run = Run::start(&with_proxies(TWO, 3_000)).await.unwrap();
    let owner = run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..3_000, 150);
    let reported = run.cluster().unwrap().members[owner.member].worker.metrics().await.unwrap();
    let throttled = Fault::FailBefore { status: 400, code: "ProvisionedThroughputExceededException".to_owned() };
    run.dynamodb().unwrap().inject(Rule::always(throttled).of("PutItem").containing(&lease_key()));
    tokio::time::sleep(3 * TTL).await;
    for member in 0..TWO.len() {
        assert_eq!(run.cluster().unwrap().members[member].worker.is_owner().await, Some(false), "nobody can know that it is the owner");
    }
    run.dynamodb().unwrap().heal();
    let cluster = run.cluster().unwrap();
    let next = cluster.holder().await.unwrap();
    assert!(next.lease.version > owner.lease.version);
    let mut owners = 0;
    for member in &cluster.members {
        owners += usize::from(member.worker.is_owner().await == Some(true));
    }
    assert_eq!(owners, 1);
    run.expose_member("the owner could not renew", &reported);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound);
}

/// Sends are in flight and unanswered at the moment of the pause. Whoever wakes up finds that they all failed, and would try them again, were it not
/// for the lease: they are its successor's now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_wakes_up_with_sends_in_flight_starts_no_new_one() {
    let mut run = Run::start(&with_proxies(TWO, 3_000)).await.unwrap();
    let former = run.cluster().unwrap().holder().await.unwrap();
    let (paused, name) = (former.member, former.lease.name().to_owned());
    run.publish(0..500, 500);
    run.publishing_done().await.unwrap();
    run.delivered(500).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::Hang).of(SEND));
    run.publish(500..1_500, 0);
    run.publishing_done().await.unwrap();
    let reported = settled(run.cluster().unwrap(), paused, 1_500.0).await;
    run.cluster().unwrap().members[paused].worker.process.signal(Signal::STOP);
    let stopped_at = Instant::now();
    // What it had written before has arrived after this.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let sends = run.sqs().unwrap().calls_of(&name, SEND);
    assert!(sends > 0, "calls do not tell whose they are");
    run.publish(1_500..3_000, 500);
    let successor = run.cluster().unwrap().successor(&former.lease).await.unwrap();
    run.sqs().unwrap().heal();
    tokio::time::sleep_until(stopped_at + 2 * TTL).await;

    let cluster = run.cluster().unwrap();
    cluster.members[paused].worker.process.signal(Signal::CONT);
    assert!(becomes_standby(cluster, paused).await, "it still takes itself for the owner\n{}", cluster.log_tails());
    run.publishing_done().await.unwrap();
    run.delivered(3_000).await.unwrap();

    assert_eq!(run.sqs().unwrap().calls_of(&name, SEND), sends, "it started a send");
    let cluster = run.cluster().unwrap();
    let now = (counter(cluster, paused, ACKNOWLEDGED).await, counter(cluster, paused, APPENDS).await);
    assert_eq!(now, (reported.get(ACKNOWLEDGED).unwrap(), reported.get(APPENDS).unwrap()), "{}", cluster.log_tails());
    assert_eq!(cluster.lease().await.unwrap().unwrap(), successor.lease);
    run.expose_member("the owner was paused", &reported);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0));
    assert!(account.duplicates <= account.duplicate_bound);
}
