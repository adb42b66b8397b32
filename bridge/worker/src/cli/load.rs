//! The configuration of commands that act on it.

use super::ConfigArgs;
use super::error::CliError;
use causeway_core::config::{self, Loaded, MAX_BYTES, Source};
use std::io::Read as _;
use std::path::Path;

/// Reads and merges the files, and refuses what is wrong.
///
/// # Errors
/// Every fault, a line each, with exit code 2.
pub fn load(args: &ConfigArgs) -> Result<Loaded, CliError> {
    let mut texts = Vec::new();
    let mut unreadable = Vec::new();
    for path in &args.config {
        match read(path) {
            Ok(text) => texts.push((path.display().to_string(), text)),
            Err(line) => unreadable.push(line),
        }
    }
    if !unreadable.is_empty() {
        return Err(CliError::all_unusable(&unreadable));
    }
    let sources: Vec<Source<'_>> = texts.iter().map(|(name, text)| Source { name, text }).collect();
    config::load(&sources, &|name| std::env::var(name).ok()).map_err(|faults| CliError::all_unusable(&faults))
}

/// The same for commands that run: what is not built is refused too.
///
/// # Errors
/// Every fault, a line each, with exit code 2.
pub fn load_built(args: &ConfigArgs) -> Result<Loaded, CliError> {
    let loaded = load(args)?;
    let missing = config::not_built(&loaded);
    if missing.is_empty() { Ok(loaded) } else { Err(CliError::all_unusable(&missing)) }
}

fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let refuse = |reason: String| format!("{shown}: E_FILE: {reason}");
    let file = std::fs::File::open(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let mut bytes = Vec::new();
    let limit = MAX_BYTES as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|_| refuse("is not UTF-8 text".to_owned()))
}
