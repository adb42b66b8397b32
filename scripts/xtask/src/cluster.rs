//! Several workers that share one session: who owns it, and how it changes hands.

use crate::stack::aws::explain;
use crate::worker::{Launch, SESSION, TABLES, Worker};
use anyhow::{Context as _, Result, bail, ensure};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::time::Instant;

/// How often monitors are asked: the resolution of every time that is measured here.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// How long a session may be without an owner before we give up. Longer than the computed budget.
const PATIENCE: Duration = Duration::from_secs(120);

/// The part of the lease row that says who owns the session, read past the program under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The owner, `name#number`; empty when released.
    pub owner: String,
    /// The version, which grows with every change of hands.
    pub version: u64,
}

impl Lease {
    /// The owner's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.owner.split_once('#').map_or(self.owner.as_str(), |(name, _)| name)
    }
}

/// A process of the cluster.
#[derive(Debug)]
pub struct Member {
    /// How to start it again.
    pub launch: Launch,
    /// The process.
    pub worker: Worker,
}

impl Member {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.launch.name
    }
}

/// The session has a new owner.
#[derive(Clone, Debug)]
pub struct HandOver {
    /// Which member it is.
    pub member: usize,
    /// The new lease.
    pub lease: Lease,
    /// When it was seen at full service.
    pub at: Instant,
}

/// Processes that share one session.
#[derive(Debug)]
pub struct Cluster {
    /// The processes.
    pub members: Vec<Member>,
    /// The lease table.
    pub leases: String,
    dynamodb: Client,
}

impl Cluster {
    /// Starts them all at once.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start(launches: &[Launch], dynamodb: &Client) -> Result<Self> {
        let start = |launch: &Launch| Ok(Member { worker: launch.start()?, launch: launch.clone() });
        Ok(Self {
            members: launches.iter().map(start).collect::<Result<_>>()?,
            leases: format!("{TABLES}-leases"),
            dynamodb: dynamodb.clone(),
        })
    }

    /// One worker that shares with nobody.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn alone(launch: &Launch, dynamodb: &Client) -> Result<Self> {
        Self::start(std::slice::from_ref(launch), dynamodb)
    }

    /// Starts another one. Gives which it is.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn join(&mut self, launch: &Launch) -> Result<usize> {
        self.members.push(Member { worker: launch.start()?, launch: launch.clone() });
        Ok(self.members.len() - 1)
    }

    /// The member of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|member| member.name() == name)
    }

    /// The lease row, read consistently. `None`: nobody ever owned the session.
    ///
    /// # Errors
    /// The store does not answer, or the row is not readable.
    pub async fn lease(&self) -> Result<Option<Lease>> {
        let key = AttributeValue::S(format!("LEASE#{SESSION}"));
        let answer = self.dynamodb.get_item().table_name(&self.leases).key("pk", key).consistent_read(true).send().await;
        let Some(item) = answer.map_err(|fault| anyhow::anyhow!("cannot read the lease: {}", explain(&fault)))?.item else {
            return Ok(None);
        };
        let owner = item.get("owner").and_then(|value| value.as_s().ok()).context("the lease row has no owner")?.clone();
        let version = item.get("version").and_then(|value| value.as_n().ok()).and_then(|number| number.parse().ok());
        Ok(Some(Lease { owner, version: version.context("the lease row has no version")? }))
    }

    /// Waits until one member is at full service and the lease row says that it owns the session.
    ///
    /// # Errors
    /// A process ended, or nobody is.
    pub async fn holder(&mut self) -> Result<HandOver> {
        self.hand_over(None).await
    }

    /// Waits until another member than the owner of `former` is at full service, and holds the lease row against that: owner and version must
    /// both have changed.
    ///
    /// # Errors
    /// A process other than the former owner ended, nobody takes over, or the lease row says otherwise.
    pub async fn successor(&mut self, former: &Lease) -> Result<HandOver> {
        let found = self.hand_over(Some(former)).await?;
        ensure!(
            found.lease.owner != former.owner && found.lease.version > former.version,
            "{} is at full service while the lease row went from {former:?} to {:?}",
            self.members[found.member].name(),
            found.lease
        );
        Ok(found)
    }

    async fn hand_over(&mut self, former: Option<&Lease>) -> Result<HandOver> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let candidates: Vec<usize> = (0..self.members.len())
                .filter(|member| former.is_none_or(|former| former.name() != self.members[*member].name()))
                .collect();
            for member in &candidates {
                self.members[*member].worker.process.expect_running()?;
            }
            let asked = candidates.iter().map(|member| self.members[*member].worker.is_owner_at_full_service());
            let full = join_all(asked).await.into_iter().zip(&candidates).find_map(|(full, member)| full.then_some(*member));
            let at = Instant::now();
            if let Some(member) = full
                && let Some(lease) = self.lease().await?
                && lease.name() == self.members[member].name()
            {
                return Ok(HandOver { member, lease, at });
            }
            if at > deadline {
                bail!("nobody is at full service after {PATIENCE:?}; the lease row is {:?}\n{}", self.lease().await?, self.log_tails());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Starts a member again that has ended.
    ///
    /// # Errors
    /// It still runs, or cannot be started.
    pub async fn start_again(&mut self, member: usize) -> Result<()> {
        let member = &mut self.members[member];
        ensure!(member.worker.process.exited()?.is_some(), "{} still runs", member.name());
        member.worker = member.launch.start()?;
        member.worker.ready("live").await
    }

    /// Fails where a process has ended.
    ///
    /// # Errors
    /// Its name and the end of its log.
    pub fn expect_running(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(|member| member.worker.process.expect_running())
    }

    /// Stops all with SIGTERM, `last` as the last one: an owner that goes last hands over to nobody. Gives how each ended.
    ///
    /// # Errors
    /// One does not stop.
    pub async fn stop(&mut self, last: usize) -> Result<Vec<(String, ExitStatus)>> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by_key(|member| *member == last);
        let mut ends = Vec::new();
        for member in order {
            let member = &mut self.members[member];
            ends.push((member.launch.name.clone(), member.worker.stop().await?));
        }
        Ok(ends)
    }

    /// The ends of all logs.
    #[must_use]
    pub fn log_tails(&self) -> String {
        let tail = |member: &Member| format!("the end of the log of {}:\n{}\n", member.name(), member.worker.process.log_tail(25));
        self.members.iter().map(tail).collect()
    }
}
