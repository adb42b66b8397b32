//! The stores.

use super::WiringError;
use causeway_aws::{AwsClients, DynamoDeadLetters, DynamoLeases, DynamoManagedSubscriptions, DynamoOutbox};
use causeway_core::config::model::Stores;
use causeway_core::config::{Span, StoreBackend};
use causeway_local::memory::{MemoryDeadLetters, MemoryLeases, MemoryManagedSubscriptions, MemoryOutbox};
use causeway_local::sqlite::{OpenMode, SqliteManagedSubscriptions, SqliteStore};
use causeway_ports::{DeadLetters, Leases, ManagedSubscriptions, Outbox};
use std::path::Path;
use std::sync::Arc;

/// What stores are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run: a SQLite file is locked against other processes, and made where it is missing.
    Run,
    /// To look, beside a running worker or without one.
    Look,
}

/// The stores of a process.
#[derive(Clone, Default)]
pub struct StoreSet {
    /// Where logs are kept.
    pub outbox: Option<Arc<dyn Outbox>>,
    /// Where dead letters are kept.
    pub dead_letters: Option<Arc<dyn DeadLetters>>,
    /// Where leases are kept.
    pub leases: Option<Arc<dyn Leases>>,
    /// Where it is kept what sessions have subscribed to.
    pub subscriptions: Option<Arc<dyn ManagedSubscriptions>>,
}

impl core::fmt::Debug for StoreSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StoreSet").finish_non_exhaustive()
    }
}

impl StoreSet {
    /// Opens the configured stores. Nothing is asked of DynamoDB yet.
    ///
    /// # Errors
    /// Every store that cannot be opened.
    pub fn open(stores: &Stores, aws: Option<&AwsClients>, purpose: Purpose) -> Result<Self, Vec<WiringError>> {
        let (mut set, mut errors) = (Self::default(), Vec::new());
        match Self::open_outbox(stores, aws, purpose) {
            Ok(outbox) => set.outbox = outbox,
            Err(error) => errors.push(error),
        }
        match Self::open_dead_letters(stores, aws, purpose) {
            Ok(dead_letters) => set.dead_letters = dead_letters,
            Err(error) => errors.push(error),
        }
        match Self::open_leases(stores, aws, purpose) {
            Ok(leases) => set.leases = leases,
            Err(error) => errors.push(error),
        }
        match Self::open_subscriptions(stores, aws, purpose) {
            Ok(subscriptions) => set.subscriptions = subscriptions,
            Err(error) => errors.push(error),
        }
        if errors.is_empty() { Ok(set) } else { Err(errors) }
    }

    /// Opens the outbox alone.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open_outbox(stores: &Stores, aws: Option<&AwsClients>, purpose: Purpose) -> Result<Option<Arc<dyn Outbox>>, WiringError> {
        const PART: &str = "stores.outbox";
        Ok(match stores.outbox_backend() {
            None => None,
            Some(StoreBackend::Memory) if purpose == Purpose::Look => return Err(in_memory(PART)),
            Some(StoreBackend::Memory) => Some(Arc::new(MemoryOutbox::new())),
            Some(StoreBackend::Sqlite { path }) => Some(Arc::new(sqlite(PART, &path, purpose)?.outbox())),
            Some(StoreBackend::Dynamodb { table }) => {
                Some(Arc::new(DynamoOutbox::new(clients(PART, aws)?.dynamodb().map_err(|fault| WiringError::of(PART, &fault))?, table)))
            }
        })
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
        const PART: &str = "stores.dlq";
        let options = stores.dlq.as_ref().map(|store| &store.options);
        Ok(match stores.dlq_backend() {
            None => None,
            Some(StoreBackend::Memory) if purpose == Purpose::Look => return Err(in_memory(PART)),
            Some(StoreBackend::Memory) => Some(Arc::new(MemoryDeadLetters::new())),
            Some(StoreBackend::Sqlite { path }) => Some(Arc::new(sqlite(PART, &path, purpose)?.dead_letters())),
            Some(StoreBackend::Dynamodb { table }) => {
                let client = clients(PART, aws)?.dynamodb().map_err(|fault| WiringError::of(PART, &fault))?;
                let letters = DynamoDeadLetters::new(client, table)
                    .with_retention(options.and_then(|options| options.retention).map(Span::get))
                    .with_max_pages(options.map_or(100, |options| options.max_scan_pages));
                Some(Arc::new(letters))
            }
        })
    }

    /// Opens the store of leases alone.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open_leases(stores: &Stores, aws: Option<&AwsClients>, purpose: Purpose) -> Result<Option<Arc<dyn Leases>>, WiringError> {
        const PART: &str = "stores.lease";
        Ok(match stores.lease_backend() {
            None => None,
            Some(StoreBackend::Memory) if purpose == Purpose::Look => return Err(in_memory(PART)),
            Some(StoreBackend::Memory) => Some(Arc::new(MemoryLeases::new())),
            Some(StoreBackend::Sqlite { .. }) => return Err(WiringError::new(PART, "E_STORE", "a lease cannot be kept in SQLite")),
            Some(StoreBackend::Dynamodb { table }) => {
                Some(Arc::new(DynamoLeases::new(clients(PART, aws)?.dynamodb().map_err(|fault| WiringError::of(PART, &fault))?, table)))
            }
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
        const PART: &str = "stores.managed_subscriptions";
        Ok(match stores.subscription_backend() {
            None => None,
            Some(StoreBackend::Memory) if purpose == Purpose::Look => return Err(in_memory(PART)),
            Some(StoreBackend::Memory) => Some(Arc::new(MemoryManagedSubscriptions::new())),
            Some(StoreBackend::Sqlite { path }) => {
                let mode = open_mode(purpose);
                let store = SqliteManagedSubscriptions::open(&path, mode);
                Some(Arc::new(store.map_err(|error| WiringError::new(PART, error.code(), error.to_string()))?))
            }
            Some(StoreBackend::Dynamodb { table }) => {
                let client = clients(PART, aws)?.dynamodb().map_err(|fault| WiringError::of(PART, &fault))?;
                Some(Arc::new(DynamoManagedSubscriptions::new(client, table)))
            }
        })
    }

    /// Creates what is missing: folders, files, tables. Answers what it created, each with its part of the configuration.
    ///
    /// # Errors
    /// Every store that cannot be created.
    pub async fn create(stores: &Stores, aws: Option<&AwsClients>) -> Result<Vec<(&'static str, String)>, Vec<WiringError>> {
        let (mut created, mut errors) = (Vec::new(), Vec::new());
        let parts = [
            ("stores.outbox", stores.outbox_backend()),
            ("stores.dlq", stores.dlq_backend()),
            ("stores.lease", stores.lease_backend()),
            ("stores.managed_subscriptions", stores.subscription_backend()),
        ];
        for (part, backend) in parts {
            let result = match backend {
                None | Some(StoreBackend::Memory) => Ok(Vec::new()),
                Some(StoreBackend::Sqlite { path }) => {
                    SqliteStore::create(&path).map_err(|error| WiringError::new(part, error.code(), error.to_string()))
                }
                Some(StoreBackend::Dynamodb { .. }) => Self::create_table(part, stores, aws).await,
            };
            match result {
                Ok(names) => created.extend(names.into_iter().map(|name| (part, name))),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(created) } else { Err(errors) }
    }

    async fn create_table(part: &'static str, stores: &Stores, aws: Option<&AwsClients>) -> Result<Vec<String>, WiringError> {
        let created = match part {
            "stores.outbox" => match Self::open_outbox(stores, aws, Purpose::Run)? {
                Some(store) => store.create().await,
                None => Ok(Vec::new()),
            },
            "stores.dlq" => match Self::open_dead_letters(stores, aws, Purpose::Run)? {
                Some(store) => store.create().await,
                None => Ok(Vec::new()),
            },
            "stores.lease" => match Self::open_leases(stores, aws, Purpose::Run)? {
                Some(store) => store.create().await,
                None => Ok(Vec::new()),
            },
            _ => match Self::open_subscriptions(stores, aws, Purpose::Run)? {
                Some(store) => store.create().await,
                None => Ok(Vec::new()),
            },
        };
        created.map_err(|fault| WiringError::of(part, &fault))
    }
}

fn in_memory(part: &str) -> WiringError {
    WiringError::new(
        part,
        "STORE_IN_MEMORY",
        "the store is in a worker's memory and cannot be looked at from here; see the worker's status page",
    )
}

fn sqlite(part: &str, path: &Path, purpose: Purpose) -> Result<SqliteStore, WiringError> {
    SqliteStore::open(path, open_mode(purpose)).map_err(|error| WiringError::new(part, error.code(), error.to_string()))
}

const fn open_mode(purpose: Purpose) -> OpenMode {
    match purpose {
        Purpose::Run => OpenMode::ReadWrite,
        Purpose::Look => OpenMode::ReadOnly,
    }
}

fn clients<'a>(part: &str, aws: Option<&'a AwsClients>) -> Result<&'a AwsClients, WiringError> {
    aws.ok_or_else(|| WiringError::new(part, "E_AWS", "no AWS clients were made"))
}
