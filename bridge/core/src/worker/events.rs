//! What an owner is told, and what it answers.

use crate::dead_letter::DeadLetter;
use crate::drain::{BatchId, ParkId};
use crate::drops::Dropped;
use crate::flow::Reason;
use crate::flow::quota::{OnExhausted, QuotaCall, QuotaReply};
use crate::flow::sender::SenderLink;
use crate::identity::{ConnectionEpoch, DeliveryId, Epoch, LaneId};
use crate::log::writer::WriterEnd;
use crate::log::{Answer, Call};
use crate::mailbox::Mail;
use crate::message::{Entry, Message};
use crate::outcome::{Fault, FaultCode, Outcome};
use crate::units::Instant;
use core::time::Duration;
use std::sync::Arc;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A message came.
    Delivered {
        /// Its place in the order of arrival.
        delivery: DeliveryId,
        /// The receiver.
        receiver: Arc<str>,
        /// The message.
        message: Message,
    },
    /// A connection of the source ended. What came by it and is not durable yet comes again.
    Disconnected {
        /// The connection.
        connection: ConnectionEpoch,
    },
    /// The log's store answered.
    Log {
        /// The lane that the call concerned; of the registry's calls any.
        lane: LaneId,
        /// The answer.
        answer: Answer,
    },
    /// A batch came back: one outcome for each entry, in order.
    Sent {
        /// The batch.
        batch: BatchId,
        /// The outcomes.
        outcomes: Vec<Outcome<()>>,
    },
    /// What is known of the connection under a sender changed.
    SenderLink {
        /// The index of the leg that it sends for.
        leg: usize,
        /// How it is now.
        link: SenderLink,
    },
    /// A dead letter came back.
    Parked {
        /// The letter.
        park: ParkId,
        /// The outcome.
        outcome: Outcome<()>,
    },
    /// The mailbox was read: its first pieces, in order.
    MailRead(Result<Vec<Mail>, Fault>),
    /// Somebody says that there is mail. Only a reason to look.
    MailHint,
    /// The store of the bridge's budget answered.
    Quota(QuotaReply),
    /// So many nodes draw from the bridge's budget, as the members tell.
    QuotaNodes(u32),
    /// Somebody has seen the notice that the budget is spent.
    QuotaSeen,
    /// Time went by.
    Tick,
    /// Stop: make durable what was taken in, send until `drain_until`, then end.
    Shutdown {
        /// No send begins after this.
        drain_until: Instant,
    },
}

/// Something to do.
#[derive(Debug)]
pub enum Effect {
    /// Call the log's store; the answer comes back as [`Event::Log`].
    Log {
        /// The lane that the call concerns. The registry's record is that of the partition, kept under the name of lane 0.
        lane: LaneId,
        /// The call.
        call: Call,
    },
    /// Read the mailbox from its start; the answer comes back as [`Event::MailRead`].
    ReadMail {
        /// So many pieces at most.
        limit: usize,
    },
    /// Acknowledge this delivery, and in the order of arrival every one before it: see [`Order`](crate::hold::Order).
    Acknowledge(DeliveryId),
    /// Send; the outcomes come back as [`Event::Sent`].
    Send {
        /// The batch.
        batch: BatchId,
        /// The index of the leg.
        leg: usize,
        /// The entries.
        entries: Vec<Arc<Entry>>,
        /// How long each entry that is sent for the first time had been ready.
        delays: Vec<Duration>,
    },
    /// Write a dead letter; the outcome comes back as [`Event::Parked`].
    Park {
        /// The letter's name.
        park: ParkId,
        /// The letter.
        letter: Box<DeadLetter>,
    },
    /// End the connection of the source and make another: what it holds has been held for too long, and comes again.
    Reconnect,
    /// Call the store of the bridge's budget; the answer comes back as [`Event::Quota`]. One call of a kind is under way at a time.
    Quota(QuotaCall),
    /// Flush the acknowledgements and close the source.
    CloseSource,
    /// Nothing to do, something to count.
    Observe(Observation),
    /// It is over; no further effect follows.
    Finished(End),
}

/// Something to count.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The log is open.
    Opened {
        /// The epoch.
        epoch: Epoch,
        /// Slots between head and anchor of all lanes: an upper bound of segments to recover.
        slots_to_recover: u64,
    },
    /// Everything that former owners left was taken up.
    Recovered {
        /// Entries taken up.
        entries: u64,
    },
    /// A segment is durable.
    Stored {
        /// Its entries.
        entries: usize,
        /// Its packed bytes.
        bytes: usize,
        /// From the first attempt to the confirmation.
        took: Duration,
    },
    /// An entry was accepted by its destination.
    Delivered {
        /// The index of its leg.
        leg: usize,
        /// From its receipt, by this host's wall clock.
        latency: Duration,
    },
    /// An attempt failed and will be repeated.
    Retried {
        /// The index of its leg.
        leg: usize,
        /// Why.
        fault: Fault,
    },
    /// The destination asked for less: the attempt does not count, and the sender pauses.
    Throttled {
        /// The index of its leg.
        leg: usize,
        /// What it said.
        fault: Fault,
    },
    /// A sender goes on after a pause.
    SenderResumed {
        /// The index of its leg.
        leg: usize,
        /// Whether something of it was still under way.
        forced: bool,
    },
    /// An entry was dead-lettered.
    DeadLettered {
        /// The index of its leg, the number of legs where it has none.
        leg: usize,
        /// Why.
        code: FaultCode,
        /// What is told of it.
        dropped: Box<Dropped>,
    },
    /// An entry was dropped, as its route's policy wants.
    Dropped {
        /// The index of its leg.
        leg: usize,
        /// Why.
        code: FaultCode,
        /// What is told of it.
        dropped: Box<Dropped>,
    },
    /// A message waits until a limit admits it, and everything that came later behind it.
    HeldUp {
        /// Which kind of limit.
        reason: Reason,
    },
    /// A message lacks what the keys of so many limits are taken from: it shares one budget of each with all others that lack it.
    KeyMissing {
        /// So many.
        limits: usize,
    },
    /// Entries of a leg wait because a limit of what it sends does not admit them yet; others pass them.
    Deferred {
        /// The index of the leg.
        leg: usize,
        /// Which kind of limit.
        reason: Reason,
        /// How many.
        entries: u64,
    },
    /// An entry was dropped because a limit did not admit it.
    Limited {
        /// The index of its leg.
        leg: usize,
        /// Which kind of limit.
        reason: Reason,
        /// What is told of it.
        dropped: Box<Dropped>,
    },
    /// An entry is gone with its connection: it was not safe yet, and its source does not bring it again.
    Lost {
        /// The index of its leg.
        leg: usize,
        /// What is told of it.
        dropped: Box<Dropped>,
    },
    /// The circuit breaker of a leg opened: nothing is sent for a while.
    CircuitOpened {
        /// The index of the leg.
        leg: usize,
    },
    /// The outbox of a leg is full: nothing is taken in until there is room.
    OutboxFull {
        /// The index of the leg.
        leg: usize,
    },
    /// The budget of the whole bridge is spent, and a message waits for it. Told once, until it was acknowledged or its time is over.
    QuotaReached {
        /// What becomes of messages meanwhile.
        on_exhausted: OnExhausted,
    },
    /// A call to the log's store failed and will be repeated.
    StoreFault(Fault),
    /// The dead-letter store refused a letter; it is tried again.
    DeadLetterFault(Fault),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As asked. What is left stands in the log.
    Stopped {
        /// Entries that were not settled, or not even durable: the next owner or the source brings them again. Estimated where the log was not read to
        /// its end.
        unsettled: u64,
    },
    /// Everything is settled, and every lane was closed for good.
    Retired,
    /// The log has another writer, or cannot be used.
    Ended(WriterEnd),
    /// A segment cannot be read by this release.
    Unreadable(Fault),
}
