//! Letters, logs and a bridge for the tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

use bytes::Bytes;
use causeway_core::dead_letter::{DeadLetter, Destination};
use causeway_core::identity::{Epoch, Id128, LogName, Slot};
use causeway_core::message::{Entry, Message, Properties};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::redrive::{BindingFacts, RouteFacts, Routes};
use causeway_core::rows::{Anchor, CODEC_POSTCARD_ZSTD, Row, Segment, pack};
use causeway_core::units::{Instant, UnixMillis};
use causeway_ports::Clock;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub const BRIDGE: &str = "plant-1";

/// The clocks of this host.
pub struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64)
    }
    fn wall(&self) -> UnixMillis {
        UnixMillis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64)
    }
}

pub fn routes() -> Routes {
    let destination =
        Destination { binding: "b".to_owned(), address: "queue-1".to_owned(), session: "s".to_owned(), ..Destination::default() };
    let route = |sender: &str, outbox| RouteFacts {
        bindings: vec![BindingFacts { destination: destination.clone(), sender: sender.to_owned() }],
        session: "s".to_owned(),
        outbox,
    };
    // Of the broker's sender nobody has a connection.
    let routes = [
        ("r".to_owned(), route("sender", true)),
        ("direct".to_owned(), route("sender", false)),
        ("to-broker".to_owned(), route("broker", true)),
        ("direct-to-broker".to_owned(), route("broker", false)),
    ];
    Routes::with(BRIDGE, routes.into(), vec!["s".to_owned()]).unwrap()
}

pub fn log(session: &str) -> LogName {
    LogName::new(BRIDGE, session, 0).unwrap()
}

pub fn entry(id: u128, route: &str, expires_at: Option<UnixMillis>) -> Arc<Entry> {
    let properties = Properties { user: vec![("group".to_owned(), format!("g{}", id % 2 + 1))], ..Properties::default() };
    let message = Message { topic: "t".to_owned(), payload: Bytes::from(format!("payload {id}")), qos: 1, retain: false, properties };
    Arc::new(Entry {
        id: Id128(id),
        route: route.into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "in".into(),
        received_at: UnixMillis(1_000 + id as u64),
        expires_at,
        redrive: None,
        message,
    })
}

pub fn letter(id: u128, route: &str) -> DeadLetter {
    let destination =
        Destination { binding: "b".to_owned(), address: "queue-1".to_owned(), session: "s".to_owned(), ..Destination::default() };
    DeadLetter::new(&entry(id, route, None), &destination, &Fault::new(FaultCode::InvalidPayload, "no"), 1, UnixMillis(5_000 + id as u64))
}

pub fn segment(entries: &[Arc<Entry>], id: u128) -> Row {
    Row::Segment(Segment {
        epoch: Epoch(1),
        segment_id: Id128(id),
        count: entries.len() as u32,
        codec: CODEC_POSTCARD_ZSTD,
        body: pack(entries).unwrap(),
        created_at: UnixMillis(1),
        earliest_expiry: None,
        drained: Slot(0),
    })
}

pub fn anchor(epoch: u64, opened_at: UnixMillis, drained: u64, retired: bool) -> Row {
    Row::Anchor(Anchor {
        epoch: Epoch(epoch),
        anchor_id: Id128(u128::from(epoch) << 64),
        owner: "w#1".into(),
        opened_at,
        drained: Slot(drained),
        retired,
    })
}
