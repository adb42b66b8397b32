//! Structured logs on stderr; stdout belongs to command output and metrics.

use serde::Serialize;
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Text for people.
    #[default]
    Human,
}

/// The environment variable whose directives, such as `debug` or `causeway_mqtt=trace`, go before the configured level.
pub const LEVEL_VARIABLE: &str = "CAUSEWAY_LOG";

/// The target of what is done through the admin interface. It is logged at every level.
pub const AUDIT: &str = "audit";

/// The crates of this program, whose `info` and below is written for operators.
const OURS: [&str; 6] = ["causeway_worker", "causeway", "causeway_core", "causeway_mqtt", "causeway_aws", "causeway_local"];

/// Starts logging for the rest of the process, panics included. Later calls change nothing.
pub fn start(format: LogFormat, level: &str) {
    let chosen = std::env::var(LEVEL_VARIABLE).unwrap_or_default();
    let filter = EnvFilter::builder().parse_lossy(directives(level, &chosen));
    // A log line that cannot be written is lost, and nothing else: complaining about it on the same stream would end the process.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    let started = match format {
        LogFormat::Json => {
            let json = builder.json().flatten_event(true).with_current_span(true).with_span_list(false);
            tracing::subscriber::set_global_default(json.finish())
        }
        LogFormat::Human => tracing::subscriber::set_global_default(builder.with_ansi(std::io::stderr().is_terminal()).finish()),
    };
    if started.is_ok() {
        // The message of a panic may quote a value; where it happened is enough to find the defect.
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            tracing::error!(%place, "a task broke: a defect, please report it with this log");
        }));
    }
}

/// What is logged: `level` of our crates, as configured or as the environment's `chosen` says, and whatever further directives it holds.
///
/// Dependencies are heard from `warn` on: what they say at `info` and below is theirs to phrase and may quote requests.
fn directives(level: &str, chosen: &str) -> String {
    let chosen = chosen.trim();
    let (level, further) = match chosen.parse::<LevelFilter>() {
        Ok(level) if !chosen.is_empty() => (level, ""),
        Ok(_) | Err(_) => (level.parse().unwrap_or(LevelFilter::INFO), chosen),
    };
    let ours = OURS.map(|name| format!("{name}={level}")).join(",");
    let dependencies = level.min(LevelFilter::WARN);
    [dependencies.to_string(), ours, format!("{AUDIT}=info"), further.to_owned()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn the_environment_goes_before_the_configuration_and_dependencies_stay_quiet() {
        for (level, chosen, expected) in [
            ("info", "", ["warn,", "causeway_worker=info"]),
            ("error", "", ["error,", "causeway_core=error"]),
            ("info", "debug", ["warn,", "causeway_mqtt=debug"]),
            ("info", " trace ", ["warn,", "causeway_aws=trace"]),
            ("nonsense", "", ["warn,", "causeway_worker=info"]),
            (
                "info",
                "causeway_mqtt=trace",
                ["warn,", "causeway_mqtt=info,causeway_aws=info,causeway_local=info,audit=info,causeway_mqtt=trace"],
            ),
        ] {
            let text = directives(level, chosen);
            assert!(text.starts_with(expected[0]) && text.contains(expected[1]), "{level} {chosen}: {text}");
            assert!(EnvFilter::builder().parse(&text).is_ok(), "{text}");
        }
    }
}
