//! `causeway healthcheck`: whether the worker on this host is live.

use super::error::CliError;
use super::{ConfigArgs, load, output};
use crate::http::monitor::PREFIX;
use crate::http::tls;
use crate::wiring;
use causeway_core::config::model::Http;
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
    let (client, base) = match args.url {
        Some(url) => (reqwest::Client::builder().no_proxy(), url.trim_end_matches('/').to_owned()),
        None if args.config.is_empty() && std::env::var_os(super::files::INLINE).is_none() => {
            (reqwest::Client::builder().no_proxy(), format!("http://127.0.0.1:{DEFAULT_PORT}"))
        }
        None => local(&load::load(&ConfigArgs { config: args.config })?.config.http)?,
    };
    let url = format!("{base}{PREFIX}/live");
    let client = client.timeout(TIMEOUT).build().map_err(|error| CliError::fault(error.to_string()))?;
    let answer = client.get(&url).send().await.map_err(|error| CliError::fault(format!("{url} does not answer: {}", cause(&error))))?;
    let status = answer.status();
    let body = answer.text().await.unwrap_or_default();
    if status.is_success() { output::line(&body) } else { Err(CliError::fault(format!("{url} answers {status}: {body}"))) }
}

/// What asks the monitor of `http` on this host, and where. There it has no name that a certificate could be for; the certificate itself is known.
///
/// # Errors
/// Where the certificate cannot be read.
pub fn local(http: &Http) -> Result<(reqwest::ClientBuilder, String), CliError> {
    let client = reqwest::Client::builder().no_proxy();
    let addr = http.monitor_addr.get();
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let at = SocketAddr::new(ip, addr.port());
    let Some(files) = wiring::tls_files(http) else { return Ok((client, format!("http://{at}"))) };
    let own = files.certificate().map_err(CliError::unusable)?;
    Ok((client.tls_backend_preconfigured(tls::only(own).map_err(CliError::fault)?), format!("https://{at}")))
}

/// The innermost cause, which says what happened.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(next) = innermost.source() {
        innermost = next;
    }
    innermost.to_string()
}
