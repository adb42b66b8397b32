//! The network between workers and their services, with cuts in it: each worker in a network namespace of its own where the system permits
//! that, else behind TCP proxies. Which of the two it is, [`Network::describe`] says.
//!
//! In both, workers reach the broker through a [`Tunnel`], whose [`Witness`] notes what the broker handed over and what the
//! worker acknowledged. In a namespace, a cut drops packets silently between the worker and everything else; behind proxies, bytes just do
//! not get on.

mod namespaces;
mod tunnel;
mod witness;

pub use tunnel::Tunnel;
pub use witness::Witness;

use anyhow::{Context as _, Result};
use namespaces::Namespaces;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

/// Whom a worker talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The MQTT broker.
    Broker,
    /// DynamoDB.
    Store,
    /// SQS.
    Queue,
}

/// Which packets a cut drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All.
    Both,
    /// Those from the worker.
    Out,
    /// Those to the worker.
    Back,
}

impl Way {
    /// Whether packets from the worker are dropped, and whether those to it.
    const fn drops(self) -> (bool, bool) {
        match self {
            Self::Both => (true, true),
            Self::Out => (true, false),
            Self::Back => (false, true),
        }
    }
}

/// Set to `proxies`, it keeps namespaces from being used even where they could be.
pub const CHOICE: &str = "CAUSEWAY_NETWORK";

/// What the network is made of, before anything listens on it.
#[derive(Debug)]
pub struct Ground {
    namespaces: Option<Namespaces>,
    why_not: String,
}

impl Ground {
    /// Namespaces where they can be made. What an earlier run left behind, killed before it could clean up, is removed.
    pub async fn find() -> Self {
        if std::env::var(CHOICE).is_ok_and(|choice| choice == "proxies") {
            return Self { namespaces: None, why_not: format!("{CHOICE}=proxies") };
        }
        match Namespaces::open().await {
            Ok(namespaces) => Self { namespaces: Some(namespaces), why_not: String::new() },
            Err(fault) => Self { namespaces: None, why_not: format!("{fault:#}").lines().next().unwrap_or_default().to_owned() },
        }
    }

    /// Where services have to listen so that workers reach them.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.namespaces.as_ref().map_or(Ipv4Addr::LOCALHOST, Namespaces::host)
    }
}

/// Where the services are.
#[derive(Clone, Copy, Debug)]
pub struct Services {
    /// The broker's port on loopback.
    pub broker: u16,
    /// DynamoDB's port on [`Ground::address`].
    pub store: u16,
    /// The port of SQS there.
    pub queue: u16,
}

/// The network.
#[derive(Debug)]
pub struct Network {
    links: Vec<Link>,
    witness: Arc<Witness>,
    // Dropped after the links.
    ground: Ground,
}

impl Network {
    /// One link for each worker, by its name.
    ///
    /// # Errors
    /// A namespace cannot be made, or no port is free.
    pub async fn lay(mut ground: Ground, services: Services, names: &[&str]) -> Result<Self> {
        let witness = Arc::new(Witness::default());
        let address = ground.address();
        let broker_at = SocketAddr::from((Ipv4Addr::LOCALHOST, services.broker));
        let broker = Arc::new(Tunnel::start(address, broker_at, Some(Arc::clone(&witness))).await?);
        let mut links = Vec::new();
        for name in names {
            let (broker, name) = (Arc::clone(&broker), (*name).to_owned());
            let at = |port| SocketAddrV4::new(address, port);
            let link = match &mut ground.namespaces {
                Some(namespaces) => {
                    let place = namespaces.add().await.with_context(|| format!("cannot make a network namespace for {name}"))?;
                    Link { name, broker, store: None, queue: None, place: Some(place), at: [at(services.store), at(services.queue)] }
                }
                None => {
                    let store = Tunnel::start(address, at(services.store).into(), None).await?;
                    let queue = Tunnel::start(address, at(services.queue).into(), None).await?;
                    let ends = [at(store.port()), at(queue.port())];
                    Link { name, broker, store: Some(store), queue: Some(queue), place: None, at: ends }
                }
            };
            links.push(link);
        }
        Ok(Self { links, witness, ground })
    }

    /// What cuts are made of, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        if self.ground.namespaces.is_some() {
            "network namespaces; a cut drops packets (nftables)".to_owned()
        } else {
            format!("TCP proxies, not network namespaces ({}); a cut holds bytes back", self.ground.why_not)
        }
    }

    /// A worker's link.
    #[must_use]
    pub fn link(&self, worker: usize) -> &Link {
        &self.links[worker]
    }

    /// What the broker handed over and what it was answered.
    #[must_use]
    pub fn witness(&self) -> &Witness {
        &self.witness
    }

    /// Ends every cut.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn heal(&self) -> Result<()> {
        for link in &self.links {
            link.heal().await?;
        }
        Ok(())
    }
}

/// A worker's way to its services.
#[derive(Debug)]
pub struct Link {
    name: String,
    broker: Arc<Tunnel>,
    store: Option<Tunnel>,
    queue: Option<Tunnel>,
    place: Option<namespaces::Place>,
    /// Store and queue, as the worker sees them.
    at: [SocketAddrV4; 2],
}

impl Link {
    /// Drops what goes between the worker and a peer, until healed. Several cuts add up.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn cut(&self, peer: Peer, way: Way) -> Result<()> {
        let (out, back) = way.drops();
        if let Some(place) = &self.place {
            return place.cut(self.port(peer), out, back).await;
        }
        let (tunnel, worker) = match peer {
            Peer::Broker => (Some(&*self.broker), self.name.as_str()),
            Peer::Store => (self.store.as_ref(), ""),
            Peer::Queue => (self.queue.as_ref(), ""),
        };
        tunnel.context("the link has no such tunnel")?.cut(worker, out, back);
        Ok(())
    }

    /// Ends its cuts.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn heal(&self) -> Result<()> {
        match &self.place {
            Some(place) => place.heal().await,
            None => {
                self.broker.heal(&self.name);
                for tunnel in [&self.store, &self.queue].into_iter().flatten() {
                    tunnel.heal("");
                }
                Ok(())
            }
        }
    }

    fn port(&self, peer: Peer) -> u16 {
        match peer {
            Peer::Broker => self.broker.port(),
            Peer::Store => self.at[0].port(),
            Peer::Queue => self.at[1].port(),
        }
    }

    /// What stands before a worker's command line so that it runs at this end of the link.
    #[must_use]
    pub fn prefix(&self) -> Vec<String> {
        self.place.as_ref().map(namespaces::Place::prefix).unwrap_or_default()
    }

    /// Where the worker listens, as the tools see it.
    #[must_use]
    pub fn listens_on(&self) -> Ipv4Addr {
        self.place.as_ref().map_or(Ipv4Addr::LOCALHOST, namespaces::Place::address)
    }

    /// What the worker must find in its environment to use the link.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        let [store, queue] = self.at;
        BTreeMap::from([
            (crate::worker::BROKER_URL.to_owned(), format!("mqtt://{}:{}", store.ip(), self.broker.port())),
            ("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), format!("http://{store}")),
            ("AWS_ENDPOINT_URL_SQS".to_owned(), format!("http://{queue}")),
        ])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A service that gives back every byte.
    async fn echo(address: Ipv4Addr) -> u16 {
        let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        port
    }

    #[tokio::test]
    async fn a_tunnel_holds_bytes_back_in_the_direction_that_is_cut_and_passes_them_on_when_healed() {
        let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, echo(Ipv4Addr::LOCALHOST).await));
        for way in [Way::Both, Way::Out, Way::Back] {
            let tunnel = Tunnel::start(Ipv4Addr::LOCALHOST, upstream, None).await.unwrap();
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", tunnel.port())).await.unwrap();
            let mut byte = [0];
            stream.write_all(b"a").await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
            let (out, back) = way.drops();
            tunnel.cut("", out, back);
            stream.write_all(b"b").await.unwrap();
            let silent = tokio::time::timeout(Duration::from_millis(300), stream.read_exact(&mut byte)).await;
            assert!(silent.is_err(), "{way:?}: {byte:?}");
            tunnel.heal("");
            stream.read_exact(&mut byte).await.unwrap();
            assert_eq!(&byte, b"b", "{way:?}");
        }
    }

    /// Where namespaces cannot be made, this shows that the fallback is chosen and says why.
    #[tokio::test]
    async fn a_cut_separates_one_worker_from_one_peer() {
        let ground = Ground::find().await;
        let address = ground.address();
        let services = Services { broker: echo(Ipv4Addr::LOCALHOST).await, store: echo(address).await, queue: echo(address).await };
        let network = Network::lay(ground, services, &["a", "b"]).await.unwrap();
        for worker in [0, 1] {
            assert!(reaches(network.link(worker), Peer::Store).await);
        }
        network.link(0).cut(Peer::Store, Way::Out).await.unwrap();
        assert!(!reaches(network.link(0), Peer::Store).await);
        assert!(reaches(network.link(0), Peer::Queue).await, "{}", network.describe());
        assert!(reaches(network.link(1), Peer::Store).await);
        network.heal().await.unwrap();
        assert!(reaches(network.link(0), Peer::Store).await);
    }

    /// Whether a program at the worker's end gets a byte back within a second.
    async fn reaches(link: &Link, peer: Peer) -> bool {
        let script = format!(
            "exec 3<>/dev/tcp/{}/{} && printf x >&3 && read -r -n 1 -t 1 -u 3 byte && [ \"$byte\" = x ]",
            link.at[0].ip(),
            link.port(peer)
        );
        let words = [link.prefix(), ["timeout", "2", "bash", "-c", &script].map(str::to_owned).to_vec()].concat();
        tokio::process::Command::new(&words[0]).args(&words[1..]).output().await.unwrap().status.success()
    }
}
