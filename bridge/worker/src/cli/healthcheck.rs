//! `causeway healthcheck`: whether the worker on this host is live.

use super::error::CliError;
use super::{ConfigArgs, load, output};
use crate::http::monitor::PREFIX;
use clap::Args;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;

/// A worker that answers later than this is not well.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Where the monitor listens unless configured.
const DEFAULT_PORT: u16 = 8081;

/// Arguments of `healthcheck`.
#[derive(Debug, Args)]
pub struct HealthcheckArgs {
    /// The monitor's address, such as http://127.0.0.1:8081
    #[arg(long, conflicts_with = "config")]
    url: Option<String>,
    /// Take the address from this configuration
    #[arg(short = 'c', long = "config", value_name = "FILE", num_args = 1..)]
    config: Vec<PathBuf>,
}

/// Asks.
///
/// # Errors
/// Where the worker is not live or does not answer.
pub async fn execute(args: HealthcheckArgs) -> Result<ExitCode, CliError> {
    let base = match args.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None if args.config.is_empty() && std::env::var_os(super::files::INLINE).is_none() => format!("http://127.0.0.1:{DEFAULT_PORT}"),
        None => base_url(load::load(&ConfigArgs { config: args.config })?.config.http.monitor_addr.get()),
    };
    let url = format!("{base}{PREFIX}/live");
    let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(|error| CliError::fault(error.to_string()))?;
    let answer = client.get(&url).send().await.map_err(|error| CliError::fault(format!("{url} does not answer: {}", cause(&error))))?;
    let status = answer.status();
    let body = answer.text().await.unwrap_or_default();
    if status.is_success() { output::line(&body) } else { Err(CliError::fault(format!("{url} answers {status}: {body}"))) }
}

/// Where a monitor that listens on `addr` is reached from this host.
#[must_use]
pub fn base_url(addr: SocketAddr) -> String {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, addr.port()))
}

/// The innermost cause, which says what happened.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(next) = innermost.source() {
        innermost = next;
    }
    innermost.to_string()
}
