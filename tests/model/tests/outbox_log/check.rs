//! What has to hold, and what has to have happened.

use crate::knobs::{MOST_MESSAGES, ROUTES};
use crate::store::{Log, Store};
use causeway_core::identity::{EntryId, Epoch, Id128, LaneId, Place, Position, Slot};
use causeway_core::rows::{Head, Part, Row, part};
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
    /// By the id of the row; of a segment in parts, by the id that its parts share.
    pub contents: BTreeMap<Id128, Vec<Known>>,
    places: BTreeMap<EntryId, Place>,
    /// In which order the entries were accepted, over all lanes.
    turns: BTreeMap<EntryId, u64>,
    /// Messages whose acknowledgement left, with their receiver.
    pub acknowledged: BTreeMap<u64, &'static str>,
    /// Promised and neither delivered nor dead-lettered yet.
    at_risk: BTreeSet<(u64, usize)>,
    pub gone: BTreeSet<(u64, usize)>,
    pub sent: BTreeSet<EntryId>,
    first_sent: BTreeMap<(LaneId, usize), Position>,
    first_sent_of_key: BTreeMap<(u64, usize), u64>,
    /// The confirmed anchors of each lane, with their owners.
    confirmed: BTreeMap<LaneId, Vec<(usize, Slot)>>,
    /// The highest epoch of a confirmed anchor in each lane.
    epochs: BTreeMap<LaneId, Epoch>,
    heads: BTreeMap<LaneId, Slot>,
    /// Mail by its entry, and in how many segments it was accepted.
    mail: BTreeMap<EntryId, u64>,
    pub violation: Option<String>,
}

/// The part that a row is.
pub fn part_of(row: &Row) -> Option<Part> {
    let Row::Segment(segment) = row else { return None };
    part(segment).expect("a part of our own").map(|(part, _)| part)
}

/// Whether all parts of the segment stand whose first part stands at `slot`: one after another, and of one epoch.
fn is_whole(log: &Log, slot: Slot, row: &Row, first: Part) -> bool {
    let stands = |index: u32| {
        let row_there = log.rows.get(&Slot(slot.0 + u64::from(index)));
        row_there.is_some_and(|there| there.epoch() == row.epoch() && part_of(there) == Some(Part { index, ..first }))
    };
    first.index == 0 && (1..first.of).all(stands)
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

    /// Somebody posted mail of that key.
    pub fn posted(&mut self, entry: EntryId, key: (u64, usize)) {
        self.mail.insert(entry, 0);
        self.at_risk.insert(key);
    }

    /// It was taken back before it was moved.
    pub fn withdrawn(&mut self, key: (u64, usize)) {
        self.at_risk.remove(&key);
        self.gone.insert(key);
    }

    /// The entries that a new owner would take up from a lane.
    fn recoverable_in<'a>(&'a self, log: &'a Log) -> impl Iterator<Item = (u64, usize)> + 'a {
        let ranges = log.head.as_ref().map(|head| head.settled_ahead.as_slice()).unwrap_or_default();
        let rows = log.rows.range(log.effective_head().next()..).filter(|(_, row)| matches!(row, Row::Segment(_)));
        rows.flat_map(|(slot, row)| self.positions(log, *slot, row))
            .filter(|(position, _)| !ranges.iter().any(|range| range.from <= *position && position <= &range.to))
            .map(|(_, known)| known.key)
    }

    fn positions(&self, log: &Log, slot: Slot, row: &Row) -> impl Iterator<Item = (Position, Known)> {
        let id = match part_of(row) {
            None => Some(row.id()),
            Some(part) => is_whole(log, slot, row, part).then_some(part.group),
        };
        let known = id.and_then(|id| self.contents.get(&id)).map(Vec::as_slice).unwrap_or_default();
        (0_u32..).zip(known).map(move |(index, known)| (Position { slot, index }, *known))
    }

    /// The entries that a new owner would take up, from the lanes that the registry names, or would find in the mailbox.
    pub fn recoverable(&self, store: &Store) -> BTreeSet<(u64, usize)> {
        let in_mail = store.mail.values().map(|mail| crate::world::key_of(&mail.entry));
        store.registered().flat_map(|(_, log)| self.recoverable_in(log)).chain(in_mail).collect()
    }

    /// After every change of the store: nothing promised is lost, and no head moves back.
    pub fn store_changed(&mut self, store: &Store) {
        for (lane, log) in &store.logs {
            let head = log.effective_head();
            let before = self.heads.insert(*lane, head).unwrap_or_default();
            self.ensure(head >= before, || format!("the head of lane {lane} moved back from {before} to {head}"));
        }
        self.nothing_lost(store);
    }

    /// A head row was written over another of the same epoch: what was told to be settled stays so.
    pub fn head_written(&mut self, log: &Log, old: Option<&Head>, new: &Head) {
        let Some(old) = old.filter(|old| old.epoch == new.epoch) else { return };
        let covers = |head: &Head, at: Position| {
            at.slot <= head.drained || head.settled_ahead.iter().any(|range| range.from <= at && at <= range.to)
        };
        let taken_back: Vec<Position> = log
            .rows
            .iter()
            .flat_map(|(slot, row)| self.positions(log, *slot, row))
            .map(|(position, _)| position)
            .filter(|position| covers(old, *position) && !covers(new, *position))
            .collect();
        self.ensure(taken_back.is_empty(), || format!("a late head row takes back that {taken_back:?} are settled"));
    }

    pub fn nothing_lost(&mut self, store: &Store) {
        if self.at_risk.is_empty() || self.violation.is_some() {
            return;
        }
        let recoverable = self.recoverable(store);
        let lost: Vec<(u64, usize)> = self.at_risk.iter().filter(|key| !recoverable.contains(key)).copied().collect();
        self.ensure(lost.is_empty(), || {
            format!("promised and in none of log, mailbox, destination and dead letters: (message, route) {lost:?}")
        });
    }

    /// An owner saw its anchor as the tail of a lane.
    pub fn confirms(&mut self, node: usize, lane: LaneId, slot: Slot, epoch: Epoch) {
        let highest = self.epochs.entry(lane).or_default();
        *highest = epoch.max(*highest);
        let confirmed = self.confirmed.entry(lane).or_default();
        if confirmed.last() != Some(&(node, slot)) {
            confirmed.push((node, slot));
        }
    }

    /// A segment of `node`, or a part of one, was accepted at `slot`, while the head stood at `head`.
    pub fn accepted(&mut self, node: usize, lane: LaneId, slot: Slot, row: &Row, head: Slot) {
        let epoch = row.epoch();
        if slot <= head {
            return;
        }
        let confirmed = self.confirmed.get(&lane).map(Vec::as_slice).unwrap_or_default();
        let own = confirmed.iter().filter(|(of, _)| *of == node).map(|(_, slot)| *slot).max().unwrap_or_default();
        if let Some((newer, anchor)) = confirmed.iter().find(|(of, slot)| *of != node && *slot > own).copied() {
            self.violated(|| {
                format!("an append of n{node} was accepted at {slot} of lane {lane}, above the head {head}, after n{newer} had confirmed its anchor at {anchor}")
            });
        }
        let newer = self.epochs.get(&lane).copied().unwrap_or_default();
        self.ensure(epoch >= newer, || {
            format!("an append of epoch {epoch} was accepted at {slot} of lane {lane} after epoch {newer} had confirmed its anchor")
        });
        // With its last part a segment is in the log, at the slot of its first.
        let (id, slot) = match part_of(row) {
            None => (row.id(), slot),
            Some(part) if part.index + 1 < part.of => return,
            Some(part) => (part.group, Slot(slot.0 - u64::from(part.index))),
        };
        let entries: Vec<EntryId> = self.contents.get(&id).into_iter().flatten().map(|known| known.id).collect();
        for (index, entry) in (0_u32..).zip(entries) {
            self.places.insert(entry, Place { lane, position: Position { slot, index } });
            self.turns.insert(entry, self.turns.len() as u64);
            let Some(times) = self.mail.get_mut(&entry) else { continue };
            *times += 1;
            let times = *times;
            self.ensure(times == 1, || format!("mail {entry} entered the log {times} times"));
        }
    }

    /// How much mail entered the log.
    pub fn moved(&self) -> u64 {
        self.mail.values().sum()
    }

    /// An owner deletes `slot`.
    pub fn deletes(&mut self, lane: LaneId, log: &Log, slot: Slot) {
        let (tail, head) = (log.tail(), log.effective_head());
        self.ensure(slot < tail, || format!("slot {slot} is deleted and the tail is {tail}"));
        self.ensure(slot <= head, || format!("slot {slot} is deleted and the head is {head}"));
        // One that was raised in a gap below the head, where a deleted row left room for a late put, is never confirmed and fences nobody.
        let confirmed = self.confirmed.get(&lane).is_some_and(|confirmed| confirmed.iter().any(|(_, anchor)| *anchor == slot));
        let anchor = confirmed && matches!(log.rows.get(&slot), Some(Row::Anchor(_)));
        self.ensure(!anchor, || format!("the confirmed anchor at {slot} is deleted"));
    }

    /// An entry of a topic leaves for its destination. Returns whether it did so before.
    pub fn sends(&mut self, entry: EntryId, topic: u64, route: usize) -> bool {
        let Some(place) = self.places.get(&entry).copied() else {
            self.violated(|| format!("entry {entry} is sent and was never put"));
            return false;
        };
        if !self.sent.insert(entry) {
            return true;
        }
        let last = self.first_sent.insert((place.lane, route), place.position);
        self.ensure(last.is_none_or(|last| last < place.position), || format!("route {route}: {place:?} is first sent after {last:?}"));
        let turn = self.turns.get(&entry).copied().unwrap_or_default();
        let last = self.first_sent_of_key.insert((topic, route), turn);
        self.ensure(last.is_none_or(|last| last < turn), || {
            format!("route {route}: of topic {topic}, {place:?} is first sent out of order")
        });
        false
    }

    pub fn memory(&mut self, in_memory: usize, bound: usize, lanes: usize) {
        let most = bound + lanes * (MOST_MESSAGES + 1);
        self.ensure(in_memory <= most, || format!("{in_memory} entries in memory; the bound is {bound} and one segment a lane"));
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
    /// An owner opened several lanes.
    several_lanes,
    /// The registry named more lanes than before, or fewer.
    more_lanes,
    fewer_lanes,
    /// A record met another than the one it was to replace.
    record_conflicts,
    /// A log was closed for good.
    retired,
    /// A log that had been closed was opened again.
    reopened,
    /// Mail entered the log.
    mail_moved,
    /// A move of unknown outcome.
    doubtful_moves,
    /// Mail was gone when it was to be moved.
    mail_gone,
    /// An owner began with an epoch that another had.
    repeated_epochs,
    /// The last part of a segment was put.
    segments_in_parts,
    /// An owner met parts of a segment that has no last one.
    stray_parts,
}
