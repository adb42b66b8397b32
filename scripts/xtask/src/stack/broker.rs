//! mosquitto.

use super::process::{self, Lifetime, Spawned};
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpStream;

/// How long mosquitto gets to open its port, or to write its state and end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a broker listens.
#[derive(Clone, Debug)]
pub struct Ways {
    /// For MQTT without more.
    pub port: u16,
    /// For something else, if it does.
    pub second: Option<SecondListener>,
}

/// A listener besides the plain one.
#[derive(Clone, Debug)]
pub struct SecondListener {
    /// Its port.
    pub port: u16,
    /// What it is: lines of mosquitto's configuration.
    pub kind: String,
}

/// A broker of our own on loopback.
#[derive(Debug)]
pub struct Broker {
    dir: PathBuf,
    ways: Ways,
    lifetime: Lifetime,
    process: Spawned,
}

impl Broker {
    /// Starts a broker that keeps its state in `dir`. Without `persistence` everything it holds is gone when it stops.
    ///
    /// # Errors
    /// mosquitto is missing, or does not open its port.
    pub async fn start(dir: &Path, ways: Ways, persistence: bool, lifetime: Lifetime) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        std::fs::write(dir.join("mosquitto.conf"), configuration(dir, &ways, persistence)).context("cannot write mosquitto.conf")?;
        let process = launch(dir, lifetime)?;
        let mut broker = Self { dir: dir.to_owned(), ways, lifetime, process };
        broker.wait_open().await?;
        Ok(broker)
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ways.port
    }

    /// Its address, as the worker's configuration wants it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.ways.port)
    }

    /// Where its second listener is, if it has one.
    #[must_use]
    pub fn second_port(&self) -> Option<u16> {
        self.ways.second.as_ref().map(|second| second.port)
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Spawned {
        &self.process
    }

    /// Lets it live on without its handle.
    pub fn release(&mut self) {
        self.process.release();
    }

    /// Stops it with SIGTERM: with persistence it writes its state first.
    ///
    /// # Errors
    /// It does not stop.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.terminate(PATIENCE).await.map(drop)
    }

    /// Starts it again after [`Self::stop`], on the same port and state.
    ///
    /// # Errors
    /// It does not open its port.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process = launch(&self.dir, self.lifetime)?;
        self.wait_open().await
    }

    /// Kills it with SIGKILL: what it has not saved is gone.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn kill(&mut self) -> Result<()> {
        self.process.kill().await
    }

    /// Changes, for the next start, whether it keeps its state.
    ///
    /// # Errors
    /// Its configuration cannot be written.
    pub fn set_persistence(&self, persistence: bool) -> Result<()> {
        // A state from before would come back with the next start that reads one.
        let _ = std::fs::remove_file(self.dir.join("mosquitto.db"));
        let file = self.dir.join("mosquitto.conf");
        std::fs::write(file, configuration(&self.dir, &self.ways, persistence)).context("cannot write mosquitto.conf")
    }

    async fn wait_open(&mut self) -> Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            self.process.expect_running()?;
            if TcpStream::connect(("127.0.0.1", self.ways.port)).await.is_ok() {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                bail!("mosquitto does not open port {}:\n{}", self.ways.port, self.process.log_tail(20));
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
}

fn launch(dir: &Path, lifetime: Lifetime) -> Result<Spawned> {
    // Debian keeps it out of the path of ordinary users.
    let debian = Path::new("/usr/sbin/mosquitto");
    let mut command = process::command(if debian.exists() { debian.as_os_str() } else { "mosquitto".as_ref() }, lifetime);
    command.arg("-c").arg(dir.join("mosquitto.conf"));
    Spawned::start("mosquitto", command, &dir.join("mosquitto.log"), lifetime)
}

/// Nothing queued is ever dropped, and nobody from outside gets in.
///
/// `autosave_interval` counts changes: a save writes everything the broker holds, so that every single change would be too often. What a
/// broker forgets when it is killed between two saves is the broker's loss; stopped with SIGTERM it loses nothing.
fn configuration(dir: &Path, ways: &Ways, persistence: bool) -> String {
    let port = ways.port;
    let second = ways.second.as_ref().map(|second| format!("listener {} 127.0.0.1\n{}\n", second.port, second.kind)).unwrap_or_default();
    format!(
        "listener {port} 127.0.0.1\n\
         {second}\
         allow_anonymous true\n\
         user root\n\
         persistence {persistence}\n\
         persistence_location {}/\n\
         autosave_on_changes true\n\
         autosave_interval 1000\n\
         max_queued_messages 0\n\
         max_queued_bytes 0\n\
         max_inflight_messages 1000\n\
         set_tcp_nodelay true\n\
         log_dest stderr\n\
         log_type error\n\
         log_type warning\n\
         log_type notice\n\
         log_timestamp_format %Y-%m-%dT%H:%M:%S\n",
        dir.display()
    )
}
