//! The stores.

use super::WiringError;
use crate::drop_ledger::LedgerOptions;
use causeway_aws::{
    AwsClients, DynamoClient, DynamoCommands, DynamoDeadLetters, DynamoDropLedger, DynamoLeases, DynamoManagedSubscriptions, DynamoOutbox,
    DynamoQuota, DynamoRedrives,
};
use causeway_core::config::model::Stores;
use causeway_core::config::{Config, Span, StoreBackend};
use causeway_core::outcome::Fault;
use causeway_local::memory::{
    MemoryCommands, MemoryDeadLetters, MemoryDropLedger, MemoryLeases, MemoryManagedSubscriptions, MemoryOutbox, MemoryQuota,
    MemoryRedrives,
};
use causeway_local::sqlite::{LocalStoreError, OpenMode, SqliteManagedSubscriptions, SqliteStore};
use causeway_ports::{
    Commands, DeadLetters, DropLedger, Leases, LogStore, Mailbox, ManagedSubscriptions, OldLetters, Outbox, Quota, Redrives, SystemClock,
    TwoStores,
};
use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

/// A ledger of drops, and how it is kept.
pub type KeptLedger = (Arc<dyn DropLedger>, LedgerOptions);

/// What stores are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run: a SQLite file is locked against other processes, and made where it is missing.
    Run,
    /// To look, beside a running worker or without one.
    Look,
    /// To change what is kept: a SQLite file is locked as for a run, so that no worker may use it meanwhile. What is in a worker's memory is out of
    /// reach.
    Change,
}

/// The stores of a process.
#[derive(Clone, Default)]
pub struct StoreSet {
    /// Where logs are kept.
    pub outbox: Option<Arc<dyn Outbox>>,
    /// The mailboxes of these logs: the same store.
    pub mailbox: Option<Arc<dyn Mailbox>>,
    /// Where dead letters are kept.
    pub dead_letters: Option<Arc<dyn DeadLetters>>,
    /// The same store, where they are to be deleted once so old, and it does not do so by itself.
    pub old_letters: Option<(Arc<dyn OldLetters>, Duration)>,
    /// What puts them back: in one transaction where one store has both, else at least once.
    pub redrives: Option<Arc<dyn Redrives>>,
    /// Where leases are kept.
    pub leases: Option<Arc<dyn Leases>>,
    /// Where the bridge's budget is kept: with the leases, or in this process.
    pub quota: Option<Arc<dyn Quota>>,
    /// Where it is kept what sessions have subscribed to.
    pub subscriptions: Option<Arc<dyn ManagedSubscriptions>>,
}

impl core::fmt::Debug for StoreSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StoreSet").finish_non_exhaustive()
    }
}

/// A store that a configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePart {
    /// Logs and their mail.
    Outbox,
    /// Dead letters.
    DeadLetters,
    /// Leases and members.
    Leases,
    /// What sessions have subscribed to.
    Subscriptions,
    /// What was not delivered.
    Ledger,
    /// Commands to devices.
    Commands,
}

/// What the stores are opened as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoresPlan {
    /// What keeps each of [`StorePart::ALL`].
    pub backends: [Option<StoreBackend>; 6],
    /// How dead letters are kept.
    pub letters: LettersPlan,
    /// Whether one transaction puts a dead letter back into the outbox.
    pub redrives_at_once: bool,
    /// How the ledger of drops is kept; `None`: there is none.
    pub ledger: Option<LedgerOptions>,
    /// How long commands are kept.
    pub commands: CommandsKept,
}

impl StoresPlan {
    /// What `config` says.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let stores = &config.stores;
        Self {
            ledger: ledger_options(config),
            backends: StorePart::ALL.map(|part| part.backend(stores)),
            letters: LettersPlan::of(stores),
            redrives_at_once: redrives_at_once(stores),
            commands: CommandsKept::of(config),
        }
    }
}

/// How long commands are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandsKept {
    /// A command, after its time.
    pub retention: Duration,
    /// An answer whose command is not known.
    pub orphans: Duration,
}

impl CommandsKept {
    /// For who asks only for the shape of the store.
    const UNUSED: Self = Self { retention: Duration::ZERO, orphans: Duration::ZERO };

    /// What `config` says.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self { retention: config.commands.retention.get(), orphans: config.commands.orphan_ttl.get() }
    }
}

/// How dead letters are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LettersPlan {
    /// For how long; `None`: until somebody deletes them.
    pub retention: Option<Duration>,
    /// The most pages that one listing reads.
    pub max_scan_pages: u32,
    /// The table of the mailboxes that they are put back into, if it is one.
    pub mail_table: Option<String>,
}

impl LettersPlan {
    fn of(stores: &Stores) -> Self {
        let options = stores.dlq.as_ref().map(|store| store.options.clone()).unwrap_or_default();
        Self {
            retention: options.retention.map(Span::get),
            max_scan_pages: options.max_scan_pages,
            mail_table: match stores.outbox_backend() {
                Some(StoreBackend::Dynamodb { table }) => Some(table),
                Some(StoreBackend::Memory | StoreBackend::Sqlite { .. }) | None => None,
            },
        }
    }
}

/// The answer of a call to a store that may not be configured.
macro_rules! asked {
    ($opened:expr, $call:ident) => {
        match $opened? {
            Some(store) => Some(store.$call().await),
            None => None,
        }
    };
}

impl StorePart {
    /// Every part, in the order of the configuration's documentation.
    pub const ALL: [Self; 6] = [Self::Outbox, Self::DeadLetters, Self::Leases, Self::Subscriptions, Self::Ledger, Self::Commands];

    /// Its place in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outbox => "stores.outbox",
            Self::DeadLetters => "stores.dlq",
            Self::Leases => "stores.lease",
            Self::Subscriptions => "stores.managed_subscriptions",
            Self::Ledger => "stores.ledger",
            Self::Commands => "stores.commands",
        }
    }

    /// What keeps it, where it is configured.
    #[must_use]
    pub fn backend(self, stores: &Stores) -> Option<StoreBackend> {
        match self {
            Self::Outbox => stores.outbox_backend(),
            Self::DeadLetters => stores.dlq_backend(),
            Self::Leases => stores.lease_backend(),
            Self::Subscriptions => stores.subscription_backend(),
            Self::Ledger => stores.ledger_backend(),
            Self::Commands => stores.command_backend(),
        }
    }

    /// Asks the store whether it can be used; `None` where it is not configured.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub async fn probe(self, stores: &Stores, aws: Option<&AwsClients>) -> Result<Option<Result<(), Fault>>, WiringError> {
        let purpose = Purpose::Look;
        Ok(match self {
            Self::Outbox => asked!(StoreSet::open_outbox(stores, aws, purpose), probe),
            Self::DeadLetters => asked!(StoreSet::open_dead_letters(stores, aws, purpose), probe),
            Self::Leases => asked!(StoreSet::open_leases(stores, aws, purpose), probe),
            Self::Subscriptions => asked!(StoreSet::open_subscriptions(stores, aws, purpose), probe),
            // Its shape alone is asked for.
            Self::Ledger => asked!(StoreSet::ledger(stores, "", Duration::ZERO, aws, purpose), probe),
            Self::Commands => asked!(StoreSet::commands(stores, CommandsKept::UNUSED, aws, purpose), probe),
        })
    }

    async fn create(self, stores: &Stores, aws: Option<&AwsClients>) -> Result<Vec<String>, WiringError> {
        let failed = |error: LocalStoreError| self.failed(&error);
        let purpose = Purpose::Run;
        let created = match (self, self.backend(stores)) {
            (_, None | Some(StoreBackend::Memory)) => None,
            (_, Some(StoreBackend::Sqlite { path })) => return SqliteStore::create(&path).map_err(failed),
            (Self::Outbox, _) => asked!(StoreSet::open_outbox(stores, aws, purpose), create),
            (Self::DeadLetters, _) => asked!(StoreSet::open_dead_letters(stores, aws, purpose), create),
            (Self::Leases, _) => asked!(StoreSet::open_leases(stores, aws, purpose), create),
            (Self::Subscriptions, _) => asked!(StoreSet::open_subscriptions(stores, aws, purpose), create),
            (Self::Ledger, _) => asked!(StoreSet::ledger(stores, "", Duration::ZERO, aws, purpose), create),
            (Self::Commands, _) => asked!(StoreSet::commands(stores, CommandsKept::UNUSED, aws, purpose), create_tables),
        };
        created.unwrap_or_else(|| Ok(Vec::new())).map_err(|fault| WiringError::of(self.name(), &fault))
    }

    fn failed(self, error: &LocalStoreError) -> WiringError {
        WiringError::new(self.name(), error.code(), error.to_string())
    }

    fn file(self, path: &Path, mode: OpenMode) -> Result<SqliteStore, WiringError> {
        SqliteStore::open(path, mode).map_err(|error| self.failed(&error))
    }

    /// Opens it: in memory, in a file, or in a table.
    fn open<S>(
        self,
        stores: &Stores,
        aws: Option<&AwsClients>,
        purpose: Purpose,
        memory: impl FnOnce() -> S,
        sqlite: impl FnOnce(&Path, OpenMode) -> Result<S, WiringError>,
        dynamodb: impl FnOnce(DynamoClient, String) -> S,
    ) -> Result<Option<S>, WiringError> {
        let part = self.name();
        Ok(match self.backend(stores) {
            None => None,
            Some(StoreBackend::Memory) if purpose != Purpose::Run => return Err(in_memory(part)),
            Some(StoreBackend::Memory) => Some(memory()),
            Some(StoreBackend::Sqlite { path }) => Some(sqlite(&path, open_mode(purpose))?),
            Some(StoreBackend::Dynamodb { table }) => {
                Some(dynamodb(clients(part, aws)?.dynamodb().map_err(|fault| WiringError::of(part, &fault))?, table))
            }
        })
    }
}

/// Dead letters, and what makes tombstones of them.
struct Letters {
    letters: Arc<dyn DeadLetters>,
    tombstones: Arc<dyn Redrives>,
    /// Where the store does not delete old ones by itself.
    old: Option<Arc<dyn OldLetters>>,
}

impl StoreSet {
    /// Opens the configured stores. Nothing is asked of DynamoDB yet.
    ///
    /// # Errors
    /// Every store that cannot be opened.
    pub fn open(stores: &Stores, aws: Option<&AwsClients>, purpose: Purpose) -> Result<Self, Vec<WiringError>> {
        let mut errors = Vec::new();
        let log = kept(Self::open_outbox(stores, aws, purpose), &mut errors);
        let letters = kept(Self::letters(stores, aws, purpose), &mut errors);
        let set = Self {
            outbox: log.clone().map(|log| log as Arc<dyn Outbox>),
            redrives: log.as_ref().zip(letters.as_ref()).map(|(log, letters)| redrives(stores, log, letters)),
            mailbox: log.map(|log| log as Arc<dyn Mailbox>),
            old_letters: letters.as_ref().and_then(|letters| letters.old.clone()).zip(LettersPlan::of(stores).retention),
            dead_letters: letters.map(|letters| letters.letters),
            leases: kept(Self::open_leases(stores, aws, purpose), &mut errors),
            quota: kept(Self::open_quota(stores, aws).map(Some), &mut errors),
            subscriptions: kept(Self::open_subscriptions(stores, aws, purpose), &mut errors),
        };
        if errors.is_empty() { Ok(set) } else { Err(errors) }
    }

    /// Opens the outbox alone, its mailboxes included.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open_outbox(stores: &Stores, aws: Option<&AwsClients>, purpose: Purpose) -> Result<Option<Arc<dyn LogStore>>, WiringError> {
        StorePart::Outbox.open(
            stores,
            aws,
            purpose,
            || Arc::new(MemoryOutbox::new()) as Arc<dyn LogStore>,
            |path, mode| Ok(Arc::new(StorePart::Outbox.file(path, mode)?.outbox())),
            |client, table| Arc::new(DynamoOutbox::new(client, table)),
        )
    }

    /// Opens the store of dead letters alone.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open_dead_letters(
        stores: &Stores,
        aws: Option<&AwsClients>,
        purpose: Purpose,
    ) -> Result<Option<Arc<dyn DeadLetters>>, WiringError> {
        Ok(Self::letters(stores, aws, purpose)?.map(|letters| letters.letters))
    }

    fn letters(stores: &Stores, aws: Option<&AwsClients>, purpose: Purpose) -> Result<Option<Letters>, WiringError> {
        let LettersPlan { retention, max_scan_pages, mail_table } = LettersPlan::of(stores);
        StorePart::DeadLetters.open(
            stores,
            aws,
            purpose,
            || {
                let letters = Arc::new(MemoryDeadLetters::new());
                // Only ever marks: the mail goes where the outbox is.
                let tombstones = Arc::new(MemoryRedrives::new(Arc::clone(&letters), Arc::new(MemoryOutbox::new())));
                Letters { old: Some(Arc::clone(&letters) as Arc<dyn OldLetters>), letters, tombstones }
            },
            |path, mode| {
                let letters = StorePart::DeadLetters.file(path, mode)?.dead_letters();
                let (tombstones, letters) = (Arc::new(letters.redrives()), Arc::new(letters));
                Ok(Letters { old: Some(Arc::clone(&letters) as Arc<dyn OldLetters>), letters, tombstones })
            },
            |client, table| {
                let letters = DynamoDeadLetters::new(client, table).with_retention(retention).with_max_pages(max_scan_pages);
                Letters { tombstones: Arc::new(DynamoRedrives::new(letters.clone(), mail_table)), letters: Arc::new(letters), old: None }
            },
        )
    }

    /// Opens the store of leases alone.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open_leases(stores: &Stores, aws: Option<&AwsClients>, purpose: Purpose) -> Result<Option<Arc<dyn Leases>>, WiringError> {
        StorePart::Leases.open(
            stores,
            aws,
            purpose,
            || Arc::new(MemoryLeases::new()) as Arc<dyn Leases>,
            |_, _| Err(WiringError::new(StorePart::Leases.name(), "E_STORE", "a lease cannot be kept in SQLite")),
            |client, table| Arc::new(DynamoLeases::new(client, table)),
        )
    }

    /// Opens the store of the bridge's budget: the table of the leases. Without one there is no other process to share it with.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open_quota(stores: &Stores, aws: Option<&AwsClients>) -> Result<Arc<dyn Quota>, WiringError> {
        let part = StorePart::Leases.name();
        Ok(match stores.lease_backend() {
            Some(StoreBackend::Dynamodb { table }) => {
                Arc::new(DynamoQuota::new(clients(part, aws)?.dynamodb().map_err(|fault| WiringError::of(part, &fault))?, table))
            }
            Some(StoreBackend::Memory | StoreBackend::Sqlite { .. }) | None => Arc::new(MemoryQuota::new()),
        })
    }

    /// Opens the store of managed subscriptions alone.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open_subscriptions(
        stores: &Stores,
        aws: Option<&AwsClients>,
        purpose: Purpose,
    ) -> Result<Option<Arc<dyn ManagedSubscriptions>>, WiringError> {
        StorePart::Subscriptions.open(
            stores,
            aws,
            purpose,
            || Arc::new(MemoryManagedSubscriptions::new()) as Arc<dyn ManagedSubscriptions>,
            |path, mode| {
                let store = SqliteManagedSubscriptions::open(path, mode).map_err(|error| StorePart::Subscriptions.failed(&error))?;
                Ok(Arc::new(store))
            },
            |client, table| Arc::new(DynamoManagedSubscriptions::new(client, table)),
        )
    }

    /// Opens the ledger of drops alone: where `stores.ledger` says, or `None`.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open_ledger(config: &Config, aws: Option<&AwsClients>, purpose: Purpose) -> Result<Option<Arc<dyn DropLedger>>, WiringError> {
        Self::ledger(&config.stores, &config.bridge.id, config.drops.ledger.retention.get(), aws, purpose)
    }

    fn ledger(
        stores: &Stores,
        bridge: &str,
        retention: Duration,
        aws: Option<&AwsClients>,
        purpose: Purpose,
    ) -> Result<Option<Arc<dyn DropLedger>>, WiringError> {
        StorePart::Ledger.open(
            stores,
            aws,
            purpose,
            || Arc::new(MemoryDropLedger::new()) as Arc<dyn DropLedger>,
            |path, mode| Ok(Arc::new(StorePart::Ledger.file(path, mode)?.drop_ledger())),
            |client, table| Arc::new(DynamoDropLedger::new(client, table, bridge, retention)),
        )
    }

    /// Opens the store of commands alone.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open_commands(config: &Config, aws: Option<&AwsClients>, purpose: Purpose) -> Result<Option<Arc<dyn Commands>>, WiringError> {
        Self::commands(&config.stores, CommandsKept::of(config), aws, purpose)
    }

    fn commands(
        stores: &Stores,
        kept: CommandsKept,
        aws: Option<&AwsClients>,
        purpose: Purpose,
    ) -> Result<Option<Arc<dyn Commands>>, WiringError> {
        let CommandsKept { retention, orphans } = kept;
        StorePart::Commands.open(
            stores,
            aws,
            purpose,
            || Arc::new(MemoryCommands::new(retention, orphans)) as Arc<dyn Commands>,
            |_, _| Err(WiringError::new(StorePart::Commands.name(), "E_STORE", "commands cannot be kept in SQLite")),
            |client, table| Arc::new(DynamoCommands::new(client, table, retention, orphans, Arc::new(SystemClock))),
        )
    }

    /// The ledger of drops of a process that runs, with how it is kept: in memory where nothing else is configured; `None` where there shall be none.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn run_ledger(config: &Config, aws: Option<&AwsClients>) -> Result<Option<KeptLedger>, WiringError> {
        let Some(options) = ledger_options(config) else { return Ok(None) };
        Ok(Some(match Self::open_ledger(config, aws, Purpose::Run)? {
            Some(ledger) => (ledger, options),
            None => (Arc::new(MemoryDropLedger::new()), LedgerOptions { max_rows: options.max_rows.min(MEMORY_ROWS), ..options }),
        }))
    }

    /// Creates what is missing: folders, files, tables. Answers what it created, each with its part of the configuration.
    ///
    /// # Errors
    /// Every store that cannot be created.
    pub async fn create(stores: &Stores, aws: Option<&AwsClients>) -> Result<Vec<(&'static str, String)>, Vec<WiringError>> {
        let (mut created, mut errors) = (Vec::new(), Vec::new());
        for part in StorePart::ALL {
            match part.create(stores, aws).await {
                Ok(names) => created.extend(names.into_iter().map(|name| (part.name(), name))),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(created) } else { Err(errors) }
    }
}

/// Rows of a ledger in memory at most.
const MEMORY_ROWS: usize = 10_000;

fn ledger_options(config: &Config) -> Option<LedgerOptions> {
    let ledger = &config.drops.ledger;
    ledger.enabled.then(|| LedgerOptions {
        retention: ledger.retention.get(),
        max_rows: ledger.max_rows as usize,
        flush_interval: ledger.flush_interval.get(),
    })
}

/// What is open; what is not goes to the errors.
fn kept<S>(opened: Result<Option<S>, WiringError>, errors: &mut Vec<WiringError>) -> Option<S> {
    opened.unwrap_or_else(|error| {
        errors.push(error);
        None
    })
}

/// One transaction where one store has both, else one after the other.
fn redrives(stores: &Stores, log: &Arc<dyn LogStore>, letters: &Letters) -> Arc<dyn Redrives> {
    if redrives_at_once(stores) {
        return Arc::clone(&letters.tombstones);
    }
    Arc::new(TwoStores::new(Arc::clone(&letters.letters), Arc::clone(&letters.tombstones), Arc::clone(log) as Arc<dyn Mailbox>))
}

fn redrives_at_once(stores: &Stores) -> bool {
    match (stores.outbox_backend(), stores.dlq_backend()) {
        (Some(StoreBackend::Dynamodb { .. }), Some(StoreBackend::Dynamodb { .. })) => true,
        (Some(StoreBackend::Sqlite { path }), Some(StoreBackend::Sqlite { path: other })) => path == other,
        _ => false,
    }
}

fn in_memory(part: &str) -> WiringError {
    WiringError::new(
        part,
        "STORE_IN_MEMORY",
        "the store is in a worker's memory and cannot be looked at from here; see the worker's status page",
    )
}

const fn open_mode(purpose: Purpose) -> OpenMode {
    match purpose {
        Purpose::Run | Purpose::Change => OpenMode::ReadWrite,
        Purpose::Look => OpenMode::ReadOnly,
    }
}

fn clients<'a>(part: &str, aws: Option<&'a AwsClients>) -> Result<&'a AwsClients, WiringError> {
    aws.ok_or_else(|| WiringError::new(part, "E_AWS", "no AWS clients were made"))
}
