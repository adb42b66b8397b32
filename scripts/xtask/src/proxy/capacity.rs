//! What DynamoDB lets one partition key write: units of 1 KiB a second, counted as DynamoDB counts them. Emulators have no such limit.

use base64::Engine as _;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Instant;

/// Bytes of a write unit.
const UNIT: usize = 1024;

/// A limit for each partition key, and what was charged. Keys are those of our tables: `pk` and, where there is one, `sk`.
#[derive(Debug)]
pub(super) struct Capacity {
    units_a_second: f64,
    /// The size of every item that stands, as far as it was written here.
    sizes: HashMap<(String, String), usize>,
    left: HashMap<String, (f64, Instant)>,
    used: WriteUnits,
}

/// What a limit saw.
#[derive(Clone, Debug, Default)]
pub struct WriteUnits {
    /// Calls that write which were let through.
    pub admitted: u64,
    /// Calls that were refused because a partition had used up its share.
    pub throttled: u64,
    /// Units by partition key.
    pub by_key: HashMap<String, f64>,
}

/// One item that a call writes; no size where it takes it away.
struct Write {
    key: (String, String),
    size: Option<usize>,
    factor: f64,
}

impl Capacity {
    pub(super) fn new(units_a_second: u32) -> Self {
        Self { units_a_second: f64::from(units_a_second), sizes: HashMap::new(), left: HashMap::new(), used: WriteUnits::default() }
    }

    /// Whether the call may go on at `now`. A partition may run into debt with one call, and lets nothing through until that is paid.
    pub(super) fn admits(&mut self, operation: &str, body: &[u8], now: Instant) -> bool {
        let writes = writes(operation, &serde_json::from_slice(body).unwrap_or_default());
        if writes.is_empty() {
            return true;
        }
        for write in &writes {
            let (left, at) = self.left.entry(write.key.0.clone()).or_insert((self.units_a_second, now));
            *left = (*left + now.duration_since(*at).as_secs_f64() * self.units_a_second).min(self.units_a_second);
            *at = now;
            if *left <= 0.0 {
                self.used.throttled += 1;
                return false;
            }
        }
        for write in writes {
            let before = self.sizes.get(&write.key).copied().unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "an item has 400 KB at most")]
            let units = write.factor * before.max(write.size.unwrap_or_default()).div_ceil(UNIT).max(1) as f64;
            if let Some((left, _)) = self.left.get_mut(&write.key.0) {
                *left -= units;
            }
            *self.used.by_key.entry(write.key.0.clone()).or_default() += units;
            match write.size {
                Some(size) => self.sizes.insert(write.key, size),
                None => self.sizes.remove(&write.key),
            };
        }
        self.used.admitted += 1;
        true
    }

    pub(super) fn used(&self) -> WriteUnits {
        self.used.clone()
    }
}

fn writes(operation: &str, body: &Value) -> Vec<Write> {
    let put = |call: &Value, factor: f64| Some(Write { key: key(&call["Item"])?, size: Some(size_of(&call["Item"])), factor });
    let delete = |call: &Value, factor: f64| Some(Write { key: key(&call["Key"])?, size: None, factor });
    // What an update leaves behind is not known here: a unit, or what stands there.
    let update = |call: &Value, factor: f64| Some(Write { key: key(&call["Key"])?, size: Some(1), factor });
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let found: Vec<Option<Write>> = match operation {
        "PutItem" => vec![put(body, 1.0)],
        "DeleteItem" => vec![delete(body, 1.0)],
        "UpdateItem" => vec![update(body, 1.0)],
        "BatchWriteItem" => {
            let requests = body["RequestItems"].as_object().into_iter().flatten().flat_map(|(_, requests)| list(requests));
            requests.map(|request| put(&request["PutRequest"], 1.0).or_else(|| delete(&request["DeleteRequest"], 1.0))).collect()
        }
        "TransactWriteItems" => {
            let of =
                |item: &Value| put(&item["Put"], 2.0).or_else(|| delete(&item["Delete"], 2.0)).or_else(|| update(&item["Update"], 2.0));
            list(&body["TransactItems"]).iter().map(of).collect()
        }
        _ => Vec::new(),
    };
    found.into_iter().flatten().collect()
}

fn key(item: &Value) -> Option<(String, String)> {
    Some((item["pk"]["S"].as_str()?.to_owned(), item["sk"]["S"].as_str().unwrap_or_default().to_owned()))
}

/// The size of an item: names and values; a number takes about a byte for two digits.
fn size_of(item: &Value) -> usize {
    item.as_object().into_iter().flatten().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &Value) -> usize {
    let Some((kind, value)) = value.as_object().and_then(|value| value.iter().next()) else { return 0 };
    match (kind.as_str(), value) {
        ("S", Value::String(text)) => text.len(),
        ("N", Value::String(digits)) => digits.len().div_ceil(2) + 1,
        ("B", Value::String(base64)) => base64::engine::general_purpose::STANDARD.decode(base64).map_or(base64.len(), |bytes| bytes.len()),
        ("L", Value::Array(items)) => 3 + items.iter().map(|item| 1 + value_size(item)).sum::<usize>(),
        ("M", map) => 3 + size_of(map),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn item(pk: &str, bytes: usize) -> Value {
        json!({ "pk": { "S": pk }, "sk": { "S": "1" }, "body": { "S": "x".repeat(bytes) } })
    }

    #[test]
    fn a_partition_lets_through_what_it_may_and_the_others_do_not_suffer() {
        let (mut capacity, now) = (Capacity::new(4), Instant::now());
        let put = |pk: &str| json!({ "Item": item(pk, 1_500) }).to_string().into_bytes();
        assert!(capacity.admits("PutItem", &put("a"), now));
        assert!(capacity.admits("PutItem", &put("a"), now));
        assert!(!capacity.admits("PutItem", &put("a"), now), "two units each, four a second");
        assert!(capacity.admits("PutItem", &put("b"), now));
        assert!(capacity.admits("PutItem", &put("a"), now + Duration::from_secs(1)));
        assert!(capacity.admits("GetItem", b"{}", now));
        let used = capacity.used();
        assert_eq!((used.admitted, used.throttled, used.by_key["a"], used.by_key["b"]), (4, 1, 6.0, 2.0));
    }

    #[test]
    fn taking_an_item_away_costs_what_it_held() {
        let (mut capacity, now) = (Capacity::new(100), Instant::now());
        let batch = json!({ "RequestItems": { "t": [{ "PutRequest": { "Item": item("a", 2_500) } }] } }).to_string();
        assert!(capacity.admits("BatchWriteItem", batch.as_bytes(), now));
        let gone = json!({ "TransactItems": [{ "Delete": { "Key": { "pk": { "S": "a" }, "sk": { "S": "1" } } } }] }).to_string();
        assert!(capacity.admits("TransactWriteItems", gone.as_bytes(), now));
        assert_eq!(capacity.used().by_key["a"], 3.0 + 6.0);
    }
}
