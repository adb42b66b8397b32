//! Managed subscriptions in this process's memory: for tests and demonstrations. A session that outlives the process is unknown to the next one.

use super::locked;
use async_trait::async_trait;
use causeway_core::outcome::{Fault, Outcome};
use causeway_ports::ManagedSubscriptions;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Managed subscriptions in memory.
#[derive(Debug, Default)]
pub struct MemoryManagedSubscriptions {
    sessions: Mutex<BTreeMap<String, BTreeSet<String>>>,
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
        Ok(locked(&self.sessions).get(identity).cloned())
    }

    async fn seed(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<bool> {
        Outcome::Done(match locked(&self.sessions).entry(identity.to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert(filters.clone());
                true
            }
            Entry::Occupied(_) => false,
        })
    }

    async fn remember(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<bool> {
        let mut sessions = locked(&self.sessions);
        let known = sessions.get_mut(identity).map(|known| known.extend(filters.iter().cloned()));
        Outcome::Done(known.is_some())
    }

    async fn forget(&self, identity: &str, filter: &str) -> Outcome<()> {
        if let Some(known) = locked(&self.sessions).get_mut(identity) {
            known.remove(filter);
        }
        Outcome::Done(())
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
    use super::MemoryManagedSubscriptions;
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::ManagedSubscriptions>, ()) {
        (Arc::new(MemoryManagedSubscriptions::new()), ())
    }
    causeway_ports::managed_subscriptions_conformance!(fresh);
}
