//! The reference model of the stores: a lease row, a log, dead letters. Requests take effect when they arrive, whoever still waits for the answer.

use crate::Mutant;
use crate::event::{AccountCall, Reply};
use crate::faults::Knobs;
use crate::mail::Letterbox;
use crate::reference::{self, Lane, LeaseRule, LogRule, Told};
use crate::seen::{Seen, Sight};
use causeway_core::dead_letter::DeadLetter;
use causeway_core::identity::{EntryId, Epoch, LaneId, Place, Position, Slot};
use causeway_core::lease::row::{LeaseRow, RawLease};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::log::{Answer, Call, Put, Registration};
use causeway_core::message::Entry;
use causeway_core::outcome::Outcome;
use causeway_core::rows::{Row, RowMeta};
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
    /// Dead letters, and mail.
    pub(crate) letterbox: Letterbox,
    /// What the broker's session may have subscribed to; `None`: nobody knows.
    filters: Option<BTreeSet<String>>,
    /// How often filters were remembered.
    generation: Generation,
    pub(crate) mutant: Option<Mutant>,
    /// A clock's rate may be wrong by so much, in parts per million; `None`: nobody knows, and early takeovers are not wondered at.
    rate_ppm: Option<u64>,
}

/// One lane of the log, and what its rules promise.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) lane: Lane,
    /// The highest epoch whose anchor was read back as the tail.
    confirmed: Epoch,
    /// Messages that were made durable above the head.
    stored: BTreeSet<u64>,
    /// Where entries stand or stood, by id and redrive.
    places: BTreeMap<(EntryId, u32), Position>,
    without: Option<LogRule>,
    /// What each caller was told.
    told: BTreeMap<Caller, Told>,
    /// Entries whose owner learned that they arrived.
    arrived: BTreeSet<EntryId>,
}

/// Who calls: a worker, and its life.
pub type Caller = (usize, u64);

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
    pub fn new(knobs: &Knobs, mutant: Option<Mutant>) -> Self {
        let rate_ppm = (!knobs.lawless).then_some(knobs.rate_ppm);
        Self { rate_ppm, filters: knobs.known_filters(), letterbox: Letterbox::begin(knobs.letters), mutant, ..Self::default() }
    }

    /// One lane of the log.
    pub(crate) fn lane(&mut self, lane: LaneId) -> &mut Log {
        let without = self.without();
        self.logs.entry(lane).or_insert_with(|| Log { without, ..Log::default() })
    }

    const fn without(&self) -> Option<LogRule> {
        if let Some(Mutant::Log(rule)) = self.mutant { Some(rule) } else { None }
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

    /// Writes the lease row at true time `now` if its condition holds. `proven`: whether the owner that stands there is gone, where anybody may ask; `None`:
    /// nobody may.
    ///
    /// # Errors
    /// Where a rule of the lease is broken by what the condition let through.
    pub fn write_lease(&mut self, now: u64, write: &LeaseWrite, proven: Option<bool>, seen: &mut Seen) -> Result<LeaseAnswer, Violation> {
        let claims = matches!(write.condition, Condition::Exactly { .. }) && write.row.evidence.is_none();
        let unconditional = claims && self.mutant == Some(Mutant::Lease(LeaseRule::ClaimsAreConditional));
        if !reference::holds(&write.condition, self.lease.as_ref()) && !unconditional {
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
                let silent = Duration::from_nanos(now - self.lease_changed);
                seen.note(match proven.filter(|_| silent < old.ttl() / 2) {
                    None => Sight::TakeoverByExpiry,
                    Some(true) => Sight::TakeoverByTestimony,
                    Some(false) => Sight::TakeoverByFalseTestimony,
                });
                let least = self.rate_ppm.map_or(Duration::ZERO, |rate| old.ttl().mul_f64(1.0 - 2.0 * rate as f64 / 1e6));
                if silent < least && proven != Some(true) {
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
        self.logs.iter().filter(|(lane, _)| lane.0 < lanes).flat_map(|(_, log)| log.lane.unsettled().map(number_of)).collect()
    }

    /// Where an entry stands, or stood, in the log.
    #[must_use]
    pub fn place_of(&self, entry: &Entry) -> Option<Place> {
        let name = (entry.id, entry.redrives());
        self.logs.iter().find_map(|(lane, log)| Some(Place { lane: *lane, position: *log.places.get(&name)? }))
    }

    /// Whether the message was made durable.
    #[must_use]
    pub fn was_stored(&self, message: u64) -> bool {
        self.logs.values().any(|log| log.stored.contains(&message))
    }

    /// Whether there is a dead letter of the message.
    #[must_use]
    pub fn has_letter(&self, message: u64) -> bool {
        self.letterbox.has_dead(message)
    }

    /// Keeps a dead letter.
    pub fn park(&mut self, letter: &DeadLetter) {
        self.letterbox.park(letter);
    }

    /// The registry's record, as owners are told it. Its epoch fences by itself: where a rule about epochs in the log is left out, it must not help.
    fn told_record(&self) -> Option<Registration> {
        let hidden = matches!(self.without(), Some(LogRule::Epoch | LogRule::FenceOnAnyEpoch));
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
            Call::MoveMail { slot, row, ids } => {
                self.move_mail(caller, (lane, *slot), row, ids, doubted, seen).map(|moved| Answer::Moved(Outcome::Done(moved)))
            }
            _ => {
                if lane > LaneId(0) && matches!(call, Call::Put { row, .. } if matches!(**row, Row::Segment(_))) {
                    seen.note(Sight::OtherLaneUsed);
                }
                self.lane(lane).call(caller, call, doubted, seen).map_err(|violation| format!("{violation} (lane {lane})"))
            }
        }
    }

    /// The owner learned that these entries arrived.
    pub fn settled(&mut self, entries: &[EntryId]) {
        self.logs.values_mut().for_each(|log| log.settled(entries));
    }
}

impl Log {
    fn call(&mut self, caller: Caller, call: &Call, doubted: bool, seen: &mut Seen) -> Result<Answer, Violation> {
        let before = self.lane.effective_head();
        let answer = match call {
            Call::ReadTail => Answer::Tail(Ok(self.read_tail(caller))),
            Call::ReadHead => Answer::Head(Ok(self.lane.head().cloned())),
            Call::ReadRecord | Call::Register { .. } => return Err("the record is none of a lane's".to_owned()),
            Call::MoveMail { .. } => return Err("mail is moved by the stores together".to_owned()),
            Call::Put { slot, row } => Answer::Put(Outcome::Done(self.put(caller, *slot, row, doubted, seen)?)),
            Call::ReadPage { purpose, after, up_to } => {
                Answer::Page { purpose: *purpose, page: Ok(self.lane.page(*after, *up_to, PAGE_ROWS)) }
            }
            Call::PutHead { head } => Answer::HeadPut(Outcome::Done(self.lane.put_head(head, self.without))),
            Call::Delete { slots } => {
                self.may_be_deleted(slots)?;
                self.lane.delete(slots, self.without);
                Answer::Deleted(Outcome::Done(()))
            }
        };
        if self.lane.effective_head() < before {
            return Err(format!("S6: the head fell back from {before} to {}", self.lane.effective_head()));
        }
        Ok(answer)
    }

    fn read_tail(&mut self, caller: Caller) -> Option<RowMeta> {
        let tail = self.told.entry(caller).or_default().tail(&self.lane, self.without);
        if let Some(meta) = tail
            && let Some(Row::Anchor(anchor)) = self.lane.standing(meta.slot)
        {
            self.confirmed = self.confirmed.max(anchor.epoch);
        }
        Told::heard(tail, self.without)
    }

    fn settled(&mut self, entries: &[EntryId]) {
        if self.without == Some(LogRule::HeadFirst) {
            self.arrived.extend(entries);
            self.lane.settled(|entry| self.arrived.contains(&entry.id), self.without);
        }
    }

    pub(crate) fn put(&mut self, caller: Caller, slot: Slot, row: &Arc<Row>, doubted: bool, seen: &mut Seen) -> Result<Put, Violation> {
        let head = self.lane.effective_head();
        let (put, new) = self.lane.put(slot, row, self.without);
        self.told.entry(caller).or_default().put(new.unwrap_or(slot), row, &put);
        match (&put, new) {
            (Put::Occupied(_), _) => seen.note(Sight::StalePutRefused),
            (Put::Stored, None) if doubted => seen.note(Sight::PutResolvedAsDone),
            (Put::Stored, Some(at)) if doubted && at == slot => seen.note(Sight::PutResolvedAsNotDone),
            (Put::Stored, _) => {}
        }
        if let Some(slot) = new.filter(|slot| *slot > head && matches!(**row, Row::Segment(_))) {
            if row.epoch() < self.confirmed {
                return Err(format!("S2: epoch {} appended at slot {slot} after epoch {} was confirmed", row.epoch(), self.confirmed));
            }
            let entries = self.lane.rows()[&slot].entries();
            self.stored.extend(entries.iter().map(number_of));
            self.places.extend((0_u32..).zip(entries).map(|(index, entry)| ((entry.id, entry.redrives()), Position { slot, index })));
        }
        Ok(put)
    }

    fn may_be_deleted(&self, slots: &[Slot]) -> Result<(), Violation> {
        let (tail, head) = (self.lane.tail(), self.lane.effective_head());
        for slot in slots {
            if *slot >= tail {
                return Err(format!("S6: slot {slot}, the tail, is deleted"));
            }
            if *slot > head {
                return Err(format!("S6: slot {slot} above the head {head} is deleted"));
            }
            if matches!(self.lane.standing(*slot), Some(Row::Anchor(_))) {
                return Err(format!("S6: the anchor at slot {slot} is deleted"));
            }
        }
        Ok(())
    }
}
