//! The listeners of the monitor and of the admin interface, open before anything else starts.

use super::origins::Origins;
use super::tls::{ListenerTls, TlsFault};
use super::{BindError, bind};
use crate::wiring::ProcessPlan;
use thiserror::Error;
use tokio::net::TcpListener;

/// A listener that cannot be had.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Its address.
    #[error(transparent)]
    Address(#[from] BindError),
    /// Its certificate.
    #[error("http.tls_cert_file, http.tls_key_file: {0}")]
    Certificate(#[from] TlsFault),
}

/// The listeners, and the certificate of both.
#[derive(Debug)]
pub struct Listeners {
    /// The monitor's.
    pub monitor: TcpListener,
    /// The admin interface's, where a key opens it.
    pub admin: Option<TcpListener>,
    /// What both speak TLS with, if they do.
    pub tls: Option<ListenerTls>,
}

impl Listeners {
    /// Opens what `process` wants.
    ///
    /// # Errors
    /// Where an address or the certificate cannot be used.
    pub async fn open(process: &ProcessPlan) -> Result<Self, ListenError> {
        let tls = process.tls.clone().map(ListenerTls::load).transpose()?;
        let monitor = bind("http.monitor_addr", process.monitor_addr).await?;
        let admin = match &process.admin {
            Some(plan) => Some(bind("http.admin_addr", plan.addr).await?),
            None => None,
        };
        Ok(Self { monitor, admin, tls })
    }

    /// Where the admin interface listens, if it does.
    #[must_use]
    pub fn admin_port(&self) -> Option<u16> {
        self.admin.as_ref().and_then(port)
    }

    /// Whose pages may call the admin interface: those that the configuration names, and this process's own.
    #[must_use]
    pub fn origins_of_admin(&self, process: &ProcessPlan) -> Origins {
        let named = Origins::named(&process.origins);
        match port(&self.monitor) {
            Some(page) => named.with_page(page, self.tls.is_some()),
            None => named,
        }
    }
}

fn port(listener: &TcpListener) -> Option<u16> {
    listener.local_addr().ok().map(|address| address.port())
}
