//! What clients can take from a listener, over real connections.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use causeway_worker::http::serve::{Bounds, serve};
use core::time::Duration;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    addr: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(bounds: Bounds) -> Self {
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/echo", post(|body: Bytes| async move { body }))
            .route("/large", get(|| async { vec![0_u8; 64 << 20] }))
            .route("/slow", get(|| async { tokio::time::sleep(PATIENCE * 2).await }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let task = tokio::spawn(serve(listener, router, bounds, stop.clone()));
        Self { addr, stop, task }
    }

    async fn client(&self, says: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.addr).await.unwrap();
        client.write_all(says.as_bytes()).await.unwrap();
        client
    }
}

/// Everything until the server closes the connection.
async fn all(mut client: TcpStream) -> String {
    let mut heard = Vec::new();
    // A reset is an end, too.
    let _ = tokio::time::timeout(PATIENCE, client.read_to_end(&mut heard)).await.expect("the connection stays open");
    String::from_utf8_lossy(&heard).into_owned()
}

/// The next answer's beginning.
async fn some(client: &mut TcpStream) -> String {
    let mut heard = [0; 256];
    let length = tokio::time::timeout(PATIENCE, client.read(&mut heard)).await.expect("nothing is answered").unwrap();
    String::from_utf8_lossy(&heard[..length]).into_owned()
}

fn bounds() -> Bounds {
    let short = Duration::from_millis(200);
    Bounds { connections: 4, headers: short, request: short, connection: PATIENCE * 2 }
}

const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn who_sends_no_headers_or_half_of_them_is_shown_out() {
    let server = Server::start(bounds()).await;
    for says in ["", "GET / HTTP/1.1\r\nhost:"] {
        let heard = all(server.client(says).await).await;
        assert!(!heard.contains("200"), "{heard}");
    }
}

#[tokio::test]
async fn who_is_idle_after_an_answer_is_shown_out() {
    let server = Server::start(bounds()).await;
    let heard = all(server.client(GET).await).await;
    assert!(heard.starts_with("HTTP/1.1 200") && heard.ends_with("here"), "{heard}");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let server = Server::start(bounds()).await;
    let heard = all(server.client("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhal").await).await;
    assert!(heard.starts_with("HTTP/1.1 408"), "{heard}");
}

#[tokio::test]
async fn a_slow_answer_is_given_up() {
    let server = Server::start(bounds()).await;
    let mut client = server.client("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(some(&mut client).await.starts_with("HTTP/1.1 408"));
}

/// Four that say nothing have every place; the fifth gets its answer once they are shown out.
#[tokio::test]
async fn silent_clients_hold_up_others_for_the_bound_and_no_longer() {
    let server = Server::start(bounds()).await;
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(server.client("").await);
    }
    let mut client = server.client(GET).await;
    assert!(some(&mut client).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn no_more_are_served_at_a_time_than_there_are_places() {
    let bounds = Bounds { headers: PATIENCE * 2, ..bounds() };
    let server = Server::start(bounds).await;
    let mut clients = Vec::new();
    for _ in 0..bounds.connections {
        let mut client = server.client(GET).await;
        assert!(some(&mut client).await.starts_with("HTTP/1.1 200"));
        clients.push(client);
    }
    let mut late = server.client(GET).await;
    let mut byte = [0; 1];
    assert!(tokio::time::timeout(Duration::from_millis(300), late.read(&mut byte)).await.is_err(), "a place too many");
    drop(clients.pop());
    assert!(some(&mut late).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn who_does_not_read_the_answer_is_shown_out() {
    let bounds = Bounds { connections: 1, connection: Duration::from_millis(300), ..bounds() };
    let server = Server::start(bounds).await;
    let _deaf = server.client("GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut client = server.client(GET).await;
    assert!(some(&mut client).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn at_the_end_idle_connections_are_closed_and_the_listener_with_them() {
    let bounds = Bounds { headers: PATIENCE * 2, ..bounds() };
    let server = Server::start(bounds).await;
    let mut client = server.client(GET).await;
    assert!(some(&mut client).await.starts_with("HTTP/1.1 200"));
    server.stop.cancel();
    assert_eq!(all(client).await, "");
    tokio::time::timeout(PATIENCE, server.task).await.expect("it goes on").unwrap();
    assert!(TcpStream::connect(server.addr).await.is_err());
}
