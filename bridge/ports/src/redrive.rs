//! Redrives across two stores that have no transaction in common.

use crate::{DeadLetters, Mail, Mailbox, MailboxName, PutBack, Redrives};
use async_trait::async_trait;
use causeway_core::dead_letter::DeadLetter;
use causeway_core::outcome::Outcome;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Dead letters in one store and mail in another: first the mail is posted, then the letter becomes a tombstone. **At least once**: a process that
/// ends between the two leaves the letter dead with its mail posted, and whoever puts it back again after the mail was moved posts it a second
/// time. One put-back after the other within this process, so that several at once do no such thing.
pub struct TwoStores {
    letters: Arc<dyn DeadLetters>,
    tombstones: Arc<dyn Redrives>,
    mailbox: Arc<dyn Mailbox>,
    one_at_a_time: Mutex<()>,
}

impl core::fmt::Debug for TwoStores {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TwoStores").finish_non_exhaustive()
    }
}

impl TwoStores {
    /// The letters in `letters`, whose tombstones `tombstones` makes, and the mail in `mailbox`.
    #[must_use]
    pub fn new(letters: Arc<dyn DeadLetters>, tombstones: Arc<dyn Redrives>, mailbox: Arc<dyn Mailbox>) -> Self {
        Self { letters, tombstones, mailbox, one_at_a_time: Mutex::new(()) }
    }
}

#[async_trait]
impl Redrives for TwoStores {
    async fn put_back(&self, letter: &DeadLetter, mailbox: &MailboxName, mail: &Mail, request: &str) -> Outcome<PutBack> {
        let _one = self.one_at_a_time.lock().await;
        match self.letters.get(letter.id).await {
            Err(fault) => return Outcome::NotDone(fault),
            Ok(Some(standing)) if standing.is_as_seen(letter) => {}
            Ok(Some(standing)) if standing.is_tombstone_of(letter, request) => return Outcome::Done(PutBack::Done),
            Ok(_) => return Outcome::Done(PutBack::Conflict),
        }
        match self.mailbox.post(mailbox, mail).await {
            Outcome::Done(_) => {}
            Outcome::NotDone(fault) => return Outcome::NotDone(fault),
            Outcome::Unknown(fault) => return Outcome::Unknown(fault),
        }
        match self.tombstones.mark_redriven(letter, request).await {
            // The mail is posted: the redrive as a whole is half done, which nobody may take for not done.
            Outcome::NotDone(fault) => Outcome::Unknown(fault),
            ended => ended,
        }
    }

    async fn mark_redriven(&self, letter: &DeadLetter, request: &str) -> Outcome<PutBack> {
        self.tombstones.mark_redriven(letter, request).await
    }

    async fn set_aside(&self, letter: &DeadLetter) -> Outcome<PutBack> {
        self.tombstones.set_aside(letter).await
    }
}
