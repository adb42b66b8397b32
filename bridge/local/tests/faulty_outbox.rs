//! The outbox with injected faults: the outbox inside where nothing is injected, and what was injected otherwise.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use causeway_core::identity::{Epoch, Id128, LogName, Slot};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Anchor, Head, Row};
use causeway_core::units::UnixMillis;
use causeway_local::memory::MemoryOutbox;
use causeway_ports::fake::{FaultyOutbox, Injection, OutboxCall};
use causeway_ports::{Outbox, Put};
use std::sync::Arc;
use std::time::Duration;

mod without_injections {
    use super::{FaultyOutbox, MemoryOutbox};
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::Outbox>, ()) {
        (Arc::new(FaultyOutbox::new(MemoryOutbox::new())), ())
    }
    causeway_ports::outbox_conformance!(fresh);
}

fn log() -> LogName {
    LogName::new("b", "s", 0).unwrap()
}

fn row(id: u128) -> Row {
    Row::Anchor(Anchor {
        epoch: Epoch(1),
        anchor_id: Id128(id),
        owner: "o".to_owned(),
        opened_at: UnixMillis(0),
        drained: Slot(0),
        retired: false,
    })
}

fn fault() -> Fault {
    Fault::new(FaultCode::Timeout, "no answer in time")
}

async fn slots(outbox: &FaultyOutbox<MemoryOutbox>) -> Vec<u64> {
    let page = outbox.inner().read_page(&log(), Slot(0), Slot(u64::MAX)).await.unwrap();
    page.rows.iter().map(|(slot, _)| slot.0).collect()
}

#[tokio::test]
async fn a_write_is_refused_or_lost_on_the_way_there_or_back() {
    let outbox = FaultyOutbox::new(MemoryOutbox::new());
    outbox.inject_next(OutboxCall::Put, Injection::Refuse(fault()));
    outbox.inject_next(OutboxCall::Put, Injection::LoseRequest(fault()));
    outbox.inject_next(OutboxCall::Put, Injection::LoseAnswer(fault()));
    assert_eq!(outbox.put(&log(), Slot(1), &row(1)).await, Outcome::NotDone(fault()));
    assert_eq!(outbox.put(&log(), Slot(2), &row(2)).await, Outcome::Unknown(fault()));
    assert_eq!(slots(&outbox).await, [0_u64; 0]);
    assert_eq!(outbox.put(&log(), Slot(3), &row(3)).await, Outcome::Unknown(fault()));
    assert_eq!(slots(&outbox).await, [3]);
    assert_eq!(outbox.put(&log(), Slot(3), &row(3)).await, Outcome::Done(Put::Stored));
    assert_eq!(outbox.calls(OutboxCall::Put), 4);
}

#[tokio::test]
async fn injections_count_calls_of_their_kind() {
    let outbox = FaultyOutbox::new(MemoryOutbox::new());
    outbox.inject(OutboxCall::ReadTail, 2, 2, Injection::LoseAnswer(fault()));
    let mut failed = Vec::new();
    for _ in 0..6 {
        outbox.read_head(&log()).await.unwrap();
        failed.push(outbox.read_tail(&log()).await.is_err());
    }
    assert_eq!(failed, [false, false, true, true, false, false]);
    outbox.inject(OutboxCall::ReadTail, 0, u64::MAX, Injection::Refuse(fault()));
    assert_eq!(outbox.read_tail(&log()).await, Err(fault()));
    outbox.heal();
    assert_eq!(outbox.read_tail(&log()).await, Ok(None));
}

#[tokio::test]
async fn a_late_write_takes_effect_when_it_is_told_to() {
    let outbox = FaultyOutbox::new(MemoryOutbox::new());
    let head = Head { epoch: Epoch(1), drained: Slot(1), ..Head::default() };
    for call in [OutboxCall::Put, OutboxCall::PutHead, OutboxCall::Delete] {
        outbox.inject_next(call, Injection::ApplyLate(fault()));
    }
    assert!(matches!(outbox.put(&log(), Slot(1), &row(1)).await, Outcome::Unknown(_)));
    assert!(matches!(outbox.put_head(&log(), &head).await, Outcome::Unknown(_)));
    assert_eq!(outbox.put(&log(), Slot(2), &row(2)).await, Outcome::Done(Put::Stored));
    assert!(matches!(outbox.delete(&log(), &[Slot(2)]).await, Outcome::Unknown(_)));
    assert_eq!((slots(&outbox).await, outbox.read_head(&log()).await.unwrap()), (vec![2], None));
    assert_eq!(outbox.apply_late().await, 3);
    assert_eq!((slots(&outbox).await, outbox.read_head(&log()).await.unwrap()), (vec![1], Some(head)));
    assert_eq!(outbox.apply_late().await, 0);
}

#[tokio::test]
async fn calls_are_delayed_and_held() {
    let outbox = Arc::new(FaultyOutbox::new(MemoryOutbox::new()));
    let begun = std::time::Instant::now();
    outbox.inject_next(OutboxCall::Put, Injection::Delay(Duration::from_millis(50)));
    assert_eq!(outbox.put(&log(), Slot(1), &row(1)).await, Outcome::Done(Put::Stored));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    outbox.inject_next(OutboxCall::Put, Injection::Hold);
    let put = {
        let outbox = Arc::clone(&outbox);
        tokio::spawn(async move { outbox.put(&log(), Slot(2), &row(2)).await })
    };
    outbox.held_at_least(1).await;
    assert_eq!(slots(&outbox).await, [1]);
    outbox.release();
    assert_eq!(put.await.unwrap(), Outcome::Done(Put::Stored));
    outbox.calls_at_least(OutboxCall::Put, 2).await;
}
