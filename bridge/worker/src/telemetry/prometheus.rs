//! The metrics in the Prometheus text format, version 0.0.4.

use super::registry::{Bucket, FamilySnapshot, Sample, bounds};
use causeway_core::metrics::{Label, PREFIX};
use core::fmt::Write as _;

/// The answer's content type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders what [`super::Metrics::gather`] answered. Metrics without a value are left out.
#[must_use]
pub fn render(families: &[FamilySnapshot]) -> String {
    let mut out = String::with_capacity(16 * 1024);
    for family in families.iter().filter(|family| !family.series.is_empty()) {
        let definition = family.definition;
        let name = format!("{PREFIX}{}", definition.name);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {}", definition.help);
        let _ = writeln!(out, "# TYPE {name} {}", definition.kind.as_str());
        for series in &family.series {
            let labels = labels(definition.labels, &series.labels);
            match &series.sample {
                Sample::Value(value) => {
                    let _ = writeln!(out, "{name}{} {value}", braces(&labels));
                }
                Sample::Distribution(buckets) => histogram(&mut out, &name, &labels, bounds(definition.unit), buckets),
            }
        }
    }
    out
}

fn histogram(out: &mut String, name: &str, labels: &str, bounds: &[f64], buckets: &[Bucket]) {
    let mut cumulative = 0;
    let separator = if labels.is_empty() { "" } else { "," };
    let bounds = bounds.iter().map(ToString::to_string).chain(core::iter::once("+Inf".to_owned()));
    for (bucket, bound) in buckets.iter().zip(bounds) {
        cumulative += bucket.count;
        let _ = writeln!(out, "{name}_bucket{{{labels}{separator}le=\"{bound}\"}} {cumulative}");
    }
    let sum: f64 = buckets.iter().map(|bucket| bucket.sum).sum();
    let _ = writeln!(out, "{name}_sum{} {sum}", braces(labels));
    let _ = writeln!(out, "{name}_count{} {cumulative}", braces(labels));
}

fn braces(labels: &str) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
}

fn labels(names: &[Label], values: &[String]) -> String {
    names.iter().zip(values).map(|(name, value)| format!("{}=\"{}\"", name.as_str(), escape(value))).collect::<Vec<_>>().join(",")
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
