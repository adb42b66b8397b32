//! Deleting dead letters once their retention is over, where their store does not do so by itself.

use crate::telemetry::Metrics;
use causeway_core::outcome::{Fault, Outcome};
use causeway_ports::{Clock, OldLetters};
use core::time::Duration;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Letters deleted by one call: others write in between.
const AT_ONCE: usize = 200;
/// A store is looked at this often at least, and at most this often.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));

/// Deletes what is too old, now and then.
#[derive(Clone)]
pub struct Retention {
    /// Where the letters are.
    pub letters: Arc<dyn OldLetters>,
    /// For how long they are kept.
    pub keep: Duration,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Where it is counted.
    pub metrics: Metrics,
}

impl core::fmt::Debug for Retention {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Retention").field("keep", &self.keep).finish_non_exhaustive()
    }
}

impl Retention {
    /// Until `quit`: at once, and then so often that nothing is kept longer than a tenth of its time beyond it (an hour at most).
    pub async fn run(self, quit: CancellationToken) {
        let (least, most) = PAUSES;
        let pause = (self.keep / 10).clamp(least, most);
        while !quit.is_cancelled() {
            match self.sweep(&quit).await {
                (0, None) => {}
                (deleted, None) => info!(deleted, "dead letters older than their retention were deleted"),
                (deleted, Some(fault)) => {
                    warn!(deleted, code = fault.code.as_str(), detail = %fault.detail, "old dead letters could not be deleted; it is tried again")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = quit.cancelled() => {}
            }
        }
    }

    /// Deletes all that is too old now; answers how many, and what it failed of.
    async fn sweep(&self, quit: &CancellationToken) -> (usize, Option<Fault>) {
        let keep = u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX);
        let before = causeway_core::units::UnixMillis(self.clock.wall().0.saturating_sub(keep));
        let mut deleted = 0;
        while !quit.is_cancelled() {
            match self.letters.delete_old(before, AT_ONCE).await {
                Outcome::Done(some) => {
                    deleted += some;
                    if some > 0 {
                        self.metrics.observe_deleted_letters(some);
                    }
                    if some < AT_ONCE {
                        break;
                    }
                }
                Outcome::NotDone(fault) | Outcome::Unknown(fault) => return (deleted, Some(fault)),
            }
        }
        (deleted, None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use causeway_core::dead_letter::{DeadLetter, DeadLetterState, Destination};
    use causeway_core::identity::Id128;
    use causeway_core::message::{Entry, Message};
    use causeway_core::outcome::FaultCode;
    use causeway_core::units::UnixMillis;
    use causeway_local::memory::MemoryDeadLetters;
    use causeway_local::sqlite::{OpenMode, SqliteStore};
    use causeway_ports::{DeadLetterFilter, DeadLetters, SystemClock};

    fn letter(id: u128, failed_at: UnixMillis, state: DeadLetterState) -> DeadLetter {
        let entry = Entry {
            id: Id128(id),
            route: "r".into(),
            binding: "b".into(),
            address: None,
            refusal: None,
            source: "in".into(),
            received_at: failed_at,
            expires_at: None,
            message: Message::default(),
            redrive: None,
        };
        let fault = Fault::new(FaultCode::InvalidPayload, "no");
        DeadLetter { state, ..DeadLetter::new(&entry, &Destination::default(), &fault, 1, failed_at) }
    }

    async fn keeps_the_young<S: OldLetters + DeadLetters + 'static>(store: S) {
        let store = Arc::new(store);
        let now = SystemClock.wall();
        let old = UnixMillis(now.0 - 61_000);
        // More than one call deletes.
        for id in 0..=AT_ONCE as u128 {
            store.park(&letter(1_000 + id, old, DeadLetterState::Dead)).await.done().unwrap();
        }
        store.park(&letter(1, old, DeadLetterState::Parked)).await.done().unwrap();
        store.park(&letter(2, old, DeadLetterState::Redriven)).await.done().unwrap();
        store.park(&letter(3, now, DeadLetterState::Dead)).await.done().unwrap();
        let metrics = Metrics::default();
        let retention = Retention {
            letters: Arc::clone(&store) as Arc<dyn OldLetters>,
            keep: Duration::from_secs(60),
            clock: Arc::new(SystemClock),
            metrics: metrics.clone(),
        };
        assert_eq!(retention.sweep(&CancellationToken::new()).await, (AT_ONCE + 2, None));
        let left = store.list(&DeadLetterFilter::default(), 100, None).await.unwrap().letters;
        assert_eq!(left.iter().map(|letter| letter.id.0).collect::<Vec<_>>(), [2, 3], "a tombstone has a time of its own");
        assert_eq!(retention.sweep(&CancellationToken::new()).await, (0, None));
        let counted = metrics.gather().into_iter().find(|family| family.definition.name == "dlq_deleted_total").unwrap();
        assert_eq!(counted.series[0].sample, crate::telemetry::registry::Sample::Value((AT_ONCE + 2) as f64));
    }

    #[tokio::test]
    async fn letters_in_memory_end_with_their_retention() {
        keeps_the_young(MemoryDeadLetters::new()).await;
    }

    #[tokio::test]
    async fn letters_in_sqlite_end_with_their_retention() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("letters.db");
        SqliteStore::create(&path).unwrap();
        keeps_the_young(SqliteStore::open(&path, OpenMode::ReadWrite).unwrap().dead_letters()).await;
    }
}
