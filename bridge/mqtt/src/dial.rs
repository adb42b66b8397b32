//! The connection under a client, layer by layer: TCP, TLS, websockets, and the translation for brokers of MQTT 3.1.1. The client above sees plain MQTT 5
//! whatever lies below.

use crate::downgrade::Downgraded;
use crate::options::{BrokerUrl, Protocol};
use crate::websocket;
use core::fmt;
use core::time::Duration;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// What a client reads from and writes to.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// Where to connect, and what to speak there.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) url: BrokerUrl,
    /// For addresses that say TLS.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) protocol: Protocol,
    /// For MQTT 3.1.1: whether the session begins and ends with the connection.
    pub(crate) clean_session: bool,
    /// The largest packet that is taken, in bytes.
    pub(crate) max_packet_bytes: u32,
    /// The receive buffer, in bytes; 0: as the operating system has it.
    pub(crate) receive_buffer: u32,
    /// For all layers together.
    pub(crate) limit: Duration,
}

/// TLS could not be agreed on. The reason is what lies in it.
#[derive(Debug)]
pub(crate) struct TlsHandshake(pub(crate) io::Error);

impl fmt::Display for TlsHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}", self.0)
    }
}

impl std::error::Error for TlsHandshake {}

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

/// Connects all layers of `target`.
pub(crate) async fn connect(target: &Target, handle: &SocketHandle) -> io::Result<Box<dyn Stream>> {
    let mut stream: Box<dyn Stream> = Box::new(tcp(target, handle).await?);
    if let Some(config) = &target.tls {
        stream = Box::new(secured(stream, target.url.host(), config).await?);
    }
    if let Some(path) = target.url.websocket_path() {
        stream = Box::new(websocket::open(stream, &target.url, path).await?);
    }
    Ok(match target.protocol {
        Protocol::V5 => stream,
        Protocol::V311 => Box::new(Downgraded::new(stream, target.clean_session, target.max_packet_bytes)),
    })
}

async fn secured(stream: Box<dyn Stream>, host: &str, config: &Arc<ClientConfig>) -> io::Result<impl Stream + use<>> {
    let failed = |error: io::Error| io::Error::new(error.kind(), TlsHandshake(error));
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(failed)
}

/// Connects to the first of the host's addresses that answers; one that does not cannot use up the time of all.
async fn tcp(target: &Target, handle: &SocketHandle) -> io::Result<TcpStream> {
    let Target { url, limit, .. } = target;
    let unresolved = |reason: String| io::Error::new(io::ErrorKind::NotFound, NameNotResolved { host: url.host().to_owned(), reason });
    let addresses: Vec<_> = lookup_host((url.host(), url.port())).await.map_err(|error| unresolved(error.to_string()))?.collect();
    let share = *limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = unresolved("it has no address".to_owned());
    for address in addresses {
        match timeout(share, reached(address, target.receive_buffer)).await {
            Ok(Ok(stream)) => return prepared(stream, handle),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

/// The buffer has to be set before the connection is made: that is when the window is agreed on.
async fn reached(address: SocketAddr, receive_buffer: u32) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if receive_buffer > 0 {
        socket.set_recv_buffer_size(receive_buffer)?;
    }
    socket.connect(address).await
}

fn prepared(stream: TcpStream, handle: &SocketHandle) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = stream.into_std()?;
    handle.keep(socket.try_clone()?);
    TcpStream::from_std(socket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// As the operating system tells it. Linux keeps twice what was asked for, and no less than a floor of its own.
    async fn buffer_of(asked: u32) -> u32 {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let stream = reached(listener.local_addr().unwrap(), asked).await.unwrap();
        TcpSocket::from_std_stream(stream.into_std().unwrap()).recv_buffer_size().unwrap()
    }

    #[tokio::test]
    async fn flow_the_receive_buffer_of_a_connection_is_as_asked_for() {
        // Linux doubles what is asked for.
        for asked in [16 * 1024, 48 * 1024] {
            let got = buffer_of(asked).await;
            assert!(got == asked || got == 2 * asked, "{got} for {asked}");
        }
        assert!(buffer_of(0).await > 0);
    }
}
