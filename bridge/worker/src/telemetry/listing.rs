//! The catalogue for people and programs: `causeway metrics --list` and docs/METRICS.md.

use causeway_core::metrics::emf::NAMESPACE;
use causeway_core::metrics::{CATALOG, Definition, PREFIX};
use core::fmt::Write as _;
use serde_json::{Value, json};

/// The catalogue as one JSON array: `name`, `type`, `labels`, `label_values`, `unit`, `help`, `emitter`, `cloudwatch`, its
/// namespace and dimensions.
#[must_use]
pub fn json() -> Value {
    CATALOG.iter().map(entry).collect()
}

fn entry(definition: &Definition) -> Value {
    let labels: Vec<&str> = definition.labels.iter().map(|label| label.as_str()).collect();
    let dimensions: Vec<&str> = core::iter::once("BridgeId").chain(definition.labels.iter().map(|label| label.dimension())).collect();
    let values: serde_json::Map<String, Value> =
        definition.labels.iter().filter_map(|label| label.values().map(|values| (label.as_str().to_owned(), json!(values)))).collect();
    json!({
        "name": format!("{PREFIX}{}", definition.name),
        "type": definition.kind.as_str(),
        "labels": labels,
        "label_values": values,
        "unit": definition.unit.as_str(),
        "help": definition.help,
        "emitter": definition.emitter.as_str(),
        "cloudwatch": definition.cloudwatch,
        "cloudwatch_namespace": NAMESPACE,
        "cloudwatch_dimensions": dimensions,
    })
}

/// The catalogue as the text of docs/METRICS.md.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\nGenerated from the metric registry of the program; do not edit. `UPDATE_DOCS=1 cargo test -p causeway` writes it anew, and a test compares it.\n\n\
         Prometheus reads `/metrics` on the monitor port. CloudWatch gets the same under the names of the last column, in the namespace\n\
         `Causeway`, where `metrics_exporter: emf` is set: once under the dimension `BridgeId`, once under `BridgeId` and the labels. There,\n\
         counters tell what they grew by, and histograms carry their values. Labels only take ids of the configuration and values of closed sets.\n\
         What the functions `housekeeping` and `redrive` tell goes to CloudWatch only.\n\n\
         | name | type | labels | unit | meaning | told by | CloudWatch |\n|---|---|---|---|---|---|---|\n",
    );
    for definition in CATALOG {
        let labels: Vec<String> = definition.labels.iter().map(|label| format!("`{}`", label.as_str())).collect();
        let (name, kind, unit) = (definition.name, definition.kind.as_str(), definition.unit.as_str());
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| `{PREFIX}{name}` | {kind} | {} | {unit} | {} | {} | `{}` |",
            labels.join(", "),
            definition.help,
            definition.emitter.as_str(),
            definition.cloudwatch
        );
    }
    out.push_str("\n## Values of labels\n\n| label | values |\n|---|---|\n");
    let mut seen: Vec<(&str, Vec<&str>)> = Vec::new();
    for label in CATALOG.iter().flat_map(|definition| definition.labels) {
        let Some(values) = label.values() else { continue };
        if !seen.iter().any(|(name, known)| *name == label.as_str() && *known == values) {
            let _ = writeln!(
                out,
                "| `{}` | {} |",
                label.as_str(),
                values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
            );
            seen.push((label.as_str(), values));
        }
    }
    out
}
