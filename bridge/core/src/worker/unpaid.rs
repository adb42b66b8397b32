//! Messages that were parked while the budget of the whole bridge was spent: the log has them, their source was told, and nothing of them is sent before all
//! of it is charged. The first that was parked is charged first, and before anything that came later.

use super::admission::Arrived;
use super::options::Delivery;
use super::{Owner, Stage};
use crate::drain::UNTIL_LET_GO;
use crate::flow::Reason;
use crate::flow::quota::Ticket;
use crate::identity::EntryId;
use crate::message::Entry;
use crate::units::{Instant, UnixMillis};
use std::collections::VecDeque;
use std::sync::Arc;

/// A message in the log that nothing was charged for yet.
#[derive(Debug)]
struct Charge {
    ticket: Ticket,
    cost: u64,
    /// The entries that wait for it, and what each weighs, in bytes.
    entries: Vec<(EntryId, usize)>,
}

/// What was parked and is not charged yet, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Unpaid {
    queue: VecDeque<Charge>,
    /// The entries of all of them.
    entries: usize,
    /// What those weigh, in bytes.
    bytes: usize,
}

impl Unpaid {
    /// The entries that wait, and what they weigh in bytes: wherever they stand, in the log or in memory.
    pub const fn total(&self) -> (usize, usize) {
        (self.entries, self.bytes)
    }

    fn push(&mut self, charge: Charge) {
        self.entries += charge.entries.len();
        self.bytes += charge.entries.iter().map(|(_, weight)| weight).sum::<usize>();
        self.queue.push_back(charge);
    }

    fn pop(&mut self) -> Option<Charge> {
        let charge = self.queue.pop_front()?;
        self.entries -= charge.entries.len();
        self.bytes -= charge.entries.iter().map(|(_, weight)| weight).sum::<usize>();
        Some(charge)
    }

    /// Takes entries out; the tickets of what nothing is left of.
    fn forget(&mut self, gone: &[Arc<Entry>]) -> Vec<Ticket> {
        let mut given_up = Vec::new();
        let (mut entries, mut bytes) = (0, 0);
        self.queue.retain_mut(|charge| {
            charge.entries.retain(|(id, _)| !gone.iter().any(|entry| entry.id == *id));
            entries += charge.entries.len();
            bytes += charge.entries.iter().map(|(_, weight)| weight).sum::<usize>();
            if charge.entries.is_empty() {
                given_up.push(charge.ticket);
            }
            !charge.entries.is_empty()
        });
        (self.entries, self.bytes) = (entries, bytes);
        given_up
    }
}

impl Owner {
    /// Whether the first that waits may go into the log and be charged later: while the log's store takes what is written, where the log may have all of it,
    /// and as long as there is room in memory for what waits.
    pub(super) fn may_park_unpaid(&self) -> bool {
        self.options.has_log()
            && self.lanes.iter().all(|lane| lane.writer.fault().is_none())
            && self.has_room_to_defer()
            && self.admission.first().is_some_and(|arrived| arrived.entries.iter().all(|entry| self.is_logged(entry)))
    }

    /// Whether the log may have an entry.
    pub(super) fn is_logged(&self, entry: &Entry) -> bool {
        let leg = self.options.legs.get(self.leg_of(entry));
        !matches!(leg.map(|leg| leg.delivery), Some(Delivery::Held { .. }))
    }

    /// Takes a message into the log that is charged later, under the ticket under which it waits already.
    pub(super) fn park_unpaid(&mut self, now: Instant, wall: UnixMillis, ticket: Ticket, arrived: Arrived) {
        let entries = arrived.entries.iter().map(|entry| (entry.id, entry.message.weight())).collect();
        self.unpaid.push(Charge { ticket, cost: arrived.cost(), entries });
        self.park_arrived(now, wall, arrived, UNTIL_LET_GO, Reason::QuotaExhausted);
    }

    /// Charges what was parked as far as the budget has it, and lets that go.
    pub(super) fn pay_for_parked(&mut self, now: Instant, wall: UnixMillis) {
        while let (Some(charge), Some(node)) = (self.unpaid.queue.front(), &mut self.admission.quota) {
            if self.stage != Stage::Running || !node.ask(now, wall, charge.ticket, charge.cost) {
                return;
            }
            let Some(charge) = self.unpaid.pop() else { return };
            for (id, _) in charge.entries {
                // What is not in memory yet will not wait once it is.
                if self.reserved.remove(&id).is_none() {
                    self.drain.let_go(now, id);
                }
            }
            // Who waits behind it is asked again.
            self.admission.ask_again();
        }
    }

    /// Entries that were parked came to nothing before the log had them. What nothing is left of is not charged.
    pub(super) fn forget_unpaid(&mut self, gone: &[Arc<Entry>]) {
        let given_up = self.unpaid.forget(gone);
        if let Some(node) = &mut self.admission.quota {
            given_up.into_iter().for_each(|ticket| node.give_up(ticket));
        }
    }

    /// Messages in the log that nothing was charged for yet.
    #[must_use]
    pub fn unpaid(&self) -> usize {
        self.unpaid.queue.len()
    }
}
