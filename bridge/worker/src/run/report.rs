//! What a session tells about itself.

use super::Session;
use super::engine::Event;
use crate::parts::{Adopted, LegParts, LogKind};
use crate::status::{Failover, FilterCause, LogPhase, OutboxDepth, QuotaStatus, RouteStatus, ServiceLevel, SessionRole};
use causeway_core::drops::{Direction, DropOutcome, DropReason, Dropped, NO_ROUTE};
use causeway_core::hold::Order;
use causeway_core::lease::row::OwnerFacts;
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::counters::{self, LegCounters};
use causeway_core::worker::{OwnerStatus, Phase};
use core::time::Duration;
use tracing::info;

impl Session {
    /// Publishes the session and its routes.
    pub(super) fn publish(&mut self) {
        let now = self.now();
        let wall = self.parts.clock.wall();
        if let Some(source) = &self.source {
            self.status.source = source.counters();
        }
        self.tell_source_drops();
        let owner = self.engine.owner().map(|(_, owner)| owner.status(wall));
        self.status.role = if owner.is_some() { SessionRole::Owner } else { SessionRole::Standby };
        self.status.draining = self.stopping;
        self.tell_of_quota(now);
        match &owner {
            Some(owner) => self.tell_of_owner(owner, wall),
            None => self.tell_of_standby(),
        }
        self.tell_of_senders(owner.as_ref().map(|owner| &*owner.legs));
        // What is due is stalled from the first moment on at which it was seen due and nothing had begun since.
        let due = self.engine.owner().is_some_and(|(_, owner)| owner.is_due());
        self.due_since = due.then(|| self.due_since.unwrap_or(now));
        self.status.drain_stalled_since = self.due_since;
        self.tell_the_lease();
        let mut routes: Vec<RouteStatus> = Vec::new();
        for (index, parts) in self.parts.legs.iter().enumerate() {
            let leg = self.leg_status(index, parts, owner.as_ref().and_then(|owner| owner.legs.get(index)));
            // The account of a route is that of all its legs.
            match routes.last_mut().filter(|route| route.id == leg.id) {
                Some(route) => route.add(&leg),
                None => routes.push(leg),
            }
        }
        match &self.parts.kind {
            LogKind::OfSession => self.parts.status.publish(self.status.clone(), routes),
            LogKind::OfProcess(adopted) => {
                let adopted = adopted.borrow().clone();
                add_all(&mut routes, &adopted.routes);
                (self.status.adopted_logs, self.status.adopting) = (adopted.logs, adopted.current);
                self.parts.status.publish(self.status.clone(), routes);
            }
            // The session's own loop tells of it.
            LogKind::Adopted(adopting) => {
                let before = &adopting.before;
                add_all(&mut routes, &before.routes);
                adopting.report.send_replace(Adopted { routes, current: Some(self.parts.log.to_string()), ..before.clone() });
            }
        }
        self.published_at = now;
        self.dirty = false;
    }

    /// Keeps in mind whether the lease row can be read.
    pub(super) fn note_lease(&mut self, event: &Event) {
        if let (Some(lease), Event::LeaseRead(answer)) = (&mut self.status.lease, event)
            && lease.watched != answer.is_ok()
        {
            lease.watched = answer.is_ok();
            self.dirty = true;
        }
    }

    /// Puts the level of service into the lease row with the next renewal, for people, and tells how long a failover took once it is full.
    fn tell_the_lease(&mut self) {
        let (now, wall) = (self.now(), self.parts.clock.wall());
        self.status.beat_at = now;
        let level = self.status.service(now);
        if level == ServiceLevel::Full && self.told_failover != Some(self.term) {
            self.told_failover = Some(self.term);
            self.tell_failover(wall);
        }
        if let Some(lease) = &mut self.status.lease {
            lease.held = self.status.role == SessionRole::Owner;
            lease.counters = self.engine.lease_counters();
            lease.acts_until = self.engine.acts_until();
        }
        let Some(lease) = self.parts.lease.as_ref().filter(|_| self.told_level != Some(level)) else { return };
        self.told_level = Some(level);
        let facts = OwnerFacts {
            service_level: Some(level.as_str().to_owned()),
            service_level_since: Some(wall),
            ..lease.member.candidate.facts.clone()
        };
        self.engine.tell(facts);
    }

    /// Full service under a lease that was another's: how long the session had been without it.
    fn tell_failover(&mut self, wall: UnixMillis) {
        let (now, version) = (self.now(), self.status.epoch.map_or(0, |epoch| epoch.0));
        let Some(handover) = self.engine.handover() else { return };
        let took = handover.until(now, wall);
        let (cause, start, from) = (handover.cause, handover.start, handover.from.as_deref().unwrap_or("-").to_owned());
        self.parts.metrics.observe_failover(&self.parts.session, cause, start, took);
        let seconds = took.as_secs_f64();
        info!(cause = cause.as_str(), start = start.as_str(), seconds, version, %from, "full service after a failover");
        if let Some(lease) = &mut self.status.lease {
            lease.last_failover = Some(Failover { cause, start, seconds, version, at: wall });
        }
    }

    /// Its part in the budget of the whole bridge.
    fn tell_of_quota(&mut self, now: Instant) {
        let Some(parts) = &self.parts.quota else { return };
        let node = self.engine.owner().and_then(|(_, owner)| owner.quota());
        let status = node.map(|node| node.status(now));
        let counters = node.map_or_else(
            || self.status.quota.as_ref().map(|quota| quota.counters).unwrap_or_default(),
            |node| self.quota_before.and(node.counters()),
        );
        self.status.quota = Some(QuotaStatus {
            name: parts.name.clone(),
            rate: parts.rate.clone(),
            tokens_local: status.map_or(0, |status| status.tokens_local),
            degraded: status.is_some_and(|status| status.degraded_since.is_some()),
            reached_since: status.and_then(|status| status.reached_since),
            counters,
        });
    }

    /// What the source dropped before it was known which route it belongs to.
    fn tell_source_drops(&mut self) {
        let source = &self.status.source;
        // What other sources bring says nothing by its quality of service.
        let kept_back_lost = if self.parts.acknowledge == Order::OfArrival { self.kept_back.lost() } else { 0 };
        for (reason, counted, what) in [
            (DropReason::NotReady, source.dropped_qos0, "a message of quality of service 0 found no room"),
            (
                DropReason::SessionLost,
                kept_back_lost,
                "its connection ended while it waited for room in an outbox, and no broker repeats quality of service 0",
            ),
            (
                DropReason::DecodeError,
                source.poison_lost,
                "a packet was malformed, or larger than the maximum packet size, and does not come again",
            ),
            (
                DropReason::RetriesExhausted,
                source.poison_dropped,
                "the queue gave it more often than poison_max_receives, and poison_drop_without_dlq says to drop it",
            ),
        ] {
            let told = self.source_drops.entry(reason).or_default();
            // A source of another term counts from 0 again.
            let many = counted.checked_sub(*told).unwrap_or(counted);
            *told = counted;
            if many == 0 {
                continue;
            }
            let dropped = Dropped {
                reason,
                direction: Direction::Ingress,
                outcome: DropOutcome::Lost,
                route: NO_ROUTE.into(),
                key: self.parts.session.clone(),
                topic: String::new(),
                qos: 0,
                detail: what.to_owned(),
            };
            self.parts.metrics.observe_drop(self.parts.clock.wall(), &dropped, many);
        }
    }

    fn tell_of_owner(&mut self, owner: &OwnerStatus, wall: UnixMillis) {
        let unloaded: u64 = owner.legs.iter().map(|leg| leg.counters.unloaded).sum();
        self.status.epoch = (owner.epoch.0 > 0).then_some(owner.epoch);
        self.status.log = match owner.phase {
            Phase::Opening => LogPhase::Opening,
            Phase::Recovering => LogPhase::Recovering,
            Phase::Running | Phase::Stopping => LogPhase::Running,
            Phase::Stopped => self.status.log,
        };
        let received_before = |age: Duration| UnixMillis(wall.0.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(0)));
        self.status.outbox = OutboxDepth {
            entries: owner.in_memory as u64 + unloaded + owner.unread,
            bytes: owner.in_memory_bytes as u64,
            oldest_received_at: owner.oldest_age.map(received_before),
        };
        self.status.held_up = owner.held_up as u64;
        self.status.parked = owner.deferred as u64;
        self.status.held_up_since = owner.held_up_since;
        self.status.paused = owner.phase == Phase::Running && !self.engine.wants_input(self.now());
    }

    fn tell_of_standby(&mut self) {
        self.status.epoch = None;
        self.status.outbox = OutboxDepth::default();
        self.status.paused = false;
        self.status.held_up = 0;
        self.status.parked = 0;
        self.status.held_up_since = None;
        if !matches!(self.status.log, LogPhase::Stopped | LogPhase::Fenced) {
            self.status.log = LogPhase::Opening;
        }
    }

    fn leg_status(&self, index: usize, parts: &LegParts, present: Option<&counters::LegStatus>) -> RouteStatus {
        let mut counters: LegCounters = self.engine.past(index);
        let (present, account) = (present.cloned().unwrap_or_default(), self.senders.account(index));
        counters.add(&present.counters);
        RouteStatus {
            id: parts.route.clone(),
            session: self.parts.session.clone(),
            received: counters.received,
            mailed: counters.mailed,
            recovered: counters.recovered,
            delivered: counters.delivered,
            dead_lettered: self.dead_letters.get(index).cloned().unwrap_or_default(),
            dropped: self.dropped.get(index).cloned().unwrap_or_default(),
            filtered: [(FilterCause::Filtered, counters.filtered), (FilterCause::Retained, counters.retained)]
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .collect(),
            expired: counters.expired,
            returned: counters.returned,
            handed_over: counters.handed_over,
            retries: self.retries.get(index).copied().unwrap_or(0),
            outbox_full: self.outbox_full.get(index).copied().unwrap_or(0),
            circuits_opened: self.circuits_opened.get(index).copied().unwrap_or(0),
            circuit: present.circuit,
            resumed: account.resumed,
            resumed_forced: account.forced,
            throttled: account.throttled,
            in_outbox: present.in_outbox,
            in_flight: present.pending + present.in_flight,
        }
    }
}

/// Adds the account of each route to the one at its place.
fn add_all(routes: &mut [RouteStatus], others: &[RouteStatus]) {
    for (route, other) in routes.iter_mut().zip(others) {
        route.add(other);
    }
}
