//! Network namespaces: each worker in one of its own, all of them joined to the host by a bridge.
//!
//! Names tell who made them: `causeway-PID-START-N`, and `cwbPID` for the bridge. What belongs to a process that is gone is removed before
//! anything new is made, so that not even SIGKILL leaves something behind for good.

use crate::stack::process::start_ticks;
use anyhow::{Context as _, Result, bail, ensure};
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const PREFIX: &str = "causeway-";
const BRIDGE: &str = "cwb";
/// The table that holds a worker's cuts, in its own namespace.
const TABLE: &str = "causeway";

/// The host's side.
#[derive(Debug)]
pub(super) struct Namespaces {
    owner: Owner,
    /// The third byte of all addresses, `198.18.NET.x`: a range that is set aside for tests like this.
    net: u8,
    count: u8,
    made: Vec<String>,
}

/// The number in the next name. The system removes a namespace some time after it was asked to: no name is used twice.
static NEXT: AtomicU16 = AtomicU16::new(1);

/// A process, told apart from an earlier one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    start: u64,
}

impl Owner {
    fn bridge(self) -> String {
        format!("{BRIDGE}{}", self.pid)
    }

    /// The owner that a namespace's name tells.
    fn of(namespace: &str) -> Option<Self> {
        let mut parts = namespace.strip_prefix(PREFIX)?.split('-');
        Some(Self { pid: parts.next()?.parse().ok()?, start: parts.next()?.parse().ok()? })
    }

    fn is_alive(self) -> bool {
        start_ticks(self.pid) == Some(self.start)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in &self.made {
            let _ = std::process::Command::new("ip").args(["netns", "del", namespace]).stderr(Stdio::null()).status();
        }
        let _ = std::process::Command::new("ip").args(["link", "del", &self.owner.bridge()]).stderr(Stdio::null()).status();
    }
}

impl Namespaces {
    /// Makes the bridge and proves, in a namespace that it removes again, that cuts can be made.
    pub(super) async fn open() -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "only root may make them");
        remove_leftovers().await?;
        let pid = std::process::id();
        let owner = Owner { pid, start: start_ticks(pid).context("the system does not tell when this process started")? };
        let net = free_net(pid).await?;
        let mut opened = Self { owner, net, count: 0, made: Vec::new() };
        let bridge = owner.bridge();
        run("ip", &["link", "add", &bridge, "type", "bridge"]).await?;
        run("ip", &["addr", "add", &format!("{}/24", opened.host()), "dev", &bridge]).await?;
        run("ip", &["link", "set", &bridge, "up"]).await?;
        let place = opened.add().await?;
        place.cut(9, true, true).await?;
        place.heal().await?;
        run("ip", &["netns", "del", &place.namespace]).await?;
        Ok(opened)
    }

    /// The host's address, which all namespaces reach.
    pub(super) const fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.net, 1)
    }

    /// Makes another one.
    pub(super) async fn add(&mut self) -> Result<Place> {
        self.count = self.count.checked_add(1).filter(|count| *count < 250).context("too many network namespaces")?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let place =
            Place { namespace: name(self.owner, number), address: Ipv4Addr::new(198, 18, self.net, self.count + 1), host: self.host() };
        let (namespace, link) = (place.namespace.as_str(), format!("cw{}n{number}", self.owner.pid));
        self.made.push(namespace.to_owned());
        run("ip", &["netns", "add", namespace]).await?;
        // The host's end vanishes with the namespace that holds the other one.
        run("ip", &["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", namespace]).await?;
        run("ip", &["link", "set", &link, "master", &self.owner.bridge(), "up"]).await?;
        run("ip", &["-n", namespace, "addr", "add", &format!("{}/24", place.address), "dev", "eth0"]).await?;
        run("ip", &["-n", namespace, "link", "set", "eth0", "up"]).await?;
        run("ip", &["-n", namespace, "link", "set", "lo", "up"]).await?;
        Ok(place)
    }
}

/// One namespace.
#[derive(Debug)]
pub(super) struct Place {
    namespace: String,
    address: Ipv4Addr,
    host: Ipv4Addr,
}

impl Place {
    pub(super) const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// What runs the rest of a command line in here, as the same process.
    pub(super) fn prefix(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--net=/run/netns/{}", self.namespace), "--".to_owned()]
    }

    /// Drops packets to and from one port of the host, without a word to either side.
    pub(super) async fn cut(&self, port: u16, out: bool, back: bool) -> Result<()> {
        let host = self.host;
        let mut rules = format!(
            "add table inet {TABLE}\n\
             add chain inet {TABLE} out {{ type filter hook output priority 0; }}\n\
             add chain inet {TABLE} back {{ type filter hook input priority 0; }}\n"
        );
        if out {
            rules.push_str(&format!("add rule inet {TABLE} out ip daddr {host} tcp dport {port} drop\n"));
        }
        if back {
            rules.push_str(&format!("add rule inet {TABLE} back ip saddr {host} tcp sport {port} drop\n"));
        }
        self.nft(&rules).await
    }

    pub(super) async fn heal(&self) -> Result<()> {
        self.nft("flush ruleset\n").await
    }

    async fn nft(&self, rules: &str) -> Result<()> {
        let words = [self.prefix(), ["nft", "-f", "-"].map(str::to_owned).to_vec()].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start nsenter")?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(rules.as_bytes()).await.context("nft does not read its rules")?;
        }
        let output = child.wait_with_output().await.context("cannot wait for nft")?;
        ensure!(output.status.success(), "nft refuses: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }
}

fn name(owner: Owner, number: u16) -> String {
    format!("{PREFIX}{}-{}-{number}", owner.pid, owner.start)
}

/// Removes what belongs to processes that are gone, the workers that still run in it included.
async fn remove_leftovers() -> Result<()> {
    let namespaces = run("ip", &["netns", "list"]).await?;
    for namespace in namespaces.lines().filter_map(|line| line.split_whitespace().next()) {
        if Owner::of(namespace).is_some_and(|owner| !owner.is_alive()) {
            for pid in run("ip", &["netns", "pids", namespace]).await.unwrap_or_default().lines() {
                if let Some(pid) = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            // Another process may be cleaning up as well.
            let _ = run("ip", &["netns", "del", namespace]).await;
        }
    }
    let bridges = run("ip", &["-o", "link", "show", "type", "bridge"]).await?;
    for bridge in bridges.lines().filter_map(|line| line.split(':').nth(1)).map(str::trim) {
        let pid = bridge.strip_prefix(BRIDGE).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| pid == std::process::id() || start_ticks(pid).is_none()) {
            let _ = run("ip", &["link", "del", bridge]).await;
        }
    }
    Ok(())
}

/// A net that no interface uses.
async fn free_net(pid: u32) -> Result<u8> {
    let used = run("ip", &["-o", "-4", "addr", "show"]).await?;
    let first = u8::try_from(pid % 250).unwrap_or_default();
    let net = (0..250).map(|offset| first.wrapping_add(offset) % 250).find(|net| !used.contains(&format!(" 198.18.{net}.")));
    net.context("no net in 198.18.0.0/16 is free")
}

async fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().await;
    let output = output.with_context(|| format!("{program} is missing"))?;
    if !output.status.success() {
        bail!("`{program} {}`: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn names_tell_whose_they_are() {
        let owner = Owner { pid: 4_194_303, start: 99 };
        assert_eq!(Owner::of(&name(owner, 3)), Some(owner));
        assert_eq!(Owner::of("other"), None);
        assert_eq!(Owner::of("causeway-x-1-1"), None);
        assert!(owner.bridge().len() <= 15, "the kernel takes no longer names of interfaces");
        assert!(format!("cw{}n{}", owner.pid, 60_000).len() <= 15);
    }
}
