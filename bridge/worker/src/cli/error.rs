//! How a command fails: lines for people, and an exit code for programs.

use crate::http::BindError;
use crate::wiring::WiringError;
use core::fmt;
use std::io;

/// The exit codes.
pub mod exit {
    /// Something went wrong while running; starting again may help.
    pub const FAULT: u8 = 1;
    /// The configuration or the command line cannot be used; starting again does not help.
    pub const UNUSABLE: u8 = 2;
    /// A second signal asked to stop at once.
    pub const SECOND_SIGNAL: u8 = 130;
}

/// Why a command failed.
#[derive(Debug)]
pub struct CliError {
    /// The exit code.
    pub code: u8,
    /// What to print, a line each.
    pub lines: Vec<String>,
    /// The reader of the output went away: nobody is there to be told.
    pub broken_pipe: bool,
}

impl CliError {
    /// A fault while running.
    pub fn fault(line: impl Into<String>) -> Self {
        Self { code: exit::FAULT, lines: vec![line.into()], broken_pipe: false }
    }

    /// An unusable configuration.
    pub fn unusable(line: impl Into<String>) -> Self {
        Self { code: exit::UNUSABLE, lines: vec![line.into()], broken_pipe: false }
    }

    /// An unusable configuration, for several reasons.
    #[must_use]
    pub fn all_unusable<E: fmt::Display>(errors: &[E]) -> Self {
        Self { code: exit::UNUSABLE, lines: errors.iter().map(ToString::to_string).collect(), broken_pipe: false }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl std::error::Error for CliError {}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self { broken_pipe: error.kind() == io::ErrorKind::BrokenPipe, ..Self::fault(error.to_string()) }
    }
}

impl From<BindError> for CliError {
    fn from(error: BindError) -> Self {
        Self::unusable(error.to_string())
    }
}

impl From<WiringError> for CliError {
    fn from(error: WiringError) -> Self {
        Self::unusable(error.to_string())
    }
}

impl From<Vec<WiringError>> for CliError {
    fn from(errors: Vec<WiringError>) -> Self {
        Self::all_unusable(&errors)
    }
}
