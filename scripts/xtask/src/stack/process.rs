//! Processes that we start and therefore have to end.

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as its handle: dropping the handle kills it. An interrupt at the terminal reaches it too.
    Bound,
    /// Once its handle is released, until someone ends it by its process id: it survives us and the terminal.
    Detached,
}

/// A process that we started; what it prints goes to its log file.
#[derive(Debug)]
pub struct Spawned {
    name: String,
    child: Child,
    log: PathBuf,
    released: bool,
}

/// A command for `program` whose process ends with ours, SIGKILL included, where `lifetime` binds it to us. The system ties it to the thread
/// that starts it: that has to be one that lasts.
#[must_use]
pub fn command(program: impl AsRef<std::ffi::OsStr>, lifetime: Lifetime) -> Command {
    static SETPRIV: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let probe = std::process::Command::new("setpriv").args(["--pdeathsig", "KILL", "--", "true"]).stderr(Stdio::null()).status();
        probe.is_ok_and(|status| status.success())
    });
    if lifetime == Lifetime::Detached || !*SETPRIV {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if !self.released {
            let _ = self.child.start_kill();
        }
    }
}

impl Spawned {
    /// Starts `command` with its output appended to `log`.
    ///
    /// # Errors
    /// The log cannot be opened, or the program cannot be started.
    pub fn start(name: &str, mut command: Command, log: &Path, lifetime: Lifetime) -> Result<Self> {
        let out = File::options().create(true).append(true).open(log).with_context(|| format!("cannot open {}", log.display()))?;
        let err = out.try_clone().context("cannot share the log file")?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        if lifetime == Lifetime::Detached {
            command.process_group(0);
        }
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), released: false })
    }

    /// Lets it live on without its handle.
    pub fn release(&mut self) {
        self.released = true;
    }

    /// What it is, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id, as long as it was not reaped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Where its output goes.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot tell whether {} runs", self.name))
    }

    /// Fails with the end of the log if the process is gone.
    ///
    /// # Errors
    /// It ended.
    pub fn expect_running(&mut self) -> Result<()> {
        match self.exited()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}; the end of {}:\n{}", self.name, self.log.display(), self.log_tail(30)),
        }
    }

    /// Kills it with SIGKILL and waits until it is gone.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("cannot kill {}", self.name))
    }

    /// Sends a signal. A process that is gone already is not an error.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// It still runs after `within`.
    pub async fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => status.with_context(|| format!("cannot wait for {}", self.name)),
            Err(_) => bail!("{} still runs after {within:?}; the end of {}:\n{}", self.name, self.log.display(), self.log_tail(30)),
        }
    }

    /// Asks it to stop with SIGTERM and waits for it. One that does not stop is killed.
    ///
    /// # Errors
    /// It did not stop within `within`.
    pub async fn terminate(&mut self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        let ended = self.wait(within).await;
        if ended.is_err() {
            self.kill().await?;
        }
        ended
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// When a process started, in clock ticks since boot: with it, a process id names one process only. `None` where there is no such process,
/// or only its remains.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may itself hold spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Ends a process by its id: SIGTERM, then SIGKILL after `grace`. Does nothing where the id now names another process.
pub async fn end_by_id(pid: u32, started: u64, grace: Duration) {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let alive = || start_ticks(pid) == Some(started);
    if !alive() {
        return;
    }
    let _ = rustix::process::kill_process(raw, Signal::TERM);
    let deadline = tokio::time::Instant::now() + grace;
    while alive() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if alive() {
        let _ = rustix::process::kill_process(raw, Signal::KILL);
    }
}
