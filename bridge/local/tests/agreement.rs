//! Whatever is asked of them, in whatever order, the stores agree with each other and with a naive model of the contract.
#![allow(clippy::unwrap_used, reason = "tests")]

use causeway_core::identity::{Epoch, Id128, LogName, Position, Slot};
use causeway_core::outcome::Outcome;
use causeway_core::rows::{Anchor, Head, Row, RowMeta, Segment, SettledRange};
use causeway_core::units::UnixMillis;
use causeway_local::memory::MemoryOutbox;
use causeway_local::sqlite::{OpenMode, SqliteStore};
use causeway_ports::{LogRecord, LogState, Outbox, Page, Put, Registration};
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Op {
    Put(usize, u64, Row),
    Head(usize, Head),
    Delete(usize, Vec<u64>),
    /// The record to write, and whether the one that stands is named rightly.
    Register(usize, Registration, bool),
    Look(usize, u64, u64),
    /// Close the file and open it again.
    Reopen,
}

/// Numbers that meet each other often, and those around the edges.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..12_u64,
        1 => prop::sample::select(vec![i64::MAX as u64 - 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX - 1, u64::MAX]),
        1 => any::<u64>(),
    ]
}

fn slot() -> impl Strategy<Value = u64> {
    number().prop_map(|slot| slot.max(1))
}

fn row() -> impl Strategy<Value = Row> {
    let id = 0..6_u128;
    let segment = (
        number(),
        id.clone(),
        any::<u32>(),
        any::<u8>(),
        prop::collection::vec(any::<u8>(), 0..40),
        number(),
        prop::option::of(number()),
        number(),
    );
    let segment = segment.prop_map(|(epoch, id, count, codec, body, created_at, expiry, drained)| {
        Row::Segment(Segment {
            epoch: Epoch(epoch),
            segment_id: Id128(id),
            count,
            codec,
            body: body.into(),
            created_at: UnixMillis(created_at),
            earliest_expiry: expiry.map(UnixMillis),
            drained: Slot(drained),
        })
    });
    let anchor = (number(), id, ".{0,8}", number(), number(), any::<bool>()).prop_map(|(epoch, id, owner, opened_at, drained, retired)| {
        Row::Anchor(Anchor {
            epoch: Epoch(epoch),
            anchor_id: Id128(id),
            owner,
            opened_at: UnixMillis(opened_at),
            drained: Slot(drained),
            retired,
        })
    });
    prop_oneof![3 => segment, 1 => anchor]
}

fn position() -> impl Strategy<Value = Position> {
    (number(), any::<u32>()).prop_map(|(slot, index)| Position { slot: Slot(slot), index })
}

fn head() -> impl Strategy<Value = Head> {
    let range = (position(), position()).prop_map(|(from, to)| SettledRange { from, to });
    (number(), number(), number(), prop::collection::vec(range, 0..3), prop::collection::vec((position(), any::<u32>()), 0..3)).prop_map(
        |(epoch, revision, drained, settled_ahead, attempts)| Head {
            epoch: Epoch(epoch),
            revision,
            drained: Slot(drained),
            settled_ahead,
            attempts,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let log = 0..2_usize;
    let state = prop_oneof![Just(LogState::Open), Just(LogState::Retired)];
    prop_oneof![
        8 => (log.clone(), slot(), row()).prop_map(|(log, slot, row)| Op::Put(log, slot, row)),
        3 => (log.clone(), head()).prop_map(|(log, head)| Op::Head(log, head)),
        2 => (log.clone(), prop::collection::vec(slot(), 0..8)).prop_map(|(log, slots)| Op::Delete(log, slots)),
        1 => (log.clone(), number(), any::<u32>(), state, any::<bool>()).prop_map(|(log, epoch, lanes, state, rightly)| {
            Op::Register(log, Registration { epoch: Epoch(epoch), lanes, state }, rightly)
        }),
        4 => (log, number(), number()).prop_map(|(log, after, up_to)| Op::Look(log, after, up_to)),
        1 => Just(Op::Reopen),
    ]
}

/// The contract in the plainest words: lists that are searched.
#[derive(Default)]
struct Model {
    rows: Vec<(usize, u64, Row)>,
    heads: Vec<(usize, Head)>,
    registry: Vec<LogRecord>,
}

impl Model {
    fn put(&mut self, log: usize, slot: u64, row: &Row) -> Put {
        match self.rows.iter().find(|(of, at, _)| (*of, *at) == (log, slot)) {
            None => {
                self.rows.push((log, slot, row.clone()));
                Put::Stored
            }
            Some((.., standing)) if standing.id() == row.id() => Put::Stored,
            Some((.., standing)) => Put::Occupied(standing.meta(Slot(slot))),
        }
    }

    fn head(&self, log: usize) -> Option<Head> {
        self.heads.iter().find(|(of, _)| *of == log).map(|(_, head)| head.clone())
    }

    fn put_head(&mut self, log: usize, head: &Head) -> bool {
        let refused = |standing: Head| {
            head.epoch < standing.epoch
                || head.drained < standing.drained
                || head.epoch == standing.epoch && head.revision <= standing.revision
        };
        if self.head(log).is_some_and(refused) {
            return false;
        }
        self.heads.retain(|(of, _)| *of != log);
        self.heads.push((log, head.clone()));
        true
    }

    fn record(&self, log: &LogName) -> Option<Registration> {
        self.registry.iter().find(|standing| standing.log == *log).map(LogRecord::registration)
    }

    fn replace_record(&mut self, record: &LogRecord, replaces: Option<Registration>) -> bool {
        if self.record(&record.log) != replaces {
            return false;
        }
        self.registry.retain(|standing| standing.log != record.log);
        self.registry.push(record.clone());
        self.registry.sort_by(|left, right| left.log.cmp(&right.log));
        true
    }

    fn page(&self, log: usize, after: u64, up_to: u64) -> Page {
        let mut rows: Vec<(Slot, Row)> = self
            .rows
            .iter()
            .filter(|(of, at, _)| *of == log && *at > after && *at <= up_to)
            .map(|(_, at, row)| (Slot(*at), row.clone()))
            .collect();
        rows.sort_by_key(|(slot, _)| *slot);
        Page { rows, next_after: None }
    }

    fn tail(&self, log: usize) -> Option<RowMeta> {
        self.page(log, 0, u64::MAX).rows.last().map(|(slot, row)| row.meta(*slot))
    }
}

fn logs() -> [LogName; 2] {
    [LogName::new("b", "s", 1).unwrap(), LogName::new("b", "s", 10).unwrap()]
}

async fn agree(ops: Vec<Op>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causeway.db");
    let mut model = Model::default();
    let memory: Arc<dyn Outbox> = Arc::new(MemoryOutbox::new());
    let open = || -> Arc<dyn Outbox> { Arc::new(SqliteStore::open(&path, OpenMode::ReadWrite).unwrap().outbox()) };
    let mut sqlite = Some(open());
    let logs = logs();
    for op in ops {
        if matches!(op, Op::Reopen) {
            sqlite = None;
        }
        let file = sqlite.get_or_insert_with(open);
        // The second time is a repeat, which a head row refuses: the model is asked once.
        let forward = if let Op::Head(log, head) = &op { model.put_head(*log, head) } else { false };
        let mut registering = None;
        if let Op::Register(log, registration, rightly) = &op {
            let record = LogRecord::new(logs[*log].clone(), *registration);
            let standing = model.record(&record.log);
            let replaces = if *rightly { standing } else { standing.is_none().then_some(*registration) };
            registering = Some((replaces, model.replace_record(&record, replaces)));
        }
        for store in [&memory, file] {
            match &op {
                Op::Put(log, slot, row) => {
                    // Asked of the model for each store: the second time it is a repeat, which must answer the same.
                    let wanted = model.put(*log, *slot, row);
                    assert_eq!(store.put(&logs[*log], Slot(*slot), row).await, Outcome::Done(wanted));
                }
                Op::Head(log, head) => assert_eq!(store.put_head(&logs[*log], head).await, Outcome::Done(forward)),
                Op::Delete(log, slots) => {
                    model.rows.retain(|(of, at, _)| of != log || !slots.contains(at));
                    let slots: Vec<Slot> = slots.iter().copied().map(Slot).collect();
                    assert_eq!(store.delete(&logs[*log], &slots).await, Outcome::Done(()));
                }
                Op::Register(log, registration, _) => {
                    let (replaces, written) = registering.unwrap();
                    let record = LogRecord::new(logs[*log].clone(), *registration);
                    assert_eq!(store.replace_record(&record, replaces).await, Outcome::Done(written));
                }
                Op::Look(log, after, up_to) => {
                    assert_eq!(store.read_page(&logs[*log], Slot(*after), Slot(*up_to)).await.unwrap(), model.page(*log, *after, *up_to));
                }
                Op::Reopen => {}
            }
            same(store.as_ref(), &model, &logs).await;
        }
    }
}

async fn same(store: &dyn Outbox, model: &Model, logs: &[LogName; 2]) {
    for (log, name) in logs.iter().enumerate() {
        assert_eq!(store.read_tail(name).await.unwrap(), model.tail(log));
        assert_eq!(store.read_head(name).await.unwrap(), model.head(log));
        assert_eq!(store.read_record(name).await.unwrap().map(|record| record.registration()), model.record(name));
        assert_eq!(store.read_page(name, Slot(0), Slot(u64::MAX)).await.unwrap(), model.page(log, 0, u64::MAX));
    }
    let mut listed = store.list_logs().await.unwrap();
    listed.sort_by(|left, right| left.log.cmp(&right.log));
    assert_eq!(listed, model.registry);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn memory_sqlite_and_the_model_agree(ops in prop::collection::vec(op(), 1..40)) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(agree(ops));
    }
}
