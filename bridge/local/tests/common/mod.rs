//! What several tests need: rows, letters, and a second process.
#![allow(dead_code, reason = "every test uses some of it")]
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use causeway_core::dead_letter::DeadLetter;
use causeway_core::identity::{Epoch, Id128, LogName, Slot};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::rows::{CODEC_POSTCARD_ZSTD, Row, Segment};
use causeway_core::units::UnixMillis;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn log() -> LogName {
    LogName::new("bridge", "session", 0).unwrap()
}

pub fn segment(id: u128, body: impl Into<Bytes>) -> Row {
    Row::Segment(Segment {
        epoch: Epoch(1),
        segment_id: Id128(id),
        count: 1,
        codec: CODEC_POSTCARD_ZSTD,
        body: body.into(),
        created_at: UnixMillis(1_700_000_000_000),
        earliest_expiry: None,
        drained: Slot(0),
    })
}

pub fn entry(id: u128) -> Entry {
    Entry {
        id: Id128(id),
        route: "route".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "source".into(),
        received_at: UnixMillis(1),
        expires_at: None,
        redrive: None,
        message: Message { topic: "topic".to_owned(), payload: Bytes::from_static(b"payload"), ..Message::default() },
    }
}

pub fn letter(id: u128) -> DeadLetter {
    DeadLetter::new(&entry(id), &Default::default(), &Fault::new(FaultCode::Refused, "no"), 1, UnixMillis(2))
}

const PATH: &str = "CAUSEWAY_TEST_STORE_PATH";

/// What a line that the child says begins with, among what the test harness prints.
const SAYS: &str = "says: ";

/// This very program, run again to do nothing but one of its ignored tests. Killed at the latest when it is dropped.
pub struct Child {
    process: std::process::Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Child {
    /// Starts the ignored test `name` in a process of its own, on the store at `path`.
    pub fn start(name: &str, path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "--test-threads=1", name])
            .env(PATH, path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line that the child says; empty where it ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            // The harness prints the test's name without a line break before.
            if let Some((_, said)) = line.trim_end().split_once(SAYS) {
                return said.to_owned();
            }
            line.clear();
        }
        line
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// In the child: the store that it was started on.
    pub fn path() -> PathBuf {
        std::env::var_os(PATH).unwrap().into()
    }

    /// In the child: says a line to the one who started it.
    pub fn say(line: &str) {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{SAYS}{line}").unwrap();
        out.flush().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
