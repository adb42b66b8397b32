//! `deploy-local`: the real `cdk bootstrap`, `deploy`, `diff` and `destroy` against an emulator, and in between everything that a deployment is for.

mod bridge;
mod cloud;
mod corners;
mod operations;
mod refusals;
mod stack;
mod tables;

use anyhow::{Context as _, Result, bail, ensure};
use bridge::Bridge;
use clap::Parser;
use cloud::Cloud;
use serde::Serialize;
use serde_json::Value;
use stack::{Made, STACKS};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use xtask::stack::broker::{Broker, Ways};
use xtask::stack::emulators::Emulator;
use xtask::stack::ports::free_port;
use xtask::stack::process::Lifetime;
use xtask::stack::repository;
use xtask::terminal::{note, result, stop_requested};

/// How long the scheduler gets to start the housekeeping function: it runs once a minute here.
const SCHEDULE_PATIENCE: Duration = Duration::from_secs(150);

/// Deploy the stack to a local emulator, use it, and take it down again.
#[derive(Debug, Parser)]
#[command(name = "deploy-local")]
struct Options {
    /// Everything runs in the roles that the stack made, and the emulator refuses what they do not allow.
    #[arg(long)]
    auth: bool,
    /// Without and with `--auth`, at the same time, each on an emulator of its own.
    #[arg(long, conflicts_with = "auth")]
    both: bool,
    /// Print one JSON object on the last line of standard output.
    #[arg(long)]
    json: bool,
}

/// What happened.
#[derive(Debug, Default, Serialize)]
struct Report {
    roles_enforced: bool,
    resources: usize,
    tables: usize,
    published: u64,
    redriven: u64,
    delivered: u64,
    duplicates: u64,
    lost: u64,
    housekeeping_runs: u64,
    refused_actions: usize,
    seconds: f64,
    steps: Vec<(String, f64)>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = tokio::select! {
        outcome = run(&options) => outcome,
        () = stop_requested() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(reports) => {
            for report in &reports {
                if options.json {
                    result(&serde_json::to_string(&report).unwrap_or_default());
                } else {
                    result(&report.in_words());
                }
            }
            ExitCode::SUCCESS
        }
        Err(fault) => {
            note(&format!("error: {fault:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Report {
    fn in_words(&self) -> String {
        format!(
            "{}: deployed {} resources; {} messages and {} dead letters delivered once each, {} lost, {} duplicates; {:.0} s",
            name_of(self.roles_enforced),
            self.resources,
            self.published,
            self.redriven,
            self.lost,
            self.duplicates,
            self.seconds
        )
    }
}

const fn name_of(enforced: bool) -> &'static str {
    if enforced { "in roles" } else { "plain" }
}

/// One deployment, from nothing to nothing.
struct Play {
    dir: PathBuf,
    cloud: Cloud,
    broker: Broker,
    report: Report,
    // Last: the emulator outlives what uses it.
    _emulator: Emulator,
}

async fn run(options: &Options) -> Result<Vec<Report>> {
    let scratch = tempfile::Builder::new().prefix("causeway-deploy-").tempdir().context("cannot create a temporary folder")?;
    if !options.both {
        return Ok(vec![play(&scratch.path().join("run"), options.auth).await?]);
    }
    let (plain, roles) = (scratch.path().join("plain"), scratch.path().join("roles"));
    let (plain, roles) = tokio::try_join!(play(&plain, false), play(&roles, true))?;
    Ok(vec![plain, roles])
}

async fn play(dir: &Path, enforced: bool) -> Result<Report> {
    let started = Instant::now();
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut play = Play::start(dir, enforced).await?;
    let outcome = play.all(enforced).await;
    if let Err(fault) = outcome {
        let log = std::fs::read_to_string(play.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        note(&format!("the end of what cdk said:\n{}", lines[lines.len().saturating_sub(40)..].join("\n")));
        return Err(fault.context(name_of(enforced)));
    }
    play.report.seconds = started.elapsed().as_secs_f64();
    Ok(play.report)
}

impl Play {
    async fn start(dir: &Path, enforced: bool) -> Result<Self> {
        note("starting the emulator and a broker");
        let (files, port) = (dir.join("aws"), free_port()?);
        let emulator = if enforced {
            Emulator::ministack_enforcing(&files, port, Lifetime::Bound).await?
        } else {
            Emulator::ministack(&files, port, Lifetime::Bound).await?
        };
        let broker = Broker::start(&dir.join("broker"), Ways { port: free_port()?, second: None }, true, Lifetime::Bound).await?;
        let cloud = Cloud::new(emulator.endpoint(), dir);
        Ok(Self {
            dir: dir.to_owned(),
            cloud,
            broker,
            report: Report { roles_enforced: enforced, ..Report::default() },
            _emulator: emulator,
        })
    }

    fn log(&self) -> PathBuf {
        self.dir.join("cdk.log")
    }

    /// Says what begins, and notes how long it took.
    fn step(&mut self, name: &str, since: Instant) {
        let took = since.elapsed().as_secs_f64();
        note(&format!("ok {took:6.1} s  {}: {name}", name_of(self.report.roles_enforced)));
        self.report.steps.push((name.to_owned(), took));
    }

    /// Where the synthesized templates are: synth runs once, and what it made is what is deployed, compared and taken down.
    fn assembly(&self) -> String {
        self.dir.join("cdk.out").to_string_lossy().into_owned()
    }

    async fn cdk(&self, arguments: &[&str]) -> Result<()> {
        let url = self.broker.url();
        let variables = [("CAUSEWAY_LOCAL_BROKER_URL", url.as_str())];
        match self.cloud.cdk(arguments, &variables, &self.log()).await? {
            0 => Ok(()),
            code => bail!("`cdk {}` ended with {code}", arguments.join(" ")),
        }
    }

    async fn synth(&self) -> Result<()> {
        let functions = format!("lambdaFolder={}", repository().join("dist/lambdas-dev").display());
        let (context, output) = ("settings=settings.local.ts", self.assembly());
        self.cdk(&["synth", "--quiet", "--context", context, "--context", &functions, "--output", &output]).await
    }

    /// A command on what synth made.
    async fn on_assembly(&self, arguments: &[&str]) -> Result<()> {
        let output = self.assembly();
        self.cdk(&[arguments, &["--app", &output]].concat()).await
    }

    async fn deploy(&mut self) -> Result<Made> {
        let since = Instant::now();
        let environment = format!("aws://{}/us-east-1", cloud::ACCOUNT);
        // It synthesizes, too: into a folder of its own, or two that run at the same time refuse each other.
        let scratch = self.dir.join("cdk.bootstrap").to_string_lossy().into_owned();
        let bootstrap = ["bootstrap", environment.as_str(), "--output", &scratch];
        tokio::try_join!(self.cdk(&bootstrap), self.synth())?;
        self.step("cdk bootstrap, cdk synth", since);

        let since = Instant::now();
        self.on_assembly(&["deploy", "--all", "--require-approval", "never"]).await?;
        let made = Made::read(&self.cloud).await?;
        self.report.resources = made.len();
        self.step(&format!("cdk deploy: {} resources", made.len()), since);

        let since = Instant::now();
        self.on_assembly(&["diff", "--all", "--fail"]).await.context("what is deployed differs from the template")?;
        self.step("cdk diff: no difference", since);
        Ok(made)
    }

    async fn all(&mut self, enforced: bool) -> Result<()> {
        let made = self.deploy().await?;
        let since = Instant::now();
        self.report.tables = tables::verify(&self.cloud, &made).await?;
        self.step("time-to-live, recovery and deletion protection as declared", since);

        let since = Instant::now();
        let mut bridge = Bridge::start(&self.cloud, &made, &self.dir, &self.broker, enforced).await?;
        self.step("worker and control run on the deployed tables", since);

        let since = Instant::now();
        self.report.published = bridge.publish().await?;
        self.step("messages arrived in the queue", since);

        let since = Instant::now();
        self.report.redriven = bridge.redrive(&self.cloud, &made).await?;
        self.step("dead letters put back by the deployed function arrived", since);

        let since = Instant::now();
        self.report.housekeeping_runs = self.housekeeping(&made).await?;
        self.step("the scheduler started the deployed housekeeping function", since);

        if enforced {
            let since = Instant::now();
            self.report.refused_actions = refusals::verify(&self.cloud, &made).await?;
            self.step("every role is refused what it does not need", since);
        }

        if enforced {
            let since = Instant::now();
            bridge.each_as_owner(&self.cloud, &made, &self.dir).await?;
            self.step("worker and control have each been the owner", since);
        }

        let account = bridge.finish().await?;
        self.report.delivered = account.delivered;
        self.report.duplicates = account.duplicates;
        self.report.lost = account.lost;
        ensure!(
            account.faults().is_empty() && account.duplicates == 0,
            "the ledger: {:?}; duplicates: {}",
            account.faults(),
            account.duplicates
        );

        let since = Instant::now();
        corners::tidy_up(&self.cloud, &made).await?;
        self.step("the deployed housekeeping function removed what nobody needs", since);

        if enforced {
            let since = Instant::now();
            operations::compare(&self.dir.join("aws"), &made)?;
            self.step("every call of every role is one that it is granted for", since);
        }

        let since = Instant::now();
        self.destroy(&made).await?;
        self.step("cdk destroy: the tables stay", since);
        Ok(())
    }

    /// Waits until the scheduler has started the housekeeping function and it has answered.
    async fn housekeeping(&self, made: &Made) -> Result<u64> {
        let function = &made.one("AWS::Lambda::Function", "Housekeeping")?.physical;
        let group = log_group(&self.cloud, function).await?;
        let deadline = Instant::now() + SCHEDULE_PATIENCE;
        loop {
            let runs = runs_of(&self.cloud, &group).await?;
            if runs > 0 {
                return Ok(runs);
            }
            ensure!(Instant::now() < deadline, "the scheduler did not start {function} within {SCHEDULE_PATIENCE:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn destroy(&self, made: &Made) -> Result<()> {
        self.on_assembly(&["destroy", "--all", "--force"]).await?;
        for stack in STACKS {
            let answer = self.cloud.aws(&["cloudformation", "describe-stacks", "--stack-name", stack]).await;
            let gone = answer.as_ref().map_or(true, |answer| answer["Stacks"][0]["StackStatus"] == "DELETE_COMPLETE");
            ensure!(gone, "the stack {stack} is still there: {answer:?}");
        }
        for table in made.tables() {
            self.cloud
                .aws(&["dynamodb", "describe-table", "--table-name", &table.physical])
                .await
                .context("a table went with its stack")?;
        }
        Ok(())
    }
}

async fn log_group(cloud: &Cloud, function: &str) -> Result<String> {
    let settings = cloud.aws(&["lambda", "get-function-configuration", "--function-name", function]).await?;
    Ok(settings["LoggingConfig"]["LogGroup"].as_str().map_or_else(|| format!("/aws/lambda/{function}"), str::to_owned))
}

/// How often a function has run, by the reports in its log.
async fn runs_of(cloud: &Cloud, group: &str) -> Result<u64> {
    let answer = cloud.aws(&["logs", "filter-log-events", "--log-group-name", group]).await.unwrap_or(Value::Null);
    let lines = answer["events"].as_array().into_iter().flatten().filter_map(|event| event["message"].as_str());
    Ok(lines.filter(|line| line.starts_with("REPORT")).count() as u64)
}
