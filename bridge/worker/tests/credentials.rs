//! A login that stands in a file is used by the next connection after it was renewed there, without a restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod process;

use process::{Broker, Worker, causeway_with, wait_for};
use std::path::Path;
use tempfile::TempDir;

fn write_login(dir: &Path, password: &str) {
    // As those who renew it should: written beside it, then moved.
    std::fs::write(dir.join("login.new"), format!("{{\"username\": \"plant\", \"password\": \"{password}\"}}\n")).unwrap();
    std::fs::rename(dir.join("login.new"), dir.join("login.json")).unwrap();
}

#[test]
fn a_renewed_login_is_used_without_a_restart() {
    let dir = TempDir::new().unwrap();
    let mut broker = Broker::with_login(dir.path(), "plant", "first");
    write_login(dir.path(), "first");
    let session = format!("credentials_uri: file://{}/login.json\n        allow_plaintext_credentials: true", dir.path().display());
    let mut worker = Worker::start(dir.path(), &broker.url, "", &[("SESSION_OPTIONS", &session)]);
    wait_for("a connection", || worker.get("/api/v1/monitor/ready?level=subscribed").0 == 200);
    broker.restart_with(dir.path(), "plant", "second-canary");
    wait_for("the former login to be refused", || worker.json("/api/v1/monitor/deephealth")["sessions"][0]["connected"] == false);
    write_login(dir.path(), "second-canary");
    wait_for("a connection with the renewed login", || worker.get("/api/v1/monitor/ready?level=subscribed").0 == 200);
    worker.signal(rustix::process::Signal::TERM);
    let ended = worker.ended();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("a secret was renewed") && ended.stderr.contains("the login was renewed"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("second-canary") && !ended.stdout.contains("second-canary"), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_read_ends_the_start_and_says_where() {
    let dir = TempDir::new().unwrap();
    let session = "credentials_uri: env://NO_SUCH_LOGIN\n        allow_plaintext_credentials: true";
    let mut worker = Worker::spawn(dir.path(), "mqtt://127.0.0.1:9", "", &[("SESSION_OPTIONS", session)]);
    let ended = worker.ended();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let named = "sessions[0].options.session.credentials_uri (env://NO_SUCH_LOGIN)";
    assert!(ended.stderr.contains(named), "the field and the place: {}", ended.stderr);
    let canary = "no-login-canary";
    let session = "credentials_uri: env://LOGIN\n        allow_plaintext_credentials: true";
    let mut worker = Worker::spawn(dir.path(), "mqtt://127.0.0.1:9", "", &[("SESSION_OPTIONS", session), ("LOGIN", canary)]);
    let ended = worker.ended();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("E_CREDENTIALS_URI") && !ended.stderr.contains(canary), "{}", ended.stderr);
}

/// The samples of the documentation.
#[test]
fn samples_for_brokers_are_sound() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/brokers");
    let environment = [
        ("QUEUE_URL", "https://sqs.eu-west-1.amazonaws.com/123456789012/telemetry"),
        ("HINT_TOKEN", "0123456789abcdef"),
        ("IOT_ENDPOINT", "example-ats.iot.eu-west-1.amazonaws.com"),
        ("HIVEMQ_HOST", "example.s1.eu.hivemq.cloud"),
    ];
    for name in ["aws-iot-core", "emqx", "hivemq", "mosquitto"] {
        let checked = causeway_with(&["check", "--json", &format!("{folder}/{name}.yaml")], &environment);
        let told: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
        assert_eq!((checked.code, &told["faults"]), (0, &serde_json::json!([])), "{name}: {told}");
    }
}
