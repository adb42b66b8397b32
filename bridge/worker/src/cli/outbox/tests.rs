#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::rebase::{carry_out, found_logs};
use super::*;
use bytes::Bytes;
use causeway_core::identity::{Epoch, Id128, LaneId};
use causeway_core::message::{Entry, Message};
use causeway_core::rebase::plan;
use causeway_core::rows::{Anchor, CODEC_POSTCARD_ZSTD, Segment, pack};
use causeway_local::memory::MemoryOutbox;
use causeway_ports::Put;
use std::sync::Arc;

fn anchor(epoch: u64, retired: bool) -> Row {
    let (anchor_id, owner) = (Id128(u128::from(epoch)), format!("w{epoch}#1"));
    Row::Anchor(Anchor { epoch: Epoch(epoch), anchor_id, owner, opened_at: UnixMillis(1), drained: Slot(0), retired })
}

fn segment(id: u128, count: u32, created_at: u64) -> Row {
    let (epoch, created_at) = (Epoch(3), UnixMillis(created_at));
    let body = Bytes::from_static(b"not read");
    let (codec, drained) = (CODEC_POSTCARD_ZSTD, Slot(0));
    Row::Segment(Segment { epoch, segment_id: Id128(id), count, codec, body, created_at, earliest_expiry: None, drained })
}

async fn put(outbox: &MemoryOutbox, log: &LogName, slot: u64, row: Row) {
    assert_eq!(outbox.put(log, Slot(slot), &row).await.done().unwrap(), Put::Stored);
}

/// A log of two lanes, and what is left of a third that was closed.
async fn two_lanes() -> (MemoryOutbox, [LogName; 3]) {
    let outbox = MemoryOutbox::new();
    let log = LogName::new("b", "s", 0).unwrap();
    let lanes = [0, 1, 2].map(|lane| log.in_lane(LaneId(lane)));
    let record = LogRecord { log, epoch: Epoch(3), lanes: 2, state: LogState::Open };
    assert!(outbox.replace_record(&record, None).await.done().unwrap());
    let other = LogRecord { log: LogName::new("other", "s", 0).unwrap(), ..record };
    assert!(outbox.replace_record(&other, None).await.done().unwrap());
    put(&outbox, &lanes[0], 1, anchor(3, false)).await;
    put(&outbox, &lanes[0], 2, segment(10, 3, 2_000)).await;
    put(&outbox, &lanes[1], 7, anchor(4, false)).await;
    put(&outbox, &lanes[1], 8, segment(11, 2, 1_000)).await;
    put(&outbox, &lanes[1], 9, segment(12, 2, 3_000)).await;
    let head = Head { epoch: Epoch(4), revision: 1, drained: Slot(8), ..Head::default() };
    assert!(outbox.put_head(&lanes[1], &head).await.done().unwrap());
    put(&outbox, &lanes[2], 5, anchor(2, true)).await;
    (outbox, lanes)
}

#[tokio::test]
async fn figures_are_told_of_every_lane() {
    let (outbox, lanes) = two_lanes().await;
    let stats = stats(&outbox, "b").await.unwrap();
    let told: Vec<_> =
        stats.iter().map(|stat| (stat.log.as_str(), stat.lanes, stat.tail, stat.drained, stat.segments, stat.entries)).collect();
    assert_eq!(told, [(lanes[0].as_str(), 2, 2, 0, 1, 3), (lanes[1].as_str(), 2, 9, 8, 1, 2)]);
    assert_eq!(stats[0].owner.as_deref(), Some("w3#1"));
    assert_eq!(stats.iter().map(|stat| stat.oldest_created_at).collect::<Vec<_>>(), [Some(UnixMillis(2_000)), Some(UnixMillis(3_000))]);
}

#[tokio::test]
async fn every_lane_is_moved_on_the_closed_ones_too() {
    let (outbox, lanes) = two_lanes().await;
    let found = found_logs(&outbox, "b").await.unwrap();
    assert_eq!(found.iter().map(|found| &found.log).collect::<Vec<_>>(), lanes.iter().collect::<Vec<_>>());
    let mut id = 100;
    let ids = || {
        id += 1;
        Id128(id)
    };
    let plan = plan(&found, &[], 1_000, "rebase#1", UnixMillis(9), ids).unwrap();
    carry_out(&plan, &outbox, None).await.unwrap();
    for (lane, slot) in lanes.iter().zip([1_002, 1_009, 1_005]) {
        let tail = outbox.read_tail(lane).await.unwrap().unwrap();
        assert_eq!((tail.slot, tail.epoch), (Slot(slot), Epoch(5)), "{lane}");
    }
    assert_eq!(stats(&outbox, "b").await.unwrap().iter().map(|stat| stat.entries).collect::<Vec<_>>(), [3, 2], "what waited waits");
}

#[tokio::test]
async fn what_is_settled_and_kept_can_be_looked_at() {
    let outbox = MemoryOutbox::new();
    let log = LogName::new("b", "s", 0).unwrap();
    let entry = |id: u128| {
        Arc::new(Entry {
            id: Id128(id),
            route: "r".into(),
            binding: "to".into(),
            address: None,
            refusal: None,
            source: "in".into(),
            received_at: UnixMillis(5),
            expires_at: None,
            message: Message { topic: format!("t/{id}"), payload: Bytes::from_static(b"four"), ..Message::default() },
            redrive: None,
        })
    };
    let packed = |ids: core::ops::Range<u128>| {
        let entries: Vec<_> = ids.map(entry).collect();
        let (epoch, count) = (Epoch(3), u32::try_from(entries.len()).unwrap());
        let (body, created_at, drained) = (pack(&entries).unwrap(), UnixMillis(6), Slot(0));
        Row::Segment(Segment {
            epoch,
            segment_id: entries[0].id,
            count,
            codec: CODEC_POSTCARD_ZSTD,
            body,
            created_at,
            earliest_expiry: None,
            drained,
        })
    };
    put(&outbox, &log, 1, anchor(3, false)).await;
    put(&outbox, &log, 3, packed(30..33)).await;
    put(&outbox, &log, 4, packed(40..42)).await;
    put(&outbox, &log, 5, packed(50..52)).await;
    let topics = |limit| {
        let (outbox, log) = (&outbox, &log);
        async move {
            let entries = settled::of_lane(outbox, log, limit).await.unwrap();
            serde_json::to_value(entries)
                .unwrap()
                .as_array()
                .unwrap()
                .iter()
                .map(|entry| entry["topic"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(topics(100).await, Vec::<String>::new(), "nothing is settled yet");
    let head = Head { epoch: Epoch(3), revision: 1, drained: Slot(4), ..Head::default() };
    assert!(outbox.put_head(&log, &head).await.done().unwrap());
    assert_eq!(topics(100).await, ["t/30", "t/31", "t/32", "t/40", "t/41"]);
    assert_eq!(topics(2).await, ["t/40", "t/41"], "the last ones");
}
