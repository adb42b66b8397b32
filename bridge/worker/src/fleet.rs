//! The whole bridge as the lease table tells it: its members and who owns which session. Read in the background and only while somebody looks, so that
//! an answer waits for no store, and nobody pays for what nobody sees.

use crate::members::is_fresh;
use causeway_core::lease::row::{LeaseRow, RawLease};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::{Clock, Leases, MemberRecord};
use core::time::Duration;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// The table is read at most this often.
const PAUSE: Duration = Duration::from_secs(3);
/// Reading it takes no longer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The last look at the bridge. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Fleet(Option<Seen>);

#[derive(Clone, Debug)]
struct Seen {
    latest: watch::Receiver<Value>,
    asked: Arc<Notify>,
}

/// Looks.
pub struct FleetReader {
    /// Where leases and members are kept.
    leases: Arc<dyn Leases>,
    bridge: String,
    member_interval: Duration,
    clock: Arc<dyn Clock>,
    latest: watch::Sender<Value>,
    asked: Arc<Notify>,
}

impl core::fmt::Debug for FleetReader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FleetReader").field("bridge", &self.bridge).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Of the bridge whose members and leases are in `leases`; what looks has to be run. A process that shares nothing has no fleet.
    #[must_use]
    pub fn watch(leases: Arc<dyn Leases>, bridge: &str, member_interval: Duration, clock: Arc<dyn Clock>) -> (Self, FleetReader) {
        let (sender, latest) = watch::channel(Value::Null);
        let asked = Arc::new(Notify::new());
        let reader = FleetReader { leases, bridge: bridge.to_owned(), member_interval, clock, latest: sender, asked: Arc::clone(&asked) };
        (Self(Some(Seen { latest, asked })), reader)
    }

    /// What was seen last, `null` where nothing was or there is nothing to see. Asking has it looked at again soon.
    #[must_use]
    pub fn last_seen(&self) -> Value {
        let Some(seen) = &self.0 else { return Value::Null };
        seen.asked.notify_one();
        seen.latest.borrow().clone()
    }
}

impl FleetReader {
    /// Looks while somebody asks, until `quit`.
    pub async fn run(self, quit: CancellationToken) {
        let looking = async {
            loop {
                self.asked.notified().await;
                self.latest.send_replace(self.look().await);
                tokio::time::sleep(PAUSE).await;
            }
        };
        quit.run_until_cancelled(looking).await;
    }

    async fn look(&self) -> Value {
        let reading = async { tokio::try_join!(self.leases.list(), self.leases.list_members(&self.bridge)) };
        let late = || Fault::new(FaultCode::Timeout, format!("no answer within {} s", CALL_TIMEOUT.as_secs()));
        let read = tokio::time::timeout(CALL_TIMEOUT, reading).await.unwrap_or_else(|_| Err(late()));
        let now = self.clock.wall();
        match read {
            Err(fault) => json!({ "read_at": now, "fault": fault.to_string(), "leases": [], "members": [] }),
            Ok((leases, members)) => json!({
                "read_at": now,
                "fault": null,
                "leases": leases.into_iter().map(|(key, raw)| lease_view(&key, raw)).collect::<Vec<_>>(),
                "members": members
                    .iter()
                    .map(|member| member_view(member, is_fresh(member.written_at, now, self.member_interval)))
                    .collect::<Vec<_>>(),
            }),
        }
    }
}

/// A member as it is shown.
#[must_use]
pub fn member_view(member: &MemberRecord, fresh: bool) -> Value {
    json!({
        "owner": member.owner,
        "role": member.role,
        "state": if fresh { "fresh" } else { "stale" },
        "started_at": member.started_at,
        "written_at": member.written_at,
        "az": member.facts.az,
        "task_arn": member.facts.task_arn,
        "endpoints": member.facts.endpoints,
        "sessions": member.sessions,
    })
}

/// A lease as it is shown.
#[must_use]
pub fn lease_view(key: &str, raw: RawLease) -> Value {
    let facts = raw.facts.clone();
    match LeaseRow::try_from(raw) {
        Err(corrupt) => json!({ "lease": key, "state": "corrupt", "problem": corrupt.to_string() }),
        Ok(row) => json!({
            "lease": key,
            "state": if row.tuple.is_released() { "released" } else { "held" },
            "owner": row.tuple.owner,
            "version": row.tuple.version,
            "acquired_at": row.acquired_at,
            "renewed_at": row.tuple.renewed_at,
            "expires_at": row.tuple.expires_at,
            "observed_unchanged_ms": row.evidence.map(|evidence| evidence.elapsed_ns / 1_000_000),
            "endpoints": facts.endpoints,
            "az": facts.az,
            "task_arn": facts.task_arn,
            "service_level": facts.service_level,
            "service_level_since": facts.service_level_since,
            "left_because": facts.left_because,
            "left_since": facts.left_since,
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use causeway_local::memory::MemoryLeases;
    use causeway_ports::SystemClock;
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn a_look_is_taken_only_when_somebody_asks() {
        let leases: Arc<dyn Leases> = Arc::new(MemoryLeases::new());
        let member = MemberRecord {
            bridge: "b".to_owned(),
            owner: "one#1".to_owned(),
            role: "worker".to_owned(),
            sessions: BTreeMap::from([("s".to_owned(), "full".to_owned())]),
            written_at: SystemClock.wall(),
            ..MemberRecord::default()
        };
        let _ = leases.put_member(&member).await;
        let (fleet, reader) = Fleet::watch(Arc::clone(&leases), "b", Duration::from_secs(60), Arc::new(SystemClock));
        let mut latest = reader.latest.subscribe();
        let quit = CancellationToken::new();
        let running = tokio::spawn(reader.run(quit.clone()));
        assert_eq!(fleet.last_seen(), Value::Null, "nothing was looked at before");
        latest.changed().await.unwrap();
        let seen = fleet.last_seen();
        assert_eq!(seen["members"][0]["owner"], "one#1");
        assert_eq!((&seen["members"][0]["state"], &seen["members"][0]["sessions"]["s"]), (&json!("fresh"), &json!("full")));
        quit.cancel();
        running.await.unwrap();
    }

    #[test]
    fn who_shares_nothing_has_no_fleet() {
        assert_eq!(Fleet::default().last_seen(), Value::Null);
    }
}
