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
    /// The entries that wait for it.
    entries: Vec<EntryId>,
}

/// What was parked and is not charged yet, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Unpaid {
    queue: VecDeque<Charge>,
}

impl Owner {
    /// Whether the first that waits may go into the log and be charged later: while the log's store answers, where the log may have all of it, and as long as there is
    /// room in memory for what waits.
    pub(super) fn may_park_unpaid(&self) -> bool {
        self.options.has_log()
            && self.fault.is_none()
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
        let entries = arrived.entries.iter().map(|entry| entry.id).collect();
        self.unpaid.queue.push_back(Charge { ticket, cost: arrived.cost(), entries });
        self.park_arrived(now, wall, arrived, UNTIL_LET_GO, Reason::QuotaExhausted);
    }

    /// Charges what was parked as far as the budget has it, and lets that go.
    pub(super) fn pay_for_parked(&mut self, now: Instant, wall: UnixMillis) {
        while let (Some(charge), Some(node)) = (self.unpaid.queue.front(), &mut self.admission.quota) {
            if self.stage != Stage::Running || !node.ask(now, wall, charge.ticket, charge.cost) {
                return;
            }
            let Some(charge) = self.unpaid.queue.pop_front() else { return };
            for id in charge.entries {
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
        let mut given_up = Vec::new();
        self.unpaid.queue.retain_mut(|charge| {
            charge.entries.retain(|id| !gone.iter().any(|entry| entry.id == *id));
            if charge.entries.is_empty() {
                given_up.push(charge.ticket);
            }
            !charge.entries.is_empty()
        });
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
