//! Identifiers that cannot be confused with one another.

use core::fmt;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The fencing counter of a log's owner. It only grows; a row written under a lower one than the newest anchor's comes from an owner that was replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The next higher epoch.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A row's place in a log. Slot 0 belongs to the head row; anchors and segments start at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u64);

impl Slot {
    /// The slot of the head row, below every anchor and segment.
    pub const HEAD: Self = Self(0);

    /// The slot after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The sort key under which stores keep the slot: 20 decimal digits, so that text order is slot order.
    #[must_use]
    pub fn sort_key(self) -> String {
        format!("{:020}", self.0)
    }

    /// Reads a sort key back; `None` where it is not one.
    #[must_use]
    pub fn from_sort_key(text: &str) -> Option<Self> {
        if text.len() != 20 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        text.parse().ok().map(Self)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where an entry stands in its log: the slot of its segment and its index there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The segment's slot.
    pub slot: Slot,
    /// The entry's index in the segment, from 0.
    pub index: u32,
}

/// One lane of a partition's log, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

impl LaneId {
    /// The lane as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The lane of an ordering key among `lanes`. The same in every release: what stands in a log is sent in order only if a key keeps its lane.
    ///
    /// FNV-1a over the key's bytes, its halves folded, modulo the number of lanes.
    #[must_use]
    pub fn of(key: &[u8], lanes: u32) -> Self {
        let hash = key.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3));
        let folded = (hash ^ (hash >> 32)) & u64::from(u32::MAX);
        Self(u32::try_from(folded % u64::from(lanes.max(1))).unwrap_or(0))
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where an entry stands in its partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The lane.
    pub lane: LaneId,
    /// The position in the lane's log.
    pub position: Position,
}

/// One connection of a source, counted from 1 within the process. An acknowledgement never crosses to another connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionEpoch(pub u64);

/// One delivery: the `ordinal`-th of its connection, counted from 1. Where a source is acknowledged in the order of arrival, acknowledging one
/// acknowledges every earlier one of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId {
    /// The connection that it came by.
    pub connection: ConnectionEpoch,
    /// Its place in the order of arrival.
    pub ordinal: u64,
}

/// A 128-bit identifier, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Id128(pub u128);

/// The identity of one admitted message: given once, kept in the log, repeated with every send. It is the message id that consumers see.
pub type EntryId = Id128;

impl fmt::Display for Id128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Id128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::str::FromStr for Id128 {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != 32 {
            return Err(IdentityError::NotAnId);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| IdentityError::NotAnId)
    }
}

impl Serialize for Id128 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.to_be_bytes().serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Id128 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
            text.parse().map_err(serde::de::Error::custom)
        } else {
            <[u8; 16]>::deserialize(deserializer).map(|bytes| Self(u128::from_be_bytes(bytes)))
        }
    }
}

/// Yields identifiers from one random base and a counter: unique within a process by counting, between processes by the base's 128 random bits.
#[derive(Clone, Debug)]
pub struct IdSequence {
    next: u128,
}

impl IdSequence {
    /// Starts at `base`, which the caller draws from the operating system's random source.
    #[must_use]
    pub const fn new(base: u128) -> Self {
        Self { next: base }
    }

    /// The next identifier.
    pub const fn take(&mut self) -> Id128 {
        let id = Id128(self.next);
        self.next = self.next.wrapping_add(1);
        id
    }
}

/// The name of one outbox log, and its partition key in every store: `LOG#<bridge>#<partition>#<lane>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogName(String);

impl LogName {
    /// Names the log of `lane` of `partition` (a session id) in bridge `bridge`.
    ///
    /// # Errors
    /// Where a part is empty, or holds `#`, which separates the parts.
    pub fn new(bridge: &str, partition: &str, lane: u32) -> Result<Self, IdentityError> {
        for part in [bridge, partition] {
            if part.is_empty() || part.contains('#') {
                return Err(IdentityError::LogNamePart { part: part.to_owned() });
            }
        }
        Ok(Self(format!("LOG#{bridge}#{partition}#{lane}")))
    }

    /// Reads a partition key back; `None` where it does not name a log.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('#');
        let (tag, bridge, partition, lane) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lane = lane.parse().ok()?;
        (tag == "LOG" && parts.next().is_none()).then(|| Self::new(bridge, partition, lane).ok())?
    }

    /// The name as stores keep it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The bridge that the log belongs to.
    #[must_use]
    pub fn bridge(&self) -> &str {
        self.0.split('#').nth(1).unwrap_or_default()
    }
}

impl LogName {
    /// The partition: a session id, or that of one process, see [`partition_of_process`].
    #[must_use]
    pub fn partition(&self) -> &str {
        self.0.split('#').nth(2).unwrap_or_default()
    }

    /// The lane.
    #[must_use]
    pub fn lane(&self) -> LaneId {
        LaneId(self.0.split('#').nth(3).and_then(|lane| lane.parse().ok()).unwrap_or_default())
    }

    /// The log of another lane of the same partition.
    #[must_use]
    pub fn in_lane(&self, lane: LaneId) -> Self {
        Self(format!("LOG#{}#{}#{lane}", self.bridge(), self.partition()))
    }
}

/// The partition of one process that has a log of its own, because its session is not owned exclusively: `<session>@<nonce>`, the nonce being that
/// of the process's start, as 16 hexadecimal digits.
#[must_use]
pub fn partition_of_process(session: &str, nonce: u64) -> String {
    format!("{session}@{nonce:016x}")
}

/// The session that a partition belongs to, and whether the partition is that of one process.
#[must_use]
pub fn session_of(partition: &str) -> (&str, bool) {
    let is_nonce = |text: &str| text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match partition.rsplit_once('@') {
        Some((session, nonce)) if !session.is_empty() && is_nonce(nonce) => (session, true),
        _ => (partition, false),
    }
}

/// The key of the lease under which a log is written, adopted, and removed: `LEASE#<session>` where the session is owned exclusively,
/// `LEASE#log:<partition>` where each process has a log of its own. All lanes of a partition have one lease.
#[must_use]
pub fn lease_of(log: &LogName) -> String {
    let partition = log.partition();
    if session_of(partition).1 { format!("LEASE#log:{partition}") } else { format!("LEASE#{partition}") }
}

impl fmt::Display for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is not the identifier it was taken for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IdentityError {
    /// Not 32 hexadecimal digits.
    #[error("not an identifier: 32 hexadecimal digits are expected")]
    NotAnId,
    /// A part of a log's name that could not be told apart again.
    #[error("`{part}` cannot name a log: it must not be empty nor contain `#`")]
    LogNamePart {
        /// The refused part.
        part: String,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_key_keeps_its_lane_in_every_release() {
        let lanes: Vec<u32> =
            ["", "t", "plant/1/temperature", "plant/2/temperature", "\u{e4}"].iter().map(|key| LaneId::of(key.as_bytes(), 64).0).collect();
        assert_eq!(lanes, [1, 47, 14, 46, 5]);
        assert!((0..100).all(|nth| LaneId::of(format!("{nth}").as_bytes(), 1) == LaneId(0)));
    }

    #[test]
    fn keys_spread_over_the_lanes() {
        for lanes in [2_u32, 3, 4, 8, 64] {
            let mut counts = vec![0_u32; lanes as usize];
            for nth in 0..lanes * 200 {
                counts[LaneId::of(format!("site/{nth}/state").as_bytes(), lanes).index()] += 1;
            }
            assert!(counts.iter().all(|count| (100..400).contains(count)), "{lanes} lanes: {counts:?}");
        }
    }

    #[test]
    fn a_log_tells_its_parts_and_its_lease() {
        let log = LogName::new("b", "s", 3).unwrap();
        assert_eq!((log.bridge(), log.partition(), log.lane()), ("b", "s", LaneId(3)));
        assert_eq!(log.in_lane(LaneId(0)).as_str(), "LOG#b#s#0");
        assert_eq!(lease_of(&log), "LEASE#s");
        let partition = partition_of_process("s", 0xaf3);
        let own = LogName::new("b", &partition, 1).unwrap();
        assert_eq!(lease_of(&own), "LEASE#log:s@0000000000000af3");
        assert_eq!(lease_of(&own.in_lane(LaneId(0))), lease_of(&own));
        assert_eq!((session_of(&partition), session_of("s"), session_of("s@home")), (("s", true), ("s", false), ("s@home", false)));
    }
}
