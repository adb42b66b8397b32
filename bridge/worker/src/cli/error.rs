//! How a command fails: lines for people, and an exit code for programs.

use crate::http::BindError;
use crate::http::listeners::ListenError;
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
    /// What to print on stderr: whole lines.
    pub text: String,
    /// The reader of the output went away: nobody is there to be told.
    pub broken_pipe: bool,
}

impl CliError {
    /// Fails with a text that is ready to be printed.
    pub fn report(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), broken_pipe: false }
    }

    /// A fault while running.
    pub fn fault(line: impl fmt::Display) -> Self {
        Self::report(exit::FAULT, format!("error: {line}\n"))
    }

    /// An unusable configuration or command line.
    pub fn unusable(line: impl fmt::Display) -> Self {
        Self::report(exit::UNUSABLE, format!("error: {line}\n"))
    }

    /// The same for several reasons, a line each.
    #[must_use]
    pub fn all_unusable<E: fmt::Display>(errors: &[E]) -> Self {
        Self::report(exit::UNUSABLE, errors.iter().map(|error| format!("error: {error}\n")).collect::<String>())
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
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

impl From<ListenError> for CliError {
    fn from(error: ListenError) -> Self {
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
