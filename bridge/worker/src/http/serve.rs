//! Serves one of the program's listeners within bounds: a slow or idle client costs a connection for some seconds and never the program its files.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use causeway_core::proxies::Proxies;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;
use tracing::debug;

/// What a listener grants its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at a time. More wait in the kernel until one ends.
    pub connections: usize,
    /// From the begin of a connection, or the end of its last request, to the end of the next request's headers.
    pub headers: Duration,
    /// From the headers to the answer, the request's body included.
    pub request: Duration,
    /// Of a connection in all: who does not read what is answered goes then.
    pub connection: Duration,
}

impl Default for Bounds {
    /// Fit for probes, scrapers, status pages and members. The listeners together stay far below the 256 open files of a narrow default.
    fn default() -> Self {
        Self { connections: 64, headers: Duration::from_secs(5), request: Duration::from_secs(5), connection: Duration::from_secs(60) }
    }
}

impl Bounds {
    /// For the port that messages are posted to: many callers, and a post that is passed on to an owner that is just changing takes its time.
    #[must_use]
    pub fn of_posts() -> Self {
        Self { connections: 128, request: causeway_core::ingress::PATIENCE + Duration::from_secs(10), ..Self::default() }
    }

    /// The same where requests may take `time` at the rightful most: they are answered for themselves before the listener gives them up.
    #[must_use]
    pub fn for_requests_of(self, time: Duration) -> Self {
        let request = self.request.max(time.saturating_add(Duration::from_secs(5)));
        Self { request, connection: self.connection.max(request), ..self }
    }
}

/// Pause after a refused `accept`: the process has no file left, or the client is gone already.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a request came from: the other end of its connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Where a request came from, as far as `proxies` tell that of it.
#[must_use]
pub fn client(request: &Request, proxies: &Proxies) -> IpAddr {
    let peer = request.extensions().get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    // What is no text was written by no proxy, and ends the search like any other word that is no address.
    let forwarded: Vec<&str> = request.headers().get_all(FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or("?")).collect();
    proxies.client(peer, forwarded.into_iter())
}

/// Where proxies tell it.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Serves `router` on `listener` until `stop`; then requests under way are answered first.
pub async fn serve(listener: TcpListener, router: Router, bounds: Bounds, stop: CancellationToken) {
    serve_with(listener, None, router, bounds, stop).await;
}

/// The same, with TLS where `tls` is given.
pub async fn serve_with(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, bounds: Bounds, stop: CancellationToken) {
    let router = router.layer(middleware::from_fn(move |request, next| within(bounds.request, request, next)));
    let room = Arc::new(Semaphore::new(bounds.connections));
    let mut connections = JoinSet::new();
    while let Some((stream, peer, place)) = next_connection(&listener, &room, &stop).await {
        let (router, tls, stop) = (router.clone(), tls.clone(), stop.clone());
        connections.spawn(async move {
            let _place = place;
            match tls {
                None => connection(stream, peer, router, bounds, stop).await,
                Some(tls) => match tokio::time::timeout(bounds.headers, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, peer, router, bounds, stop).await,
                    Ok(Err(error)) => debug!(%error, "a client did not agree on TLS"),
                    Err(_) => debug!("a client took too long to agree on TLS"),
                },
            }
        });
        // Those that ended: else the set would grow.
        while connections.try_join_next().is_some() {}
    }
    while connections.join_next().await.is_some() {}
}

/// The next client and its place; `None` once it shall stop. The place comes first, so that who has none waits unaccepted.
async fn next_connection(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, Peer, OwnedSemaphorePermit)> {
    loop {
        let next = async {
            let place = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, peer) = listener.accept().await?;
            Ok::<_, io::Error>((stream, Peer(peer.ip()), place))
        };
        match stop.run_until_cancelled(next).await? {
            Ok(client) => return Some(client),
            Err(error) => {
                debug!(%error, "a connection was not accepted");
                stop.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await?;
            }
        }
    }
}

async fn connection<S>(stream: S, peer: Peer, router: Router, bounds: Bounds, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(bounds.headers);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().call(request.map(Body::new))
    });
    let mut serving = core::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let whole = tokio::time::sleep(bounds.connection);
    tokio::select! {
        ended = serving.as_mut() => return told(ended),
        () = stop.cancelled() => {}
        () = whole => {}
    }
    // The request under way gets its answer, and no other begins.
    serving.as_mut().graceful_shutdown();
    if let Ok(ended) = tokio::time::timeout(bounds.request, serving).await {
        told(ended);
    }
}

fn told(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        debug!(%error, "a connection ended early");
    }
}

async fn within(limit: Duration, request: Request, next: Next) -> Response {
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response(),
    }
}
