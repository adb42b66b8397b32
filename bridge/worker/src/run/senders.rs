//! What is known of the connections under the senders, and what the senders make of it.

use super::Session;
use super::dispatch::Dispatch;
use super::engine::Event;
use crate::parts::LegParts;
use crate::status::SenderStatus;
use causeway_core::flow::sender::{SenderLink, SenderPhase};
use causeway_core::units::Instant;
use causeway_core::worker;
use causeway_core::worker::counters;
use tokio::sync::watch;
use tracing::{info, warn};

/// What one leg's sender counted in this process, whoever owned its log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    pub(super) resumed: u64,
    pub(super) forced: u64,
    pub(super) throttled: u64,
}

/// The senders of a session, by leg.
pub(super) struct Senders {
    links: Vec<Option<watch::Receiver<SenderLink>>>,
    accounts: Vec<Account>,
    /// What was last told of each in the log.
    phases: Vec<SenderPhase>,
}

impl Senders {
    pub(super) fn new(legs: &[LegParts]) -> Self {
        Self {
            links: legs.iter().map(|leg| leg.sink.link()).collect(),
            accounts: vec![Account::default(); legs.len()],
            phases: vec![SenderPhase::default(); legs.len()],
        }
    }

    /// Tells a new owner how each connection is, and then of each change.
    pub(super) fn watch(&mut self, dispatch: &mut Dispatch) {
        for (leg, link) in self.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            if *link.borrow() != SenderLink::default() {
                link.mark_changed();
            }
            dispatch.watch_link(leg, link.clone());
        }
    }

    /// Of a connection that changed the owner is told how it is by now, and the next change is waited for.
    pub(super) fn follow(&mut self, event: Event, dispatch: &mut Dispatch) -> Event {
        let Event::Owner(term, worker::Event::SenderLink { leg, link }) = event else { return event };
        let Some(watched) = self.links.get_mut(leg).and_then(Option::as_mut) else {
            return Event::Owner(term, worker::Event::SenderLink { leg, link });
        };
        let link = *watched.borrow_and_update();
        dispatch.watch_link(leg, watched.clone());
        Event::Owner(term, worker::Event::SenderLink { leg, link })
    }

    pub(super) fn throttled(&mut self, leg: usize) {
        if let Some(account) = self.accounts.get_mut(leg) {
            account.throttled += 1;
        }
    }

    pub(super) fn resumed(&mut self, leg: usize, forced: bool) {
        if let Some(account) = self.accounts.get_mut(leg) {
            *(if forced { &mut account.forced } else { &mut account.resumed }) += 1;
        }
    }

    pub(super) fn account(&self, leg: usize) -> Account {
        self.accounts.get(leg).copied().unwrap_or_default()
    }

    /// A picture of the sender of each leg; what changed since the last one is logged.
    fn picture(&mut self, now: Instant, legs: &[LegParts], present: Option<&[counters::LegStatus]>) -> Vec<SenderStatus> {
        let mut pictures = Vec::with_capacity(legs.len());
        for (index, parts) in legs.iter().enumerate() {
            let sender = present.and_then(|legs| legs.get(index)).map(|leg| leg.sender).unwrap_or_default();
            if let Some(told) = self.phases.get_mut(index).filter(|told| **told != sender.phase) {
                *told = sender.phase;
                let (route, binding, phase) = (&parts.route, &parts.destination.binding, sender.phase.as_str());
                match sender.phase {
                    SenderPhase::Running => info!(%route, %binding, phase, "the sender sends"),
                    _ => warn!(%route, %binding, phase, "the sender does not send as usual; nothing is lost meanwhile"),
                }
            }
            let pending_bytes = self.links.get(index).and_then(Option::as_ref).map_or(0, |link| link.borrow().pending_bytes);
            pictures.push(SenderStatus {
                sender: parts.sender.clone(),
                route: parts.route.clone(),
                binding: parts.destination.binding.clone(),
                phase: sender.phase,
                phase_ms: sender.since.map(|since| u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX)),
                window: sender.window as u64,
                in_flight: sender.in_flight as u64,
                unacked_bytes: sender.unacked_bytes as u64,
                pending_bytes,
            });
        }
        pictures
    }
}

impl Session {
    /// Asks the source for nothing while no destination takes anything: what is there stays there.
    pub(super) fn pause_source(&mut self) {
        let wanted = self.parts.pause_source && self.engine.owner().is_some_and(|(_, owner)| owner.senders_pause());
        let Some(source) = self.source.as_mut().filter(|_| wanted != self.status.source_paused) else { return };
        source.pause(wanted);
        self.status.source_paused = wanted;
        self.dirty = true;
        if wanted {
            info!("no destination takes anything: nothing more is received until one does");
        } else {
            info!("a destination takes messages again: receiving goes on");
        }
    }

    /// Takes what the senders do into the status.
    pub(super) fn tell_of_senders(&mut self, present: Option<&[counters::LegStatus]>) {
        self.status.senders = self.senders.picture(self.parts.clock.now(), &self.parts.legs, present);
    }
}
