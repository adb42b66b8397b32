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

/// Starts logging for the rest of the process. Later calls change nothing.
///
/// Dependencies are heard from `warn` on: what they say at `info` and below is theirs to phrase and may quote requests.
pub fn start(format: LogFormat, level: &str) {
    let level = level.parse().unwrap_or(LevelFilter::INFO);
    let ours = ["causeway_worker", "causeway", "causeway_core", "causeway_mqtt", "causeway_aws", "causeway_local"];
    let directives = ours.map(|name| format!("{name}={level}")).join(",");
    let dependencies = level.min(LevelFilter::WARN);
    let fallback = || EnvFilter::builder().parse_lossy(format!("{dependencies},{directives}"));
    let filter = match std::env::var(LEVEL_VARIABLE) {
        Ok(text) if !text.trim().is_empty() => match text.trim().parse::<LevelFilter>() {
            Ok(level) => EnvFilter::builder().parse_lossy(format!(
                "{},{}",
                level.min(LevelFilter::WARN),
                ours.map(|name| format!("{name}={level}")).join(",")
            )),
            Err(_) => EnvFilter::builder().parse_lossy(format!("{dependencies},{directives},{text}")),
        },
        _ => fallback(),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start (in tests) is refused by the library; the first one stays.
    let _ = match format {
        LogFormat::Json => tracing::subscriber::set_global_default(
            builder.json().flatten_event(true).with_current_span(true).with_span_list(false).finish(),
        ),
        LogFormat::Human => tracing::subscriber::set_global_default(builder.with_ansi(std::io::stderr().is_terminal()).finish()),
    };
}
