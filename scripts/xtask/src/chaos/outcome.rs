//! What became of a scenario.

use serde::Serialize;

/// The sums of one scenario.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Outcome {
    pub name: &'static str,
    /// `--only NAME --seed SEED` draws the same again.
    pub seed: u64,
    pub ok: bool,
    /// Messages that the broker acknowledged to the publisher.
    pub published: u64,
    /// Messages a second that the publisher reached.
    pub rate: f64,
    /// Never delivered, and the bridge's to lose: a worker had acknowledged them, or the broker kept them.
    pub lost: u64,
    /// Never delivered, and never acknowledged by a worker: forgotten by a broker that was to forget.
    pub lost_by_broker: u64,
    pub corrupted: u64,
    pub duplicates: u64,
    /// The most duplicates that what happened explains.
    pub bound: u64,
    /// How often the lease changed hands.
    pub hand_overs: u64,
    /// From a fault until the successor was at full service, in seconds.
    pub failovers: Vec<f64>,
    /// The computed worst case of the slowest of them.
    pub budget: Option<f64>,
    pub seconds: f64,
    /// What was drawn and seen.
    pub notes: Vec<String>,
    /// Everything that is wrong.
    pub faults: Vec<String>,
}

impl Outcome {
    pub(super) fn heading() -> String {
        "scenario           result  published   rate  lost  broker's  corrupt  duplicates (bound)  hands  failover s  seconds  drawn"
            .to_owned()
    }

    pub(super) fn row(&self) -> String {
        let failover = self.failovers.iter().copied().reduce(f64::max).map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}"));
        format!(
            "{:<18} {:<6} {:>10} {:>6.0} {:>5} {:>9} {:>8} {:>11} {:>8} {:>5} {:>11} {:>8.0}  {}",
            self.name,
            if self.ok { "ok" } else { "FAILED" },
            self.published,
            self.rate,
            self.lost,
            self.lost_by_broker,
            self.corrupted,
            self.duplicates,
            format!("({})", self.bound),
            self.hand_overs,
            failover,
            self.seconds,
            self.notes.join("; ")
        )
    }
}
