#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::identity::Position;
use crate::lease::row::{OwnerFacts, Tuple};
use crate::rows::SettledRange;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn log_name(index: usize) -> LogName {
    LogName::new("b", &format!("s{index}"), 0).unwrap()
}

prop_compose! {
    fn tail()(slot in 1..5_000_000_u64, epoch in 0..50_u64, id: u128, behind in 0..100_u64) -> RowMeta {
        RowMeta { slot: Slot(slot), epoch: Epoch(epoch), id: Id128(id), drained: Slot(slot.saturating_sub(behind + 1)) }
    }
}

prop_compose! {
    fn head()(epoch in 0..50_u64, drained in 0..5_000_000_u64, ahead in 1..10_u64) -> Head {
        let at = Position { slot: Slot(drained + ahead), index: 0 };
        Head { epoch: Epoch(epoch), drained: Slot(drained), settled_ahead: vec![SettledRange { from: at, to: at }], ..Head::default() }
    }
}

fn logs() -> impl Strategy<Value = Vec<FoundLog>> {
    let one = (0..50_u64, proptest::option::of(tail()), proptest::option::of(head()));
    proptest::collection::vec(one, 0..6).prop_map(|found| {
        let named =
            |(index, (registered, tail, head)): (usize, _)| FoundLog { log: log_name(index), registered: Epoch(registered), tail, head };
        found.into_iter().enumerate().map(named).collect()
    })
}

fn lease(key: usize, version: u64, released: bool) -> FoundLease {
    let tuple = Tuple {
        owner: if released { String::new() } else { "w#1".to_owned() },
        version,
        renewed_at: UnixMillis(10),
        expires_at: if released { UnixMillis(0) } else { UnixMillis(20) },
    };
    FoundLease {
        key: format!("LEASE#{key}"),
        row: LeaseRow { tuple, acquired_at: UnixMillis(5), evidence: None, facts: OwnerFacts::default() },
    }
}

fn leases() -> impl Strategy<Value = Vec<FoundLease>> {
    proptest::collection::vec((1..60_u64, any::<bool>()), 0..4)
        .prop_map(|rows| rows.into_iter().enumerate().map(|(key, (version, released))| lease(key, version, released)).collect())
}

fn planned(logs: &[FoundLog], leases: &[FoundLease], step: u64) -> Plan {
    let mut next = 0;
    let ids = || {
        next += 1;
        Id128(next)
    };
    plan(logs, leases, step, "rebase", UnixMillis(1_000), ids).unwrap()
}

/// What stands in one log: its rows by slot, and its head row. A slot at or below the effective head counts as settled.
#[derive(Clone, Debug)]
struct Log {
    rows: BTreeMap<u64, RowMeta>,
    head: Option<Head>,
}

impl Log {
    fn of(found: &FoundLog) -> Self {
        let mut rows: BTreeMap<u64, RowMeta> = found.tail.iter().map(|tail| (tail.slot.0, *tail)).collect();
        // Some rows below the tail: what waits to be sent.
        for back in 1..5 {
            if let Some(slot) = found.tail.and_then(|tail| tail.slot.0.checked_sub(back)).filter(|slot| *slot > 0) {
                rows.insert(slot, RowMeta { slot: Slot(slot), epoch: Epoch(1), id: Id128(u128::from(slot)), drained: Slot(0) });
            }
        }
        Self { rows, head: found.head.clone() }
    }

    fn tail(&self) -> Option<RowMeta> {
        self.rows.last_key_value().map(|(_, row)| *row)
    }

    fn drained(&self) -> Slot {
        let found = FoundLog { log: log_name(0), registered: Epoch(0), tail: self.tail(), head: self.head.clone() };
        found.drained()
    }

    fn unsettled(&self) -> Vec<u64> {
        self.rows.keys().copied().filter(|slot| *slot > self.drained().0).collect()
    }
}

proptest! {
    /// Nobody of an older epoch writes where the log goes on: who opens it is fenced by the anchor's epoch, and who opened it before, in the time
    /// that was undone, knows no slot as high.
    #[test]
    fn no_row_of_an_older_epoch_gets_above_the_anchor(logs in logs(), leases in leases(), step in 1..2_000_000_u64, used in 0..2_000_000_u64, epoch in 0..70_u64) {
        let plan = planned(&logs, &leases, step);
        let old = Epoch(epoch);
        for (found, moved) in logs.iter().zip(&plan.logs) {
            let mut log = Log::of(found);
            let tail = found.tail.map_or(0, |tail| tail.slot.0);
            log.rows.insert(moved.slot.0, moved.row().meta(moved.slot));
            let now = log.tail().unwrap();
            prop_assert_eq!((now.slot, now.epoch), (moved.slot, plan.epoch), "the anchor is the tail");
            // Opening: the tail's epoch must be below one's own.
            if found.tail.is_some_and(|tail| old <= tail.epoch) || old <= found.registered {
                prop_assert!(now.epoch >= old, "an owner of epoch {} opens the log", epoch);
            }
            // Appending, by one that opened it before the restore and used `used` slots since the restore point, fewer than the step.
            let next = tail + 1 + used.min(step - 1);
            prop_assert!(next <= moved.slot.0, "slot {} is above the anchor at {}", next, moved.slot);
        }
    }

    #[test]
    fn what_waited_waits_and_what_was_settled_stays_settled(logs in logs(), leases in leases(), step in 1..2_000_000_u64) {
        let plan = planned(&logs, &leases, step);
        for (found, moved) in logs.iter().zip(&plan.logs) {
            let before = Log::of(found);
            let mut after = before.clone();
            after.rows.insert(moved.slot.0, moved.row().meta(moved.slot));
            prop_assert_eq!(after.drained(), before.drained(), "the head stays where it is");
            prop_assert!(moved.slot > after.drained(), "the anchor is above the head");
            let mut wanted = before.unsettled();
            wanted.push(moved.slot.0);
            prop_assert_eq!(after.unsettled(), wanted);
            prop_assert_eq!(&after.head, &before.head, "and so do the settled ranges above it");
        }
    }

    #[test]
    fn every_epoch_that_follows_is_new(logs in logs(), leases in leases(), step in 1..2_000_000_u64) {
        let plan = planned(&logs, &leases, step);
        for found in &logs {
            prop_assert!(found.tail.is_none_or(|tail| tail.epoch < plan.epoch));
            prop_assert!(found.head.as_ref().is_none_or(|head| head.epoch < plan.epoch));
            prop_assert!(found.registered < plan.epoch);
        }
        prop_assert_eq!(plan.leases.len(), leases.len());
        for (found, raised) in leases.iter().zip(&plan.leases) {
            let (before, after) = (&found.row.tuple, &raised.write.row.tuple);
            // The next owner's version is one higher than the row's.
            prop_assert!(after.version >= plan.epoch.0 && after.version > before.version);
            prop_assert_eq!(Tuple { version: before.version, ..after.clone() }, before.clone(), "nothing else of it changes");
            prop_assert_eq!(after.is_released(), before.is_released());
            prop_assert_eq!(&raised.write.condition, &Condition::Exactly { tuple: before.clone(), evidence: None });
        }
        // Done again, it moves on again.
        let again: Vec<FoundLog> = logs.iter().zip(&plan.logs).map(|(found, moved)| FoundLog { tail: Some(moved.row().meta(moved.slot)), ..found.clone() }).collect();
        let again = planned(&again, &leases, step);
        prop_assert!(again.epoch > plan.epoch || logs.is_empty());
        prop_assert!(again.logs.iter().zip(&plan.logs).all(|(again, first)| again.slot > first.slot && again.anchor.drained == first.anchor.drained));
    }
}

#[test]
fn a_log_without_rows_and_one_that_lost_them_are_moved_too() {
    let empty = FoundLog { log: log_name(0), registered: Epoch(3), tail: None, head: None };
    let head = Head { epoch: Epoch(7), drained: Slot(500), ..Head::default() };
    let lost = FoundLog { log: log_name(1), registered: Epoch(3), tail: None, head: Some(head) };
    let plan = planned(&[empty, lost], &[], 1_000);
    assert_eq!((plan.epoch, plan.logs[0].slot, plan.logs[1].slot), (Epoch(8), Slot(1_000), Slot(1_500)));
    assert_eq!(plan.logs[1].anchor.drained, Slot(500));
}

#[test]
fn what_cannot_be_moved_is_named() {
    let ids = || Id128(1);
    let at = |slot, epoch| FoundLog {
        log: log_name(0),
        registered: Epoch(0),
        tail: Some(RowMeta { slot: Slot(slot), epoch: Epoch(epoch), id: Id128(1), drained: Slot(0) }),
        head: None,
    };
    assert_eq!(plan(&[at(1, 1)], &[], 0, "o", UnixMillis(1), ids), Err(RebaseError::NoStep));
    let name = log_name(0).to_string();
    for found in [at(u64::MAX - 5, 1), at(1, u64::MAX), at(1, u64::MAX - 1)] {
        assert_eq!(plan(&[found], &[], 1_000, "o", UnixMillis(1), ids), Err(RebaseError::Exhausted { name: name.clone() }));
    }
    assert_eq!(plan(&[], &[], 5, "o", UnixMillis(1), ids).unwrap().logs, []);
}
