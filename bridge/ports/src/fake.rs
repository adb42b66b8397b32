//! Doubles of the ports for tests. They behave (a broker redelivers, a store forgets nothing, a sink loses answers) instead of expecting a
//! certain sequence of calls, so that a test says what happens outside and checks what came of it.
//!
//! Nothing here waits for real time by itself: what waits is told when to go on, or uses tokio's clock, which a test may pause.

mod broker;
mod clock;
mod dead_letters;
mod faulty_leases;
mod faulty_mailbox;
mod faulty_outbox;
mod faulty_subscriptions;
mod injector;
mod sink;

pub use broker::{FakeBroker, FakeSource};
pub use clock::FakeClock;
pub use dead_letters::FakeDeadLetters;
pub use faulty_leases::{FaultyLeases, LeaseCall};
pub use faulty_mailbox::{FaultyMailbox, MailboxCall};
pub use faulty_outbox::{FaultyOutbox, OutboxCall};
pub use faulty_subscriptions::{FaultySubscriptions, SubscriptionCall};
pub use injector::Injection;
pub use sink::{FakeSink, SinkAnswer};

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A double's state, and a bell that rings with every change of it.
#[derive(Debug, Default)]
struct Shared<T> {
    state: Mutex<T>,
    changed: Notify,
}

impl<T> Shared<T> {
    fn new(state: T) -> Self {
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Looks at the state. A test that panicked elsewhere does not hide what the double saw.
    fn look(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and rings.
    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.look());
        self.changed.notify_waiters();
        result
    }

    /// Waits until `ready` answers something, looking again after every change. Cancel-safe as long as `ready` takes only what it answers.
    async fn wait_for<R>(&self, mut ready: impl FnMut(&mut T) -> Option<R>) -> R {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that a change between the look and the wait is not missed.
            changed.as_mut().enable();
            if let Some(result) = ready(&mut self.look()) {
                return result;
            }
            changed.await;
        }
    }
}
