//! Where the values stand. Writers take a short read lock and an atomic; nothing here waits on I/O.

use causeway_core::metrics::{CATALOG, Definition, Kind, Metric, Unit};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// More series of one metric than this can only come from a defect: ids come from the configuration. Further ones are counted as `other`.
const MAX_SERIES: usize = 20_000;

/// Upper bounds of latency buckets, in seconds.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0,
    10.0, 30.0, 60.0, 300.0, 1_800.0, 21_600.0,
];
/// Upper bounds of buckets that count things.
const COUNTS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, 70.0, 100.0, 150.0, 200.0, 500.0, 1_000.0];
/// Upper bounds of buckets of bytes.
const BYTES: &[f64] =
    &[256.0, 512.0, 1_024.0, 2_048.0, 4_096.0, 8_192.0, 16_384.0, 32_768.0, 65_536.0, 131_072.0, 262_144.0, 393_216.0, 1_048_576.0];

/// The upper bounds of a histogram's buckets; one more bucket above takes the rest.
#[must_use]
pub const fn bounds(unit: Unit) -> &'static [f64] {
    match unit {
        Unit::Seconds => SECONDS,
        Unit::Bytes => BYTES,
        Unit::Count | Unit::None => COUNTS,
    }
}

/// One bucket of a distribution: how many values fell into it, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    /// How many values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

/// A series' value at one moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Sample {
    /// Of a counter or gauge.
    Value(f64),
    /// Of a histogram: one bucket for each bound, and one for the rest. Not cumulative.
    Distribution(Vec<Bucket>),
}

/// One series at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSnapshot {
    /// The values of the labels, in the declaration's order.
    pub labels: Vec<String>,
    /// The value.
    pub sample: Sample,
}

/// One metric with all its series at one moment.
#[derive(Clone, Debug)]
pub struct FamilySnapshot {
    /// Its declaration.
    pub definition: &'static Definition,
    /// Its series, ordered by labels.
    pub series: Vec<SeriesSnapshot>,
}

/// The values of every metric of the catalogue.
#[derive(Debug)]
pub(super) struct Registry {
    families: Vec<RwLock<BTreeMap<Vec<String>, Arc<Cell>>>>,
}

#[derive(Debug)]
enum Cell {
    Value(AtomicU64),
    Distribution(Vec<(AtomicU64, AtomicU64)>),
}

impl Cell {
    fn new(definition: &Definition) -> Self {
        match definition.kind {
            Kind::Counter | Kind::Gauge => Self::Value(AtomicU64::new(0_f64.to_bits())),
            Kind::Histogram => Self::Distribution((0..=bounds(definition.unit).len()).map(|_| Default::default()).collect()),
        }
    }

    fn sample(&self) -> Sample {
        let float = |cell: &AtomicU64| f64::from_bits(cell.load(Ordering::Relaxed));
        match self {
            Self::Value(value) => Sample::Value(float(value)),
            Self::Distribution(buckets) => Sample::Distribution(
                buckets.iter().map(|(count, sum)| Bucket { count: count.load(Ordering::Relaxed), sum: float(sum) }).collect(),
            ),
        }
    }
}

fn add(cell: &AtomicU64, value: f64) {
    // Never fails: the closure always gives a value.
    let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| Some((f64::from_bits(bits) + value).to_bits()));
}

impl Default for Registry {
    fn default() -> Self {
        Self { families: CATALOG.iter().map(|_| RwLock::default()).collect() }
    }
}

impl Registry {
    fn cell(&self, metric: Metric, labels: &[&str]) -> Option<Arc<Cell>> {
        let definition = metric.definition();
        debug_assert_eq!(definition.labels.len(), labels.len(), "{}: wrong number of labels", definition.name);
        let key: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        let family = self.families.get(metric as usize)?;
        if let Some(cell) = family.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Some(Arc::clone(cell));
        }
        let mut series = family.write().unwrap_or_else(PoisonError::into_inner);
        let key = if series.len() < MAX_SERIES { key } else { vec!["other".to_owned(); labels.len()] };
        Some(Arc::clone(series.entry(key).or_insert_with(|| Arc::new(Cell::new(definition)))))
    }

    /// Adds to a counter.
    pub(super) fn add(&self, metric: Metric, labels: &[&str], value: f64) {
        if let Some(Cell::Value(cell)) = self.cell(metric, labels).as_deref() {
            add(cell, value);
        }
    }

    /// Sets a gauge, or a counter that is counted elsewhere.
    pub(super) fn set(&self, metric: Metric, labels: &[&str], value: f64) {
        if let Some(Cell::Value(cell)) = self.cell(metric, labels).as_deref() {
            cell.store(value.to_bits(), Ordering::Relaxed);
        }
    }

    /// Forgets every series of a metric: nobody here can tell it any more.
    pub(super) fn forget(&self, metric: Metric) {
        if let Some(family) = self.families.get(metric as usize) {
            family.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Adds values to a distribution.
    pub(super) fn observe(&self, metric: Metric, labels: &[&str], values: impl IntoIterator<Item = f64>) {
        let cell = self.cell(metric, labels);
        let Some(Cell::Distribution(buckets)) = cell.as_deref() else { return };
        let bounds = bounds(metric.definition().unit);
        for value in values {
            let place = bounds.partition_point(|&bound| bound < value);
            if let Some((count, sum)) = buckets.get(place) {
                count.fetch_add(1, Ordering::Relaxed);
                add(sum, value);
            }
        }
    }

    /// Every series that has a value.
    pub(super) fn gather(&self) -> Vec<FamilySnapshot> {
        CATALOG
            .iter()
            .zip(&self.families)
            .map(|(definition, family)| {
                let series = family.read().unwrap_or_else(PoisonError::into_inner);
                let series = series.iter().map(|(labels, cell)| SeriesSnapshot { labels: labels.clone(), sample: cell.sample() }).collect();
                FamilySnapshot { definition, series }
            })
            .collect()
    }
}
