//! `causeway init`: a configuration to start from, with what each setting means.

use super::error::CliError;
use super::output;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const STANDALONE: &str = include_str!("starter/standalone.yaml");
const CLUSTERED: &str = include_str!("starter/clustered.yaml");

/// What `init` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Several replicas that share the work through DynamoDB, instead of one process with SQLite.
    #[arg(long)]
    pub clustered: bool,
    /// Where to write. An existing file is never overwritten. Left out: standard output.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the answer as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Writes the configuration.
///
/// # Errors
/// Where the file exists or cannot be written, with exit code 2.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let starter = if args.clustered { CLUSTERED } else { STANDALONE };
    match &args.output {
        None if args.json => output::json(&json!({ "configuration": starter })),
        None => output::line(starter.trim_end()),
        Some(path) => {
            create(path, starter).map_err(|error| CliError::unusable(format!("{}: {}", path.display(), reason(&error))))?;
            if args.json {
                return output::json(&json!({ "written": path.display().to_string() }));
            }
            output::line(&format!("{0} written. Edit it, then run `causeway check {0}`.", path.display()))
        }
    }
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "the file exists and is left as it is; name another, or remove it first".to_owned(),
        io::ErrorKind::NotFound => "its folder does not exist; create it first".to_owned(),
        io::ErrorKind::PermissionDenied => "not permitted; name a file in a folder that you may write to".to_owned(),
        _ => format!("cannot be written: {error}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use causeway_core::config::{Source, load, not_built};

    #[test]
    fn both_starters_are_valid_without_any_variable() {
        for (name, text) in [("standalone", STANDALONE), ("clustered", CLUSTERED)] {
            let loaded = load(&[Source { name, text }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}"));
            assert!(loaded.warnings.iter().all(|fault| fault.code == "W_SUBSCRIPTIONS"), "{:#?}", loaded.warnings);
        }
    }

    #[test]
    fn both_starters_run_on_this_release() {
        for (name, text) in [("standalone", STANDALONE), ("clustered", CLUSTERED)] {
            let loaded = load(&[Source { name, text }], &|_| None).unwrap();
            assert_eq!(not_built(&loaded), [], "{name}");
        }
    }

    #[test]
    fn an_existing_file_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("causeway.yaml");
        assert_eq!(create(&path, "a").map_err(|error| error.kind()), Ok(()));
        assert_eq!(create(&path, "b").map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a");
        assert!(create(&folder.path().join("none/causeway.yaml"), "a").is_err());
    }
}
