//! Telemetry that looks like telemetry and can be computed again from its number.

use crate::random::Random;
use std::fmt::Write as _;

/// Everything that the payloads of one run depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Names the run, so that a message of an earlier one is not taken for one of this. Letters, digits and dashes.
    pub run: String,
    /// How many messages there are.
    pub messages: u64,
    /// How many devices take turns in sending them.
    pub devices: u64,
    /// Bytes of a payload. Below the size of the fields, the fields decide.
    pub size: usize,
    /// The time stamp of the first message, in milliseconds since 1970.
    pub started_ms: u64,
    /// Whether noise fills payloads up to their size, which packs to half at best; else the readings of many sensors do.
    pub noise: bool,
}

/// Which message a payload is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number within the run.
    pub index: u64,
    /// The publisher's attempt, counted from 1.
    pub attempt: u32,
}

impl Plan {
    /// A plan for `messages` of `size` bytes, with a name of its own.
    #[must_use]
    pub fn new(messages: u64, size: usize) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let started_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let run = format!("{:x}{:x}", started_ms & 0xffff_ffff, std::process::id());
        Self { run, messages, devices: 50, size, started_ms, noise: true }
    }

    /// The device that sends this message.
    #[must_use]
    pub fn device(&self, index: u64) -> u64 {
        index % self.devices.max(1)
    }

    /// The topic that it goes to.
    #[must_use]
    pub fn topic(&self, index: u64) -> String {
        format!("telemetry/dev-{:04}", self.device(index))
    }

    /// The payload: the same bytes for the same arguments, always.
    #[must_use]
    pub fn payload(&self, index: u64, attempt: u32) -> Vec<u8> {
        let mut random = Random::new(seed(&self.run, index, attempt));
        let sequence = index / self.devices.max(1);
        let milli = |random: &mut Random, from: u64, span: u64| {
            let value = from + random.next() % span;
            format!("{}.{:03}", value / 1000, value % 1000)
        };
        let status = ["ok", "ok", "ok", "ok", "warming_up", "low_battery", "sensor_drift"][(random.next() % 7) as usize];
        let mut text = format!(
            "{{\"id\":\"{}-{index}-{attempt}\",\"device\":\"dev-{:04}\",\"seq\":{sequence},\"ts\":{},\"temperature\":{},\"humidity\":{},\
             \"pressure\":{},\"battery\":{},\"rssi\":-{},\"status\":\"{status}\",\"firmware\":\"2.{}.{}\",\"trace\":\"",
            self.run,
            self.device(index),
            self.started_ms + index,
            milli(&mut random, 15_000, 12_000),
            milli(&mut random, 30_000, 50_000),
            milli(&mut random, 980_000, 60_000),
            milli(&mut random, 2_900, 1_300),
            40 + random.next() % 60,
            random.next() % 4,
            random.next() % 20,
        );
        let mut sensor = 0;
        while text.len() + 2 < self.size {
            let piece = if self.noise {
                format!("{:016x}", random.next())
            } else {
                sensor += 1;
                format!("sensor-{sensor:02}=2{}.{};", random.next() % 10, random.next() % 10)
            };
            let missing = (self.size - 2 - text.len()).min(piece.len());
            // Either is ASCII, so any cut is a character boundary.
            let _ = write!(text, "{}", &piece[..missing]);
        }
        text.push_str("\"}");
        text.into_bytes()
    }
}

/// Reads a payload's name. `None`: it is none of ours.
#[must_use]
pub fn identify(payload: &[u8]) -> Option<Identity> {
    let rest = payload.strip_prefix(b"{\"id\":\"")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let name = std::str::from_utf8(&rest[..end]).ok()?;
    let mut parts = name.rsplitn(3, '-');
    let attempt = parts.next()?.parse().ok()?;
    let index = parts.next()?.parse().ok()?;
    parts.next()?;
    Some(Identity { index, attempt })
}

fn seed(run: &str, index: u64, attempt: u32) -> u64 {
    let run = run.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    run ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(attempt) << 56)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn payloads_are_json_of_the_wanted_size_and_repeatable() {
        let plan = Plan { run: "r-1".into(), messages: 20_000, devices: 50, size: 250, started_ms: 1_790_000_000_000, noise: true };
        for index in [0, 1, 49, 50, 19_999] {
            let payload = plan.payload(index, 1);
            assert_eq!(payload.len(), 250, "{}", String::from_utf8_lossy(&payload));
            assert_eq!(payload, plan.payload(index, 1));
            assert_ne!(payload, plan.payload(index, 2));
            let value: serde_json::Value = serde_json::from_slice(&payload).unwrap();
            assert_eq!(value["seq"], index / 50);
            assert_eq!(identify(&payload), Some(Identity { index, attempt: 1 }));
        }
    }

    #[test]
    fn larger_sizes_are_met_exactly() {
        for size in [251, 266, 267, 1_000, 10_241] {
            assert_eq!(Plan { size, ..Plan::new(1, size) }.payload(0, 1).len(), size);
        }
    }

    #[test]
    fn strangers_are_not_identified() {
        for stranger in [&b""[..], b"{}", b"{\"id\":\"x\"}", b"{\"id\":\"a-b-c\"}", b"{\"id\":\"", b"\xff\xfe"] {
            assert_eq!(identify(stranger), None);
        }
    }
}
