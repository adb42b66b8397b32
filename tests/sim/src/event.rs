//! What happens in a world, and what travels in it.

use crate::broker::ConnectionId;
use crate::mail::PutBack;
use causeway_core::dead_letter::DeadLetter;
use causeway_core::identity::LaneId;
use causeway_core::lease::row::RawLease;
use causeway_core::lease::testimony::Testimony;
use causeway_core::lease::{LeaseAnswer, LeaseWrite};
use causeway_core::log::{Answer, Call};
use causeway_core::mailbox::Mail;
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault as CallFault, Outcome};
use causeway_core::subscriptions::Generation;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Something that happens at a true moment.
#[allow(missing_docs, reason = "`worker`, `life`, `call` and `connection` name whom it concerns")]
#[derive(Debug)]
pub enum Event {
    /// A worker starts.
    Start { worker: usize },
    /// A worker wanted to be woken.
    Tick { worker: usize, life: u64, nth: u64 },
    /// A pause is over.
    Resume { worker: usize, life: u64 },
    /// A request arrives where it goes.
    Arrive { worker: usize, life: u64, call: u64, request: Request },
    /// An answer arrives.
    Answered { worker: usize, life: u64, call: u64, reply: Reply },
    /// A call is given up.
    GivenUp { worker: usize, life: u64, call: u64 },
    /// A packet arrives at the broker.
    AtBroker { connection: ConnectionId, packet: Packet },
    /// A packet arrives at the worker of the connection.
    FromBroker { worker: usize, life: u64, connection: ConnectionId, packet: Packet },
    /// A source's timer.
    SourceTimer { worker: usize, life: u64, source: u64, timer: u64 },
    /// A message is published.
    Publish,
    /// A fault of the schedule strikes.
    Strike(usize),
    /// Somebody puts a dead letter back.
    Redrive(usize),
    /// The transaction of that arrives.
    PutBack(Box<PutBack>),
    /// Somebody told the worker that there is mail.
    MailHint { worker: usize, life: u64 },
    /// Somebody told the worker that the lease is free.
    Hint { worker: usize, life: u64 },
    /// From now on nothing goes wrong any more.
    Heal,
    /// Whether the world has converged.
    Check,
}

/// A request to a store or to the destination.
#[allow(clippy::large_enum_variant, reason = "a test tool; most requests are the large ones")]
#[derive(Debug)]
pub enum Request {
    /// The lease row.
    LeaseRead,
    /// A conditional write of it.
    LeaseWrite(LeaseWrite),
    /// What became of a task.
    Task(String),
    /// A call to the log; whether an earlier attempt of the same put has an unknown outcome.
    #[allow(missing_docs, reason = "said above")]
    Log { lane: LaneId, call: Call, doubted: bool },
    /// The first pieces of mail, so many.
    ReadMail(usize),
    /// A batch.
    Send(Vec<Arc<Entry>>),
    /// A dead letter.
    Park(Box<DeadLetter>),
    /// The account of managed subscriptions.
    Account(AccountCall),
}

/// A call to the account of managed subscriptions.
#[derive(Clone, Debug)]
pub enum AccountCall {
    /// What the session may have.
    Load,
    /// It begins, with nothing in it.
    Seed,
    /// Adds filters.
    Remember(BTreeSet<String>),
    /// Removes one, if nobody remembered any since.
    Forget(String, Generation),
}

/// An answer.
#[derive(Debug)]
pub enum Reply {
    /// To a read of the lease row.
    LeaseRead(Result<Option<RawLease>, CallFault>),
    /// To a write of it.
    LeaseWritten(Outcome<LeaseAnswer>),
    /// To a question for a task.
    Task(Option<Testimony>),
    /// To a call to the log.
    Log(Answer),
    /// To a look into the mailbox.
    Mail(Result<Vec<Mail>, CallFault>),
    /// To a batch.
    Sent(Vec<Outcome<()>>),
    /// To a dead letter.
    Parked(Outcome<()>),
    /// To a load of the account.
    Filters(Result<Option<BTreeSet<String>>, CallFault>),
    /// To a write of it.
    AccountWritten(Outcome<bool>),
    /// To the account's being remembered in: the row's new generation, if there is a row.
    Remembered(Outcome<Option<Generation>>),
}

/// What travels on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// CONNECT.
    Connect,
    /// CONNACK.
    Accepted {
        /// The broker has a session from before.
        session_present: bool,
    },
    /// SUBSCRIBE.
    Subscribe(BTreeSet<String>),
    /// SUBACK.
    Subscribed,
    /// UNSUBSCRIBE to the broker, UNSUBACK from it.
    Unsubscribe(String),
    /// PUBLISH to the worker, PUBACK from it.
    Message(u64),
    /// DISCONNECT, or the connection's end.
    End,
}

/// An event and when it happens; of those of one moment the one that was planned first.
#[derive(Debug)]
pub(crate) struct Scheduled {
    pub at: u64,
    pub nth: u64,
    pub event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.nth == other.nth
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.nth).cmp(&(self.at, self.nth))
    }
}
