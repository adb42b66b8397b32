//! What is sent, what keeps it meanwhile, and within what bounds.

use super::breaker::BreakerOptions;
use super::rounds::{Pacing, RoundId};
use crate::flow::sender::SenderOptions;
use crate::identity::{DeliveryId, Place};
use crate::message::Entry;
use crate::units::Instant;
use core::time::Duration;
use std::sync::Arc;

/// A moment that never comes: what waits for it waits until it is let go ([`Drain::let_go`](super::Drain::let_go)).
pub const UNTIL_LET_GO: Instant = Instant::from_nanos(u64::MAX);

/// An entry on its way to a destination.
#[derive(Clone, Debug)]
pub struct Item {
    /// What keeps it until it is settled.
    pub origin: Origin,
    /// Its turn: given by [`Drain::admit`](super::Drain::admit).
    pub turn: u64,
    /// The entry.
    pub entry: Arc<Entry>,
    /// The index of its leg.
    pub leg: usize,
    /// What it takes of a batch's bytes.
    pub size: usize,
    /// Attempts so far, those of former owners included.
    pub attempts: u32,
    /// When this owner first sent it.
    pub first_attempt: Option<Instant>,
    /// When it became ready.
    pub ready_at: Instant,
    /// A limit admits it then and not before, or once it is let go ([`UNTIL_LET_GO`]); nothing once that moment has come.
    pub not_before: Option<Instant>,
    /// What it must not overtake: the older entries of its leg with the same key. `None`: it keeps no order.
    pub key: Option<OrderKey>,
    /// A former owner left it, or such ones stand before it, and it waits for its first round.
    pub inherited: bool,
    /// The round that it was taken up with, until it is known what became of it.
    pub round: Option<RoundId>,
}

/// What keeps an entry until it is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The log, at this place.
    Log(Place),
    /// The source, which has not been told that this delivery is done with.
    Held(DeliveryId),
    /// The same, and the log has it or is about to; it was not met there yet.
    Spilled(DeliveryId),
}

impl Origin {
    /// The place in the log, where the log keeps it.
    #[must_use]
    pub const fn place(self) -> Option<Place> {
        match self {
            Self::Log(place) => Some(place),
            Self::Held(_) | Self::Spilled(_) => None,
        }
    }

    /// The delivery, where the source alone keeps it.
    #[must_use]
    pub const fn delivery(self) -> Option<DeliveryId> {
        match self {
            Self::Held(delivery) => Some(delivery),
            Self::Log(_) | Self::Spilled(_) => None,
        }
    }
}

/// A hash of what decides the order of entries. Two keys that share one only wait for each other more than they had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderKey(pub u64);

/// Names a batch in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// Names a dead letter in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkId(pub u64);

/// A destination's limits on one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Entries.
    pub entries: usize,
    /// Bytes.
    pub bytes: usize,
    /// Bytes of one entry.
    pub entry_bytes: usize,
}

/// How one leg sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Entries in flight at most.
    pub max_in_flight: usize,
    /// How long a ready entry may wait for company under load.
    pub linger: Duration,
    /// The destination's limits.
    pub limits: BatchLimits,
    /// How it takes up what is to be tried again and what former owners left; `None`: as it comes.
    pub pacing: Option<Pacing>,
    /// When it leaves its destination alone; `None`: never.
    pub breaker: Option<BreakerOptions>,
    /// What bounds it besides, and when it pauses.
    pub sender: SenderOptions,
}

impl Pace {
    /// Batches in flight at most.
    #[must_use]
    pub fn max_sends(&self) -> usize {
        self.pacing.map_or(usize::MAX, |pacing| pacing.max_sends)
    }
}

/// What leaves at once.
#[derive(Debug)]
pub struct Launch {
    /// The batch.
    pub batch: BatchId,
    /// The index of its leg.
    pub leg: usize,
    /// Its entries; empty where all had expired.
    pub entries: Vec<Arc<Entry>>,
    /// How long each entry that is sent for the first time by this owner had been ready.
    pub delays: Vec<Duration>,
    /// What is not sent because it expired; the caller's to settle or park.
    pub expired: Vec<Item>,
}
