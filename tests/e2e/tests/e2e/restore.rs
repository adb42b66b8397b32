//! Tables that were restored: what the runbook says to do, and what becomes of the messages in them.

use crate::exclusive::{ACKNOWLEDGED, TWO, counter, shared};
use causeway_e2e::log::{outbox, waiting};
use causeway_e2e::{Run, Setup};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use xtask::proxy::{Fault, Rule};

/// How far `outbox rebase` moves a log.
const STEP: u64 = 1_000_000;

/// Runs `causeway outbox` and gives what it printed or how it failed.
async fn outbox_command(run: &Run, arguments: &[&str]) -> Result<Value, String> {
    let config = run.rig.launch.config.to_string_lossy().into_owned();
    let told = run.rig.launch.run(&[&["outbox"][..], arguments, &["--json", "-c", config.as_str()][..]].concat()).await;
    told.map(|text| serde_json::from_str(&text).unwrap()).map_err(|fault| format!("{fault:#}"))
}

/// Head and tail of the log.
async fn places(run: &Run) -> Vec<(u64, u64)> {
    let listed = outbox_command(run, &["list"]).await.unwrap();
    let number = |log: &Value, name: &str| log[name].as_u64().unwrap();
    listed["logs"].as_array().unwrap().iter().map(|log| (number(log, "drained"), number(log, "tail"))).collect()
}

/// Waits until so many are acknowledged by the members together.
async fn acknowledged(run: &mut Run, count: f64) {
    for _ in 0..1_200 {
        let cluster = run.cluster().unwrap();
        if counter(cluster, 0, ACKNOWLEDGED).await + counter(cluster, 1, ACKNOWLEDGED).await >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not all are acknowledged\n{}", run.cluster().unwrap().log_tails());
}

/// `outbox rebase --yes` as somebody does it who was told to stop every worker: members are forgotten a while after they ended.
async fn rebased(run: &Run) -> Value {
    for _ in 0..120 {
        match outbox_command(run, &["rebase", "--yes"]).await {
            Ok(told) => return told,
            Err(refusal) => assert!(refusal.contains("told of itself lately"), "{refusal}"),
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    panic!("members that are gone are never forgotten");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_in_restored_tables_is_delivered_after_a_rebase() {
    const BACKLOG: u64 = 1_500;
    let mut run = Run::start(&Setup { proxies: true, lanes: 2, ..shared(TWO, 2_500) }).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    run.publish(0..BACKLOG, 0);
    run.publishing_done().await.unwrap();
    acknowledged(&mut run, BACKLOG as f64).await;
    run.stop_members().await.unwrap();

    // The restore writes new tables. Somebody starts the workers too early, as if nothing had happened: no rebase beside them.
    let left = places(&run).await;
    run.restore_tables("restored").await.unwrap();
    assert_eq!(places(&run).await, left);
    run.start_members(TWO).unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    let beside = places(&run).await;
    let refusal = outbox_command(&run, &["rebase", "--yes"]).await.unwrap_err();
    assert!(refusal.contains("a worker seems to run") && refusal.contains("stop every worker"), "{refusal}");
    assert_eq!(places(&run).await, beside, "a refused rebase changes nothing");
    run.stop_members().await.unwrap();

    // Told, it changes nothing; done, every lane goes on a million slots further, and the lease above every epoch.
    let before = places(&run).await;
    let told = outbox_command(&run, &["rebase"]).await.unwrap();
    assert_eq!((told["dry_run"].as_bool(), places(&run).await), (Some(true), before.clone()));
    let done = rebased(&run).await;
    assert_eq!(done["dry_run"].as_bool(), Some(false));
    let moved: Vec<(u64, u64)> = before.iter().map(|(head, tail)| (*head, tail + STEP)).collect();
    assert_eq!(places(&run).await, moved);
    let raised = done["leases"].as_array().unwrap();
    assert!(!raised.is_empty() && raised.iter().all(|lease| lease["to"].as_u64() > lease["from"].as_u64()), "{raised:?}");
    let still: BTreeSet<u64> = waiting(outbox(&run.rig).unwrap().as_ref(), 2).await.unwrap().iter().map(|entry| entry.index).collect();
    assert_eq!(still, (0..BACKLOG).collect(), "all of them wait");
    assert_eq!(run.consumer.unique(), 0);

    run.sqs().unwrap().heal();
    run.start_members(TWO).unwrap();
    let owner = run.cluster().unwrap().holder().await.unwrap();
    assert!(owner.lease.version > done["epoch"].as_u64().unwrap(), "{owner:?} {done}");
    run.delivered(BACKLOG).await.unwrap();
    run.publish(BACKLOG..2_500, 500);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (2_500, 2_500, 0, 0));
}
