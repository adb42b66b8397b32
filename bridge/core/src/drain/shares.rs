//! What each keeper of entries has in memory.

use super::{Item, Origin};

/// What one lane of the log, or the source, has in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub count: usize,
    pub weight: usize,
    pub in_flight: usize,
}

/// What each keeper of entries has in memory.
#[derive(Debug, Default)]
pub(super) struct Shares {
    pub lanes: Vec<Share>,
    pub held: Share,
    pub spilled: Share,
}

impl Shares {
    pub fn of(&mut self, origin: Origin) -> &mut Share {
        let index = match origin {
            Origin::Held(_) => return &mut self.held,
            Origin::Spilled(_) => return &mut self.spilled,
            Origin::Log(place) => place.lane.index(),
        };
        if self.lanes.len() <= index {
            self.lanes.resize(index + 1, Share::default());
        }
        &mut self.lanes[index]
    }

    /// Says anew what keeps an item.
    pub fn rebind(&mut self, item: &mut Item, origin: Origin, in_flight: bool) {
        let (weight, flying) = (item.entry.message.weight(), usize::from(in_flight));
        let before = self.of(item.origin);
        before.count -= 1;
        before.weight -= weight;
        before.in_flight -= flying;
        let after = self.of(origin);
        after.count += 1;
        after.weight += weight;
        after.in_flight += flying;
        item.origin = origin;
    }
}
