//! A queue that refuses, and one whose answers get lost.

use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

const SEND: &str = "SendMessageBatch";

async fn with_proxies(messages: u64) -> Run {
    Run::start(&Setup { proxies: true, ..Setup::new(Store::Sqlite, messages) }).await.unwrap()
}

/// Injects `fault` once while messages flow, and demands that it was met.
async fn hit_once(run: &Run, fault: Fault) {
    let before = run.sqs().unwrap().injected();
    run.sqs().unwrap().inject(Rule::next(SEND, 1, fault));
    for _ in 0..1_200 {
        if run.sqs().unwrap().injected() > before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no batch was sent within a minute");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_lose_and_repeat_nothing() {
    let mut run = with_proxies(4_000).await;
    run.publish(0..4_000, 500);
    let refusals = [
        Fault::FailBefore { status: 503, code: String::new() },
        Fault::FailBefore { status: 403, code: "com.amazonaws.sqs#RequestThrottled".to_owned() },
        Fault::RefuseEntries { count: 1, code: "InternalError".to_owned(), sender_fault: false },
        Fault::FailBefore { status: 400, code: "com.amazonaws.sqs#ThrottlingException".to_owned() },
        Fault::ResetBefore,
    ];
    for refusal in refusals {
        hit_once(&run, refusal).await;
    }
    // A connection that breaks before the call leaves the caller as much in doubt as one that breaks after it, but repeats nothing.
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (4_000, 4_000, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_repeats_one_batch_at_most() {
    let mut run = with_proxies(2_000).await;
    run.publish(0..2_000, 500);
    hit_once(&run, Fault::DropAnswer).await;
    run.expose("the answer to one batch was lost", vec![("entries of a batch".to_owned(), 10)]);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (2_000, 2_000, 0));
    assert!(account.duplicates >= 1, "the batch whose answer was lost must have been sent again");
}
