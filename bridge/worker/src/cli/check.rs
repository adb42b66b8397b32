//! `causeway check`: every fault of a configuration at once, without opening a connection.

use super::error::CliError;
use super::{budget, files, output};
use causeway_core::config::Config;
use causeway_core::config::model::SessionMode;
use causeway_core::flow::capacity::{self, Bound, Resource};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// What `check` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The configuration's files, in the order in which they apply.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Exit code 0 for a valid configuration, 2 for an invalid one.
///
/// # Errors
/// Where the answer cannot be printed.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let (text, code) = answer(args);
    match output::line(text.trim_end()) {
        // Who reads no further (`| head`, `| grep -q`) still gets to know whether it is valid.
        Err(error) if !error.broken_pipe => Err(error),
        Ok(_) | Err(_) => Ok(ExitCode::from(code)),
    }
}

fn answer(args: &Args) -> (String, u8) {
    let (examined, read) = match files::examine(&args.files) {
        Ok(found) => found,
        Err(faults) if args.json => {
            return (format!("{:#}\n", json!({ "valid": false, "faults": files::as_json(&faults), "budgets": [] })), files::UNUSABLE);
        }
        Err(faults) => return (files::report(&faults, &[]), files::UNUSABLE),
    };
    let errors = examined.faults.iter().filter(|fault| fault.is_error()).count();
    let warnings = examined.faults.len() - errors;
    let valid = errors == 0;
    let budgets = examined.config.as_ref().map(|config| config.budgets()).unwrap_or_default();
    let code = if valid { 0 } else { files::UNUSABLE };
    let bounds = examined.config.as_ref().filter(|_| valid).map(capacity::bounds).unwrap_or_default();
    let hints = examined.config.as_ref().and_then(hints);
    if args.json {
        let shown = if valid { budgets.iter().map(budget::as_json).collect() } else { Vec::new() };
        return (
            format!(
                "{:#}\n",
                json!({ "valid": valid, "faults": files::as_json(&examined.faults), "budgets": shown, "capacity": capacity_as_json(&bounds), "hints": hints })
            ),
            code,
        );
    }
    let mut text = files::report(&examined.faults, &read);
    let warned = if warnings == 0 { String::new() } else { format!(", {}", counted(warnings, "warning")) };
    if !valid {
        text.push_str(&format!("invalid: {}{warned}\n", counted(errors, "error")));
        return (text, code);
    }
    text.push_str(&format!("valid{warned}\n\nfailover budgets:\n"));
    if budgets.is_empty() {
        text.push_str("  no exclusive session\n");
    }
    for one in &budgets {
        text.push_str(&format!("  {}\n", budget::summary(one)));
    }
    text.push_str(&capacity_table(&bounds));
    if let Some(hints) = hints {
        text.push_str(&format!("\n{hints}\n"));
    }
    (text, code)
}

/// What the configuration can come to need, for programs.
fn capacity_as_json(bounds: &[Bound]) -> serde_json::Value {
    json!({ "memory_bytes": capacity::memory(bounds), "bounds": bounds })
}

/// The same for people: each bound, and what all of memory comes to.
fn capacity_table(bounds: &[Bound]) -> String {
    if bounds.is_empty() {
        return String::new();
    }
    let mut text =
        format!("\nat most, of these windows and budgets, in each process: {} of memory\n", size(Some(capacity::memory(bounds))));
    for bound in bounds {
        let of = match bound.resource {
            Resource::Memory => "memory",
            Resource::Store => "outbox",
        };
        text.push_str(&format!("  {of:<6} {:>10}  {}: {}\n", size(bound.bytes), bound.place, bound.formula));
    }
    text
}

fn size(bytes: Option<u64>) -> String {
    match bytes {
        None => "unbounded".to_owned(),
        Some(bytes) if bytes < 1024 * 1024 => format!("{} KiB", bytes.div_ceil(1024)),
        Some(bytes) if bytes < 10 * 1024 * 1024 * 1024 => format!("{} MiB", bytes.div_ceil(1024 * 1024)),
        Some(bytes) => format!("{} GiB", bytes.div_ceil(1024 * 1024 * 1024)),
    }
}

/// Whether a planned hand-over is quick; `None` where nothing is handed over.
fn hints(config: &Config) -> Option<String> {
    if !config.sessions.iter().any(|session| session.session_mode == SessionMode::Exclusive) {
        return None;
    }
    Some(match crate::wiring::hint_token(config) {
        Some(_) => format!("hints: on; replicas tell each other of a free lease at {}", config.http.transport_addr),
        None => {
            "hints: off; without `http.hint_token` a planned hand-over waits for a standby's next look (acquire_poll_interval)".to_owned()
        }
    })
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    fn vectors(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name)
    }

    fn check(file: &str, json: bool) -> (String, u8) {
        answer(&Args { files: vec![vectors(file)], json })
    }

    #[test]
    fn the_scenario_is_valid_and_its_budget_is_told() {
        let (text, code) = check("vectors/scenario.yaml", false);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("mqtt-conn: owner_death 967.5s, broker_path off, objective 980s: admitted"), "{text}");
        assert!(text.contains("hints: off; without `http.hint_token`"), "{text}");
        let (text, code) = check("vectors/scenario.yaml", true);
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, &answer["valid"], &answer["budgets"][0]["owner_death"]), (0, &json!(true), &json!(967.5)));
    }

    #[test]
    fn what_a_configuration_can_come_to_need_is_told() {
        let (text, code) = check("fixtures/valid/standalone_sqlite.yaml", false);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("at most, of these windows and budgets, in each process: 579 MiB of memory"), "{text}");
        assert!(text.contains("sessions (broker): receive_maximum 500 x largest packet 393216 B"), "{text}");
        assert!(text.contains("sessions (broker): qos0_buffer_messages 1000 x largest packet 393216 B"), "{text}");
        assert!(text.contains("outbox  unbounded  routes (main): max_outbox_depth is not set"), "{text}");
        let answer: serde_json::Value = serde_json::from_str(&check("fixtures/valid/standalone_sqlite.yaml", true).0).unwrap();
        assert_eq!(answer["capacity"]["memory_bytes"], json!(1_500_u64 * 393_216 + 16 * 1024 * 1024));
        assert_eq!(answer["capacity"]["bounds"][0]["taker"], "receive_window");
    }

    #[test]
    fn a_missing_file_is_unusable() {
        assert_eq!(check("vectors/none.yaml", false).1, 2);
        let (text, code) = check("vectors/none.yaml", true);
        assert_eq!(code, 2);
        assert!(text.contains("E_FILE_MISSING"), "{text}");
    }

    #[test]
    fn every_fault_of_a_file_is_told_with_its_line() {
        let (text, code) = check("fixtures/invalid/many_faults.yaml", false);
        assert_eq!(code, 2);
        assert!(text.matches("error[").count() > 5, "{text}");
        assert!(text.contains(" | "), "{text}");
    }
}
