//! The program: choose the cryptography, read the command line, carry the command out, and tell how it ended.

use causeway_worker::cli::Cli;
use causeway_worker::cli::error::{CliError, exit};
use clap::Parser;
use core::time::Duration;
use std::io::Write as _;
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

/// More threads than this do not help one owner loop a session; each costs memory.
const MAX_THREADS: usize = 4;

/// How long blocking calls, such as closing a file, may take after the command ended.
const LAST_CALLS: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match start(Cli::parse()) {
        Ok(code) => code,
        Err(error) => tell(&error),
    }
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    // Every TLS connection of the process uses it; a second installation can only mean that it is installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = runtime(cli.command.is_service())?;
    let result = runtime.block_on(cli.command.execute());
    if matches!(&result, Ok(code) if *code == ExitCode::from(exit::SECOND_SIGNAL)) {
        // At once: not even destructors run.
        std::process::exit(i32::from(exit::SECOND_SIGNAL));
    }
    runtime.shutdown_timeout(LAST_CALLS);
    Ok(result?)
}

fn runtime(service: bool) -> anyhow::Result<Runtime> {
    let mut builder = if service { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    if service {
        builder.worker_threads(std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS));
    }
    Ok(builder.enable_all().build()?)
}

/// Prints what went wrong on stderr.
fn tell(error: &anyhow::Error) -> ExitCode {
    let (code, text) = match error.downcast_ref::<CliError>() {
        Some(known) if known.broken_pipe => return ExitCode::SUCCESS,
        Some(known) => (known.code, known.text.clone()),
        None => (exit::FAULT, format!("error: {error:#}\n")),
    };
    // Where stderr is closed, the exit code has to do.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
    ExitCode::from(code)
}
