//! What was seen while states were explored. It is no part of a state: two that differ in nothing else are one.

use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    TakenByExpiry,
    TakenByTestimony,
    TakenAfterRelease,
    OwnRenewalRecognised,
    OwnClaimRecognised,
    LateRequestApplied,
    SteppedDown,
    PutRefused,
    Fenced,
    Raised,
    DeliveredByASuccessor,
    EverythingArrived,
}

#[derive(Debug, Default)]
pub struct Seen(AtomicU32);

impl Seen {
    pub fn note(&self, sight: Sight) {
        self.0.fetch_or(1 << sight as u32, Ordering::Relaxed);
    }

    pub fn has(&self, sight: Sight) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << sight as u32) != 0
    }
}
