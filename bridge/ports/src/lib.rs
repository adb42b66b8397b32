//! The traits through which the bridge reaches the outside.
//!
//! Adapters implement them, the worker and the tests call them, and nobody else knows what stands behind. Every effect answers with an
//! [`Outcome`], because a request whose answer got lost may still take effect. No implementation retries on its own: whether a second
//! attempt is right is the core's decision, which can recognise its own writes.

mod clock;
mod commands;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "fake")]
pub mod fake;
mod publisher;
mod quota;
mod redrive;
mod tasks;

pub use clock::SystemClock;
pub use commands::{Commands, DUE_SHARDS, Due, DuePage, MAX_KEY_BYTES, OrphanAnswer};
pub use publisher::{Publication, PublishAnswer, Publisher};
pub use quota::Quota;
pub use redrive::TwoStores;
pub use tasks::{Described, TaskRecord, Tasks};

use async_trait::async_trait;
use causeway_core::config::{Secret, SecretPlace};
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::drain::OrderKey;
use causeway_core::drops::ledger::{LedgerLimits, LedgerRow};
use causeway_core::flow::sender::SenderLink;
pub use causeway_core::identity::{ConnectionEpoch, DeliveryId};
use causeway_core::identity::{EntryId, Epoch, LaneId, LogName, Slot};
use causeway_core::lease::row::{OwnerFacts, RawLease};
use causeway_core::lease::{LeaseAnswer, LeaseWrite};
pub use causeway_core::log::{LogState, Moved, Page, Put, Registration};
pub use causeway_core::mailbox::{Mail, MailboxName};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::rows::{Head, Row, RowMeta};
pub use causeway_core::subscriptions::Generation;
use causeway_core::units::{Instant, UnixMillis};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// A message that the source hands over and still holds: it comes again unless it is acknowledged.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Which delivery it is.
    pub id: DeliveryId,
    /// The receiver that subscribed to it; [`NO_RECEIVER`](causeway_core::dispatch::NO_RECEIVER) where none did.
    pub receiver: Arc<str>,
    /// The message.
    pub message: Message,
}

/// What a source reports.
#[derive(Clone, Debug)]
pub enum SourceEvent {
    /// A connection stands; nothing is subscribed yet.
    Connected {
        /// The new connection.
        connection: ConnectionEpoch,
        /// Whether the other side kept the session: `false` on any but the first connection may mean lost messages.
        session_present: bool,
    },
    /// Every wanted filter has its answer.
    Subscribed {
        /// The connection.
        connection: ConnectionEpoch,
        /// Filters that were granted.
        granted: usize,
        /// Filters that were refused, each with the reason.
        refused: Vec<(String, Fault)>,
    },
    /// A message.
    Delivery(Delivery),
    /// The connection is gone; the source tries again on its own, after a pause, until it is closed.
    Disconnected {
        /// The connection that ended, or the last one if the attempt failed before there was one.
        connection: ConnectionEpoch,
        /// Why.
        fault: Fault,
        /// How long it waits before the next attempt.
        retry_in: Duration,
    },
    /// The source ended and will deliver nothing more.
    Closed,
}

/// Where messages come from.
#[async_trait]
pub trait Source: Send {
    /// The next event. Cancel-safe: dropping the future loses nothing.
    async fn next(&mut self) -> SourceEvent;

    /// Acknowledges. Where acknowledgements go in order of arrival (MQTT): every delivery of that connection up to and including this one. Where each goes
    /// by itself (SQS): this one alone. Ignored where that connection is gone: its messages come again.
    fn acknowledge(&mut self, delivery: DeliveryId);

    /// Stops reading: what is not handed over yet stays with the other side. `false` starts again. Keep-alive goes on.
    fn pause(&mut self, paused: bool);

    /// Whether to be in the groups of shared subscriptions, from now on and on every later connection. What was handed over stays, and is acknowledged as
    /// before. Nothing, where the other side knows no such groups.
    fn share(&mut self, _wanted: bool) {}

    /// Ends the connection, if one stands, and makes another: what was handed over and not acknowledged comes again. Nothing, where there are no connections,
    /// or where it would not come again because the other side does not keep the session.
    fn reconnect(&mut self) {}

    /// Disconnects and keeps the other side's session. Acknowledgements given before are flushed first, within `deadline`.
    async fn close(&mut self, deadline: Duration);

    /// Counters since the start.
    fn counters(&self) -> SourceCounters;
}

/// What a source counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Messages handed over.
    pub received: u64,
    /// Acknowledgements written.
    pub acknowledged: u64,
    /// Deliveries handed over and not acknowledged, now.
    pub unacknowledged: u64,
    /// The largest value that `unacknowledged` had on any connection.
    pub unacknowledged_peak: u64,
    /// Connections made after the first.
    pub reconnects: u64,
    /// Attempts that did not lead to a connection.
    pub connect_failures: u64,
    /// Connections that found the other side's session gone although there had been one.
    pub sessions_lost: u64,
    /// Packets that were malformed or too large, or messages that a queue gave too often.
    pub poison_packets: u64,
    /// Those of them that are known not to come again: of quality of service 0, or by a session that the other side does not keep.
    pub poison_lost: u64,
    /// Messages that the source itself dropped because the queue had given them too often.
    pub poison_dropped: u64,
    /// Deliveries beyond the receive window that was announced.
    pub window_overruns: u64,
    /// Messages whose publisher gave them an id that it had given to another message lately.
    pub reused_ids: u64,
    /// Messages of quality of service 0 that were dropped because the buffer was full, once for each receiver that did not get one.
    pub dropped_qos0: u64,
    /// Refusals of wanted filters, repeated ones too.
    pub refusals: u64,
    /// Wanted filters that the other side refuses now and that are tried again.
    pub quarantined: u64,
    /// Messages that no receiver asked for, held back unacknowledged now.
    pub unmatched_held: u64,
    /// Nothing is read from the other side now, because as many bytes as may be were received and are not done with.
    pub reading_paused: bool,
}

/// What the registry tells of the logs of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The log of the partition's lane 0; the others have the lanes after it.
    pub log: LogName,
    /// The epoch of the owner that wrote the record.
    pub epoch: Epoch,
    /// How many lanes the partition has.
    pub lanes: u32,
    /// Open or retired.
    pub state: LogState,
}

impl LogRecord {
    /// The record of `log` as an owner wrote it.
    #[must_use]
    pub const fn new(log: LogName, registration: Registration) -> Self {
        Self { log, epoch: registration.epoch, lanes: registration.lanes, state: registration.state }
    }

    /// The log of every lane.
    pub fn of_lanes(&self) -> impl Iterator<Item = LogName> {
        (0..self.lanes).map(|lane| self.log.in_lane(LaneId(lane)))
    }

    /// What an owner wrote.
    #[must_use]
    pub const fn registration(&self) -> Registration {
        Registration { epoch: self.epoch, lanes: self.lanes, state: self.state }
    }
}

/// Where logs are kept. Reads see every write that was answered before they began.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// The row with the highest slot above 0.
    async fn read_tail(&self, log: &LogName) -> Result<Option<RowMeta>, Fault>;

    /// The head row.
    async fn read_head(&self, log: &LogName) -> Result<Option<Head>, Fault>;

    /// Puts `row` at `slot` if the slot is empty or holds this very row (same id).
    async fn put(&self, log: &LogName, slot: Slot, row: &Row) -> Outcome<Put>;

    /// Writes the head row if it [may replace](Head::may_replace) the one that stands; answers whether it was written. `false` to a repeated call may
    /// be the answer to what the first one wrote.
    async fn put_head(&self, log: &LogName, head: &Head) -> Outcome<bool>;

    /// The rows after `after` up to and including `up_to`, as many as fit a page (about 1 MiB).
    async fn read_page(&self, log: &LogName, after: Slot, up_to: Slot) -> Result<Page, Fault>;

    /// Deletes the rows at `slots`, those that are absent included. Slot 0 is never among them.
    async fn delete(&self, log: &LogName, slots: &[Slot]) -> Outcome<()>;

    /// The registry record that stands under this log's name.
    async fn read_record(&self, log: &LogName) -> Result<Option<LogRecord>, Fault>;

    /// Puts the registry record if what stands under the log's name is `replaces`, or nothing where that is `None`; answers whether it was written.
    /// The look and the write are one step: of two that read the same record, one writes.
    async fn replace_record(&self, record: &LogRecord, replaces: Option<Registration>) -> Outcome<bool>;

    /// Every registered log of every bridge in this store.
    async fn list_logs(&self) -> Result<Vec<LogRecord>, Fault>;

    /// Whether the store can be reached and has the right shape; the fault says what to do.
    async fn probe(&self) -> Result<(), Fault>;

    /// Creates what is missing: tables or files. Answers what it created.
    async fn create(&self) -> Result<Vec<String>, Fault>;

    /// What the calls so far cost.
    fn usage(&self) -> StoreUsage;
}

/// What a store's calls cost since the start. Units are `None` where the store does not count them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreUsage {
    /// Calls that wrote.
    pub write_calls: u64,
    /// Calls that read rows of a log (tail, head, pages).
    pub read_calls: u64,
    /// Write units consumed.
    pub write_units: Option<f64>,
    /// Read units consumed.
    pub read_units: Option<f64>,
}

/// Where everybody who does not own a log leaves entries for it. Implemented by the store that keeps the log.
#[async_trait]
pub trait Mailbox: Send + Sync {
    /// Puts the mail, unless mail of that id stands already; answers whether it was put. What one row does not hold is kept in parts; what is beyond a
    /// transaction of the store (for DynamoDB about 4 MB) is refused with
    /// [`FaultCode::PayloadTooLarge`](causeway_core::outcome::FaultCode::PayloadTooLarge).
    async fn post(&self, mailbox: &MailboxName, mail: &Mail) -> Outcome<bool>;

    /// The first mail, by id: at most `limit` pieces (and [`causeway_core::mailbox::MAX_MOVE_ROWS`]) and about
    /// [`causeway_core::mailbox::MAX_MOVE_BYTES`]. Always from the start: who read on behind what was read would miss what came in between.
    async fn read_mail(&self, mailbox: &MailboxName, limit: usize) -> Result<Vec<Mail>, Fault>;

    /// In one transaction: puts `segment` at `slot` if the slot is empty, and deletes the mail of those ids if all of it exists. A segment of this
    /// id at the slot is [`Moved::Stored`], whatever became of the mail. Of mail that fits into no row of the log, `segment` is the last part of its
    /// segment, and the one piece of `mail`. What [`causeway_core::mailbox::check_move`] refuses is refused.
    async fn move_mail(&self, log: &LogName, slot: Slot, segment: &Row, mailbox: &MailboxName, mail: &[String]) -> Outcome<Moved>;
}

/// A store of logs and of their mail: a move is one transaction over both.
pub trait LogStore: Outbox + Mailbox {}

impl<T: Outbox + Mailbox> LogStore for T {}

#[async_trait]
impl<T: Mailbox + ?Sized> Mailbox for Arc<T> {
    async fn post(&self, mailbox: &MailboxName, mail: &Mail) -> Outcome<bool> {
        (**self).post(mailbox, mail).await
    }

    async fn read_mail(&self, mailbox: &MailboxName, limit: usize) -> Result<Vec<Mail>, Fault> {
        (**self).read_mail(mailbox, limit).await
    }

    async fn move_mail(&self, log: &LogName, slot: Slot, segment: &Row, mailbox: &MailboxName, mail: &[String]) -> Outcome<Moved> {
        (**self).move_mail(log, slot, segment, mailbox, mail).await
    }
}

/// How putting a dead letter back ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutBack {
    /// The letter is redriven and its mail is posted: by this call, or by an earlier attempt of the same redrive.
    Done,
    /// The letter is not what the caller saw: it is gone, in another state, or was put back by somebody else. Nothing was changed.
    Conflict,
}

/// Puts dead letters back on their way. Spans the dead letters and the mailbox.
#[async_trait]
pub trait Redrives: Send + Sync {
    /// In one transaction: turns the letter into a tombstone (state redriven, its count raised by one) if it is dead and its count is `letter`'s, and
    /// posts `mail` if no mail of that id stands. `request` names the redrive and makes a repeated call of it one, as long as the letter's message did
    /// not die again. The tombstone is kept for [`TOMBSTONE_KEPT`](causeway_core::dead_letter::TOMBSTONE_KEPT); what it keeps of the letter says
    /// [`DeadLetter::tombstone`]. `letter` is whole, as it was read. A letter whose mail does not fit the mailbox is refused with
    /// [`FaultCode::PayloadTooLarge`](causeway_core::outcome::FaultCode::PayloadTooLarge).
    async fn put_back(&self, letter: &DeadLetter, mailbox: &MailboxName, mail: &Mail, request: &str) -> Outcome<PutBack>;

    /// Turns the letter into a tombstone like [`Self::put_back`], posting nothing: its message was sent past the log.
    async fn mark_redriven(&self, letter: &DeadLetter, request: &str) -> Outcome<PutBack>;

    /// Sets the letter aside as parked, if it is dead and its count is `letter`'s. Set aside with that count already is [`PutBack::Done`].
    async fn set_aside(&self, letter: &DeadLetter) -> Outcome<PutBack>;
}

/// A batch's limits at a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkLimits {
    /// Entries in one batch.
    pub batch_entries: usize,
    /// Bytes in one batch, counted by [`Sink::size_of`].
    pub batch_bytes: usize,
    /// Bytes of one entry, counted by [`Sink::size_of`].
    pub entry_bytes: usize,
}

/// Where messages go.
#[async_trait]
pub trait Sink: Send + Sync {
    /// The limits that batches must keep.
    fn limits(&self) -> SinkLimits;

    /// What `entry` takes of the byte limits, body and attributes as they would be sent.
    fn size_of(&self, entry: &Entry) -> usize;

    /// What the destination keeps in order: entries of one key are sent one after another, each when the one before is settled. `None`: it keeps none,
    /// and nothing is held up for it.
    fn key_of(&self, entry: &Entry) -> Option<OrderKey>;

    /// Sends a batch within the limits; answers for each entry, in order. Ends within `timeout`. An entry that is larger than the limit for one is
    /// refused alone, with [`FaultCode::PayloadTooLarge`](causeway_core::outcome::FaultCode::PayloadTooLarge).
    async fn send(&self, batch: &[Arc<Entry>], timeout: Duration) -> Vec<Outcome<()>>;

    /// Whether the destination can be reached and may be sent to; the fault says what to do.
    async fn probe(&self) -> Result<(), Fault>;

    /// Requests made since the start.
    fn requests(&self) -> u64;

    /// What is known of the connection under it, kept up to date; a change is told where the bytes that wait pass a mark that the adapter was given, or
    /// where something else changed. `None`: it has no connection that would pile anything up.
    fn link(&self) -> Option<watch::Receiver<SenderLink>> {
        None
    }

    /// How often the other side answered with each of its own codes since the start.
    fn answers(&self) -> Vec<(u8, u64)> {
        Vec::new()
    }

    /// The same destination at `address`, where it has addresses of its own, as a broker has topics. `None`: the sender alone says where.
    fn at(&self, _address: &str) -> Option<Arc<dyn Sink>> {
        None
    }
}

/// Which dead letters are meant. All given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Of this route.
    pub route: Option<String>,
    /// Of this category.
    pub category: Option<String>,
    /// With this error code.
    pub error_code: Option<String>,
    /// Failed at or after.
    pub since: Option<UnixMillis>,
    /// Failed before.
    pub before: Option<UnixMillis>,
    /// In this state.
    pub state: Option<DeadLetterState>,
}

impl DeadLetterFilter {
    /// Whether `letter` is meant.
    #[must_use]
    pub fn matches(&self, letter: &DeadLetter) -> bool {
        self.route.as_ref().is_none_or(|route| *route == letter.route)
            && self.category.as_ref().is_none_or(|category| category == letter.category.as_str())
            && self.error_code.as_ref().is_none_or(|code| *code == letter.error_code)
            && self.since.is_none_or(|since| letter.failed_at >= since)
            && self.before.is_none_or(|before| letter.failed_at < before)
            && self.state.is_none_or(|state| letter.state == state)
    }
}

/// Dead letters, oldest first, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterPage {
    /// The letters.
    pub letters: Vec<DeadLetter>,
    /// Give it back to read on; `None` at the end. Opaque.
    pub continuation: Option<String>,
}

/// Where dead letters are kept.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Keeps the letter. The same id again changes nothing and is `Done`, except where the letter was redriven exactly as often as this one tells:
    /// then its message died again.
    async fn park(&self, letter: &DeadLetter) -> Outcome<()>;

    /// One letter.
    async fn get(&self, id: EntryId) -> Result<Option<DeadLetter>, Fault>;

    /// At most `limit` letters that `filter` means, oldest first.
    async fn list(&self, filter: &DeadLetterFilter, limit: usize, continuation: Option<&str>) -> Result<DeadLetterPage, Fault>;

    /// Deletes one letter; answers whether there was one.
    async fn delete(&self, id: EntryId) -> Outcome<bool>;

    /// Whether the store can be reached and has the right shape; the fault says what to do.
    async fn probe(&self) -> Result<(), Fault>;

    /// Creates what is missing: tables or files. Answers what it created.
    async fn create(&self) -> Result<Vec<String>, Fault>;
}

/// Dead letters of a store that removes none by itself once their retention is over.
#[async_trait]
pub trait OldLetters: Send + Sync {
    /// Deletes at most `limit` letters that failed before `failed_before`, the oldest first; answers how many. What was put back is none of them: its
    /// tombstone has a time of its own.
    async fn delete_old(&self, failed_before: UnixMillis, limit: usize) -> Outcome<usize>;
}

/// What a member of a bridge tells about itself, whether it owns anything or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRecord {
    /// The bridge.
    pub bridge: String,
    /// The member's owner name, `instance_id#<boot nonce>`.
    pub owner: String,
    /// `worker` or `control`.
    pub role: String,
    /// Where it is reached, by capability, and where it runs.
    pub facts: OwnerFacts,
    /// The level of service that it gives to each session: `none`, `degraded`, `full`.
    pub sessions: BTreeMap<String, String>,
    /// When it started, by its wall clock.
    pub started_at: UnixMillis,
    /// When it wrote this, by its wall clock.
    pub written_at: UnixMillis,
}

/// Where leases and members are kept. Reads see every write that was answered before they began.
#[async_trait]
pub trait Leases: Send + Sync {
    /// The lease row of `key`, such as `LEASE#<session>`.
    async fn read(&self, key: &str) -> Result<Option<RawLease>, Fault>;

    /// Writes the whole row if its condition holds.
    async fn write(&self, key: &str, write: &LeaseWrite) -> Outcome<LeaseAnswer>;

    /// Every lease in this store, in the order of their keys.
    async fn list(&self) -> Result<Vec<(String, RawLease)>, Fault>;

    /// Writes the member's record, whatever stood there.
    async fn put_member(&self, member: &MemberRecord) -> Outcome<()>;

    /// Removes the member's record.
    async fn remove_member(&self, bridge: &str, owner: &str) -> Outcome<()>;

    /// Every member of `bridge` that has a record, in the order of their names.
    async fn list_members(&self, bridge: &str) -> Result<Vec<MemberRecord>, Fault>;

    /// Whether the store can be reached, has the right shape, and removes no row by itself; the fault says what to do.
    async fn probe(&self) -> Result<(), Fault>;

    /// Creates what is missing: tables or files. Answers what it created.
    async fn create(&self) -> Result<Vec<String>, Fault>;
}

/// Where the filters are kept that a durable session may have at its broker. `identity` names the broker session.
#[async_trait]
pub trait ManagedSubscriptions: Send + Sync {
    /// The filters that the session may have; `None`: nobody knows, which is not the same as none.
    async fn load(&self, identity: &str) -> Result<Option<BTreeSet<String>>, Fault>;

    /// Tells for the first time which filters the session has; answers whether this call did. An existing row is left alone.
    async fn seed(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<bool>;

    /// Adds filters, before they are subscribed, and begins a new generation of the row, even where nothing is added. The row must exist; answers its
    /// generation, which counts up from 1, or `None` where there is no row.
    async fn remember(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<Option<Generation>>;

    /// Removes a filter, after the broker confirmed that it is unsubscribed, if the row is still of this `generation`; answers whether it is. Whoever
    /// remembered filters since may have subscribed to this one again: a request that comes late takes nothing from it. A filter that stays is
    /// unsubscribed again at the next connection.
    async fn forget(&self, identity: &str, filter: &str, generation: Generation) -> Outcome<bool>;

    /// Whether the store can be reached and has the right shape; the fault says what to do.
    async fn probe(&self) -> Result<(), Fault>;

    /// Creates what is missing: tables or files. Answers what it created.
    async fn create(&self) -> Result<Vec<String>, Fault>;
}

/// Rows that a batch for the ledger of drops has at most.
pub const MAX_LEDGER_BATCH: usize = 50;

/// What a worker adds to the ledger at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerBatch {
    /// No other batch has it.
    pub id: u128,
    /// What is added, each key once; [`MAX_LEDGER_BATCH`] at most.
    pub rows: Vec<LedgerRow>,
}

/// Rows of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerPage {
    /// The rows, the newest first.
    pub rows: Vec<LedgerRow>,
    /// Whether these are all.
    pub complete: bool,
}

impl LedgerPage {
    /// The newest `limit` of some rows.
    #[must_use]
    pub fn newest(mut rows: Vec<LedgerRow>, limit: usize, complete: bool) -> Self {
        rows.sort_by(|a, b| b.count.last.cmp(&a.count.last).then_with(|| a.key.cmp(&b.key)));
        rows.truncate(limit);
        Self { rows, complete }
    }
}

/// Where it is kept what was not delivered: whose, why, by which topic, how often.
#[async_trait]
pub trait DropLedger: Send + Sync {
    /// Adds to the counts. A batch that is written again within nine minutes, because its answer got lost, and with no other of its writer between, counts once:
    /// DynamoDB remembers its id for ten. Later its writer gives it up.
    async fn add(&self, batch: &LedgerBatch) -> Outcome<()>;

    /// The newest rows, `limit` at most. Where there are many more, those are looked through only as far as it takes to find so many.
    async fn list(&self, limit: usize) -> Result<LedgerPage, Fault>;

    /// Deletes what is too old, and of too many the oldest; answers how many rows went.
    async fn prune(&self, limits: LedgerLimits) -> Outcome<usize>;

    /// Whether the store can be reached and has the right shape; the fault says what to do.
    async fn probe(&self) -> Result<(), Fault>;

    /// Creates what is missing: tables or files. Answers what it created.
    async fn create(&self) -> Result<Vec<String>, Fault>;
}

/// Asked by a source before it goes on; where the answer is a fault it stays disconnected, pauses, and asks again.
#[async_trait]
pub trait ConnectionGate: Send + Sync {
    /// Before every connection. `reconnect`: there was one before, and whoever ended it may own the session now.
    async fn before_connect(&self, reconnect: bool) -> Result<(), Fault>;

    /// After the connection stands and before anything is subscribed: the filters to unsubscribe.
    async fn before_subscribe(&self, session_present: bool) -> Result<BTreeSet<String>, Fault>;

    /// The broker confirmed that the filter is unsubscribed (0x00) or was not subscribed (0x11).
    async fn unsubscribed(&self, filter: &str);
}

/// Where secrets are kept that the configuration names and does not hold.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// What stands there now. The fault names the place and never the secret.
    async fn read(&self, place: &SecretPlace) -> Result<Secret, Fault>;
}

/// The clocks of this host.
pub trait Clock: Send + Sync {
    /// The boot clock, which runs while the machine is suspended.
    fn now(&self) -> Instant;

    /// The wall clock.
    fn wall(&self) -> UnixMillis;
}
