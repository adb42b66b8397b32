//! The reference model of the stores: a lease row, a log, dead letters. Requests take effect when they arrive, whoever still waits for the answer.

use crate::Mutant;
use crate::seen::{Seen, Sight};
use causeway_core::dead_letter::DeadLetter;
use causeway_core::identity::{EntryId, Epoch, Position, Slot};
use causeway_core::lease::row::{LeaseRow, RawLease};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::log::{Answer, Call, Page, Put, Registration};
use causeway_core::message::Entry;
use causeway_core::outcome::Outcome;
use causeway_core::rows::{Head, Row, unpack};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rows of a page: few, so that pages have to be turned.
const PAGE_ROWS: usize = 3;

/// The stores.
#[derive(Debug, Default)]
pub struct Stores {
    lease: Option<LeaseRow>,
    /// When the lease's tuple last changed, in true nanoseconds.
    lease_changed: u64,
    /// Who holds or held which version.
    versions: BTreeMap<u64, String>,
    rows: BTreeMap<Slot, Row>,
    head: Option<Head>,
    record: Option<Registration>,
    /// The highest epoch whose anchor was read back as the tail.
    confirmed: Epoch,
    /// Messages that were made durable above the head.
    stored: BTreeSet<u64>,
    places: BTreeMap<EntryId, Position>,
    letters: BTreeMap<EntryId, u64>,
    mutant: Option<Mutant>,
    /// A clock's rate may be wrong by so much, in parts per million; `None`: nobody knows, and early takeovers are not wondered at.
    rate_ppm: Option<u64>,
}

/// A violated invariant, in words.
pub type Violation = String;

/// The number of a simulated message.
#[must_use]
pub fn number_of(entry: &Entry) -> u64 {
    core::str::from_utf8(&entry.message.payload).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

impl Stores {
    /// Empty stores.
    #[must_use]
    pub fn new(rate_ppm: Option<u64>, mutant: Option<Mutant>) -> Self {
        Self { rate_ppm, mutant, ..Self::default() }
    }

    /// The lease row as a reader gets it.
    #[must_use]
    pub fn read_lease(&self) -> Option<RawLease> {
        self.lease.as_ref().map(RawLease::from)
    }

    /// The lease row.
    #[must_use]
    pub const fn lease(&self) -> Option<&LeaseRow> {
        self.lease.as_ref()
    }

    /// Puts an older lease row back: the table was restored from a backup while nobody ran. The log is ahead of it then.
    pub fn restore_lease(&mut self, now: u64, versions_back: u64) {
        if let Some(row) = &mut self.lease {
            let version = row.tuple.version.saturating_sub(versions_back).max(1);
            if version != row.tuple.version {
                self.lease_changed = now;
            }
            row.tuple.version = version;
            row.evidence = None;
            self.versions.clear();
        }
    }

    fn lease_holds(&self, condition: &Condition) -> bool {
        match (condition, &self.lease) {
            (Condition::Absent, row) => row.is_none(),
            (Condition::Exactly { tuple, evidence }, Some(row)) => row.tuple == *tuple && row.evidence == *evidence,
            (Condition::Held { owner, version }, Some(row)) => row.tuple.owner == *owner && row.tuple.version == *version,
            (Condition::Exactly { .. } | Condition::Held { .. }, None) => false,
        }
    }

    /// Writes the lease row at true time `now` if its condition holds.
    ///
    /// # Errors
    /// Where a rule of the lease is broken by what the condition let through.
    pub fn write_lease(&mut self, now: u64, write: &LeaseWrite, seen: &mut Seen) -> Result<LeaseAnswer, Violation> {
        if !self.lease_holds(&write.condition) {
            seen.note(Sight::StaleLeaseWriteRefused);
            return Ok(LeaseAnswer::Refused(self.read_lease()));
        }
        let new = &write.row.tuple;
        if let Some(old) = self.lease.as_ref().map(|row| row.tuple.clone()).filter(|old| old != new) {
            let claimed = old.owner != new.owner && !new.is_released();
            if claimed && new.version <= old.version || new.version < old.version {
                return Err(format!("S2: version {} by {} follows version {} by {}", new.version, new.owner, old.version, old.owner));
            }
            if claimed && !old.is_released() {
                seen.note(Sight::TakeoverByExpiry);
                let silent = Duration::from_nanos(now - self.lease_changed);
                let least = self.rate_ppm.map_or(Duration::ZERO, |rate| old.ttl().mul_f64(1.0 - 2.0 * rate as f64 / 1e6));
                if silent < least {
                    return Err(format!(
                        "S3: {} took over from {} after {silent:?}, the lease holds {:?}",
                        new.owner,
                        old.owner,
                        old.ttl()
                    ));
                }
            } else if claimed {
                seen.note(Sight::TakeoverByRelease);
            } else if new.owner == old.owner && new.version == old.version && new.renewed_at == old.renewed_at {
                return Err("the same renewal was written twice".to_owned());
            }
        } else if self.lease.is_some() {
            seen.note(Sight::EvidenceWritten);
        }
        if !new.is_released() {
            let owner = self.versions.entry(new.version).or_insert_with(|| new.owner.clone());
            if *owner != new.owner {
                return Err(format!("S2: version {} belongs to {owner} and to {}", new.version, new.owner));
            }
        }
        if self.lease.as_ref().is_none_or(|row| row.tuple != *new) {
            self.lease_changed = now;
        }
        self.lease = Some(write.row.clone());
        Ok(LeaseAnswer::Written)
    }

    /// The slot of the last row.
    #[must_use]
    pub fn tail(&self) -> Slot {
        self.rows.last_key_value().map_or(Slot(0), |(slot, _)| *slot)
    }

    /// Every slot up to this one is settled, as the next owner will see it.
    #[must_use]
    pub fn effective_head(&self) -> Slot {
        let of_tail = self.rows.last_key_value().map_or(Slot(0), |(_, row)| row.drained());
        self.head.as_ref().map_or(of_tail, |head| of_tail.max(head.drained))
    }

    /// The messages that the next owner would take up.
    #[must_use]
    pub fn unsettled(&self) -> BTreeSet<u64> {
        let ranges = self.head.as_ref().map(|head| head.settled_ahead.as_slice()).unwrap_or_default();
        let mut found = BTreeSet::new();
        for (slot, row) in self.rows.range(self.effective_head().next()..) {
            for (index, entry) in (0_u32..).zip(entries(row)) {
                let position = Position { slot: *slot, index };
                if !ranges.iter().any(|range| range.from <= position && position <= range.to) {
                    found.insert(number_of(&entry));
                }
            }
        }
        found
    }

    /// Where an entry stands, or stood, in the log.
    #[must_use]
    pub fn place_of(&self, entry: EntryId) -> Option<Position> {
        self.places.get(&entry).copied()
    }

    /// Whether the message was made durable.
    #[must_use]
    pub fn was_stored(&self, message: u64) -> bool {
        self.stored.contains(&message)
    }

    /// Whether there is a dead letter of the message.
    #[must_use]
    pub fn has_letter(&self, message: u64) -> bool {
        self.letters.values().any(|parked| *parked == message)
    }

    /// Keeps a dead letter.
    pub fn park(&mut self, letter: &DeadLetter) {
        let number = core::str::from_utf8(&letter.message.payload).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        self.letters.insert(letter.id, number);
    }

    /// Carries a call to the log out. `doubted`: an earlier attempt of the same put has an unknown outcome.
    ///
    /// # Errors
    /// Where a rule of the log is broken by what its conditions let through.
    pub fn call(&mut self, call: &Call, doubted: bool, seen: &mut Seen) -> Result<Answer, Violation> {
        let before = self.effective_head();
        let answer = match call {
            Call::ReadTail => {
                let meta = self.rows.last_key_value().map(|(slot, row)| row.meta(*slot));
                if let Some((_, Row::Anchor(anchor))) = self.rows.last_key_value() {
                    self.confirmed = self.confirmed.max(anchor.epoch);
                }
                Answer::Tail(Ok(meta))
            }
            Call::ReadHead => Answer::Head(Ok(self.head.clone())),
            Call::ReadRecord => Answer::Record(Ok(self.record)),
            Call::Register { record, replaces } => {
                let holds = self.record == *replaces;
                if holds {
                    self.record = Some(*record);
                }
                Answer::Registered(Outcome::Done(holds))
            }
            Call::MoveMail { .. } => return Err("mail is moved and none was posted".to_owned()),
            Call::Put { slot, row } => Answer::Put(Outcome::Done(self.put(*slot, row, doubted, seen)?)),
            Call::ReadPage { purpose, after, up_to } => Answer::Page { purpose: *purpose, page: Ok(self.page(*after, *up_to)) },
            Call::PutHead { head } => {
                let forward = self.head.as_ref().is_none_or(|old| head.may_replace(old));
                if forward {
                    self.head = Some(head.clone());
                }
                Answer::HeadPut(Outcome::Done(forward))
            }
            Call::Delete { slots } => {
                self.delete(slots)?;
                Answer::Deleted(Outcome::Done(()))
            }
        };
        if self.effective_head() < before {
            return Err(format!("S6: the head fell back from {before} to {}", self.effective_head()));
        }
        Ok(answer)
    }

    fn put(&mut self, slot: Slot, row: &Arc<Row>, doubted: bool, seen: &mut Seen) -> Result<Put, Violation> {
        let mut slot = slot;
        if let Some(standing) = self.rows.get(&slot) {
            if standing.id() == row.id() {
                if doubted {
                    seen.note(Sight::PutResolvedAsDone);
                }
                return Ok(Put::Stored);
            }
            match self.mutant {
                Some(Mutant::NoSlotCondition) => {}
                // Room is found wherever the log ends, for everybody.
                Some(Mutant::NoFence) => slot = self.tail().next(),
                _ => {
                    seen.note(Sight::StalePutRefused);
                    return Ok(Put::Occupied(standing.meta(slot)));
                }
            }
        } else if doubted {
            seen.note(Sight::PutResolvedAsNotDone);
        }
        if let Row::Segment(_) = row.as_ref()
            && slot > self.effective_head()
        {
            if row.epoch() < self.confirmed {
                return Err(format!("S2: epoch {} appended at slot {slot} after epoch {} was confirmed", row.epoch(), self.confirmed));
            }
            let entries = entries(row);
            self.stored.extend(entries.iter().map(number_of));
            self.places.extend((0_u32..).zip(&entries).map(|(index, entry)| (entry.id, Position { slot, index })));
        }
        self.rows.insert(slot, row.as_ref().clone());
        Ok(Put::Stored)
    }

    fn delete(&mut self, slots: &[Slot]) -> Result<(), Violation> {
        for slot in slots {
            if *slot >= self.tail() {
                return Err(format!("S6: slot {slot}, the tail, is deleted"));
            }
            if *slot > self.effective_head() {
                return Err(format!("S6: slot {slot} above the head {} is deleted", self.effective_head()));
            }
            if matches!(self.rows.get(slot), Some(Row::Anchor(_))) {
                return Err(format!("S6: the anchor at slot {slot} is deleted"));
            }
            self.rows.remove(slot);
        }
        Ok(())
    }

    fn page(&self, after: Slot, up_to: Slot) -> Page {
        let mut page = Page::default();
        if after >= up_to {
            return page;
        }
        for (slot, row) in self.rows.range(after.next()..=up_to) {
            if page.rows.len() >= PAGE_ROWS {
                page.next_after = page.rows.last().map(|(slot, _)| *slot);
                break;
            }
            page.rows.push((*slot, row.clone()));
        }
        page
    }
}

fn entries(row: &Row) -> Vec<Entry> {
    match row {
        Row::Segment(segment) => unpack(segment).unwrap_or_default(),
        Row::Anchor(_) => Vec::new(),
    }
}
