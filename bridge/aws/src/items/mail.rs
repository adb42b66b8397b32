//! A piece of mail. Key: `MAIL#<bridge>#<session>` / the mail's id. What does not fit into one item stands in parts: `PARTS#MAIL#<bridge>#<session>` / the
//! mail's id, `#`, and the part's number from `000001`.
//!
//! The parts come and go with the mail's own row, in one transaction: nobody reads a part that no row counts.

use super::{Item, ItemError, KIND, MAX_ITEM_BYTES, SK, b, binary, item_size, key, n, number, number_if_any, s, text};
use bytes::Bytes;
use causeway_core::mailbox::{Mail, MailboxName};
use causeway_core::rows::PackError;
use causeway_core::units::UnixMillis;

/// The kind in the row.
const MAIL: &str = "mail";
const CODEC: &str = "codec";
const BODY: &str = "body";
const POSTED_AT: &str = "at";

/// How many parts the body stands in, where it is not in the row.
const PARTS: &str = "parts";
/// Bytes in one part: with its key far below what an item may hold.
const PART_BYTES: usize = 350 * 1024;

/// Mail as items.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// The mail's own row.
    pub first: Item,
    /// What did not fit into it.
    pub parts: Vec<Item>,
}

impl Encoded {
    /// What all of it takes, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        core::iter::once(&self.first).chain(&self.parts).map(item_size).sum()
    }
}

/// The items of `mail`, whose entry is packed in `body`.
#[must_use]
pub fn encode(mailbox: &MailboxName, mail: &Mail, body: &Bytes) -> Encoded {
    let mut first = key(mailbox.as_str(), mail.id.as_str());
    first.extend([(KIND.to_owned(), s(MAIL)), (CODEC.to_owned(), n(Mail::CODEC)), (POSTED_AT.to_owned(), n(mail.posted_at.0))]);
    if item_size(&first) + BODY.len() + body.len() <= MAX_ITEM_BYTES {
        first.insert(BODY.to_owned(), b(body.to_vec()));
        return Encoded { first, parts: Vec::new() };
    }
    let parts: Vec<Item> = (1..)
        .zip(body.chunks(PART_BYTES))
        .map(|(number, piece)| {
            let mut part = part_key(mailbox, &mail.id, number);
            part.insert(BODY.to_owned(), b(piece));
            part
        })
        .collect();
    first.insert(PARTS.to_owned(), n(parts.len()));
    Encoded { first, parts }
}

/// The key of part `number`, counted from 1, of the mail `id`.
#[must_use]
pub fn part_key(mailbox: &MailboxName, id: &str, number: usize) -> Item {
    key(format!("PARTS#{mailbox}"), format!("{id}#{number:06}"))
}

/// How many parts a piece of mail has beside its row.
///
/// # Errors
/// [`ItemError`] where the count cannot be read.
pub fn part_count(first: &Item) -> Result<usize, ItemError> {
    Ok(number_if_any(first, PARTS)?.unwrap_or(0))
}

/// Reads it back, from its row and its parts in their order.
///
/// # Errors
/// [`ItemError`] where the item is not mail, or not of a kind that this release knows.
pub fn decode(first: &Item, parts: &[Item]) -> Result<Mail, ItemError> {
    if text(first, KIND)? != MAIL {
        return Err(ItemError::UnknownKind(text(first, KIND)?.to_owned()));
    }
    let mut outside = Vec::new();
    for part in parts {
        outside.extend_from_slice(binary(part, BODY)?);
    }
    let body = if parts.is_empty() { binary(first, BODY)? } else { &outside };
    let posted_at = UnixMillis(number(first, POSTED_AT)?);
    Mail::unpack(text(first, SK)?, posted_at, number(first, CODEC)?, body).map_err(|error| match error {
        PackError::UnknownCodec { codec } => ItemError::UnknownKind(format!("mail of codec {codec}")),
        PackError::Encode | PackError::Damaged => ItemError::Unreadable(BODY),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use causeway_core::identity::Id128;
    use causeway_core::message::{Entry, Message, Redrive};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn mail() -> impl Strategy<Value = Mail> {
        let entry = (any::<u128>(), ".{0,20}", any::<u64>(), any::<Option<u64>>(), any::<Vec<u8>>(), any::<Option<(u32, String)>>());
        (".{1,40}", any::<u64>(), entry).prop_map(|(id, posted_at, (entry_id, text, received, expires, payload, redrive))| Mail {
            id,
            posted_at: UnixMillis(posted_at),
            entry: Arc::new(Entry {
                id: Id128(entry_id),
                route: text.as_str().into(),
                binding: "b".into(),
                address: None,
                refusal: None,
                source: text.as_str().into(),
                received_at: UnixMillis(received),
                expires_at: expires.map(UnixMillis),
                message: Message { topic: text, payload: payload.into(), ..Message::default() },
                redrive: redrive.map(|(attempt, causation)| Redrive { attempt, causation }),
            }),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(mail in mail()) {
            let mailbox = MailboxName::new("bridge", "session").unwrap();
            let Encoded { first, parts } = encode(&mailbox, &mail, &mail.pack().unwrap());
            prop_assert!(parts.is_empty());
            prop_assert_eq!(decode(&first, &parts).unwrap(), mail);
        }

        #[test]
        fn large_mail_stands_in_parts_that_fit(mail in mail(), length in 350_000_usize..1_500_000) {
            let mut state = 1_u64;
            let mut noise = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                u8::try_from(state >> 56).unwrap()
            };
            let mut entry = Entry::clone(&mail.entry);
            entry.message.payload = (0..length).map(|_| noise()).collect();
            let mail = Mail { entry: Arc::new(entry), ..mail };
            let mailbox = MailboxName::new("bridge", "session").unwrap();
            let encoded = encode(&mailbox, &mail, &mail.pack().unwrap());
            prop_assert!(core::iter::once(&encoded.first).chain(&encoded.parts).all(|item| item_size(item) <= MAX_ITEM_BYTES));
            prop_assert_eq!(part_count(&encoded.first).unwrap(), encoded.parts.len());
            prop_assert_eq!(encoded.parts.is_empty(), encoded.first.contains_key(BODY));
            prop_assert!(!encoded.parts.is_empty() || length < MAX_ITEM_BYTES);
            prop_assert_eq!(decode(&encoded.first, &encoded.parts).unwrap(), mail);
        }

        #[test]
        fn a_flipped_bit_is_found(mail in mail(), at: prop::sample::Index, bit in 0..8_u8) {
            let mut body = mail.pack().unwrap().to_vec();
            let at = at.index(body.len());
            body[at] ^= 1 << bit;
            let item = encode(&MailboxName::new("b", "s").unwrap(), &mail, &body.into()).first;
            // A bit that carries nothing, such as a reserved one of the frame, may be flipped without harm.
            prop_assert!(decode(&item, &[]).is_err() || decode(&item, &[]).unwrap() == mail);
        }
    }

    #[test]
    fn a_newer_releases_mail_is_named() {
        let mail = Mail {
            id: "m".to_owned(),
            posted_at: UnixMillis(1),
            entry: Arc::new(Entry {
                id: Id128(1),
                route: "r".into(),
                binding: "b".into(),
                address: None,
                refusal: None,
                source: "s".into(),
                received_at: UnixMillis(1),
                expires_at: None,
                message: Message::default(),
                redrive: None,
            }),
        };
        let mut item = encode(&MailboxName::new("b", "s").unwrap(), &mail, &mail.pack().unwrap()).first;
        item.insert(CODEC.to_owned(), n(9));
        assert_eq!(decode(&item, &[]), Err(ItemError::UnknownKind("mail of codec 9".to_owned())));
        item.insert(KIND.to_owned(), s("parcel"));
        assert_eq!(decode(&item, &[]), Err(ItemError::UnknownKind("parcel".to_owned())));
    }
}
