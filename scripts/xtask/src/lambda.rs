//! `lambda`: a function's real program, invoked through Lambda's runtime interface on this machine.

use crate::local;
use crate::stack::repository;
use crate::terminal::{note, result};
use anyhow::{Context as _, Result, bail};
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, mpsc};

/// Which function, and with what.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The function.
    #[arg(value_parser = ["housekeeping", "redrive"])]
    function: String,
    /// A file with the event, as JSON
    #[arg(long)]
    event: PathBuf,
    /// Where a relative path begins
    #[arg(long, default_value = ".", hide = true)]
    from: PathBuf,
    /// Tell how long starting and the first invocation took
    #[arg(long)]
    cold: bool,
    /// How long the invocation may take, in seconds
    #[arg(long, default_value_t = 60)]
    timeout: u64,
}

/// Invokes the function with the event, on the local stack. `true`: it answered; `false`: it failed.
///
/// # Errors
/// The local stack does not run, the event cannot be read, or the program does not start.
pub async fn run(options: &Options) -> Result<bool> {
    let path = options.from.join(&options.event);
    let event = std::fs::read(&path).with_context(|| format!("cannot read the event {}", path.display()))?;
    let mut environment = local::environment().context("the local stack does not run: scripts/local up")?;
    environment.insert("CAUSEWAY_CONFIG_INLINE".to_owned(), local::configuration()?);
    let program = binary(&options.function).await?;
    let function = Function::start(&program, &options.function, &function_environment(environment)).await?;
    let (answer, first) = function.invoke(&event, Duration::from_secs(options.timeout)).await?;
    if options.cold {
        note(&format!("ready after {} ms, answered after {} ms more", function.ready.as_millis(), first.as_millis()));
    }
    result(&serde_json::to_string_pretty(&answer.payload)?);
    if answer.failed {
        note("the function failed (X-Amz-Function-Error: Unhandled)");
    }
    Ok(!answer.failed)
}

/// What the stack sets for a function, with the local stack's names.
#[must_use]
pub fn function_environment(local: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut environment = local;
    environment.entry("CAUSEWAY_BRIDGE_ID".to_owned()).or_insert_with(|| "telemetry-bridge".to_owned());
    for role in ["leases", "outbox", "dlq", "commands", "ledger"] {
        environment.entry(format!("CAUSEWAY_{}_TABLE", role.to_uppercase())).or_insert_with(|| format!("causeway-{role}"));
    }
    environment
}

/// The function's program: `CAUSEWAY_<FUNCTION>_BIN` if set, else built now.
///
/// # Errors
/// It is missing or cannot be built.
pub async fn binary(function: &str) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os(format!("CAUSEWAY_{}_BIN", function.to_uppercase())).map(PathBuf::from) {
        if !given.exists() {
            bail!("{} does not exist", given.display());
        }
        return Ok(given);
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository()).stdin(Stdio::null()).stderr(Stdio::inherit());
    command.args(["build", "--quiet", "--workspace", "--bin", function]);
    let output = command.arg("--message-format=json-render-diagnostics").output().await.context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the function does not build");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == function)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo built the function and does not say where")
}

/// What a function answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether it is a function error.
    pub failed: bool,
    /// The payload.
    pub payload: Value,
}

struct Invocation {
    id: String,
    deadline_ms: u128,
    event: Vec<u8>,
}

#[derive(Clone)]
struct Api {
    invocations: Arc<Mutex<mpsc::Receiver<Invocation>>>,
    asked: mpsc::Sender<()>,
    answers: mpsc::Sender<Answer>,
}

/// A function that runs and waits for invocations. Ends with its handle.
#[derive(Debug)]
pub struct Function {
    /// From its start to its first question for work.
    pub ready: Duration,
    id: Option<u32>,
    invocations: mpsc::Sender<Invocation>,
    answers: Mutex<mpsc::Receiver<Answer>>,
    child: Mutex<Child>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Function {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Function {
    /// Starts `program` with a runtime interface of its own.
    ///
    /// # Errors
    /// It does not start, or ends before it asks for work.
    pub async fn start(program: &Path, name: &str, environment: &BTreeMap<String, String>) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("no port for the runtime interface")?;
        let address = listener.local_addr()?;
        let (invocations, queue) = mpsc::channel(1);
        let (asked, mut first) = mpsc::channel(1);
        let (answered, answers) = mpsc::channel(1);
        let api = Api { invocations: Arc::new(Mutex::new(queue)), asked, answers: answered };
        let routes = axum::Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .with_state(api);
        let server = tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
        let began = Instant::now();
        let mut command = Command::new(program);
        command.envs(environment).env("AWS_LAMBDA_RUNTIME_API", address.to_string());
        command.env("AWS_LAMBDA_FUNCTION_NAME", name).env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST");
        command.env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256").env("CAUSEWAY_LOG_FORMAT", "json");
        // What it prints would end in CloudWatch Logs; here, on stderr, so that stdout has the answer alone.
        command.stdin(Stdio::null()).stdout(std::io::stderr()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        tokio::select! {
            _ = first.recv() => {}
            status = child.wait() => bail!("{name} ended before it was ready: {}", status?),
        }
        Ok(Self { ready: began.elapsed(), id: child.id(), invocations, answers: Mutex::new(answers), child: Mutex::new(child), server })
    }

    /// Invokes it; answers what it said, and how long that took.
    ///
    /// # Errors
    /// It ended, or took longer than `timeout`.
    pub async fn invoke(&self, event: &[u8], timeout: Duration) -> Result<(Answer, Duration)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = format!("local-{:x}", now.as_nanos());
        let began = Instant::now();
        let deadline_ms = (now + timeout).as_millis();
        let invocation = Invocation { id, deadline_ms, event: event.to_vec() };
        self.invocations.send(invocation).await.ok().context("the runtime interface is gone")?;
        let (mut answers, mut child) = (self.answers.lock().await, self.child.lock().await);
        tokio::select! {
            answer = answers.recv() => Ok((answer.context("the runtime interface is gone")?, began.elapsed())),
            status = child.wait() => bail!("the function ended: {}", status?),
            () = tokio::time::sleep(timeout) => bail!("the function took longer than {} s", timeout.as_secs()),
        }
    }

    /// Its process id, while it runs.
    #[must_use]
    pub const fn id(&self) -> Option<u32> {
        self.id
    }

    /// Kills it as a crash would.
    ///
    /// # Errors
    /// It is gone already.
    pub async fn kill(&self) -> Result<()> {
        self.child.lock().await.kill().await.context("cannot kill the function")
    }
}

async fn next(State(api): State<Api>) -> Result<impl IntoResponse, StatusCode> {
    let _ = api.asked.try_send(());
    let invocation = api.invocations.lock().await.recv().await.ok_or(StatusCode::GONE)?;
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("lambda-runtime-aws-request-id", invocation.id.clone()),
        ("lambda-runtime-deadline-ms", invocation.deadline_ms.to_string()),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:000000000000:function:local".to_owned()),
    ] {
        headers.insert(name, value.parse().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?);
    }
    Ok((headers, invocation.event))
}

async fn response(State(api): State<Api>, UrlPath(_): UrlPath<String>, body: Bytes) -> StatusCode {
    answer(&api, false, &body).await
}

async fn error(State(api): State<Api>, UrlPath(_): UrlPath<String>, body: Bytes) -> StatusCode {
    answer(&api, true, &body).await
}

async fn answer(api: &Api, failed: bool, body: &[u8]) -> StatusCode {
    let payload = serde_json::from_slice(body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()));
    let _ = api.answers.send(Answer { failed, payload }).await;
    StatusCode::ACCEPTED
}
