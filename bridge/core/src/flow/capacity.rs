//! What a configuration can come to need at most, of memory and of its stores: each bound with the arithmetic behind it.
//!
//! They are worst cases: every window full, of messages as large as may be, and every key at its limit. A worker needs less almost all the time. What the program needs
//! besides (its code, tasks, connections, the keys' own text) is in no sum.

use crate::config::Config;
use crate::config::model::{LimitAction, LimitMode, LimitScope};
use crate::flow::Pairs;
use crate::worker::options::MEMORY_BYTES;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What one admission, or one bucket, takes in memory, in bytes.
pub const ADMISSION_BYTES: u64 = 8;
/// Budgets of limits may take this share of a worker's memory, in percent, before it is worth a warning.
const BUDGETS_PERCENT: u64 = 25;

/// What a bound is a bound of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Memory of each process.
    Memory,
    /// The outbox.
    Store,
}

/// What takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Taker {
    /// What a broker may hand over ahead of acknowledgements.
    ReceiveWindow,
    /// Messages of quality of service 0 that wait to be taken in: no window bounds those.
    Loose,
    /// Entries on their way through an owner loop.
    Entries,
    /// Budgets of a limit or of the pace.
    Budgets,
    /// What an MQTT connection was given to send and has not written.
    Unwritten,
    /// Messages that wait in the outbox.
    Waiting,
}

/// One bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// Of what.
    pub resource: Resource,
    /// What takes it.
    pub taker: Taker,
    /// Which part of the configuration says so.
    pub place: String,
    /// How it is computed.
    pub formula: String,
    /// So many bytes at most; `None`: nothing bounds it.
    pub bytes: Option<u64>,
}

/// Bytes of `keys` times `each` things of `size` bytes.
#[must_use]
pub const fn product(keys: u64, each: u64, size: u64) -> u64 {
    keys.saturating_mul(each).saturating_mul(size)
}

/// Every bound that a configuration implies, memory first.
#[must_use]
pub fn bounds(config: &Config) -> Vec<Bound> {
    // The largest payload that may come by each owner loop.
    let mut loops: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let mut all = Vec::new();
    for route in &config.routes {
        let Some(name) = config.carrier_name(route) else { continue };
        let carrier = config.carrier(route);
        let largest = carrier.map(|session| u64::from(session.options.session.max_payload_bytes));
        if loops.insert(name, largest).is_none()
            && let Some(session) = carrier
        {
            let mqtt = session.mqtt();
            let (window, packet) = (u64::from(mqtt.receive_maximum), u64::from(mqtt.max_packet_bytes));
            all.push(Bound {
                resource: Resource::Memory,
                taker: Taker::ReceiveWindow,
                place: format!("sessions ({})", session.id),
                // Not less with max_buffered_bytes: while the broker owes an answer to a subscription it is read all the same, and what no receiver asked for yet is
                // in no account of bytes. The window bounds both.
                formula: format!("receive_maximum {window} x largest packet {packet} B"),
                bytes: Some(product(1, window, packet)),
            });
            let loose = u64::from(config.flow.inbound.qos0_buffer_messages);
            all.push(Bound {
                resource: Resource::Memory,
                taker: Taker::Loose,
                place: format!("sessions ({})", session.id),
                formula: format!("qos0_buffer_messages {loose} x largest packet {packet} B"),
                bytes: Some(product(1, loose, packet)),
            });
        }
    }
    all.extend(loops.keys().map(|name| Bound {
        resource: Resource::Memory,
        taker: Taker::Entries,
        place: name.clone(),
        formula: "entries that an owner loop keeps in memory, and one page or segment more".to_owned(),
        bytes: Some(MEMORY_BYTES as u64),
    }));
    all.extend(budgets(config, loops.len() as u64));
    all.extend(pace(config));
    all.extend(unwritten(config));
    all.extend(waiting(config));
    all.sort_by_key(|bound| (bound.resource, bound.taker));
    all
}

/// Legs: each binding of each route.
fn legs(config: &Config) -> u64 {
    config.routes.iter().map(|route| route.bindings.len() as u64).sum()
}

/// Each owner loop has budgets of its own, and each leg has those of what is parked.
fn budgets(config: &Config, loops: u64) -> Vec<Bound> {
    let limits = config.flow.limits.iter().enumerate().filter(|(_, limit)| limit.enabled);
    let bound = |(index, limit): (usize, &crate::config::model::FlowLimit)| {
        let pairs = Pairs::parse(&limit.pairs).ok()?;
        let parks = limit.action() == LimitAction::Park;
        let (owners, whose) = if parks { (legs(config), "legs") } else { (loops, "owner loops") };
        let keys = match limit.scope {
            LimitScope::Key => u64::from(limit.max_keys),
            LimitScope::Route if parks => 1,
            LimitScope::Route => config.routes.len() as u64,
            LimitScope::Connection => 1,
        };
        let (each, what) = match limit.mode {
            LimitMode::StrictWindow => (u64::from(pairs.largest_count()), "admissions"),
            LimitMode::TokenBucket => (pairs.as_slice().len() as u64, "buckets"),
        };
        Some(Bound {
            resource: Resource::Memory,
            taker: Taker::Budgets,
            place: format!("flow.limits[{index}]"),
            formula: format!("{owners} {whose} x {keys} keys x {each} {what} x {ADMISSION_BYTES} B"),
            bytes: Some(product(owners.saturating_mul(keys), each, ADMISSION_BYTES)),
        })
    };
    limits.filter_map(bound).collect()
}

/// Each leg has a budget of the pace.
fn pace(config: &Config) -> Option<Bound> {
    let (pairs, legs) = (Pairs::parse(&config.flow.outbound.pace).ok()?, legs(config));
    let each = u64::from(pairs.largest_count());
    Some(Bound {
        resource: Resource::Memory,
        taker: Taker::Budgets,
        place: "flow.outbound.pace".to_owned(),
        formula: format!("{legs} legs x {each} admissions x {ADMISSION_BYTES} B"),
        bytes: Some(product(legs, each, ADMISSION_BYTES)),
    })
}

/// Senders of one session share its connection. The message with which the mark is passed stands in it whole.
fn unwritten(config: &Config) -> Vec<Bound> {
    let sessions: BTreeSet<_> = config.senders.iter().filter_map(|sender| Some(sender.mqtt()?.session)).collect();
    let (high, largest) = (config.sender_flow().high_water, config.largest_payload());
    let bound = |session| Bound {
        resource: Resource::Memory,
        taker: Taker::Unwritten,
        place: format!("senders to {session}"),
        formula: format!("high_water_bytes {high} and one message of {largest} B"),
        bytes: Some(high.saturating_add(largest)),
    };
    sessions.into_iter().map(bound).collect()
}

/// What may wait in the outbox, of each route that has one.
fn waiting(config: &Config) -> Vec<Bound> {
    let logged = config.routes.iter().filter(|route| route.delivery_mode.needs_outbox());
    let bound = |route: &crate::config::model::Route| {
        let largest = config.carrier(route).map(|session| u64::from(session.options.session.max_payload_bytes));
        let legs = route.bindings.len() as u64;
        let (formula, bytes) = match (route.policy.max_outbox_depth, largest) {
            (Some(depth), Some(largest)) => {
                (format!("{legs} bindings x max_outbox_depth {depth} x max_payload_bytes {largest}"), Some(product(legs, depth, largest)))
            }
            (Some(depth), None) => (format!("{legs} bindings x max_outbox_depth {depth} messages of any size"), None),
            (None, _) => ("max_outbox_depth is not set: as many as come while the destination is away".to_owned(), None),
        };
        Bound { resource: Resource::Store, taker: Taker::Waiting, place: format!("routes ({})", route.id), formula, bytes }
    };
    logged.map(bound).collect()
}

/// How much memory all these bounds come to, in bytes.
#[must_use]
pub fn memory(bounds: &[Bound]) -> u64 {
    total(bounds, |bound| bound.resource == Resource::Memory)
}

fn total(bounds: &[Bound], which: impl Fn(&Bound) -> bool) -> u64 {
    bounds.iter().filter(|bound| which(bound)).filter_map(|bound| bound.bytes).fold(0, u64::saturating_add)
}

/// What deserves a second look where a process has `limit` bytes of memory.
#[must_use]
pub fn warnings(bounds: &[Bound], limit: u64) -> Vec<String> {
    let mebibytes = |bytes: u64| bytes / (1024 * 1024);
    let mut warnings = Vec::new();
    let budgets = total(bounds, |bound| bound.taker == Taker::Budgets);
    if budgets > limit / 100 * BUDGETS_PERCENT {
        warnings.push(format!(
            "budgets of limits can take {} MiB, more than {BUDGETS_PERCENT} % of the {} MiB that this process has: lower max_keys, or write `mode: token_bucket`",
            mebibytes(budgets),
            mebibytes(limit)
        ));
    }
    let all = memory(bounds);
    if all > limit {
        warnings.push(format!(
            "with every window full of messages as large as may be this takes {} MiB, more than the {} MiB that this process has: lower receive_maximum, qos0_buffer_messages or max_payload_bytes, or give it more",
            mebibytes(all),
            mebibytes(limit)
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::config::{Source, load};

    fn config(more: &str) -> Config {
        let text = include_str!("../../../../tests/fixtures/valid/standalone_sqlite.yaml").to_owned() + more;
        load(&[Source { name: "s", text: &text }], &|_| None).unwrap().config
    }

    #[test]
    fn the_figures_of_the_formulas() {
        // A hundred thousand keys of three hundred admissions of four bytes; a thousand keys of ten thousand messages of one KiB.
        assert_eq!(product(100_000, 300, 4), 120_000_000);
        assert_eq!(product(1_000, 10_000, 1_024), 10_240_000_000);
        assert_eq!(product(u64::MAX, 2, 2), u64::MAX);
    }

    #[test]
    fn every_window_loop_limit_and_log_has_its_bound() {
        let config = config(
            "flow:\n  limits:\n    - { enabled: true, key: topic, pairs: \"10:1,300:60\", max_keys: 1000 }\n    - { enabled: true, key: topic, pairs: \"10:1,300:60\", mode: token_bucket, max_keys: 1000 }\n    - { key: topic, pairs: \"10:1\" }\n",
        );
        let all = bounds(&config);
        let bytes = |taker: Taker| all.iter().filter(|bound| bound.taker == taker).map(|bound| bound.bytes).collect::<Vec<_>>();
        let mqtt = config.sessions[0].mqtt();
        assert_eq!(bytes(Taker::ReceiveWindow), [Some(u64::from(mqtt.receive_maximum) * u64::from(mqtt.max_packet_bytes))]);
        assert_eq!(bytes(Taker::Loose), [Some(1_000 * u64::from(mqtt.max_packet_bytes))]);
        assert_eq!(bytes(Taker::Unwritten), []);
        assert_eq!(bytes(Taker::Entries), [Some(16 * 1024 * 1024)]);
        assert_eq!(bytes(Taker::Budgets), [Some(1_000 * 300 * 8), Some(1_000 * 2 * 8)]);
        assert_eq!(bytes(Taker::Waiting), [None]);
        assert_eq!(memory(&all), all.iter().filter_map(|bound| bound.bytes).sum::<u64>());
    }

    #[test]
    fn what_is_parked_or_paced_has_budgets_of_each_leg() {
        let paced = config(
            "flow:\n  outbound: { pace: \"200:1\" }\n  inbound: { qos0_buffer_messages: 7 }\n  limits:\n    - { enabled: true, key: topic, pairs: \"10:1\", max_keys: 5 }\n    - { enabled: true, key: topic, pairs: \"10:1\", max_keys: 5, on_exceed: hold }\n    - { enabled: true, scope: route, pairs: \"30:1\", on_exceed: park }\n",
        );
        let two_legs = {
            let mut config = paced;
            let more = config.routes[0].bindings[0].clone();
            config.routes[0].bindings.push(more);
            config
        };
        let all = bounds(&two_legs);
        let of = |taker: Taker| all.iter().filter(|bound| bound.taker == taker).map(|bound| bound.bytes).collect::<Vec<_>>();
        assert_eq!(of(Taker::Budgets), [Some(2 * 5 * 10 * 8), Some(5 * 10 * 8), Some(2 * 30 * 8), Some(2 * 200 * 8)]);
        assert_eq!(of(Taker::Loose), [Some(7 * u64::from(two_legs.sessions[0].mqtt().max_packet_bytes))]);
    }

    #[test]
    fn senders_of_one_session_share_what_its_connection_has_not_written() {
        let mut config = config("");
        let session = config.sessions[0].id.clone();
        for _ in 0..2 {
            let mut sender = config.senders[0].clone();
            (sender.transport, sender.session_id) = (None, Some(session.clone()));
            config.senders.push(sender);
        }
        let all = bounds(&config);
        let unwritten: Vec<_> = all.iter().filter(|bound| bound.taker == Taker::Unwritten).map(|bound| bound.bytes).collect();
        assert_eq!(unwritten, [Some(1_310_720 + config.largest_payload())]);
    }

    #[test]
    fn what_a_process_does_not_have_is_warned_of() {
        let bound =
            |taker, bytes| Bound { resource: Resource::Memory, taker, place: String::new(), formula: String::new(), bytes: Some(bytes) };
        let mebi = 1024 * 1024;
        let small = [bound(Taker::ReceiveWindow, 100 * mebi), bound(Taker::Budgets, 127 * mebi)];
        assert!(warnings(&small, 512 * mebi).is_empty());
        assert!(warnings(&[bound(Taker::Budgets, 129 * mebi)], 512 * mebi)[0].contains("25 %"));
        let large = [bound(Taker::ReceiveWindow, 513 * mebi)];
        assert!(warnings(&large, 512 * mebi)[0].contains("513 MiB"));
    }
}
