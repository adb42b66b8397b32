//! Managed subscriptions in this process's memory: for tests and demonstrations. A session that outlives the process is unknown to the next one.

use super::locked;
use async_trait::async_trait;
use causeway_core::outcome::{Fault, Outcome};
use causeway_ports::{Generation, ManagedSubscriptions};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Managed subscriptions in memory.
#[derive(Debug, Default)]
pub struct MemoryManagedSubscriptions {
    sessions: Mutex<BTreeMap<String, Account>>,
}

/// What is known of a session.
#[derive(Debug, Default)]
struct Account {
    filters: BTreeSet<String>,
    generation: Generation,
}

impl MemoryManagedSubscriptions {
    /// Nothing is known of any session.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl ManagedSubscriptions for MemoryManagedSubscriptions {
    async fn load(&self, identity: &str) -> Result<Option<BTreeSet<String>>, Fault> {
        Ok(locked(&self.sessions).get(identity).map(|account| account.filters.clone()))
    }

    async fn seed(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<bool> {
        Outcome::Done(match locked(&self.sessions).entry(identity.to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Account { filters: filters.clone(), generation: Generation(0) });
                true
            }
            Entry::Occupied(_) => false,
        })
    }

    async fn remember(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<Option<Generation>> {
        Outcome::Done(locked(&self.sessions).get_mut(identity).map(|account| {
            account.filters.extend(filters.iter().cloned());
            account.generation.0 += 1;
            account.generation
        }))
    }

    async fn forget(&self, identity: &str, filter: &str, generation: Generation) -> Outcome<bool> {
        let mut sessions = locked(&self.sessions);
        let account = sessions.get_mut(identity).filter(|account| account.generation == generation && generation > Generation(0));
        Outcome::Done(account.map(|account| account.filters.remove(filter)).is_some())
    }

    async fn probe(&self) -> Result<(), Fault> {
        Ok(())
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use causeway_ports::conformance::managed_subscriptions;
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn ManagedSubscriptions>, ()) {
        (Arc::new(MemoryManagedSubscriptions::new()), ())
    }
    causeway_ports::managed_subscriptions_conformance!(fresh);

    /// A store that forgets whoever asks for it.
    struct Unfenced(MemoryManagedSubscriptions);

    #[async_trait]
    impl ManagedSubscriptions for Unfenced {
        async fn load(&self, identity: &str) -> Result<Option<BTreeSet<String>>, Fault> {
            self.0.load(identity).await
        }

        async fn seed(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<bool> {
            self.0.seed(identity, filters).await
        }

        async fn remember(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<Option<Generation>> {
            self.0.remember(identity, filters).await
        }

        async fn forget(&self, identity: &str, filter: &str, generation: Generation) -> Outcome<bool> {
            let standing = locked(&self.0.sessions).get(identity).map_or(Generation(0), |account| account.generation);
            let asked = self.0.forget(identity, filter, generation).await.done().unwrap();
            self.0.forget(identity, filter, standing).await.done().unwrap();
            Outcome::Done(asked)
        }

        async fn probe(&self) -> Result<(), Fault> {
            self.0.probe().await
        }

        async fn create(&self) -> Result<Vec<String>, Fault> {
            self.0.create().await
        }
    }

    /// The suite can fail: it finds out a store that does not ask for the generation, though it answers as if it did.
    #[tokio::test]
    #[should_panic(expected = "it were never unsubscribed")]
    async fn a_store_that_forgets_for_anybody_breaks_the_contract() {
        let store = Arc::new(Unfenced(MemoryManagedSubscriptions::new()));
        managed_subscriptions::run("forgetting_late_takes_nothing_that_was_remembered_since", store).await;
    }
}
