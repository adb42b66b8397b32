#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
use super::*;
use crate::identity::{Epoch, Id128, Slot};
use crate::lease::row::{LeaseRow, OwnerFacts, Tuple};
use crate::log::Page;
use crate::rows::{Anchor, CODEC_POSTCARD_ZSTD, Row, Segment, pack};
use core::time::Duration;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NOW: UnixMillis = UnixMillis(1_772_366_400_000);
const TTL: Duration = Duration::from_secs(45);

fn row(owner: &str, renewed: u64, expires: u64) -> LeaseRow {
    let tuple = Tuple { owner: owner.to_owned(), version: 7, renewed_at: UnixMillis(renewed), expires_at: UnixMillis(expires) };
    LeaseRow { tuple, acquired_at: UnixMillis(1), evidence: None, facts: OwnerFacts::default() }
}

fn ago(minutes: u64) -> u64 {
    NOW.0 - minutes * 60_000
}

#[test]
fn a_log_is_left_alone_while_anybody_may_want_it() {
    let kept = |row: Option<&LeaseRow>, members: &[UnixMillis]| why_kept(row, TTL, members, NOW);
    assert_eq!(kept(None, &[]), Some(Kept::NoLease));
    assert_eq!(kept(Some(&row("a#1", ago(0), NOW.0 + 45_000)), &[]), Some(Kept::Owned));
    assert_eq!(kept(Some(&row("a#1", ago(10), ago(9))), &[]), Some(Kept::Owned), "expired, not for long");
    assert_eq!(kept(Some(&row("", ago(9), 0)), &[]), Some(Kept::Owned), "released, not for long");
    assert_eq!(kept(Some(&row("", ago(10), 0)), &[]), None);
    assert_eq!(kept(Some(&row("a#1", ago(11), ago(10))), &[]), None);
    assert_eq!(kept(Some(&row("a#1", ago(11), ago(10))), &[UnixMillis(ago(60)), UnixMillis(ago(9))]), Some(Kept::MemberAlive));
    assert_eq!(kept(Some(&row("a#1", ago(11), ago(10))), &[UnixMillis(ago(60))]), None);
    let slow = Duration::from_secs(3_600);
    assert_eq!(why_kept(Some(&row("", ago(179), 0)), slow, &[], NOW), Some(Kept::Owned), "three times a long lease");
    assert_eq!(why_kept(Some(&row("", ago(180), 0)), slow, &[], NOW), None);
}

#[test]
fn visits_of_housekeeping_do_not_make_a_log_young_again() {
    let mut left = row("a#1", ago(60), ago(59));
    left.facts.left_because = Some("lease_expired".to_owned());
    let claimed = claim(&left, 5, NOW).row;
    assert!(claimed.tuple.is_housekeeping() && claimed.tuple.version == 8 && claimed.tuple.ttl() == LEASE_TTL);
    assert!(!is_owned(Some(&claimed), NOW), "it counts as no holder");
    assert_eq!(why_kept(Some(&claimed), TTL, &[], NOW), Some(Kept::Owned), "two runs do not take a log from one another");
    let later = UnixMillis(NOW.0 + 16_000);
    assert_eq!(why_kept(Some(&claimed), TTL, &[], later), None, "one that died is replaced once its lease is over");
    let released = release(&claimed).row;
    assert!(released.tuple.is_released() && released.tuple.version == 8);
    assert_eq!(orphaned_since(&released, later), Some(UnixMillis(ago(59))));
    assert_eq!(released.facts.left_because, left.facts.left_because, "the next owner still learns why the last one went");
    assert_eq!(why_kept(Some(&released), TTL, &[], later), None);
}

#[test]
fn every_refusal_names_its_field() {
    for (event, field) in [
        (json!({}), "event"),
        (json!(null), "event"),
        (json!([]), "event"),
        (json!({"op": "destroy"}), "op"),
        (json!({"dry_run": true}), "op"),
        (json!({"op": "sweep", "dry_run": "no"}), "dry_run"),
        (json!({"op": "sweep", "max_items": 0}), "max_items"),
        (json!({"op": "sweep", "max_items": -5}), "max_items"),
        (json!({"op": "sweep", "shards": [1]}), "shards"),
        (json!({"op": "sweep", "continuation": "x"}), "continuation"),
        (
            json!({"op": "sweep", "continuation": Request::parse(&json!({"op": "sweep"}), "other").unwrap().continuation(&At::Log("l".into()))}),
            "continuation",
        ),
    ] {
        let refused: Result<Request, _> = Request::parse(&event, "plant-1");
        assert_eq!(refused.expect_err("must be refused").field, field, "{event}");
    }
    let plain: Value = json!({"op": "sweep", "dry_run": false, "max_items": 5000, "continuation": null});
    let request = Request::parse(&plain, "plant-1").unwrap();
    for at in [At::Log("LOG#b#s#0".into()), At::Commands("CMD#1".into()), At::Ledger("a:b".into())] {
        let again = Request::parse(&json!({"op": "sweep", "continuation": request.continuation(&at)}), "plant-1").unwrap();
        assert_eq!(again.resume, Some(at));
    }
}

fn rows() -> impl Strategy<Value = Vec<(Slot, Row)>> {
    let one = (any::<bool>(), 0_u64..60).prop_map(|(anchor, days)| {
        let opened_at = UnixMillis(NOW.0 - days * 86_400_000);
        if anchor {
            let anchor = Anchor { epoch: Epoch(1), anchor_id: Id128(1), owner: "o".into(), opened_at, drained: Slot(0), retired: false };
            return Row::Anchor(anchor);
        }
        Row::Segment(Segment {
            epoch: Epoch(1),
            segment_id: Id128(2),
            count: 0,
            codec: CODEC_POSTCARD_ZSTD,
            body: pack(&[]).unwrap(),
            created_at: opened_at,
            earliest_expiry: None,
            drained: Slot(0),
        })
    });
    proptest::collection::vec(one, 1..40).prop_map(|rows| rows.into_iter().zip(1..).map(|(row, slot)| (Slot(slot), row)).collect())
}

proptest! {
    /// Without a lease nothing above the head is touched, nor the tail, nor an anchor that is not old.
    #[test]
    fn only_garbage_is_garbage(rows in rows(), drained in 0_u64..45) {
        let tail = rows.last().unwrap().0;
        let page = Page { rows: rows.clone(), next_after: None };
        let found = Collector::new(Slot(drained), tail, Duration::ZERO).collect(&page, NOW);
        for (slot, row) in &rows {
            let below = *slot <= Slot(drained) && *slot < tail;
            match row {
                Row::Anchor(anchor) => prop_assert_eq!(found.anchors.contains(slot), below && NOW.since(anchor.opened_at) >= ANCHOR_RETENTION),
                _ => prop_assert_eq!(found.segments.contains(slot), below),
            }
        }
    }
    /// Of a log that was written in order, exactly what a row of the time before tells of is deleted, however the pages are cut.
    #[test]
    fn what_was_settled_lately_is_kept(steps in proptest::collection::vec((0_u64..5, 0_u64..3), 2..40), cuts in proptest::collection::vec(1_usize..6, 40), keep in 1_u64..60) {
        let (mut rows, mut minutes, mut settled) = (Vec::new(), 0, 0_u64);
        for (slot, (pause, more)) in (1..).zip(&steps) {
            minutes += pause;
            settled = (settled + more).min(slot - 1);
            rows.push((Slot(slot), minutes, settled));
        }
        let (tail, drained) = (rows.last().unwrap().0, Slot(settled));
        let now = UnixMillis(minutes * 60_000);
        let row = |minutes: u64, settled: u64| Row::Segment(Segment {
            epoch: Epoch(1),
            segment_id: Id128(2),
            count: 0,
            codec: CODEC_POSTCARD_ZSTD,
            body: pack(&[]).unwrap(),
            created_at: UnixMillis(minutes * 60_000),
            earliest_expiry: None,
            drained: Slot(settled),
        });
        let mut collector = Collector::new(drained, tail, Duration::from_secs(keep * 60));
        let mut deleted = BTreeSet::new();
        // Pages go as far as the head.
        let mut left: Vec<_> = rows.iter().filter(|(slot, ..)| *slot <= drained).collect();
        for cut in cuts {
            let some: Vec<_> = left.drain(..cut.min(left.len())).map(|(slot, minutes, settled)| (*slot, row(*minutes, *settled))).collect();
            deleted.extend(collector.collect(&Page { rows: some, next_after: None }, now).segments);
            if collector.is_through() {
                break;
            }
        }
        let line = rows.iter().filter(|(slot, at, _)| *slot <= drained && minutes - at >= keep).map(|(.., settled)| *settled).max().unwrap_or(0);
        let expected: BTreeSet<Slot> = (1..=line).map(Slot).filter(|slot| *slot < tail).collect();
        prop_assert_eq!(deleted, expected);
    }
}
