//! What every ledger of drops has to do.

use crate::{DropLedger, LedgerBatch};
use causeway_core::drops::ledger::{LedgerCount, LedgerKey, LedgerLimits, LedgerRow};
use causeway_core::drops::{Direction, DropReason};
use causeway_core::units::UnixMillis;
use std::sync::Arc;

fn row(topic: &str, reason: DropReason, lost: u64, dead_lettered: u64, at: u64) -> LedgerRow {
    LedgerRow {
        key: LedgerKey { key: "k#1".to_owned(), reason, topic: topic.to_owned(), direction: Direction::Egress },
        count: LedgerCount {
            lost,
            dead_lettered,
            first: UnixMillis(at),
            last: UnixMillis(at),
            route: format!("route-{at}"),
            qos: 1,
            detail: format!("at {at}"),
        },
    }
}

/// Counts of a key add up, its first time stays and its last details are told, newest keys first.
pub async fn counts_add_up(ledger: Arc<dyn DropLedger>) {
    let first = LedgerBatch {
        id: 1,
        rows: vec![
            row("a", DropReason::Trimmed, 1, 2, 1_000),
            row("a", DropReason::Expired, 5, 0, 1_500),
            row("b#", DropReason::Trimmed, 1, 0, 1_700),
        ],
    };
    ledger.add(&first).await.done().expect("the first batch");
    ledger.add(&LedgerBatch { id: 2, rows: vec![row("a", DropReason::Trimmed, 10, 20, 2_000)] }).await.done().expect("the second");
    let page = ledger.list(10).await.expect("a list");
    assert!(page.complete);
    let seen: Vec<_> =
        page.rows.iter().map(|row| (row.key.topic.as_str(), row.key.reason, row.count.lost, row.count.dead_lettered)).collect();
    let wanted = [("a", DropReason::Trimmed, 11, 22), ("b#", DropReason::Trimmed, 1, 0), ("a", DropReason::Expired, 5, 0)];
    assert_eq!(seen, wanted);
    let row = &page.rows[0];
    assert_eq!((row.count.first, row.count.last), (UnixMillis(1_000), UnixMillis(2_000)));
    assert_eq!((row.count.route.as_str(), row.count.detail.as_str(), row.key.key.as_str()), ("route-2000", "at 2000", "k#1"));
    let page = ledger.list(1).await.expect("a short list");
    assert_eq!((page.rows.len(), page.complete), (1, false));
}

/// A batch whose answer got lost is written again, and counted once.
pub async fn a_repeated_batch_counts_once(ledger: Arc<dyn DropLedger>) {
    let batch = LedgerBatch { id: 7, rows: vec![row("a", DropReason::Trimmed, 3, 0, 1_000)] };
    for _ in 0..3 {
        ledger.add(&batch).await.done().expect("a batch");
    }
    ledger.add(&LedgerBatch { id: 8, rows: batch.rows.clone() }).await.done().expect("another batch");
    assert_eq!(ledger.list(10).await.expect("a list").rows[0].count.lost, 6);
}

/// The old go, and of too many the oldest.
pub async fn the_oldest_go(ledger: Arc<dyn DropLedger>) {
    let rows = (1..=5).map(|nth| row(&format!("t{nth}"), DropReason::Trimmed, 1, 0, nth * 1_000)).collect();
    ledger.add(&LedgerBatch { id: 11, rows }).await.done().expect("a batch");
    let prune =
        async |before, max_rows| ledger.prune(LedgerLimits { before: UnixMillis(before), max_rows }).await.done().expect("a pruning");
    assert_eq!(prune(2_000, 100).await, 1);
    assert_eq!(prune(0, 2).await, 2);
    assert_eq!(prune(0, 2).await, 0);
    let left: Vec<String> = ledger.list(10).await.expect("a list").rows.into_iter().map(|row| row.key.topic).collect();
    assert_eq!(left, ["t5", "t4"]);
}

/// Runs every check, each over a fresh ledger: `$fresh` is an async function that answers it with what has to live as long.
#[macro_export]
macro_rules! drop_ledger_conformance {
    ($fresh:path) => {
        #[tokio::test]
        async fn flow_ledger_counts_add_up() {
            let (ledger, _keep) = $fresh().await;
            $crate::conformance::drop_ledger::counts_add_up(ledger).await;
        }

        #[tokio::test]
        async fn flow_ledger_a_repeated_batch_counts_once() {
            let (ledger, _keep) = $fresh().await;
            $crate::conformance::drop_ledger::a_repeated_batch_counts_once(ledger).await;
        }

        #[tokio::test]
        async fn flow_ledger_the_oldest_go() {
            let (ledger, _keep) = $fresh().await;
            $crate::conformance::drop_ledger::the_oldest_go(ledger).await;
        }
    };
}
