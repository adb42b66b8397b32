//! The account of managed subscriptions: what the session may have at its broker is brought to what the worker's configuration wants.

use crate::broker::ConnectionId;
use crate::event::{AccountCall, Packet, Reply, Request};
use crate::faults::Link;
use crate::seen::Sight;
use crate::worker::{Awaited, Phase};
use crate::world::World;
use causeway_core::outcome::Outcome;
use causeway_core::subscriptions::{UnknownHistory, plan};
use std::collections::BTreeSet;

impl World {
    pub(crate) fn call_account(&mut self, worker: usize, connection: ConnectionId, call: AccountCall) {
        let timeout = self.knobs.cadence.renew_call_timeout.unsigned_abs();
        let awaited = Awaited::Account { connection, call: call.clone() };
        self.call(worker, Link::Store, awaited, Request::Account(call), timeout);
    }

    pub(crate) fn account_answered(&mut self, worker: usize, connection: ConnectionId, call: &AccountCall, reply: Reply) {
        if self.workers[worker].source.as_ref().is_none_or(|source| source.phase != Phase::Connected(connection)) {
            return;
        }
        match (call, reply) {
            (AccountCall::Load, Reply::Filters(Ok(history))) => self.plan(worker, connection, history.as_ref()),
            (AccountCall::Seed, Reply::AccountWritten(Outcome::Done(true))) => {
                self.seen.note(Sight::BaselineSeeded);
                self.go_on_with_account(worker, connection);
            }
            (AccountCall::Remember(_), Reply::Remembered(Outcome::Done(Some(generation)))) => {
                if let Some(source) = &mut self.workers[worker].source {
                    source.generation = generation;
                }
                self.go_on_with_account(worker, connection);
            }
            // Somebody else made the row, or it is gone: look again.
            (AccountCall::Seed, Reply::AccountWritten(Outcome::Done(false)))
            | (AccountCall::Remember(_), Reply::Remembered(Outcome::Done(None))) => {
                self.call_account(worker, connection, AccountCall::Load);
            }
            // What could not be forgotten is unsubscribed again at the next connection.
            (AccountCall::Forget(..), _) => {}
            (AccountCall::Load | AccountCall::Seed | AccountCall::Remember(_), _) => self.give_connection_up(worker, connection),
        }
    }

    fn plan(&mut self, worker: usize, connection: ConnectionId, history: Option<&BTreeSet<String>>) {
        let subject = &mut self.workers[worker];
        let Some(source) = &mut subject.source else { return };
        match plan(history, &subject.desired, source.session_present, true) {
            Ok(planned) => {
                if !planned.unsubscribe.is_empty() {
                    self.seen.note(Sight::SubscriptionsReconciled);
                }
                source.plan = planned;
                self.go_on_with_account(worker, connection);
            }
            // A connection made the session and ended before the account began. Only a person can tell what the session has: here it is right.
            Err(UnknownHistory::SessionPresent | UnknownHistory::NotSeeded) => {
                self.seen.note(Sight::BaselineToldByHand);
                self.stores.tell_filters(self.broker.filters().clone());
                self.give_connection_up(worker, connection);
            }
        }
    }

    /// The next step: seed, remember, then unsubscribe and subscribe.
    fn go_on_with_account(&mut self, worker: usize, connection: ConnectionId) {
        let subject = &mut self.workers[worker];
        let Some(source) = &mut subject.source else { return };
        if core::mem::take(&mut source.plan.seed) {
            return self.call_account(worker, connection, AccountCall::Seed);
        }
        let remember = core::mem::take(&mut source.plan.remember);
        if !remember.is_empty() {
            return self.call_account(worker, connection, AccountCall::Remember(remember));
        }
        let (unsubscribe, desired) = (core::mem::take(&mut source.plan.unsubscribe), subject.desired.clone());
        for filter in unsubscribe {
            self.send_out(connection, Packet::Unsubscribe(filter));
        }
        self.send_out(connection, Packet::Subscribe(desired));
    }

    fn give_connection_up(&mut self, worker: usize, connection: ConnectionId) {
        self.send_out(connection, Packet::End);
        self.connection_ended(worker, connection);
    }

    /// What is remembered is never less than what the broker has.
    pub(crate) fn check_account(&mut self) {
        let known = self.stores.filters();
        let unknown: Vec<&String> =
            self.broker.filters().iter().filter(|filter| known.is_none_or(|known| !known.contains(*filter))).collect();
        if !unknown.is_empty() {
            self.fail(format!("S9: the broker has {unknown:?}, and nobody remembers; known are {known:?}"));
        }
    }

    /// Whether the broker has exactly what the one who may act wants, and the account tells exactly that.
    pub(crate) fn account_is_settled(&self) -> bool {
        let acting = self.workers.iter().find(|worker| worker.may_act(self.now));
        acting.is_some_and(|worker| worker.desired == *self.broker.filters())
    }
}
