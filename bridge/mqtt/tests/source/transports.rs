//! Other ways to a broker than a plain connection to its one address: websockets, several addresses; and what a will tells of a client.

use crate::mosquitto::{Mosquitto, free_port};
use crate::packets::{Publish, Publisher};
use crate::secure::Authority;
use crate::support::{PATIENCE, any_delivery, connected, disconnected, options, ready, source, text};
use async_tungstenite::tokio::accept_hdr_async;
use async_tungstenite::tungstenite::Message;
use async_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use async_tungstenite::tungstenite::http::HeaderValue;
use causeway_core::outcome::FaultCode;
use causeway_mqtt::{BrokerUrl, CaSource, SourceOptions, Will, probe};
use causeway_ports::Source;
use core::time::Duration;
use futures_util::StreamExt;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Passes what comes by websocket on to the broker at `port` and back, in messages that know nothing of packets, and with pings among them.
async fn pass(stream: impl AsyncRead + AsyncWrite + Unpin, port: u16) {
    #[allow(clippy::result_large_err, reason = "the library's own type")]
    let agree = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        assert_eq!(request.headers()["sec-websocket-protocol"], "mqtt");
        assert_eq!(request.uri().path(), "/mqtt");
        response.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("mqtt"));
        Ok(response)
    };
    let Ok(socket) = accept_hdr_async(stream, agree).await else { return };
    let (mut out, mut back) = socket.split();
    let (mut from, mut to) = TcpStream::connect(("127.0.0.1", port)).await.unwrap().into_split();
    let mut buffer = [0; 7];
    loop {
        tokio::select! {
            message = back.next() => match message {
                Some(Ok(Message::Binary(bytes))) => to.write_all(&bytes).await.unwrap(),
                Some(Ok(_)) => {}
                _ => return,
            },
            count = from.read(&mut buffer) => match count {
                Ok(count) if count > 0 => {
                    let all = [Message::Ping(Vec::new().into()), Message::Ping(b"\xe0\0".to_vec().into()), Message::Binary(buffer[..count].to_vec().into())];
                    for message in all {
                        if out.send(message).await.is_err() {
                            return;
                        }
                    }
                }
                _ => return,
            },
        }
    }
}

/// A websocket server in front of the broker at `port`; its own port.
async fn websocket_front(port: u16, tls: Option<TlsAcceptor>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                match tls {
                    None => pass(stream, port).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            pass(stream, port).await;
                        }
                    }
                }
            });
        }
    });
    here
}

fn at(url: &str) -> SourceOptions {
    let mut options = options(1, &[("a", "r")]);
    options.broker_url = BrokerUrl::parse(url).unwrap();
    options
}

#[tokio::test]
async fn messages_travel_over_websockets() {
    let broker = Mosquitto::start().await;
    let front = websocket_front(broker.port, None).await;
    let wanted = at(&format!("ws://127.0.0.1:{front}/mqtt"));
    assert_eq!(probe(&wanted).await.map(|_| ()), Ok(()));
    let mut source = source(wanted);
    ready(&mut source).await;
    let payloads: Vec<Publish> = (0..300).map(|n| Publish::new("a", 1, n.to_string())).collect();
    Publisher::connect(broker.port).await.publish_all(&payloads).await;
    for n in 0..300 {
        let delivery = any_delivery(&mut source).await;
        assert_eq!(text(&delivery), n.to_string());
        source.acknowledge(delivery.id);
    }
    source.close(Duration::from_secs(20)).await;
    assert_eq!((source.counters().acknowledged, source.counters().poison_packets), (300, 0));
}

#[tokio::test]
async fn websockets_over_tls_are_verified_as_any_other_connection() {
    let (right, wrong) = (Authority::new("right"), Authority::new("wrong"));
    let broker = Mosquitto::start().await;
    let front = websocket_front(broker.port, Some(right.acceptor(&["localhost"]))).await;
    let wanted = |authority: &Authority| {
        let mut wanted = at(&format!("wss://localhost:{front}/mqtt"));
        wanted.tls.ca = CaSource::Pem(authority.pem.as_bytes().to_vec());
        wanted
    };
    assert_eq!(probe(&wanted(&right)).await.map(|_| ()), Ok(()));
    let fault = probe(&wanted(&wrong)).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidConfig);
    assert!(fault.detail.contains("certificate"), "{fault}");
}

#[tokio::test]
async fn a_web_server_that_speaks_no_mqtt_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4_096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    let fault = probe(&at(&format!("ws://127.0.0.1:{port}/elsewhere"))).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidConfig);
    assert!(fault.detail.contains("404") && fault.detail.contains("path"), "{fault}");
}

#[tokio::test]
async fn the_next_address_is_tried_where_one_does_not_answer() {
    let broker = Mosquitto::start().await;
    let mut wanted = options(free_port(), &[("a", "r")]);
    wanted.session_expiry = 0;
    wanted.other_urls = [free_port(), broker.port].map(|port| BrokerUrl::parse(&format!("mqtt://127.0.0.1:{port}")).unwrap()).to_vec();
    let mut source = source(wanted);
    for _ in 0..2 {
        assert_eq!(disconnected(&mut source).await.0.code, FaultCode::Unavailable);
    }
    assert_eq!(connected(&mut source).await.0.0, 1);
    ready(&mut source).await;
    Publisher::connect(broker.port).await.publish(&Publish::new("a", 1, "x")).await;
    assert_eq!(text(&any_delivery(&mut source).await), "x");
}

#[tokio::test]
async fn a_will_is_published_for_whoever_vanishes_and_not_for_whoever_says_goodbye() {
    let broker = Mosquitto::start().await;
    let mut watcher = options(broker.port, &[("status/#", "r")]);
    watcher.client_id = "watcher".into();
    let mut watcher = source(watcher);
    ready(&mut watcher).await;
    let with_will = |payload: &str| {
        let mut wanted = options(broker.port, &[("a", "r")]);
        wanted.will = Some(Will { topic: "status/worker".into(), payload: payload.into(), qos: 1, retain: false });
        wanted
    };
    let mut polite = source(with_will("polite"));
    ready(&mut polite).await;
    polite.close(Duration::from_secs(20)).await;
    let mut gone = source(with_will("gone"));
    ready(&mut gone).await;
    drop(gone);
    let delivery = tokio::time::timeout(PATIENCE, any_delivery(&mut watcher)).await.unwrap();
    assert_eq!((delivery.message.topic.as_str(), text(&delivery).as_str()), ("status/worker", "gone"));
}

impl Authority {
    /// What a server of `names` says for itself.
    fn acceptor(&self, names: &[&str]) -> TlsAcceptor {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let (certificate, key) = self.issue(names, false);
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}
