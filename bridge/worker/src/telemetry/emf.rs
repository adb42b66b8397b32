//! The metrics as CloudWatch embedded metric format ([`causeway_core::metrics::emf`]), one line on stdout for each set of labels.
//!
//! Counters are told as what they grew by since the last export, so that CloudWatch's Sum is right; distributions as values with counts, so
//! that percentiles work.

use super::collect::Collector;
use super::registry::{Bucket, FamilySnapshot, Sample};
use causeway_core::metrics::emf::{self, Identity, Item, Labels, MAX_METRICS_PER_LINE, number};
use causeway_core::metrics::{Definition, Kind, Label};
use causeway_core::units::UnixMillis;
use core::time::Duration;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::io::AsyncWriteExt as _;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often metrics go out. CloudWatch keeps one value a minute; two exports a minute keep an alarm's last minute from being empty.
pub const INTERVAL: Duration = Duration::from_secs(30);

/// Turns what [`super::Metrics::gather`] answers into lines, and remembers what it told.
#[derive(Debug, Default)]
pub struct Exporter {
    identity: Identity,
    told: BTreeMap<(&'static str, Vec<String>), Sample>,
}

impl Exporter {
    /// An exporter that has told nothing yet.
    #[must_use]
    pub fn new(bridge_id: &str, instance_id: &str) -> Self {
        let identity = Identity { bridge_id: bridge_id.to_owned(), instance_id: instance_id.to_owned() };
        Self { identity, told: BTreeMap::new() }
    }

    /// The lines for what changed until `now`, without line ends.
    pub fn export(&mut self, families: &[FamilySnapshot], now: UnixMillis) -> Vec<String> {
        // One line for each set of labels: names and values, in order of first appearance.
        let mut groups: Vec<(Labels, Vec<Item>)> = Vec::new();
        for family in families {
            let definition = family.definition;
            for series in &family.series {
                if is_silent(definition, &series.sample) {
                    continue;
                }
                let Some(value) = self.value(definition, &series.labels, &series.sample) else { continue };
                let labels: Vec<_> =
                    definition.labels.iter().zip(&series.labels).map(|(label, value)| (label.dimension(), value.clone())).collect();
                let item = Item { definition, value };
                match groups.iter_mut().find(|(known, _)| *known == labels) {
                    Some((_, items)) => items.push(item),
                    None => groups.push((labels, vec![item])),
                }
            }
        }
        groups
            .iter()
            .flat_map(|(labels, items)| items.chunks(MAX_METRICS_PER_LINE).map(move |items| (labels, items)))
            .map(|(labels, items)| emf::line(&self.identity, labels, items, now))
            .collect()
    }

    /// What to tell of a series: growth, value, or the values that came in; `None` where there were none.
    fn value(&mut self, definition: &'static Definition, labels: &[String], sample: &Sample) -> Option<Value> {
        let before = self.told.insert((definition.name, labels.to_vec()), sample.clone());
        match (sample, before) {
            (Sample::Value(value), before) if definition.kind == Kind::Counter => {
                let before = if let Some(Sample::Value(before)) = before { before } else { 0.0 };
                Some(number((value - before).max(0.0)))
            }
            (Sample::Value(value), _) => Some(number(*value)),
            (Sample::Distribution(buckets), before) => {
                let before = if let Some(Sample::Distribution(before)) = before { before } else { vec![Bucket::default(); buckets.len()] };
                distribution(buckets, &before)
            }
        }
    }
}

/// Writes lines to stdout every [`INTERVAL`], and once more at the end. A stdout that cannot be written is nobody's reason to stop.
pub async fn run(mut exporter: Exporter, collector: Collector, quit: CancellationToken) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut told = false;
    loop {
        let ending = tokio::select! {
            _ = ticks.tick() => false,
            () = quit.cancelled() => true,
        };
        let status = collector.collect();
        let mut text = exporter.export(&collector.metrics.gather(), status.taken_at).join("\n");
        text.push('\n');
        let mut out = tokio::io::stdout();
        let written = async {
            out.write_all(text.as_bytes()).await?;
            out.flush().await
        };
        if let (Err(error), false) = (written.await, told) {
            tracing::warn!(%error, "metrics cannot be written to stdout");
            told = true;
        }
        if ending {
            return;
        }
    }
}

/// Drops have a series for every reason from the start on, and CloudWatch charges for each: it gets those that occurred.
fn is_silent(definition: &Definition, sample: &Sample) -> bool {
    definition.labels.contains(&Label::DropOutcome) && *sample == Sample::Value(0.0)
}

/// The values since `before`: each bucket by the mean of what fell into it, so that sums are exact and percentiles as fine as the buckets.
fn distribution(now: &[Bucket], before: &[Bucket]) -> Option<Value> {
    let grown =
        now.iter().zip(before).map(|(now, before)| Bucket { count: now.count.saturating_sub(before.count), sum: now.sum - before.sum });
    let (values, counts): (Vec<Value>, Vec<u64>) =
        grown.filter(|bucket| bucket.count > 0).map(|bucket| (number((bucket.sum / bucket.count as f64).max(0.0)), bucket.count)).unzip();
    (!counts.is_empty()).then(|| json!({ "Values": values, "Counts": counts }))
}
