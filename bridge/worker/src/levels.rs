//! Two scales: how much of its service a session gives ([`ServiceLevel`]), and how far the program has come ([`ReadinessLevel`]).

use core::fmt;
use serde::Serialize;

/// How much of its service a session gives to the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceLevel {
    /// None: not connected here, or no wanted filter is granted.
    #[default]
    None,
    /// Less than it should: a filter is refused, or messages are held back (the log is full or still read back, its store fails, it is closing).
    Degraded,
    /// Everything.
    Full,
}

impl ServiceLevel {
    /// The name in answers and in the lease row.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Degraded => "degraded",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for ServiceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far a session, or the whole program, has come. Each level includes those below.
///
/// A session without the lease, which does not connect before it has it, is as ready as it can be at [`Self::Subscribed`]: it watches the lease. It
/// does not lower the level of a program that owns other sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadinessLevel {
    /// Not there, ended, or without progress.
    #[default]
    Down,
    /// The loop makes progress.
    Live,
    /// The log is open under this owner: entries are drained.
    Running,
    /// The source is connected.
    Connected,
    /// Every wanted filter is granted; or it stands by and watches the lease.
    Subscribed,
    /// Full service.
    Full,
}

impl ReadinessLevel {
    /// Every level, ascending.
    pub const ALL: [Self; 6] = [Self::Down, Self::Live, Self::Running, Self::Connected, Self::Subscribed, Self::Full];

    /// The name in queries and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Live => "live",
            Self::Running => "running",
            Self::Connected => "connected",
            Self::Subscribed => "subscribed",
            Self::Full => "full",
        }
    }

    /// Reads a name back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

impl fmt::Display for ReadinessLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the process is in its bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessRole {
    /// It owns a session that others may take over.
    Active,
    /// It waits for one.
    Standby,
    /// It shares no session with others.
    #[default]
    Standalone,
}
