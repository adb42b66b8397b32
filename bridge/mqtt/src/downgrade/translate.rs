//! Packets of MQTT 5 as packets of MQTT 3.1.1, and back. Pure.

use std::collections::{HashMap, VecDeque};
use std::io;

/// The property by which a broker of MQTT 5 says that it takes no subscription identifiers.
const NO_SUBSCRIPTION_IDENTIFIERS: [u8; 2] = [0x29, 0];

/// What cannot be translated because it breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// A length of more than four bytes.
    #[error("a packet without a proper length")]
    Length,
    /// A field that ends after its packet.
    #[error("a packet that ends within a field")]
    Short,
    /// A packet that its sender must not send.
    #[error("a packet of type {0}, which MQTT 3.1.1 does not know from there")]
    Type(u8),
    /// A CONNACK that is no MQTT 3.1.1.
    #[error("a CONNACK that is no MQTT 3.1.1")]
    ConnAck,
    /// More than was announced.
    #[error("a packet of {bytes} bytes although at most {max} are taken")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

impl From<Malformed> for io::Error {
    fn from(reason: Malformed) -> Self {
        Self::new(io::ErrorKind::InvalidData, reason)
    }
}

/// Where a packet begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The first byte: type and flags.
    pub(super) first: u8,
    /// How many bytes the fixed header has.
    pub(super) header: usize,
    /// How many bytes the packet has.
    pub(super) total: usize,
}

/// The packet at the beginning of `bytes`, as soon as its fixed header is there.
pub(super) fn frame(bytes: &[u8]) -> Result<Option<Frame>, Malformed> {
    let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
    Ok(varint(rest)?.map(|(length, width)| Frame { first, header: 1 + width, total: 1 + width + length }))
}

/// A variable byte integer and how many bytes it takes. `None` where more bytes have to come.
fn varint(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut value = 0_usize;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(Malformed::Length) }
}

/// Reads fields from the front of a packet's body.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1)?.first().copied().ok_or(Malformed::Short)
    }

    /// A text or binary field, its two bytes of length included.
    fn counted(&mut self) -> Result<&'b [u8], Malformed> {
        let length = match self.0 {
            [high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
            _ => return Err(Malformed::Short),
        };
        self.take(2 + length)
    }

    fn packet_id(&mut self) -> Result<[u8; 2], Malformed> {
        self.take(2)?.try_into().map_err(|_| Malformed::Short)
    }

    /// Properties are read past: MQTT 3.1.1 has none.
    fn skip_properties(&mut self) -> Result<(), Malformed> {
        let (length, width) = varint(self.0)?.ok_or(Malformed::Short)?;
        self.take(width + length).map(|_| ())
    }
}

fn put(out: &mut VecDeque<u8>, first: u8, body: &[&[u8]]) {
    out.push_back(first);
    let mut length: usize = body.iter().map(|part| part.len()).sum();
    loop {
        let low = (length & 0x7f) as u8;
        length >>= 7;
        out.push_back(if length == 0 { low } else { low | 0x80 });
        if length == 0 {
            break;
        }
    }
    for part in body {
        out.extend(*part);
    }
}

/// What one connection has to remember.
#[derive(Debug)]
pub(super) struct Translator {
    clean_session: bool,
    /// How many filters each open UNSUBSCRIBE has: MQTT 3.1.1 answers it as a whole.
    unsubscribing: HashMap<[u8; 2], usize>,
}

impl Translator {
    pub(super) fn new(clean_session: bool) -> Self {
        Self { clean_session, unsubscribing: HashMap::new() }
    }

    /// A packet of the client, for the broker.
    pub(super) fn outgoing(&mut self, first: u8, body: &[u8], out: &mut VecDeque<u8>) -> Result<(), Malformed> {
        let mut fields = Fields(body);
        match first >> 4 {
            1 => self.connect(first, &mut fields, out)?,
            3 => {
                let topic = fields.counted()?;
                let id: &[u8] = if first & 0b110 == 0 { &[] } else { fields.take(2)? };
                fields.skip_properties()?;
                put(out, first, &[topic, id, fields.0]);
            }
            // PUBACK, PUBREC, PUBREL, PUBCOMP: MQTT 3.1.1 knows no reason.
            4..=7 => put(out, first, &[&fields.packet_id()?]),
            8 => {
                let id = fields.packet_id()?;
                fields.skip_properties()?;
                let mut filters = Vec::with_capacity(body.len());
                while !fields.0.is_empty() {
                    filters.extend_from_slice(fields.counted()?);
                    filters.push(fields.byte()? & 0b11);
                }
                put(out, first, &[&id, &filters]);
            }
            10 => {
                let id = fields.packet_id()?;
                fields.skip_properties()?;
                let filters = fields.0;
                let mut count = 0;
                while !fields.0.is_empty() {
                    fields.counted()?;
                    count += 1;
                }
                self.unsubscribing.insert(id, count);
                put(out, first, &[&id, filters]);
            }
            12 => put(out, first, &[]),
            // Why the client leaves, and what is to become of the session, cannot be said.
            14 => put(out, first, &[]),
            other => return Err(Malformed::Type(other)),
        }
        Ok(())
    }

    fn connect(&self, first: u8, fields: &mut Fields<'_>, out: &mut VecDeque<u8>) -> Result<(), Malformed> {
        let name = fields.counted()?;
        let _version = fields.byte()?;
        let flags = fields.byte()? & !0b10 | (u8::from(self.clean_session) << 1);
        let keep_alive = fields.take(2)?;
        fields.skip_properties()?;
        let client_id = fields.counted()?;
        let mut will: [&[u8]; 2] = [&[], &[]];
        if flags & 0b100 != 0 {
            fields.skip_properties()?;
            will = [fields.counted()?, fields.counted()?];
        }
        put(out, first, &[name, &[4, flags], keep_alive, client_id, will[0], will[1], fields.0]);
        Ok(())
    }

    /// A packet of the broker, for the client.
    pub(super) fn incoming(&mut self, first: u8, body: &[u8], out: &mut VecDeque<u8>) -> Result<(), Malformed> {
        let mut fields = Fields(body);
        match first >> 4 {
            2 => {
                let [session_present, code] = *body else { return Err(Malformed::ConnAck) };
                let length = NO_SUBSCRIPTION_IDENTIFIERS.len() as u8;
                put(out, first, &[&[session_present, connect_reason(code)?, length], &NO_SUBSCRIPTION_IDENTIFIERS]);
            }
            3 => {
                let topic = fields.counted()?;
                let id: &[u8] = if first & 0b110 == 0 { &[] } else { fields.take(2)? };
                put(out, first, &[topic, id, &[0], fields.0]);
            }
            4..=7 => put(out, first, &[&fields.packet_id()?]),
            9 => put(out, first, &[&fields.packet_id()?, &[0], fields.0]),
            11 => {
                let id = fields.packet_id()?;
                let count = self.unsubscribing.remove(&id).unwrap_or(1);
                put(out, first, &[&id, &[0], &vec![0; count]]);
            }
            13 => put(out, first, &[]),
            other => return Err(Malformed::Type(other)),
        }
        Ok(())
    }
}

/// A return code of CONNACK as the reason code that means the same.
const fn connect_reason(code: u8) -> Result<u8, Malformed> {
    Ok(match code {
        0 => 0x00,
        1 => 0x84,
        2 => 0x85,
        3 => 0x88,
        4 => 0x86,
        5 => 0x87,
        _ => return Err(Malformed::ConnAck),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use bytes::{Buf, Bytes, BytesMut};
    use proptest::prelude::*;

    fn outgoing(translator: &mut Translator, packet: &[u8]) -> Result<Vec<u8>, Malformed> {
        let head = frame(packet)?.unwrap();
        assert_eq!(head.total, packet.len());
        let mut out = VecDeque::new();
        translator.outgoing(head.first, &packet[head.header..], &mut out)?;
        Ok(out.into())
    }

    fn incoming(translator: &mut Translator, packet: &[u8]) -> Result<Vec<u8>, Malformed> {
        let head = frame(packet)?.unwrap();
        let mut out = VecDeque::new();
        translator.incoming(head.first, &packet[head.header..], &mut out)?;
        Ok(out.into())
    }

    #[test]
    fn a_login_says_what_is_to_become_of_the_session_by_its_one_flag() {
        // Version 5, will with QoS 1, user name and password, clean start; session expiry and a will delay among the properties.
        let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 5, 0b1100_1110, 0, 30, 5, 0x11, 0, 0, 14, 16, 0, 1, b'c'];
        body.extend([5, 0x18, 0, 0, 0, 9, 0, 1, b'w', 0, 2, b'h', b'i', 0, 1, b'u', 0, 1, b'p']);
        let mut packet = vec![0x10, body.len() as u8];
        packet.extend(&body);
        let expected = |flags| {
            let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 4, flags, 0, 30, 0, 1, b'c'];
            body.extend([0, 1, b'w', 0, 2, b'h', b'i', 0, 1, b'u', 0, 1, b'p']);
            let mut packet = vec![0x10, body.len() as u8];
            packet.extend(&body);
            packet
        };
        assert_eq!(outgoing(&mut Translator::new(false), &packet), Ok(expected(0b1100_1100)));
        assert_eq!(outgoing(&mut Translator::new(true), &packet), Ok(expected(0b1100_1110)));
    }

    #[test]
    fn refusals_of_the_login_keep_their_meaning() {
        for (code, reason) in [(0, 0), (1, 0x84), (2, 0x85), (3, 0x88), (4, 0x86), (5, 0x87)] {
            assert_eq!(incoming(&mut Translator::new(true), &[0x20, 2, 1, code]), Ok(vec![0x20, 5, 1, reason, 2, 0x29, 0]));
        }
        assert_eq!(incoming(&mut Translator::new(true), &[0x20, 2, 0, 6]), Err(Malformed::ConnAck));
        assert_eq!(incoming(&mut Translator::new(true), &[0x20, 3, 0, 0, 0]), Err(Malformed::ConnAck), "an answer of MQTT 5");
    }

    #[test]
    fn subscriptions_lose_their_options_and_keep_their_quality() {
        let mut translator = Translator::new(false);
        // A subscription identifier; QoS 1 with no_local, retain as published and retain handling 1.
        let packet = [0x82, 9, 0, 7, 2, 0x0b, 1, 0, 1, b'a', 0b1_1101];
        assert_eq!(outgoing(&mut translator, &packet), Ok(vec![0x82, 6, 0, 7, 0, 1, b'a', 1]));
        assert_eq!(incoming(&mut translator, &[0x90, 3, 0, 7, 0x80]), Ok(vec![0x90, 4, 0, 7, 0, 0x80]));
    }

    #[test]
    fn one_answer_stands_for_all_filters_that_were_given_up() {
        let mut translator = Translator::new(false);
        let packet = [0xa2, 9, 0, 3, 0, 0, 1, b'a', 0, 1, b'b'];
        assert_eq!(outgoing(&mut translator, &packet), Ok(vec![0xa2, 8, 0, 3, 0, 1, b'a', 0, 1, b'b']));
        assert_eq!(incoming(&mut translator, &[0xb0, 2, 0, 3]), Ok(vec![0xb0, 5, 0, 3, 0, 0, 0]));
    }

    #[test]
    fn reasons_are_left_out_and_what_a_side_must_not_send_is_refused() {
        let mut translator = Translator::new(false);
        assert_eq!(outgoing(&mut translator, &[0x40, 4, 0, 9, 0x10, 0]), Ok(vec![0x40, 2, 0, 9]));
        assert_eq!(outgoing(&mut translator, &[0x70, 3, 0, 9, 0x92]), Ok(vec![0x70, 2, 0, 9]));
        assert_eq!(outgoing(&mut translator, &[0xe0, 7, 0, 5, 0x11, 0, 0, 0, 0]), Ok(vec![0xe0, 0]));
        assert_eq!(outgoing(&mut translator, &[0xc0, 0]), Ok(vec![0xc0, 0]));
        assert_eq!(incoming(&mut translator, &[0xd0, 0]), Ok(vec![0xd0, 0]));
        assert_eq!(outgoing(&mut translator, &[0xf0, 0]), Err(Malformed::Type(15)));
        assert_eq!(incoming(&mut translator, &[0xe0, 0]), Err(Malformed::Type(14)));
        assert_eq!(incoming(&mut translator, &[0x32, 3, 0, 9, b'a']), Err(Malformed::Short));
        assert_eq!(frame(&[0x30, 0x80, 0x80, 0x80, 0x80]), Err(Malformed::Length));
    }

    proptest! {
        /// The client's own codec, which was not written for this, reads from the translation exactly what the broker sent.
        #[test]
        fn a_publish_arrives_as_it_was_sent(topic in "[a-z/]{1,40}", payload: Vec<u8>, id in 1_u16.., qos in 0_u8..3, retain: bool, dup: bool) {
            let dup = dup && qos > 0;
            let first = 0x30 | u8::from(dup) << 3 | qos << 1 | u8::from(retain);
            let (length, id_bytes) = (topic.len() as u16, id.to_be_bytes());
            let id_part: &[u8] = if qos == 0 { &[] } else { &id_bytes };
            let mut sent = VecDeque::new();
            put(&mut sent, first, &[&length.to_be_bytes(), topic.as_bytes(), id_part, &payload]);
            let sent: Vec<u8> = sent.into();
            let mut translator = Translator::new(false);
            let translated = incoming(&mut translator, &sent).unwrap();
            let mut bytes = BytesMut::from(&translated[..]);
            let Ok(rumqttc::Incoming::Publish(publish)) = rumqttc::Incoming::read(&mut bytes, None) else { panic!("no PUBLISH") };
            prop_assert!(!bytes.has_remaining());
            prop_assert_eq!(&publish.topic, &Bytes::from(topic));
            prop_assert_eq!(&publish.payload, &Bytes::from(payload));
            prop_assert_eq!((publish.qos as u8, publish.retain, publish.dup), (qos, retain, dup));
            prop_assert_eq!(publish.pkid, if qos == 0 { 0 } else { id });
            // And the same way back.
            prop_assert_eq!(outgoing(&mut translator, &translated).unwrap(), sent);
        }

        /// Whatever comes: an answer or a reason, never more than one packet out of one, never a panic.
        #[test]
        fn nonsense_is_translated_into_one_packet_or_refused(first: u8, body in prop::collection::vec(any::<u8>(), 0..64), from_broker: bool) {
            let mut translator = Translator::new(false);
            let mut out = VecDeque::new();
            let result = if from_broker { translator.incoming(first, &body, &mut out) } else { translator.outgoing(first, &body, &mut out) };
            let out: Vec<u8> = out.into();
            match result {
                Ok(()) => prop_assert_eq!(frame(&out).unwrap().unwrap().total, out.len()),
                Err(_) => prop_assert!(out.is_empty()),
            }
        }
    }
}
