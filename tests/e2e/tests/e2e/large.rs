//! Messages that do not fit into one row of the store.

use causeway_core::identity::LaneId;
use causeway_core::rows::{CODEC_PART, Row};
use causeway_e2e::log::{last_row, outbox, waiting};
use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

const LARGE: &str = "
sessions:
  - id: mqtt-conn
    options:
      session:
        max_payload_bytes: 1000000
        receive_maximum: 4
";

/// Half of these bytes are left when they are packed: two rows of DynamoDB for each message.
const SIZE: usize = 950_000;

async fn killed_with_large_messages(store: Store) {
    let setup = Setup { size: SIZE, proxies: true, layer: Some(LARGE), ..Setup::new(store, 40) };
    let mut run = Run::start(&setup).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    run.publish(0..40, 5);
    for at in [8, 20] {
        run.published(at).await.unwrap();
        run.kill().await.unwrap();
        run.start_worker().await.unwrap();
    }
    run.publishing_done().await.unwrap();
    for _ in 0..600 {
        let Ok(store) = outbox(&run.rig) else { continue };
        if waiting(store.as_ref(), 1).await.is_ok_and(|waiting| waiting.len() >= 40) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let store = outbox(&run.rig).unwrap();
    let mut numbers: Vec<u64> = waiting(store.as_ref(), 1).await.unwrap().into_iter().map(|waiting| waiting.index).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..40).collect::<Vec<u64>>(), "all of them wait in the log");
    let Some(Row::Segment(last)) = last_row(store.as_ref(), LaneId(0)).await.unwrap() else { panic!("the tail is a segment") };
    assert_eq!((last.codec, last.count), (CODEC_PART, 0), "the last row is a further part");
    drop(store);
    run.sqs().unwrap().heal();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (40, 40, 0, 0), "{account:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_larger_than_a_row_survive_kill_9_on_dynamodb() {
    killed_with_large_messages(Store::Dynamodb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_larger_than_a_row_survive_kill_9_on_sqlite() {
    killed_with_large_messages(Store::Sqlite).await;
}
