//! `causeway baseline`: tells once what a broker session has subscribed to, so that a worker may connect.

use super::error::CliError;
use super::{ConfigArgs, load, output};
use crate::wiring::{self, Purpose, StoreSet};
use causeway_core::outcome::Outcome;
use clap::{ArgGroup, Args};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Arguments of `baseline`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct BaselineArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The session
    #[arg(long)]
    session: String,
    /// The filters that the broker's session has, separated by commas
    #[arg(long, value_delimiter = ',', group = "what")]
    filters: Vec<String>,
    /// The broker has no such session yet: its client_id is new
    #[arg(long, group = "what")]
    empty: bool,
}

/// Seeds the baseline. Doing it again changes nothing.
///
/// # Errors
/// Where the store cannot be written, or the session is unknown.
pub async fn execute(args: BaselineArgs) -> Result<ExitCode, CliError> {
    let config = load::load(&args.config)?.config;
    let session =
        config.session(&args.session).ok_or_else(|| CliError::unusable(format!("the configuration has no session `{}`", args.session)))?;
    let identity = wiring::storage_identity(session).ok_or_else(|| CliError::unusable("the session has no broker_url"))?;
    let aws = wiring::aws(&config).await;
    let store = StoreSet::open_subscriptions(&config.stores, aws.as_ref(), Purpose::Run)?
        .ok_or_else(|| CliError::unusable("stores.managed_subscriptions is not configured"))?;
    let filters: BTreeSet<String> =
        args.filters.into_iter().map(|filter| filter.trim().to_owned()).filter(|filter| !filter.is_empty()).collect();
    if filters.is_empty() && !args.empty {
        return Err(CliError::unusable("no filter is named; where the client_id is new, say --empty"));
    }
    match store.seed(&identity, &filters).await {
        Outcome::Done(true) => output::line(&format!("session {}: seeded with {} filters", args.session, filters.len())),
        Outcome::Done(false) => output::line(&format!("session {}: seeded before; nothing changed", args.session)),
        Outcome::NotDone(fault) | Outcome::Unknown(fault) => Err(CliError::fault(format!("stores.managed_subscriptions: {fault}"))),
    }
}
