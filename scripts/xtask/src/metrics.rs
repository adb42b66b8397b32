//! The worker's metrics, as the ledger reads them. Their names stand here and nowhere else in these tools.

use std::collections::BTreeMap;

/// Write units that the store charged (DynamoDB's consumed capacity).
pub const STORE_WRITE_UNITS: &str = "causeway_store_write_units_total";
/// Calls that read the store.
pub const STORE_READ_CALLS: &str = "causeway_store_read_calls_total";
/// Requests to SQS.
pub const SQS_REQUESTS: &str = "causeway_sqs_requests_total";
/// The most messages that a crash could have repeated at any one time since the start.
pub const DUPLICATE_EXPOSURE_PEAK: &str = "causeway_duplicate_exposure_peak";
/// Entries that the outbox holds and that are not settled.
pub const OUTBOX_PENDING: &str = "causeway_outbox_depth";
/// Messages that the broker handed over and that are not acknowledged.
pub const UNACKNOWLEDGED: &str = "causeway_mqtt_unacknowledged";
/// Messages by which the worker's own sums do not add up.
pub const CONSERVATION_IMBALANCE: &str = "causeway_conservation_imbalance";

/// One reading of `/metrics`: every metric by name, summed over its labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot(BTreeMap<String, f64>);

impl Snapshot {
    /// Reads the Prometheus text format. Lines that are no samples are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut sums = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name_end = line.find(['{', ' ']).unwrap_or(line.len());
            let after_labels = line.rfind('}').map_or(name_end, |end| end + 1);
            let value = line[after_labels..].split_whitespace().next().and_then(|value| value.parse::<f64>().ok());
            if let (Some(value), false) = (value, name_end == 0) {
                *sums.entry(line[..name_end].to_owned()).or_insert(0.0) += value;
            }
        }
        Self(sums)
    }

    /// A metric's value. `None`: the worker does not report it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Adds the values of a later process: counters of both count.
    pub fn add(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            *self.0.entry(name.clone()).or_insert(0.0) += value;
        }
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn sums_over_labels_and_ignores_comments() {
        let text = "# HELP a_total x\n# TYPE a_total counter\na_total{op=\"put\",x=\"a b}\"} 2\na_total{op=\"get\"} 3.5 1700000000\nb 1e3\n\nbad line here\n";
        let snapshot = Snapshot::parse(text);
        assert_eq!(snapshot.get("a_total"), Some(5.5));
        assert_eq!(snapshot.get("b"), Some(1000.0));
        assert_eq!(snapshot.get("c"), None);
        assert_eq!(snapshot.get("bad"), None);
    }

    #[test]
    fn adds_up_over_processes() {
        let mut all = Snapshot::parse("a 1\nb 2");
        all.add(&Snapshot::parse("a 10\nc 5"));
        assert_eq!((all.get("a"), all.get("b"), all.get("c")), (Some(11.0), Some(2.0), Some(5.0)));
    }
}
