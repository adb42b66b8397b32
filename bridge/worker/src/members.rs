//! The process's own row among the members of its bridge: who runs, where it is reached, and what it gives to each session. For people, for hints, and
//! for housekeeping, which stays away while somebody lives. No decision about ownership depends on it.

use crate::status::{BridgeStatus, StatusBoard};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{Clock, Leases, MemberRecord};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// One call to the store takes no longer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Removing the row at the end takes no longer: the process is about to be gone, and the row tells its age.
const FAREWELL: Duration = Duration::from_millis(1_500);
/// Changes are written at most this often.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// A row that was not written for so many intervals is of a process that is gone.
const STALE_AFTER: u32 = 3;

/// Whether a record that was written at `written_at` tells of a process that lives, seen at `now`. Compares two hosts' wall clocks: for people, and for
/// what may wait.
#[must_use]
pub fn is_fresh(written_at: UnixMillis, now: UnixMillis, interval: Duration) -> bool {
    now.since(written_at) < stale_after(interval)
}

/// How old a row may be that is written so often.
#[must_use]
pub fn stale_after(interval: Duration) -> Duration {
    interval * STALE_AFTER
}

/// Writes the row.
pub struct Membership {
    /// Where members are kept.
    pub leases: Arc<dyn Leases>,
    /// The row, but for the sessions and the time.
    pub record: MemberRecord,
    /// How often it is written although nothing changed.
    pub interval: Duration,
    /// Tells of the sessions.
    pub status: StatusBoard,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

impl core::fmt::Debug for Membership {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Membership").field("record", &self.record).field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl Membership {
    /// Keeps the row until `quit`, then removes it.
    pub async fn run(mut self, quit: CancellationToken) {
        let mut changes = self.status.changes();
        let mut failing = false;
        while !quit.is_cancelled() {
            changes.mark_unchanged();
            self.record.sessions = levels(&self.status.snapshot());
            self.record.written_at = self.clock.wall();
            let wrote = tokio::select! {
                wrote = bounded(CALL_TIMEOUT, self.leases.put_member(&self.record)) => wrote,
                () = quit.cancelled() => break,
            };
            note(wrote, &mut failing);
            let pause = tokio::time::sleep(self.interval);
            let changed = self.changed(&mut changes);
            tokio::select! {
                () = async { tokio::select! { () = pause => {}, () = changed => {} } } => {}
                () = quit.cancelled() => break,
            }
        }
        let removed = bounded(FAREWELL, self.leases.remove_member(&self.record.bridge, &self.record.owner)).await;
        if let Err(fault) = removed {
            debug!(%fault, "the member's row could not be removed; it goes stale");
        }
    }

    /// Waits until a session's level is another than the one that was written.
    async fn changed(&self, changes: &mut tokio::sync::watch::Receiver<BridgeStatus>) {
        tokio::time::sleep(LEAST_PAUSE).await;
        while levels(&self.status.snapshot()) == self.record.sessions {
            if changes.changed().await.is_err() {
                // The board outlives this task; nothing more comes.
                core::future::pending::<()>().await;
            }
        }
    }
}

fn levels(status: &BridgeStatus) -> BTreeMap<String, String> {
    status.sessions.iter().map(|session| (session.id.clone(), session.service_level.as_str().to_owned())).collect()
}

async fn bounded(limit: Duration, call: impl Future<Output = Outcome<()>>) -> Result<(), Fault> {
    match tokio::time::timeout(limit, call).await {
        Ok(Outcome::Done(())) => Ok(()),
        Ok(Outcome::NotDone(fault) | Outcome::Unknown(fault)) => Err(fault),
        Err(_) => Err(Fault::new(FaultCode::Timeout, format!("no answer within {} ms", limit.as_millis()))),
    }
}

/// Says it when writing begins to fail and when it works again.
fn note(wrote: Result<(), Fault>, failing: &mut bool) {
    match (wrote, *failing) {
        (Ok(()), true) => {
            *failing = false;
            info!("the member's row is written again");
        }
        (Err(fault), false) => {
            *failing = true;
            warn!(code = fault.code.as_str(), detail = %fault.detail, "the member's row cannot be written; hints may not reach this process");
        }
        (Ok(()), false) | (Err(_), true) => {}
    }
}
