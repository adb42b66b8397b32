//! The program, a broker and a metadata server as processes and threads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, reason = "tests; not every file uses all of it")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the program with an AWS that is away.
pub fn causeway(arguments: &[&str]) -> Ended {
    causeway_with(arguments, &[])
}

/// The same with further variables.
pub fn causeway_with(arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    let output = command(environment).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn command(environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command.env_clear().envs([
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ]);
    command.envs(environment.iter().copied());
    command
}

/// A port that nobody listens on at this moment.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until `holds`.
pub fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < until, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A configuration with its SQLite file in `dir`; `bridge` adds lines to the block of that name.
pub fn config(dir: &Path, broker: &str, monitor_port: u16, bridge: &str) -> String {
    config_with(dir, broker, monitor_port, bridge, "")
}

fn config_with(dir: &Path, broker: &str, monitor_port: u16, bridge: &str, session: &str) -> String {
    let store = dir.join("store.db");
    let store = store.display();
    format!(
        r#"
bridge:
  id: b
  {bridge}
sessions:
  - id: mqtt-conn
    transport: mqtt
    session_mode: persistent
    options:
      session:
        broker_url: {broker}
        client_id: cli-test
        reconnect_delay: 200ms
        reconnect_max_delay: 1s
        {session}
stores:
  outbox: {{type: sqlite, options: {{path: {store}}}}}
  dlq: {{type: sqlite, options: {{path: {store}}}}}
receivers:
  - id: telemetry-in
    session_id: mqtt-conn
    topics: [{{topic: "telemetry/#", qos: 1}}]
senders:
  - id: sqs-out
    transport: sqs
    options: {{queue_url: "http://127.0.0.1:9/000000000000/telemetry-events", region: us-east-1}}
bindings:
  - {{id: to-sqs, sender_id: sqs-out, address: telemetry-events}}
routes:
  - id: ingest
    receiver_id: telemetry-in
    delivery_mode: shared_outbox
    bindings: [to-sqs]
    policy: {{max_replay_attempts: 0, backoff: {{initial_interval: 100ms, max_interval: 1s}}}}
http: {{monitor_addr: "127.0.0.1:{monitor_port}"}}
"#
    )
}

/// A running worker. Killed when dropped.
pub struct Worker {
    child: Child,
    config: PathBuf,
    dir: PathBuf,
    log: String,
    pub url: String,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    /// Starts one and waits for its monitor.
    pub fn start(dir: &Path, broker: &str, bridge: &str, environment: &[(&str, &str)]) -> Self {
        let mut worker = Self::spawn(dir, broker, bridge, environment);
        let until = Instant::now() + DEADLINE;
        while http_get(&worker.url, "/api/v1/monitor/live").is_none() {
            if let Some(status) = worker.child.try_wait().unwrap() {
                panic!("the worker ended with {status}: {}", worker.ended().stderr);
            }
            assert!(Instant::now() < until, "the monitor does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        worker
    }

    /// Starts one.
    pub fn spawn(dir: &Path, broker: &str, bridge: &str, environment: &[(&str, &str)]) -> Self {
        let port = free_port();
        let session = environment.iter().find(|(name, _)| *name == "SESSION_OPTIONS").map_or("", |(_, value)| value);
        let config = dir.join(format!("worker-{port}.yaml"));
        std::fs::write(&config, config_with(dir, broker, port, bridge, session)).unwrap();
        let log = format!("worker-{port}");
        let file = |name: &str| Stdio::from(File::create(dir.join(format!("{log}.{name}"))).unwrap());
        let log_to =
            environment.iter().find(|(name, _)| *name == "LOG_TO").map(|(_, path)| File::options().write(true).open(path).unwrap());
        let stderr = (file("err"), log_to);
        let stderr = stderr.1.map_or(stderr.0, Stdio::from);
        let child = command(environment).args(["run", "-c"]).arg(&config).stdout(file("out")).stderr(stderr).spawn().unwrap();
        Self { child, config, dir: dir.to_owned(), log, url: format!("http://127.0.0.1:{port}") }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> Ended {
        let until = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "the worker does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        let text = |name: &str| std::fs::read_to_string(self.dir.join(format!("{}.{name}", self.log))).unwrap();
        Ended { code: status.code().unwrap_or(-1), stdout: text("out"), stderr: text("err") }
    }

    /// Another command with this worker's configuration.
    pub fn command(&self, arguments: &[&str]) -> Ended {
        let config = self.config.display().to_string();
        causeway(&[arguments, &["-c", &config]].concat())
    }

    /// Status and body of a page.
    pub fn get(&self, path: &str) -> (u16, String) {
        http_get(&self.url, path).unwrap_or_else(|| panic!("{path} does not answer"))
    }

    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).1).unwrap()
    }
}

fn http_get(base: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(base.strip_prefix("http://").unwrap()).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split_whitespace().nth(1)?.parse().ok()?, body.to_owned()))
}

/// A broker of its own. Killed when dropped.
pub struct Broker {
    child: Child,
    port: u16,
    pub url: String,
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Broker {
    pub fn start(dir: &Path) -> Self {
        Self::on(dir, free_port(), "allow_anonymous true\n")
    }

    /// One that nobody uses without this login.
    pub fn with_login(dir: &Path, username: &str, password: &str) -> Self {
        Self::on(dir, free_port(), &login(dir, username, password))
    }

    /// Ends it and starts it with another login on the same port.
    pub fn restart_with(&mut self, dir: &Path, username: &str, password: &str) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        *self = Self::on(dir, self.port, &login(dir, username, password));
    }

    fn on(dir: &Path, port: u16, settings: &str) -> Self {
        let config = dir.join("mosquitto.conf");
        // As root it would become user mosquitto, which may not read the folder.
        std::fs::write(&config, format!("user root\nlistener {port} 127.0.0.1\n{settings}")).unwrap();
        let log = File::create(dir.join("mosquitto.log")).unwrap();
        let program =
            ["/usr/sbin/mosquitto", "/usr/bin/mosquitto"].into_iter().find(|path| Path::new(path).exists()).unwrap_or("mosquitto");
        let child = Command::new(program).arg("-c").arg(&config).stdout(Stdio::null()).stderr(log).spawn().expect("mosquitto is installed");
        wait_for("mosquitto", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { child, port, url: format!("mqtt://127.0.0.1:{port}") }
    }

    pub fn publish(&self, topic: &str, payload: &str) {
        let port = self.port.to_string();
        let status = Command::new("mosquitto_pub").args(["-h", "127.0.0.1", "-p", &port, "-q", "1", "-t", topic, "-m", payload]).status();
        assert!(status.expect("mosquitto-clients is installed").success());
    }
}

/// Settings of a broker that asks for this login.
fn login(dir: &Path, username: &str, password: &str) -> String {
    let passwords = dir.join("passwords");
    let status = Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(&passwords).args([username, password]).status();
    assert!(status.expect("mosquitto_passwd comes with mosquitto").success());
    format!("allow_anonymous false\npassword_file {}\n", passwords.display())
}

/// Answers every request with `body`, as long as the test process lives. Answers its address.
pub fn metadata_server(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v4", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            let is_known = [&b"GET /v4 "[..], b"GET /v4/task "].iter().any(|known| request[..read].starts_with(known));
            assert!(is_known, "{}", String::from_utf8_lossy(&request[..read]));
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        }
    });
    url
}
