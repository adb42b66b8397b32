//! A broker that does exactly what a test tells it to.

use crate::packets::{Sent, connack, decode, read, suback};
use crate::support::PATIENCE;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

pub struct ScriptedBroker {
    listener: TcpListener,
    pub port: u16,
}

impl ScriptedBroker {
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, port }
    }

    /// The next connection, with its CONNECT read and not yet answered.
    pub async fn accept(&self) -> (Peer, Sent) {
        let (stream, _) = timeout(PATIENCE, self.listener.accept()).await.expect("no connection came").unwrap();
        stream.set_nodelay(true).unwrap();
        let mut peer = Peer { stream };
        let connect = peer.next().await.expect("no CONNECT came");
        (peer, connect)
    }

    /// The next connection, whatever it begins with, with its first packet read and not yet answered.
    pub async fn accept_any(&self) -> Peer {
        let (stream, _) = timeout(PATIENCE, self.listener.accept()).await.expect("no connection came").unwrap();
        stream.set_nodelay(true).unwrap();
        let mut peer = Peer { stream };
        peer.skip_packet().await;
        peer
    }

    /// The next connection, accepted.
    pub async fn welcome(&self, session_present: bool) -> Peer {
        let (mut peer, _) = self.accept().await;
        peer.send(connack(session_present, 0, &[])).await;
        peer
    }

    /// The next connection, accepted and with its one subscription granted.
    pub async fn serve(&self, session_present: bool) -> Peer {
        let mut peer = self.welcome(session_present).await;
        peer.grant(1).await;
        peer
    }

    /// Whether a connection waits to be accepted right now.
    pub async fn has_caller(&self) -> bool {
        timeout(std::time::Duration::from_millis(1), self.listener.accept()).await.is_ok()
    }
}

pub struct Peer {
    stream: TcpStream,
}

impl Peer {
    pub async fn send(&mut self, bytes: Vec<u8>) {
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// Sends, whether the client still listens or not.
    pub async fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next packet; `None` when the client has closed.
    pub async fn next(&mut self) -> Option<Sent> {
        let (first, body) = timeout(PATIENCE, read(&mut self.stream)).await.expect("the client sent nothing")?;
        Some(decode(first, &body))
    }

    /// Takes the next packet, whatever it is.
    pub async fn skip_packet(&mut self) {
        timeout(PATIENCE, read(&mut self.stream)).await.expect("the client sent nothing").expect("the client closed");
    }

    /// Whether the client sends nothing for a moment.
    pub async fn is_quiet(&mut self) -> bool {
        let mut one = [0];
        timeout(std::time::Duration::from_millis(100), self.stream.peek(&mut one)).await.is_err()
    }

    /// Reads `count` SUBSCRIBEs and grants each with quality of service 1.
    pub async fn grant(&mut self, count: usize) -> Vec<Sent> {
        let mut all = Vec::new();
        for _ in 0..count {
            let subscribe = self.next().await.expect("closed before SUBSCRIBE");
            let Sent::Subscribe { id, .. } = subscribe else { panic!("expected SUBSCRIBE, got {subscribe:?}") };
            self.send(suback(id, &[1])).await;
            all.push(subscribe);
        }
        all
    }

    /// The identifiers of the next `count` PUBACKs.
    pub async fn acks(&mut self, count: usize) -> Vec<u16> {
        let mut ids = Vec::new();
        while ids.len() < count {
            match self.next().await.expect("closed before all PUBACKs came") {
                Sent::PubAck(id) => ids.push(id),
                Sent::Ping => self.send(vec![0xd0, 0]).await,
                other => panic!("expected PUBACK, got {other:?}"),
            }
        }
        ids
    }

    /// Everything that the client sends until it closes.
    pub async fn rest(mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        while let Some(sent) = self.next().await {
            all.push(sent);
        }
        all
    }
}
