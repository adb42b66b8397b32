//! A bounded outbox: while it is full the broker keeps what comes.

use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

const BOUNDED: &str = "
routes:
  - id: ingest
    policy:
      max_outbox_depth: 500
      depth_cache_ttl: 250ms
";

/// Messages in the outbox or on their way into or out of it.
async fn depth(run: &Run) -> f64 {
    let metrics = run.metrics().await.unwrap();
    ["causeway_route_in_outbox", "causeway_route_in_flight"].into_iter().map(|name| metrics.get(name).unwrap_or(0.0)).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_outbox_is_full_the_broker_keeps_what_comes_and_a_crash_loses_nothing() {
    let mut run = Run::start(&Setup { proxies: true, layer: Some(BOUNDED), ..Setup::new(Store::Sqlite, 3_000) }).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    run.publish(0..3_000, 0);
    run.publishing_done().await.unwrap();
    for _ in 0..2 {
        run.metric_reaches("causeway_admission_paused", 1.0).await.unwrap();
        run.metric_reaches("causeway_outbox_full_total", 1.0).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(depth(&run).await, 500.0);
        assert_eq!(run.consumer.unique(), 0);
        run.kill().await.unwrap();
        run.start_worker().await.unwrap();
    }
    run.sqs().unwrap().heal();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0));
}
