//! Logs on stderr, and one line of metrics on stdout after each run.

use causeway_core::metrics::Metric;
use causeway_core::metrics::emf::{Identity, Item, line};
use causeway_core::units::UnixMillis;
use std::io::Write as _;
use tracing_subscriber::EnvFilter;

/// Starts JSON logs on stderr, which CloudWatch Logs keeps beside the metrics. `RUST_LOG` says more or less.
pub fn start_logs() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().json().with_writer(std::io::stderr).with_env_filter(filter).with_current_span(false);
    // Only a second start fails, and the first one's logs go on.
    drop(logs.try_init());
}

/// Tells metrics of one bridge.
#[derive(Clone, Debug)]
pub struct Emitter {
    identity: Identity,
}

impl Emitter {
    /// Metrics of `bridge_id`, told by the function `name`.
    #[must_use]
    pub fn new(bridge_id: &str, name: &str) -> Self {
        Self { identity: Identity { bridge_id: bridge_id.to_owned(), instance_id: name.to_owned() } }
    }

    /// The line for these values.
    #[must_use]
    pub fn line(&self, values: &[(Metric, f64)], now: UnixMillis) -> String {
        let items: Vec<Item> = values.iter().map(|(metric, value)| Item::new(*metric, *value)).collect();
        line(&self.identity, &[], &items, now)
    }

    /// Writes the line. A stdout that cannot be written is nobody's reason to fail.
    pub fn emit(&self, values: &[(Metric, f64)], now: UnixMillis) {
        let line = self.line(values, now);
        drop(writeln!(std::io::stdout().lock(), "{line}"));
    }
}
