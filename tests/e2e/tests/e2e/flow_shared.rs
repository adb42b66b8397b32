//! Workers that share a subscription, of which one does not get on.

use crate::exclusive::{TWO, shared};
use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::proxy::{Fault, Rule};

/// Whether a member says that it left its groups.
async fn is_away(run: &mut Run, member: usize) -> bool {
    let session = run.cluster().unwrap().members[member].worker.shown().await;
    session.is_some_and(|session| session["unshared"] == true)
}

async fn until(what: &str, run: &mut Run, mut holds: impl AsyncFnMut(&mut Run) -> bool) {
    for _ in 0..1_200 {
        if holds(run).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: not within a minute\n{}", run.cluster().unwrap().log_tails());
}

/// The store takes no appends of these, and everything else.
fn stall(run: &Run, names: &[&str]) {
    for name in names {
        let fault = Fault::FailBefore { status: 500, code: "InternalServerError".to_owned() };
        run.dynamodb().unwrap().inject(Rule::always(fault).of("PutItem").by(name).containing("LOG#"));
    }
}

/// The broker goes on giving a member its share, whether that gets on or not. It leaves, the other gets everything, and it comes back. Where neither gets on,
/// neither leaves: a group without members keeps nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_get_on_leaves_its_share_to_the_other_and_comes_back() {
    let layer = "bridge: { cluster: { member_interval: 2s } }\nflow: { inbound: { unshare_after: 2s } }";
    let setup = Setup { proxies: true, shared_subscription: true, layer: Some(layer), ..shared(TWO, 5_000) };
    let mut run = Run::start(&setup).await.unwrap();
    for member in &mut run.cluster().unwrap().members {
        member.worker.ready("full").await.unwrap();
    }

    stall(&run, &["worker-1"]);
    run.publish(0..1_000, 500);
    run.publishing_done().await.unwrap();
    until("it leaves", &mut run, async |run| is_away(run, 0).await).await;
    // Had it stayed, half of these would wait for it with the broker.
    run.publish(1_000..3_000, 500);
    run.publishing_done().await.unwrap();
    until("the other one gets everything", &mut run, async |run| run.consumer.has_all(1_000..3_000).await).await;
    assert!(run.consumer.unique() < 3_000 && is_away(&mut run, 0).await && !is_away(&mut run, 1).await);

    run.dynamodb().unwrap().heal();
    until("it comes back", &mut run, async |run| !is_away(run, 0).await).await;
    until("what it held", &mut run, async |run| run.consumer.has_all(0..3_000).await).await;

    stall(&run, &["worker-1", "worker-2"]);
    run.publish(3_000..4_000, 500);
    run.publishing_done().await.unwrap();
    // Each has been stuck for three times as long as it would take to leave.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(!is_away(&mut run, 0).await && !is_away(&mut run, 1).await, "{}", run.cluster().unwrap().log_tails());
    run.publish(4_000..5_000, 500);
    run.publishing_done().await.unwrap();
    run.dynamodb().unwrap().heal();
    until("everything", &mut run, async |run| run.consumer.has_all(0..5_000).await).await;
    let (account, log) = run.settle().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (5_000, 5_000, 0), "{account:#?}\n{log}");
    assert!(log.contains("taking a share of the messages again"), "{log}");
}
