//! The program as users start it: exit codes, what it prints, how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod process;

use process::{Broker, Worker, causeway, causeway_with, config, free_port, metadata_server, wait_for};
use serde_json::Value;
use std::process::Stdio;
use tempfile::TempDir;

const UNREACHABLE: &str = "http://127.0.0.1:9";

#[test]
fn the_version_and_the_metrics_are_told() {
    let version = causeway(&["version"]);
    assert_eq!((version.code, version.stdout.trim()), (0, concat!("causeway ", env!("CARGO_PKG_VERSION"))));
    let listed = causeway(&["metrics", "--list", "--json"]);
    let names: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    assert!(names.iter().any(|metric| metric["name"] == "causeway_store_write_units_total" && metric["cloudwatch"] == "StoreWriteUnits"));
    assert!(causeway(&["metrics", "--list"]).stdout.lines().count() > 40);
}

#[test]
fn the_commands_on_configurations_are_there() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/scenario.yaml");
    let checked = causeway(&["check", scenario]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    let budgets: Value = serde_json::from_str(&causeway(&["budget", "--json", scenario]).stdout).unwrap();
    assert_eq!(budgets[0]["owner_death"], 967.5);
    let schema: Value = serde_json::from_str(&causeway(&["schema"]).stdout).unwrap();
    assert!(schema["properties"]["routes"].is_object());
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("starter.yaml").display().to_string();
    assert_eq!(causeway(&["init", "--output", &path]).code, 0);
    assert_eq!(causeway(&["init", "--output", &path]).code, 2, "an existing file stays as it is");
    let checked = causeway(&["check", "--json", &path]);
    let told: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!((checked.code, &told["faults"]), (0, &serde_json::json!([])), "{told}");
    let named = causeway(&["init", "--id", "plant-7", "--clustered"]).stdout;
    assert!(named.contains("\n  id: plant-7 ") && named.contains("client_id: plant-7 ") && !named.contains("my-bridge"), "{named}");
    assert_eq!(causeway(&["init", "--id", "plant 7"]).code, 2);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_causeway"))
        .args(["metrics", "--list", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_cannot_be_used_ends_with_2_and_a_line_that_says_what_to_do() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let broken = write("broken.yaml", "bridge: [");
    let unknown = write("unknown.yaml", "bridge: {id: b, instance: x}");
    let usable = write("usable.yaml", &config(dir.path(), "mqtt://127.0.0.1:9", 0, ""));
    let missing = dir.path().join("none.yaml").display().to_string();
    let elsewhere = write("elsewhere.yaml", "senders: [{id: sqs-out, options: {credentials_uri: 'file:///etc/causeway/keys'}}]");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = write("in-use.yaml", &config(dir.path(), "mqtt://127.0.0.1:9", taken.local_addr().unwrap().port(), ""));
    let cases: [(&[&str], &str); 10] = [
        (&["run"], "-c FILE"),
        (&["fly"], "unrecognized subcommand"),
        (&["budget", &missing], "error[E_FILE_MISSING]"),
        (&["run", "-c", &usable, "-c", &elsewhere], "error[E_AWS_CREDENTIALS]"),
        (&["run", "-c", &missing], "error[E_FILE_MISSING]"),
        (&["run", "-c", &broken], "broken.yaml:1:"),
        (&["run", "-c", &unknown], "error[E_UNKNOWN_KEY]"),
        (&["run", "-c", &in_use], "the port is in use"),
        (&["run", "-c", &usable, "--role", "control"], "E_ROLE"),
        (&["dlq", "show", "-c", &usable, "--id", "7"], "32 hexadecimal digits"),
    ];
    for (arguments, expected) in cases {
        let ended = causeway(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{arguments:?}: {}", ended.stdout);
    }
}

#[test]
fn tables_in_a_real_account_want_a_yes() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("c.yaml");
    let text = config(dir.path(), "mqtt://127.0.0.1:9", 0, "")
        .replace(&format!("{{type: sqlite, options: {{path: {}}}}}", dir.path().join("store.db").display()), "{type: dynamodb}");
    assert!(text.contains("dynamodb"));
    std::fs::write(&path, text).unwrap();
    let ended = process::causeway_with(&["stores", "create", "-c", &path.display().to_string()], &[("AWS_ENDPOINT_URL", "")]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("causeway-outbox, causeway-dlq") && ended.stderr.contains("--yes"), "{}", ended.stderr);
}

#[test]
fn a_healthcheck_without_a_worker_fails() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let ended = causeway(&["healthcheck", "--url", &url]);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("does not answer"), "{}", ended.stderr);
}

#[test]
fn the_doctor_names_what_is_wrong_and_the_remedy() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("c.yaml");
    std::fs::write(&path, config(&dir.path().join("nowhere"), &format!("mqtt://127.0.0.1:{}", free_port()), free_port(), "")).unwrap();
    let ended = causeway(&["doctor", "--json", "-c", &path.display().to_string()]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["ok"], false);
    let findings = report["findings"].as_array().unwrap();
    let of = |part: &str| findings.iter().find(|finding| finding["part"] == part).unwrap_or_else(|| panic!("{part}: {report}"));
    assert_eq!(of("configuration")["ok"], true);
    assert_eq!(of("http.monitor_addr")["ok"], true);
    for part in ["stores.outbox", "sender sqs-out", "session mqtt-conn"] {
        assert_eq!(of(part)["ok"], false, "{part}");
        assert!(!of(part)["remedy"].as_str().unwrap().is_empty());
    }
    let shown = causeway(&["doctor", "-c", &path.display().to_string()]);
    assert_eq!(shown.code, 1);
    assert!(
        shown.stdout.contains("✓ configuration") && shown.stdout.contains("✗ stores.outbox") && shown.stdout.contains("    → "),
        "{}",
        shown.stdout
    );
}

#[test]
fn a_worker_without_broker_and_queue_lives_and_ends_in_order() {
    let dir = TempDir::new().unwrap();
    let mut worker = Worker::start(dir.path(), "mqtt://127.0.0.1:9", "metrics_exporter: emf", &[]);
    assert_eq!(worker.get("/api/v1/monitor/live").0, 200);
    wait_for("level running", || worker.get("/api/v1/monitor/ready?level=running").0 == 200);
    assert_eq!(worker.get("/api/v1/monitor/ready").0, 503, "the broker is away");
    assert_eq!(causeway(&["healthcheck", "--url", &worker.url]).code, 0);
    let second = Worker::spawn(dir.path(), "mqtt://127.0.0.1:9", "", &[]).ended();
    assert_eq!(second.code, 2, "{}", second.stderr);
    assert!(second.stderr.contains("is in use by"), "a second copy on the same file: {}", second.stderr);
    worker.signal(rustix::process::Signal::TERM);
    let ended = worker.ended();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["OutboxDepth"] == 0 && line["Session"] == "mqtt-conn"), "the last metrics go out at the end");
    for line in ended.stderr.lines() {
        let _: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not a JSON log line: {line}"));
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let dir = TempDir::new().unwrap();
    let mut worker = Worker::start(dir.path(), "mqtt://127.0.0.1:9", "", &[("LOG_TO", "/dev/full")]);
    wait_for("level running", || worker.get("/api/v1/monitor/ready?level=running").0 == 200);
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended().code, 0);
}

#[test]
fn what_waits_survives_a_stop_and_a_second_signal_ends_at_once() {
    let dir = TempDir::new().unwrap();
    let broker = Broker::start(dir.path());
    let mut worker = Worker::start(dir.path(), &broker.url, "drain_timeout: 1s", &[]);
    wait_for("full service", || worker.get("/api/v1/monitor/ready").0 == 200);
    broker.publish("telemetry/a", "{\"n\":1}");
    let in_outbox = |worker: &Worker| worker.json("/api/v1/monitor/deephealth")["sessions"][0]["unsettled_count"] == 1;
    wait_for("the message in the outbox", || in_outbox(&worker));
    worker.signal(rustix::process::Signal::TERM);
    let ended = worker.ended();
    assert_eq!(ended.code, 0, "the queue is away, the log is not: {}", ended.stderr);
    let stat = worker.command(&["outbox", "stat", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&stat.stdout).unwrap()["entries"], 1, "{}", stat.stderr);

    let mut worker = Worker::start(dir.path(), &broker.url, "drain_timeout: 100s\n  shutdown_timeout: 120s", &[]);
    wait_for("the message recovered", || in_outbox(&worker) && worker.json("/api/v1/monitor/routes")["routes"][0]["recovered"] == 1);
    assert_eq!(worker.json("/api/v1/monitor/routes")["routes"][0]["conservation_imbalance"], 0);
    worker.signal(rustix::process::Signal::INT);
    wait_for("not ready", || worker.json("/api/v1/monitor/health")["status"] == "not_running");
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended().code, 130);
    let stat = worker.command(&["outbox", "stat"]);
    assert!(stat.stdout.contains("LOG#b#mqtt-conn#0"), "{}{}", stat.stdout, stat.stderr);
}

#[test]
fn the_instance_is_named_after_its_ecs_task() {
    let dir = TempDir::new().unwrap();
    let metadata = metadata_server(
        r#"{"TaskARN":"arn:aws:ecs:us-east-1:1:task/cluster/0123456789abcdef","Networks":[{"IPv4Addresses":["10.0.0.9"]}]}"#,
    );
    let worker = Worker::start(dir.path(), "mqtt://127.0.0.1:9", "", &[("ECS_CONTAINER_METADATA_URI_V4", &metadata)]);
    assert_eq!(worker.json("/api/v1/monitor/topology")["instance_id"], "0123456789abcdef");
    drop(worker);
    let dir = TempDir::new().unwrap();
    let worker = Worker::start(dir.path(), "mqtt://127.0.0.1:9", "instance_id: mine", &[("ECS_CONTAINER_METADATA_URI_V4", &metadata)]);
    assert_eq!(worker.json("/api/v1/monitor/topology")["instance_id"], "mine");
}

#[test]
fn secrets_show_nowhere() {
    let dir = TempDir::new().unwrap();
    let canary = "canary-c0ffee-1234";
    let broker = Broker::start(dir.path());
    let session = "username: u\n        password: ${BROKER_PASSWORD}\n        allow_plaintext_credentials: true";
    let environment =
        [("BROKER_PASSWORD", canary), ("AWS_SECRET_ACCESS_KEY", canary), ("CAUSEWAY_LOG", "trace"), ("SESSION_OPTIONS", session)];
    let mut worker = Worker::start(dir.path(), &broker.url, "", &environment);
    wait_for("a connection", || worker.get("/api/v1/monitor/ready?level=connected").0 == 200);
    broker.publish("telemetry/a", canary);
    wait_for("the message in the outbox", || worker.json("/api/v1/monitor/deephealth")["sessions"][0]["unsettled_count"] == 1);
    for path in ["/metrics", "/api/v1/monitor/status", "/api/v1/monitor/topology", "/api/v1/monitor/routes", "/api/v1/monitor/deephealth"] {
        assert!(!worker.get(path).1.contains(canary), "{path}");
    }
    worker.signal(rustix::process::Signal::KILL);
    let ended = worker.ended();
    assert!(ended.stderr.contains("connected"), "{}", ended.stderr);
    assert!(!ended.stderr.contains(canary) && !ended.stdout.contains(canary), "{}", ended.stderr);
}

#[test]
fn an_endpoint_that_is_away_is_not_an_unusable_configuration() {
    let dir = TempDir::new().unwrap();
    let worker = Worker::start(dir.path(), "mqtt://127.0.0.1:9", "", &[("AWS_ENDPOINT_URL", UNREACHABLE)]);
    assert_eq!(worker.get("/api/v1/monitor/live").0, 200);
}

#[test]
fn the_doctor_and_the_starter_tell_of_a_folder_that_is_not_private_before_a_worker_refuses_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = TempDir::new().unwrap();
    let mode = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    let path = dir.path().join("c.yaml").display().to_string();
    mode(0o755);
    let made = causeway(&["init", "--output", &path]);
    assert!(made.code == 0 && made.stdout.contains("warning: ") && made.stdout.contains("chmod 700"), "{}", made.stdout);
    let finding = || {
        let told: Value = serde_json::from_str(&causeway(&["doctor", "--json", "-c", &path]).stdout).unwrap();
        let findings = told["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["part"] == "stores.managed_subscriptions").unwrap_or_else(|| panic!("{told}"))
    };
    let told = finding();
    assert!(told["ok"] == false && told["detail"].as_str().unwrap().contains("has the mode 0755"), "{told}");
    mode(0o700);
    assert_eq!(finding()["ok"], true);
    let other = dir.path().join("other.yaml").display().to_string();
    assert!(!causeway(&["init", "--output", &other]).stdout.contains("warning"));
}

#[test]
fn an_endpoint_without_a_scheme_is_told_as_what_it_is() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("c.yaml");
    std::fs::write(&path, config(dir.path(), "mqtt://127.0.0.1:9", free_port(), "")).unwrap();
    let doctor = |environment: &[(&str, &str)]| causeway_with(&["doctor", "-c", &path.display().to_string()], environment).stdout;
    let told = doctor(&[("AWS_ENDPOINT_URL", "localhost:4566")]);
    assert!(told.contains("AWS_ENDPOINT_URL (or `endpoint_url` of the profile) is `localhost:4566`"), "{told}");
    let told = doctor(&[("AWS_ENDPOINT_URL_SQS", "localhost:4566")]);
    assert!(told.contains("AWS_ENDPOINT_URL_SQS"), "{told}");
    let told = doctor(&[("AWS_ENDPOINT_URL", "http://127.0.0.1:9")]);
    assert!(told.contains("asked at http://127.0.0.1:9"), "whom was asked is not in the queue's URL alone: {told}");
}

#[test]
fn letters_that_a_worker_has_are_changed_through_its_admin_interface() {
    let dir = TempDir::new().unwrap();
    let worker = Worker::start(dir.path(), "mqtt://127.0.0.1:9", "", &[]);
    let path = dir.path().join("again.yaml").display().to_string();
    let text = config(dir.path(), "mqtt://127.0.0.1:9", free_port(), "");
    std::fs::write(&path, &text).unwrap();
    for command in ["delete", "redrive"] {
        let told = causeway(&["dlq", command, "-c", &path, "--all", "--yes"]);
        assert!(told.code == 2 && told.stderr.contains("is in use by") && told.stderr.contains("`http.admin_api_key`"), "{}", told.stderr);
    }
    let key = "http: {admin_api_key: 0123456789abcdef, ";
    std::fs::write(&path, text.replace("http: {", key)).unwrap();
    let told = causeway(&["dlq", "delete", "-c", &path, "--all", "--yes"]);
    assert!(told.stderr.contains("POST /api/v1/admin/dlq/delete"), "{}", told.stderr);
    drop(worker);
}
