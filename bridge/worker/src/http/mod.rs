//! The program's own HTTP listeners: bound before anything else starts, so that a port in use is told at once.

pub mod admin;
mod auth;
pub mod commands;
mod forward;
pub mod listeners;
pub mod monitor;
pub mod origins;
mod page;
pub mod posts;
pub mod serve;
mod source;
pub mod tls;
pub mod transport;

pub use source::PostSource;

use core::net::SocketAddr;
use std::io;
use thiserror::Error;
use tokio::net::TcpListener;

/// An address that cannot be listened on.
#[derive(Debug, Error)]
#[error("{setting} {addr}: {reason}")]
pub struct BindError {
    /// The setting that names the address.
    pub setting: &'static str,
    /// The address.
    pub addr: SocketAddr,
    /// What is wrong and what to do.
    pub reason: String,
}

/// Binds `addr`, which the configuration gives as `setting`.
///
/// # Errors
/// [`BindError`] where the port is in use, the address is not this host's, or the port needs privileges.
pub async fn bind(setting: &'static str, addr: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(addr).await.map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::AddrInUse => "the port is in use: stop the other program, or set another port".to_owned(),
            io::ErrorKind::AddrNotAvailable => "the address is not one of this host's: set `:PORT` for every interface".to_owned(),
            io::ErrorKind::PermissionDenied => "not permitted: ports below 1024 need privileges, set a higher one".to_owned(),
            _ => error.to_string(),
        };
        BindError { setting, addr, reason }
    })
}
