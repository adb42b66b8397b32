//! Managed subscriptions whose network fails as the test says.

use super::injector::{Injection, Injector, injections};
use crate::{Generation, ManagedSubscriptions};
use async_trait::async_trait;
use causeway_core::outcome::{Fault, Outcome};
use std::collections::BTreeSet;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubscriptionCall {
    /// [`ManagedSubscriptions::load`].
    Load,
    /// [`ManagedSubscriptions::seed`].
    Seed,
    /// [`ManagedSubscriptions::remember`].
    Remember,
    /// [`ManagedSubscriptions::forget`].
    Forget,
    /// [`ManagedSubscriptions::probe`].
    Probe,
    /// [`ManagedSubscriptions::create`].
    Create,
}

/// Managed subscriptions between which and their caller things go wrong. Without an injection it is the store inside.
#[derive(Debug)]
pub struct FaultySubscriptions<M> {
    inner: M,
    injector: Injector<SubscriptionCall, Late>,
}

/// A write that is still under way.
#[derive(Clone, Debug)]
enum Late {
    Seed(String, BTreeSet<String>),
    Remember(String, BTreeSet<String>),
    Forget(String, String, Generation),
}

injections!(FaultySubscriptions, ManagedSubscriptions, SubscriptionCall);

impl<M: ManagedSubscriptions> FaultySubscriptions<M> {
    /// Lets the writes that are still under way take effect, in the order in which they were made; answers how many there were.
    pub async fn apply_late(&self) -> usize {
        let late = self.injector.take_late();
        for write in &late {
            // Nobody waits for the answers.
            match write {
                Late::Seed(identity, filters) => drop(self.inner.seed(identity, filters).await),
                Late::Remember(identity, filters) => drop(self.inner.remember(identity, filters).await),
                Late::Forget(identity, filter, generation) => drop(self.inner.forget(identity, filter, *generation).await),
            }
        }
        late.len()
    }
}

#[async_trait]
impl<M: ManagedSubscriptions> ManagedSubscriptions for FaultySubscriptions<M> {
    async fn load(&self, identity: &str) -> Result<Option<BTreeSet<String>>, Fault> {
        self.injector.read(SubscriptionCall::Load, self.inner.load(identity)).await
    }

    async fn seed(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<bool> {
        let late = || Late::Seed(identity.to_owned(), filters.clone());
        self.injector.write(SubscriptionCall::Seed, late, self.inner.seed(identity, filters)).await
    }

    async fn remember(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<Option<Generation>> {
        let late = || Late::Remember(identity.to_owned(), filters.clone());
        self.injector.write(SubscriptionCall::Remember, late, self.inner.remember(identity, filters)).await
    }

    async fn forget(&self, identity: &str, filter: &str, generation: Generation) -> Outcome<bool> {
        let late = || Late::Forget(identity.to_owned(), filter.to_owned(), generation);
        self.injector.write(SubscriptionCall::Forget, late, self.inner.forget(identity, filter, generation)).await
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.injector.read(SubscriptionCall::Probe, self.inner.probe()).await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.injector.read(SubscriptionCall::Create, self.inner.create()).await
    }
}
