//! The reference model of the stores: a lease row, a log, dead letters. Requests take effect when they arrive, whoever still waits for the answer.

use crate::Mutant;
use crate::event::{AccountCall, Reply};
use crate::seen::{Seen, Sight};
use causeway_core::dead_letter::DeadLetter;
use causeway_core::identity::{EntryId, Epoch, LaneId, Place, Position, Slot};
use causeway_core::lease::row::{LeaseRow, RawLease};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::log::{Answer, Call, Page, Put, Registration};
use causeway_core::message::Entry;
use causeway_core::outcome::Outcome;
use causeway_core::rows::{Head, Row, RowMeta, unpack};
use causeway_core::subscriptions::Generation;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Rows of a page: few, so that pages have to be turned.
const PAGE_ROWS: usize = 3;

/// Copies of the lease table that a restore may choose from.
const COPIES: usize = 40;

/// The stores.
#[derive(Debug, Default)]
pub struct Stores {
    lease: Option<LeaseRow>,
    /// Its last copies, for a restore.
    copies: VecDeque<LeaseRow>,
    /// When the lease's tuple last changed, in true nanoseconds.
    lease_changed: u64,
    /// Who holds or held which version.
    versions: BTreeMap<u64, String>,
    /// The lanes of the log, those without rows left out.
    logs: BTreeMap<LaneId, Log>,
    record: Option<Registration>,
    letters: BTreeMap<EntryId, u64>,
    /// What the broker's session may have subscribed to; `None`: nobody knows.
    filters: Option<BTreeSet<String>>,
    /// How often filters were remembered.
    generation: Generation,
    mutant: Option<Mutant>,
    /// A clock's rate may be wrong by so much, in parts per million; `None`: nobody knows, and early takeovers are not wondered at.
    rate_ppm: Option<u64>,
}

/// One lane of the log.
#[derive(Debug, Default)]
struct Log {
    rows: BTreeMap<Slot, Row>,
    head: Option<Head>,
    /// The highest epoch whose anchor was read back as the tail.
    confirmed: Epoch,
    /// Messages that were made durable above the head.
    stored: BTreeSet<u64>,
    places: BTreeMap<EntryId, Position>,
    mutant: Option<Mutant>,
    /// What each caller was told, for the mutants that lie.
    told: BTreeMap<Caller, Told>,
    /// Entries whose owner learned that they arrived, for the mutant that deletes them at once.
    settled: BTreeSet<EntryId>,
}

/// Who calls: a worker, and its life.
pub type Caller = (usize, u64);

/// What a caller was told: what lies to it are made of.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    drained: Slot,
    own_anchor: Option<RowMeta>,
    conflict: Option<RowMeta>,
}

/// A violated invariant, in words.
pub type Violation = String;

/// The number of a simulated message.
#[must_use]
pub fn number_of(entry: &Entry) -> u64 {
    core::str::from_utf8(&entry.message.payload).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

impl Stores {
    /// Empty stores, but for what is known of the session's subscriptions.
    #[must_use]
    pub fn new(rate_ppm: Option<u64>, filters: Option<BTreeSet<String>>, mutant: Option<Mutant>) -> Self {
        Self { rate_ppm, filters, mutant, ..Self::default() }
    }

    /// What is known of the session's subscriptions.
    #[must_use]
    pub const fn filters(&self) -> Option<&BTreeSet<String>> {
        self.filters.as_ref()
    }

    /// Somebody tells what the session has subscribed to (`causeway baseline`).
    pub fn tell_filters(&mut self, filters: BTreeSet<String>) {
        self.filters = Some(filters);
    }

    /// Carries a call to the account of managed subscriptions out.
    pub fn account(&mut self, call: &AccountCall) -> Reply {
        match call {
            AccountCall::Load => Reply::Filters(Ok(self.filters.clone())),
            AccountCall::Seed => {
                let absent = self.filters.is_none();
                self.filters.get_or_insert_default();
                Reply::AccountWritten(Outcome::Done(absent))
            }
            AccountCall::Remember(filters) => Reply::Remembered(Outcome::Done(self.filters.as_mut().map(|known| {
                known.extend(filters.iter().cloned());
                self.generation.0 += 1;
                self.generation
            }))),
            AccountCall::Forget(filter, generation) => {
                let known = self.filters.as_mut().filter(|_| *generation == self.generation);
                Reply::AccountWritten(Outcome::Done(known.map(|known| known.remove(filter)).is_some()))
            }
        }
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

    /// Puts an older copy of the lease table back, the one before the last `back` writes; answers whether it differs. The log is ahead of it then.
    pub fn restore_lease(&mut self, back: usize) -> bool {
        let Some(row) = self.copies.iter().rev().nth(back).or(self.copies.front()).cloned() else { return false };
        let differs = self.lease.as_ref().is_none_or(|standing| standing.tuple != row.tuple);
        if differs {
            // Nobody holds what stands there now: whoever takes it over takes it from nobody.
            self.lease_changed = 0;
            self.versions.clear();
        }
        self.lease = Some(row);
        differs
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
        self.copies.push_back(write.row.clone());
        if self.copies.len() > COPIES {
            self.copies.pop_front();
        }
        Ok(LeaseAnswer::Written)
    }

    /// The messages that the next owner would take up, from the lanes that the record names.
    #[must_use]
    pub fn unsettled(&self) -> BTreeSet<u64> {
        let lanes = self.record.map_or(0, |record| record.lanes);
        self.logs.iter().filter(|(lane, _)| lane.0 < lanes).flat_map(|(_, log)| log.unsettled()).collect()
    }

    /// Where an entry stands, or stood, in the log.
    #[must_use]
    pub fn place_of(&self, entry: EntryId) -> Option<Place> {
        self.logs.iter().find_map(|(lane, log)| Some(Place { lane: *lane, position: *log.places.get(&entry)? }))
    }

    /// Whether the message was made durable.
    #[must_use]
    pub fn was_stored(&self, message: u64) -> bool {
        self.logs.values().any(|log| log.stored.contains(&message))
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

    /// The registry's record, as owners are told it. Its epoch fences by itself: where a rule about epochs in the log is left out, it must not help.
    fn told_record(&self) -> Option<Registration> {
        let hidden = matches!(self.mutant, Some(Mutant::NoEpoch | Mutant::FencesOnHigherEpochOnly));
        self.record.map(|record| if hidden { Registration { epoch: Epoch(0), ..record } } else { record })
    }

    /// Carries a call to the log out. `doubted`: an earlier attempt of the same put has an unknown outcome.
    ///
    /// # Errors
    /// Where a rule of the log is broken by what its conditions let through.
    pub fn call(&mut self, caller: Caller, lane: LaneId, call: &Call, doubted: bool, seen: &mut Seen) -> Result<Answer, Violation> {
        match call {
            Call::ReadRecord => Ok(Answer::Record(Ok(self.told_record()))),
            Call::Register { record, replaces } => {
                let holds = self.told_record() == *replaces;
                if holds {
                    self.record = Some(*record);
                }
                Ok(Answer::Registered(Outcome::Done(holds)))
            }
            _ => {
                if lane > LaneId(0) && matches!(call, Call::Put { row, .. } if matches!(**row, Row::Segment(_))) {
                    seen.note(Sight::OtherLaneUsed);
                }
                let mutant = self.mutant;
                let log = self.logs.entry(lane).or_insert_with(|| Log { mutant, ..Log::default() });
                log.call(caller, call, doubted, seen).map_err(|violation| format!("{violation} (lane {lane})"))
            }
        }
    }

    /// The owner learned that these entries arrived.
    pub fn settled(&mut self, entries: &[EntryId]) {
        self.logs.values_mut().for_each(|log| log.settled(entries));
    }
}

impl Log {
    /// The slot of the last row.
    fn tail(&self) -> Slot {
        self.rows.last_key_value().map_or(Slot(0), |(slot, _)| *slot)
    }

    /// Every slot up to this one is settled, as the next owner will see it.
    fn effective_head(&self) -> Slot {
        let of_tail = self.rows.last_key_value().map_or(Slot(0), |(_, row)| row.drained());
        self.head.as_ref().map_or(of_tail, |head| of_tail.max(head.drained))
    }

    /// The messages that the next owner would take up.
    fn unsettled(&self) -> BTreeSet<u64> {
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

    fn call(&mut self, caller: Caller, call: &Call, doubted: bool, seen: &mut Seen) -> Result<Answer, Violation> {
        let before = self.effective_head();
        let answer = match call {
            Call::ReadTail => Answer::Tail(Ok(self.read_tail(caller))),
            Call::ReadHead => Answer::Head(Ok(self.head.clone())),
            Call::ReadRecord | Call::Register { .. } => return Err("the record is none of a lane's".to_owned()),
            Call::MoveMail { .. } => return Err("mail is moved and none was posted".to_owned()),
            Call::Put { slot, row } => Answer::Put(Outcome::Done(self.put(caller, *slot, row, doubted, seen)?)),
            Call::ReadPage { purpose, after, up_to } => Answer::Page { purpose: *purpose, page: Ok(self.page(*after, *up_to)) },
            Call::PutHead { head } => {
                let forward = self.head.as_ref().is_none_or(|old| head.may_replace(old));
                if forward {
                    self.head = Some(head.clone());
                }
                self.tidy();
                Answer::HeadPut(Outcome::Done(forward))
            }
            Call::Delete { slots } => {
                self.delete(slots)?;
                self.tidy();
                Answer::Deleted(Outcome::Done(()))
            }
        };
        if self.effective_head() < before {
            return Err(format!("S6: the head fell back from {before} to {}", self.effective_head()));
        }
        Ok(answer)
    }

    fn read_tail(&mut self, caller: Caller) -> Option<RowMeta> {
        let told = self.told.entry(caller).or_default();
        let (own, conflict) = (told.own_anchor.take(), told.conflict.take());
        let lie = match self.mutant {
            Some(Mutant::NoConfirm) => own,
            Some(Mutant::NoReread) => conflict.map(|meta| RowMeta { drained: told.drained, ..meta }),
            _ => None,
        };
        let tail = lie.or_else(|| self.rows.last_key_value().map(|(slot, row)| row.meta(*slot)));
        told.drained = tail.map_or(Slot(0), |meta| meta.drained);
        if let Some(meta) = tail
            && let Some(Row::Anchor(anchor)) = self.rows.get(&meta.slot)
        {
            self.confirmed = self.confirmed.max(anchor.epoch);
        }
        if self.mutant == Some(Mutant::NoEpoch) { tail.map(|meta| RowMeta { epoch: Epoch(0), ..meta }) } else { tail }
    }

    /// What disappears beside a head row or a delete where a rule is left out.
    fn tidy(&mut self) {
        let tail = self.tail();
        if self.mutant == Some(Mutant::DeleteTail) && tail <= self.effective_head() && matches!(self.rows.get(&tail), Some(Row::Segment(_)))
        {
            self.rows.remove(&tail);
        }
    }

    fn settled(&mut self, entries: &[EntryId]) {
        if self.mutant == Some(Mutant::DeleteBeforeHead) {
            self.settled.extend(entries);
            let (tail, settled) = (self.tail(), &self.settled);
            self.rows.retain(|slot, row| {
                *slot == tail || matches!(row, Row::Anchor(_)) || !self::entries(row).iter().all(|entry| settled.contains(&entry.id))
            });
        }
    }

    fn put(&mut self, caller: Caller, slot: Slot, row: &Arc<Row>, doubted: bool, seen: &mut Seen) -> Result<Put, Violation> {
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
                Some(Mutant::FencesOnHigherEpochOnly) if standing.epoch() <= row.epoch() && matches!(**row, Row::Segment(_)) => {
                    slot = self.tail().next();
                }
                _ => {
                    seen.note(Sight::StalePutRefused);
                    let meta = standing.meta(slot);
                    self.told.entry(caller).or_default().conflict = Some(meta);
                    return Ok(Put::Occupied(meta));
                }
            }
        } else if doubted {
            seen.note(Sight::PutResolvedAsNotDone);
        }
        if let Row::Anchor(_) = row.as_ref() {
            self.told.entry(caller).or_default().own_anchor = Some(row.meta(slot));
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
