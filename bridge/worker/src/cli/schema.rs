//! `causeway schema`: the configuration's JSON Schema, for editors and other checks.

use super::error::CliError;
use super::output;
use std::process::ExitCode;

/// What `schema` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The same: the schema is JSON anyway.
    #[arg(long)]
    pub json: bool,
}

/// Prints the schema.
///
/// # Errors
/// Where it cannot be printed.
pub fn run(_: &Args) -> Result<ExitCode, CliError> {
    output::json(&causeway_core::config::json_schema())
}
