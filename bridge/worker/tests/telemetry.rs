//! The metric registry: what is declared, what is exported, and that the documentation says the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use causeway_core::metrics::{CATALOG, Kind, PREFIX};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_worker::telemetry::{AppendResult, Metrics, emf, listing, prometheus};
use common::{collector, fill};
use core::time::Duration;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One line of the text format: name, labels, value.
type Line = (String, BTreeMap<String, String>, f64);

/// A strict reader of the text format, written against its specification and not against the writer.
fn parse(text: &str) -> (BTreeMap<String, String>, Vec<Line>) {
    let (mut types, mut lines) = (BTreeMap::new(), Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} is announced twice");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = match series.split_once('{') {
                None => (series, BTreeMap::new()),
                Some((name, rest)) => (name, labels(rest.strip_suffix('}').unwrap())),
            };
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
            lines.push((name.to_owned(), labels, value.parse().unwrap()));
        }
    }
    (types, lines)
}

fn labels(text: &str) -> BTreeMap<String, String> {
    let (mut found, mut rest) = (BTreeMap::new(), text);
    while !rest.is_empty() {
        let (name, tail) = rest.split_once("=\"").unwrap();
        let (mut value, mut chars) = (String::new(), tail.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                (at, '"') => break at,
                (_, c) => value.push(c),
            }
        };
        found.insert(name.to_owned(), value);
        rest = tail[end + 1..].strip_prefix(',').unwrap_or(&tail[end + 1..]);
    }
    found
}

fn value(lines: &[Line], name: &str, wanted: &[(&str, &str)]) -> Option<f64> {
    let wanted: BTreeMap<String, String> = wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    lines.iter().find(|(found, labels, _)| found == name && *labels == wanted).map(|(_, _, value)| *value)
}

#[test]
fn every_declaration_is_well_formed_and_unique() {
    let mut names = BTreeSet::new();
    let mut cloudwatch = BTreeSet::new();
    for definition in CATALOG {
        let name = definition.name;
        assert!(names.insert(name), "{name} twice");
        assert!(cloudwatch.insert(definition.cloudwatch), "{} twice", definition.cloudwatch);
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
        assert!(definition.cloudwatch.chars().all(|c| c.is_ascii_alphanumeric()), "{}", definition.cloudwatch);
        assert_eq!(definition.kind == Kind::Counter, name.ends_with("_total"), "{name}: counters and only they end in _total");
        assert!(definition.help.ends_with('.'), "{name}: {}", definition.help);
        // Drops are told by all that a loss is looked for by.
        let most = if name == "dropped_messages_total" { 4 } else { 3 };
        assert!(definition.labels.len() <= most, "{name}: every label multiplies the series");
    }
}

#[test]
fn prometheus_text_carries_what_was_observed() {
    let (collector, metrics) = collector();
    fill(&collector);
    metrics.observe_append("s", AppendResult::Stored, Duration::from_millis(4), 100, 8_000);
    metrics.observe_append("s", AppendResult::Unknown, Duration::from_secs(5), 100, 8_000);
    let fault = Fault::new(FaultCode::Throttled, "slow down");
    metrics.observe_send("r", Duration::from_millis(20), &[Outcome::Done(()), Outcome::NotDone(fault.clone()), Outcome::Unknown(fault)]);
    metrics.observe_deliveries("r", [Duration::from_millis(9), Duration::from_secs(40_000)]);
    metrics.observe_dispatch_delays("r", [Duration::from_millis(1)]);
    collector.collect();

    let (types, lines) = parse(&prometheus::render(&metrics.gather()));
    assert_eq!(types.get("causeway_append_seconds").map(String::as_str), Some("histogram"));
    assert_eq!(value(&lines, "causeway_appends_total", &[("session", "s"), ("result", "stored")]), Some(1.0));
    assert_eq!(value(&lines, "causeway_appends_total", &[("session", "s"), ("result", "unknown")]), Some(1.0));
    assert_eq!(value(&lines, "causeway_segment_entries_count", &[("session", "s")]), Some(1.0), "only stored segments have a size");
    assert_eq!(value(&lines, "causeway_append_seconds_bucket", &[("session", "s"), ("le", "0.003")]), Some(0.0));
    assert_eq!(value(&lines, "causeway_append_seconds_bucket", &[("session", "s"), ("le", "0.005")]), Some(1.0));
    assert_eq!(value(&lines, "causeway_append_seconds_bucket", &[("session", "s"), ("le", "+Inf")]), Some(2.0));
    assert_eq!(value(&lines, "causeway_append_seconds_sum", &[("session", "s")]), Some(5.004));
    assert_eq!(
        value(&lines, "causeway_delivery_seconds_bucket", &[("route", "r"), ("le", "21600")]),
        Some(1.0),
        "what is above every bound is counted"
    );
    assert_eq!(value(&lines, "causeway_delivery_seconds_count", &[("route", "r")]), Some(2.0));
    for (outcome, code) in [("done", "NONE"), ("not_done", "THROTTLED"), ("unknown", "THROTTLED")] {
        assert_eq!(value(&lines, "causeway_send_results_total", &[("route", "r"), ("outcome", outcome), ("code", code)]), Some(1.0));
    }
    assert_eq!(value(&lines, "causeway_messages_received_total", &[("route", "r")]), Some(10.0));
    assert_eq!(value(&lines, "causeway_dlq_entries_total", &[("route", "r"), ("code", "PAYLOAD_TOO_LARGE")]), Some(2.0));
    assert_eq!(value(&lines, "causeway_conservation_imbalance", &[("route", "r")]), Some(0.0));
    assert_eq!(value(&lines, "causeway_outbox_depth", &[("session", "s")]), Some(3.0));
    assert_eq!(value(&lines, "causeway_sqs_requests_total", &[("sender", "out")]), Some(0.0));
    assert_eq!(value(&lines, "causeway_mqtt_published_total", &[("sender", "topic-out")]), Some(0.0));
    assert_eq!(value(&lines, "causeway_sqs_requests_total", &[("sender", "topic-out")]), None, "a topic is no queue");
    assert_eq!(value(&lines, "causeway_store_write_units_total", &[]), None, "a store that does not count units has none");
    assert!(value(&lines, "causeway_process_resident_bytes", &[]).unwrap() > 1e6);
    for (name, _, _) in &lines {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .filter(|base| types.contains_key(*base))
            .unwrap_or(name);
        assert!(CATALOG.iter().any(|definition| format!("{PREFIX}{}", definition.name) == family), "{name} is not declared");
    }
}

#[test]
fn label_values_are_escaped() {
    let metrics = Metrics::default();
    metrics.observe_dispatch_delays("a\"b\\c\nd", [Duration::ZERO]);
    let (_, lines) = parse(&prometheus::render(&metrics.gather()));
    assert_eq!(value(&lines, "causeway_dispatch_delay_seconds_count", &[("route", "a\"b\\c\nd")]), Some(1.0));
}

#[test]
fn embedded_metrics_have_the_shape_that_cloudwatch_reads() {
    let (collector, metrics) = collector();
    fill(&collector);
    metrics.observe_append("s", AppendResult::Stored, Duration::from_millis(4), 100, 8_000);
    metrics.observe_append("s", AppendResult::Stored, Duration::from_millis(6), 50, 4_000);
    collector.collect();
    let mut exporter = emf::Exporter::new("bridge", "instance");
    let lines: Vec<Value> =
        exporter.export(&metrics.gather(), UnixMillis(1_700_000_000_000)).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let known: BTreeMap<&str, Kind> = CATALOG.iter().map(|definition| (definition.cloudwatch, definition.kind)).collect();
    for line in &lines {
        assert_eq!(line["_aws"]["Timestamp"], 1_700_000_000_000_u64);
        let directive = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(directive["Namespace"], "Causeway");
        for dimension in directive["Dimensions"].as_array().unwrap().iter().flat_map(|set| set.as_array().unwrap()) {
            assert!(line[dimension.as_str().unwrap()].is_string(), "dimension {dimension} has a value: {line}");
        }
        let listed = directive["Metrics"].as_array().unwrap();
        assert!(!listed.is_empty() && listed.len() <= 100);
        for metric in listed {
            let name = metric["Name"].as_str().unwrap();
            assert!(["Count", "Seconds", "Bytes", "None"].contains(&metric["Unit"].as_str().unwrap()));
            match known.get(name).unwrap_or_else(|| panic!("{name} is not declared")) {
                Kind::Histogram => {
                    assert_eq!(line[name]["Values"].as_array().unwrap().len(), line[name]["Counts"].as_array().unwrap().len())
                }
                Kind::Counter | Kind::Gauge => assert!(line[name].is_number(), "{name}"),
            }
        }
    }
    let of = |lines: &[Value], name: &str| lines.iter().find(|line| !line[name].is_null()).map(|line| line[name].clone());
    let sum = |value: &Value| -> f64 {
        value["Values"]
            .as_array()
            .unwrap()
            .iter()
            .zip(value["Counts"].as_array().unwrap())
            .map(|(v, n)| v.as_f64().unwrap() * n.as_f64().unwrap())
            .sum()
    };
    assert!((sum(&of(&lines, "OutboxPersistLatency").unwrap()) - 0.010).abs() < 1e-12, "sums are exact");
    assert_eq!(of(&lines, "MessagesReceived").unwrap(), 10);
    assert_eq!(of(&lines, "OutboxDepth").unwrap(), 3);

    metrics.observe_append("s", AppendResult::Stored, Duration::from_millis(4), 7, 4_000);
    let again: Vec<Value> =
        exporter.export(&metrics.gather(), UnixMillis(1_700_000_030_000)).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(of(&again, "MessagesReceived").unwrap(), 0, "counters tell what they grew by");
    assert_eq!(of(&again, "OutboxDepth").unwrap(), 3, "gauges tell what they are");
    assert_eq!(sum(&of(&again, "OutboxSegmentEntries").unwrap()), 7.0, "distributions tell what came in since");
    assert_eq!(of(&again, "SendLatency"), None);
}

#[test]
fn the_listing_names_every_metric() {
    let listing = listing::json();
    let entries = listing.as_array().unwrap();
    assert_eq!(entries.len(), CATALOG.len());
    for entry in entries {
        for key in ["name", "type", "unit", "help", "cloudwatch"] {
            assert!(!entry[key].as_str().unwrap().is_empty(), "{entry}");
        }
        assert!(entry["labels"].is_array());
    }
    let summary: Vec<String> = entries
        .iter()
        .map(|entry| {
            let labels: Vec<&str> = entry["labels"].as_array().unwrap().iter().map(|label| label.as_str().unwrap()).collect();
            format!(
                "{} {} [{}] {} {}",
                entry["name"].as_str().unwrap(),
                entry["type"].as_str().unwrap(),
                labels.join(","),
                entry["unit"].as_str().unwrap(),
                entry["cloudwatch"].as_str().unwrap()
            )
        })
        .collect();
    insta::assert_snapshot!(summary.join("\n"));
}

#[test]
fn what_is_generated_from_the_registry_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let json = serde_json::to_string_pretty(&listing::json()).unwrap() + "\n";
    for (file, expected) in [("docs/METRICS.md", listing::markdown()), ("infra/lib/generated/metrics.json", json)] {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(root.join(file), &expected).unwrap();
        }
        let found = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(found == expected, "{file} is out of date: run `UPDATE_DOCS=1 cargo test -p causeway --test telemetry`");
    }
}
