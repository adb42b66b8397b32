//! Reads along between broker and workers: what was handed over, and what was acknowledged. It tells a message that the bridge lost from one
//! that the broker lost.

use crate::ledger::payload::{self, Identity};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// MQTT packet types, the upper half of a packet's first byte.
const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;

/// What was seen, over all connections.
#[derive(Clone, Debug, Default)]
pub struct Witness(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    handed_over: HashSet<u64>,
    acknowledged: HashSet<u64>,
    /// By worker.
    acknowledgements: BTreeMap<String, u64>,
    connections: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Witness {
    /// Forgets what it saw: the numbers of the next run mean other messages.
    pub fn forget(&self) {
        let mut record = lock(&self.0);
        record.handed_over.clear();
        record.acknowledged.clear();
    }

    /// Whether a worker acknowledged this message, so that it is the bridge's to lose.
    #[must_use]
    pub fn acknowledged(&self, index: u64) -> bool {
        lock(&self.0).acknowledged.contains(&index)
    }

    /// Whether the broker handed this message to a worker.
    #[must_use]
    pub fn handed_over(&self, index: u64) -> bool {
        lock(&self.0).handed_over.contains(&index)
    }

    /// How many acknowledgements a worker wrote in all.
    #[must_use]
    pub fn acknowledgements(&self, worker: &str) -> u64 {
        lock(&self.0).acknowledgements.get(worker).copied().unwrap_or_default()
    }

    /// How many connections were opened in all.
    #[must_use]
    pub fn connections(&self) -> u64 {
        lock(&self.0).connections
    }

    /// A new connection of a worker.
    pub(super) fn connection(&self, worker: &str) -> Connection {
        lock(&self.0).connections += 1;
        Connection {
            record: Arc::clone(&self.0),
            worker: worker.to_owned(),
            out: Packets::default(),
            back: Packets::default(),
            unacknowledged: HashMap::new(),
        }
    }
}

/// One connection, as it is read along.
#[derive(Debug)]
pub(super) struct Connection {
    record: Arc<Mutex<Record>>,
    worker: String,
    out: Packets,
    back: Packets,
    /// By packet id.
    unacknowledged: HashMap<u16, u64>,
}

impl Connection {
    pub(super) fn read_worker(&mut self, bytes: &[u8]) {
        for (first, body) in self.out.take(bytes) {
            let refused = body.get(2).is_some_and(|reason| *reason >= 0x80);
            if first >> 4 != PUBACK || body.len() < 2 {
                continue;
            }
            let mut record = lock(&self.record);
            *record.acknowledgements.entry(self.worker.clone()).or_default() += 1;
            if let Some(index) = self.unacknowledged.remove(&u16::from_be_bytes([body[0], body[1]])).filter(|_| !refused) {
                record.acknowledged.insert(index);
            }
        }
    }

    pub(super) fn read_broker(&mut self, bytes: &[u8]) {
        for (first, body) in self.back.take(bytes) {
            if first >> 4 == PUBLISH
                && let Some((packet, Identity { index, .. })) = publish(first, &body)
            {
                lock(&self.record).handed_over.insert(index);
                if let Some(packet) = packet {
                    self.unacknowledged.insert(packet, index);
                }
            }
        }
    }
}

/// Packet id, where it has one, and message of an MQTT 5 PUBLISH.
fn publish(first: u8, body: &[u8]) -> Option<(Option<u16>, Identity)> {
    let topic = usize::from(u16::from_be_bytes([*body.first()?, *body.get(1)?]));
    let mut rest = body.get(2 + topic..)?;
    let mut packet = None;
    if first & 0b0110 != 0 {
        packet = Some(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
        rest = rest.get(2..)?;
    }
    let (properties, used) = length(rest)?;
    Some((packet, payload::identify(rest.get(used + properties..)?)?))
}

/// The user name in the MQTT 5 CONNECT that `bytes` begin with. `Some(None)`: there is none, or it is no such packet. `None`: more bytes are
/// needed.
pub(super) fn user_name(bytes: &[u8]) -> Option<Option<String>> {
    let (first, body) = Packets::default().take(bytes).into_iter().next()?;
    Some((first >> 4 == CONNECT).then(|| connect_user_name(&body)).flatten())
}

fn connect_user_name(body: &[u8]) -> Option<String> {
    fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let length = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
        bytes.get(2..)?.split_at_checked(usize::from(length))
    }
    fn skip_properties(bytes: &[u8]) -> Option<&[u8]> {
        let (properties, used) = length(bytes)?;
        bytes.get(used + properties..)
    }
    let (_, rest) = field(body)?;
    let flags = *rest.get(1)?;
    // Version, flags and keep-alive.
    let mut rest = field(skip_properties(rest.get(4..)?)?)?.1;
    if flags & 0x04 != 0 {
        rest = field(field(skip_properties(rest)?)?.1)?.1;
    }
    if flags & 0x80 == 0 {
        return None;
    }
    String::from_utf8(field(rest)?.0.to_vec()).ok()
}

/// A variable byte integer, and how many bytes it takes. `None`: more bytes are needed.
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (position, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            return Some((value, position + 1));
        }
    }
    None
}

/// Cuts a stream of bytes into packets.
#[derive(Debug, Default)]
struct Packets(Vec<u8>);

impl Packets {
    /// The packets, first byte and body, that are complete with these bytes.
    fn take(&mut self, bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        self.0.extend_from_slice(bytes);
        let (mut packets, mut from) = (Vec::new(), 0);
        while let Some((body, used)) = self.0.get(from + 1..).and_then(length) {
            let start = from + 1 + used;
            let Some(packet) = self.0.get(start..start + body) else {
                break;
            };
            packets.push((self.0[from], packet.to_vec()));
            from = start + body;
        }
        self.0.drain(..from);
        packets
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::ledger::payload::Plan;

    fn publish_packet(plan: &Plan, index: u64, packet: u16) -> Vec<u8> {
        let (topic, payload) = (plan.topic(index), plan.payload(index, 1));
        let mut body = u16::try_from(topic.len()).unwrap().to_be_bytes().to_vec();
        body.extend(topic.as_bytes());
        body.extend(packet.to_be_bytes());
        body.extend([2, 0x01, 0x00]); // one property: the payload format
        body.extend(payload);
        let length = body.len();
        let mut bytes = vec![0x32, u8::try_from(length & 0x7f).unwrap() | 0x80, u8::try_from(length >> 7).unwrap()];
        bytes.extend(body);
        bytes
    }

    #[test]
    fn finds_the_user_name_of_a_connect() {
        let mut bytes = vec![0x10, 0x1f];
        bytes.extend(b"\x00\x04MQTT\x05\x80\x00\x1e\x05\x11\x00\x00\x0e\x10\x00\x01c\x00\x08worker-1");
        bytes[1] = u8::try_from(bytes.len() - 2).unwrap();
        assert_eq!(user_name(&bytes), Some(Some("worker-1".to_owned())));
        assert_eq!(user_name(&bytes[..20]), None);
        assert_eq!(user_name(&[0xc0, 0x00]), Some(None));
    }

    #[test]
    fn knows_what_was_handed_over_and_what_was_acknowledged_however_the_bytes_are_cut() {
        let plan = Plan::new(10, 250);
        let witness = Witness::default();
        let mut connection = witness.connection("worker-1");
        let stream = [publish_packet(&plan, 3, 7), publish_packet(&plan, 4, 8), publish_packet(&plan, 5, 9)].concat();
        stream.chunks(11).for_each(|chunk| connection.read_broker(chunk));
        connection.read_worker(&[0xc0, 0x00, 0x40]); // a ping, and the beginning of an acknowledgement
        connection.read_worker(&[0x02, 0x00, 0x08]);
        connection.read_worker(&[0x40, 0x03, 0x00, 0x09, 0x80]); // refused
        for (index, handed_over, acknowledged) in [(3, true, false), (4, true, true), (5, true, false), (6, false, false)] {
            assert_eq!((witness.handed_over(index), witness.acknowledged(index)), (handed_over, acknowledged), "{index}");
        }
        assert_eq!((witness.acknowledgements("worker-1"), witness.acknowledgements("worker-2")), (2, 0));
    }
}
