//! Messages of `spill_outbox`: held by their source while the destination keeps up, and in the log as well when it does not.

use super::options::Delivery;
use super::{Owner, ordering_key};
use crate::drain::{Item, OrderKey, Origin};
use crate::identity::{DeliveryId, LaneId, Place};
use crate::log::writer::Pending;
use crate::message::Entry;
use crate::spill::{LegKey, Met};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;
use std::sync::Arc;

impl Owner {
    /// The key of an entry among those of its leg, where that spills: what the destination keeps in order, else the ordering key.
    pub(super) fn spill_key_of(&self, entry: &Entry) -> Option<LegKey> {
        let leg = self.leg_of(entry);
        let options = self.options.legs.get(leg)?;
        let Delivery::Spilled { .. } = options.delivery else { return None };
        Some((leg, (options.key_of)(entry).unwrap_or_else(|| OrderKey(LaneId::hash(ordering_key(entry))))))
    }

    /// Whether all that is in the log is in memory too, so that it is known which keys have anything there.
    fn is_caught_up(&self) -> bool {
        self.recovered && self.lanes.iter().all(|lane| lane.settled.loaded() >= lane.writer.tail())
    }

    /// Holds a message where nothing of its key is in the log; else, or where there is no room, it goes into the log behind those.
    pub(super) fn hold_or_log(&mut self, now: Instant, wall: UnixMillis, delivery: DeliveryId, entry: Arc<Entry>, after: Duration) {
        let Some(key) = self.spill_key_of(&entry) else { return };
        let most = self.options.memory_entries / 2;
        let room = self.drain.held() + self.spill.unmet() < most && self.drain.held_weight() < self.options.memory_bytes / 4;
        if room && self.is_caught_up() && !self.spill.is_logged(key) {
            self.spill.hold(key, delivery, Arc::clone(&entry), now.plus(after));
            self.admit(now, wall, Origin::Held(delivery), entry, 0, false);
        } else {
            self.log_behind_held(now, delivery, entry);
        }
    }

    /// It goes into the log, and what is held of its key before it.
    pub(super) fn log_behind_held(&mut self, now: Instant, delivery: DeliveryId, entry: Arc<Entry>) {
        if let Some(key) = self.spill_key_of(&entry) {
            self.spill_key(now, key, None);
        }
        self.append(now, delivery, entry);
    }

    /// Takes an entry to be made durable.
    pub(super) fn append(&mut self, now: Instant, delivery: DeliveryId, entry: Arc<Entry>) {
        if let Some(key) = self.spill_key_of(&entry) {
            self.spill.logged(key);
        }
        self.store_added(&entry);
        let lane = self.lane_of(&entry);
        if let Some(lane) = self.lanes.get_mut(lane.index()) {
            lane.writer.push(Pending { entry, delivery, since: now });
        }
    }

    /// Spills all that is held of a key. `out` is the item, if any, that the caller took out of the drain.
    fn spill_key(&mut self, now: Instant, key: LegKey, mut out: Option<&mut Item>) {
        for held in self.spill.spill(key) {
            let origin = Origin::Spilled(held.delivery);
            match out.as_deref_mut().filter(|item| item.entry.id == held.entry.id) {
                Some(item) => self.drain.rebind_taken(item, origin),
                None => {
                    self.rebind(&held.entry, origin);
                }
            }
            self.append(now, held.delivery, held.entry);
        }
    }

    /// Says anew what keeps an entry that is on its way; `false` where it is not.
    fn rebind(&mut self, entry: &Entry, origin: Origin) -> bool {
        let doomed = self.doomed.iter_mut().chain(self.doomed_later.values_mut());
        match doomed.map(|doomed| &mut doomed.item).find(|item| item.entry.id == entry.id) {
            Some(item) => {
                self.drain.rebind_taken(item, origin);
                true
            }
            None => self.drain.rebind(entry.id, origin),
        }
    }

    /// A send of a held item failed: what is held of its key spills.
    pub(super) fn spill_failed(&mut self, now: Instant, item: &mut Item) {
        if let Some(key) = self.spill.key_of(item.entry.id) {
            self.spill_key(now, key, Some(item));
        }
    }

    /// An item of a batch that came back: where one before it in the batch failed, all that is held of its key spilled then, this item among them.
    pub(super) fn follow_spilled(&mut self, item: &mut Item) {
        if let (Origin::Held(_), Some(delivery)) = (item.origin, self.spill.spilled(item.entry.id)) {
            self.drain.rebind_taken(item, Origin::Spilled(delivery));
        }
    }

    /// Spills what has been held for too long.
    pub(super) fn spill_overdue(&mut self, now: Instant) {
        while let Some(key) = self.spill.overdue(now) {
            self.spill_key(now, key, None);
        }
    }

    /// The log has an entry of a delivery.
    pub(super) fn delivery_stored(&mut self, entry: &Entry, delivery: DeliveryId) {
        if let Some(key) = self.spill_key_of(entry) {
            self.spill.unlogged(key);
        }
        if self.spill.stored(entry.id) {
            self.deliveries.entry_done(delivery);
        }
    }

    /// An entry is met in the log. Whether nothing more is to be done, because it spilled and is on its way, or has come to its end.
    pub(super) fn meet(&mut self, place: Place, entry: &Entry) -> bool {
        let met = self.spill.meet(entry.id);
        if met == Met::Ended {
            if let Some(lane) = self.lanes.get_mut(place.lane.index()) {
                lane.settled.settle(place.position);
            }
            return true;
        }
        if let Some(key) = self.spill_key_of(entry) {
            self.spill.logged(key);
        }
        met == Met::UnderWay && self.rebind(entry, Origin::Log(place))
    }

    /// Entries that were given up before they were written, without those that were held before: they are held by their connection alone again.
    pub(super) fn unspill(&mut self, entries: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
        let mut left = Vec::new();
        for entry in entries {
            if let Some(key) = self.spill_key_of(&entry) {
                self.spill.unlogged(key);
            }
            match self.spill.unspill(entry.id) {
                None => {
                    self.store_removed(&entry);
                    left.push(entry);
                }
                // It has come to its end, and was taken off then.
                Some(None) => {}
                Some(Some(delivery)) => {
                    self.store_removed(&entry);
                    self.rebind(&entry, Origin::Held(delivery));
                }
            }
        }
        left
    }
}
