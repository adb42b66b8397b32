//! What the tools tell people: progress on standard error, results on standard output.

use std::io::Write as _;

/// Writes one line to standard output. A closed pipe is the reader's decision, not a fault.
pub fn result(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Writes one line to standard error.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Completes when the user or the system asks this program to stop.
pub async fn stop_requested() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
