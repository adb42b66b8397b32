//! The AWS side of the Causeway bridge: DynamoDB stores, the SQS sink and the SQS source.

pub mod client;
pub mod commands;
pub mod dead_letters;
pub mod drop_ledger;
#[cfg(feature = "ecs")]
pub mod ecs;
pub mod fault;
pub mod items;
mod lasting;
pub mod leases;
pub mod managed_subscriptions;
mod meter;
pub mod outbox;
pub mod quota;
pub mod schema;
#[cfg(feature = "secrets")]
pub mod secrets;
pub mod sqs;
mod table;
mod transaction;

pub use aws_sdk_dynamodb::Client as DynamoClient;
pub use client::{AwsClients, AwsOptions};
pub use commands::DynamoCommands;
pub use dead_letters::{DynamoDeadLetters, DynamoRedrives};
pub use drop_ledger::DynamoDropLedger;
#[cfg(feature = "ecs")]
pub use ecs::{EcsTasks, TaskArn};
pub use leases::{DynamoLeases, LeaseUsage};
pub use managed_subscriptions::DynamoManagedSubscriptions;
pub use outbox::DynamoOutbox;
pub use quota::DynamoQuota;
#[cfg(feature = "secrets")]
pub use secrets::AwsSecrets;
pub use sqs::fifo::{Fifo, Group};
pub use sqs::source::{Queue, SqsSource, SqsSourceOptions, probe as probe_queue};
pub use sqs::{SqsOptions, SqsSink};
