//! A store that does not answer.

use causeway_e2e::wire::{Seen, Sight};
use causeway_e2e::{Run, Setup};
use std::time::{Duration, Instant};
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

/// Acknowledgements that the worker wrote to the broker.
const ACKNOWLEDGED: &str = "causeway_mqtt_acknowledged_total";
/// Messages that the source handed over.
const RECEIVED: &str = "causeway_mqtt_received_total";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_before_the_store_has_it() {
    let mut run = Run::start(&Setup { proxies: true, tap: true, ..Setup::new(Store::Dynamodb, 50) }).await.unwrap();
    run.dynamodb().unwrap().inject(Rule::always(Fault::Hang));
    run.publish(0..50, 0);
    run.publishing_done().await.unwrap();
    run.metric_reaches(RECEIVED, 50.0).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(run.metrics().await.unwrap().get(ACKNOWLEDGED).unwrap_or(0.0), 0.0);
    assert_eq!(run.consumer.unique(), 0);
    run.kill().await.unwrap();

    tokio::time::sleep(Duration::from_secs(3)).await;
    let tap = run.tap.as_ref().unwrap();
    assert_eq!((tap.deliveries(), tap.acknowledgements()), (50, 0), "the broker had an acknowledgement");
    run.dynamodb().unwrap().heal();
    let healed = Instant::now();
    run.start_worker().await.unwrap();
    run.delivered(50).await.unwrap();
    let tap = run.tap.as_ref().unwrap();
    let acknowledged = |seen: &&Seen| matches!(seen.sight, Sight::Acknowledgement { .. });
    assert!(tap.seen().iter().filter(acknowledged).all(|seen| seen.at > healed && seen.connection == 2));
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (50, 50, 0));
}

/// The first message cannot be stored, and the connection ends: it comes again, is acknowledged once, and the others follow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_again_after_a_failed_write_is_acknowledged_once_and_others_follow() {
    let mut run = Run::start(&Setup { proxies: true, tap: true, ..Setup::new(Store::Dynamodb, 100) }).await.unwrap();
    let fails = Fault::FailBefore { status: 500, code: "InternalServerError".to_owned() };
    run.dynamodb().unwrap().inject(Rule::always(fails).of("PutItem"));
    run.publish(0..1, 0);
    run.publishing_done().await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while run.dynamodb().unwrap().injected() == 0 {
        assert!(Instant::now() < deadline, "nothing is written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    run.tap.as_ref().unwrap().cut();
    while run.tap.as_ref().unwrap().deliveries() < 2 {
        assert!(Instant::now() < deadline, "it does not come again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    run.dynamodb().unwrap().heal();
    run.publish(1..100, 0);
    run.publishing_done().await.unwrap();
    run.delivered(100).await.unwrap();
    run.metric_reaches(ACKNOWLEDGED, 100.0).await.unwrap();

    let seen = run.tap.as_ref().unwrap().seen();
    let copies = |seen: &Seen| match &seen.sight {
        Sight::Delivery { id, again, payload } => Some((seen.connection, *id, *again, payload.clone())),
        _ => None,
    };
    let copies: Vec<_> = seen.iter().filter_map(copies).collect();
    let first = copies[0].3.clone();
    let of_first: Vec<_> = copies.iter().filter(|copy| copy.3 == first).map(|copy| (copy.0, copy.2)).collect();
    assert_eq!(of_first, [(1, false), (2, true)], "the broker marks the second copy");
    let acknowledged = |seen: &Seen| match seen.sight {
        Sight::Acknowledgement { id } => Some((seen.connection, id)),
        _ => None,
    };
    let acknowledged: Vec<_> = seen.iter().filter_map(acknowledged).collect();
    let delivered: Vec<_> = copies.iter().filter(|copy| copy.0 == 2).map(|copy| (copy.0, copy.1)).collect();
    assert_eq!(acknowledged, delivered, "each once, in order, on the connection that it came by");
    run.expose("the connection was cut", vec![("messages that were received and not acknowledged".to_owned(), 1)]);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (100, 100, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_of_the_store_lose_and_repeat_nothing() {
    let mut run = Run::start(&Setup { proxies: true, ..Setup::new(Store::Dynamodb, 3_000) }).await.unwrap();
    run.publish(0..3_000, 1_000);
    for at in [500, 1_000, 1_500, 2_000] {
        run.published(at).await.unwrap();
        run.dynamodb().unwrap().inject(Rule::next("PutItem", 1, Fault::DropAnswer));
    }
    run.published(2_500).await.unwrap();
    assert!(run.dynamodb().unwrap().injected() >= 1, "segments are put with PutItem");
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (3_000, 3_000, 0, 0));
}
