//! Leases in this process's memory: for one replica that runs alone, and for tests.

use super::locked;
use async_trait::async_trait;
use causeway_core::lease::row::{Evidence, RawLease, Tuple};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, Outcome};
use causeway_ports::{Leases, MemberRecord};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Leases and members in memory. Another process sees nothing of them, so they keep nobody out: whoever uses them says by configuration that there
/// is one replica. The versions end with the process; what must not repeat them raises the next one above what it finds.
#[derive(Debug, Default)]
pub struct MemoryLeases {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    leases: BTreeMap<String, RawLease>,
    /// By bridge and owner.
    members: BTreeMap<(String, String), MemberRecord>,
}

impl MemoryLeases {
    /// No leases, no members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a row there as another program might, believable or not. `None` takes it away.
    pub fn put_raw(&self, key: &str, row: Option<RawLease>) {
        let leases = &mut locked(&self.state).leases;
        match row {
            Some(row) => drop(leases.insert(key.to_owned(), row)),
            None => drop(leases.remove(key)),
        }
    }
}

/// Compared field by field as they stand, so that a row that cannot be believed is compared too.
fn holds(condition: &Condition, standing: Option<&RawLease>) -> bool {
    match (condition, standing) {
        (Condition::Absent, standing) => standing.is_none(),
        (_, None) => false,
        (Condition::Held { owner, version }, Some(row)) => row.owner.as_ref() == Some(owner) && row.version == Some(i128::from(*version)),
        (Condition::Exactly { tuple, evidence }, Some(row)) => has_tuple(row, tuple) && has_evidence(row, evidence.as_ref()),
    }
}

fn has_tuple(row: &RawLease, tuple: &Tuple) -> bool {
    row.owner.as_ref() == Some(&tuple.owner)
        && row.version == Some(i128::from(tuple.version))
        && row.renewed_at == Some(i128::from(tuple.renewed_at.0))
        && row.expires_at == Some(i128::from(tuple.expires_at.0))
}

fn has_evidence(row: &RawLease, evidence: Option<&Evidence>) -> bool {
    row.fingerprint.as_ref() == evidence.map(|evidence| &evidence.fingerprint)
        && row.elapsed_ns == evidence.map(|evidence| i128::from(evidence.elapsed_ns))
        && row.generation == evidence.map(|evidence| i128::from(evidence.generation))
}

#[async_trait]
impl Leases for MemoryLeases {
    async fn read(&self, key: &str) -> Result<Option<RawLease>, Fault> {
        Ok(locked(&self.state).leases.get(key).cloned())
    }

    async fn write(&self, key: &str, write: &LeaseWrite) -> Outcome<LeaseAnswer> {
        let leases = &mut locked(&self.state).leases;
        let standing = leases.get(key);
        if !holds(&write.condition, standing) {
            return Outcome::Done(LeaseAnswer::Refused(standing.cloned()));
        }
        leases.insert(key.to_owned(), RawLease::from(&write.row));
        Outcome::Done(LeaseAnswer::Written)
    }

    async fn list(&self) -> Result<Vec<(String, RawLease)>, Fault> {
        Ok(locked(&self.state).leases.iter().map(|(key, row)| (key.clone(), row.clone())).collect())
    }

    async fn put_member(&self, member: &MemberRecord) -> Outcome<()> {
        locked(&self.state).members.insert((member.bridge.clone(), member.owner.clone()), member.clone());
        Outcome::Done(())
    }

    async fn remove_member(&self, bridge: &str, owner: &str) -> Outcome<()> {
        locked(&self.state).members.remove(&(bridge.to_owned(), owner.to_owned()));
        Outcome::Done(())
    }

    async fn list_members(&self, bridge: &str) -> Result<Vec<MemberRecord>, Fault> {
        Ok(locked(&self.state).members.values().filter(|member| member.bridge == bridge).cloned().collect())
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
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use causeway_core::lease::row::LeaseRow;
    use causeway_core::units::UnixMillis;
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::Leases>, ()) {
        (Arc::new(MemoryLeases::new()), ())
    }
    causeway_ports::leases_conformance!(fresh);

    #[tokio::test]
    async fn no_condition_of_a_valid_row_holds_for_one_that_is_not() {
        let tuple = Tuple { owner: "a#1".to_owned(), version: 7, renewed_at: UnixMillis(1), expires_at: UnixMillis(2) };
        let row = LeaseRow { tuple: tuple.clone(), acquired_at: UnixMillis(1), evidence: None, facts: Default::default() };
        let store = MemoryLeases::new();
        let conditions = [Condition::Absent, Condition::Exactly { tuple, evidence: None }];
        for corrupt in [
            RawLease { owner: None, ..RawLease::from(&row) },
            RawLease { renewed_at: None, ..RawLease::from(&row) },
            RawLease { expires_at: Some(-1), ..RawLease::from(&row) },
            RawLease { version: Some(i128::from(u64::MAX) + 8), ..RawLease::from(&row) },
            RawLease { generation: Some(1), ..RawLease::from(&row) },
        ] {
            store.put_raw("LEASE#s", Some(corrupt.clone()));
            assert_eq!(store.read("LEASE#s").await.unwrap().as_ref(), Some(&corrupt));
            for condition in conditions.clone() {
                let answer = store.write("LEASE#s", &LeaseWrite { condition, row: row.clone() }).await;
                assert_eq!(answer, Outcome::Done(LeaseAnswer::Refused(Some(corrupt.clone()))));
            }
        }
        store.put_raw("LEASE#s", None);
        assert_eq!(store.read("LEASE#s").await.unwrap(), None);
    }
}
