//! What has to hold, and what has to have happened.

use crate::knobs::{MOST_MESSAGES, ROUTES};
use crate::store::Store;
use causeway_core::identity::{EntryId, Epoch, Id128, Position, Slot};
use causeway_core::rows::Row;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One entry of a segment: which message, bound for which route.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub id: EntryId,
    pub key: (u64, usize),
}

/// Everything that outlives the owners: what was promised, and what became of it.
#[derive(Debug, Default)]
pub struct Ledger {
    pub contents: BTreeMap<Id128, Vec<Known>>,
    pub position: BTreeMap<EntryId, Position>,
    /// Messages whose acknowledgement left, with their receiver.
    pub acknowledged: BTreeMap<u64, &'static str>,
    /// Promised and neither delivered nor dead-lettered yet.
    at_risk: BTreeSet<(u64, usize)>,
    pub gone: BTreeSet<(u64, usize)>,
    pub sent: BTreeSet<EntryId>,
    first_sent: [Option<Position>; ROUTES.len()],
    pub confirmed: BTreeMap<Epoch, Slot>,
    head: Slot,
    pub violation: Option<String>,
}

impl Ledger {
    pub fn violated(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    pub fn ensure(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violated(what);
        }
    }

    /// The source saw `message` acknowledged.
    pub fn acknowledge(&mut self, message: u64, receiver: &'static str) {
        if self.acknowledged.insert(message, receiver).is_none() {
            let keys = (0..ROUTES.len()).filter(|route| ROUTES[*route] == receiver).map(|route| (message, route));
            self.at_risk.extend(keys.filter(|key| !self.gone.contains(key)));
        }
    }

    /// A destination accepted the entry, or its dead letter stands.
    pub fn went(&mut self, key: (u64, usize)) {
        self.gone.insert(key);
        self.at_risk.remove(&key);
    }

    /// The entries that a new owner would take up.
    pub fn recoverable(&self, store: &Store) -> BTreeSet<(u64, usize)> {
        let ranges = store.head.as_ref().map(|head| head.settled_ahead.as_slice()).unwrap_or_default();
        let rows = store.rows.range(store.effective_head().next()..).filter(|(_, row)| matches!(row, Row::Segment(_)));
        rows.flat_map(|(slot, row)| {
            let known = self.contents.get(&row.id()).map(Vec::as_slice).unwrap_or_default();
            (0_u32..).zip(known).map(|(index, known)| (Position { slot: *slot, index }, known.key))
        })
        .filter(|(position, _)| !ranges.iter().any(|range| range.from <= *position && position <= &range.to))
        .map(|(_, key)| key)
        .collect()
    }

    /// After every change of the store: nothing promised is lost, and the head never moves back.
    pub fn store_changed(&mut self, store: &Store) {
        let head = store.effective_head();
        let before = self.head;
        self.ensure(head >= before, || format!("the head moved back from {before} to {head}"));
        self.head = head;
        self.nothing_lost(store);
    }

    pub fn nothing_lost(&mut self, store: &Store) {
        if self.at_risk.is_empty() || self.violation.is_some() {
            return;
        }
        let recoverable = self.recoverable(store);
        let lost: Vec<(u64, usize)> = self.at_risk.iter().filter(|key| !recoverable.contains(key)).copied().collect();
        self.ensure(lost.is_empty(), || {
            format!("acknowledged and in none of log, destination and dead letters: (message, route) {lost:?}")
        });
    }

    /// A segment of `epoch` was accepted at `slot`, while the head stood at `head`.
    pub fn accepted(&mut self, epoch: Epoch, slot: Slot, head: Slot) {
        let newer = self.confirmed.range(epoch.next()..).next().map(|(epoch, slot)| (*epoch, *slot));
        if let (true, Some((newer, anchor))) = (slot > head, newer) {
            self.violated(|| format!("an append of epoch {epoch} was accepted at {slot}, above the head {head}, after epoch {newer} had confirmed its anchor at {anchor}"));
        }
    }

    /// An owner deletes `slot`.
    pub fn deletes(&mut self, store: &Store, slot: Slot) {
        let (tail, head) = (store.tail(), store.effective_head());
        self.ensure(slot < tail, || format!("slot {slot} is deleted and the tail is {tail}"));
        self.ensure(slot <= head, || format!("slot {slot} is deleted and the head is {head}"));
        // One that was raised in a gap below the head, where a deleted row left room for a late put, is never confirmed and fences nobody.
        let anchor = matches!(store.rows.get(&slot), Some(Row::Anchor(anchor)) if self.confirmed.get(&anchor.epoch) == Some(&slot));
        self.ensure(!anchor, || format!("the confirmed anchor at {slot} is deleted"));
    }

    /// An entry leaves for its destination. Returns whether it did so before.
    pub fn sends(&mut self, entry: EntryId, route: usize) -> bool {
        let Some(position) = self.position.get(&entry).copied() else {
            self.violated(|| format!("entry {entry} is sent and was never put"));
            return false;
        };
        if !self.sent.insert(entry) {
            return true;
        }
        let last = self.first_sent[route];
        self.ensure(last.is_none_or(|last| last < position), || format!("route {route}: {position:?} is first sent after {last:?}"));
        self.first_sent[route] = Some(position);
        false
    }

    pub fn memory(&mut self, in_memory: usize, bound: usize) {
        self.ensure(in_memory < bound + MOST_MESSAGES, || format!("{in_memory} entries in memory; the bound is {bound} and one segment"));
    }
}

macro_rules! seen {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each thing happened.
        #[derive(Clone, Debug, Default)]
        pub struct Seen { $($(#[$doc])* pub $name: u64,)* pub repeated_sends: u64, pub acknowledged: u64 }

        impl Seen {
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                self.repeated_sends += other.repeated_sends;
                self.acknowledged += other.acknowledged;
            }

            /// What never happened.
            pub fn never(&self) -> Vec<&'static str> {
                [$((stringify!($name), self.$name)),*].into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
            }
        }

        impl fmt::Display for Seen {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} acknowledged, {} sent again", self.acknowledged, self.repeated_sends)?;
                $(write!(f, ", {} {}", self.$name, stringify!($name).replace('_', " "))?;)*
                Ok(())
            }
        }
    };
}

seen! {
    /// An owner opened a log in which another had left entries.
    takeovers,
    /// A put of unknown outcome turned out to have landed.
    unknown_puts_that_had_landed,
    /// A put of unknown outcome turned out not to have landed.
    unknown_puts_that_had_not_landed,
    /// A segment of a replaced owner met a foreign row.
    refused_stale_writes,
    /// A put landed after its caller had given it up.
    puts_landed_late,
    /// A row was put back at or below the head, where nobody looks.
    rows_raised_from_the_dead,
    /// An anchor met another row.
    anchor_conflicts,
    /// An owner ended because of another.
    fenced_owners,
    /// Pages that an owner read of what it had itself appended.
    read_backs,
    /// A head row told of entries settled above it.
    heads_with_ranges,
    /// A head row of an owner came too late.
    refused_heads,
    dead_letters,
    /// Messages went back to the source with their connection.
    returned,
    /// An owner was told to stop, and did.
    stops,
    crashes,
}
