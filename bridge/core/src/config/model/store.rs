//! Where things are kept: `stores`.

use super::super::values::{SignedSpan, Span};
use core::time::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where leases, waiting messages, dead letters and subscription histories are kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Stores {
    /// Who owns which session. Required by exclusive sessions.
    pub lease: Option<LeaseStore>,
    /// Messages that wait for their destination. Required by `shared_outbox` and `spill_outbox`.
    pub outbox: Option<OutboxStore>,
    /// Messages that cannot be delivered. Required wherever a policy says `dlq`.
    pub dlq: Option<DlqStore>,
    /// Which filters the bridge installed on a broker. Required by exclusive sessions, and by persistent ones in clustered mode.
    pub managed_subscriptions: Option<SubscriptionStore>,
    /// The ledger of messages that were not delivered. Left out: each worker keeps its own in memory.
    pub ledger: Option<LedgerStore>,
    /// Commands and their results. Required by `commands: {enabled: true}`.
    pub commands: Option<CommandStore>,
}

/// What keeps the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// Memory: gone with the process. For tests and demonstrations.
    Memory,
    /// A SQLite file: survives the process, serves one.
    Sqlite,
    /// DynamoDB: survives the machine, serves all replicas.
    Dynamodb,
}

impl StoreKind {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Dynamodb => "dynamodb",
        }
    }
}

/// Who owns which session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseStore {
    /// `dynamodb`, or `memory` for a single process. `sqlite` keeps no leases.
    #[serde(rename = "type")]
    pub kind: StoreKind,
    /// How it is kept.
    #[serde(default)]
    pub options: LeaseOptions,
}

/// Options of the lease store.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeaseOptions {
    /// The DynamoDB table. Left out: `causeway-leases`.
    pub table_name: Option<String>,
    /// Must be true for `memory`: it protects nothing beyond this process.
    pub acknowledge_single_replica: bool,
}

/// Messages that wait for their destination.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutboxStore {
    /// `sqlite`, `dynamodb` or `memory`.
    #[serde(rename = "type")]
    pub kind: StoreKind,
    /// How it is kept.
    #[serde(default)]
    pub options: OutboxOptions,
}

/// Options of the outbox.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OutboxOptions {
    /// The DynamoDB table. Left out: `causeway-outbox`.
    pub table_name: Option<String>,
    /// The SQLite file; required for `sqlite`.
    pub path: Option<String>,
    /// Must be true for `memory`: what waits there is lost with the process.
    pub acknowledge_volatile: bool,
    /// After how long a message that was handed to a send which never ended is taken up again; above every `send_timeout`. Left out: `step_down_grace` + max(2 × `step_down_grace`, 15s), and always above the largest `send_timeout`.
    pub stale_claim_duration: Option<Span>,
    /// SQLite: how long segments are kept once all their messages are settled, for `causeway outbox list --settled`; 0s and less for not at all. It costs the file's room: what was received in that time. They are given up early where the disk is full. Left out: 0s. The time counts from when the process saw them settled: one that is started again more often deletes none.
    pub retention: SignedSpan,
    /// DynamoDB: how long segments are kept once all their messages are settled, for `causeway outbox list --settled`; 0s for not at all. It costs their storage, no writes, and after each start of an owner one reading of what a former one left. Housekeeping leaves them as well, where it has the configuration. Left out: 0s.
    pub compaction_grace: Span,
    /// The most messages that are stored as one segment.
    pub segment_max_messages: u32,
    /// The largest segment, packed, in bytes.
    pub segment_max_bytes: u32,
    /// How long a segment waits for more messages, under load. A message that finds the log idle never waits.
    pub segment_linger: Span,
    /// How long a batch to the destination waits for more messages, under load.
    pub send_linger: Span,
    /// How many messages may be settled ahead of one that is stuck, before sending stops.
    pub max_settled_ahead: u32,
    /// How often messages that others enqueued (redrive, injection) are looked for.
    pub mailbox_poll: Span,
}

impl Default for OutboxOptions {
    fn default() -> Self {
        Self {
            table_name: None,
            path: None,
            acknowledge_volatile: false,
            stale_claim_duration: None,
            retention: SignedSpan::secs(0),
            compaction_grace: Span::ZERO,
            segment_max_messages: 200,
            segment_max_bytes: 256 * 1024,
            segment_linger: Span::millis(10),
            send_linger: Span::millis(10),
            max_settled_ahead: 10_000,
            mailbox_poll: Span::secs(2),
        }
    }
}

impl OutboxOptions {
    /// For how long segments are kept once they are settled: of the two options, a store has one.
    #[must_use]
    pub fn keep_settled(&self) -> Duration {
        self.retention.get().unwrap_or_default().max(self.compaction_grace.get())
    }
}

/// Messages that cannot be delivered.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DlqStore {
    /// `sqlite`, `dynamodb` or `memory`.
    #[serde(rename = "type")]
    pub kind: StoreKind,
    /// How it is kept.
    #[serde(default)]
    pub options: DlqOptions,
    /// How far back messages of a removed subscription are put on their way again once a filter asks for them again: dead letters with the code `SUBSCRIPTION_REMOVED`, which become of what a broker still sends for a subscription that the configuration does not have any more. They are looked for whenever an owner of their session has subscribed. Those of routes without an outbox stay. 0s for never.
    #[serde(default = "one_day")]
    pub auto_redrive_window: Span,
}

const fn one_day() -> Span {
    Span::secs(86_400)
}

/// Options of the dead-letter store.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DlqOptions {
    /// The DynamoDB table. Left out: `causeway-dlq`.
    pub table_name: Option<String>,
    /// The SQLite file; required for `sqlite`.
    pub path: Option<String>,
    /// Must be true for `memory`: what lies there is lost with the process.
    pub acknowledge_volatile: bool,
    /// How long dead letters are kept. Left out: until somebody deletes them.
    pub retention: Option<Span>,
    /// The most pages that one listing reads.
    pub max_scan_pages: u32,
}

impl Default for DlqOptions {
    fn default() -> Self {
        Self { table_name: None, path: None, acknowledge_volatile: false, retention: None, max_scan_pages: 100 }
    }
}

/// The ledger of messages that were not delivered.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LedgerStore {
    /// `sqlite` or `dynamodb`.
    #[serde(rename = "type")]
    pub kind: StoreKind,
    /// How it is kept.
    #[serde(default)]
    pub options: LedgerOptions,
}

/// Options of the ledger's store.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LedgerOptions {
    /// The DynamoDB table. Left out: `causeway-ledger`.
    pub table_name: Option<String>,
    /// The SQLite file; required for `sqlite`. It may be the outbox's.
    pub path: Option<String>,
}

/// Which filters the bridge installed on a broker.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionStore {
    /// `sqlite` or `dynamodb`.
    #[serde(rename = "type")]
    pub kind: StoreKind,
    /// How it is kept.
    #[serde(default)]
    pub options: SubscriptionOptions,
}

/// Options of the subscription history.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubscriptionOptions {
    /// The DynamoDB table. Left out: `causeway-managed-subscriptions`.
    pub table_name: Option<String>,
    /// The SQLite file, as an absolute path; required for `sqlite`.
    pub path: Option<String>,
}

/// Commands and their results.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandStore {
    /// `dynamodb`, or `memory` for a single process. `sqlite` keeps no commands.
    #[serde(rename = "type")]
    pub kind: StoreKind,
    /// How it is kept.
    #[serde(default)]
    pub options: CommandStoreOptions,
}

/// Options of the store of commands.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CommandStoreOptions {
    /// The DynamoDB table; required for `dynamodb`.
    pub table_name: Option<String>,
}
