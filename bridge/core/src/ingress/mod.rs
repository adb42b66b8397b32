//! Messages that are posted over HTTP: what they say, what a repeat is, and who takes them.
//!
//! A post is answered with "accepted" only once the message is durable: it stands in the mailbox of its route's log. Everybody can post there, so that
//! a wrong idea of who the owner is never loses anything; it costs the time until the owner looks. The rest decides that the owner itself takes what it
//! can, because it moves mail at once, and because it knows the repeats.

mod envelope;
mod forward;
mod locate;
mod recent;

pub use envelope::{Envelope, EnvelopeError, MAX_ID_BYTES};
pub use forward::{Answer, Attempt, Decision, MOST_ATTEMPTS, Next, PATIENCE, Refused, Target, decide};
pub use locate::{BREAKER_FAILURES, BREAKER_PAUSE, Breaker, CACHED_FOR, Locator, Look, Place, Unknown};
pub use recent::{Begun, Posts};

use crate::identity::IdSequence;
use crate::mailbox::Mail;
use crate::message::Entry;
use crate::source_id::ContentDigest;
use crate::units::UnixMillis;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;

/// The entries of a post as mail: each is named after the receiver, the id that the caller gave and what was said, so that posting again leaves one of
/// each. An id that was given to another message before, where nobody remembers it, names another piece: the mailbox would take it for a repeat, and it would
/// be lost.
#[must_use]
pub fn mail_of(receiver: &str, id: &str, content: &ContentDigest, posted_at: UnixMillis, entries: Vec<Entry>) -> Vec<Mail> {
    let mut hash = Sha256::new();
    for part in [receiver.as_bytes(), id.as_bytes(), content] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let named = |(nth, entry): (usize, Entry)| Mail { id: format!("http-{digest}-{nth}"), posted_at, entry: Arc::new(entry) };
    entries.into_iter().enumerate().map(named).collect()
}

/// An id for a message whose caller gave none. Nobody knows it before, so a repeat of such a post is another message.
#[must_use]
pub fn id_of_its_own(ids: &mut IdSequence) -> String {
    ids.take().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::identity::Id128;

    fn entry(id: u128) -> Entry {
        Entry {
            id: Id128(id),
            route: "r".into(),
            binding: "b".into(),
            address: None,
            refusal: None,
            source: "in".into(),
            received_at: UnixMillis(1),
            expires_at: None,
            message: crate::message::Message::default(),
            redrive: None,
        }
    }

    #[test]
    fn a_repeat_has_the_names_of_the_first_and_nothing_else_has() {
        let named = |receiver: &str, id: &str, content, entry_id| -> Vec<String> {
            mail_of(receiver, id, &[content; 32], UnixMillis(5), vec![entry(entry_id), entry(entry_id + 1)])
                .into_iter()
                .map(|mail| mail.id)
                .collect()
        };
        let names = |receiver: &str, id: &str, entry_id| named(receiver, id, 7, entry_id);
        let first = names("in", "order-1", 1);
        assert_eq!(first, names("in", "order-1", 9));
        assert!(named("in", "order-1", 8, 1).iter().all(|name| !first.contains(name)), "another message under the same id");
        assert_ne!(first[0], first[1], "one for each way that the message goes");
        for other in [names("in", "order-2", 1), names("ni", "order-1", 1), names("ino", "rder-1", 1)] {
            assert!(other.iter().all(|name| !first.contains(name)), "{other:?}");
        }
        assert!(first[0].len() < crate::mailbox::MAX_MAIL_ID_BYTES);
    }
}
