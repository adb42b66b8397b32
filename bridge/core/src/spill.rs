//! Which messages of `spill_outbox` go straight to their destination, and which go through the log: what of each ordering key is outstanding, where.
//!
//! A message is held by its source at first. It spills, and all of its key that are held with it, in the order of their arrival, when a send failed or
//! when it has been held for too long: then it goes into the log as well, and the source may forget it once the log has it. On its way to the
//! destination it stays the one item that it was, so it is never sent twice at a time, and keeps its turn. Later messages of a key of which anything
//! is in the log are appended behind it. So of one key there never are entries in the log and newer ones that are only held and may be overtaken.

use crate::drain::OrderKey;
use crate::identity::{ConnectionEpoch, DeliveryId, EntryId};
use crate::message::Entry;
use crate::units::Instant;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What decides the order of entries of one leg.
pub type LegKey = (usize, OrderKey);

/// A message that its source holds and the log does not have.
#[derive(Clone, Debug)]
pub struct Held {
    /// The delivery that it came by.
    pub delivery: DeliveryId,
    /// The message.
    pub entry: Arc<Entry>,
    turn: u64,
    key: LegKey,
    due: Instant,
}

/// A message that was held and is in the log, or on its way there, and has not been met there yet.
#[derive(Clone, Copy, Debug)]
struct Spilled {
    delivery: DeliveryId,
    leg: usize,
    stored: bool,
    ended: bool,
}

/// What is outstanding of one key.
#[derive(Debug, Default)]
struct Outstanding {
    /// Held messages by turn.
    held: BTreeMap<u64, EntryId>,
    /// Entries that wait to be written, or were loaded from the log and are not settled.
    logged: usize,
}

/// What became of an entry of a log that is met there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It never was held.
    New,
    /// It is on its way to its destination: it gets its place in the log now.
    UnderWay,
    /// It has come to its end already.
    Ended,
}

/// The messages of all legs that spill.
#[derive(Debug, Default)]
pub struct Spill {
    held: HashMap<EntryId, Held>,
    due: BTreeSet<(Instant, u64, EntryId)>,
    keys: HashMap<LegKey, Outstanding>,
    spilled: HashMap<EntryId, Spilled>,
    next_turn: u64,
}

impl Spill {
    /// Whether anything of a key is in the log or on its way there.
    #[must_use]
    pub fn is_logged(&self, key: LegKey) -> bool {
        self.keys.get(&key).is_some_and(|outstanding| outstanding.logged > 0)
    }

    /// A message is held; at `due` it is held for too long.
    pub fn hold(&mut self, key: LegKey, delivery: DeliveryId, entry: Arc<Entry>, due: Instant) {
        let (id, turn) = (entry.id, self.next_turn);
        self.next_turn += 1;
        self.due.insert((due, turn, id));
        self.keys.entry(key).or_default().held.insert(turn, id);
        self.held.insert(id, Held { delivery, entry, turn, key, due });
    }

    fn release(&mut self, id: EntryId) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.due.remove(&(held.due, held.turn, id));
        if let Some(outstanding) = self.keys.get_mut(&held.key) {
            outstanding.held.remove(&held.turn);
        }
        self.tidy(held.key);
        Some(held)
    }

    fn tidy(&mut self, key: LegKey) {
        if self.keys.get(&key).is_some_and(|outstanding| outstanding.logged == 0 && outstanding.held.is_empty()) {
            self.keys.remove(&key);
        }
    }

    /// The key of a held message.
    #[must_use]
    pub fn key_of(&self, id: EntryId) -> Option<LegKey> {
        self.held.get(&id).map(|held| held.key)
    }

    /// The key of a message that has been held for too long.
    #[must_use]
    pub fn overdue(&self, now: Instant) -> Option<LegKey> {
        let (due, _, id) = self.due.first()?;
        (now >= *due).then(|| self.key_of(*id)).flatten()
    }

    /// When the next one will have been held for too long.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.due.first().map(|(due, _, _)| *due)
    }

    /// All held messages of a key, in the order of their arrival: they are to be written to the log now.
    pub fn spill(&mut self, key: LegKey) -> Vec<Held> {
        let ids: Vec<EntryId> = self.keys.get(&key).map(|outstanding| outstanding.held.values().copied().collect()).unwrap_or_default();
        let all: Vec<Held> = ids.into_iter().filter_map(|id| self.release(id)).collect();
        for held in &all {
            let spilled = Spilled { delivery: held.delivery, leg: key.0, stored: false, ended: false };
            self.spilled.insert(held.entry.id, spilled);
        }
        all
    }

    /// An entry of the key waits to be written, or was loaded from the log.
    pub fn logged(&mut self, key: LegKey) {
        self.keys.entry(key).or_default().logged += 1;
    }

    /// An entry of the key was written, given up before, or settled.
    pub fn unlogged(&mut self, key: LegKey) {
        if let Some(outstanding) = self.keys.get_mut(&key) {
            outstanding.logged = outstanding.logged.saturating_sub(1);
        }
        self.tidy(key);
    }

    /// The delivery of a message that spilled and was not met in the log yet.
    #[must_use]
    pub fn spilled(&self, id: EntryId) -> Option<DeliveryId> {
        self.spilled.get(&id).map(|spilled| spilled.delivery)
    }

    /// A message that no log has came to its end, or was given up.
    pub fn held_ended(&mut self, id: EntryId) {
        self.release(id);
    }

    /// A spilled message came to its end before it was met in the log. Answers its delivery where the source does not know that it may forget it.
    pub fn spilled_ended(&mut self, id: EntryId) -> Option<DeliveryId> {
        let spilled = self.spilled.get_mut(&id)?;
        spilled.ended = true;
        (!spilled.stored).then_some(spilled.delivery)
    }

    /// The log has an entry. Whether its source is to be told so: not where it came to its end before.
    pub fn stored(&mut self, id: EntryId) -> bool {
        let Some(spilled) = self.spilled.get_mut(&id) else { return true };
        spilled.stored = true;
        !spilled.ended
    }

    /// An entry was met in the log.
    pub fn meet(&mut self, id: EntryId) -> Met {
        match self.spilled.remove(&id) {
            None => Met::New,
            Some(spilled) if spilled.ended => Met::Ended,
            Some(_) => Met::UnderWay,
        }
    }

    /// An entry was given up before it was written. Answers `None` where it never was held; else its delivery, which alone holds it again, unless it has
    /// come to its end.
    pub fn unspill(&mut self, id: EntryId) -> Option<Option<DeliveryId>> {
        self.spilled.remove(&id).map(|spilled| (!spilled.ended).then_some(spilled.delivery))
    }

    /// What a connection held is given up.
    pub fn forget(&mut self, connection: ConnectionEpoch) {
        let gone: Vec<EntryId> = self.held.iter().filter(|(_, held)| held.delivery.connection == connection).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| {
            self.release(id);
        });
    }

    /// Messages of `leg` that are in the log, or on their way there, and were not met there yet.
    #[must_use]
    pub fn unmet_of(&self, leg: usize) -> usize {
        self.spilled.values().filter(|spilled| spilled.leg == leg).count()
    }

    /// The same of all legs.
    #[must_use]
    pub fn unmet(&self) -> usize {
        self.spilled.len()
    }

    /// Those of them that came to their end: the log does not know that yet.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.spilled.values().filter(|spilled| spilled.ended).count()
    }
}
