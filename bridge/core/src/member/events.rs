//! What a member is told, what it wants done, and the part that it plays.

use crate::lease::holder::{Upkeep, Why};
use crate::lease::row::{CorruptLease, RawLease};
use crate::lease::standby::Candidate;
use crate::lease::testimony::{Questions, Testimony};
use crate::lease::{LeaseAnswer, LeaseWrite};
use crate::metrics::FailoverCause;
use crate::outcome::{Fault, Outcome};
use crate::units::Instant;
use crate::worker;
use core::time::Duration;

/// How a member competes for its lease and keeps it.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// Itself.
    pub candidate: Candidate,
    /// How it keeps the lease.
    pub upkeep: Upkeep,
    /// How often it looks at the lease while it waits.
    pub poll_interval: Duration,
    /// When the orchestrator is asked what became of an owner's task; `None`: never, and the lease's time alone counts.
    pub questions: Option<Questions>,
    /// It leaves the lease to the others for one interval more: the last one to take over (the control role).
    pub looks_late: bool,
    /// How long it settles what is in flight before it gives the lease back.
    pub step_down_grace: Duration,
    /// How long it stays out after it stepped down.
    pub hold_off: Duration,
    /// How long it stays out after it lost its way to the broker: long enough for another to win.
    pub broker_hold_off: Duration,
    /// After how long without its broker it steps down; `None`: never.
    pub broker_health_step_down: Option<Duration>,
    /// How long an owner may take to open its log. Then it steps down: nothing is consumed meanwhile, and another may reach the store. It is one of the
    /// four `reconcile_timeout` in the activation term of the failover budget.
    pub opening_timeout: Duration,
}

/// A term of ownership within this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// Time went by.
    Tick,
    /// The lease row was read.
    LeaseRead(Result<Option<RawLease>, Fault>),
    /// A write of the lease row was answered.
    LeaseWritten(Outcome<LeaseAnswer>),
    /// The orchestrator was asked about a task. `None`: it does not know the task, or did not answer.
    TaskTold(Option<Testimony>),
    /// Something happened to the owner of a term.
    Owner {
        /// The term.
        term: Term,
        /// What.
        event: worker::Event,
    },
    /// The source of the present term is connected and subscribed as it should be.
    Converged,
    /// The source lost its broker.
    BrokerLost,
    /// Somebody says that the lease is free, or its owner gone. Only a reason to look.
    Hint,
    /// An operator wants another member to own the session: hand over, and stay out until one could win.
    StepDown,
    /// Hand over and end.
    Shutdown {
        /// No send begins after this.
        drain_until: Instant,
    },
}

/// Something to do. In order: an effect begins after those before it have begun, and after a `CloseSource` before it has ended.
#[allow(clippy::large_enum_variant, reason = "moved into a list and out of it: a box for the large ones would cost more than the copies")]
#[derive(Debug)]
pub enum Effect {
    /// Read the lease row, consistently; the answer comes back as [`Event::LeaseRead`].
    ReadLease,
    /// Write the lease row under its condition; the answer comes back as [`Event::LeaseWritten`].
    WriteLease(LeaseWrite),
    /// Ask the orchestrator about a task; the answer comes back as [`Event::TaskTold`].
    AskAboutTask(String),
    /// An effect of the term's owner.
    Owner {
        /// The term.
        term: Term,
        /// What to do.
        effect: worker::Effect,
    },
    /// Nothing to do: the member's part changed.
    Became(Part),
    /// It is over.
    Finished(Result<(), Fault>),
}

/// The part that a member plays.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// It waits for the lease.
    Standby,
    /// It cannot tell who owns the lease.
    Blind(Fault),
    /// The row cannot be believed.
    Stuck(CorruptLease),
    /// It owns the session.
    Owner {
        /// The term.
        term: Term,
        /// The lease's version, which is the log's epoch.
        version: u64,
    },
    /// It hands over.
    SteppingDown(Reason),
    /// It stays out for a while.
    HoldingOff(Duration),
}

/// Why a member steps down.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The lease is not its own any more, or nobody can tell.
    Lease(Why),
    /// Another owner writes the log.
    Fenced,
    /// It lost its way to the broker.
    BrokerPath,
    /// An operator asked it to.
    Asked,
    /// It was told to stop.
    Shutdown,
    /// The log cannot be used.
    Log(Fault),
    /// The log was not open in time.
    OpeningTimeout,
}

impl Reason {
    /// What the successor is told of it, if the lease can be given back at all.
    #[must_use]
    pub const fn cause(&self) -> FailoverCause {
        match self {
            Self::Lease(_) => FailoverCause::Crash,
            Self::BrokerPath => FailoverCause::BrokerPath,
            Self::Fenced | Self::Asked | Self::Shutdown | Self::Log(_) | Self::OpeningTimeout => FailoverCause::Release,
        }
    }
}
