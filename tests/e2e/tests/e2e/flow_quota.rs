//! One budget for four workers: what they admit together stays within it, while its store is there and while it is away.

use crate::exclusive::{counter, shared};
use causeway_e2e::{Run, Setup};
use std::time::{Duration, Instant};
use xtask::proxy::{Fault, Rule};
use xtask::worker::Role;

const FOUR: &[(&str, Role)] =
    &[("worker-1", Role::Worker), ("worker-2", Role::Worker), ("worker-3", Role::Worker), ("worker-4", Role::Worker)];

/// Tokens a second, and as many saved up. A message costs two: one for it, and one for the queue that it goes to.
const RATE: f64 = 100.0;
const BLOCK: f64 = 10.0;
const COST: f64 = 2.0;
const LAYER: &str = "bridge: { cluster: { member_interval: 2s } }\nflow: { quota: { enabled: true, rate: \"100:1\" } }";

const CHARGED: &str = "causeway_quota_charged_total";
const DRAWS: &str = "causeway_quota_draws_total";
const DEGRADED: &str = "causeway_quota_degraded";

/// What was admitted so far, between two moments.
#[derive(Clone, Copy, Debug)]
struct Seen {
    from: f64,
    to: f64,
    charged: f64,
}

async fn sum(run: &mut Run, name: &str) -> f64 {
    let mut sum = 0.0;
    for member in 0..FOUR.len() {
        sum += counter(run.cluster().unwrap(), member, name).await;
    }
    sum
}

/// Looks until `until` holds.
async fn watch(run: &mut Run, began: Instant, seen: &mut Vec<Seen>, mut until: impl AsyncFnMut(&mut Run, f64) -> bool) {
    for _ in 0..1_500 {
        let from = began.elapsed().as_secs_f64();
        let charged = sum(run, CHARGED).await;
        let to = began.elapsed().as_secs_f64();
        seen.push(Seen { from, to, charged });
        if until(run, to).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    panic!("not within minutes: {:?}\n{}", seen.last(), run.cluster().unwrap().log_tails());
}

/// In every window.
fn holds(seen: &[Seen]) {
    for (index, first) in seen.iter().enumerate() {
        for last in &seen[index + 1..] {
            let (admitted, window) = (last.charged - first.charged, last.to - first.from);
            let bound = RATE + RATE * window + FOUR.len() as f64 * (BLOCK + COST);
            assert!(admitted <= bound, "{admitted} in {window} s, above {bound}: from {first:?} to {last:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_four_workers_stay_within_one_budget_with_its_store_and_without() {
    const MESSAGES: u64 = 3_000;
    let setup = Setup { proxies: true, shared_subscription: true, layer: Some(LAYER), ..shared(FOUR, MESSAGES) };
    let mut run = Run::start(&setup).await.unwrap();
    for member in &mut run.cluster().unwrap().members {
        member.worker.ready("full").await.unwrap();
    }
    // Each looks once more how many they are.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (began, mut seen) = (Instant::now(), Vec::new());
    // Three times as much as the budget admits.
    run.publish(0..MESSAGES, 150);
    watch(&mut run, began, &mut seen, async |_, now| now >= 12.0).await;
    let (drawn, after) = (sum(&mut run, DRAWS).await, began.elapsed().as_secs_f64());
    let charged = seen.last().unwrap().charged;
    assert!(charged >= RATE * 8.0, "the budget is used: {charged} in {after} s");
    assert!(drawn / after <= 12.0, "{drawn} draws in {after} s");
    let reached = run.cluster().unwrap().members[0].worker.shown().await.unwrap()["quota"].clone();
    assert!(reached["reached_since"].is_u64() && reached["rate"] == "100:1", "{reached}");

    // Only the budget is cut off: what is admitted goes on its way.
    run.dynamodb().unwrap().inject(Rule::always(Fault::Hang).containing("QUOTA#"));
    watch(&mut run, began, &mut seen, async |run, _| sum(run, DEGRADED).await >= 4.0).await;
    let (cut, before) = (began.elapsed().as_secs_f64(), seen.last().unwrap().charged);
    watch(&mut run, began, &mut seen, async |_, now| now >= cut + 30.0).await;
    let blind = seen.last().unwrap().charged - before;
    assert!((RATE * 30.0 * 0.5..=RATE * 31.5 + 4.0 * (BLOCK + COST)).contains(&blind), "by their shares they admitted {blind} in 30 s");
    run.dynamodb().unwrap().heal();
    watch(&mut run, began, &mut seen, async |run, _| sum(run, DEGRADED).await == 0.0).await;
    watch(&mut run, began, &mut seen, async |run, _| run.consumer.has_all(0..MESSAGES).await).await;
    holds(&seen);

    // What arrived is what was charged, as each tells within a second.
    watch(&mut run, began, &mut seen, async |run, _| sum(run, CHARGED).await >= COST * MESSAGES as f64).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(sum(&mut run, CHARGED).await, COST * MESSAGES as f64);
    let (account, log) = run.settle().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (MESSAGES, MESSAGES, 0), "{account:#?}\n{log}");
}
