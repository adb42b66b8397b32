//! A circuit breaker before a queue that is away.

use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

const GUARDED: &str = "
processors:
  - {id: guard, type: circuit_breaker, options: {failure_threshold: 3, reset_timeout: 20s}}
routes:
  - {id: ingest, processors: [guard]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_away_is_left_alone_and_everything_arrives_afterwards() {
    let mut run = Run::start(&Setup { proxies: true, layer: Some(GUARDED), ..Setup::new(Store::Sqlite, 500) }).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    run.publish(0..500, 0);
    run.publishing_done().await.unwrap();
    run.metric_reaches("causeway_circuit_breaker_opened_total", 1.0).await.unwrap();
    run.metric_reaches("causeway_outbox_depth", 490.0).await.unwrap();
    let left_alone = run.sqs().unwrap().calls("SendMessageBatch");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(run.metrics().await.unwrap().get("causeway_circuit_breaker_state"), Some(2.0));
    // Retries come every quarter of a second to every 5 s without it; what was under way when it opened may still have ended.
    assert!(run.sqs().unwrap().calls("SendMessageBatch") <= left_alone + 1);
    run.sqs().unwrap().heal();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.duplicates, account.lost), (500, 500, 0, 0));
}
