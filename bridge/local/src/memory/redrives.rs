//! Redrives in memory: both stores change under their locks at once.

use super::{MemoryDeadLetters, MemoryOutbox, locked};
use async_trait::async_trait;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::outcome::Outcome;
use causeway_core::units::UnixMillis;
use causeway_ports::{Mail, MailboxName, PutBack, Redrives};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Redrives between two stores in memory. Tombstones stay as long as the process.
#[derive(Debug)]
pub struct MemoryRedrives {
    letters: Arc<MemoryDeadLetters>,
    outbox: Arc<MemoryOutbox>,
}

impl MemoryRedrives {
    /// From `letters` to the mailboxes of `outbox`.
    #[must_use]
    pub const fn new(letters: Arc<MemoryDeadLetters>, outbox: Arc<MemoryOutbox>) -> Self {
        Self { letters, outbox }
    }

    /// `post` runs under the lock, where the letter becomes a tombstone.
    fn bury(&self, letter: &DeadLetter, request: &str, at: UnixMillis, post: impl FnOnce()) -> Outcome<PutBack> {
        let mut state = locked(&self.letters.state);
        match state.get_mut(letter.id) {
            Some(standing) if standing.is_as_seen(letter) => {
                *standing = standing.tombstone(request, at);
                post();
                Outcome::Done(PutBack::Done)
            }
            Some(standing) if standing.is_tombstone_of(letter, request) => Outcome::Done(PutBack::Done),
            _ => Outcome::Done(PutBack::Conflict),
        }
    }
}

#[async_trait]
impl Redrives for MemoryRedrives {
    async fn put_back(&self, letter: &DeadLetter, mailbox: &MailboxName, mail: &Mail, request: &str) -> Outcome<PutBack> {
        if let Err(fault) = mail.pack() {
            return Outcome::NotDone(fault);
        }
        self.bury(letter, request, mail.posted_at, || {
            locked(&self.outbox.state).post(mailbox, mail);
        })
    }

    async fn mark_redriven(&self, letter: &DeadLetter, request: &str) -> Outcome<PutBack> {
        self.bury(letter, request, wall(), || {})
    }

    async fn set_aside(&self, letter: &DeadLetter) -> Outcome<PutBack> {
        let mut state = locked(&self.letters.state);
        match state.get_mut(letter.id) {
            Some(standing) if standing.is_as_seen(letter) => {
                standing.state = DeadLetterState::Parked;
                Outcome::Done(PutBack::Done)
            }
            Some(standing) if standing.is_set_aside(letter) => Outcome::Done(PutBack::Done),
            _ => Outcome::Done(PutBack::Conflict),
        }
    }
}

/// The wall clock, for the moment that a tombstone tells.
pub(crate) fn wall() -> UnixMillis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_ports::conformance::redrives::Stores;

    async fn fresh() -> (Stores, ()) {
        let (letters, outbox) = (Arc::new(MemoryDeadLetters::new()), Arc::new(MemoryOutbox::new()));
        let redrives = Arc::new(MemoryRedrives::new(Arc::clone(&letters), Arc::clone(&outbox)));
        (Stores { letters, redrives, outbox }, ())
    }
    causeway_ports::redrives_conformance!(fresh);
}
