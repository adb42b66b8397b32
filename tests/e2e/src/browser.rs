//! A headless Chromium, driven over its own protocol: loads a page, looks at it, presses its buttons, and takes pictures.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use async_tungstenite::WebSocketStream;
use async_tungstenite::tokio::{TokioAdapter, client_async_with_config};
use async_tungstenite::tungstenite::Message;
use async_tungstenite::tungstenite::protocol::WebSocketConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How long anything may take; a browser on a busy machine needs it.
const PATIENCE: Duration = Duration::from_secs(90);
/// The names that the program goes by.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
/// A picture of a page comes as one message.
const LARGEST_MESSAGE: usize = 64 << 20;

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    socket: WebSocketStream<TokioAdapter<TcpStream>>,
    session: String,
    calls: u64,
    /// What the page complained about: exceptions, and errors on its console.
    pub complaints: Vec<String>,
    // Killed when dropped.
    _process: Child,
    _profile: TempDir,
}

impl Browser {
    /// Starts it with an empty profile.
    ///
    /// # Errors
    /// There is none, or it does not start.
    pub async fn start() -> Result<Self> {
        let profile = tempfile::Builder::new().prefix("causeway-browser-").tempdir()?;
        let process = launch(profile.path())?;
        let mut socket = connect(profile.path()).await?;
        let mut calls = 0;
        let mut ignored = Vec::new();
        let target = call(&mut socket, &mut calls, &mut ignored, None, "Target.createTarget", json!({ "url": "about:blank" })).await?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = call(&mut socket, &mut calls, &mut ignored, None, "Target.attachToTarget", attach).await?;
        let session = attached["sessionId"].as_str().context("the browser gave no session")?.to_owned();
        let mut browser = Self { socket, session, calls, complaints: Vec::new(), _process: process, _profile: profile };
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({})).await?;
        }
        browser.call("Emulation.setScrollbarsHidden", json!({ "hidden": true })).await?;
        Ok(browser)
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        call(&mut self.socket, &mut self.calls, &mut self.complaints, Some(&self.session), method, parameters).await
    }

    /// Loads a page.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub async fn open(&mut self, url: &str) -> Result<()> {
        let answer = self.call("Page.navigate", json!({ "url": url })).await?;
        ensure!(answer.get("errorText").is_none(), "{url}: {}", answer["errorText"]);
        self.until("the page is loaded", "document.readyState === 'complete' && location.href !== 'about:blank'").await
    }

    /// What an expression comes to in the page.
    ///
    /// # Errors
    /// It throws.
    pub async fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", parameters).await?;
        ensure!(answer.get("exceptionDetails").is_none(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true in the page.
    ///
    /// # Errors
    /// It does not come true.
    pub async fn until(&mut self, what: &str, expression: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.evaluate(expression).await? != true {
            if Instant::now() > deadline {
                let page = self.evaluate("document.body.innerText").await?;
                bail!(
                    "not within {PATIENCE:?}: {what}; complaints: {:?}; the page says:\n{}",
                    self.complaints,
                    page.as_str().unwrap_or_default()
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Makes the window so many pixels wide and high.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn resize(&mut self, width: u32, height: u32) -> Result<()> {
        let parameters = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", parameters).await.map(drop)
    }

    /// Shows pages as whoever prefers light or dark ones sees them.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn prefer(&mut self, scheme: &str) -> Result<()> {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features).await.map(drop)
    }

    /// The whole page as a picture (PNG).
    ///
    /// # Errors
    /// The browser makes none.
    pub async fn picture(&mut self) -> Result<Vec<u8>> {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true })).await?;
        STANDARD.decode(answer["data"].as_str().context("the browser gave no picture")?).context("the picture is damaged")
    }
}

fn launch(profile: &Path) -> Result<Child> {
    let mut refused = Vec::new();
    for name in NAMES {
        let mut command = Command::new(name);
        // Without a sandbox, because tests run as root in containers too; they load nothing but their own pages.
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server"]);
        command.arg("--remote-debugging-port=0").arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        match command.spawn() {
            Ok(child) => return Ok(child),
            Err(error) => refused.push(format!("{name}: {error}")),
        }
    }
    bail!("no browser can be started; `scripts/setup --for-tests` installs one ({})", refused.join(", "))
}

async fn connect(profile: &Path) -> Result<WebSocketStream<TokioAdapter<TcpStream>>> {
    let told = profile.join("DevToolsActivePort");
    let deadline = Instant::now() + PATIENCE;
    let (port, path) = loop {
        // Its two lines are written one after the other.
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        if let [port, path] = text.lines().collect::<Vec<_>>()[..] {
            break (port.to_owned(), path.to_owned());
        }
        ensure!(Instant::now() < deadline, "the browser does not say where it listens");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).await.context("the browser does not listen")?;
    let config = WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE)).max_frame_size(Some(LARGEST_MESSAGE));
    let (socket, _) = client_async_with_config(format!("ws://127.0.0.1:{port}{path}"), stream, Some(config)).await?;
    Ok(socket)
}

/// Calls the browser, and hears on the way what its page complains about.
async fn call(
    socket: &mut WebSocketStream<TokioAdapter<TcpStream>>,
    calls: &mut u64,
    complaints: &mut Vec<String>,
    session: Option<&str>,
    method: &str,
    parameters: Value,
) -> Result<Value> {
    *calls += 1;
    let mut request = json!({ "id": *calls, "method": method, "params": parameters });
    if let Some(session) = session {
        request["sessionId"] = json!(session);
    }
    socket.send(Message::text(request.to_string())).await?;
    let answered = async {
        while let Some(message) = socket.next().await {
            let Message::Text(text) = message? else { continue };
            let told: Value = serde_json::from_str(&text)?;
            if told["id"] == *calls {
                return match told.get("error") {
                    Some(error) => Err(anyhow!("{method}: {error}")),
                    None => Ok(told["result"].clone()),
                };
            }
            complaints.extend(complaint(&told));
        }
        bail!("the browser is gone")
    };
    tokio::time::timeout(PATIENCE, answered).await.with_context(|| format!("the browser does not answer {method}"))?
}

/// What an event of the browser complains about, if it does.
fn complaint(event: &Value) -> Option<String> {
    let of = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(of["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if of["type"] == "error" || of["type"] == "assert" => Some(of["args"].to_string()),
        "Log.entryAdded" if of["entry"]["level"] == "error" => Some(of["entry"].to_string()),
        _ => None,
    }
}
