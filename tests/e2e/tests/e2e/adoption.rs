//! Workers that share a subscription, each with a log of its own: what one leaves behind, another delivers.

use crate::exclusive::{ACKNOWLEDGED, TWO, counter, shared};
use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::proxy::{Fault, Rule};

/// Logs that a worker drained and closed for one that is gone.
const ADOPTED: &str = "causeway_logs_adopted_total";

/// Every registered log: its name, its state, and what waits in it.
async fn logs(run: &Run) -> Vec<(String, String, u64)> {
    let config = run.rig.launch.config.to_string_lossy().into_owned();
    let text = run.rig.launch.run(&["outbox", "list", "--json", "-c", &config]).await.unwrap();
    let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let logs = listed["logs"].as_array().unwrap();
    logs.iter().map(|log| (text(&log["log"]), text(&log["state"]), log["entries"].as_u64().unwrap())).collect()
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_worker_had_acknowledged_is_delivered_by_the_other_one() {
    const BEFORE: u64 = 1_000;
    let setup = Setup { proxies: true, shared_subscription: true, ..shared(TWO, 2_500) };
    let mut run = Run::start(&setup).await.unwrap();
    for member in &mut run.cluster().unwrap().members {
        member.worker.ready("full").await.unwrap();
    }
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));

    // All of these are persisted and acknowledged, by either, and none is delivered.
    run.publish(0..BEFORE, 500);
    run.publishing_done().await.unwrap();
    until("all acknowledged", &mut run, async |run| {
        let cluster = run.cluster().unwrap();
        counter(cluster, 0, ACKNOWLEDGED).await + counter(cluster, 1, ACKNOWLEDGED).await >= BEFORE as f64
    })
    .await;
    assert_eq!(run.consumer.unique(), 0);

    // And in mid-stream one is gone.
    run.publish(BEFORE..2_500, 500);
    run.published(BEFORE + 500).await.unwrap();
    let mut killed = run.cluster().unwrap().members.remove(0);
    let reported = killed.worker.metrics().await.unwrap();
    killed.worker.process.kill().await.unwrap();
    run.expose_member("a worker was killed", &reported);
    let left = logs(&run).await;
    assert_eq!(left.len(), 2, "each has a log of its own: {left:?}");
    assert!(left.iter().all(|(_, state, entries)| state == "open" && *entries > 0), "{left:?}");

    until("the other one adopts", &mut run, async |run| run.cluster().unwrap().log_tails().contains("adopting a log")).await;
    assert_eq!(run.consumer.unique(), 0, "the queue is still away");
    run.sqs().unwrap().heal();
    until("adopted", &mut run, async |run| counter(run.cluster().unwrap(), 0, ADOPTED).await >= 1.0).await;
    let closed: Vec<_> = logs(&run).await.into_iter().filter(|(_, state, _)| state == "retired").collect();
    assert!(matches!(closed.as_slice(), [(_, _, 0)]), "{closed:?}");

    // Whatever anybody had acknowledged has arrived, or is on its way out of the living one's log.
    let persisted = reported.get(ACKNOWLEDGED).unwrap();
    let by_dead = left.iter().find(|(name, ..)| *name == closed[0].0).unwrap().2;
    assert!(by_dead as f64 >= persisted, "acknowledged without being persisted: {by_dead} < {persisted}");
    until("the first ones", &mut run, async |run| run.consumer.has_all(0..BEFORE).await).await;
    let all = logs(&run).await;
    assert_eq!(all.len(), 2, "{all:?}");
    let window = u64::from(run.settings().receive_maximum);
    let (account, log) = run.settle().await.unwrap();
    // What the broker had handed to the dead one, and that one had not acknowledged, an ephemeral session does not bring back.
    assert!(account.lost <= window, "{account:#?}\n{log}");
    assert_eq!((account.published, account.corrupted), (2_500, 0), "{account:#?}\n{log}");
    assert!(account.duplicates <= account.duplicate_bound, "{account:#?}\n{log}");
    assert!(log.contains("closed for good"), "{log}");
}
