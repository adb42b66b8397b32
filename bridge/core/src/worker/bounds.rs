//! How much of one key stands in the log, and what makes room where that is too much.
//!
//! What is appended counts from the moment on at which the writer has it, so that the log never has more than the bound; what former owners left counts once
//! it was read. A message whose key is full waits in the admission, like one that a limit holds.

use super::lane::Lane;
use super::options::{Delivery, Fate};
use super::{Owner, ordering_key};
use crate::drain::{Item, Origin};
use crate::flow::{OnFull, StoreKey, StoreUsage, StoreVerdict};
use crate::identity::{DeliveryId, EntryId, LaneId};
use crate::message::Entry;
use crate::outcome::{Fault, FaultCode};
use crate::units::Instant;
use core::time::Duration;
use std::sync::Arc;

/// After so long room is looked for again, whatever happened.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Entries of one slot at most, whatever its owner's configuration was.
const LARGEST_SEGMENT: u64 = 1_000;

/// What stands in the log, and who has to make room.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    usage: StoreUsage,
    /// The key whose oldest has to make room for the message that waits first.
    wanted: Option<StoreKey>,
    /// The entry that makes room, until it is gone.
    trimming: Option<EntryId>,
    /// Whether the message that waits first waits for room.
    waited_for: bool,
}

impl Owner {
    /// What stands in the log, by key.
    #[must_use]
    pub const fn store_usage(&self) -> &StoreUsage {
        &self.bounds.usage
    }

    /// The key of an entry, where the log is bounded by key and the entry's leg is known.
    fn store_key_of(&self, entry: &Entry) -> Option<StoreKey> {
        self.options.store?;
        let leg = self.leg_of(entry);
        (leg < self.options.legs.len()).then(|| (leg, LaneId::hash(ordering_key(entry))))
    }

    /// An entry is on its way into the log, or was found there.
    pub(super) fn store_added(&mut self, entry: &Entry) {
        if let Some(key) = self.store_key_of(entry) {
            self.bounds.usage.add(key, entry.message.weight() as u64);
        }
    }

    /// An entry of the log came to its end, or never got there. Who waits for room is asked again.
    pub(super) fn store_removed(&mut self, entry: &Entry) {
        if let Some(key) = self.store_key_of(entry) {
            self.bounds.usage.remove(key, entry.message.weight() as u64);
            if self.bounds.trimming == Some(entry.id) {
                self.bounds.trimming = None;
            }
            // Whoever waits for this is asked before anything else has to make room.
            if self.bounds.wanted == Some(key) {
                self.bounds.wanted = None;
            }
            if self.bounds.waited_for && !self.is_stopping() {
                self.admission.ask_again();
            }
        }
    }

    /// Nobody waits for room, as far as is known now.
    pub(super) const fn stop_waiting_for_room(&mut self) {
        (self.bounds.wanted, self.bounds.waited_for) = (None, false);
    }

    /// What becomes of an entry that is to be taken in.
    fn store_verdict(&self, entry: &Entry) -> StoreVerdict {
        let (Some(bound), Some(key)) = (&self.options.store, self.store_key_of(entry)) else { return StoreVerdict::Room };
        match self.options.legs.get(key.0).map(|leg| leg.delivery) {
            Some(Delivery::Logged) => {}
            // It goes past the log while nothing of its key is in there.
            Some(Delivery::Spilled { .. }) if self.bounds.usage.of(key).messages > 0 => {}
            Some(Delivery::Held { .. } | Delivery::Spilled { .. }) | None => return StoreVerdict::Room,
        }
        // How many stand in a slot is known only once it was read.
        let slots: u64 = if self.recovered { 0 } else { self.lanes.iter().map(Lane::slots_to_recover).sum() };
        let unread = slots.saturating_mul(LARGEST_SEGMENT);
        self.bounds.usage.verdict(key, entry.message.weight() as u64, bound, unread)
    }

    /// Whether an entry may be taken in, or is to be rejected.
    pub(super) fn has_room_for(&self, entry: &Entry) -> bool {
        matches!(self.store_verdict(entry), StoreVerdict::Room | StoreVerdict::Reject)
    }

    /// Whether there is room for every entry of a message, but for those that are refused. Where there is not, the oldest is made to go if it may be.
    pub(super) fn makes_room(&mut self, now: Instant, entries: &[Arc<Entry>]) -> bool {
        // One message of several entries of one key needs room for all of them; each is a leg's own, so no two share one.
        let verdicts: Vec<(StoreVerdict, Option<StoreKey>)> =
            entries.iter().map(|entry| (self.store_verdict(entry), self.store_key_of(entry))).collect();
        if verdicts.iter().any(|(verdict, _)| *verdict == StoreVerdict::Wait) {
            self.bounds.waited_for = true;
            return false;
        }
        for (verdict, key) in verdicts {
            if let (StoreVerdict::Trim, Some(key)) = (verdict, key) {
                let before = self.bounds.usage.of(key).messages;
                self.bounds.waited_for = true;
                self.trim(now, key);
                // What is dropped is gone at once.
                return self.bounds.usage.of(key).messages < before && self.makes_room(now, entries);
            }
        }
        true
    }

    /// The oldest of a key that is not being sent goes. What is not in memory goes when it is read, what is being sent when that failed.
    fn trim(&mut self, now: Instant, key: StoreKey) {
        self.bounds.wanted = Some(key);
        if self.bounds.trimming.is_some() {
            return;
        }
        let hash = key.1;
        let is_its = |item: &Item| {
            item.leg == key.0
                && matches!(item.origin, Origin::Log(_) | Origin::Spilled(_))
                && LaneId::hash(ordering_key(&item.entry)) == hash
        };
        if let Some(item) = self.drain.take_oldest(key.0, is_its) {
            self.bounds.trimming = Some(item.entry.id);
            self.doom(now, item, trimmed());
        }
    }

    /// Why an entry of the log is not sent (again), where it has to make room.
    pub(super) fn has_to_make_room(&mut self, origin: Origin, entry: &Entry) -> Option<Fault> {
        let wanted = self.bounds.wanted.filter(|_| self.bounds.trimming.is_none() && origin.delivery().is_none())?;
        (self.store_key_of(entry) == Some(wanted)).then(|| {
            self.bounds.trimming = Some(entry.id);
            trimmed()
        })
    }

    /// Whether an entry that is taken in becomes a dead letter instead, because its key is full.
    pub(super) fn rejects(&self, entry: &Entry) -> bool {
        self.options.store.is_some() && self.store_verdict(entry) == StoreVerdict::Reject
    }

    /// Dead-letters an entry that no log has: its source holds it until the letter stands.
    pub(super) fn reject(&mut self, now: Instant, delivery: DeliveryId, entry: Arc<Entry>) {
        let leg = self.leg_of(&entry);
        self.reserved.remove(&entry.id);
        let mut item = Item {
            origin: Origin::Held(delivery),
            turn: 0,
            entry,
            leg,
            size: 0,
            attempts: 0,
            first_attempt: None,
            ready_at: now,
            not_before: None,
            key: None,
            inherited: false,
            round: None,
        };
        self.drain.admit(&mut item);
        self.doom(now, item, Fault::new(FaultCode::StoreFull, "as much of its key as flow.store allows waits in the outbox"));
    }

    /// What becomes of an entry that made room.
    pub(super) fn fate_of_trimmed(&self) -> Fate {
        match self.options.store.map(|bound| bound.on_full) {
            Some(OnFull::DropOldest) => Fate::Drop,
            Some(OnFull::Hold | OnFull::DeadLetterOldest | OnFull::RejectNewest) | None => Fate::DeadLetter,
        }
    }
}

fn trimmed() -> Fault {
    Fault::new(FaultCode::Trimmed, "the oldest of its key, of which as much as flow.store allows waits in the outbox")
}
