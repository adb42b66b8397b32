//! The tools behind the scripts of this repository.

use clap::Parser;
use std::process::ExitCode;

/// The tools behind the scripts of this repository.
#[derive(Debug, Parser)]
#[command(name = "xtask")]
enum Command {
    /// Publish telemetry through real processes, kill the active worker in the middle, print what became of every message.
    Demo(xtask::demo::Options),
    /// Take a session from its owner again and again, and tell how long the successor needs to reach full service.
    #[command(after_help = xtask::failover::EXPLANATION)]
    Failover(xtask::failover::Options),
    /// Do one harm after the other to three workers under load, and hold every message against a ledger.
    Chaos(xtask::chaos::Options),
    /// The local stack: broker, DynamoDB, SQS.
    #[command(subcommand)]
    Local(xtask::local::Action),
    /// Invoke a function on the local stack, as Lambda would.
    Lambda(xtask::lambda::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Demo(options) => xtask::demo::run(&options).await,
        Command::Failover(options) => xtask::failover::run(&options).await,
        Command::Chaos(options) => xtask::chaos::run(&options).await,
        Command::Local(action) => xtask::local::run(&action).await,
        Command::Lambda(options) => xtask::lambda::run(&options).await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            xtask::terminal::note(&format!("error: {fault:#}"));
            ExitCode::FAILURE
        }
    }
}
