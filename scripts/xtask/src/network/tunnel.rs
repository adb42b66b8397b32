//! A TCP proxy that carries what it is given, and stops carrying it where it is cut. All workers have to find the broker at one address, so
//! that they share one tunnel to it: there, a connection is whose name its CONNECT gives.

use super::witness::{Connection, Witness, user_name};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A running tunnel. It ends, with all its connections, when dropped.
#[derive(Debug)]
pub struct Tunnel {
    port: u16,
    cuts: watch::Sender<Cuts>,
    accept: JoinHandle<()>,
}

/// Which directions are cut: from the worker, and to it, by its name.
type Cuts = BTreeMap<String, (bool, bool)>;

#[derive(Clone, Copy, Debug)]
enum Direction {
    Out,
    Back,
}

fn lets(cuts: &Cuts, worker: &str, direction: Direction) -> bool {
    let (out, back) = cuts.get(worker).copied().unwrap_or_default();
    match direction {
        Direction::Out => !out,
        Direction::Back => !back,
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

impl Tunnel {
    /// Starts one on a free port of `address`. With a witness it carries MQTT, and the witness sees the packets; without, it carries whatever
    /// one worker, without a name, has to say.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(address: Ipv4Addr, upstream: SocketAddr, witness: Option<Arc<Witness>>) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).await.with_context(|| format!("no port is free on {address}"))?;
        let port = listener.local_addr()?.port();
        let cuts = watch::Sender::new(Cuts::default());
        let accept = tokio::spawn(accept(listener, upstream, cuts.subscribe(), witness));
        Ok(Self { port, cuts, accept })
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Lets nothing of a worker's pass in these directions any more, ends of connections included.
    pub fn cut(&self, worker: &str, out: bool, back: bool) {
        self.cuts.send_modify(|cuts| {
            let cut = cuts.entry(worker.to_owned()).or_default();
            *cut = (cut.0 || out, cut.1 || back);
        });
    }

    /// Lets everything of a worker's pass, what was held back first.
    pub fn heal(&self, worker: &str) {
        self.cuts.send_if_modified(|cuts| cuts.remove(worker).is_some());
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, cuts: watch::Receiver<Cuts>, witness: Option<Arc<Witness>>) {
    // The connections belong to this task: they end with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve(stream, upstream, cuts.clone(), witness.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection's share of the cuts, and of the witness.
#[derive(Clone)]
struct Way {
    worker: String,
    cuts: watch::Receiver<Cuts>,
    seen: Option<Arc<Mutex<Connection>>>,
}

impl Way {
    /// Returns when this direction is open. `false`: the tunnel is gone.
    async fn open(&mut self, direction: Direction) -> bool {
        let worker = self.worker.clone();
        self.cuts.wait_for(|cuts| lets(cuts, &worker, direction)).await.is_ok()
    }

    fn note(&self, direction: Direction, bytes: &[u8]) {
        if let Some(seen) = &self.seen {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match direction {
                Direction::Out => seen.read_worker(bytes),
                Direction::Back => seen.read_broker(bytes),
            }
        }
    }
}

async fn serve(mut worker: TcpStream, upstream: SocketAddr, cuts: watch::Receiver<Cuts>, witness: Option<Arc<Witness>>) {
    let mut way = Way { worker: String::new(), cuts, seen: None };
    let mut first = Vec::new();
    if let Some(witness) = witness {
        let Some(name) = login(&mut worker, &mut first).await else {
            return;
        };
        way.seen = Some(Arc::new(Mutex::new(witness.connection(&name))));
        way.worker = name;
    }
    if !way.open(Direction::Out).await {
        return;
    }
    let Ok(mut service) = TcpStream::connect(upstream).await else {
        return;
    };
    let _ = (worker.set_nodelay(true), service.set_nodelay(true));
    if service.write_all(&first).await.is_err() {
        return;
    }
    way.note(Direction::Out, &first);
    let ((from_worker, to_worker), (from_service, to_service)) = (worker.into_split(), service.into_split());
    tokio::join!(carry(from_worker, to_service, Direction::Out, way.clone()), carry(from_service, to_worker, Direction::Back, way));
}

/// Reads as far as the user name of a CONNECT, which stands in `first` then with whatever else was read.
async fn login(worker: &mut TcpStream, first: &mut Vec<u8>) -> Option<String> {
    loop {
        if worker.read_buf(first).await.unwrap_or(0) == 0 {
            return None;
        }
        if let Some(login) = user_name(first) {
            return login;
        }
    }
}

/// Carries one direction to its end. The end itself is carried, too.
async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, direction: Direction, mut way: Way) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        // What was read just before a cut is held back by it: packets on their way are lost first.
        if !way.open(direction).await {
            return;
        }
        way.note(direction, &buffer[..read]);
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}
