//! What the program measures and how it tells: one catalogue of metrics, two exports, structured logs.
//!
//! Two ways lead in. What happens once and is gone (an append's latency, a send's result) is observed by one function per observation on
//! [`Metrics`]. What has a running total anyway is taken from the status snapshot and the adapters' own counters when somebody looks
//! ([`collect`]), so that the status page and the metrics cannot disagree.

pub mod collect;
pub mod emf;
pub mod listing;
pub mod logs;
pub mod prometheus;
pub mod registry;

pub use crate::drop_ledger::DropBook;
use causeway_core::drops::{DropOutcome, DropReason, Dropped};
use causeway_core::ingress::Unknown;
pub use causeway_core::metrics::{AppendResult, PostResult};
use causeway_core::metrics::{FailoverCause, FailoverStart, Metric};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use core::time::Duration;
use registry::{FamilySnapshot, Registry};
use std::sync::Arc;

/// The values of all metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Registry>, DropBook);

impl Metrics {
    /// An append of a segment with `entries` entries of `bytes` packed bytes ended after `latency`.
    pub fn observe_append(&self, session: &str, result: AppendResult, latency: Duration, entries: usize, bytes: usize) {
        self.0.add(Metric::Appends, &[session, result.as_str()], 1.0);
        self.0.observe(Metric::AppendLatency, &[session], [latency.as_secs_f64()]);
        if result == AppendResult::Stored {
            self.0.observe(Metric::SegmentEntries, &[session], [float(entries)]);
            self.0.observe(Metric::SegmentBytes, &[session], [float(bytes)]);
        }
    }

    /// An append did not end well: `fault` says whether it may still take effect.
    pub fn observe_append_fault(&self, session: &str, fault: &Fault) {
        let result = match fault.code {
            FaultCode::Timeout | FaultCode::ConnectionLost => AppendResult::Unknown,
            _ => AppendResult::NotDone,
        };
        self.0.add(Metric::Appends, &[session, result.as_str()], 1.0);
    }

    /// A batch's send ended after `latency` with these outcomes, one for each entry.
    pub fn observe_send(&self, route: &str, latency: Duration, outcomes: &[Outcome<()>]) {
        self.0.observe(Metric::SendLatency, &[route], [latency.as_secs_f64()]);
        self.0.observe(Metric::SendBatchEntries, &[route], [float(outcomes.len())]);
        let done = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(()))).count();
        if done > 0 {
            self.0.add(Metric::SendResults, &[route, "done", "NONE"], float(done));
        }
        for outcome in outcomes {
            match outcome {
                Outcome::Done(()) => {}
                Outcome::NotDone(fault) => self.0.add(Metric::SendResults, &[route, "not_done", fault.code.as_str()], 1.0),
                Outcome::Unknown(fault) => self.0.add(Metric::SendResults, &[route, "unknown", fault.code.as_str()], 1.0),
            }
        }
    }

    /// Entries were handed to their first send, each so long after it had been persisted.
    pub fn observe_dispatch_delays(&self, route: &str, delays: impl IntoIterator<Item = Duration>) {
        self.0.observe(Metric::DispatchDelay, &[route], delays.into_iter().map(|delay| delay.as_secs_f64()));
    }

    /// The destination accepted messages, each so long after it had been received.
    pub fn observe_deliveries(&self, route: &str, ages: impl IntoIterator<Item = Duration>) {
        self.0.observe(Metric::DeliveryLatency, &[route], ages.into_iter().map(|age| age.as_secs_f64()));
    }

    /// A session that another owned before is at full service here, so long after that one failed or gave it back.
    pub fn observe_failover(&self, session: &str, cause: FailoverCause, start: FailoverStart, took: Duration) {
        self.0.observe(Metric::FailureToFull, &[session, cause.as_str(), start.as_str()], [took.as_secs_f64()]);
    }

    /// A session reached full service with another owner, as one that watches saw it, so many seconds after its former owner failed or gave it back.
    pub fn observe_watched_failover(&self, session: &str, cause: FailoverCause, seconds: f64) {
        self.0.observe(Metric::FleetFailover, &[session, cause.as_str()], [seconds]);
    }

    /// A message was posted to `receiver`.
    pub fn count_post(&self, receiver: &str, result: PostResult) {
        self.0.add(Metric::HttpPosts, &[receiver, result.as_str()], 1.0);
    }

    /// A post to `receiver` found no owner.
    pub fn count_unknown_owner(&self, receiver: &str, why: Unknown) {
        self.0.add(Metric::RouteOwnerUnknown, &[receiver, why.as_str()], 1.0);
    }

    /// Messages were dropped alike, `many` of them: the counter and the ledger have them at once, so neither can differ from the other.
    pub fn observe_drop(&self, at: UnixMillis, dropped: &Dropped, many: u64) {
        let labels = [dropped.reason.as_str(), dropped.direction.as_str(), &*dropped.route, dropped.outcome.as_str()];
        self.0.add(Metric::DroppedMessages, &labels, many as f64);
        self.1.record(at, dropped, many);
    }

    /// Every series of a route's drops, so that each has a value from the start on.
    pub fn announce_drops(&self, route: &str) {
        for reason in DropReason::ALL {
            for direction in reason.directions() {
                for outcome in DropOutcome::ALL {
                    self.0.add(Metric::DroppedMessages, &[reason.as_str(), direction.as_str(), route, outcome.as_str()], 0.0);
                }
            }
        }
    }

    /// What was dropped and waits to be written into the ledger.
    #[must_use]
    pub const fn drops(&self) -> &DropBook {
        &self.1
    }

    /// So many dead letters were deleted, because their retention was over.
    pub fn observe_deleted_letters(&self, letters: usize) {
        self.0.add(Metric::DlqDeleted, &[], float(letters));
    }

    /// Every series that has a value.
    #[must_use]
    pub fn gather(&self) -> Vec<FamilySnapshot> {
        self.0.gather()
    }
}

/// Counts are far below 2^53: nothing is lost.
const fn float(count: usize) -> f64 {
    count as f64
}
