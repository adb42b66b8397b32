//! Leaving the groups of shared subscriptions while this process does not get on: looks for others that do, which `core/flow/share` decides about.

use crate::levels::ServiceLevel;
use crate::members::is_fresh;
use crate::parts::{SessionParts, ShareParts};
use causeway_core::flow::share::{Change, Share};
use causeway_core::units::Instant;
use causeway_ports::{Clock, MemberRecord, SourceCounters};
use core::time::Duration;
use std::sync::Arc;
use tokio::task::JoinSet;
use tracing::debug;

/// One look at the members takes no longer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// The process's place in the groups of its session.
pub(super) struct Groups {
    parts: ShareParts,
    session: String,
    owner: String,
    clock: Arc<dyn Clock>,
    share: Share,
    looks: JoinSet<bool>,
}

impl Groups {
    /// In the groups; `None` where it never leaves them.
    pub(super) fn of(parts: &SessionParts) -> Option<Self> {
        let share = parts.share.clone()?;
        Some(Self {
            share: Share::new(share.plan.unshare_after),
            parts: share,
            session: parts.session.clone(),
            owner: parts.owner.clone(),
            clock: Arc::clone(&parts.clock),
            looks: JoinSet::new(),
        })
    }

    /// How the session stands now. Begins a look for others where it is time for one.
    pub(super) fn see(&mut self, now: Instant, wants_input: bool, source: &SourceCounters) -> Option<Change> {
        let takes = wants_input && may_bring(source, self.parts.plan.receive_maximum);
        let change = self.share.see(now, takes, source.acknowledged);
        if self.looks.is_empty() && self.share.asks(now) {
            self.look();
        }
        change
    }

    fn look(&mut self) {
        let (leases, bridge, session, owner) =
            (Arc::clone(&self.parts.leases), self.parts.bridge.clone(), self.session.clone(), self.owner.clone());
        let (clock, interval) = (Arc::clone(&self.clock), self.parts.plan.member_interval);
        self.looks.spawn(async move {
            match tokio::time::timeout(LOOK_TIMEOUT, leases.list_members(&bridge)).await {
                Ok(Ok(members)) => {
                    let now = clock.wall();
                    members.iter().any(|member| is_fresh(member.written_at, now, interval) && serves(member, &session, &owner))
                }
                Ok(Err(fault)) => {
                    debug!(%fault, "nobody knows whether another process takes messages");
                    false
                }
                Err(_) => false,
            }
        });
    }

    /// Waits for the answer to a look, and takes it in; never, while none is under way. Cancel-safe.
    pub(super) async fn looked(&mut self) {
        match self.looks.join_next().await {
            Some(answer) => self.share.told(self.clock.now(), answer.unwrap_or(false)),
            None => core::future::pending().await,
        }
    }

    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        self.share.wake_at(now)
    }

    pub(super) const fn is_away(&self) -> bool {
        self.share.is_away()
    }

    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.share.is_stuck(now)
    }
}

/// Whether the source may bring more: the window of unacknowledged messages has room, and it is read.
fn may_bring(source: &SourceCounters, receive_maximum: u16) -> bool {
    !source.reading_paused && source.unacknowledged < u64::from(receive_maximum)
}

/// Whether a member is another one that takes what this session's groups get.
fn serves(member: &MemberRecord, session: &str, own: &str) -> bool {
    member.owner != own && member.sessions.get(session).is_some_and(|level| level == ServiceLevel::Full.as_str())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_source_with_a_full_window_or_as_many_bytes_as_may_be_brings_nothing() {
        let of = |unacknowledged, reading_paused| SourceCounters { unacknowledged, reading_paused, ..SourceCounters::default() };
        assert!(may_bring(&of(9, false), 10));
        assert!(!may_bring(&of(10, false), 10));
        assert!(!may_bring(&of(1, true), 10));
    }

    #[test]
    fn only_another_one_with_full_service_counts() {
        let member = |owner: &str, level: &str| MemberRecord {
            owner: owner.to_owned(),
            sessions: [("s".to_owned(), level.to_owned())].into(),
            ..MemberRecord::default()
        };
        assert!(serves(&member("b#1", "full"), "s", "a#1"));
        assert!(!serves(&member("a#1", "full"), "s", "a#1"));
        assert!(!serves(&member("b#1", "degraded"), "s", "a#1"));
        assert!(!serves(&member("b#1", "full"), "other", "a#1"));
    }
}
