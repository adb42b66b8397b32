//! The loader against an oracle that knows every slot: whatever is offered, staged, paged and refused in between, each slot comes up once, in order.

use crate::support::{Store, at_ms, entry_of, fault};
use causeway_core::identity::{Epoch, Id128, Position, Slot};
use causeway_core::log::loader::{Appended, Loader};
use causeway_core::log::{Answer, Call, Page};
use causeway_core::message::Entry;
use causeway_core::outcome::FaultCode;
use causeway_core::rows::{Anchor, CODEC_PART, CODEC_POSTCARD_ZSTD, Head, Part, Row, Segment, SettledRange, pack, part, split};
use causeway_core::units::UnixMillis;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

fn segment(slot: u64, entries: &[Arc<Entry>]) -> Row {
    Row::Segment(Segment {
        epoch: Epoch(1),
        segment_id: Id128(u128::from(slot)),
        count: u32::try_from(entries.len()).unwrap(),
        codec: CODEC_POSTCARD_ZSTD,
        body: pack(entries).unwrap(),
        created_at: UnixMillis(0),
        earliest_expiry: None,
        drained: Slot(0),
    })
}

/// The rows of the segment whose first one stands at `slot`: some segments stand in three parts.
fn rows_of(slot: u64) -> Vec<Row> {
    let Row::Segment(whole) = segment(slot, &entries_of(slot)) else { unreachable!() };
    if slot % 7 != 3 {
        return vec![Row::Segment(whole)];
    }
    let bodies = split(&whole.body, whole.segment_id, whole.body.len().div_ceil(3)).unwrap();
    (slot..)
        .zip(bodies)
        .map(|(at, body)| {
            let count = if at == slot { whole.count } else { 0 };
            Row::Segment(Segment { segment_id: Id128(u128::from(at)), count, codec: CODEC_PART, body, ..whole.clone() })
        })
        .collect()
}

fn anchor(slot: u64) -> Row {
    Row::Anchor(Anchor {
        epoch: Epoch(1),
        anchor_id: Id128(u128::from(slot)),
        owner: String::new(),
        opened_at: UnixMillis(0),
        drained: Slot(0),
        retired: false,
    })
}

fn entries_of(slot: u64) -> Vec<Arc<Entry>> {
    (0..1 + slot % 3).map(|nth| entry_of("x", u128::from(slot * 10 + nth))).collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The writer stores the next segment and offers it.
    Append { room: bool },
    /// The loader may ask for a page.
    Poll { room: bool },
    /// The page that was asked for is read now: what is appended later is not in it.
    Read,
    /// Its answer arrives, or a fault does.
    Answer { fails: bool },
    /// Up to so many slots are taken up.
    Take(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<bool>().prop_map(|room| Step::Append { room }),
        2 => any::<bool>().prop_map(|room| Step::Poll { room }),
        2 => Just(Step::Read),
        3 => (0_u8..5).prop_map(|die| Step::Answer { fails: die == 0 }),
        3 => (0_usize..6).prop_map(Step::Take),
    ];
    proptest::collection::vec(step, 0..120)
}

struct Bench {
    store: Store,
    loader: Loader,
    tail: u64,
    asked: Option<(Slot, Slot)>,
    answer: Option<causeway_core::log::Page>,
    taken: Vec<(u64, usize)>,
    /// Entries that count as left in the log: offered in vain, or staged and put aside again; less those read back.
    unloaded: i64,
    now: u64,
    anchor: u64,
}

impl Bench {
    /// Slots 1 to `before` are a former owner's: those in `missing` were deleted, the last one is the anchor.
    fn new(before: u64, missing: &BTreeSet<u64>, page_rows: usize, staged_bytes: usize) -> Self {
        let mut store = Store { page_rows: Some(page_rows), ..Store::default() };
        let mut slot = 1;
        while slot < before {
            for row in if slot.is_multiple_of(5) { vec![anchor(slot)] } else { rows_of(slot) } {
                // The former owner may have ended before the last part.
                if slot < before && !missing.contains(&slot) {
                    store.rows.insert(Slot(slot), row);
                }
                slot += 1;
            }
        }
        store.rows.insert(Slot(before), anchor(before));
        let loader = Loader::new(Slot(0), None, staged_bytes);
        Self { store, loader, tail: before, asked: None, answer: None, taken: Vec::new(), unloaded: 0, now: 0, anchor: before }
    }

    fn step(&mut self, step: Step) {
        self.now += 200;
        match step {
            Step::Append { room } => {
                let first = self.tail + 1;
                for row in rows_of(first) {
                    self.tail += 1;
                    self.store.rows.insert(Slot(self.tail), row);
                }
                let entries = entries_of(first);
                let count = entries.len() as i64;
                if !self.loader.offer(Appended { first: Slot(first), last: Slot(self.tail), entries }, room) {
                    self.unloaded += count;
                }
            }
            Step::Poll { room } => {
                if let Some(Call::ReadPage { after, up_to, .. }) = self.loader.poll(at_ms(self.now), Slot(self.tail), room) {
                    assert!(room && self.asked.is_none() && after < up_to);
                    assert_eq!(after, self.loader.covered());
                    self.asked = Some((after, up_to));
                    self.answer = None;
                }
            }
            Step::Read => {
                if let (Some((after, up_to)), None) = (self.asked, &self.answer) {
                    let call = Call::ReadPage { purpose: causeway_core::log::PagePurpose::Load, after, up_to };
                    let Answer::Page { page: Ok(page), .. } = self.store.apply(&call) else { panic!("a page") };
                    self.answer = Some(page);
                }
            }
            Step::Answer { fails } => {
                if self.asked.is_some() && (fails || self.answer.is_some()) {
                    self.asked = None;
                    let page = self.answer.take().filter(|_| !fails).ok_or_else(|| fault(FaultCode::Timeout));
                    self.unloaded += self.loader.answer(at_ms(self.now), page).len() as i64;
                }
            }
            Step::Take(most) => self.take(most),
        }
    }

    fn take(&mut self, most: usize) {
        for _ in 0..most {
            let Some(loaded) = self.loader.take_next().unwrap() else { break };
            if loaded.slot.0 > self.anchor && loaded.read_back {
                self.unloaded -= loaded.entries.len() as i64;
            }
            self.taken.push((loaded.slot.0, loaded.entries.len()));
        }
    }

    /// The slots with entries, as the rows alone tell.
    fn expected(&self) -> Vec<(u64, usize)> {
        let part_at = |slot: Slot| match self.store.rows.get(&slot) {
            Some(Row::Segment(segment)) => part(segment).unwrap().map(|(part, _)| part),
            _ => None,
        };
        let mut expected = Vec::new();
        for (slot, row) in &self.store.rows {
            let Row::Segment(segment) = row else { continue };
            let is_whole = part_at(*slot).is_none_or(|first| {
                first.index == 0 && (0..first.of).all(|index| part_at(Slot(slot.0 + u64::from(index))) == Some(Part { index, ..first }))
            });
            if is_whole {
                expected.push((slot.0, segment.count as usize));
            }
        }
        expected
    }

    fn finish(&mut self) {
        self.step(Step::Take(usize::MAX));
        for _ in 0..10_000 {
            if self.loader.covered() >= Slot(self.tail) && self.asked.is_none() {
                break;
            }
            for step in [Step::Poll { room: true }, Step::Read, Step::Answer { fails: false }, Step::Take(usize::MAX)] {
                self.step(step);
            }
        }
        self.step(Step::Take(usize::MAX));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_slot_comes_up_once_in_order(
        before in 1_u64..20,
        missing in proptest::collection::btree_set(1_u64..20, 0..8),
        page_rows in 1_usize..6,
        staged_bytes in prop_oneof![Just(0_usize), Just(600), Just(2_000), Just(1 << 20)],
        steps in steps(),
    ) {
        let mut bench = Bench::new(before, &missing, page_rows, staged_bytes);
        for step in steps {
            bench.step(step);
            let staged: usize = bench.loader.waiting_entries().map(|entry| entry.message.weight()).sum();
            prop_assert!(staged <= 2 * staged_bytes, "what waits in memory is bounded: {staged} of {staged_bytes}");
        }
        bench.finish();
        let with_entries: Vec<(u64, usize)> = bench.taken.iter().copied().filter(|(_, count)| *count > 0).collect();
        prop_assert_eq!(with_entries, bench.expected());
        prop_assert!(bench.taken.windows(2).all(|pair| pair[0].0 < pair[1].0), "strictly ascending");
        prop_assert_eq!(bench.taken.last().map(|(slot, _)| *slot), Some(bench.tail));
        prop_assert_eq!(bench.unloaded, 0, "what was left in the log was read back, entry by entry");
    }

    #[test]
    fn ranges_answer_like_a_list_of_positions(cuts in proptest::collection::btree_set((1_u64..8, 0_u32..4), 0..12), asked in proptest::collection::vec((1_u64..9, 0_u32..5), 1..40)) {
        let cuts: Vec<Position> = cuts.into_iter().map(|(slot, index)| Position { slot: Slot(slot), index }).collect();
        let ranges: Vec<SettledRange> = cuts.chunks_exact(2).map(|pair| SettledRange { from: pair[0], to: pair[1] }).collect();
        let loader = Loader::new(Slot(0), Some(Head { settled_ahead: ranges.clone(), ..Head::default() }), 0);
        for (slot, index) in asked {
            let position = Position { slot: Slot(slot), index };
            let expected = ranges.iter().any(|range| range.from <= position && position <= range.to);
            prop_assert_eq!(loader.was_settled(position), expected, "{:?}", position);
        }
    }
}

#[test]
fn while_it_keeps_up_nothing_is_read() {
    let mut bench = Bench::new(1, &BTreeSet::new(), 100, 1 << 20);
    bench.finish();
    for _ in 0..1_000 {
        bench.step(Step::Append { room: true });
        bench.step(Step::Poll { room: true });
        assert!(bench.asked.is_none());
        bench.step(Step::Take(usize::MAX));
    }
    assert_eq!(bench.taken.len() as u64, bench.tail, "every slot, those of further parts too");
    assert!(bench.tail > 1_100, "some stood in parts");
}

/// Every row that may be deleted later is taken up as a segment, also what is left of one that was never whole.
#[test]
fn parts_without_a_last_one_are_segments_without_entries() {
    let mut bench = Bench::new(6, &BTreeSet::from([5]), 100, 1 << 20);
    for step in [Step::Poll { room: true }, Step::Read, Step::Answer { fails: false }] {
        bench.step(step);
    }
    let mut taken = Vec::new();
    while let Some(loaded) = bench.loader.take_next().unwrap() {
        taken.push((loaded.slot.0, loaded.is_segment, loaded.entries.len()));
    }
    assert_eq!(taken, [(1, true, 2), (2, true, 3), (3, true, 0), (4, true, 0), (6, false, 0)]);
}

/// A row of another epoch between two parts, or a part of another segment, is no continuation.
#[test]
fn parts_belong_together_by_epoch_group_and_order() {
    let whole = rows_of(3);
    let tampered = |change: &dyn Fn(&mut Vec<Row>)| {
        let mut rows = whole.clone();
        change(&mut rows);
        let mut bench = Bench::new(1, &BTreeSet::new(), 100, 1 << 20);
        bench.store.rows.extend((2..).map(Slot).zip(rows));
        bench.tail = bench.store.tail().0;
        bench.finish();
        bench.taken.iter().map(|(_, count)| count).sum::<usize>()
    };
    let segment = |row: &mut Row, change: &dyn Fn(&mut Segment)| {
        if let Row::Segment(segment) = row {
            change(segment)
        }
    };
    assert_eq!(tampered(&|_| {}), entries_of(3).len());
    assert_eq!(tampered(&|rows| segment(&mut rows[1], &|part| part.epoch = Epoch(2))), 0);
    assert_eq!(tampered(&|rows| rows.swap(1, 2)), 0);
    assert_eq!(tampered(&|rows| rows[1] = rows_of(10)[1].clone()), 0);
    assert_eq!(tampered(&|rows| rows.insert(2, anchor(4))), 0);
    assert_eq!(tampered(&|rows| drop(rows.remove(0))), 0);
    let begun_twice = tampered(&|rows| rows.insert(0, whole[0].clone()));
    assert_eq!(begun_twice, entries_of(3).len(), "what follows continues the later beginning");
}

#[test]
fn an_unreadable_segment_stays_first_and_is_told_each_time() {
    let mut bench = Bench::new(3, &BTreeSet::new(), 100, 1 << 20);
    let Some(Row::Segment(damaged)) = bench.store.rows.get_mut(&Slot(2)) else { panic!("a segment") };
    damaged.body = bytes::Bytes::from_static(b"not zstd");
    for step in [Step::Poll { room: true }, Step::Read, Step::Answer { fails: false }] {
        bench.step(step);
    }
    assert_eq!(bench.loader.take_next().unwrap().unwrap().slot, Slot(1));
    for _ in 0..3 {
        assert!(bench.loader.take_next().unwrap_err().detail.contains("slot 2"));
    }
}

/// What they were to be was given up; on an idle log no row follows that would tell so.
#[test]
fn parts_that_are_known_to_be_nothing_are_passed_when_they_are_read_back_from_the_end_of_a_log() {
    let parts = rows_of(3);
    for known in [false, true] {
        let mut loader = Loader::new(Slot(2), None, 1 << 20);
        if known {
            loader.note_strays(Slot(3), Slot(3));
            loader.note_strays(Slot(4), Slot(4));
        }
        assert!(matches!(loader.poll(at_ms(0), Slot(4), true), Some(Call::ReadPage { .. })));
        let rows = vec![(Slot(3), parts[0].clone()), (Slot(4), parts[1].clone())];
        loader.answer(at_ms(1), Ok(Page { rows, next_after: None }));
        let mut passed = Vec::new();
        while let Some(loaded) = loader.take_next().unwrap() {
            assert!(loaded.entries.is_empty() && loaded.is_segment);
            passed.push(loaded.slot.0);
        }
        assert_eq!(passed, if known { vec![3, 4] } else { Vec::new() });
        assert!(loader.offer(Appended { first: Slot(5), last: Slot(5), entries: entries_of(5) }, true));
        let slots: Vec<u64> = core::iter::from_fn(|| loader.take_next().unwrap()).map(|loaded| loaded.slot.0).collect();
        assert_eq!(slots, if known { vec![5] } else { vec![3, 4, 5] });
    }
}
