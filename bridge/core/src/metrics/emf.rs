//! CloudWatch's embedded metric format: one JSON line on stdout that CloudWatch Logs makes metrics from.
//!
//! Every metric goes out under the dimension `BridgeId` alone, and under `BridgeId` with its labels where it has some.

use super::{Definition, Metric};
use crate::units::UnixMillis;
use serde_json::{Map, Value, json};

/// The namespace in CloudWatch.
pub const NAMESPACE: &str = "Causeway";

/// CloudWatch refuses lines with more metrics.
pub const MAX_METRICS_PER_LINE: usize = 100;

/// Dimensions of CloudWatch with their values.
pub type Labels = Vec<(&'static str, String)>;

/// What tells the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The bridge, by which the metrics are grouped.
    pub bridge_id: String,
    /// The process; a property to search for, no dimension.
    pub instance_id: String,
}

/// A metric with what is told of it.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its declaration.
    pub definition: &'static Definition,
    /// A number, or `{"Values": […], "Counts": […]}`.
    pub value: Value,
}

impl Item {
    /// A metric with one number: a gauge's value, what a counter grew by, or the one value that came into a distribution.
    #[must_use]
    pub fn new(metric: Metric, value: f64) -> Self {
        Self { definition: metric.definition(), value: number(value) }
    }
}

/// The line, without line end, for metrics of one set of labels (in the order of their declaration); at most [`MAX_METRICS_PER_LINE`].
#[must_use]
pub fn line(identity: &Identity, labels: &[(&'static str, String)], items: &[Item], now: UnixMillis) -> String {
    let mut dimensions = vec![json!(["BridgeId"])];
    if !labels.is_empty() {
        dimensions.push(core::iter::once("BridgeId").chain(labels.iter().map(|(name, _)| *name)).collect());
    }
    let metrics: Vec<Value> =
        items.iter().map(|item| json!({ "Name": item.definition.cloudwatch, "Unit": item.definition.unit.as_str() })).collect();
    let mut line = Map::new();
    line.insert(
        "_aws".to_owned(),
        json!({ "Timestamp": now.0, "CloudWatchMetrics": [{ "Namespace": NAMESPACE, "Dimensions": dimensions, "Metrics": metrics }] }),
    );
    line.insert("BridgeId".to_owned(), json!(identity.bridge_id));
    line.insert("InstanceId".to_owned(), json!(identity.instance_id));
    line.extend(labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
    line.extend(items.iter().map(|item| (item.definition.cloudwatch.to_owned(), item.value.clone())));
    Value::Object(line).to_string()
}

/// Whole numbers without a fraction, as people and tests expect.
#[must_use]
pub fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9.0e15 { json!(value as i64) } else { json!(value) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::metrics::{CATALOG, Emitter};

    #[test]
    fn a_function_tells_its_metrics_in_one_line() {
        let identity = Identity { bridge_id: "b".into(), instance_id: "run-1".into() };
        let items = [Item::new(Metric::OutboxPending, 3.0), Item::new(Metric::HousekeepingRunDuration, 0.25)];
        let line: Value = serde_json::from_str(&line(&identity, &[], &items, UnixMillis(7))).unwrap();
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["BridgeId"]]));
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Metrics"][1], json!({ "Name": "HousekeepingRunDuration", "Unit": "Seconds" }));
        assert_eq!((&line["OutboxPending"], &line["HousekeepingRunDuration"], &line["BridgeId"]), (&json!(3), &json!(0.25), &json!("b")));
    }

    #[test]
    fn what_one_function_tells_fits_one_line_without_labels() {
        for emitter in [Emitter::Housekeeping, Emitter::Redrive] {
            let own: Vec<_> = CATALOG.iter().filter(|definition| definition.emitter == emitter).collect();
            assert!(!own.is_empty() && own.len() <= MAX_METRICS_PER_LINE && own.iter().all(|definition| definition.labels.is_empty()));
        }
    }
}
