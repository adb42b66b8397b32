//! One process at a time: a lease that is competed for and kept with the core's own standby and holder.

use super::CALL_TIMEOUT;
use causeway_core::drain::retry::Jitter;
use causeway_core::lease::holder::{self, Holder, Upkeep};
use causeway_core::lease::row::OwnerFacts;
use causeway_core::lease::standby::{Candidate, Standby, Step};
use causeway_core::lease::{LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_ports::{Clock, Leases};
use core::time::Duration;
use std::sync::Arc;
use tracing::{error, info, warn};

/// How long the lease holds, and how it is kept. Nothing waits for it but figures.
const UPKEEP: Upkeep = Upkeep {
    ttl: Duration::from_secs(30),
    renew_interval: Duration::from_secs(8),
    jitter: Duration::from_secs(2),
    max_fails: 2,
    guard: Duration::from_secs(1),
};

#[allow(clippy::large_enum_variant, reason = "there is one, and it stays where it is")]
enum State {
    Waits(Standby),
    Holds(Holder),
}

/// A claim to be the only one.
pub struct Singleton {
    leases: Arc<dyn Leases>,
    candidate: Candidate,
    clock: Arc<dyn Clock>,
    seed: u64,
    state: State,
}

impl Singleton {
    /// The claim of `owner` to be the only one that watches `bridge`.
    #[must_use]
    pub fn new(leases: Arc<dyn Leases>, bridge: &str, owner: &str, facts: OwnerFacts, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let candidate = Candidate { key: format!("LEASE#control:{bridge}"), owner: owner.to_owned(), ttl: UPKEEP.ttl, facts };
        Self { leases, state: State::Waits(Standby::new(candidate.clone())), candidate, clock, seed }
    }

    /// Keeps the lease, or looks whether it can be had. Answers whether this process is the only one now. To be asked well within a renewal's interval.
    pub async fn turn(&mut self) -> bool {
        match &self.state {
            State::Waits(_) => self.look().await,
            State::Holds(_) => self.keep().await,
        }
        matches!(&self.state, State::Holds(holder) if holder.may_act(self.clock.now()))
    }

    async fn look(&mut self) {
        let State::Waits(standby) = &mut self.state else { return };
        let mut step = standby.poll();
        let held = loop {
            step = match step {
                Step::Read => {
                    let answer = tokio::time::timeout(CALL_TIMEOUT, self.leases.read(&self.candidate.key)).await;
                    standby.read(self.clock.now(), self.clock.wall(), answer.unwrap_or_else(|_| Err(late())))
                }
                Step::Write(write) => {
                    let answer = write_row(self.leases.as_ref(), &self.candidate.key, &write).await;
                    standby.written(self.clock.now(), answer)
                }
                Step::Won(held) => break held,
                Step::Wait => return,
                Step::Failed(fault) => {
                    return warn!(code = fault.code.as_str(), detail = %fault.detail, "the lease of the watch cannot be looked at");
                }
                Step::Corrupt(corrupt) => {
                    return error!(key = %self.candidate.key, %corrupt, "nobody can watch until this lease row is repaired");
                }
            };
        };
        info!(version = held.row.tuple.version, "this process watches the bridge");
        let now = self.clock.now();
        self.state = State::Holds(Holder::new(UPKEEP, held, now, Jitter::new(self.seed)));
    }

    async fn keep(&mut self) {
        let State::Holds(holder) = &mut self.state else { return };
        let key = &self.candidate.key;
        let lost = loop {
            let why = match holder.poll(self.clock.now(), self.clock.wall()) {
                holder::Step::Until(_) => return,
                holder::Step::Renew(write) => {
                    let answer = write_row(self.leases.as_ref(), key, &write).await;
                    let failed = !matches!(answer, Outcome::Done(_));
                    let why = holder.renewed(self.clock.now(), answer);
                    if failed && why.is_none() {
                        return;
                    }
                    why
                }
                holder::Step::Read => {
                    let answer = tokio::time::timeout(CALL_TIMEOUT, self.leases.read(key)).await;
                    holder.read(self.clock.now(), answer.unwrap_or_else(|_| Err(late())))
                }
                holder::Step::StepDown(why) => Some(why),
            };
            if let Some(why) = why {
                break why;
            }
        };
        warn!(?lost, "this process does not watch the bridge any more");
        self.state = State::Waits(Standby::new(self.candidate.clone()));
    }

    /// Gives the lease back, if it is held.
    pub async fn give_back(&mut self) {
        if let State::Holds(holder) = &mut self.state {
            let release = holder.release();
            let _ = self.leases.write(&self.candidate.key, &release).await;
        }
    }
}

async fn write_row(leases: &dyn Leases, key: &str, write: &LeaseWrite) -> Outcome<LeaseAnswer> {
    tokio::time::timeout(CALL_TIMEOUT, leases.write(key, write)).await.unwrap_or_else(|_| Outcome::Unknown(late()))
}

fn late() -> Fault {
    Fault::new(FaultCode::Timeout, format!("the lease store did not answer within {} ms", CALL_TIMEOUT.as_millis()))
}
