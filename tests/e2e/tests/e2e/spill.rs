//! `spill_outbox`: past the outbox while the queue keeps up, through it when it does not.

use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;
use xtask::worker::DeliveryMode;

fn spilling(store: Store, messages: u64) -> Setup {
    Setup { delivery_mode: DeliveryMode::SpillOutbox, proxies: true, ..Setup::new(store, messages) }
}

fn outage() -> Rule {
    Rule::always(Fault::FailBefore { status: 503, code: String::new() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_queue_keeps_up_no_message_costs_a_write() {
    // However slow this machine is, its queue counts as keeping up.
    let mut run = Run::start(&Setup { spill_after_ms: 60_000, ..spilling(Store::Dynamodb, 2_000) }).await.unwrap();
    run.publish(0..100, 100);
    run.publishing_done().await.unwrap();
    run.delivered(100).await.unwrap();
    // What opening the log left to be written is written by now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = run.dynamodb().unwrap().writes();
    run.publish(100..2_000, 500);
    run.publishing_done().await.unwrap();
    run.delivered(2_000).await.unwrap();
    assert_eq!(run.dynamodb().unwrap().writes(), before, "1,900 messages");
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.duplicates, account.lost), (2_000, 2_000, 0, 0));
}

async fn killed_in_an_outage(setup: Setup) {
    let mut run = Run::start(&setup).await.unwrap();
    run.publish(0..3_000, 500);
    run.published(500).await.unwrap();
    run.sqs().unwrap().inject(outage());
    run.published(1_200).await.unwrap();
    run.kill().await.unwrap();
    run.start_worker().await.unwrap();
    run.published(1_800).await.unwrap();
    run.sqs().unwrap().heal();
    run.published(2_400).await.unwrap();
    run.kill().await.unwrap();
    run.start_worker().await.unwrap();
    // More duplicates than were announced are a fault of the account.
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (3_000, 3_000, 0, 0), "{account:#?}");
    if setup.fifo {
        assert_eq!(account.order_violations, 0, "the order of a group is exact: {account:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_and_kill_9_lose_nothing_on_sqlite() {
    killed_in_an_outage(spilling(Store::Sqlite, 3_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_and_kill_9_lose_nothing_on_dynamodb() {
    killed_in_an_outage(spilling(Store::Dynamodb, 3_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_and_kill_9_keep_the_order_of_every_group_of_a_fifo_queue() {
    killed_in_an_outage(Setup { fifo: true, ..spilling(Store::Sqlite, 3_000) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_an_outage_messages_are_acknowledged_because_the_outbox_has_them() {
    let mut run = Run::start(&spilling(Store::Sqlite, 1_000)).await.unwrap();
    run.sqs().unwrap().inject(outage());
    run.publish(0..1_000, 500);
    run.publishing_done().await.unwrap();
    run.metric_reaches("causeway_mqtt_acknowledged_total", 1_000.0).await.unwrap();
    assert_eq!(run.consumer.unique(), 0);
    run.sqs().unwrap().heal();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (1_000, 1_000, 0, 0));
}
