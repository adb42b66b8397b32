//! `causeway metrics`.

use super::error::CliError;
use super::output::{self, Table};
use crate::telemetry::listing;
use causeway_core::metrics::{CATALOG, PREFIX};
use clap::Args;
use std::process::ExitCode;

/// Arguments of `metrics`.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// List every metric that the program can report
    #[arg(long, required = true)]
    list: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Prints the catalogue.
///
/// # Errors
/// Where stdout cannot be written.
pub fn execute(args: &MetricsArgs) -> Result<ExitCode, CliError> {
    if args.json {
        return output::json(&listing::json());
    }
    let mut table = Table::new(&["NAME", "TYPE", "LABELS", "UNIT", "EMITTER", "CLOUDWATCH", "MEANING"]);
    for definition in CATALOG {
        let labels: Vec<&str> = definition.labels.iter().map(|label| label.as_str()).collect();
        table.row(vec![
            format!("{PREFIX}{}", definition.name),
            definition.kind.as_str().to_owned(),
            if labels.is_empty() { "-".to_owned() } else { labels.join(",") },
            definition.unit.as_str().to_owned(),
            definition.emitter.as_str().to_owned(),
            definition.cloudwatch.to_owned(),
            definition.help.to_owned(),
        ]);
    }
    output::line(&table.render())
}
