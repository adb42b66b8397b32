//! The commands. Each module is one of them: its arguments, what it does, what it prints.

pub mod baseline;
pub mod budget;
pub mod check;
pub mod dlq;
pub mod doctor;
pub mod drops;
pub mod error;
pub mod files;
pub mod healthcheck;
pub mod init;
pub mod lease;
pub mod load;
pub mod metrics;
pub mod outbox;
pub mod output;
pub mod redrive;
pub mod run;
pub mod schema;
pub mod stores;

use clap::{Args, Parser, Subcommand};
use error::CliError;
use std::path::PathBuf;
use std::process::ExitCode;

/// MQTT to SQS, without losing an acknowledged message.
#[derive(Debug, Parser)]
#[command(name = "causeway", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Validate a configuration without opening a connection, and tell every fault at once
    Check(check::Args),
    /// Tell what a failover may cost at most, term by term
    Budget(budget::Args),
    /// Print the JSON Schema of the configuration
    Schema(schema::Args),
    /// Write a commented configuration to start from
    Init(init::Args),
    /// Run the bridge
    Run(run::RunArgs),
    /// Ask the local worker whether it is live; for the container's health check
    Healthcheck(healthcheck::HealthcheckArgs),
    /// Check everything that the configuration needs to reach, and say what to do
    Doctor(doctor::DoctorArgs),
    /// Create tables or files that are missing
    #[command(subcommand)]
    Stores(stores::StoresCommand),
    /// Tell once what a broker session has subscribed to
    Baseline(baseline::BaselineArgs),
    /// Look at who owns which session
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Look at the messages that wait
    #[command(subcommand)]
    Outbox(outbox::OutboxCommand),
    /// Look at the messages that could not be delivered
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Look at what was not delivered, and why
    #[command(subcommand)]
    Drops(drops::DropsCommand),
    /// List every metric
    Metrics(metrics::MetricsArgs),
    /// Print the version
    Version,
}

/// Which configuration.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// Configuration file; several merge in order, by `id`. Left out: the document in the variable CAUSEWAY_CONFIG_INLINE
    #[arg(short = 'c', long = "config", value_name = "FILE", num_args = 1..)]
    pub config: Vec<PathBuf>,
}

impl Command {
    /// Whether the command runs for long and deserves more than one thread.
    #[must_use]
    pub const fn is_service(&self) -> bool {
        matches!(self, Self::Run(_))
    }

    /// Carries it out.
    ///
    /// # Errors
    /// What to print on stderr, and the exit code.
    pub async fn execute(self) -> Result<ExitCode, CliError> {
        match self {
            Self::Check(args) => check::run(&args),
            Self::Budget(args) => budget::run(&args),
            Self::Schema(args) => schema::run(&args),
            Self::Init(args) => init::run(&args),
            Self::Run(args) => run::execute(args).await,
            Self::Healthcheck(args) => healthcheck::execute(args).await,
            Self::Doctor(args) => doctor::execute(args).await,
            Self::Stores(command) => stores::execute(command).await,
            Self::Baseline(args) => baseline::execute(args).await,
            Self::Lease(command) => lease::execute(command).await,
            Self::Outbox(command) => outbox::execute(command).await,
            Self::Dlq(command) => dlq::execute(command).await,
            Self::Drops(command) => drops::execute(command).await,
            Self::Metrics(args) => metrics::execute(&args),
            Self::Version => output::line(concat!("causeway ", env!("CARGO_PKG_VERSION"))),
        }
    }
}
