//! A piece of mail. Key: `MAIL#<bridge>#<session>` / the mail's id.

use super::{Item, ItemError, KIND, SK, b, binary, key, n, number, s, text};
use bytes::Bytes;
use causeway_core::mailbox::{Mail, MailboxName};
use causeway_core::rows::PackError;
use causeway_core::units::UnixMillis;

/// The kind in the row.
const MAIL: &str = "mail";
const CODEC: &str = "codec";
const BODY: &str = "body";
const POSTED_AT: &str = "at";

/// The item of `mail`, whose entry is packed in `body`.
#[must_use]
pub fn encode(mailbox: &MailboxName, mail: &Mail, body: &Bytes) -> Item {
    let mut item = key(mailbox.as_str(), mail.id.as_str());
    item.extend([
        (KIND.to_owned(), s(MAIL)),
        (CODEC.to_owned(), n(Mail::CODEC)),
        (BODY.to_owned(), b(body.to_vec())),
        (POSTED_AT.to_owned(), n(mail.posted_at.0)),
    ]);
    item
}

/// Reads it back.
///
/// # Errors
/// [`ItemError`] where the item is not mail, or not of a kind that this release knows.
pub fn decode(item: &Item) -> Result<Mail, ItemError> {
    if text(item, KIND)? != MAIL {
        return Err(ItemError::UnknownKind(text(item, KIND)?.to_owned()));
    }
    let posted_at = UnixMillis(number(item, POSTED_AT)?);
    Mail::unpack(text(item, SK)?, posted_at, number(item, CODEC)?, binary(item, BODY)?).map_err(|error| match error {
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
            let item = encode(&mailbox, &mail, &mail.pack().unwrap());
            prop_assert_eq!(decode(&item).unwrap(), mail);
        }

        #[test]
        fn a_flipped_bit_is_found(mail in mail(), at: prop::sample::Index, bit in 0..8_u8) {
            let mut body = mail.pack().unwrap().to_vec();
            let at = at.index(body.len());
            body[at] ^= 1 << bit;
            let item = encode(&MailboxName::new("b", "s").unwrap(), &mail, &body.into());
            // A bit that carries nothing, such as a reserved one of the frame, may be flipped without harm.
            prop_assert!(decode(&item).is_err() || decode(&item).unwrap() == mail);
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
        let mut item = encode(&MailboxName::new("b", "s").unwrap(), &mail, &mail.pack().unwrap());
        item.insert(CODEC.to_owned(), n(9));
        assert_eq!(decode(&item), Err(ItemError::UnknownKind("mail of codec 9".to_owned())));
        item.insert(KIND.to_owned(), s("parcel"));
        assert_eq!(decode(&item), Err(ItemError::UnknownKind("parcel".to_owned())));
    }
}
