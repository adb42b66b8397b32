//! The loader against an oracle that knows every slot: whatever is offered, staged, paged and refused in between, each slot comes up once, in order.

use crate::support::{Store, at_ms, entry_of, fault};
use causeway_core::identity::{Epoch, Id128, Position, Slot};
use causeway_core::log::{Answer, Call, loader::Loader};
use causeway_core::message::Entry;
use causeway_core::outcome::FaultCode;
use causeway_core::rows::{Anchor, CODEC_POSTCARD_ZSTD, Head, Row, Segment, SettledRange, pack};
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
        for slot in 1..before {
            if !missing.contains(&slot) {
                store.rows.insert(Slot(slot), if slot % 5 == 0 { anchor(slot) } else { segment(slot, &entries_of(slot)) });
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
                self.tail += 1;
                let entries = entries_of(self.tail);
                self.store.rows.insert(Slot(self.tail), segment(self.tail, &entries));
                let count = entries.len() as i64;
                if !self.loader.offer(Slot(self.tail), entries, room) {
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
        let expected: Vec<(u64, usize)> = bench.store.rows.iter().filter(|(_, row)| matches!(row, Row::Segment(_))).map(|(slot, _)| (slot.0, entries_of(slot.0).len())).collect();
        prop_assert_eq!(with_entries, expected);
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
    assert_eq!(bench.taken.len(), 1_001);
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
