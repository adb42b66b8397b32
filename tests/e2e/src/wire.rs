//! What really goes over the wire between workers and their broker: a tap that lets every byte through, reads the packets, and can cut the wire.
//!
//! It is a witness of its own: what a worker says of itself plays no part in it.

use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Something that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// A worker logs in.
    Connect {
        /// With this client identifier.
        client_id: String,
    },
    /// The broker hands a message to a worker that has to be acknowledged.
    Delivery {
        /// Its packet identifier.
        id: u16,
        /// Whether the broker marks it as one that it sent before.
        again: bool,
        /// Its payload.
        payload: Vec<u8>,
    },
    /// A worker acknowledges a message.
    Acknowledgement {
        /// Its packet identifier.
        id: u16,
    },
    /// The connection is over.
    End,
}

/// When something was seen, and on which connection: they are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// On which connection.
    pub connection: u64,
    /// What.
    pub sight: Sight,
}

#[derive(Debug)]
struct Shared {
    broker: u16,
    seen: Mutex<Vec<Seen>>,
    cuts: watch::Sender<u64>,
}

/// A tap. It ends, with all connections, when dropped.
#[derive(Debug)]
pub struct Tap {
    shared: Arc<Shared>,
    port: u16,
    accept: JoinHandle<()>,
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

impl Tap {
    /// Starts one on a free port before the broker at this one.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(broker: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the tap finds no port")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { broker, seen: Mutex::default(), cuts: watch::Sender::new(0) });
        let accept = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { shared, port, accept })
    }

    /// Its address, to be used in place of the broker's.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// Everything that was seen, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen().clone()
    }

    /// How many acknowledgements were seen.
    #[must_use]
    pub fn acknowledgements(&self) -> usize {
        self.shared.seen().iter().filter(|seen| matches!(seen.sight, Sight::Acknowledgement { .. })).count()
    }

    /// How many messages were handed over that have to be acknowledged.
    #[must_use]
    pub fn deliveries(&self) -> usize {
        self.shared.seen().iter().filter(|seen| matches!(seen.sight, Sight::Delivery { .. })).count()
    }

    /// How many messages were handed over and not acknowledged at a time, at most, on any connection.
    #[must_use]
    pub fn most_unacknowledged(&self) -> usize {
        let (mut most, mut owed) = (0, BTreeMap::<u64, BTreeSet<u16>>::new());
        for seen in self.shared.seen().iter() {
            let owed = owed.entry(seen.connection).or_default();
            match &seen.sight {
                Sight::Delivery { id, .. } => {
                    owed.insert(*id);
                    most = most.max(owed.len());
                }
                Sight::Acknowledgement { id } => {
                    owed.remove(id);
                }
                Sight::Connect { .. } | Sight::End => {}
            }
        }
        most
    }

    /// How often a client with this identifier logged in, and how many such connections there were at a time at most.
    #[must_use]
    pub fn logins(&self, client_id: &str) -> (usize, usize) {
        let (mut logins, mut most, mut open) = (0, 0, Vec::new());
        for seen in self.shared.seen().iter() {
            match &seen.sight {
                Sight::Connect { client_id: told } if told == client_id => {
                    logins += 1;
                    open.push(seen.connection);
                    most = most.max(open.len());
                }
                Sight::End => open.retain(|connection| *connection != seen.connection),
                _ => {}
            }
        }
        (logins, most)
    }

    /// Cuts every connection that there is now.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, connection: u64, sight: Sight) {
        self.seen().push(Seen { at: Instant::now(), connection, sight });
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // The connections belong to this task: they end with it.
    let mut connections = JoinSet::new();
    let mut count = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                count += 1;
                connections.spawn(pass(stream, count, Arc::clone(&shared)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn pass(worker: TcpStream, connection: u64, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let Ok(broker) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.broker)).await else { return };
    let _ = (worker.set_nodelay(true), broker.set_nodelay(true));
    let ((from_worker, to_worker), (from_broker, to_broker)) = (worker.into_split(), broker.into_split());
    // Whichever way ends, both do: nothing is half open.
    tokio::select! {
        () = pump(from_worker, to_broker, |packet| note_of_worker(&shared, connection, packet)) => {}
        () = pump(from_broker, to_worker, |packet| note_of_broker(&shared, connection, packet)) => {}
        _ = cuts.changed() => {}
    }
    shared.note(connection, Sight::End);
}

/// Lets bytes through; what is in them is noted before they go on.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut note: impl FnMut(Packet<'_>)) {
    let (mut buffer, mut unread) = (vec![0; 65_536], Vec::new());
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        unread.extend_from_slice(&buffer[..count]);
        while let Some((packet, length)) = Packet::first_of(&unread) {
            note(packet);
            unread.drain(..length);
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn note_of_worker(shared: &Shared, connection: u64, packet: Packet<'_>) {
    let sight = match packet.first >> 4 {
        1 => packet.client_id().map(|client_id| Sight::Connect { client_id }),
        4 => Reader(packet.body).number().map(|id| Sight::Acknowledgement { id }),
        _ => None,
    };
    if let Some(sight) = sight {
        shared.note(connection, sight);
    }
}

fn note_of_broker(shared: &Shared, connection: u64, packet: Packet<'_>) {
    if let Some(sight) = (packet.first >> 4 == 3).then(|| packet.delivery()).flatten() {
        shared.note(connection, sight);
    }
}

/// A packet of MQTT 5.
#[derive(Clone, Copy, Debug)]
struct Packet<'b> {
    first: u8,
    body: &'b [u8],
}

impl<'b> Packet<'b> {
    /// The first packet in `bytes`, once it is there as a whole, and its length.
    fn first_of(bytes: &'b [u8]) -> Option<(Self, usize)> {
        let (first, rest) = bytes.split_first()?;
        let mut reader = Reader(rest);
        let length = reader.varint()?;
        let body = reader.0.get(..length)?;
        Some((Self { first: *first, body }, bytes.len() - reader.0.len() + length))
    }

    fn client_id(&self) -> Option<String> {
        let mut reader = Reader(self.body);
        // Protocol name; version, flags and keep-alive; properties.
        reader.text()?;
        reader.take(4)?;
        let properties = reader.varint()?;
        reader.take(properties)?;
        Some(String::from_utf8_lossy(reader.text()?).into_owned())
    }

    fn delivery(&self) -> Option<Sight> {
        if self.first & 0b110 == 0 {
            return None;
        }
        let mut reader = Reader(self.body);
        reader.text()?;
        let id = reader.number()?;
        let properties = reader.varint()?;
        reader.take(properties)?;
        Some(Sight::Delivery { id, again: self.first & 8 != 0, payload: reader.0.to_vec() })
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn text(&mut self) -> Option<&'b [u8]> {
        let length = self.number()?;
        self.take(usize::from(length))
    }

    fn varint(&mut self) -> Option<usize> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.take(1)?[0];
            value |= usize::from(byte & 127) << shift;
            if byte & 128 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_once_they_are_whole() {
        // Topic `a/b`, packet 7, no properties, payload `hi`; then an acknowledgement of 258.
        let bytes = [0x3a, 10, 0, 3, b'a', b'/', b'b', 0, 7, 0, b'h', b'i', 0x40, 2, 1, 2];
        for short in 0..12 {
            assert!(Packet::first_of(&bytes[..short]).is_none(), "{short}");
        }
        let (publish, length) = Packet::first_of(&bytes).unwrap();
        assert_eq!(publish.delivery(), Some(Sight::Delivery { id: 7, again: true, payload: b"hi".to_vec() }));
        let (acknowledgement, rest) = Packet::first_of(&bytes[length..]).unwrap();
        assert_eq!((acknowledgement.first >> 4, Reader(acknowledgement.body).number(), rest), (4, Some(258), 4));
        let connect = [0x10, 16, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 9, 0, 0, 3, b'a', b'b', b'c'];
        assert_eq!(Packet::first_of(&connect).unwrap().0.client_id().as_deref(), Some("abc"));
    }
}
