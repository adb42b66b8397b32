//! `causeway init`: a configuration to start from, with what each setting means.

use super::error::CliError;
use super::output;
use causeway_local::sqlite::folder_is_private;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const STANDALONE: &str = include_str!("starter/standalone.yaml");
const CLUSTERED: &str = include_str!("starter/clustered.yaml");

/// What the files call the bridge, and its client at the broker.
const PLACEHOLDER_ID: &str = "my-bridge";
/// The folder of stores that the files name.
const PLACEHOLDER_FOLDER: &str = "/var/lib/causeway";

/// What `init` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Several replicas that share the work through DynamoDB, instead of one process with SQLite.
    #[arg(long)]
    pub clustered: bool,
    /// The bridge's name, which is its client id at the broker too: letters, digits, `-` and `_`. Left out: `bridge-` and some random digits, so that no
    /// two configurations throw each other off the broker.
    #[arg(long, value_name = "NAME", value_parser = bridge_id)]
    pub id: Option<String>,
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
    let folder = args.output.as_deref().map_or(Path::new(""), |path| path.parent().unwrap_or(Path::new("")));
    let starter = starter(args.clustered, &args.id.clone().map_or_else(random_id, Ok)?, folder);
    match &args.output {
        None if args.json => output::json(&json!({ "configuration": starter })),
        None => output::line(starter.trim_end()),
        Some(path) => {
            create(path, &starter).map_err(|error| CliError::unusable(format!("{}: {}", path.display(), reason(&error))))?;
            let warning = if args.clustered { None } else { not_private(folder) };
            if args.json {
                return output::json(&json!({ "written": path.display().to_string(), "warning": warning }));
            }
            let warning = warning.map(|warning| format!("\nwarning: {warning}")).unwrap_or_default();
            output::line(&format!("{0} written. Edit it, then run `causeway check {0}`.{warning}", path.display()))
        }
    }
}

/// What `run` would say of the folder that the stores are in, which is the file's own.
fn not_private(folder: &Path) -> Option<String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = folder.canonicalize().ok()?;
    folder_is_private(&folder.join("causeway.db")).err().map(|error| format!("the stores are kept in this folder, and {error}"))
}

/// The configuration of a bridge `id` whose files, if it has any, stand in `folder`; empty: in the current one.
fn starter(clustered: bool, id: &str, folder: &Path) -> String {
    let text = if clustered { CLUSTERED } else { STANDALONE };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // What a subscription store is found by must not depend on where a command is run.
    let folder = folder.canonicalize().ok().and_then(|folder| folder.to_str().map(str::to_owned)).filter(|folder| is_plain(folder));
    let text = text.replace(PLACEHOLDER_ID, id);
    folder.map_or(text.clone(), |folder| text.replace(PLACEHOLDER_FOLDER, folder.trim_end_matches('/')))
}

/// Whether a path means the same inside `${NAME:-…}` and as plain text of YAML.
fn is_plain(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_alphanumeric() || "/._+@-".contains(c))
}

fn random_id() -> Result<String, CliError> {
    let mut digits = [0; 4];
    getrandom::fill(&mut digits).map_err(|error| CliError::fault(format!("no random bits: {error}")))?;
    Ok(format!("bridge-{:08x}", u32::from_be_bytes(digits)))
}

fn bridge_id(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if fits { Ok(text.to_owned()) } else { Err("write 1 to 64 letters, digits, `-` and `_`".to_owned()) }
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
    use causeway_core::config::{Source, load};

    #[test]
    fn both_starters_are_valid_without_any_variable_and_without_a_warning_and_run_on_this_release() {
        let folder = tempfile::tempdir().unwrap();
        for clustered in [false, true] {
            let text = starter(clustered, "plant_1", folder.path());
            let loaded = load(&[Source { name: "starter", text: &text }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}"));
            assert_eq!(loaded.warnings, [], "clustered: {clustered}");
            let session = &loaded.config.sessions[0].options.session;
            assert_eq!((&*loaded.config.bridge.id, session.client_id.as_str()), ("plant_1", "plant_1"));
        }
    }

    #[test]
    fn two_starters_are_two_clients_of_the_broker() {
        let ids: std::collections::BTreeSet<String> = (0..20).map(|_| random_id().unwrap()).collect();
        assert_eq!(ids.len(), 20);
        assert!(ids.iter().all(|id| bridge_id(id).is_ok() && id.len() <= 23), "every broker takes 23 letters and digits: {ids:?}");
        for wrong in ["", "a b", "a/b", "é", &"x".repeat(65)] {
            assert!(bridge_id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_stand_beside_the_configuration_unless_their_folder_cannot_be_written_out() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().canonicalize().unwrap();
        assert!(starter(false, "b", folder.path()).contains(&format!("${{CAUSEWAY_DATA:-{}/causeway.db}}", there.display())));
        let odd = folder.path().join("a } b");
        std::fs::create_dir(&odd).unwrap();
        for elsewhere in [&odd, &folder.path().join("none")] {
            assert!(starter(false, "b", elsewhere).contains("${CAUSEWAY_DATA:-/var/lib/causeway/causeway.db}"));
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
