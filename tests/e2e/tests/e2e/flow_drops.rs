//! What was not delivered: counters, dead letters, the monitor and the ledger say the same.

use crate::watched::{Watched, until};
use serde_json::Value;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

const LAYER: &str = "
stores: { ledger: { type: sqlite, options: { path: ledger.db } } }
drops: { ledger: { flush_interval: 200ms } }
flow: { store: { max_messages_per_key: 1, on_full: drop_oldest, allow_loss: true, message_ttl: 3s } }
";
const TOTAL: &str = "causeway_dropped_messages_total";

async fn drops(watched: &Watched) -> Value {
    let url = format!("{}/api/v1/monitor/drops", watched.worker.monitor());
    reqwest::get(url).await.unwrap().json().await.unwrap()
}

fn sum(rows: &Value, of: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[of].as_u64().unwrap()).sum()
}

/// `causeway drops list --json`, beside the worker.
async fn listed(watched: &Watched) -> Value {
    let launch = &watched.rig.launch;
    let files = core::iter::once(&launch.config).chain(&launch.layers).map(|path| path.to_str().unwrap());
    let arguments: Vec<&str> = ["drops", "list", "--json", "-c"].into_iter().chain(files).collect();
    serde_json::from_str(&launch.run(&arguments).await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_drops_counters_monitor_and_ledger_agree_over_a_crash() {
    let mut watched = Watched::start(Store::Sqlite, false, LAYER).await;
    let zero = watched.worker.metrics_text().await.unwrap();
    for series in [
        "causeway_dropped_messages_total{reason=\"trimmed\",direction=\"egress\",route=\"ingest\",outcome=\"lost\"} 0",
        "causeway_dropped_messages_total{reason=\"no_route\",direction=\"ingress\",route=\"ingest\",outcome=\"dead_lettered\"} 0",
    ] {
        assert!(zero.lines().any(|line| line == series), "{series} is there from the start: {zero}");
    }
    watched.rig.proxies.as_ref().unwrap().sqs.inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    for topic in ["telemetry/1/a", "telemetry/2/b"] {
        watched.publish_numbers(topic, 0..5).await;
    }
    // Of each topic four make room, and the last one expires and is kept as a dead letter.
    until("ten messages that are not delivered", async || watched.metric(TOTAL).await == 10.0).await;
    let by_what = async || (watched.metric("causeway_messages_dropped_total").await, watched.metric("causeway_dlq_entries_total").await);
    until("the same in the older counters", async || by_what().await == (8.0, 2.0)).await;
    assert_eq!(watched.metric("causeway_conservation_imbalance").await, 0.0);
    let in_ledger = async || {
        let rows = drops(&watched).await["ledger"]["rows"].clone();
        (sum(&rows, "lost"), sum(&rows, "dead_lettered"))
    };
    until("the ledger", async || in_ledger().await == (8, 2)).await;
    let told = drops(&watched).await;
    assert_eq!((sum(&told["counters"], "count"), sum(&told["ledger"]["rows"], "dead_lettered")), (10, 2), "{told}");
    let row = |topic: &str, reason: &str| -> Value {
        let rows = told["ledger"]["rows"].as_array().unwrap();
        rows.iter().find(|row| row["topic"] == topic && row["reason"] == reason).unwrap_or_else(|| panic!("{told}")).clone()
    };
    let trimmed = row("telemetry/1/a", "trimmed");
    assert_eq!((&trimmed["lost"], &trimmed["direction"], &trimmed["route"]), (&4.into(), &"egress".into(), &"ingest".into()));
    assert_eq!(row("telemetry/2/b", "expired")["dead_lettered"], 1);
    // The counters go with the process; the ledger stays.
    watched.kill_and_start_again(|_| {}).await;
    let listed = listed(&watched).await;
    assert_eq!((sum(&listed["rows"], "lost"), sum(&listed["rows"], "dead_lettered"), &listed["complete"]), (8, 2, &true.into()));
    assert_eq!(watched.metric(TOTAL).await, 0.0);
}
