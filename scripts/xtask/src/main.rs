//! The tools behind the scripts of this repository.

use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;

/// The tools behind the scripts of this repository. Each is called what people call it by: its script.
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "")]
enum Command {
    /// Publish telemetry through real processes, kill the active worker in the middle, print what became of every message.
    #[command(name = "scripts/demo")]
    Demo(xtask::demo::Options),
    /// Take a session from its owner again and again, and tell how long the successor needs to reach full service.
    #[command(name = "scripts/failover", after_help = xtask::failover::EXPLANATION)]
    Failover(xtask::failover::Options),
    /// Do one harm after the other to three workers under load, and hold every message against a ledger.
    #[command(name = "scripts/chaos")]
    Chaos(xtask::chaos::Options),
    /// The local stack: broker, DynamoDB, SQS.
    #[command(name = "scripts/local", subcommand)]
    Local(xtask::local::Action),
    /// Measure how long the monitor's pages take to answer while messages flow.
    #[command(name = "scripts/latency")]
    Latency(xtask::latency::Options),
    /// Invoke a function on the local stack, as Lambda would.
    #[command(name = "scripts/lambda")]
    Lambda(xtask::lambda::Options),
}

impl Command {
    /// `xtask NAME …` is `scripts/NAME …`.
    fn read() -> Self {
        let mut arguments: Vec<OsString> = std::env::args_os().collect();
        if let Some(name) = arguments.get_mut(1)
            && !name.to_string_lossy().starts_with('-')
        {
            *name = [OsString::from("scripts/"), name.clone()].into_iter().collect();
        }
        Self::parse_from(arguments)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Command::read() {
        Command::Demo(options) => xtask::demo::run(&options).await,
        Command::Failover(options) => xtask::failover::run(&options).await,
        Command::Chaos(options) => xtask::chaos::run(&options).await,
        Command::Local(action) => xtask::local::run(&action).await,
        Command::Latency(options) => xtask::latency::run(&options).await,
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
