//! `causeway stores create`.

use super::error::CliError;
use super::{ConfigArgs, load, output};
use crate::wiring::{self, StorePart, StoreSet};
use causeway_core::config::{Config, StoreBackend};
use clap::Subcommand;
use serde_json::json;
use std::process::ExitCode;

/// Commands on the stores.
#[derive(Debug, Subcommand)]
pub enum StoresCommand {
    /// Create tables or files that are missing; what exists is left alone
    Create {
        #[allow(missing_docs, reason = "clap shows what ConfigArgs says")]
        #[command(flatten)]
        config: ConfigArgs,
        /// Create tables in a real AWS account too
        #[arg(long)]
        yes: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Creates what is missing.
///
/// # Errors
/// Where something cannot be created, or AWS was not confirmed.
pub async fn execute(command: StoresCommand) -> Result<ExitCode, CliError> {
    let StoresCommand::Create { config, yes, json } = command;
    let config = load::load(&config)?.config;
    let tables = tables(&config);
    if !tables.is_empty() && !yes && endpoint_override().is_none() {
        return Err(CliError::unusable(format!(
            "this would create the tables {} in your AWS account; say --yes if that is right (deployments create them with the CDK stack)",
            tables.join(", ")
        )));
    }
    let aws = wiring::aws(&config).await;
    let created = StoreSet::create(&config.stores, aws.as_ref()).await?;
    if json {
        let list: Vec<_> = created.iter().map(|(part, name)| json!({ "part": part, "created": name })).collect();
        return output::json(&json!({ "created": list }));
    }
    if created.is_empty() {
        return output::line("everything is there already");
    }
    output::line(&created.iter().map(|(part, name)| format!("{part}: created {name}")).collect::<Vec<_>>().join("\n"))
}

fn tables(config: &Config) -> Vec<String> {
    let name = |part: StorePart| match part.backend(&config.stores) {
        Some(StoreBackend::Dynamodb { table }) => Some(table),
        Some(StoreBackend::Memory | StoreBackend::Sqlite { .. }) | None => None,
    };
    StorePart::ALL.into_iter().filter_map(name).collect()
}

/// Where DynamoDB is, if it is not AWS's own.
fn endpoint_override() -> Option<String> {
    ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"].iter().find_map(|name| std::env::var(name).ok().filter(|url| !url.is_empty()))
}
