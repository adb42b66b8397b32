//! A real broker on a free port, with its state in a folder of its own.

use crate::support::PATIENCE;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

pub struct Mosquitto {
    child: Child,
    pub port: u16,
    folder: tempfile::TempDir,
}

pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until something listens there.
pub async fn listens(host: &str, port: u16) {
    timeout(PATIENCE, async {
        while TcpStream::connect((host, port)).await.is_err() {
            sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("nothing listens there");
}

impl Mosquitto {
    /// An anonymous plaintext broker that keeps its sessions.
    pub async fn start() -> Self {
        Self::with("allow_anonymous true\n", |_| ()).await
    }

    /// A broker with more settings; `prepare` may put files into its folder, which the settings name as `FOLDER`.
    pub async fn with(settings: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let (port, path) = (free_port(), folder.path().display().to_string());
        let mut config = String::new();
        // As root it would become user mosquitto, which may not write into the folder.
        write!(
            config,
            "user root\nlistener {port} 127.0.0.1\npersistence true\npersistence_location {path}/\nautosave_interval 0\nmax_queued_messages 0\n{}",
            settings.replace("FOLDER", &path)
        )
        .unwrap();
        std::fs::write(folder.path().join("mosquitto.conf"), config).unwrap();
        let child = spawn(folder.path());
        let mut broker = Self { child, port, folder };
        broker.answers().await;
        broker
    }

    async fn answers(&mut self) {
        let port = self.port;
        timeout(PATIENCE, async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                assert!(self.child.try_wait().unwrap().is_none(), "the broker ended: {}", self.log());
                sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("the broker does not answer");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn stop(&mut self) {
        // SIGTERM lets it write its state.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }

    pub async fn start_again(&mut self) {
        self.child = spawn(self.folder.path());
        self.answers().await;
    }
}

fn spawn(folder: &Path) -> Child {
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let program = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/usr/bin/mosquitto"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .unwrap_or("mosquitto");
    Command::new(program)
        .arg("-c")
        .arg(folder.join("mosquitto.conf"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("mosquitto must be installed (Debian package mosquitto)")
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
