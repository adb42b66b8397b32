//! The bridge's two duties beside carrying messages: putting dead letters back, and tidying up. What to do is decided in the core; here the
//! ports are called. The functions and the desk both drive a duty through this crate, so that it is done in one way.

pub mod housekeeping;
pub mod redrive;

use causeway_core::outcome::Fault;

/// A store that a duty could not do without. Nothing, or nothing that matters, was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFault {
    /// Which one.
    pub store: Store,
    /// Why.
    pub fault: Fault,
}

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Dead letters.
    DeadLetters,
    /// Logs and mailboxes.
    Outbox,
    /// Leases and members.
    Leases,
    /// A destination.
    Queue,
}

impl Store {
    /// The name in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeadLetters => "dlq",
            Self::Outbox => "outbox",
            Self::Leases => "leases",
            Self::Queue => "queue",
        }
    }
}

impl core::fmt::Display for StoreFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.store.as_str(), self.fault)
    }
}

impl std::error::Error for StoreFault {}
