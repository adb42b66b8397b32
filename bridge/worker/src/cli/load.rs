//! The configuration of commands that act on it.

use super::ConfigArgs;
use super::error::{CliError, exit};
use super::files;
use causeway_core::config::Loaded;

/// Reads and merges the files, and refuses what is wrong. Warnings are the caller's to tell.
///
/// # Errors
/// Every fault with its line of the file, with exit code 2.
pub fn load(args: &ConfigArgs) -> Result<Loaded, CliError> {
    let refuse = |report| CliError::report(exit::UNUSABLE, report);
    let (examined, read) = files::examine(&args.config).map_err(|faults| refuse(files::report(&faults, &[])))?;
    examined.into_loaded().map_err(|faults| refuse(files::report(&faults, &read)))
}
