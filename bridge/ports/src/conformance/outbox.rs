//! What every [`Outbox`] promises.

use super::{done, incompressible, suite};
use crate::{LogRecord, LogState, Outbox, Page, Put};
use bytes::Bytes;
use causeway_core::identity::{Epoch, Id128, LaneId, LogName, Position, Slot};
use causeway_core::rows::{Anchor, CODEC_POSTCARD_ZSTD, Head, Row, RowMeta, Segment, SettledRange};
use causeway_core::units::UnixMillis;
use std::sync::Arc;

suite! { $
    /// Expands to one test per case. `$make` is an async function that answers `(Arc<dyn Outbox>, what must live as long)`.
    outbox_conformance, outbox, Arc<dyn Outbox>;
    an_empty_log_has_no_tail_no_head_and_no_rows,
    the_same_row_put_twice_is_stored_both_times,
    another_row_meets_what_stands_there,
    a_deleted_slot_is_free_again,
    concurrent_puts_at_one_slot_store_exactly_one,
    concurrent_puts_of_one_row_are_all_stored,
    the_tail_is_the_highest_slot_whatever_the_order_of_writes,
    the_tail_ignores_the_head_row,
    slots_are_ordered_as_numbers_up_to_the_largest,
    the_head_moves_only_forward,
    a_late_head_of_the_same_epoch_undoes_nothing,
    concurrent_heads_leave_the_furthest,
    a_head_comes_back_whole,
    anchors_come_back_whole,
    segments_come_back_whole,
    a_page_begins_after_its_start_and_ends_with_its_end,
    a_page_skips_missing_rows,
    large_rows_are_split_into_pages,
    many_small_rows_come_in_order,
    a_page_sees_every_write_that_was_answered,
    deletes_take_any_number_of_slots_and_spare_the_rest,
    deleting_absent_rows_is_done,
    deletes_leave_the_head_row_alone,
    logs_do_not_see_each_other,
    a_record_replaces_only_the_one_that_it_names,
    of_many_that_replace_the_same_record_one_does,
    the_registry_keeps_lanes_and_state,
    the_registry_lists_the_logs_of_every_bridge,
    usage_counts_writes_and_reads,
    creating_again_creates_nothing_and_loses_nothing,
}

type Store = Arc<dyn Outbox>;

/// The largest slot whose successor still exists, as an owner may need it.
const LAST: Slot = Slot(u64::MAX);

fn log(partition: &str) -> LogName {
    LogName::new("bridge", partition, 0).unwrap()
}

fn segment(epoch: u64, id: u128, drained: u64, body: impl Into<Bytes>) -> Row {
    Row::Segment(Segment {
        epoch: Epoch(epoch),
        segment_id: Id128(id),
        count: 1,
        codec: CODEC_POSTCARD_ZSTD,
        body: body.into(),
        created_at: UnixMillis(1_700_000_000_000),
        earliest_expiry: None,
        drained: Slot(drained),
    })
}

fn anchor(epoch: u64, id: u128, drained: u64) -> Row {
    Row::Anchor(Anchor {
        epoch: Epoch(epoch),
        anchor_id: Id128(id),
        owner: "worker-1#nonce".to_owned(),
        opened_at: UnixMillis(1_700_000_000_000),
        drained: Slot(drained),
        retired: false,
    })
}

fn head(epoch: u64, drained: u64) -> Head {
    Head { epoch: Epoch(epoch), drained: Slot(drained), ..Head::default() }
}

fn revised(epoch: u64, revision: u64, drained: u64) -> Head {
    Head { revision, ..head(epoch, drained) }
}

fn meta(row: &Row, slot: u64) -> RowMeta {
    row.meta(Slot(slot))
}

#[track_caller]
fn stored(put: &Put) {
    assert_eq!(*put, Put::Stored);
}

async fn put(store: &Store, log: &LogName, slot: u64, row: &Row) -> Put {
    done(store.put(log, Slot(slot), row).await, "put")
}

async fn put_head(store: &Store, log: &LogName, head: &Head) -> bool {
    done(store.put_head(log, head).await, "put_head")
}

async fn delete(store: &Store, log: &LogName, slots: impl IntoIterator<Item = u64>) {
    let slots: Vec<Slot> = slots.into_iter().map(Slot).collect();
    done(store.delete(log, &slots).await, "delete");
}

async fn tail(store: &Store, log: &LogName) -> Option<RowMeta> {
    store.read_tail(log).await.expect("read_tail")
}

async fn page(store: &Store, log: &LogName, after: u64, up_to: u64) -> Page {
    store.read_page(log, Slot(after), Slot(up_to)).await.expect("read_page")
}

/// Every row in the range, read page by page; checks what holds for each page.
async fn pages(store: &Store, log: &LogName, after: u64, up_to: u64) -> Vec<Page> {
    let mut all = Vec::new();
    let mut from = after;
    loop {
        let page = page(store, log, from, up_to).await;
        assert!(page.rows.is_sorted_by(|left, right| left.0 < right.0), "a page is ascending");
        assert!(page.rows.iter().all(|(slot, _)| slot.0 > from && slot.0 <= up_to), "a page keeps its bounds");
        let next = page.next_after;
        if let Some(next) = next {
            assert!(next.0 > from, "the next page begins further on");
            assert!(next.0 < up_to, "no next page is announced once the end was reached");
            assert!(page.rows.iter().all(|(slot, _)| *slot <= next), "the next page begins after the rows of this one");
        }
        all.push(page);
        match next {
            Some(next) => from = next.0,
            None => return all,
        }
    }
}

async fn rows(store: &Store, log: &LogName, after: u64, up_to: u64) -> Vec<(Slot, Row)> {
    pages(store, log, after, up_to).await.into_iter().flat_map(|page| page.rows).collect()
}

async fn slots(store: &Store, log: &LogName) -> Vec<u64> {
    rows(store, log, 0, u64::MAX).await.into_iter().map(|(slot, _)| slot.0).collect()
}

async fn an_empty_log_has_no_tail_no_head_and_no_rows(store: Store) {
    let log = log("s");
    assert_eq!(tail(&store, &log).await, None);
    assert_eq!(store.read_head(&log).await.unwrap(), None);
    assert_eq!(page(&store, &log, 0, u64::MAX).await, Page::default());
    assert!(store.list_logs().await.unwrap().is_empty());
}

async fn the_same_row_put_twice_is_stored_both_times(store: Store) {
    let log = log("s");
    for row in [segment(3, 77, 0, "body"), anchor(4, 78, 0)] {
        let slot = u64::try_from(row.id().0).unwrap();
        stored(&put(&store, &log, slot, &row).await);
        stored(&put(&store, &log, slot, &row).await);
        assert_eq!(rows(&store, &log, slot - 1, slot).await, [(Slot(slot), row)]);
    }
}

async fn another_row_meets_what_stands_there(store: Store) {
    let log = log("s");
    let first = segment(5, 1, 3, "first");
    let flag = anchor(5, 2, 4);
    stored(&put(&store, &log, 7, &first).await);
    stored(&put(&store, &log, 8, &flag).await);
    // Whatever the epoch of the newcomer: a store compares nothing but the id.
    for epoch in [4, 5, 6] {
        for other in [segment(epoch, 10, 6, "other"), anchor(epoch, 11, 6)] {
            assert_eq!(put(&store, &log, 7, &other).await, Put::Occupied(meta(&first, 7)));
            assert_eq!(put(&store, &log, 8, &other).await, Put::Occupied(meta(&flag, 8)));
        }
    }
    assert_eq!(rows(&store, &log, 0, 100).await, [(Slot(7), first), (Slot(8), flag)]);
}

async fn a_deleted_slot_is_free_again(store: Store) {
    let log = log("s");
    stored(&put(&store, &log, 1, &segment(1, 1, 0, "a")).await);
    delete(&store, &log, [1]).await;
    let second = segment(1, 2, 0, "b");
    stored(&put(&store, &log, 1, &second).await);
    assert_eq!(rows(&store, &log, 0, 1).await, [(Slot(1), second)]);
}

async fn put_concurrently(store: &Store, log: &LogName, rows: Vec<Row>) -> Vec<(Row, Put)> {
    let mut tasks = tokio::task::JoinSet::new();
    for row in rows {
        let (store, log) = (Arc::clone(store), log.clone());
        tasks.spawn(async move {
            let put = put(&store, &log, 9, &row).await;
            (row, put)
        });
    }
    tasks.join_all().await
}

async fn concurrent_puts_at_one_slot_store_exactly_one(store: Store) {
    let log = log("s");
    let newcomers = (1..=32).map(|id| segment(id, u128::from(id), 0, vec![b'x'; 512])).collect();
    let ends = put_concurrently(&store, &log, newcomers).await;
    let winners: Vec<&Row> = ends.iter().filter(|(_, put)| *put == Put::Stored).map(|(row, _)| row).collect();
    let [winner] = winners[..] else { panic!("{} puts at one slot were stored", winners.len()) };
    let refused = Put::Occupied(meta(winner, 9));
    assert_eq!(ends.iter().filter(|(_, put)| *put == refused).count(), 31, "every other put meets the winner");
    assert_eq!(rows(&store, &log, 0, 100).await, [(Slot(9), winner.clone())]);
}

async fn concurrent_puts_of_one_row_are_all_stored(store: Store) {
    let log = log("s");
    let row = segment(1, 1, 0, "body");
    let ends = put_concurrently(&store, &log, vec![row.clone(); 16]).await;
    assert!(ends.iter().all(|(_, put)| *put == Put::Stored));
    assert_eq!(rows(&store, &log, 0, 100).await, [(Slot(9), row)]);
}

async fn the_tail_is_the_highest_slot_whatever_the_order_of_writes(store: Store) {
    let log = log("s");
    let (low, high, flag) = (segment(9, 1, 2, "low"), segment(3, 2, 1, "high"), anchor(4, 3, 7));
    stored(&put(&store, &log, 1000, &high).await);
    stored(&put(&store, &log, 999, &low).await);
    assert_eq!(tail(&store, &log).await, Some(meta(&high, 1000)));
    stored(&put(&store, &log, 1001, &flag).await);
    assert_eq!(tail(&store, &log).await, Some(meta(&flag, 1001)));
    delete(&store, &log, [1000]).await;
    assert_eq!(tail(&store, &log).await, Some(meta(&flag, 1001)));
    delete(&store, &log, [1001]).await;
    assert_eq!(tail(&store, &log).await, Some(meta(&low, 999)));
    delete(&store, &log, [999]).await;
    assert_eq!(tail(&store, &log).await, None);
}

async fn the_tail_ignores_the_head_row(store: Store) {
    let log = log("s");
    assert!(put_head(&store, &log, &head(9, 50)).await);
    assert_eq!(tail(&store, &log).await, None);
    let row = segment(1, 1, 0, "a");
    stored(&put(&store, &log, 1, &row).await);
    assert_eq!(tail(&store, &log).await, Some(meta(&row, 1)));
    assert_eq!(slots(&store, &log).await, [1], "nor is the head row in a page");
}

async fn slots_are_ordered_as_numbers_up_to_the_largest(store: Store) {
    let log = log("s");
    let far = i64::MAX as u64;
    let wanted = [1, 2, 9, 10, 11, 99, 100, 1 << 32, 1 << 53, (1 << 53) + 1, far - 1, far, far + 1, far + 2, LAST.0 - 1, LAST.0];
    for slot in wanted.iter().rev() {
        stored(&put(&store, &log, *slot, &segment(1, u128::from(*slot), slot - 1, "x")).await);
    }
    assert_eq!(slots(&store, &log).await, wanted);
    assert_eq!(tail(&store, &log).await.map(|meta| (meta.slot, meta.drained)), Some((LAST, Slot(u64::MAX - 1))));
    let around: Vec<Slot> = rows(&store, &log, far - 1, far + 1).await.into_iter().map(|(slot, _)| slot).collect();
    assert_eq!(around, [Slot(far), Slot(far + 1)]);
    delete(&store, &log, [LAST.0, far + 1]).await;
    assert_eq!(tail(&store, &log).await.map(|meta| meta.slot), Some(Slot(u64::MAX - 1)));
}

async fn the_head_moves_only_forward(store: Store) {
    let log = log("s");
    let steps = [
        (head(5, 10), true, "the first head"),
        (head(5, 10), false, "the same again: no later revision"),
        (head(5, 9), false, "drained behind, same epoch"),
        (head(4, 11), false, "lower epoch, drained ahead"),
        (head(4, 10), false, "lower epoch, same drained"),
        (head(6, 9), false, "higher epoch, drained behind"),
        (head(6, 10), true, "higher epoch, same drained"),
        (head(6, 11), false, "same epoch and revision, drained ahead"),
        (revised(6, 1, 11), true, "same epoch, a later revision, drained ahead"),
        (head(7, 100), true, "both ahead: compared as numbers, not as text"),
        (head(7, 99), false, "behind again"),
        (head(10, 101), true, "an epoch with one more digit"),
        (head(9, 102), false, "the epoch with one digit less"),
        (head(u64::MAX, u64::MAX), true, "the largest"),
        (head(u64::MAX, u64::MAX - 1), false, "just behind the largest"),
        (head(u64::MAX - 1, u64::MAX), false, "an epoch just below the largest"),
    ];
    let mut stands = None;
    for (next, accepted, what) in steps {
        assert_eq!(put_head(&store, &log, &next).await, accepted, "{what}");
        if accepted {
            stands = Some(next);
        }
        assert_eq!(store.read_head(&log).await.unwrap(), stands, "{what}");
    }
}

async fn a_late_head_of_the_same_epoch_undoes_nothing(store: Store) {
    let log = log("s");
    let ahead = |revision, slot| {
        let at = position(slot, 0);
        Head { settled_ahead: vec![SettledRange { from: at, to: at }], ..revised(5, revision, 10) }
    };
    let steps = [
        (ahead(1, 12), true, "the first"),
        (ahead(2, 13), true, "a later revision of the same drained"),
        (ahead(1, 12), false, "the first, applied late"),
        (ahead(2, 14), false, "another of the same revision"),
        (revised(5, 1, 11), false, "an earlier revision, however far it drained"),
        (revised(5, 3, 9), false, "a later revision with less drained"),
        (revised(4, 9, 11), false, "a later revision of a lower epoch"),
        (ahead(10, 15), true, "a revision with one more digit: compared as numbers"),
        (ahead(9, 15), false, "the revision with one digit less"),
        (ahead(u64::MAX, 16), true, "the largest revision"),
        (ahead(u64::MAX - 1, 16), false, "just below the largest"),
        (revised(6, 0, 10), true, "a new epoch begins its revisions anew"),
        (revised(6, 0, 10), false, "and they count from its own"),
        (revised(6, 1, 10), true, "the next of the new epoch"),
    ];
    let mut stands = None;
    for (next, accepted, what) in steps {
        assert_eq!(put_head(&store, &log, &next).await, accepted, "{what}");
        if accepted {
            stands = Some(next);
        }
        assert_eq!(store.read_head(&log).await.unwrap(), stands, "{what}");
    }
}

async fn concurrent_heads_leave_the_furthest(store: Store) {
    let log = log("s");
    let mut tasks = tokio::task::JoinSet::new();
    for drained in 1..=16 {
        let (store, log) = (Arc::clone(&store), log.clone());
        tasks.spawn(async move { (drained, put_head(&store, &log, &revised(1, drained, drained)).await) });
    }
    let ends = tasks.join_all().await;
    assert!(ends.contains(&(16, true)), "the furthest is never refused");
    assert_eq!(store.read_head(&log).await.unwrap(), Some(revised(1, 16, 16)));
}

fn position(slot: u64, index: u32) -> Position {
    Position { slot: Slot(slot), index }
}

async fn a_head_comes_back_whole(store: Store) {
    let log = log("s");
    let full = Head {
        epoch: Epoch(3),
        revision: u64::MAX - 1,
        drained: Slot(12),
        settled_ahead: (0..200).map(|n| SettledRange { from: position(13 + 3 * n, 0), to: position(14 + 3 * n, u32::MAX) }).collect(),
        attempts: (0..200).map(|n| (position(u64::MAX - 200 + n, u32::MAX), 7)).collect(),
    };
    assert!(put_head(&store, &log, &full).await);
    assert_eq!(store.read_head(&log).await.unwrap(), Some(full.clone()));
    let mixed = Head {
        settled_ahead: vec![SettledRange { from: position(14, 3), to: position(14, 3) }],
        attempts: Vec::new(),
        revision: u64::MAX,
        ..full
    };
    assert!(put_head(&store, &log, &mixed).await);
    assert_eq!(store.read_head(&log).await.unwrap(), Some(mixed), "a later head replaces every part of the former");
}

async fn comes_back(store: &Store, log: &LogName, all: Vec<Row>) {
    let wanted: Vec<(Slot, Row)> = (1..).map(Slot).zip(all).collect();
    for (slot, row) in &wanted {
        stored(&put(store, log, slot.0, row).await);
        assert_eq!(tail(store, log).await, Some(row.meta(*slot)));
    }
    let found = rows(store, log, 0, u64::MAX).await;
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(&wanted) {
        // Compared one by one, so that a failure does not print every body.
        assert!(found == wanted, "the row at slot {} came back changed", wanted.0);
    }
}

async fn anchors_come_back_whole(store: Store) {
    let owners = ["worker#1a2b", "", "zwei Wörter, 日本", "nul\u{0}inside", "\u{FFFF}"];
    let mut all: Vec<Row> = Vec::new();
    for (index, owner) in owners.iter().enumerate() {
        all.push(Row::Anchor(Anchor {
            epoch: Epoch(index as u64),
            anchor_id: Id128(u128::MAX - index as u128),
            owner: (*owner).to_owned(),
            opened_at: UnixMillis(index as u64),
            drained: Slot(index as u64),
            retired: index % 2 == 1,
        }));
    }
    all.push(Row::Anchor(Anchor {
        epoch: Epoch(u64::MAX),
        anchor_id: Id128(0),
        owner: "o".repeat(300),
        opened_at: UnixMillis(u64::MAX),
        drained: Slot(u64::MAX),
        retired: true,
    }));
    comes_back(&store, &log("s"), all).await;
}

async fn segments_come_back_whole(store: Store) {
    let bodies: [Vec<u8>; 8] = [
        Vec::new(),
        vec![0],
        (0..=255).collect(),
        b"a\0b".to_vec(),
        vec![0xff, 0xfe, 0x80],
        "\u{FFFF}\u{0}".as_bytes().to_vec(),
        incompressible(256 * 1024, 1),
        vec![0; 256 * 1024],
    ];
    let mut all: Vec<Row> = Vec::new();
    for (index, body) in bodies.into_iter().enumerate() {
        all.push(Row::Segment(Segment {
            epoch: Epoch(index as u64),
            segment_id: Id128((index as u128) << 64),
            count: index as u32,
            codec: index as u8,
            body: body.into(),
            created_at: UnixMillis(index as u64),
            earliest_expiry: (index % 2 == 0).then_some(UnixMillis(index as u64)),
            drained: Slot(index as u64),
        }));
    }
    all.push(Row::Segment(Segment {
        epoch: Epoch(u64::MAX),
        segment_id: Id128(u128::MAX),
        count: u32::MAX,
        codec: u8::MAX,
        body: Bytes::from_static(b"x"),
        created_at: UnixMillis(u64::MAX),
        earliest_expiry: Some(UnixMillis(u64::MAX)),
        drained: Slot(u64::MAX),
    }));
    comes_back(&store, &log("s"), all).await;
}

async fn fill(store: &Store, log: &LogName, slots: impl IntoIterator<Item = u64>) {
    for slot in slots {
        stored(&put(store, log, slot, &segment(1, u128::from(slot), 0, slot.to_be_bytes().to_vec())).await);
    }
}

async fn a_page_begins_after_its_start_and_ends_with_its_end(store: Store) {
    let log = log("s");
    assert!(put_head(&store, &log, &head(1, 0)).await);
    fill(&store, &log, 1..=10).await;
    let slots = async |after, up_to| -> Vec<u64> { rows(&store, &log, after, up_to).await.into_iter().map(|(slot, _)| slot.0).collect() };
    assert_eq!(slots(0, 10).await, (1..=10).collect::<Vec<_>>());
    assert_eq!(slots(3, 6).await, [4, 5, 6]);
    assert_eq!(slots(3, 4).await, [4]);
    assert_eq!(slots(9, u64::MAX).await, [10]);
    for (after, up_to) in [(0, 0), (4, 4), (6, 3), (10, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 0), (u64::MAX - 1, u64::MAX)] {
        assert_eq!(page(&store, &log, after, up_to).await, Page::default(), "after {after} up to {up_to}");
    }
}

async fn a_page_skips_missing_rows(store: Store) {
    let log = log("s");
    fill(&store, &log, [2, 3, 5, 8, 13]).await;
    delete(&store, &log, [3, 8]).await;
    assert_eq!(slots(&store, &log).await, [2, 5, 13]);
}

async fn large_rows_are_split_into_pages(store: Store) {
    const ROW: usize = 256 * 1024;
    let log = log("s");
    for slot in 1..=16_u64 {
        stored(&put(&store, &log, slot, &segment(1, u128::from(slot), 0, incompressible(ROW, slot))).await);
    }
    // With its end at the last row, and with its end beyond every row.
    for up_to in [16, u64::MAX] {
        let pages = pages(&store, &log, 0, up_to).await;
        let largest = pages.iter().map(|page| page.rows.len()).max().unwrap_or_default();
        assert!(largest * ROW <= 3 * 512 * 1024, "a page of {largest} rows is far more than 1 MiB");
        assert!(largest >= 2, "a page of one row of 256 KiB costs a round trip too many");
        let found: Vec<(Slot, Row)> = pages.into_iter().flat_map(|page| page.rows).collect();
        assert_eq!(found.len(), 16);
        for (slot, row) in found {
            assert!(row == segment(1, u128::from(slot.0), 0, incompressible(ROW, slot.0)), "the row at slot {slot} came back changed");
        }
    }
}

async fn many_small_rows_come_in_order(store: Store) {
    let log = log("s");
    fill(&store, &log, 1..=300).await;
    let found = rows(&store, &log, 0, u64::MAX).await;
    assert_eq!(found.len(), 300);
    for ((slot, row), wanted) in found.into_iter().zip(1..) {
        assert_eq!(slot, Slot(wanted));
        assert_eq!(row, segment(1, u128::from(wanted), 0, wanted.to_be_bytes().to_vec()));
    }
}

async fn a_page_sees_every_write_that_was_answered(store: Store) {
    let log = log("s");
    for slot in 1..=50 {
        let row = segment(1, u128::from(slot), slot - 1, "x");
        stored(&put(&store, &log, slot, &row).await);
        assert_eq!(tail(&store, &log).await, Some(meta(&row, slot)));
        assert_eq!(page(&store, &log, slot - 1, u64::MAX).await, Page { rows: vec![(Slot(slot), row)], next_after: None });
    }
}

async fn deletes_take_any_number_of_slots_and_spare_the_rest(store: Store) {
    let log = log("s");
    let mut next = 1;
    for count in [0, 1, 2, 25, 26, 100] {
        fill(&store, &log, next..=next + count).await;
        delete(&store, &log, next..next + count).await;
        assert_eq!(slots(&store, &log).await, [next + count], "after a delete of {count} slots");
        delete(&store, &log, [next + count]).await;
        next += count + 1;
    }
    assert_eq!(slots(&store, &log).await, [0_u64; 0]);
}

async fn deleting_absent_rows_is_done(store: Store) {
    let log = log("s");
    delete(&store, &log, [1, u64::MAX]).await;
    fill(&store, &log, [2, 4]).await;
    for _ in 0..2 {
        delete(&store, &log, [1, 2, 3]).await;
        assert_eq!(slots(&store, &log).await, [4]);
    }
}

async fn deletes_leave_the_head_row_alone(store: Store) {
    let log = log("s");
    assert!(put_head(&store, &log, &head(2, 2)).await);
    fill(&store, &log, 1..=3).await;
    delete(&store, &log, 1..=3).await;
    assert_eq!(store.read_head(&log).await.unwrap(), Some(head(2, 2)));
}

/// Names that a careless key scheme confuses: prefixes of each other, wildcards, case, parts that look alike when joined.
fn confusable_logs() -> Vec<LogName> {
    let parts = [
        ("b", "s"),
        ("b", "s1"),
        ("b", "S"),
        ("b", "_"),
        ("b", "%"),
        ("b", "s "),
        ("bb", "s"),
        ("B", "s"),
        ("b", "ß"),
        ("b", "s\u{10FFFF}"),
        ("b", "s'\""),
    ];
    let mut logs: Vec<LogName> = parts.iter().map(|(bridge, partition)| LogName::new(bridge, partition, 0).unwrap()).collect();
    logs.extend([1, 10, 100].map(|lane| LogName::new("b", "s", lane).unwrap()));
    logs
}

async fn logs_do_not_see_each_other(store: Store) {
    let logs = confusable_logs();
    for (log, n) in logs.iter().zip(1..) {
        stored(&put(&store, log, n, &segment(n, u128::from(n), 0, "x")).await);
        stored(&put(&store, log, 100, &anchor(n, u128::from(100 + n), 0)).await);
        assert!(put_head(&store, log, &head(n, n)).await);
    }
    for (log, n) in logs.iter().zip(1..) {
        assert_eq!(slots(&store, log).await, [n, 100], "{log}");
        assert_eq!(tail(&store, log).await, Some(meta(&anchor(n, u128::from(100 + n), 0), 100)), "{log}");
        assert_eq!(store.read_head(log).await.unwrap(), Some(head(n, n)), "{log}");
    }
    delete(&store, &logs[0], 1..=100).await;
    for (log, n) in logs.iter().zip(1..).skip(1) {
        assert_eq!(slots(&store, log).await, [n, 100], "{log}");
    }
}

fn record(log: &LogName, epoch: u64, lanes: u32, state: LogState) -> LogRecord {
    LogRecord { log: log.clone(), epoch: Epoch(epoch), lanes, state }
}

/// Writes over whatever stands.
async fn register(store: &Store, record: &LogRecord) -> bool {
    let standing = store.read_record(&record.log).await.unwrap();
    replace(store, record, standing.as_ref()).await
}

async fn replace(store: &Store, record: &LogRecord, replaces: Option<&LogRecord>) -> bool {
    done(store.replace_record(record, replaces.map(LogRecord::registration)).await, "replace_record")
}

async fn a_record_replaces_only_the_one_that_it_names(store: Store) {
    let log = log("s");
    let [first, second, third] = [(1, 1), (2, 1), (2, 4)].map(|(epoch, lanes)| record(&log, epoch, lanes, LogState::Open));
    assert_eq!(store.read_record(&log).await.unwrap(), None);
    assert!(!replace(&store, &second, Some(&first)).await, "nothing stands there");
    assert!(replace(&store, &first, None).await);
    assert!(!replace(&store, &second, None).await, "something stands there");
    assert_eq!(store.read_record(&log).await.unwrap(), Some(first.clone()));
    assert!(replace(&store, &second, Some(&first)).await);
    assert!(!replace(&store, &third, Some(&first)).await, "another epoch stands there");
    assert!(replace(&store, &third, Some(&second)).await);
    let largest = record(&log, u64::MAX, u32::MAX, LogState::Retired);
    assert!(!replace(&store, &largest, Some(&second)).await, "another number of lanes stands there");
    assert!(!replace(&store, &largest, Some(&record(&log, 2, 4, LogState::Retired))).await, "another state stands there");
    assert!(replace(&store, &largest, Some(&third)).await);
    assert!(replace(&store, &largest, Some(&largest)).await, "a record may replace its like");
    assert!(replace(&store, &first, Some(&largest)).await, "the name of what stands decides, not the epoch");
    assert_eq!(store.read_record(&log).await.unwrap(), Some(first.clone()));
    assert_eq!(store.list_logs().await.unwrap(), [first]);
    assert_eq!(store.read_record(&log.in_lane(LaneId(1))).await.unwrap(), None, "a record stands under its own name alone");
}

async fn of_many_that_replace_the_same_record_one_does(store: Store) {
    let log = log("s");
    let mut standing = None;
    for round in 1..=5 {
        let rivals: Vec<_> = (1..=8).map(|lanes| record(&log, round, lanes, LogState::Open)).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for rival in rivals {
            let (store, standing) = (Arc::clone(&store), standing.clone());
            tasks.spawn(async move { replace(&store, &rival, standing.as_ref()).await.then_some(rival) });
        }
        let written: Vec<LogRecord> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(written.len(), 1, "round {round}: {written:?}");
        assert_eq!(store.read_record(&log).await.unwrap().as_ref(), written.first());
        standing = written.into_iter().next();
    }
}

async fn the_registry_keeps_lanes_and_state(store: Store) {
    let log = log("s");
    for wanted in [
        record(&log, 1, 1, LogState::Open),
        record(&log, 2, u32::MAX, LogState::Open),
        record(&log, 3, 4, LogState::Retired),
        record(&log, 4, 2, LogState::Open),
    ] {
        assert!(register(&store, &wanted).await);
        assert_eq!(store.list_logs().await.unwrap(), [wanted]);
    }
    assert_eq!(tail(&store, &log).await, None, "a registry record is no row of the log");
    assert_eq!(store.read_head(&log).await.unwrap(), None);
}

async fn the_registry_lists_the_logs_of_every_bridge(store: Store) {
    let mut wanted: Vec<LogRecord> = confusable_logs().iter().map(|log| record(log, 1, 1, LogState::Open)).collect();
    wanted.extend((0..60).map(|n| record(&LogName::new("many", &format!("session-{n}"), 0).unwrap(), n, 2, LogState::Retired)));
    for record in &wanted {
        assert!(register(&store, record).await);
    }
    // A log that was written to and never registered is not listed.
    fill(&store, &log("unregistered"), [1]).await;
    let mut listed = store.list_logs().await.unwrap();
    listed.sort_by(|left, right| left.log.cmp(&right.log));
    wanted.sort_by(|left, right| left.log.cmp(&right.log));
    assert_eq!(listed, wanted);
}

async fn usage_counts_writes_and_reads(store: Store) {
    let log = log("s");
    let mut before = store.usage();
    let mut moved = |what: &str, writes: bool| {
        let now = store.usage();
        let (write_calls, read_calls) = (now.write_calls - before.write_calls, now.read_calls - before.read_calls);
        assert_eq!(write_calls > 0, writes, "{what} moved the write calls by {write_calls}");
        assert_eq!(read_calls > 0, !writes, "{what} moved the read calls by {read_calls}");
        for (now, before) in [(now.write_units, before.write_units), (now.read_units, before.read_units)] {
            assert_eq!(now.is_some(), before.is_some(), "units are counted always or never");
            assert!(now >= before, "units only grow");
        }
        assert!(now.write_units.is_none() || (now.write_units > before.write_units) == writes, "{what} and its write units");
        before = now;
    };
    fill(&store, &log, [1]).await;
    moved("put", true);
    assert!(put_head(&store, &log, &head(1, 1)).await);
    moved("put_head", true);
    tail(&store, &log).await;
    moved("read_tail", false);
    store.read_head(&log).await.unwrap();
    moved("read_head", false);
    page(&store, &log, 0, 9).await;
    moved("read_page", false);
    delete(&store, &log, [1]).await;
    moved("delete", true);
}

async fn creating_again_creates_nothing_and_loses_nothing(store: Store) {
    let log = log("s");
    fill(&store, &log, [1]).await;
    store.probe().await.expect("a created store answers its probe");
    let created = store.create().await.expect("create");
    assert!(created.is_empty(), "it was there already: {created:?}");
    assert_eq!(slots(&store, &log).await, [1]);
}
