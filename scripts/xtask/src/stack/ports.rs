//! Ports on loopback that nobody listens on.

use anyhow::{Result, bail};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Below the range from which Linux takes the ports of outgoing connections, so that none of those can take ours in between.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A free port. The same process never gets the same one twice.
///
/// # Errors
/// None is free.
pub fn free_port() -> Result<u16> {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let start = u16::try_from((u64::from(nanos) / 1000 + u64::from(std::process::id()) * 131) % u64::from(COUNT)).unwrap_or(0);
    let _ = NEXT.compare_exchange(0, start.max(1), Ordering::Relaxed, Ordering::Relaxed);
    for _ in 0..COUNT {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        if is_free(port) {
            return Ok(port);
        }
    }
    bail!("no free port between {FIRST} and {}", FIRST + COUNT)
}

/// `wanted` if it is free, else another one.
///
/// # Errors
/// None is free.
pub fn port_or_free(wanted: u16) -> Result<u16> {
    if is_free(wanted) { Ok(wanted) } else { free_port() }
}
