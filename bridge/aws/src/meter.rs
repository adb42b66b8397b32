//! Counts what the calls to a store cost.

use aws_sdk_dynamodb::types::ConsumedCapacity;
use causeway_ports::StoreUsage;
use core::sync::atomic::{AtomicU64, Ordering};

/// Calls and units since the start. A write whose condition failed is billed too, but DynamoDB does not say how much: it is counted as a
/// call and not in units.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    write_calls: AtomicU64,
    read_calls: AtomicU64,
    /// Bits of an `f64`.
    write_units: AtomicU64,
    /// Bits of an `f64`.
    read_units: AtomicU64,
}

impl Meter {
    pub(crate) fn count_write(&self) {
        self.write_calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_read(&self) {
        self.read_calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_write_units<'c>(&self, consumed: impl IntoIterator<Item = &'c ConsumedCapacity>) {
        add(&self.write_units, units(consumed));
    }

    pub(crate) fn add_read_units<'c>(&self, consumed: impl IntoIterator<Item = &'c ConsumedCapacity>) {
        add(&self.read_units, units(consumed));
    }

    pub(crate) fn usage(&self) -> StoreUsage {
        StoreUsage {
            write_calls: self.write_calls.load(Ordering::Relaxed),
            read_calls: self.read_calls.load(Ordering::Relaxed),
            write_units: Some(f64::from_bits(self.write_units.load(Ordering::Relaxed))),
            read_units: Some(f64::from_bits(self.read_units.load(Ordering::Relaxed))),
        }
    }
}

fn units<'c>(consumed: impl IntoIterator<Item = &'c ConsumedCapacity>) -> f64 {
    consumed.into_iter().filter_map(ConsumedCapacity::capacity_units).sum()
}

fn add(total: &AtomicU64, more: f64) {
    // Zero bits are 0.0, so that the default is a sum of nothing.
    let sum = |bits| Some((f64::from_bits(bits) + more).to_bits());
    let _ = total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_add_up() {
        let meter = Meter::default();
        let half = ConsumedCapacity::builder().capacity_units(0.5).build();
        for _ in 0..3 {
            meter.add_read_units([&half]);
        }
        meter.count_read();
        let usage = meter.usage();
        assert_eq!((usage.read_calls, usage.read_units, usage.write_units), (1, Some(1.5), Some(0.0)));
    }
}
