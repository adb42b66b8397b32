//! Group commit against what the log's design asks of it.

use crate::support::{at_ms, entry_of, fault, ms};
use causeway_core::identity::{ConnectionEpoch, DeliveryId, Epoch, Id128, IdSequence, Slot};
use causeway_core::log::parts::Assembly;
use causeway_core::log::writer::{LOAD_LINGERS, Pending, SegmentOptions, Stored, Writer, WriterEnd, WriterEvent};
use causeway_core::log::{Answer, Call, Put};
use causeway_core::message::Entry;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::rows::{Row, RowMeta, part, unpack};
use causeway_core::units::{Instant, UnixMillis};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const WALL: UnixMillis = UnixMillis(5);

fn open(options: SegmentOptions, now: Instant) -> Writer {
    let mut writer = Writer::new(options, "w".to_owned(), IdSequence::new(1));
    let mut rows = std::collections::BTreeMap::new();
    while !writer.is_running() {
        let call = writer.poll(now, WALL, Slot(0)).expect("a step of opening");
        assert!(writer.poll(now, WALL, Slot(0)).is_none(), "one call at a time");
        let answer = match call {
            Call::ReadTail => Answer::Tail(Ok(rows.last_key_value().map(|(slot, row): (&Slot, &Arc<Row>)| row.meta(*slot)))),
            Call::ReadHead => Answer::Head(Ok(None)),
            Call::Put { slot, row } => {
                rows.insert(slot, row);
                Answer::Put(Outcome::Done(Put::Stored))
            }
            other => panic!("{other:?}"),
        };
        if let Some(WriterEvent::TailFound { .. }) = writer.answer(now, answer) {
            writer.go(Epoch(1));
        }
    }
    writer
}

fn pending(entry: Arc<Entry>, ordinal: u64, since: Instant) -> Pending {
    Pending { entry, delivery: DeliveryId { connection: ConnectionEpoch(1), ordinal }, since }
}

/// A segment that left: when, and the ids in it.
#[derive(Debug)]
struct Left {
    at: Instant,
    ids: Vec<u128>,
    weight: usize,
}

/// Pushes entries as they arrive, answers each put after `latency`, and records what left when.
fn run(options: SegmentOptions, latency: Duration, arrivals: &[(Instant, Arc<Entry>)]) -> Vec<Left> {
    let mut now = at_ms(0);
    let mut writer = open(options, now);
    let (mut left, mut answer_at, mut next, mut slot) = (Vec::new(), None::<Instant>, 0, Slot(1));
    let mut acked = 0;
    loop {
        let arrival = arrivals.get(next).map(|(at, _)| *at);
        let wake = writer.wake_at().filter(|at| *at > now);
        let Some(at) = [arrival, answer_at, wake].into_iter().flatten().min() else { break };
        now = now.max(at);
        if answer_at.is_some_and(|at| at <= now) {
            answer_at = None;
            let Some(WriterEvent::Stored(stored)) = writer.answer(now, Answer::Put(Outcome::Done(Put::Stored))) else { panic!("stored") };
            acked = check_stored(&stored, acked, slot);
        } else if arrival.is_some_and(|at| at <= now) {
            writer.push(pending(Arc::clone(&arrivals[next].1), next as u64 + 1, now));
            next += 1;
        }
        if let Some(call) = writer.poll(now, WALL, Slot(0)) {
            let Call::Put { slot: at, row } = call else { panic!("{call:?}") };
            assert_eq!(at, slot.next(), "slots follow one another");
            slot = at;
            let Row::Segment(segment) = row.as_ref() else { panic!("{row:?}") };
            let entries = unpack(segment).unwrap();
            left.push(Left {
                at: now,
                weight: entries.iter().map(|entry| entry.message.weight()).sum(),
                ids: entries.iter().map(|entry| entry.id.0).collect(),
            });
            answer_at = Some(now.plus(latency));
        }
    }
    assert_eq!(writer.pending(), 0, "nothing is forgotten");
    assert_eq!(writer.pending_bytes(), 0);
    left
}

fn check_stored(stored: &Stored, acked: u64, slot: Slot) -> u64 {
    let ordinal = stored.deliveries().last().expect("entries of the source have deliveries").ordinal;
    assert_eq!(ordinal, acked + stored.entries().len() as u64, "acknowledged is exactly what is stored");
    assert_eq!(stored.slot(), slot);
    ordinal
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Any arrivals, any latency: order and completeness, both limits, company only under load and never longer than asked.
    #[test]
    fn group_commit_keeps_its_rules(
        gaps in proptest::collection::vec((0_u64..15_000, prop_oneof![9 => 0_usize..40, 1 => 0_usize..3_000]), 1..120),
        latency in 1_u64..30,
        most in 1_usize..40,
        bytes in 400_usize..6_000,
    ) {
        let options = SegmentOptions { max_messages: most, max_bytes: bytes, ..SegmentOptions::default() };
        let mut at = 0;
        let arrivals: Vec<_> = gaps.iter().enumerate().map(|(nth, (gap, size))| {
            at += gap;
            (Instant::from_nanos((100_000 + at) * 1_000), entry_of(&"x".repeat(*size), nth as u128))
        }).collect();
        let left = run(options, ms(latency), &arrivals);
        let ids: Vec<u128> = left.iter().flat_map(|left| left.ids.clone()).collect();
        prop_assert_eq!(ids, (0..arrivals.len() as u128).collect::<Vec<_>>(), "each once, in order of arrival");
        let mut free_at = at_ms(0);
        let mut last_began: Option<Instant> = None;
        for segment in &left {
            prop_assert!(segment.ids.len() <= most);
            prop_assert!(segment.weight <= bytes || segment.ids.len() == 1, "only a single entry may be larger");
            let first = arrivals[segment.ids[0] as usize].0.max(free_at);
            let arrived = arrivals.iter().filter(|(at, _)| *at <= segment.at).count();
            let waiting = arrived - segment.ids[0] as usize;
            let idle = last_began.is_none_or(|began| segment.at.since(began) >= options.linger * LOAD_LINGERS);
            if last_began.is_none_or(|began| first.since(began) >= options.linger * LOAD_LINGERS) {
                prop_assert_eq!(segment.at, first, "a message that finds the lane idle is not held up");
            }
            let waited = segment.at.since(arrivals[segment.ids[0] as usize].0.max(free_at));
            prop_assert!(waited <= options.linger, "no longer than the linger, once the lane is free: {:?}", waited);
            let limited = segment.ids.len() < waiting || segment.ids.len() == most;
            if !idle && !limited && segment.ids.len() % 10 != 0 {
                prop_assert!(segment.at.since(arrivals[segment.ids[0] as usize].0) >= options.linger, "under load a broken ten waits for the linger");
            }
            last_began = Some(segment.at);
            free_at = segment.at.plus(ms(latency));
        }
    }
}

#[test]
fn under_load_segments_close_at_multiples_of_ten() {
    let burst: Vec<_> =
        (0..1_000_u64).map(|nth| (Instant::from_nanos(100_000_000 + nth * 230_000), entry_of("x", u128::from(nth)))).collect();
    let left = run(SegmentOptions::default(), ms(7), &burst);
    let sizes: Vec<usize> = left.iter().map(|left| left.ids.len()).collect();
    let (first, rest) = sizes.split_first().unwrap();
    let (_, middle) = rest.split_last().unwrap();
    assert_eq!(*first, 1, "the first finds the lane idle");
    assert!(middle.iter().all(|size| size % 10 == 0), "{sizes:?}");
}

#[test]
fn a_burst_fills_segments_to_the_limit() {
    let burst: Vec<_> = (0..1_001_u64).map(|nth| (at_ms(100), entry_of("x", u128::from(nth)))).collect();
    let left = run(SegmentOptions::default(), ms(7), &burst);
    assert_eq!(left.iter().map(|left| left.ids.len()).collect::<Vec<_>>(), vec![1, 200, 200, 200, 200, 200]);
}

#[test]
fn a_segment_that_is_full_does_not_wait_whatever_the_limit() {
    for most in [1, 3, 9, 10, 11, 25] {
        let mut arrivals = vec![(at_ms(100), entry_of("x", 0))];
        arrivals.extend((0..most).map(|nth| (at_ms(101), entry_of("x", 1 + nth as u128))));
        let left = run(SegmentOptions { max_messages: most, ..SegmentOptions::default() }, ms(5), &arrivals);
        let expected = if most > 10 { most - most % 10 } else { most };
        assert_eq!((left[1].at, left[1].ids.len()), (at_ms(105), expected), "at most {most}");
    }
}

#[test]
fn a_single_entry_over_the_byte_limit_has_a_segment_of_its_own() {
    let big = "x".repeat(10_000);
    let arrivals: Vec<_> =
        ["a", "b", &big, "c", "d"].iter().enumerate().map(|(nth, text)| (at_ms(100), entry_of(text, nth as u128))).collect();
    let left = run(SegmentOptions { max_bytes: 2_000, ..SegmentOptions::default() }, ms(7), &arrivals);
    assert_eq!(left.iter().map(|left| left.ids.clone()).collect::<Vec<_>>(), vec![vec![0], vec![1], vec![2], vec![3, 4]]);
}

#[test]
fn forgetting_a_connection_leaves_what_is_being_written_and_what_came_by_another() {
    let now = at_ms(100);
    let mut writer = open(SegmentOptions::default(), at_ms(0));
    writer.push(pending(entry_of("a", 1), 1, now));
    assert!(matches!(writer.poll(now, WALL, Slot(0)), Some(Call::Put { .. })));
    writer.push(pending(entry_of("b", 2), 2, now));
    let mut other = pending(entry_of("c", 3), 1, now);
    other.delivery.connection = ConnectionEpoch(2);
    writer.push(other);
    let gone = writer.forget(ConnectionEpoch(1));
    assert_eq!(gone.iter().map(|entry| entry.id.0).collect::<Vec<_>>(), vec![2]);
    assert_eq!(writer.pending(), 2);
    let left: Vec<u128> = writer.pending_entries().map(|entry| entry.id.0).collect();
    assert_eq!(left, vec![3, 1]);
}

/// Three parts of one segment: the next one leaves when the one before is known to stand, and nothing is told before the last.
#[test]
fn the_parts_of_a_segment_leave_one_after_another() {
    let now = at_ms(0);
    let mut writer = open(SegmentOptions { max_row_bytes: 40, ..SegmentOptions::default() }, now);
    let tail = writer.tail();
    writer.push(pending(entry_of("a payload that needs several rows of forty bytes: 0123456789 abcdefghijklmnopqrstuvwxyz", 7), 1, now));
    let mut assembly = Assembly::default();
    let (mut slot, mut ids, mut told) = (tail, std::collections::BTreeSet::new(), None);
    while let Some(call) = writer.poll(now, WALL, Slot(0)) {
        let Call::Put { slot: at, row } = call else { panic!("{call:?}") };
        assert!(writer.poll(now, WALL, Slot(0)).is_none(), "one part at a time");
        assert_eq!((at, writer.tail(), writer.pending()), (slot.next(), tail, 1), "the tail stays before a segment that is not whole");
        let Row::Segment(segment) = row.as_ref() else { panic!("{row:?}") };
        let (part, piece) = part(segment).unwrap().expect("a part");
        assert!(piece.len() <= 40 && ids.insert(segment.segment_id), "each row has an id of its own");
        assert_eq!(segment.count, u32::from(part.index == 0));
        if part.index == 1 {
            // Nobody knows whether it arrived: the tail tells.
            assert!(writer.answer(now, Answer::Put(Outcome::Unknown(fault(FaultCode::Timeout)))).is_none());
            let Some(Call::Put { row: again, .. }) = writer.poll(at_ms(60_000), WALL, Slot(0)) else { panic!("the same again") };
            assert_eq!(again.id(), row.id());
            assert!(writer.answer(at_ms(60_000), Answer::Put(Outcome::Done(Put::Stored))).is_none());
            assert!(
                matches!(writer.poll(at_ms(60_000), WALL, Slot(0)), Some(Call::ReadTail)),
                "what is doubtful is read before the next part leaves"
            );
            assert!(writer.answer(now, Answer::Tail(Ok(Some(row.meta(at))))).is_none());
        } else {
            told = writer.answer(now, Answer::Put(Outcome::Done(Put::Stored)));
        }
        let whole = assembly.add(at, segment, part, piece).whole;
        assert_eq!(whole.is_some(), told.is_some(), "told with the last part");
        slot = at;
        if let Some(whole) = whole {
            assert_eq!((whole.first, whole.last), (tail.next(), slot));
            assert_eq!(unpack(&whole.segment).unwrap()[0].id.0, 7);
        }
    }
    let Some(WriterEvent::Stored(stored)) = told else { panic!("stored") };
    assert_eq!((stored.slot(), stored.entries().len(), stored.deliveries().len()), (tail.next(), 1, 1));
    assert!(ids.len() >= 3, "{}", ids.len());
    assert_eq!((writer.tail(), writer.pending()), (slot, 0));
}

/// A foreign row in the way of the second part fences like any other, and nobody is told that the segment stands.
#[test]
fn a_foreign_row_between_parts_fences() {
    let now = at_ms(0);
    let mut writer = open(SegmentOptions { max_row_bytes: 40, ..SegmentOptions::default() }, now);
    writer.push(pending(entry_of("a payload that needs several rows of forty bytes: 0123456789 abcdefghijklmnopqrstuvwxyz", 7), 1, now));
    assert!(writer.poll(now, WALL, Slot(0)).is_some());
    assert!(writer.answer(now, Answer::Put(Outcome::Done(Put::Stored))).is_none());
    let Some(Call::Put { slot, .. }) = writer.poll(now, WALL, Slot(0)) else { panic!("the second part") };
    let foreign = RowMeta { slot, epoch: Epoch(2), id: Id128(99), drained: Slot(0) };
    assert!(writer.answer(now, Answer::Put(Outcome::Done(Put::Occupied(foreign)))).is_none());
    assert!(matches!(writer.end(), Some(WriterEnd::Fenced { found, same_or_older_epoch: false }) if *found == foreign));
}
