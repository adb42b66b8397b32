//! The owner loop of one session.

use crate::parts::SessionParts;
use causeway_core::outcome::Fault;
use thiserror::Error;

/// How a session ended without a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// It was told to stop, and everything in flight was settled.
    Clean,
    /// It was told to stop, and the deadline passed before everything was settled: the rest is in the log or with the broker.
    DeadlinePassed,
}

/// Why a session cannot go on. The process ends with exit code 1 and is started again by its platform.
#[derive(Clone, Debug, Error)]
pub enum RunError {
    /// Another owner took the log over.
    #[error("session {session}: another owner took the log over")]
    Fenced {
        /// The session.
        session: String,
    },
    /// A fault that does not pass.
    #[error("session {session}: {doing}: {fault}")]
    Fault {
        /// The session.
        session: String,
        /// What was being done.
        doing: &'static str,
        /// The fault.
        fault: Fault,
    },
}

/// Runs one session until it is told to stop, or cannot go on.
///
/// # Errors
/// [`RunError`] where the log was taken over or a store cannot be used.
pub async fn run_session(parts: SessionParts) -> Result<SessionEnd, RunError> {
    parts.stop.cancelled().await;
    Ok(SessionEnd::Clean)
}
