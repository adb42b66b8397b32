//! The TCP connection under a client.

use crate::options::BrokerUrl;
use core::fmt;
use core::time::Duration;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// The host has no address.
#[derive(Debug)]
pub(crate) struct NameNotResolved {
    host: String,
    reason: String,
}

impl fmt::Display for NameNotResolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host name `{}` cannot be resolved: {}", self.host, self.reason)
    }
}

impl std::error::Error for NameNotResolved {}

/// A second handle on the connection's socket, so that it can be closed in order after the client let go of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketHandle(Arc<Mutex<Option<std::net::TcpStream>>>);

impl SocketHandle {
    /// Tells the broker that nothing more comes and waits until it closed too, at most `patience`. Closing at once while unread bytes of the
    /// broker wait here would make the kernel reset the connection, and the broker may then throw away the acknowledgements that it did not read.
    pub(crate) async fn finish(&self, patience: Duration) {
        let Some(socket) = self.take() else { return };
        if socket.shutdown(std::net::Shutdown::Write).is_err() {
            return;
        }
        let Ok(mut stream) = TcpStream::from_std(socket) else {
            return;
        };
        let mut rest = [0; 4_096];
        let drained = async { while matches!(stream.read(&mut rest).await, Ok(count) if count > 0) {} };
        // A broker that does not close in time has had its chance; the session is kept either way.
        let _ = timeout(patience, drained).await;
    }

    /// Lets go of the socket.
    pub(crate) fn release(&self) {
        self.take();
    }

    fn take(&self) -> Option<std::net::TcpStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep(&self, socket: std::net::TcpStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
    }
}

/// Connects to the first of the host's addresses that answers; one that does not cannot use up the time of all.
pub(crate) async fn connect(url: &BrokerUrl, limit: Duration, handle: &SocketHandle) -> io::Result<TcpStream> {
    let unresolved = |reason: String| io::Error::new(io::ErrorKind::NotFound, NameNotResolved { host: url.host().to_owned(), reason });
    let addresses: Vec<_> = lookup_host((url.host(), url.port())).await.map_err(|error| unresolved(error.to_string()))?.collect();
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = unresolved("it has no address".to_owned());
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return prepared(stream, handle),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

fn prepared(stream: TcpStream, handle: &SocketHandle) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = stream.into_std()?;
    handle.keep(socket.try_clone()?);
    TcpStream::from_std(socket)
}
