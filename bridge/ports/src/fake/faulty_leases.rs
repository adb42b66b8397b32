//! Leases whose network fails as the test says.

use super::injector::{Injection, Injector, injections};
use crate::{Leases, MemberRecord};
use async_trait::async_trait;
use causeway_core::lease::row::RawLease;
use causeway_core::lease::{LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, Outcome};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseCall {
    /// [`Leases::read`].
    Read,
    /// [`Leases::write`].
    Write,
    /// [`Leases::list`].
    List,
    /// [`Leases::put_member`].
    PutMember,
    /// [`Leases::remove_member`].
    RemoveMember,
    /// [`Leases::list_members`].
    ListMembers,
    /// [`Leases::probe`].
    Probe,
    /// [`Leases::create`].
    Create,
}

/// Leases between which and their caller things go wrong: one for each worker before a store that they share makes a partition of one of them.
/// Without an injection it is the store inside.
#[derive(Debug)]
pub struct FaultyLeases<L> {
    inner: L,
    injector: Injector<LeaseCall, Late>,
}

/// A write that is still under way.
#[derive(Clone, Debug)]
enum Late {
    Write(String, Box<LeaseWrite>),
    PutMember(Box<MemberRecord>),
    RemoveMember(String, String),
}

injections!(FaultyLeases, Leases, LeaseCall);

impl<L: Leases> FaultyLeases<L> {
    /// Lets the writes that are still under way take effect (or be refused, as things stand now), in the order in which they were made; answers how
    /// many there were.
    pub async fn apply_late(&self) -> usize {
        let late = self.injector.take_late();
        for write in &late {
            // Nobody waits for the answers.
            match write {
                Late::Write(key, write) => drop(self.inner.write(key, write).await),
                Late::PutMember(member) => drop(self.inner.put_member(member).await),
                Late::RemoveMember(bridge, owner) => drop(self.inner.remove_member(bridge, owner).await),
            }
        }
        late.len()
    }
}

#[async_trait]
impl<L: Leases> Leases for FaultyLeases<L> {
    async fn read(&self, key: &str) -> Result<Option<RawLease>, Fault> {
        self.injector.read(LeaseCall::Read, self.inner.read(key)).await
    }

    async fn write(&self, key: &str, write: &LeaseWrite) -> Outcome<LeaseAnswer> {
        let late = || Late::Write(key.to_owned(), Box::new(write.clone()));
        self.injector.write(LeaseCall::Write, late, self.inner.write(key, write)).await
    }

    async fn list(&self) -> Result<Vec<(String, RawLease)>, Fault> {
        self.injector.read(LeaseCall::List, self.inner.list()).await
    }

    async fn put_member(&self, member: &MemberRecord) -> Outcome<()> {
        let late = || Late::PutMember(Box::new(member.clone()));
        self.injector.write(LeaseCall::PutMember, late, self.inner.put_member(member)).await
    }

    async fn remove_member(&self, bridge: &str, owner: &str) -> Outcome<()> {
        let late = || Late::RemoveMember(bridge.to_owned(), owner.to_owned());
        self.injector.write(LeaseCall::RemoveMember, late, self.inner.remove_member(bridge, owner)).await
    }

    async fn list_members(&self, bridge: &str) -> Result<Vec<MemberRecord>, Fault> {
        self.injector.read(LeaseCall::ListMembers, self.inner.list_members(bridge)).await
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.injector.read(LeaseCall::Probe, self.inner.probe()).await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.injector.read(LeaseCall::Create, self.inner.create()).await
    }
}
