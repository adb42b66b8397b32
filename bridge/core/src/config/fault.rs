//! What a configuration gets wrong, told so that the reader can put it right at once.

use core::fmt;
use serde::Serialize;
use std::sync::Arc;

/// How grave a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can be used, but something about it deserves a second look.
    Warning,
}

/// A place in a configuration file, for people: lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// The name under which the file was given.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One thing that is wrong: a stable code, where it stands, what it is, and what to write instead.
///
/// Neither `message` nor `remedy` ever holds the value of an environment variable or a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// A stable code: `E_…` for errors, `W_…` for warnings.
    pub code: &'static str,
    /// Error or warning.
    pub severity: Severity,
    /// The field, such as `routes[0].policy.max_in_flight`; empty for a whole document.
    pub path: String,
    /// Where to look: the value, or the nearest thing above it that exists.
    pub at: Position,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

impl Fault {
    /// Whether this fault makes the configuration unusable.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.code)?;
        if !self.path.is_empty() {
            write!(f, " {}", self.path)?;
        }
        write!(f, ": {}", self.message)?;
        if !self.remedy.is_empty() {
            write!(f, " ({})", self.remedy)?;
        }
        Ok(())
    }
}
